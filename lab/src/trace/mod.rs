//! `weir-lab trace`: synthetic traces by docs/formats/trace.md, and figures of any trace.
//!
//! A trace is decided by its parameters, a seed and the generator's version. The
//! generators are iterators without clock or IO; here their requests meet files.
//! Formats, and what may change under which version, are in `docs/formats/trace.md`.

mod alias;
mod draws;
mod format;
mod info;
mod p2p;
mod pareto;
mod web;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use self::format::oracle::{self, OracleRecord};
use self::format::{Format, Reader, csv};
use self::info::Info;
use self::p2p::{P2pTrace, RequestsAs};
use self::web::{Site, SiteName, WebTrace};

/// Whenever a seed comes to mean another trace, this number grows.
const GENERATOR_VERSION: u32 = 1;

/// What `weir-lab trace` is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Generates a trace.
    #[command(subcommand)]
    Gen(GenCommand),
    /// Says how much a trace asks for, and how much an endless cache would save.
    Info(InfoArgs),
}

/// Which trace is generated.
#[derive(Debug, Subcommand)]
pub(crate) enum GenCommand {
    /// Peer-to-peer downloads: pCache's experiment of 1.5 million segments.
    P2p(P2pArgs),
    /// A day of web requests with the printed shares of Kim et al.
    Web(WebArgs),
}

/// Parameters of a P2P trace.
#[derive(Args, Debug)]
pub(crate) struct P2pArgs {
    /// Decides every draw.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Divides 5,000 objects and 1,500,000 requests; the segment stays.
    #[arg(long, default_value = "1", value_parser = scale, allow_negative_numbers = true)]
    scale: f64,
    /// Objects of the catalogue.
    #[arg(long, conflicts_with = "scale", value_parser = clap::value_parser!(u32).range(1..=OBJECTS_MAX))]
    objects: Option<u32>,
    /// Requests of the trace.
    #[arg(long, conflicts_with = "scale", value_parser = clap::value_parser!(u64).range(1..=REQUESTS_MAX))]
    requests: Option<u64>,
    /// Skew of the popularity.
    #[arg(long, default_value = "0.6", value_parser = skew, allow_negative_numbers = true)]
    alpha: f64,
    /// Plateau of the popularity, in ranks.
    #[arg(long, default_value = "25", value_parser = plateau, allow_negative_numbers = true)]
    q: f64,
    /// Changes the popularity every so many downloads; 0: never.
    #[arg(long, default_value_t = 0)]
    drift: u32,
    /// Whose requests the trace shows.
    #[arg(long, value_enum, default_value_t = RequestsAs::Segments)]
    requests_as: RequestsAs,
    /// What is an object to a reader of oracle records.
    #[arg(long, value_enum, default_value_t = Ids::Segments)]
    ids: Ids,
    #[command(flatten)]
    output: Output,
}

/// What an id of an oracle record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ids {
    /// A segment: a record for every request.
    Segments,
    /// An object: a record for every download.
    Objects,
}

/// Parameters of a web trace.
#[derive(Args, Debug)]
pub(crate) struct WebArgs {
    /// Whose day.
    #[arg(long, value_enum)]
    site: SiteName,
    /// Decides every draw.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Divides requests, bytes and clients.
    #[arg(long, default_value = "1", value_parser = scale, allow_negative_numbers = true)]
    scale: f64,
    /// One in five requests above 1 MB comes as 2 to 8 ranges; CSV only.
    #[arg(long)]
    ranges: bool,
    #[command(flatten)]
    output: Output,
}

/// Where a trace goes.
#[derive(Args, Debug)]
pub(crate) struct Output {
    /// How it is written.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// Writes it here instead of standard output.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Which trace is looked at.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// The file.
    file: PathBuf,
    /// Its format; otherwise its first bytes and its length tell it.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Answers in JSON.
    #[arg(long)]
    json: bool,
}

/// Does it.
///
/// # Errors
/// When a trace cannot be made, written or read.
pub(crate) fn run(command: &TraceCommand) -> Result<ExitCode> {
    let done = match command {
        TraceCommand::Gen(GenCommand::P2p(args)) => generate_p2p(args),
        TraceCommand::Gen(GenCommand::Web(args)) => generate_web(args),
        TraceCommand::Info(args) => show_info(args),
    };
    match done {
        // Who reads our output may have seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        done => done,
    }
}

fn generate_p2p(args: &P2pArgs) -> Result<ExitCode> {
    let per_segment = args.output.format == Format::Oracle && args.ids == Ids::Segments;
    if per_segment && args.requests_as != RequestsAs::Segments {
        return Ok(usage(
            "an oracle record is a whole object, and these requests are parts of segments",
            "--format csv, or --ids objects for a record for each download",
        ));
    }
    let Some(out) = args.output.open()? else { return Ok(to_a_file()) };
    let scaled = p2p::Params::scaled(args.scale);
    let params = p2p::Params {
        seed: args.seed,
        objects: args.objects.unwrap_or(scaled.objects),
        requests: args.requests.unwrap_or(scaled.requests),
        alpha: args.alpha,
        q: args.q,
        drift: args.drift,
        requests_as: args.requests_as,
    };
    let trace = P2pTrace::new(&params)?;
    let sizes = trace.sizes().to_vec();
    let (mut requests, mut bytes) = (0, 0);
    let trace = trace.inspect(|request| {
        requests += 1;
        bytes += request.len;
    });
    write(out, |out| match (args.output.format, args.ids) {
        (Format::Csv, _) => csv::write_p2p(out, trace),
        (Format::Oracle, Ids::Segments) => {
            let records: Vec<_> = trace.map(|request| OracleRecord::of_segment(&request)).collect();
            oracle::write(out, &records)
        }
        (Format::Oracle, Ids::Objects) => {
            oracle::write(out, &downloads(trace, |object| sizes[object as usize]))
        }
    })?;
    told(requests, bytes, args.seed);
    Ok(ExitCode::SUCCESS)
}

/// The first request of each download, as one for the whole object.
fn downloads(
    trace: impl Iterator<Item = p2p::Request>,
    size: impl Fn(u32) -> u64,
) -> Vec<OracleRecord> {
    let mut seen = Vec::new();
    let first = |request: &p2p::Request| {
        let download = request.download as usize;
        if seen.len() <= download {
            seen.resize(download + 1, false);
        }
        !std::mem::replace(&mut seen[download], true)
    };
    trace.filter(first).map(|r| OracleRecord::of_download(&r, size(r.object))).collect()
}

fn generate_web(args: &WebArgs) -> Result<ExitCode> {
    if args.ranges && args.output.format == Format::Oracle {
        return Ok(usage("an oracle record has no range", "--format csv, or without --ranges"));
    }
    let Some(out) = args.output.open()? else { return Ok(to_a_file()) };
    let site = Site::printed(args.site).scaled(args.scale);
    let trace = WebTrace::new(web::Params { seed: args.seed, site, ranges: args.ranges });
    for (class, off) in trace.off() {
        let bound = ["1", "10", "100"][class - 1];
        eprintln!(
            "weir-lab: warning: the size class from {bound} MB has {:+.0} % of its bytes: so few \
             requests cannot have them",
            off * 100.0
        );
    }
    let (mut requests, mut bytes) = (0, 0);
    let trace = trace.inspect(|request| {
        requests += 1;
        bytes += request.len;
    });
    write(out, |out| match args.output.format {
        Format::Csv => csv::write_web(out, args.ranges, trace),
        Format::Oracle => {
            let records: Vec<_> = trace.map(|request| OracleRecord::of_web(&request)).collect();
            oracle::write(out, &records)
        }
    })?;
    told(requests, bytes, args.seed);
    Ok(ExitCode::SUCCESS)
}

fn show_info(args: &InfoArgs) -> Result<ExitCode> {
    let reader = Reader::open(&args.file, args.format)?;
    let name = |path: &Path| format!("read {}", path.display());
    let info = Info::of(reader.format_name(), reader).with_context(|| name(&args.file))?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&info)?)?;
    } else {
        write!(out, "{info}")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

impl Output {
    /// Where the trace is written; `None` when that is a terminal and binary.
    fn open(&self) -> Result<Option<Box<dyn Write>>> {
        Ok(match &self.out {
            Some(path) => {
                let file = File::create(path);
                Some(Box::new(file.with_context(|| format!("create {}", path.display()))?))
            }
            None if self.format == Format::Oracle && io::stdout().is_terminal() => None,
            None => Some(Box::new(io::stdout())),
        })
    }
}

fn write(
    out: Box<dyn Write>,
    work: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
) -> Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    work(&mut out).and_then(|()| out.flush()).context("write the trace")
}

fn told(requests: u64, bytes: u64, seed: u64) {
    let gigabytes = bytes as f64 / 1e9;
    eprintln!(
        "weir-lab: {requests} requests for {gigabytes:.2} GB, seed {seed}, generator {GENERATOR_VERSION}"
    );
}

fn usage(error: &str, hint: &str) -> ExitCode {
    eprintln!("weir-lab: error: {error}");
    eprintln!("weir-lab: hint: {hint}");
    ExitCode::from(crate::EXIT_USAGE)
}

fn to_a_file() -> ExitCode {
    usage("oracle records are no text for a terminal", "--out FILE")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(broken)
}

fn scale(text: &str) -> Result<f64, String> {
    number(text, 1.0, 5000.0)
}

fn skew(text: &str) -> Result<f64, String> {
    number(text, 0.0, 10.0)
}

fn plateau(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1e9)
}

fn number(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("not a number from {low} to {high}"))
}

const OBJECTS_MAX: i64 = 10_000_000;
const REQUESTS_MAX: u64 = 1_000_000_000;
const BUFFER_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_bounds_are_refused_with_the_bounds() {
        assert_eq!(scale("23"), Ok(23.0));
        for wrong in ["0.5", "NaN", "-1", "inf", "x", ""] {
            assert_eq!(scale(wrong).unwrap_err(), "not a number from 1 to 5000", "{wrong}");
        }
    }

    #[test]
    fn a_download_is_told_once_with_its_objects_size() {
        let request = |object, download, offset| p2p::Request {
            time_us: 1_000_000,
            object,
            offset,
            len: 5,
            download,
        };
        let trace = [request(3, 1, 9), request(2, 0, 0), request(3, 1, 0), request(3, 2, 5)];
        let found = downloads(trace.into_iter(), |object| u64::from(object) * 100);
        let ids: Vec<(u64, u32)> = found.iter().map(|record| (record.id, record.size)).collect();
        assert_eq!(ids, [(4, 300), (3, 200), (4, 300)]);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::from(closed).context("write the trace")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }
}
