//! S3-FIFO: a small queue sifts out what is asked for once.
//!
//! J. Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.
//! New units enter the small queue S (10 % of the capacity), those remembered in
//! the ghost queue G enter the main queue M. While S is over its share its tail
//! goes: into M when it was used twice or more, else out and into G. In M a used
//! unit goes round again with its count lowered by one. Counts end at 3.
//!
//! Deviates: the ghost queue is bounded by the bytes its units had, the share of
//! M, because units differ in size; as libCacheSim does.
//!
//! A unit costs about 40 bytes, and so does a ghost.

use crate::lists::Lists;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// S3-FIFO by unit.
#[derive(Debug)]
pub struct S3Fifo {
    units: Lists<Unit, (), 3>,
    small_bytes_max: u64,
    ghost_bytes_max: u64,
}

impl S3Fifo {
    /// Empty queues for a cache of so many bytes.
    #[must_use]
    pub const fn new(capacity_bytes: u64) -> Self {
        let small_bytes_max = capacity_bytes / 10;
        let ghost_bytes_max = capacity_bytes - small_bytes_max;
        Self { units: Lists::new(), small_bytes_max, ghost_bytes_max }
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }

    fn wanted(&mut self, _: ObjectKey) {}

    fn used(&mut self, unit: Unit, _: u32, _: bool) {
        if let Some(place) = self.units.find_in(unit, GHOST) {
            let count = self.units.mark_mut(place);
            *count = (*count + 1).min(COUNT_MAX);
        }
    }

    fn admits(&mut self, _: Unit, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        let queue = if self.units.find(unit).is_some() { MAIN } else { SMALL };
        let place = self.units.put_front(queue, unit, bytes);
        *self.units.mark_mut(place) = 0;
    }

    fn removed(&mut self, unit: Unit) {
        let Some(place) = self.units.find_in(unit, GHOST) else { return };
        if self.units.node(place).list == MAIN {
            self.units.remove(place);
            return;
        }
        self.units.move_front(place, GHOST);
        while self.units.bytes(GHOST) > self.ghost_bytes_max {
            self.units.pop_back(GHOST);
        }
    }

    fn victim(&mut self, _: Option<Unit>) -> Option<Victim> {
        // Ends: each step moves a unit from S to M or lowers a count.
        loop {
            let from_small = self.units.bytes(SMALL) > self.small_bytes_max;
            let tail = if from_small { None } else { self.units.back(MAIN) };
            let place = tail.or_else(|| self.units.back(SMALL))?;
            let node = self.units.node(place);
            let (unit, list, count) = (node.key, node.list, node.mark);
            if list == SMALL && count >= COUNT_OF_MAIN {
                *self.units.mark_mut(place) = 0;
            } else if list == MAIN && count > 0 {
                *self.units.mark_mut(place) = count - 1;
            } else {
                return Some(Victim::Unit(unit));
            }
            // Its own queue's front when it was in M; a queue of one stays as it is.
            self.units.move_front(place, MAIN);
        }
    }

    fn entries(&self) -> usize {
        self.units.entries()
    }
}

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// Lists below hold units of the cache.
const GHOST: u8 = 2;
const COUNT_MAX: u8 = 3;
/// Uses after which a unit of S belongs into M.
const COUNT_OF_MAIN: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{evict, insert, unit, use_held};

    #[test]
    fn one_hit_wonders_leave_and_the_used_move_to_main() {
        let mut policy = S3Fifo::new(100);
        for object in 0..10 {
            insert(&mut policy, unit(object, 0), 10);
        }
        for _ in 0..2 {
            use_held(&mut policy, unit(0, 0));
        }
        use_held(&mut policy, unit(1, 0));
        // 0 was used twice and moves on; once, as 1 was, does not suffice.
        assert_eq!(evict(&mut policy, 8), (1..9).map(|n| unit(n, 0)).collect::<Vec<_>>());
        assert_eq!((policy.units.len(SMALL), policy.units.len(MAIN)), (1, 1));
        // S is within its share: M's tail goes, which was not used since.
        assert_eq!(evict(&mut policy, 2), [unit(0, 0), unit(9, 0)]);
    }

    #[test]
    fn what_the_ghost_queue_knows_enters_main_and_goes_round_while_used() {
        let mut policy = S3Fifo::new(100);
        insert(&mut policy, unit(1, 0), 20);
        assert_eq!(evict(&mut policy, 1), [unit(1, 0)]);
        insert(&mut policy, unit(1, 0), 20);
        assert_eq!((policy.units.len(MAIN), policy.units.len(GHOST)), (1, 0));
        insert(&mut policy, unit(2, 0), 10);
        use_held(&mut policy, unit(1, 0));
        // S holds its share and no more; M's only unit loses its count, then goes.
        assert_eq!(evict(&mut policy, 1), [unit(1, 0)]);
    }

    #[test]
    fn ghosts_are_bounded_by_the_share_of_main() {
        let mut policy = S3Fifo::new(100);
        for object in 0..100 {
            insert(&mut policy, unit(object, 0), 10);
            evict(&mut policy, 1);
        }
        assert_eq!((policy.units.len(GHOST), policy.entries()), (9, 9));
    }
}
