//! The hash check of one piece, off the flow's task.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use weir_session::{Check, Checked, Event, Keep};

use super::objects::content_object;
use super::table::{CompletePiece, Torrents};
use crate::metadata::Info;

/// A complete piece that waits for its SHA-1.
pub(crate) struct PieceCheck {
    torrents: Arc<Mutex<Torrents>>,
    info: Arc<Info>,
    index: u32,
    parts: Vec<Bytes>,
}

impl PieceCheck {
    pub(crate) fn new(torrents: Arc<Mutex<Torrents>>, piece: CompletePiece) -> Self {
        Self { torrents, info: piece.info, index: piece.index, parts: piece.parts }
    }

    fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

impl Check for PieceCheck {
    fn cost_bytes(&self) -> usize {
        self.len()
    }

    fn run(self: Box<Self>) -> Checked {
        let bytes = self.len() as u64;
        if self.info.piece_is(self.index, &self.parts) {
            let keep = Keep {
                object: content_object(self.info.info_hash()),
                offset: u64::from(self.index) * u64::from(self.info.piece_bytes()),
                data: self.parts,
            };
            return Checked { keep: Some(keep), event: Some(Event::CheckPassed { bytes }) };
        }
        let mut torrents = self.torrents.lock().unwrap_or_else(PoisonError::into_inner);
        torrents.piece_missing(self.info.info_hash(), self.index);
        Checked { keep: None, event: Some(Event::CheckFailed { bytes }) }
    }
}

impl fmt::Debug for PieceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PieceCheck")
            .field("info_hash", &self.info.info_hash())
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
