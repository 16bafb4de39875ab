//! Least frequently used with dynamic aging, by unit.
//!
//! M. Arlitt et al., "Evaluating Content Management Techniques for Web Proxy
//! Caches", ACM SIGMETRICS Performance Evaluation Review 27(4), 2000: a unit's
//! priority is its uses plus the priority of the last victim.

use crate::gdsf::{Aged, Worth};
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// LFU-DA by unit.
#[derive(Debug)]
pub struct LfuDa(Aged);

impl LfuDa {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self(Aged::new(Worth::Even))
    }
}

impl Default for LfuDa {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for LfuDa {
    fn name(&self) -> &'static str {
        "lfu-da"
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
    fn a_unit_used_often_long_ago_is_overtaken() {
        let mut lfu = LfuDa::new();
        insert(&mut lfu, unit(1, 0), 1);
        for _ in 0..2 {
            use_held(&mut lfu, unit(1, 0));
        }
        // Priority 3 against 1, then 1 + 1, then 2 + 1: equal, and younger.
        for object in 2..=3 {
            insert(&mut lfu, unit(object, 0), 1);
            assert_eq!(evict(&mut lfu, 1), [unit(object, 0)]);
        }
        insert(&mut lfu, unit(4, 0), 1);
        assert_eq!(evict(&mut lfu, 2), [unit(1, 0), unit(4, 0)]);
    }
}
