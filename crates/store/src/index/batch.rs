//! What a commit writes: changes taken out of the index, and what follows when
//! they are durable.

use super::{Index, State, place};
use crate::format::{Entry, FrameWriter, GroupState};

/// Changes on their way to the journal.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Frames that take away.
    pub(crate) removals: Vec<u8>,
    /// Frames that name bytes in the data file, which must be durable first.
    pub(crate) groups: Vec<u8>,
    /// Clusters that are free once the batch is durable.
    limbo: Vec<u32>,
    /// Bytes that are durable then.
    dirty_bytes: u64,
}

impl Index {
    /// Whether there is nothing for a commit to do.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
            && self.drops.is_empty()
            && self.forgets.is_empty()
            && self.described.is_empty()
            && self.limbo.is_empty()
    }

    /// Takes all changes, as frames of `out`.
    pub(crate) fn take_batch(&mut self, out: &mut FrameWriter) -> Batch {
        let limbo = std::mem::take(&mut self.limbo);
        // What takes away comes first: all entries are absolute, and a group that
        // was dropped and written anew must end as written.
        for object in self.forgets.drain(..) {
            out.entry(|bytes| Entry::Forget(object).encode(bytes));
        }
        let dirty = std::mem::take(&mut self.dirty);
        let emptied = dirty.iter().copied().filter(|&cluster| {
            let slot = self.slot(cluster);
            slot.state == State::Live && slot.is_empty()
        });
        self.drops.extend(emptied.collect::<Vec<_>>());
        for cluster in self.drops.drain(..) {
            out.entry(|bytes| Entry::Drop(cluster).encode(bytes));
        }
        let removals = out.take();
        for cluster in dirty {
            let slot = &mut self.slots[place(cluster)];
            slot.dirty = false;
            if slot.state == State::Live && !slot.is_empty() {
                let entry = Entry::Group(self.group_state(cluster));
                out.entry(|bytes| entry.encode(bytes));
            }
        }
        for object in std::mem::take(&mut self.described) {
            let said = self.objects.get(&object).and_then(|o| o.description.clone());
            if let Some(description) = said {
                out.entry(|bytes| Entry::Describe(object, description).encode(bytes));
            }
        }
        Batch { removals, groups: out.take(), limbo, dirty_bytes: self.stats.dirty_bytes }
    }

    /// The batch is durable.
    pub(crate) fn settle(&mut self, batch: Batch) {
        self.stats.dirty_bytes -= batch.dirty_bytes;
        for cluster in batch.limbo.into_iter().rev() {
            self.slot_mut(cluster).state = State::Free;
            self.free.push(cluster);
        }
    }

    /// Everything held in the clusters from `first`, `count` of them, for a
    /// checkpoint.
    pub(crate) fn dump_groups(&self, first: u32, count: usize, out: &mut FrameWriter) {
        for cluster in (first..self.clusters_used()).take(count) {
            let slot = self.slot(cluster);
            if slot.state == State::Live && !slot.is_empty() {
                let entry = Entry::Group(self.group_state(cluster));
                out.entry(|bytes| entry.encode(bytes));
            }
        }
    }

    /// Every description, for a checkpoint.
    pub(crate) fn dump_descriptions(&self, out: &mut FrameWriter) {
        for (object, held) in &self.objects {
            if let Some(description) = &held.description {
                let entry = Entry::Describe(*object, description.clone());
                out.entry(|bytes| entry.encode(bytes));
            }
        }
    }

    fn group_state(&self, cluster: u32) -> Box<GroupState> {
        let slot = self.slot(cluster);
        let mut runs = Vec::new();
        for segment in 0..64 {
            if slot.partial & 1 << segment != 0 {
                runs.extend(self.runs_of(cluster, segment).iter().map(|run| (segment, *run)));
            }
        }
        Box::new(GroupState {
            object: slot.object,
            group: slot.group,
            cluster,
            stamp: slot.stamp,
            present: slot.present,
            marks: *self.marks[place(cluster)],
            runs,
        })
    }
}
