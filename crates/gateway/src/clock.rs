//! The one place where the gateway reads a clock.

use std::sync::OnceLock;
use std::time::Duration;

use weir_ranges::Instant;

static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();

/// Monotonic time since the first call.
#[allow(clippy::disallowed_methods, reason = "the clock module is where machines' time comes from")]
pub(crate) fn now() -> Instant {
    let origin = ORIGIN.get_or_init(std::time::Instant::now);
    Instant::from_nanos(0) + origin.elapsed()
}

/// How long until `deadline`; zero when it has passed.
pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.since(now())
}
