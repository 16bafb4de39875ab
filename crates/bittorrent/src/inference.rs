//! Piece length from requests alone, for contents whose metadata is not known
//! (the Analyzer of pCache, equations (1) and (2)).
//!
//! Piece lengths are taken to be powers of two with a known prior p_m. A request
//! names an offset in its piece, so the piece is at least as long as the largest
//! `begin + len` seen: M, the smallest power of two not below it, is the
//! estimate. Were the offsets independent and uniform, all `n` of them would lie
//! below M in pieces of length m with probability (M/m)^n, hence
//!
//! ```text
//! (1)  P(L = M | n samples) = p_M / sum over m >= M of p_m (M/m)^n
//! (2)  samples needed       = the least n for which (1) >= 1 - epsilon
//! ```
//!
//! Real requests run through a piece in order and are not independent: all that
//! was seen before M grew says nothing about the new M. The reset heuristic
//! starts counting again whenever M grows.
//!
//! What it refuses: samples of no bytes, or beyond 16 MiB. They change nothing.

use std::collections::BTreeSet;

/// The smallest piece length considered: 16 KiB, one block.
pub const PIECE_BYTES_LOW: u32 = 16 << 10;

/// The largest piece length considered: 16 MiB.
pub const PIECE_BYTES_HIGH: u32 = 16 << 20;

/// Number of piece lengths considered: 2^14 up to 2^24.
pub const LENGTHS: usize = 11;

/// How common piece lengths of 16 KiB, 32 KiB, … 16 MiB are.
///
/// Shaped after what makers of torrents choose for contents of 100 MB to 10 GB:
/// most of the mass from 256 KiB to 4 MiB. Only ratios matter.
pub const PRIOR: [f64; LENGTHS] =
    [0.005, 0.01, 0.03, 0.05, 0.17, 0.19, 0.20, 0.15, 0.12, 0.045, 0.03];

/// Which requests count as samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Every request, as in the paper.
    EveryRequest,
    /// The first request of each piece since the estimate last grew. Requests
    /// that run through one piece count once, which is nearer to independence.
    /// Remembers at most 256 pieces.
    EveryPiece,
}

/// How to infer.
#[derive(Clone, Debug, PartialEq)]
pub struct InferenceOptions {
    /// Weights of piece lengths 16 KiB … 16 MiB; default [`PRIOR`]. A weight that
    /// is not positive counts as never.
    pub prior: [f64; LENGTHS],
    /// An estimate is good at this confidence. Default 0.999.
    pub confidence: f64,
    /// Start counting again when the estimate grows. Default true.
    pub reset_heuristic: bool,
    /// What counts. Default [`Sampling::EveryPiece`].
    pub sampling: Sampling,
}

impl Default for InferenceOptions {
    fn default() -> Self {
        Self {
            prior: PRIOR,
            confidence: 0.999,
            reset_heuristic: true,
            sampling: Sampling::EveryPiece,
        }
    }
}

/// What one sample changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Below the estimate, or not a sample.
    Steady,
    /// The estimate grew; nobody had relied on it yet.
    Raised,
    /// A confident estimate was wrong: what was placed by it must be dropped.
    Contradicted {
        /// The wrong piece length, in bytes.
        piece_bytes: u32,
    },
}

/// A confident estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The piece length, in bytes.
    pub piece_bytes: u32,
    /// Equation (1) for the samples counted.
    pub confidence: f64,
    /// Samples counted since the last reset.
    pub samples: u32,
}

/// The inference for one content.
#[derive(Clone, Debug)]
pub struct Inference {
    options: InferenceOptions,
    /// M as an index into the prior; `None` before the first sample.
    length: Option<usize>,
    samples: u32,
    /// Pieces that count already; only for [`Sampling::EveryPiece`].
    pieces: BTreeSet<u32>,
    /// Whether the options' confidence was reached for `length`.
    confident: bool,
}

impl Inference {
    /// With no samples.
    pub const fn new(options: InferenceOptions) -> Self {
        Self { options, length: None, samples: 0, pieces: BTreeSet::new(), confident: false }
    }

    /// Takes a request for `len` bytes at `begin` of piece `index`.
    pub fn observe(&mut self, index: u32, begin: u32, len: u32) -> Observation {
        let end = match begin.checked_add(len) {
            Some(end) if len > 0 && end <= PIECE_BYTES_HIGH => end,
            _ => return Observation::Steady,
        };
        let length = length_index(end);
        let grown = self.length.is_none_or(|old| length > old);
        let contradicted = self.confident && grown;
        let old = self.length;
        if grown {
            self.length = Some(length);
            self.confident = false;
            if self.options.reset_heuristic {
                self.samples = 0;
                self.pieces.clear();
            }
        }
        // With the heuristic, the sample that made the estimate grow does not
        // speak for it: it was bound to lie in the new upper half.
        if !(grown && self.options.reset_heuristic) && self.counts(index) {
            self.samples = self.samples.saturating_add(1);
        }
        let now = confidence(&self.options.prior, self.length.unwrap_or(length), self.samples);
        self.confident |= now >= self.options.confidence;
        match old {
            Some(old) if contradicted => Observation::Contradicted { piece_bytes: bytes_of(old) },
            _ if grown => Observation::Raised,
            _ => Observation::Steady,
        }
    }

    /// The estimate, once it is confident.
    pub fn estimate(&self) -> Option<Estimate> {
        let best = self.best()?;
        self.confident.then_some(best)
    }

    /// The estimate, however little confidence there is; `None` before the first
    /// sample.
    pub fn best(&self) -> Option<Estimate> {
        let length = self.length?;
        Some(Estimate {
            piece_bytes: bytes_of(length),
            confidence: confidence(&self.options.prior, length, self.samples),
            samples: self.samples,
        })
    }

    fn counts(&mut self, index: u32) -> bool {
        match self.options.sampling {
            Sampling::EveryRequest => true,
            Sampling::EveryPiece => self.pieces.len() < PIECES_MAX && self.pieces.insert(index),
        }
    }
}

/// Equation (1): the probability that pieces are `piece_bytes` long, after
/// `samples` independent samples none of which lay beyond, one above its half.
///
/// `piece_bytes` is rounded up to a length considered. 0 when the prior says
/// that this length does not occur.
pub fn confidence_of(prior: &[f64; LENGTHS], piece_bytes: u32, samples: u32) -> f64 {
    confidence(prior, length_index(piece_bytes), samples)
}

/// Equation (2): how many samples make [`confidence_of`] at least
/// `1 - epsilon`; `None` when none do.
pub fn samples_needed(prior: &[f64; LENGTHS], piece_bytes: u32, epsilon: f64) -> Option<u32> {
    // Each sample at least halves the weight of every larger length, so this
    // many bring it below the smallest double.
    (0..=2048).find(|n| confidence_of(prior, piece_bytes, *n) >= 1.0 - epsilon)
}

const PIECES_MAX: usize = 256;

/// The index of the smallest length considered that is not below `bytes`.
fn length_index(bytes: u32) -> usize {
    let power = bytes.clamp(PIECE_BYTES_LOW, PIECE_BYTES_HIGH).next_power_of_two();
    (power.trailing_zeros() - PIECE_BYTES_LOW.trailing_zeros()) as usize
}

const fn bytes_of(length: usize) -> u32 {
    PIECE_BYTES_LOW << length
}

fn confidence(prior: &[f64; LENGTHS], length: usize, samples: u32) -> f64 {
    let weight = |m: usize| prior[m].max(0.0);
    let n = i32::try_from(samples).unwrap_or(i32::MAX);
    // (M/m)^n = (2^-n)^(m - M in powers of two)
    let ratio = 0.5f64.powi(n);
    let mut all = 0.0;
    let mut factor = 1.0;
    for m in length..LENGTHS {
        all += weight(m) * factor;
        factor *= ratio;
    }
    if all > 0.0 { weight(length) / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1024;

    fn paper(reset_heuristic: bool) -> Inference {
        Inference::new(InferenceOptions {
            reset_heuristic,
            sampling: Sampling::EveryRequest,
            ..InferenceOptions::default()
        })
    }

    /// A small generator with the usual constants, so that runs repeat.
    fn random(seed: &mut u64) -> u64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    #[test]
    fn equation_1_agrees_with_counting() {
        // Draw a length from the prior, n offsets below it; of the cases that
        // lie below M and reach its upper half, the share in which L is M.
        // Equation (1) is about that share: both events have the same
        // probability factor for a given maximum.
        let mut prior = [0.0; LENGTHS];
        prior[..4].copy_from_slice(&[4.0, 3.0, 2.0, 1.0]);
        let blocks = [1u64, 2, 4, 8];
        let mut seed = 42;
        for n in [1u32, 2, 3] {
            for m in 1..3usize {
                let (mut all, mut right) = (0u32, 0u32);
                for _ in 0..400_000 {
                    let drawn = match random(&mut seed) % 10 {
                        0..4 => 0,
                        4..7 => 1,
                        7..9 => 2,
                        _ => 3,
                    };
                    let top = (0..n).map(|_| random(&mut seed) % blocks[drawn]).max().unwrap();
                    if top >= blocks[m] / 2 && top < blocks[m] {
                        all += 1;
                        right += u32::from(drawn == m);
                    }
                }
                let counted = f64::from(right) / f64::from(all);
                let said = confidence_of(&prior, PIECE_BYTES_LOW << m, n);
                assert!((counted - said).abs() < 0.01, "n {n}, m {m}: {counted} against {said}");
            }
        }
    }

    #[test]
    fn equation_1_agrees_with_the_sum_written_out() {
        for (m, n) in [(0, 0), (3, 1), (6, 5), (10, 2)] {
            let sum: f64 = (m..LENGTHS)
                .map(|k| PRIOR[k] * (f64::from(bytes_of(m)) / f64::from(bytes_of(k))).powi(n))
                .sum();
            let said = confidence(&PRIOR, m, n.unsigned_abs());
            assert!((said - PRIOR[m] / sum).abs() < 1e-12);
        }
        assert!((confidence_of(&PRIOR, PIECE_BYTES_HIGH, 0) - 1.0).abs() < 1e-12);
        assert!((confidence_of(&PRIOR, 1, u32::MAX) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn equation_2_is_the_least_number_that_suffices() {
        for length in [16 * KIB, 256 * KIB, 4096 * KIB] {
            for epsilon in [0.1, 0.01, 0.001] {
                let n = samples_needed(&PRIOR, length, epsilon).unwrap();
                assert!(confidence_of(&PRIOR, length, n) >= 1.0 - epsilon);
                assert!(n == 0 || confidence_of(&PRIOR, length, n - 1) < 1.0 - epsilon);
            }
        }
        assert_eq!(samples_needed(&[0.0; LENGTHS], 16 * KIB, 0.1), None);
    }

    #[test]
    fn independent_requests_are_inferred_after_the_samples_needed() {
        let mut seed = 7;
        let mut inference = paper(true);
        let needed = samples_needed(&PRIOR, 256 * KIB, 0.001).unwrap();
        for _ in 0..needed + 40 {
            let begin = u32::try_from(random(&mut seed) % 16).unwrap() * 16 * KIB;
            let index = u32::try_from(random(&mut seed) % 1000).unwrap();
            inference.observe(index, begin, 16 * KIB);
        }
        let estimate = inference.estimate().unwrap();
        assert_eq!(estimate.piece_bytes, 256 * KIB);
        assert!(estimate.confidence >= 0.999 && estimate.samples >= needed);
    }

    #[test]
    fn a_sample_that_raises_the_estimate_starts_counting_again() {
        let mut with = paper(true);
        let mut without = paper(false);
        for i in 0..8 {
            with.observe(0, i * 16 * KIB, 16 * KIB);
            without.observe(0, i * 16 * KIB, 16 * KIB);
        }
        // 128 KiB was reached by the fifth of eight.
        assert_eq!(with.best().unwrap().samples, 3);
        assert_eq!(without.best().unwrap().samples, 8);
        assert_eq!(with.best().unwrap().piece_bytes, 128 * KIB);
    }

    #[test]
    fn a_sample_beyond_a_confident_estimate_contradicts_it_once() {
        let mut inference = paper(true);
        for index in 0..30 {
            inference.observe(index, 0, 16 * KIB);
        }
        assert_eq!(inference.estimate().map(|e| e.piece_bytes), Some(16 * KIB));
        assert_eq!(
            inference.observe(0, 16 * KIB, 16 * KIB),
            Observation::Contradicted { piece_bytes: 16 * KIB }
        );
        assert_eq!(inference.estimate(), None);
        assert_eq!(inference.observe(0, 32 * KIB, 16 * KIB), Observation::Raised);
    }

    #[test]
    fn requests_in_order_do_not_convince_when_pieces_count() {
        // 1 MiB pieces, each asked for from start to end.
        let mut inference = Inference::new(InferenceOptions::default());
        let mut confident_at = None;
        for index in 0..40 {
            for block in 0..64 {
                let seen = inference.observe(index, block * 16 * KIB, 16 * KIB);
                assert!(!matches!(seen, Observation::Contradicted { .. }));
                if confident_at.is_none() && inference.estimate().is_some() {
                    confident_at = Some(index);
                }
            }
        }
        assert_eq!(inference.estimate().unwrap().piece_bytes, 1024 * KIB);
        assert!(confident_at.unwrap() < 20);
    }

    #[test]
    fn what_cannot_be_in_a_piece_changes_nothing() {
        let mut inference = paper(true);
        for (begin, len) in [(u32::MAX, 1), (u32::MAX, u32::MAX), (PIECE_BYTES_HIGH, 1), (0, 0)] {
            assert_eq!(inference.observe(0, begin, len), Observation::Steady);
        }
        assert_eq!(inference.best(), None);
        assert_eq!(inference.observe(0, 0, PIECE_BYTES_HIGH), Observation::Raised);
    }
}
