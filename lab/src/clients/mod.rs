//! Real BitTorrent clients, unmodified, driven through their own interfaces.
//!
//! Each file writes one client's configuration, starts it in a namespace, gives
//! it a torrent file or a magnet link and asks how far it is. "Plaintext TCP" is
//! set by the client's own settings. A client is never asked to do what its user
//! could not.
//!
//! | client | how it is asked |
//! |---|---|
//! | transmission | JSON over its RPC port |
//! | libtorrent | a script on its Python binding |
//! | deluge | its RPC, by a script on its own client library |
//! | rtorrent | XML-RPC over SCGI |
//! | aria2 | JSON-RPC |

mod aria2;
mod deluge;
mod libtorrent;
mod rtorrent;
mod transmission;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::clock;
use crate::netns::Namespace;
use crate::process::Program;
use crate::topology::Host;

/// Which program, in which mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// aria2, which always dials with an MSE handshake.
    Aria2,
    /// deluged, plaintext TCP.
    Deluge,
    /// libtorrent by its Python binding, plaintext TCP.
    Libtorrent,
    /// libtorrent as the seeder: takes all connections, dials plaintext TCP.
    LibtorrentSeed,
    /// libtorrent left on uTP.
    LibtorrentUtp,
    /// rtorrent, plaintext TCP.
    Rtorrent,
    /// transmission-daemon, plaintext TCP.
    Transmission,
}

impl Kind {
    /// The name in tables and files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Aria2 => "aria2-mse",
            Self::Deluge => "deluge",
            Self::Libtorrent => "libtorrent",
            Self::LibtorrentSeed => "seeder",
            Self::LibtorrentUtp => "libtorrent-utp",
            Self::Rtorrent => "rtorrent",
            Self::Transmission => "transmission",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of libtorrent that a story needs; other clients ignore them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tuning<'a> {
    /// Addresses it does not talk to.
    pub(crate) blocked: &'a [&'a str],
    /// Seconds before it dials a lost peer again, 60 by its default.
    pub(crate) reconnect_secs: Option<u32>,
}

/// What a client is told to download.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A `.torrent` file.
    File(PathBuf),
    /// A magnet link.
    Magnet(String),
}

impl Source {
    /// The path or the link, as a user would give it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Magnet(link) => link.clone(),
        }
    }
}

/// How far a client is, by its own account.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct Progress {
    /// Every byte is there.
    pub(crate) done: bool,
    /// Bytes of the content it has.
    pub(crate) bytes: u64,
    /// Payload bytes it sent.
    pub(crate) uploaded: u64,
    /// Connected peers.
    pub(crate) peers: u64,
    /// Peers banned or pieces that failed their hash, where the client tells.
    pub(crate) bans: u64,
}

/// How a client is spoken to.
trait Control: Send {
    fn add(&mut self, at: &mut Place, source: &Source) -> Result<()>;
    fn progress(&mut self, at: &Place) -> Result<Progress>;
}

/// Where a client lives.
pub(crate) struct Place {
    space: Namespace,
    address: String,
    dir: PathBuf,
    programs: Vec<Program>,
}

impl Place {
    /// Where the content goes.
    fn save(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn run(&mut self, name: &str, line: &[String], env: &[(&str, String)]) -> Result<()> {
        self.programs.push(Program::start_with(&self.space, name, &self.dir, line, env)?);
        Ok(())
    }

    fn ensure_running(&mut self) -> Result<()> {
        self.programs.iter_mut().try_for_each(Program::ensure_running)
    }

    /// Hands the source to a script that waits for it.
    fn write_source(&self, source: &Source) -> Result<()> {
        // Renamed into place, so that the script never sees half of it.
        let part = self.dir.join("source.part");
        fs::write(&part, source.text())?;
        fs::rename(part, self.dir.join("source")).context("hand over the source")
    }

    /// The last whole JSON line of a program's log that has `key`.
    fn last_line(&self, log: &str, key: &str) -> Option<Value> {
        let text = fs::read(self.dir.join(log)).ok()?;
        let tail = &text[text.len().saturating_sub(4096)..];
        let text = String::from_utf8_lossy(tail);
        let whole = &text[..=text.rfind('\n')?];
        let lines = whole.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
        lines.into_iter().find(|value: &Value| value.get(key).is_some())
    }

    /// The state that a script wrote last.
    fn script_progress(&self, log: &str) -> Progress {
        let Some(line) = self.last_line(log, "done") else { return Progress::default() };
        let number = |key: &str| line.get(key).and_then(Value::as_u64).unwrap_or(0);
        Progress {
            done: line.get("done").and_then(Value::as_bool).unwrap_or(false),
            bytes: number("bytes"),
            uploaded: number("uploaded"),
            peers: number("peers"),
            bans: number("bans"),
        }
    }

    fn wait_ready(&mut self, log: &str) -> Result<()> {
        clock::wait_for("the client's start", START_LIMIT, START_POLL, || {
            self.ensure_running()?;
            Ok(self.last_line(log, "ready").map(drop))
        })
    }
}

/// A client that runs.
pub(crate) struct Client {
    kind: Kind,
    at: Place,
    control: Box<dyn Control>,
    added: Option<Instant>,
}

impl Client {
    /// Starts a client with an empty download directory under `dir`.
    ///
    /// # Errors
    /// When it does not come up within its time; the end of its log is told.
    pub(crate) fn start(kind: Kind, host: &Host, dir: &Path, tuning: Tuning<'_>) -> Result<Self> {
        let mut at = Place {
            space: Namespace::existing(host.space.name()),
            address: host.address.clone(),
            dir: dir.to_path_buf(),
            programs: Vec::new(),
        };
        fs::create_dir_all(at.save()).context("make the client's directory")?;
        let control =
            Self::control(kind, &mut at, tuning).with_context(|| format!("start {kind}"))?;
        Ok(Self { kind, at, control, added: None })
    }

    /// Starts a seeder that holds the content already, in place.
    ///
    /// # Errors
    /// As [`Client::start`].
    pub(crate) fn seed(host: &Host, dir: &Path, content: &Path, source: &Source) -> Result<Self> {
        let mut at = Place {
            space: Namespace::existing(host.space.name()),
            address: host.address.clone(),
            dir: dir.to_path_buf(),
            programs: Vec::new(),
        };
        fs::create_dir_all(dir)?;
        let control = libtorrent::start(&mut at, "seed", content, Tuning::default())?;
        let mut seeder = Self { kind: Kind::LibtorrentSeed, at, control, added: None };
        seeder.add(source)?;
        clock::wait_for("the seeder's check", Duration::from_secs(120), START_POLL, || {
            Ok(seeder.progress()?.done.then_some(()))
        })?;
        Ok(seeder)
    }

    /// Which one it is.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Tells it what to download; its time runs from here.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) fn add(&mut self, source: &Source) -> Result<()> {
        self.added = Some(clock::now());
        self.control.add(&mut self.at, source).with_context(|| format!("add to {}", self.kind))
    }

    /// Seconds since [`Client::add`].
    pub(crate) fn elapsed_secs(&self) -> f64 {
        self.added.map_or(0.0, |added| added.elapsed().as_secs_f64())
    }

    /// Asks how far it is.
    ///
    /// # Errors
    /// When it has ended or does not answer.
    pub(crate) fn progress(&mut self) -> Result<Progress> {
        self.at.ensure_running()?;
        self.control.progress(&self.at).with_context(|| format!("ask {}", self.kind))
    }

    /// Where its files are.
    pub(crate) fn save(&self) -> PathBuf {
        self.at.save()
    }

    /// Ends it.
    pub(crate) fn stop(&mut self) {
        for program in self.at.programs.iter_mut().rev() {
            program.stop();
        }
    }

    fn control(kind: Kind, at: &mut Place, tuning: Tuning<'_>) -> Result<Box<dyn Control>> {
        let save = at.save();
        match kind {
            Kind::Aria2 => Ok(aria2::start()),
            Kind::Deluge => deluge::start(at),
            Kind::Libtorrent => libtorrent::start(at, "tcp", &save, tuning),
            Kind::LibtorrentSeed => libtorrent::start(at, "seed", &save, tuning),
            Kind::LibtorrentUtp => libtorrent::start(at, "utp", &save, tuning),
            Kind::Rtorrent => rtorrent::start(at),
            Kind::Transmission => transmission::start(at),
        }
    }
}

const START_LIMIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(20);
/// Debian's own Python, the one that sees the packaged bindings.
const PYTHON: &str = "/usr/bin/python3";
