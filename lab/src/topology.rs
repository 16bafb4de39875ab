//! The network of the stories: inside clients, a router, a link, an outside.
//!
//! ```text
//!  c2 c3 c4 …   10.77.2.x  fd77:2::x           tr .2  s3 .3  s4 .4
//!   └──┴──┴── lan0 [rt] wan0 ── up0 [lk] em0 ~~ em0 [ex] ex0 ──┴────┴
//!     bridge, ports        93.0.2.0/30    TUN link      93.0.1.0/24
//!     isolated                            emulator      fd93:1::/64
//! ```
//!
//! Inside ports are isolated from each other: clients cannot trade among
//! themselves, so every byte they get comes through the router. Every address is
//! public-looking outside, because clients treat RFC 1918 specially. Without
//! emulation `wan0` leads straight to the outside, at the speed of the machine.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::clock;
use crate::emulator::drive::EmulateArgs;
use crate::link;
use crate::netns::Namespace;
use crate::process::Program;

/// A host of the network: a namespace with one device and its addresses.
#[derive(Debug)]
pub(crate) struct Host {
    /// Where its programs run.
    pub(crate) space: Namespace,
    /// Its IPv4 address.
    pub(crate) address: String,
    /// The other end of its device, on the bridge.
    pub(crate) port: String,
}

/// The network; everything of it goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Topology {
    // Dropped in this order: the emulator before the namespaces it runs in.
    emulator: Option<Program>,
    hosts: BTreeMap<String, Host>,
    /// The router, where the gateway runs.
    pub(crate) router: Namespace,
    between: Option<Namespace>,
    exchange: Namespace,
}

/// The router's device towards the clients.
pub(crate) const INSIDE: &str = "lan0";
/// The router's device towards the link.
pub(crate) const OUTSIDE: &str = "wan0";
/// Address of the tracker.
pub(crate) const TRACKER: &str = "93.0.1.2";
/// Address of the seeder.
pub(crate) const SEEDER: &str = "93.0.1.3";

impl Topology {
    /// Builds the network with `inside` clients and the three outside hosts.
    ///
    /// `seed` decides what the emulated link does; `None` leaves the link out.
    ///
    /// # Errors
    /// When a device cannot be made; what was made until then is removed.
    pub(crate) fn build(inside: usize, link_seed: Option<u64>, logs: &Path) -> Result<Self> {
        let router = Namespace::create("rt")?;
        let exchange = Namespace::create("ex")?;
        forward(&router)?;
        forward(&exchange)?;
        bridge(&router, INSIDE, "10.77.2.1/24", "fd77:2::1/64")?;
        bridge(&exchange, "ex0", "93.0.1.1/24", "fd93:1::1/64")?;

        let between = match link_seed {
            Some(_) => Some(Namespace::create("lk")?),
            None => None,
        };
        let next = between.as_ref().unwrap_or(&exchange);
        link::veth((&router, OUTSIDE), (next, "up0"))?;
        address(&router, OUTSIDE, "93.0.2.2/30", "fd93:2::2/64")?;
        address(next, "up0", "93.0.2.1/30", "fd93:2::1/64")?;
        default_route(&router, "93.0.2.1", "fd93:2::1")?;

        let mut net = Self { emulator: None, hosts: BTreeMap::new(), router, between, exchange };
        net.join_outside(link_seed, logs)?;
        for number in 2..2 + inside {
            let (name, host) = (format!("c{number}"), format!("10.77.2.{number}"));
            net.add_host(&name, &host, &format!("fd77:2::{number}"), true)?;
        }
        for (name, number) in [("tr", 2), ("s3", 3), ("s4", 4)] {
            let host = format!("93.0.1.{number}");
            net.add_host(name, &host, &format!("fd93:1::{number}"), false)?;
        }
        Ok(net)
    }

    /// The host of that name: `c2`, `c3`, … inside; `tr`, `s3`, `s4` outside.
    ///
    /// # Errors
    /// When the network has no such host.
    pub(crate) fn host(&self, name: &str) -> Result<&Host> {
        self.hosts.get(name).with_context(|| format!("no host {name} in this network"))
    }

    /// Begins to count bytes per inside address, behind the link, on their way in.
    ///
    /// # Errors
    /// When nft refuses.
    pub(crate) fn count_link_bytes(&self) -> Result<()> {
        let behind = self.between.as_ref().unwrap_or(&self.exchange);
        behind.run_line("nft add table ip wl")?;
        behind.run_line("nft add chain ip wl in { type filter hook forward priority 0 ; }")?;
        let inside = self.hosts.values().filter(|host| host.address.starts_with("10.77."));
        for host in inside {
            let (name, address) = (host.port.replace('-', "_"), &host.address);
            behind.run_line(&format!("nft add counter ip wl {name}"))?;
            behind.run_line(&format!(
                "nft add rule ip wl in ip daddr {address} counter name {name}"
            ))?;
        }
        Ok(())
    }

    /// Bytes that crossed the link towards each inside address.
    ///
    /// # Errors
    /// When [`Topology::count_link_bytes`] was not called.
    pub(crate) fn link_bytes(&self) -> Result<BTreeMap<String, u64>> {
        let behind = self.between.as_ref().unwrap_or(&self.exchange);
        let listed: Value = serde_json::from_str(&behind.run_line("nft -j list counters")?)?;
        let items = listed["nftables"].as_array().context("a list without items")?;
        let count = |host: &Host| {
            let name = host.port.replace('-', "_");
            let item = items.iter().find(|item| item["counter"]["name"] == name.as_str())?;
            Some((host.address.clone(), item["counter"]["bytes"].as_u64()?))
        };
        Ok(self.hosts.values().filter_map(count).collect())
    }

    fn join_outside(&mut self, link_seed: Option<u64>, logs: &Path) -> Result<()> {
        let (Some(between), Some(seed)) = (&self.between, link_seed) else {
            return routes_inwards(&self.exchange, "via 93.0.2.2", "via fd93:2::2");
        };
        forward(between)?;
        let args = EmulateArgs::between(between, &self.exchange, seed);
        let mut line = vec![env::current_exe()?.to_string_lossy().into_owned()];
        line.extend(args.command_line());
        let mut emulator = Program::start(between, "emulator", logs, &line)?;
        for space in [between, &self.exchange] {
            let ready = || {
                emulator.ensure_running()?;
                Ok(space.ip_line("link set em0 txqueuelen 10000 up").ok())
            };
            clock::wait_for("the emulated link", SETUP_LIMIT, SETUP_POLL, ready)?;
        }
        between.ip_line("route add 93.0.1.0/24 dev em0")?;
        between.ip_line("-6 route add fd93:1::/64 dev em0")?;
        routes_inwards(between, "via 93.0.2.2", "via fd93:2::2")?;
        self.exchange.ip_line("route add 93.0.2.0/30 dev em0")?;
        self.exchange.ip_line("-6 route add fd93:2::/64 dev em0")?;
        routes_inwards(&self.exchange, "dev em0", "dev em0")?;
        self.emulator = Some(emulator);
        Ok(())
    }

    fn add_host(&mut self, name: &str, host: &str, host6: &str, isolated: bool) -> Result<()> {
        let (side, master, gateway, gateway6) = if isolated {
            (&self.router, INSIDE, "10.77.2.1", "fd77:2::1")
        } else {
            (&self.exchange, "ex0", "93.0.1.1", "fd93:1::1")
        };
        let space = Namespace::create(name)?;
        let port = format!("p-{name}");
        link::veth((side, &port), (&space, "eth0"))?;
        link::join_bridge(side, &port, master, isolated)?;
        address(&space, "eth0", &format!("{host}/24"), &format!("{host6}/64"))?;
        default_route(&space, gateway, gateway6)?;
        let entry = Host { space, address: host.to_owned(), port };
        self.hosts.insert(name.to_owned(), entry);
        Ok(())
    }
}

fn forward(space: &Namespace) -> Result<()> {
    space.run_line("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1").map(drop)
}

fn bridge(space: &Namespace, name: &str, v4: &str, v6: &str) -> Result<()> {
    space.ip_line(&format!("link add {name} type bridge"))?;
    address(space, name, v4, v6)
}

fn address(space: &Namespace, device: &str, v4: &str, v6: &str) -> Result<()> {
    space.ip_line(&format!("addr add {v4} dev {device}"))?;
    // No duplicate detection: the address must work at once.
    space.ip_line(&format!("-6 addr add {v6} dev {device} nodad"))?;
    space.ip_line(&format!("link set {device} up")).map(drop)
}

fn default_route(space: &Namespace, gateway: &str, gateway6: &str) -> Result<()> {
    space.ip_line(&format!("route add default via {gateway}"))?;
    space.ip_line(&format!("-6 route add default via {gateway6}")).map(drop)
}

fn routes_inwards(space: &Namespace, how: &str, how6: &str) -> Result<()> {
    space.ip_line(&format!("route add 10.77.2.0/24 {how}"))?;
    space.ip_line(&format!("-6 route add fd77:2::/64 {how6}")).map(drop)
}

const SETUP_LIMIT: Duration = Duration::from_secs(5);
const SETUP_POLL: Duration = Duration::from_millis(20);
