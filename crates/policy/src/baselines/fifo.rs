//! First in, first out.

use crate::lists::Lists;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// A queue that hits do not change.
#[derive(Debug)]
pub struct Fifo {
    units: Lists<Unit, (), 1>,
}

impl Fifo {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { units: Lists::new() }
    }
}

impl Default for Fifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, _: Unit, _: u32, _: bool) {}

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

    fn entries(&self) -> usize {
        self.units.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn use_saves_nothing() {
        let mut fifo = Fifo::new();
        for object in 1..=3 {
            insert(&mut fifo, unit(object, 0), 1);
        }
        use_held(&mut fifo, unit(1, 0));
        assert_eq!(evict(&mut fifo, 3), [unit(1, 0), unit(2, 0), unit(3, 0)]);
    }
}
