//! Measures a store beside plain `pwrite` and `pread` of a file of the same size, in
//! one run: rates, look-up time, memory per segment, and the time to open after a
//! crash.
//!
//! `cargo run --release -p weir-store --example bench -- DIR [MIB] [SEGMENTS]`
//!
//! Defaults: 1024 MiB of data, 10^6 segments for the opening (sparse in the data
//! file: their bytes are not written). The page cache is not dropped: rates are
//! those of the code over memory, which is what the ratio is about.

#![allow(clippy::cast_possible_truncation, reason = "a benchmark's numbers are small")]

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, exit};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_ranges::{ByteRange, ObjectId, SEGMENT_BYTES};
use weir_store::disk::{Disk, File};
use weir_store::{Options, Store, Tuning};

const MIB: u64 = 1 << 20;
/// Groups of one object: 256 MiB.
const OBJECT_GROUPS: u64 = 256;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| args.get(at).map_or(Ok(default), |a| a.parse::<u64>());
    let Some(dir) = args.first().map(Path::new) else {
        writeln!(io::stderr(), "usage: bench DIR [MIB] [SEGMENTS]")?;
        exit(64);
    };
    let (Ok(mib), Ok(segments)) = (number(1, 1024), number(2, 1_000_000)) else {
        writeln!(io::stderr(), "MIB and SEGMENTS are numbers")?;
        exit(64);
    };
    if args.get(3).is_some_and(|a| a == "fill-and-crash") {
        return fill_and_crash(dir, segments);
    }
    let mut out = io::stdout().lock();
    rates(&mut out, dir, mib.max(16))?;
    look_ups(&mut out, segments)?;
    let status = Command::new(std::env::current_exe()?)
        .arg(dir)
        .args([mib.to_string(), segments.to_string(), "fill-and-crash".into()])
        .status()?;
    writeln!(out, "child ended with {status} (it aborts without closing its store)")?;
    open_after_crash(&mut out, dir, segments)
}

/// Writes and reads `mib` MiB through the store and through plain calls.
fn rates(out: &mut impl io::Write, dir: &Path, mib: u64) -> io::Result<()> {
    let block: Bytes = (0..MIB).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let plain = dir.join("bench.plain");
    fs::create_dir_all(dir)?;
    let file =
        fs::File::options().read(true).write(true).create(true).truncate(true).open(&plain)?;
    nix::fcntl::posix_fallocate(&file, 0, (mib * MIB) as i64)?;
    let cache = dir.join("bench.store");
    let mut options = Options::new(&cache, mib * MIB);
    options.sync_interval = Duration::from_secs(1);
    let (store, _) = Store::open(&options).map_err(io::Error::other)?;

    let rate = |took: Duration| mib as f64 / took.as_secs_f64();
    let raw_write = timed(|| {
        for at in 0..mib {
            file.write_all_at(&block, at * MIB).expect("a plain write");
        }
        file.sync_data().expect("a plain sync");
    });
    let our_write = timed(|| {
        for at in 0..mib {
            let parts: Vec<Bytes> = (0..64).map(|s| block.slice(s << 14..(s + 1) << 14)).collect();
            store.write(object(at), at % OBJECT_GROUPS * MIB, &parts).expect("a write");
        }
        store.sync().expect("a sync");
    });
    writeln!(
        out,
        "write 1 MiB in 16 KiB parts, synced: store {:.0} MiB/s, plain pwrite {:.0} MiB/s, ratio {:.2}",
        rate(our_write),
        rate(raw_write),
        rate(our_write) / rate(raw_write)
    )?;

    let held = store.stats().groups;
    for (what, size) in [("1 MiB", MIB), ("64 KiB", MIB / 16), ("16 KiB", SEGMENT_BYTES)] {
        let count = held * MIB / size;
        // A stride prime to the count visits every place once, far from the last.
        let place = |i: u64| i.wrapping_mul(7919) % count * size;
        let mut buf = vec![0; size as usize];
        let raw = timed(|| {
            for i in 0..count {
                file.read_exact_at(&mut buf, place(i)).expect("a plain read");
            }
        });
        let mut missed = 0;
        let ours = timed(|| {
            for i in 0..count {
                // The newest groups are held; the oldest gave way to the reserve.
                let at = place(i) + (mib - held) * MIB;
                let from = at % (OBJECT_GROUPS * MIB);
                let range = ByteRange::at(from, size).expect("small numbers");
                let read = store.read(object(at / MIB), range).expect("a read");
                missed += u64::from(read.whole().is_none());
            }
        });
        let mib = (count * size / MIB) as f64;
        writeln!(
            out,
            "read {what}, scattered, checked: store {:.0} MiB/s, plain pread {:.0} MiB/s, ratio {:.2}, {missed} missed of {count}",
            mib / ours.as_secs_f64(),
            mib / raw.as_secs_f64(),
            raw.as_secs_f64() / ours.as_secs_f64()
        )?;
    }
    drop(store);
    fs::remove_dir_all(cache)?;
    fs::remove_file(plain)
}

/// Look-up time and memory of an index of `segments` segments.
fn look_ups(out: &mut impl io::Write, segments: u64) -> io::Result<()> {
    let before = resident_bytes()?;
    let store = sparse(Path::new("none"), segments, std::sync::Arc::new(Nowhere))?;
    let after = resident_bytes()?;
    let stats = store.stats();
    let bytes = after.saturating_sub(before) as f64;
    writeln!(
        out,
        "memory: {:.2} bytes a segment, {} segments in {} groups, all dense",
        bytes / stats.segments as f64,
        stats.segments,
        stats.groups
    )?;
    let (count, size) = (2_000_000, 4 * SEGMENT_BYTES);
    let mut held = 0;
    let took = timed(|| {
        for i in 0..count {
            let at = i * 7919 * size % (stats.groups * MIB);
            let range = ByteRange::at(at % (OBJECT_GROUPS * MIB), size).expect("small numbers");
            held += u64::from(store.covers(object(at / MIB), range));
        }
    });
    writeln!(
        out,
        "look-up of 64 KiB: {:.0} ns, {held} of {count} held",
        took.as_nanos() as f64 / count as f64
    )
}

/// In a child: a store of `segments` segments whose owner dies after a sync.
fn fill_and_crash(dir: &Path, segments: u64) -> io::Result<()> {
    let disk = std::sync::Arc::new(InDir::open(&dir.join("bench.crash"))?);
    let store = sparse(dir, segments, disk)?;
    store.sync().map_err(io::Error::other)?;
    std::process::abort();
}

fn open_after_crash(out: &mut impl io::Write, dir: &Path, segments: u64) -> io::Result<()> {
    let cache = dir.join("bench.crash");
    for what in ["journal", "checkpoint"] {
        let disk = std::sync::Arc::new(InDir::open(&cache)?);
        let (store, found) =
            Store::open_on(disk, &sparse_options(&cache, segments), Tuning::default())
                .map_err(io::Error::other)?;
        let per = found.took.as_secs_f64() / found.segments as f64 * 1e7;
        writeln!(
            out,
            "open from {what}: {:.3} s for {} segments in {} objects, {:.2} s for 10^7",
            found.took.as_secs_f64(),
            found.segments,
            found.objects,
            per
        )?;
        drop(store);
    }
    fs::remove_dir_all(cache)
}

/// A store with `segments` whole segments whose data goes nowhere.
fn sparse(dir: &Path, segments: u64, disk: std::sync::Arc<dyn Disk>) -> io::Result<Store> {
    let tuning = Tuning { journal_bytes_max: u64::MAX, ..Tuning::default() };
    let (store, _) =
        Store::open_on(disk, &sparse_options(dir, segments), tuning).map_err(io::Error::other)?;
    let block = Bytes::from(vec![7; MIB as usize]);
    for at in 0..segments.div_ceil(64) {
        store
            .write(object(at), at % OBJECT_GROUPS * MIB, std::slice::from_ref(&block))
            .map_err(io::Error::other)?;
    }
    Ok(store)
}

/// Room for all of it, with a reserve to spare.
fn sparse_options(dir: &Path, segments: u64) -> Options {
    let capacity = (segments.div_ceil(64) + 300) * MIB;
    Options { sync_interval: Duration::ZERO, ..Options::new(dir, capacity.max(8 * MIB)) }
}

fn object(group: u64) -> ObjectId {
    let id = u128::from(group / OBJECT_GROUPS) + 1;
    ObjectId::from(id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn timed(run: impl FnOnce()) -> Duration {
    #[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    let start = Instant::now();
    run();
    start.elapsed()
}

fn resident_bytes() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * 4096)
}

/// A disk that takes everything and has nothing.
#[derive(Debug)]
struct Nowhere;

impl Disk for Nowhere {
    fn len(&self, _: File) -> io::Result<u64> {
        Ok(0)
    }
    fn read_at(&self, _: File, _: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }
    fn write_at(&self, _: File, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn set_len(&self, _: File, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn allocate(&self, _: File, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self, _: File) -> io::Result<()> {
        Ok(())
    }
}

/// Real files, but for the data, which goes nowhere.
#[derive(Debug)]
struct InDir(Vec<fs::File>);

impl InDir {
    fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let open = |file: &File| {
            let mut options = fs::File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(dir.join(file.name()))
        };
        File::ALL.iter().map(open).collect::<io::Result<_>>().map(Self)
    }

    fn file(&self, file: File) -> &fs::File {
        &self.0[file as usize]
    }
}

impl Disk for InDir {
    fn len(&self, file: File) -> io::Result<u64> {
        Ok(self.file(file).metadata()?.len())
    }
    fn read_at(&self, file: File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file(file).read_exact_at(buf, offset)
    }
    fn write_at(&self, file: File, offset: u64, data: &[u8]) -> io::Result<()> {
        if file == File::Data { Ok(()) } else { self.file(file).write_all_at(data, offset) }
    }
    fn set_len(&self, file: File, len: u64) -> io::Result<()> {
        self.file(file).set_len(len)
    }
    fn allocate(&self, file: File, len: u64) -> io::Result<()> {
        self.file(file).set_len(len)
    }
    fn sync(&self, file: File) -> io::Result<()> {
        self.file(file).sync_data()
    }
}
