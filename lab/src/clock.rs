//! The lab's only reading of time.
//!
//! The lab measures programs that run in real time, so its clock is the real
//! one; that it is read in one place keeps the pure parts (emulator queue,
//! parsers, figures) free of it.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// Monotonic time.
#[expect(clippy::disallowed_methods, reason = "the clock module of the lab")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since the epoch, for the record of a run.
pub(crate) fn wall_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Waits until `ready` answers something, asking every `every`.
///
/// # Errors
/// When nothing came within `limit`; `what` says what was waited for.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    every: Duration,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = now();
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if start.elapsed() > limit {
            bail!("{what} did not happen within {:.0} s", limit.as_secs_f64());
        }
        thread::sleep(every);
    }
}
