//! Reads from disk, beside fio on the same file at the same size and depth.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use weir_ranges::{ByteRange, ObjectId};
use weir_store::{Options, Policy, Store};

use crate::{MIB, OBJECT_GROUPS, block, median, object, timed};

/// Callers that read at once.
const CALLERS: usize = 4;
/// Rounds of each, in turns.
const ROUNDS: usize = 3;
const SECONDS: u64 = 2;

pub(crate) fn run(out: &mut impl io::Write, dir: &Path, gib: u64) -> io::Result<()> {
    let cache = dir.join("bench.rates");
    let groups = gib.max(1) * 1024;
    let options = Options {
        // Less than a hundredth of the data: next to nothing is in memory.
        memory_bytes: 40 << 20,
        policy: Policy::Lru,
        ..Options::new(&cache, (groups + 320) * MIB)
    };
    let (store, _) = Store::open(&options).map_err(io::Error::other)?;
    writeln!(out, "engine: {}", store.engine())?;
    let block = block();
    let wrote = timed(|| {
        for group in 0..groups {
            let parts: Vec<Bytes> = (0..64).map(|s| block.slice(s << 14..(s + 1) << 14)).collect();
            let at = group % OBJECT_GROUPS * MIB;
            store.write(object(group), at, &parts).expect("a write");
        }
        store.sync().expect("a sync");
    });
    writeln!(
        out,
        "write in 16 KiB parts, synced: {:.0} MiB/s",
        groups as f64 / wrote.as_secs_f64()
    )?;
    let data = cache.join("data");
    let has_fio = Command::new("fio").arg("--version").output().is_ok();
    if !has_fio {
        writeln!(out, "fio is not installed: nothing to compare with")?;
    }
    for (size, depth) in [(16 << 10, 1), (16 << 10, 32), (512 << 10, 1), (512 << 10, 32)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            if has_fio {
                theirs.push(fio(&data, size, depth)?);
            }
            ours.push(read(&store, groups, size, depth, round as u64));
        }
        let ours = median(ours);
        write!(out, "read {} KiB at depth {depth}: store {ours:.0} MiB/s", size >> 10)?;
        if has_fio {
            let theirs = median(theirs);
            write!(out, ", fio {theirs:.0} MiB/s, ratio {:.2}", ours / theirs)?;
        }
        writeln!(out)?;
    }
    drop(store);
    fs::remove_dir_all(cache)
}

/// MiB/s of random reads, `depth` at a time: by several callers where there is more
/// than one, as in a gateway, for a batch waits for its last read.
fn read(store: &Store, groups: u64, size: u64, depth: usize, seed: u64) -> f64 {
    let callers = if depth >= CALLERS { CALLERS } else { 1 };
    let one = |caller: usize| {
        let seed = seed * 64 + caller as u64;
        move || read_alone(store, groups, size, depth / callers, seed)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..callers).map(|caller| scope.spawn(one(caller))).collect();
        running.into_iter().map(|caller| caller.join().expect("a caller's reads")).sum()
    })
}

/// MiB/s of one caller.
fn read_alone(store: &Store, groups: u64, size: u64, depth: usize, seed: u64) -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ size ^ depth as u64;
    let mut place = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) % (groups * MIB / size) * size;
        let range = ByteRange::at(at % (OBJECT_GROUPS * MIB), size).expect("small numbers");
        (object(at / MIB), range)
    };
    let (mut bytes, mut took) = (0, 0.0);
    while took < SECONDS as f64 {
        let wants: Vec<(ObjectId, ByteRange)> = (0..depth).map(|_| place()).collect();
        took += timed(|| {
            for read in store.read_many(&wants).expect("a read") {
                bytes += read.whole().map_or(0, |bytes| bytes.len() as u64);
            }
        })
        .as_secs_f64();
    }
    bytes as f64 / MIB as f64 / took
}

/// MiB/s that fio reaches on `file`.
fn fio(file: &Path, size: u64, depth: usize) -> io::Result<f64> {
    let mut command = Command::new("fio");
    command
        .args(["--name=peer", "--rw=randread", "--direct=1", "--readonly", "--norandommap"])
        .args(["--ioengine=io_uring", "--time_based", "--output-format=json"])
        .arg(format!("--runtime={SECONDS}"))
        .arg(format!("--bs={size}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--filename={}", file.display()));
    let output = command.output()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let rate = said["jobs"][0]["read"]["bw_bytes"].as_f64();
    rate.map(|rate| rate / MIB as f64).ok_or_else(|| io::Error::other("fio said nothing"))
}
