//! Weighted choice in constant time by Vose's alias method (docs/formats/trace.md).

use crate::trace::draws::Draws;

/// A table of weighted indices; 12 bytes an index.
#[derive(Clone, Debug)]
pub(crate) struct AliasTable {
    /// The share of its own cell that an index keeps, in `0.0..=1.0`.
    keep: Vec<f64>,
    /// Who has the rest of the cell.
    other: Vec<u32>,
}

impl AliasTable {
    /// The table of these weights, which are above 0 and fewer than 2^32.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut keep: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let count = u32::try_from(weights.len()).expect("callers bound their catalogues");
        let mut other: Vec<u32> = (0..count).collect();
        let (mut poor, mut rich): (Vec<u32>, Vec<u32>) =
            (0..count).partition(|&index| keep[index as usize] < 1.0);
        while let (Some(&giver), Some(taker)) = (rich.last(), poor.pop()) {
            other[taker as usize] = giver;
            keep[giver as usize] = keep[giver as usize] + keep[taker as usize] - 1.0;
            if keep[giver as usize] < 1.0 {
                rich.pop();
                poor.push(giver);
            }
        }
        // Only rounding leaves any here.
        for index in poor.into_iter().chain(rich) {
            keep[index as usize] = 1.0;
        }
        Self { keep, other }
    }

    /// An index, 0 for an empty table. Two words: a cell, then its share.
    pub(crate) fn draw(&self, draws: &mut Draws) -> u32 {
        let cell = draws.index(self.keep.len());
        let share = draws.uniform();
        match (self.keep.get(cell), self.other.get(cell)) {
            (Some(&keep), Some(&other)) if share >= keep => other,
            _ => u32::try_from(cell).expect("a table has fewer than 2^32 cells"),
        }
    }
}

/// The weights `1 / (rank + plateau)^skew` of the ranks from 1.
pub(crate) fn zipf_weights(count: usize, skew: f64, plateau: f64) -> Vec<f64> {
    (0..count).map(|rank| (rank as f64 + 1.0 + plateau).powf(-skew)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_come_as_often_as_their_weights_say() {
        let weights = [5.0, 1.0, 0.25, 3.0, 0.75];
        let table = AliasTable::new(&weights);
        let mut draws = Draws::new(4);
        let mut counts = [0u32; 5];
        for _ in 0..200_000 {
            counts[table.draw(&mut draws) as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            assert!((f64::from(*count) / 20_000.0 - weight).abs() < 0.05, "{counts:?}");
        }
    }

    #[test]
    fn one_index_and_none_are_tables_too() {
        assert_eq!(AliasTable::new(&[0.3]).draw(&mut Draws::new(1)), 0);
        assert_eq!(AliasTable::new(&[]).draw(&mut Draws::new(1)), 0);
    }

    #[test]
    fn a_plateau_flattens_the_first_ranks() {
        let (steep, flat) = (zipf_weights(100, 0.6, 0.0), zipf_weights(100, 0.6, 25.0));
        assert!(steep[0] / steep[9] > 3.0);
        assert!(flat[0] / flat[9] < 1.3);
    }
}
