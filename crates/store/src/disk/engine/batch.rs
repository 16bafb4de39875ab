//! A batch on its way: where each transfer comes back to, and who waits for all.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::disk::transfer::{Done, Transfer, Verb};

/// What came back of a batch so far.
#[derive(Debug)]
pub(super) struct Batch {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug)]
struct State {
    /// One place for each transfer, in the order of the batch.
    done: Vec<Option<Done>>,
    /// Places that are still empty.
    left: usize,
    /// A transfer was dropped by a thread that panicked.
    broken: bool,
}

/// A transfer that an engine has taken on, and its place in its batch.
#[derive(Debug)]
pub(super) struct Job {
    /// Which way.
    pub(super) verb: Verb,
    /// What. Taken out when it is done.
    transfer: Option<Transfer>,
    index: usize,
    batch: Arc<Batch>,
}

impl Batch {
    /// A job for each of `transfers`, and what they come back to.
    pub(super) fn split(verb: Verb, transfers: Vec<Transfer>) -> (Arc<Self>, Vec<Job>) {
        let done = transfers.iter().map(|_| None).collect();
        let state = State { done, left: transfers.len(), broken: false };
        let batch = Arc::new(Self { state: Mutex::new(state), over: Condvar::new() });
        let jobs = transfers.into_iter().enumerate().map(|(index, transfer)| Job {
            verb,
            transfer: Some(transfer),
            index,
            batch: Arc::clone(&batch),
        });
        let jobs = jobs.collect();
        (batch, jobs)
    }

    /// Whether nothing is under way any more.
    pub(super) fn is_over(&self) -> bool {
        self.state().left == 0
    }

    /// Waits until nothing is under way any more.
    ///
    /// # Panics
    /// When an engine's thread did. What the disk has is then unknown.
    pub(super) fn wait(&self) -> Vec<Done> {
        let waited = self.over.wait_while(self.state(), |state| state.left > 0 && !state.broken);
        let (done, broken) = {
            let mut state = waited.expect(SOUND);
            (std::mem::take(&mut state.done), state.broken)
        };
        assert!(!broken, "a panic in the store ends the process");
        done.into_iter().flatten().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(SOUND)
    }
}

impl Job {
    /// The transfer.
    pub(super) fn transfer(&mut self) -> &mut Transfer {
        self.transfer.as_mut().expect("taken out only by what consumes the job")
    }

    /// Gives the transfer back with its result; the last of a batch wakes who waits.
    pub(super) fn finish(mut self, result: std::io::Result<()>) {
        let transfer = self.transfer.take().expect("taken out only by what consumes the job");
        let mut state = self.batch.state();
        if let Some(place) = state.done.get_mut(self.index) {
            *place = Some((transfer, result));
        }
        state.left -= 1;
        if state.left == 0 {
            self.batch.over.notify_all();
        }
    }

    /// Gives the transfer up without freeing its frame, which the kernel may still
    /// write to.
    pub(super) fn leak(mut self) {
        std::mem::forget(self.transfer.take());
        self.is_lost();
    }

    /// Tells who waits that it will not come back.
    fn is_lost(&self) {
        // Not `expect`: this runs while a panic is under way.
        if let Ok(mut state) = self.batch.state.lock() {
            state.broken = true;
        }
        self.batch.over.notify_all();
    }
}

impl Drop for Job {
    /// A job that is dropped before it is finished was dropped by a panic. Who waits
    /// for it must not wait for ever.
    fn drop(&mut self) {
        if self.transfer.is_some() {
            self.is_lost();
        }
    }
}

const SOUND: &str = "nothing under this lock can panic";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FramePool;

    fn transfers(count: u64) -> Vec<Transfer> {
        (0..count).map(|n| Transfer::new(n << 12, FramePool::heap(1), 4096)).collect()
    }

    #[test]
    fn results_come_in_the_order_of_the_batch() {
        let (batch, mut jobs) = Batch::split(Verb::Read, transfers(3));
        jobs.rotate_left(1);
        for job in jobs {
            assert!(!batch.is_over());
            let second = job.index == 1;
            job.finish(if second { Err(std::io::ErrorKind::Other.into()) } else { Ok(()) });
        }
        let done = batch.wait();
        let offsets: Vec<_> = done.iter().map(|(t, result)| (t.offset, result.is_ok())).collect();
        assert_eq!(offsets, [(0, true), (4096, false), (8192, true)]);
    }

    #[test]
    fn a_job_lost_to_a_panic_wakes_who_waits() {
        let (batch, mut jobs) = Batch::split(Verb::Write, transfers(2));
        let kept = jobs.pop();
        let lost = std::thread::spawn(move || {
            let _jobs = jobs;
            std::panic::resume_unwind(Box::new("a bug"));
        });
        assert!(lost.join().is_err());
        let waited = std::thread::spawn(move || drop(batch.wait())).join();
        assert!(waited.is_err(), "the caller ends too");
        drop(kept);
    }
}
