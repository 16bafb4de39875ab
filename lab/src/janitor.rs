//! Takes back what a story set in the kernel, however the story ends.
//!
//! A janitor is a shell that waits for the end of a pipe which this process holds
//! open: at the guard's end, or when the process is killed, it runs its line. So
//! what is no process and no file of the working directory (a control group, an
//! instance of tracefs, a knob of a device) goes as well.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A line that runs when this is dropped or its process ends.
#[derive(Debug)]
pub(crate) struct Janitor {
    child: Child,
}

impl Janitor {
    /// Will run `line` as a shell does, with `args` as `$1` and on.
    ///
    /// # Errors
    /// When the shell cannot be started.
    pub(crate) fn start(line: &str, args: &[&str]) -> Result<Self> {
        let child = Command::new("sh")
            .args(["-c", &format!("read -r _; {line}"), "janitor"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start a janitor")?;
        Ok(Self { child })
    }

    /// Will remove the kernel's directory `path`, also when it is in use for up to
    /// ten seconds more.
    ///
    /// # Errors
    /// As [`Janitor::start`].
    pub(crate) fn removing(path: &str) -> Result<Self> {
        let line = "for _ in $(seq 200); do rmdir \"$1\" && exit 0; \
                    [ -d \"$1\" ] || exit 0; sleep 0.05; done; exit 1";
        Self::start(line, &[path])
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        match self.child.wait() {
            Ok(status) if status.success() => {}
            other => eprintln!("weir-lab: warning: clean-up: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_janitor_does_nothing_before_and_its_line_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("group");
        std::fs::create_dir(&inner).unwrap();
        let janitor = Janitor::removing(inner.to_str().unwrap()).unwrap();
        assert!(inner.exists());
        drop(janitor);
        assert!(!inner.exists());
    }
}
