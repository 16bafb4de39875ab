//! `pcache/index`: what a segment costs, from ten thousand to a hundred million.
//!
//! The store's own benchmark fills an index whose bytes go nowhere, in a process for
//! each size, and tells memory and look-up time: dense (64 segments in each group) and
//! at its worst (one). pCache keeps a tree entry a segment: 39 bytes. Refuted when a
//! dense segment costs more than half a byte, or a hundred million at their worst more
//! than 2.5 GB.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Conditions;
use crate::record::data::{Record, Series};
use crate::record::figure::{Figure, Line, Plot};

/// One size.
#[derive(Debug)]
struct Cost {
    is_dense: bool,
    segments: f64,
    bytes: f64,
    look_up_ns: f64,
}

/// Runs the story.
///
/// # Errors
/// When the benchmark is not built, or does not answer as it should.
pub(super) fn run(at: &Conditions, record: &mut Record) -> Result<()> {
    let bench = at.weir.parent().unwrap_or(&at.weir).join("examples/bench");
    ensure!(
        bench.exists(),
        "no benchmark at {} (cargo build --release -p weir-store --example bench)",
        bench.display()
    );
    let most: u64 = if at.quick { 100_000 } else { 100_000_000 };
    record.condition(
        "Memory is all that the process has more than before: the index, 1 MiB of checksums, 3.5 \
         MiB of buffers and what the allocator keeps. Look-ups of 64 KiB (dense) or \
         16 KiB (one segment a group) at random places, two million, median of three.",
    );
    let mut costs = Vec::new();
    for segments in std::iter::successors(Some(10_000), |n| Some(n * 10)).take_while(|n| *n <= most)
    {
        for kind in ["dense", "sparse"] {
            let output = Command::new(&bench).args(["index", kind, &segments.to_string()]).output();
            let output = output.context("start the benchmark")?;
            ensure!(output.status.success(), "the benchmark ended with {}", output.status);
            let cost = parse(&String::from_utf8_lossy(&output.stdout))?;
            eprintln!(
                "  {kind} {segments}: {:.2} bytes a segment, look-up {:.0} ns",
                cost.bytes, cost.look_up_ns
            );
            record.rows.push(json!({
                "kind": kind,
                "segments": cost.segments,
                "bytes_a_segment": cost.bytes,
                "look_up_ns": cost.look_up_ns,
            }));
            costs.push(cost);
        }
    }
    // In all, for a figure of logarithms has no place for less than one byte.
    let in_all = |cost: &Cost| (cost.bytes * cost.segments).log10();
    draw(record, &costs, "memory", "bytes in all, log10", in_all);
    draw(record, &costs, "look-up", "ns", |cost| cost.look_up_ns);
    let most = most as f64;
    for cost in costs.iter().filter(|cost| cost.segments >= most) {
        let total = cost.bytes * cost.segments / 1e9;
        match (cost.is_dense, at.quick) {
            (true, false) => record.at_most("a dense segment of 10^8", cost.bytes, 0.5, "bytes"),
            (false, false) => record.at_most("10^8 segments at their worst", total, 2.5, "GB"),
            // Of few segments the memory is that of the buffers.
            (_, true) => record.at_most("look-up", cost.look_up_ns, 5000.0, "ns"),
        }
    }
    Ok(())
}

/// What the benchmark says of one size: kind, segments, bytes, nanoseconds.
fn parse(line: &str) -> Result<Cost> {
    let fields: Vec<&str> = line.trim().split('\t').collect();
    let number = |at: usize| -> Result<f64> {
        let field = fields.get(at).with_context(|| format!("too few fields in {line:?}"))?;
        field.parse().with_context(|| format!("{field:?} is no number"))
    };
    Ok(Cost {
        is_dense: fields.first() == Some(&"dense"),
        segments: number(1)?,
        bytes: number(2)?,
        look_up_ns: number(3)?,
    })
}

fn draw(record: &mut Record, costs: &[Cost], what: &str, unit: &str, value: fn(&Cost) -> f64) {
    let mut lines = Vec::new();
    for (name, is_dense) in [("dense", true), ("one segment a group", false)] {
        let of = costs.iter().filter(|cost| cost.is_dense == is_dense);
        let points: Vec<_> = of.map(|cost| (cost.segments.log10(), value(cost))).collect();
        record.series.push(Series {
            name: format!("{what}, {name}"),
            unit: unit.to_owned(),
            points: points.clone(),
        });
        lines.push(Line::measured(name, points));
    }
    record.figures.push(Figure {
        file: format!("pcache-index-{what}"),
        title: format!("The index: {what} by the number of segments"),
        x: "segments, log10".to_owned(),
        y: unit.to_owned(),
        plot: Plot::Lines(lines),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_benchmark_is_read() {
        let cost = parse("sparse\t1000000\t36.20\t149\t7400\n").unwrap();
        assert!(!cost.is_dense);
        assert_eq!((cost.segments, cost.bytes, cost.look_up_ns), (1e6, 36.2, 149.0));
        assert!(parse("dense\tmany").is_err());
    }
}
