//! A gateway between two networks, in namespaces.
//!
//! client (10.1.0.2, fd01::2) - gateway - server (10.2.0.2, fd02::2). Everything
//! is removed when a [`Lab`] is dropped, also by a panic.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::ends::Ends;
use crate::tun::{Tunnel, Wire, Wires};

pub(crate) struct Lab {
    pub(crate) client: String,
    pub(crate) gateway: String,
    pub(crate) server: String,
    router: Option<String>,
    tunnel: Option<Tunnel>,
    // Last: the next test begins when all the rest is removed.
    _alone: MutexGuard<'static, ()>,
}

/// All constructors give nothing, and say so, where the tests may not make
/// namespaces.
impl Lab {
    pub(crate) fn new() -> Option<Self> {
        let lab = Self::bare()?;
        lab.wire("gin", &lab.client, 1);
        lab.wire("gout", &lab.server, 2);
        Some(lab)
    }

    /// With a router before the server that takes packets of 1300 bytes only.
    pub(crate) fn with_narrow_path() -> Option<Self> {
        let mut lab = Self::bare()?;
        let router = lab.gateway.replace("-g-", "-r-");
        run("ip", &["netns", "add", &router], "");
        lab.router = Some(router.clone());
        lab.wire("gin", &lab.client, 1);
        lab.wire("gout", &router, 3);
        lab.wire_to(&router, "near", &lab.server, 2);
        let (gateway, server) = (&lab.gateway, &lab.server);
        run("ip", &["-n", gateway, "route", "add", "10.2.0.0/24", "via", "10.3.0.2"], "");
        run("ip", &["-n", gateway, "route", "add", "fd02::/64", "via", "fd03::2"], "");
        run("ip", &["-n", &router, "link", "set", "near", "mtu", "1300"], "");
        // The server still offers an MSS for 1500 bytes.
        run("ip", &["-n", server, "link", "set", "eth0", "mtu", "1500"], "");
        lab.forward(&router);
        Some(lab)
    }

    /// With a TUN device, bare IP packets, as the outside interface.
    pub(crate) fn with_tunnel() -> Option<Self> {
        let mut lab = Self::bare()?;
        lab.wire("gin", &lab.client, 1);
        lab.tunnel = Some(Tunnel::start(&lab.gateway, "gout", &lab.server, "eth0"));
        lab.address(&lab.gateway, "gout", 2, 1);
        lab.address(&lab.server, "eth0", 2, 2);
        lab.default_route(&lab.server, 2);
        Some(lab)
    }

    /// With nobody on either side but the test, which writes every packet itself.
    pub(crate) fn scripted() -> Option<(Self, Wires)> {
        let lab = Self::bare()?;
        let open = |name, net| {
            let wire = Wire::open(&lab.gateway, name);
            lab.address(&lab.gateway, name, net, 1);
            wire
        };
        let (inside, outside) = (open("gin", 1), open("gout", 2));
        Some((lab, Wires { inside, outside }))
    }

    /// A third way into the gateway, which nobody watches.
    ///
    /// Early demultiplexing is off, as on many routers: with it the kernel finds the
    /// leg a packet is not for, and drops the packet where it is forwarded.
    pub(crate) fn bypass(&self) -> Wire {
        let wire = Wire::open(&self.gateway, "gby");
        self.address(&self.gateway, "gby", 4, 1);
        for interface in ["all", "gby"] {
            self.sysctl(&self.gateway, &format!("net/ipv4/conf/{interface}/rp_filter"), "0");
        }
        self.sysctl(&self.gateway, "net/ipv4/ip_early_demux", "0");
        wire
    }

    fn bare() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Two processors: scenarios that measure or wait do not run side by side.
        static ALONE: Mutex<()> = Mutex::new(());
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let lab = Self {
            client: format!("wk-c-{id}"),
            gateway: format!("wk-g-{id}"),
            server: format!("wk-s-{id}"),
            router: None,
            tunnel: None,
            _alone: alone,
        };
        for name in [&lab.client, &lab.gateway, &lab.server] {
            run("ip", &["netns", "add", name], "");
            run("ip", &["-n", name, "link", "set", "lo", "up"], "");
        }
        lab.forward(&lab.gateway);
        Some(lab)
    }

    fn forward(&self, ns: &str) {
        self.sysctl(ns, "net/ipv4/ip_forward", "1");
        self.sysctl(ns, "net/ipv6/conf/all/forwarding", "1");
    }

    fn wire(&self, interface: &str, host: &str, net: u8) {
        self.wire_to(&self.gateway, interface, host, net);
    }

    fn wire_to(&self, near: &str, interface: &str, host: &str, net: u8) {
        let link = ["-n", near, "link", "add", interface, "type", "veth", "peer", "name", "eth0"];
        run("ip", &[&link[..], &["netns", host]].concat(), "");
        self.address(near, interface, net, 1);
        self.address(host, "eth0", net, 2);
        self.default_route(host, net);
    }

    fn address(&self, ns: &str, dev: &str, net: u8, last: u8) {
        run(
            "ip",
            &["-n", ns, "-batch", "-"],
            &format!(
                "addr add 10.{net}.0.{last}/24 dev {dev}\n\
                 addr add fd0{net}::{last}/64 dev {dev} nodad\n\
                 link set {dev} up\n"
            ),
        );
    }

    fn default_route(&self, ns: &str, net: u8) {
        run(
            "ip",
            &["-n", ns, "-batch", "-"],
            &format!("route add default via 10.{net}.0.1\nroute add ::/0 via fd0{net}::1\n"),
        );
    }

    pub(crate) fn sysctl(&self, ns: &str, key: &str, value: &str) {
        let (path, value) = (format!("/proc/sys/{key}"), value.to_owned());
        in_ns(ns, move || std::fs::write(path, value).unwrap()).join().unwrap();
    }

    /// Runs a program in the gateway.
    pub(crate) fn in_gateway(&self, arguments: &[&str]) {
        run("ip", &[&["netns", "exec", &self.gateway], arguments].concat(), "");
    }

    pub(crate) fn nft(&self, rules: &str) {
        run("ip", &["netns", "exec", &self.gateway, "nft", "-f", "-"], rules);
    }

    /// The two ends of connections to the server or, from outside, to the client.
    pub(crate) fn ends(&self, v6: bool, dialer_is_inside: bool, port: u16) -> Ends {
        let (dialer, listener, net) = if dialer_is_inside {
            (&self.client, &self.server, 2)
        } else {
            (&self.server, &self.client, 1)
        };
        let to = SocketAddr::new(host(v6, net), port);
        Ends { dialer_ns: dialer.clone(), listener_ns: listener.clone(), to, dialed: to }
    }
}

/// The only host of a network.
pub(crate) fn host(v6: bool, net: u8) -> IpAddr {
    let text = if v6 { format!("fd0{net}::2") } else { format!("10.{net}.0.2") };
    text.parse().unwrap()
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tunnel = None;
        for name in [&self.client, &self.gateway, &self.server].into_iter().chain(&self.router) {
            Command::new("ip").args(["netns", "del", name]).status().ok();
        }
    }
}

/// Runs `work` on a thread of a namespace.
pub(crate) fn in_ns<T: Send + 'static>(
    ns: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let path = format!("/run/netns/{ns}");
    thread::Builder::new()
        .stack_size(512 * 1024)
        .spawn(move || {
            let file = File::open(&path).unwrap();
            nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
        .unwrap()
}

pub(crate) fn run(program: &str, arguments: &[&str], input: &str) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}
