//! `weir simulate`: what each policy would have kept of an operator's own trace.
//!
//! Reads the whole trace into memory, 16 bytes a request, then replays it once for
//! each policy and capacity, on every processor. Formats are those of
//! `docs/formats/trace.md`.

use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use weir_policy::Kind;
use weir_policy::simulate::{Report, Simulation};
use weir_policy::trace::{Shape, Trace, TraceBuilder, TraceError};

use super::text::bytes;
use crate::exit::{Code, Failure, Outcome, print};
use crate::units::Size;

#[derive(Args, Clone, Debug)]
pub(crate) struct SimulateArgs {
    /// File with the requests, in the order of time
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Policies, or "all"
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    pub(crate) policy: Vec<Choice>,
    /// Sizes of the cache, or percentages of the bytes asked for
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "1%,2.5%,5%,10%")]
    pub(crate) capacity: Vec<Capacity>,
    /// Evict objects, not segments; a download is one request
    #[arg(long)]
    pub(crate) whole_objects: bool,
    /// What is evicted at once
    #[arg(long, value_name = "SIZE", default_value = "512KiB")]
    pub(crate) segment: Size,
    /// Low bits of an oracleGeneral id that number the segment; by default none
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) object_bits: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A policy's name, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    All,
    One(Kind),
}

impl FromStr for Choice {
    type Err = weir_policy::UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// How large a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    Bytes(u64),
    /// Of the bytes asked for, in millionths.
    Share(u64),
}

impl FromStr for Capacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(percent) = text.strip_suffix('%') else {
            return match Size::parse(text) {
                Ok(Size(0)) => Err("a cache of 0 bytes holds nothing".to_owned()),
                Ok(Size(bytes)) => Ok(Self::Bytes(bytes)),
                Err(error) => Err(format!("{error}, or a percentage, \"2.5%\" say")),
            };
        };
        let (whole, decimals) = percent.split_once('.').unwrap_or((percent, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let parse = || {
            let decimals = format!("{decimals:0<4}");
            let fits = is_number(whole) && is_number(&decimals) && decimals.len() == 4;
            let millionths = whole.parse::<u64>().ok()?.checked_mul(10_000)?;
            let millionths = millionths + decimals.parse::<u64>().ok().filter(|_| fits)?;
            (1..=1_000_000).contains(&millionths).then_some(Self::Share(millionths))
        };
        parse().ok_or_else(|| {
            format!("{text:?} is no share: above 0 % and up to 100 %, at most four decimals")
        })
    }
}

impl Capacity {
    fn bytes(self, requested_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(millionths) => {
                let bytes = u128::from(requested_bytes) * u128::from(millionths) / 1_000_000;
                u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
            }
        }
    }
}

#[derive(Serialize)]
struct Answer {
    version: u32,
    trace: Totals,
    results: Vec<Row>,
}

/// What was read.
#[derive(Serialize)]
struct Totals {
    requests: usize,
    requested_bytes: u64,
    objects: u32,
    downloads: u64,
}

/// What came of one policy at one capacity.
#[derive(Clone, Serialize)]
struct Row {
    policy: &'static str,
    capacity_bytes: u64,
    hit_ratio: f64,
    byte_hit_ratio: f64,
    hits: u64,
    hit_bytes: u64,
    admitted: u64,
    admitted_bytes: u64,
    evictions: u64,
    evicted_bytes: u64,
}

pub(crate) fn run(args: &SimulateArgs) -> Outcome {
    let unit_bytes = u32::try_from(args.segment.0).ok().filter(|&bytes| bytes > 0);
    let Some(unit_bytes) = unit_bytes else {
        let error = format!("a segment of {} is none", args.segment);
        return Err(Failure::new(Code::Usage, error).hint("choose 1B to 4194303KiB"));
    };
    let shape = match args.whole_objects {
        true => Shape::WholeObjects,
        false => Shape::Units { bytes: unit_bytes },
    };
    let trace = read(&args.trace, shape, args.object_bits)?;
    if trace.requests().is_empty() {
        let error = format!("{} has no requests", args.trace.display());
        return Err(Failure::new(Code::Usage, error));
    }
    if trace.misaligned() > 0 {
        eprintln!(
            "weir: {} ranges begin inside a segment of {}; hits are too many when ranges are \
             smaller than segments: choose a smaller --segment",
            trace.misaligned(),
            args.segment
        );
    }
    let rows = simulate(&trace, &jobs(args, trace.requested_bytes()));
    if args.json {
        let trace = Totals {
            requests: trace.requests().len(),
            requested_bytes: trace.requested_bytes(),
            objects: trace.objects(),
            downloads: trace.downloads(),
        };
        let answer = Answer { version: 1, trace, results: rows };
        let json = serde_json::to_string_pretty(&answer).expect("numbers are JSON");
        return print(&format!("{json}\n"));
    }
    print(&table(&trace, &rows))
}

/// Every policy at every capacity, policies in the order of the command line.
fn jobs(args: &SimulateArgs, requested_bytes: u64) -> Vec<(Kind, u64)> {
    let mut kinds = Vec::new();
    for choice in &args.policy {
        let chosen = match choice {
            Choice::All => &Kind::ALL[..],
            Choice::One(kind) => std::slice::from_ref(kind),
        };
        for kind in chosen {
            if !kinds.contains(kind) {
                kinds.push(*kind);
            }
        }
    }
    let capacities = args.capacity.iter().map(|capacity| capacity.bytes(requested_bytes));
    capacities.flat_map(|bytes| kinds.iter().map(move |&kind| (kind, bytes))).collect()
}

/// Runs the jobs, as many at a time as there are processors.
fn simulate(trace: &Trace, jobs: &[(Kind, u64)]) -> Vec<Row> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len());
    let (next, replayed) = (AtomicUsize::new(0), AtomicU64::new(0));
    let mut rows = vec![None; jobs.len()];
    let (done, finished) = mpsc::sync_channel(jobs.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            let (done, next, replayed) = (done.clone(), &next, &replayed);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(kind, capacity)) = jobs.get(at) else { return };
                    let report = replay(trace, kind, capacity, replayed);
                    if done.send((at, row(kind, capacity, &report))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let all = trace.requests().len() as u64 * jobs.len() as u64;
        loop {
            match finished.recv_timeout(PROGRESS_EVERY) {
                Ok((at, row)) => rows[at] = Some(row),
                Err(RecvTimeoutError::Timeout) => {
                    let part = super::text::percent(replayed.load(Ordering::Relaxed), all);
                    let ended = rows.iter().flatten().count();
                    eprintln!("weir: {part} replayed, {ended} of {} simulations", jobs.len());
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    rows.into_iter().flatten().collect()
}

fn replay(trace: &Trace, kind: Kind, capacity: u64, replayed: &AtomicU64) -> Report {
    let mut simulation = Simulation::new(kind, capacity);
    for requests in trace.requests().chunks(1 << 16) {
        for request in requests {
            simulation.request(request);
        }
        replayed.fetch_add(requests.len() as u64, Ordering::Relaxed);
    }
    simulation.report()
}

fn row(kind: Kind, capacity_bytes: u64, report: &Report) -> Row {
    Row {
        policy: kind.name(),
        capacity_bytes,
        hit_ratio: report.hit_ratio(),
        byte_hit_ratio: report.byte_hit_ratio(),
        hits: report.hits,
        hit_bytes: report.hit_bytes,
        admitted: report.admitted,
        admitted_bytes: report.admitted_bytes,
        evictions: report.evictions,
        evicted_bytes: report.evicted_bytes,
    }
}

fn table(trace: &Trace, rows: &[Row]) -> String {
    let mut out = String::new();
    let (requests, objects) = (trace.requests().len(), trace.objects());
    let (downloads, requested) = (trace.downloads(), bytes(trace.requested_bytes()));
    let mut tell = || -> std::fmt::Result {
        writeln!(
            out,
            "{requests} requests, {requested}, {objects} objects, {downloads} downloads\n"
        )?;
        writeln!(
            out,
            "{:10}  {:16}  {:>6}  {:>9}  {:>10}  {:>10}",
            "capacity", "policy", "hits", "byte hits", "admitted", "evicted"
        )?;
        for row in rows {
            writeln!(
                out,
                "{:10}  {:16}  {:>6.4}  {:>9.4}  {:>10}  {:>10}",
                bytes(row.capacity_bytes),
                row.policy,
                row.hit_ratio,
                row.byte_hit_ratio,
                bytes(row.admitted_bytes),
                bytes(row.evicted_bytes)
            )?;
        }
        Ok(())
    };
    tell().expect("writing to a string does not fail");
    out
}

/// Reads a trace of either format.
fn read(path: &Path, shape: Shape, object_bits: Option<u32>) -> Result<Trace, Failure> {
    let fail = |error: String| Failure::new(Code::Failed, format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| fail(error.to_string()))?;
    let len = file.metadata().map_err(|error| fail(error.to_string()))?.len();
    let mut input = BufReader::with_capacity(BUFFER_BYTES, file);
    let begin = input.fill_buf().map_err(|error| fail(error.to_string()))?;
    let is_text = begin.starts_with(HEADER_BEGIN);
    let mut progress = Progress { path, read: 0, len, told: 0 };
    let mut builder = TraceBuilder::new(shape);
    let outcome = if is_text && object_bits.is_some() {
        Err("--object-bits is for oracleGeneral, and this is text".to_owned())
    } else if is_text {
        read_text(input, &mut builder, &mut progress)
    } else if len.is_multiple_of(RECORD_BYTES as u64) {
        read_oracle(input, object_bits, &mut builder, &mut progress)
    } else {
        Err("neither text that begins with a known line nor whole records of 24 bytes".to_owned())
    };
    match outcome {
        Ok(()) => Ok(builder.finish()),
        Err(error) => {
            let error = format!("{}: {error}", path.display());
            Err(Failure::new(Code::Usage, error).hint("weir simulate --help lists the formats"))
        }
    }
}

/// Says how far reading is, once in `TOLD_BYTES`.
struct Progress<'a> {
    path: &'a Path,
    read: u64,
    len: u64,
    told: u64,
}

impl Progress<'_> {
    fn add(&mut self, bytes: usize) {
        self.read += bytes as u64;
        if self.read - self.told >= TOLD_BYTES {
            self.told = self.read;
            let part = super::text::percent(self.read, self.len);
            eprintln!("weir: {part} of {} read", self.path.display());
        }
    }
}

/// What the columns of a line mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    Ranges,
    Objects,
    RangesOfObjects,
}

impl Columns {
    const ALL: [Self; 3] = [Self::Ranges, Self::Objects, Self::RangesOfObjects];

    const fn header(self) -> &'static str {
        match self {
            Self::Ranges => "time_s,object,offset,length,download",
            Self::Objects => "time_ms,client,object,size",
            Self::RangesOfObjects => "time_ms,client,object,size,offset,length",
        }
    }

    /// Gives a line's fields to the builder. The first is the time: the order says
    /// enough.
    fn take(self, line: &str, builder: &mut TraceBuilder) -> Result<(), String> {
        let mut fields = Fields(line.split(','));
        fields.skip("time")?;
        let added = match self {
            Self::Ranges => {
                let object = fields.integer("object")?;
                let (offset, length) = (fields.integer("offset")?, fields.integer("length")?);
                let download = fields.integer("download")?;
                fields.end()?;
                builder.range(object, offset, length, download)
            }
            Self::Objects => {
                fields.skip("client")?;
                let (object, size) = (fields.integer("object")?, fields.integer("size")?);
                fields.end()?;
                builder.whole(object, size)
            }
            Self::RangesOfObjects => {
                fields.skip("client")?;
                let object = fields.integer("object")?;
                fields.integer("size")?;
                let (offset, length) = (fields.integer("offset")?, fields.integer("length")?);
                fields.end()?;
                builder.part(object, offset, length, offset == 0)
            }
        };
        added.map_err(|error| error.to_string())
    }
}

struct Fields<'a>(std::str::Split<'a, char>);

impl Fields<'_> {
    fn skip(&mut self, name: &str) -> Result<(), String> {
        self.0.next().map(|_| ()).ok_or_else(|| format!("{name} is missing"))
    }

    fn integer(&mut self, name: &str) -> Result<u64, String> {
        let text = self.0.next().ok_or_else(|| format!("{name} is missing"))?;
        text.parse().map_err(|_| format!("{name} is no whole number: {text:?}"))
    }

    fn end(&mut self) -> Result<(), String> {
        self.0.next().map_or(Ok(()), |text| Err(format!("{text:?} is one field too many")))
    }
}

fn read_text(
    mut input: impl BufRead,
    builder: &mut TraceBuilder,
    progress: &mut Progress<'_>,
) -> Result<(), String> {
    let mut columns = None;
    let mut line = String::new();
    for number in 1_u64.. {
        let at = |error: String| format!("line {number}: {error}");
        line.clear();
        let len = (&mut input).take(LINE_BYTES_MAX).read_line(&mut line);
        let len = len.map_err(|error| at(error.to_string()))?;
        if len == 0 {
            break;
        }
        if len as u64 == LINE_BYTES_MAX {
            return Err(at(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        progress.add(len);
        let text = line.trim_end();
        match columns {
            None => {
                let found = Columns::ALL.into_iter().find(|columns| columns.header() == text);
                columns = Some(found.ok_or_else(|| at(format!("{text:?} is no known header")))?);
            }
            Some(columns) => Columns::take(columns, text, builder).map_err(at)?,
        }
    }
    Ok(())
}

/// Records of `{u32 time_s, u64 id, u32 size, i64 next}`, little-endian.
fn read_oracle(
    mut input: impl Read,
    object_bits: Option<u32>,
    builder: &mut TraceBuilder,
    progress: &mut Progress<'_>,
) -> Result<(), String> {
    let records = progress.len / RECORD_BYTES as u64;
    for number in 1..=records {
        let at = |error: String| format!("record {number}: {error}");
        let mut record = [0; RECORD_BYTES];
        input.read_exact(&mut record).map_err(|error| at(error.to_string()))?;
        progress.add(RECORD_BYTES);
        let [_, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l, ..] = record;
        let id = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let size = u32::from_le_bytes([i, j, k, l]);
        let added = match object_bits {
            None => builder.whole(id, u64::from(size)),
            Some(bits) => {
                let number = u32::try_from(id & ((1 << bits) - 1));
                let number = number.map_err(|_| TraceError::TooManyUnits);
                number.and_then(|number| builder.unit(id >> bits, number, size))
            }
        };
        added.map_err(|error| at(error.to_string()))?;
    }
    Ok(())
}

/// What the first line of every text begins with.
const HEADER_BEGIN: &[u8] = b"time_";
/// Bytes of a line with its end, less than any trace's.
const LINE_BYTES_MAX: u64 = 4096;
const RECORD_BYTES: usize = 24;
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes between two words about reading; some seconds.
const TOLD_BYTES: u64 = 1 << 30;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_a_size_or_a_share() {
        assert_eq!("2GB".parse(), Ok(Capacity::Bytes(2_000_000_000)));
        assert_eq!("2.5%".parse(), Ok(Capacity::Share(25_000)));
        assert_eq!("100%".parse(), Ok(Capacity::Share(1_000_000)));
        assert_eq!("0.0001%".parse(), Ok(Capacity::Share(1)));
        for bad in ["0%", "100.1%", "%", "2.12345%", "-1%", "+1%", "2.+5%", "5", "0", "1e1%"] {
            assert!(bad.parse::<Capacity>().is_err(), "{bad}");
        }
        assert_eq!(Capacity::Share(25_000).bytes(1000), 25);
        assert_eq!(Capacity::Share(1).bytes(1000), 1);
    }

    #[test]
    fn all_and_names_may_be_mixed_and_run_once() {
        assert_eq!("all".parse(), Ok(Choice::All));
        let args = SimulateArgs {
            trace: PathBuf::new(),
            policy: vec![Choice::One(Kind::Sieve), Choice::All],
            capacity: vec![Capacity::Bytes(5), Capacity::Share(500_000)],
            whole_objects: false,
            segment: Size(1),
            object_bits: None,
            json: false,
        };
        let jobs = jobs(&args, 100);
        assert_eq!(jobs.len(), 2 * Kind::ALL.len());
        assert_eq!((jobs[0], jobs[Kind::ALL.len()].1), ((Kind::Sieve, 5), 50));
    }

    fn read_lines(text: &str) -> Result<Trace, String> {
        let mut builder = TraceBuilder::new(Shape::Units { bytes: 100 });
        let mut progress = Progress { path: Path::new("t"), read: 0, len: 0, told: 0 };
        read_text(text.as_bytes(), &mut builder, &mut progress)?;
        Ok(builder.finish())
    }

    #[test]
    fn each_kind_of_text_is_read() {
        let ranges = "time_s,object,offset,length,download\n0.5,3,0,100,0\n0.6,3,100,50,0\n";
        let trace = read_lines(ranges).unwrap();
        assert_eq!((trace.requests().len(), trace.downloads()), (2, 1));
        let objects = "time_ms,client,object,size\r\n5,1,3,250\r\n6,2,3,250\r\n";
        let trace = read_lines(objects).unwrap();
        assert_eq!((trace.requests().len(), trace.downloads()), (6, 2));
        let parts = "time_ms,client,object,size,offset,length\n5,1,3,250,0,200\n5,1,3,250,200,50";
        let trace = read_lines(parts).unwrap();
        assert_eq!((trace.requests().len(), trace.downloads()), (3, 1));
    }

    #[test]
    fn a_wrong_line_is_told_with_its_number() {
        let header = "time_ms,client,object,size\n";
        let told = |lines: &str| read_lines(&format!("{header}{lines}")).unwrap_err();
        assert_eq!(told("1,2,3,4\n1,2,x,4\n"), "line 3: object is no whole number: \"x\"");
        assert_eq!(told("1,2,3\n"), "line 2: size is missing");
        assert_eq!(told("1,2,3,4,5\n"), "line 2: \"5\" is one field too many");
        assert_eq!(told(&"1".repeat(5000)), "line 2: longer than 4096 bytes");
        assert_eq!(read_lines("time_x\n").unwrap_err(), "line 1: \"time_x\" is no known header");
    }
}
