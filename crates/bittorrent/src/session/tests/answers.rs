//! Playbooks: requests, cancels, choking, limits.

use super::bench::*;
use crate::{Message, Reserved, SessionOptions};
use weir_session::{Event, Input, Reason, Session};

fn with_piece_1() -> Setup {
    Setup { pieces: vec![1], ..Setup::default() }
}

const B10: Block = Block { index: 1, begin: 0, len: BLOCK };
const B11: Block = Block { index: 1, begin: BLOCK, len: BLOCK };
const B00: Block = Block { index: 0, begin: 0, len: BLOCK };

fn plain() -> Setup {
    Setup { reserved: Reserved([0, 0, 0, 0, 0, 0x10, 0, 0]), ..with_piece_1() }
}

#[test]
fn a_block_in_the_store_is_served_and_the_peer_hears_nothing() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    assert_eq!(bench.looks.len(), 1);
    bench.answer();
    let piece = bench.content.piece(B10);
    bench.hears(IN, &[&piece]);
    bench.hears(OUT, &[]);
    let bytes = u64::from(BLOCK);
    assert_eq!(bench.events, [Event::Asked { leg: IN, bytes }, Event::Served { leg: IN, bytes }]);
}

#[test]
fn a_block_not_in_the_store_is_asked_of_the_peer() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B00));
    bench.hears(OUT, &[]);
    bench.answer();
    bench.hears(OUT, &[&request(B00)]);
    let piece = bench.content.piece(B00);
    bench.bytes(OUT, &piece);
    bench.hears(IN, &[&piece]);
    assert!(bench.events.contains(&Event::Fetched { leg: IN, bytes: BLOCK.into() }));
}

#[test]
fn a_request_to_a_choking_peer_is_its_business() {
    let mut bench = Bench::new(&with_piece_1());
    bench.say(OUT, &Message::Choke);
    bench.bytes(IN, &request(B10));
    bench.hears(OUT, &[&request(B10)]);
    assert!(bench.looks.is_empty());
}

#[test]
fn an_allowed_fast_piece_is_served_while_choked() {
    let mut bench = Bench::new(&with_piece_1());
    bench.say(OUT, &Message::Choke);
    bench.say(OUT, &Message::AllowedFast(1));
    bench.heard(IN);
    bench.bytes(IN, &request(B10));
    bench.answer();
    let piece = bench.content.piece(B10);
    bench.hears(IN, &[&piece]);
}

#[test]
fn outsiders_are_served_only_if_told_so() {
    for answer_outside in [false, true] {
        let options = SessionOptions { answer_outside, ..SessionOptions::default() };
        let mut bench = Bench::new(&Setup { options, ..with_piece_1() });
        bench.say(IN, &Message::Unchoke);
        bench.bytes(OUT, &request(B10));
        assert_eq!(bench.looks.len(), usize::from(answer_outside));
        let forwarded = if answer_outside { Vec::new() } else { request(B10) };
        bench.hears(IN, &[&forwarded]);
    }
}

#[test]
fn a_cancelled_request_is_rejected_when_both_are_fast() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    bench.bytes(IN, &cancel(B10));
    bench.hears(IN, &[&reject(B10)]);
    bench.answer();
    bench.hears(IN, &[]);
    bench.hears(OUT, &[]);
}

#[test]
fn a_cancelled_request_is_dropped_when_not_both_are_fast() {
    let mut bench = Bench::new(&plain());
    bench.bytes(IN, &request(B10));
    bench.bytes(IN, &cancel(B10));
    bench.answer();
    bench.hears(IN, &[]);
    bench.hears(OUT, &[]);
}

#[test]
fn a_cancel_of_a_served_block_goes_no_further() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    bench.answer();
    bench.bytes(IN, &cancel(B10));
    bench.hears(OUT, &[]);
}

#[test]
fn a_cancel_of_a_forwarded_or_unknown_request_is_forwarded() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B00));
    bench.answer();
    bench.bytes(IN, &cancel(B00));
    bench.bytes(IN, &cancel(B11));
    bench.hears(OUT, &[&request(B00), &cancel(B00), &cancel(B11)]);
}

#[test]
fn a_choke_rejects_what_waits_after_the_choke_when_both_are_fast() {
    let mut bench = Bench::new(&with_piece_1());
    bench.say(OUT, &Message::AllowedFast(0));
    bench.heard(IN);
    for block in [B10, B00, B11] {
        bench.bytes(IN, &request(block));
    }
    bench.say(OUT, &Message::Choke);
    bench.hears(IN, &[&Message::Choke.to_bytes(), &reject(B10), &reject(B11)]);
    // Answers come late: only the allowed-fast one still matters, and misses.
    (0..3).for_each(|_| bench.answer());
    bench.hears(IN, &[]);
    bench.hears(OUT, &[&request(B00)]);
}

#[test]
fn a_choke_drops_what_waits_when_not_both_are_fast() {
    let mut bench = Bench::new(&plain());
    bench.bytes(IN, &request(B10));
    bench.say(OUT, &Message::Choke);
    bench.answer();
    bench.hears(IN, &[&Message::Choke.to_bytes()]);
    // As after any choke, the client asks again once it may.
    bench.say(OUT, &Message::Unchoke);
    bench.bytes(IN, &request(B10));
    bench.answer();
    let piece = bench.content.piece(B10);
    bench.hears(IN, &[&Message::Unchoke.to_bytes(), &piece]);
}

#[test]
fn a_reject_of_the_peer_is_passed_on() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B00));
    bench.answer();
    bench.bytes(OUT, &reject(B00));
    bench.hears(IN, &[&reject(B00)]);
    // The request is settled, so a piece for it would be unasked.
    let piece = bench.content.piece(B00);
    bench.bytes(OUT, &piece);
    assert!(!bench.events.iter().any(|e| matches!(e, Event::Fetched { .. })));
}

#[test]
fn a_block_is_served_eight_times_then_the_peer_is_asked() {
    let mut bench = Bench::new(&with_piece_1());
    for _ in 0..8 {
        bench.bytes(IN, &request(B10));
        bench.answer();
    }
    bench.hears(OUT, &[]);
    bench.bytes(IN, &request(B10));
    bench.hears(OUT, &[&request(B10)]);
    assert_eq!(bench.ignored(), [Reason::AskedTooOften]);
}

#[test]
fn requests_outside_the_content_are_forwarded() {
    let mut bench = Bench::new(&with_piece_1());
    let bad = [
        Block { index: 0, begin: PIECE - 1, len: 2 },
        Block { index: u32::MAX, begin: u32::MAX, len: u32::MAX },
        Block { index: 4, begin: 0, len: 1 },
        Block { index: 0, begin: 0, len: 0 },
    ];
    for block in bad {
        bench.bytes(IN, &request(block));
        bench.hears(OUT, &[&request(block)]);
    }
    assert_eq!(bench.ignored(), [Reason::RequestOutOfRange; 4]);
    assert!(bench.looks.is_empty());
}

#[test]
fn look_ups_are_bounded_and_the_rest_waits_its_turn() {
    let options = SessionOptions { lookups_max: 2, waiting_max: 3, ..SessionOptions::default() };
    let mut bench = Bench::new(&Setup { options, ..with_piece_1() });
    let blocks: Vec<_> = (0..6).map(|n| Block { index: 1, begin: n * 100, len: 100 }).collect();
    for block in &blocks {
        bench.bytes(IN, &request(*block));
    }
    assert_eq!(bench.looks.len(), 2);
    // Two are looked up, three wait, the sixth goes to the peer.
    bench.hears(OUT, &[&request(blocks[5])]);
    assert_eq!(bench.ignored(), [Reason::LookupsFull]);
    (0..5).for_each(|_| bench.answer());
    let pieces: Vec<_> = blocks[..5].iter().map(|b| bench.content.piece(*b)).collect();
    bench.hears(IN, &[&pieces.concat()]);
}

#[test]
fn a_leg_that_does_not_read_is_not_answered_without_bound() {
    let options =
        SessionOptions { queued_bytes_max: BLOCK as usize * 2, ..SessionOptions::default() };
    let mut bench = Bench::new(&Setup { options, ..with_piece_1() });
    for _ in 0..5 {
        bench.bytes(IN, &request(B10));
    }
    assert_eq!(bench.looks.len(), 2);
    (0..2).for_each(|_| bench.answer());
    assert_eq!(bench.looks.len(), 0);
    bench.feed(Input::Queued { leg: IN, queued_bytes: BLOCK as usize * 2 });
    assert_eq!(bench.looks.len(), 0);
    assert_ne!(bench.session.next_deadline(), Some(bench.now));
    bench.feed(Input::Queued { leg: IN, queued_bytes: 0 });
    assert_eq!(bench.looks.len(), 2);
}

#[test]
fn a_driver_that_wrote_everything_at_once_need_not_say_so() {
    let options = SessionOptions { queued_bytes_max: BLOCK as usize, ..SessionOptions::default() };
    let mut bench = Bench::new(&Setup { options, ..with_piece_1() });
    bench.bytes(IN, &request(B10));
    bench.bytes(IN, &request(B11));
    bench.answer();
    assert_eq!(bench.looks.len(), 0);
    assert_eq!(bench.session.next_deadline(), Some(bench.now));
    bench.feed(Input::Timer);
    assert_eq!(bench.looks.len(), 1);
}

#[test]
fn no_longer_interested_is_heard_after_the_requests_before_it() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    bench.say(IN, &Message::NotInterested);
    bench.hears(OUT, &[&request(B10), &Message::NotInterested.to_bytes()]);
}

#[test]
fn requests_before_the_metadata_is_known_are_forwarded() {
    let mut bench = Bench::new(&Setup { metadata: false, ..with_piece_1() });
    bench.bytes(IN, &request(B10));
    bench.hears(OUT, &[&request(B10)]);
}

#[test]
fn an_answer_of_the_wrong_size_is_a_miss() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    let (ticket, ..) = bench.looks.pop_front().unwrap();
    bench.feed(Input::Answer { ticket, data: Some(bytes::Bytes::from_static(b"short")) });
    bench.hears(IN, &[]);
    bench.hears(OUT, &[&request(B10)]);
}
