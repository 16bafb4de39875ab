//! Metadata: from the store, from what peers exchange, or asked for.
//!
//! At first the store is asked. Then what peers exchange is read. When both
//! sides have spoken their extension handshakes and it is plain that nobody will
//! ask (both have it), or nobody has for a while, the side that has it is asked
//! in the other's name and the answer goes no further, unless the other side has
//! asked for the same piece meanwhile. One session asks for each content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use weir_ranges::{ByteRange, Instant};
use weir_session::{Description, Event, Keep, LeaveReason, Leg, Output, Reason, Ticket};

use super::machine::{APP, BtSession, Entered};
use super::side::Composed;
use crate::extension::MetadataMessage;
use crate::metadata::{Info, MetadataError, NAME_BYTES_MAX, seal, sealed_len};
use crate::torrents::{
    Collected, PieceCheck, content_object, inferred_object, metadata_object, metadata_pieces,
};

/// Pieces of metadata asked for at once. Clients refuse or drop long queues.
const ASKED_AT_ONCE: usize = 4;

/// How often a session begins to ask.
const ATTEMPTS_MAX: u32 = 4;

/// Requests of the sides themselves that are remembered; more are not read.
const SEEN_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Exchange {
    look: Option<(Ticket, Stage)>,
    /// When to begin asking.
    ask_at: Option<Instant>,
    asking: Option<Asking>,
    attempts: u32,
    legs: [LegExchange; 2],
}

/// What goes on with one leg as the one that is asked.
#[derive(Debug, Default)]
struct LegExchange {
    /// Pieces asked for here, and whether the other side has asked for it since.
    /// Kept after giving up: a late answer must not reach the other side.
    ours: BTreeMap<u32, bool>,
    /// Pieces that the other side has asked for itself.
    theirs: BTreeSet<u32>,
    /// It gave a wrong answer, or none: it is not asked again.
    refused: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Length,
    Body,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    of: Leg,
    total_bytes: u32,
    next_piece: u32,
    until: Instant,
}

impl BtSession {
    /// The content is known by name: find out what is known about it.
    pub(super) fn begin_exchange(&mut self) {
        let Some(Entered { info_hash, .. }) = self.content else { return };
        self.refresh_info();
        let range = ByteRange::new(0, 4).filter(|_| self.info.is_none() && self.is_running());
        if let Some(range) = range {
            let ticket = self.ticket();
            self.exchange.look = Some((ticket, Stage::Length));
            self.emit(Output::Look { ticket, object: metadata_object(info_hash), range });
        }
    }

    /// Takes up what another session has learnt.
    pub(super) fn refresh_info(&mut self) {
        let Some(Entered { info_hash, .. }) = self.content else { return };
        if self.info.is_some() {
            return;
        }
        let (info, unsupported) = {
            let shared = self.shared();
            (shared.info(info_hash), shared.is_unsupported(info_hash))
        };
        self.info = info;
        if unsupported {
            self.begin_leave(LeaveReason::Unsupported);
        }
    }

    /// Takes the answer to a look-up of metadata; false when it is none.
    pub(super) fn on_metadata_answer(&mut self, ticket: Ticket, data: Option<&Bytes>) -> bool {
        let Some((_, stage)) = self.exchange.look.filter(|(t, _)| *t == ticket) else {
            return false;
        };
        self.exchange.look = None;
        let Some(Entered { info_hash, .. }) = self.content else { return true };
        match (stage, data) {
            (Stage::Length, Some(head)) if self.info.is_none() => {
                let body = sealed_len(head).and_then(|len| ByteRange::at(4, len.into()));
                if let Some(range) = body {
                    let ticket = self.ticket();
                    self.exchange.look = Some((ticket, Stage::Body));
                    self.emit(Output::Look { ticket, object: metadata_object(info_hash), range });
                }
            }
            (Stage::Body, Some(raw)) if self.info.is_none() => {
                // A store that answers with other bytes is as good as none.
                match Info::parse(raw, info_hash) {
                    Ok(info) => self.learn(info, None),
                    Err(_) => self.ignore(Reason::MetadataMismatch),
                }
            }
            (Stage::Length | Stage::Body, _) => {}
        }
        self.consider_asking();
        true
    }

    /// An extension's message.
    pub(super) fn on_extended(&mut self, leg: Leg, id: u8, payload: &Bytes, raw: Bytes) {
        let to = leg.other();
        if id == 0 {
            self.side_mut(leg).extensions.update(payload);
            self.send(to, raw);
            self.consider_asking();
            return;
        }
        let is_metadata = self.side(to).extensions.ut_metadata == Some(id);
        let message = if is_metadata { MetadataMessage::parse(payload) } else { None };
        match message {
            None => self.send(to, raw),
            Some(MetadataMessage::Request { piece }) => {
                let asked = &mut self.exchange.legs[to.index()];
                if let Some(wanted) = asked.ours.get_mut(&piece) {
                    *wanted = true;
                    return;
                }
                if asked.theirs.len() < SEEN_MAX {
                    asked.theirs.insert(piece);
                }
                self.send(to, raw);
            }
            Some(MetadataMessage::Data { piece, total_bytes, data }) => {
                let (ours, solicited) = self.end_metadata_request(leg, piece, raw);
                if solicited {
                    self.collect_metadata(leg, total_bytes, piece, &data);
                }
                if ours {
                    self.ask_more();
                }
            }
            Some(MetadataMessage::Reject { piece }) => {
                let (ours, _) = self.end_metadata_request(leg, piece, raw);
                if ours {
                    self.exchange.legs[leg.index()].refused = true;
                    self.stop_asking();
                    self.consider_asking();
                }
            }
        }
    }

    /// Time has passed.
    pub(super) fn on_exchange_timer(&mut self) {
        self.refresh_info();
        let now = self.now;
        if self.info.is_some() || !self.is_running() {
            self.exchange.ask_at = None;
            self.stop_asking();
            return;
        }
        if self.exchange.asking.is_some_and(|asking| asking.until <= now) {
            self.stop_asking();
            self.consider_asking();
        }
        if self.exchange.ask_at.is_some_and(|at| at <= now) {
            self.exchange.ask_at = None;
            self.begin_asking();
        }
    }

    /// When [`BtSession::on_exchange_timer`] is wanted, if at all.
    pub(super) fn exchange_due(&self) -> Option<Instant> {
        let until = self.exchange.asking.map(|asking| asking.until);
        until.into_iter().chain(self.exchange.ask_at).min()
    }

    /// Whether metadata may still come, so that nothing unchecked is served yet:
    /// bytes that never met their hash are for contents nobody can check.
    pub(super) fn may_learn_metadata(&self) -> bool {
        let exchange = &self.exchange;
        let under_way =
            exchange.look.is_some() || exchange.asking.is_some() || exchange.ask_at.is_some();
        let greeting = self.options.ask_metadata
            && Leg::BOTH.into_iter().any(|leg| !self.side(leg).extensions.seen)
            && Leg::BOTH
                .into_iter()
                .all(|leg| self.side(leg).handshake.is_some_and(|h| h.reserved.extension()));
        under_way || greeting
    }

    /// Plans to ask, if it makes sense.
    fn consider_asking(&mut self) {
        let exchange = &self.exchange;
        let busy = exchange.look.is_some() || exchange.asking.is_some();
        if busy || self.info.is_some() || !self.options.ask_metadata || !self.is_running() {
            return;
        }
        let Some(of) = self.whom_to_ask() else { return };
        // A side without metadata will ask for itself; a second try is not urgent.
        let other_has_it = self.side(of.other()).extensions.metadata_bytes.is_some();
        if other_has_it && self.exchange.attempts == 0 {
            self.begin_asking();
        } else if self.exchange.ask_at.is_none() {
            self.exchange.ask_at = Some(self.now + self.options.ask_delay);
        }
    }

    /// The leg to ask: it has metadata, both sides have an id for its messages,
    /// and it has not refused. Inside first, it costs the link nothing.
    fn whom_to_ask(&self) -> Option<Leg> {
        let able = |leg: Leg| self.side(leg).extensions.ut_metadata.is_some();
        Leg::BOTH.into_iter().filter(|_| Leg::BOTH.into_iter().all(able)).find(|leg| {
            let side = self.side(*leg);
            let refused = self.exchange.legs[leg.index()].refused;
            side.extensions.metadata_bytes.is_some() && !side.ended && !refused
        })
    }

    fn begin_asking(&mut self) {
        let (Some(of), Some(content)) = (self.whom_to_ask(), self.content) else { return };
        let Some(total_bytes) = self.side(of).extensions.metadata_bytes else { return };
        if self.exchange.attempts >= ATTEMPTS_MAX {
            return;
        }
        let (may, until) = {
            let mut shared = self.shared();
            let may = shared.try_ask(content.info_hash, content.session, self.now);
            (may, self.now + shared.ask_timeout())
        };
        if may {
            self.exchange.attempts += 1;
            self.exchange.asking = Some(Asking { of, total_bytes, next_piece: 0, until });
            self.ask_more();
        } else {
            // Another session asks; should it fail, this one is next.
            self.exchange.ask_at = Some(until);
        }
    }

    /// Asks for the next pieces and gives the peer time for them.
    fn ask_more(&mut self) {
        let Some(Entered { info_hash, session }) = self.content else { return };
        let Some(mut asking) = self.exchange.asking else { return };
        let needed = self.info.is_none() && self.is_running();
        if !needed || !self.shared().try_ask(info_hash, session, self.now) {
            self.stop_asking();
            return;
        }
        asking.until = self.now + self.shared().ask_timeout();
        let Some(id) = self.side(asking.of).extensions.ut_metadata else { return };
        while asking.next_piece < metadata_pieces(asking.total_bytes) {
            let piece = asking.next_piece;
            let of = &mut self.exchange.legs[asking.of.index()];
            if of.ours.len() >= ASKED_AT_ONCE {
                break;
            }
            asking.next_piece += 1;
            // What the other side has asked for is read when it comes.
            let on_its_way = of.theirs.contains(&piece) || of.ours.contains_key(&piece);
            if !on_its_way && !self.shared().has_metadata_piece(info_hash, piece) {
                self.exchange.legs[asking.of.index()].ours.insert(piece, false);
                let request = MetadataMessage::Request { piece }.to_message(id).to_bytes();
                self.compose(asking.of, Composed::Other(request));
            }
        }
        self.exchange.asking = Some(asking);
    }

    fn stop_asking(&mut self) {
        if self.exchange.asking.take().is_some()
            && let Some(Entered { info_hash, session }) = self.content
        {
            self.shared().stop_asking(info_hash, session);
        }
    }

    /// Settles the request that a message from `leg` answers, and passes the
    /// message on to the side that asked. Says whether it was asked for here, and
    /// whether anybody had asked.
    fn end_metadata_request(&mut self, leg: Leg, piece: u32, raw: Bytes) -> (bool, bool) {
        let answered = &mut self.exchange.legs[leg.index()];
        let ours = answered.ours.remove(&piece);
        let theirs = answered.theirs.remove(&piece);
        if ours != Some(false) {
            self.send(leg.other(), raw);
        }
        (ours.is_some(), ours.is_some() || theirs)
    }

    fn collect_metadata(&mut self, leg: Leg, total_bytes: u32, piece: u32, data: &[u8]) {
        let Some(Entered { info_hash, .. }) = self.content else { return };
        let collected = self.shared().collect(info_hash, total_bytes, piece, data);
        let raw = match collected {
            Collected::More => return,
            Collected::Refused => {
                self.ignore(Reason::MetadataRefused);
                return;
            }
            Collected::Whole(raw) => raw,
        };
        match Info::parse(&raw, info_hash) {
            Ok(info) => self.learn(info, Some(&raw)),
            Err(MetadataError::Mismatch) => {
                self.ignore(Reason::MetadataMismatch);
                self.exchange.legs[leg.index()].refused = true;
                self.stop_asking();
                self.consider_asking();
            }
            Err(error) => {
                // It is the content's own metadata, and of no use: for good.
                if error != MetadataError::Unsupported {
                    self.ignore(Reason::MetadataRefused);
                }
                self.shared().set_unsupported(info_hash);
                self.begin_leave(LeaveReason::Unsupported);
            }
        }
    }

    /// Takes up metadata whose hash was right; `raw` when the store lacks it.
    fn learn(&mut self, info: Info, raw: Option<&Bytes>) {
        let info_hash = info.info_hash();
        self.exchange.ask_at = None;
        self.stop_asking();
        let learnt = self.shared().learn(info);
        let Ok(learnt) = learnt else {
            self.ignore(Reason::MetadataRefused);
            return;
        };
        self.info = Some(Arc::clone(&learnt.info));
        if learnt.fresh {
            self.count(Event::MetadataLearnt);
            self.describe(&learnt.info, raw);
            if let Some(raw) = raw {
                let data = seal(raw).to_vec();
                self.emit(Output::Keep(Keep {
                    object: metadata_object(info_hash),
                    offset: 0,
                    data,
                }));
            }
            if let Some(piece_bytes) = learnt.inferred_piece_bytes {
                self.emit(Output::Forget { object: inferred_object(info_hash, piece_bytes) });
            }
        }
        for piece in learnt.complete {
            let check = PieceCheck::new(Arc::clone(&self.torrents), piece);
            self.emit(Output::Check(Box::new(check)));
        }
    }

    fn describe(&mut self, info: &Info, raw: Option<&Bytes>) {
        let info_hash = info.info_hash();
        let describe = |object, name: &str, size_bytes| {
            let name = name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned();
            let size_bytes = Some(size_bytes);
            Output::Describe(Description { object, app: APP, name, size_bytes })
        };
        let size = info.total_bytes();
        self.emit(describe(content_object(info_hash), info.name(), size));
        if let Some(raw) = raw {
            let name = format!("metadata of {}", info.name());
            self.emit(describe(metadata_object(info_hash), &name, raw.len() as u64 + 4));
        }
    }
}
