//! What goes into and comes out of a [`crate::Store`].

use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_policy::Kind;
use weir_ranges::{ObjectId, RangeSet};

use crate::disk::{DirectChoice, EngineChoice};

/// Where a store is and how large it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The directory with the store's files; made when it is not there.
    pub dir: PathBuf,
    /// Bytes reserved for content, at least 8 MiB, rounded down to whole MiB. May
    /// differ from the last time: the store grows, or forgets what lies past the
    /// new end. Journal and checkpoints come on top, about 0.1 %.
    pub capacity_bytes: u64,
    /// Bytes of memory for what is on its way to the disk or came from it lately, an
    /// eighth of it (at least 1 MiB) for checksums; 128 MiB by default. The index comes
    /// on top: 0.3 bytes a segment where groups are full, 20 where they hold one.
    pub memory_bytes: usize,
    /// A block device or a partition for the bytes, instead of a file in `dir`; all of
    /// it is the store's.
    pub device: Option<PathBuf>,
    /// How the kernel is asked for bytes.
    pub engine: EngineChoice,
    /// Whether the page cache is passed by.
    pub direct: DirectChoice,
    /// What is let in and what goes when there is no space left.
    pub policy: Kind,
    /// How long bytes on disk may wait to be durable, 1 s by default; a group that is
    /// not complete waits twice as long for more before it goes to disk. Zero: no thread does
    /// it; they become durable by [`crate::Store::sync`], at the bound of dirty
    /// bytes and when the store is dropped.
    pub sync_interval: Duration,
}

impl Options {
    /// The defaults for `dir` and `capacity_bytes`.
    pub fn new(dir: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            dir: dir.into(),
            capacity_bytes,
            memory_bytes: 128 << 20,
            device: None,
            engine: EngineChoice::Auto,
            direct: DirectChoice::Auto,
            policy: Kind::ObjectFrequency,
            sync_interval: Duration::from_secs(1),
        }
    }
}

/// Bounds that an operator has no reason to change and tests have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes not yet durable at which a sync begins; at twice as many, writers wait
    /// for it. 64 MiB by default.
    pub dirty_bytes_max: u64,
    /// Bytes of journal at which it is folded into a checkpoint, unless the last
    /// checkpoint is larger. 8 MiB by default.
    pub journal_bytes_max: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { dirty_bytes_max: 64 << 20, journal_bytes_max: 8 << 20 }
    }
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Objects held.
    pub objects: u64,
    /// Segments held, whole or in part.
    pub segments: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Journal records that were replayed.
    pub journal_records: u64,
    /// Records that were damaged, torn or made no sense, and were left out. One
    /// after a crash is usual.
    pub dropped_records: u64,
    /// How long opening took.
    pub took: Duration,
}

/// What is known of an object beside its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The app it belongs to, cut at 255 bytes.
    pub app: String,
    /// A name for people, cut at 255 bytes.
    pub name: String,
    /// The whole object's size, where it is known.
    pub size_bytes: Option<u64>,
}

/// One object in the list of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSummary {
    /// Its id.
    pub object: ObjectId,
    /// What was said of it.
    pub description: Option<Description>,
    /// Bytes held of it.
    pub bytes_held: u64,
    /// Segments held of it, whole or in part.
    pub segments: u64,
    /// How long ago it was last read or written, to the second.
    pub last_used: Duration,
}

/// The answer to a read: what is held of a range, and what is not.
///
/// `parts` and `holes` together are exactly the range asked for. Parts may touch:
/// bytes are handed out as they lie in memory, without a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Offset in the object and bytes; ascending, none empty.
    pub parts: Vec<(u64, Bytes)>,
    /// What is missing.
    pub holes: RangeSet,
}

impl Read {
    /// The whole range as one piece, `None` when any byte is missing. Copies when it
    /// lies in several.
    pub fn whole(mut self) -> Option<Bytes> {
        if !self.holes.is_empty() {
            return None;
        }
        if self.parts.len() <= 1 {
            return Some(self.parts.pop().map_or_else(Bytes::new, |(_, bytes)| bytes));
        }
        let mut whole = BytesMut::new();
        for (_, bytes) in self.parts {
            whole.extend_from_slice(&bytes);
        }
        Some(whole.freeze())
    }
}

/// Counters and levels; counters are since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of content that fit.
    pub capacity_bytes: u64,
    /// Bytes held.
    pub held_bytes: u64,
    /// Objects held.
    pub objects: u64,
    /// Groups held.
    pub groups: u64,
    /// Bytes of the data file that they take.
    pub used_bytes: u64,
    /// Segments held, whole or in part.
    pub segments: u64,
    /// Reads answered in full.
    pub hits: u64,
    /// Reads with a hole.
    pub misses: u64,
    /// Bytes served.
    pub read_bytes: u64,
    /// Bytes taken and not held before.
    pub written_bytes: u64,
    /// Bytes dropped to make room.
    pub evicted_bytes: u64,
    /// Segments, or runs of one, that did not match their checksum and were freed.
    pub checksum_failures: u64,
    /// Reads that the disk failed; each was a miss.
    pub read_errors: u64,
    /// Writes and syncs that the disk failed.
    pub write_errors: u64,
    /// Bytes offered and not taken: not worth what would have gone for them.
    pub declined_bytes: u64,
    /// Writes refused because every cluster was in use.
    pub full_refusals: u64,
    /// Nothing is taken any more, since a write failed; reads go on.
    pub degraded: bool,
    /// Bytes taken and not yet durable.
    pub dirty_bytes: u64,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segments, or runs of one, that were read.
    pub segments: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Of those segments, the ones whose bytes were not what was written. Freed.
    pub bad_segments: u64,
    /// Their bytes.
    pub bad_bytes: u64,
    /// Segments that the disk would not read. Kept: it may later.
    pub read_errors: u64,
}
