//! How long a store takes to open after a crash, and after an orderly stop.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use weir_store::{Options, Store, Tuning};

use crate::MIB;
use crate::disks::InDir;
use crate::index::filled;

pub(crate) fn run(out: &mut impl io::Write, dir: &Path, segments: u64) -> io::Result<()> {
    let cache = dir.join("bench.open");
    let child = Command::new(std::env::current_exe()?)
        .args(["fill".as_ref(), cache.as_os_str(), segments.to_string().as_ref()])
        .status()?;
    writeln!(out, "child ended with {child} (it aborts without closing its store)")?;
    for what in ["journal", "checkpoint"] {
        let disk = Arc::new(InDir::open(&cache)?);
        let options = Options {
            memory_bytes: 1 << 20,
            sync_interval: Duration::ZERO,
            ..Options::new(&cache, segments.div_ceil(64) * MIB + 512 * MIB)
        };
        let (store, found) =
            Store::open_on(disk, &options, Tuning::default()).map_err(io::Error::other)?;
        let took = found.took.as_secs_f64();
        writeln!(
            out,
            "open from {what}: {took:.3} s for {} segments in {} objects, {:.2} s for 10^7",
            found.segments,
            found.objects,
            took / found.segments as f64 * 1e7
        )?;
        drop(store);
    }
    fs::remove_dir_all(cache)
}

/// In a child: a store of `segments` segments whose owner dies after a sync.
pub(crate) fn fill_and_crash(dir: &Path, segments: u64) -> io::Result<()> {
    let store = filled(Arc::new(InDir::open(dir)?), true, segments, 4 << 20)?;
    store.sync().map_err(io::Error::other)?;
    std::process::abort();
}
