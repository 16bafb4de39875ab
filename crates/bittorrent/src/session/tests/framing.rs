//! Playbooks: handshakes, boundaries, keep-alives, ends, leaving.

use std::time::Duration;

use super::bench::*;
use crate::{Handshake, InfoHash, KEEP_ALIVE, Message, Reserved, Torrents, TorrentsOptions};
use std::sync::{Arc, Mutex};
use weir_session::{LeaveReason, Session};

fn with_piece_1() -> Setup {
    Setup { pieces: vec![1], ..Setup::default() }
}

const B10: Block = Block { index: 1, begin: 0, len: BLOCK };
const B00: Block = Block { index: 0, begin: 0, len: BLOCK };
const BROKEN: [u8; 9] = [0xff; 9];

#[test]
fn handshake_bytes_pass_as_they_come() {
    let mut bench = Bench::silent(&Setup::default());
    let handshake = Handshake {
        reserved: Reserved::default(),
        info_hash: bench.content.info_hash,
        peer_id: [0; 20],
    };
    for byte in handshake.to_bytes() {
        bench.bytes(IN, &[byte]);
        bench.hears(OUT, &[&[byte]]);
    }
    assert_eq!(bench.session.info_hash(), Some(bench.content.info_hash));
}

#[test]
fn what_is_no_handshake_is_left_verbatim() {
    let mut bench = Bench::silent(&Setup::default());
    bench.bytes(IN, b"GET / HTTP/1.1\r\n");
    bench.hears(OUT, &[b"GET / HTTP/1.1\r\n"]);
    assert_eq!(bench.left, Some(LeaveReason::NotOurs));
}

#[test]
fn sides_that_name_different_content_are_left() {
    let mut bench = Bench::silent(&Setup::default());
    let mut handshake =
        Handshake { reserved: Reserved::default(), info_hash: InfoHash([1; 20]), peer_id: [0; 20] };
    bench.bytes(IN, &handshake.to_bytes());
    handshake.info_hash = InfoHash([2; 20]);
    bench.bytes(OUT, &handshake.to_bytes());
    bench.hears(IN, &[&handshake.to_bytes()]);
    assert_eq!(bench.left, Some(LeaveReason::ContentMismatch));
}

#[test]
fn a_content_that_does_not_fit_the_table_is_left_alone() {
    let options = TorrentsOptions { contents_max: 0, ..TorrentsOptions::default() };
    let torrents = Arc::new(Mutex::new(Torrents::new(options)));
    let mut bench = Bench::silent_with(&Setup::default(), torrents, Content::new());
    bench.shake_hands(Reserved::default());
    assert_eq!(bench.left, Some(LeaveReason::Refused));
    assert_eq!((bench.heard(IN).len(), bench.heard(OUT).len()), (68, 68));
}

#[test]
fn unknown_messages_and_keep_alives_pass_unchanged() {
    let mut bench = Bench::new(&Setup::default());
    let bitfield = Message::Bitfield(vec![0xf0].into()).to_bytes();
    let stream = [
        &bitfield[..],
        &bitfield,
        &Message::HaveAll.to_bytes(),
        KEEP_ALIVE,
        &[0, 0, 0, 3, 200, 1, 2],
    ]
    .concat();
    bench.bytes(OUT, &stream);
    bench.hears(IN, &[&stream]);
    assert!(bench.events.is_empty());
}

#[test]
fn a_block_is_cut_through_and_what_is_composed_waits_for_its_end() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    let incoming = bench.content.piece(B00);
    bench.bytes(OUT, &incoming[..1000]);
    bench.hears(IN, &[&incoming[..1000]]);
    bench.answer();
    bench.hears(IN, &[]);
    bench.bytes(OUT, &incoming[1000..]);
    let served = bench.content.piece(B10);
    bench.hears(IN, &[&incoming[1000..], &served]);
}

#[test]
fn a_late_request_waits_for_the_end_of_an_upload() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B00));
    let upload = bench.content.piece(B10);
    bench.bytes(IN, &upload[..20]);
    bench.answer();
    bench.hears(OUT, &[&upload[..20]]);
    bench.bytes(IN, &upload[20..]);
    bench.hears(OUT, &[&upload[20..], &request(B00)]);
}

#[test]
fn a_request_held_for_an_upload_can_be_cancelled() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B00));
    let upload = bench.content.piece(B10);
    bench.bytes(IN, &upload[..20]);
    bench.answer();
    bench.bytes(IN, &[&upload[20..], &cancel(B00)].concat());
    // The upload's end came first: the request was placed, so is the cancel.
    bench.hears(OUT, &[&upload, &request(B00), &cancel(B00)]);
}

#[test]
fn a_choke_in_mid_upload_refuses_a_held_request() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B00));
    let upload = bench.content.piece(B10);
    bench.bytes(IN, &upload[..20]);
    bench.answer();
    bench.say(OUT, &Message::Choke);
    bench.hears(IN, &[&Message::Choke.to_bytes(), &reject(B00)]);
    bench.bytes(IN, &upload[20..]);
    bench.hears(OUT, &[&upload]);
}

#[test]
fn a_served_piece_held_for_a_boundary_can_be_cancelled() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    let incoming = bench.content.piece(B00);
    bench.bytes(OUT, &incoming[..50]);
    bench.answer();
    bench.bytes(IN, &cancel(B10));
    bench.bytes(OUT, &incoming[50..]);
    bench.hears(IN, &[&incoming, &reject(B10)]);
    bench.hears(OUT, &[]);
    assert_eq!(bench.served_bytes(), 0);
}

#[test]
fn a_peer_that_hears_nothing_because_of_us_gets_a_keep_alive() {
    let mut bench = Bench::new(&with_piece_1());
    bench.say(IN, &Message::Interested);
    bench.heard(OUT);
    // Nobody speaks: nothing is due.
    assert_eq!(bench.session.next_deadline(), None);
    bench.wait(Duration::from_secs(20));
    bench.bytes(IN, &request(B10));
    bench.answer();
    bench.wait(Duration::from_secs(34));
    bench.hears(OUT, &[]);
    bench.wait(Duration::from_secs(1));
    bench.hears(OUT, &[KEEP_ALIVE]);
    // And again only if the client goes on.
    assert_eq!(bench.session.next_deadline(), None);
}

#[test]
fn a_broken_frame_flushes_what_waits_and_leaves() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    bench.bytes(IN, &BROKEN);
    bench.hears(OUT, &[&request(B10), &BROKEN]);
    assert_eq!(bench.left, Some(LeaveReason::Malformed));
}

#[test]
fn leaving_waits_for_the_boundary_that_a_held_message_needs() {
    let options = crate::SessionOptions { answer_outside: true, ..Default::default() };
    let mut bench = Bench::new(&Setup { options, ..with_piece_1() });
    bench.say(IN, &Message::Unchoke);
    bench.heard(OUT);
    bench.bytes(OUT, &request(B10));
    let incoming = bench.content.piece(B00);
    bench.bytes(OUT, &incoming[..50]);
    bench.bytes(IN, &BROKEN);
    bench.hears(OUT, &[&BROKEN]);
    assert_eq!(bench.left, None);
    bench.bytes(IN, b"more");
    bench.hears(OUT, &[b"more"]);
    bench.bytes(OUT, &incoming[50..]);
    bench.hears(IN, &[&incoming, &request(B10)]);
    assert_eq!(bench.left, Some(LeaveReason::Malformed));
}

#[test]
fn a_frame_cut_off_by_the_end_is_passed_on() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10)[..7]);
    bench.hears(OUT, &[]);
    bench.feed(weir_session::Input::Closed { leg: IN });
    bench.hears(OUT, &[&request(B10)[..7]]);
    assert_eq!(bench.closed, [false, true]);
}

#[test]
fn a_leg_that_ends_wants_no_answers_any_more() {
    let mut bench = Bench::new(&with_piece_1());
    bench.bytes(IN, &request(B10));
    bench.feed(weir_session::Input::Closed { leg: IN });
    bench.answer();
    bench.hears(IN, &[]);
    // What the other side still says is passed on.
    bench.say(OUT, &Message::Have(1));
    bench.hears(IN, &[&Message::Have(1).to_bytes()]);
    bench.feed(weir_session::Input::Closed { leg: OUT });
    assert_eq!(bench.closed, [true, true]);
    assert_eq!(bench.session.next_deadline(), None);
}

#[test]
fn a_content_is_let_go_when_the_session_ends() {
    let options = TorrentsOptions { contents_max: 1, ..TorrentsOptions::default() };
    let torrents = Arc::new(Mutex::new(Torrents::new(options)));
    let bench = |len| {
        let mut bench =
            Bench::silent_with(&Setup::default(), Arc::clone(&torrents), Content::of_bytes(len));
        bench.shake_hands(Reserved::default());
        bench
    };
    let first = bench(1000);
    assert_eq!(bench(2000).left, Some(LeaveReason::Refused));
    drop(first);
    assert_eq!(bench(2000).left, None);
}
