//! The `weir` binary, run as an operator would run it.
//!
//! The invocation, the configuration and the names of what is asked of it are
//! all here and nowhere else in the lab.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::clock;
use crate::http;
use crate::netns::Namespace;
use crate::process::{self, Program};
use crate::topology::{INSIDE, OUTSIDE, Topology};

/// What stands between inside and outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Plain forwarding by the kernel; no gateway runs.
    None,
    /// The gateway runs and looks at flows, but adopts none.
    Passing,
    /// The gateway serves from its store.
    Caching,
}

impl Mode {
    /// The name in tables and files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Passing => "passing",
            Self::Caching => "caching",
        }
    }
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    program: Program,
    space: Namespace,
    weir: PathBuf,
    dir: PathBuf,
    mode: Mode,
}

impl Gateway {
    /// Starts the gateway on the router and waits until it is ready.
    ///
    /// Answers `None` in [`Mode::None`]. `dir` holds its configuration, its log
    /// and its store.
    ///
    /// # Errors
    /// When there is no binary or it is not ready within 20 seconds.
    pub(crate) fn start(
        net: &Topology,
        weir: &Path,
        mode: Mode,
        dir: &Path,
    ) -> Result<Option<Self>> {
        if mode == Mode::None {
            return Ok(None);
        }
        ensure!(weir.exists(), "no gateway at {} (build it, or name it by --weir)", weir.display());
        fs::create_dir_all(dir)?;
        fs::write(dir.join("weir.toml"), config(mode, &dir.join("store")))?;
        let space = Namespace::existing(net.router.name());
        let program = launch(&space, weir, dir)?;
        let mut gateway =
            Self { program, space, weir: weir.to_path_buf(), dir: dir.to_path_buf(), mode };
        gateway.wait_ready()?;
        Ok(Some(gateway))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// What it is set to do.
    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    /// Where its store is.
    pub(crate) fn store_dir(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// User-space and system CPU seconds so far.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn cpu_secs(&self) -> Result<f64> {
        process::cpu_secs(self.pid())
    }

    /// Fails with the end of its log when it is no longer running.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.program.ensure_running()
    }

    /// What `GET /api/v1/status` answers.
    ///
    /// # Errors
    /// When it does not answer with JSON.
    pub(crate) fn status(&self) -> Result<Value> {
        let answer = http::get(&self.space, api()?, "/api/v1/status")?;
        ensure!(answer.status == 200, "status answered {}", answer.status);
        answer.json()
    }

    /// Ends it as a crash would.
    pub(crate) fn kill9(&mut self) {
        self.program.kill9();
    }

    /// Asks it to end, as an operator would.
    pub(crate) fn stop(&mut self) {
        self.program.stop();
    }

    /// Starts it again on the same configuration and store.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.program.stop();
        self.program = launch(&self.space, &self.weir, &self.dir)?;
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<()> {
        clock::wait_for("the gateway's readiness", READY_LIMIT, READY_POLL, || {
            self.program.ensure_running()?;
            Ok(self.status().ok().map(drop))
        })
        .with_context(|| format!("its log ends:\n{}", self.program.log_tail()))
    }
}

fn launch(space: &Namespace, weir: &Path, dir: &Path) -> Result<Program> {
    let config = dir.join("weir.toml").to_string_lossy().into_owned();
    let weir = weir.to_string_lossy().into_owned();
    let line = [weir, "run".to_owned(), "--config".to_owned(), config];
    Program::start_with(space, "weir", dir, &line, &[("HOME", dir.to_string_lossy().into_owned())])
}

fn config(mode: Mode, store: &Path) -> String {
    format!(
        "[intercept]\ninside = [\"{INSIDE}\"]\noutside = [\"{OUTSIDE}\"]\n\n\
         [bittorrent]\nenabled = {}\n\n\
         [store]\ndir = \"{}\"\ncapacity = \"2GiB\"\n\n\
         [admin]\nlisten = \"{API}\"\n\n[explicit]\nlisten = \"127.0.0.1:3128\"\n",
        mode == Mode::Caching,
        store.display()
    )
}

fn api() -> Result<SocketAddr> {
    API.parse().context("the admin address")
}

const API: &str = "127.0.0.1:8480";
const READY_LIMIT: Duration = Duration::from_secs(20);
const READY_POLL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_caching_mode_turns_bittorrent_on() {
        let dir = Path::new("/store");
        assert!(config(Mode::Caching, dir).contains("[bittorrent]\nenabled = true"));
        assert!(config(Mode::Passing, dir).contains("[bittorrent]\nenabled = false"));
    }
}
