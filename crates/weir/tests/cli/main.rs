//! What an operator meets at the command line: exit codes, and words that say
//! what to do. Runs the binary; loopback only.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that meets the unexpected fails, and tells the time"
)]

mod cache;
mod lacking;
mod store;
mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use support::{Running, expect, said, weir};

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    expect(&["run", "--colour"], 64, "--colour");
    expect(&["fly"], 64, "fly");
    expect(&["run", "--cache-size", "5"], 64, "write a whole number");
    expect(&["cache", "rm", "xyz"], 64, "32 hexadecimal digits");
    expect(&["cache", "show"], 64, "<ID>");
}

#[test]
fn a_wrong_configuration_is_shown_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.toml");
    std::fs::write(&file, "[store]\ncapacitty = \"1GiB\"\n").unwrap();
    let name = file.to_str().unwrap();
    expect(&["run", "--config", name], 78, "capacitty");
    expect(&["check", "--config", name], 78, "weir config default");
    expect(&["run", "--config", "/nowhere/weir.toml"], 78, "/nowhere/weir.toml");
    expect(&["run", "--inside", "lo"], 78, "together");
    let adopt = ["run", "--inside", "no-such", "--outside", "lo", "--cache-size", "0"];
    expect(&[&adopt[..], &["--proxy", "off", "--api", "off"]].concat(), 78, "no-such");
    expect(&["run", "--api", "0.0.0.0:0"], 78, "WEIR_TOKEN");
}

#[test]
fn without_a_gateway_status_says_how_to_start_one() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    expect(&["status", "--api", &free], 69, "weir run");
    for args in [&["ls"][..], &["verify"], &["show", "abcd"], &["rm", "abcd"]] {
        expect(&[&["cache"], args, &["--api", &free]].concat(), 69, "no gateway answers");
    }
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_left_behind() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let args = ["run", "--proxy", &addr, "--api", "off", "--cache-dir", cache.to_str().unwrap()];
    expect(&args, 69, &addr);
    assert!(!cache.exists(), "a store was made for a gateway that did not start");
}

#[test]
fn help_and_defaults_are_data() {
    let help = weir(&["--help"]);
    assert!(help.status.success() && help.stderr.is_empty());
    let defaults = weir(&["config", "default"]);
    let text = String::from_utf8(defaults.stdout).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.toml");
    std::fs::write(&file, &text).unwrap();
    let shown = weir(&["config", "show", "--config", file.to_str().unwrap()]);
    assert!(shown.status.success(), "{}", said(&shown));
    assert_eq!(shown.stdout, weir(&["config", "show"]).stdout);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["config", "default"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_running_gateway_answers_and_stops_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path());
    let status = weir(&["status", "--json", "--api", &running.api]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["api_version"], 1);
    assert_eq!(status["store"]["capacity_bytes"], 64 << 20);
    let people = weir(&["status", "--api", &running.api]);
    assert!(String::from_utf8(people.stdout).unwrap().contains("asked for"));
    assert!(weir(&["cache", "ls", "--api", &running.api]).status.success());
    let id = "0".repeat(32);
    expect(&["cache", "rm", &id, "--api", &running.api], 1, "no object");
    let mut page = String::new();
    let mut socket = std::net::TcpStream::connect(&running.api).unwrap();
    write!(socket, "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    socket.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.0 200"), "{page}");
    running.end();
}
