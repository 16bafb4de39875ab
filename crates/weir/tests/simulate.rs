//! `weir simulate`: every format of a trace, and what an operator meets when it is
//! none. Runs the binary.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn simulate(trace: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("simulate").arg(trace).args(args).output().unwrap()
}

fn file(dir: &tempfile::TempDir, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join("trace");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The JSON answer.
fn answer(trace: &Path, args: &[&str]) -> serde_json::Value {
    let output = simulate(trace, &[args, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The code, and something the message must hold.
fn refuses(trace: &Path, args: &[&str], code: i32, words: &str) {
    let output = simulate(trace, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(words), "{args:?}: {said}");
}

/// Two downloads of one object of 250 bytes, one of another of 100.
const P2P: &str = "time_s,object,offset,length,download
0.1,7,0,100,0
0.2,7,100,100,0
0.3,9,0,100,1
0.4,7,200,50,0
0.5,7,0,100,2
0.6,7,200,50,2
";

#[test]
fn a_p2p_trace_is_replayed_by_segments_or_whole() {
    let dir = tempfile::tempdir().unwrap();
    let trace = file(&dir, P2P);
    let segments = ["--segment", "100B", "--policy", "lru", "--capacity", "350B"];
    let told = answer(&trace, &segments);
    assert_eq!(told["version"], 1);
    let totals = &told["trace"];
    assert_eq!((&totals["requests"], &totals["downloads"]), (&6.into(), &3.into()));
    let result = &told["results"][0];
    assert_eq!((&result["policy"], &result["hits"]), (&"lru".into(), &2.into()));
    assert_eq!((&result["hit_bytes"], &result["admitted_bytes"]), (&150.into(), &350.into()));
    // A download is one request for 250 bytes, and the other object pushed it out.
    let whole = ["--whole-objects", "--policy", "lru", "--capacity"];
    let told = answer(&trace, &[&whole[..], &["349B"]].concat());
    assert_eq!((&told["trace"]["requests"], &told["results"][0]["hits"]), (&3.into(), &0.into()));
    let told = answer(&trace, &[&whole[..], &["350B"]].concat());
    assert_eq!(told["results"][0]["hit_bytes"], 250);
}

#[test]
fn web_and_oracle_traces_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let web = "time_ms,client,object,size\n1,1,5,300\n2,1,6,10\n3,2,5,300\n";
    let args = ["--policy", "sieve", "--capacity", "100%", "--whole-objects"];
    let told = answer(&file(&dir, web), &args);
    assert_eq!(told["results"][0]["capacity_bytes"], 610);
    assert_eq!(told["results"][0]["hit_bytes"], 300);

    let record = |id: u64| {
        let words = [&7_u32.to_le_bytes()[..], &id.to_le_bytes(), &64_u32.to_le_bytes()];
        [&words.concat()[..], &(-1_i64).to_le_bytes()].concat()
    };
    let ids = [(1 << 20) | 1, (1 << 20) | 2, (1 << 20) | 1];
    let trace = file(&dir, ids.map(record).concat());
    let told = answer(&trace, &["--policy", "lru", "--capacity", "1kB"]);
    assert_eq!((&told["trace"]["objects"], &told["trace"]["downloads"]), (&2.into(), &3.into()));
    let told = answer(&trace, &["--policy", "lru", "--capacity", "1kB", "--object-bits", "20"]);
    assert_eq!((&told["trace"]["objects"], &told["trace"]["downloads"]), (&1.into(), &2.into()));
    assert_eq!(told["results"][0]["hits"], 1);
}

#[test]
fn every_policy_is_told_in_a_table_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let output = simulate(&file(&dir, P2P), &["--segment", "100B", "--capacity", "50%,100%"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("6 requests, 500 B, 2 objects, 3 downloads"), "{text}");
    for policy in ["object-frequency", "segment-lru", "w-tinylfu"] {
        assert_eq!(text.matches(&format!("  {policy} ")).count(), 2, "{text}");
    }
    assert!(output.stderr.is_empty());
}

#[test]
fn segments_larger_than_ranges_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let output = simulate(&file(&dir, P2P), &["--policy", "lru", "--capacity", "1kB"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("choose a smaller --segment"), "{said}");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, format!("{P2P}0.7,7,zero,100,2\n"));
    refuses(&path, &[], 64, "line 8: offset is no whole number: \"zero\"");
    refuses(&path, &["--object-bits", "20"], 64, "--object-bits is for oracleGeneral");
    refuses(&path, &["--policy", "lur"], 64, "there is no policy \"lur\"");
    refuses(&path, &["--capacity", "5"], 64, "a percentage, \"2.5%\" say");
    refuses(&path, &["--segment", "0"], 64, "a segment of 0");
    refuses(&dir.path().join("none"), &[], 1, "No such file");
    refuses(&file(&dir, "one line\n"), &[], 64, "neither text that begins with a known line");
    refuses(&file(&dir, ""), &[], 64, "has no requests");
    refuses(
        &file(&dir, "time_s,object\n"),
        &[],
        64,
        "line 1: \"time_s,object\" is no known header",
    );
}
