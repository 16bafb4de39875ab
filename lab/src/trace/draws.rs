//! The draws that traces are made of (docs/formats/trace.md).
//!
//! Every function says how many words it takes: which word decides what is part
//! of a trace's definition, and a change of it is a new generator version.

use crate::seed::SplitMix64;

/// A stream of draws decided by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    words: SplitMix64,
}

impl Draws {
    /// The stream of `seed`; its first state is the seed itself.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { words: SplitMix64::new(seed) }
    }

    /// A stream of `seed` that shares no words with the one of [`Self::new`].
    pub(crate) fn split(seed: u64, purpose: u64) -> Self {
        Self { words: SplitMix64::split(seed, purpose) }
    }

    /// Uniform, above 0 and at most 1. One word.
    ///
    /// The largest word's half step is lost to rounding, hence the 1.
    pub(crate) const fn uniform(&mut self) -> f64 {
        ((self.words.word() >> 11) as f64 + 0.5) / TWO_POW_53
    }

    /// An integer below `bound`, 0 when `bound` is 0. One word.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.words.below(bound)
    }

    /// An index below `len`, 0 when `len` is 0. One word.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.words.below(len as u64)).expect("below a length")
    }

    /// True with this probability. One word.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Exponential with this mean. One word.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    /// Standard normal, one value per pair of Box and Muller. Two words.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Lognormal. Two words.
    pub(crate) fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    /// Fisher-Yates from the last index down. One word for each index but 0.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.index(last + 1);
            items.swap(last, other);
        }
    }
}

/// The integer part, 0 for what is negative or no number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the one place where a draw becomes an integer; the cast saturates"
)]
pub(crate) const fn whole(value: f64) -> u64 {
    value as u64
}

const TWO_POW_53: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn the_first_uniform_of_seed_zero_is_that_of_the_reference_word() {
        let word = 0xe220_a839_7b1d_cdaf_u64;
        let expected = ((word >> 11) as f64 + 0.5) / 2f64.powi(53);
        assert_eq!(Draws::new(0).uniform().to_bits(), expected.to_bits());
    }

    #[test]
    fn moments_are_those_of_the_laws() {
        let mut draws = Draws::new(11);
        assert!((mean(200_000, || draws.uniform()) - 0.5).abs() < 0.003);
        assert!((mean(200_000, || draws.exponential(3.0)) - 3.0).abs() < 0.03);
        assert!(mean(200_000, || draws.normal()).abs() < 0.01);
        assert!((mean(200_000, || draws.normal().powi(2)) - 1.0).abs() < 0.02);
        let expected = 5.0 * (0.5f64 * 0.5 / 2.0).exp();
        assert!((mean(200_000, || draws.lognormal(5.0, 0.5)) - expected).abs() < 0.05);
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_moves_them() {
        let mut items: Vec<u32> = (0..100).collect();
        Draws::new(5).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn whole_never_wraps() {
        assert_eq!((whole(-3.5), whole(f64::NAN), whole(2.9)), (0, 0, 2));
        assert_eq!(whole(1e300), u64::MAX);
    }
}
