//! Pieces of metadata as they pass (BEP 9), until all are there.

use bytes::Bytes;

use crate::extension::{METADATA_BYTES_MAX, METADATA_PIECE_BYTES};

/// Number of pieces of metadata that is `total_bytes` long.
pub(crate) const fn metadata_pieces(total_bytes: u32) -> u32 {
    total_bytes.div_ceil(METADATA_PIECE_BYTES)
}

/// What came of one piece of metadata.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// Some are still missing, or it is known already.
    More,
    /// All are there: the raw dictionary, not checked.
    Whole(Bytes),
    /// Not what BEP 9 says, or there is no room.
    Refused,
}

#[derive(Debug)]
pub(super) struct Collector {
    /// `1 <= total_bytes <= METADATA_BYTES_MAX`
    total_bytes: u32,
    pieces: Vec<Option<Bytes>>,
    held_bytes: usize,
}

impl Collector {
    /// For metadata of `total_bytes`; `None` when that is out of range.
    pub(super) fn new(total_bytes: u32) -> Option<Self> {
        (1..=METADATA_BYTES_MAX).contains(&total_bytes).then(|| Self {
            total_bytes,
            pieces: vec![None; metadata_pieces(total_bytes) as usize],
            held_bytes: 0,
        })
    }

    pub(super) const fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether piece `index` has arrived.
    pub(super) fn has(&self, index: u32) -> bool {
        self.pieces.get(index as usize).is_some_and(Option::is_some)
    }

    /// Takes a piece; false when there is no such piece, or it has another size.
    pub(super) fn insert(&mut self, index: u32, data: &[u8]) -> bool {
        let Some(slot) = self.pieces.get_mut(index as usize) else { return false };
        let start = u64::from(index) * u64::from(METADATA_PIECE_BYTES);
        let want = (u64::from(self.total_bytes) - start).min(METADATA_PIECE_BYTES.into());
        if data.len() as u64 != want {
            return false;
        }
        if slot.is_none() {
            // A copy: a slice would hold on to everything that was read with it.
            *slot = Some(Bytes::copy_from_slice(data));
            self.held_bytes += data.len();
        }
        true
    }

    /// The pieces joined, once all are there.
    pub(super) fn whole(&self) -> Option<Bytes> {
        if self.held_bytes < self.total_bytes as usize {
            return None;
        }
        Some(self.pieces.iter().flatten().flatten().copied().collect())
    }
}
