//! Segmented LRU: what is used again climbs, what is not sinks.
//!
//! R. Karedla, J. S. Love, B. G. Wherry, "Caching Strategies to Improve Disk System
//! Performance", IEEE Computer 27(3), 1994; four lists of equal share, as in
//! libCacheSim. New units enter the lowest list, a hit moves a unit to the front of
//! the next higher, a list over its share gives its last to the one below.

use crate::lists::Lists;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// SLRU by unit.
#[derive(Debug)]
pub struct Slru {
    /// Lowest first.
    units: Lists<Unit, (), LEVELS>,
    level_bytes_max: u64,
}

impl Slru {
    /// Empty lists for a cache of so many bytes.
    #[must_use]
    pub const fn new(capacity_bytes: u64) -> Self {
        Self { units: Lists::new(), level_bytes_max: capacity_bytes / LEVELS as u64 }
    }
}

impl Policy for Slru {
    fn name(&self) -> &'static str {
        "slru"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, _: u32, _: bool) {
        let Some(place) = self.units.find(unit) else { return };
        let mut level = (self.units.node(place).list + 1).min(TOP);
        self.units.move_front(place, level);
        while level > 0 {
            while self.units.bytes(level) > self.level_bytes_max {
                let Some(last) = self.units.back(level) else { break };
                self.units.move_front(last, level - 1);
            }
            level -= 1;
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
        let place = (0..=TOP).find_map(|level| self.units.back(level))?;
        Some(Victim::Unit(self.units.node(place).key))
    }

    fn entries(&self) -> usize {
        self.units.entries()
    }
}

const LEVELS: usize = 4;
const TOP: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn the_used_climb_and_overflow_sinks_a_level() {
        let mut slru = Slru::new(8);
        for object in 1..=4 {
            insert(&mut slru, unit(object, 0), 1);
        }
        for object in [1, 2, 3] {
            use_held(&mut slru, unit(object, 0));
        }
        // The second level holds two: 1 sank and is the youngest below.
        assert_eq!(evict(&mut slru, 4), [unit(4, 0), unit(1, 0), unit(2, 0), unit(3, 0)]);
    }
}
