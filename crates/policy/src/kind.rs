//! Policies by name, for flags, configuration and reports.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::baselines::{Arc, Clock, Fifo, LfuDa, Slru, TwoQ, WTinyLfu};
use crate::{
    Gdsf, ObjectFrequency, ObjectFrequencyOptions, Partial, Policy, S3Fifo, SegmentLru, Sieve,
};

/// Every policy of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`ObjectFrequency`] as it serves the store.
    ObjectFrequency,
    /// [`ObjectFrequency`] with counts that never decay: object-level TinyLFU.
    ObjectTinyLfu,
    /// [`ObjectFrequency`] that admits everything and ages: object-level LFU-DA.
    ObjectLfuDa,
    /// [`Partial`].
    Partial,
    /// [`SegmentLru::paper`].
    SegmentLru,
    /// [`SegmentLru::exact`].
    Lru,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`Sieve`].
    Sieve,
    /// [`Gdsf`].
    Gdsf,
    /// [`Arc`].
    Arc,
    /// [`Clock`].
    Clock,
    /// [`Fifo`].
    Fifo,
    /// [`LfuDa`].
    LfuDa,
    /// [`Slru`].
    Slru,
    /// [`TwoQ`].
    TwoQ,
    /// [`WTinyLfu`].
    WTinyLfu,
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no policy {name:?}: there are {}", Kind::names())]
pub struct UnknownPolicy {
    /// What was read.
    pub name: String,
}

impl Kind {
    /// All, candidates for the store first.
    pub const ALL: [Self; 16] = [
        Self::ObjectFrequency,
        Self::ObjectTinyLfu,
        Self::ObjectLfuDa,
        Self::Partial,
        Self::SegmentLru,
        Self::Lru,
        Self::S3Fifo,
        Self::Sieve,
        Self::Gdsf,
        Self::Arc,
        Self::Clock,
        Self::Fifo,
        Self::LfuDa,
        Self::Slru,
        Self::TwoQ,
        Self::WTinyLfu,
    ];

    /// A policy of this kind for a cache of so many bytes.
    #[must_use]
    pub fn build(self, capacity_bytes: u64) -> Box<dyn Policy> {
        let frequency =
            |options: ObjectFrequencyOptions| Box::new(ObjectFrequency::new(self.name(), options));
        match self {
            Self::ObjectFrequency => frequency(ObjectFrequencyOptions::default()),
            Self::ObjectTinyLfu => frequency(ObjectFrequencyOptions::TINY_LFU),
            Self::ObjectLfuDa => frequency(ObjectFrequencyOptions::LFU_DA),
            Self::Partial => Box::new(Partial::new()),
            Self::SegmentLru => Box::new(SegmentLru::paper()),
            Self::Lru => Box::new(SegmentLru::exact()),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity_bytes)),
            Self::Sieve => Box::new(Sieve::new()),
            Self::Gdsf => Box::new(Gdsf::new()),
            Self::Arc => Box::new(Arc::new(capacity_bytes)),
            Self::Clock => Box::new(Clock::new()),
            Self::Fifo => Box::new(Fifo::new()),
            Self::LfuDa => Box::new(LfuDa::new()),
            Self::Slru => Box::new(Slru::new(capacity_bytes)),
            Self::TwoQ => Box::new(TwoQ::new(capacity_bytes)),
            Self::WTinyLfu => Box::new(WTinyLfu::new(capacity_bytes)),
        }
    }

    /// The name, as [`FromStr`] reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ObjectFrequency => "object-frequency",
            Self::ObjectTinyLfu => "object-tinylfu",
            Self::ObjectLfuDa => "object-lfu-da",
            Self::Partial => "partial",
            Self::SegmentLru => "segment-lru",
            Self::Lru => "lru",
            Self::S3Fifo => "s3-fifo",
            Self::Sieve => "sieve",
            Self::Gdsf => "gdsf",
            Self::Arc => "arc",
            Self::Clock => "clock",
            Self::Fifo => "fifo",
            Self::LfuDa => "lfu-da",
            Self::Slru => "slru",
            Self::TwoQ => "two-q",
            Self::WTinyLfu => "w-tinylfu",
        }
    }

    /// Every name, for a message.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_is_the_policys_own() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(kind.build(1 << 30).name(), kind.name());
        }
        let unknown = "lur".parse::<Kind>().unwrap_err().to_string();
        assert!(unknown.contains("\"lur\"") && unknown.contains("segment-lru, lru"), "{unknown}");
    }
}
