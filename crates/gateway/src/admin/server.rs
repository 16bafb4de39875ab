//! The admin server: one listener until it is told to stop.

use std::future::{Future, IntoFuture as _};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use weir_ranges::ObjectId;

use super::connections::Bounded;
use super::feed::{self, Followers, Recent};
use super::options::AdminOptions;
use super::routes::{self, Shared};
use crate::metrics::Metrics;
use crate::state::{FlowStatus, ObjectStatus, Status, VerifyStatus};

/// What the admin API shows. Calls may block, but not for long: they run on
/// threads made for it, at least one a second.
pub trait View: Send + Sync + 'static {
    /// The gateway as a whole.
    fn status(&self) -> Status;

    /// Sessions under way, in any order.
    fn flows(&self) -> Vec<FlowStatus>;

    /// Objects held, in any order.
    fn objects(&self) -> Vec<ObjectStatus>;

    /// One of [`Self::objects`].
    fn object(&self, id: ObjectId) -> Option<ObjectStatus> {
        let id = id.to_string();
        self.objects().into_iter().find(|object| object.id == id)
    }

    /// Drops an object from the store; `false` when it was not there.
    fn remove_object(&self, id: ObjectId) -> bool;

    /// The scrub of the store that is under way, or the last one; `None` without a
    /// store.
    fn verify_status(&self) -> Option<VerifyStatus>;

    /// Begins a scrub unless one is under way, and does not wait for its end. Says
    /// whether it did, and how that scrub stands; `None` without a store. Called on
    /// a thread of the runtime.
    fn start_verify(&self) -> Option<(bool, VerifyStatus)>;
}

/// Serves the API, the metrics and the dashboard until `shutdown` is done; then
/// ends live events, lets requests under way finish, for five seconds at most,
/// and returns.
///
/// # Errors
///
/// Options that [`AdminOptions::check`] refuses, as [`io::ErrorKind::InvalidInput`].
/// Errors of single connections end these connections only.
///
/// # Cancel safety
///
/// Dropping it closes the listener; connections end with the runtime.
pub async fn serve(
    listener: TcpListener,
    options: AdminOptions,
    view: Arc<dyn View>,
    metrics: Arc<Metrics>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    options.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let recent = Arc::<Recent>::default();
    let (latest_sender, latest) = watch::channel(Arc::from(""));
    let router = routes::router(Arc::new(Shared {
        view: Arc::clone(&view),
        recent: Arc::clone(&recent),
        followers: Followers::new(latest, Arc::clone(&metrics)),
        metrics,
        options,
    }));

    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(Bounded::new(listener), router).with_graceful_shutdown(async move {
        // Told, or the sender is gone: both mean stop.
        drop(stopped.await);
    });
    let mut server = pin!(server.into_future());
    tokio::select! {
        result = &mut server => return result,
        () = feed::run(view, recent, latest_sender) => {}
        () = shutdown => {}
    }
    // The feed is dropped by now: the streams of all followers have ended.
    drop(stop);
    timeout(DRAIN_TIMEOUT, server).await.unwrap_or(Ok(()))
}

/// Asks the view on a thread that may block.
pub(super) async fn read<T: Send + 'static>(
    view: &Arc<dyn View>,
    ask: impl FnOnce(&dyn View) -> T + Send + 'static,
) -> Result<T, ViewPanicked> {
    let view = Arc::clone(view);
    tokio::task::spawn_blocking(move || ask(&*view)).await.map_err(|_| ViewPanicked)
}

/// The view panicked while it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ViewPanicked;

const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
