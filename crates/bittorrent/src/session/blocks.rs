//! Blocks that pass: forwarded as they come, and put together for the store.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir_session::{Description, Event, Keep, Leg, Output, Reason};

use super::machine::{APP, BtSession, Entered};
use super::side::Incoming;
use crate::torrents::{Added, PieceCheck, inferred_object};
use crate::wire::Block;

impl BtSession {
    /// A block begins to come from P.
    pub(super) fn begin_block(&mut self, leg: Leg, block: Block) {
        self.refresh_info();
        if !self.is_running() {
            return;
        }
        let asker = self.side_mut(leg.other());
        let asked = asker.requests.forwarded.remove(&block).is_some();
        if !asked {
            // It comes unasked, but it may be what a request here waits for.
            asker.requests.take_back(block);
        }
        // One allocation of exactly this size: slices of what was read would hold
        // on to much more than the budget counts.
        let wanted = self.is_wanted(block, asked);
        let data = wanted.then(|| BytesMut::with_capacity(block.len as usize));
        self.side_mut(leg).incoming = Some(Incoming { block, asked, data });
        if block.len == 0 {
            self.end_block(leg);
        }
    }

    /// More of the block.
    pub(super) fn continue_block(&mut self, leg: Leg, data: &[u8], last: bool) {
        let Some(incoming) = &mut self.side_mut(leg).incoming else { return };
        if let Some(buffer) = &mut incoming.data {
            buffer.extend_from_slice(data);
        }
        if last {
            self.end_block(leg);
        }
    }

    fn end_block(&mut self, leg: Leg) {
        let Some(Incoming { block, asked, data }) = self.side_mut(leg).incoming.take() else {
            return;
        };
        if asked {
            self.count(Event::Fetched { leg: leg.other(), bytes: block.len.into() });
        }
        let (Some(data), Some(Entered { info_hash, .. })) = (data, self.content) else { return };
        self.refresh_info();
        if !self.is_running() || !self.is_wanted(block, asked) {
            return;
        }
        let data = data.freeze();
        let added = self.shared().add(info_hash, block, &data);
        self.after_adding(added);
        if self.info.is_none()
            && self.options.serve_unchecked
            && let Some((piece_bytes, offset)) = self.inferred_place(block)
        {
            let object = inferred_object(info_hash, piece_bytes);
            if self.described_inferred != Some(piece_bytes) {
                self.described_inferred = Some(piece_bytes);
                let name = format!("unchecked blocks of {info_hash}");
                let app = APP;
                self.emit(Output::Describe(Description { object, app, name, size_bytes: None }));
            }
            self.emit(Output::Keep(Keep { object, offset, data: vec![data] }));
        }
    }

    /// A block was served from the store; its piece may have a hole elsewhere.
    pub(super) fn on_stored_block(&mut self, block: Block, data: &Bytes) {
        let Some(Entered { info_hash, .. }) = self.content.filter(|_| self.info.is_some()) else {
            return;
        };
        let added = self.shared().add_stored(info_hash, block, data);
        self.after_adding(added);
    }

    fn after_adding(&mut self, added: Added) {
        for _ in 0..added.dropped {
            self.ignore(Reason::AssemblyFull);
        }
        if let Some(piece) = added.complete {
            let check = PieceCheck::new(Arc::clone(&self.torrents), piece);
            self.emit(Output::Check(Box::new(check)));
        }
    }

    /// Whether a block can be put to use; counts why not.
    fn is_wanted(&mut self, block: Block, asked: bool) -> bool {
        let Some(Entered { info_hash, .. }) = self.content else { return false };
        let reason = match &self.info {
            Some(info) if info.offset_of(block).is_none() => Reason::BlockOutOfRange,
            None if !asked => Reason::BlockUnasked,
            None if block.len == 0 => Reason::BlockOutOfRange,
            Some(_) | None => return self.shared().wants(info_hash, block.index),
        };
        self.ignore(reason);
        false
    }
}
