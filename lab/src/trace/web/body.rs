//! Objects of at most 1 MB: nearly all requests (docs/formats/trace.md).

use super::site::Bin;
use crate::trace::alias::{AliasTable, zipf_weights};
use crate::trace::draws::{Draws, whole};

/// The small objects, and which of them were asked for last.
#[derive(Debug)]
pub(super) struct Body {
    /// Bytes of each object, by popularity.
    sizes: Vec<u32>,
    ranks: AliasTable,
    /// The last requests; a ring once it is full.
    recent: Vec<u32>,
    /// Where the next request goes in the ring.
    head: usize,
}

impl Body {
    /// Draws the objects of a bin. Two words an object, again for one of 1 MB or more.
    pub(super) fn draw(bin: &Bin, draws: &mut Draws) -> Self {
        let count = usize::try_from(whole(OBJECTS_SHARE * bin.requests as f64)).unwrap_or(0).max(1);
        let mu = fit_mu(bin.mean());
        let drawn: Vec<f64> = (0..count).map(|_| size(mu, draws)).collect();
        let weights = zipf_weights(count, SKEW, 0.0);
        let factor = factor(&drawn, &weights, bin.mean());
        let sizes = drawn.iter().map(|&size| bounded(size * factor)).collect();
        let recent = Vec::with_capacity(RECENT);
        Self { sizes, ranks: AliasTable::new(&weights), recent, head: 0 }
    }

    /// The next request's object: a recent one (two words) or any (three).
    pub(super) fn request(&mut self, draws: &mut Draws) -> u32 {
        let repeats = draws.chance(REPEATS);
        let object = if repeats && !self.recent.is_empty() {
            let depth = whole(draws.uniform().powi(3) * self.recent.len() as f64);
            self.recent_at(usize::try_from(depth).unwrap_or(usize::MAX))
        } else {
            self.ranks.draw(draws)
        };
        if self.recent.len() < RECENT {
            self.recent.push(object);
        } else {
            self.recent[self.head] = object;
        }
        self.head = (self.head + 1) % RECENT;
        object
    }

    /// Bytes of an object.
    pub(super) fn size(&self, object: u32) -> u64 {
        u64::from(self.sizes[object as usize])
    }

    /// The object that was asked for `depth` requests before the last one.
    fn recent_at(&self, depth: usize) -> u32 {
        let len = self.recent.len();
        let depth = depth.min(len - 1);
        self.recent[(self.head + len - 1 - depth) % len]
    }
}

/// The lognormal location whose mean is `mean` after the cut, by a fixed point over
/// 200,000 samples. It belongs to the site: the trace's seed has no part in it.
fn fit_mu(mean: f64) -> f64 {
    let mut mu = mean.ln() - SIGMA * SIGMA / 2.0;
    for _ in 0..FIT_ROUNDS {
        let mut draws = Draws::new(FIT_SEED);
        let sum: f64 = (0..FIT_SAMPLES).map(|_| size(mu, &mut draws)).sum();
        mu += (mean * f64::from(FIT_SAMPLES) / sum).ln();
    }
    mu
}

/// A size below 1 MB and of at least 64 bytes. Two words, again for one above.
fn size(mu: f64, draws: &mut Draws) -> f64 {
    loop {
        let bytes = (mu + SIGMA * draws.normal()).exp();
        if bytes < SIZE_END {
            return bytes.max(SIZE_MIN);
        }
    }
}

/// What brings the mean of a request, over popular and unpopular objects, to `mean`.
fn factor(sizes: &[f64], weights: &[f64], mean: f64) -> f64 {
    let total: f64 = weights.iter().sum();
    let mut factor = 1.0;
    for _ in 0..RESCALE_ROUNDS {
        let pairs = sizes.iter().zip(weights);
        let sum: f64 = pairs.map(|(size, weight)| f64::from(bounded(size * factor)) * weight).sum();
        factor *= mean * total / sum;
    }
    factor
}

fn bounded(bytes: f64) -> u32 {
    let bytes = whole(bytes.clamp(SIZE_MIN, SIZE_END - 1.0));
    u32::try_from(bytes).expect("clamped below 1 MB")
}

/// Objects of the catalogue for each request.
const OBJECTS_SHARE: f64 = 0.45;
const SKEW: f64 = 0.75;
/// How often the request is for one of the last [`RECENT`] requests' objects.
const REPEATS: f64 = 0.15;
const RECENT: usize = 50_000;
const SIGMA: f64 = 1.6;
const SIZE_MIN: f64 = 64.0;
const SIZE_END: f64 = 1e6;
const FIT_SEED: u64 = 1;
const FIT_SAMPLES: u32 = 200_000;
const FIT_ROUNDS: u32 = 20;
const RESCALE_ROUNDS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::web::site::{Site, SiteName};

    #[test]
    fn the_medians_are_those_of_the_table() {
        for (name, mu) in [(SiteName::Kaist, 7.195), (SiteName::Waseda, 7.259)] {
            let [bin, ..] = Site::printed(name).bins();
            let found = fit_mu(bin.mean());
            assert!((found - mu).abs() < 0.03, "{name:?}: {found}");
        }
    }

    #[test]
    fn the_most_recent_request_is_at_depth_zero_also_in_a_full_ring() {
        let bin = Bin { low: 0, high: 1_000_000, requests: 300, bytes: 1.5e6 };
        let mut draws = Draws::new(3);
        let mut body = Body::draw(&bin, &mut draws);
        let mut log = Vec::new();
        for count in [10, RECENT, 7] {
            log.extend((0..count).map(|_| body.request(&mut draws)));
            for depth in [0, 1, 9] {
                assert_eq!(body.recent_at(depth), log[log.len() - 1 - depth]);
            }
        }
        assert_eq!(body.recent.len(), RECENT);
        assert_eq!(body.recent_at(usize::MAX), log[log.len() - RECENT]);
    }
}
