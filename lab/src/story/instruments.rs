//! `lab/instruments`: is what we measure with right?
//!
//! The emulated link's rate and delay, and every client's download over plain
//! forwarding. Refuted when the link is not what it says or a client that should
//! finish does not, so that no other story may be believed.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Conditions;
use super::swarm::{Swarm, state_conditions};
use crate::clients::Kind;
use crate::gateway::Mode;
use crate::link;
use crate::netns::Namespace;
use crate::process::Program;
use crate::record::data::Record;
use crate::topology::SEEDER;

/// Runs the story.
///
/// # Errors
/// When a part does not come up.
pub(super) fn run(at: &Conditions, record: &mut Record) -> Result<()> {
    let bytes = if at.quick { 24_000_000 } else { 64_000_000 };
    state_conditions(record, bytes);
    let mut swarm = Swarm::start(at, bytes, 6)?;
    link(record, &swarm)?;
    rates(record, at)?;

    let all = [
        (Kind::Transmission, "c2"),
        (Kind::Libtorrent, "c3"),
        (Kind::Deluge, "c4"),
        (Kind::Rtorrent, "c5"),
        (Kind::Aria2, "c6"),
        (Kind::LibtorrentUtp, "c7"),
    ];
    let sources = [swarm.by_file(), swarm.by_magnet()];
    for source in &sources {
        for who in &all {
            let outcomes = swarm.download(std::slice::from_ref(who), source, LIMIT)?;
            for outcome in outcomes {
                let name = format!("{} by {} is right", outcome.kind, outcome.source);
                let fault = outcome.fault.clone();
                record.holds(name, fault.is_none(), fault.unwrap_or_default());
                record.rows.push(outcome.row(Mode::None, "alone", bytes));
            }
        }
    }
    Ok(())
}

/// Round trip and rate of the emulated link.
fn link(record: &mut Record, swarm: &Swarm) -> Result<()> {
    let client = &swarm.net.host("c2")?.space;
    let server = &swarm.net.host("s3")?.space;
    let ping = client.run_line(&format!("ping -c 20 -i 0.1 -q {SEEDER}"))?;
    let median = parse_ping_ms(&ping).context("a ping without a summary")?;
    record.at_least("round trip of the link", median, 20.0, "ms");
    record.at_most("round trip of the link", median, 22.5, "ms");
    let six = client.run_line("ping -6 -c 3 -i 0.2 -q fd93:1::3");
    record.holds("IPv6 crosses the link", six.is_ok(), format!("{six:?}"));
    for (reverse, direction) in [(true, "inwards"), (false, "outwards")] {
        let mbit = iperf_mbit(client, server, SEEDER, reverse, 4, &swarm.work)?;
        record.at_least(format!("rate of the link {direction}"), mbit, 88.0, "Mbit/s");
        record.at_most(format!("rate of the link {direction}"), mbit, 100.0, "Mbit/s");
    }
    Ok(())
}

/// tbf and htb serve the rate they are set to.
fn rates(record: &mut Record, at: &Conditions) -> Result<()> {
    let (near, far) = (Namespace::create("q1")?, Namespace::create("q2")?);
    link::veth((&near, "q0"), (&far, "q0"))?;
    near.ip_line("addr add 93.0.9.1/30 dev q0")?;
    far.ip_line("addr add 93.0.9.2/30 dev q0")?;
    type Limit = fn(&Namespace, &str, u32) -> Result<()>;
    let limits: [(&str, Limit); 2] = [("tbf", link::limit_tbf), ("htb", link::limit_htb)];
    for (name, limit) in limits {
        limit(&near, "q0", 100)?;
        let mbit = iperf_mbit(&near, &far, "93.0.9.2", false, 2, &at.work)?;
        record.at_least(format!("{name} at 100 Mbit/s"), mbit, 85.0, "Mbit/s");
        record.at_most(format!("{name} at 100 Mbit/s"), mbit, 106.0, "Mbit/s");
        near.run_line("tc qdisc del dev q0 root")?;
    }
    Ok(())
}

/// One TCP stream by iperf3; `reverse` sends towards the client. Received Mbit/s.
///
/// # Errors
/// When iperf3 fails.
pub(super) fn iperf_mbit(
    client: &Namespace,
    server: &Namespace,
    address: &str,
    reverse: bool,
    secs: u32,
    logs: &std::path::Path,
) -> Result<f64> {
    let line = ["iperf3", "-s", "-1", "-p", "5201"].map(str::to_owned);
    let mut listening = Program::start(server, "iperf3-server", logs, &line)?;
    let port = || server.run_line("ss -Hltn sport = :5201");
    let (limit, every) = (Duration::from_secs(5), Duration::from_millis(20));
    crate::clock::wait_for("iperf3's port", limit, every, || {
        Ok((!port()?.trim().is_empty()).then_some(()))
    })?;
    let way = if reverse { "-R" } else { "" };
    let text = client.run_line(&format!("iperf3 -c {address} -p 5201 -t {secs} -J {way}"))?;
    listening.wait(limit)?;
    let answer: serde_json::Value = serde_json::from_str(&text)?;
    let rate = answer["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("an iperf3 answer without a rate")? / 1e6)
}

/// The average of `ping -q`'s summary: `rtt min/avg/max/mdev = a/b/c/d ms`.
fn parse_ping_ms(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("rtt"))?;
    line.split(" = ").nth(1)?.split('/').nth(1)?.parse().ok()
}

const LIMIT: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_of_ping_is_read() {
        let text = "--- x ---\nrtt min/avg/max/mdev = 20.1/20.5/21.0/0.2 ms\n";
        assert_eq!(parse_ping_ms(text), Some(20.5));
        assert_eq!(parse_ping_ms("nothing"), None);
    }
}
