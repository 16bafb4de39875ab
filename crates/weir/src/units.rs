//! Sizes as people write them: with a unit, always.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A number of bytes: `"64KiB"`, `"2GiB"`, `"500MB"`; `0` needs no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// Largest first, so that what is printed is short.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

impl Size {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        parse(text, &SIZES).map(Self).ok_or_else(|| {
            format!("{text:?} is no size: write a whole number and B, kB, KiB, MB, MiB, GB, GiB, TB or TiB, \"2GiB\" say")
        })
    }
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    if unit.is_empty() && number == 0 {
        return Some(0);
    }
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

fn show(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = units.iter().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    match fits {
        Some((name, factor)) => write!(f, "{}{name}", value / factor),
        None => write!(f, "{value}"),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SIZES)
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::parse(s)
    }
}

struct UnitVisitor<T>(&'static str, fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for UnitVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        (self.1)(&number.to_string()).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnitVisitor("a size with its unit", Self::parse))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_needed_and_unambiguous() {
        assert_eq!(Size::parse("64KiB"), Ok(Size(65536)));
        assert_eq!(Size::parse("500MB"), Ok(Size(500_000_000)));
        assert_eq!(Size::parse("0"), Ok(Size(0)));
        for bad in ["64", "64K", "64kb", "64 KiB", "-1B", "1.5GiB", "", "GiB", "99999999999TiB"] {
            assert!(Size::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for n in [0, 1, 1000, 1024, 1536, 1 << 30, 2_000_000, 12_345] {
            assert_eq!(Size::parse(&Size(n).to_string()), Ok(Size(n)));
        }
        assert_eq!(Size(1 << 30).to_string(), "1GiB");
    }
}
