//! What fio reaches: the same file, size of block and depth.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::Sample;

/// The options that make fio fastest here, beside those that make it comparable.
const OPTIONS: &[&str] = &[
    "--name=device",
    "--rw=randread",
    "--direct=1",
    "--readonly",
    "--norandommap",
    "--randrepeat=0",
    "--time_based",
    "--output-format=json",
];

/// Runs fio for `seconds`; `fixed` registers its file and buffers with the kernel.
pub(crate) fn run(
    file: &Path,
    block_bytes: usize,
    depth: usize,
    seconds: u64,
    fixed: bool,
) -> io::Result<Sample> {
    let mut command = Command::new("fio");
    command.args(OPTIONS).arg(format!("--filename={}", file.display()));
    command.arg(format!("--bs={block_bytes}")).arg(format!("--iodepth={depth}"));
    command.arg(format!("--runtime={seconds}")).arg("--ioengine=io_uring");
    if fixed {
        command.args(["--fixedbufs", "--registerfiles"]);
    }
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("fio failed: {said}")));
    }
    let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let job = &found["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_default();
    Ok(Sample {
        bytes_per_sec: number(&job["read"]["bw_bytes"]),
        cpu: (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0,
    })
}
