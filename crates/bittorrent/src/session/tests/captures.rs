//! Connections of real clients, replayed from captures taken in the lab.
//!
//! Each message is fed by itself and each look-up answered at once, so that with
//! nothing stored the output must equal the input, byte for byte and in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::bench::*;
use crate::{
    Framer, HANDSHAKE_BYTES, Handshake, Item, PROTOCOL, SessionOptions, Torrents, TorrentsOptions,
    content_object, metadata_object,
};
use weir_session::{Event, Leg};

/// The captured content: 31 pieces of 32 KiB.
const CONTENT_BYTES: u64 = 1_000_000;

type Turn = (Leg, Vec<u8>);

fn captures() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures/lab");
    if !dir.is_dir() {
        println!("skipped: no captures");
        return None;
    }
    Some(dir)
}

/// The TCP connections of a capture that begin with a handshake, in the order of
/// their first bytes, each as what was said in turn.
fn connections(file: &Path) -> Vec<Vec<Turn>> {
    let capture = std::fs::read(file).unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    assert_eq!((u32_at(0), u32_at(20)), (0xa1b2_c3d4, 1), "microsecond Ethernet capture");
    let mut streams = BTreeMap::<[u8; 12], Stream>::new();
    let mut talks = BTreeMap::<[u8; 12], (usize, Vec<Turn>)>::new();
    let mut at = 24;
    while at + 16 <= capture.len() {
        let len = u32_at(at + 8) as usize;
        let packet = &capture[at + 16..at + 16 + len];
        at += 16 + len;
        let Some((from, syn, seq, payload)) = segment(packet) else { continue };
        let stream = streams.entry(from).or_default();
        let data = stream.push(syn, seq, payload);
        if data.is_empty() {
            continue;
        }
        // The first to speak is the dialer, and it is inside.
        let mut back = from;
        back.rotate_left(6);
        let order = talks.len();
        let (key, leg) =
            if talks.contains_key(&back) { (back, Leg::Outside) } else { (from, Leg::Inside) };
        talks.entry(key).or_insert((order, Vec::new())).1.push((leg, data));
    }
    let mut talks: Vec<_> =
        talks.into_values().filter(|(_, turns)| turns[0].1.starts_with(PROTOCOL)).collect();
    talks.sort_by_key(|(order, _)| *order);
    talks.into_iter().map(|(_, turns)| turns).collect()
}

/// (source and destination, SYN, sequence number, payload) of a TCP packet.
fn segment(packet: &[u8]) -> Option<([u8; 12], bool, u32, &[u8])> {
    let ip = packet.get(14..)?;
    if ip[0] >> 4 != 4 || ip[9] != 6 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let tcp = &ip[usize::from(ip[0] & 15) * 4..total];
    let mut key = [0; 12];
    key[..4].copy_from_slice(&ip[12..16]);
    key[4..6].copy_from_slice(&tcp[..2]);
    key[6..10].copy_from_slice(&ip[16..20]);
    key[10..].copy_from_slice(&tcp[2..4]);
    let seq = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
    Some((key, tcp[13] & 2 != 0, seq, &tcp[usize::from(tcp[12] >> 4) * 4..]))
}

/// One direction, put in order.
#[derive(Default)]
struct Stream {
    next: Option<u32>,
    early: BTreeMap<u32, Vec<u8>>,
}

impl Stream {
    fn push(&mut self, syn: bool, seq: u32, payload: &[u8]) -> Vec<u8> {
        if syn {
            self.next = Some(seq.wrapping_add(1));
            return Vec::new();
        }
        let mut out = Vec::new();
        let Some(mut next) = self.next else { return out };
        self.early.insert(seq, payload.to_vec());
        while let Some((seq, data)) = self.early.pop_first() {
            let behind = next.wrapping_sub(seq) as usize;
            if behind as u32 as i32 > 0 && behind >= data.len() {
                continue;
            }
            if (behind as u32 as i32) < 0 {
                self.early.insert(seq, data);
                break;
            }
            out.extend_from_slice(&data[behind..]);
            next = next.wrapping_add((data.len() - behind) as u32);
        }
        self.next = Some(next);
        out
    }
}

/// The bytes of one direction, cut into handshake, messages and blocks.
#[derive(Default)]
struct Cutter {
    handshake: Vec<u8>,
    framer: Framer,
}

impl Cutter {
    fn cut(&mut self, data: &[u8]) -> Vec<Part> {
        let (head, rest) = data.split_at((HANDSHAKE_BYTES - self.handshake.len()).min(data.len()));
        self.handshake.extend_from_slice(head);
        self.framer.push(bytes::Bytes::copy_from_slice(rest));
        let mut parts = vec![Part { bytes: head.to_vec(), is_of_block: false }];
        while let Some(item) = self.framer.poll_item().expect("clients send whole frames") {
            let is_of_block = matches!(item, Item::PieceHeader { .. } | Item::PieceData { .. });
            let bytes = match item {
                Item::KeepAlive { raw }
                | Item::Message { raw, .. }
                | Item::PieceHeader { raw, .. } => raw.to_vec(),
                Item::PieceData { data, .. } | Item::Opaque { data, .. } => data.to_vec(),
            };
            parts.push(Part { bytes, is_of_block });
        }
        parts.retain(|part| !part.bytes.is_empty());
        parts
    }
}

/// A message, or a slice of one that is not held whole.
struct Part {
    bytes: Vec<u8>,
    /// Whether it belongs to a PIECE message.
    is_of_block: bool,
}

/// What came of all connections of one capture.
struct Replay {
    store: Store,
    events: Vec<Event>,
    torrents: Arc<Mutex<Torrents>>,
    content: Content,
}

fn replay(file: &Path, store: Store) -> Replay {
    let torrents = Arc::new(Mutex::new(Torrents::new(TorrentsOptions::default())));
    let mut replay = Replay { store, events: Vec::new(), torrents, content: Content::new() };
    let talks = connections(file);
    assert!(!talks.is_empty(), "{}", file.display());
    for turns in talks {
        // Nobody here would answer, were metadata asked for.
        let options = SessionOptions { ask_metadata: false, ..SessionOptions::default() };
        let setup = Setup { options, metadata: false, ..Setup::default() };
        let hash = Handshake::parse_prefix(&turns[0].1).unwrap().unwrap().info_hash;
        replay.content.info_hash = hash;
        let torrents = Arc::clone(&replay.torrents);
        let mut bench = Bench::silent_with(&setup, torrents, replay.content.clone());
        bench.store = std::mem::take(&mut replay.store);
        let mut cutters = [Cutter::default(), Cutter::default()];
        for (leg, data) in turns {
            for part in cutters[leg.index()].cut(&data) {
                bench.bytes(leg, &part.bytes);
                bench.hears(leg.other(), &[&part.bytes]);
                bench.hears(leg, &[]);
            }
        }
        assert_eq!(bench.left, None);
        replay.events.append(&mut bench.events);
        replay.store = std::mem::take(&mut bench.store);
    }
    replay
}

fn assert_all_pieces_verified(replay: &Replay) {
    let passed: Vec<_> =
        replay.events.iter().filter(|e| matches!(e, Event::CheckPassed { .. })).collect();
    assert_eq!(passed.len(), 31);
    assert!(!replay.events.iter().any(|e| matches!(e, Event::CheckFailed { .. })));
    assert_eq!(replay.store.bytes_of(content_object(replay.content.info_hash)), CONTENT_BYTES);
    assert_eq!(replay.torrents.lock().unwrap().assembly_bytes(), 0);
    let sum =
        |which: fn(&Event) -> Option<u64>| replay.events.iter().filter_map(which).sum::<u64>();
    let asked = sum(|e| if let Event::Asked { bytes, .. } = e { Some(*bytes) } else { None });
    let fetched = sum(|e| if let Event::Fetched { bytes, .. } = e { Some(*bytes) } else { None });
    assert_eq!((asked, fetched), (CONTENT_BYTES, CONTENT_BYTES));
}

/// The raw items of a stream, sorted.
fn sorted_items(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut framer = Framer::new();
    framer.push(bytes::Bytes::copy_from_slice(&stream[HANDSHAKE_BYTES..]));
    let mut items: Vec<Vec<u8>> = Vec::new();
    while let Some(item) = framer.poll_item().expect("whole frames go in and out") {
        match item {
            Item::KeepAlive { raw } | Item::Message { raw, .. } | Item::PieceHeader { raw, .. } => {
                items.push(raw.to_vec());
            }
            Item::PieceData { data, .. } | Item::Opaque { data, .. } => {
                items.last_mut().unwrap().extend_from_slice(&data);
            }
        }
    }
    items.sort();
    items
}

#[test]
fn segments_as_captured_lose_no_message_and_only_metadata_is_asked_for() {
    let Some(dir) = captures() else { return };
    for name in ["libtorrent", "transmission"] {
        let turns = connections(&dir.join(format!("bt-tcp-plain-{name}.pcap"))).remove(0);
        let setup = Setup { metadata: false, ..Setup::default() };
        let mut bench = Bench::silent(&setup);
        let (mut said, mut heard) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for (leg, data) in turns {
            bench.bytes(leg, &data);
            said[leg.other().index()].extend(data);
            for leg in Leg::BOTH {
                heard[leg.index()].extend(bench.heard(leg));
            }
        }
        let mut added = Vec::new();
        for leg in [0, 1] {
            let mut want = sorted_items(&said[leg]).into_iter().peekable();
            for item in sorted_items(&heard[leg]) {
                if want.peek() == Some(&item) {
                    want.next();
                } else {
                    added.push(item);
                }
            }
            assert_eq!(want.next(), None);
        }
        // Both clients have the metadata, so inside was asked for its one piece.
        let asks = |item: &Vec<u8>| item[4] == 20 && item.ends_with(b"d8:msg_typei0e5:piecei0ee");
        assert!(added.len() == 1 && added.iter().all(asks), "{name}: {added:?}");
    }
}

#[test]
fn the_same_download_again_fetches_nothing() {
    let Some(dir) = captures() else { return };
    let magnet = dir.join("bt-magnet-utmetadata-udptracker-libtorrent.pcap");
    for name in ["libtorrent", "transmission"] {
        let learnt = replay(&magnet, Store::default());
        let mut content = learnt.content;
        let range = weir_ranges::ByteRange::new(0, CONTENT_BYTES).unwrap();
        content.data =
            learnt.store.look(content_object(content.info_hash), range).unwrap().to_vec();
        let setup = Setup { metadata: false, ..Setup::default() };
        let mut bench = Bench::silent_with(&setup, learnt.torrents, content);
        bench.store = learnt.store;
        let turns = connections(&dir.join(format!("bt-tcp-plain-{name}.pcap"))).remove(0);
        let mut cutters = [Cutter::default(), Cutter::default()];
        for (leg, data) in turns {
            for part in cutters[leg.index()].cut(&data) {
                // The peer is as it was, but that nothing is asked of it.
                if part.is_of_block {
                    continue;
                }
                let part = part.bytes;
                let is_request = leg == Leg::Inside && part.len() == 17 && part[4] == 6;
                bench.bytes(leg, &part);
                let passed = if is_request { Vec::new() } else { part.clone() };
                bench.hears(leg.other(), &[&passed]);
                if is_request {
                    let n = |at: usize| u32::from_be_bytes(part[at..at + 4].try_into().unwrap());
                    let block = Block { index: n(5), begin: n(9), len: n(13) };
                    let piece = bench.content.piece(block);
                    bench.hears(leg, &[&piece]);
                }
            }
        }
        assert_eq!(bench.served_bytes(), CONTENT_BYTES, "{name}");
    }
}

#[test]
fn magnet_downloads_teach_the_metadata_and_every_piece_is_verified() {
    let Some(dir) = captures() else { return };
    for name in ["httptracker-transmission", "udptracker-libtorrent"] {
        let file = dir.join(format!("bt-magnet-utmetadata-{name}.pcap"));
        let replay = replay(&file, Store::default());
        assert!(replay.events.contains(&Event::MetadataLearnt), "{name}");
        assert_all_pieces_verified(&replay);
    }
}

#[test]
fn plain_downloads_pass_unchanged_and_every_piece_is_verified_once_metadata_is_known() {
    let Some(dir) = captures() else { return };
    let file = dir.join("bt-magnet-utmetadata-udptracker-libtorrent.pcap");
    let learnt = replay(&file, Store::default());
    let object = metadata_object(learnt.content.info_hash);
    let size = learnt.store.bytes_of(object);
    let range = weir_ranges::ByteRange::new(0, size).unwrap();
    let metadata = learnt.store.look(object, range).unwrap();
    for name in ["libtorrent", "transmission"] {
        let mut store = Store::default();
        store.put(object, 0, &metadata);
        let replay = replay(&dir.join(format!("bt-tcp-plain-{name}.pcap")), store);
        assert_all_pieces_verified(&replay);
    }
}

#[test]
fn plain_downloads_without_metadata_pass_unchanged_and_wait_in_the_assembly() {
    let Some(dir) = captures() else { return };
    for name in ["libtorrent", "transmission"] {
        let file = dir.join(format!("bt-tcp-plain-{name}.pcap"));
        let replay = replay(&file, Store::default());
        let held = replay.torrents.lock().unwrap().assembly_bytes() as u64;
        assert!(held >= CONTENT_BYTES && !replay.events.contains(&Event::MetadataLearnt));
    }
}
