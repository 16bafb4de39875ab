//! All rooms in one registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::rooms::{Admin, Adopt, Explicit, Sessions, Store};

/// All metrics of one gateway.
#[derive(Debug)]
pub struct Metrics {
    /// The admin API.
    pub admin: Admin,
    /// Mode `adopt`.
    pub adopt: Adopt,
    /// Mode `explicit`.
    pub explicit: Explicit,
    /// Sessions of every mode.
    pub sessions: Sessions,
    /// The store.
    pub store: Store,
    registry: Registry,
}

impl Metrics {
    /// Registers every family; nothing is counted yet.
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("weir");
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.sub_registry_with_prefix("gateway").register(
            "build",
            "The version that runs",
            version,
        );
        Arc::new(Self {
            admin: Admin::new(&mut registry),
            adopt: Adopt::new(&mut registry),
            explicit: Explicit::new(&mut registry),
            sessions: Sessions::new(&mut registry),
            store: Store::new(&mut registry),
            registry,
        })
    }

    /// Everything as OpenMetrics text, see [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("writing to a string does not fail");
        out
    }

    /// Reasons of everything that was let pass or left, of the sessions and of
    /// the explicit port, without those that did not occur.
    pub fn reasons(&self) -> BTreeMap<String, u64> {
        let mut reasons = self.sessions.reasons();
        for (name, count) in self.explicit.reasons() {
            *reasons.entry(name).or_default() += count;
        }
        reasons
    }
}

/// Media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
