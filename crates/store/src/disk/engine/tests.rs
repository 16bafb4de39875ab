//! What files never do when a test wants it: io_uring on sockets and pipes, where the
//! test decides when the kernel answers, and with how much.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;

use nix::sys::eventfd::EventFd;

use super::batch::Batch;
use super::ring::Ring;
use super::*;

const BLOCK: usize = 4096;

/// A target whose bytes the test gives and takes at the other end.
fn socket() -> (Arc<Target>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (on_file(ours), theirs)
}

fn on_file(ours: impl Into<OwnedFd>) -> Arc<Target> {
    Arc::new(Target::on_file(fs::File::from(ours.into())))
}

fn transfers(pool: &FramePool, count: usize, blocks: usize) -> Vec<Transfer> {
    let one = || Transfer::new(0, pool.get_or_heap(blocks * BLOCK), blocks * BLOCK);
    (0..count).map(|_| one()).collect()
}

fn kinds(done: &[Done]) -> Vec<Option<ErrorKind>> {
    done.iter().map(|(_, result)| result.as_ref().err().map(io::Error::kind)).collect()
}

/// io_uring on `target`, where the host has it. Batches have two transfers at least,
/// for a single one is not given to the ring.
fn with_uring(target: Arc<Target>, check: impl FnOnce(&Uring, &FramePool)) {
    let pool = FramePool::new(1 << 20);
    let uring = Uring::start(&target, &pool);
    drop(target);
    match uring {
        Ok(uring) => check(&uring, &pool),
        Err(why) => println!("no io_uring here, not tested: {why}"),
    }
}

#[test]
fn where_io_uring_is_refused_pread_takes_over_and_says_why() {
    let target = Arc::new(Target::on_file(tempfile::tempfile().unwrap()));
    let refused = || Err(io::Error::from_raw_os_error(nix::libc::EPERM));
    let (carrier, why) = Carrier::choose(EngineChoice::Auto, &target, refused).unwrap();
    assert_eq!(carrier.kind(), EngineKind::Pread);
    assert!(why.unwrap().starts_with("io_uring: Operation not permitted"));
    let why = Carrier::choose(EngineChoice::Uring, &target, refused).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::PermissionDenied);
    let not_tried = || Err(io::Error::other("not even tried"));
    let (carrier, why) = Carrier::choose(EngineChoice::Pread, &target, not_tried).unwrap();
    assert_eq!((carrier.kind(), why), (EngineKind::Pread, None));
}

/// Who has all its transfers in the kernel still hears of new ones.
#[test]
fn one_batch_does_not_wait_for_another() {
    let (target, mut theirs) = socket();
    with_uring(target, |uring, pool| {
        std::thread::scope(|scope| {
            let stuck = scope.spawn(|| uring.run(Verb::Read, transfers(pool, 3, 1)));
            for _ in 0..50 {
                let done = uring.run(Verb::Write, transfers(pool, 2, 1));
                assert_eq!(kinds(&done), [None, None]);
                theirs.read_exact(&mut [0; 2 * BLOCK]).unwrap();
            }
            assert!(!stuck.is_finished());
            theirs.write_all(&[7; 3 * BLOCK]).unwrap();
            let done = stuck.join().unwrap();
            assert!(done.iter().all(|(transfer, result)| {
                result.is_ok() && transfer.bytes().iter().all(|byte| *byte == 7)
            }));
        });
    });
}

#[test]
fn what_came_in_part_is_asked_for_again() {
    // A pipe, for a socket refuses an offset other than 0.
    let (ours, mut theirs) = io::pipe().unwrap();
    with_uring(on_file(ours), |uring, pool| {
        std::thread::scope(|scope| {
            let batch = scope.spawn(move || {
                let mut batch = transfers(pool, 2, 4);
                // Refused, so that the other is alone with the pipe.
                batch[1].offset = 1;
                uring.run(Verb::Read, batch)
            });
            for byte in 1..=4 {
                theirs.write_all(&[byte; BLOCK]).unwrap();
                std::thread::yield_now();
            }
            let done = batch.join().unwrap();
            assert_eq!(kinds(&done), [None, Some(ErrorKind::InvalidInput)]);
            for (block, byte) in done[0].0.bytes().chunks(BLOCK).zip(1..) {
                assert!(block.iter().all(|found| *found == byte));
            }
        });
        let mut batch = transfers(pool, 2, 1);
        batch[1].range = 0..0;
        drop(theirs);
        let done = uring.run(Verb::Read, batch);
        let expected = [Some(ErrorKind::UnexpectedEof), Some(ErrorKind::InvalidInput)];
        assert_eq!(kinds(&done), expected);
    });
}

/// A frame that the kernel may still write to is not lent again, whatever becomes of
/// the thread that gave it away.
#[test]
fn a_ring_that_is_dropped_in_flight_waits_for_the_kernel() {
    let (target, mut theirs) = socket();
    let pool = FramePool::new(1 << 20);
    let all_free = pool.free_frames();
    let (told, heard) = channel();
    let thread_pool = pool.clone();
    let panics = std::thread::spawn(move || {
        let bell = Arc::new(EventFd::new().unwrap());
        let registers = Arc::default();
        let ring = Ring::new(target, bell, thread_pool.clone(), registers);
        let Ok(mut ring) = ring else { return false };
        let (batch, jobs) = Batch::split(Verb::Read, transfers(&thread_pool, 3, 1));
        for job in jobs {
            ring.start(job);
        }
        told.send(batch).unwrap();
        std::panic::resume_unwind(Box::new("a bug"));
    });
    let Ok(batch) = heard.recv() else {
        println!("no io_uring here, not tested");
        return;
    };
    for _ in 0..1000 {
        assert_ne!(pool.free_frames(), all_free);
        std::thread::yield_now();
    }
    theirs.write_all(&[1; 2 * BLOCK]).unwrap();
    assert!(!panics.is_finished());
    theirs.write_all(&[1; BLOCK]).unwrap();
    assert!(panics.join().is_err());
    assert_eq!(pool.free_frames(), all_free);
    assert!(std::thread::spawn(move || drop(batch.wait())).join().is_err());
}
