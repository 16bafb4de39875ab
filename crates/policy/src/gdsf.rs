//! Greedy-Dual-Size-Frequency: many small objects rather than a large one.
//!
//! L. Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency
//! Caching Policy", HP Laboratories HPL-98-69, 1998. A unit's priority is
//! L + uses x cost / size, cost 1; L is the priority of the last victim, so that
//! what is not used ages. It maximises hits, not bytes: for the tier of small web
//! objects, not for segments of one size.
//!
//! A unit costs about 75 bytes.

use crate::heap::Heap;
use crate::lists::{Lists, Place};
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// GDSF by unit.
#[derive(Debug)]
pub struct Gdsf(Aged);

impl Gdsf {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self(Aged::new(Worth::PerByte))
    }
}

impl Default for Gdsf {
    fn default() -> Self {
        Self::new()
    }
}

/// What a use is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Worth {
    /// The same whatever the size: LFU with dynamic aging.
    Even,
    /// One by the size: GDSF.
    PerByte,
}

/// Priorities that age: the last victim's is added to what is used.
#[derive(Debug)]
pub(crate) struct Aged {
    worth: Worth,
    units: Lists<Unit, Uses, 1>,
    /// By priority; among equals what was used longest ago.
    order: Heap<(u64, u64)>,
    age: u64,
    // Calls of `set`, to tell equals apart.
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Uses(u32);

impl Aged {
    pub(crate) const fn new(worth: Worth) -> Self {
        Self { worth, units: Lists::new(), order: Heap::new(), age: 0, clock: 0 }
    }

    pub(crate) fn used(&mut self, unit: Unit) {
        if let Some(place) = self.units.find(unit) {
            let uses = self.units.value_mut(place);
            uses.0 = uses.0.saturating_add(1);
            self.set(place);
        }
    }

    pub(crate) fn inserted(&mut self, unit: Unit, bytes: u32) {
        let place = self.units.put_front(0, unit, bytes);
        *self.units.value_mut(place) = Uses(1);
        self.set(place);
    }

    pub(crate) fn removed(&mut self, unit: Unit) {
        if let Some(place) = self.units.find(unit) {
            self.order.remove(place);
            self.units.remove(place);
        }
    }

    pub(crate) fn victim(&mut self) -> Option<Victim> {
        let ((priority, _), place) = self.order.first()?;
        self.age = self.age.max(priority);
        Some(Victim::Unit(self.units.node(place).key))
    }

    pub(crate) fn entries(&self) -> usize {
        self.units.entries()
    }

    fn set(&mut self, place: Place) {
        let node = self.units.node(place);
        let uses = u64::from(node.value.0);
        let worth = match self.worth {
            Worth::Even => uses,
            Worth::PerByte => (uses << 32) / u64::from(node.bytes.max(1)),
        };
        self.clock += 1;
        self.order.set(place, (self.age.saturating_add(worth), self.clock));
    }
}

impl Policy for Gdsf {
    fn name(&self) -> &'static str {
        "gdsf"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, _: u32, _: bool) {
        self.0.used(unit);
    }

    fn admits(&mut self, _: Unit, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        self.0.inserted(unit, bytes);
    }

    fn removed(&mut self, unit: Unit) {
        self.0.removed(unit);
    }

    fn victim(&mut self, _: Option<Unit>) -> Option<Victim> {
        self.0.victim()
    }

    fn entries(&self) -> usize {
        self.0.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn the_large_and_the_unused_go_first() {
        let mut gdsf = Gdsf::new();
        insert(&mut gdsf, unit(1, 0), 1000);
        insert(&mut gdsf, unit(2, 0), 10);
        insert(&mut gdsf, unit(3, 0), 100);
        for _ in 0..20 {
            use_held(&mut gdsf, unit(1, 0));
        }
        // 21/1000 of object 1 against 1/100 of object 3 and 1/10 of object 2.
        assert_eq!(evict(&mut gdsf, 3), [unit(3, 0), unit(1, 0), unit(2, 0)]);
    }

    #[test]
    fn priorities_age_with_each_victim() {
        let mut gdsf = Gdsf::new();
        insert(&mut gdsf, unit(1, 0), 8);
        for _ in 0..2 {
            use_held(&mut gdsf, unit(1, 0));
        }
        for object in 2..=3 {
            insert(&mut gdsf, unit(object, 0), 8);
            assert_eq!(evict(&mut gdsf, 1), [unit(object, 0)]);
        }
        // The newcomer's priority is now L + 1/8 = 3/8: equal, and younger.
        insert(&mut gdsf, unit(4, 0), 8);
        assert_eq!(evict(&mut gdsf, 2), [unit(1, 0), unit(4, 0)]);
    }
}
