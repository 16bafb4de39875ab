//! The flows under way and what they came to.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_identify::App;
use weir_ranges::Instant;
use weir_session::{Event, Leg};

use crate::clock;
use crate::metrics::Metrics;
use crate::state::{AppFlows, ContentBytes, FlowStatus};

/// How a flow reached the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Taken over in mid-flow.
    Adopt,
    /// Sent to the proxy port.
    Explicit,
}

impl Mode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Adopt => "adopt",
            Self::Explicit => "explicit",
        }
    }
}

/// Who talks to whom in a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The inside end.
    pub(crate) client: SocketAddr,
    /// The outside end.
    pub(crate) peer: SocketAddr,
    /// Who opened it.
    pub(crate) dialer: Leg,
}

/// All flows in a session, and totals by app since the start.
#[derive(Debug)]
pub(crate) struct Flows {
    next_id: AtomicU64,
    active: Mutex<BTreeMap<u64, Arc<Flow>>>,
    apps: [AppCounters; App::ALL.len()],
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct AppCounters {
    seen: AtomicU64,
    sessions: AtomicU64,
    active: AtomicU64,
}

/// One flow in a session. Leaves the table when its guard is dropped.
#[derive(Debug)]
pub(crate) struct Flow {
    id: u64,
    app: App,
    mode: Mode,
    ends: Ends,
    began: Instant,
    tally: Tally,
}

/// Content bytes by the leg that asked.
#[derive(Debug, Default)]
struct Tally {
    asked: [AtomicU64; 2],
    served: [AtomicU64; 2],
    fetched: [AtomicU64; 2],
}

/// Keeps a flow in the table.
#[derive(Debug)]
pub(crate) struct FlowGuard {
    flows: Arc<Flows>,
    flow: Arc<Flow>,
}

impl Flows {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            next_id: AtomicU64::new(1),
            active: Mutex::default(),
            apps: std::array::from_fn(|_| AppCounters::default()),
            metrics,
        })
    }

    /// A flow of `app` was recognised outside the kernel.
    pub(crate) fn seen(&self, app: App) {
        self.apps[app.index()].seen.fetch_add(1, Ordering::Relaxed);
    }

    /// A session begins.
    pub(crate) fn begin(self: &Arc<Self>, app: App, mode: Mode, ends: Ends) -> FlowGuard {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let tally = Tally::default();
        let flow = Arc::new(Flow { id, app, mode, ends, began: clock::now(), tally });
        self.lock().insert(id, Arc::clone(&flow));
        let counters = &self.apps[app.index()];
        counters.sessions.fetch_add(1, Ordering::Relaxed);
        counters.active.fetch_add(1, Ordering::Relaxed);
        self.metrics.sessions.session_started(app.as_str());
        FlowGuard { flows: Arc::clone(self), flow }
    }

    /// Totals by app; `kernel_seen` is what the kernel recognised besides, by
    /// place in [`App::ALL`].
    pub(crate) fn apps(&self, kernel_seen: &[u64; App::ALL.len()]) -> BTreeMap<String, AppFlows> {
        let row = |app: App| {
            let counters = &self.apps[app.index()];
            let row = AppFlows {
                seen: counters.seen.load(Ordering::Relaxed) + kernel_seen[app.index()],
                sessions: counters.sessions.load(Ordering::Relaxed),
                active: counters.active.load(Ordering::Relaxed),
            };
            (app.as_str().to_owned(), row)
        };
        App::ALL.into_iter().map(row).collect()
    }

    /// The flows under way, oldest first.
    pub(crate) fn list(&self, show_addresses: bool) -> Vec<FlowStatus> {
        let flows: Vec<_> = self.lock().values().cloned().collect();
        flows.iter().map(|flow| flow.status(show_addresses)).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Flow>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlowGuard {
    /// The flow's number.
    pub(crate) fn id(&self) -> u64 {
        self.flow.id
    }

    /// Counts what a session reported.
    pub(crate) fn count(&self, event: Event) {
        self.flow.tally.add(event);
        self.flows.metrics.sessions.session_event(&event);
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        self.flows.lock().remove(&self.flow.id);
        self.flows.apps[self.flow.app.index()].active.fetch_sub(1, Ordering::Relaxed);
        self.flows.metrics.sessions.session_ended(self.flow.app.as_str());
    }
}

impl Flow {
    fn status(&self, show_addresses: bool) -> FlowStatus {
        FlowStatus {
            id: self.id,
            app: self.app.as_str().to_owned(),
            mode: self.mode.as_str().to_owned(),
            client: shown(self.ends.client, show_addresses),
            peer: shown(self.ends.peer, show_addresses),
            dialer: self.ends.dialer.as_str().to_owned(),
            age_seconds: clock::now().since(self.began).as_secs_f64(),
            bytes: self.tally.read(),
        }
    }
}

impl Tally {
    fn add(&self, event: Event) {
        let (row, leg, bytes) = match event {
            Event::Asked { leg, bytes } => (&self.asked, leg, bytes),
            Event::Served { leg, bytes } => (&self.served, leg, bytes),
            Event::Fetched { leg, bytes } => (&self.fetched, leg, bytes),
            Event::CheckPassed { .. }
            | Event::CheckFailed { .. }
            | Event::MetadataLearnt
            | Event::Ignored(_) => return,
        };
        row[leg.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    fn read(&self) -> ContentBytes {
        let one = |row: &[AtomicU64; 2], leg: Leg| row[leg.index()].load(Ordering::Relaxed);
        let sum = |row| one(row, Leg::Inside) + one(row, Leg::Outside);
        ContentBytes {
            asked: sum(&self.asked),
            served: sum(&self.served),
            fetched: sum(&self.fetched),
            asked_inside: one(&self.asked, Leg::Inside),
            served_inside: one(&self.served, Leg::Inside),
            fetched_inside: one(&self.fetched, Leg::Inside),
        }
    }
}

/// An address for people to see: whole, or only its network.
fn shown(addr: SocketAddr, whole: bool) -> String {
    if whole {
        return addr.to_string();
    }
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_listed_as_long_as_its_guard_lives() {
        let flows = Flows::new(Metrics::new());
        let ends = Ends {
            client: "10.1.2.3:5".parse().unwrap(),
            peer: "[2001:db8::7]:6".parse().unwrap(),
            dialer: Leg::Outside,
        };
        let guard = flows.begin(App::BitTorrent, Mode::Adopt, ends);
        guard.count(Event::Asked { leg: Leg::Inside, bytes: 7 });
        guard.count(Event::Served { leg: Leg::Outside, bytes: 5 });
        let list = flows.list(false);
        assert_eq!(list[0].client, "10.1.2.0/24");
        assert_eq!(list[0].peer, "2001:db8::/64");
        assert_eq!((list[0].bytes.asked, list[0].bytes.served_inside), (7, 0));
        assert_eq!(flows.list(true)[0].client, "10.1.2.3:5");
        drop(guard);
        assert!(flows.list(false).is_empty());
        let totals = flows.metrics.sessions.content_bytes();
        assert_eq!((totals.asked_inside, totals.served), (7, 5));
        let apps = flows.apps(&[2; App::ALL.len()]);
        assert_eq!(apps["bittorrent"], AppFlows { seen: 2, sessions: 1, active: 0 });
    }
}
