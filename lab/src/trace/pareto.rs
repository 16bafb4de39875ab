//! The bounded Pareto law (docs/formats/trace.md).

/// A bounded Pareto law on `low..=high`, in whatever unit the two have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BoundedPareto {
    /// `0 < low < high`.
    low: f64,
    high: f64,
    /// The exponent `a`; 0 is the log-uniform law, below 0 the large ones prevail.
    pub(crate) shape: f64,
}

impl BoundedPareto {
    /// The law with this exponent.
    pub(crate) const fn new(low: f64, high: f64, shape: f64) -> Self {
        Self { low, high, shape }
    }

    /// The law with this mean, by bisection over exponents between -5 and 5.
    ///
    /// A mean that no such exponent reaches gives the nearest one.
    pub(crate) fn with_mean(low: f64, high: f64, mean: f64) -> Self {
        let (mut under, mut over) = (-SHAPE_MAX, SHAPE_MAX);
        for _ in 0..BISECTIONS {
            let shape = f64::midpoint(under, over);
            // The mean falls as the exponent rises.
            if Self::new(low, high, shape).mean() > mean {
                under = shape;
            } else {
                over = shape;
            }
        }
        Self::new(low, high, f64::midpoint(under, over))
    }

    /// The value below which the share `u` of the law lies.
    pub(crate) fn quantile(&self, u: f64) -> f64 {
        if self.shape.abs() < POLE {
            return self.low * (self.high / self.low).powf(u);
        }
        let tail = 1.0 - (self.low / self.high).powf(self.shape);
        self.low * (1.0 - u * tail).powf(-1.0 / self.shape)
    }

    /// The mean; the formula's poles at 0 and 1 have laws of their own.
    pub(crate) fn mean(&self) -> f64 {
        let Self { low, high, shape } = *self;
        let log_ratio = (high / low).ln();
        if shape.abs() < POLE {
            return (high - low) / log_ratio;
        }
        if (shape - 1.0).abs() < POLE {
            return low * log_ratio / (1.0 - low / high);
        }
        let reach = low.powf(1.0 - shape) - high.powf(1.0 - shape);
        shape / (shape - 1.0) * low.powf(shape) * reach / (1.0 - (low / high).powf(shape))
    }
}

const SHAPE_MAX: f64 = 5.0;
const BISECTIONS: u32 = 200;
/// Nearer to a pole than this the general formula loses its digits.
const POLE: f64 = 1e-7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_reach_from_low_to_high() {
        for shape in [-1.5, 0.0, 0.3, 1.0, 2.2] {
            let law = BoundedPareto::new(10.0, 1000.0, shape);
            assert!((law.quantile(0.0) - 10.0).abs() < 1e-9);
            assert!((law.quantile(1.0) - 1000.0).abs() < 1e-6);
            assert!(law.quantile(0.3) < law.quantile(0.31));
        }
    }

    #[test]
    fn the_mean_is_that_of_the_quantiles_also_at_the_poles() {
        for shape in [-2.0, 0.0, 1e-9, 0.5, 1.0, 1.0 + 1e-9, 1.8] {
            let law = BoundedPareto::new(1e6, 1e7, shape);
            let steps = 20_000;
            let sum: f64 =
                (0..steps).map(|i| law.quantile((f64::from(i) + 0.5) / f64::from(steps))).sum();
            let found = sum / f64::from(steps);
            assert!((law.mean() / found - 1.0).abs() < 1e-4, "{shape}: {} {found}", law.mean());
        }
    }

    #[test]
    fn a_mean_out_of_reach_gives_the_last_exponent() {
        assert!(BoundedPareto::with_mean(1.0, 10.0, 0.5).shape > 4.999);
        assert!(BoundedPareto::with_mean(1.0, 10.0, 20.0).shape < -4.999);
    }
}
