//! Who downloads what, when, how fast and how far (docs/formats/trace.md).

use std::collections::HashSet;

use super::popularity::Popularity;
use super::ranges::Layout;
use super::{Params, TraceFault, catalogue};
use crate::trace::draws::{Draws, whole};

/// One client fetching one object.
#[derive(Clone, Debug)]
pub(super) struct Download {
    /// When it starts, seconds from the trace's beginning.
    pub(super) start: f64,
    /// What it fetches.
    pub(super) object: u32,
    /// How it asks.
    pub(super) layout: Layout,
    /// The units it asks for, in order.
    pub(super) order: Vec<u32>,
    /// Bytes a second.
    pub(super) rate: f64,
}

/// Everything that is decided before the first request.
#[derive(Debug)]
pub(super) struct Plan {
    /// Bytes of each object.
    pub(super) sizes: Vec<u64>,
    /// The downloads by their start; they ask for at least as many ranges as the
    /// trace has.
    pub(super) downloads: Vec<Download>,
}

impl Plan {
    /// Plans downloads until they have enough requests.
    ///
    /// The words of a download come in this order: arrival gap; swaps of the drift;
    /// object; client, with what is drawn again; order; layout; shuffle; abort, and
    /// where; rate.
    ///
    /// # Errors
    /// When the clients have fetched nearly every object before that.
    pub(super) fn draw(params: &Params, draws: &mut Draws) -> Result<Self, TraceFault> {
        let sizes = catalogue::sizes(params.objects, draws);
        let mut popularity = Popularity::new(params.objects, params.alpha, params.q);
        let mut fetched = HashSet::new();
        let mut downloads = Vec::new();
        let (mut clock, mut planned) = (0.0, 0);
        while planned < params.requests {
            clock += draws.exponential(ARRIVAL_GAP_SECS);
            let number = downloads.len() + 1;
            if number.checked_rem(params.drift as usize) == Some(0) {
                popularity.drift(draws);
            }
            let object = once(&popularity, &mut fetched, draws)
                .ok_or(TraceFault::Exhausted { downloads: downloads.len() })?;
            let sequential = draws.chance(SEQUENTIAL);
            let layout = Layout::draw(params.requests_as, sizes[object as usize], draws);
            let units = u32::try_from(layout.units()).expect("an object has some 50,000 units");
            let mut order: Vec<u32> = (0..units).collect();
            if !sequential {
                draws.shuffle(&mut order);
            }
            if draws.chance(ABORT) {
                let kept = whole((draws.uniform() * f64::from(units)).ceil()).max(1);
                order.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
            } else {
                layout.add_end_game(&mut order);
            }
            let rate = draws.lognormal(RATE_MEDIAN, RATE_SIGMA).clamp(RATE_MIN, RATE_MAX);
            planned += layout.requests(&order);
            downloads.push(Download { start: clock, object, layout, order, rate });
        }
        Ok(Self { sizes, downloads })
    }
}

/// An object and a client who never fetched it; `None` when they are too hard to find.
fn once(
    popularity: &Popularity,
    fetched: &mut HashSet<(u32, u64)>,
    draws: &mut Draws,
) -> Option<u32> {
    for _ in 0..OBJECT_TRIES {
        let object = popularity.draw(draws);
        for _ in 0..=CLIENT_REDRAWS {
            if fetched.insert((object, draws.below(CLIENTS))) {
                return Some(object);
            }
        }
    }
    None
}

/// Bytes a second.
const RATE_MEDIAN: f64 = 400e3;
const RATE_SIGMA: f64 = 0.8;
const RATE_MIN: f64 = 20e3;
const RATE_MAX: f64 = 5e6;
const ARRIVAL_GAP_SECS: f64 = 2.0;
const CLIENTS: u64 = 2000;
const CLIENT_REDRAWS: u32 = 20;
/// Past this many objects in vain, the catalogue counts as fetched.
const OBJECT_TRIES: u32 = 100_000;
const SEQUENTIAL: f64 = 0.3;
const ABORT: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(params: &Params) -> Plan {
        Plan::draw(params, &mut Draws::new(params.seed)).unwrap()
    }

    #[test]
    fn aborts_and_orders_come_in_their_shares() {
        let Plan { downloads, .. } = plan(&Params { requests: 300_000, ..Params::default() });
        let count = downloads.len() as f64;
        let sequential = |d: &&Download| d.order.iter().zip(0..).all(|(&unit, at)| unit == at);
        let long = || downloads.iter().filter(|d| d.layout.units() > 20);
        let whole = |d: &&Download| d.order.len() as u64 == d.layout.units();
        let share = long().filter(sequential).count() as f64 / long().count() as f64;
        assert!((share - 0.3).abs() < 0.06, "sequential {share}");
        let share = long().filter(whole).count() as f64 / long().count() as f64;
        assert!((share - 0.7).abs() < 0.06, "whole {share}");
        let last = downloads.last().unwrap().start;
        assert!((last / count - 2.0).abs() < 0.2, "arrival gap {}", last / count);
    }

    #[test]
    fn nobody_fetches_an_object_twice_and_the_last_ones_are_refused() {
        let params = Params { objects: 1, requests: 100_000, ..Params::default() };
        let fault = Plan::draw(&params, &mut Draws::new(1)).unwrap_err();
        let TraceFault::Exhausted { downloads } = fault;
        assert_eq!(downloads, 2000);
    }
}
