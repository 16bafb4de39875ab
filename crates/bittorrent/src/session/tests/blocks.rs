//! Playbooks: what passes is put together, checked and kept.

use super::bench::*;
use crate::{Message, Reserved, SessionOptions, inferred_object};
use weir_session::{Event, Reason};

fn unknown() -> Setup {
    Setup { metadata: false, reserved: Reserved::default(), ..Setup::default() }
}

#[test]
fn a_piece_is_checked_once_all_its_blocks_have_passed_and_then_served() {
    let mut bench = Bench::new(&Setup::default());
    let blocks = bench.content.blocks();
    for block in &blocks[..2] {
        bench.bytes(IN, &request(*block));
        bench.answer();
        assert!(bench.checks.is_empty());
        let piece = bench.content.piece(*block);
        bench.bytes(OUT, &piece);
    }
    bench.run_checks();
    assert!(bench.events.contains(&Event::CheckPassed { bytes: PIECE.into() }));
    assert_eq!(bench.kept_bytes(), PIECE.into());
    bench.forget_the_past();
    bench.bytes(IN, &request(blocks[1]));
    bench.answer();
    let piece = bench.content.piece(blocks[1]);
    bench.hears(IN, &[&piece]);
}

#[test]
fn a_piece_that_fails_its_check_is_dropped_and_put_together_anew() {
    let mut bench = Bench::new(&Setup::default());
    let blocks = bench.content.blocks();
    let mut bad = bench.content.piece(blocks[0]);
    bad[100] ^= 1;
    let good = [bench.content.piece(blocks[0]), bench.content.piece(blocks[1])];
    bench.bytes(OUT, &bad);
    bench.bytes(OUT, &good[1]);
    bench.run_checks();
    assert!(bench.events.contains(&Event::CheckFailed { bytes: PIECE.into() }));
    assert_eq!(bench.kept_bytes(), 0);
    bench.bytes(OUT, &good.concat());
    bench.run_checks();
    assert_eq!(bench.kept_bytes(), PIECE.into());
    // All of it was passed on, the bad one too: the client checks for itself.
    bench.hears(IN, &[&bad, &good[1], &good[0], &good[1]]);
}

#[test]
fn the_short_last_piece_is_complete_too() {
    let mut bench = Bench::new(&Setup::default());
    for block in bench.content.blocks().into_iter().filter(|b| b.index == 3) {
        let piece = bench.content.piece(block);
        bench.bytes(OUT, &piece);
    }
    bench.run_checks();
    assert_eq!(bench.kept_bytes(), 20_000);
}

#[test]
fn blocks_outside_the_content_pass_and_are_not_used() {
    let mut bench = Bench::new(&Setup::default());
    let outside = Block { index: 9, begin: 0, len: 3 };
    let piece = [&outside.piece_header()[..], b"abc"].concat();
    bench.bytes(OUT, &piece);
    bench.hears(IN, &[&piece]);
    assert_eq!(bench.ignored(), [Reason::BlockOutOfRange]);
}

#[test]
fn an_empty_block_passes_and_is_not_used() {
    let mut bench = Bench::new(&Setup::default());
    let empty = Block { index: 0, begin: 0, len: 0 }.piece_header();
    bench.bytes(OUT, &empty);
    bench.hears(IN, &[&empty]);
    assert_eq!(bench.ignored(), [Reason::BlockOutOfRange]);
}

#[test]
fn a_block_that_nobody_asked_for_is_not_used_without_metadata() {
    let mut bench = Bench::new(&unknown());
    let block = bench.content.blocks()[0];
    let piece = bench.content.piece(block);
    bench.bytes(OUT, &piece);
    bench.hears(IN, &[&piece]);
    assert_eq!(bench.ignored(), [Reason::BlockUnasked]);
    assert_eq!(bench.torrents.lock().unwrap().assembly_bytes(), 0);
}

#[test]
fn pieces_that_came_before_the_metadata_are_checked_when_it_comes() {
    let mut bench = Bench::new(&Setup { metadata: false, ..Setup::default() });
    for block in bench.content.blocks() {
        bench.bytes(IN, &request(block));
        let piece = bench.content.piece(block);
        bench.bytes(OUT, &piece);
    }
    assert!(bench.checks.is_empty());
    let size = bench.content.raw_info.len() as u32;
    bench.say(IN, &extensions(1, None));
    bench.say(OUT, &extensions(2, Some(size)));
    let piece = crate::MetadataMessage::Request { piece: 0 }.to_message(2);
    bench.say(IN, &piece);
    let data = bench.content.raw_info.clone();
    let answer = crate::MetadataMessage::Data { piece: 0, total_bytes: size, data }.to_message(1);
    bench.say(OUT, &answer);
    assert_eq!(bench.checks.len(), 4);
    bench.run_checks();
    assert_eq!(bench.kept_bytes(), bench.content.data.len() as u64);
    assert_eq!(bench.torrents.lock().unwrap().assembly_bytes(), 0);
}

#[test]
fn an_unsolicited_piece_answers_a_request_that_waits_here() {
    let mut bench = Bench::new(&Setup { pieces: vec![0], ..Setup::default() });
    let block = bench.content.blocks()[0];
    bench.bytes(IN, &request(block));
    let piece = bench.content.piece(block);
    bench.bytes(OUT, &piece);
    bench.answer();
    bench.hears(IN, &[&piece]);
}

/// Requests that make the inference sure of 32 KiB.
fn convince(bench: &mut Bench) {
    for index in 0..40 {
        bench.bytes(IN, &request(Block { index, begin: BLOCK, len: BLOCK }));
    }
    bench.heard(OUT);
}

#[test]
fn without_metadata_blocks_are_served_once_the_piece_length_is_sure() {
    let mut bench = Bench::new(&unknown());
    let block = bench.content.blocks()[0];
    let piece = bench.content.piece(block);
    convince(&mut bench);
    bench.looks.clear();
    bench.bytes(IN, &request(block));
    bench.answer();
    bench.hears(OUT, &[&request(block)]);
    bench.bytes(OUT, &piece);
    bench.heard(IN);
    assert_eq!(bench.descriptions.len(), 1);
    bench.bytes(IN, &request(block));
    bench.answer();
    bench.hears(IN, &[&piece]);
    bench.hears(OUT, &[]);
}

#[test]
fn without_metadata_nothing_is_served_if_told_so() {
    let options = SessionOptions { serve_unchecked: false, ..SessionOptions::default() };
    let mut bench = Bench::new(&Setup { options, ..unknown() });
    convince(&mut bench);
    assert!(bench.looks.is_empty());
}

#[test]
fn nothing_unchecked_is_served_while_metadata_may_still_come() {
    let mut bench = Bench::new(&Setup { metadata: false, ..Setup::default() });
    convince(&mut bench);
    // Both speak the extension protocol and have not said what they have.
    assert!(bench.looks.is_empty());
    // Outside has metadata, and inside will ask for it, or is asked for.
    let size = bench.content.raw_info.len() as u32;
    bench.say(OUT, &extensions(2, Some(size)));
    bench.say(IN, &extensions(1, None));
    bench.bytes(IN, &request(bench.content.blocks()[0]));
    assert!(bench.looks.is_empty());
}

#[test]
fn a_wrong_piece_length_is_forgotten_with_all_that_was_placed_by_it() {
    let mut bench = Bench::new(&unknown());
    convince(&mut bench);
    let beyond = Block { index: 0, begin: PIECE, len: BLOCK };
    bench.bytes(IN, &request(beyond));
    assert_eq!(bench.forgotten, [inferred_object(bench.content.info_hash, PIECE)]);
    assert_eq!(bench.ignored(), [Reason::InferenceWrong]);
    bench.hears(OUT, &[&request(beyond)]);
}

#[test]
fn learning_the_metadata_forgets_what_was_inferred() {
    let mut bench = Bench::new(&Setup { metadata: false, ..Setup::default() });
    convince(&mut bench);
    let size = bench.content.raw_info.len() as u32;
    bench.say(OUT, &extensions(2, Some(size)));
    bench.say(IN, &extensions(1, Some(size)));
    bench.say(IN, &Message::Interested);
    let data = bench.content.raw_info.clone();
    // Inside was asked in outside's name, with inside's id.
    bench
        .say(IN, &crate::MetadataMessage::Data { piece: 0, total_bytes: size, data }.to_message(2));
    assert_eq!(bench.forgotten, [inferred_object(bench.content.info_hash, PIECE)]);
}

#[test]
fn a_hole_in_a_stored_piece_is_filled_by_what_the_next_clients_fetch() {
    let mut bench = Bench::new(&Setup::default());
    let blocks = bench.content.blocks();
    let (kept, lost) = (blocks[0], blocks[1]);
    let bytes = bench.content.bytes_of(kept).to_vec();
    bench.store.put(crate::content_object(bench.content.info_hash), 0, &bytes);
    // The first client finds the hole, too late for the block it got before.
    for client in 0..2 {
        for block in [kept, lost] {
            bench.bytes(IN, &request(block));
            bench.answer();
        }
        let piece = bench.content.piece(lost);
        bench.bytes(OUT, &piece);
        assert_eq!(bench.checks.len(), client);
    }
    bench.run_checks();
    assert_eq!(bench.kept_bytes(), PIECE.into());
}

#[test]
fn blocks_served_from_whole_pieces_are_not_gathered() {
    let mut bench = Bench::new(&Setup { pieces: vec![0], ..Setup::default() });
    for block in &bench.content.blocks()[..2] {
        bench.bytes(IN, &request(*block));
        bench.answer();
    }
    assert!(bench.checks.is_empty());
    assert_eq!(bench.torrents.lock().unwrap().assembly_bytes(), 0);
}

#[test]
fn blocks_of_two_connections_make_one_piece() {
    let first = Bench::new(&Setup::default());
    let (torrents, content) = (first.torrents.clone(), first.content.clone());
    let mut second = Bench::silent_with(&Setup::default(), torrents, content);
    second.shake_hands(Reserved::default());
    let blocks = first.content.blocks();
    for (mut bench, block) in [(first, blocks[0]), (second, blocks[1])] {
        let piece = bench.content.piece(block);
        bench.bytes(OUT, &piece);
        bench.run_checks();
        assert_eq!(bench.kept_bytes(), if block.begin > 0 { PIECE.into() } else { 0 });
    }
}

#[test]
fn an_incomplete_piece_that_makes_room_is_counted() {
    let options = crate::TorrentsOptions {
        assembly_bytes_max: BLOCK as usize + 1000,
        ..crate::TorrentsOptions::default()
    };
    let torrents = std::sync::Arc::new(std::sync::Mutex::new(crate::Torrents::new(options)));
    let mut bench = Bench::silent_with(&Setup::default(), torrents, Content::new());
    bench.shake_hands(Reserved::default());
    for block in [bench.content.blocks()[0], bench.content.blocks()[2]] {
        let piece = bench.content.piece(block);
        bench.bytes(OUT, &piece);
    }
    assert_eq!(bench.ignored(), [Reason::AssemblyFull]);
}

#[test]
fn a_piece_known_to_be_stored_is_not_put_together_again() {
    let mut bench = Bench::new(&Setup::default());
    let blocks = bench.content.blocks();
    let piece = [bench.content.piece(blocks[0]), bench.content.piece(blocks[1])].concat();
    bench.bytes(OUT, &piece);
    bench.run_checks();
    bench.bytes(OUT, &piece);
    assert!(bench.checks.is_empty());
    // Until a look-up says that the store has lost it.
    bench.store = Store::default();
    bench.bytes(IN, &request(blocks[0]));
    bench.answer();
    bench.bytes(OUT, &piece);
    assert_eq!(bench.checks.len(), 1);
}
