//! Finding a place for bytes, and noting them once they are there.

use weir_ranges::{ByteRange, GROUP_BYTES, RangeSet};

use super::{GroupId, Index, Object, Record, Unit, extent_of};
use crate::format::Run;
use crate::space::Extent;
use crate::units::{CLUSTER_SLOTS, Window};

/// Where a window of a group may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Here; pinned until [`Index::note_written`] or [`Index::give_up`].
    Ready(Place),
    /// Extents wait for a commit; ask again after one.
    Reclaim,
    /// Nowhere: nothing that could go is worth less.
    Declined,
    /// Nowhere: what is held is pinned.
    Full,
}

/// A place to write a window of a group to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: GroupId,
    /// What belongs there: at least the window asked for.
    pub(crate) window: Window,
    pub(crate) extent: Extent,
    /// What the group has now, also pinned; moves to the place unless it is the same.
    pub(crate) old: Option<Extent>,
}

/// What was written of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// All of it; its mark is in the table.
    Whole,
    /// These runs, and nothing else of it, ascending and apart.
    Runs(Vec<Run>),
}

impl Place {
    /// Whether the group's other bytes must be brought along.
    pub(crate) fn moves(&self) -> bool {
        self.old.is_some_and(|old| old != self.extent)
    }

    /// The slot for the group's segment `segment`, which is in the window.
    pub(crate) fn slot_of(&self, segment: u8) -> u32 {
        self.extent.slot + u32::from(segment - self.window.first())
    }
}

impl Index {
    /// Finds a place for `window` of a group, beside what is held of it. Drops what
    /// is least worth keeping when little space is left.
    pub(crate) fn claim(&mut self, id: GroupId, window: Window) -> Claim {
        let held = self.record(id).copied();
        let old = held.as_ref().map(extent_of);
        let window = held.map_or(window, |record| record.window().join(window));
        let extent = match (held, old) {
            (Some(record), Some(old)) if record.window() == window => old,
            _ => match self.take(id, window) {
                Ok(extent) => extent,
                Err(refused) => return refused,
            },
        };
        self.pin(extent.slot);
        let moves = old.filter(|old| *old != extent);
        if let Some(old) = moves {
            self.pin(old.slot);
        }
        self.evict_ahead(id);
        Claim::Ready(Place { id, window, extent, old })
    }

    /// What of `part` is held of a group already, and what is not.
    pub(crate) fn compare(&self, id: GroupId, part: ByteRange) -> (Vec<Unit>, RangeSet) {
        let mut units = Vec::new();
        self.units(id, part, &mut units);
        let mut holes: RangeSet = [part].into_iter().collect();
        for unit in &units {
            holes.remove(unit.range);
        }
        (units, holes)
    }

    /// Drops the segments of `units`, which are about to be written anew.
    pub(crate) fn replace(&mut self, units: &[Unit]) {
        for unit in units {
            self.drop_segment(unit.id, unit.segment);
        }
    }

    /// Notes what is on disk at `place` now, by segment. Says no, and nothing is held
    /// of it, when what was held of the group has gone since it was claimed.
    pub(crate) fn note_written(
        &mut self,
        place: &Place,
        written: Vec<(u8, Written)>,
        now: u32,
    ) -> bool {
        let held = self.record(place.id).copied();
        let current = held.as_ref().map(extent_of);
        let stands = current == place.old;
        // A gone group's place is freed with it; a new place is nobody's yet.
        if !stands {
            self.give_up(place);
            return false;
        }
        let moves = place.moves();
        let mut record = match held {
            Some(record) if !moves => record,
            _ => Record::new(place.window, place.extent.slot),
        };
        let before = held.map_or((0, 0), |record| self.tally(&record));
        if let (true, Some(old)) = (moves, held) {
            self.drop_runs(&old);
        }
        for (segment, what) in written {
            let slot = place.slot_of(segment);
            match what {
                Written::Whole => {
                    record.present |= 1 << segment;
                    self.runs.remove(&slot);
                }
                Written::Runs(runs) if record.present & 1 << segment == 0 => {
                    self.runs.insert(slot, runs);
                }
                Written::Runs(_) => {}
            }
        }
        let partial = |segment: u8| self.runs.contains_key(&record.slot_of(segment));
        let is_partial = record.window().segments().any(partial);
        record.set_partial(is_partial);
        record.set_dirty(held.is_some_and(|record| record.is_dirty()));
        if place.old.is_none() || moves {
            self.stats.used_bytes += place.extent.bytes();
        }
        self.link(place.id, record, held.is_some());
        let after = self.tally(&record);
        self.count(place.id.object, before, after);
        let added = after.0.saturating_sub(before.0);
        self.stats.written_bytes += added;
        self.stats.dirty_bytes += added;
        self.mark_dirty(place.id);
        self.touch(place.id, now);
        if let (true, Some(old)) = (moves, place.old) {
            self.unpin(old.slot);
            self.stats.used_bytes -= old.bytes();
            self.free_later(old);
        }
        self.unpin(place.extent.slot);
        true
    }

    /// Lets go of a place that came to nothing.
    pub(crate) fn give_up(&mut self, place: &Place) {
        let is_new = place.old != Some(place.extent);
        if let (true, Some(old)) = (is_new, place.old) {
            self.unpin(old.slot);
        }
        self.unpin(place.extent.slot);
        if is_new {
            // No record ever named it.
            self.space.give(place.extent);
        }
    }

    /// Whether the bytes of `window` of a group, which is not held, are worth what
    /// would have to go for them.
    pub(crate) fn admits(&mut self, id: GroupId, window: Window) -> bool {
        let bytes = window.class().bytes() as u64;
        let has_room = self.free_bytes_soon() >= self.reserve_bytes() + bytes;
        self.record(id).is_some() || has_room || self.worth.admits(id, bytes)
    }

    /// An extent for `window` of a group, near those of the same object.
    fn take(&mut self, id: GroupId, window: Window) -> Result<Extent, Claim> {
        let near = self.near(id);
        let taken = self.space.take(window.class(), near);
        taken.ok_or_else(|| {
            // Where there is space in pieces, one piece more seldom makes a whole.
            let bytes = window.class().bytes() as u64;
            let in_pieces = self.space.free_bytes() >= bytes;
            let enough = if in_pieces { bytes * EVICTED_AT_ONCE } else { bytes };
            while self.limbo_bytes < enough && self.evict(Some(id)) {}
            if !self.limbo.is_empty() {
                Claim::Reclaim
            } else if self.worth.has_victim() {
                Claim::Declined
            } else {
                Claim::Full
            }
        })
    }

    /// Where the group would lie if the object lay in one piece: counted from the
    /// nearest group before it that is held, else after it.
    fn near(&self, id: GroupId) -> Option<u32> {
        let groups = &self.objects.get(&id.object)?.groups;
        let before = groups.down_from(id.group).next();
        let (group, record) = before.or_else(|| groups.from(id.group + 1).next())?;
        let cluster = i64::from(record.slot / CLUSTER_SLOTS);
        let distance = i64::try_from(id.group).ok()? - i64::try_from(group).ok()?;
        u32::try_from(cluster + distance.clamp(-NEAR_MAX, NEAR_MAX)).ok()
    }

    /// Keeps a little space on the way to be free, so that a commit a second is
    /// enough and writers seldom wait for one of their own.
    fn evict_ahead(&mut self, newcomer: GroupId) {
        while self.free_bytes_soon() < self.reserve_bytes() && self.evict(Some(newcomer)) {}
    }

    /// Bytes that are free, now or after the next commit.
    const fn free_bytes_soon(&self) -> u64 {
        self.space.free_bytes() + self.limbo_bytes
    }

    fn reserve_bytes(&self) -> u64 {
        u64::from((self.clusters / 64).min(RESERVE_MAX)) * GROUP_BYTES
    }

    /// Puts the record of a group in place.
    pub(super) fn link(&mut self, id: GroupId, record: Record, is_known: bool) {
        if is_known && let Some(old) = self.record_mut(id) {
            let has_grown = old.window() != record.window();
            *old = record;
            if has_grown {
                self.worth.removed(id);
                self.worth.inserted(id, extent_of(&record).bytes());
            }
            return;
        }
        let held = self.objects.entry(id.object).or_insert_with(|| {
            if self.descriptions.contains_key(&id.object) {
                self.waiting.retain(|other| *other != id.object);
                self.described.push(id.object);
            }
            Object::default()
        });
        held.groups.insert(id.group, record);
        let bytes = extent_of(&record).bytes();
        self.worth.inserted(id, bytes);
        self.stats.groups += 1;
        self.stats.objects = self.objects.len() as u64;
    }
}

/// How many times what is wanted is evicted where it is free, but in pieces.
const EVICTED_AT_ONCE: u64 = 4;
/// Clusters kept free at most; below 64 clusters in all none is.
const RESERVE_MAX: u32 = 256;
/// How far from the next group of the object a place is still looked for, in
/// clusters.
const NEAR_MAX: i64 = 1 << 20;
