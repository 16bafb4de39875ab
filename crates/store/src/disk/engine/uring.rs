//! Transfers by io_uring: one or more threads, each with a ring of its own.
//!
//! A thread that has nothing in flight waits for its channel. One that has waits in
//! its ring, for the kernel or for the bell, which a caller rings when the thread
//! said that it is about to sleep. A caller's batch is one message; it is divided
//! among the threads when it is large.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::batch::{Batch, Job};
use super::ring::Ring;
use super::target::Target;
use crate::disk::transfer::{Done, Transfer, Verb};
use crate::frame::FramePool;

/// The threads and the way to them.
#[derive(Debug)]
pub(in crate::disk) struct Uring {
    threads: Vec<Thread>,
    /// Whose turn it is.
    turn: AtomicUsize,
    target: Arc<Target>,
    /// No ring was refused a frame of the pool.
    registers: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Thread {
    /// `None` from the moment it is to stop.
    jobs: Option<SyncSender<Vec<Job>>>,
    bell: Arc<Bell>,
    handle: Option<JoinHandle<()>>,
}

/// What wakes a thread that sleeps in its ring.
#[derive(Debug)]
struct Bell {
    event: Arc<EventFd>,
    /// The thread is about to sleep, or does, and nobody has rung since.
    asleep: AtomicBool,
}

impl Uring {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the kernel has no io_uring, refuses it, or has one older than Linux
    /// 5.13; when the host has no thread to give.
    pub(super) fn start(target: &Arc<Target>, pool: &FramePool) -> io::Result<Self> {
        let mut uring = Self {
            threads: Vec::new(),
            turn: AtomicUsize::new(0),
            target: Arc::clone(target),
            registers: Arc::new(AtomicBool::new(true)),
        };
        for _ in 0..THREADS {
            uring.threads.push(Thread::start(target, pool, &uring.registers)?);
        }
        Ok(uring)
    }

    /// Whether the pool's frames are registered with the kernel: so far, for each is
    /// when it is first used.
    pub(super) fn is_registered(&self) -> bool {
        self.registers.load(Ordering::Relaxed)
    }

    /// Does all of `transfers`.
    pub(super) fn run(&self, verb: Verb, mut transfers: Vec<Transfer>) -> Vec<Done> {
        if transfers.len() <= 1 {
            let done = transfers.pop().map(|mut transfer| {
                let result = self.target.run(verb, &mut transfer);
                (transfer, result)
            });
            return done.into_iter().collect();
        }
        let (batch, mut jobs) = Batch::split(verb, transfers);
        let share = jobs.len().div_ceil(self.threads.len()).max(SHARE_MIN);
        while !jobs.is_empty() {
            let rest = jobs.split_off(share.min(jobs.len()));
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.threads.len();
            self.threads[turn].give(jobs);
            jobs = rest;
        }
        batch.wait()
    }
}

impl Thread {
    /// Starts a thread with a ring.
    fn start(
        target: &Arc<Target>,
        pool: &FramePool,
        registers: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let bell = Arc::new(Bell { event, asleep: AtomicBool::new(false) });
        let (jobs, taken) = sync_channel(QUEUE_BATCHES_MAX);
        // The ring belongs to the thread that makes it.
        let (made, answer) = sync_channel(1);
        let (target, pool, registers) = (Arc::clone(target), pool.clone(), Arc::clone(registers));
        let thread_bell = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("weir-disk-uring".into());
        let handle = thread.spawn(move || {
            let ring = Ring::new(target, Arc::clone(&thread_bell.event), pool, registers);
            let (ring, answer) = match ring {
                Ok(ring) => (Some(ring), Ok(())),
                Err(why) => (None, Err(why)),
            };
            if let (Ok(()), Some(ring)) = (made.send(answer), ring) {
                serve(ring, &taken, &thread_bell);
            }
        })?;
        let thread = Self { jobs: Some(jobs), bell, handle: Some(handle) };
        answer.recv().map_err(io::Error::other)?.map(|()| thread)
    }

    fn give(&self, jobs: Vec<Job>) {
        let sender = self.jobs.as_ref().expect("taken out only by drop");
        // A thread that panicked has dropped its end; what comes back is then
        // dropped here, which tells who waits.
        drop(sender.send(jobs));
        self.bell.ring();
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Nobody waits for a transfer any more, for callers borrow the engine.
        drop(self.jobs.take());
        self.bell.ring();
        if let Some(handle) = self.handle.take() {
            // A panic there was told to who waited for its transfer.
            drop(handle.join());
        }
    }
}

impl Bell {
    /// Wakes the thread if it sleeps in its ring. Called after what it is to find
    /// was put where it looks.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // Full only after 2^64 - 2 rings, and then it wakes as well.
            self.event.write(1).ok();
        }
    }

    /// Called before the thread looks for the last time.
    fn is_about_to_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn is_awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

/// A thread's life: takes jobs, keeps the ring full, until nobody can send any more.
fn serve(mut ring: Ring, jobs: &Receiver<Vec<Job>>, bell: &Bell) {
    let mut waiting = VecDeque::new();
    loop {
        if ring.is_idle() && waiting.is_empty() {
            let Ok(more) = jobs.recv() else { return };
            waiting.extend(more);
        }
        while ring.has_room() {
            let next = waiting.pop_front().or_else(|| {
                waiting.extend(jobs.try_recv().ok()?);
                waiting.pop_front()
            });
            let Some(job) = next else { break };
            ring.start(job);
        }
        if ring.is_idle() {
            // All that came was refused.
            continue;
        }
        if ring.has_room() {
            bell.is_about_to_sleep();
            if let Ok(more) = jobs.try_recv() {
                bell.is_awake();
                waiting.extend(more);
                continue;
            }
        }
        ring.wait();
        bell.is_awake();
    }
}

/// Rings, each with a thread.
const THREADS: usize = 1;

/// Transfers below which a batch is not divided among threads.
const SHARE_MIN: usize = 8;

/// Batches that wait for a thread; the next caller waits with its batch in hand.
const QUEUE_BATCHES_MAX: usize = 64;
