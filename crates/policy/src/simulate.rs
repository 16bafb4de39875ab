//! A cache without bytes: what a policy would have kept of a trace.
//!
//! A [`Simulation`] is the smallest host of a [`Policy`]. A unit is held whole or
//! not at all and arrives when it is asked for; there is no time. A unit takes the
//! room of the request that brought it in.
//!
//! Each request costs one or two look-ups in the policy's tables. What is held
//! costs 4 to 8 bytes a unit and 40 an object, beside what the policy remembers.
//!
//! # Panics
//!
//! A policy that names a victim that is not held is wrong, and stops the simulation.

use crate::kind::Kind;
use crate::policy::{ObjectKey, Policy, Unit, Victim};
use crate::trace::{Request, Trace};

/// What came of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests for units.
    pub requests: u64,
    /// Of them, those answered from the cache.
    pub hits: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Of them, those from the cache.
    pub hit_bytes: u64,
    /// Units let in.
    pub admitted: u64,
    /// Their bytes.
    pub admitted_bytes: u64,
    /// Units that had to go.
    pub evictions: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
}

impl Report {
    /// Share of requests answered from the cache; of objects, when objects are whole.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        share(self.hits, self.requests)
    }

    /// Share of bytes answered from the cache.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> f64 {
        share(self.hit_bytes, self.requested_bytes)
    }
}

/// A policy at work.
#[derive(Debug)]
pub struct Simulation {
    policy: Box<dyn Policy>,
    /// Where eviction begins and ends: `low <= high <= capacity`.
    high_bytes: u64,
    low_bytes: u64,
    exact: bool,
    /// By number of the object.
    objects: Vec<Held>,
    /// `used <= high`.
    used_bytes: u64,
    report: Report,
}

impl Simulation {
    /// An empty cache of `capacity_bytes` under `kind`.
    #[must_use]
    pub fn new(kind: Kind, capacity_bytes: u64) -> Self {
        Self::with(kind.build(capacity_bytes), capacity_bytes)
    }

    /// An empty cache under a policy made elsewhere.
    #[must_use]
    pub fn with(policy: Box<dyn Policy>, capacity_bytes: u64) -> Self {
        let marks = policy.watermarks();
        Self {
            policy,
            high_bytes: part(capacity_bytes, marks.high),
            low_bytes: part(capacity_bytes, marks.low.min(marks.high)),
            exact: marks.is_exact(),
            objects: Vec::new(),
            used_bytes: 0,
            report: Report::default(),
        }
    }

    /// Replays a whole trace.
    #[must_use]
    pub fn run(kind: Kind, capacity_bytes: u64, trace: &Trace) -> Report {
        let mut simulation = Self::new(kind, capacity_bytes);
        for request in trace.requests() {
            simulation.request(request);
        }
        simulation.report()
    }

    /// One request; answers whether it was a hit.
    pub fn request(&mut self, request: &Request) -> bool {
        let &Request { object, number, bytes, begins } = request;
        let unit = Unit { object: ObjectKey(u64::from(object)), number };
        if self.objects.len() <= object as usize {
            self.objects.resize_with(object as usize + 1, Held::default);
        }
        if begins {
            self.policy.wanted(unit.object);
        }
        let hit = self.objects[object as usize].bytes(number) > 0;
        self.policy.used(unit, bytes, hit);
        self.report.requests += 1;
        self.report.requested_bytes += u64::from(bytes);
        if hit {
            self.report.hits += 1;
            self.report.hit_bytes += u64::from(bytes);
        } else if self.make_room(unit, bytes) {
            // A unit of no bytes would not be told from one that is not held.
            let bytes = bytes.max(1);
            self.objects[object as usize].insert(number, bytes);
            self.used_bytes += u64::from(bytes);
            self.report.admitted += 1;
            self.report.admitted_bytes += u64::from(bytes);
            self.policy.inserted(unit, bytes);
        }
        hit
    }

    /// What came of it so far.
    #[must_use]
    pub const fn report(&self) -> Report {
        self.report
    }

    /// Bytes held; never more than the capacity.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Drops everything, as an operator might. No eviction.
    pub fn clear(&mut self) {
        for object in 0..self.objects.len() {
            while let Some(number) = self.objects[object].last() {
                self.drop_unit(object, number);
            }
        }
    }

    /// Whether there is room for a missed unit now.
    fn make_room(&mut self, unit: Unit, bytes: u32) -> bool {
        let bytes = u64::from(bytes.max(1));
        if self.used_bytes + bytes <= self.high_bytes {
            return true;
        }
        let fits = bytes <= self.low_bytes;
        if !fits || !self.policy.admits(unit, u32::try_from(bytes).unwrap_or(u32::MAX)) {
            return false;
        }
        let for_unit = self.exact.then_some(unit);
        while self.used_bytes + bytes > self.low_bytes {
            let Some(victim) = self.policy.victim(for_unit) else {
                return self.used_bytes + bytes <= self.high_bytes;
            };
            self.evict(victim);
        }
        true
    }

    fn evict(&mut self, victim: Victim) {
        let (key, number) = match victim {
            Victim::Unit(unit) => (unit.object, Some(unit.number)),
            Victim::LastOf(key) => (key, None),
        };
        let object = usize::try_from(key.0).unwrap_or(usize::MAX);
        let number = number.or_else(|| self.objects.get_mut(object)?.last());
        let freed = number.map_or(0, |number| self.drop_unit(object, number));
        assert!(freed > 0, "{}: {victim:?} is not held", self.policy.name());
        self.report.evictions += 1;
        self.report.evicted_bytes += freed;
    }

    /// Drops a unit; answers its bytes, 0 when it is not held.
    fn drop_unit(&mut self, object: usize, number: u32) -> u64 {
        let bytes = self.objects.get_mut(object).map_or(0, |held| held.remove(number));
        if bytes > 0 {
            self.used_bytes -= u64::from(bytes);
            self.policy.removed(Unit { object: ObjectKey(object as u64), number });
        }
        u64::from(bytes)
    }
}

/// What is held of an object: the size of each unit, 0 for none.
#[derive(Debug, Default)]
struct Held {
    /// Unit 0, so that a whole object needs no allocation.
    first: u32,
    /// Units 1 and up.
    rest: Vec<u32>,
    /// No unit at or above this number is held.
    end: u32,
}

impl Held {
    fn insert(&mut self, number: u32, bytes: u32) {
        if number == 0 {
            self.first = bytes;
        } else {
            let at = number as usize - 1;
            if self.rest.len() <= at {
                self.rest.resize(at + 1, 0);
            }
            self.rest[at] = bytes;
        }
        self.end = self.end.max(number + 1);
    }

    fn remove(&mut self, number: u32) -> u32 {
        let place = match number.checked_sub(1) {
            None => Some(&mut self.first),
            Some(at) => self.rest.get_mut(at as usize),
        };
        place.map_or(0, std::mem::take)
    }

    /// The highest-numbered unit held.
    fn last(&mut self) -> Option<u32> {
        while self.end > 0 && self.bytes(self.end - 1) == 0 {
            self.end -= 1;
        }
        self.end.checked_sub(1)
    }

    fn bytes(&self, number: u32) -> u32 {
        match number.checked_sub(1) {
            None => self.first,
            Some(at) => self.rest.get(at as usize).copied().unwrap_or(0),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 53 bits")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares are between 0 and 1, and a watermark is not exact to a byte"
)]
fn part(bytes: u64, share: f64) -> u64 {
    if share >= 1.0 { bytes } else { (bytes as f64 * share) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(objects: &[u32]) -> Vec<Request> {
        let request = |&object| Request { object, number: 0, bytes: 10, begins: true };
        objects.iter().map(request).collect()
    }

    fn hits(simulation: &mut Simulation, objects: &[u32]) -> Vec<bool> {
        requests(objects).iter().map(|request| simulation.request(request)).collect()
    }

    #[test]
    fn lru_hits_are_those_of_the_textbook() {
        let mut simulation = Simulation::new(Kind::Lru, 30);
        let hits = hits(&mut simulation, &[1, 2, 3, 1, 4, 2, 1, 3]);
        assert_eq!(hits, [false, false, false, true, false, false, true, false]);
        let report = simulation.report();
        assert_eq!((report.requests, report.hits, report.evictions), (8, 2, 3));
        assert_eq!((report.hit_ratio(), report.byte_hit_ratio()), (0.25, 0.25));
        assert_eq!((report.admitted_bytes, report.evicted_bytes), (60, 30));
    }

    #[test]
    fn the_papers_watermarks_evict_in_a_batch() {
        let mut simulation = Simulation::new(Kind::SegmentLru, 100);
        hits(&mut simulation, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((simulation.used_bytes(), simulation.report().evictions), (90, 0));
        hits(&mut simulation, &[10]);
        assert_eq!((simulation.used_bytes(), simulation.report().evictions), (80, 2));
    }

    #[test]
    fn what_is_larger_than_the_cache_is_refused() {
        let mut simulation = Simulation::new(Kind::Lru, 30);
        let large = Request { object: 0, number: 0, bytes: 31, begins: true };
        assert!(!simulation.request(&large) && !simulation.request(&large));
        assert_eq!((simulation.used_bytes(), simulation.report().admitted), (0, 0));
    }

    #[test]
    fn an_object_loses_its_last_units_first() {
        let mut simulation = Simulation::new(Kind::ObjectTinyLfu, 40);
        let ask = |simulation: &mut Simulation, object, number, begins| {
            simulation.request(&Request { object, number, bytes: 10, begins })
        };
        for number in [2, 0, 3, 1] {
            ask(&mut simulation, 1, number, number == 2);
        }
        ask(&mut simulation, 2, 0, true);
        assert!(!ask(&mut simulation, 2, 0, true), "hotter now, but not held");
        assert!(ask(&mut simulation, 2, 0, false));
        let held: Vec<_> = (0..4).map(|n| simulation.objects[1].bytes(n) > 0).collect();
        assert_eq!(held, [true, true, true, false]);
        simulation.clear();
        assert_eq!(simulation.used_bytes(), 0);
    }
}
