//! Frequency per object, space per unit: the policy of the store.
//!
//! After G. Einziger, R. Friedman, B. Manes, "TinyLFU: A Highly Efficient Cache
//! Admission Policy", ACM Transactions on Storage 13(4), 2017: what is missed gets
//! room only from what was asked for less often. A segment of a peer-to-peer object
//! is seen less than twice, too few samples to compare; its object is seen by every
//! download. So a download counts once, for its object; room is given and taken by
//! unit. The object with the smallest count loses its last unit, and never to
//! itself: an object that does not fit is held in part.
//!
//! Counts decay: a download is worth twice as much as one that came a half-life
//! before it, and between linearly interpolated, which keeps the order of objects
//! as they age and costs nothing. Counts are integers, so that every machine gives
//! the same victims. A half-life of [`HELD_OBJECTS_FACTOR`] downloads for each
//! object held follows the cache: a small one holds what is popular now, a large one
//! tells the rarer apart and needs more samples. `pcache/policies` measures it
//! beside counts that never decay.
//!
//! | variant | admits | counts |
//! |---|---|---|
//! | [`ObjectFrequencyOptions::default`] | what is hotter | decay |
//! | [`ObjectFrequencyOptions::TINY_LFU`] | what is hotter | for ever |
//! | [`ObjectFrequencyOptions::LFU_DA`] | everything | plus the last victim's |
//!
//! An object costs about 85 bytes while held, 60 in the history; a unit nothing.

use crate::heap::Heap;
use crate::lists::Place;
use crate::objects::Objects;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// How objects are counted and what is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFrequencyOptions {
    /// Let everything in, whatever its count, and let counts age as LFU-DA does.
    pub admit_all: bool,
    /// When a download is worth half as much as a new one.
    pub half_life: HalfLife,
}

/// Downloads, of all objects, after which a download is worth half as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfLife {
    /// So many, at least 1 and at most [`HALF_LIFE_DOWNLOADS_MAX`].
    Downloads(u32),
    /// So many for each object held, within the same bounds; fewer objects than 64
    /// count as 64.
    PerHeldObject(u32),
    /// Counts are for ever.
    Never,
}

impl ObjectFrequencyOptions {
    /// Object-level TinyLFU with counts that never decay.
    pub const TINY_LFU: Self = Self { admit_all: false, half_life: HalfLife::Never };
    /// Object-level LFU with dynamic aging, which admits everything.
    pub const LFU_DA: Self = Self { admit_all: true, half_life: HalfLife::Never };
}

impl Default for ObjectFrequencyOptions {
    fn default() -> Self {
        Self { admit_all: false, half_life: HalfLife::PerHeldObject(HELD_OBJECTS_FACTOR) }
    }
}

/// Object-level frequency: admission by comparison, eviction of the coldest.
#[derive(Debug)]
pub struct ObjectFrequency {
    name: &'static str,
    options: ObjectFrequencyOptions,
    objects: Objects<State>,
    /// Held objects: smallest count first, among equals who was wanted longest ago.
    coldest: Heap<(u64, u64)>,
    /// Downloads so far.
    downloads: u64,
    /// What a download is worth now: `ONE` at the beginning.
    weight: Weight,
    /// The largest count of a victim, for LFU-DA.
    age: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    count: u64,
    /// The download that counted last.
    wanted: u64,
}

impl ObjectFrequency {
    /// An empty policy under a name of its own.
    #[must_use]
    pub fn new(name: &'static str, options: ObjectFrequencyOptions) -> Self {
        Self {
            name,
            options,
            objects: Objects::new(),
            coldest: Heap::new(),
            downloads: 0,
            weight: Weight { doublings: 0, phase: 0 },
            age: 0,
        }
    }

    fn order(&mut self, place: Place) {
        let State { count, wanted } = *self.objects.state(place);
        self.coldest.set(place, (count, wanted));
    }

    /// Divides every count, so that weights fit again. The order stays.
    fn rescale(&mut self) {
        self.objects.for_each(|state| state.count >>= RESCALE_BITS);
        self.coldest.rescale(|(count, wanted)| (count >> RESCALE_BITS, wanted));
        self.age >>= RESCALE_BITS;
        self.weight.doublings -= RESCALE_BITS;
    }

    fn half_life_downloads(&self) -> Option<u32> {
        let downloads = match self.options.half_life {
            HalfLife::Downloads(downloads) => downloads,
            HalfLife::PerHeldObject(factor) => {
                let held = u32::try_from(self.objects.held()).unwrap_or(u32::MAX);
                factor.saturating_mul(held.max(HELD_OBJECTS_MIN))
            }
            HalfLife::Never => return None,
        };
        Some(downloads.clamp(1, HALF_LIFE_DOWNLOADS_MAX))
    }

    fn count(&self, object: ObjectKey) -> u64 {
        self.objects.find(object).map_or(0, |place| self.objects.state(place).count)
    }

    /// The coldest held object but for the one of `unit`.
    fn coldest_for(&self, unit: Option<Unit>) -> Option<(u64, Place)> {
        let own = unit.and_then(|unit| self.objects.find(unit.object));
        let found = match own {
            Some(own) => self.coldest.first_but(own),
            None => self.coldest.first(),
        };
        found.map(|((count, _), place)| (count, place))
    }
}

impl Policy for ObjectFrequency {
    fn name(&self) -> &'static str {
        self.name
    }

    fn wanted(&mut self, object: ObjectKey) {
        self.downloads += 1;
        if let Some(half_life) = self.half_life_downloads() {
            self.weight.pass(half_life);
            if self.weight.doublings >= DOUBLINGS_MAX {
                self.rescale();
            }
        }
        let place = self.objects.touch(object);
        let (weight, age, wanted) = (self.weight.now(), self.age, self.downloads);
        let state = self.objects.state_mut(place);
        let base = if self.options.admit_all { state.count.max(age) } else { state.count };
        *state = State { count: base.saturating_add(weight), wanted };
        if self.objects.units(place) > 0 {
            self.order(place);
        }
    }

    fn used(&mut self, _: Unit, _: u32, _: bool) {}

    fn admits(&mut self, unit: Unit, _: u32) -> bool {
        let coldest = self.coldest_for(Some(unit));
        let hotter = |(count, _)| self.options.admit_all || count < self.count(unit.object);
        coldest.is_some_and(hotter)
    }

    fn inserted(&mut self, unit: Unit, _: u32) {
        let place = self.objects.touch(unit.object);
        if self.objects.add_unit(place) == 1 {
            self.order(place);
        }
    }

    fn removed(&mut self, unit: Unit) {
        let Some(place) = self.objects.find(unit.object) else { return };
        if self.objects.units(place) == 1 {
            self.coldest.remove(place);
        }
        self.objects.remove_unit(place);
    }

    fn victim(&mut self, for_unit: Option<Unit>) -> Option<Victim> {
        let (count, place) = self.coldest_for(for_unit)?;
        if let Some(unit) = for_unit
            && !self.options.admit_all
            && count >= self.count(unit.object)
        {
            return None;
        }
        self.age = self.age.max(count);
        Some(Victim::LastOf(self.objects.key(place)))
    }

    fn entries(&self) -> usize {
        self.objects.entries()
    }
}

/// What a download is worth: `ONE << doublings`, and linearly on to the next.
#[derive(Clone, Copy, Debug)]
struct Weight {
    doublings: u32,
    /// How far to the next: `0 <= phase < PHASE_END`.
    phase: u64,
}

impl Weight {
    /// One more download passed; half-lives may differ from one to the next.
    fn pass(&mut self, half_life_downloads: u32) {
        self.phase += PHASE_END / u64::from(half_life_downloads);
        if self.phase >= PHASE_END {
            (self.phase, self.doublings) = (self.phase - PHASE_END, self.doublings + 1);
        }
    }

    const fn now(&self) -> u64 {
        (ONE + ONE * self.phase / PHASE_END) << self.doublings
    }
}

/// Upper bound of a half-life. With it the sum of all weights fits 64 bits.
pub const HALF_LIFE_DOWNLOADS_MAX: u32 = 1 << 24;
/// Downloads of a half-life for each object held, by default.
pub const HELD_OBJECTS_FACTOR: u32 = 8;

/// Objects held at least, for a half-life.
const HELD_OBJECTS_MIN: u32 = 64;
/// A download's worth at the beginning, so that its growth shows between doublings.
const ONE: u64 = 1 << 12;
const PHASE_END: u64 = 1 << 32;
/// Doublings after which all counts are divided, and by how many.
const DOUBLINGS_MAX: u32 = 24;
const RESCALE_BITS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::unit;

    fn policy(options: ObjectFrequencyOptions) -> ObjectFrequency {
        ObjectFrequency::new("test", options)
    }

    fn decaying(downloads: u32) -> ObjectFrequencyOptions {
        let half_life = HalfLife::Downloads(downloads);
        ObjectFrequencyOptions { half_life, ..ObjectFrequencyOptions::TINY_LFU }
    }

    fn want(policy: &mut ObjectFrequency, object: u64, times: u32) {
        for _ in 0..times {
            policy.wanted(ObjectKey(object));
        }
    }

    fn hold(policy: &mut ObjectFrequency, object: u64, units: u32) {
        for number in 0..units {
            policy.inserted(unit(object, number), 1);
        }
    }

    #[test]
    fn room_comes_from_the_coldest_object_unit_by_unit() {
        let mut policy = policy(ObjectFrequencyOptions::TINY_LFU);
        want(&mut policy, 1, 3);
        want(&mut policy, 2, 1);
        want(&mut policy, 3, 2);
        for object in 1..=3 {
            hold(&mut policy, object, 2);
        }
        assert_eq!(policy.victim(None), Some(Victim::LastOf(ObjectKey(2))));
        policy.removed(unit(2, 1));
        assert_eq!(policy.victim(None), Some(Victim::LastOf(ObjectKey(2))));
        policy.removed(unit(2, 0));
        assert_eq!(policy.victim(None), Some(Victim::LastOf(ObjectKey(3))));
        // What is asked for while held moves up.
        want(&mut policy, 3, 2);
        assert_eq!(policy.victim(None), Some(Victim::LastOf(ObjectKey(1))));
    }

    #[test]
    fn only_the_hotter_gets_room_and_never_from_itself() {
        let mut policy = policy(ObjectFrequencyOptions::TINY_LFU);
        want(&mut policy, 1, 2);
        hold(&mut policy, 1, 1);
        want(&mut policy, 2, 2);
        assert!(!policy.admits(unit(2, 0), 1), "equal counts do not suffice");
        assert_eq!(policy.victim(Some(unit(2, 0))), None);
        want(&mut policy, 2, 1);
        assert!(policy.admits(unit(2, 0), 1));
        assert_eq!(policy.victim(Some(unit(2, 0))), Some(Victim::LastOf(ObjectKey(1))));
        policy.removed(unit(1, 0));
        hold(&mut policy, 2, 1);
        assert!(!policy.admits(unit(2, 1), 1));
        assert_eq!(policy.victim(Some(unit(2, 1))), None);
        // Counts outlive what was held.
        want(&mut policy, 1, 2);
        assert!(policy.admits(unit(1, 0), 1));
    }

    #[test]
    fn decayed_counts_let_the_present_overtake_the_past() {
        let forgetful = decaying(10);
        for (options, overtakes) in [(forgetful, true), (ObjectFrequencyOptions::TINY_LFU, false)] {
            let mut policy = policy(options);
            want(&mut policy, 1, 8);
            hold(&mut policy, 1, 1);
            for other in 100..140 {
                want(&mut policy, other, 1);
            }
            want(&mut policy, 2, 2);
            assert_eq!(policy.admits(unit(2, 0), 1), overtakes, "{options:?}");
        }
    }

    #[test]
    fn rescaling_keeps_the_order() {
        let options = decaying(2);
        let mut policy = policy(options);
        for round in 0..100 {
            for object in 1..=3 {
                want(&mut policy, object, 1);
                if round == 0 {
                    hold(&mut policy, object, 1);
                }
            }
            let coldest = policy.victim(None);
            assert_eq!(coldest, Some(Victim::LastOf(ObjectKey(1))), "round {round}");
            assert!(policy.weight.doublings < DOUBLINGS_MAX);
        }
    }

    #[test]
    fn weights_grow_steadily_and_double_in_a_half_life() {
        let mut weight = Weight { doublings: 0, phase: 0 };
        let mut last = 0;
        for _ in 0..1024 {
            assert!(weight.now() > last);
            last = weight.now();
            weight.pass(128);
        }
        assert_eq!(weight.now(), ONE << 8);
        // The longest half-life still passes.
        weight.pass(HALF_LIFE_DOWNLOADS_MAX);
        assert!(weight.phase > 0);
    }

    #[test]
    fn a_half_life_follows_the_objects_held() {
        let mut policy = policy(ObjectFrequencyOptions::default());
        assert_eq!(policy.half_life_downloads(), Some(8 * 64));
        for object in 0..100 {
            hold(&mut policy, object, 2);
        }
        assert_eq!(policy.half_life_downloads(), Some(8 * 100));
        let never = ObjectFrequency::new("test", ObjectFrequencyOptions::TINY_LFU);
        assert_eq!(never.half_life_downloads(), None);
        let huge = HalfLife::PerHeldObject(u32::MAX);
        let options = ObjectFrequencyOptions { half_life: huge, ..ObjectFrequencyOptions::LFU_DA };
        let policy = ObjectFrequency::new("test", options);
        assert_eq!(policy.half_life_downloads(), Some(HALF_LIFE_DOWNLOADS_MAX));
    }

    #[test]
    fn lfu_da_admits_everything_and_ages() {
        let mut policy = policy(ObjectFrequencyOptions::LFU_DA);
        want(&mut policy, 1, 3);
        hold(&mut policy, 1, 1);
        for object in 2..=3 {
            want(&mut policy, object, 1);
            assert!(policy.admits(unit(object, 0), 1));
            hold(&mut policy, object, 1);
            assert_eq!(policy.victim(None), Some(Victim::LastOf(ObjectKey(object))));
            policy.removed(unit(object, 0));
        }
        // max(0, 2) + 1: as much as object 1, and wanted later.
        want(&mut policy, 4, 1);
        hold(&mut policy, 4, 1);
        assert_eq!(policy.victim(None), Some(Victim::LastOf(ObjectKey(1))));
    }
}
