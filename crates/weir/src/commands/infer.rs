//! `weir infer`: the piece-length inference on a recorded request stream.
//!
//! Reads `INDEX BEGIN LENGTH` lines, writes one JSON line after each.

use std::fmt::Write;
use std::io::BufRead;

use serde::Serialize;
use weir_bittorrent::inference::{Inference, InferenceOptions, Sampling};

use crate::cli::InferArgs;
use crate::exit::{Code, Failure, Outcome, print};

#[derive(Serialize)]
struct Line {
    /// Lines read.
    samples: u64,
    /// Of them, those that count since the last reset.
    counted: u32,
    /// What is most likely, in bytes.
    best: Option<u32>,
    /// How likely.
    confidence: f64,
    /// The same once it is likely enough to act upon.
    piece_length: Option<u32>,
}

pub(crate) fn run(args: &InferArgs) -> Outcome {
    let sampling = if args.every_request { Sampling::EveryRequest } else { Sampling::EveryPiece };
    let reset_heuristic = !args.no_reset;
    let options = InferenceOptions { reset_heuristic, sampling, ..InferenceOptions::default() };
    let mut inference = Inference::new(options);
    let mut out = String::new();
    for (at, line) in (1_u64..).zip(std::io::stdin().lock().lines()) {
        let line = line.map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        let fields: Result<Vec<u32>, _> = line.split_ascii_whitespace().map(str::parse).collect();
        let Ok([index, begin, length]) = fields.as_deref() else {
            let error = format!("line {at}: expected INDEX BEGIN LENGTH, got {line:?}");
            return Err(Failure::new(Code::Usage, error));
        };
        inference.observe(*index, *begin, *length);
        let best = inference.best();
        let line = Line {
            samples: at,
            counted: best.map_or(0, |best| best.samples),
            best: best.map(|best| best.piece_bytes),
            confidence: best.map_or(0.0, |best| best.confidence),
            piece_length: inference.estimate().map(|estimate| estimate.piece_bytes),
        };
        let json = serde_json::to_string(&line).expect("numbers are JSON");
        writeln!(out, "{json}").expect("writing to a string does not fail");
    }
    print(&out)
}
