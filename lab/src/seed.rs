//! Seeded randomness: one seed, the same losses, contents and places.
//!
//! `SplitMix64` (Steele, Lea, Flood 2014) is enough here: nothing of it guards a
//! secret, and it is ten lines that never change under a dependency's update.

/// A stream of 64-bit words decided by its seed.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The stream of `seed` for one purpose, so that two purposes never share words.
    pub(crate) fn split(seed: u64, purpose: u64) -> Self {
        let mut mixer = Self::new(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self::new(mixer.word())
    }

    /// The next word.
    pub(crate) const fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, 0 when `bound` is 0.
    ///
    /// The bias of the multiplication is below 2^-32 for the bounds used here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.word()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("a product shifted by 64 fits 64 bits")
    }

    /// True with `ppm` chances in a million.
    pub(crate) fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// Fills `out` with the stream's bytes.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_are_those_of_the_reference_for_seed_zero() {
        let mut stream = SplitMix64::new(0);
        assert_eq!(stream.word(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(stream.word(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        let mut stream = SplitMix64::new(7);
        let mut seen = [false; 3];
        for _ in 0..200 {
            seen[usize::try_from(stream.below(3)).unwrap()] = true;
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(stream.below(0), 0);
    }

    #[test]
    fn two_purposes_of_one_seed_differ() {
        assert_ne!(SplitMix64::split(1, 1).word(), SplitMix64::split(1, 2).word());
    }

    #[test]
    fn fill_covers_a_length_that_is_no_multiple_of_eight() {
        let (mut a, mut b) = ([0u8; 13], [0u8; 13]);
        SplitMix64::new(3).fill(&mut a);
        SplitMix64::new(3).fill(&mut b);
        assert_eq!(a, b);
        assert_ne!(a[8..], [0; 5]);
    }
}
