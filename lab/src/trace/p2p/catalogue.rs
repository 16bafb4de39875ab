//! The objects of the P2P trace and their sizes (docs/formats/trace.md).

use crate::trace::draws::{Draws, whole};
use crate::trace::pareto::BoundedPareto;

/// What an object is, by its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// A song or something as small.
    Audio,
    /// An album, a program, a clip.
    Album,
    /// A film on one CD, or on a part of one.
    Film,
    /// A DVD.
    Dvd,
}

impl Class {
    /// Every class with its share of the objects.
    const SHARES: [(Self, f64); 4] =
        [(Self::Audio, 0.62), (Self::Album, 0.20), (Self::Film, 0.16), (Self::Dvd, 0.02)];

    /// One word.
    fn draw(draws: &mut Draws) -> Self {
        let mut place = draws.uniform();
        for (class, share) in Self::SHARES {
            if place < share {
                return class;
            }
            place -= share;
        }
        Self::Dvd
    }

    /// A size in bytes. Two words for audio, one for an album, else a choice (one)
    /// and the size (two when it is normal, else one).
    fn size(self, draws: &mut Draws) -> u64 {
        let bytes = match self {
            Self::Audio => draws.lognormal(3.8e6, 0.45).clamp(1e6, 1e7),
            Self::Album => BoundedPareto::new(1e7, 1e8, 0.6).quantile(draws.uniform()),
            Self::Film => {
                let kind = draws.uniform();
                let bytes = if kind < 0.45 {
                    around(700e6, draws)
                } else if kind < 0.65 {
                    around(350e6, draws)
                } else if kind < 0.75 {
                    around(175e6, draws)
                } else {
                    BoundedPareto::new(1e8, 8e8, 0.3).quantile(draws.uniform())
                };
                bytes.clamp(1e8, 8e8)
            }
            Self::Dvd => {
                if draws.chance(0.5) {
                    BoundedPareto::new(8e8, 2e9, 1.0).quantile(draws.uniform())
                } else {
                    around(4.37e9, draws).min(4.7e9)
                }
            }
        };
        whole(bytes)
    }
}

/// The sizes in bytes of `count` objects, by object number.
///
/// Below [`QUOTAS_BELOW`] objects the classes come in exact shares, in a shuffled
/// order, because a few DVDs more or fewer would decide everything (§2.7).
pub(super) fn sizes(count: u32, draws: &mut Draws) -> Vec<u64> {
    if count < QUOTAS_BELOW {
        let mut classes = quotas(count);
        draws.shuffle(&mut classes);
        return classes.into_iter().map(|class| class.size(draws)).collect();
    }
    (0..count).map(|_| Class::draw(draws).size(draws)).collect()
}

/// `count` classes in their shares, by largest remainder.
fn quotas(count: u32) -> Vec<Class> {
    let mut left = count as usize;
    let mut shares = Class::SHARES.map(|(class, share)| {
        let exact = f64::from(count) * share;
        let number = usize::try_from(whole(exact)).expect("below the count");
        left -= number;
        (class, number, exact.fract())
    });
    let mut order = [0, 1, 2, 3];
    order.sort_by(|&a: &usize, &b: &usize| shares[b].2.total_cmp(&shares[a].2));
    for &index in order.iter().take(left) {
        shares[index].1 += 1;
    }
    shares.iter().flat_map(|&(class, number, _)| std::iter::repeat_n(class, number)).collect()
}

/// Normal around `mean`, 2 % wide. Two words.
fn around(mean: f64, draws: &mut Draws) -> f64 {
    mean * (1.0 + 0.02 * draws.normal())
}

const QUOTAS_BELOW: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_catalogues_have_every_class_in_its_share() {
        for (count, expected) in [(217, [135, 43, 35, 4]), (10, [6, 2, 2, 0]), (1, [1, 0, 0, 0])] {
            let classes = quotas(count);
            let found = Class::SHARES.map(|(c, _)| classes.iter().filter(|&&d| d == c).count());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn sizes_stay_in_their_classes() {
        let mut draws = Draws::new(2);
        let bounds = [(1e6, 1e7), (1e7, 1e8), (1e8, 8e8), (8e8, 4.7e9)];
        for ((class, _), (low, high)) in Class::SHARES.into_iter().zip(bounds) {
            for _ in 0..5000 {
                let size = class.size(&mut draws) as f64;
                assert!((low - 1.0..=high + 1.0).contains(&size), "{class:?} {size}");
            }
        }
    }

    #[test]
    fn classes_are_drawn_in_their_shares() {
        let mut draws = Draws::new(3);
        let drawn: Vec<Class> = (0..50_000).map(|_| Class::draw(&mut draws)).collect();
        for (class, share) in Class::SHARES {
            let found = drawn.iter().filter(|&&c| c == class).count() as f64 / 50_000.0;
            assert!((found - share).abs() < 0.01, "{class:?} {found}");
        }
    }
}
