//! What the torrent stories share: a swarm, and clients that download from it.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Conditions;
use crate::clients::{Client, Kind, Progress, Source, Tuning};
use crate::clock;
use crate::gateway::Mode;
use crate::meter::{self, Meter, Readings};
use crate::process::Program;
use crate::topology::{INSIDE, OUTSIDE, Topology};
use crate::torrent::Torrent;
use crate::tracker;

/// A network with a tracker and a seeder that has everything.
pub(super) struct Swarm {
    // Dropped in this order: programs before the network they run in.
    seeder: Option<Client>,
    tracker: Option<Program>,
    /// The network.
    pub(super) net: Topology,
    /// What is downloaded.
    pub(super) torrent: Torrent,
    /// Where the files of clients go.
    pub(super) work: PathBuf,
    runs: u32,
}

/// How a client's download went.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Which client.
    pub(super) kind: Kind,
    /// `torrent` or `magnet`.
    pub(super) source: &'static str,
    /// Seconds from the command to the last byte; infinite when it never came.
    pub(super) secs: f64,
    /// Bytes that crossed the link towards this client.
    pub(super) link_bytes: u64,
    /// Most peers connected at once.
    pub(super) peers: u64,
    /// Payload bytes it says it sent.
    pub(super) uploaded: u64,
    /// Bans and failed pieces it tells of.
    pub(super) bans: u64,
    /// What is wrong with its files.
    pub(super) fault: Option<String>,
    /// (second, Mbit/s down, Mbit/s up) at its device.
    pub(super) rates: Vec<(f64, f64, f64)>,
    /// (second, connected peers).
    pub(super) peers_over_time: Vec<(f64, u64)>,
}

impl Outcome {
    /// The row of the record.
    pub(super) fn row(&self, mode: Mode, phase: &str, bytes: u64) -> Value {
        json!({
            "phase": phase,
            "mode": mode.name(),
            "client": self.kind.name(),
            "source": self.source,
            "secs": if self.secs.is_finite() { Value::from(self.secs) } else { Value::Null },
            "link_bytes_in": self.link_bytes,
            "link_share": self.link_bytes as f64 / bytes as f64,
            "peers_max": self.peers,
            "uploaded": self.uploaded,
            "bans": self.bans,
            "verified": self.fault.is_none(),
            "fault": self.fault,
            "rates_mbit": self.rates,
            "peers": self.peers_over_time,
        })
    }
}

impl Swarm {
    /// Builds the network with the link of the papers, makes the content, starts
    /// tracker and seeder.
    ///
    /// # Errors
    /// When a part does not come up.
    pub(super) fn start(at: &Conditions, bytes: u64, inside: usize) -> Result<Self> {
        Self::start_with_pieces(at, bytes, inside, PIECE_LOG2)
    }

    /// Like [`Swarm::start`], with pieces of 2 to the power of `piece_log2` bytes.
    ///
    /// # Errors
    /// When a part does not come up.
    pub(super) fn start_with_pieces(
        at: &Conditions,
        bytes: u64,
        inside: usize,
        piece_log2: u32,
    ) -> Result<Self> {
        let work = at.work.clone();
        let torrent = Torrent::create(&work, bytes, piece_log2, at.seed, &tracker::announce())?;
        let net = Topology::build(inside, Some(at.seed), &work)?;
        net.count_link_bytes()?;
        let mut swarm = Self { seeder: None, tracker: None, net, torrent, work, runs: 0 };
        swarm.restart()?;
        Ok(swarm)
    }

    /// Starts tracker and seeder anew, so that nothing of earlier downloads is remembered.
    ///
    /// # Errors
    /// When a part does not come up.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.seeder = None;
        self.tracker = None;
        let dir = self.new_dir("seeder")?;
        self.tracker = Some(tracker::start(&self.net, &dir, &self.torrent.info_hash)?);
        let (host, source) = (self.net.host("s3")?, Source::File(self.torrent.file.clone()));
        self.seeder = Some(Client::seed(host, &dir, &self.torrent.parent, &source)?);
        Ok(())
    }

    /// The torrent file.
    pub(super) fn by_file(&self) -> Source {
        Source::File(self.torrent.file.clone())
    }

    /// The magnet link.
    pub(super) fn by_magnet(&self) -> Source {
        Source::Magnet(self.torrent.magnet())
    }

    /// A new directory of this run.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn new_dir(&mut self, name: &str) -> Result<PathBuf> {
        self.runs += 1;
        let dir = self.work.join(format!("{:02}-{name}", self.runs));
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        Ok(dir)
    }

    /// Starts a client on a host, with nothing downloaded.
    ///
    /// # Errors
    /// When it does not come up.
    pub(super) fn client(&mut self, kind: Kind, host: &str, tuning: Tuning<'_>) -> Result<Client> {
        let dir = self.new_dir(kind.name())?;
        Client::start(kind, self.net.host(host)?, &dir, tuning)
    }

    /// Lets clients download at the same time and verifies what they got.
    ///
    /// Their files are removed afterwards. A client that does not finish within
    /// `limit` has a fault in its outcome; the others still count.
    ///
    /// # Errors
    /// When a client cannot be started, ends, or does not answer.
    pub(super) fn download(
        &mut self,
        who: &[(Kind, &str)],
        source: &Source,
        limit: Duration,
    ) -> Result<Vec<Outcome>> {
        let mut runs = Vec::new();
        for &(kind, host) in who {
            let client = self.client(kind, host, Tuning::default())?;
            runs.push(Run { client, host: host.to_owned(), last: None, peers: Vec::new() });
        }
        let before = self.net.link_bytes()?;
        let meter = Meter::start(&self.net.router, Duration::from_secs(1))?;
        for run in &mut runs {
            run.client.add(source)?;
        }
        poll(&mut runs, limit)?;
        let readings = meter.finish()?;
        let after = self.net.link_bytes()?;
        let mut outcomes = Vec::new();
        for run in runs {
            let host = self.net.host(&run.host)?;
            let count = |counts: &std::collections::BTreeMap<String, u64>| {
                counts.get(&host.address).copied().unwrap_or(0)
            };
            let link_bytes = count(&after) - count(&before);
            outcomes.push(self.outcome(run, source, link_bytes, &readings)?);
        }
        Ok(outcomes)
    }

    fn outcome(
        &self,
        mut run: Run,
        source: &Source,
        link_bytes: u64,
        readings: &Readings,
    ) -> Result<Outcome> {
        run.client.stop();
        let fault = match run.last {
            None => Some(format!("not done after {:.0} s", run.client.elapsed_secs())),
            Some(_) => self.torrent.verify(&run.client.save()).err().map(|e| format!("{e:#}")),
        };
        fs::remove_dir_all(run.client.save()).context("remove a client's files")?;
        let (secs, last) = run.last.unwrap_or_else(|| (f64::INFINITY, Progress::default()));
        // The port on the bridge sends what the client receives.
        let port = &self.net.host(&run.host)?.port;
        let rates = meter::rates(readings, port);
        let outcome = Outcome {
            kind: run.client.kind(),
            source: match source {
                Source::File(_) => "torrent",
                Source::Magnet(_) => "magnet",
            },
            secs,
            link_bytes,
            peers: run.peers.iter().map(|&(_, peers)| peers).max().unwrap_or(0),
            uploaded: last.uploaded,
            bans: last.bans,
            fault,
            rates: rates.into_iter().map(|(at, rx, tx)| (at, tx, rx)).collect(),
            peers_over_time: run.peers,
        };
        let verdict = outcome.fault.as_deref().unwrap_or("verified");
        eprintln!(
            "    {:15} {:7} {:6.1} s  {:6.1} MB over the link  {} peers  {verdict}",
            outcome.kind.name(),
            outcome.source,
            outcome.secs,
            outcome.link_bytes as f64 / 1e6,
            outcome.peers
        );
        Ok(outcome)
    }
}

struct Run {
    client: Client,
    host: String,
    last: Option<(f64, Progress)>,
    peers: Vec<(f64, u64)>,
}

fn poll(runs: &mut [Run], limit: Duration) -> Result<()> {
    let start = clock::now();
    while start.elapsed() < limit && runs.iter().any(|run| run.last.is_none()) {
        for run in runs.iter_mut().filter(|run| run.last.is_none()) {
            let progress = run.client.progress()?;
            let at = run.client.elapsed_secs();
            if run
                .peers
                .last()
                .is_none_or(|&(last, peers)| at - last >= 1.0 || peers < progress.peers)
            {
                run.peers.push((at, progress.peers));
            }
            if progress.done {
                run.last = Some((at, progress));
            }
        }
        thread::sleep(POLL_EVERY);
    }
    Ok(())
}

/// States the conditions that every torrent story has.
pub(super) fn state_conditions(record: &mut crate::record::data::Record, bytes: u64) {
    record.condition(format!(
        "A torrent of {bytes} bytes in three files, pieces of 256 KiB; content from the seed."
    ));
    record.condition(
        "Outside link: 100 Mbit/s each way, 20 ms round trip, 512 KiB queue, no loss, by the \
         lab's TUN emulator.",
    );
    record.condition(format!(
        "Inside clients sit on isolated bridge ports ({INSIDE}): they cannot trade among \
         themselves, so every byte comes through the router. Outside device: {OUTSIDE}."
    ));
    record.condition(
        "One seeder (libtorrent, takes plaintext, MSE and uTP, dials plaintext TCP). DHT, local \
         discovery and port mapping are off everywhere.",
    );
    record.condition(
        "The seeder takes 4,000 outstanding requests of a peer (its own setting, 2,000 by \
         default): Transmission 3.00 renews its requests once a second and so never passes \
         4,000 blocks a second, 524 Mbit/s, with or without a cache.",
    );
    record.condition(
        "Clients are unmodified Debian packages, set to plaintext TCP by their own settings; \
         Deluge, which has no key for uTP, by a plugin of two lines. rtorrent does not hash the \
         whole content again at completion.",
    );
    record.condition(
        "Link bytes are counted per inside address behind the link, on the way in, with IP \
         headers and retransmissions.",
    );
}

/// Pieces of 256 KiB.
const PIECE_LOG2: u32 = 18;
const POLL_EVERY: Duration = Duration::from_millis(100);
