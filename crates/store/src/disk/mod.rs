//! The store's door to the disk: six files, six verbs, and transfers.
//!
//! Everything the store writes goes through [`Disk`], so that a test can drop,
//! tear and reorder what lies between two [`Disk::sync`]s, or fail any call.
//!
//! The six verbs take any bytes at any offset. They are for what describes the
//! data: superblock, checkpoints, journal, marks. The data itself goes by [`Transfer`], in
//! whole blocks between the data file and a frame, many at once, so that the disk
//! is kept busy and no byte is copied. A disk that only has the six verbs does the
//! transfers with them.
//!
//! What the store takes for granted of an implementation: bytes written are read
//! back as written until the process ends, whichever verb wrote and whichever
//! reads; what was written or set before a `sync` of that file is durable when it
//! returns; what was not synced may be there after a crash wholly, partly or not at
//! all, in any order; a sector of 512 bytes that is not written keeps its bytes.
//!
//! What an implementation takes for granted of the store: two calls, or two
//! transfers of one batch, that overlap within a block of 4 KiB and of which one
//! writes are not under way at the same time.

mod data;
mod engine;
mod files;
mod raw;
mod transfer;

use std::fmt::Debug;
use std::io;

pub use files::{DirectChoice, DiskOptions, EngineChoice, Files};
pub use raw::{DeviceError, LABEL_AREA_BYTES};
pub use transfer::{Done, Engine, EngineKind, Transfer};

pub(crate) use files::free;

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
    /// The checksums of the clusters' segments.
    Marks,
}

impl File {
    /// All, in the order in which they are made.
    pub const ALL: [Self; 6] = [
        Self::Superblock,
        Self::Checkpoint0,
        Self::Checkpoint1,
        Self::Journal,
        Self::Data,
        Self::Marks,
    ];

    /// Its name in the store's directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Checkpoint0 => "checkpoint.0",
            Self::Checkpoint1 => "checkpoint.1",
            Self::Journal => "journal",
            Self::Data => "data",
            Self::Marks => "marks",
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

    /// Reads the data file into the frames of `batch`. Returns when all are done, in
    /// the order in which they were given; their reads may happen in any order.
    /// A failure is that of its transfer alone: `InvalidInput` as
    /// [`Transfer::check`] has it, `UnexpectedEof` past the end of the file, or
    /// whatever the host reports.
    fn read_batch(&self, batch: Vec<Transfer>) -> Vec<Done> {
        let read = |mut transfer: Transfer| {
            let done = transfer
                .check()
                .and_then(|()| self.read_at(File::Data, transfer.offset, transfer.bytes_mut()));
            (transfer, done)
        };
        batch.into_iter().map(read).collect()
    }

    /// Writes the frames of `batch` to the data file. Like [`Self::read_batch`];
    /// nothing is durable before the next [`Self::sync`] of the data file.
    fn write_batch(&self, batch: Vec<Transfer>) -> Vec<Done> {
        let write = |transfer: Transfer| {
            let done = transfer
                .check()
                .and_then(|()| self.write_at(File::Data, transfer.offset, transfer.bytes()));
            (transfer, done)
        };
        batch.into_iter().map(write).collect()
    }

    /// What carries the transfers.
    fn engine(&self) -> Engine {
        Engine::plain()
    }
}
