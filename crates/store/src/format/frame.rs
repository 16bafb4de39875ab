//! Frames: what the journal and the body of a checkpoint are made of.
//!
//! A frame holds whole entries and a checksum over all of it. A reader goes on
//! after a damaged stretch: entries are absolute, so what is whole still counts.

use super::Fields;
use crate::checksum::crc32c;

/// Where a frame belongs. A journal's frame in a checkpoint is damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// In a checkpoint.
    Checkpoint,
    /// In the journal.
    Journal,
}

/// Packs entries into frames.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    kind: FrameKind,
    generation: u64,
    epoch: u64,
    sequence: u64,
    out: Vec<u8>,
    /// Where the open frame starts in `out`; `start <= out.len()`.
    start: usize,
    entries: u32,
}

/// One whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The checkpoint it follows on, or is part of.
    pub(crate) epoch: u64,
    /// Its number in its epoch.
    pub(crate) sequence: u64,
    /// How many entries it holds.
    pub(crate) entries: u32,
    /// The entries.
    pub(crate) payload: &'a [u8],
}

/// Finds the whole frames in a run of bytes, in order.
#[derive(Debug)]
pub(crate) struct FrameReader<'a> {
    kind: FrameKind,
    generation: u64,
    rest: &'a [u8],
    damaged: u64,
}

impl FrameWriter {
    /// Frames of `epoch` from number `sequence` on.
    pub(crate) const fn new(kind: FrameKind, generation: u64, epoch: u64, sequence: u64) -> Self {
        Self { kind, generation, epoch, sequence, out: Vec::new(), start: 0, entries: 0 }
    }

    /// Adds one entry, which `write` appends.
    pub(crate) fn entry(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.entries == 0 {
            self.start = self.out.len();
            self.out.resize(self.start + HEADER_BYTES, 0);
        }
        write(&mut self.out);
        self.entries += 1;
        if self.out.len() - self.start >= PAYLOAD_BYTES_SOFT {
            self.close();
        }
    }

    /// The bytes so far, as whole frames, for a caller that writes them in parts.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.close();
        self.start = 0;
        std::mem::take(&mut self.out)
    }

    /// The number of the next frame.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Bytes that [`FrameWriter::take`] would hand out.
    pub(crate) const fn len(&self) -> usize {
        self.out.len()
    }

    fn close(&mut self) {
        if self.entries == 0 {
            return;
        }
        let frame = &mut self.out[self.start..];
        let len = u32::try_from(frame.len() - HEADER_BYTES)
            .expect("a frame is closed at the first entry past the soft bound");
        assert!(len <= PAYLOAD_BYTES_MAX, "an entry is below the gap between the two bounds");
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(self.kind.magic());
        header.extend([0; 4]);
        header.extend(len.to_le_bytes());
        header.extend(self.entries.to_le_bytes());
        header.extend(self.generation.to_le_bytes());
        header.extend(self.epoch.to_le_bytes());
        header.extend(self.sequence.to_le_bytes());
        frame[..HEADER_BYTES].copy_from_slice(&header);
        let crc = crc32c(&frame[8..]);
        frame[4..8].copy_from_slice(&crc.to_le_bytes());
        self.sequence += 1;
        self.entries = 0;
    }
}

impl<'a> FrameReader<'a> {
    /// Reads the frames of store `generation` in `bytes`.
    pub(crate) const fn new(kind: FrameKind, generation: u64, bytes: &'a [u8]) -> Self {
        Self { kind, generation, rest: bytes, damaged: 0 }
    }

    /// Bytes not looked at yet.
    pub(crate) const fn rest(&self) -> usize {
        self.rest.len()
    }

    /// The next frame that begins before the last `keep` bytes, which are left for when
    /// more has come behind them.
    pub(crate) fn next_before(&mut self, keep: usize) -> Option<Frame<'a>> {
        let end = self.rest.len().checked_sub(keep).filter(|end| *end > 0)?;
        if let Some((frame, len)) = self.parse(self.rest) {
            self.rest = &self.rest[len..];
            return Some(frame);
        }
        self.damaged += 1;
        let magic = self.kind.magic();
        for at in 1..end {
            if self.rest[at] != magic[0] {
                continue;
            }
            if let Some((frame, len)) = self.parse(&self.rest[at..]) {
                self.rest = &self.rest[at + len..];
                return Some(frame);
            }
        }
        self.rest = &self.rest[end..];
        None
    }

    /// Stretches passed over so far because no whole frame begins in them.
    pub(crate) const fn damaged(&self) -> u64 {
        self.damaged
    }

    fn parse(&self, at: &'a [u8]) -> Option<(Frame<'a>, usize)> {
        let mut fields = Fields(at);
        if fields.array()? != self.kind.magic() {
            return None;
        }
        let crc = fields.u32()?;
        let (len, entries, generation) = (fields.u32()?, fields.u32()?, fields.u64()?);
        // The generation is compared first: it bounds how often garbage is summed.
        if generation != self.generation || len > PAYLOAD_BYTES_MAX {
            return None;
        }
        let (epoch, sequence) = (fields.u64()?, fields.u64()?);
        if epoch == u64::MAX {
            return None;
        }
        let payload = fields.bytes(usize::try_from(len).ok()?)?;
        let whole = HEADER_BYTES + payload.len();
        (crc32c(&at[8..whole]) == crc)
            .then_some((Frame { epoch, sequence, entries, payload }, whole))
    }
}

impl<'a> Iterator for FrameReader<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        self.next_before(0)
    }
}

impl FrameKind {
    const fn magic(self) -> [u8; 4] {
        match self {
            Self::Checkpoint => *b"WCKP",
            Self::Journal => *b"WJNL",
        }
    }
}

const HEADER_BYTES: usize = 40;
/// A frame with this much is closed.
const PAYLOAD_BYTES_SOFT: usize = 32 << 10;
/// No frame is longer.
pub(crate) const FRAME_BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX as usize;
/// No frame has more; the largest entry is below a third of the gap.
const PAYLOAD_BYTES_MAX: u32 = 64 << 10;
