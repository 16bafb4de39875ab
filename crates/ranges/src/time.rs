//! Monotonic time as machines see it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in monotonic time, in nanoseconds.
///
/// On Linux the shells take it from `CLOCK_MONOTONIC`, which is the clock of
/// `bpf_ktime_get_ns`, so it compares with what the kernel noted. A test makes
/// one from any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// `ns` nanoseconds after the clock's own zero.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's own zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates 584 years after the clock's zero.
    fn add(self, rhs: Duration) -> Self {
        let ns = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Time since `rhs`; zero when `rhs` is later.
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_and_subtracts_without_wrapping() {
        let t = Instant::from_nanos(5);
        assert_eq!(t + Duration::from_nanos(7) - t, Duration::from_nanos(7));
        assert_eq!(t - (t + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(t + Duration::MAX, Instant::from_nanos(u64::MAX));
    }
}
