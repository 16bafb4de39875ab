//! `pcache/inference`: the piece length from requests alone, the paper's Figure 9.
//!
//! Request streams of the four clients, recorded over the wire with pieces of
//! 256 KiB, 1 MiB and 4 MiB, are fed to the gateway's inference from many starting
//! points, with and without the reset heuristic. An answer after n samples is the
//! estimate at the moment when n samples count; with the heuristic they count
//! anew when the estimate grows. Refuted when the gateway, once it is confident,
//! is wrong in more than one case in a hundred.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Conditions;
use super::swarm::Swarm;
use crate::capture::Capture;
use crate::clients::Kind;
use crate::record::data::{Record, Series};
use crate::record::figure::{Figure, Line, Plot};
use crate::requests::{self, RECORD_LIMIT, Request, Stream, requests_of};
use crate::seed::SplitMix64;
use crate::topology::SEEDER;

/// Runs the story.
///
/// # Errors
/// When there is no gateway or its answers cannot be read.
pub(super) fn run(at: &Conditions, record: &mut Record) -> Result<()> {
    ensure!(
        at.weir.exists(),
        "no gateway at {} (build it, or name it by --weir)",
        at.weir.display()
    );
    let streams = Stream::recorded()?;
    let starts = if at.quick { 4 } else { 50 };
    record.condition(format!(
        "{} recorded streams (four clients, pieces of 256 KiB, 1 MiB and 4 MiB), each from \
         {starts} random starting points.",
        streams.len()
    ));
    record.condition(
        "Theory: of n independent samples, uniform in a piece, at least one lies in its upper \
         half with probability 1 - 2^-n; then the smallest power of two that holds them is right.",
    );
    for sampling in SAMPLINGS {
        let mut tallies = Vec::new();
        for heuristic in [true, false] {
            let mut tally = Tally::new(sampling.samples_max);
            for (number, stream) in (0_u64..).zip(&streams) {
                let mut random = SplitMix64::split(at.seed, number);
                let window = sampling.window(stream).min(stream.requests.len());
                let last = stream.requests.len() - window + 1;
                for _ in 0..starts {
                    let start = usize::try_from(random.below(last as u64)).expect("an index");
                    let requests = &stream.requests[start..start + window];
                    tally.add(&infer(&at.weir, requests, heuristic, sampling.flag)?, stream);
                }
            }
            tallies.push(tally);
        }
        judge(record, &sampling, &tallies[0], &tallies[1]);
        figure(record, &sampling, &tallies[0], &tallies[1]);
    }
    Ok(())
}

/// What counts as a sample.
#[derive(Clone, Copy, Debug)]
struct Sampling {
    /// In titles and tables.
    name: &'static str,
    /// In file names.
    file: &'static str,
    /// The option of `weir infer`.
    flag: Option<&'static str>,
    /// As far as the figure goes.
    samples_max: usize,
    /// Numbers of samples at which accuracies are compared.
    compared: [usize; 3],
}

impl Sampling {
    /// Requests that give `samples_max` samples, and some more for resets.
    const fn window(&self, stream: &Stream) -> usize {
        match self.flag {
            Some(_) => self.samples_max * 2,
            None => {
                let per_piece = stream.piece_bytes / BLOCK_BYTES;
                (self.samples_max + 3) * per_piece as usize
            }
        }
    }
}

const SAMPLINGS: [Sampling; 2] = [
    Sampling {
        name: "every request a sample, as in the paper",
        file: "requests",
        flag: Some("--every-request"),
        samples_max: 120,
        compared: [5, 20, 60],
    },
    Sampling {
        name: "a piece's first request a sample, as the gateway does",
        file: "pieces",
        flag: None,
        samples_max: 20,
        compared: [1, 5, 15],
    },
];

/// What the gateway said after one sample.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// Samples that count.
    counted: usize,
    /// The best estimate in bytes.
    best: Option<u64>,
    /// The estimate once the gateway is confident.
    confident: Option<u64>,
    /// Its confidence.
    confidence: f64,
}

/// Right and wrong answers by number of samples.
#[derive(Debug)]
struct Tally {
    // Indexed by the number of samples, 1 and up.
    right: Vec<u32>,
    asked: Vec<u32>,
    belief: Vec<f64>,
    confident: u32,
    confident_right: u32,
    windows: u32,
    by_client: BTreeMap<String, (u32, u32)>,
}

impl Tally {
    fn new(samples_max: usize) -> Self {
        Self {
            right: vec![0; samples_max + 1],
            asked: vec![0; samples_max + 1],
            belief: vec![0.0; samples_max + 1],
            confident: 0,
            confident_right: 0,
            windows: 0,
            by_client: BTreeMap::new(),
        }
    }

    fn add(&mut self, answers: &[Answer], stream: &Stream) {
        self.windows += 1;
        for samples in 1..self.asked.len() {
            let Some(answer) = answers.iter().find(|answer| answer.counted >= samples) else {
                break;
            };
            self.asked[samples] += 1;
            self.belief[samples] += answer.confidence;
            if answer.best == Some(stream.piece_bytes) {
                self.right[samples] += 1;
            }
        }
        let client = self.by_client.entry(stream.client.clone()).or_default();
        if let Some(first) = answers.iter().find_map(|answer| answer.confident) {
            self.confident += 1;
            client.0 += 1;
            if first == stream.piece_bytes {
                self.confident_right += 1;
                client.1 += 1;
            }
        }
    }

    fn accuracy(&self) -> Vec<(f64, f64)> {
        let share =
            |samples: usize| f64::from(self.right[samples]) / f64::from(self.asked[samples]);
        (1..self.asked.len())
            .filter(|&samples| self.asked[samples] > 0)
            .map(|samples| (samples as f64, share(samples) * 100.0))
            .collect()
    }

    fn mean_belief(&self) -> Vec<(f64, f64)> {
        (1..self.asked.len())
            .filter(|&samples| self.asked[samples] > 0)
            .map(|samples| {
                let mean = self.belief[samples] / f64::from(self.asked[samples]);
                (samples as f64, mean * 100.0)
            })
            .collect()
    }
}

fn judge(record: &mut Record, sampling: &Sampling, with: &Tally, without: &Tally) {
    for (name, tally) in [("with", with), ("without", without)] {
        record.rows.push(json!({
            "sampling": sampling.name,
            "heuristic": name,
            "windows": tally.windows,
            "confident": tally.confident,
            "confident_right": tally.confident_right,
            "by_client": tally.by_client,
        }));
    }
    if sampling.flag.is_none() {
        // What the gateway serves by; the paper's sampling is shown, not promised.
        let share = f64::from(with.confident_right) / f64::from(with.confident);
        let name = "first confident estimate right, with the heuristic";
        record.at_least(name, share * 100.0, 99.0, "%");
    }
    let at = |tally: &Tally, samples: usize| {
        f64::from(tally.right[samples]) / f64::from(tally.asked[samples].max(1)) * 100.0
    };
    for samples in sampling.compared {
        let name = format!(
            "{}: accuracy at {samples} samples, with the heuristic less without",
            sampling.file
        );
        record.at_least(name, at(with, samples) - at(without, samples), 0.0, "points");
    }
}

fn figure(record: &mut Record, sampling: &Sampling, with: &Tally, without: &Tally) {
    let theory = |n: usize| (n as f64, (1.0 - 0.5_f64.powf(n as f64)) * 100.0);
    let theory = (1..=sampling.samples_max).map(theory).collect();
    let lines = vec![
        Line::measured("with the reset heuristic", with.accuracy()),
        Line::measured("without it", without.accuracy()),
        Line::theory("theory, independent samples", theory),
        Line::theory("the gateway's confidence, equation (1)", with.mean_belief()),
    ];
    for line in &lines {
        let (name, points) = (format!("{}: {}", sampling.file, line.name), line.points.clone());
        record.series.push(Series { name, unit: "%".to_owned(), points });
    }
    record.figures.push(Figure {
        file: format!("pcache-inference-{}", sampling.file),
        title: format!("Piece length from requests: {}", sampling.name),
        x: "number of samples".to_owned(),
        y: "right, %".to_owned(),
        plot: Plot::Lines(lines),
    });
}

/// Feeds requests to the gateway's inference and reads its answer after each.
///
/// `weir infer [--no-reset] [--every-request]` reads `INDEX BEGIN LENGTH` lines and
/// writes a JSON object for each: `counted`, the samples that count since the last
/// reset; `best`, the estimate in bytes however unsure; `piece_length`, the same
/// once it is confident, else null; `confidence`, equation (1).
fn infer(
    weir: &Path,
    requests: &[Request],
    heuristic: bool,
    flag: Option<&str>,
) -> Result<Vec<Answer>> {
    let mut command = Command::new(weir);
    command.arg("infer").args(flag).stdin(Stdio::piped()).stdout(Stdio::piped());
    if !heuristic {
        command.arg("--no-reset");
    }
    let mut child = command.spawn().context("start weir infer")?;
    let mut text = String::new();
    for Request { index, begin, len } in requests {
        text.push_str(&format!("{index} {begin} {len}\n"));
    }
    let mut input = child.stdin.take().context("its standard input")?;
    input.write_all(text.as_bytes()).context("feed weir infer")?;
    drop(input);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("weir infer: {}", output.status);
    }
    String::from_utf8_lossy(&output.stdout).lines().map(parse_answer).collect()
}

fn parse_answer(line: &str) -> Result<Answer> {
    let value: Value = serde_json::from_str(line).context("an answer of weir infer")?;
    let samples = value["counted"].as_u64();
    let confident = value["piece_length"].as_u64();
    Ok(Answer {
        counted: usize::try_from(samples.context("an answer without the number of samples")?)?,
        best: value["best"].as_u64(),
        confident,
        confidence: value["confidence"].as_f64().unwrap_or(0.0),
    })
}

/// Records what each client asks for, with each piece length, into `dir`.
///
/// # Errors
/// When a client does not finish.
pub(crate) fn record_requests(at: &Conditions, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    for piece_log2 in [18, 20, 22] {
        let work = at.work.join(format!("pieces-{piece_log2}"));
        fs::create_dir_all(&work)?;
        let at = Conditions { work, ..at.clone() };
        let bytes = (RECORD_PIECES << piece_log2).max(RECORD_BYTES_MIN);
        let mut swarm = Swarm::start_with_pieces(&at, bytes, 4, piece_log2)?;
        let who = [
            (Kind::Transmission, "c2"),
            (Kind::Libtorrent, "c3"),
            (Kind::Deluge, "c4"),
            (Kind::Rtorrent, "c5"),
        ];
        for (kind, host) in who {
            let logs = swarm.new_dir("capture")?;
            let (seeder, address) = (&swarm.net.host("s3")?.space, &swarm.net.host(host)?.address);
            let filter = format!("tcp and src host {address} and dst host {SEEDER}");
            let capture = Capture::start(seeder, "eth0", &filter, 65_535, (&logs, "requests"))?;
            let source = swarm.by_file();
            swarm.download(&[(kind, host)], &source, RECORD_LIMIT)?;
            let requests = requests_of(&capture.finish_segments()?);
            let client = kind.name().to_owned();
            requests::write(&Stream { client, piece_bytes: 1 << piece_log2, requests }, dir)?;
        }
    }
    Ok(())
}

/// A request's usual length; every client asks for this much.
const BLOCK_BYTES: u64 = 16 << 10;
/// Content for a recording: so many pieces, and never less than so many bytes.
const RECORD_PIECES: u64 = 48;
const RECORD_BYTES_MIN: u64 = 24_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_leave_out_what_is_not_known_yet() {
        let answer = parse_answer(r#"{"counted":3,"best":null,"confidence":0.2}"#).unwrap();
        assert_eq!((answer.counted, answer.best), (3, None));
        let line =
            r#"{"samples":9,"counted":4,"best":262144,"piece_length":null,"confidence":0.5}"#;
        let answer = parse_answer(line).unwrap();
        assert_eq!((answer.counted, answer.best, answer.confident), (4, Some(262_144), None));
        assert!(parse_answer("{}").is_err());
    }

    #[test]
    fn accuracy_asks_at_the_moment_enough_samples_count() {
        let answer =
            |counted, best| Answer { counted, best: Some(best), confident: None, confidence: 0.0 };
        let stream = Stream { client: String::new(), piece_bytes: 4, requests: Vec::new() };
        let mut tally = Tally::new(3);
        // The second sample raises the estimate and counting begins anew.
        tally.add(&[answer(1, 2), answer(1, 4), answer(2, 4)], &stream);
        assert_eq!(tally.accuracy(), [(1.0, 0.0), (2.0, 100.0)]);
    }
}
