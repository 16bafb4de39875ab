//! Opening: superblock, checkpoint, journal, in that order.
//!
//! Only the superblock can refuse. Of the rest, what is whole is taken and what is
//! not is counted. After a journal with anything in it the index is folded into a
//! new checkpoint, so that new frames are never appended behind torn ones.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::commit::Journal;
use crate::clock::{self, Stopwatch};
use crate::disk::{Disk, File, free};
use crate::format::{
    BLOCK_BYTES, CheckpointHeader, Entry, FORMAT_VERSION, Fields, Frame, FrameKind, FrameReader,
    Superblock, SuperblockFault,
};
use crate::index::Index;
use crate::units::CLUSTER_BYTES;
use crate::{OpenError, Recovery};

/// Opens or makes the store on `disk`, with `clusters` clusters from now on.
pub(super) fn open(
    disk: &dyn Disk,
    dir: &Path,
    clusters: u32,
) -> Result<(Index, Journal, Recovery), OpenError> {
    let stopwatch = Stopwatch::start();
    let io = |source| OpenError::Io { dir: dir.into(), source };
    let found = head(disk, File::Superblock, Superblock::FILE_BYTES).map_err(io)?;
    let superblock = match Superblock::decode(&found) {
        Ok(superblock) => superblock,
        Err(SuperblockFault::Absent) => create(disk, dir, clusters)?,
        Err(SuperblockFault::Damaged) => {
            return Err(OpenError::CorruptSuperblock { dir: dir.into() });
        }
        Err(SuperblockFault::OtherVersion(found)) => {
            let ours = FORMAT_VERSION;
            return Err(OpenError::OtherVersion { dir: dir.into(), found, ours });
        }
    };
    reserve(disk, dir, clusters)?;

    let mut index = Index::new(clusters);
    let mut recovery = Recovery::default();
    let mut journal = Journal::new(superblock.generation);
    let replayed = load(disk, &mut index, &mut journal, &mut recovery).map_err(io)?;
    index.restored();
    let resized = superblock.clusters != clusters;
    if replayed || resized {
        // A disk too full for that still has a cache to read from.
        if journal.fold(disk, || &index).is_err() {
            journal.dead = true;
            index.stats.write_errors += 1;
            index.stats.degraded = true;
        }
    }
    let whole =
        found.len() == Superblock::FILE_BYTES && found[..BLOCK_BYTES] == found[BLOCK_BYTES..];
    if (resized || !whole) && !index.stats.degraded {
        let serial = superblock.serial + 1;
        let newer = Superblock { clusters, serial, ..superblock };
        write_superblock(disk, &newer, &found).map_err(io)?;
    }
    let data_bytes = u64::from(clusters) * u64::from(CLUSTER_BYTES);
    if disk.len(File::Data).map_err(io)? > data_bytes {
        disk.set_len(File::Data, data_bytes).map_err(io)?;
    }
    recovery.objects = index.stats.objects;
    recovery.segments = index.stats.segments;
    recovery.bytes = index.stats.held_bytes;
    recovery.took = stopwatch.elapsed();
    Ok((index, journal, recovery))
}

/// Makes a store; the superblock comes last, so that a half-made one is none.
fn create(disk: &dyn Disk, dir: &Path, clusters: u32) -> Result<Superblock, OpenError> {
    let io = |source| OpenError::Io { dir: dir.into(), source };
    let superblock = Superblock { clusters, generation: clock::generation(), serial: 1 };
    reserve(disk, dir, clusters)?;
    for file in [File::Checkpoint0, File::Checkpoint1, File::Journal] {
        disk.set_len(file, 0).and_then(|()| disk.sync(file)).map_err(io)?;
    }
    disk.sync(File::Data).map_err(io)?;
    Ok(superblock)
}

/// Writes both copies, first the one that was not taken from `found`.
fn write_superblock(disk: &dyn Disk, superblock: &Superblock, found: &[u8]) -> io::Result<()> {
    let block = superblock.encode();
    let first_is_good = Superblock::decode(found.get(..BLOCK_BYTES).unwrap_or(&[])).is_ok();
    let order = if first_is_good { [1, 0] } else { [0, 1] };
    for copy in order {
        disk.write_at(File::Superblock, copy * BLOCK_BYTES as u64, &block)?;
        disk.sync(File::Superblock)?;
    }
    Ok(())
}

/// Extends the data file to `clusters` clusters, if it is shorter.
fn reserve(disk: &dyn Disk, dir: &Path, clusters: u32) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { dir: dir.into(), source };
    let needed = u64::from(clusters) * u64::from(CLUSTER_BYTES);
    let have = disk.len(File::Data).map_err(io)?;
    if have >= needed {
        return Ok(());
    }
    disk.allocate(File::Data, needed).map_err(|source| match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            OpenError::DiskFull {
                dir: dir.into(),
                needed_bytes: needed - have,
                free_bytes: free(dir),
            }
        }
        _ => io(source),
    })?;
    disk.sync(File::Data).map_err(io)
}

/// Fills the index; says whether a new checkpoint must be written before anything is
/// appended to the journal.
fn load(
    disk: &dyn Disk,
    index: &mut Index,
    journal: &mut Journal,
    recovery: &mut Recovery,
) -> io::Result<bool> {
    let mut newest: Option<(File, CheckpointHeader)> = None;
    let mut rest = false;
    for file in [File::Checkpoint0, File::Checkpoint1] {
        let block = head(disk, file, BLOCK_BYTES)?;
        let header = CheckpointHeader::decode(&block);
        let Some(header) = header.filter(|h| h.generation == journal.generation) else {
            // Begun and not finished, or damaged.
            recovery.dropped_records += u64::from(!block.is_empty());
            rest |= !block.is_empty();
            continue;
        };
        rest |= newest.is_some();
        if newest.is_none_or(|(_, other)| header.epoch > other.epoch) {
            newest = Some((file, header));
        }
    }

    let bytes = head(disk, File::Journal, usize::MAX)?;
    let mut reader = FrameReader::new(FrameKind::Journal, journal.generation, &bytes);
    let frames: Vec<Frame<'_>> = reader.by_ref().collect();
    recovery.dropped_records += reader.damaged();
    let newest_frame = frames.iter().map(|frame| frame.epoch).max();

    if let Some((file, header)) = newest {
        journal.checkpoint = Some(file);
        journal.epoch = header.epoch;
        if newest_frame.is_none_or(|epoch| epoch <= header.epoch) {
            load_checkpoint(disk, file, header, index, recovery)?;
        }
    }
    // A journal that follows on a checkpoint which is not there stands alone: the
    // groups in it are whole, and an older checkpoint would bring back what is gone.
    if let Some(epoch) = newest_frame.filter(|&epoch| epoch > journal.epoch) {
        recovery.dropped_records += 1;
        journal.epoch = epoch;
    }
    let mut last = None;
    for frame in frames.iter().filter(|frame| frame.epoch == journal.epoch) {
        if last.is_some_and(|last| frame.sequence <= last) {
            recovery.dropped_records += 1;
            continue;
        }
        last = Some(frame.sequence);
        let (applied, dropped) = apply(index, frame);
        recovery.journal_records += applied;
        recovery.dropped_records += dropped;
    }
    Ok(rest || !bytes.is_empty())
}

/// Applies the body of a checkpoint, as far as it is whole.
fn load_checkpoint(
    disk: &dyn Disk,
    file: File,
    header: CheckpointHeader,
    index: &mut Index,
    recovery: &mut Recovery,
) -> io::Result<()> {
    let whole = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
    let bytes = head(disk, file, whole.saturating_add(BLOCK_BYTES))?;
    let body = bytes.get(BLOCK_BYTES..).unwrap_or(&[]);
    recovery.dropped_records += u64::from(body.len() < whole);
    let mut reader = FrameReader::new(FrameKind::Checkpoint, header.generation, body);
    for frame in reader.by_ref().filter(|frame| frame.epoch == header.epoch) {
        recovery.dropped_records += apply(index, &frame).1;
    }
    recovery.dropped_records += reader.damaged();
    Ok(())
}

/// Applies the entries of a frame; says how many were and were not.
fn apply(index: &mut Index, frame: &Frame<'_>) -> (u64, u64) {
    let mut fields = Fields(frame.payload);
    let (mut applied, mut dropped) = (0, 0);
    for done in 0..frame.entries {
        let Some(entry) = Entry::decode(&mut fields) else {
            // Where the next entry begins is not known.
            return (applied, dropped + u64::from(frame.entries - done));
        };
        if index.restore(entry) {
            applied += 1;
        } else {
            dropped += 1;
        }
    }
    (applied, dropped)
}

/// The first `max` bytes of `file`, or all.
fn head(disk: &dyn Disk, file: File, max: usize) -> io::Result<Vec<u8>> {
    let len = usize::try_from(disk.len(file)?).unwrap_or(usize::MAX).min(max);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.resize(len, 0);
    disk.read_at(file, 0, &mut bytes)?;
    Ok(bytes)
}
