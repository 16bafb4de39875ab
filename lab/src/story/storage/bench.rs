//! The device, a run on it, and what was measured.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{LAYOUTS, Layout, Mode, OURS, Plan, RATE_EVERY_SECS};
use crate::blockio::{BlockTrace, Load, LoadMeter, Requests};
use crate::cgroup::MemoryGroup;
use crate::clock;
use crate::loopdev::{self, LoopDevice};
use crate::netns::{self, Namespace};
use crate::process::Program;

/// One run of one layout.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) layout: Layout,
    pub(super) mode: Mode,
    pub(super) round: usize,
    /// What the replay program says.
    pub(super) result: Value,
    /// Where block events may be read.
    pub(super) requests: Option<Requests>,
    pub(super) loads: Vec<Load>,
    /// Second, and MB/s asked for and answered.
    pub(super) rates: Vec<(f64, f64)>,
    pub(super) peak_memory_bytes: u64,
}

impl Run {
    pub(super) fn number(&self, name: &str) -> f64 {
        self.result[name].as_f64().unwrap_or(f64::NAN)
    }

    pub(super) fn secs(&self) -> f64 {
        self.number("secs")
    }

    /// Requests of the device: events, else the device's counters.
    fn io_count(&self) -> f64 {
        let counted = self.loads.last().map_or(f64::NAN, |load| load.requests as f64);
        self.requests.as_ref().map_or(counted, |requests| requests.count() as f64)
    }

    pub(super) fn mean_kib(&self) -> f64 {
        let last = self.loads.last().copied().unwrap_or_default();
        let counted = (last.read_bytes + last.written_bytes) as f64 / last.requests as f64;
        self.requests.as_ref().map_or(counted, Requests::mean_bytes) / 1024.0
    }

    /// Thousands of sectors between requests: events, else what the replay program
    /// counted itself, which it can in one file or device only.
    pub(super) fn seek_ksectors(&self) -> f64 {
        let calls = &self.result["calls"];
        let counted = |name: &str| calls[name].as_f64().unwrap_or(f64::NAN);
        let calls = calls["reads"]["count"].as_f64().unwrap_or(f64::NAN)
            + calls["writes"]["count"].as_f64().unwrap_or(f64::NAN);
        let own = counted("seek_bytes") / 512.0 / calls;
        self.requests.as_ref().map_or(own, Requests::mean_seek_sectors) / 1e3
    }

    pub(super) fn modelled_hours(&self, divisor: u32) -> f64 {
        let secs = self.requests.as_ref().map_or(f64::NAN, |requests| requests.modelled_secs);
        secs * f64::from(divisor * self.mode.smaller()) / 3600.0
    }

    fn utilisation(&self) -> f64 {
        self.loads.last().map_or(f64::NAN, |load| load.busy_secs / load.secs * 100.0)
    }

    pub(super) fn row(&self, plan: &Plan) -> Value {
        let operations = self.number("requests") + self.number("forgotten");
        json!({
            "layout": self.layout.name,
            "mode": self.mode.name(),
            "round": self.round,
            "secs": self.secs(),
            "operations": operations,
            "operations_per_s": operations / self.secs(),
            "io_count": self.io_count(),
            "io_mean_kib": self.mean_kib(),
            "seek_mean_ksectors": self.seek_ksectors(),
            "disk_busy_percent": self.utilisation(),
            "modelled_paper_hours": self.modelled_hours(plan.divisor),
            "byte_hit_ratio": self.number("hit_bytes") / self.number("requested_bytes"),
            "block": self.requests.as_ref().map(Requests::told),
            "group_peak_bytes": self.peak_memory_bytes,
            "replay": self.result,
        })
    }
}

/// All that was measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) runs: Vec<Run>,
    /// Plain direct reads of a segment's length, one at a time.
    pub(super) read_mb_per_s: f64,
    /// Plain direct writes, likewise.
    pub(super) write_mb_per_s: f64,
    /// How memory was limited, or why it was not.
    pub(super) limited: Result<&'static str, String>,
    /// Why block events could not be read.
    pub(super) untraced: Option<String>,
    /// Why dirty bytes could not be bounded.
    pub(super) unbounded: Option<String>,
}

impl Measured {
    /// The runs of a layout with the same decisions, fastest first.
    pub(super) fn of(&self, name: &str) -> Vec<&Run> {
        let is = |run: &&Run| run.layout.name == name && run.mode == Mode::Same;
        let mut runs: Vec<&Run> = self.runs.iter().filter(is).collect();
        runs.sort_by(|one, other| one.secs().total_cmp(&other.secs()));
        runs
    }

    /// Seconds of plain direct I/O for the bytes that a run got and put.
    pub(super) fn floor_secs(&self, run: &Run) -> f64 {
        run.number("hit_bytes") / 1e6 / self.read_mb_per_s
            + run.number("put_bytes") / 1e6 / self.write_mb_per_s
    }

    /// The run whose completion time is the median.
    pub(super) fn middle(&self, name: &str) -> Option<&Run> {
        let runs = self.of(name);
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    pub(super) fn median(&self, name: &str, of: impl Fn(&Run) -> f64) -> f64 {
        let mut values: Vec<f64> = self.of(name).into_iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }
}

/// The device and what runs on it.
pub(super) struct Bench<'a> {
    plan: &'a Plan,
    replay: &'a Path,
    space: &'a Namespace,
    device: LoopDevice,
    measured: Measured,
}

impl<'a> Bench<'a> {
    pub(super) fn start(plan: &'a Plan, replay: &'a Path, space: &'a Namespace) -> Result<Self> {
        let mut device = LoopDevice::create(&plan.work.join("disk.img"), plan.device_bytes())?;
        let bounded = device.bound_dirty(plan.page_cache_bytes / 4);
        let (read_mb_per_s, write_mb_per_s) = plain_rates(&device, plan)?;
        let measured = Measured {
            runs: Vec::new(),
            read_mb_per_s,
            write_mb_per_s,
            limited: Err("no run yet".to_owned()),
            untraced: None,
            unbounded: bounded.err().map(|error| format!("{error:#}")),
        };
        Ok(Self { plan, replay, space, device, measured })
    }

    pub(super) fn measure(mut self) -> Result<Measured> {
        for round in 0..self.plan.rounds {
            // Every round begins with another one, so that a drift hits all.
            for turn in 0..LAYOUTS.len() {
                let layout = LAYOUTS[(turn + round * 2) % LAYOUTS.len()];
                self.run(layout, Mode::Same, round)?;
            }
        }
        let own = LAYOUTS.iter().filter(|layout| ["coss", "weir-file"].contains(&layout.name));
        for layout in own {
            self.run(*layout, Mode::Own, 0)?;
        }
        // The store is so by its own habit.
        for layout in &LAYOUTS[..2] {
            self.run(*layout, Mode::Durable, 0)?;
        }
        let blocks = ["squid", "directories", "coss", OURS];
        for layout in LAYOUTS.iter().filter(|layout| blocks.contains(&layout.name)) {
            self.run(*layout, Mode::Blocks, 0)?;
        }
        Ok(self.measured)
    }

    fn run(&mut self, layout: Layout, mode: Mode, round: usize) -> Result<()> {
        let name = format!("{}-{mode:?}-{round}", layout.name);
        let smaller = u64::from(mode.smaller());
        let files = self.plan.work.join(&name);
        fs::create_dir_all(&files)?;
        let dir = if layout.is_raw {
            self.device.wipe()?;
            files.clone()
        } else {
            let mount = self.plan.work.join("mnt");
            self.device.mount_fresh(&mount)?;
            mount.join("cache")
        };
        let [json, progress] = ["result.json", "progress.json"].map(|name| files.join(name));
        let number = |bytes: u64| bytes.to_string();
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut command = vec![path(self.replay), "--layout".into(), layout.name.into()];
        let capacity = number(self.plan.capacity_bytes / smaller);
        let memory = number(self.plan.memory_bytes(layout, mode));
        let device = path(self.device.path());
        for (flag, value) in [
            ("--dir", path(&dir)),
            ("--device", device),
            ("--trace", path(&self.plan.trace(mode))),
            ("--capacity", capacity),
            ("--memory", memory),
            ("--json", path(&json)),
            ("--progress-json", path(&progress)),
        ] {
            command.extend([flag.to_owned(), value]);
        }
        command.extend(mode.flags().iter().map(|&flag| flag.to_owned()));

        loopdev::drop_caches()?;
        let group = MemoryGroup::create("storage", self.plan.limit_bytes(mode));
        let line = group.as_ref().map_or_else(|_| command.clone(), |group| group.command(&command));
        let trace = BlockTrace::start(&self.device);
        let meter = LoadMeter::start(&self.device)?;
        let mut program = Program::start(self.space, &name, &files, &line)?;
        let status = program.wait(RUN_LIMIT);
        let loads = meter.finish()?;
        let requests = match trace.and_then(BlockTrace::finish) {
            Ok(requests) => Some(requests),
            Err(error) => {
                self.measured.untraced = Some(format!("{error:#}"));
                None
            }
        };
        let status = status?;
        ensure!(status.success(), "replay of {name}: {status}\n{}", program.log_tail());
        let peak_memory_bytes = group.as_ref().map_or(0, MemoryGroup::peak_bytes);
        self.measured.limited =
            group.as_ref().map(MemoryGroup::hierarchy).map_err(|error| format!("{error:#}"));
        let result = serde_json::from_str(&fs::read_to_string(&json)?)?;
        let rates = rates(&fs::read_to_string(&progress)?);
        let run = Run { layout, mode, round, result, requests, loads, rates, peak_memory_bytes };
        eprintln!(
            "  {} ({}), round {}: {:.1} s, {:.0} requests of {:.0} KiB, disk busy {:.0} %",
            layout.name,
            mode.name(),
            round + 1,
            run.secs(),
            run.io_count(),
            run.mean_kib(),
            run.utilisation()
        );
        self.measured.runs.push(run);
        Ok(())
    }
}

/// MB/s of direct sequential reads and writes of a segment's length on the device,
/// one at a time.
fn plain_rates(device: &LoopDevice, plan: &Plan) -> Result<(f64, f64)> {
    let count = if plan.quick { 400 } else { 4000 };
    let path = device.path().to_string_lossy();
    let rate = |from: &str, to: &str, flag: &str| -> Result<f64> {
        let start = clock::now();
        let (from, to) = (format!("if={from}"), format!("of={to}"));
        netns::run("dd", &[&from, &to, "bs=512K", &format!("count={count}"), flag])?;
        Ok(f64::from(count) * 0.524_288 / start.elapsed().as_secs_f64())
    };
    let write = rate("/dev/zero", &path, "oflag=direct")?;
    let read = rate(&path, "/dev/null", "iflag=direct")?;
    Ok((read, write))
}

/// MB/s of hits and puts between the lines of a progress file.
fn rates(text: &str) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = text
        .lines()
        .filter_map(|line| {
            let value: Value = serde_json::from_str(line).ok()?;
            let bytes = value["hit_bytes"].as_f64()? + value["put_bytes"].as_f64()?;
            Some((value["secs"].as_f64()?, bytes))
        })
        .collect();
    let mut rates = Vec::new();
    let mut last = (0.0, 0.0);
    for point in points {
        if point.0 - last.0 >= RATE_EVERY_SECS {
            rates.push((point.0, (point.1 - last.1) / 1e6 / (point.0 - last.0)));
            last = point;
        }
    }
    rates
}

const RUN_LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_was_got_and_put_between_two_lines() {
        let text = "{\"secs\":0.5,\"hit_bytes\":1,\"put_bytes\":1}\n\
                    {\"secs\":1.0,\"hit_bytes\":3e6,\"put_bytes\":1e6}\nhalf a li";
        assert_eq!(rates(text), [(1.0, 4.0)]);
    }
}
