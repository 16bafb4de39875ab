//! What is held of one object, group by group, in few bytes.
//!
//! A record is 16 bytes for 64 segments. Records of 64 neighbouring groups lie in
//! one leaf, packed, with a bit for each that is there: found by a count of bits,
//! whether the object is dense or has a segment here and there. An object of one
//! group has its record in place.

use crate::units::Window;

/// What is held of a group, and where: a quarter of a byte for each segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Segments that are whole.
    pub(super) present: u64,
    /// First slot of its extent.
    pub(super) slot: u32,
    window: u8,
    flags: u8,
}

impl Record {
    /// Nothing held, of `window`, at `slot`.
    pub(super) const fn new(window: Window, slot: u32) -> Self {
        Self { present: 0, slot, window: window.code(), flags: 0 }
    }

    pub(super) fn window(&self) -> Window {
        Window::from_code(self.window).expect("made from a window")
    }

    /// Whether some segment has runs in the side table.
    pub(super) const fn is_partial(&self) -> bool {
        self.flags & PARTIAL != 0
    }

    pub(super) const fn set_partial(&mut self, to: bool) {
        self.flags = if to { self.flags | PARTIAL } else { self.flags & !PARTIAL };
    }

    /// Whether the journal must be told.
    pub(super) const fn is_dirty(&self) -> bool {
        self.flags & DIRTY != 0
    }

    pub(super) const fn set_dirty(&mut self, to: bool) {
        self.flags = if to { self.flags | DIRTY } else { self.flags & !DIRTY };
    }

    /// The slot of the group's segment `segment`, which is in the window.
    pub(super) fn slot_of(&self, segment: u8) -> u32 {
        self.slot + u32::from(segment - self.window().first())
    }
}

/// Records by group number.
#[derive(Debug, Default)]
pub(super) enum Groups {
    #[default]
    None,
    One(u64, Record),
    Many(Vec<Leaf>),
}

/// The records of groups `64 * number` to `64 * number + 63`.
#[derive(Debug)]
pub(super) struct Leaf {
    number: u64,
    /// Which groups have a record.
    held: u64,
    records: Box<[Record]>,
}

impl Groups {
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) fn get(&self, group: u64) -> Option<&Record> {
        match self {
            Self::None => None,
            Self::One(only, record) => (*only == group).then_some(record),
            Self::Many(leaves) => leaves[leaf_at(leaves, group).ok()?].get(group),
        }
    }

    pub(super) fn get_mut(&mut self, group: u64) -> Option<&mut Record> {
        match self {
            Self::None => None,
            Self::One(only, record) => (*only == group).then_some(record),
            Self::Many(leaves) => {
                let at = leaf_at(leaves, group).ok()?;
                leaves[at].get_mut(group)
            }
        }
    }

    /// Adds the record of a group that has none.
    pub(super) fn insert(&mut self, group: u64, record: Record) {
        match self {
            Self::None => *self = Self::One(group, record),
            Self::One(other, first) => {
                let first = Leaf::one(*other, *first);
                *self = Self::Many(vec![first]);
                self.insert(group, record);
            }
            Self::Many(leaves) => match leaf_at(leaves, group) {
                Ok(at) => leaves[at].insert(group, record),
                Err(at) => {
                    if leaves.len() == leaves.capacity() {
                        // An eighth more, not twice as many: the table is kept for long.
                        leaves.reserve_exact(leaves.len() / 8 + 1);
                    }
                    leaves.insert(at, Leaf::one(group, record));
                }
            },
        }
    }

    pub(super) fn remove(&mut self, group: u64) -> Option<Record> {
        match self {
            Self::None => None,
            Self::One(only, record) => {
                let record = (*only == group).then_some(*record)?;
                *self = Self::None;
                Some(record)
            }
            Self::Many(leaves) => {
                let at = leaf_at(leaves, group).ok()?;
                let record = leaves[at].remove(group)?;
                if leaves[at].held == 0 {
                    leaves.remove(at);
                }
                if leaves.is_empty() {
                    *self = Self::None;
                }
                Some(record)
            }
        }
    }

    /// The records of groups from `from` on, ascending.
    pub(super) fn from(&self, from: u64) -> impl Iterator<Item = (u64, &Record)> {
        let (one, leaves) = match self {
            Self::None => (None, &[][..]),
            Self::One(group, record) => (Some((*group, record)), &[][..]),
            Self::Many(leaves) => {
                let at = leaf_at(leaves, from).unwrap_or_else(|at| at);
                (None, &leaves[at..])
            }
        };
        let many = leaves.iter().flat_map(Leaf::iter);
        one.into_iter().chain(many).filter(move |(group, _)| *group >= from)
    }

    /// The records of groups below `below`, descending.
    pub(super) fn down_from(&self, below: u64) -> impl Iterator<Item = (u64, &Record)> {
        let (one, leaves) = match self {
            Self::None => (None, &[][..]),
            Self::One(group, record) => (Some((*group, record)), &[][..]),
            Self::Many(leaves) => {
                let end = leaf_at(leaves, below).map_or_else(|at| at, |at| at + 1);
                (None, &leaves[..end])
            }
        };
        let many = leaves.iter().rev().flat_map(Leaf::iter_down);
        one.into_iter().chain(many).filter(move |(group, _)| *group < below)
    }
}

impl Leaf {
    fn one(group: u64, record: Record) -> Self {
        Self { number: group / LEAF, held: 1 << (group % LEAF), records: Box::new([record]) }
    }

    /// Where a group's record is, or would be.
    const fn rank(&self, group: u64) -> usize {
        (self.held & ((1 << (group % LEAF)) - 1)).count_ones() as usize
    }

    const fn has(&self, group: u64) -> bool {
        self.held & 1 << (group % LEAF) != 0
    }

    fn get(&self, group: u64) -> Option<&Record> {
        self.has(group).then(|| &self.records[self.rank(group)])
    }

    fn get_mut(&mut self, group: u64) -> Option<&mut Record> {
        let at = self.rank(group);
        self.has(group).then(|| &mut self.records[at])
    }

    fn insert(&mut self, group: u64, record: Record) {
        debug_assert!(!self.has(group), "it has none");
        let mut records = std::mem::take(&mut self.records).into_vec();
        records.reserve_exact(1);
        records.insert(self.rank(group), record);
        self.records = records.into_boxed_slice();
        self.held |= 1 << (group % LEAF);
    }

    fn remove(&mut self, group: u64) -> Option<Record> {
        if !self.has(group) {
            return None;
        }
        let mut records = std::mem::take(&mut self.records).into_vec();
        let record = records.remove(self.rank(group));
        self.records = records.into_boxed_slice();
        self.held &= !(1 << (group % LEAF));
        Some(record)
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        let groups = (0..LEAF).filter(|bit| self.held & 1 << bit != 0);
        groups.map(|bit| self.number * LEAF + bit).zip(self.records.iter())
    }

    fn iter_down(&self) -> impl Iterator<Item = (u64, &Record)> {
        let groups = (0..LEAF).rev().filter(|bit| self.held & 1 << bit != 0);
        groups.map(|bit| self.number * LEAF + bit).zip(self.records.iter().rev())
    }
}

/// Where the leaf of `group` is, or belongs. An object that is held from its start
/// on has each leaf at the place of its number.
fn leaf_at(leaves: &[Leaf], group: u64) -> Result<usize, usize> {
    let number = group / LEAF;
    if let Ok(at) = usize::try_from(number)
        && leaves.get(at).is_some_and(|leaf| leaf.number == number)
    {
        return Ok(at);
    }
    leaves.binary_search_by_key(&number, |leaf| leaf.number)
}

/// Some segment has runs in the side table.
const PARTIAL: u8 = 1;
/// The journal must be told.
const DIRTY: u8 = 2;
/// Groups of a leaf.
const LEAF: u64 = 64;

const _: () = assert!(size_of::<Record>() == 16);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    fn record(slot: u32) -> Record {
        Record::new(Window::GROUP, slot)
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(
            steps in proptest::collection::vec((0..3u8, prop_oneof![0..6u64, 0..300u64, Just(1 << 43)]), 0..80),
        ) {
            let (mut groups, mut map) = (Groups::default(), BTreeMap::new());
            for (at, (what, group)) in (0..).zip(steps) {
                if what == 0 {
                    prop_assert_eq!(groups.remove(group), map.remove(&group));
                } else if let Entry::Vacant(place) = map.entry(group) {
                    groups.insert(group, record(at));
                    place.insert(record(at));
                }
                prop_assert_eq!(groups.get(group), map.get(&group));
                prop_assert_eq!(groups.is_empty(), map.is_empty());
                let up: Vec<_> = groups.from(group).map(|(g, r)| (g, *r)).collect();
                let want: Vec<_> = map.range(group..).map(|(g, r)| (*g, *r)).collect();
                prop_assert_eq!(up, want);
                let down: Vec<_> = groups.down_from(group).map(|(g, r)| (g, *r)).collect();
                let want: Vec<_> = map.range(..group).rev().map(|(g, r)| (*g, *r)).collect();
                prop_assert_eq!(down, want);
            }
        }
    }
}
