//! What the gateway knows about itself, as the admin API and `weir status` show it.
//!
//! Plain data with serde: the JSON of `/api/v1` is these structs and nothing
//! else. A field added here is described in `admin/openapi.json` too; a test
//! compares them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the JSON below; raised when a field changes its meaning or goes.
pub const API_VERSION: u32 = 1;

/// `GET /api/v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`API_VERSION`].
    pub api_version: u32,
    /// The gateway's own version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// How flows reach it.
    pub modes: Modes,
    /// Content bytes since the start.
    pub bytes: ContentBytes,
    /// Flows, by app, since the start; keys are app names.
    pub apps: BTreeMap<String, AppFlows>,
    /// The store; `None` when the gateway goes on without one.
    pub store: Option<StoreStatus>,
    /// Why the gateway goes on without a store, for people.
    pub store_error: Option<String>,
    /// Mode `adopt`; `None` when it is not used.
    pub adopt: Option<AdoptStatus>,
    /// Reasons of everything that was let pass without being acted upon.
    pub reasons: BTreeMap<String, u64>,
}

/// How flows reach the gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// Interfaces of mode `adopt` towards the access network.
    pub inside: Vec<String>,
    /// Interfaces of mode `adopt` towards the expensive link.
    pub outside: Vec<String>,
    /// Address of the explicit proxy.
    pub explicit: Option<String>,
}

/// Content bytes, summed over both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentBytes {
    /// Asked for by either side.
    pub asked: u64,
    /// Answered from the store.
    pub served: u64,
    /// Came from the other side.
    pub fetched: u64,
    /// The part of `asked` that inside clients asked for.
    pub asked_inside: u64,
    /// The part of `served` that inside clients asked for: what the link was spared.
    pub served_inside: u64,
    /// The part of `fetched` that inside clients asked for.
    pub fetched_inside: u64,
}

/// Flows of one app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppFlows {
    /// Recognised by their first bytes, in the kernel or on the explicit port.
    pub seen: u64,
    /// Taken into a session.
    pub sessions: u64,
    /// In a session now.
    pub active: u64,
}

/// The store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Its size.
    pub capacity_bytes: u64,
    /// Content bytes in it.
    pub held_bytes: u64,
    /// Bytes of it that they take.
    pub used_bytes: u64,
    /// Objects in it.
    pub objects: u64,
    /// Segments in it.
    pub segments: u64,
    /// Look-ups that found every byte.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Bytes evicted to make room.
    pub evicted_bytes: u64,
    /// Bytes not taken, for they were worth less than what would have gone.
    pub declined_bytes: u64,
    /// Segments whose checksum was wrong; each was a miss.
    pub checksum_failures: u64,
    /// Errors of the device.
    pub errors: u64,
    /// Whether it refuses writes since an error.
    pub degraded: bool,
}

/// Mode `adopt`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdoptStatus {
    /// Flows adopted since the start.
    pub adopted: u64,
    /// Of them, given back to the kernel.
    pub given_back: u64,
    /// Time a flow was held until its sockets took over, in microseconds, over
    /// the last 4,096 adoptions.
    pub held_p50_us: f64,
    /// Likewise, the 99th percentile.
    pub held_p99_us: f64,
    /// The kernel side's counters by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// One element of `GET /api/v1/flows`: a session under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Names it as long as it lives.
    pub id: u64,
    /// Its app.
    pub app: String,
    /// `adopt` or `explicit`.
    pub mode: String,
    /// The client's address; without `show_addresses` only its prefix (/24, /64).
    pub client: String,
    /// The peer's address, likewise.
    pub peer: String,
    /// Which leg opened it: `inside` or `outside`.
    pub dialer: String,
    /// Seconds since it began.
    pub age_seconds: f64,
    /// Content bytes of this flow.
    pub bytes: ContentBytes,
}

/// `GET /api/v1/objects/{id}`, and one element of `GET /api/v1/objects`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The app it came by.
    pub app: String,
    /// Its name for people.
    pub name: String,
    /// The whole object, where its size is known.
    pub size_bytes: Option<u64>,
    /// Bytes of it in the store.
    pub held_bytes: u64,
    /// Segments of it in the store, whole or in part.
    pub segments: u64,
    /// Seconds since it was last read or written.
    pub idle_seconds: f64,
}

/// `GET /api/v1/store/verify`: the scrub of the store that is under way, or the last
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyStatus {
    /// Which one it is, counted from 1 since the gateway's start; 0: none began.
    pub number: u64,
    /// Whether it is under way.
    pub running: bool,
    /// Bytes it has read.
    pub bytes_done: u64,
    /// Bytes there are to read; grows when some are written meanwhile.
    pub bytes_total: u64,
    /// What it found; `None` before its end, and when the gateway's stop cut it off.
    pub report: Option<VerifyReport>,
}

/// What a scrub found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Segments, or parts of one, that were read.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them, those whose bytes were not what was written. They are freed.
    pub bad_segments: u64,
    /// Their bytes.
    pub bad_bytes: u64,
    /// Segments that the disk would not read. They are kept: it may later.
    pub read_errors: u64,
}
