//! A session on a bench: a content, a model of the store, and what was said.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sha1::{Digest, Sha1};
use weir_ranges::{ByteRange, Instant, ObjectId, RangeSet};
use weir_session::{
    Check, Description, Event, Input, Keep, LeaveReason, Leg, Output, Reason, Session, Ticket,
};

use crate::bencode::Writer;
use crate::metadata::seal;
pub(super) use crate::wire::Block;
use crate::{
    BtSession, Extensions, Handshake, InfoHash, Message, Reserved, SessionOptions, Torrents,
    TorrentsOptions, content_object, metadata_object,
};

pub(super) const PIECE: u32 = 32 << 10;
pub(super) const BLOCK: u32 = 16 << 10;

/// Three pieces and a short one: 4 x 2 blocks, the last of which is short.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) data: Vec<u8>,
    pub(super) raw_info: Bytes,
    pub(super) info_hash: InfoHash,
}

impl Content {
    pub(super) fn new() -> Self {
        Self::of_bytes(3 * PIECE as usize + 20_000)
    }

    pub(super) fn of_bytes(len: usize) -> Self {
        let mut state = 0x1234_5678_u32;
        let data: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(len)
        .collect();
        let hashes: Vec<u8> =
            data.chunks(PIECE as usize).flat_map(|p| Sha1::digest(p).to_vec()).collect();
        let raw_info: Bytes = Writer::new()
            .begin_dict()
            .bytes(b"length")
            .int(len as i64)
            .bytes(b"name")
            .bytes(b"example")
            .bytes(b"piece length")
            .int(PIECE.into())
            .bytes(b"pieces")
            .bytes(&hashes)
            .end()
            .finish()
            .into();
        let info_hash = InfoHash(Sha1::digest(&raw_info).into());
        Self { data, raw_info, info_hash }
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        let total = self.data.len() as u32;
        (0..total.div_ceil(BLOCK))
            .map(|n| {
                let at = n * BLOCK;
                Block { index: at / PIECE, begin: at % PIECE, len: BLOCK.min(total - at) }
            })
            .collect()
    }

    pub(super) fn bytes_of(&self, block: Block) -> &[u8] {
        let at = (block.index * PIECE + block.begin) as usize;
        &self.data[at..at + block.len as usize]
    }

    /// The PIECE message for `block`.
    pub(super) fn piece(&self, block: Block) -> Vec<u8> {
        [&block.piece_header()[..], self.bytes_of(block)].concat()
    }
}

/// What a store does, without its limits.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<ObjectId, (RangeSet, Vec<u8>)>,
}

impl Store {
    pub(super) fn keep(&mut self, keep: &Keep) {
        let (have, bytes) = self.objects.entry(keep.object).or_default();
        let mut at = keep.offset as usize;
        for part in &keep.data {
            bytes.resize(bytes.len().max(at + part.len()), 0);
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        have.insert(ByteRange::at(keep.offset, keep.len() as u64).unwrap());
    }

    pub(super) fn look(&self, object: ObjectId, range: ByteRange) -> Option<Bytes> {
        let (have, bytes) = self.objects.get(&object)?;
        let window = range.start() as usize..range.end() as usize;
        have.contains(range).then(|| Bytes::copy_from_slice(&bytes[window]))
    }

    pub(super) fn bytes_of(&self, object: ObjectId) -> u64 {
        self.objects.get(&object).map_or(0, |(have, _)| have.bytes())
    }

    pub(super) fn put(&mut self, object: ObjectId, offset: u64, data: &[u8]) {
        self.keep(&Keep { object, offset, data: vec![Bytes::copy_from_slice(data)] });
    }
}

/// How a bench begins.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Reserved bytes of both sides.
    pub(super) reserved: Reserved,
    pub(super) options: SessionOptions,
    /// Whether the store has the metadata from the start.
    pub(super) metadata: bool,
    /// Pieces that the store has from the start.
    pub(super) pieces: Vec<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            reserved: Reserved::EXTENSION_AND_FAST,
            options: SessionOptions::default(),
            metadata: true,
            pieces: Vec::new(),
        }
    }
}

pub(super) struct Bench {
    pub(super) session: BtSession,
    pub(super) torrents: Arc<Mutex<Torrents>>,
    pub(super) content: Content,
    pub(super) store: Store,
    pub(super) now: Instant,
    /// Whether look-ups and checks are answered at once.
    pub(super) automatic: bool,
    sent: [Vec<u8>; 2],
    pub(super) looks: VecDeque<(Ticket, ObjectId, ByteRange)>,
    pub(super) checks: Vec<Box<dyn Check>>,
    pub(super) events: Vec<Event>,
    pub(super) forgotten: Vec<ObjectId>,
    pub(super) descriptions: Vec<Description>,
    pub(super) closed: [bool; 2],
    pub(super) left: Option<LeaveReason>,
}

pub(super) const IN: Leg = Leg::Inside;
pub(super) const OUT: Leg = Leg::Outside;

impl Bench {
    /// Before the first byte.
    pub(super) fn silent(setup: &Setup) -> Self {
        let torrents = Arc::new(Mutex::new(Torrents::new(TorrentsOptions::default())));
        Self::silent_with(setup, torrents, Content::new())
    }

    pub(super) fn silent_with(
        setup: &Setup,
        torrents: Arc<Mutex<Torrents>>,
        content: Content,
    ) -> Self {
        let mut store = Store::default();
        if setup.metadata {
            let data = seal(&content.raw_info).to_vec();
            store.keep(&Keep { object: metadata_object(content.info_hash), offset: 0, data });
        }
        for block in content.blocks().into_iter().filter(|b| setup.pieces.contains(&b.index)) {
            let offset = u64::from(block.index * PIECE + block.begin);
            store.put(content_object(content.info_hash), offset, content.bytes_of(block));
        }
        Self {
            session: BtSession::new(setup.options.clone(), Arc::clone(&torrents), IN),
            torrents,
            content,
            store,
            now: Instant::from_nanos(1_000_000_000),
            automatic: true,
            sent: [Vec::new(), Vec::new()],
            looks: VecDeque::new(),
            checks: Vec::new(),
            events: Vec::new(),
            forgotten: Vec::new(),
            descriptions: Vec::new(),
            closed: [false; 2],
            left: None,
        }
    }

    /// After both handshakes, with the outside unchoking; look-ups wait for
    /// [`Bench::answer`] from here on.
    pub(super) fn new(setup: &Setup) -> Self {
        let mut bench = Self::silent(setup);
        bench.shake_hands(setup.reserved);
        bench.say(OUT, &Message::Unchoke);
        bench.automatic = false;
        bench.forget_the_past();
        bench
    }

    pub(super) fn shake_hands(&mut self, reserved: Reserved) {
        let info_hash = self.content.info_hash;
        for leg in Leg::BOTH {
            let handshake = Handshake { reserved, info_hash, peer_id: [leg.index() as u8; 20] };
            self.bytes(leg, &handshake.to_bytes());
        }
    }

    pub(super) fn forget_the_past(&mut self) {
        self.sent = [Vec::new(), Vec::new()];
        self.events.clear();
        self.descriptions.clear();
    }

    pub(super) fn say(&mut self, leg: Leg, message: &Message) {
        self.bytes(leg, &message.to_bytes());
    }

    pub(super) fn bytes(&mut self, leg: Leg, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if self.left.is_some() {
            // The driver relays from here on.
            self.sent[leg.other().index()].extend_from_slice(data);
            return;
        }
        self.feed(Input::Bytes { leg, data: Bytes::copy_from_slice(data) });
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        if self.session.next_deadline().is_some_and(|due| due <= self.now) {
            self.feed(Input::Timer);
        }
    }

    /// Answers the oldest look-up from the model.
    pub(super) fn answer(&mut self) {
        let (ticket, object, range) = self.looks.pop_front().expect("a look-up is open");
        let data = self.store.look(object, range);
        self.feed(Input::Answer { ticket, data });
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.session.handle(self.now, input);
        loop {
            while let Some(output) = self.session.poll_output() {
                self.take(output);
            }
            if !self.automatic {
                return;
            }
            for check in std::mem::take(&mut self.checks) {
                self.run(check);
            }
            let Some((ticket, object, range)) = self.looks.pop_front() else { return };
            let data = self.store.look(object, range);
            self.session.handle(self.now, Input::Answer { ticket, data });
        }
    }

    pub(super) fn run_checks(&mut self) {
        for check in std::mem::take(&mut self.checks) {
            self.run(check);
        }
    }

    fn run(&mut self, check: Box<dyn Check>) {
        let checked = check.run();
        if let Some(keep) = checked.keep {
            self.store.keep(&keep);
        }
        self.events.extend(checked.event);
    }

    fn take(&mut self, output: Output) {
        assert_eq!(self.left, None, "nothing follows leaving: {output:?}");
        match output {
            Output::Send { leg, data } => {
                assert!(!self.closed[leg.index()], "nothing is sent after closing");
                self.sent[leg.index()].extend_from_slice(&data);
            }
            Output::Close { leg } => self.closed[leg.index()] = true,
            Output::Look { ticket, object, range } => self.looks.push_back((ticket, object, range)),
            Output::Keep(keep) => self.store.keep(&keep),
            Output::Check(check) => self.checks.push(check),
            Output::Forget { object } => {
                self.store.objects.remove(&object);
                self.forgotten.push(object);
            }
            Output::Describe(description) => self.descriptions.push(description),
            Output::Leave(reason) => self.left = Some(reason),
            Output::Event(event) => self.events.push(event),
        }
    }

    /// What was sent to `leg` since this was last asked.
    pub(super) fn heard(&mut self, leg: Leg) -> Vec<u8> {
        std::mem::take(&mut self.sent[leg.index()])
    }

    /// Asserts that exactly these bytes were sent to `leg` since last asked.
    #[track_caller]
    pub(super) fn hears(&mut self, leg: Leg, want: &[&[u8]]) {
        let (got, want) = (self.heard(leg), want.concat());
        let show = |b: &[u8]| format!("{} bytes {:?}", b.len(), &b[..b.len().min(40)]);
        assert!(got == want, "{leg:?} heard {}, not {}", show(&got), show(&want));
    }

    pub(super) fn ignored(&self) -> Vec<Reason> {
        let reason = |event: &Event| match event {
            Event::Ignored(reason) => Some(*reason),
            _ => None,
        };
        self.events.iter().filter_map(reason).collect()
    }

    pub(super) fn served_bytes(&self) -> u64 {
        self.events
            .iter()
            .map(|e| if let Event::Served { bytes, .. } = e { *bytes } else { 0 })
            .sum()
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        self.store.bytes_of(content_object(self.content.info_hash))
    }
}

/// The frame of a request, a cancel, a reject.
pub(super) fn request(block: Block) -> Vec<u8> {
    Message::Request(block).to_bytes().to_vec()
}

pub(super) fn cancel(block: Block) -> Vec<u8> {
    Message::Cancel(block).to_bytes().to_vec()
}

pub(super) fn reject(block: Block) -> Vec<u8> {
    Message::Reject(block).to_bytes().to_vec()
}

/// An extension handshake of a client with (or without) metadata.
pub(super) fn extensions(id: u8, metadata_bytes: Option<u32>) -> Message {
    Extensions { ut_metadata: Some(id), metadata_bytes, reqq: None, seen: true }.to_message()
}
