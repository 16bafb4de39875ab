//! Writing: bytes go to the data file, then into the index; a commit makes them
//! durable later.

use bytes::Bytes;
use weir_ranges::{ByteRange, GROUP_BYTES, ObjectId, SEGMENT_BYTES};

use super::{STRIPES, Shared};
use crate::disk::File;
use crate::index::{Claim, Unit, Written};
use crate::units::{by_group, by_segment};
use crate::{WriteError, checksum, clock};

/// Bytes to be written and where they belong.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    offset: u64,
    data: &'a [Bytes],
}

impl Shared {
    pub(super) fn write(
        &self,
        object: ObjectId,
        offset: u64,
        data: &[Bytes],
    ) -> Result<(), WriteError> {
        let len = data.iter().map(|part| part.len() as u64).sum();
        let range = ByteRange::at(offset, len).ok_or(WriteError::OutOfRange)?;
        if self.index().stats.degraded {
            return Err(WriteError::Degraded);
        }
        for (group, part) in by_group(range) {
            self.write_group(object, group, part, Source { offset, data })?;
        }
        let dirty = self.index().stats.dirty_bytes;
        let bound = self.tuning.dirty_bytes_max;
        if dirty > bound.saturating_mul(2) || (dirty > bound && !self.has_syncer) {
            self.commit()?;
        } else if dirty > bound {
            self.kick();
        }
        Ok(())
    }

    /// Writes `part` of one group. One writer at a time, so that two cannot take the
    /// same hole.
    fn write_group(
        &self,
        object: ObjectId,
        group: u64,
        part: ByteRange,
        source: Source<'_>,
    ) -> Result<(), WriteError> {
        let hash = checksum::place(object, group);
        let stripe = &self.stripes[usize::try_from(hash).unwrap_or_default() % STRIPES];
        let _one_writer = stripe.lock().expect("a panic in the store ends the process");
        let cluster = self.claim(object, group)?;
        let filled = self.fill(cluster, part, source);
        self.index().unpin(cluster);
        filled
    }

    /// Pins a cluster for a group, with a commit where that makes one free.
    fn claim(&self, object: ObjectId, group: u64) -> Result<u32, WriteError> {
        for _ in 0..CLAIMS_MAX {
            let claim = self.index().claim(object, group, clock::unix_seconds());
            match claim {
                Claim::Ready(cluster) => return Ok(cluster),
                Claim::Reclaim => self.commit()?,
                Claim::Full => break,
            }
        }
        self.index().stats.full_refusals += 1;
        Err(WriteError::Full)
    }

    /// Writes what is not yet held of `part` into the pinned `cluster`.
    fn fill(&self, cluster: u32, part: ByteRange, source: Source<'_>) -> Result<(), WriteError> {
        let (held, mut holes) = self.index().compare(cluster, part);
        let differs = |unit: &Unit| !self.holds(unit, part, source);
        let stale: Vec<Unit> = held.into_iter().filter(differs).collect();
        if !stale.is_empty() {
            self.index().replace(&stale);
            // Bytes are not written over while the journal names them.
            self.commit()?;
            holes = self.index().compare(cluster, part).1;
        }
        let mut written = Vec::new();
        for hole in holes.iter() {
            let base = u64::from(cluster) * GROUP_BYTES;
            let mut at = base + hole.start() % GROUP_BYTES;
            for slice in source.slices(hole) {
                if let Err(why) = self.disk.write_at(File::Data, at, slice) {
                    self.degrade();
                    return Err(why.into());
                }
                at += slice.len() as u64;
            }
            let group = hole.start() / GROUP_BYTES * GROUP_BYTES;
            written.extend(by_segment(hole).map(|piece| {
                let segment = group + u64::from(piece.segment) * SEGMENT_BYTES;
                let start = segment + u64::from(piece.start);
                let range = ByteRange::at(start, u64::from(piece.end - piece.start))
                    .expect("a piece lies in its hole");
                Written { piece, crc: checksum::crc32c_of(source.slices(range)) }
            }));
        }
        if !written.is_empty() {
            self.index().note_written(cluster, &written);
        }
        Ok(())
    }

    /// Whether the disk has, for `unit`, what `source` says within `part`.
    fn holds(&self, unit: &Unit, part: ByteRange, source: Source<'_>) -> bool {
        let Some(bytes) = self.fetch_one(unit) else { return false };
        let Some(common) = unit.range.intersection(part) else { return true };
        let from = place(common.start() - unit.range.start());
        let mut old = &bytes[from..from + place(common.len())];
        source.slices(common).all(|new| {
            let (head, tail) = old.split_at(new.len());
            old = tail;
            head == new
        })
    }
}

impl<'a> Source<'a> {
    /// The bytes of `range`, in as many slices as they came in.
    fn slices(self, range: ByteRange) -> impl Iterator<Item = &'a [u8]> {
        let mut next = self.offset;
        self.data.iter().filter_map(move |part| {
            let here = ByteRange::at(next, part.len() as u64)?;
            next = here.end();
            let common = here.intersection(range)?;
            let from = place(common.start() - here.start());
            Some(&part[from..from + place(common.len())])
        })
    }
}

/// A distance within one buffer, as a place in it.
fn place(distance: u64) -> usize {
    usize::try_from(distance).expect("a distance within a buffer is below its length")
}

/// How often other writers may take a cluster that a commit made free before a
/// writer gives up.
const CLAIMS_MAX: usize = 16;
