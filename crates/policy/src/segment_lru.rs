//! Least recently used, by segment: pCache's policy, and exact LRU.
//!
//! M. Hefeeda, C. Hsu, K. Mokhtarian, "Design and Evaluation of a Proxy Cache for
//! Peer-to-Peer Traffic", IEEE Transactions on Computers 60(7), 2011: when more
//! than 90 % is used, the least recently used segments go until 80 % is. The space
//! between the marks costs 16 to 18 % of the byte hit ratio of exact LRU; what it
//! buys is eviction in large batches.
//!
//! A unit costs about 40 bytes.

use crate::lists::Lists;
use crate::policy::{ObjectKey, Policy, Unit, Victim, Watermarks};

/// LRU by unit, between two watermarks.
#[derive(Debug)]
pub struct SegmentLru {
    name: &'static str,
    units: Lists<Unit, (), 1>,
    watermarks: Watermarks,
}

impl SegmentLru {
    /// The paper's: from 90 % down to 80 %.
    #[must_use]
    pub const fn paper() -> Self {
        let watermarks = Watermarks { high: 0.9, low: 0.8 };
        Self { name: "segment-lru", units: Lists::new(), watermarks }
    }

    /// Exact LRU, which makes room for what comes and no more.
    #[must_use]
    pub const fn exact() -> Self {
        Self { name: "lru", units: Lists::new(), watermarks: Watermarks::EXACT }
    }
}

impl Policy for SegmentLru {
    fn name(&self) -> &'static str {
        self.name
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, _: u32, _: bool) {
        if let Some(place) = self.units.find(unit) {
            self.units.move_front(place, 0);
        }
    }

    fn admits(&mut self, _: Unit, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        self.units.put_front(0, unit, bytes);
    }

    fn removed(&mut self, unit: Unit) {
        if let Some(place) = self.units.find(unit) {
            self.units.remove(place);
        }
    }

    fn victim(&mut self, _: Option<Unit>) -> Option<Victim> {
        let place = self.units.back(0)?;
        Some(Victim::Unit(self.units.node(place).key))
    }

    fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    fn entries(&self) -> usize {
        self.units.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn what_was_not_used_longest_goes_first() {
        let mut lru = SegmentLru::exact();
        for object in 1..=3 {
            insert(&mut lru, unit(object, 0), 10);
        }
        use_held(&mut lru, unit(1, 0));
        assert_eq!(evict(&mut lru, 3), [unit(2, 0), unit(3, 0), unit(1, 0)]);
        assert_eq!(lru.victim(None), None);
    }

    #[test]
    fn the_papers_watermarks_are_90_and_80() {
        let marks = SegmentLru::paper().watermarks();
        assert_eq!((marks.high, marks.low, marks.is_exact()), (0.9, 0.8, false));
        assert!(SegmentLru::exact().watermarks().is_exact());
    }
}
