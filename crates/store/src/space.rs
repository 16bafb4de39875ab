//! Which places of the data file are free. Pure.
//!
//! Clusters of 1 MiB, each whole or split into aligned extents of 16, 64 or
//! 256 KiB. A bit for each cluster, and 64 bits for each that is split and has
//! room: a full one costs its bit, whatever is in it.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::units::{CLUSTER_SLOTS, Class, SEGMENT_LEN};

/// A place in the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Its first slot of 16 KiB, a multiple of its length.
    pub(crate) slot: u32,
    pub(crate) class: Class,
}

impl Extent {
    /// Its length in bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.class.segments() as u64 * SEGMENT_LEN as u64
    }

    /// Whether a slot is in both.
    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.cluster() == other.cluster() && self.mask() & other.mask() != 0
    }

    const fn cluster(self) -> u32 {
        self.slot / CLUSTER_SLOTS
    }

    /// Its slots among its cluster's.
    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.class.segments()) << (self.slot % CLUSTER_SLOTS)
    }
}

/// The free places of one data file.
#[derive(Debug)]
pub(crate) struct Space {
    clusters: u32,
    /// A bit for each cluster: wholly free.
    free: Vec<u64>,
    free_clusters: u32,
    /// Clusters that are split and have room: their free slots.
    split: HashMap<u32, u64>,
    /// The same by the longest extent that fits.
    room: [BTreeSet<u32>; SPLIT_CLASSES],
    free_slots: u64,
    /// Where the search for a place away from others goes on.
    cursor: u32,
}

impl Space {
    /// `clusters` clusters, all free.
    pub(crate) fn new(clusters: u32) -> Self {
        let words = usize::try_from(clusters.div_ceil(64)).expect("a word for 64 clusters");
        let mut free = vec![u64::MAX; words];
        if let (Some(last), 1..) = (free.last_mut(), clusters % 64) {
            *last = (1 << (clusters % 64)) - 1;
        }
        Self {
            clusters,
            free,
            free_clusters: clusters,
            split: HashMap::new(),
            room: std::array::from_fn(|_| BTreeSet::new()),
            free_slots: u64::from(clusters) * u64::from(CLUSTER_SLOTS),
            cursor: 0,
        }
    }

    /// Bytes not taken.
    pub(crate) const fn free_bytes(&self) -> u64 {
        self.free_slots * SEGMENT_LEN as u64
    }

    /// Clusters wholly free.
    #[cfg(test)]
    pub(crate) const fn free_clusters(&self) -> u32 {
        self.free_clusters
    }

    /// Takes a place. A whole cluster is `near` when that one is free, else the next
    /// free after it; without `near`, one with free neighbours to grow into. A
    /// shorter place comes from a split cluster when one has room.
    pub(crate) fn take(&mut self, class: Class, near: Option<u32>) -> Option<Extent> {
        let cluster = match (class, near) {
            (Class::Group, Some(near)) => self.next_free(near.min(self.clusters - 1))?,
            (Class::Group, None) => self.roomy()?,
            _ => {
                let rooms = &self.room[class as usize..];
                let split = rooms.iter().find_map(|room| room.first().copied());
                split.or_else(|| self.next_free(self.cursor))?
            }
        };
        let first = aligned_room(self.mask(cluster), class)?;
        let extent = Extent { slot: cluster * CLUSTER_SLOTS + first, class };
        self.set_mask(cluster, self.mask(cluster) & !extent.mask());
        Some(extent)
    }

    /// Gives a place back that was taken.
    pub(crate) fn give(&mut self, extent: Extent) {
        let mask = self.mask(extent.cluster());
        debug_assert!(mask & extent.mask() == 0, "it was taken");
        self.set_mask(extent.cluster(), mask | extent.mask());
    }

    /// Takes exactly `extent`; says no, and takes nothing, when it is not free, not
    /// aligned or past the end.
    pub(crate) fn take_exactly(&mut self, extent: Extent) -> bool {
        let cluster = extent.cluster();
        if cluster >= self.clusters || !extent.slot.is_multiple_of(extent.class.segments().into()) {
            return false;
        }
        let mask = self.mask(cluster);
        if mask & extent.mask() != extent.mask() {
            return false;
        }
        self.set_mask(cluster, mask & !extent.mask());
        true
    }

    /// The free slots of a cluster.
    fn mask(&self, cluster: u32) -> u64 {
        if self.free[word(cluster)] & 1 << (cluster % 64) != 0 {
            return u64::MAX;
        }
        self.split.get(&cluster).copied().unwrap_or(0)
    }

    fn set_mask(&mut self, cluster: u32, mask: u64) {
        let old = self.mask(cluster);
        self.free_slots -= u64::from(old.count_ones());
        self.free_slots += u64::from(mask.count_ones());
        match old {
            u64::MAX => {
                self.free[word(cluster)] &= !(1 << (cluster % 64));
                self.free_clusters -= 1;
            }
            _ => {
                self.split.remove(&cluster);
                if let Some(class) = longest(old) {
                    self.room[class as usize].remove(&cluster);
                }
            }
        }
        match mask {
            0 => {}
            u64::MAX => {
                self.free[word(cluster)] |= 1 << (cluster % 64);
                self.free_clusters += 1;
            }
            _ => {
                self.split.insert(cluster, mask);
                if let Some(class) = longest(mask) {
                    self.room[class as usize].insert(cluster);
                }
            }
        }
    }

    /// The first free cluster at or after `from`, else the first of all.
    fn next_free(&self, from: u32) -> Option<u32> {
        if self.free_clusters == 0 {
            return None;
        }
        let start = word(from);
        let after = self.free[start] & u64::MAX << (from % 64);
        let found = |(at, word): (usize, u64)| {
            (word != 0).then(|| u32::try_from(at).ok().map(|at| at * 64 + word.trailing_zeros()))?
        };
        let later = self.free.iter().copied().enumerate();
        found((start, after))
            .or_else(|| later.clone().skip(start + 1).find_map(found))
            .or_else(|| later.take(start + 1).find_map(found))
    }

    /// A free cluster that begins a free zone, else any.
    fn roomy(&mut self) -> Option<u32> {
        let zones = self.clusters.div_ceil(ZONE);
        let first = self.cursor / ZONE;
        let is_free = |zone: u32| {
            let bits = self.free[word(zone * ZONE)] >> (zone * ZONE % 64);
            bits & ((1 << ZONE) - 1) == (1 << ZONE) - 1
        };
        let zone = (first..zones).chain(0..first).take(ZONES_TRIED).find(|&zone| is_free(zone));
        let cluster = zone.map(|zone| zone * ZONE).or_else(|| self.next_free(self.cursor))?;
        self.cursor = (cluster / ZONE + 1) % zones * ZONE;
        Some(cluster)
    }
}

/// The first aligned place for `class` among free slots, counted from the cluster's
/// start.
fn aligned_room(mask: u64, class: Class) -> Option<u32> {
    let len = u32::from(class.segments());
    let one = u64::MAX >> (64 - len);
    (0..64).step_by(usize::from(class.segments())).find(|first| mask >> first & one == one)
}

/// The longest class, below a whole cluster, that fits into free slots.
fn longest(mask: u64) -> Option<Class> {
    let classes = [Class::Sixteen, Class::Four, Class::Segment];
    classes.into_iter().find(|&class| aligned_room(mask, class).is_some())
}

fn word(cluster: u32) -> usize {
    usize::try_from(cluster / 64).expect("a place in a table")
}

/// Classes shorter than a cluster.
const SPLIT_CLASSES: usize = 3;
/// Clusters that a new object finds free before it, if possible: 16 MiB.
const ZONE: u32 = 16;
/// How many zones are looked at before any free cluster will do.
const ZONES_TRIED: usize = 4096;

const _: () = assert!(64 % ZONE == 0);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cluster(at: u32) -> Extent {
        Extent { slot: at * 64, class: Class::Group }
    }

    #[test]
    fn clusters_follow_the_ones_they_are_near() {
        let mut space = Space::new(64);
        let first = space.take(Class::Group, None).unwrap();
        assert_eq!(first, cluster(0));
        // Another object begins elsewhere, so that the first can grow.
        assert_eq!(space.take(Class::Group, None), Some(cluster(16)));
        assert_eq!(space.take(Class::Group, Some(1)), Some(cluster(1)));
        assert_eq!(space.take(Class::Group, Some(16)), Some(cluster(17)));
        assert_eq!(space.take(Class::Group, Some(900)), Some(cluster(63)));
        assert_eq!(space.take(Class::Group, Some(900)), Some(cluster(2)));
    }

    #[test]
    fn short_extents_share_a_cluster_and_leave_it_whole() {
        let mut space = Space::new(2);
        let small: Vec<_> = (0..3).map(|_| space.take(Class::Segment, None).unwrap()).collect();
        let four = space.take(Class::Four, None).unwrap();
        assert_eq!((small[2].slot, four.slot), (2, 4));
        assert_eq!(space.free_clusters(), 1);
        assert_eq!(space.free_bytes(), (128 - 7) * 16384);
        for extent in small.into_iter().chain([four]) {
            space.give(extent);
        }
        assert_eq!((space.free_clusters(), space.free_bytes()), (2, 2 << 20));
    }

    #[test]
    fn what_is_taken_exactly_is_taken_once() {
        let mut space = Space::new(2);
        let four = Extent { slot: 68, class: Class::Four };
        assert!(space.take_exactly(four));
        for bad in [
            four,
            cluster(1),
            cluster(2),
            Extent { slot: 71, class: Class::Segment },
            Extent { slot: 2, class: Class::Four },
        ] {
            assert!(!space.take_exactly(bad), "{bad:?}");
        }
        assert!(space.take_exactly(Extent { slot: 72, class: Class::Segment }));
        assert!(space.take_exactly(cluster(0)));
        assert_eq!(space.take(Class::Group, None), None);
    }

    proptest! {
        /// Whatever is taken and given, no two extents overlap and all comes back.
        #[test]
        fn extents_never_overlap(steps in proptest::collection::vec((0..4usize, any::<u8>()), 1..200)) {
            let mut space = Space::new(5);
            let mut held: Vec<Extent> = Vec::new();
            for (class, pick) in steps {
                if pick % 3 == 0 && !held.is_empty() {
                    space.give(held.swap_remove(usize::from(pick) % held.len()));
                } else if let Some(new) = space.take(Class::ALL[class], Some(u32::from(pick) % 5)) {
                    prop_assert!(!held.iter().any(|old| old.overlaps(new)));
                    held.push(new);
                }
                let taken: u64 = held.iter().map(|extent| extent.bytes()).sum();
                prop_assert_eq!(space.free_bytes() + taken, 5 << 20);
            }
            for extent in held {
                space.give(extent);
            }
            prop_assert_eq!(space.free_clusters(), 5);
        }
    }
}
