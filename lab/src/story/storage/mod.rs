//! `pcache/storage`: layouts on disk under one trace, the paper's Figures 6, 7 and 8.
//!
//! A P2P trace scaled down is replayed as fast as it goes against Squid's layout, a
//! directory per object, COSS, pCache as printed and the store, one after another
//! and in several rounds, each on a fresh file system of a loop device (or on the
//! device itself) and with a page cache limited to a few percent of the data. One
//! replacement decides for all, so that the layout alone is compared. Refuted when
//! the store does not finish ten times as fast as Squid's layout and three times as
//! fast as a directory per object, or when any layout gives a wrong byte.

mod bench;
mod figures;

use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use self::bench::{Bench, Measured, Run};
use super::Conditions;
use crate::loopdev;
use crate::netns::{self, Namespace};
use crate::record::data::Record;

/// Runs the story.
///
/// # Errors
/// When there is no replay program, no loop device, or a run fails.
pub(super) fn run(at: &Conditions, record: &mut Record) -> Result<()> {
    let replay = at.weir.with_file_name("examples").join("replay");
    ensure!(
        replay.exists(),
        "no {} (cargo build --release -p weir-store --example replay)",
        replay.display()
    );
    let plan = Plan::of(at);
    let trace = plan.write_trace(Mode::Same, at.seed)?;
    plan.write_trace(Mode::Blocks, at.seed)?;
    let space = Namespace::create("store")?;
    // Mounts of their own, and a loop device that ends with them, for a thread and
    // what it starts; other stories keep the mounts they have.
    let measured = thread::scope(|scope| {
        let work = scope.spawn(|| -> Result<Measured> {
            loopdev::own_mounts()?;
            Bench::start(&plan, &replay, &space)?.measure()
        });
        work.join().map_err(|_| anyhow!("the measurement panicked"))?
    })?;
    state_conditions(record, &plan, &trace, &measured);
    judge(record, &plan, &measured);
    figures::draw(record, &measured);
    Ok(())
}

/// A layout as the replay program calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    name: &'static str,
    /// On the device, without a file system.
    is_raw: bool,
}

/// What the paper's figures compare, ours last.
const LAYOUTS: [Layout; 7] = [
    Layout { name: "squid", is_raw: false },
    Layout { name: "directories", is_raw: false },
    Layout { name: "coss", is_raw: false },
    Layout { name: "pcache-file", is_raw: false },
    Layout { name: "pcache-raw", is_raw: true },
    Layout { name: "weir-file", is_raw: false },
    Layout { name: "weir-raw", is_raw: true },
];

/// How the decisions are made and when bytes are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// One front decides for all; each layout has its own habit of durability.
    Same,
    /// Each layout's own replacement.
    Own,
    /// One front decides, and everything is made durable every second.
    Durable,
    /// One front decides, and every segment is asked for in blocks of 16 KiB, as
    /// BitTorrent does: a shorter trace and a smaller cache.
    Blocks,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Same => "same decisions",
            Self::Own => "own replacement",
            Self::Durable => "same decisions, durable every second",
            Self::Blocks => "same decisions, blocks of 16 KiB",
        }
    }

    /// By what the plan's sizes are divided again.
    const fn smaller(self) -> u32 {
        if matches!(self, Self::Blocks) { BLOCKS_DIVISOR } else { 1 }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Same => &["--same-decisions"],
            Self::Own => &[],
            Self::Durable => &["--same-decisions", "--sync-every-ms", "1000"],
            Self::Blocks => &["--same-decisions", "--split", "16384"],
        }
    }
}

/// The paper's experiment, scaled down.
#[derive(Clone, Debug)]
struct Plan {
    divisor: u32,
    rounds: usize,
    quick: bool,
    capacity_bytes: u64,
    buffer_bytes: u64,
    page_cache_bytes: u64,
    work: PathBuf,
}

impl Plan {
    fn of(at: &Conditions) -> Self {
        let (divisor, rounds, page_cache_bytes) =
            if at.quick { (400, 1, 128 << 20) } else { (23, 3, 256 << 20) };
        Self {
            divisor,
            rounds,
            quick: at.quick,
            capacity_bytes: PAPER_DISK_BYTES / u64::from(divisor),
            buffer_bytes: PAPER_BUFFER_BYTES / u64::from(divisor),
            page_cache_bytes,
            work: at.work.clone(),
        }
    }

    /// The content, the file system's own tables and journal, and some room.
    const fn device_bytes(&self) -> u64 {
        (self.capacity_bytes + self.capacity_bytes / 16 + (768 << 20)).next_multiple_of(1 << 20)
    }

    /// What a replay may use in all, page cache included.
    fn limit_bytes(&self, mode: Mode) -> u64 {
        (self.page_cache_bytes / u64::from(mode.smaller())).max(LIMIT_BYTES_MIN)
    }

    /// Buffers of a layout's own: the store takes half of what it may use, for it
    /// passes by the page cache; pCache has what the paper says.
    fn memory_bytes(&self, layout: Layout, mode: Mode) -> u64 {
        if layout.name.starts_with("weir") {
            self.limit_bytes(mode) / 2
        } else {
            self.buffer_bytes / u64::from(mode.smaller())
        }
    }

    fn trace(&self, mode: Mode) -> PathBuf {
        self.work.join(format!("trace-{}.csv", mode.smaller()))
    }

    /// Writes the trace; answers what `weir-lab trace info` says of it.
    fn write_trace(&self, mode: Mode, seed: u64) -> Result<Value> {
        let lab = std::env::current_exe()?.to_string_lossy().into_owned();
        let trace = self.trace(mode).to_string_lossy().into_owned();
        let (scale, seed) = ((self.divisor * mode.smaller()).to_string(), seed.to_string());
        let gen_p2p = ["trace", "gen", "p2p", "--scale", &scale, "--seed", &seed, "--out", &trace];
        netns::run(&lab, &gen_p2p)?;
        let told = netns::run(&lab, &["trace", "info", "--json", &trace])?;
        serde_json::from_str(&told).context("what is told of the trace")
    }
}

fn state_conditions(record: &mut Record, plan: &Plan, trace: &Value, measured: &Measured) {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let told = |name: &str| trace[name].as_f64().unwrap_or(f64::NAN);
    record.condition(format!(
        "The paper's trace and disk divided by {} (docs/formats/trace.md): {} requests of segments \
         of 0.5 MiB for {:.1} GB, {:.1} GB of them unique; {:.1} GB of capacity, {:.0} MB of \
         pCache's buffers; segments are not scaled.",
        plan.divisor,
        told("requests"),
        told("bytes") / 1e9,
        told("unique_bytes") / 1e9,
        gb(plan.capacity_bytes),
        plan.buffer_bytes as f64 / 1e6
    ));
    record.condition(
        "Squid's layout (ufs), COSS (Squid 2.7) and pCache are re-implemented from their \
         documentation, sources and second-hand descriptions; crates/store/examples/replay says \
         what each does and leaves out. No Squid ran.",
    );
    record.condition(
        "Same decisions: segment LRU from 90 % down to 80 % (the paper's) decides for every layout \
         what is looked for, put and dropped. COSS and the store have no verb that drops one \
         segment: they replace on their own underneath, and what they no longer had when it was \
         due (row field `lost`) was put again.",
    );
    record.condition(format!(
        "Beside the rounds, one run each, not checked (row field `mode`): COSS and the store with \
         their own replacement; Squid's layout and the directories made durable every second; and \
         a trace and a cache divided by {} once more, asked for in blocks of 16 KiB.",
        BLOCKS_DIVISOR
    ));
    record.condition(
        "Habits are the layouts' own: the store makes everything durable every second, the others \
         never; at the end all of them do, and that is part of the time. One request at a time. \
         Every segment got is checked, a word in every 4 KiB.",
    );
    record.condition(match &measured.limited {
        Ok(how) => format!(
            "Each replay runs in a control group of its own with {} MiB for its memory and its \
             page cache ({how}); the store, which passes by the page cache, takes {} MiB of it for \
             its buffers.",
            plan.page_cache_bytes >> 20,
            plan.page_cache_bytes >> 21
        ),
        Err(why) => format!("Page cache not limited, control groups cannot be had here: {why}."),
    });
    record.condition(match &measured.unbounded {
        None => format!(
            "At most {} MiB may wait to be written to the device (bdi strict_limit): cgroup v2 \
             does that by itself, v1 would stall buffered writers instead.",
            plan.page_cache_bytes >> 22
        ),
        Some(why) => format!("Dirty bytes are bounded by the machine's own limits only: {why}."),
    });
    let floor = measured.median(OURS, |run| measured.floor_secs(run));
    let most = |name: &str| measured.median(name, Run::secs) / floor;
    record.condition(format!(
        "What limits: {floor:.1} s of plain direct I/O for the bytes that {OURS} moved, one request \
         at a time, so that nothing on this device is more than {:.1} times as fast as Squid's \
         layout or {:.1} times as fast as the directories, however its bytes are laid out.",
        most("squid"),
        most("directories")
    ));
    record.condition(match &measured.untraced {
        None => "Requests are the kernel's block_rq_issue events of the loop device.".to_owned(),
        Some(why) => format!(
            "Requests are the device's own counters and distances those between the layouts' \
             calls, for block events cannot be read here: {why}."
        ),
    });
    record.condition(format!(
        "A loop device of {:.1} GB with direct I/O over a file that was written once; a fresh ext4 \
         (noatime) before each run, or the device itself; the page cache dropped before each. \
         Plain direct I/O on it, 512 KiB one at a time: {:.0} MB/s read, {:.0} MB/s written. A seek \
         costs nothing here; what the same requests would cost on a disk of 2008 is modelled (row \
         field `modelled_paper_hours`, the whole trace), not measured. Of weir-raw only the data is \
         on the device, its journal is in a directory of the machine's own disk.",
        gb(plan.device_bytes()),
        measured.read_mb_per_s,
        measured.write_mb_per_s
    ));
}

fn judge(record: &mut Record, plan: &Plan, measured: &Measured) {
    for run in &measured.runs {
        record.rows.push(run.row(plan));
    }
    record.holds("every segment got was right, in every run", true, "");
    let ours = measured.median(OURS, Run::secs);
    // A short run is mostly start and end.
    let [squid, directories, share, size] =
        if plan.quick { [0.1, 0.1, 1.0, 0.3] } else { [10.0, 3.0, 70.0, 1.0] };
    for (name, bound) in [("squid", squid), ("directories", directories)] {
        let ratio = measured.median(name, Run::secs) / ours;
        record.at_least(format!("completion time, {name} to {OURS}"), ratio, bound, "x");
    }
    let floor = |run: &Run| measured.floor_secs(run);
    let limit = measured.median(OURS, floor) / ours * 100.0;
    let name = "share of plain direct I/O of the same bytes, one at a time";
    record.at_least(format!("{name}, {OURS}"), limit, share, "%");
    let asked = |run: &Run| run.number("hits") + run.number("lost");
    let (first, last) = (measured.median("squid", asked), measured.median(OURS, asked));
    record.holds(
        "the same decisions for every layout",
        LAYOUTS.iter().all(|layout| {
            measured.of(layout.name).iter().all(|run| (asked(run) - first).abs() < 0.5)
        }),
        format!("{first} looked for in squid, {last} in {OURS}"),
    );
    let lost = |run: &Run| run.number("lost") / run.number("requests") * 100.0;
    for name in [OURS, "weir-raw"] {
        let share = measured.median(name, lost);
        let what = format!("requests whose segment {name} no longer had");
        record.at_most(what, share, 5.0, "%");
    }
    let mean = |name: &str| measured.median(name, Run::mean_kib);
    let name = format!("mean size of a request to the device, {OURS} to squid");
    record.at_least(name, mean(OURS) / mean("squid"), size, "x");
}

/// Whose promises are checked.
const OURS: &str = "weir-file";
/// Section 7.3 of the paper, second-hand.
const PAPER_DISK_BYTES: u64 = 230_000_000_000;
const PAPER_BUFFER_BYTES: u64 = 512 << 20;
/// Blocks of 16 KiB are 32 times as many requests.
const BLOCKS_DIVISOR: u32 = 4;
/// The replay itself, the trace and the front take up to 50 MiB of it.
const LIMIT_BYTES_MIN: u64 = 128 << 20;
/// The step of lines over time.
const RATE_EVERY_SECS: f64 = 1.0;
