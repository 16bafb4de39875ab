//! The machine's frame: inputs, framing, sending, time, leaving.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weir_ranges::Instant;
use weir_session::{Event, Input, LeaveReason, Leg, Output, Reason, Session};

use super::exchange::Exchange;
use super::options::SessionOptions;
use super::side::{ALLOWED_FAST_MAX, Composed, Side};
use crate::handshake::{HANDSHAKE_BYTES, Handshake, InfoHash};
use crate::metadata::Info;
use crate::torrents::Torrents;
use crate::wire::{Item, KEEP_ALIVE, Message};

/// The machine for one connection. See the module's head.
#[derive(Debug)]
pub struct BtSession {
    pub(super) options: SessionOptions,
    pub(super) torrents: Arc<Mutex<Torrents>>,
    /// Who opened the connection; its handshake comes first and names the content.
    dialer: Leg,
    pub(super) now: Instant,
    outputs: VecDeque<Output>,
    pub(super) sides: [Side; 2],
    /// The content, and this session's name in the table, once entered.
    pub(super) content: Option<Entered>,
    pub(super) info: Option<Arc<Info>>,
    pub(super) exchange: Exchange,
    pub(super) next_ticket: u64,
    /// The inferred piece length whose object this session has described.
    pub(super) described_inferred: Option<u32>,
    state: State,
}

/// The app that objects are described with.
pub(super) const APP: &str = "bittorrent";

/// The content that a session is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) info_hash: InfoHash,
    pub(super) session: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Leaving(LeaveReason),
    Left,
}

impl BtSession {
    /// For a connection that `dialer` opened, before any byte of it.
    pub fn new(options: SessionOptions, torrents: Arc<Mutex<Torrents>>, dialer: Leg) -> Self {
        Self {
            options,
            torrents,
            dialer,
            now: Instant::default(),
            outputs: VecDeque::new(),
            sides: [Side::new(), Side::new()],
            content: None,
            info: None,
            exchange: Exchange::default(),
            next_ticket: 0,
            described_inferred: None,
            state: State::Running,
        }
    }

    /// The content that both sides named, once they did.
    pub fn info_hash(&self) -> Option<InfoHash> {
        self.content.map(|content| content.info_hash)
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, Torrents> {
        self.torrents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn side(&self, leg: Leg) -> &Side {
        &self.sides[leg.index()]
    }

    pub(super) const fn side_mut(&mut self, leg: Leg) -> &mut Side {
        &mut self.sides[leg.index()]
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// Whether both sides speak the fast extension (BEP 6).
    pub(super) fn is_fast(&self) -> bool {
        self.sides.iter().all(|side| side.handshake.is_some_and(|h| h.reserved.fast()))
    }

    pub(super) fn emit(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(super) fn count(&mut self, event: Event) {
        self.emit(Output::Event(event));
    }

    pub(super) fn ignore(&mut self, reason: Reason) {
        self.count(Event::Ignored(reason));
    }

    /// Sends bytes as they are. What cannot be sent any more is dropped.
    pub(super) fn send(&mut self, leg: Leg, data: Bytes) {
        let now = self.now;
        let outbox = &mut self.side_mut(leg).outbox;
        if outbox.closed || data.is_empty() {
            return;
        }
        outbox.unreported_bytes = outbox.unreported_bytes.saturating_add(data.len());
        outbox.last_sent = Some(now);
        outbox.owed = false;
        self.emit(Output::Send { leg, data });
    }

    /// Sends a message made here, at once or at the next boundary.
    pub(super) fn compose(&mut self, leg: Leg, composed: Composed) {
        if self.side(leg).outbox.closed {
            return;
        }
        if self.side(leg.other()).is_at_boundary() && self.side(leg).outbox.held.is_empty() {
            self.place(leg, composed);
        } else {
            self.side_mut(leg).outbox.hold(composed);
        }
    }

    /// Stops acting on the flow. Requests that waited here go to their peers.
    pub(super) fn begin_leave(&mut self, reason: LeaveReason) {
        if self.is_running() {
            self.state = State::Leaving(reason);
            Leg::BOTH.into_iter().for_each(|leg| self.hand_over_requests(leg));
        }
    }

    fn on_bytes(&mut self, leg: Leg, mut data: Bytes) {
        let to = leg.other();
        self.side_mut(to).outbox.owed = true;
        if self.side(leg).handshake.is_none() && !self.side(leg).raw {
            self.on_handshake_bytes(leg, &mut data);
        }
        if self.side(leg).raw {
            self.send(to, data);
        } else {
            self.side_mut(leg).framer.push(data);
            self.drain(leg);
        }
    }

    /// Passes on what belongs to the handshake and leaves the rest in `data`.
    fn on_handshake_bytes(&mut self, leg: Leg, data: &mut Bytes) {
        let missing = HANDSHAKE_BYTES - self.side(leg).handshake_bytes.len();
        let head = data.split_to(missing.min(data.len()));
        self.side_mut(leg).handshake_bytes.extend_from_slice(&head);
        self.send(leg.other(), head);
        match Handshake::parse_prefix(&self.side(leg).handshake_bytes) {
            Ok(None) => {}
            Ok(Some(handshake)) => {
                self.side_mut(leg).handshake = Some(handshake);
                self.on_handshake(leg, handshake.info_hash);
            }
            Err(_) => {
                self.begin_leave(LeaveReason::NotOurs);
                self.side_mut(leg).raw = true;
            }
        }
    }

    fn on_handshake(&mut self, leg: Leg, info_hash: InfoHash) {
        let other = self.side(leg.other()).handshake;
        if other.is_some_and(|other| other.info_hash != info_hash) {
            self.begin_leave(LeaveReason::ContentMismatch);
        } else if self.content.is_none() && (leg == self.dialer || other.is_some()) {
            let session = self.shared().enter(info_hash);
            match session {
                Some(session) => {
                    self.content = Some(Entered { info_hash, session });
                    self.begin_exchange();
                }
                None => self.begin_leave(LeaveReason::Refused),
            }
        }
    }

    fn drain(&mut self, leg: Leg) {
        while self.state != State::Left {
            match self.side_mut(leg).framer.poll_item() {
                Ok(None) => return,
                Ok(Some(item)) => self.on_item(leg, item),
                Err(_) => {
                    // Between two messages still: what is owed goes first.
                    self.begin_leave(LeaveReason::Malformed);
                    self.flush(leg.other());
                    self.make_raw(leg);
                    return;
                }
            }
            self.flush(leg.other());
        }
    }

    fn on_item(&mut self, leg: Leg, item: Item) {
        let to = leg.other();
        match item {
            Item::KeepAlive { raw } => self.send(to, raw),
            Item::Opaque { data, .. } => self.send(to, data),
            Item::Message { message, raw } if self.is_running() => {
                self.on_message(leg, message, raw);
            }
            Item::Message { raw, .. } => self.send(to, raw),
            Item::PieceHeader { block, raw } => {
                self.send(to, raw);
                self.begin_block(leg, block);
            }
            Item::PieceData { data, last } => {
                self.send(to, data.clone());
                self.continue_block(leg, &data, last);
            }
        }
    }

    fn on_message(&mut self, leg: Leg, message: Message, raw: Bytes) {
        let to = leg.other();
        match message {
            Message::Choke => {
                self.side_mut(leg).chokes = true;
                self.send(to, raw);
                self.refuse_requests(to);
            }
            Message::Unchoke => {
                self.side_mut(leg).chokes = false;
                self.send(to, raw);
            }
            Message::NotInterested => {
                // It may mean that what was asked before is not wanted any more:
                // let the peer see both in the order in which they were sent.
                self.hand_over_requests(leg);
                self.send(to, raw);
            }
            Message::Request(block) => self.on_request(leg, block, raw),
            Message::Cancel(block) => self.on_cancel(leg, block, raw),
            Message::Reject(block) => {
                self.side_mut(to).requests.forwarded.remove(&block);
                self.send(to, raw);
            }
            Message::AllowedFast(index) => {
                let allowed = &mut self.side_mut(leg).allowed_fast;
                if allowed.len() < ALLOWED_FAST_MAX {
                    allowed.insert(index);
                }
                self.send(to, raw);
            }
            Message::Extended { id, payload } => self.on_extended(leg, id, &payload, raw),
            Message::Interested
            | Message::Have(_)
            | Message::Bitfield(_)
            | Message::Port(_)
            | Message::SuggestPiece(_)
            | Message::HaveAll
            | Message::HaveNone => self.send(to, raw),
        }
    }

    fn on_closed(&mut self, leg: Leg) {
        if self.side(leg).ended {
            return;
        }
        let to = leg.other();
        self.make_raw(leg);
        let side = self.side_mut(leg);
        side.ended = true;
        side.incoming = None;
        // It wants no more; and what it would still be told has no boundary to
        // stand at once the other side ends too.
        side.requests.take_back_all(|_| true);
        side.outbox.take_pieces();
        // Nothing can follow the FIN, so the other side's requests are for the
        // leg that closed, should it still answer.
        self.hand_over_requests(to);
        let outbox = &mut self.side_mut(to).outbox;
        outbox.clear();
        outbox.closed = true;
        self.emit(Output::Close { leg: to });
    }

    fn on_timer(&mut self) {
        for leg in Leg::BOTH {
            // The driver has had its turn: had bytes piled up, it had said so.
            self.side_mut(leg).outbox.unreported_bytes = 0;
            self.look_up_waiting(leg);
            if self.keep_alive_due(leg).is_some_and(|due| due <= self.now) {
                self.place(leg, Composed::Other(Bytes::from_static(KEEP_ALIVE)));
            }
        }
        self.on_exchange_timer();
    }

    /// From here on what comes from `leg` is passed on as it is.
    fn make_raw(&mut self, leg: Leg) {
        let rest = self.side_mut(leg).framer.take_rest();
        self.side_mut(leg).raw = true;
        rest.into_iter().for_each(|data| self.send(leg.other(), data));
    }

    /// Sends what waited for a boundary, if the stream to `leg` is at one.
    fn flush(&mut self, leg: Leg) {
        while self.side(leg.other()).is_at_boundary()
            && let Some(composed) = self.side_mut(leg).outbox.pop()
        {
            self.place(leg, composed);
        }
    }

    fn place(&mut self, leg: Leg, composed: Composed) {
        match composed {
            Composed::Piece { block, data } => {
                self.side_mut(leg).requests.note_served(block);
                self.count(Event::Served { leg, bytes: data.len() as u64 });
                self.send(leg, block.piece_header());
                self.send(leg, data);
            }
            Composed::Request(block) => {
                self.side_mut(leg.other()).requests.forwarded.put(block, ());
                self.send(leg, Message::Request(block).to_bytes());
            }
            Composed::Other(raw) => self.send(leg, raw),
        }
    }

    /// Ends what one input began.
    fn settle(&mut self) {
        Leg::BOTH.into_iter().for_each(|leg| self.flush(leg));
        let State::Leaving(reason) = self.state else { return };
        // A leg that is relayed raw will never be at a boundary again.
        let waits =
            |leg: Leg| !self.side(leg).outbox.held.is_empty() && !self.side(leg.other()).raw;
        if !Leg::BOTH.into_iter().any(waits) {
            Leg::BOTH.into_iter().for_each(|leg| self.make_raw(leg));
            self.state = State::Left;
            self.emit(Output::Leave(reason));
        }
    }

    /// When a keep-alive to `leg` is due, if at all.
    fn keep_alive_due(&self, leg: Leg) -> Option<Instant> {
        let outbox = &self.side(leg).outbox;
        let may = outbox.owed && !outbox.closed && self.side(leg.other()).is_at_boundary();
        (may && self.is_running()).then_some(outbox.last_sent? + self.options.keep_alive)
    }
}

impl Session for BtSession {
    fn handle(&mut self, now: Instant, input: Input) {
        debug_assert!(self.outputs.is_empty(), "outputs are drained before the next input");
        if self.state == State::Left {
            return;
        }
        self.now = self.now.max(now);
        match input {
            Input::Bytes { leg, data } => self.on_bytes(leg, data),
            Input::Closed { leg } => self.on_closed(leg),
            Input::Answer { ticket, data } => self.on_answer(ticket, data),
            Input::Queued { leg, queued_bytes } => {
                let outbox = &mut self.side_mut(leg).outbox;
                outbox.queued_bytes = queued_bytes;
                outbox.unreported_bytes = 0;
                self.look_up_waiting(leg);
            }
            Input::Timer => self.on_timer(),
        }
        self.settle();
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        if !self.is_running() {
            return None;
        }
        let keep_alives = Leg::BOTH.into_iter().filter_map(|leg| self.keep_alive_due(leg));
        let turn = Leg::BOTH.into_iter().any(|leg| self.wants_turn(leg)).then_some(self.now);
        keep_alives.chain(self.exchange_due()).chain(turn).min()
    }
}

impl Drop for BtSession {
    fn drop(&mut self) {
        if let Some(Entered { info_hash, session }) = self.content {
            self.shared().exit(info_hash, session);
        }
    }
}
