//! Finding a place for bytes, and noting them once they are there.

use hashbrown::hash_map::Entry;
use weir_ranges::{ByteRange, ObjectId, RangeSet, SEGMENT_BYTES};

use super::{Index, NONE, Slot, State, Unit, place, runs};
use crate::format::Run;
use crate::units::{GROUP_LEN, Piece, SEGMENT_LEN};

/// Where a group may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// In this cluster, now pinned.
    Ready(u32),
    /// Clusters wait for a commit; ask again after one.
    Reclaim,
    /// Nowhere: every cluster is pinned.
    Full,
}

/// A piece of a segment that is on disk, and its CRC32C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Which bytes.
    pub(crate) piece: Piece,
    /// Their checksum, not yet bound to a place.
    pub(crate) crc: u32,
}

impl Index {
    /// Finds or makes the cluster of a group and pins it. Drops what was used
    /// longest ago when few clusters are left.
    pub(crate) fn claim(&mut self, object: ObjectId, group: u64, now: u32) -> Claim {
        let held = self.objects.get(&object).and_then(|o| o.groups.get(&group));
        let (claim, cluster) = match held {
            Some(&cluster) => (Claim::Ready(cluster), cluster),
            None => match self.place_new(object, group) {
                Claim::Ready(cluster) => (Claim::Ready(cluster), cluster),
                refusal @ (Claim::Reclaim | Claim::Full) => return refusal,
            },
        };
        self.slot_mut(cluster).pins += 1;
        self.touch(cluster, now);
        self.evict_ahead();
        claim
    }

    /// What of `part` the pinned `cluster` holds already, and what it does not.
    /// Nothing is held when the cluster was dropped since it was claimed.
    pub(crate) fn compare(&self, cluster: u32, part: ByteRange) -> (Vec<Unit>, RangeSet) {
        let mut units = Vec::new();
        if self.slot(cluster).state == State::Live {
            self.units(cluster, part, &mut units);
        }
        let mut holes: RangeSet = [part].into_iter().collect();
        for unit in &units {
            holes.remove(unit.range);
        }
        (units, holes)
    }

    /// Drops the segments of `units`, which are about to be written anew.
    pub(crate) fn replace(&mut self, units: &[Unit]) {
        for unit in units {
            if self.slot(unit.cluster).state == State::Live {
                self.drop_segment(unit.cluster, unit.segment);
                self.mark_dirty(unit.cluster);
            }
        }
    }

    /// Notes that `pieces` of the pinned `cluster` are on disk. Nothing happens when
    /// it was dropped since it was claimed.
    pub(crate) fn note_written(&mut self, cluster: u32, pieces: &[Written]) {
        if self.slot(cluster).state != State::Live {
            return;
        }
        let mut added = 0;
        for written in pieces {
            added += self.note_piece(cluster, *written);
        }
        self.stats.written_bytes += added;
        self.stats.dirty_bytes += added;
        self.mark_dirty(cluster);
    }

    /// Drops the group used longest ago that nobody is at. Says whether there was
    /// one.
    pub(crate) fn evict(&mut self) -> bool {
        let Some(cluster) = self.lru.oldest_unpinned(&self.slots) else { return false };
        let before = self.stats.held_bytes;
        self.release(cluster);
        self.stats.evicted_bytes += before - self.stats.held_bytes;
        true
    }

    /// Makes the first group, or one more, of `object` live in a free cluster.
    fn place_new(&mut self, object: ObjectId, group: u64) -> Claim {
        let cluster = if let Some(cluster) = self.free.pop() {
            cluster
        } else if self.clusters_used() < self.clusters {
            let cluster = self.clusters_used();
            self.add_slot();
            cluster
        } else if !self.limbo.is_empty() || self.evict() {
            return Claim::Reclaim;
        } else {
            return Claim::Full;
        };
        self.link(cluster, object, group);
        self.lru.push_newest(&mut self.slots, cluster);
        Claim::Ready(cluster)
    }

    /// Keeps a few clusters on the way to be free, so that a commit a second is
    /// enough and writers seldom wait for one of their own.
    fn evict_ahead(&mut self) {
        let reserve = place((self.clusters / 64).min(RESERVE_MAX));
        let unused = place(self.clusters - self.clusters_used());
        while unused + self.free.len() + self.limbo.len() < reserve && self.evict() {}
    }

    /// Makes room in the tables for one more cluster.
    pub(super) fn add_slot(&mut self) {
        self.slots.push(Slot {
            object: ObjectId::from(0),
            group: 0,
            present: 0,
            partial: 0,
            newer: NONE,
            older: NONE,
            pins: 0,
            stamp: 0,
            state: State::Free,
            dirty: false,
        });
        self.marks.push(Box::new([0; GROUP_LEN]));
    }

    /// Gives a free cluster, not in the order of use, to a group that has none.
    pub(super) fn link(&mut self, cluster: u32, object: ObjectId, group: u64) {
        let slot = self.slot_mut(cluster);
        debug_assert_eq!(slot.state, State::Free);
        (slot.object, slot.group, slot.state) = (object, group, State::Live);
        let held = match self.objects.entry(object) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => {
                let said = self.waiting.iter().position(|(other, _)| *other == object);
                let said = said.and_then(|at| self.waiting.remove(at));
                let held = place.insert(super::Object::default());
                if let Some((_, description)) = said {
                    held.description = Some(description);
                    self.described.push(object);
                }
                held
            }
        };
        held.groups.insert(group, cluster);
        self.stats.groups += 1;
        self.stats.objects = self.objects.len() as u64;
    }

    /// Adds one piece; says how many bytes that were not held before.
    fn note_piece(&mut self, cluster: u32, written: Written) -> u64 {
        let Piece { segment, start, end } = written.piece;
        let slot = &mut self.slots[place(cluster)];
        let mark_place = slot.place_mark(segment);
        let run = Run { start, end, mark: written.crc ^ mark_place };
        let bit = 1u64 << segment;
        if slot.present & bit != 0 {
            return 0;
        }
        let mut runs = self.runs.remove(&(cluster, segment)).unwrap_or_default();
        let added = runs::insert(&mut runs, run, mark_place);
        let whole = runs.first().filter(|run| run.len() == SEGMENT_BYTES).map(|run| run.mark);
        let is_new = slot.partial & bit == 0;
        if let Some(mark) = whole {
            slot.present |= bit;
            slot.partial &= !bit;
            self.marks[place(cluster)][usize::from(segment)] = mark;
        } else {
            slot.partial |= bit;
            self.runs.insert((cluster, segment), runs);
        }
        if !added {
            return 0;
        }
        let object = slot.object;
        self.count_in(object, run.len(), u64::from(is_new));
        run.len()
    }

    /// Adds to the levels of the store and of one object.
    pub(super) fn count_in(&mut self, object: ObjectId, bytes: u64, segments: u64) {
        self.stats.held_bytes += bytes;
        self.stats.segments += segments;
        let held = self.objects.get_mut(&object).expect("a live cluster belongs to an object");
        held.bytes += bytes;
        held.segments += segments;
    }
}

const _: () = assert!(SEGMENT_LEN <= u16::MAX as u32);

/// Clusters kept free at most; below 64 clusters in all none is.
const RESERVE_MAX: u32 = 256;
