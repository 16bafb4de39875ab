//! Disjoint interval sets.

use crate::ByteRange;

/// A set of bytes as disjoint ranges, ascending, none empty, none adjacent.
///
/// A sorted vector: look-ups are a binary search, inserts move what follows.
/// That beats trees until some thousands of ranges, and every user of this type
/// bounds its ranges well below that (the blocks of one piece, the holes of one
/// request). The store's presence index is a bitmap instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<ByteRange>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Adds every byte of `range`; says how many were not in the set before.
    pub fn insert(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        // Everything that touches or is adjacent to `range` is merged into it.
        let first = self.ranges.partition_point(|r| r.end() < range.start());
        let after = self.ranges.partition_point(|r| r.start() <= range.end());
        let (mut start, mut end, mut had) = (range.start(), range.end(), 0);
        for old in &self.ranges[first..after] {
            had += old.intersection(range).map_or(0, ByteRange::len);
            start = start.min(old.start());
            end = end.max(old.end());
        }
        let merged = ByteRange::new(start, end).expect("start only shrinks and end only grows");
        self.ranges.splice(first..after, [merged]);
        range.len() - had
    }

    /// Takes every byte of `range` out; says how many were in the set.
    pub fn remove(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let first = self.ranges.partition_point(|r| r.end() <= range.start());
        let after = self.ranges.partition_point(|r| r.start() < range.end());
        let mut kept = Vec::with_capacity(2);
        let mut had = 0;
        for old in &self.ranges[first..after] {
            had += old.intersection(range).map_or(0, ByteRange::len);
            kept.extend(ByteRange::new(old.start(), range.start()).filter(|r| !r.is_empty()));
            kept.extend(ByteRange::new(range.end(), old.end()).filter(|r| !r.is_empty()));
        }
        self.ranges.splice(first..after, kept);
        had
    }

    /// Whether every byte of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        if range.is_empty() {
            return true;
        }
        let at = self.ranges.partition_point(|r| r.end() <= range.start());
        self.ranges.get(at).is_some_and(|r| r.contains(range))
    }

    /// The parts of `range` that are not in the set, ascending.
    pub fn holes(&self, range: ByteRange) -> Self {
        let mut holes = Self { ranges: Vec::new() };
        let mut from = range.start();
        let first = self.ranges.partition_point(|r| r.end() <= range.start());
        for old in &self.ranges[first..] {
            if old.start() >= range.end() {
                break;
            }
            holes.ranges.extend(ByteRange::new(from, old.start()).filter(|r| !r.is_empty()));
            from = old.end();
        }
        holes.ranges.extend(ByteRange::new(from, range.end()).filter(|r| !r.is_empty()));
        holes
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.iter().copied()
    }

    /// Number of bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.iter().map(ByteRange::len).sum()
    }

    /// Whether no byte is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<T: IntoIterator<Item = ByteRange>>(iter: T) -> Self {
        let mut set = Self::new();
        for range in iter {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    #[test]
    fn merges_adjacent_ranges() {
        let mut set = RangeSet::new();
        assert_eq!(set.insert(r(0, 2)), 2);
        assert_eq!(set.insert(r(4, 6)), 2);
        assert_eq!(set.insert(r(2, 4)), 2);
        assert_eq!(set.iter().collect::<Vec<_>>(), [r(0, 6)]);
    }

    #[test]
    fn removing_the_middle_leaves_both_sides() {
        let mut set: RangeSet = [r(0, 10)].into_iter().collect();
        assert_eq!(set.remove(r(3, 5)), 2);
        assert_eq!(set.iter().collect::<Vec<_>>(), [r(0, 3), r(5, 10)]);
        assert_eq!(set.holes(r(0, 12)).iter().collect::<Vec<_>>(), [r(3, 5), r(10, 12)]);
    }

    proptest! {
        /// The set agrees with a plain vector of bits after any operations.
        #[test]
        fn agrees_with_a_bit_vector(ops in proptest::collection::vec((any::<bool>(), 0u64..80, 0u64..20), 0..60)) {
            let mut bits = [false; 100];
            let mut set = RangeSet::new();
            let at = |n: u64| usize::try_from(n).unwrap();
            for (add, start, len) in ops {
                let range = r(start, start + len);
                let window = &mut bits[at(start)..at(start + len)];
                let had = window.iter().filter(|b| **b).count() as u64;
                window.fill(add);
                if add {
                    prop_assert_eq!(set.insert(range), len - had);
                } else {
                    prop_assert_eq!(set.remove(range), had);
                }
                let want: Vec<bool> = (0..100).map(|i| set.contains(r(i, i + 1))).collect();
                prop_assert_eq!(&want[..], &bits[..]);
                for pair in set.iter().collect::<Vec<_>>().windows(2) {
                    prop_assert!(pair[0].end() < pair[1].start());
                }
                let whole = r(0, 100);
                prop_assert_eq!(set.holes(whole).bytes() + set.bytes(), 100);
            }
        }
    }
}
