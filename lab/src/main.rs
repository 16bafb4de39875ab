//! `weir-lab`: runs the `weir` binary among real programs and measures.
//!
//! It builds network namespaces, starts clients that nobody here wrote, and
//! writes a table, JSON and figures. It depends on no product crate: what it
//! knows of the gateway, an operator knows. Stories need root, no address outside
//! their own namespaces, and leave nothing behind.

mod blockio;
mod capture;
mod cgroup;
mod clients;
mod clock;
mod emulator;
mod flows;
mod gateway;
mod http;
mod janitor;
mod link;
mod loopdev;
mod meter;
mod netns;
mod present;
mod process;
mod record;
mod requests;
mod seed;
mod story;
mod supervisor;
mod topology;
mod torrent;
mod trace;
mod tracker;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::present::{Options, conditions, report, tell, verdict};
use crate::story::Story;

/// Proof and demonstration of Weir among real programs.
#[derive(Debug, Parser)]
#[command(name = "weir-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the stories.
    List,
    /// Runs one story; status 1 when a check fails, 77 without root.
    Run {
        /// Its name, as `list` shows it.
        story: String,
        /// Writes the record here.
        #[arg(long)]
        json: Option<PathBuf>,
        #[command(flatten)]
        options: Options,
    },
    /// Runs every story and writes one HTML page.
    Report {
        #[command(flatten)]
        options: Options,
    },
    /// Makes synthetic traces and measures any trace; needs no root.
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Records request streams of the real clients into a directory.
    #[command(hide = true)]
    RecordRequests {
        /// Where the streams go.
        dir: PathBuf,
        #[command(flatten)]
        options: Options,
    },
    /// Runs a link emulator between two namespaces.
    #[command(hide = true)]
    Emulate(emulator::drive::EmulateArgs),
}

fn main() -> ExitCode {
    match dispatch(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir-lab: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List => list().map(|()| ExitCode::SUCCESS),
        Command::Emulate(args) => emulator::drive::run(args).map(|()| ExitCode::SUCCESS),
        Command::Run { story, json, options } => {
            let Some(story) = Story::named(story) else {
                eprintln!("weir-lab: error: no story {story:?}");
                eprintln!("weir-lab: hint: weir-lab list");
                return Ok(ExitCode::from(EXIT_USAGE));
            };
            let Some(work) = supervisor::work_dir() else { return supervisor::supervise() };
            let (record, _) = tell(story, options, &work)?;
            if let Some(path) = json {
                record.write_json(path)?;
            }
            Ok(verdict(&[&record]))
        }
        Command::RecordRequests { dir, options } => {
            let Some(work) = supervisor::work_dir() else { return supervisor::supervise() };
            supervisor::begin_inner()?;
            story::record_requests(&conditions(options, &work)?, dir)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Trace(command) => trace::run(command),
        Command::Report { options } => {
            let Some(work) = supervisor::work_dir() else { return supervisor::supervise() };
            report(options, &work)
        }
    }
}

fn list() -> Result<()> {
    let mut out = io::stdout().lock();
    for story in Story::ALL {
        writeln!(out, "{:20} {}", story.name, story.about)?;
    }
    Ok(())
}

const EXIT_USAGE: u8 = 64;
