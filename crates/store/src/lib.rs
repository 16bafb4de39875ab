//! Segments on disk and in memory: index, buffers, allocation, journal, recovery.
//!
//! A [`Store`] keeps byte ranges of objects in one preallocated file, or on a device,
//! and finds them again after a crash. It never serves a byte that was not written for
//! that place: each segment is checked when it comes from the disk, and a mismatch is a
//! miss. What is on its way to the disk, and what came from it lately, is served from
//! memory of a fixed size.
//!
//! What it refuses: to hold more than it was given space and memory for (a [`Policy`]
//! says what goes, and what is not let in), to fail because its disk fails (it degrades
//! to a cache that is only read).
//!
//! # What survives a crash
//!
//! All that was written before the last [`Store::sync`], or some three seconds ago,
//! and was not dropped since. What was forgotten before the crash, or replaced while it
//! was held, does not come back.
//!
//! # Invariants
//!
//! - Bytes on disk are not changed while an index entry, in memory or on disk, names
//!   them: an extent is used again only when its drop is durable.
//! - Locks are taken in the order shard, journal, marks, index. The index is never
//!   locked over IO; a shard is by its one writer, the journal by who commits.
//! - Of two readers of a group one reads the disk, and nobody who does waits for
//!   another.
//!
//! The layout of the files is in docs/formats/store.md.

#![deny(unsafe_code)]

mod checksum;
mod clock;
pub mod disk;
mod error;
mod format;
pub mod frame;
mod index;
mod space;
mod store;
mod types;
mod units;

pub use error::{OpenError, ReadError, WriteError};
pub use store::{CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, READ_BYTES_MAX, Store};
pub use types::{Description, ObjectSummary, Options, Read, Recovery, Stats, Tuning, VerifyReport};
pub use weir_policy::Kind as Policy;
