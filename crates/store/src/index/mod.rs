//! The index: which bytes of which object are on disk, and where.
//!
//! Pure: it names places on disk and never goes there; time is an argument. A group
//! of an object has one extent, as long as the window of the group that it holds.
//! Within a group, a whole segment is a bit; what is held of any other segment is a
//! short list of runs in a side table.
//!
//! An extent's life, and why a record on disk never points at another's bytes:
//!
//! ```text
//!  free ──claim──► held ──release, nobody reads──► limbo ──commit──► free
//!                    └────release, pinned──► doomed ──unpin──► limbo
//! ```
//!
//! An extent leaves limbo only when the journal durably says that it was dropped
//! ([`Index::settle`]). Bytes once held are never changed while they are held.

mod batch;
mod groups;
mod reading;
mod restore;
#[cfg(test)]
mod tests;
mod worth;
mod writing;

use std::collections::VecDeque;

use hashbrown::HashMap;
use weir_policy::Kind;
use weir_ranges::{ByteRange, GROUP_BYTES, ObjectId, SEGMENT_BYTES};

use crate::format::Run;
use crate::space::{Extent, Space};
use crate::units::{GROUP_LEN, Piece, by_group, by_segment};
use crate::{Description, ObjectSummary, Stats};

pub(crate) use reading::{Mark, Plan, Unit, whole};
pub(crate) use writing::{Claim, Place, Written};

use groups::{Groups, Record};
use worth::Worth;

/// A group of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupId {
    pub(crate) object: ObjectId,
    pub(crate) group: u64,
}

/// The index of one store.
#[derive(Debug)]
pub(crate) struct Index {
    objects: HashMap<ObjectId, Object>,
    descriptions: HashMap<ObjectId, Description>,
    /// By slot, for segments that are held in part.
    runs: HashMap<u32, Vec<Run>>,
    space: Space,
    /// By first slot: extents that somebody reads or writes.
    pins: HashMap<u32, Pin>,
    limbo: Vec<Extent>,
    limbo_bytes: u64,
    /// How often restoring may still look for who else claims a place.
    scans_left: u32,
    /// Clusters of the data file.
    clusters: u32,
    worth: Worth,
    /// Not yet journalled: changed groups, dropped groups, forgotten objects,
    /// objects with a new description.
    dirty: Vec<GroupId>,
    drops: Vec<GroupId>,
    forgets: Vec<ObjectId>,
    described: Vec<ObjectId>,
    /// Objects with a description and no bytes, oldest first; at most
    /// [`WAITING_MAX`].
    waiting: VecDeque<ObjectId>,
    /// Counters of the whole store; the levels in it are kept here too.
    pub(crate) stats: Stats,
}

/// What is held of one object. Never without a group.
#[derive(Debug, Default)]
struct Object {
    groups: Groups,
    bytes: u64,
    segments: u32,
    /// Seconds since 1970.
    last_used: u32,
}

/// Who is at an extent's bytes.
#[derive(Debug, Default)]
struct Pin {
    count: u32,
    /// Released meanwhile: what to free when the last one goes.
    doomed: Option<Extent>,
}

impl Index {
    /// Nothing held in `clusters` clusters; `policy` says what is worth keeping.
    pub(crate) fn new(clusters: u32, policy: Kind) -> Self {
        let capacity_bytes = u64::from(clusters) * GROUP_BYTES;
        Self {
            objects: HashMap::new(),
            descriptions: HashMap::new(),
            runs: HashMap::new(),
            space: Space::new(clusters),
            pins: HashMap::new(),
            limbo: Vec::new(),
            limbo_bytes: 0,
            scans_left: SCANS_MAX,
            clusters,
            worth: Worth::new(policy, capacity_bytes),
            dirty: Vec::new(),
            drops: Vec::new(),
            forgets: Vec::new(),
            described: Vec::new(),
            waiting: VecDeque::new(),
            stats: Stats { capacity_bytes, ..Stats::default() },
        }
    }

    /// Drops every byte of `object`, and what was said of it; says whether there
    /// was any.
    pub(crate) fn forget(&mut self, object: ObjectId) -> bool {
        let groups = self.groups_of(object);
        for &group in &groups {
            self.release(GroupId { object, group });
        }
        self.waiting.retain(|other| *other != object);
        self.descriptions.remove(&object);
        if !groups.is_empty() {
            self.forgets.push(object);
        }
        !groups.is_empty()
    }

    /// Notes what `object` is. Strings must be at most 255 bytes.
    pub(crate) fn describe(&mut self, object: ObjectId, description: Description) {
        let old = self.descriptions.insert(object, description);
        if self.objects.contains_key(&object) {
            if old.as_ref() != self.descriptions.get(&object) {
                self.described.push(object);
            }
        } else {
            self.await_bytes(object);
        }
    }

    /// Notes that a download of `object` begins.
    pub(crate) fn wanted(&mut self, object: ObjectId) {
        self.worth.wanted(object);
    }

    /// Takes a pin back; the last one lets a released extent go.
    pub(crate) fn unpin(&mut self, slot: u32) {
        let pin = self.pins.get_mut(&slot).expect("it was pinned");
        pin.count -= 1;
        if pin.count == 0
            && let Some(extent) = self.pins.remove(&slot).and_then(|pin| pin.doomed)
        {
            self.add_to_limbo(extent);
        }
    }

    /// Whether every byte of `range` is held. Touches nothing.
    pub(crate) fn covers(&self, object: ObjectId, range: ByteRange) -> bool {
        if range.is_empty() {
            return true;
        }
        let Some(held) = self.objects.get(&object) else { return false };
        by_group(range).all(|(group, part)| {
            held.groups.get(group).is_some_and(|record| self.record_covers(record, part))
        })
    }

    /// The objects held, in no order; `now` in seconds since 1970.
    pub(crate) fn objects(&self, now: u32) -> Vec<ObjectSummary> {
        let summary = |(&object, held): (&ObjectId, &Object)| ObjectSummary {
            object,
            description: self.descriptions.get(&object).cloned(),
            bytes_held: held.bytes,
            segments: held.segments.into(),
            last_used: std::time::Duration::from_secs(u64::from(
                now.saturating_sub(held.last_used),
            )),
        };
        self.objects.iter().map(summary).collect()
    }

    /// The ids of the objects held, in no order.
    pub(crate) fn object_ids(&self) -> Vec<ObjectId> {
        self.objects.keys().copied().collect()
    }

    /// The first group of `object` at or after `from` of which something is held.
    pub(crate) fn next_group(&self, object: ObjectId, from: u64) -> Option<u64> {
        let held = self.objects.get(&object)?;
        held.groups.from(from).next().map(|(group, _)| group)
    }

    fn groups_of(&self, object: ObjectId) -> Vec<u64> {
        let held = self.objects.get(&object);
        held.into_iter().flat_map(|o| o.groups.from(0)).map(|(group, _)| group).collect()
    }

    fn record(&self, id: GroupId) -> Option<&Record> {
        self.objects.get(&id.object)?.groups.get(id.group)
    }

    fn record_mut(&mut self, id: GroupId) -> Option<&mut Record> {
        self.objects.get_mut(&id.object)?.groups.get_mut(id.group)
    }

    fn record_covers(&self, record: &Record, part: ByteRange) -> bool {
        by_segment(part).all(|piece| {
            record.present & 1 << piece.segment != 0
                || self.runs_of(record, piece.segment).iter().any(|run| run.holds(piece))
        })
    }

    /// The runs of a segment that is held in part; none when it is not.
    fn runs_of(&self, record: &Record, segment: u8) -> &[Run] {
        if !record.is_partial() || record.window().mask() & 1 << segment == 0 {
            return &[];
        }
        self.runs.get(&record.slot_of(segment)).map_or(&[], Vec::as_slice)
    }

    /// Bytes and segments held in a record.
    fn tally(&self, record: &Record) -> (u64, u32) {
        let whole = record.present.count_ones();
        let (mut bytes, mut segments) = (u64::from(whole) * SEGMENT_BYTES, whole);
        if record.is_partial() {
            for segment in record.window().segments() {
                let runs = self.runs_of(record, segment);
                bytes += runs.iter().map(|run| run.len()).sum::<u64>();
                segments += u32::from(!runs.is_empty());
            }
        }
        (bytes, segments)
    }

    /// Corrects the levels after a group's change from `before` to `after`, each in
    /// bytes and segments.
    fn count(&mut self, object: ObjectId, before: (u64, u32), after: (u64, u32)) {
        let stats = &mut self.stats;
        stats.held_bytes = stats.held_bytes - before.0 + after.0;
        stats.segments = stats.segments - u64::from(before.1) + u64::from(after.1);
        if let Some(held) = self.objects.get_mut(&object) {
            held.bytes = held.bytes - before.0 + after.0;
            held.segments = held.segments - before.1 + after.1;
        }
    }

    /// Notes a use of a group, and of its object.
    fn touch(&mut self, id: GroupId, now: u32) {
        if let Some(record) = self.record(id) {
            let bytes = extent_of(record).bytes();
            self.worth.used(id, bytes, true);
        }
        if let Some(held) = self.objects.get_mut(&id.object) {
            held.last_used = now;
        }
    }

    fn pin(&mut self, slot: u32) {
        self.pins.entry(slot).or_default().count += 1;
    }

    /// Notes that a group must be journalled.
    fn mark_dirty(&mut self, id: GroupId) {
        let Some(record) = self.record_mut(id) else { return };
        if !record.is_dirty() {
            record.set_dirty(true);
            self.dirty.push(id);
        }
    }

    /// Lets go of a group that is held.
    fn release(&mut self, id: GroupId) {
        if let Some(extent) = self.detach(id) {
            self.drops.push(id);
            self.free_later(extent);
        }
    }

    /// Takes a group's record out; the caller says what becomes of its extent.
    fn detach(&mut self, id: GroupId) -> Option<Extent> {
        let record = *self.record(id)?;
        self.count(id.object, self.tally(&record), (0, 0));
        self.drop_runs(&record);
        self.worth.removed(id);
        self.stats.groups -= 1;
        let held = self.objects.get_mut(&id.object).expect("it has the record");
        held.groups.remove(id.group);
        if held.groups.is_empty() {
            self.objects.remove(&id.object);
            self.worth.gone(id.object);
            self.stats.objects = self.objects.len() as u64;
            if self.descriptions.contains_key(&id.object) {
                self.await_bytes(id.object);
            }
        }
        let extent = extent_of(&record);
        self.stats.used_bytes -= extent.bytes();
        Some(extent)
    }

    /// Frees an extent that a record on disk may name: not before the next commit,
    /// nor before its last reader is done.
    fn free_later(&mut self, extent: Extent) {
        match self.pins.get_mut(&extent.slot) {
            Some(pin) => pin.doomed = Some(extent),
            None => self.add_to_limbo(extent),
        }
    }

    fn add_to_limbo(&mut self, extent: Extent) {
        self.limbo_bytes += extent.bytes();
        self.limbo.push(extent);
    }

    fn drop_runs(&mut self, record: &Record) {
        if record.is_partial() {
            for segment in record.window().segments() {
                self.runs.remove(&record.slot_of(segment));
            }
        }
    }

    /// Drops what is held of one segment.
    fn drop_segment(&mut self, id: GroupId, segment: u8) {
        let Some(old) = self.record(id).copied() else { return };
        let before = self.tally(&old);
        let mut new = old;
        new.present &= !(1 << segment);
        if old.window().mask() & 1 << segment != 0 {
            self.runs.remove(&old.slot_of(segment));
        }
        let partial = |s: u8| self.runs.contains_key(&new.slot_of(s));
        let is_partial = new.is_partial() && new.window().segments().any(partial);
        new.set_partial(is_partial);
        *self.record_mut(id).expect("found above") = new;
        let after = self.tally(&new);
        self.count(id.object, before, after);
        if after.0 == 0 {
            self.release(id);
        } else {
            self.mark_dirty(id);
        }
    }

    /// Keeps the description of an object that holds nothing, for its return.
    fn await_bytes(&mut self, object: ObjectId) {
        if self.waiting.contains(&object) {
            return;
        }
        if self.waiting.len() == WAITING_MAX
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.descriptions.remove(&oldest);
        }
        self.waiting.push_back(object);
    }
}

impl Run {
    /// Whether every byte of `piece` is in the run. Both are of one segment.
    const fn holds(&self, piece: Piece) -> bool {
        self.start <= piece.start && piece.end <= self.end
    }
}

fn extent_of(record: &Record) -> Extent {
    Extent { slot: record.slot, class: record.window().class() }
}

/// The object's number of a group's segment.
pub(crate) const fn segment_number(group: u64, segment: u8) -> u64 {
    group * GROUP_LEN as u64 + segment as u64
}

/// Scans of all groups while restoring a damaged index.
const SCANS_MAX: u32 = 64;
/// Descriptions kept for objects that hold no bytes; half a kilobyte each.
const WAITING_MAX: usize = 1024;
