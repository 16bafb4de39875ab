//! With an empty store a session is a wire: whatever either side sends comes out
//! on the other, byte for byte, also when it is nonsense.
#![no_main]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_bittorrent::{BtSession, SessionOptions, Torrents, TorrentsOptions};
use weir_ranges::Instant;
use weir_session::{Input, Leg, Output, Session};

fuzz_target!(|data: &[u8]| {
    let options = SessionOptions {
        ask_metadata: false,
        answer_outside: true,
        serve_unchecked: false,
        ..Default::default()
    };
    let torrents = Arc::new(Mutex::new(Torrents::new(TorrentsOptions::default())));
    let mut session = BtSession::new(options, torrents, Leg::Inside);
    let mut sent = [Vec::new(), Vec::new()];
    let mut came = [Vec::new(), Vec::new()];
    let mut left = false;
    // Both begin as BitTorrent does, so that the fuzzer need not find that.
    let mut hello = b"\x13BitTorrent protocol\0\0\0\0\0\x10\0\x05".to_vec();
    hello.extend_from_slice(&[7; 40]);
    let mut inputs = vec![(Leg::Inside, hello.clone()), (Leg::Outside, hello)];
    let mut rest = data;
    while let [leg, len, tail @ ..] = rest {
        let (part, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        let leg = if leg & 1 == 0 { Leg::Inside } else { Leg::Outside };
        inputs.push((leg, part.to_vec()));
    }
    for (step, (leg, part)) in inputs.into_iter().enumerate() {
        if part.is_empty() {
            continue;
        }
        sent[leg.index()].extend_from_slice(&part);
        if left {
            // The driver relays from here.
            came[leg.other().index()].extend_from_slice(&part);
            continue;
        }
        let mut next = vec![Input::Bytes { leg, data: Bytes::from(part) }];
        while let Some(input) = next.pop() {
            session.handle(Instant::from_nanos(step as u64 * 1000), input);
            while let Some(output) = session.poll_output() {
                match output {
                    Output::Send { leg, data } => came[leg.index()].extend_from_slice(&data),
                    Output::Look { ticket, .. } => next.push(Input::Answer { ticket, data: None }),
                    Output::Check(check) => drop(check.run()),
                    Output::Leave(_) => {
                        left = true;
                        next.clear();
                    }
                    _ => {}
                }
            }
        }
    }
    if !left {
        for leg in Leg::BOTH {
            session.handle(Instant::from_nanos(u64::MAX / 2), Input::Closed { leg });
            while let Some(output) = session.poll_output() {
                if let Output::Send { leg, data } = output {
                    came[leg.index()].extend_from_slice(&data);
                }
            }
        }
    }
    assert_eq!(sent[0], came[1]);
    assert_eq!(sent[1], came[0]);
});
