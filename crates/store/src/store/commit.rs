//! Making things durable: the group commit, and folding the journal.
//!
//! A commit syncs the data, then appends to the journal what the index has changed,
//! and syncs that. An entry on disk thus never names bytes that are not. Folding
//! writes the whole index as a checkpoint and empties the journal; a checkpoint
//! counts from the moment its head, written last, is whole.

use std::io;
use std::sync::MutexGuard;

use super::Shared;
use crate::WriteError;
use crate::disk::{Disk, File};
use crate::format::{BLOCK_BYTES, CheckpointHeader, FrameKind, FrameWriter};
use crate::index::Index;

/// Where the journal stands.
#[derive(Debug)]
pub(super) struct Journal {
    /// The store.
    pub(super) generation: u64,
    /// The checkpoint that the journal follows on; 0 for none.
    pub(super) epoch: u64,
    /// The checkpoint's file, if there is one.
    pub(super) checkpoint: Option<File>,
    /// Bytes of that checkpoint.
    pub(super) checkpoint_bytes: u64,
    /// Number of the next frame.
    pub(super) sequence: u64,
    /// Where it is written.
    pub(super) tail: u64,
    /// A write to it failed: where its end is, nobody knows.
    pub(super) dead: bool,
}

impl Shared {
    /// Makes all changes of the index durable, and folds a journal grown long.
    pub(super) fn commit(&self) -> Result<(), WriteError> {
        let mut journal = self.journal();
        self.commit_to(&mut journal)?;
        let bound = self.tuning.journal_bytes_max.max(journal.checkpoint_bytes);
        if journal.tail > bound { self.fold(&mut journal) } else { Ok(()) }
    }

    /// The same, but for the folding, for who holds a shard's lock.
    pub(super) fn commit_soon(&self) -> Result<(), WriteError> {
        if !self.has_syncer {
            return self.commit();
        }
        let mut journal = self.journal();
        self.commit_to(&mut journal)
    }

    /// Writes what is gathered and makes it durable: also when a part of it cannot be
    /// written, of which the error tells.
    pub(super) fn flush_and_commit(&self) -> Result<(), WriteError> {
        let flushed = self.flush_all();
        self.commit()?;
        flushed
    }

    /// The same for callers that have nobody to tell: a failure is counted, and the
    /// store says that it is degraded.
    pub(super) fn commit_quietly(&self) {
        drop(self.commit());
    }

    /// The last commit; the journal is folded so that the next open has none to
    /// replay and finds the order of use.
    pub(super) fn close(&self) {
        // What cannot be flushed is lost; the rest is not.
        self.flush_all().unwrap_or_default();
        let mut journal = self.journal();
        if self.commit_to(&mut journal).is_ok() && journal.tail > 0 {
            drop(self.fold(&mut journal));
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().expect("a panic in the store ends the process")
    }

    fn commit_to(&self, journal: &mut Journal) -> Result<(), WriteError> {
        if journal.dead {
            return Err(WriteError::Degraded);
        }
        let (batch, degraded) = {
            let mut index = self.index();
            if index.is_clean() {
                // A change that an earlier commit lost is not durable now either.
                return if index.stats.degraded { Err(WriteError::Degraded) } else { Ok(()) };
            }
            let mut frames = journal.frames();
            let batch = index.take_batch(&mut frames);
            journal.sequence = frames.sequence();
            (batch, index.stats.degraded)
        };
        // Once the disk has failed to write or to sync data, no later sync proves
        // anything about it. What takes away is journalled all the same.
        let synced = if degraded || batch.groups.is_empty() { Ok(()) } else { self.sync_data() };
        let groups: &[u8] = if degraded || synced.is_err() { &[] } else { &batch.groups };
        if let Err(why) = journal.append(&*self.disk, &[&batch.removals, groups]) {
            journal.dead = true;
            self.degrade();
            return Err(why.into());
        }
        if let Err(why) = synced {
            self.degrade();
            return Err(why.into());
        }
        if degraded {
            // Groups that moved are not journalled: their old places are not free.
            return Err(WriteError::Degraded);
        }
        self.index().settle(batch);
        Ok(())
    }

    /// Makes all bytes written to clusters durable, and their marks.
    fn sync_data(&self) -> io::Result<()> {
        self.marks.write_back(&*self.disk)?;
        self.disk.sync(File::Marks)?;
        self.disk.sync(File::Data)
    }

    /// Writes a checkpoint and empties the journal, all of which it includes.
    fn fold(&self, journal: &mut Journal) -> Result<(), WriteError> {
        if self.index().stats.degraded {
            // The index may name bytes that never reached the disk.
            return Ok(());
        }
        let folded = journal.fold(&*self.disk, || self.index(), || self.sync_data());
        folded.map_err(|why| {
            journal.dead = true;
            self.degrade();
            why.into()
        })
    }
}

impl Journal {
    /// A journal that follows on no checkpoint.
    pub(super) const fn new(generation: u64) -> Self {
        Self {
            generation,
            epoch: 0,
            checkpoint: None,
            checkpoint_bytes: 0,
            sequence: 0,
            tail: 0,
            dead: false,
        }
    }

    /// Writes what `index` hands out, a few groups at a time, as the next checkpoint,
    /// and empties the journal; `sync_data` makes durable what the groups name.
    ///
    /// The index may change meanwhile. What changes is in the next commit, and no
    /// place is used again before that: a stale group in the checkpoint is at worst
    /// one that the next crash brings back, with its bytes.
    pub(super) fn fold<I: std::ops::Deref<Target = Index>>(
        &mut self,
        disk: &dyn Disk,
        index: impl Fn() -> I,
        sync_data: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let (file, old) = match self.checkpoint {
            Some(File::Checkpoint0) => (File::Checkpoint1, File::Checkpoint0),
            _ => (File::Checkpoint0, File::Checkpoint1),
        };
        let (epoch, generation) = (self.epoch + 1, self.generation);
        let mut frames = FrameWriter::new(FrameKind::Checkpoint, generation, epoch, 0);
        disk.set_len(file, 0)?;
        let mut at = BLOCK_BYTES as u64;
        let mut flush = |frames: &mut FrameWriter| {
            let bytes = frames.take();
            disk.write_at(file, at, &bytes)?;
            at += bytes.len() as u64;
            io::Result::Ok(())
        };
        let objects = index().object_ids();
        for some in objects.chunks(OBJECTS_AT_ONCE) {
            let index_now = index();
            let unfinished: Vec<_> = some
                .iter()
                .filter_map(|&object| {
                    Some((object, index_now.dump(object, 0, GROUPS_AT_ONCE, &mut frames)?))
                })
                .collect();
            drop(index_now);
            for (object, mut from) in unfinished {
                // A statement of its own: the lock is not held while writing.
                loop {
                    let next = index().dump(object, from, GROUPS_AT_ONCE, &mut frames);
                    flush(&mut frames)?;
                    let Some(next) = next else { break };
                    from = next;
                }
            }
            if frames.len() > FLUSH_BYTES {
                flush(&mut frames)?;
            }
        }
        flush(&mut frames)?;
        // The groups just handed out may name bytes written since the last commit.
        sync_data()?;
        disk.sync(file)?;
        let body_bytes = at - BLOCK_BYTES as u64;
        let head = CheckpointHeader { generation, epoch, body_bytes };
        disk.write_at(file, 0, &head.encode())?;
        disk.sync(file)?;
        // The old one must not be taken for the newest if this one is damaged later:
        // it names clusters that will be used again.
        disk.set_len(old, 0)?;
        disk.sync(old)?;
        disk.set_len(File::Journal, 0)?;
        disk.sync(File::Journal)?;
        (self.epoch, self.sequence, self.tail) = (epoch, 0, 0);
        (self.checkpoint, self.checkpoint_bytes) = (Some(file), at);
        Ok(())
    }

    fn frames(&self) -> FrameWriter {
        FrameWriter::new(FrameKind::Journal, self.generation, self.epoch, self.sequence)
    }

    /// Appends `parts`, durably.
    fn append(&mut self, disk: &dyn Disk, parts: &[&[u8]]) -> io::Result<()> {
        let bytes = parts.concat();
        if bytes.is_empty() {
            return Ok(());
        }
        disk.write_at(File::Journal, self.tail, &bytes)?;
        disk.sync(File::Journal)?;
        self.tail += bytes.len() as u64;
        Ok(())
    }
}

/// Objects, and groups of one, handed out under one hold of the index lock: some
/// tens of µs.
const OBJECTS_AT_ONCE: usize = 64;
const GROUPS_AT_ONCE: usize = 256;

/// Bytes of a checkpoint written at once.
const FLUSH_BYTES: usize = 1 << 20;
