//! Transfers by `pread(2)` and `pwrite(2)`: one in the caller's thread, more on a
//! bounded pool of threads, so that a batch keeps the disk as busy without io_uring.
//!
//! The caller works on its own batch too: nothing stands still when no thread can
//! be had. What waits in the queue is bounded by the frames that its callers hold.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::batch::{Batch, Job};
use super::target::Target;
use crate::disk::transfer::{Done, Transfer, Verb};

/// A pool of threads that read and write. They are started when there is work and
/// end with the pool.
#[derive(Debug)]
pub(in crate::disk) struct Pread {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Arc<Target>,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait for work.
    idle: usize,
    /// At most [`THREADS_MAX`].
    threads: Vec<JoinHandle<()>>,
    stop: bool,
}

impl Pread {
    /// A pool without a thread.
    pub(super) fn new(target: Arc<Target>) -> Self {
        let (queue, work) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { target, queue, work }) }
    }

    /// Does all of `transfers`; those that wait while others are under way are taken
    /// in their order.
    pub(super) fn run(&self, verb: Verb, mut transfers: Vec<Transfer>) -> Vec<Done> {
        if transfers.len() <= 1 {
            let done = transfers.pop().map(|mut transfer| {
                let result = self.shared.target.run(verb, &mut transfer);
                (transfer, result)
            });
            return done.into_iter().collect();
        }
        let (batch, jobs) = Batch::split(verb, transfers);
        self.enqueue(jobs);
        while !batch.is_over() {
            // Another's job may come first; it is one transfer long.
            let Some(job) = self.shared.queue().jobs.pop_front() else { break };
            self.shared.run(job);
        }
        batch.wait()
    }

    fn enqueue(&self, jobs: Vec<Job>) {
        let mut queue = self.shared.queue();
        // The caller is one that works.
        let helpers = jobs.len() - 1;
        queue.jobs.extend(jobs);
        let wanted = queue.jobs.len().saturating_sub(1 + queue.idle);
        for _ in 0..wanted.min(THREADS_MAX - queue.threads.len()) {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("weir-disk-pread".into());
            // The caller does it alone when the host has no thread to give.
            let Ok(thread) = thread.spawn(move || shared.serve()) else { break };
            queue.threads.push(thread);
        }
        drop(queue);
        for _ in 0..helpers.min(THREADS_MAX) {
            self.shared.work.notify_one();
        }
    }
}

impl Drop for Pread {
    fn drop(&mut self) {
        let threads = {
            let mut queue = self.shared.queue();
            queue.stop = true;
            std::mem::take(&mut queue.threads)
        };
        self.shared.work.notify_all();
        for thread in threads {
            // A panic there was told to who waited for its transfer.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                self.run(job);
                queue = self.queue();
            } else if queue.stop {
                return;
            } else {
                queue.idle += 1;
                queue = self.work.wait(queue).expect(SOUND);
                queue.idle -= 1;
            }
        }
    }

    fn run(&self, mut job: Job) {
        let verb = job.verb;
        let result = self.target.run(verb, job.transfer());
        job.finish(result);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect(SOUND)
    }
}

/// As deep as reading random blocks still gains, and few enough to be cheap asleep.
const THREADS_MAX: usize = 32;

const SOUND: &str = "nothing under this lock can panic";
