//! Requests: answered from the store, or forwarded.

use bytes::Bytes;
use weir_ranges::{ByteRange, ObjectId};
use weir_session::{Event, Leg, Output, Reason, Ticket};

use super::machine::{BtSession, Entered};
use super::side::Composed;
use crate::torrents::{content_object, inferred_object};
use crate::wire::{BLOCK_BYTES_MAX, Block, Message};

impl BtSession {
    /// A asks for a block.
    pub(super) fn on_request(&mut self, leg: Leg, block: Block, raw: Bytes) {
        self.count(Event::Asked { leg, bytes: block.len.into() });
        self.refresh_info();
        if !self.is_running() {
            self.send(leg.other(), raw);
            return;
        }
        self.sample(block);
        let peer = self.side(leg.other());
        let refused = peer.chokes && !peer.allowed_fast.contains(&block.index);
        if refused || !self.answers(leg) {
            self.forward_request(leg, block, raw);
            return;
        }
        let reason = match self.locate(block) {
            None if self.info.is_some() => Some(Reason::RequestOutOfRange),
            None => {
                self.forward_request(leg, block, raw);
                return;
            }
            Some(_) if block.len > BLOCK_BYTES_MAX => Some(Reason::RequestOutOfRange),
            Some(_) if self.side(leg).requests.times_served(block) >= self.options.serves_max => {
                Some(Reason::AskedTooOften)
            }
            Some(_) if self.is_crowded(leg) => Some(Reason::LookupsFull),
            Some(_) => None,
        };
        if let Some(reason) = reason {
            self.ignore(reason);
            self.forward_request(leg, block, raw);
        } else {
            self.side_mut(leg).requests.waiting.push_back(block);
            self.look_up_waiting(leg);
        }
    }

    /// A wants a block no more.
    pub(super) fn on_cancel(&mut self, leg: Leg, block: Block, raw: Bytes) {
        let peer = leg.other();
        let taken_back = self.side_mut(leg).requests.take_back(block)
            || self.side_mut(leg).outbox.take_piece(block);
        // None is held for P: the stream to it is at a boundary, at this cancel.
        if taken_back {
            if self.is_fast() {
                // BEP 6: every request is answered, by a piece or a reject.
                self.compose(leg, Composed::Other(Message::Reject(block).to_bytes()));
            }
            self.look_up_waiting(leg);
            return;
        }
        let requests = &self.side(leg).requests;
        let unknown_to_peer =
            requests.times_served(block) > 0 && requests.forwarded.get(&block).is_none();
        if !unknown_to_peer {
            self.send(peer, raw);
        }
    }

    /// P has choked A: as P would, forget what A asked for, or reject it.
    pub(super) fn refuse_requests(&mut self, leg: Leg) {
        let peer = leg.other();
        let fast = self.is_fast();
        let allowed = self.side(peer).allowed_fast.clone();
        let refused = |block: &Block| !(fast && allowed.contains(&block.index));
        let mut blocks = self.side_mut(leg).requests.take_back_all(refused);
        blocks.extend(self.side_mut(peer).outbox.take_requests(refused));
        if fast {
            for block in blocks {
                self.compose(leg, Composed::Other(Message::Reject(block).to_bytes()));
            }
        } else {
            // P answers none of what it was sent, and does not say so.
            self.side_mut(leg).requests.forwarded.clear();
        }
    }

    /// Sends all of A's requests to P that wait here for any reason.
    pub(super) fn hand_over_requests(&mut self, leg: Leg) {
        let mut blocks = self.side_mut(leg).outbox.take_pieces();
        blocks.extend(self.side_mut(leg).requests.take_back_all(|_| true));
        for block in blocks {
            self.compose(leg.other(), Composed::Request(block));
        }
    }

    /// The store has answered.
    pub(super) fn on_answer(&mut self, ticket: Ticket, data: Option<Bytes>) {
        if self.on_metadata_answer(ticket, data.as_ref()) {
            return;
        }
        for leg in Leg::BOTH {
            let Some(block) = self.side_mut(leg).requests.end_look(ticket) else { continue };
            match data.filter(|data| data.len() == block.len as usize) {
                Some(data) => {
                    self.on_stored_block(block, &data);
                    self.compose(leg, Composed::Piece { block, data });
                }
                None => {
                    if let Some(Entered { info_hash, .. }) = self.content {
                        self.shared().piece_missing(info_hash, block.index);
                    }
                    self.compose(leg.other(), Composed::Request(block));
                }
            }
            self.look_up_waiting(leg);
            return;
        }
        // The request was cancelled, refused or handed over meanwhile.
    }

    /// Begins look-ups for A's waiting requests, as many as the limits allow.
    pub(super) fn look_up_waiting(&mut self, leg: Leg) {
        while self.is_running() && self.may_look(leg) {
            let Some(block) = self.side_mut(leg).requests.waiting.pop_front() else { return };
            let Some((object, range)) = self.locate(block) else {
                self.compose(leg.other(), Composed::Request(block));
                continue;
            };
            let ticket = self.ticket();
            self.side_mut(leg).requests.start_look(ticket, block);
            self.emit(Output::Look { ticket, object, range });
        }
    }

    /// Whether requests wait only because the driver has not said what became of
    /// the bytes sent last. A driver that wrote them all need not say so; once it
    /// hands in the time, it had its turn.
    pub(super) fn wants_turn(&self, leg: Leg) -> bool {
        let blocked = !self.side(leg).requests.waiting.is_empty() && !self.may_look(leg);
        blocked && self.may_look_beside(leg, 0)
    }

    /// A name for the next look-up.
    pub(super) const fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn forward_request(&mut self, leg: Leg, block: Block, raw: Bytes) {
        let peer = self.side(leg.other());
        // A peer that chokes and has no reject drops it without a word.
        if !peer.chokes || self.is_fast() {
            self.side_mut(leg).requests.forwarded.put(block, ());
        }
        self.send(leg.other(), raw);
    }

    /// Gives the inference a sample, as long as it is needed.
    fn sample(&mut self, block: Block) {
        let Some(Entered { info_hash, .. }) = self.content else { return };
        if self.info.is_some() {
            return;
        }
        let wrong = self.shared().observe(info_hash, block);
        if let Some(piece_bytes) = wrong {
            self.ignore(Reason::InferenceWrong);
            self.emit(Output::Forget { object: inferred_object(info_hash, piece_bytes) });
        }
    }

    /// Where the bytes of a block lie in the store, as far as that is known.
    fn locate(&self, block: Block) -> Option<(ObjectId, ByteRange)> {
        let Entered { info_hash, .. } = self.content?;
        let (object, start) = if let Some(info) = &self.info {
            (content_object(info_hash), info.offset_of(block)?)
        } else if self.options.serve_unchecked && !self.may_learn_metadata() {
            let (piece_bytes, start) = self.inferred_place(block)?;
            (inferred_object(info_hash, piece_bytes), start)
        } else {
            return None;
        };
        Some((object, ByteRange::at(start, block.len.into())?))
    }

    /// Inferred piece length and offset, for a block that fits in such a piece.
    pub(super) fn inferred_place(&self, block: Block) -> Option<(u32, u64)> {
        let Entered { info_hash, .. } = self.content?;
        let piece_bytes = self.shared().inferred_piece_bytes(info_hash)?;
        let fits = block.len > 0 && block.begin.checked_add(block.len)? <= piece_bytes;
        let start = u64::from(block.index) * u64::from(piece_bytes) + u64::from(block.begin);
        fits.then_some((piece_bytes, start))
    }

    /// Whether requests of `leg` may be answered here.
    fn answers(&self, leg: Leg) -> bool {
        let wanted = leg == Leg::Inside || self.options.answer_outside;
        wanted && !self.side(leg).outbox.closed && !self.side(leg).ended
    }

    /// Whether too much waits for A already, in any of the places it can.
    fn is_crowded(&self, leg: Leg) -> bool {
        let held = |leg: Leg| self.side(leg).outbox.held.len();
        let waiting = self.side(leg).requests.waiting.len();
        waiting.max(held(leg)).max(held(leg.other())) >= self.options.waiting_max
    }

    fn may_look(&self, leg: Leg) -> bool {
        self.may_look_beside(leg, self.side(leg).outbox.unreported_bytes)
    }

    fn may_look_beside(&self, leg: Leg, unreported_bytes: usize) -> bool {
        let side = self.side(leg);
        let to_write = [side.outbox.queued_bytes, side.outbox.held_bytes, unreported_bytes]
            .into_iter()
            .fold(side.requests.looking_bytes(), usize::saturating_add);
        side.requests.looking_len() < self.options.lookups_max
            && to_write < self.options.queued_bytes_max
    }
}
