//! `pcache/clients`: real clients download the same torrent, without and with the cache.
//!
//! In both modes the gateway runs; in the first it adopts nothing. After one
//! download that fills the store, every client downloads alone and all download
//! at once. Refuted when a byte is wrong, when more than 3 % of the content
//! crosses the link for a later client, when a later client is not three times as
//! fast, when it has fewer peers or gives less to outsiders, or when the outside
//! sees another address or port than the client's own.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::Conditions;
use super::swarm::{Outcome, Swarm, state_conditions};
use crate::capture::{Capture, Flow};
use crate::clients::{Kind, Tuning};
use crate::clock;
use crate::gateway::{Gateway, Mode};
use crate::record::data::Record;
use crate::record::figure::{Figure, Line, Plot};
use crate::topology::{INSIDE, SEEDER};

/// What one mode gave.
struct Told {
    mode: Mode,
    first: Option<Outcome>,
    alone: Vec<Outcome>,
    together: Vec<Outcome>,
    /// Bytes an outsider got from inside clients within the window.
    given: u64,
    /// Most peers that the giving clients had, summed.
    given_peers: u64,
}

/// Runs the story.
///
/// # Errors
/// When a part does not come up.
pub(super) fn run(at: &Conditions, record: &mut Record) -> Result<()> {
    let bytes = if at.quick { 24_000_000 } else { FULL_BYTES };
    state_conditions(record, bytes);
    record.condition(
        "Times run from the command to the client until its last byte; what a client waits by \
         itself before its first request is in them (Transmission: about 11 s).",
    );
    let mut swarm = Swarm::start(at, bytes, CLIENTS.len() + BESIDE.len())?;
    let passing = mode(at, record, &mut swarm, Mode::Passing)?;
    let caching = mode(at, record, &mut swarm, Mode::Caching)?;
    every_file_verifies(record, &[&passing, &caching]);
    later_clients(record, &passing, &caching, bytes, at.quick);
    beside(record, &caching, bytes);
    figures(record, &passing, &caching, bytes);
    Ok(())
}

fn mode(at: &Conditions, record: &mut Record, swarm: &mut Swarm, mode: Mode) -> Result<Told> {
    eprintln!("  gateway {}", mode.name());
    let bytes = swarm.torrent.bytes;
    swarm.restart()?;
    let dir = swarm.new_dir("gateway")?;
    let mut gateway = Gateway::start(&swarm.net, &at.weir, mode, &dir)?;
    let wires = Wires::start(swarm, &dir)?;
    let limit = if at.quick { Duration::from_secs(60) } else { Duration::from_secs(900) };
    let mut told = Told {
        mode,
        first: None,
        alone: Vec::new(),
        together: Vec::new(),
        given: 0,
        given_peers: 0,
    };

    let by_file = swarm.by_file();
    if mode == Mode::Caching {
        let outcomes = swarm.download(&[(Kind::Libtorrent, "c3")], &by_file, limit)?;
        told.first = outcomes.into_iter().next();
    }
    let sources = [by_file.clone(), swarm.by_magnet()];
    for source in sources.iter().take(if at.quick { 1 } else { 2 }) {
        for who in &CLIENTS {
            told.alone.extend(swarm.download(std::slice::from_ref(who), source, limit)?);
        }
    }
    // A short run shows all at once with the cache only, and by magnet link,
    // which it has not shown yet.
    if mode == Mode::Caching || !at.quick {
        let mut who = CLIENTS.to_vec();
        if mode == Mode::Caching {
            who.extend(BESIDE);
        }
        let source = if at.quick { &sources[1] } else { &sources[0] };
        told.together = swarm.download(&who, source, limit)?;
    }
    (told.given, told.given_peers) = given(at, swarm)?;
    for (phase, outcomes) in
        [("first", told.first.as_slice()), ("alone", &told.alone), ("together", &told.together)]
    {
        record.rows.extend(outcomes.iter().map(|outcome| outcome.row(mode, phase, bytes)));
    }
    record.rows.push(json!({"phase": "given", "mode": mode.name(), "bytes": told.given,
        "peers": told.given_peers}));
    wires.finish(record, mode)?;
    if let Some(gateway) = &mut gateway {
        gateway.ensure_running()?;
        record.rows.push(json!({
            "phase": "gateway",
            "mode": gateway.mode().name(),
            "status": gateway.status()?,
            "cpu_secs": gateway.cpu_secs()?,
        }));
    }
    Ok(told)
}

/// Bytes that reach an outsider who may fetch from inside clients only, and the
/// most peers that those had together.
fn given(at: &Conditions, swarm: &mut Swarm) -> Result<(u64, u64)> {
    // Tracker and seeder are new, so that the outsider hears of live peers only.
    swarm.restart()?;
    let source = swarm.by_file();
    let tuning = Tuning { blocked: &[SEEDER], ..Tuning::default() };
    let mut outsider = swarm.client(Kind::Libtorrent, "s4", tuning)?;
    let mut insiders = Vec::new();
    for (kind, host) in [(Kind::Libtorrent, "c3"), (Kind::Rtorrent, "c5")] {
        insiders.push(swarm.client(kind, host, Tuning::default())?);
    }
    outsider.add(&source)?;
    // The tracker must know the outsider before the insiders ask it.
    thread::sleep(Duration::from_secs(1));
    for insider in &mut insiders {
        insider.add(&source)?;
    }
    let start = clock::now();
    let window = Duration::from_secs(if at.quick { 8 } else { 30 });
    let (mut bytes, mut peers) = (0, 0);
    while start.elapsed() < window {
        thread::sleep(Duration::from_millis(200));
        bytes = outsider.progress()?.bytes;
        let mut sum = 0;
        for insider in &mut insiders {
            sum += insider.progress()?.peers;
        }
        peers = peers.max(sum);
    }
    eprintln!("    outsider got {:.1} MB from inside clients", bytes as f64 / 1e6);
    for mut client in insiders.into_iter().chain([outsider]) {
        client.stop();
        std::fs::remove_dir_all(client.save())?;
    }
    Ok((bytes, peers))
}

fn every_file_verifies(record: &mut Record, modes: &[&Told]) {
    for told in modes {
        let outcomes = told.first.iter().chain(&told.alone).chain(&told.together);
        let faults: Vec<String> = outcomes
            .clone()
            .filter_map(|o| Some(format!("{} by {}: {}", o.kind, o.source, o.fault.as_ref()?)))
            .collect();
        let name = format!("gateway {}: every file of every client verifies", told.mode.name());
        record.holds(name, faults.is_empty() && outcomes.count() > 0, faults.join("; "));
        let bans: u64 = told.alone.iter().chain(&told.together).map(|o| o.bans).sum();
        let name = format!("gateway {}: bans and failed pieces told", told.mode.name());
        record.at_most(name, bans as f64, 0.0, "");
    }
}

fn later_clients(record: &mut Record, passing: &Told, caching: &Told, bytes: u64, quick: bool) {
    let pairs = |a: &[Outcome], b: &[Outcome]| -> Vec<(Outcome, Outcome)> {
        let same = |x: &Outcome, y: &Outcome| x.kind == y.kind && x.source == y.source;
        b.iter().filter_map(|y| Some((a.iter().find(|x| same(x, y))?.clone(), y.clone()))).collect()
    };
    for (phase, outcomes) in [("alone", &caching.alone), ("at once", &caching.together)] {
        for outcome in outcomes {
            if BESIDE.iter().any(|&(kind, _)| kind == outcome.kind) {
                continue;
            }
            let name =
                format!("{} by {}, {phase}: content over the link", outcome.kind, outcome.source);
            record.at_most(name, share(outcome, bytes) * 100.0, 3.0, "%");
        }
    }
    let phases = [
        ("alone", &passing.alone, &caching.alone),
        ("at once", &passing.together, &caching.together),
    ];
    for (phase, without, with) in phases {
        for (before, after) in pairs(without, with) {
            let who = format!("{} by {}, {phase}", after.kind, after.source);
            // Of 24 MB the client's own start is the larger part, so that a short
            // run can only show that the cache is not slower.
            let bound = if quick { 0.8 } else { 3.0 };
            record.at_least(format!("{who}: times as fast"), before.secs / after.secs, bound, "x");
            record.at_least(
                format!("{who}: peers connected"),
                after.peers as f64,
                before.peers as f64,
                "",
            );
        }
    }
    let ratio = caching.given as f64 / passing.given as f64;
    record.at_least("bytes given to an outsider, with to without", ratio, GIVEN_RATIO, "x");
    // A client that is done drops the seeder; of 24 MB it is done before it has
    // heard of anybody else.
    if !quick {
        let (with, without) = (caching.given_peers as f64, passing.given_peers as f64);
        record.at_least("peers of the two clients that give", with, without, "");
    }
    record.condition(
        "Given to outsiders: what a libtorrent outside, barred from the seeder, has after a fixed \
         time from two inside clients; runs of the same kind differ by 3 %, which the bound allows.",
    );
}

fn beside(record: &mut Record, caching: &Told, bytes: u64) {
    for outcome in &caching.together {
        if BESIDE.iter().any(|&(kind, _)| kind == outcome.kind) {
            let fault = outcome.fault.clone();
            let name = format!("{} beside the cached ones is right", outcome.kind);
            record.holds(name, fault.is_none(), fault.unwrap_or_default());
            let name = format!("{} got its bytes from outside", outcome.kind);
            record.at_least(name, share(outcome, bytes) * 100.0, 97.0, "%");
        }
    }
}

/// The two captures that show whether addresses and ports are the clients' own.
struct Wires {
    inside: Capture,
    outside: Capture,
}

impl Wires {
    fn start(swarm: &Swarm, dir: &Path) -> Result<Self> {
        let inside = Capture::start(
            &swarm.net.router,
            INSIDE,
            "tcp[tcpflags] & tcp-syn != 0",
            HEADERS,
            (dir, "in"),
        )?;
        // Of what reaches the seeder, connections and payload, not every ack.
        let filter = format!(
            "tcp and dst host {SEEDER} and (tcp[tcpflags] & tcp-syn != 0 or \
             ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) != 0)"
        );
        let seeder = &swarm.net.host("s3")?.space;
        let outside = Capture::start(seeder, "eth0", &filter, HEADERS, (dir, "out"))?;
        Ok(Self { inside, outside })
    }

    fn finish(self, record: &mut Record, mode: Mode) -> Result<()> {
        let inside = self.inside.finish()?;
        let outside = self.outside.finish()?;
        let is_own = |flow: &&Flow| inside.contains(flow) || inside.contains(&flow.reverse());
        // The tracker's own traffic does not reach the seeder; its peers' does.
        let strange: BTreeSet<String> = outside
            .iter()
            .filter(|flow| !flow.from.ip().to_string().starts_with("93.0.1."))
            .filter(|flow| !is_own(flow))
            .map(|flow| format!("{} to {}", flow.from, flow.to))
            .collect();
        let name = format!(
            "gateway {}: the seeder sees clients' own addresses and ports ({} flows)",
            mode.name(),
            outside.len()
        );
        let found = strange.into_iter().collect::<Vec<_>>().join(", ");
        record.holds(name, found.is_empty() && !outside.is_empty(), found);
        Ok(())
    }
}

fn figures(record: &mut Record, passing: &Told, caching: &Told, bytes: u64) {
    let label = |outcome: &Outcome| {
        let by = if outcome.source == "magnet" { " (m)" } else { "" };
        format!("{}{by}", outcome.kind)
    };
    let groups: Vec<String> = caching.alone.iter().map(label).collect();
    let secs = |told: &Told| told.alone.iter().map(|outcome| outcome.secs).collect::<Vec<_>>();
    let link = |told: &Told| told.alone.iter().map(|o| share(o, bytes) * 100.0).collect::<Vec<_>>();
    let bars = |file: &str, title: String, y: &str, values: &dyn Fn(&Told) -> Vec<f64>| Figure {
        file: format!("pcache-clients-{file}"),
        title,
        x: "client, one after another; (m) by magnet link".to_owned(),
        y: y.to_owned(),
        plot: Plot::Bars(
            groups.clone(),
            vec![
                ("without the cache".to_owned(), values(passing)),
                ("with the cache".to_owned(), values(caching)),
            ],
        ),
    };
    let size = format!("{} MB", bytes / 1_000_000);
    let title = format!("Download time of {size} behind 100 Mbit/s, 20 ms");
    record.figures.push(bars("time", title, "time, s", &secs));
    let title = format!("Share of {size} that crossed the outside link");
    record.figures.push(bars("link", title, "content, %", &link));

    let mut lines = Vec::new();
    for told in [passing, caching] {
        let with = if told.mode == Mode::Caching { "with" } else { "without" };
        for outcome in told.alone.iter().filter(|outcome| outcome.source == "torrent") {
            let points: Vec<(f64, f64)> =
                outcome.rates.iter().map(|&(t, down, _)| (t, down)).collect();
            let name = format!("{} {with}", outcome.kind);
            record.series.push(crate::record::data::Series {
                name: format!("{name}: down"),
                unit: "Mbit/s".to_owned(),
                points: points.clone(),
            });
            if [Kind::Libtorrent, Kind::Transmission].contains(&outcome.kind) {
                lines.push(Line::measured(name, points));
            }
        }
    }
    record.figures.push(Figure {
        file: "pcache-clients-rates".to_owned(),
        title: format!("Receiving {size}, without and with the cache"),
        x: "time since the command, s".to_owned(),
        y: "received, Mbit/s".to_owned(),
        plot: Plot::Lines(lines),
    });
}

fn share(outcome: &Outcome, bytes: u64) -> f64 {
    outcome.link_bytes as f64 / bytes as f64
}

/// The cached clients and their hosts.
const CLIENTS: [(Kind, &str); 4] = [
    (Kind::Transmission, "c2"),
    (Kind::Libtorrent, "c3"),
    (Kind::Deluge, "c4"),
    (Kind::Rtorrent, "c5"),
];

/// Those that run beside and are not ours: MSE and uTP.
const BESIDE: [(Kind, &str); 2] = [(Kind::Aria2, "c6"), (Kind::LibtorrentUtp, "c7")];

/// Enough of a packet for its addresses and ports.
const HEADERS: u32 = 96;

/// So large that what Transmission waits by itself (11 s, by magnet link 15 s, and 5 s
/// until it asks at full speed) does not decide its time.
const FULL_BYTES: u64 = 1_200_000_000;

/// "Not lower", less what two runs of the same kind differ by.
const GIVEN_RATIO: f64 = 0.97;
