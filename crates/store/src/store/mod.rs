//! The store: the index, the disk and the thread that makes things durable.

mod commit;
mod read;
mod recover;
mod write;

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use weir_ranges::{ByteRange, GROUP_BYTES, ObjectId};

use crate::disk::{Disk, Files};
use crate::index::Index;
use crate::{
    Description, ObjectSummary, OpenError, Options, Read, ReadError, Recovery, Stats, Tuning,
    VerifyReport, WriteError, clock,
};

use commit::Journal;

/// The least capacity: 8 MiB.
pub const CAPACITY_BYTES_MIN: u64 = 8 << 20;

/// The largest capacity: 64 TiB.
pub const CAPACITY_BYTES_MAX: u64 = 64 << 40;

/// The longest range of one [`Store::read`]: 64 MiB, which is also about what it
/// holds in memory at most.
pub const READ_BYTES_MAX: u64 = 64 << 20;

/// Byte ranges of objects, on disk. Shared between threads by reference; every call
/// may block on the disk, but for those that say otherwise.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    syncer: Option<JoinHandle<()>>,
}

/// What the callers' threads and the syncing thread have in common.
#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    tuning: Tuning,
    /// Whether a thread commits, or callers must.
    has_syncer: bool,
    /// One writer for each group: taken by hash of the group, before all others.
    stripes: [Mutex<()>; STRIPES],
    journal: Mutex<Journal>,
    index: Mutex<Index>,
    wake: Mutex<Wake>,
    woken: Condvar,
}

/// What the syncing thread is told.
#[derive(Debug, Default)]
struct Wake {
    now: bool,
    stop: bool,
}

impl Store {
    /// Opens the store in `options.dir`, or makes one.
    ///
    /// # Errors
    /// See [`OpenError`]. Damage to journal or checkpoints is not an error: what is
    /// whole is kept, and [`Recovery::dropped_records`] says that some was not.
    pub fn open(options: &Options) -> Result<(Self, Recovery), OpenError> {
        clusters(options.capacity_bytes)?;
        let disk = Arc::new(Files::open(&options.dir)?);
        Self::open_on(disk, options, Tuning::default())
    }

    /// Opens the store on `disk`; `options.dir` is only used to name it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: &Options,
        tuning: Tuning,
    ) -> Result<(Self, Recovery), OpenError> {
        let clusters = clusters(options.capacity_bytes)?;
        let (index, journal, recovery) = recover::open(&*disk, &options.dir, clusters)?;
        let shared = Arc::new(Shared {
            disk,
            tuning,
            has_syncer: !options.sync_interval.is_zero(),
            stripes: std::array::from_fn(|_| Mutex::new(())),
            journal: Mutex::new(journal),
            index: Mutex::new(index),
            wake: Mutex::default(),
            woken: Condvar::new(),
        });
        let mut store = Self { shared, syncer: None };
        if store.shared.has_syncer {
            let (shared, interval) = (Arc::clone(&store.shared), options.sync_interval);
            let thread = std::thread::Builder::new().name("weir-store-sync".into());
            let syncer = thread
                .spawn(move || shared.sync_until_stopped(interval))
                .map_err(|source| OpenError::Io { dir: options.dir.clone(), source })?;
            store.syncer = Some(syncer);
        }
        Ok((store, recovery))
    }

    /// Whether every byte of `range` is held. Memory only, about 0.1 µs; does not
    /// count as use. An empty range is held.
    pub fn covers(&self, object: ObjectId, range: ByteRange) -> bool {
        self.shared.index().covers(object, range)
    }

    /// Reads what is held of `range`; checked, and counted as use.
    ///
    /// # Errors
    /// [`ReadError::TooLong`] past [`READ_BYTES_MAX`]. What the disk cannot read, or
    /// reads otherwise than it was written, is a hole.
    pub fn read(&self, object: ObjectId, range: ByteRange) -> Result<Read, ReadError> {
        self.shared.read(object, range)
    }

    /// Keeps the bytes of `data`, one part after another, from `offset` on.
    ///
    /// Bytes that are held already and are the same are not written again. Where
    /// they differ, the segment is dropped durably first and the new bytes take its
    /// place. Of one segment at most 16 separate runs are kept; what comes beyond is
    /// dropped and will be a miss.
    ///
    /// # Errors
    /// See [`WriteError`]; a part of the bytes may have been kept.
    pub fn write(&self, object: ObjectId, offset: u64, data: &[Bytes]) -> Result<(), WriteError> {
        self.shared.write(object, offset, data)
    }

    /// Drops every byte of `object`, durably before it returns unless the store is
    /// degraded. Says whether there was any.
    pub fn forget(&self, object: ObjectId) -> bool {
        let had = self.shared.index().forget(object);
        if had {
            self.shared.commit_quietly();
        }
        had
    }

    /// Says what `object` is. Kept with its bytes; said before the first byte, it is
    /// remembered for the last 1024 objects. Memory only.
    pub fn describe(&self, object: ObjectId, description: Description) {
        self.shared.index().describe(object, cut(description));
    }

    /// The objects held, last used first. Memory only.
    pub fn objects(&self) -> Vec<ObjectSummary> {
        let mut objects = self.shared.index().objects(clock::unix_seconds());
        objects.sort_by_key(|summary| (summary.last_used, summary.object));
        objects
    }

    /// Counters and levels. Memory only.
    pub fn stats(&self) -> Stats {
        self.shared.index().stats.clone()
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// [`WriteError::Io`] when the disk fails, [`WriteError::Degraded`] when it did
    /// before: some of what was written may not survive a crash.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.shared.commit()?;
        if self.shared.index().stats.degraded {
            return Err(WriteError::Degraded);
        }
        Ok(())
    }

    /// Reads everything that is held and frees what is not as it was written.
    /// `progress` is told bytes done and bytes in all, after each MiB at most.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> VerifyReport {
        self.shared.verify(progress)
    }
}

impl Drop for Store {
    /// Stops the syncing thread, then makes everything durable and the next open
    /// fast. What fails here is what a crash would lose.
    fn drop(&mut self) {
        if let Some(syncer) = self.syncer.take() {
            self.shared.wake().stop = true;
            self.shared.woken.notify_all();
            // A panic there is not repeated in a drop.
            if syncer.join().is_err() {
                return;
            }
        }
        self.shared.close();
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("a panic in the store ends the process")
    }

    fn wake(&self) -> MutexGuard<'_, Wake> {
        self.wake.lock().expect("nothing under this lock can panic")
    }

    /// Notes that the disk failed a write; from now on the store is only read.
    fn degrade(&self) {
        let mut index = self.index();
        index.stats.write_errors += 1;
        index.stats.degraded = true;
    }

    /// Asks the syncing thread for a commit without waiting for it.
    fn kick(&self) {
        self.wake().now = true;
        self.woken.notify_one();
    }

    fn sync_until_stopped(&self, interval: Duration) {
        loop {
            let wake = self.wake();
            let waited = self.woken.wait_timeout_while(wake, interval, |w| !w.now && !w.stop);
            let (mut wake, _) = waited.expect("nothing under this lock can panic");
            if wake.stop {
                return;
            }
            wake.now = false;
            drop(wake);
            self.commit_quietly();
        }
    }
}

/// Whole clusters in `capacity_bytes`.
fn clusters(capacity_bytes: u64) -> Result<u32, OpenError> {
    let refused = OpenError::Capacity {
        given_bytes: capacity_bytes,
        min_bytes: CAPACITY_BYTES_MIN,
        max_bytes: CAPACITY_BYTES_MAX,
    };
    if !(CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&capacity_bytes) {
        return Err(refused);
    }
    u32::try_from(capacity_bytes / GROUP_BYTES).map_err(|_| refused)
}

/// `description` with texts that fit a byte's count.
fn cut(mut description: Description) -> Description {
    for text in [&mut description.app, &mut description.name] {
        text.truncate(text.floor_char_boundary(255));
    }
    description
}

/// Enough that writers of different groups seldom meet.
const STRIPES: usize = 64;
