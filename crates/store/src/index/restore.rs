//! Building the index from what the disk says. Nothing restored is dirty.

use weir_ranges::ObjectId;

use super::{GroupId, Index, Record, extent_of};
use crate::format::{Entry, GroupState};
use crate::space::Extent;

impl Index {
    /// Applies one entry; says no when it names a place past the end.
    pub(crate) fn restore(&mut self, entry: Entry) -> bool {
        match entry {
            Entry::Describe(object, description) => self.describe(object, description),
            Entry::Drop(object, group) => self.vacate(GroupId { object, group }),
            Entry::Forget(object) => {
                for group in self.groups_of(object) {
                    self.vacate(GroupId { object, group });
                }
                self.waiting.retain(|other| *other != object);
                self.descriptions.remove(&object);
            }
            Entry::Group(state) => return self.restore_group(state),
        }
        true
    }

    /// Ends the restoring: finds the order of use.
    pub(crate) fn restored(&mut self) {
        self.described.clear();
        for object in std::mem::take(&mut self.waiting) {
            self.descriptions.remove(&object);
        }
        let mut by_use: Vec<(u32, ObjectId)> =
            self.objects.iter().map(|(&object, held)| (held.last_used, object)).collect();
        by_use.sort_unstable();
        for (_, object) in by_use {
            // Held once, wanted once: what is known of it is that it was.
            self.worth.wanted(object);
            for group in self.groups_of(object) {
                let id = GroupId { object, group };
                let bytes = self.record(id).map_or(0, |record| extent_of(record).bytes());
                self.worth.removed(id);
                self.worth.inserted(id, bytes);
            }
        }
    }

    fn restore_group(&mut self, state: GroupState) -> bool {
        let id = GroupId { object: state.object, group: state.group };
        self.vacate(id);
        let extent = Extent { slot: state.slot, class: state.window.class() };
        if !self.space.take_exactly(extent) {
            // Only damage makes two groups claim one place; the later counts.
            self.vacate_overlapping(extent);
            if !self.space.take_exactly(extent) {
                return false;
            }
        }
        self.stats.used_bytes += extent.bytes();
        let mut record = Record::new(state.window, state.slot);
        record.present = state.present;
        record.set_partial(!state.runs.is_empty());
        for of_segment in state.runs.chunk_by(|a, b| a.0 == b.0) {
            let runs = of_segment.iter().map(|(_, run)| *run).collect();
            self.runs.insert(record.slot_of(of_segment[0].0), runs);
        }
        self.link(id, record, false);
        let after = self.tally(&record);
        self.count(id.object, (0, 0), after);
        if let Some(held) = self.objects.get_mut(&id.object) {
            held.last_used = held.last_used.max(state.stamp);
        }
        true
    }

    /// Empties a group, if there is anything in it.
    fn vacate(&mut self, id: GroupId) {
        if let Some(extent) = self.detach(id) {
            self.space.give(extent);
        }
    }

    /// Empties the groups that have a part of `extent`. Looks at every group there
    /// is, so that a journal full of such claims must not have it all.
    fn vacate_overlapping(&mut self, extent: Extent) {
        if self.scans_left == 0 {
            return;
        }
        self.scans_left -= 1;
        let overlaps = |record: &Record| {
            let other = extent_of(record);
            other.overlaps(extent)
        };
        let mut found = Vec::new();
        for (&object, held) in &self.objects {
            let groups = held.groups.from(0).filter(|(_, record)| overlaps(record));
            found.extend(groups.map(|(group, _)| GroupId { object, group }));
        }
        for id in found {
            self.vacate(id);
        }
    }
}
