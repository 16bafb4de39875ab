//! The store, for tasks: reads and writes on the blocking pool, bounded.
//!
//! A gateway without a store answers every look-up with a miss and drops what
//! it is given to keep; nothing else changes.

use std::collections::HashSet;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use weir_ranges::{ByteRange, Instant, ObjectId};
use weir_session::{Check, Description, Event, Keep, Reason, Ticket};
use weir_store::{Read, Store};

use crate::clock;
use crate::metrics::Metrics;

/// Bytes of writes and checks that may wait for the blocking pool. Beyond, a
/// write is dropped: a lost chance, counted.
const PENDING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Look-ups that go to the disk together; sessions have as many waiting.
const LOOKS_AT_ONCE: usize = 64;
/// Downloads remembered in a generation: some 5 MB.
const DOWNLOADS_MAX: usize = 65_536;
/// How long a client that asks for nothing of an object still downloads it, at least.
const DOWNLOAD_AGE: Duration = Duration::from_secs(1800);

/// One look-up of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) ticket: Ticket,
    pub(crate) object: ObjectId,
    pub(crate) range: ByteRange,
}

/// What comes back to a flow from the blocking pool.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The answer to a look-up.
    Looked(Ticket, Option<Bytes>),
    /// What a check found.
    Checked(Event),
}

/// The store's async side.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    store: Option<Arc<Store>>,
    pending: Arc<Semaphore>,
    downloads: Arc<Mutex<Downloads>>,
    metrics: Arc<Metrics>,
}

/// The downloads under way: who asked for what lately. In two generations, of which
/// the older is forgotten when the younger is old or full.
#[derive(Debug)]
struct Downloads {
    generations: [HashSet<(IpAddr, ObjectId)>; 2],
    turned: Instant,
}

impl Downloads {
    /// Notes a request; says whether it is the first of a download.
    fn begins(&mut self, client: IpAddr, object: ObjectId, now: Instant) -> bool {
        let [young, old] = &mut self.generations;
        if young.len() >= DOWNLOADS_MAX || now.since(self.turned) >= DOWNLOAD_AGE {
            std::mem::swap(young, old);
            young.clear();
            self.turned = now;
        }
        let is_known = old.contains(&(client, object));
        young.insert((client, object)) && !is_known
    }
}

impl Storage {
    pub(crate) fn new(store: Option<Arc<Store>>, metrics: Arc<Metrics>) -> Self {
        let downloads = Downloads { generations: Default::default(), turned: clock::now() };
        Self {
            store,
            pending: Arc::new(Semaphore::new(PENDING_BYTES_MAX)),
            downloads: Arc::new(Mutex::new(downloads)),
            metrics,
        }
    }

    /// The store itself, where there is one.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Whether a look-up is sure to miss. Memory only, and never waits.
    pub(crate) fn misses(&self, look: &Look) -> bool {
        !self.store.as_ref().is_some_and(|store| store.may_cover(look.object, look.range))
    }

    /// Reads a batch of look-ups; each is answered on `answers`, unless the
    /// flow is gone by then.
    pub(crate) fn look(&self, looks: Vec<Look>, answers: &mpsc::Sender<Answer>) {
        let (storage, answers) = (self.clone(), answers.clone());
        on_blocking_pool(move || {
            for looks in looks.chunks(LOOKS_AT_ONCE) {
                for (look, found) in looks.iter().zip(storage.read(looks)) {
                    if answers.blocking_send(Answer::Looked(look.ticket, found)).is_err() {
                        return;
                    }
                }
            }
        });
    }

    /// What `looks` find, in their order.
    fn read(&self, looks: &[Look]) -> Vec<Option<Bytes>> {
        let wants: Vec<_> = looks.iter().map(|look| (look.object, look.range)).collect();
        let read = self.store.as_ref().map_or_else(|| Ok(Vec::new()), |s| s.read_many(&wants));
        let mut found: Vec<_> = match read {
            Ok(reads) => reads.into_iter().map(Read::whole).collect(),
            Err(error) => {
                tracing::debug!(%error, "store_read_failed");
                Vec::new()
            }
        };
        found.resize(looks.len(), None);
        found
    }

    /// Notes that `client` downloads `object`: what many want is worth keeping. A
    /// client's flows to many peers are one download.
    pub(crate) fn wanted(&self, client: IpAddr, object: ObjectId) {
        let Some(store) = &self.store else { return };
        let mut downloads = self.downloads.lock().expect("nothing under this lock can panic");
        if downloads.begins(client, object, clock::now()) {
            store.wanted(object);
        }
    }

    /// Writes bytes known to be right.
    pub(crate) fn keep(&self, keep: Keep) {
        let Some(permit) = self.reserve(keep.len()) else { return };
        let storage = self.clone();
        on_blocking_pool(move || {
            storage.write(&keep);
            drop(permit);
        });
    }

    /// Runs a check and keeps what it finds fit.
    pub(crate) fn check(&self, check: Box<dyn Check>, answers: &mpsc::Sender<Answer>) {
        let Some(permit) = self.reserve(check.cost_bytes()) else { return };
        let (storage, answers) = (self.clone(), answers.clone());
        on_blocking_pool(move || {
            let checked = check.run();
            if let Some(keep) = &checked.keep {
                storage.write(keep);
            }
            drop(permit);
            // A flow that has ended meanwhile is not there to count it, which
            // costs a count and nothing else.
            if let Some(event) = checked.event
                && answers.blocking_send(Answer::Checked(event)).is_err()
            {
                storage.metrics.sessions.session_event(&event);
            }
        });
    }

    /// Drops an object, soon.
    pub(crate) fn forget(&self, object: ObjectId) {
        if let Some(store) = self.store.clone() {
            on_blocking_pool(move || {
                store.forget(object);
            });
        }
    }

    /// Notes what an object is.
    pub(crate) fn describe(&self, description: Description) {
        if let Some(store) = &self.store {
            let Description { object, app, name, size_bytes } = description;
            let app = app.to_owned();
            store.describe(object, weir_store::Description { app, name, size_bytes });
        }
    }

    /// Room for `bytes` that wait for the blocking pool; none without a store.
    fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.store.as_ref()?;
        let bytes = u32::try_from(bytes.clamp(1, PENDING_BYTES_MAX)).expect("clamped to 128 MiB");
        let permit = Arc::clone(&self.pending).try_acquire_many_owned(bytes);
        if permit.is_err() {
            self.metrics.sessions.session_event(&Event::Ignored(Reason::StoreBusy));
        }
        permit.ok()
    }

    fn write(&self, keep: &Keep) {
        let Some(store) = &self.store else { return };
        if let Err(error) = store.write(keep.object, keep.offset, &keep.data) {
            tracing::debug!(%error, "store_write_failed");
        }
    }
}

/// Runs `work`, which touches the store, on the blocking pool. A panic there ends
/// the process: what the store believes of its disk may be wrong from then on,
/// and without the process all traffic passes.
pub(crate) fn on_blocking_pool(work: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(|| {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("store_panicked");
            std::process::abort();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_flows_are_one_download_until_it_has_paused() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut downloads = Downloads { generations: Default::default(), turned: at(0) };
        let [one, two] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let object = ObjectId::from(7);
        assert!(downloads.begins(one, object, at(1)));
        assert!(!downloads.begins(one, object, at(2)));
        assert!(downloads.begins(two, object, at(3)));
        assert!(downloads.begins(one, ObjectId::from(8), at(3)));
        // Still asked for in each generation: still the same download.
        assert!(!downloads.begins(one, object, at(1801)));
        assert!(!downloads.begins(one, object, at(3602)));
        assert!(downloads.begins(two, object, at(3603)), "it paused for a generation");
    }
}
