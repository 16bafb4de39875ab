//! `weir run`, put together: start, serve, stop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use weir_identify::{App, Pack};
use weir_linux::StartError;
use weir_ranges::{Instant, ObjectId};
use weir_store::Store;

use crate::admin::{self, View};
use crate::adopted::Adoption;
use crate::clock;
use crate::explicit;
use crate::flows::Flows;
use crate::metrics::Metrics;
use crate::options::{Listening, Options, StoreOptions};
use crate::scrub::Scrub;
use crate::sessions::Sessions;
use crate::state::{
    API_VERSION, FlowStatus, Modes, ObjectStatus, Status, StoreStatus, VerifyStatus,
};
use crate::storage::Storage;
use crate::supervise;

/// How often written bytes are made durable at the latest.
const STORE_SYNC_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Why the gateway does not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// A port cannot be listened on.
    #[error("cannot listen on {addr} for {what}")]
    Listen {
        /// Which service.
        what: &'static str,
        /// Where.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Mode `adopt` cannot start.
    #[error(transparent)]
    Adopt(#[from] StartError),
    /// The admin API would not be safe.
    #[error(transparent)]
    Admin(#[from] admin::OptionsError),
}

/// A gateway that has started.
#[derive(Debug)]
pub struct Gateway {
    /// Where it listens.
    pub listening: Listening,
    view: Arc<GatewayView>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// What the admin API sees.
#[derive(Debug)]
struct GatewayView {
    began: Instant,
    modes: Modes,
    show_addresses: bool,
    store_error: Option<String>,
    sessions: Arc<Sessions>,
    /// Where there is a store.
    scrub: Option<Scrub>,
    /// Taken out at the end, to detach the kernel side.
    adoption: Mutex<Option<Adoption>>,
}

impl Gateway {
    /// Starts everything `options` asks for. A store that cannot be opened is
    /// not fatal: the gateway goes on without a cache and says so.
    ///
    /// # Errors
    /// When a port, the kernel or the rights refuse.
    pub async fn start(options: Options) -> Result<Self, RunError> {
        if let Some(admin) = &options.admin {
            admin.check()?;
        }
        // What can be refused is asked for first: a store takes its disk for good.
        let explicit_listener =
            listen("the proxy", options.explicit.as_ref().map(|o| o.listen)).await?;
        let admin_listener =
            listen("the admin API", options.admin.as_ref().map(|o| o.listen)).await?;
        if let Some(adopt) = &options.adopt {
            weir_linux::interface::find_sides(&adopt.inside, &adopt.outside)
                .map_err(StartError::from)?;
        }
        let metrics = Metrics::new();
        let (store, store_error) = open_store(options.store.as_ref()).await;
        if let Some(store) = &store {
            let store = Arc::clone(store);
            metrics.store.set_store_source(move || Some(store_status(&store.stats())));
        }
        let storage = Storage::new(store, Arc::clone(&metrics));
        let flows = Flows::new(Arc::clone(&metrics));
        let mut pack = Pack::builtin();
        if !options.bittorrent.enabled {
            pack = pack.without_adopting(App::BitTorrent);
        }
        let sessions =
            Arc::new(Sessions::new(flows, storage, Arc::clone(&metrics), options.bittorrent));

        let adoption = options
            .adopt
            .as_ref()
            .map(|adopt| Adoption::start(adopt, &pack, Arc::clone(&sessions), Handle::current()))
            .transpose()?;

        let mut listening = Listening::default();
        let mut modes = Modes::default();
        if let Some(adopt) = options.adopt {
            (modes.inside, modes.outside) = (adopt.inside, adopt.outside);
        }
        let (stop, _) = watch::channel(false);
        let mut tasks = Vec::new();
        if let (Some(listener), Some(options)) = (explicit_listener, options.explicit) {
            listening.explicit = listener.local_addr().ok();
            modes.explicit = listening.explicit.map(|addr| addr.to_string());
            let serve = explicit::serve(listener, options, Arc::clone(&sessions), Arc::new(pack));
            let until = stopped(stop.subscribe());
            tasks.push(supervise::spawn(&metrics, "explicit", async move {
                tokio::select! {
                    result = serve => {
                        if let Err(error) = result {
                            tracing::error!(%error, "explicit_ended");
                        }
                    }
                    () = until => {}
                }
            }));
        }
        let scrub = sessions.storage.store().map(|store| Scrub::new(store, stop.subscribe()));
        let view = Arc::new(GatewayView {
            began: clock::now(),
            modes,
            show_addresses: options.show_addresses,
            store_error,
            sessions,
            scrub,
            adoption: Mutex::new(adoption),
        });
        if let (Some(listener), Some(options)) = (admin_listener, options.admin) {
            listening.admin = listener.local_addr().ok();
            let until = stopped(stop.subscribe());
            let view = Arc::clone(&view) as Arc<dyn View>;
            let serve = admin::serve(listener, options, view, Arc::clone(&metrics), until);
            tasks.push(supervise::spawn(&metrics, "admin", async move {
                if let Err(error) = serve.await {
                    tracing::error!(%error, "admin_ended");
                }
            }));
        }
        Ok(Self { listening, view, tasks, stop })
    }

    /// What `GET /api/v1/status` would say.
    pub fn status(&self) -> Status {
        self.view.status()
    }

    /// Stops: no new flows, a scrub cut off, the kernel side detached, the store synced.
    pub async fn stop(self) {
        // Nobody listening any more is as good as having been told.
        self.stop.send_replace(true);
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "task_lost");
            }
        }
        let view = self.view;
        let stopped = tokio::task::spawn_blocking(move || {
            drop(view.adoption().take());
            view.sessions.storage.store().map_or(Ok(()), |store| store.sync())
        });
        match stopped.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "store_sync_failed"),
            Err(error) => tracing::error!(%error, "stop_panicked"),
        }
    }
}

impl GatewayView {
    fn adoption(&self) -> MutexGuard<'_, Option<Adoption>> {
        self.adoption.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // The sender lives as long as the gateway; gone means stopped.
    if stop.wait_for(|stop| *stop).await.is_err() {
        tracing::trace!("gateway_dropped");
    }
}

async fn listen(
    what: &'static str,
    addr: Option<SocketAddr>,
) -> Result<Option<TcpListener>, RunError> {
    let Some(addr) = addr else { return Ok(None) };
    let listener = TcpListener::bind(addr).await;
    listener.map(Some).map_err(|source| RunError::Listen { what, addr, source })
}

/// Opens the store, or says for people why not.
async fn open_store(options: Option<&StoreOptions>) -> (Option<Arc<Store>>, Option<String>) {
    let Some(options) = options else { return (None, None) };
    let options = weir_store::Options {
        memory_bytes: options.memory_bytes,
        device: options.device.clone(),
        policy: options.policy,
        sync_interval: STORE_SYNC_INTERVAL,
        ..weir_store::Options::new(&options.dir, options.capacity_bytes)
    };
    let opened = tokio::task::spawn_blocking(move || Store::open(&options)).await;
    match opened.map_err(|panic| panic.to_string()) {
        Ok(Ok((store, recovery))) => {
            tracing::info!(
                objects = recovery.objects,
                bytes = recovery.bytes,
                dropped_records = recovery.dropped_records,
                took_ms = recovery.took.as_millis(),
                engine = %store.engine(),
                "store_opened"
            );
            (Some(Arc::new(store)), None)
        }
        Ok(Err(error)) => without_store(error_chain(&error)),
        Err(panic) => without_store(panic),
    }
}

fn without_store(why: String) -> (Option<Arc<Store>>, Option<String>) {
    tracing::error!(%why, "running_without_a_store");
    (None, Some(why))
}

/// An error and its causes on one line, for people.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn store_status(stats: &weir_store::Stats) -> StoreStatus {
    StoreStatus {
        capacity_bytes: stats.capacity_bytes,
        held_bytes: stats.held_bytes,
        used_bytes: stats.used_bytes,
        objects: stats.objects,
        segments: stats.segments,
        hits: stats.hits,
        misses: stats.misses,
        evicted_bytes: stats.evicted_bytes,
        declined_bytes: stats.declined_bytes,
        checksum_failures: stats.checksum_failures,
        errors: stats.read_errors + stats.write_errors,
        degraded: stats.degraded,
    }
}

impl View for GatewayView {
    fn status(&self) -> Status {
        let flows = &self.sessions.flows;
        let adoption = self.adoption();
        let store = self.sessions.storage.store().map(|store| store_status(&store.stats()));
        Status {
            api_version: API_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: clock::now().since(self.began).as_secs_f64(),
            modes: self.modes.clone(),
            bytes: self.sessions.metrics.sessions.content_bytes(),
            apps: flows.apps(&adoption.as_ref().map_or([0; App::ALL.len()], Adoption::seen)),
            store,
            store_error: self.store_error.clone(),
            adopt: adoption.as_ref().map(Adoption::status),
            reasons: self.sessions.metrics.reasons(),
        }
    }

    fn flows(&self) -> Vec<FlowStatus> {
        self.sessions.flows.list(self.show_addresses)
    }

    fn objects(&self) -> Vec<ObjectStatus> {
        let Some(store) = self.sessions.storage.store() else { return Vec::new() };
        let objects = store.objects().into_iter().filter_map(|object| {
            // An object nobody described is an inner one: metadata, say.
            let description = object.description?;
            Some(ObjectStatus {
                id: object.object.to_string(),
                app: description.app,
                name: description.name,
                size_bytes: description.size_bytes,
                held_bytes: object.bytes_held,
                segments: object.segments,
                idle_seconds: object.last_used.as_secs_f64(),
            })
        });
        objects.collect()
    }

    fn remove_object(&self, id: ObjectId) -> bool {
        self.sessions.storage.store().is_some_and(|store| store.forget(id))
    }

    fn verify_status(&self) -> Option<VerifyStatus> {
        self.scrub.as_ref().map(Scrub::status)
    }

    fn start_verify(&self) -> Option<(bool, VerifyStatus)> {
        self.scrub.as_ref().map(Scrub::start)
    }
}

/// Runs a gateway until `until` completes.
///
/// # Errors
/// As [`Gateway::start`].
pub async fn run(
    options: Options,
    started: impl FnOnce(&Gateway),
    until: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let gateway = Gateway::start(options).await?;
    started(&gateway);
    until.await;
    gateway.stop().await;
    Ok(())
}
