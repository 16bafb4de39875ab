//! What a commit writes: changes taken out of the index, and what follows when
//! they are durable.

use weir_ranges::ObjectId;

use super::{GroupId, Index, Object, Record};
use crate::format::{Entry, FrameWriter, GroupState};
use crate::space::Extent;

/// Changes on their way to the journal.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Frames that take away.
    pub(crate) removals: Vec<u8>,
    /// Frames that name bytes in the data file, which must be durable first.
    pub(crate) groups: Vec<u8>,
    /// Extents that are free once the batch is durable.
    limbo: Vec<Extent>,
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
        self.limbo_bytes = 0;
        // What takes away comes first: all entries are absolute, and a group that
        // was dropped and written anew must end as written.
        for object in self.forgets.drain(..) {
            out.entry(|bytes| Entry::Forget(object).encode(bytes));
        }
        for id in self.drops.drain(..) {
            out.entry(|bytes| Entry::Drop(id.object, id.group).encode(bytes));
        }
        let removals = out.take();
        for id in std::mem::take(&mut self.dirty) {
            let Some(record) = self.record_mut(id) else { continue };
            // A group may be listed twice: dropped in between and held again.
            if record.is_dirty() {
                record.set_dirty(false);
                let record = *record;
                let entry = Entry::Group(self.group_state(id, &record));
                out.entry(|bytes| entry.encode(bytes));
            }
        }
        for object in std::mem::take(&mut self.described) {
            if self.objects.contains_key(&object)
                && let Some(description) = self.descriptions.get(&object)
            {
                let entry = Entry::Describe(object, description.clone());
                out.entry(|bytes| entry.encode(bytes));
            }
        }
        Batch { removals, groups: out.take(), limbo, dirty_bytes: self.stats.dirty_bytes }
    }

    /// The batch is durable.
    pub(crate) fn settle(&mut self, batch: Batch) {
        self.stats.dirty_bytes -= batch.dirty_bytes;
        for extent in batch.limbo {
            self.space.give(extent);
        }
    }

    /// What is held of `object` from group `from` on, of at most `count` groups, for
    /// a checkpoint, with its description at the end; says where to go on.
    pub(crate) fn dump(
        &self,
        object: ObjectId,
        from: u64,
        count: usize,
        out: &mut FrameWriter,
    ) -> Option<u64> {
        let held = self.objects.get(&object)?;
        let mut groups = held.groups.from(from);
        for (group, record) in groups.by_ref().take(count) {
            let entry = Entry::Group(self.group_state(GroupId { object, group }, record));
            out.entry(|bytes| entry.encode(bytes));
        }
        let next = groups.next().map(|(group, _)| group);
        if let (None, Some(description)) = (next, self.descriptions.get(&object)) {
            let entry = Entry::Describe(object, description.clone());
            out.entry(|bytes| entry.encode(bytes));
        }
        next
    }

    fn group_state(&self, id: GroupId, record: &Record) -> GroupState {
        let mut runs = Vec::new();
        if record.is_partial() {
            for segment in record.window().segments() {
                runs.extend(self.runs_of(record, segment).iter().map(|run| (segment, *run)));
            }
        }
        GroupState {
            object: id.object,
            group: id.group,
            slot: record.slot,
            window: record.window(),
            stamp: self.objects.get(&id.object).map_or(0, |held: &Object| held.last_used),
            present: record.present,
            runs,
        }
    }
}
