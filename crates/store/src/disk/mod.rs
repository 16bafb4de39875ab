//! The store's door to the disk: five files and six verbs.
//!
//! Everything the store writes goes through [`Disk`], so that a test can drop,
//! tear and reorder what lies between two [`Disk::sync`]s, or fail any call.
//!
//! What the store takes for granted of an implementation: bytes written are read
//! back as written until the process ends; what was written or set before a
//! `sync` of that file is durable when it returns; what was not synced may be
//! there after a crash wholly, partly or not at all, in any order; a sector of
//! 512 bytes that is not written keeps its bytes.

mod files;

use std::fmt::Debug;
use std::io;

pub(crate) use files::{Files, free};

/// One of the store's files (docs/formats/store.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum File {
    /// What the store is: version, capacity, generation.
    Superblock,
    /// The index at some time; two alternate.
    Checkpoint0,
    /// The other one.
    Checkpoint1,
    /// What changed since the newest checkpoint.
    Journal,
    /// The clusters.
    Data,
}

impl File {
    /// All, in the order in which they are made.
    pub const ALL: [Self; 5] =
        [Self::Superblock, Self::Checkpoint0, Self::Checkpoint1, Self::Journal, Self::Data];

    /// Its name in the store's directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Checkpoint0 => "checkpoint.0",
            Self::Checkpoint1 => "checkpoint.1",
            Self::Journal => "journal",
            Self::Data => "data",
        }
    }
}

/// Files of bytes, with durability named. All calls block.
pub trait Disk: Send + Sync + Debug {
    /// Bytes in `file`.
    ///
    /// # Errors
    /// Whatever the host reports.
    fn len(&self, file: File) -> io::Result<u64>;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end of the file; whatever the host reports.
    fn read_at(&self, file: File, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`; the file grows when need be.
    ///
    /// # Errors
    /// Whatever the host reports; an unknown part of `data` may then be written.
    fn write_at(&self, file: File, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts `file`, or extends it with zeros.
    ///
    /// # Errors
    /// Whatever the host reports.
    fn set_len(&self, file: File, len: u64) -> io::Result<()>;

    /// Extends `file` to `len` bytes with space that is reserved.
    ///
    /// # Errors
    /// `StorageFull` when it does not fit, and then nothing has changed; whatever
    /// else the host reports.
    fn allocate(&self, file: File, len: u64) -> io::Result<()>;

    /// Makes all that was done to `file` before this call durable.
    ///
    /// # Errors
    /// Whatever the host reports. What was not durable before is then unknown, also
    /// when a later call succeeds.
    fn sync(&self, file: File) -> io::Result<()>;
}
