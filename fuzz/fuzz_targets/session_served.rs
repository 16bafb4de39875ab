//! A session whose store hits at random, whose peers exchange metadata and whose
//! clock jumps: it never panics, and what it makes is bounded by what it was given.
#![no_main]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_bittorrent::{BtSession, SessionOptions, Torrents, TorrentsOptions};
use weir_ranges::Instant;
use weir_session::{Input, Leg, Output, Session};

/// What keep-alives and questions for metadata may add to one input.
const MADE_BYTES_MAX: usize = 4096;

fuzz_target!(|data: (bool, Vec<(u8, Vec<u8>)>)| {
    let (serve_unchecked, steps) = data;
    let options = SessionOptions { answer_outside: true, serve_unchecked, ..Default::default() };
    let torrents = Arc::new(Mutex::new(Torrents::new(TorrentsOptions::default())));
    let mut session = BtSession::new(options, torrents, Leg::Outside);
    let mut hello = b"\x13BitTorrent protocol\0\0\0\0\0\x10\0\x04".to_vec();
    hello.extend_from_slice(&[7; 40]);
    // Both sides speak BEP 9 and 10, inside calls ut_metadata 1, outside 2.
    let extended = |id: u8| {
        let dict = format!("d1:md11:ut_metadatai{id}ee13:metadata_sizei300ee");
        let mut message = (dict.len() as u32 + 2).to_be_bytes().to_vec();
        message.extend_from_slice(&[20, 0]);
        message.extend_from_slice(dict.as_bytes());
        message
    };
    let unchoke = vec![0, 0, 0, 1, 1];
    let opening = [
        (1, hello.clone()),
        (0, hello),
        (0, extended(1)),
        (1, extended(2)),
        (0, unchoke.clone()),
        (1, unchoke),
    ];
    let mut now = 1;
    let (mut given, mut made, mut inputs) = (0, 0, 0);
    for (kind, bytes) in opening.into_iter().chain(steps) {
        now += u64::from(kind) << 28;
        let leg = if kind & 1 == 0 { Leg::Inside } else { Leg::Outside };
        let first = match kind >> 1 & 7 {
            6 => Input::Closed { leg },
            7 => Input::Timer,
            _ if bytes.is_empty() => continue,
            _ => Input::Bytes { leg, data: Bytes::from(bytes) },
        };
        let mut next = vec![first];
        while let Some(input) = next.pop() {
            inputs += 1;
            if let Input::Bytes { data, .. } | Input::Answer { data: Some(data), .. } = &input {
                given += data.len();
            }
            session.handle(Instant::from_nanos(now), input);
            while let Some(output) = session.poll_output() {
                match output {
                    Output::Send { data, .. } => made += data.len(),
                    Output::Look { ticket, range, .. } => {
                        let hit = kind & 16 != 0 && range.len() <= 1 << 17;
                        let data = hit.then(|| Bytes::from(vec![kind; range.len() as usize]));
                        next.push(Input::Answer { ticket, data });
                    }
                    Output::Check(check) => drop(check.run()),
                    Output::Leave(_) => return,
                    _ => {}
                }
            }
        }
    }
    assert!(made <= given + inputs * MADE_BYTES_MAX, "{made} made of {given}");
});
