//! Replays a trace of segment requests against one layout on disk, as fast as it
//! can, and tells how long that took and which I/O it made.
//!
//! `cargo run --release -p weir-store --example replay -- --layout LAYOUT --dir DIR
//! --trace CSV --capacity BYTES [--device DEV] [--memory BYTES] [--same-decisions]`
//!
//! The layouts are baselines and ours, behind one trait ([`layout::Layout`]):
//!
//! | `--layout` | what it is | replacement |
//! |---|---|---|
//! | `squid` | Squid's ufs, re-implemented: 16 x 256 directories, a file a segment, swap.state | front |
//! | `directories` | a directory an object, a file a segment | front |
//! | `coss` | Squid 2.7's COSS, re-implemented: a cyclic log of 1 MiB stripes | its own |
//! | `pcache-file`, `pcache-raw` | pCache as printed, re-implemented: a balanced tree an object, blocks of 0.5 MiB in one file or on a device | front |
//! | `weir-file`, `weir-raw` | the store of this crate, in a directory or on a device | its own |
//!
//! The front is pCache's replacement: segment LRU that, above 90 % of the capacity,
//! drops down to 80 %. With `--same-decisions` it decides for every layout, so that
//! all of them are asked for the same segments and given the same ones: what is
//! compared is the layout, and a better policy is not credited to it. COSS and the
//! store still replace on their own underneath, because neither has a verb for "drop
//! this segment" that frees its space; what they no longer have when the front says
//! that they should is counted as `lost` and given to them again.
//!
//! A trace has lines `time_s,object,offset,length,download`; times are not waited
//! for. Every byte put is decided by its object and offset, every segment got is
//! checked, and a wrong one ends the run with status 1.

mod aligned;
mod content;
mod coss;
mod counted;
mod directories;
mod front;
mod layout;
mod pcache;
mod run;
mod squid;
mod trace;
mod weir;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::layout::Kind;

/// Replays a trace against one layout.
#[derive(Debug, Parser)]
#[command(name = "replay")]
struct Cli {
    /// What is measured.
    #[arg(long)]
    layout: Kind,
    /// Where its files go; made when it is not there.
    #[arg(long)]
    dir: PathBuf,
    /// The block device of the raw layouts. Its content is lost.
    #[arg(long)]
    device: Option<PathBuf>,
    /// The requests: `time_s,object,offset,length,download`.
    #[arg(long)]
    trace: PathBuf,
    /// Asks for parts of so many bytes instead of whole segments, as BitTorrent does
    /// for 16 KiB.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    split: Option<u32>,
    /// Bytes of content that may be held.
    #[arg(long)]
    capacity: u64,
    /// Bytes of buffers of its own, where a layout has any (pCache, the store).
    #[arg(long, default_value_t = 32 << 20)]
    memory: u64,
    /// One front decides for every layout what is held.
    #[arg(long)]
    same_decisions: bool,
    /// Makes everything durable so often, in milliseconds; 0 keeps the layout's own
    /// habit (Squid, COSS and directories: never; the store: every second).
    #[arg(long, default_value_t = 0)]
    sync_every_ms: u64,
    /// Appends a JSON object about every 200 ms here.
    #[arg(long)]
    progress_json: Option<PathBuf>,
    /// Writes the result here instead of to standard output.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match replay(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "replay: error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn replay(cli: &Cli) -> io::Result<()> {
    let mut requests = trace::read(&cli.trace)?;
    if let Some(bytes) = cli.split {
        requests = trace::split(&requests, bytes);
    }
    fs::create_dir_all(&cli.dir)?;
    let space = layout::Space {
        dir: cli.dir.clone(),
        device: cli.device.clone(),
        capacity_bytes: cli.capacity,
        memory_bytes: cli.memory,
        is_decided: cli.same_decisions,
    };
    let layout = cli.layout.open(&space)?;
    let plan = run::Plan {
        capacity_bytes: cli.capacity,
        same_decisions: cli.same_decisions,
        sync_every: Duration::from_millis(cli.sync_every_ms),
        progress: cli.progress_json.clone(),
    };
    let mut result = run::run(layout, &requests, &plan)?;
    result["layout"] = cli.layout.name().into();
    let text = format!("{result:#}\n");
    match &cli.json {
        Some(path) => fs::write(path, text),
        None => io::stdout().lock().write_all(text.as_bytes()),
    }
}
