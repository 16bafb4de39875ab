//! W-TinyLFU: a small LRU window, and a contest for the place behind it.
//!
//! G. Einziger, R. Friedman, B. Manes, "TinyLFU: A Highly Efficient Cache Admission
//! Policy", ACM Transactions on Storage 13(4), 2017. New units enter an LRU window
//! of 1 %. The window's last and the main part's last compare their frequencies,
//! estimated by a count-min sketch that halves after ten additions per counter; the
//! loser goes. The main part is a segmented LRU, 80 % of it protected. Without the
//! doorkeeper, an optimisation of the sketch's memory.

use crate::lists::{Key, Lists, mix};
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// W-TinyLFU by unit.
#[derive(Debug)]
pub struct WTinyLfu {
    units: Lists<Unit, (), 3>,
    sketch: Sketch,
    window_bytes_max: u64,
    main_bytes_max: u64,
    protected_bytes_max: u64,
}

impl WTinyLfu {
    /// Empty, for a cache of so many bytes.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        let window_bytes_max = capacity_bytes / 100;
        let main_bytes_max = capacity_bytes - window_bytes_max;
        Self {
            units: Lists::new(),
            sketch: Sketch::new(),
            window_bytes_max,
            main_bytes_max,
            protected_bytes_max: main_bytes_max / 5 * 4,
        }
    }

    fn main_bytes(&self) -> u64 {
        self.units.bytes(PROBATION) + self.units.bytes(PROTECTED)
    }

    fn frequency(&self, place: u32) -> u8 {
        self.sketch.estimate(self.units.node(place).key.hash())
    }
}

impl Policy for WTinyLfu {
    fn name(&self) -> &'static str {
        "w-tinylfu"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, _: u32, _: bool) {
        self.sketch.add(unit.hash());
        let Some(place) = self.units.find(unit) else { return };
        if self.units.node(place).list == WINDOW {
            self.units.move_front(place, WINDOW);
            return;
        }
        self.units.move_front(place, PROTECTED);
        while self.units.bytes(PROTECTED) > self.protected_bytes_max {
            let Some(last) = self.units.back(PROTECTED) else { break };
            self.units.move_front(last, PROBATION);
        }
    }

    fn admits(&mut self, _: Unit, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        self.units.put_front(WINDOW, unit, bytes);
        self.sketch.fit(self.units.entries());
        // While there is room behind the window nothing is contested.
        while self.units.bytes(WINDOW) > self.window_bytes_max {
            let Some(last) = self.units.back(WINDOW) else { break };
            let bytes = u64::from(self.units.node(last).bytes);
            if self.main_bytes() + bytes > self.main_bytes_max {
                break;
            }
            self.units.move_front(last, PROBATION);
        }
    }

    fn removed(&mut self, unit: Unit) {
        if let Some(place) = self.units.find(unit) {
            self.units.remove(place);
        }
    }

    fn victim(&mut self, _: Option<Unit>) -> Option<Victim> {
        let main = self.units.back(PROBATION).or_else(|| self.units.back(PROTECTED));
        let candidate = self.units.back(WINDOW);
        let place = match (candidate, main) {
            (Some(candidate), Some(main)) => {
                let bytes = u64::from(self.units.node(candidate).bytes);
                // The newcomer is taken to be as large as the one it pushes out.
                if self.units.bytes(WINDOW) + bytes <= self.window_bytes_max {
                    main
                } else if self.frequency(candidate) > self.frequency(main) {
                    self.units.move_front(candidate, PROBATION);
                    main
                } else {
                    candidate
                }
            }
            (candidate, main) => candidate.or(main)?,
        };
        Some(Victim::Unit(self.units.node(place).key))
    }

    fn entries(&self) -> usize {
        self.units.entries()
    }
}

/// Frequencies from below, forgetting: four rows of counters up to 15.
#[derive(Debug)]
struct Sketch {
    /// `ROWS` rows after each other, each `width` wide, a power of two.
    counters: Vec<[u8; ROWS]>,
    additions: usize,
}

impl Sketch {
    fn new() -> Self {
        Self { counters: vec![[0; ROWS]; WIDTH_MIN], additions: 0 }
    }

    /// Grows to at least one counter a row for each unit. A counter is found by the
    /// low bits of a hash, so both halves begin with what was counted so far.
    fn fit(&mut self, units: usize) {
        while self.counters.len() < units {
            self.counters.extend_from_within(..);
        }
    }

    fn add(&mut self, hash: u64) {
        for (row, at) in self.places(hash).into_iter().enumerate() {
            let counter = &mut self.counters[at][row];
            *counter = (*counter + 1).min(COUNT_MAX);
        }
        self.additions += 1;
        if self.additions >= 10 * self.counters.len() {
            self.additions /= 2;
            self.counters.iter_mut().flatten().for_each(|counter| *counter /= 2);
        }
    }

    fn estimate(&self, hash: u64) -> u8 {
        let rows = self.places(hash).into_iter().enumerate();
        rows.map(|(row, at)| self.counters[at][row]).min().unwrap_or(0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
    fn places(&self, hash: u64) -> [usize; ROWS] {
        let mask = self.counters.len() - 1;
        std::array::from_fn(|row| mix(hash ^ (row as u64) << 32) as usize & mask)
    }
}

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;
const ROWS: usize = 4;
const WIDTH_MIN: usize = 1 << 12;
const COUNT_MAX: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn a_candidate_must_be_more_frequent_than_the_mains_last() {
        let mut policy = WTinyLfu::new(100);
        for object in 0..10 {
            insert(&mut policy, unit(object, 0), 10);
        }
        for object in 0..9 {
            use_held(&mut policy, unit(object, 0));
        }
        // 9 is in the window and was asked for once, all others twice.
        assert_eq!(evict(&mut policy, 1), [unit(9, 0)]);
        insert(&mut policy, unit(10, 0), 10);
        for _ in 0..3 {
            use_held(&mut policy, unit(10, 0));
        }
        assert_eq!(evict(&mut policy, 1), [unit(0, 0)]);
        assert_eq!(policy.units.node(policy.units.find(unit(10, 0)).unwrap()).list, PROBATION);
    }

    #[test]
    fn the_sketch_estimates_grows_and_forgets() {
        let mut sketch = Sketch::new();
        for _ in 0..20 {
            sketch.add(7);
        }
        assert_eq!((sketch.estimate(7), sketch.estimate(8)), (15, 0));
        sketch.fit(WIDTH_MIN + 1);
        assert_eq!((sketch.counters.len(), sketch.estimate(7)), (2 * WIDTH_MIN, 15));
        for other in 0..20 * WIDTH_MIN as u64 {
            sketch.add(mix(other) | 1 << 63);
        }
        assert!(sketch.estimate(7) <= 13);
    }
}
