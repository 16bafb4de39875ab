//! A control group with a limit of memory, page cache included.
//!
//! The group is of whichever hierarchy has the memory controller (cgroup v2, or v1
//! under `/sys/fs/cgroup/memory`). Page cache is charged to who reads or writes the
//! page, so a program in the group has a page cache of its own, as small as a data
//! set scaled down asks for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::janitor::Janitor;

/// A group that goes with its guard, or with this process.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    dir: PathBuf,
    version: Version,
    _janitor: Janitor,
}

/// Which hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl MemoryGroup {
    /// Makes the group `weir-lab-NAME`, limited to `limit_bytes`.
    ///
    /// # Errors
    /// When this machine has no memory controller or does not let us use it.
    pub(crate) fn create(name: &str, limit_bytes: u64) -> Result<Self> {
        let (root, version) = hierarchy(Path::new(ROOT))?;
        if version == Version::Two {
            // It may be switched on already, and then this is refused or does nothing.
            fs::write(root.join("cgroup.subtree_control"), "+memory").ok();
        }
        let dir = root.join(format!("weir-lab-{name}"));
        if !dir.exists() {
            fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
        }
        let janitor = Janitor::removing(&dir.to_string_lossy())?;
        let knob = version.limit();
        fs::write(dir.join(knob), limit_bytes.to_string())
            .with_context(|| format!("set {knob} to {limit_bytes}"))?;
        Ok(Self { dir, version, _janitor: janitor })
    }

    /// The command line that runs `command` in the group.
    pub(crate) fn command(&self, command: &[String]) -> Vec<String> {
        let enter = ["sh", "-c", "echo $$ > \"$0\" && exec \"$@\""].map(str::to_owned);
        let procs = self.dir.join("cgroup.procs").to_string_lossy().into_owned();
        enter.into_iter().chain([procs]).chain(command.iter().cloned()).collect()
    }

    /// The most bytes that were charged at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join(self.version.peak())).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// In words, for the record.
    pub(crate) fn hierarchy(&self) -> &'static str {
        match self.version {
            Version::One => "cgroup v1, memory.limit_in_bytes",
            Version::Two => "cgroup v2, memory.max",
        }
    }
}

impl Version {
    const fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    const fn peak(self) -> &'static str {
        match self {
            Self::One => "memory.max_usage_in_bytes",
            Self::Two => "memory.peak",
        }
    }
}

/// Where groups with a memory controller are made.
fn hierarchy(root: &Path) -> Result<(PathBuf, Version)> {
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        return Ok((root.to_path_buf(), Version::Two));
    }
    let one = root.join("memory");
    if one.join(Version::One.limit()).exists() {
        return Ok((one, Version::One));
    }
    bail!("no memory controller under {}", root.display())
}

const ROOT: &str = "/sys/fs/cgroup";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_the_one_with_a_memory_controller() {
        let dir = tempfile::tempdir().unwrap();
        assert!(hierarchy(dir.path()).is_err());
        fs::create_dir(dir.path().join("memory")).unwrap();
        fs::write(dir.path().join("memory/memory.limit_in_bytes"), "").unwrap();
        assert_eq!(hierarchy(dir.path()).unwrap().1, Version::One);
        fs::write(dir.path().join("cgroup.controllers"), "cpu memory io").unwrap();
        assert_eq!(hierarchy(dir.path()).unwrap(), (dir.path().to_path_buf(), Version::Two));
    }
}
