//! Objects above 1 MB: few requests, most bytes (docs/formats/trace.md).
//!
//! How many requests each class has is exact. Their sizes follow a bounded Pareto
//! law whose mean is the class's; because popular objects weigh more, all sizes of
//! a class are then scaled until the bytes of its requests are right.

use std::collections::HashSet;

use super::site::Bin;
use crate::trace::alias::{AliasTable, zipf_weights};
use crate::trace::draws::{Draws, whole};
use crate::trace::pareto::BoundedPareto;

/// The large objects and the requests for them.
#[derive(Debug)]
pub(super) struct Tail {
    /// Bytes of each object, for the classes 1, 2 and 3.
    sizes: [Vec<u64>; 3],
    /// By position.
    requests: Vec<TailRequest>,
    /// How far each class's bytes are from its target, as a share of it.
    pub(super) off: [f64; 3],
}

/// A request for a large object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TailRequest {
    /// Its place among all requests.
    pub(super) position: u64,
    /// 1, 2 or 3.
    pub(super) class: u8,
    /// Number of the object in its class.
    pub(super) object: u32,
}

impl Tail {
    /// Draws objects and requests of the last three bins among `requests` in all.
    ///
    /// First the shuffle of each class's sizes, then for each class its requests: a
    /// position (one word, again while it is taken) and an object (two).
    pub(super) fn draw(bins: &[Bin; 4], requests: u64, draws: &mut Draws) -> Self {
        let tails = [bins[1], bins[2], bins[3]];
        let mut sizes = tails.map(|bin| drawn_sizes(&bin, draws));
        let mut taken = HashSet::new();
        let mut placed = Vec::new();
        let mut off = [0.0; 3];
        for (class, bin) in (1u8..).zip(tails) {
            let sizes = &mut sizes[usize::from(class) - 1];
            let ranks = AliasTable::new(&zipf_weights(sizes.len(), SKEW, 0.0));
            let mut counts = vec![0; sizes.len()];
            for _ in 0..bin.requests {
                let mut position = draws.below(requests);
                while !taken.insert(position) {
                    position = draws.below(requests);
                }
                let object = ranks.draw(draws);
                counts[object as usize] += 1;
                placed.push(TailRequest { position, class, object });
            }
            let largest = (class == 3).then_some(bin.high);
            off[usize::from(class) - 1] = rescale(sizes, &counts, &bin, largest);
        }
        placed.sort_unstable();
        Self { sizes, requests: placed, off }
    }

    /// The request for a large object after the first `done` of them.
    pub(super) fn request(&self, done: usize) -> Option<TailRequest> {
        self.requests.get(done).copied()
    }

    /// Bytes of an object.
    pub(super) fn size(&self, request: &TailRequest) -> u64 {
        self.sizes[usize::from(request.class) - 1][request.object as usize]
    }
}

/// Sizes at the law's evenly spaced quantiles, shuffled: one word for each but one.
fn drawn_sizes(bin: &Bin, draws: &mut Draws) -> Vec<u64> {
    if bin.requests == 0 {
        return Vec::new();
    }
    let law = BoundedPareto::with_mean(bin.low as f64, bin.high as f64, bin.mean());
    let count = whole((OBJECTS_SHARE * bin.requests as f64).round()).max(1);
    let size = |index: u64| whole(law.quantile((index as f64 + 0.5) / count as f64));
    let mut sizes: Vec<u64> = (0..count).map(size).collect();
    draws.shuffle(&mut sizes);
    sizes
}

/// Brings the bytes of a class's requests to its target, with an object of exactly
/// `largest` bytes among those that are asked for, where both can be had.
///
/// Answers how far the bytes are off, as a share of the target.
fn rescale(sizes: &mut [u64], counts: &[u64], bin: &Bin, largest: Option<u64>) -> f64 {
    let asked = || (0..sizes.len()).filter(|&object| counts[object] > 0);
    if let Some(largest) = largest {
        // The largest one that is asked for, else the one that is asked for least.
        let first = asked().max_by_key(|&object| sizes[object]);
        let second = asked().min_by_key(|&object| counts[object]);
        for pinned in first.into_iter().chain(second) {
            let mut tried = sizes.to_vec();
            if let Some(biggest) = (0..tried.len()).max_by_key(|&object| tried[object]) {
                tried.swap(biggest, pinned);
            }
            tried[pinned] = largest;
            let off = scale_all(&mut tried, counts, bin, Some(pinned));
            if off.abs() < OFF_MAX {
                sizes.copy_from_slice(&tried);
                return off;
            }
        }
    }
    scale_all(sizes, counts, bin, None)
}

/// Scales all sizes but the pinned one by one factor, within the bin.
fn scale_all(sizes: &mut [u64], counts: &[u64], bin: &Bin, pinned: Option<usize>) -> f64 {
    let scaled = |object: usize, size: u64, factor: f64| {
        if pinned == Some(object) {
            return size;
        }
        whole((size as f64 * factor).round()).clamp(bin.low + 1, bin.high)
    };
    let bytes = |sizes: &[u64], factor: f64| -> f64 {
        let bytes = |(object, &size): (usize, &u64)| scaled(object, size, factor) * counts[object];
        sizes.iter().enumerate().map(bytes).sum::<u64>() as f64
    };
    let span = bin.high as f64 / bin.low as f64;
    let (mut under, mut over) = (1.0 / span, span);
    for _ in 0..BISECTIONS {
        let factor = f64::midpoint(under, over);
        if bytes(sizes, factor) < bin.bytes {
            under = factor;
        } else {
            over = factor;
        }
    }
    for (object, size) in sizes.iter_mut().enumerate() {
        *size = scaled(object, *size, over);
    }
    if bin.requests == 0 { 0.0 } else { bytes(sizes, 1.0) / bin.bytes - 1.0 }
}

/// Objects of a class for each request.
const OBJECTS_SHARE: f64 = 0.7;
const SKEW: f64 = 0.6;
/// Farther off than this a class's bytes are wrong (§3.3).
pub(super) const OFF_MAX: f64 = 0.01;
const BISECTIONS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    const BIN: Bin = Bin { low: 100, high: 1000, requests: 6, bytes: 2400.0 };

    fn bytes(sizes: &[u64], counts: &[u64]) -> u64 {
        sizes.iter().zip(counts).map(|(size, count)| size * count).sum()
    }

    #[test]
    fn the_largest_is_asked_for_and_the_bytes_are_right() {
        let (mut sizes, counts) = ([150, 900, 300, 600], [3, 0, 1, 2]);
        let off = rescale(&mut sizes, &counts, &BIN, Some(1000));
        assert!(off.abs() < 0.01, "{sizes:?}");
        assert!((2376..=2424).contains(&bytes(&sizes, &counts)), "{sizes:?}");
        let largest = (0..4).max_by_key(|&object| sizes[object]).unwrap();
        assert_eq!(sizes[largest], 1000);
        assert!(counts[largest] > 0);
        assert!(sizes.iter().all(|size| (101..=1000).contains(size)));
    }

    #[test]
    fn a_largest_that_is_asked_for_too_often_moves_to_the_least_asked() {
        let (mut sizes, counts) = ([150, 900, 300], [1, 4, 1]);
        assert!(rescale(&mut sizes, &counts, &BIN, Some(1000)).abs() < 0.01);
        assert_eq!((sizes[0], bytes(&sizes, &counts) / 24), (1000, 100), "{sizes:?}");
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        let (mut sizes, counts) = ([150, 900], [1, 5]);
        let bin = Bin { bytes: 500.0, ..BIN };
        assert!(rescale(&mut sizes, &counts, &bin, Some(1000)) > 0.2);
        assert_eq!(sizes, [101, 101]);
    }

    #[test]
    fn positions_are_distinct_and_counts_exact() {
        let bins = [Bin::default(), BIN, Bin { requests: 0, ..BIN }, BIN];
        let tail = Tail::draw(&bins, 12, &mut Draws::new(1));
        let positions: Vec<u64> = tail.requests.iter().map(|request| request.position).collect();
        assert_eq!(positions, (0..12).collect::<Vec<_>>());
        let of = |class| tail.requests.iter().filter(|request| request.class == class).count();
        assert_eq!([of(1), of(2), of(3)], [6, 0, 6]);
    }
}
