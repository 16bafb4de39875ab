//! What can go wrong, one enum for each family of operations.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a store could not be opened. The fault is the host's or the configuration's;
/// trying again helps only where the message says so.
///
/// Every message ends in what an operator can do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The capacity asked for is below the least or above the most.
    #[error(
        "a cache of {given_bytes} bytes is not possible: the capacity must be from {min_bytes} to \
         {max_bytes} bytes"
    )]
    Capacity {
        /// What was asked for.
        given_bytes: u64,
        /// The least: 8 MiB.
        min_bytes: u64,
        /// The most.
        max_bytes: u64,
    },
    /// Neither copy of the superblock is whole.
    #[error(
        "the superblock in {} is damaged: remove this directory to start with an empty cache, or \
         give another", dir.display()
    )]
    CorruptSuperblock {
        /// The store's directory.
        dir: PathBuf,
    },
    /// The space for the data cannot be reserved.
    #[error(
        "the disk of {} is too full: {needed_bytes} bytes more are needed and {free_bytes} are \
         free; lower the capacity or make room", dir.display()
    )]
    DiskFull {
        /// The store's directory.
        dir: PathBuf,
        /// Bytes to be added to the files; 0 when even their names do not fit.
        needed_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
    },
    /// Another process, or another store of this one, has it open.
    #[error(
        "the cache in {} is in use by another process: stop that one, or give another directory",
        dir.display()
    )]
    InUse {
        /// The store's directory.
        dir: PathBuf,
    },
    /// The host refuses something else.
    #[error("cannot use {} as a cache: check the disk and the path", dir.display())]
    Io {
        /// The store's directory.
        dir: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// The directory, or a file in it, cannot be written.
    #[error(
        "{} cannot be written: it is on a read-only file system or belongs to another user; give \
         the right to write it, or another directory", dir.display()
    )]
    NotWritable {
        /// The store's directory.
        dir: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// The files are of another version of the format.
    #[error(
        "the cache in {} has format {found} and this program writes format {ours}: remove this \
         directory to start with an empty cache, or run the version that made it", dir.display()
    )]
    OtherVersion {
        /// The store's directory.
        dir: PathBuf,
        /// The version on disk.
        found: u32,
        /// The version of this program.
        ours: u32,
    },
}

/// Why a read was refused. A failing disk is not a reason: that is a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The range is longer than one read may be; a bug of the caller. Split it.
    #[error("read of {len_bytes} bytes, at most {max_bytes} at once")]
    TooLong {
        /// Bytes asked for.
        len_bytes: u64,
        /// [`crate::READ_BYTES_MAX`].
        max_bytes: u64,
    },
}

/// Why bytes were not kept or not made durable. None is fatal: what was held
/// before is still served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An earlier write failed; nothing is taken until the store is opened anew.
    #[error("keep bytes: the store is degraded since an earlier write failed")]
    Degraded,
    /// No cluster is free and every one is being read or written. Try later.
    #[error("keep bytes: every cluster is in use")]
    Full,
    /// The disk failed or is full. The store is degraded from now on.
    #[error("write to the store's disk")]
    Io(#[from] io::Error),
    /// The bytes would pass offset 2^64 - 1; a bug of the caller.
    #[error("keep bytes past the end of all numbers")]
    OutOfRange,
}
