//! ARC: recency and frequency, the balance learnt from what was missed.
//!
//! N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache",
//! FAST 2003. T1 holds what was used once, T2 what was used again; B1 and B2
//! remember what left them. A miss found in B1 raises the target p of T1's share,
//! one in B2 lowers it. |T1| + |B1| <= c and all four <= 2c, in bytes.

use crate::lists::Lists;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// ARC by unit.
#[derive(Debug)]
pub struct Arc {
    units: Lists<Unit, (), 4>,
    capacity_bytes: u64,
    /// `0 <= p <= c`: bytes that T1 may have when something must go.
    target_bytes: u64,
}

impl Arc {
    /// Empty lists for a cache of so many bytes.
    #[must_use]
    pub const fn new(capacity_bytes: u64) -> Self {
        Self { units: Lists::new(), capacity_bytes, target_bytes: 0 }
    }

    fn trim(&mut self) {
        let first = |units: &Lists<Unit, (), 4>| units.bytes(T1) + units.bytes(B1);
        let all = |units: &Lists<Unit, (), 4>| first(units) + units.bytes(T2) + units.bytes(B2);
        while first(&self.units) > self.capacity_bytes && self.units.pop_back(B1).is_some() {}
        while all(&self.units) > 2 * self.capacity_bytes && self.units.pop_back(B2).is_some() {}
    }
}

impl Policy for Arc {
    fn name(&self) -> &'static str {
        "arc"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, bytes: u32, _: bool) {
        let Some(place) = self.units.find(unit) else { return };
        let list = self.units.node(place).list;
        let (b1, b2) = (self.units.bytes(B1).max(1), self.units.bytes(B2).max(1));
        let step = |other: u64, own: u64| u64::from(bytes).saturating_mul((other / own).max(1));
        match list {
            B1 => {
                let target = self.target_bytes.saturating_add(step(b2, b1));
                self.target_bytes = target.min(self.capacity_bytes);
            }
            B2 => self.target_bytes = self.target_bytes.saturating_sub(step(b1, b2)),
            _ => self.units.move_front(place, T2),
        }
    }

    fn admits(&mut self, _: Unit, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        let list = if self.units.find(unit).is_some() { T2 } else { T1 };
        self.units.put_front(list, unit, bytes);
        self.trim();
    }

    fn removed(&mut self, unit: Unit) {
        let Some(place) = self.units.find_in(unit, B1) else { return };
        let ghost = if self.units.node(place).list == T1 { B1 } else { B2 };
        self.units.move_front(place, ghost);
        self.trim();
    }

    fn victim(&mut self, for_unit: Option<Unit>) -> Option<Victim> {
        let recent = self.units.bytes(T1);
        let found = for_unit.and_then(|unit| self.units.find(unit));
        let from_b2 = found.is_some_and(|place| self.units.node(place).list == B2);
        let over = recent > self.target_bytes || (from_b2 && recent == self.target_bytes);
        let (first, other) = if over && recent > 0 { (T1, T2) } else { (T2, T1) };
        let place = self.units.back(first).or_else(|| self.units.back(other))?;
        Some(Victim::Unit(self.units.node(place).key))
    }

    fn entries(&self) -> usize {
        self.units.entries()
    }
}

const T1: u8 = 0;
const T2: u8 = 1;
/// Lists below hold units of the cache.
const B1: u8 = 2;
const B2: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn a_scan_does_not_push_out_what_was_used_twice() {
        let mut scan = Arc::new(4);
        for object in [1, 2] {
            insert(&mut scan, unit(object, 0), 1);
            use_held(&mut scan, unit(object, 0));
        }
        insert(&mut scan, unit(10, 0), 1);
        insert(&mut scan, unit(11, 0), 1);
        for object in 12..20 {
            assert_eq!(evict(&mut scan, 1), [unit(object - 2, 0)]);
            insert(&mut scan, unit(object, 0), 1);
        }
        assert_eq!((scan.units.len(T1), scan.units.len(T2)), (2, 2));
    }

    #[test]
    fn misses_among_ghosts_move_the_target() {
        let mut arc = Arc::new(4);
        insert(&mut arc, unit(1, 0), 1);
        use_held(&mut arc, unit(1, 0));
        for object in 2..=4 {
            insert(&mut arc, unit(object, 0), 1);
        }
        assert_eq!(evict(&mut arc, 1), [unit(2, 0)]);
        // 2 is missed: it was recent, so recency gets more room and 2 enters T2.
        insert(&mut arc, unit(2, 0), 1);
        assert_eq!((arc.target_bytes, arc.units.len(T2), arc.units.len(B1)), (1, 2, 0));
        use_held(&mut arc, unit(3, 0));
        // T1 has what its target allows: the oldest of T2 goes, and comes back.
        assert_eq!(evict(&mut arc, 1), [unit(1, 0)]);
        insert(&mut arc, unit(1, 0), 1);
        assert_eq!((arc.target_bytes, arc.units.len(B2)), (0, 0));
    }

    #[test]
    fn ghosts_stay_within_twice_the_capacity() {
        let mut arc = Arc::new(4);
        for object in 0..100 {
            insert(&mut arc, unit(object, 0), 1);
            if object % 3 == 0 {
                use_held(&mut arc, unit(object, 0));
            }
            if object >= 4 {
                evict(&mut arc, 1);
            }
            assert!(arc.entries() <= 8, "{}", arc.entries());
        }
    }
}
