//! Proportional partial caching: as much of an object as it earned.
//!
//! O. Saleh and M. Hefeeda, "Modeling and Caching of Peer-to-Peer Traffic", ICNP
//! 2006; M. Hefeeda and O. Saleh, "Traffic Modeling and Proportional Partial Caching
//! for Peer-to-Peer Systems", IEEE/ACM Transactions on Networking 16(6), 2008.
//!
//! The value of an object is gamma = bytes served from the cache / bytes cached of
//! it. On an object's first download one unit is admitted; on each later one
//! k = ceil(gamma / gamma_max x mu) units more, mu the mean number of units of an
//! object. Room comes from the object with the smallest gamma, from its end.
//!
//! Deviates: rebuilt from the abstract and second-hand descriptions. Units have one
//! size instead of one per class of objects; k is a budget per object that each
//! download fills up, because downloads are not told apart; free room admits
//! everything; what was served counts half once nothing of the object is held.
//!
//! An object costs about 105 bytes while held, 65 in the history; a unit nothing.

use std::cmp::Reverse;

use crate::heap::Heap;
use crate::lists::Place;
use crate::objects::Objects;
use crate::policy::{ObjectKey, Policy, Unit, Victim};

/// Proportional partial caching, per object.
#[derive(Debug, Default)]
pub struct Partial {
    objects: Objects<State>,
    /// Held objects, least gamma first.
    least: Heap<u64>,
    /// And greatest first.
    greatest: Heap<Reverse<u64>>,
    // Sum of `units_seen` over, and number of, objects ever wanted.
    units_seen: u64,
    objects_seen: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    served_bytes: u64,
    cached_bytes: u64,
    /// Units that may still be admitted for the downloads under way.
    budget: u32,
    /// Highest number asked for, plus one.
    units_seen: u32,
}

impl Partial {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn gamma(&self, place: Place) -> u64 {
        let state = self.objects.state(place);
        let served = u128::from(state.served_bytes) << GAMMA_BITS;
        let gamma = served / u128::from(state.cached_bytes.max(1));
        u64::try_from(gamma).unwrap_or(u64::MAX)
    }

    /// Brings the object's place in both orders up to date.
    fn order(&mut self, place: Place) {
        if self.objects.units(place) == 0 {
            self.least.remove(place);
            self.greatest.remove(place);
        } else {
            let gamma = self.gamma(place);
            self.least.set(place, gamma);
            self.greatest.set(place, Reverse(gamma));
        }
    }
}

impl Policy for Partial {
    fn name(&self) -> &'static str {
        "partial"
    }

    fn wanted(&mut self, object: ObjectKey) {
        let place = self.objects.touch(object);
        let gamma = if self.objects.units(place) == 0 { 0 } else { self.gamma(place) };
        let gamma_max = self.greatest.first().map_or(0, |(Reverse(gamma), _)| gamma);
        let share = u128::from(gamma) * u128::from(self.units_seen);
        let whole = u128::from(gamma_max.max(1)) * u128::from(self.objects_seen.max(1));
        let units = u32::try_from(share.div_ceil(whole)).unwrap_or(u32::MAX).max(1);
        let state = self.objects.state_mut(place);
        // More than the whole object is no budget.
        state.budget = state.budget.saturating_add(units).min(state.units_seen.max(units));
    }

    fn used(&mut self, unit: Unit, bytes: u32, held: bool) {
        let place = self.objects.touch(unit.object);
        let state = self.objects.state_mut(place);
        let seen = unit.number.saturating_add(1);
        if state.units_seen == 0 {
            self.objects_seen += 1;
        }
        self.units_seen += u64::from(seen.saturating_sub(state.units_seen));
        state.units_seen = state.units_seen.max(seen);
        if held {
            state.served_bytes = state.served_bytes.saturating_add(u64::from(bytes));
            self.order(place);
        }
    }

    fn admits(&mut self, unit: Unit, _: u32) -> bool {
        self.objects.find(unit.object).is_some_and(|place| self.objects.state(place).budget > 0)
    }

    fn inserted(&mut self, unit: Unit, bytes: u32) {
        let place = self.objects.touch(unit.object);
        self.objects.add_unit(place);
        let state = self.objects.state_mut(place);
        state.budget = state.budget.saturating_sub(1);
        state.cached_bytes += u64::from(bytes);
        self.order(place);
    }

    fn removed(&mut self, unit: Unit) {
        let Some(place) = self.objects.find(unit.object) else { return };
        let before = u64::from(self.objects.units(place));
        if before == 0 {
            return;
        }
        let state = self.objects.state_mut(place);
        // The sizes of single units are not remembered: the mean has gone.
        state.cached_bytes -= state.cached_bytes / before;
        if before == 1 {
            (state.served_bytes, state.cached_bytes) = (state.served_bytes / 2, 0);
            self.least.remove(place);
            self.greatest.remove(place);
            self.objects.remove_unit(place);
        } else {
            self.objects.remove_unit(place);
            self.order(place);
        }
    }

    fn victim(&mut self, for_unit: Option<Unit>) -> Option<Victim> {
        let own = for_unit.and_then(|unit| self.objects.find(unit.object));
        let (_, place) = match own {
            Some(own) => self.least.first_but(own)?,
            None => self.least.first()?,
        };
        Some(Victim::LastOf(self.objects.key(place)))
    }

    fn entries(&self) -> usize {
        self.objects.entries()
    }
}

/// Fraction bits of gamma.
const GAMMA_BITS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::unit;

    fn hold(policy: &mut Partial, object: u64, units: u32) {
        policy.wanted(ObjectKey(object));
        for number in 0..units {
            policy.used(unit(object, number), 10, false);
            policy.inserted(unit(object, number), 10);
        }
    }

    fn serve(policy: &mut Partial, object: u64, units: u32) {
        policy.wanted(ObjectKey(object));
        for number in 0..units {
            policy.used(unit(object, number), 10, true);
        }
    }

    #[test]
    fn room_comes_from_the_object_that_served_least_for_its_size() {
        let mut policy = Partial::new();
        hold(&mut policy, 1, 4);
        hold(&mut policy, 2, 4);
        hold(&mut policy, 3, 2);
        serve(&mut policy, 1, 4);
        serve(&mut policy, 2, 2);
        serve(&mut policy, 3, 2);
        // gamma: 1, 1/2, 1.
        assert_eq!(policy.victim(None), Some(Victim::LastOf(ObjectKey(2))));
        // Never from the object that asks.
        let other = policy.victim(Some(unit(2, 9)));
        assert!(matches!(other, Some(Victim::LastOf(ObjectKey(1 | 3)))), "{other:?}");
        // With less of it cached, gamma grows.
        for number in (1..4).rev() {
            policy.removed(unit(2, number));
        }
        assert_ne!(policy.victim(None), Some(Victim::LastOf(ObjectKey(2))));
    }

    #[test]
    fn a_first_download_is_worth_one_unit_and_later_ones_what_they_earned() {
        let mut policy = Partial::new();
        policy.wanted(ObjectKey(1));
        for number in 0..8 {
            policy.used(unit(1, number), 10, false);
        }
        assert!(policy.admits(unit(1, 0), 10));
        policy.inserted(unit(1, 0), 10);
        assert!(!policy.admits(unit(1, 1), 10));
        // It alone is cached, so its gamma is the greatest: k is the mean size, 8.
        serve(&mut policy, 1, 1);
        policy.wanted(ObjectKey(1));
        for number in 1..8 {
            assert!(policy.admits(unit(1, number), 10), "{number}");
            policy.inserted(unit(1, number), 10);
        }
        assert!(!policy.admits(unit(2, 0), 10), "nobody wanted it");
    }
}
