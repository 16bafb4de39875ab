//! Segments on disk: index, allocation, journal, recovery.
//!
//! A [`Store`] keeps byte ranges of objects in one preallocated file and finds them
//! again after a crash. It never serves a byte that was not written for that place:
//! each segment is checked on every read, and a mismatch is a miss.
//!
//! What it refuses: to decide what is worth keeping (the caller does, then the least
//! recently used goes), to hold bytes in memory beyond a call, to fail because its
//! disk fails (it degrades to a cache that is only read).
//!
//! # What survives a crash
//!
//! All that was written before the last [`Store::sync`], or the last sync of its own
//! a second ago, and was not dropped since. What was forgotten or replaced before
//! the crash does not come back.
//!
//! # Invariants
//!
//! - Bytes on disk are not written over while an index entry, in memory or on disk,
//!   names them: a cluster is used again only when its eviction is durable.
//! - Locks are taken in the order stripe, journal, index; the index lock is never
//!   held over IO.
//!
//! The layout of the files is in docs/formats/store.md.

#![forbid(unsafe_code)]

mod checksum;
mod clock;
pub mod disk;
mod error;
mod format;
mod index;
mod store;
mod types;
mod units;

pub use error::{OpenError, ReadError, WriteError};
pub use store::{CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, READ_BYTES_MAX, Store};
pub use types::{Description, ObjectSummary, Options, Read, Recovery, Stats, Tuning, VerifyReport};
