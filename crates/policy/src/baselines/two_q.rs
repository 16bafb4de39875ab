//! 2Q: a queue for the new, a ghost queue that proves reuse, LRU for the proven.
//!
//! T. Johnson, D. Shasha, "2Q: A Low Overhead High Performance Buffer Management
//! Replacement Algorithm", VLDB 1994; Kin 25 %, Kout 50 % of the capacity, as the
//! paper recommends. Hits in A1in change nothing.

use crate::lists::Lists;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// 2Q by unit.
#[derive(Debug)]
pub struct TwoQ {
    units: Lists<Unit, (), 3>,
    in_bytes_max: u64,
    out_bytes_max: u64,
}

impl TwoQ {
    /// Empty queues for a cache of so many bytes.
    #[must_use]
    pub const fn new(capacity_bytes: u64) -> Self {
        Self {
            units: Lists::new(),
            in_bytes_max: capacity_bytes / 4,
            out_bytes_max: capacity_bytes / 2,
        }
    }
}

impl Policy for TwoQ {
    fn name(&self) -> &'static str {
        "two-q"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, _: u32, _: bool) {
        let Some(place) = self.units.find(unit) else { return };
        if self.units.node(place).list == MAIN {
            self.units.move_front(place, MAIN);
        }
    }

    fn admits(&mut self, _: Unit, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        let queue = if self.units.find(unit).is_some() { MAIN } else { IN };
        self.units.put_front(queue, unit, bytes);
    }

    fn removed(&mut self, unit: Unit) {
        let Some(place) = self.units.find_in(unit, OUT) else { return };
        if self.units.node(place).list == MAIN {
            self.units.remove(place);
            return;
        }
        self.units.move_front(place, OUT);
        while self.units.bytes(OUT) > self.out_bytes_max {
            self.units.pop_back(OUT);
        }
    }

    fn victim(&mut self, _: Option<Unit>) -> Option<Victim> {
        let from_in = self.units.bytes(IN) > self.in_bytes_max;
        let tail = if from_in { None } else { self.units.back(MAIN) };
        let place = tail.or_else(|| self.units.back(IN))?;
        Some(Victim::Unit(self.units.node(place).key))
    }

    fn entries(&self) -> usize {
        self.units.entries()
    }
}

const IN: u8 = 0;
const MAIN: u8 = 1;
/// Lists below hold units of the cache.
const OUT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn only_what_returns_after_the_first_queue_is_kept_by_use() {
        let mut policy = TwoQ::new(8);
        for object in 1..=4 {
            insert(&mut policy, unit(object, 0), 1);
        }
        use_held(&mut policy, unit(1, 0));
        // A1in is over its two: first in, first out, whatever was used.
        assert_eq!(evict(&mut policy, 2), [unit(1, 0), unit(2, 0)]);
        insert(&mut policy, unit(1, 0), 1);
        insert(&mut policy, unit(2, 0), 1);
        use_held(&mut policy, unit(1, 0));
        // Both returned into Am; A1in has its share and no more.
        assert_eq!(evict(&mut policy, 2), [unit(2, 0), unit(1, 0)]);
    }
}
