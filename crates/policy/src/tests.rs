//! What holds for every policy, and scripts for the tests of single ones.

use proptest::prelude::*;

use crate::simulate::Simulation;
use crate::trace::Request;
use crate::{HISTORY_OBJECTS_MIN, Kind, ObjectKey, Policy, Unit, Victim};

pub(crate) const fn unit(object: u64, number: u32) -> Unit {
    Unit { object: ObjectKey(object), number }
}

/// A miss that is let in.
pub(crate) fn insert(policy: &mut dyn Policy, unit: Unit, bytes: u32) {
    policy.wanted(unit.object);
    policy.used(unit, bytes, false);
    policy.inserted(unit, bytes);
}

/// A hit.
pub(crate) fn use_held(policy: &mut dyn Policy, unit: Unit) {
    policy.wanted(unit.object);
    policy.used(unit, 1, true);
}

/// The next victims, each removed.
pub(crate) fn evict(policy: &mut dyn Policy, count: usize) -> Vec<Unit> {
    let next = |_| {
        let Some(Victim::Unit(unit)) = policy.victim(None) else { return None };
        policy.removed(unit);
        Some(unit)
    };
    (0..count).map_while(next).collect()
}

/// Policies that keep no state per unit, but a history of objects.
const PER_OBJECT: [Kind; 4] =
    [Kind::ObjectFrequency, Kind::ObjectTinyLfu, Kind::ObjectLfuDa, Kind::Partial];

fn requests() -> impl Strategy<Value = Vec<Request>> {
    // Few objects and units, so that everything meets everything; sizes differ, but
    // a unit keeps its size.
    let request = (0..24_u32, 0..12_u32, any::<bool>()).prop_map(|(object, number, begins)| {
        let bytes = 1 + (object * 7 + number * 13) % 40;
        Request { object, number, bytes, begins }
    });
    prop::collection::vec(request, 1..600)
}

proptest! {
    // Every case runs every policy.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A victim that is not held stops a simulation.
    #[test]
    fn what_is_held_fits_and_every_victim_is_held(
        requests in requests(),
        capacity in 1..1500_u64,
    ) {
        for kind in Kind::ALL {
            let mut simulation = Simulation::new(kind, capacity);
            for request in &requests {
                simulation.request(request);
                prop_assert!(simulation.used_bytes() <= capacity, "{}", kind);
            }
            let report = simulation.report();
            prop_assert_eq!(report.requests, requests.len() as u64);
            let held = report.admitted_bytes - report.evicted_bytes;
            prop_assert_eq!(held, simulation.used_bytes(), "{}", kind);
        }
    }

    #[test]
    fn what_is_removed_leaves_a_bounded_memory(requests in requests(), capacity in 1..1500_u64) {
        for kind in Kind::ALL {
            let mut simulation = Simulation::new(kind, capacity);
            for request in &requests {
                simulation.request(request);
            }
            simulation.clear();
            // Units are a byte or more, and ghosts take no more than twice the room.
            let bound = if PER_OBJECT.contains(&kind) {
                HISTORY_OBJECTS_MIN
            } else {
                usize::try_from(2 * capacity).unwrap()
            };
            prop_assert!(simulation.policy().entries() <= bound, "{}", kind);
        }
    }

    #[test]
    fn after_everything_is_removed_there_is_no_victim(requests in requests()) {
        for kind in Kind::ALL {
            let mut policy = kind.build(1000);
            let mut held = Vec::new();
            for request in &requests {
                let unit = unit(u64::from(request.object), request.number);
                if !held.contains(&unit) {
                    insert(&mut *policy, unit, request.bytes);
                    held.push(unit);
                }
            }
            prop_assert!(policy.victim(None).is_some(), "{}", kind);
            // In an order of the host's own.
            held.sort();
            for unit in held {
                policy.removed(unit);
            }
            prop_assert_eq!(policy.victim(None), None, "{}", kind);
            prop_assert_eq!(policy.victim(Some(unit(0, 0))), None, "{}", kind);
        }
    }

    #[test]
    fn exact_lru_agrees_with_a_list(requests in requests(), capacity in 40..1500_u64) {
        let mut simulation = Simulation::new(Kind::Lru, capacity);
        let mut list: Vec<(Unit, u64)> = Vec::new();
        for request in &requests {
            let unit = unit(u64::from(request.object), request.number);
            let found = list.iter().position(|(held, _)| *held == unit);
            prop_assert_eq!(simulation.request(request), found.is_some());
            if let Some(at) = found {
                list.remove(at);
            }
            list.push((unit, u64::from(request.bytes)));
            while list.iter().map(|(_, bytes)| bytes).sum::<u64>() > capacity {
                list.remove(0);
            }
        }
    }

    #[test]
    fn the_same_requests_give_the_same_report(requests in requests()) {
        for kind in Kind::ALL {
            let run = || {
                let mut simulation = Simulation::new(kind, 300);
                requests.iter().map(|request| simulation.request(request)).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(), run(), "{}", kind);
        }
    }
}
