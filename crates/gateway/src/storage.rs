//! The store, for tasks: reads and writes on the blocking pool, bounded.
//!
//! A gateway without a store answers every look-up with a miss and drops what
//! it is given to keep; nothing else changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use weir_ranges::{ByteRange, ObjectId};
use weir_session::{Check, Description, Event, Keep, Reason, Ticket};
use weir_store::Store;

use crate::metrics::Metrics;

/// Bytes of writes and checks that may wait for the blocking pool. Beyond, a
/// write is dropped: a lost chance, counted.
const PENDING_BYTES_MAX: usize = 128 * 1024 * 1024;

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
    metrics: Arc<Metrics>,
}

impl Storage {
    pub(crate) fn new(store: Option<Arc<Store>>, metrics: Arc<Metrics>) -> Self {
        Self { store, pending: Arc::new(Semaphore::new(PENDING_BYTES_MAX)), metrics }
    }

    /// The store itself, where there is one.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Whether a look-up is sure to miss. Memory only.
    pub(crate) fn misses(&self, look: &Look) -> bool {
        !self.store.as_ref().is_some_and(|store| store.covers(look.object, look.range))
    }

    /// Reads a batch of look-ups; each is answered on `answers`, unless the
    /// flow is gone by then.
    pub(crate) fn look(&self, looks: Vec<Look>, answers: &mpsc::Sender<Answer>) {
        let (storage, answers) = (self.clone(), answers.clone());
        on_blocking_pool(move || {
            for look in looks {
                let answer = Answer::Looked(look.ticket, storage.read(look.object, look.range));
                if answers.blocking_send(answer).is_err() {
                    return;
                }
            }
        });
    }

    fn read(&self, object: ObjectId, range: ByteRange) -> Option<Bytes> {
        match self.store.as_ref()?.read(object, range) {
            Ok(read) => read.whole(),
            Err(error) => {
                tracing::debug!(%error, "store_read_failed");
                None
            }
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
fn on_blocking_pool(work: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(|| {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("store_panicked");
            std::process::abort();
        }
    });
}
