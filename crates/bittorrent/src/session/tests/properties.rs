//! Properties: chunks do not matter, garbage passes, a simulated pair of client
//! and peer transfers everything whatever the store has.

use proptest::prelude::*;

use super::bench::*;
use crate::{Framer, Item, KEEP_ALIVE, Message, Reserved, SessionOptions};
use weir_session::Leg;

/// A small generator; a run is its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.roll(n) == 0
    }
}

/// Some message that a client may send, by number.
fn message(content: &Content, n: usize) -> Vec<u8> {
    let blocks = content.blocks();
    let block = blocks[n % blocks.len()];
    match n % 13 {
        0 => Message::Choke.to_bytes().to_vec(),
        1 | 2 => Message::Unchoke.to_bytes().to_vec(),
        3 => KEEP_ALIVE.to_vec(),
        4 => Message::Have(n as u32).to_bytes().to_vec(),
        5 => cancel(block),
        6 => content.piece(block),
        7 => reject(block),
        8 => vec![0, 0, 0, 4, 99, 1, 2, 3],
        9 => extensions(3, None).to_bytes().to_vec(),
        _ => request(block),
    }
}

proptest! {
    #[test]
    fn chunks_do_not_change_what_is_sent(
        turns in proptest::collection::vec((any::<bool>(), proptest::collection::vec(0usize..1000, 1..6)), 1..12),
        fast in any::<bool>(), cut in 1usize..3000)
    {
        let reserved = if fast { Reserved::EXTENSION_AND_FAST } else { Reserved::default() };
        let setup = Setup { reserved, pieces: vec![0, 2], ..Setup::default() };
        let run = |cut: usize| {
            let mut bench = Bench::new(&setup);
            for (inside, numbers) in &turns {
                let stream: Vec<u8> = numbers.iter().flat_map(|n| message(&bench.content, *n)).collect();
                for chunk in stream.chunks(cut) {
                    bench.bytes(if *inside { IN } else { OUT }, chunk);
                }
                while !bench.looks.is_empty() {
                    bench.answer();
                }
                bench.run_checks();
            }
            (bench.heard(IN), bench.heard(OUT), bench.kept_bytes(), bench.events)
        };
        let (whole, cut) = (run(usize::MAX), run(cut));
        prop_assert!(whole.0 == cut.0 && whole.1 == cut.1);
        prop_assert_eq!(whole.2, cut.2);
        prop_assert_eq!(whole.3, cut.3);
    }

    #[test]
    fn garbage_passes_byte_for_byte(
        greet in any::<bool>(),
        chunks in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 1..60)), 0..30))
    {
        let setup = Setup { metadata: false, ..Setup::default() };
        let mut bench = Bench::silent(&setup);
        if greet {
            bench.shake_hands(setup.reserved);
            bench.forget_the_past();
        }
        let mut want = [Vec::new(), Vec::new()];
        for (inside, chunk) in &chunks {
            let leg = if *inside { IN } else { OUT };
            bench.bytes(leg, chunk);
            want[leg.other().index()].extend_from_slice(chunk);
        }
        for leg in Leg::BOTH {
            if bench.left.is_none() {
                bench.feed(weir_session::Input::Closed { leg });
            }
        }
        for leg in Leg::BOTH {
            prop_assert_eq!(bench.heard(leg), &want[leg.index()][..]);
        }
    }

    #[test]
    fn messages_without_anything_stored_pass_byte_for_byte(
        turns in proptest::collection::vec((any::<bool>(), 0usize..1000, 1usize..400), 0..40),
        broken in any::<bool>(), fast in any::<bool>())
    {
        let reserved = if fast { Reserved::EXTENSION_AND_FAST } else { Reserved::default() };
        let mut bench = Bench::new(&Setup { metadata: false, reserved, ..Setup::default() });
        let mut want = [Vec::new(), Vec::new()];
        for (inside, n, cut) in turns {
            let leg = if inside { IN } else { OUT };
            let mut stream = message(&bench.content, n);
            if broken && n % 50 == 0 {
                stream = vec![0xee; 30];
            }
            stream.chunks(cut).for_each(|chunk| bench.bytes(leg, chunk));
            want[leg.other().index()].extend(stream);
        }
        for leg in Leg::BOTH {
            prop_assert!(bench.heard(leg) == want[leg.index()]);
        }
    }

    #[test]
    fn a_client_and_a_peer_transfer_everything(seed in 1u64.., fast in any::<bool>(), pieces in proptest::collection::vec(0u32..4, 0..4)) {
        Pair::new(seed, fast, pieces).run();
    }
}

/// A client inside, a peer outside, and the wires between.
struct Pair {
    dice: Dice,
    fast: bool,
    bench: Bench,
    /// Bytes under way from each leg.
    wires: [Vec<u8>; 2],
    framers: [Framer; 2],
    /// Of the client: wanted blocks, outstanding ones, what it has.
    missing: Vec<Block>,
    outstanding: Vec<Block>,
    got: Vec<u8>,
    choked: bool,
    /// The block that comes, and its bytes so far, for either end.
    incoming: Option<(Block, Vec<u8>)>,
    /// Of the peer.
    choking: bool,
    queue: Vec<Block>,
}

impl Pair {
    fn new(seed: u64, fast: bool, pieces: Vec<u32>) -> Self {
        let reserved = if fast { Reserved::EXTENSION_AND_FAST } else { Reserved::default() };
        let options = SessionOptions {
            lookups_max: 3,
            queued_bytes_max: 3 * BLOCK as usize,
            ..SessionOptions::default()
        };
        let bench = Bench::new(&Setup { reserved, pieces, options, ..Setup::default() });
        let missing = bench.content.blocks();
        let got = vec![0; bench.content.data.len()];
        Self {
            dice: Dice(seed),
            fast,
            bench,
            wires: Default::default(),
            framers: Default::default(),
            missing,
            outstanding: Vec::new(),
            got,
            choked: false,
            incoming: None,
            choking: false,
            queue: Vec::new(),
        }
    }

    fn run(mut self) {
        let mut steps = 0;
        while !self.missing.is_empty() {
            steps += 1;
            // Towards the end the peer is kind, so that the run must end.
            let calm = steps > 400;
            assert!(steps < 20_000, "stalled with {} blocks missing", self.missing.len());
            self.step(calm);
        }
        assert!(self.got == self.bench.content.data);
        assert_eq!(self.bench.left, None);
    }

    fn step(&mut self, calm: bool) {
        match self.dice.roll(10) {
            0 | 1 => self.client_asks(),
            2 if !calm && self.dice.one_in(4) => self.client_cancels(),
            3 if !self.queue.is_empty() => self.peer_answers(),
            4 if (!calm || self.choking) && (self.dice.one_in(6) || calm) => self.peer_turns(),
            5 if !self.bench.looks.is_empty() => self.bench.answer(),
            6 => self.bench.run_checks(),
            7 => self.bench.wait(std::time::Duration::ZERO),
            8 if self.dice.one_in(5) => self.client_uploads(),
            _ => {}
        }
        self.move_bytes(IN);
        self.move_bytes(OUT);
    }

    fn client_asks(&mut self) {
        let next = self.missing.iter().find(|b| !self.outstanding.contains(b)).copied();
        if let Some(block) = next.filter(|_| !self.choked && self.outstanding.len() < 5) {
            self.outstanding.push(block);
            self.wires[0].extend(request(block));
        }
    }

    /// So that late requests must wait for a boundary of this direction too.
    fn client_uploads(&mut self) {
        let blocks = self.bench.content.blocks();
        let block = blocks[self.dice.roll(blocks.len())];
        let piece = self.bench.content.piece(block);
        self.wires[0].extend(piece);
    }

    fn client_cancels(&mut self) {
        let Some(block) = self.outstanding.last().copied() else { return };
        self.wires[0].extend(cancel(block));
        if !self.fast {
            self.outstanding.pop();
        }
    }

    fn peer_answers(&mut self) {
        let at = self.dice.roll(self.queue.len());
        let block = self.queue.remove(at);
        let piece = self.bench.content.piece(block);
        self.wires[1].extend(piece);
    }

    fn peer_turns(&mut self) {
        self.choking = !self.choking;
        let message = if self.choking { Message::Choke } else { Message::Unchoke };
        self.wires[1].extend_from_slice(&message.to_bytes());
        if self.choking {
            for block in std::mem::take(&mut self.queue) {
                self.peer_refuses(block);
            }
        }
    }

    fn peer_refuses(&mut self, block: Block) {
        if self.fast {
            self.wires[1].extend(reject(block));
        }
    }

    /// Carries some bytes from `leg` to the session, and all that it says on.
    fn move_bytes(&mut self, leg: Leg) {
        let wire = &mut self.wires[leg.index()];
        let n = self.dice.roll(40_000).min(wire.len());
        let chunk: Vec<u8> = wire.drain(..n).collect();
        self.bench.bytes(leg, &chunk);
        for to in Leg::BOTH {
            let heard = self.bench.heard(to);
            self.framers[to.index()].push(heard.into());
            while let Some(item) = self.framers[to.index()].poll_item().expect("frames are whole") {
                match to {
                    Leg::Inside => self.client_hears(item),
                    Leg::Outside => self.peer_hears(item),
                }
            }
        }
    }

    fn client_hears(&mut self, item: Item) {
        match item {
            Item::PieceHeader { block, .. } => self.incoming = Some((block, Vec::new())),
            Item::PieceData { data, last } => {
                let (block, bytes) = self.incoming.as_mut().unwrap();
                bytes.extend_from_slice(&data);
                if last {
                    let at = (block.index * PIECE + block.begin) as usize;
                    self.got[at..at + bytes.len()].copy_from_slice(bytes);
                    let block = *block;
                    self.missing.retain(|b| *b != block);
                    self.settle(block);
                }
            }
            Item::Message { message: Message::Choke, .. } => {
                self.choked = true;
                if !self.fast {
                    self.outstanding.clear();
                }
            }
            Item::Message { message: Message::Unchoke, .. } => self.choked = false,
            Item::Message { message: Message::Reject(block), .. } => {
                assert!(self.fast, "a reject without the fast extension");
                self.settle(block);
            }
            Item::KeepAlive { .. } => {}
            other => panic!("the client hears {other:?}"),
        }
    }

    /// With the fast extension each request is answered exactly once (BEP 6).
    fn settle(&mut self, block: Block) {
        let before = self.outstanding.len();
        self.outstanding.retain(|b| *b != block);
        assert!(!self.fast || self.outstanding.len() == before - 1, "{block:?} answered twice");
    }

    fn peer_hears(&mut self, item: Item) {
        match item {
            Item::Message { message: Message::Request(block), .. } if self.choking => {
                self.peer_refuses(block);
            }
            Item::Message { message: Message::Request(block), .. } => self.queue.push(block),
            Item::Message { message: Message::Cancel(block), .. } => {
                if let Some(at) = self.queue.iter().position(|b| *b == block) {
                    self.queue.remove(at);
                    self.peer_refuses(block);
                }
            }
            Item::KeepAlive { .. } | Item::PieceHeader { .. } | Item::PieceData { .. } => {}
            other => panic!("the peer hears {other:?}"),
        }
    }
}
