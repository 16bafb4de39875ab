//! Writing: bytes are gathered by group; a gathered group goes to disk when it is
//! complete, old, or its memory is wanted.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use weir_ranges::{ByteRange, GROUP_BYTES, ObjectId, RangeSet, SEGMENT_BYTES};

use super::Shared;
use super::shard::{Gather, Shard, in_group};
use crate::index::{GroupId, Mark, Unit};
use crate::units::{Window, by_group, by_segment};
use crate::{WriteError, checksum};

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
            self.write_group(GroupId { object, group }, part, Source { offset, data })?;
        }
        self.bound_dirty()
    }

    /// Makes bytes durable when too many are not.
    fn bound_dirty(&self) -> Result<(), WriteError> {
        let memory = self.gathered_memory.load(Ordering::Relaxed);
        let is_above = |times: u64| {
            self.dirty_bytes() > self.tuning.dirty_bytes_max.saturating_mul(times)
                || memory > self.gathered_memory_max.saturating_mul(times)
        };
        if is_above(2) || (is_above(1) && !self.has_syncer) {
            self.flush_and_commit()?;
        } else if is_above(1) {
            self.kick();
        }
        Ok(())
    }

    /// Gathers what is not held yet of `part` of one group. The shard's lock makes
    /// this the group's one writer.
    fn write_group(
        &self,
        id: GroupId,
        part: ByteRange,
        source: Source<'_>,
    ) -> Result<(), WriteError> {
        let mut shard = self.shard(id);
        let holes = self.make_way(&mut shard, id, part, source)?;
        if holes.is_empty() {
            return Ok(());
        }
        shard.changes += 1;
        shard.spoil(id, part);
        let start = id.group * GROUP_BYTES;
        let window = holes.iter().map(Window::of).reduce(Window::join).unwrap_or(Window::GROUP);
        if !shard.gathers.contains_key(&id) {
            let mut index = self.index();
            if !index.admits(id, window) {
                index.stats.declined_bytes += holes.bytes();
                return Ok(());
            }
        }
        self.make_gather(&mut shard, id, window);
        let gather = shard.gathers.get_mut(&id).expect("just made");
        let mut added = 0;
        for hole in holes.iter() {
            added += gather.fill(hole.start() - start, source.slices(hole));
        }
        let is_whole = gather.filled.bytes() == GROUP_BYTES;
        self.gathered_bytes.fetch_add(added, Ordering::Relaxed);
        if is_whole { self.flush(&mut shard, id) } else { Ok(()) }
    }

    /// Says what of `part` is neither on disk nor gathered as `source` has it. Where
    /// other bytes are held, their segments are dropped first, durably: bytes are
    /// not written over while the journal names them.
    fn make_way(
        &self,
        shard: &mut Shard,
        id: GroupId,
        part: ByteRange,
        source: Source<'_>,
    ) -> Result<RangeSet, WriteError> {
        let (held, mut holes) = self.index().compare(id, part);
        let mut stale = 0_u64;
        for unit in held.iter().filter(|unit| !self.holds(unit, part, source)) {
            stale |= 1 << unit.segment;
        }
        let start = id.group * GROUP_BYTES;
        if let Some(gather) = shard.gathers.get(&id) {
            for piece in by_segment(part) {
                let segment = start + u64::from(piece.segment) * SEGMENT_BYTES;
                let at = |offset: u16| segment + u64::from(offset);
                let range = ByteRange::new(at(piece.start), at(piece.end));
                let inner = in_group(range.expect("a piece is not empty"), start);
                let gathered = gather.filled.iter().filter_map(|range| range.intersection(inner));
                let differs = |common: ByteRange| {
                    let outer = ByteRange::at(start + common.start(), common.len());
                    let new = source.slices(outer.expect("within the object"));
                    !same(gather.bytes(common), new)
                };
                if gathered.into_iter().any(differs) {
                    stale |= 1 << piece.segment;
                }
            }
        }
        if stale == 0 {
            if let Some(gather) = shard.gathers.get(&id) {
                for range in gather.filled.iter() {
                    let outer = ByteRange::at(start + range.start(), range.len());
                    holes.remove(outer.expect("within the object"));
                }
            }
            return Ok(holes);
        }
        shard.changes += 1;
        let mut dropped = false;
        for segment in (0..64).filter(|segment| stale & 1 << segment != 0) {
            let range = segment_range(id, segment);
            shard.spoil(id, range);
            if let Some(gather) = shard.gathers.get_mut(&id) {
                let gone = gather.filled.remove(in_group(range, start));
                self.gathered_bytes.fetch_sub(gone, Ordering::Relaxed);
            }
            let mut index = self.index();
            let (units, _) = index.compare(id, range);
            dropped |= !units.is_empty();
            index.replace(&units);
        }
        if dropped {
            self.commit_soon()?;
        }
        self.make_way(shard, id, part, source)
    }

    /// Makes sure that a group is gathered in a frame with a place for `window`.
    fn make_gather(&self, shard: &mut Shard, id: GroupId, window: Window) {
        let wanted = shard.gathers.get(&id).map_or(window, |gather| gather.window.join(window));
        if shard.gathers.get(&id).is_some_and(|gather| gather.window == wanted) {
            return;
        }
        let frame = self.frame(shard, wanted.class().bytes());
        self.gathered_memory.fetch_add(frame.len() as u64, Ordering::Relaxed);
        match shard.gathers.get_mut(&id) {
            Some(gather) => {
                self.gathered_memory.fetch_sub(gather.frame.len() as u64, Ordering::Relaxed);
                gather.grow(wanted, frame);
            }
            None => {
                let (filled, since) = (RangeSet::new(), self.round());
                shard.gathers.insert(id, Gather { window: wanted, frame, filled, since });
            }
        }
    }

    /// Whether the disk has, for `unit`, what `source` says within `part`.
    fn holds(&self, unit: &Unit, part: ByteRange, source: Source<'_>) -> bool {
        let Some(common) = unit.range.intersection(part) else { return true };
        if common == unit.range && unit.mark == Mark::Table {
            // The checksum tells without a read.
            // Where it cannot be asked, what is held stays.
            let mark = self.marks.get(&*self.disk, unit.slot);
            let crc = checksum::crc32c_of(source.slices(common));
            return mark.map_or(true, |mark| unit.has(crc, mark));
        }
        let Some(bytes) = self.fetch_one(unit) else { return false };
        let place = |at: u64| super::shard::local(at - unit.range.start());
        same(&bytes[place(common.start())..place(common.end())], source.slices(common))
    }
}

/// Whether `old` is what `new` is, one part after another.
fn same<'a>(mut old: &[u8], mut new: impl Iterator<Item = &'a [u8]>) -> bool {
    new.all(|part| {
        let (head, tail) = old.split_at(part.len().min(old.len()));
        old = tail;
        head == part
    })
}

/// All bytes of a segment.
pub(super) fn segment_range(id: GroupId, segment: u8) -> ByteRange {
    let start = id.group * GROUP_BYTES + u64::from(segment) * SEGMENT_BYTES;
    ByteRange::new(start, start.saturating_add(SEGMENT_BYTES)).expect("its order is kept")
}

impl<'a> Source<'a> {
    /// The bytes of `range`, in as many slices as they came in.
    fn slices(self, range: ByteRange) -> impl Iterator<Item = &'a [u8]> {
        let mut next = self.offset;
        self.data.iter().filter_map(move |part| {
            let here = ByteRange::at(next, part.len() as u64)?;
            next = here.end();
            let common = here.intersection(range)?;
            let place = |at: u64| usize::try_from(at - here.start()).expect("within a buffer");
            Some(&part[place(common.start())..place(common.end())])
        })
    }
}
