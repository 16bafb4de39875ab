//! The index: which bytes of which object are held, and in which cluster.
//!
//! Pure: it names places on disk and never goes there; time is an argument. One
//! group of an object takes one cluster. Within a group, a whole segment is a bit;
//! what is held of any other segment is a short list of runs in a side table.
//!
//! A cluster's life, and why a record on disk never points at another's bytes:
//!
//! ```text
//!  free ──claim──► live ──release, nobody reads──► limbo ──commit──► free
//!                    └────release, pinned──► doomed ──unpin──► limbo
//! ```
//!
//! A cluster leaves limbo only when the journal durably says that it was dropped
//! ([`Index::settle`]). Bytes once held are never written over while they are held.

mod batch;
mod lru;
mod reading;
mod restore;
mod runs;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::VecDeque;

use hashbrown::HashMap;
use weir_ranges::{ByteRange, GROUP_BYTES, ObjectId, SEGMENT_BYTES};

use crate::format::Run;
use crate::units::{GROUP_LEN, Piece, by_group, by_segment};
use crate::{Description, ObjectSummary, Stats, checksum};

pub(crate) use reading::Unit;
pub(crate) use writing::{Claim, Written};

use lru::Lru;

/// The index of one store.
#[derive(Debug)]
pub(crate) struct Index {
    objects: HashMap<ObjectId, Object>,
    /// By cluster, as far as clusters were ever used.
    slots: Vec<Slot>,
    /// By cluster: the marks of whole segments. Apart, so that look-ups stay in few
    /// cache lines.
    #[allow(clippy::vec_box, reason = "a growing vector of arrays copies them and holds twice")]
    marks: Vec<Box<[u32; GROUP_LEN]>>,
    /// By cluster and segment, for segments that are held in part.
    runs: HashMap<(u32, u8), Vec<Run>>,
    lru: Lru,
    /// Clusters of the data file; `slots.len() <= clusters`.
    clusters: u32,
    free: Vec<u32>,
    limbo: Vec<u32>,
    /// Not yet journalled: changed clusters, dropped clusters, forgotten objects,
    /// objects with a new description.
    dirty: Vec<u32>,
    drops: Vec<u32>,
    forgets: Vec<ObjectId>,
    described: Vec<ObjectId>,
    /// Descriptions of objects that hold nothing yet or any more, oldest first; at
    /// most [`WAITING_MAX`].
    waiting: VecDeque<(ObjectId, Description)>,
    /// Counters of the whole store; the levels in it are kept here too.
    pub(crate) stats: Stats,
}

/// What is held of one object. Never without a group.
#[derive(Debug, Default)]
struct Object {
    description: Option<Description>,
    /// Group number to cluster.
    groups: HashMap<u64, u32>,
    bytes: u64,
    segments: u64,
    /// Seconds since 1970.
    last_used: u32,
}

/// What is held in one cluster: one cache line.
#[derive(Debug)]
struct Slot {
    object: ObjectId,
    group: u64,
    /// Segments that are whole.
    present: u64,
    /// Segments with runs in the side table. `present & partial == 0`.
    partial: u64,
    /// Neighbours in the order of use.
    newer: u32,
    older: u32,
    /// Readers and writers that are at its bytes.
    pins: u32,
    stamp: u32,
    state: State,
    /// In [`Index::dirty`].
    dirty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Doomed,
    Free,
    Limbo,
    Live,
}

impl Index {
    /// Nothing held in `clusters` clusters.
    pub(crate) fn new(clusters: u32) -> Self {
        Self {
            objects: HashMap::new(),
            slots: Vec::new(),
            marks: Vec::new(),
            runs: HashMap::new(),
            lru: Lru::new(),
            clusters,
            free: Vec::new(),
            limbo: Vec::new(),
            dirty: Vec::new(),
            drops: Vec::new(),
            forgets: Vec::new(),
            described: Vec::new(),
            waiting: VecDeque::new(),
            stats: Stats { capacity_bytes: u64::from(clusters) * GROUP_BYTES, ..Stats::default() },
        }
    }

    /// Drops every byte of `object`, and what was said of it; says whether there
    /// was any.
    pub(crate) fn forget(&mut self, object: ObjectId) -> bool {
        self.waiting.retain(|(other, _)| *other != object);
        let Some(held) = self.objects.get(&object) else { return false };
        let clusters: Vec<u32> = held.groups.values().copied().collect();
        for cluster in clusters {
            self.release(cluster);
        }
        // Its last release kept the description for a return; there is none.
        self.waiting.retain(|(other, _)| *other != object);
        self.forgets.push(object);
        true
    }

    /// Notes what `object` is. Strings must be at most 255 bytes.
    pub(crate) fn describe(&mut self, object: ObjectId, description: Description) {
        match self.objects.get_mut(&object) {
            Some(held) if held.description.as_ref() == Some(&description) => {}
            Some(held) => {
                held.description = Some(description);
                self.described.push(object);
            }
            None => {
                self.waiting.retain(|(other, _)| *other != object);
                self.await_bytes(object, description);
            }
        }
    }

    /// Takes a pin back; the last one lets a dropped or empty cluster go.
    pub(crate) fn unpin(&mut self, cluster: u32) {
        let slot = self.slot_mut(cluster);
        slot.pins -= 1;
        if slot.pins > 0 {
            return;
        }
        match slot.state {
            State::Doomed => {
                slot.state = State::Limbo;
                self.limbo.push(cluster);
            }
            State::Live if slot.is_empty() => self.release(cluster),
            State::Free | State::Limbo | State::Live => {}
        }
    }

    /// Whether every byte of `range` is held. Touches nothing.
    pub(crate) fn covers(&self, object: ObjectId, range: ByteRange) -> bool {
        if range.is_empty() {
            return true;
        }
        let Some(held) = self.objects.get(&object) else { return false };
        by_group(range).all(|(group, part)| {
            held.groups.get(&group).is_some_and(|&cluster| self.group_covers(cluster, part))
        })
    }

    /// The objects held, in no order; `now` in seconds since 1970.
    pub(crate) fn objects(&self, now: u32) -> Vec<ObjectSummary> {
        let summary = |(&object, held): (&ObjectId, &Object)| ObjectSummary {
            object,
            description: held.description.clone(),
            bytes_held: held.bytes,
            segments: held.segments,
            last_used: std::time::Duration::from_secs(u64::from(
                now.saturating_sub(held.last_used),
            )),
        };
        self.objects.iter().map(summary).collect()
    }

    /// Clusters ever used; every live one is below.
    pub(crate) fn clusters_used(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("there is a slot for a cluster at most")
    }

    fn group_covers(&self, cluster: u32, part: ByteRange) -> bool {
        let slot = self.slot(cluster);
        by_segment(part).all(|piece| {
            let bit = 1 << piece.segment;
            slot.present & bit != 0
                || (slot.partial & bit != 0
                    && self.runs_of(cluster, piece.segment).iter().any(|run| run.holds(piece)))
        })
    }

    /// The runs of a segment that is held in part; none when it is not.
    fn runs_of(&self, cluster: u32, segment: u8) -> &[Run] {
        self.runs.get(&(cluster, segment)).map_or(&[], Vec::as_slice)
    }

    fn slot(&self, cluster: u32) -> &Slot {
        &self.slots[place(cluster)]
    }

    fn slot_mut(&mut self, cluster: u32) -> &mut Slot {
        &mut self.slots[place(cluster)]
    }

    /// Moves `cluster` and its object to the front of the order of use.
    fn touch(&mut self, cluster: u32, now: u32) {
        self.lru.remove(&mut self.slots, cluster);
        self.lru.push_newest(&mut self.slots, cluster);
        let slot = &mut self.slots[place(cluster)];
        slot.stamp = now;
        if let Some(held) = self.objects.get_mut(&slot.object) {
            held.last_used = now;
        }
    }

    /// Notes that `cluster` must be journalled.
    fn mark_dirty(&mut self, cluster: u32) {
        let slot = &mut self.slots[place(cluster)];
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(cluster);
        }
    }

    /// Makes a live cluster let go of its group.
    fn release(&mut self, cluster: u32) {
        self.unlink(cluster);
        self.drops.push(cluster);
        let slot = self.slot_mut(cluster);
        if slot.pins > 0 {
            slot.state = State::Doomed;
        } else {
            slot.state = State::Limbo;
            self.limbo.push(cluster);
        }
    }

    /// Takes a live cluster out of its object and out of the order of use; the
    /// caller says what becomes of it.
    fn unlink(&mut self, cluster: u32) {
        debug_assert_eq!(self.slot(cluster).state, State::Live);
        self.lru.remove(&mut self.slots, cluster);
        for segment in 0..64 {
            self.drop_segment(cluster, segment);
        }
        let slot = self.slot(cluster);
        let (object, group) = (slot.object, slot.group);
        self.stats.groups -= 1;
        let held = self.objects.get_mut(&object).expect("a live cluster belongs to an object");
        held.groups.remove(&group);
        if held.groups.is_empty() {
            let gone = self.objects.remove(&object).and_then(|o| o.description);
            if let Some(description) = gone {
                self.await_bytes(object, description);
            }
        }
        self.stats.objects = self.objects.len() as u64;
    }

    /// Drops what is held of one segment; says how many bytes that was.
    fn drop_segment(&mut self, cluster: u32, segment: u8) -> u64 {
        let slot = &mut self.slots[place(cluster)];
        let bit = 1u64 << segment;
        let bytes = if slot.present & bit != 0 {
            SEGMENT_BYTES
        } else if slot.partial & bit != 0 {
            let runs = self.runs.remove(&(cluster, segment));
            runs.expect("a partial bit has runs").iter().map(|run| run.len()).sum()
        } else {
            return 0;
        };
        slot.present &= !bit;
        slot.partial &= !bit;
        let object = slot.object;
        self.stats.held_bytes -= bytes;
        self.stats.segments -= 1;
        let held = self.objects.get_mut(&object).expect("a live cluster belongs to an object");
        held.bytes -= bytes;
        held.segments -= 1;
        bytes
    }

    fn await_bytes(&mut self, object: ObjectId, description: Description) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((object, description));
    }
}

impl Slot {
    const fn is_empty(&self) -> bool {
        self.present | self.partial == 0
    }

    /// Where the group's bytes begin in the object.
    const fn group_start(&self) -> u64 {
        self.group * GROUP_BYTES
    }

    /// The object's number of the group's segment `segment`.
    fn segment_number(&self, segment: u8) -> u64 {
        self.group * GROUP_LEN as u64 + u64::from(segment)
    }

    /// What binds the checksum of `segment` to its place.
    fn place_mark(&self, segment: u8) -> u32 {
        checksum::place(self.object, self.segment_number(segment))
    }
}

impl Run {
    /// Whether every byte of `piece` is in the run. Both are of one segment.
    const fn holds(&self, piece: Piece) -> bool {
        self.start <= piece.start && piece.end <= self.end
    }
}

/// A cluster's number as a place in a table.
fn place(cluster: u32) -> usize {
    usize::try_from(cluster).expect("a cluster's number is an address on every host we build for")
}

/// No cluster.
const NONE: u32 = u32::MAX;

/// Descriptions kept for objects that hold no bytes; half a kilobyte each.
const WAITING_MAX: usize = 1024;
