//! Building the index from what the disk says. Nothing restored is dirty.

use weir_ranges::SEGMENT_BYTES;

use super::{Index, State, place};
use crate::format::{Entry, GroupState};

impl Index {
    /// Applies one entry; says no when it names a cluster past the end.
    pub(crate) fn restore(&mut self, entry: Entry) -> bool {
        match entry {
            Entry::Describe(object, description) => self.describe(object, description),
            Entry::Drop(cluster) => {
                self.vacate(cluster);
                return cluster < self.clusters;
            }
            Entry::Forget(object) => {
                let held = self.objects.get(&object);
                let clusters: Vec<u32> =
                    held.into_iter().flat_map(|o| o.groups.values().copied()).collect();
                for cluster in clusters {
                    self.vacate(cluster);
                }
                self.waiting.retain(|(other, _)| *other != object);
            }
            Entry::Group(state) => return self.restore_group(&state),
        }
        true
    }

    /// Ends the restoring: finds the free clusters and the order of use.
    pub(crate) fn restored(&mut self) {
        self.described.clear();
        self.waiting.clear();
        let live = |index: &Self, c: u32| index.slot(c).state == State::Live;
        let mut by_use: Vec<u32> = (0..self.clusters_used()).filter(|&c| live(self, c)).collect();
        by_use.sort_by_key(|&c| self.slot(c).stamp);
        for cluster in by_use {
            self.lru.push_newest(&mut self.slots, cluster);
        }
        self.free = (0..self.clusters_used()).rev().filter(|&c| !live(self, c)).collect();
    }

    fn restore_group(&mut self, state: &GroupState) -> bool {
        if state.cluster >= self.clusters {
            return false;
        }
        while self.clusters_used() <= state.cluster {
            self.add_slot();
        }
        // Each group has one cluster and each cluster one group: the later entry
        // counts.
        let elsewhere = self.objects.get(&state.object).and_then(|o| o.groups.get(&state.group));
        if let Some(&old) = elsewhere {
            self.vacate(old);
        }
        self.vacate(state.cluster);
        self.link(state.cluster, state.object, state.group);
        let slot = &mut self.slots[place(state.cluster)];
        slot.stamp = state.stamp;
        slot.present = state.present;
        *self.marks[place(state.cluster)] = state.marks;
        let mut bytes = u64::from(state.present.count_ones()) * SEGMENT_BYTES;
        for (segment, run) in &state.runs {
            slot.partial |= 1 << segment;
            self.runs.entry((state.cluster, *segment)).or_default().push(*run);
            bytes += run.len();
        }
        let segments = (slot.present | slot.partial).count_ones();
        self.count_in(state.object, bytes, u64::from(segments));
        let held = self.objects.get_mut(&state.object).expect("linked above");
        held.last_used = held.last_used.max(state.stamp);
        true
    }

    /// Empties a cluster, if there is anything in it.
    fn vacate(&mut self, cluster: u32) {
        if self.slots.get(place(cluster)).is_some_and(|slot| slot.state == State::Live) {
            // Not in the order of use yet: `unlink` would follow links that are not
            // there, so the slot is its own list for a moment.
            self.lru.push_newest(&mut self.slots, cluster);
            self.unlink(cluster);
            self.slot_mut(cluster).state = State::Free;
        }
    }
}
