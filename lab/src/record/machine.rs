//! Where a run was made: machine and commit, for the record.

use std::fs;
use std::thread;

use serde::Serialize;

use crate::netns::run;

/// The machine of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Processor model as the kernel tells it.
    pub(crate) cpu: String,
    /// Processors that this process may use.
    pub(crate) cpus: usize,
    /// Main memory in KiB.
    pub(crate) memory_kib: u64,
    /// Kernel release.
    pub(crate) kernel: String,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        let field = |path: &str, key: &str| -> String {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim_matches([' ', '\t', ':']).to_owned()
        };
        let memory = field("/proc/meminfo", "MemTotal:");
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            memory_kib: memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0),
            kernel: release.trim().to_owned(),
        }
    }
}

/// The commit of the source tree, `-dirty` when changed, `unknown` outside a tree.
pub(crate) fn commit() -> String {
    let dir = env!("CARGO_MANIFEST_DIR");
    run(
        "git",
        &[
            "--no-optional-locks",
            "-C",
            dir,
            "describe",
            "--always",
            "--dirty",
            "--abbrev=12",
            "--exclude=*",
        ],
    )
    .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
