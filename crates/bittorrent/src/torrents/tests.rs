//! What all sessions know together: limits, and what happens at them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use sha1::{Digest, Sha1};
use weir_ranges::Instant;
use weir_session::{Check, Event};

use super::*;
use crate::bencode::Writer;
use crate::handshake::InfoHash;
use crate::metadata::Info;
use crate::wire::Block;

const HASH: InfoHash = InfoHash([1; 20]);

fn torrents(options: TorrentsOptions) -> Torrents {
    Torrents::new(options)
}

fn hash(n: u8) -> InfoHash {
    InfoHash([n; 20])
}

/// Data of `len` bytes in pieces of `piece` bytes, and its metadata.
fn content(len: usize, piece: usize) -> (Bytes, Info) {
    let data: Bytes = (0..len).map(|n| (n * 7 % 251) as u8).collect();
    let hashes: Vec<u8> = data.chunks(piece).flat_map(|p| Sha1::digest(p).to_vec()).collect();
    let raw = Writer::new()
        .begin_dict()
        .bytes(b"length")
        .int(len as i64)
        .bytes(b"piece length")
        .int(piece as i64)
        .bytes(b"pieces")
        .bytes(&hashes)
        .end()
        .finish();
    let info = Info::parse(&raw, InfoHash(Sha1::digest(&raw).into())).unwrap();
    (data, info)
}

fn block(index: u32, begin: u32, len: u32) -> Block {
    Block { index, begin, len }
}

#[test]
fn objects_of_one_content_and_of_two_differ() {
    let mut ids = vec![content_object(hash(1)), content_object(hash(2))];
    ids.extend([
        metadata_object(hash(1)),
        inferred_object(hash(1), 0),
        inferred_object(hash(1), 1),
    ]);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[test]
fn the_content_used_longest_ago_makes_room_but_never_one_in_use() {
    let mut t = torrents(TorrentsOptions { contents_max: 2, ..TorrentsOptions::default() });
    let first = t.enter(hash(1)).unwrap();
    let second = t.enter(hash(2)).unwrap();
    assert_eq!(t.enter(hash(3)), None);
    t.add(hash(1), block(0, 0, 3), &Bytes::from_static(b"abc"));
    t.exit(hash(1), first);
    t.exit(hash(2), second);
    // The first is used again, so the second goes.
    let again = t.enter(hash(1)).unwrap();
    t.exit(hash(1), again);
    assert!(t.enter(hash(3)).is_some());
    assert_eq!((t.len(), t.assembly_bytes() > 0), (2, true));
    assert!(t.enter(hash(4)).is_some());
    assert_eq!((t.len(), t.assembly_bytes()), (2, 0));
    assert_eq!(t.enter(hash(1)), None);
}

#[test]
fn the_piece_touched_longest_ago_makes_room() {
    let mut t =
        torrents(TorrentsOptions { assembly_bytes_max: 3500, ..TorrentsOptions::default() });
    t.enter(HASH).unwrap();
    let data = Bytes::from(vec![0; 1000]);
    for index in [0, 1, 2] {
        assert_eq!(t.add(HASH, block(index, 0, 1000), &data).dropped, 0);
    }
    t.add(HASH, block(0, 1000, 100), &data.slice(..100));
    assert_eq!(t.add(HASH, block(3, 0, 1000), &data).dropped, 1);
    assert!(t.assembly_bytes() <= 3500);
    // A piece larger than everything is dropped itself.
    let large = Bytes::from(vec![0; 4000]);
    assert!(t.add(HASH, block(9, 0, 4000), &large).dropped >= 1);
    assert_eq!(t.assembly_bytes(), 0);
}

#[test]
fn blocks_that_overlap_still_make_the_piece() {
    let (data, info) = content(100, 100);
    let hash = info.info_hash();
    let mut t = torrents(TorrentsOptions::default());
    t.enter(hash).unwrap();
    t.learn(info).unwrap();
    for (from, to) in [(0, 40), (60, 100), (30, 70)] {
        let block = block(0, from, to - from);
        let part = data.slice(from as usize..to as usize);
        if let Some(piece) = t.add(hash, block, &part).complete {
            assert_eq!(piece.parts.concat(), &data[..]);
            return;
        }
    }
    panic!("not complete");
}

#[test]
fn a_piece_handed_out_is_not_wanted_until_it_is_missed() {
    let (data, info) = content(200, 100);
    let hash = info.info_hash();
    let shared = Arc::new(Mutex::new(torrents(TorrentsOptions::default())));
    let mut t = shared.lock().unwrap();
    t.enter(hash).unwrap();
    t.learn(info).unwrap();
    let piece = t.add(hash, block(1, 0, 100), &data.slice(100..)).complete.unwrap();
    assert!(t.wants(hash, 0) && !t.wants(hash, 1));
    drop(t);
    let checked = Box::new(PieceCheck::new(Arc::clone(&shared), piece)).run();
    assert_eq!(checked.event, Some(Event::CheckPassed { bytes: 100 }));
    let keep = checked.keep.unwrap();
    assert_eq!((keep.offset, keep.len(), keep.object), (100, 100, content_object(hash)));
    let mut t = shared.lock().unwrap();
    t.piece_missing(hash, 1);
    assert!(t.wants(hash, 1));
    // Wrong bytes: the check says so, and the piece is wanted again.
    let piece = t.add(hash, block(1, 0, 100), &data.slice(..100)).complete.unwrap();
    drop(t);
    let check = Box::new(PieceCheck::new(Arc::clone(&shared), piece));
    assert_eq!(check.cost_bytes(), 100);
    let checked = check.run();
    assert!(checked.keep.is_none() && shared.lock().unwrap().wants(hash, 1));
    assert_eq!(checked.event, Some(Event::CheckFailed { bytes: 100 }));
}

#[test]
fn pieces_beyond_the_content_are_dropped_when_the_metadata_comes() {
    let (data, info) = content(150, 100);
    let hash = info.info_hash();
    let mut t = torrents(TorrentsOptions::default());
    t.enter(hash).unwrap();
    t.add(hash, block(7, 0, 100), &data.slice(..100));
    // More than the short last piece has: the surplus is cut off.
    t.add(
        hash,
        block(1, 0, 100),
        &[data.slice(100..), Bytes::from_static(&[0; 50])].concat().into(),
    );
    let learnt = t.learn(info).unwrap();
    assert_eq!(learnt.complete.len(), 1);
    assert_eq!(learnt.complete[0].parts.concat(), &data[100..]);
    assert_eq!(t.assembly_bytes(), 0);
}

#[test]
fn tiny_blocks_do_not_multiply_without_bound() {
    let mut t = torrents(TorrentsOptions::default());
    t.enter(HASH).unwrap();
    for n in 0..10_000 {
        t.add(HASH, block(0, n * 2, 1), &Bytes::from_static(b"x"));
    }
    assert!(t.assembly_bytes() < 500_000);
}

#[test]
fn metadata_beyond_the_budget_is_refused() {
    let (_, info) = content(100, 1);
    let hash = info.info_hash();
    let mut t =
        torrents(TorrentsOptions { metadata_bytes_max: 1000, ..TorrentsOptions::default() });
    t.enter(hash).unwrap();
    assert_eq!(t.collect(hash, 20_000, 0, &[0; 16384]), Collected::Refused);
    assert!(t.learn(info).is_err());
    assert!(t.info(hash).is_none());
}

#[test]
fn metadata_is_collected_piece_by_piece_and_each_has_its_size() {
    let mut t = torrents(TorrentsOptions::default());
    t.enter(HASH).unwrap();
    let raw = vec![5; 20_000];
    assert_eq!(t.collect(HASH, 20_000, 1, &raw[16384..]), Collected::More);
    assert_eq!(t.collect(HASH, 20_000, 1, &raw[..5]), Collected::Refused);
    assert_eq!(t.collect(HASH, 20_000, 2, &[]), Collected::Refused);
    assert!(t.has_metadata_piece(HASH, 1) && !t.has_metadata_piece(HASH, 0));
    // Another size begins anew; so does the first again.
    assert_eq!(t.collect(HASH, 30_000, 0, &raw[..16384]), Collected::More);
    assert_eq!(t.collect(HASH, 20_000, 0, &raw[..16384]), Collected::More);
    assert_eq!(t.collect(HASH, 20_000, 1, &raw[16384..]), Collected::Whole(raw.into()));
    for bad in [0, u32::MAX] {
        assert_eq!(t.collect(HASH, bad, 0, &[]), Collected::Refused);
    }
}

#[test]
fn one_session_asks_at_a_time() {
    let mut t = torrents(TorrentsOptions::default());
    let now = Instant::from_nanos(0);
    let late = now + Duration::from_secs(10);
    let (a, b) = (t.enter(HASH).unwrap(), t.enter(HASH).unwrap());
    assert!(t.try_ask(HASH, a, now) && t.try_ask(HASH, a, now) && !t.try_ask(HASH, b, now));
    assert!(t.try_ask(HASH, b, late) && !t.try_ask(HASH, a, late));
    t.exit(HASH, b);
    assert!(t.try_ask(HASH, a, late));
}

proptest! {
    /// The assembly agrees with a plain map of bytes, and its budget holds.
    #[test]
    fn any_blocks_in_any_order_make_exactly_the_pieces(
        blocks in proptest::collection::vec((0u32..3, 0u32..100, 1u32..60), 1..80))
    {
        let (data, info) = content(300, 100);
        let hash = info.info_hash();
        let mut t = torrents(TorrentsOptions::default());
        t.enter(hash).unwrap();
        t.learn(info).unwrap();
        let mut have = [false; 300];
        for (index, begin, len) in blocks {
            let len = len.min(100 - begin);
            if len == 0 {
                continue;
            }
            let at = (index * 100 + begin) as usize;
            have[at..at + len as usize].fill(true);
            let added = t.add(hash, block(index, begin, len), &data.slice(at..at + len as usize));
            let piece = index as usize * 100..index as usize * 100 + 100;
            let whole = have[piece.clone()].iter().all(|h| *h);
            prop_assert_eq!(added.complete.is_some(), whole);
            if let Some(complete) = added.complete {
                prop_assert_eq!(complete.parts.concat(), &data[piece.clone()]);
                have[piece].fill(false);
            }
        }
    }
}
