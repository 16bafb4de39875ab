//! A driver between real sockets on loopback, with machines written here.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_ranges::{ByteRange, Instant, ObjectId};
use weir_session::{Input, LeaveReason, Leg, Output, Session, Ticket};

use super::leg::{LegState, QUEUE_BYTES_HIGH, READ_BYTES, reset};
use super::{End, Prelude, drive};
use crate::metrics::Metrics;
use crate::storage::Storage;

/// Passes everything on; what else it does is a function of the input.
struct Machine<F> {
    outputs: VecDeque<Output>,
    extra: F,
}

impl<F: FnMut(&Input) -> Vec<Output> + Send> Session for Machine<F> {
    fn handle(&mut self, _now: Instant, input: Input) {
        let extra = (self.extra)(&input);
        match input {
            Input::Bytes { leg, data } => {
                self.outputs.push_back(Output::Send { leg: leg.other(), data });
            }
            Input::Closed { leg } => self.outputs.push_back(Output::Close { leg: leg.other() }),
            Input::Answer { .. } | Input::Queued { .. } | Input::Timer => {}
        }
        self.outputs.extend(extra);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

fn machine<F: FnMut(&Input) -> Vec<Output> + Send>(extra: F) -> Machine<F> {
    Machine { outputs: VecDeque::new(), extra }
}

fn storage() -> Storage {
    Storage::new(None, Metrics::new())
}

/// A connected pair: the far end, and the end the driver gets.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (far, listener.accept().await.unwrap().0)
}

async fn read_all(socket: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    socket.read_to_end(&mut all).await.unwrap();
    all
}

#[tokio::test]
async fn passes_everything_both_ways_and_half_closes() {
    let ((mut client, inside), (mut peer, outside)) = (pair().await, pair().await);
    let up: Vec<u8> = (0..5_000_000_u32).map(|i| (i % 251) as u8).collect();
    let down: Vec<u8> = (0..4_000_000_u32).map(|i| (i % 241) as u8).collect();
    let (mut session, storage) = (machine(|_| Vec::new()), storage());
    let drive = drive(inside, outside, &mut session, None, &storage, |_| {});
    let (client_up, peer_down) = (up.clone(), down.clone());
    let ends = async {
        let (mut client_read, mut client_write) = client.split();
        let (mut peer_read, mut peer_write) = peer.split();
        let (mut at_client, mut at_peer) = (Vec::new(), Vec::new());
        let up = async {
            client_write.write_all(&client_up).await.unwrap();
            client_write.shutdown().await.unwrap();
        };
        let down = async {
            peer_write.write_all(&peer_down).await.unwrap();
            peer_write.shutdown().await.unwrap();
        };
        let (_, _, a, b) = tokio::join!(
            up,
            down,
            client_read.read_to_end(&mut at_client),
            peer_read.read_to_end(&mut at_peer)
        );
        a.unwrap();
        b.unwrap();
        (at_client, at_peer)
    };
    let (end, (at_client, at_peer)) = tokio::join!(drive, ends);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(at_client == down && at_peer == up, "bytes differ");
}

#[tokio::test]
async fn a_delivered_prelude_is_seen_but_not_sent_again() {
    let ((mut client, inside), (mut peer, outside)) = (pair().await, pair().await);
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let saw = std::sync::Arc::clone(&seen);
    let mut session = machine(move |input| {
        if let Input::Bytes { data, .. } = input {
            saw.lock().unwrap().extend_from_slice(data);
        }
        Vec::new()
    });
    let prelude =
        Prelude { from: Leg::Inside, bytes: Bytes::from_static(b"\x13Bit"), delivered: true };
    let storage = storage();
    let drive = drive(inside, outside, &mut session, Some(prelude), &storage, |_| {});
    let ends = async {
        client.write_all(b"Torrent").await.unwrap();
        client.shutdown().await.unwrap();
        peer.shutdown().await.unwrap();
        read_all(&mut peer).await
    };
    let (end, at_peer) = tokio::join!(drive, ends);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_eq!(at_peer, b"Torrent");
    assert_eq!(*seen.lock().unwrap(), b"\x13BitTorrent");
}

#[tokio::test]
async fn leaving_hands_the_sockets_on_and_says_whether_bytes_were_added() {
    for added in [false, true] {
        let ((mut client, inside), (mut peer, outside)) = (pair().await, pair().await);
        let mut session = machine(move |input| {
            let Input::Bytes { leg, .. } = input else { return Vec::new() };
            let extra = Output::Send { leg: *leg, data: Bytes::from_static(b"!") };
            let leave = Output::Leave(LeaveReason::NotOurs);
            if added { vec![extra, leave] } else { vec![leave] }
        });
        client.write_all(b"hello").await.unwrap();
        let storage = storage();
        let end = drive(inside, outside, &mut session, None, &storage, |_| {}).await;
        let End::Left { legs, unsent, reason, untouched } = end else { panic!("{end:?}") };
        assert_eq!((reason, untouched), (LeaveReason::NotOurs, !added));
        assert!(unsent.iter().all(Vec::is_empty));
        drop(legs);
        assert_eq!(read_all(&mut peer).await, b"hello");
        assert_eq!(read_all(&mut client).await, if added { &b"!"[..] } else { b"" });
    }
}

#[tokio::test]
async fn a_slow_reader_slows_its_sender_and_memory_stays_bounded() {
    let ((mut client, inside), (mut peer, outside)) = (pair().await, pair().await);
    let most = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = std::sync::Arc::clone(&most);
    let mut session = machine(move |input| {
        if let Input::Queued { queued_bytes, .. } = input {
            seen.fetch_max(*queued_bytes, std::sync::atomic::Ordering::Relaxed);
        }
        Vec::new()
    });
    let storage = storage();
    let total = 32 * 1024 * 1024_usize;
    let drive = drive(inside, outside, &mut session, None, &storage, |_| {});
    let sent = Cell::new(0);
    let ends = async {
        let chunk = vec![7; 64 * 1024];
        let send = async {
            while sent.get() < total {
                client.write_all(&chunk).await.unwrap();
                sent.set(sent.get() + chunk.len());
            }
            client.shutdown().await.unwrap();
        };
        // Nothing is read until the sender has got stuck.
        let receive = async {
            let mut before = usize::MAX;
            while before != sent.get() {
                before = sent.get();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert!(sent.get() < total, "nothing held the sender back");
            peer.shutdown().await.unwrap();
            read_all(&mut peer).await.len()
        };
        tokio::join!(send, receive).1
    };
    let (end, received) = tokio::join!(drive, ends);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_eq!(received, total);
    let most = most.load(std::sync::atomic::Ordering::Relaxed);
    assert!((QUEUE_BYTES_HIGH..=QUEUE_BYTES_HIGH + READ_BYTES).contains(&most), "{most}");
}

#[tokio::test]
async fn a_reset_of_one_side_resets_the_other() {
    let ((client, inside), (mut peer, outside)) = (pair().await, pair().await);
    let mut session = machine(|_| Vec::new());
    let storage = storage();
    reset(client);
    let end = drive(inside, outside, &mut session, None, &storage, |_| {}).await;
    assert!(matches!(end, End::Broken(_)), "{end:?}");
    let error = peer.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn every_look_up_is_answered_with_a_miss_when_there_is_no_store() {
    let ((mut client, inside), (peer, outside)) = (pair().await, pair().await);
    let answered = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let answers = std::sync::Arc::clone(&answered);
    let mut session = machine(move |input| match input {
        Input::Bytes { leg: Leg::Inside, .. } => {
            let range = ByteRange::new(0, 16384).unwrap();
            let look = |n| Output::Look { ticket: Ticket(n), object: ObjectId::from(1), range };
            (0..3).map(look).collect()
        }
        Input::Answer { ticket, data } => {
            answers.lock().unwrap().push((*ticket, data.is_none()));
            Vec::new()
        }
        _ => Vec::new(),
    });
    client.write_all(b"x").await.unwrap();
    client.shutdown().await.unwrap();
    drop(peer);
    let storage = storage();
    let end = drive(inside, outside, &mut session, None, &storage, |_| {}).await;
    assert!(matches!(end, End::Finished | End::Broken(_)), "{end:?}");
    let answered = answered.lock().unwrap();
    assert_eq!(*answered, [(Ticket(0), true), (Ticket(1), true), (Ticket(2), true)]);
}

#[tokio::test]
async fn leaving_does_not_wait_for_a_reader_that_stalls() {
    let ((mut client, inside), (mut peer, outside)) = (pair().await, pair().await);
    let big = Bytes::from(vec![9; 32 << 20]);
    let mut session = machine(move |input| {
        let Input::Bytes { .. } = input else { return Vec::new() };
        let send = Output::Send { leg: Leg::Outside, data: big.clone() };
        vec![send, Output::Leave(LeaveReason::NotOurs)]
    });
    client.write_all(b"hello").await.unwrap();
    let storage = storage();
    let end = drive(inside, outside, &mut session, None, &storage, |_| {}).await;
    let End::Left { legs, unsent, untouched, .. } = end else { panic!("{end:?}") };
    assert!(!untouched && unsent[0].is_empty() && !unsent[1].is_empty());
    let written = 5 + (32 << 20) - unsent[1].len();
    drop(legs);
    assert_eq!(read_all(&mut peer).await.len(), written);
}

#[tokio::test]
async fn a_timer_that_is_due_comes_before_more_bytes() {
    struct Due {
        timers: std::sync::Arc<std::sync::atomic::AtomicU32>,
    }
    impl Session for Due {
        fn handle(&mut self, _now: Instant, input: Input) {
            if let Input::Timer = input {
                self.timers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        fn poll_output(&mut self) -> Option<Output> {
            None
        }
        fn next_deadline(&self) -> Option<Instant> {
            let seen = self.timers.load(std::sync::atomic::Ordering::Relaxed);
            (seen == 0).then_some(Instant::from_nanos(1))
        }
    }
    let ((mut client, inside), (peer, outside)) = (pair().await, pair().await);
    let timers = std::sync::Arc::default();
    let mut session = Due { timers: std::sync::Arc::clone(&timers) };
    client.write_all(&[1; 1000]).await.unwrap();
    let storage = storage();
    let drive = drive(inside, outside, &mut session, None, &storage, |_| {});
    let ends = async {
        while timers.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        reset(client);
        drop(peer);
    };
    tokio::join!(drive, ends);
    assert_eq!(timers.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn many_small_parts_hold_a_sender_back_like_few_large_ones() {
    let ((_client, inside), (_peer, outside)) = (pair().await, pair().await);
    let (inside, mut outside) = (LegState::new(inside), LegState::new(outside));
    let mut parts = 0;
    while inside.wants_read(&outside) {
        outside.send(Bytes::from_static(&[0; 4]));
        parts += 1;
    }
    assert!((1000..=QUEUE_BYTES_HIGH / 64).contains(&parts), "{parts}");
}
