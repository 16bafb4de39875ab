//! The paper's figures: bars of medians, lines of the run in the middle.

use super::bench::{Measured, Run};
use super::{LAYOUTS, RATE_EVERY_SECS};
use crate::blockio::Load;
use crate::record::data::{Record, Series};
use crate::record::figure::{Figure, Line, Plot};

/// Figures of the runs with the same decisions, and the series behind them.
pub(super) fn draw(record: &mut Record, measured: &Measured) {
    let names: Vec<String> = LAYOUTS.iter().map(|layout| layout.name.to_owned()).collect();
    let medians = |of: &dyn Fn(&Run) -> f64| -> Vec<f64> {
        names.iter().map(|name| measured.median(name, of)).collect()
    };
    let mut bars = |file: &str, title: &str, y: &str, sets: Vec<(String, Vec<f64>)>| {
        record.figures.push(Figure {
            file: format!("pcache-storage-{file}"),
            title: title.to_owned(),
            x: "layout".to_owned(),
            y: y.to_owned(),
            plot: Plot::Bars(names.clone(), sets),
        });
    };
    let one = |name: &str, values: Vec<f64>| vec![(name.to_owned(), values)];
    let title = "Time to complete the trace (medians)";
    bars("time", title, "seconds", one("time", medians(&Run::secs)));
    let side = |reads: bool| {
        medians(&|run: &Run| {
            run.requests.as_ref().map_or(f64::NAN, |requests| {
                let side = if reads { &requests.reads } else { &requests.writes };
                side.count as f64 / 1e3
            })
        })
    };
    let sets = vec![("reads".to_owned(), side(true)), ("writes".to_owned(), side(false))];
    bars("io", "Requests to the device", "thousands", sets);
    let title = "Mean size of a request to the device";
    bars("size", title, "KiB", one("size", medians(&Run::mean_kib)));
    let title = "Mean distance from one request to the next";
    bars("seek", title, "thousand sectors", one("distance", medians(&Run::seek_ksectors)));
    lines(record, measured, "throughput", "Throughput over time", "MB/s asked for and answered");
    lines(record, measured, "busy", "Disk utilisation over time", "device busy, %");
}

/// A line for each layout, of its run of median time.
fn lines(record: &mut Record, measured: &Measured, what: &str, title: &str, y: &str) {
    let mut lines = Vec::new();
    for layout in LAYOUTS {
        let Some(run) = measured.middle(layout.name) else { continue };
        let points = if what == "busy" { busy(&run.loads) } else { run.rates.clone() };
        let name = format!("{}: {what}", layout.name);
        record.series.push(Series { name, unit: y.to_owned(), points: points.clone() });
        lines.push(Line::measured(layout.name, points));
    }
    record.figures.push(Figure {
        file: format!("pcache-storage-{what}"),
        title: title.to_owned(),
        x: "time, s".to_owned(),
        y: y.to_owned(),
        plot: Plot::Lines(lines),
    });
}

/// Percent of the time in which the device was busy, second by second.
fn busy(loads: &[Load]) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut last = Load::default();
    for load in loads {
        if load.secs - last.secs >= RATE_EVERY_SECS {
            let share = (load.busy_secs - last.busy_secs) / (load.secs - last.secs);
            points.push((load.secs, share.min(1.0) * 100.0));
            last = *load;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_a_share_of_the_second() {
        let at = |secs, busy_secs| Load { secs, busy_secs, ..Load::default() };
        assert_eq!(busy(&[at(0.0, 0.0), at(1.0, 0.5), at(2.0, 2.0)]), [(1.0, 50.0), (2.0, 100.0)]);
    }
}
