//! The bytes of every file but the data (docs/formats/store.md). Pure: slices in,
//! values out, nothing allocated beyond what the input holds.
//!
//! Numbers are little-endian. A decoder never trusts a length it has not checked
//! against what is there; the files may hold anything.

mod checkpoint;
mod entry;
mod frame;
mod superblock;
#[cfg(test)]
mod tests;

pub(crate) use checkpoint::CheckpointHeader;
pub(crate) use entry::{Entry, GroupState, Run};
pub(crate) use frame::{FRAME_BYTES_MAX, Frame, FrameKind, FrameReader, FrameWriter};
pub(crate) use superblock::{Superblock, SuperblockFault};

use crate::checksum::crc32c;

/// The version of all files together; one file's layout does not change alone.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// Bytes of a superblock copy and of a checkpoint's header.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// A run of bytes being decoded; every read says `None` past the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// `fields` in a block of [`BLOCK_BYTES`], zeros after them, CRC32C at the end.
fn seal(fields: &[u8]) -> Vec<u8> {
    let mut block = fields.to_vec();
    block.resize(BLOCK_BYTES - 4, 0);
    block.extend(crc32c(&block).to_le_bytes());
    block
}

/// What [`seal`] wrapped, `None` when the block is short or its checksum is wrong.
fn unseal(block: &[u8]) -> Option<&[u8]> {
    let (fields, crc) = block.get(..BLOCK_BYTES)?.split_last_chunk()?;
    (u32::from_le_bytes(*crc) == crc32c(fields)).then_some(fields)
}
