//! One struct a room: its families, and the methods that change them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use weir_session::{Event, LeaveReason, Leg, Reason};

use super::labels::{AdminRefusal, ExplicitRefusal, ProxyKind};
use super::snapshot::{KernelReasons, StoreSnapshot};
use crate::state::{ContentBytes, StoreStatus};

/// One label and its value; both come from the source, never from the wire.
type Label = [(&'static str, &'static str); 1];

/// Declares a room's families: the doc comment of each is its help text.
macro_rules! families {
    ($(#[doc = $head:literal])+ struct $room:ident in $prefix:literal {
        $($(#[doc = $help:literal])+ $field:ident: $kind:ty = $init:expr, $name:literal, $unit:expr;)+
    }) => {
        $(#[doc = $head])+
        #[derive(Debug)]
        struct $room { $($(#[doc = $help])+ $field: $kind,)+ }

        impl $room {
            fn register(registry: &mut Registry) -> Self {
                let registry = registry.sub_registry_with_prefix($prefix);
                $(
                    let $field: $kind = $init;
                    let help = concat!($($help),+).trim().trim_end_matches('.');
                    let unit: Option<Unit> = $unit;
                    match unit {
                        Some(unit) => registry.register_with_unit($name, help, unit, $field.clone()),
                        None => registry.register($name, help, $field.clone()),
                    }
                )+
                Self { $($field,)+ }
            }
        }
    };
}

families! {
    /// See [`Sessions`].
    struct SessionFamilies in "sessions" {
        /// Sessions under way.
        active: Family<Label, Gauge> = Family::default(), "active", None;
        /// Sessions begun.
        started: Family<Label, Counter> = Family::default(), "started", None;
        /// Content bytes asked for, by the leg that asked.
        asked: Family<Label, Counter> = Family::default(), "asked", Some(Unit::Bytes);
        /// Content bytes answered from the store, by the leg that had asked.
        served: Family<Label, Counter> = Family::default(), "served", Some(Unit::Bytes);
        /// Content bytes that came from the other side, by the leg that had asked.
        fetched: Family<Label, Counter> = Family::default(), "fetched", Some(Unit::Bytes);
        /// Units of content (pieces) checked against their hash, by result.
        checked: Family<Label, Counter> = Family::default(), "checks", None;
        /// Bytes of the units checked, by result.
        checked_bytes: Family<Label, Counter> = Family::default(), "checked", Some(Unit::Bytes);
        /// Times the metadata of a content was learnt.
        metadata: Counter = Counter::default(), "metadata_learnt", None;
        /// Things not acted upon, by reason.
        ignored: Family<Label, Counter> = Family::default(), "ignored", None;
        /// Flows that a session left, by reason.
        left: Family<Label, Counter> = Family::default(), "left", None;
        /// Tasks that panicked; each is a bug and ended its own flow only.
        panics: Counter = Counter::default(), "panics", None;
    }
}

/// Sessions of every mode.
#[derive(Debug)]
pub struct Sessions {
    /// Tasks that panicked, in sessions and beside them.
    pub panics: Counter,
    families: SessionFamilies,
}

impl Sessions {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let families = SessionFamilies::register(registry);
        for family in [&families.asked, &families.served, &families.fetched] {
            start_at_zero(family, "leg", Leg::BOTH.map(Leg::as_str));
        }
        start_at_zero(&families.checked, "result", CHECK_RESULTS);
        start_at_zero(&families.checked_bytes, "result", CHECK_RESULTS);
        start_at_zero(&families.ignored, "reason", Reason::ALL.map(Reason::as_str));
        start_at_zero(&families.left, "reason", LeaveReason::ALL.map(LeaveReason::as_str));
        Self { panics: families.panics.clone(), families }
    }

    /// A session of `app` begins. `app` is a name of the closed list of apps.
    pub fn session_started(&self, app: &'static str) {
        self.families.active.get_or_create(&[("app", app)]).inc();
        self.families.started.get_or_create(&[("app", app)]).inc();
    }

    /// A session of `app` ended; called once for each [`Sessions::session_started`].
    pub fn session_ended(&self, app: &'static str) {
        self.families.active.get_or_create(&[("app", app)]).dec();
    }

    /// A session counted something.
    pub fn session_event(&self, event: &Event) {
        let families = &self.families;
        match *event {
            Event::Asked { leg, bytes } => add(&families.asked, "leg", leg.as_str(), bytes),
            Event::Served { leg, bytes } => add(&families.served, "leg", leg.as_str(), bytes),
            Event::Fetched { leg, bytes } => add(&families.fetched, "leg", leg.as_str(), bytes),
            Event::CheckPassed { bytes } => self.add_check(CHECK_RESULTS[0], bytes),
            Event::CheckFailed { bytes } => self.add_check(CHECK_RESULTS[1], bytes),
            Event::MetadataLearnt => {
                families.metadata.inc();
            }
            Event::Ignored(reason) => add(&families.ignored, "reason", reason.as_str(), 1),
        }
    }

    /// A session left its flow.
    pub fn session_left(&self, reason: LeaveReason) {
        add(&self.families.left, "reason", reason.as_str(), 1);
    }

    /// Content bytes since the start.
    pub fn content_bytes(&self) -> ContentBytes {
        let of = |family: &Family<Label, Counter>| {
            let [inside, outside] = Leg::BOTH
                .map(|leg| family.get(&[("leg", leg.as_str())]).map_or(0, |counter| counter.get()));
            (inside.saturating_add(outside), inside)
        };
        let (asked, asked_inside) = of(&self.families.asked);
        let (served, served_inside) = of(&self.families.served);
        let (fetched, fetched_inside) = of(&self.families.fetched);
        ContentBytes { asked, served, fetched, asked_inside, served_inside, fetched_inside }
    }

    /// Reasons of what was ignored or left, without those that did not occur.
    pub(super) fn reasons(&self) -> BTreeMap<String, u64> {
        let mut reasons = occurred(&self.families.ignored, Reason::ALL.map(Reason::as_str));
        reasons.extend(occurred(&self.families.left, LeaveReason::ALL.map(LeaveReason::as_str)));
        reasons
    }

    fn add_check(&self, result: &'static str, bytes: u64) {
        add(&self.families.checked, "result", result, 1);
        add(&self.families.checked_bytes, "result", result, bytes);
    }
}

families! {
    /// See [`Adopt`].
    struct AdoptFamilies in "adopt" {
        /// Flows taken over from the kernel.
        adopted: Counter = Counter::default(), "adopted", None;
        /// Of the flows taken over, those given back.
        given_back: Counter = Counter::default(), "given_back", None;
        /// Time a flow was held until its sockets took over.
        held: Histogram = Histogram::new(HELD_BUCKETS), "held", Some(Unit::Seconds);
    }
}

/// Mode `adopt`.
#[derive(Debug)]
pub struct Adopt {
    families: AdoptFamilies,
    recent: Mutex<VecDeque<Duration>>,
    kernel: Arc<KernelReasons>,
}

impl Adopt {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let families = AdoptFamilies::register(registry);
        let kernel = Arc::new(KernelReasons::default());
        registry
            .sub_registry_with_prefix("adopt")
            .register_collector(Box::new(Arc::clone(&kernel)));
        Self { families, recent: Mutex::default(), kernel }
    }

    /// A flow was adopted after it was held for `held`.
    pub fn flow_adopted(&self, held: Duration) {
        self.families.adopted.inc();
        self.families.held.observe(held.as_secs_f64());
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(held);
    }

    /// An adopted flow went back to the kernel.
    pub fn flow_given_back(&self) {
        self.families.given_back.inc();
    }

    /// Where the kernel side's counters by reason are read; the first call counts.
    pub fn set_kernel_source(
        &self,
        source: impl Fn() -> BTreeMap<String, u64> + Send + Sync + 'static,
    ) {
        self.kernel.0.set_once(Box::new(source));
    }

    /// Flows adopted, and of them those given back.
    pub fn flow_counts(&self) -> (u64, u64) {
        (self.families.adopted.get(), self.families.given_back.get())
    }

    /// Median and 99th percentile of the time held, over the last 4,096
    /// adoptions; zero before the first.
    pub fn held_percentiles(&self) -> (Duration, Duration) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<_> = recent.iter().copied().collect();
        drop(recent);
        sorted.sort_unstable();
        // Nearest rank: the smallest value with at least that share at or below it.
        let rank = |percent: usize| {
            let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(index).copied().unwrap_or_default()
        };
        (rank(50), rank(99))
    }
}

families! {
    /// See [`Explicit`].
    struct ExplicitFamilies in "explicit" {
        /// Requests taken, by protocol: each HTTP request, each tunnel.
        connections: Family<Label, Counter> = Family::default(), "requests", None;
        /// Connections refused, by reason.
        refused: Family<Label, Counter> = Family::default(), "refused", None;
        /// Relays that were cut before both sides were done.
        cut: Counter = Counter::default(), "relays_cut", None;
        /// Bytes relayed without a session, by the leg they came from.
        relayed: Family<Label, Counter> = Family::default(), "relayed", Some(Unit::Bytes);
    }
}

/// Mode `explicit`.
#[derive(Debug)]
pub struct Explicit {
    families: ExplicitFamilies,
}

impl Explicit {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let families = ExplicitFamilies::register(registry);
        start_at_zero(&families.connections, "kind", ProxyKind::ALL.map(ProxyKind::as_str));
        start_at_zero(
            &families.refused,
            "reason",
            ExplicitRefusal::ALL.map(ExplicitRefusal::as_str),
        );
        start_at_zero(&families.relayed, "from", Leg::BOTH.map(Leg::as_str));
        Self { families }
    }

    /// A connection, or a request on it, was accepted.
    pub fn connection_accepted(&self, kind: ProxyKind) {
        add(&self.families.connections, "kind", kind.as_str(), 1);
    }

    /// A connection was refused.
    pub fn connection_refused(&self, reason: ExplicitRefusal) {
        add(&self.families.refused, "reason", reason.as_str(), 1);
    }

    /// Reasons of what was refused, without those that did not occur.
    pub(super) fn reasons(&self) -> BTreeMap<String, u64> {
        occurred(&self.families.refused, ExplicitRefusal::ALL.map(ExplicitRefusal::as_str))
    }

    /// A relay ended before both sides were done.
    pub fn relay_cut(&self) {
        self.families.cut.inc();
    }

    /// Bytes read from the leg `from` were relayed to the other, outside a session.
    pub fn bytes_relayed(&self, from: Leg, bytes: u64) {
        add(&self.families.relayed, "from", from.as_str(), bytes);
    }
}

families! {
    /// See [`Admin`].
    struct AdminFamilies in "admin" {
        /// Requests refused, by reason.
        refused: Family<Label, Counter> = Family::default(), "refused", None;
        /// Programs that follow the live events.
        followers: Gauge = Gauge::default(), "followers", None;
    }
}

/// The admin API.
#[derive(Debug)]
pub struct Admin {
    families: AdminFamilies,
}

impl Admin {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let families = AdminFamilies::register(registry);
        start_at_zero(&families.refused, "reason", AdminRefusal::ALL.map(AdminRefusal::as_str));
        Self { families }
    }

    /// A request was refused.
    pub fn request_refused(&self, reason: AdminRefusal) {
        add(&self.families.refused, "reason", reason.as_str(), 1);
    }

    /// Somebody began to follow the live events.
    pub fn follower_came(&self) {
        self.families.followers.inc();
    }

    /// Somebody who followed the live events went.
    pub fn follower_went(&self) {
        self.families.followers.dec();
    }
}

/// The store, which counts for itself.
#[derive(Debug)]
pub struct Store {
    snapshot: Arc<StoreSnapshot>,
}

impl Store {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let snapshot = Arc::new(StoreSnapshot::default());
        registry
            .sub_registry_with_prefix("store")
            .register_collector(Box::new(Arc::clone(&snapshot)));
        Self { snapshot }
    }

    /// Where the store's figures are read; the first call counts. No figures,
    /// no series: a gateway without a store shows none.
    pub fn set_store_source(
        &self,
        source: impl Fn() -> Option<StoreStatus> + Send + Sync + 'static,
    ) {
        self.snapshot.0.set_once(Box::new(source));
    }
}

fn start_at_zero<const N: usize>(
    family: &Family<Label, Counter>,
    label: &'static str,
    values: [&'static str; N],
) {
    for value in values {
        drop(family.get_or_create(&[(label, value)]));
    }
}

fn add(family: &Family<Label, Counter>, label: &'static str, value: &'static str, n: u64) {
    family.get_or_create(&[(label, value)]).inc_by(n);
}

/// The series labelled `reason` that are not 0.
fn occurred<const N: usize>(
    family: &Family<Label, Counter>,
    reasons: [&'static str; N],
) -> BTreeMap<String, u64> {
    let count = |reason| family.get(&[("reason", reason)]).map_or(0, |counter| counter.get());
    reasons
        .into_iter()
        .map(|reason| (reason.to_owned(), count(reason)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Good and bad, in this order.
const CHECK_RESULTS: [&str; 2] = ["ok", "bad"];

/// Seconds; the promise is a 99th percentile below 1 ms.
const HELD_BUCKETS: [f64; 8] = [50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3];

/// Adoptions that [`Adopt::held_percentiles`] looks back on: 64 KiB.
const RECENT_MAX: usize = 4096;
