//! Playbooks: metadata from the store, read, and asked for.

use std::time::Duration;

use bytes::Bytes;

use super::bench::*;
use crate::{Message, MetadataMessage, Reserved};
use weir_session::{Event, LeaveReason, Reason, Session};

/// Neither the store nor this gateway knows the metadata.
fn unknown() -> Setup {
    Setup { metadata: false, ..Setup::default() }
}

/// Extension ids that the two sides give to `ut_metadata`.
const ID_IN: u8 = 7;
const ID_OUT: u8 = 9;

fn asks(piece: u32, id: u8) -> Bytes {
    MetadataMessage::Request { piece }.to_message(id).to_bytes()
}

fn gives(bench: &Bench, id: u8) -> Message {
    let data = bench.content.raw_info.clone();
    MetadataMessage::Data { piece: 0, total_bytes: data.len() as u32, data }.to_message(id)
}

/// Both sides have said which metadata they have.
fn introduced(inside: bool, outside: bool) -> Bench {
    let mut bench = Bench::new(&unknown());
    let size = bench.content.raw_info.len() as u32;
    bench.say(IN, &extensions(ID_IN, inside.then_some(size)));
    bench.say(OUT, &extensions(ID_OUT, outside.then_some(size)));
    bench
}

fn knows(bench: &Bench) -> bool {
    bench.torrents.lock().unwrap().info(bench.content.info_hash).is_some()
}

#[test]
fn metadata_in_the_store_is_used_without_asking_anybody() {
    let bench = Bench::new(&Setup::default());
    assert!(knows(&bench));
}

#[test]
fn metadata_in_the_store_that_does_not_hash_is_not_used() {
    let mut bench = Bench::silent(&Setup::default());
    let object = crate::metadata_object(bench.content.info_hash);
    bench.store.put(object, 20, b"rot");
    bench.shake_hands(Reserved::EXTENSION_AND_FAST);
    assert!(!knows(&bench));
    assert_eq!(bench.ignored(), [Reason::MetadataMismatch]);
}

#[test]
fn metadata_that_peers_exchange_is_read_and_kept() {
    let mut bench = introduced(false, true);
    bench.heard(OUT);
    bench.heard(IN);
    bench.bytes(IN, &asks(0, ID_OUT));
    bench.hears(OUT, &[&asks(0, ID_OUT)]);
    let answer = gives(&bench, ID_IN);
    bench.say(OUT, &answer);
    bench.hears(IN, &[&answer.to_bytes()]);
    assert!(knows(&bench));
    assert!(bench.events.contains(&Event::MetadataLearnt));
    assert_eq!(bench.descriptions[0].name, "example");
    assert_eq!(bench.descriptions[0].size_bytes, Some(bench.content.data.len() as u64));
    let kept = bench.store.bytes_of(crate::metadata_object(bench.content.info_hash));
    assert_eq!(kept, bench.content.raw_info.len() as u64 + 4);
}

#[test]
fn metadata_that_both_have_is_asked_for_and_the_answer_swallowed() {
    let mut bench = introduced(true, true);
    let hello = extensions(ID_OUT, Some(bench.content.raw_info.len() as u32)).to_bytes();
    bench.hears(IN, &[&hello, &asks(0, ID_IN)]);
    bench.heard(OUT);
    let answer = gives(&bench, ID_OUT);
    bench.say(IN, &answer);
    bench.hears(OUT, &[]);
    assert!(knows(&bench));
}

#[test]
fn outside_is_asked_when_inside_has_no_metadata_and_does_not_ask() {
    let mut bench = introduced(false, true);
    bench.heard(IN);
    bench.heard(OUT);
    bench.wait(Duration::from_secs(4));
    bench.hears(OUT, &[]);
    bench.wait(Duration::from_secs(1));
    bench.hears(OUT, &[&asks(0, ID_OUT)]);
    let answer = gives(&bench, ID_IN);
    bench.say(OUT, &answer);
    bench.hears(IN, &[]);
    assert!(knows(&bench));
}

#[test]
fn one_answer_satisfies_us_and_a_side_that_asks_meanwhile() {
    let mut bench = introduced(true, true);
    bench.heard(IN);
    bench.heard(OUT);
    bench.bytes(OUT, &asks(0, ID_IN));
    bench.hears(IN, &[]);
    let answer = gives(&bench, ID_OUT);
    bench.say(IN, &answer);
    bench.hears(OUT, &[&answer.to_bytes()]);
    assert!(knows(&bench));
}

#[test]
fn a_refusal_is_swallowed_and_the_other_side_asked() {
    let mut bench = introduced(true, true);
    bench.heard(OUT);
    bench.say(IN, &MetadataMessage::Reject { piece: 0 }.to_message(ID_OUT));
    bench.hears(OUT, &[]);
    bench.wait(Duration::from_secs(5));
    bench.hears(OUT, &[&asks(0, ID_OUT)]);
}

#[test]
fn metadata_that_does_not_hash_is_dropped_and_its_side_not_asked_again() {
    let mut bench = introduced(true, true);
    bench.heard(IN);
    bench.heard(OUT);
    let size = bench.content.raw_info.len();
    let wrong =
        MetadataMessage::Data { piece: 0, total_bytes: size as u32, data: vec![b'x'; size].into() };
    bench.say(IN, &wrong.to_message(ID_OUT));
    assert_eq!(bench.ignored(), [Reason::MetadataMismatch]);
    assert!(!knows(&bench));
    bench.wait(Duration::from_secs(5));
    bench.hears(IN, &[]);
    bench.hears(OUT, &[&asks(0, ID_OUT)]);
}

#[test]
fn only_one_session_asks_for_a_content_until_it_is_silent_too_long() {
    let first = introduced(true, true);
    let mut second = Bench::silent_with(&unknown(), first.torrents.clone(), first.content.clone());
    second.shake_hands(Reserved::EXTENSION_AND_FAST);
    second.automatic = false;
    let size = second.content.raw_info.len() as u32;
    second.say(IN, &extensions(ID_IN, Some(size)));
    second.say(OUT, &extensions(ID_OUT, Some(size)));
    second.heard(IN);
    second.wait(Duration::from_secs(9));
    second.hears(IN, &[]);
    second.wait(Duration::from_secs(1));
    second.hears(IN, &[&asks(0, ID_IN)]);
}

#[test]
fn a_session_that_ends_lets_another_ask_at_once() {
    let first = introduced(true, true);
    let torrents = first.torrents.clone();
    drop(first);
    let mut second = Bench::silent_with(&unknown(), torrents, Content::new());
    second.shake_hands(Reserved::EXTENSION_AND_FAST);
    let size = second.content.raw_info.len() as u32;
    second.say(OUT, &extensions(ID_OUT, Some(size)));
    second.heard(IN);
    second.say(IN, &extensions(ID_IN, Some(size)));
    second.hears(IN, &[&asks(0, ID_IN)]);
}

#[test]
fn an_answer_after_we_gave_up_is_still_swallowed() {
    let mut bench = introduced(true, true);
    bench.wait(Duration::from_secs(11));
    bench.heard(OUT);
    let answer = gives(&bench, ID_OUT);
    bench.say(IN, &answer);
    bench.hears(OUT, &[]);
    assert!(knows(&bench));
}

#[test]
fn what_another_session_learnt_is_used_at_once() {
    let first = Bench::new(&Setup { pieces: vec![1], ..unknown() });
    let mut second =
        Bench::silent_with(&Setup::default(), first.torrents.clone(), first.content.clone());
    second.shake_hands(Reserved::EXTENSION_AND_FAST);
    let mut first = first;
    first.bytes(IN, &request(Block { index: 1, begin: 0, len: BLOCK }));
    assert_eq!(first.looks.len(), 1);
}

#[test]
fn a_version_2_content_is_left() {
    let mut bench = Bench::silent(&unknown());
    let raw =
        Bytes::from_static(b"d9:file treede12:meta versioni2e4:name1:n12:piece lengthi32768ee");
    let digest: [u8; 32] =
        sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(&raw)).into();
    bench.content.info_hash.0.copy_from_slice(&digest[..20]);
    bench.content.raw_info = raw;
    bench.shake_hands(Reserved::EXTENSION_AND_FAST);
    let size = bench.content.raw_info.len() as u32;
    bench.say(IN, &extensions(ID_IN, None));
    bench.say(OUT, &extensions(ID_OUT, Some(size)));
    bench.bytes(IN, &asks(0, ID_OUT));
    bench.heard(IN);
    let answer = gives(&bench, ID_IN);
    bench.say(OUT, &answer);
    bench.hears(IN, &[&answer.to_bytes()]);
    assert_eq!(bench.left, Some(LeaveReason::Unsupported));
    // The next session knows at once.
    let mut next = Bench::silent_with(&unknown(), bench.torrents.clone(), bench.content.clone());
    next.shake_hands(Reserved::EXTENSION_AND_FAST);
    assert_eq!(next.left, Some(LeaveReason::Unsupported));
}

#[test]
fn metadata_in_several_pieces_is_asked_for_a_few_at_a_time() {
    // 3500 pieces of 32 KiB have 70,000 bytes of hashes: five pieces of metadata.
    let content = Content::of_bytes(3500 * PIECE as usize);
    let raw = content.raw_info.clone();
    let torrents =
        std::sync::Arc::new(std::sync::Mutex::new(crate::Torrents::new(Default::default())));
    let mut bench = Bench::silent_with(&unknown(), torrents, content);
    bench.shake_hands(Reserved::EXTENSION_AND_FAST);
    bench.say(IN, &extensions(ID_IN, Some(raw.len() as u32)));
    bench.heard(IN);
    bench.say(OUT, &extensions(ID_OUT, Some(raw.len() as u32)));
    let hello = extensions(ID_OUT, Some(raw.len() as u32)).to_bytes();
    let first: Vec<_> = (0..4).map(|n| asks(n, ID_IN)).collect();
    bench.hears(IN, &[&hello, &first.concat()]);
    for (n, chunk) in raw.chunks(16 << 10).enumerate() {
        let data = Bytes::copy_from_slice(chunk);
        let answer = MetadataMessage::Data { piece: n as u32, total_bytes: raw.len() as u32, data };
        bench.say(IN, &answer.to_message(ID_OUT));
        let next = if n == 0 { asks(4, ID_IN) } else { Bytes::new() };
        bench.hears(IN, &[&next]);
    }
    assert!(knows(&bench));
}

#[test]
fn nobody_is_asked_without_ids_for_both_directions() {
    let mut bench = Bench::new(&unknown());
    bench.say(IN, &extensions(ID_IN, Some(5)));
    bench.say(OUT, &Message::Extended { id: 0, payload: Bytes::from_static(b"d1:mdee") });
    bench.heard(IN);
    bench.wait(Duration::from_secs(100));
    bench.hears(IN, &[]);
    assert_eq!(bench.session.next_deadline(), None);
}

#[test]
fn a_piece_of_metadata_of_the_wrong_size_passes_and_is_not_used() {
    let mut bench = introduced(false, true);
    bench.bytes(IN, &asks(0, ID_OUT));
    bench.heard(IN);
    let size = bench.content.raw_info.len() as u32;
    let short =
        MetadataMessage::Data { piece: 0, total_bytes: size, data: Bytes::from_static(b"x") };
    let short = short.to_message(ID_IN);
    bench.say(OUT, &short);
    bench.hears(IN, &[&short.to_bytes()]);
    assert_eq!(bench.ignored(), [Reason::MetadataRefused]);
    assert!(!knows(&bench));
}

#[test]
fn metadata_that_nobody_asked_for_passes_and_is_not_used() {
    let mut bench = introduced(false, true);
    bench.heard(IN);
    let answer = gives(&bench, ID_IN);
    bench.say(OUT, &answer);
    bench.hears(IN, &[&answer.to_bytes()]);
    assert!(!knows(&bench));
}

#[test]
fn a_content_whose_own_metadata_is_nonsense_is_left() {
    let mut bench = Bench::silent(&unknown());
    let bomb = Bytes::from(vec![b'l'; 3000]);
    bench.content.info_hash.0 = <sha1::Sha1 as sha1::Digest>::digest(&bomb).into();
    bench.content.raw_info = bomb;
    bench.shake_hands(Reserved::EXTENSION_AND_FAST);
    let size = bench.content.raw_info.len() as u32;
    bench.say(IN, &extensions(ID_IN, None));
    bench.say(OUT, &extensions(ID_OUT, Some(size)));
    bench.bytes(IN, &asks(0, ID_OUT));
    let answer = gives(&bench, ID_IN);
    bench.say(OUT, &answer);
    assert_eq!(bench.ignored(), [Reason::MetadataRefused]);
    assert_eq!(bench.left, Some(LeaveReason::Unsupported));
}
