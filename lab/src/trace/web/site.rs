//! The two sites of Kim et al., Table 2 (docs/formats/trace.md).

use clap::ValueEnum;

use crate::trace::draws::whole;

/// Whose day is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SiteName {
    /// KAIST, 9 June 2002.
    Kaist,
    /// Waseda, 11 December 2003.
    Waseda,
}

/// The printed figures of one day, or a part of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Site {
    /// Requests of the day.
    pub(crate) requests: u64,
    /// Bytes of the day, GB taken as 10^9.
    pub(crate) bytes: f64,
    /// Who asked.
    pub(crate) clients: u32,
    /// Shares of requests and of bytes above 1, 10 and 100 MB, in 0..=1.
    pub(crate) above: [(f64, f64); 3],
    /// Bytes of the largest object.
    pub(crate) largest: u64,
}

impl Site {
    /// The printed figures. Deviates: of Waseda's requests 0.0003 % are above
    /// 100 MB, because the printed 0.0009 % would have a mean below 100 MB.
    pub(crate) const fn printed(name: SiteName) -> Self {
        match name {
            SiteName::Kaist => Self {
                requests: 7_380_000,
                bytes: 79e9,
                clients: 5633,
                above: [(0.0008, 0.555), (0.00008, 0.411), (0.00001, 0.246)],
                largest: 681_000_000,
            },
            SiteName::Waseda => Self {
                requests: 5_610_000,
                bytes: 42e9,
                clients: 2186,
                above: [(0.0005, 0.323), (0.00004, 0.204), (0.000_003, 0.062)],
                largest: 231_000_000,
            },
        }
    }

    /// The same day with a part of its clients, each of whom asks as much.
    pub(crate) fn scaled(self, scale: f64) -> Self {
        let clients = whole((f64::from(self.clients) / scale).round()).max(1);
        Self {
            requests: whole((self.requests as f64 / scale).round()).max(1),
            bytes: self.bytes / scale,
            clients: u32::try_from(clients).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// The four size classes, from the differences of the cumulative rows (§3.1).
    pub(crate) fn bins(&self) -> [Bin; 4] {
        let shares = [(1.0, 1.0), self.above[0], self.above[1], self.above[2], (0.0, 0.0)];
        let edges = [0, MB, 10 * MB, 100 * MB, self.largest];
        let mut bins = std::array::from_fn(|class| {
            let (above, beyond) = (shares[class], shares[class + 1]);
            Bin {
                low: edges[class],
                high: edges[class + 1],
                requests: whole(((above.0 - beyond.0) * self.requests as f64).round()),
                bytes: (above.1 - beyond.1) * self.bytes,
            }
        });
        // Rounding must not change how many requests there are.
        let tail: u64 = bins[1..].iter().map(|bin: &Bin| bin.requests).sum();
        bins[0].requests = self.requests.saturating_sub(tail);
        bins
    }
}

/// A size class: objects of `low + 1 ..= high` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bin {
    /// Bytes, `low < high`.
    pub(crate) low: u64,
    /// Bytes.
    pub(crate) high: u64,
    /// Requests for objects of this class, exact.
    pub(crate) requests: u64,
    /// Bytes of these requests.
    pub(crate) bytes: f64,
}

impl Bin {
    /// Mean bytes of a request.
    pub(crate) fn mean(&self) -> f64 {
        self.bytes / self.requests as f64
    }
}

const MB: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::pareto::BoundedPareto;

    fn near(found: f64, expected: f64, share: f64) {
        assert!((found / expected - 1.0).abs() < share, "{found} instead of {expected}");
    }

    #[test]
    fn classes_are_those_of_the_table() {
        let kaist = Site::printed(SiteName::Kaist).bins();
        assert_eq!(kaist.map(|bin| bin.requests), [7_374_095, 5314, 517, 74]);
        for (bin, mean) in kaist.iter().zip([4767.0, 2.14e6, 25.2e6, 263e6]) {
            near(bin.mean(), mean, 0.003);
        }
        let waseda = Site::printed(SiteName::Waseda).bins();
        assert_eq!(waseda.map(|bin| bin.requests), [5_607_194, 2581, 208, 17]);
        for (bin, mean) in waseda.iter().zip([5071.0, 1.94e6, 28.7e6, 155e6]) {
            near(bin.mean(), mean, 0.013);
        }
    }

    #[test]
    fn exponents_are_those_of_the_table() {
        let expected = [
            (SiteName::Kaist, [1.4693, 1.0342, 0.4700]),
            (SiteName::Waseda, [1.7777, 0.7226, 0.1933]),
        ];
        for (name, shapes) in expected {
            let site = Site::printed(name);
            let bins = site.bins();
            for (class, shape) in (1..4).zip(shapes) {
                let bin = bins[class];
                // The table's means are of unrounded counts.
                let share = site.above[class - 1].0 - site.above.get(class).map_or(0.0, |a| a.0);
                let mean = bin.bytes / (share * site.requests as f64);
                let law = BoundedPareto::with_mean(bin.low as f64, bin.high as f64, mean);
                assert!((law.shape - shape).abs() < 6e-5, "{name:?} {class}: {}", law.shape);
            }
        }
    }
}
