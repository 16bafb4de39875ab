//! `pcache/bystanders`: what is not ours does not notice the gateway.
//!
//! iperf3, HTTP, TLS and an interactive echo cross the router by turns without
//! and with the gateway, at the machine's own speed. Then the gateway is killed
//! while they run, and then 500 scripted peers greet at once. Refuted when
//! throughput falls below 95 % of plain forwarding, a digest differs, the gateway
//! spends more than 0.1 s of CPU per 10 GB, a flow breaks with the gateway, or
//! an adoption is wrong or takes a millisecond at the 99th percentile.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Conditions;
use super::instruments::iperf_mbit;
use crate::clock;
use crate::flows::{EchoServer, Greeting, PeerBatch, greet_all, greet_and_stay, keystrokes};
use crate::gateway::{Gateway, Mode};
use crate::meter;
use crate::netns::{self, Namespace};
use crate::process::Program;
use crate::record::data::Record;
use crate::record::figure::{Figure, Plot};
use crate::seed::SplitMix64;
use crate::topology::{INSIDE, SEEDER, Topology};
use crate::torrent::sha1_of;

/// One run of every bystander in one mode.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    tcp_mbit: f64,
    http_mbit: f64,
    tls_mbit: f64,
    echo_p50_ms: f64,
    echo_p99_ms: f64,
}

/// Runs the story.
///
/// # Errors
/// When a part does not come up or a bystander breaks.
pub(super) fn run(at: &Conditions, record: &mut Record) -> Result<()> {
    record.condition("No emulated link: veth pairs at the machine's speed, MTU 1500, offloads on.");
    record.condition(
        "The router forwards; both modes take turns within one run, and medians are compared.",
    );
    if at.quick {
        record.condition(
            "Shortened: three rounds of two seconds on a machine that may be busy with tests, \
             so that the bounds are wider than what is promised.",
        );
    }
    let net = Topology::build(2, None, &at.work)?;
    let servers = Servers::start(at, &net)?;
    let rounds = if at.quick { 3 } else { 9 };
    let mut measured: [Vec<Round>; 2] = [Vec::new(), Vec::new()];
    for number in 0..rounds {
        // Every other round begins with the other mode, so that a drift hits both.
        let turns = if number % 2 == 0 { [0, 1] } else { [1, 0] };
        for turn in turns {
            let (mode, told) = ([Mode::None, Mode::Caching][turn], &mut measured[turn]);
            let dir = at.work.join(format!("gateway-{number}"));
            let gateway = Gateway::start(&net, &at.weir, mode, &dir)?;
            told.push(servers.round(at, &net)?);
            drop(gateway);
        }
    }
    compare(record, &measured, at.quick);

    let dir = at.work.join("gateway");
    let mut gateway = Gateway::start(&net, &at.weir, Mode::Caching, &dir)?.context("a gateway")?;
    processor_time(at, record, &net, &gateway)?;
    adoptions(at, record, &net, &gateway)?;
    killed(at, record, &net, &servers, &mut gateway)
}

/// The servers outside, and the file that is fetched.
struct Servers {
    _web: Program,
    _tls: Program,
    _echo: EchoServer,
    digest: String,
    bytes: u64,
}

impl Servers {
    fn start(at: &Conditions, net: &Topology) -> Result<Self> {
        let space = &net.host("s3")?.space;
        let dir = at.work.join("www");
        fs::create_dir_all(&dir)?;
        let mut content = vec![0u8; if at.quick { 100_000_000 } else { 400_000_000 }];
        SplitMix64::new(at.seed).fill(&mut content);
        let bytes = content.len() as u64;
        fs::write(dir.join("file.bin"), content)?;
        let (key, cert) = (path(&dir, "key.pem"), path(&dir, "cert.pem"));
        netns::run(
            "openssl",
            &[
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=lab",
                "-keyout", &key, "-out", &cert,
            ],
        )?;
        let web = ["/usr/bin/python3", "-m", "http.server", "-d", &path(&dir, ""), "8000"];
        let tls = [
            "openssl", "s_server", "-quiet", "-WWW", "-accept", "8443", "-key", &key, "-cert",
            &cert,
        ];
        let start = |name: &str, line: &[&str]| {
            let line: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
            Program::start(space, name, &dir, &line)
        };
        let servers = Self {
            _web: start("web", &web)?,
            _tls: start("tls", &tls)?,
            _echo: EchoServer::start(space, echo_address()?, Greeting::None)?,
            digest: sha1_of(&dir.join("file.bin"))?,
            bytes,
        };
        for port in ["8000", "8443"] {
            let (limit, every) = (Duration::from_secs(10), Duration::from_millis(50));
            clock::wait_for("a server's port", limit, every, || {
                let listed = space.run_line(&format!("ss -Hltn sport = :{port}"))?;
                Ok((!listed.trim().is_empty()).then_some(()))
            })?;
        }
        Ok(servers)
    }

    fn round(&self, at: &Conditions, net: &Topology) -> Result<Round> {
        let client = &net.host("c2")?.space;
        let server = &net.host("s3")?.space;
        let secs = if at.quick { 2 } else { 5 };
        let tcp_mbit = iperf_mbit(client, server, SEEDER, true, secs, &at.work)?;
        let http_mbit =
            self.fetch(client, &format!("http://{SEEDER}:8000/file.bin"), &at.work, "")?;
        let tls_mbit =
            self.fetch(client, &format!("https://{SEEDER}:8443/file.bin"), &at.work, "")?;
        let count = if at.quick { 200 } else { 1000 };
        let mut times = keystrokes(client, echo_address()?, count, Duration::from_millis(2))?;
        times.sort_by(f64::total_cmp);
        let at_share = |share: usize| times[(times.len() - 1) * share / 100];
        Ok(Round {
            tcp_mbit,
            http_mbit,
            tls_mbit,
            echo_p50_ms: at_share(50),
            echo_p99_ms: at_share(99),
        })
    }

    /// Fetches the file by curl, compares it, and answers Mbit/s.
    fn fetch(&self, client: &Namespace, url: &str, dir: &Path, options: &str) -> Result<f64> {
        let out = path(dir, "fetched.bin");
        let start = clock::now();
        client.run_line(&format!("curl -sS -k --noproxy * {options} -o {out} {url}"))?;
        let secs = start.elapsed().as_secs_f64();
        let digest = sha1_of(Path::new(&out))?;
        fs::remove_file(&out)?;
        ensure!(digest == self.digest, "{url} came with SHA-1 {digest}, not {}", self.digest);
        Ok(self.bytes as f64 * 8e-6 / secs)
    }
}

fn compare(record: &mut Record, measured: &[Vec<Round>; 2], quick: bool) {
    let bound = if quick { 0.6 } else { 0.95 };
    type Of = fn(&Round) -> f64;
    let kinds: [(&str, Of); 5] = [
        ("TCP by iperf3", |round| round.tcp_mbit),
        ("HTTP", |round| round.http_mbit),
        ("TLS", |round| round.tls_mbit),
        (MEDIAN_ECHO, |round| round.echo_p50_ms),
        ("echo of a keystroke, 99th percentile", |round| round.echo_p99_ms),
    ];
    let mut bars = [Vec::new(), Vec::new()];
    for (name, of) in kinds {
        let [without, with] =
            measured.each_ref().map(|rounds| median(rounds.iter().map(of).collect()));
        record.rows.push(json!({
            "what": name,
            "without": measured[0].iter().map(of).collect::<Vec<_>>(),
            "with": measured[1].iter().map(of).collect::<Vec<_>>(),
        }));
        if name == MEDIAN_ECHO {
            // Half as much again and a fifth of a millisecond are within the
            // scheduler's noise on a loaded machine.
            record.at_most(format!("{name}, with the gateway"), with, without * 1.5 + 0.2, "ms");
        } else if !name.starts_with("echo") {
            record.at_least(
                format!("{name}: throughput, with to without"),
                with / without,
                bound,
                "x",
            );
            bars[0].push(without / 1e3);
            bars[1].push(with / 1e3);
        }
    }
    record.holds("HTTP and TLS digests are equal", true, "");
    let [without, with] = bars;
    record.figures.push(Figure {
        file: "pcache-bystanders".to_owned(),
        title: "Throughput of traffic that is not ours (medians)".to_owned(),
        x: "bystander".to_owned(),
        y: "Gbit/s".to_owned(),
        plot: Plot::Bars(
            ["iperf3", "HTTP", "TLS"].map(str::to_owned).to_vec(),
            vec![("plain forwarding".to_owned(), without), ("gateway running".to_owned(), with)],
        ),
    });
}

fn processor_time(
    at: &Conditions,
    record: &mut Record,
    net: &Topology,
    gateway: &Gateway,
) -> Result<()> {
    let (client, server) = (&net.host("c2")?.space, &net.host("s3")?.space);
    let before = (gateway.cpu_secs()?, meter::read_device(&net.router, INSIDE)?);
    let mbit = iperf_mbit(client, server, SEEDER, true, if at.quick { 5 } else { 20 }, &at.work)?;
    let moved = meter::read_device(&net.router, INSIDE)?.since(before.1);
    let spent = gateway.cpu_secs()? - before.0;
    let tens_of_gb = (moved.rx + moved.tx) as f64 / 1e10;
    record.rows.push(json!({"what": "processor time", "mbit": mbit, "cpu_secs": spent,
        "bytes": moved.rx + moved.tx}));
    let name = "gateway's CPU time per 10 GB of bystanders";
    record.at_most(name, spent / tens_of_gb, if at.quick { 0.5 } else { 0.1 }, "s");
    Ok(())
}

/// Peers of both families, dialled from either side, all greeting at once.
fn adoptions(
    at: &Conditions,
    record: &mut Record,
    net: &Topology,
    gateway: &Gateway,
) -> Result<()> {
    let (inside, outside) = (&net.host("c2")?.space, &net.host("s3")?.space);
    let each = if at.quick { 25 } else { 125 };
    let plans = [
        (inside, outside, "93.0.1.3:6881"),
        (inside, outside, "[fd93:1::3]:6881"),
        (outside, inside, "10.77.2.2:6881"),
        (outside, inside, "[fd77:2::2]:6881"),
    ];
    let before = gateway.status()?["adopt"]["adopted"].as_u64().unwrap_or(0);
    let mut servers = Vec::new();
    for (_, server, address) in plans {
        servers.push(EchoServer::start(server, address.parse()?, Greeting::BitTorrent)?);
    }
    let go = Arc::new(Barrier::new(each * plans.len()));
    let faults = thread::scope(|scope| -> Result<Vec<String>> {
        let mut batches = Vec::new();
        for (number, (dialler, _, address)) in (0_u64..).zip(plans) {
            let seed = SplitMix64::split(at.seed, number).word();
            let batch = PeerBatch { address: address.parse()?, count: each, seed };
            let go = &go;
            batches.push(scope.spawn(move || greet_all(dialler, &batch, go)));
        }
        let mut faults = Vec::new();
        for batch in batches {
            faults.extend(batch.join().map_err(|_| anyhow::anyhow!("a batch panicked"))??);
        }
        Ok(faults)
    })?;
    let total = each * plans.len();
    record.condition(format!(
        "Adoptions: {total} scripted peers connect, then greet at the same moment; a quarter each \
         IPv4 and IPv6, from inside and from outside; unknown messages are echoed and compared."
    ));
    let name = format!("all of {total} concurrent adoptions are right");
    record.holds(name, faults.is_empty(), format!("{} wrong: {:?}", faults.len(), faults.first()));
    let status = gateway.status()?;
    let adopted = status["adopt"]["adopted"].as_u64().unwrap_or(0).saturating_sub(before);
    record.at_least("flows adopted", adopted as f64, total as f64, "");
    let p99 = status["adopt"]["held_p99_us"].as_f64().unwrap_or(f64::NAN);
    record.at_most(
        "time a flow is held, 99th percentile",
        p99 / 1e3,
        if at.quick { 10.0 } else { 1.0 },
        "ms",
    );
    record.rows.push(json!({"what": "adoptions", "adopt": status["adopt"]}));
    Ok(())
}

/// Bystanders go on when the gateway is killed in the middle of sessions, these
/// end and do not hang, and new flows pass afterwards.
fn killed(
    at: &Conditions,
    record: &mut Record,
    net: &Topology,
    servers: &Servers,
    gateway: &mut Gateway,
) -> Result<()> {
    let client = &net.host("c2")?.space;
    let url = format!("http://{SEEDER}:8000/file.bin");
    let limit = format!("--limit-rate {}", servers.bytes / 4);
    let dirs = ["killed-a", "killed-b"].map(|name| at.work.join(name));
    for dir in &dirs {
        fs::create_dir_all(dir)?;
    }
    let address = format!("{SEEDER}:6882").parse()?;
    let _sessions_end = EchoServer::start(&net.host("s3")?.space, address, Greeting::BitTorrent)?;
    let batch = PeerBatch { address, count: SESSIONS_KILLED, seed: at.seed };
    let sessions = greet_and_stay(client, &batch)?;
    let active = gateway.status()?["apps"]["bittorrent"]["active"].as_u64().unwrap_or(0);
    record.at_least("sessions under way when it is killed", active as f64, 50.0, "");
    let (fetched, echoed) = thread::scope(|scope| {
        let fetch = scope.spawn(|| servers.fetch(client, &url, &dirs[0], &limit));
        let address = echo_address();
        let echo =
            scope.spawn(move || keystrokes(client, address?, 300, Duration::from_millis(10)));
        thread::sleep(Duration::from_secs(1));
        gateway.kill9();
        (fetch.join(), echo.join())
    });
    let fault = |text: String| (text.is_empty(), text);
    let (ok, found) = fault(match fetched {
        Ok(Ok(_)) => String::new(),
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => "panicked".to_owned(),
    });
    record.holds("a download goes on through kill -9, digest equal", ok, found);
    let (ok, found) = fault(match echoed {
        Ok(Ok(_)) => String::new(),
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => "panicked".to_owned(),
    });
    record.holds("an interactive flow goes on through kill -9", ok, found);
    // A read that times out is a session that hangs.
    let hanging = sessions.into_iter().filter_map(|mut session| {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        let read = std::io::Read::read(&mut session, &mut [0; 64]);
        read.err().filter(|error| matches!(error.kind(), TimedOut | WouldBlock))
    });
    let hanging = hanging.count();
    record.holds("killed sessions end for their clients", hanging == 0, format!("{hanging} hang"));
    let after = servers.fetch(client, &url, &dirs[1], "");
    record.holds("new flows pass with the gateway dead", after.is_ok(), format!("{after:?}"));
    let back = gateway.restart();
    record.holds("the gateway starts again", back.is_ok(), format!("{back:?}"));
    Ok(())
}

/// Sessions under way when the gateway is killed.
const SESSIONS_KILLED: usize = 50;

const MEDIAN_ECHO: &str = "echo of a keystroke, median";

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_string_lossy().into_owned()
}

fn echo_address() -> Result<SocketAddr> {
    format!("{SEEDER}:2222").parse().context("the echo server's address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_count_is_its_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
    }
}
