//! Opening: superblock, checkpoint, journal, in that order.
//!
//! Only the superblock can refuse. Of the rest, what is whole is taken and what is
//! not is counted. After a journal with anything in it the index is folded into a
//! new checkpoint, so that new frames are never appended behind torn ones.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use weir_policy::Kind;

use super::commit::Journal;
use crate::clock::{self, Stopwatch};
use crate::disk::{Disk, File, free};
use crate::format::{
    BLOCK_BYTES, CheckpointHeader, Entry, FORMAT_VERSION, FRAME_BYTES_MAX, Fields, Frame,
    FrameKind, FrameReader, Superblock, SuperblockFault,
};
use crate::index::Index;
use crate::units::{GROUP_LEN, SEGMENT_LEN};
use crate::{OpenError, Recovery};

/// Opens or makes the store on `disk`, with `clusters` clusters from now on.
pub(super) fn open(
    disk: &dyn Disk,
    dir: &Path,
    clusters: u32,
    policy: Kind,
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

    let mut index = Index::new(clusters, policy);
    let mut recovery = Recovery::default();
    let mut journal = Journal::new(superblock.generation);
    let replayed = load(disk, &mut index, &mut journal, &mut recovery).map_err(io)?;
    index.restored();
    let resized = superblock.clusters != clusters;
    if replayed || resized {
        // A disk too full for that still has a cache to read from.
        let sync = || disk.sync(File::Marks).and_then(|()| disk.sync(File::Data));
        if journal.fold(disk, || &index, sync).is_err() {
            journal.dead = true;
            index.stats.write_errors += 1;
            index.stats.degraded = true;
        }
    }
    let whole =
        found.len() == Superblock::FILE_BYTES && found[..BLOCK_BYTES] == found[BLOCK_BYTES..];
    if (resized || !whole) && !index.stats.degraded {
        let serial = superblock.serial.wrapping_add(1);
        let newer = Superblock { clusters, serial, ..superblock };
        write_superblock(disk, &newer, &found).map_err(io)?;
    }
    for (file, bytes) in lengths(clusters) {
        if disk.len(file).map_err(io)? > bytes {
            disk.set_len(file, bytes).map_err(io)?;
        }
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
    disk.sync(File::Marks).and_then(|()| disk.sync(File::Data)).map_err(io)?;
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

/// How long the data file and the table of marks are.
fn lengths(clusters: u32) -> [(File, u64); 2] {
    let slots = u64::from(clusters) * GROUP_LEN as u64;
    [(File::Data, slots * u64::from(SEGMENT_LEN)), (File::Marks, slots * 4)]
}

/// Extends the data file and the table of marks to `clusters` clusters where they
/// are shorter.
fn reserve(disk: &dyn Disk, dir: &Path, clusters: u32) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { dir: dir.into(), source };
    for (file, needed) in lengths(clusters) {
        let have = disk.len(file).map_err(io)?;
        if have >= needed {
            continue;
        }
        disk.allocate(file, needed).map_err(|source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                OpenError::DiskFull {
                    dir: dir.into(),
                    needed_bytes: needed - have,
                    free_bytes: free(dir),
                }
            }
            _ => io(source),
        })?;
        disk.sync(file).map_err(io)?;
    }
    Ok(())
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

    let journal_bytes = 0..disk.len(File::Journal)?;
    let frames = (File::Journal, FrameKind::Journal, journal.generation);
    let mut newest_frame = None;
    recovery.dropped_records += each_frame(disk, frames, journal_bytes.clone(), |frame| {
        newest_frame = newest_frame.max(Some(frame.epoch));
    })?;

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
    let (mut last, epoch) = (None, journal.epoch);
    each_frame(disk, frames, journal_bytes.clone(), |frame| {
        if frame.epoch != epoch {
            return;
        }
        if last.is_some_and(|last| frame.sequence <= last) {
            recovery.dropped_records += 1;
            return;
        }
        last = Some(frame.sequence);
        let (applied, dropped) = apply(index, &frame);
        recovery.journal_records += applied;
        recovery.dropped_records += dropped;
    })?;
    Ok(rest || !journal_bytes.is_empty())
}

/// Applies the body of a checkpoint, as far as it is whole.
fn load_checkpoint(
    disk: &dyn Disk,
    file: File,
    header: CheckpointHeader,
    index: &mut Index,
    recovery: &mut Recovery,
) -> io::Result<()> {
    let start = BLOCK_BYTES as u64;
    let whole = start.saturating_add(header.body_bytes);
    let end = disk.len(file)?.min(whole);
    recovery.dropped_records += u64::from(end < whole);
    let frames = (file, FrameKind::Checkpoint, header.generation);
    let mut dropped = 0;
    let damaged = each_frame(disk, frames, start.min(end)..end, |frame| {
        if frame.epoch == header.epoch {
            dropped += apply(index, &frame).1;
        }
    })?;
    recovery.dropped_records += dropped + damaged;
    Ok(())
}

/// Calls `each` with the whole frames of a part of a file, a few MiB in memory at a
/// time; says how many stretches were none.
fn each_frame(
    disk: &dyn Disk,
    (file, kind, generation): (File, FrameKind, u64),
    part: Range<u64>,
    mut each: impl FnMut(Frame<'_>),
) -> io::Result<u64> {
    let (mut at, mut damaged) = (part.start, 0);
    let mut bytes = Vec::new();
    while at < part.end {
        let more = usize::try_from(part.end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let kept = bytes.len();
        bytes.resize(kept + more, 0);
        disk.read_at(file, at, &mut bytes[kept..])?;
        at += more as u64;
        // A frame that may go on in the next part is left for then.
        let keep = if at < part.end { FRAME_BYTES_MAX } else { 0 };
        let mut reader = FrameReader::new(kind, generation, &bytes);
        while let Some(frame) = reader.next_before(keep) {
            each(frame);
        }
        damaged += reader.damaged();
        let done = bytes.len() - reader.rest();
        bytes.drain(..done);
    }
    Ok(damaged)
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

/// Bytes of a checkpoint or journal read at once: many times the longest frame.
const CHUNK_BYTES: usize = 4 << 20;

/// The first `max` bytes of `file`, or all.
fn head(disk: &dyn Disk, file: File, max: usize) -> io::Result<Vec<u8>> {
    let len = usize::try_from(disk.len(file)?).unwrap_or(usize::MAX).min(max);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.resize(len, 0);
    disk.read_at(file, 0, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FrameWriter;

    /// A disk of one file that is only read.
    #[derive(Debug)]
    struct One(Vec<u8>);

    impl Disk for One {
        fn len(&self, _: File) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
        fn read_at(&self, _: File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            buf.copy_from_slice(&self.0[from..from + buf.len()]);
            Ok(())
        }
        fn write_at(&self, _: File, _: u64, _: &[u8]) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }
        fn set_len(&self, _: File, _: u64) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }
        fn allocate(&self, _: File, _: u64) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }
        fn sync(&self, _: File) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }
    }

    /// The sequence numbers of all frames, and the damaged stretches.
    fn frames(bytes: Vec<u8>) -> (Vec<u64>, u64) {
        let (part, mut found) = (0..bytes.len() as u64, Vec::new());
        let what = (File::Journal, FrameKind::Journal, 9);
        let damaged = each_frame(&One(bytes), what, part, |frame| found.push(frame.sequence));
        (found, damaged.unwrap())
    }

    #[test]
    fn a_journal_read_in_parts_is_read_whole() {
        let mut writer = FrameWriter::new(FrameKind::Journal, 9, 0, 0);
        let entry = Entry::Forget(7.into());
        while writer.len() < 2 * CHUNK_BYTES + FRAME_BYTES_MAX {
            writer.entry(|bytes| entry.encode(bytes));
        }
        let bytes = writer.take();
        let all: Vec<u64> = (0..writer.sequence()).collect();
        assert_eq!(frames(bytes.clone()), (all.clone(), 0));
        // A frame across two parts, damaged: it alone is lost.
        let mut torn = bytes.clone();
        torn[CHUNK_BYTES] ^= 1;
        let (found, damaged) = frames(torn);
        assert_eq!((found.len(), damaged >= 1), (all.len() - 1, true));
        // Nothing but garbage for longer than a part.
        let mut gone = bytes;
        gone[100..CHUNK_BYTES + 100_000].fill(b'W');
        let (found, damaged) = frames(gone);
        assert!(damaged >= 1 && all.ends_with(&found) && found.len() > all.len() / 3, "{found:?}");
    }
}
