//! Measures the store: beside `pread` and fio on its own data file, by the number of
//! segments it holds, and from memory.
//!
//! ```text
//! cargo run --release -p weir-store --example bench -- rates DIR [GIB]
//! cargo run --release -p weir-store --example bench -- index [SEGMENTS]
//! cargo run --release -p weir-store --example bench -- hits
//! cargo run --release -p weir-store --example bench -- open DIR [SEGMENTS]
//! ```
//!
//! `rates` wants fio and says when it is not there. Each line is a figure; what is
//! compared is measured in turns, three rounds, and the median is shown.

#![allow(clippy::cast_possible_truncation, reason = "a benchmark's numbers are small")]
#![allow(clippy::cast_sign_loss, reason = "a benchmark's numbers are positive")]

mod disks;
mod index;
mod open;
mod rates;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::exit;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_ranges::ObjectId;

pub(crate) const MIB: u64 = 1 << 20;
/// Groups of one object: 256 MiB.
pub(crate) const OBJECT_GROUPS: u64 = 256;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = io::stdout().lock();
    match *args {
        ["rates", dir] => rates::run(&mut out, Path::new(dir), 4),
        ["rates", dir, gib] => rates::run(&mut out, Path::new(dir), number(gib)),
        ["index"] => index::all(&mut out, 1_000_000),
        ["index", segments] => index::all(&mut out, number(segments)),
        ["index", kind @ ("dense" | "sparse"), segments] => {
            index::one(&mut out, kind == "dense", number(segments))
        }
        ["hits"] => index::hits(&mut out),
        ["open", dir] => open::run(&mut out, Path::new(dir), 1_000_000),
        ["open", dir, segments] => open::run(&mut out, Path::new(dir), number(segments)),
        ["fill", dir, segments] => open::fill_and_crash(Path::new(dir), number(segments)),
        _ => {
            writeln!(
                io::stderr(),
                "usage: bench rates DIR [GIB] | index [SEGMENTS] | hits | open DIR [SEGMENTS]"
            )?;
            exit(64);
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| {
        drop(writeln!(io::stderr(), "{text:?} is no number"));
        exit(64)
    })
}

/// The object of the groups around number `group`.
pub(crate) fn object(group: u64) -> ObjectId {
    let id = u128::from(group / OBJECT_GROUPS) + 1;
    ObjectId::from(id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// A MiB that is not all the same.
pub(crate) fn block() -> Bytes {
    (0..MIB).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) fn timed(run: impl FnOnce()) -> Duration {
    #[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    let start = Instant::now();
    run();
    start.elapsed()
}

pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

pub(crate) fn resident_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * 4096)
}
