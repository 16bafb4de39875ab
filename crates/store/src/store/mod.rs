//! The store: the index, the disk and the thread that makes things durable.

mod commit;
mod flush;
mod marks;
mod read;
mod recover;
mod shard;
mod write;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use weir_ranges::{ByteRange, GROUP_BYTES, ObjectId};

use crate::disk::{Disk, DiskOptions, Engine, Files};
use crate::frame::FramePool;
use crate::index::{GroupId, Index};
use crate::units::by_group;
use crate::{
    Description, ObjectSummary, OpenError, Options, Read, ReadError, Recovery, Stats, Tuning,
    VerifyReport, WriteError, clock,
};

use commit::Journal;
use marks::Marks;
use shard::{Gather, Shard};

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
    /// Memory for the bytes in the shards, and of reads under way.
    pool: FramePool,
    /// By hash of the group; taken before the other locks.
    shards: [Locked; SHARDS],
    marks: Marks,
    journal: Mutex<Journal>,
    index: Mutex<Index>,
    /// Bytes that are gathered and not on disk, and of the frames they lie in.
    gathered_bytes: AtomicU64,
    gathered_memory: AtomicU64,
    /// What the latter should stay below.
    gathered_memory_max: u64,
    /// How often the syncing thread has been around.
    rounds: AtomicU32,
    /// The shard whose memory is taken next.
    hand: AtomicUsize,
    wake: Mutex<Wake>,
    woken: Condvar,
}

/// A shard, and who waits for what another one reads.
#[derive(Debug, Default)]
struct Locked {
    state: Mutex<Shard>,
    loaded: Condvar,
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
        let pool = frames(options);
        let wanted = DiskOptions {
            engine: options.engine,
            direct: options.direct,
            device: options.device.clone(),
            ..DiskOptions::new(pool.clone())
        };
        let disk = Arc::new(Files::open(&options.dir, &wanted)?);
        Self::start(disk, pool, options, Tuning::default())
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
        Self::start(disk, frames(options), options, tuning)
    }

    fn start(
        disk: Arc<dyn Disk>,
        pool: FramePool,
        options: &Options,
        tuning: Tuning,
    ) -> Result<(Self, Recovery), OpenError> {
        let clusters = clusters(options.capacity_bytes)?;
        let (index, journal, recovery) =
            recover::open(&*disk, &options.dir, clusters, options.policy)?;
        let shared = Arc::new(Shared {
            disk,
            tuning,
            has_syncer: !options.sync_interval.is_zero(),
            pool,
            shards: std::array::from_fn(|_| Locked::default()),
            marks: Marks::new((options.memory_bytes / MARKS_SHARE).max(MARKS_BYTES_MIN)),
            journal: Mutex::new(journal),
            index: Mutex::new(index),
            gathered_bytes: AtomicU64::new(0),
            gathered_memory: AtomicU64::new(0),
            gathered_memory_max: (options.memory_bytes as u64 / 2).max(GATHERED_MEMORY_MIN),
            rounds: AtomicU32::new(0),
            hand: AtomicUsize::new(0),
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

    /// Whether every byte of `range` is held. Does not count as use. About 0.1 µs when
    /// it is on disk; else it may wait for a writer of the same groups. An empty range
    /// is held.
    pub fn covers(&self, object: ObjectId, range: ByteRange) -> bool {
        self.shared.covers(object, range, false)
    }

    /// Whether a read of `range` may find every byte: a quick [`Store::covers`] that
    /// never waits, and says yes where somebody is writing just now.
    pub fn may_cover(&self, object: ObjectId, range: ByteRange) -> bool {
        self.shared.covers(object, range, true)
    }

    /// Reads what is held of `range`; checked, and counted as use.
    ///
    /// # Errors
    /// [`ReadError::TooLong`] past [`READ_BYTES_MAX`]. What the disk cannot read, or
    /// reads otherwise than it was written, is a hole.
    pub fn read(&self, object: ObjectId, range: ByteRange) -> Result<Read, ReadError> {
        let mut reads = self.shared.read(&[(object, range)])?;
        Ok(reads.pop().unwrap_or_default())
    }

    /// Reads what is held of several ranges at once, which keeps a disk busy. The
    /// answers are in the order of `wants`.
    ///
    /// # Errors
    /// As [`Store::read`], for all of them together.
    pub fn read_many(&self, wants: &[(ObjectId, ByteRange)]) -> Result<Vec<Read>, ReadError> {
        self.shared.read(wants)
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
        let gathered = self.shared.forget_buffers(object);
        let had = self.shared.index().forget(object);
        // Also when nothing was held: its eviction may be on its way to the journal.
        self.shared.commit_quietly();
        had || gathered
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

    /// What carries bytes to and from the disk.
    pub fn engine(&self) -> Engine {
        self.shared.disk.engine()
    }

    /// Counters and levels. Memory only.
    pub fn stats(&self) -> Stats {
        let gathered = self.shared.gathered_bytes.load(Ordering::Relaxed);
        let mut stats = self.shared.index().stats.clone();
        stats.dirty_bytes += gathered;
        stats
    }

    /// Notes that a download of `object` begins, whether any of it is held or not.
    /// What is downloaded often is worth keeping; bytes of what never was are taken
    /// only while there is free space. Memory only.
    pub fn wanted(&self, object: ObjectId) {
        self.shared.index().wanted(object);
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// [`WriteError::Io`] when the disk fails, [`WriteError::Degraded`] when it did
    /// before: some of what was written may not survive a crash.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.shared.flush_and_commit()?;
        if self.shared.index().stats.degraded {
            return Err(WriteError::Degraded);
        }
        Ok(())
    }

    /// Reads everything that is held and frees what is not as it was written.
    /// `progress` is told bytes done and bytes in all, after each MiB at most; when it
    /// breaks, the report is of what was read until then.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> VerifyReport {
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

    /// The shard of a group, locked.
    fn shard(&self, id: GroupId) -> MutexGuard<'_, Shard> {
        self.shard_of(id).lock()
    }

    fn shard_of(&self, id: GroupId) -> &Locked {
        // Neighbouring groups of an object differ, and so do objects' first groups.
        let id_hash = id.object.as_u128() ^ (id.object.as_u128() >> 64);
        let hash = (id_hash ^ u128::from(id.group)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[usize::try_from(hash % SHARDS as u128).unwrap_or_default()]
    }

    fn covers(&self, object: ObjectId, range: ByteRange, in_doubt: bool) -> bool {
        if self.index().covers(object, range) {
            return true;
        }
        if self.gathered_bytes.load(Ordering::Relaxed) == 0 {
            return false;
        }
        by_group(range).all(|(group, part)| {
            let id = GroupId { object, group };
            let shard = match self.shard_of(id).try_lock() {
                Some(shard) => shard,
                None if in_doubt => return true,
                None => self.shard(id),
            };
            let (_, holes) = self.index().compare(id, part);
            let gather = shard.gathers.get(&id);
            let has = |hole| gather.is_some_and(|gather| gather.has(id, hole));
            holes.iter().all(has)
        })
    }

    /// Lets go of what is in memory of `object`; says whether any of it was not on
    /// disk.
    fn forget_buffers(&self, object: ObjectId) -> bool {
        let mut any = false;
        for shard in &self.shards {
            for gather in shard.lock().forget(|id| id.object == object) {
                any |= !gather.filled.is_empty();
                self.count_out(&gather);
            }
        }
        any
    }

    /// Takes a gathered group out of the counts.
    fn count_out(&self, gather: &Gather) {
        self.gathered_bytes.fetch_sub(gather.filled.bytes(), Ordering::Relaxed);
        self.gathered_memory.fetch_sub(gather.frame.len() as u64, Ordering::Relaxed);
    }

    /// Bytes that a crash would lose.
    fn dirty_bytes(&self) -> u64 {
        self.gathered_bytes.load(Ordering::Relaxed) + self.index().stats.dirty_bytes
    }

    fn round(&self) -> u32 {
        self.rounds.load(Ordering::Relaxed)
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
            let all = std::mem::take(&mut wake.now);
            drop(wake);
            // A group that began in the round before has waited for one to two.
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            let flushed = if all { self.flush_all() } else { self.flush_older(round) };
            // What failed is counted, and the store says that it is degraded.
            drop(flushed);
            self.commit_quietly();
        }
    }
}

impl Locked {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        self.state.lock().expect("a panic in the store ends the process")
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Shard>> {
        self.state.try_lock().ok()
    }

    fn wait<'a>(&self, shard: MutexGuard<'a, Shard>) -> MutexGuard<'a, Shard> {
        self.loaded.wait(shard).expect("a panic in the store ends the process")
    }
}

/// Frames of the memory that checksums leave.
fn frames(options: &Options) -> FramePool {
    FramePool::new(options.memory_bytes - options.memory_bytes / MARKS_SHARE)
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

/// Enough that two threads seldom meet.
const SHARDS: usize = 64;

/// Memory for gathered groups that there always is.
const GATHERED_MEMORY_MIN: u64 = 8 << 20;

/// The share of the memory that checksums have: of 128 MiB, those of 64 GiB.
const MARKS_SHARE: usize = 8;
/// What they have at least.
const MARKS_BYTES_MIN: usize = 1 << 20;
