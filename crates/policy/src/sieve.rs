//! SIEVE: a queue, a visited bit, and a hand that does not move what it spares.
//!
//! Y. Zhang et al., "SIEVE is Simpler than LRU: an Efficient Turn-Key Eviction
//! Algorithm for Web Caches", NSDI 2024. New units enter at the head. The hand goes
//! from tail to head; a visited unit is spared where it stands and its bit cleared,
//! the first that is not visited goes.
//!
//! A unit costs about 40 bytes; a hit sets one bit.

use crate::lists::{Lists, Place};
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// SIEVE by unit.
#[derive(Debug)]
pub struct Sieve {
    units: Lists<Unit, (), 1>,
    /// Where the hand stands; `None`: at the tail.
    hand: Option<Place>,
}

impl Sieve {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { units: Lists::new(), hand: None }
    }
}

impl Default for Sieve {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Sieve {
    fn name(&self) -> &'static str {
        "sieve"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, _: u32, _: bool) {
        if let Some(place) = self.units.find(unit) {
            *self.units.mark_mut(place) = 1;
        }
    }

    fn admits(&mut self, _: Unit, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        self.units.put_front(0, unit, bytes);
    }

    fn removed(&mut self, unit: Unit) {
        let Some(place) = self.units.find(unit) else { return };
        if self.hand == Some(place) {
            self.hand = self.units.ahead(place);
        }
        self.units.remove(place);
    }

    fn victim(&mut self, _: Option<Unit>) -> Option<Victim> {
        let mut place = self.hand.or_else(|| self.units.back(0))?;
        // Ends: each step clears a bit.
        while self.units.node(place).mark != 0 {
            *self.units.mark_mut(place) = 0;
            place = self.units.ahead(place).or_else(|| self.units.back(0))?;
        }
        self.hand = Some(place);
        Some(Victim::Unit(self.units.node(place).key))
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
    fn the_papers_example_of_sieving() {
        // Figure 1 of the paper: A to G from tail to head, A, B and G visited.
        let mut sieve = Sieve::new();
        let [a, b, c, d, e, f, g, h, i] = std::array::from_fn(|at| unit(at as u64, 0));
        for unit in [a, b, c, d, e, f, g] {
            insert(&mut sieve, unit, 1);
        }
        for visited in [a, b, g] {
            use_held(&mut sieve, visited);
        }
        // The hand spares A and B where they stand and takes C.
        assert_eq!(evict(&mut sieve, 1), [c]);
        insert(&mut sieve, h, 1);
        // It goes on from there, not from the tail.
        use_held(&mut sieve, a);
        assert_eq!(evict(&mut sieve, 1), [d]);
        insert(&mut sieve, i, 1);
        use_held(&mut sieve, b);
        assert_eq!(evict(&mut sieve, 2), [e, f]);
        // G is spared, H and I are new, then around to A and B.
        assert_eq!(evict(&mut sieve, 5), [h, i, g, a, b]);
    }
}
