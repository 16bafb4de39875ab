//! The record of one run of one story, and its table.
//!
//! A check holds a value against a bound that is written down before the value
//! is known. A run is good when every check holds and there is at least one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::figure::Figure;
use super::machine::Machine;

/// A run of a story.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// The story's name.
    pub(crate) story: String,
    /// The seed that decides content, losses and places.
    pub(crate) seed: u64,
    /// A shortened run, which is never quoted.
    pub(crate) quick: bool,
    /// The commit of the tree, with `-dirty` when it was changed.
    pub(crate) commit: String,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// When it began, seconds since the epoch.
    pub(crate) started: u64,
    /// How long it took.
    pub(crate) secs: f64,
    /// Under which conditions, one sentence each.
    pub(crate) conditions: Vec<String>,
    /// Rows of measurements, one object each.
    pub(crate) rows: Vec<Value>,
    /// Values over time or another axis.
    pub(crate) series: Vec<Series>,
    /// What must hold.
    pub(crate) checks: Vec<Check>,
    /// Figures to be drawn of the series.
    #[serde(skip)]
    pub(crate) figures: Vec<Figure>,
}

/// A named list of points.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    /// What it is.
    pub(crate) name: String,
    /// Unit of the second coordinate.
    pub(crate) unit: String,
    /// The points.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A value and the bound it is held against.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// What is checked.
    pub(crate) name: String,
    /// What was found.
    pub(crate) value: Value,
    /// In what unit.
    pub(crate) unit: String,
    /// What it must be.
    pub(crate) bound: String,
    /// Whether it is.
    pub(crate) ok: bool,
}

impl Record {
    /// An empty record.
    pub(crate) fn new(story: &str, seed: u64, quick: bool) -> Self {
        Self {
            story: story.to_owned(),
            seed,
            quick,
            commit: super::machine::commit(),
            machine: Machine::here(),
            started: crate::clock::wall_secs(),
            secs: 0.0,
            conditions: Vec::new(),
            rows: Vec::new(),
            series: Vec::new(),
            checks: Vec::new(),
            figures: Vec::new(),
        }
    }

    /// States a condition.
    pub(crate) fn condition(&mut self, text: impl Into<String>) {
        self.conditions.push(text.into());
    }

    /// Checks that `value` is at most `bound`.
    pub(crate) fn at_most(&mut self, name: impl Into<String>, value: f64, bound: f64, unit: &str) {
        self.number(name.into(), value, unit, format!("<= {}", round(bound)), value <= bound);
    }

    /// Checks that `value` is at least `bound`.
    pub(crate) fn at_least(&mut self, name: impl Into<String>, value: f64, bound: f64, unit: &str) {
        self.number(name.into(), value, unit, format!(">= {}", round(bound)), value >= bound);
    }

    /// Checks that something holds; `found` tells what was seen when it does not.
    pub(crate) fn holds(&mut self, name: impl Into<String>, ok: bool, found: impl Into<String>) {
        let value = if ok { Value::from("yes") } else { Value::from(found.into()) };
        let (name, unit, bound) = (name.into(), String::new(), "yes".to_owned());
        self.tell(Check { name, value, unit, bound, ok });
    }

    /// Whether every check holds.
    pub(crate) fn is_good(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.ok)
    }

    /// Writes the record as JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
    }

    /// The checks as a table in text.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let width = self.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
        for check in &self.checks {
            let mark = if check.ok { "ok  " } else { "FAIL" };
            let value = text_of(&check.value);
            let (name, unit, bound) = (&check.name, &check.unit, &check.bound);
            let written = if unit.is_empty() {
                writeln!(out, "{mark}  {name:width$}  {value} (must be {bound})")
            } else {
                writeln!(out, "{mark}  {name:width$}  {value} {unit} (must be {bound})")
            };
            written.expect("writing to a string never fails");
        }
        out
    }

    fn number(&mut self, name: String, value: f64, unit: &str, bound: String, ok: bool) {
        let value = serde_json::Number::from_f64(round(value)).map_or(Value::Null, Value::Number);
        self.tell(Check { name, value, unit: unit.to_owned(), bound, ok });
    }

    fn tell(&mut self, check: Check) {
        let mark = if check.ok { "ok  " } else { "FAIL" };
        eprintln!(
            "  {mark} {}: {} {} ({})",
            check.name,
            text_of(&check.value),
            check.unit,
            check.bound
        );
        self.checks.push(check);
    }
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// A value as people read it.
pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_checks_is_not_good() {
        assert!(!Record::new("x/y", 1, true).is_good());
    }

    #[test]
    fn bounds_hold_at_their_edge() {
        let mut record = Record::new("x/y", 1, true);
        record.at_most("a", 3.0, 3.0, "%");
        record.at_least("b", 3.0, 3.0, "x");
        record.holds("c", true, "");
        assert!(record.is_good());
        record.at_most("d", 3.1, 3.0, "%");
        assert!(!record.is_good());
        assert!(record.table().contains("FAIL  d  3.1 % (must be <= 3)"));
    }

    #[test]
    fn a_number_that_is_none_fails_its_check() {
        let mut record = Record::new("x/y", 1, true);
        record.at_most("a", f64::NAN, 3.0, "%");
        assert!(!record.is_good());
    }
}
