//! Incomplete pieces of all contents, in memory.
//!
//! One budget for all; when it is passed, the piece that was touched longest ago
//! is dropped. Of bytes that come twice, the first are held.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_ranges::{ByteRange, RangeSet};

use crate::handshake::InfoHash;
use crate::wire::Block;

/// Parts one piece may have; more are not taken. A 64 MiB piece in blocks of
/// 16 KiB has 4096.
const PARTS_MAX: usize = 4096;

/// What a part costs beside its bytes.
const PART_OVERHEAD_BYTES: usize = 96;

type PieceKey = (InfoHash, u32);

#[derive(Debug)]
pub(super) struct Assembly {
    budget_bytes: usize,
    /// Sum of `cost_bytes` of all pieces; `<= budget_bytes` between calls.
    held_bytes: usize,
    pieces: BTreeMap<PieceKey, Piece>,
    /// By the last touch; exactly the keys of `pieces`.
    order: BTreeMap<u64, PieceKey>,
    touches: u64,
}

#[derive(Debug, Default)]
struct Piece {
    have: RangeSet,
    /// By offset, disjoint; together exactly `have`.
    parts: BTreeMap<u64, Bytes>,
    cost_bytes: usize,
    touched: u64,
}

impl Assembly {
    pub(super) const fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            held_bytes: 0,
            pieces: BTreeMap::new(),
            order: BTreeMap::new(),
            touches: 0,
        }
    }

    /// Holds `data` at `block` of its piece; says how many pieces were dropped
    /// for it.
    pub(super) fn insert(&mut self, info_hash: InfoHash, block: Block, data: &Bytes) -> usize {
        let Some(range) = ByteRange::at(block.begin.into(), data.len() as u64) else { return 0 };
        let key = (info_hash, block.index);
        let piece = self.pieces.entry(key).or_default();
        for hole in piece.have.holes(range).iter() {
            if piece.parts.len() >= PARTS_MAX {
                break;
            }
            let from = usize::try_from(hole.start() - range.start()).unwrap_or(usize::MAX);
            let to = usize::try_from(hole.end() - range.start()).unwrap_or(usize::MAX);
            let part = data.slice(from..to);
            piece.have.insert(hole);
            piece.cost_bytes += part.len() + PART_OVERHEAD_BYTES;
            self.held_bytes += part.len() + PART_OVERHEAD_BYTES;
            piece.parts.insert(hole.start(), part);
        }
        self.touches += 1;
        self.order.remove(&piece.touched);
        piece.touched = self.touches;
        self.order.insert(self.touches, key);
        self.shrink()
    }

    /// Takes piece `index` of `piece_len` bytes out, if all of it is there.
    pub(super) fn take_complete(
        &mut self,
        info_hash: InfoHash,
        index: u32,
        piece_len: u32,
    ) -> Option<Vec<Bytes>> {
        let key = (info_hash, index);
        let whole = ByteRange::new(0, piece_len.into())?;
        if !self.pieces.get(&key)?.have.contains(whole) {
            return None;
        }
        let mut left = piece_len as usize;
        let mut parts = Vec::new();
        for (_, mut part) in self.remove(key)?.parts {
            part.truncate(left);
            left -= part.len();
            if !part.is_empty() {
                parts.push(part);
            }
        }
        Some(parts)
    }

    /// Drops a piece.
    pub(super) fn forget(&mut self, info_hash: InfoHash, index: u32) {
        self.remove((info_hash, index));
    }

    /// Drops every piece of a content.
    pub(super) fn forget_all(&mut self, info_hash: InfoHash) {
        for index in self.indexes(info_hash) {
            self.forget(info_hash, index);
        }
    }

    /// Pieces of which something is held.
    pub(super) fn indexes(&self, info_hash: InfoHash) -> Vec<u32> {
        self.pieces
            .range((info_hash, 0)..=(info_hash, u32::MAX))
            .map(|((_, index), _)| *index)
            .collect()
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn shrink(&mut self) -> usize {
        let mut dropped = 0;
        while self.held_bytes > self.budget_bytes {
            let (_, key) = self.order.pop_first().expect("held bytes belong to pieces");
            self.remove(key);
            dropped += 1;
        }
        dropped
    }

    fn remove(&mut self, key: PieceKey) -> Option<Piece> {
        let piece = self.pieces.remove(&key)?;
        self.order.remove(&piece.touched);
        self.held_bytes -= piece.cost_bytes;
        Some(piece)
    }
}
