//! From two sockets and an app to a session, and what comes after it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use weir_bittorrent::{BtSession, SessionOptions, Torrents, TorrentsOptions};
use weir_identify::App;
use weir_linux::FlowGuard as KernelGuard;
use weir_linux::splice;
use weir_session::{Leg, Session};

use crate::driver::{End, Prelude, drive};
use crate::flows::{Ends, Flows, Mode};
use crate::metrics::Metrics;
use crate::options::BitTorrentOptions;
use crate::storage::Storage;

/// How often, and how far apart, giving a flow back is tried before it is
/// relayed for good: bytes may be on their way at that very moment.
const GIVE_BACK_TRIES: u32 = 20;
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(5);

/// What every flow's task shares.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) flows: Arc<Flows>,
    pub(crate) storage: Storage,
    pub(crate) metrics: Arc<Metrics>,
    bittorrent: BitTorrentOptions,
    torrents: Arc<Mutex<Torrents>>,
}

/// A flow that is to have a session.
#[derive(Debug)]
pub(crate) struct NewFlow {
    pub(crate) app: App,
    pub(crate) mode: Mode,
    pub(crate) ends: Ends,
    pub(crate) inside: TcpStream,
    pub(crate) outside: TcpStream,
    pub(crate) prelude: Option<Prelude>,
    pub(crate) kernel: Option<KernelGuard>,
}

impl Sessions {
    pub(crate) fn new(
        flows: Arc<Flows>,
        storage: Storage,
        metrics: Arc<Metrics>,
        bittorrent: BitTorrentOptions,
    ) -> Self {
        let options = TorrentsOptions {
            assembly_bytes_max: bittorrent.assembly_bytes_max,
            ..TorrentsOptions::default()
        };
        let torrents = Arc::new(Mutex::new(Torrents::new(options)));
        Self { flows, storage, metrics, bittorrent, torrents }
    }

    /// Whether flows of `app` get a session.
    pub(crate) fn takes(&self, app: App) -> bool {
        app == App::BitTorrent && self.bittorrent.enabled
    }

    fn session(&self, app: App, dialer: Leg) -> Option<Box<dyn Session>> {
        if !self.takes(app) {
            return None;
        }
        let options = SessionOptions {
            answer_outside: self.bittorrent.answer_outside,
            serve_unchecked: self.bittorrent.serve_inferred,
            ..SessionOptions::default()
        };
        Some(Box::new(BtSession::new(options, Arc::clone(&self.torrents), dialer)))
    }

    /// Runs `flow` to its end.
    pub(crate) async fn run(&self, flow: NewFlow) {
        let NewFlow { app, mode, ends, inside, outside, prelude, kernel } = flow;
        let Some(mut session) = self.session(app, ends.dialer) else {
            // Its app was switched off after the kernel had matched it.
            let mut unsent = [Vec::new(), Vec::new()];
            if let Some(Prelude { from, bytes, delivered: false }) = prelude {
                unsent[from.other().index()] = bytes.to_vec();
            }
            relay([inside, outside], unsent).await;
            return drop(kernel);
        };
        let guard = self.flows.begin(app, mode, ends);
        tracing::debug!(flow = guard.id(), app = app.as_str(), "session_began");
        let end =
            drive(inside, outside, &mut *session, prelude, &self.storage, |e| guard.count(e)).await;
        match end {
            End::Finished => tracing::debug!(flow = guard.id(), "session_finished"),
            End::Broken(error) => tracing::debug!(flow = guard.id(), %error, "session_broken"),
            End::Left { legs, unsent, reason, untouched } => {
                tracing::debug!(flow = guard.id(), reason = reason.as_str(), "session_left");
                self.metrics.sessions.session_left(reason);
                let quiet = untouched && unsent.iter().all(Vec::is_empty);
                self.left(legs, unsent, kernel, quiet).await;
            }
        }
    }

    /// Hands the flow back to the kernel when that is possible, else relays it.
    async fn left(
        &self,
        legs: [TcpStream; 2],
        unsent: [Vec<u8>; 2],
        kernel: Option<KernelGuard>,
        quiet: bool,
    ) {
        // The guard keeps the flow's packets coming to our sockets, so it lives
        // until they are closed.
        let (legs, _kernel) = match kernel {
            Some(kernel) if quiet => match give_back(legs, kernel).await {
                GiveBack::Done => return self.metrics.adopt.flow_given_back(),
                GiveBack::Lost => return,
                GiveBack::Refused(legs, kernel) => (legs, Some(kernel)),
            },
            kernel => (legs, kernel),
        };
        relay(legs, unsent).await;
    }
}

/// Relays verbatim until both sides are done, after what is still to be sent.
async fn relay([inside, outside]: [TcpStream; 2], unsent: [Vec<u8>; 2]) {
    let [to_inside, to_outside] = unsent;
    let relayed = splice::relay_after(&inside, &outside, &to_outside, &to_inside).await;
    tracing::debug!(?relayed, "relay_finished");
}

/// What came of giving a flow back.
enum GiveBack {
    /// The kernel has it.
    Done,
    /// A socket could not leave or enter the reactor: the flow is closed.
    Lost,
    /// It was never quiet.
    Refused([TcpStream; 2], KernelGuard),
}

/// Tries to hand the flow back to the kernel; returns the sockets when it is
/// never quiet.
async fn give_back(mut legs: [TcpStream; 2], mut kernel: KernelGuard) -> GiveBack {
    for _ in 0..GIVE_BACK_TRIES {
        let [Ok(inside), Ok(outside)] = legs.map(TcpStream::into_std) else {
            return GiveBack::Lost;
        };
        match kernel.give_back(inside.into(), outside.into()) {
            Ok(()) => return GiveBack::Done,
            Err((error, inside, outside, guard)) => {
                tracing::trace!(%error, "give_back_refused");
                kernel = guard;
                let back = [inside, outside].map(|fd| TcpStream::from_std(fd.into()));
                let [Ok(inside), Ok(outside)] = back else { return GiveBack::Lost };
                legs = [inside, outside];
            }
        }
        tokio::time::sleep(GIVE_BACK_PAUSE).await;
    }
    GiveBack::Refused(legs, kernel)
}
