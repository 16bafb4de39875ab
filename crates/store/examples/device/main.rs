//! Measures the store's disk beside what `fio` reaches on the same file, and ways to
//! send what is on it.
//!
//! `cargo run --release -p weir-store --example device -- DIR [GIB]`
//!
//! It makes a data file of GIB GiB (default 4, all written), then reads 16 KiB and
//! 512 KiB of it at random, past the page cache, at depth 1 and 32: by our engines
//! and by fio as a child, one after the other, in turns, for some rounds. The table
//! has the medians, and the ratio to fio of each. Every read of ours is checked to be
//! of the place that was asked for. Then it sends blocks over loopback TCP from the
//! page cache, from frames and from the disk (`--no-send` leaves that out).
//!
//! Depth 32 is never more than 32 transfers under way, and for a single caller less
//! than that on average, since a batch comes back when its last transfer is done: so
//! it is given for one caller with batches of 32, for 4 with 8 and for 32 with 1.
//!
//! `--json FILE` writes the same as numbers. Needs fio in the path.

#![allow(clippy::cast_possible_truncation, reason = "a benchmark's numbers are small")]
#![allow(clippy::cast_precision_loss, reason = "three digits are shown")]

mod fio;
mod reads;
mod send;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use weir_store::disk::{DirectChoice, Disk, DiskOptions, EngineChoice, File, Files, Transfer};
use weir_store::frame::FramePool;

/// Measures the store's disk beside fio.
#[derive(Debug, Parser)]
struct Args {
    /// A directory on the disk to be measured; `DIR/data` is made and removed.
    dir: PathBuf,
    /// GiB of the data file.
    #[arg(default_value_t = 4)]
    gib: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How often each is made; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Writes all numbers there.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Leaves out the sending.
    #[arg(long)]
    no_send: bool,
    /// Leaves out the reading.
    #[arg(long)]
    no_read: bool,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let bytes = args.gib.max(1) << 30;
    let pool = FramePool::new(POOL_BYTES);
    let out = &mut io::stdout().lock();
    let disk = open(&args, EngineChoice::Auto, &pool)?;
    let rate = bytes as f64 / fill(&disk, &pool, bytes)?.as_secs_f64();
    let engine = disk.engine();
    writeln!(out, "{} GiB in {}, by {engine}", bytes >> 30, args.dir.display())?;
    writeln!(out, "first written, in batches of 16 MiB, and synced: {:.0} MB/s", rate / 1e6)?;
    drop(disk);
    let mut json = serde_json::json!({
        "engine": engine.to_string(),
        "gib": args.gib,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "written_bytes_per_sec": rate,
    });
    if !args.no_read {
        json["reads"] = reads::measure(out, &args, &pool, bytes)?;
    }
    if !args.no_send {
        json["sends"] = send::measure(out, &args, &pool, bytes)?;
    }
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_vec_pretty(&json)?)?;
    }
    for file in File::ALL {
        fs::remove_file(args.dir.join(file.name()))?;
    }
    Ok(())
}

fn open(args: &Args, engine: EngineChoice, pool: &FramePool) -> io::Result<Files> {
    let direct = DirectChoice::On;
    let options = DiskOptions { engine, direct, ..DiskOptions::new(pool.clone()) };
    Files::open(&args.dir, &options).map_err(io::Error::other)
}

/// Writes all of the data file and says how long the disk took. Each block begins
/// with its own place; the rest is noise.
fn fill(disk: &Files, pool: &FramePool, bytes: u64) -> io::Result<Duration> {
    disk.set_len(File::Data, 0)?;
    disk.allocate(File::Data, bytes)?;
    let mut word = 1_u64;
    let mut noise = vec![0; MIB];
    for bytes in noise.chunks_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.copy_from_slice(&(word ^ (word >> 29)).to_le_bytes());
    }
    let mut took = Duration::ZERO;
    for first in (0..bytes).step_by(16 * MIB) {
        let transfer = |offset: u64| {
            let mut frame = pool.get_or_heap(MIB);
            frame[..MIB].copy_from_slice(&noise);
            for (block, place) in frame.chunks_mut(4096).zip((offset..).step_by(4096)) {
                block[..8].copy_from_slice(&place.to_le_bytes());
            }
            Transfer::new(offset, frame, MIB)
        };
        let last = bytes.min(first + 16 * MIB as u64);
        let batch = (first..last).step_by(MIB).map(transfer).collect();
        let start = now();
        for (_, result) in disk.write_batch(batch) {
            result?;
        }
        took += start.elapsed();
    }
    let start = now();
    disk.sync(File::Data)?;
    Ok(took + start.elapsed())
}

/// What one measurement found.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    bytes_per_sec: f64,
    /// Processor time for each second, of all that took part on our side.
    cpu: f64,
}

/// The middle of `samples` by rate.
fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|a, b| a.bytes_per_sec.total_cmp(&b.bytes_per_sec));
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

fn now() -> Instant {
    #[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    Instant::now()
}

/// Processor time that `who` has used.
fn cpu(who: UsageWho) -> io::Result<Duration> {
    let usage = getrusage(who)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(time.tv_sec().unsigned_abs() * 1_000_000)
            + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

const MIB: usize = 1 << 20;

/// Enough for 32 transfers of any size, and for what is sent from frames.
const POOL_BYTES: usize = 512 << 20;
