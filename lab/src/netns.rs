//! Network namespaces, made by `ip` and removed by a guard.
//!
//! Every namespace of the lab is named `wl-…`. The guard removes it when it is
//! dropped; [`sweep`] removes what a killed run left behind, with the processes
//! that still run in it. Nothing outside namespaces of that name is touched.

use std::fs::{self, File};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock;

/// What the name of every namespace of the lab begins with.
pub(crate) const PREFIX: &str = "wl-";

/// A network namespace that goes with its guard.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    owned: bool,
}

impl Namespace {
    /// Makes the namespace `wl-<role>` with its loopback device up.
    ///
    /// # Errors
    /// When `ip` refuses, most often for want of rights.
    pub(crate) fn create(role: &str) -> Result<Self> {
        let name = format!("{PREFIX}{role}");
        run("ip", &["netns", "add", &name])?;
        let space = Self { name, owned: true };
        space.ip(&["link", "set", "lo", "up"])?;
        Ok(space)
    }

    /// A namespace that somebody else removes.
    pub(crate) fn existing(name: &str) -> Self {
        Self { name: name.to_owned(), owned: false }
    }

    /// The name that `ip netns` knows it by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` on this namespace; `command` is split at blanks.
    ///
    /// # Errors
    /// When `ip` refuses; the error holds what it said.
    pub(crate) fn ip_line(&self, command: &str) -> Result<String> {
        self.ip(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `ip` on this namespace.
    ///
    /// # Errors
    /// When `ip` refuses; the error holds what it said.
    pub(crate) fn ip(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["-n", &self.name];
        all.extend_from_slice(args);
        run("ip", &all)
    }

    /// A command that will run in this namespace, with the machine's own file system.
    ///
    /// `nsenter` and not `ip netns exec`, which hides pinned BPF objects.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// Runs a short command in this namespace to its end; `line` is split at blanks.
    ///
    /// # Errors
    /// When it cannot be started or fails.
    pub(crate) fn run_line(&self, line: &str) -> Result<String> {
        let mut args = vec![format!("--net={}", self.path()), "--".to_owned()];
        args.extend(line.split_whitespace().map(str::to_owned));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run("nsenter", &args)
    }

    /// Runs `work` on a thread of its own that has entered the namespace.
    ///
    /// # Errors
    /// When the namespace is gone or the thread panicked.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let entered = scope.spawn(|| -> Result<T> {
                self.enter()?;
                Ok(work())
            });
            entered.join().map_err(|_| anyhow::anyhow!("work in {} panicked", self.name))?
        })
    }

    /// Moves the calling thread into the namespace, for good.
    ///
    /// # Errors
    /// When the namespace is gone.
    pub(crate) fn enter(&self) -> Result<()> {
        let file = File::open(self.path()).with_context(|| format!("open {}", self.path()))?;
        setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("enter {}", self.name))
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.owned
            && let Err(error) = remove(&self.name)
        {
            eprintln!("weir-lab: warning: {error:#}");
        }
    }
}

/// Removes every namespace of the lab's prefix and ends what runs in them.
///
/// # Errors
/// When the list cannot be read or a namespace will not go.
pub(crate) fn sweep() -> Result<()> {
    let Ok(entries) = fs::read_dir("/run/netns") else {
        return Ok(());
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) {
            remove(&name)?;
        }
    }
    Ok(())
}

/// Runs a command to its end and answers its standard output.
///
/// # Errors
/// When it cannot be started or fails; the error holds what it said.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(args).output().with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {} {}", args.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Ends the processes of a namespace, by their ids, and removes it.
fn remove(name: &str) -> Result<()> {
    let pids = |name: &str| -> Vec<i32> {
        let listed = run("ip", &["netns", "pids", name]).unwrap_or_default();
        listed.lines().filter_map(|line| line.trim().parse().ok()).collect()
    };
    for pid in pids(name) {
        // The process may have ended meanwhile, which is what is wanted.
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
    let limit = Duration::from_secs(5);
    clock::wait_for("the end of its processes", limit, Duration::from_millis(10), || {
        Ok(pids(name).is_empty().then_some(()))
    })
    .with_context(|| format!("remove {name}"))?;
    run("ip", &["netns", "del", name]).map(drop)
}
