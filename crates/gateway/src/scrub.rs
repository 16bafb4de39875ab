//! A scrub of the store: reads all that is held and frees what is bad, one at a time.
//!
//! It has one thread of the blocking pool and at most one read of a MiB under way: a
//! session's look-up has the disk as one of two, never as one of many. It ends early
//! when the gateway stops, or is gone.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;
use weir_store::Store;

use crate::state::{VerifyReport, VerifyStatus};
use crate::storage::on_blocking_pool;

/// Starts scrubs, and knows how the latest one stands.
#[derive(Clone, Debug)]
pub(crate) struct Scrub {
    store: Arc<Store>,
    state: Arc<Mutex<VerifyStatus>>,
    stop: watch::Receiver<bool>,
}

impl Scrub {
    /// Of `store`, until `stop` is true or nobody is left to say so.
    pub(crate) fn new(store: &Arc<Store>, stop: watch::Receiver<bool>) -> Self {
        Self { store: Arc::clone(store), state: Arc::default(), stop }
    }

    /// The scrub under way, or the last one.
    pub(crate) fn status(&self) -> VerifyStatus {
        *self.state()
    }

    /// Begins one unless one is under way; says whether it did, and how it stands.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(crate) fn start(&self) -> (bool, VerifyStatus) {
        let bytes_total = self.store.stats().held_bytes;
        let begun = {
            let mut state = self.state();
            if state.running {
                return (false, *state);
            }
            let number = state.number + 1;
            *state = VerifyStatus { number, running: true, bytes_total, ..VerifyStatus::default() };
            *state
        };
        let scrub = self.clone();
        on_blocking_pool(move || scrub.run());
        (true, begun)
    }

    fn run(&self) {
        let mut was_cut_off = false;
        let found = self.store.verify(&mut |done, total| {
            let mut state = self.state();
            (state.bytes_done, state.bytes_total) = (done, total);
            was_cut_off = self.is_stopped();
            if was_cut_off { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let weir_store::VerifyReport { segments, bytes, bad_segments, bad_bytes, read_errors } =
            found;
        tracing::info!(
            segments,
            bytes,
            bad_segments,
            bad_bytes,
            read_errors,
            was_cut_off,
            "store_verified"
        );
        let report = VerifyReport { segments, bytes, bad_segments, bad_bytes, read_errors };
        let mut state = self.state();
        state.running = false;
        if !was_cut_off {
            // Some that were there at the start may have been evicted.
            (state.bytes_done, state.bytes_total) = (bytes, bytes);
            state.report = Some(report);
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    fn state(&self) -> MutexGuard<'_, VerifyStatus> {
        self.state.lock().expect("nothing under this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use weir_store::Options;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A store with eight MiB in it.
    fn filled(dir: &tempfile::TempDir) -> Arc<Store> {
        let (store, _) = Store::open(&Options::new(dir.path(), 16 * MIB)).unwrap();
        let data = Bytes::from(vec![7; 8 << 20]);
        store.write(1.into(), 0, &[data]).unwrap();
        Arc::new(store)
    }

    async fn ended(scrub: &Scrub) -> VerifyStatus {
        while scrub.status().running {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        scrub.status()
    }

    #[tokio::test]
    async fn one_runs_at_a_time_and_leaves_its_report() {
        let dir = tempfile::tempdir().unwrap();
        let (_stop, stopped) = watch::channel(false);
        let scrub = Scrub::new(&filled(&dir), stopped);
        assert_eq!(scrub.status(), VerifyStatus::default());
        let (began, status) = scrub.start();
        assert!(began && status.running && status.report.is_none());
        // Whether the first has ended by then is the machine's affair.
        let (began, status) = scrub.start();
        assert_eq!(status.number, if began { 2 } else { 1 });
        let status = ended(&scrub).await;
        let report = status.report.unwrap();
        assert_eq!((report.segments, report.bytes, report.bad_segments), (512, 8 * MIB, 0));
        assert_eq!((status.bytes_done, status.bytes_total), (8 * MIB, 8 * MIB));
    }

    #[tokio::test]
    async fn it_ends_after_a_read_when_the_gateway_stops_or_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let store = filled(&dir);
        let (stop, stopped) = watch::channel(true);
        let scrub = Scrub::new(&store, stopped);
        scrub.start();
        let cut_off = ended(&scrub).await;
        assert_eq!((cut_off.bytes_done, cut_off.bytes_total), (MIB, 8 * MIB));
        assert_eq!(cut_off.report, None);
        stop.send_replace(false);
        drop(stop);
        scrub.start();
        let cut_off = ended(&scrub).await;
        assert_eq!((cut_off.number, cut_off.bytes_done, cut_off.report), (2, MIB, None));
    }
}
