//! One read or write of whole blocks between a frame and the data file.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;

use crate::frame::{BLOCK_BYTES, PooledFrame};

/// One read or write of whole blocks of [`BLOCK_BYTES`] between a frame and the
/// data file. It owns its frame until it is done.
#[derive(Debug)]
pub struct Transfer {
    /// Where in the data file, in bytes; a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// From where, or to where, in memory.
    pub frame: PooledFrame,
    /// Which bytes of the frame; both ends multiples of [`BLOCK_BYTES`], not empty.
    pub range: Range<usize>,
}

/// A transfer that is over, and what came of it. After a read that failed, what is
/// in the frame's range is unknown; after a write that failed, what is in the file.
pub type Done = (Transfer, io::Result<()>);

impl Transfer {
    /// A transfer of the first `len_bytes` of `frame`.
    pub const fn new(offset: u64, frame: PooledFrame, len_bytes: usize) -> Self {
        Self { offset, frame, range: 0..len_bytes }
    }

    /// The bytes that are transferred.
    ///
    /// # Panics
    /// When the range is not within the frame, which [`Self::check`] tells before.
    pub fn bytes(&self) -> &[u8] {
        &self.frame[self.range.clone()]
    }

    /// The bytes that are transferred, to be filled.
    ///
    /// # Panics
    /// As [`Self::bytes`].
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.range.clone()]
    }

    /// How many bytes are transferred.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether none are; such a transfer is refused.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Whether a disk can be asked for it.
    ///
    /// # Errors
    /// `InvalidInput` when the range is empty, not within the frame or not in whole
    /// blocks, and when the offset is not one or the end not a number.
    pub fn check(&self) -> io::Result<()> {
        let Range { start, end } = self.range;
        let block = BLOCK_BYTES as u64;
        let whole =
            start % BLOCK_BYTES == 0 && end % BLOCK_BYTES == 0 && self.offset.is_multiple_of(block);
        let within = start < end && end <= self.frame.len();
        // The kernel's offsets are signed.
        let last = u64::try_from(self.len()).ok().and_then(|len| self.offset.checked_add(len));
        if whole && within && last.is_some_and(|last| i64::try_from(last).is_ok()) {
            return Ok(());
        }
        Err(ErrorKind::InvalidInput.into())
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// From the data file into the frame.
    Read,
    /// From the frame into the data file.
    Write,
}

/// What carries transfers, for the log and for people: `io_uring, direct`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Engine {
    /// How the kernel is asked.
    pub kind: EngineKind,
    /// Whether the page cache is passed by (`O_DIRECT`).
    pub direct: bool,
    /// Whether the pool's frames are registered with the kernel.
    pub registered: bool,
    /// Whether the data is on a device of its own, without a file system.
    pub device: bool,
    /// Why it is not what was to be preferred, one reason for each such choice.
    pub reasons: Vec<String>,
}

/// How the kernel is asked for transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// One [`super::Disk::read_at`] or [`super::Disk::write_at`] after another.
    Plain,
    /// `pread(2)` and `pwrite(2)`, on threads where there is more than one.
    Pread,
    /// `io_uring(7)`.
    Uring,
}

impl Engine {
    /// That of a disk that only has the verbs it must have.
    pub(crate) const fn plain() -> Self {
        Self {
            kind: EngineKind::Plain,
            direct: false,
            registered: false,
            device: false,
            reasons: Vec::new(),
        }
    }
}

impl EngineKind {
    /// A stable name, for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pread => "pread",
            Self::Uring => "io_uring",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.direct { "direct" } else { "buffered" };
        write!(out, "{}, {way}", self.kind.name())?;
        if self.registered {
            out.write_str(", registered buffers")?;
        }
        if self.device {
            out.write_str(", device")?;
        }
        if !self.reasons.is_empty() {
            write!(out, " ({})", self.reasons.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FramePool;

    #[test]
    fn only_whole_blocks_within_the_frame_pass() {
        let block = BLOCK_BYTES;
        let cases = [
            (0, 0..block, true),
            (4096, block..4 * block, true),
            (0, 0..4 * block + block, false),
            (0, 0..0, false),
            (0, 2 * block..block, false),
            (0, 1..block, false),
            (0, 0..block - 1, false),
            (512, 0..block, false),
            (i64::MAX as u64 - 4095, 0..block, false),
            (i64::MAX as u64 - 8191, 0..block, true),
            (u64::MAX - 4095, 0..block, false),
        ];
        for (offset, range, passes) in cases {
            let frame = FramePool::heap(4 * block);
            let transfer = Transfer { offset, frame, range };
            assert_eq!(transfer.check().is_ok(), passes, "{transfer:?}");
        }
    }

    #[test]
    fn an_engine_says_what_it_is_and_why() {
        let mut engine = Engine { kind: EngineKind::Uring, direct: true, ..Engine::plain() };
        assert_eq!(engine.to_string(), "io_uring, direct");
        engine.registered = true;
        assert_eq!(engine.to_string(), "io_uring, direct, registered buffers");
        let reasons = vec!["io_uring: not permitted".to_owned()];
        let engine = Engine { kind: EngineKind::Pread, device: true, reasons, ..Engine::plain() };
        assert_eq!(engine.to_string(), "pread, buffered, device (io_uring: not permitted)");
    }
}
