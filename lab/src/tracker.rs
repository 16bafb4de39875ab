//! The tracker: opentracker, which Debian builds in whitelist mode.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock;
use crate::process::Program;
use crate::topology::{TRACKER, Topology};

/// The announce address of the lab's tracker.
pub(crate) fn announce() -> String {
    format!("http://{TRACKER}:6969/announce")
}

/// Starts the tracker for one info-hash and waits until it answers.
///
/// # Errors
/// When it does not answer within five seconds.
pub(crate) fn start(net: &Topology, dir: &Path, info_hash: &str) -> Result<Program> {
    let space = &net.host("tr")?.space;
    let dir = dir.join("tracker");
    fs::create_dir_all(&dir).context("make the tracker's directory")?;
    // It gives up its rights and its root, and reads the list afterwards.
    fs::write(dir.join("wl"), format!("{info_hash}\n"))?;
    let home = dir.to_string_lossy().into_owned();
    let line: Vec<String> = [
        "opentracker",
        "-i",
        TRACKER,
        "-p",
        "6969",
        "-P",
        "6969",
        "-d",
        &home,
        "-u",
        "nobody",
        "-w",
        "wl",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut program = Program::start(space, "tracker", &dir, &line)?;
    let address = format!("{TRACKER}:6969").parse()?;
    clock::wait_for(
        "an answer of the tracker",
        Duration::from_secs(5),
        Duration::from_millis(50),
        || {
            program.ensure_running()?;
            Ok(crate::http::get(space, address, "/stats").ok())
        },
    )?;
    Ok(program)
}
