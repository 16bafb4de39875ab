//! One io_uring and the transfers that are in it. This is the only module of this
//! crate with `unsafe`: it hands the kernel addresses that outlive the call.
//!
//! # Invariant
//!
//! A transfer is in `flights` from before its address is given to the kernel until
//! the kernel's answer for it has been taken. While it is there, nobody reads or
//! writes its frame's bytes, and it is not dropped: [`Ring`]'s `drop`, which also
//! runs when the thread panics, waits for the answers, and leaks what it gets none
//! for. Whoever leaks a whole ring leaks the frames with it.
//!
//! Frames of the engine's pool are registered when they are first used, one by one,
//! so that a pool's memory is not taken before it is needed. Where that is refused
//! (`RLIMIT_MEMLOCK`, an old kernel), transfers go on without.

#![allow(unsafe_code, reason = "gives the kernel addresses to read from and write to")]

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use nix::libc;
use nix::sys::eventfd::EventFd;

use super::batch::Job;
use super::progress::Progress;
use super::target::Target;
use crate::disk::transfer::Verb;
use crate::frame::{FramePool, PooledFrame};

/// A ring, used by the thread that made it.
pub(super) struct Ring {
    uring: IoUring,
    /// Transfers that the kernel has, by the number that it knows them by.
    flights: Vec<Option<Flight>>,
    /// Numbers of `flights` that are not taken.
    free: Vec<usize>,
    registry: Registry,
    answers: Vec<cqueue::Entry>,
    /// Both are open as long as the ring knows their numbers.
    target: Arc<Target>,
    _bell: Arc<EventFd>,
}

/// A transfer in the kernel's hands.
struct Flight {
    job: Job,
    progress: Progress,
}

/// Which of the pool's frames the ring knows.
struct Registry {
    pool: FramePool,
    /// By slot; empty when the kernel registers none.
    known: Vec<bool>,
    /// Cleared when the kernel refuses one.
    takes_more: Arc<AtomicBool>,
}

impl Ring {
    /// A ring for `target` that [`Self::wait`] also returns from when `bell` rings.
    /// `registers` is cleared when the kernel registers no frames, or no more.
    ///
    /// # Errors
    /// When the kernel has no io_uring, refuses it, or has one older than Linux 5.13.
    pub(super) fn new(
        target: Arc<Target>,
        bell: Arc<EventFd>,
        pool: FramePool,
        registers: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let mut eager = IoUring::builder();
        // Completions are worked off in this thread, when it asks for them (6.1).
        eager.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
        let uring = match eager.build(ENTRIES) {
            Err(why) if why.kind() == ErrorKind::InvalidInput => IoUring::new(ENTRIES)?,
            other => other?,
        };
        if !uring.params().is_feature_resource_tagging() {
            return Err(io::Error::new(ErrorKind::Unsupported, "older than Linux 5.13"));
        }
        let submitter = uring.submitter();
        submitter.register_files(&[target.file.as_raw_fd(), bell.as_raw_fd()])?;
        let slots = pool.frames().min(SLOTS_MAX);
        let has_table = slots > 0 && submitter.register_buffers_sparse(slots).is_ok();
        registers.fetch_and(has_table, Ordering::Relaxed);
        let known = vec![false; if has_table { slots as usize } else { 0 }];
        let mut ring = Self {
            uring,
            flights: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).collect(),
            registry: Registry { pool, known, takes_more: registers },
            answers: Vec::with_capacity(2 * ENTRIES as usize),
            target,
            _bell: bell,
        };
        ring.listen();
        // A filter of system calls may allow a ring and forbid to use it.
        ring.uring.submit()?;
        Ok(ring)
    }

    /// Whether another transfer can be started.
    pub(super) const fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether the kernel has none.
    pub(super) const fn is_idle(&self) -> bool {
        self.free.len() == DEPTH
    }

    /// Takes `job` on; the kernel hears of it with the next [`Self::wait`]. Only with
    /// [`Self::has_room`].
    pub(super) fn start(&mut self, mut job: Job) {
        if let Err(why) = self.target.check(job.verb, job.transfer()) {
            job.finish(Err(why));
            return;
        }
        let number = self.free.pop().expect("the caller asked whether there is room");
        self.flights[number] = Some(Flight { job, progress: Progress::default() });
        self.ask(number);
    }

    /// Tells the kernel what was started, waits until it answers anything or the
    /// bell rings, and finishes what is done.
    pub(super) fn wait(&mut self) {
        if let Err(why) = self.enter() {
            panic!("a ring that worked fails: {why}");
        }
        let mut answers = self.take_answers();
        for answer in answers.drain(..) {
            if answer.user_data() == BELL {
                if !cqueue::more(answer.flags()) {
                    self.listen();
                }
            } else {
                self.land(&answer);
            }
        }
        self.answers = answers;
    }

    /// Takes the kernel's answer for one flight: it is over, or asked again for what
    /// is left.
    fn land(&mut self, answer: &cqueue::Entry) {
        let number = number_of(answer);
        let flight = self.flights[number].as_mut().expect("one answer for each question");
        let result = usize::try_from(answer.result())
            .map_err(|_| io::Error::from_raw_os_error(-answer.result()));
        let len = flight.job.transfer().len();
        match flight.progress.take(flight.job.verb, len, result) {
            None => self.ask(number),
            Some(result) => {
                let over = self.flights[number].take();
                self.free.push(number);
                over.expect("it was there above").job.finish(result);
            }
        }
    }

    /// Puts what is left of a flight into the submission queue.
    fn ask(&mut self, number: usize) {
        let flight = self.flights[number].as_mut().expect("asked for flights only");
        let (verb, done) = (flight.job.verb, flight.progress.done());
        let transfer = flight.job.transfer();
        let slot = self.registry.slot(&self.uring, &mut transfer.frame);
        let at = self.target.base + transfer.offset + done as u64;
        let bytes = &mut transfer.bytes_mut()[done..];
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(ASK_BYTES_MAX);
        let to = bytes.as_mut_ptr();
        let entry = match (verb, slot) {
            (Verb::Read, Some(slot)) => {
                opcode::ReadFixed::new(DATA, to, len, slot).offset(at).build()
            }
            (Verb::Read, None) => opcode::Read::new(DATA, to, len).offset(at).build(),
            (Verb::Write, Some(slot)) => {
                opcode::WriteFixed::new(DATA, to, len, slot).offset(at).build()
            }
            (Verb::Write, None) => opcode::Write::new(DATA, to, len).offset(at).build(),
        };
        self.push(&entry.user_data(number as u64));
    }

    /// Has the kernel say when the bell rings, each time that it does.
    fn listen(&mut self) {
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(BELL_FILE, events).multi(true).build();
        self.push(&entry.user_data(BELL));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the entry is one of the two above. `listen` names no memory. `ask`
        // names `len` bytes of a frame that is in `flights`: they are inside the
        // frame, for `bytes_mut` checked it; they stay there and untouched until the
        // answer, by the module's invariant; a registered slot is that frame's own,
        // by `Registry::slot`. The numbers of files are those of `target` and
        // `_bell`, which the ring keeps open.
        let pushed = unsafe { self.uring.submission().push(entry) };
        // Each flight and the bell has at most one entry that waits.
        pushed.expect("a queue of 128 has room for 127 flights and a bell");
    }

    /// Submits and waits for one answer; nothing is an answer too when the kernel
    /// was interrupted or is short of memory for a moment.
    fn enter(&self) -> io::Result<()> {
        match self.uring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(why) => match why.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(why),
            },
        }
    }

    /// The answers that have come, in a vector to be given back.
    fn take_answers(&mut self) -> Vec<cqueue::Entry> {
        let mut answers = std::mem::take(&mut self.answers);
        answers.extend(self.uring.completion());
        answers
    }
}

impl Drop for Ring {
    /// In an orderly stop nothing is in flight. After a panic the frames must not be
    /// freed, nor lent again, before the kernel is done with them.
    fn drop(&mut self) {
        while !self.is_idle() {
            if self.enter().is_err() {
                for flight in self.flights.drain(..).flatten() {
                    flight.job.leak();
                }
                return;
            }
            for answer in self.take_answers() {
                if answer.user_data() != BELL {
                    let number = number_of(&answer);
                    if self.flights.get_mut(number).and_then(Option::take).is_some() {
                        self.free.push(number);
                    }
                }
            }
        }
        // The kernel takes a ring apart some time after it is closed. The file is let
        // go now: a device is to be free for its next user when the store is closed.
        let let_go = self.uring.submitter().unregister_files();
        debug_assert!(let_go.is_ok(), "registered when the ring was made: {let_go:?}");
    }
}

impl Registry {
    /// The slot that the ring knows `frame` by, `None` when it does not.
    fn slot(&mut self, uring: &IoUring, frame: &mut PooledFrame) -> Option<u16> {
        let slot = self.pool.slot_of(frame)?;
        let known = self.known.get_mut(slot as usize)?;
        if !*known && self.takes_more.load(Ordering::Relaxed) {
            let place = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            // SAFETY: these are all bytes of one of the pool's frames. They stay where
            // they are until the pool is dropped, which `self.pool` keeps from
            // happening before the ring is. No other frame of the pool has the slot.
            let took = unsafe { uring.submitter().register_buffers_update(slot, &[place], None) };
            *known = took.is_ok();
            self.takes_more.fetch_and(took.is_ok(), Ordering::Relaxed);
        }
        if *known { u16::try_from(slot).ok() } else { None }
    }
}

fn number_of(answer: &cqueue::Entry) -> usize {
    usize::try_from(answer.user_data()).unwrap_or(usize::MAX)
}

/// Entries of the submission queue; the completion queue has twice as many.
const ENTRIES: u32 = 128;

/// Transfers in the kernel at most: one entry is the bell's.
const DEPTH: usize = ENTRIES as usize - 1;

/// The most buffers that a kernel registers.
const SLOTS_MAX: u32 = 1 << 14;

/// Bytes asked for at once; the kernel takes somewhat less than 2 GiB.
const ASK_BYTES_MAX: u32 = 1 << 30;

/// The registered files.
const DATA: types::Fixed = types::Fixed(0);
const BELL_FILE: types::Fixed = types::Fixed(1);

/// What the bell's answers are known by.
const BELL: u64 = u64::MAX;
