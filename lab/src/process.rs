//! Programs under test: started in a namespace, logged to a file, ended by pid.
//!
//! A program is its own process group, so that an interrupt of the terminal
//! reaches the lab alone and the lab ends what it started. Dropping the guard
//! asks politely, waits, and then insists.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock;
use crate::netns::Namespace;

/// A running program and its log.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
    stopped: bool,
}

impl Program {
    /// Starts `command` in a namespace; output goes to `dir/name.log`.
    ///
    /// # Errors
    /// When the log cannot be written or the program cannot be started.
    pub(crate) fn start(
        space: &Namespace,
        name: &str,
        dir: &Path,
        command: &[String],
    ) -> Result<Self> {
        Self::start_with(space, name, dir, command, &[])
    }

    /// Like [`Program::start`], with environment variables.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub(crate) fn start_with(
        space: &Namespace,
        name: &str,
        dir: &Path,
        command: &[String],
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let (program, args) = command.split_first().context("an empty command")?;
        let mut command = space.command(program);
        command.args(args).envs(environment.iter().map(|(key, value)| (*key, value)));
        Self::spawn(command, name, dir)
    }

    fn spawn(mut command: Command, name: &str, dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let log = dir.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log)?;
        let err = out.try_clone()?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .current_dir(dir)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log, stopped: false })
    }

    /// Its process id; the same program that the namespace's list shows.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its output goes.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log, for an error.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Fails with the end of the log when the program is no longer running.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended early ({status}):\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Waits for the program to end by itself.
    ///
    /// # Errors
    /// When it did not within `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        let status = clock::wait_for(&what, limit, POLL_EVERY, || Ok(self.child.try_wait()?))?;
        self.stopped = true;
        Ok(status)
    }

    /// Asks it to end, and insists after five seconds.
    pub(crate) fn stop(&mut self) {
        if self.stopped {
            return;
        }
        self.signal(Signal::SIGTERM);
        if self.wait(Duration::from_secs(5)).is_err() {
            self.kill9();
        }
    }

    /// Ends it as a crash would.
    pub(crate) fn kill9(&mut self) {
        self.signal(Signal::SIGKILL);
        // A child that was sent SIGKILL ends; the wait takes its status away.
        drop(self.child.wait());
        self.stopped = true;
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // It may have ended by itself.
            kill(Pid::from_raw(pid), signal).ok();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A process's CPU time so far, user and system, in seconds.
///
/// # Errors
/// When the process is gone.
pub(crate) fn cpu_secs(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read its CPU time")?;
    parse_cpu_ticks(&stat).map(|ticks| ticks / TICKS_PER_SEC).context("a stat line without times")
}

/// Fields 14 and 15 of proc(5) `stat`; the name before them may hold blanks.
fn parse_cpu_ticks(stat: &str) -> Option<f64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(ticks(11)? + ticks(12)?)
}

/// `USER_HZ`, 100 on every Linux architecture that Weir builds for.
const TICKS_PER_SEC: f64 = 100.0;

const POLL_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_a_name_with_blanks_and_brackets() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0";
        assert_eq!(parse_cpu_ticks(stat), Some(300.0));
        assert_eq!(parse_cpu_ticks("12 (x"), None);
    }
}
