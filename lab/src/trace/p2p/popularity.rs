//! Which object is asked for: Mandelbrot-Zipf, and its drift (docs/formats/trace.md).

use crate::trace::alias::{AliasTable, zipf_weights};
use crate::trace::draws::Draws;

/// Draws objects by rank; ranks can change their objects as the trace goes on.
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    ranks: AliasTable,
    /// The object that has a rank, from the most popular.
    object_at: Vec<u32>,
}

impl Popularity {
    /// `count` objects with the law `p(rank) ~ 1 / (rank + plateau)^skew`.
    ///
    /// Sizes do not depend on the object's number, so the first object has the
    /// first rank.
    pub(super) fn new(count: u32, skew: f64, plateau: f64) -> Self {
        let ranks = AliasTable::new(&zipf_weights(count as usize, skew, plateau));
        Self { ranks, object_at: (0..count).collect() }
    }

    /// An object. Two words.
    pub(super) fn draw(&self, draws: &mut Draws) -> u32 {
        self.object_at[self.ranks.draw(draws) as usize]
    }

    /// Births and deaths: one rank in ten changes its object with another one, and
    /// ten of the first 200 do. Two words a swap.
    pub(super) fn drift(&mut self, draws: &mut Draws) {
        let count = self.object_at.len();
        for _ in 0..count / 20 {
            let (a, b) = (draws.index(count), draws.index(count));
            self.object_at.swap(a, b);
        }
        for _ in 0..TOP_SWAPS {
            let (a, b) = (draws.index(count.min(TOP)), draws.index(count));
            self.object_at.swap(a, b);
        }
    }
}

const TOP: usize = 200;
const TOP_SWAPS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_moves_objects_and_loses_none() {
        let mut popularity = Popularity::new(1000, 0.6, 25.0);
        let mut draws = Draws::new(8);
        popularity.drift(&mut draws);
        let moved = popularity.object_at.iter().zip(0..).filter(|&(&a, b)| a != b).count();
        assert!((60..=120).contains(&moved), "{moved} of 1000 moved");
        popularity.object_at.sort_unstable();
        assert_eq!(popularity.object_at, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_catalogue_of_one_can_drift() {
        let mut popularity = Popularity::new(1, 0.6, 25.0);
        popularity.drift(&mut Draws::new(1));
        assert_eq!(popularity.draw(&mut Draws::new(1)), 0);
    }
}
