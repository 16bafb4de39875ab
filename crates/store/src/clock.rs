//! The one place where this crate reads a clock or draws a number that must differ.
//!
//! Times written to disk are wall-clock seconds, good for ordering and for people,
//! never for deciding whether bytes are right.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Measures how long something took.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts at zero.
    #[allow(clippy::disallowed_methods, reason = "this is the crate's clock module")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Seconds since 1970, 0 before it, saturating in 2106.
pub(crate) fn unix_seconds() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// A number that no store made on this machine had before: nanoseconds since
/// 1970, with the process id so that two processes in one tick differ.
pub(crate) fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    ns ^ u64::from(std::process::id()).rotate_right(22)
}
