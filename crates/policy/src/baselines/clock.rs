//! CLOCK: a queue in which what was used goes round once more.
//!
//! F. J. Corbató, "A Paging Experiment with the Multics System", MIT Project MAC,
//! 1968. One bit per unit, set by a hit, cleared when the unit is spared.

use crate::lists::Lists;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// FIFO with a second chance.
#[derive(Debug)]
pub struct Clock {
    units: Lists<Unit, (), 1>,
}

impl Clock {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { units: Lists::new() }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Clock {
    fn name(&self) -> &'static str {
        "clock"
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
        if let Some(place) = self.units.find(unit) {
            self.units.remove(place);
        }
    }

    fn victim(&mut self, _: Option<Unit>) -> Option<Victim> {
        // Ends: each step clears a bit.
        loop {
            let place = self.units.back(0)?;
            if self.units.node(place).mark == 0 {
                return Some(Victim::Unit(self.units.node(place).key));
            }
            *self.units.mark_mut(place) = 0;
            self.units.move_front(place, 0);
        }
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
    fn the_used_go_round_once() {
        let mut clock = Clock::new();
        for object in 1..=3 {
            insert(&mut clock, unit(object, 0), 1);
        }
        use_held(&mut clock, unit(1, 0));
        use_held(&mut clock, unit(1, 0));
        assert_eq!(evict(&mut clock, 3), [unit(2, 0), unit(3, 0), unit(1, 0)]);
    }
}
