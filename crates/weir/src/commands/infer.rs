//! `weir infer`: the piece-length inference on a recorded request stream.
//!
//! Reads `INDEX BEGIN LENGTH` lines, writes one JSON line after each.

use std::fmt::Write;
use std::io::BufRead;

use serde::Serialize;
use weir_bittorrent::inference::{Inference, InferenceOptions};

use crate::cli::InferArgs;
use crate::exit::{Code, Failure, Outcome, print};

#[derive(Serialize)]
struct Line {
    samples: u64,
    piece_length: Option<u64>,
    confidence: f64,
}

pub(crate) fn run(args: &InferArgs) -> Outcome {
    let options =
        InferenceOptions { reset_heuristic: !args.no_reset, ..InferenceOptions::default() };
    let mut inference = Inference::new(options);
    let mut out = String::new();
    for (at, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        let fields: Result<Vec<u32>, _> = line.split_ascii_whitespace().map(str::parse).collect();
        let Ok([index, begin, length]) = fields.as_deref() else {
            let error = format!("line {}: expected INDEX BEGIN LENGTH, got {line:?}", at + 1);
            return Err(Failure::new(Code::Usage, error));
        };
        inference.observe(*index, *begin, *length);
        let estimate = inference.estimate();
        let line = Line {
            samples: at as u64 + 1,
            piece_length: estimate.as_ref().map(|e| u64::from(e.piece_bytes)),
            confidence: estimate.as_ref().map_or(0.0, |e| e.confidence),
        };
        let json = serde_json::to_string(&line).expect("numbers are JSON");
        writeln!(out, "{json}").expect("writing to a string does not fail");
    }
    print(&out)
}
