//! Three namespaces, a daemon, and two ends that check each other's bytes.
//!
//! client (10.1.0.2, fd01::2) - gateway - server (10.2.0.2, fd02::2). Everything
//! is removed when a [`Lab`] is dropped, also by a panic.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir_linux::{Adopted, Adopter, GiveBackError, KernelSignature, Options, Speaker};

use crate::tun::Tunnel;

pub(crate) const HANDSHAKE: &[u8] = b"\x13BitTorrent protocol";
pub(crate) const GREETING: &[u8] = b"GREETING-";
pub(crate) const COUNTED: &[u8] = b"COUNT ME";

/// Whether these tests can run; says so when not.
pub(crate) fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

pub(crate) struct Lab {
    pub(crate) client: String,
    pub(crate) gateway: String,
    pub(crate) server: String,
    router: Option<String>,
    tunnel: Option<Tunnel>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Self::bare();
        lab.wire("gin", &lab.client, 1);
        lab.wire("gout", &lab.server, 2);
        lab
    }

    /// With a router before the server that takes packets of 1300 bytes only.
    pub(crate) fn with_narrow_path() -> Self {
        let mut lab = Self::bare();
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
        lab.sysctl(&router, "net/ipv4/ip_forward", "1");
        lab.sysctl(&router, "net/ipv6/conf/all/forwarding", "1");
        lab
    }

    /// With a TUN device, bare IP packets, as the outside interface.
    pub(crate) fn with_tunnel() -> Self {
        let mut lab = Self::bare();
        lab.wire("gin", &lab.client, 1);
        lab.tunnel = Some(Tunnel::start(&lab.gateway, "gout", &lab.server, "eth0"));
        lab.address(&lab.gateway, "gout", &lab.server, 2);
        lab
    }

    fn bare() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let lab = Self {
            client: format!("wk-c-{id}"),
            gateway: format!("wk-g-{id}"),
            server: format!("wk-s-{id}"),
            router: None,
            tunnel: None,
        };
        for name in [&lab.client, &lab.gateway, &lab.server] {
            run("ip", &["netns", "add", name], "");
            run("ip", &["-n", name, "link", "set", "lo", "up"], "");
        }
        lab.sysctl(&lab.gateway, "net/ipv4/ip_forward", "1");
        lab.sysctl(&lab.gateway, "net/ipv6/conf/all/forwarding", "1");
        lab
    }

    fn wire(&self, interface: &str, host: &str, net: u8) {
        self.wire_to(&self.gateway, interface, host, net);
    }

    fn wire_to(&self, near: &str, interface: &str, host: &str, net: u8) {
        let link = ["-n", near, "link", "add", interface, "type", "veth", "peer", "name", "eth0"];
        run("ip", &[&link[..], &["netns", host]].concat(), "");
        self.address(near, interface, host, net);
    }

    /// Addresses on both ends of a link, and the far end's default route.
    fn address(&self, near: &str, interface: &str, host: &str, net: u8) {
        for (name, dev, last) in [(near, interface, 1), (host, "eth0", 2)] {
            run(
                "ip",
                &["-n", name, "-batch", "-"],
                &format!(
                    "addr add 10.{net}.0.{last}/24 dev {dev}\n\
                     addr add fd0{net}::{last}/64 dev {dev} nodad\n\
                     link set {dev} up\n"
                ),
            );
        }
        run(
            "ip",
            &["-n", host, "-batch", "-"],
            &format!("route add default via 10.{net}.0.1\nroute add ::/0 via fd0{net}::1\n"),
        );
    }

    pub(crate) fn sysctl(&self, ns: &str, key: &str, value: &str) {
        let (path, value) = (format!("/proc/sys/{key}"), value.to_owned());
        in_ns(ns, move || std::fs::write(path, value).unwrap()).join().unwrap();
    }

    pub(crate) fn nft(&self, rules: &str) {
        let rules = rules.to_owned();
        in_ns(&self.gateway, move || run("nft", &["-f", "-"], &rules)).join().unwrap();
    }

    /// The server's (or, from outside, the client's) address.
    pub(crate) fn listener_ip(&self, v6: bool, dialer_is_inside: bool) -> IpAddr {
        let net = if dialer_is_inside { 2 } else { 1 };
        let text = if v6 { format!("fd0{net}::2") } else { format!("10.{net}.0.2") };
        text.parse().unwrap()
    }
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

/// What one end sends: `first` in so many writes, then `body_len` seeded bytes.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) first: Vec<Vec<u8>>,
    /// After each write of `first`.
    pub(crate) gap: Duration,
    pub(crate) body_len: usize,
    /// Bytes of the other end to read before the first write.
    pub(crate) after: usize,
    pub(crate) seed: u64,
}

impl Script {
    pub(crate) fn new(first: &[u8], body_len: usize, seed: u64) -> Self {
        Self { first: vec![first.to_vec()], gap: Duration::ZERO, body_len, after: 0, seed }
    }

    pub(crate) fn whole(&self) -> Vec<u8> {
        let mut all = self.first.concat();
        all.extend(bytes(self.body_len, self.seed));
        all
    }

    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        for part in &self.first {
            stream.write_all(part)?;
            if !self.gap.is_zero() {
                thread::sleep(self.gap);
            }
        }
        if self.body_len > 0 {
            stream.write_all(&bytes(self.body_len, self.seed))?;
        }
        stream.shutdown(std::net::Shutdown::Write)
    }
}

pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            state.to_be_bytes()[0]
        })
        .collect()
}

/// One end's life: send the script, read the other's to its end, compare.
pub(crate) fn converse(
    mut stream: TcpStream,
    mine: &Script,
    theirs: &Script,
) -> Result<(), String> {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut got = vec![0; mine.after];
    stream.read_exact(&mut got).map_err(|error| format!("first read: {error}"))?;
    let mine = mine.clone();
    let sent = thread::Builder::new()
        .stack_size(256 * 1024)
        .spawn(move || mine.send(&mut writer))
        .unwrap();
    let read = stream.read_to_end(&mut got);
    let sent = sent.join().unwrap();
    read.map_err(|error| format!("read after {} bytes: {error}", got.len()))?;
    sent.map_err(|error| format!("write: {error}"))?;
    let expected = theirs.whole();
    if got == expected {
        Ok(())
    } else {
        Err(format!("{} bytes instead of {}, or others", got.len(), expected.len()))
    }
}

pub(crate) struct Ends {
    pub(crate) dialer_ns: String,
    pub(crate) listener_ns: String,
    pub(crate) to: SocketAddr,
}

impl Lab {
    pub(crate) fn ends(&self, v6: bool, dialer_is_inside: bool, port: u16) -> Ends {
        let (dialer, listener) = if dialer_is_inside {
            (&self.client, &self.server)
        } else {
            (&self.server, &self.client)
        };
        Ends {
            dialer_ns: dialer.clone(),
            listener_ns: listener.clone(),
            to: SocketAddr::new(self.listener_ip(v6, dialer_is_inside), port),
        }
    }
}

impl Ends {
    /// `count` connections one after another or at once; the peers' addresses as
    /// the listener saw them, and as the dialers had them.
    pub(crate) fn talk(
        &self,
        count: usize,
        dialer: &Script,
        listener: &Script,
    ) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        self.talk_through(count, dialer, dialer, listener)
    }

    /// As [`Self::talk`], where the listener gets `arriving` of what is sent.
    pub(crate) fn talk_through(
        &self,
        count: usize,
        dialer: &Script,
        arriving: &Script,
        listener: &Script,
    ) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let to = self.to;
        let (ready, is_ready) = channel();
        let (mine, theirs) = (listener.clone(), arriving.clone());
        let accepting = in_ns(&self.listener_ns, move || {
            let socket = TcpListener::bind(to).unwrap();
            // The standard library's backlog of 128 is not enough for 500.
            nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::new(1024).unwrap())
                .unwrap();
            ready.send(()).unwrap();
            let mut peers = Vec::new();
            let mut threads = Vec::new();
            for _ in 0..count {
                let (stream, peer) = socket.accept().unwrap();
                peers.push(peer);
                let (mine, theirs) = (mine.clone(), theirs.clone());
                threads.push(
                    thread::Builder::new()
                        .stack_size(256 * 1024)
                        .spawn(move || converse(stream, &mine, &theirs))
                        .unwrap(),
                );
            }
            let results: Vec<_> =
                threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            (peers, results)
        });
        is_ready.recv().unwrap();
        let dialing: Vec<_> = (0..count)
            .map(|_| {
                let (mine, theirs) = (dialer.clone(), listener.clone());
                in_ns(&self.dialer_ns, move || {
                    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap();
                    let local = stream.local_addr().unwrap();
                    (local, converse(stream, &mine, &theirs))
                })
            })
            .collect();
        let mut locals = Vec::new();
        let mut failures = Vec::new();
        for dialer in dialing {
            let (local, result) = dialer.join().unwrap();
            locals.push(local);
            failures.extend(result.err().map(|error| format!("dialer {local}: {error}")));
        }
        assert!(failures.is_empty(), "{} of {count}: {failures:?}", failures.len());
        let (peers, results) = accepting.join().unwrap();
        let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert!(failures.is_empty(), "listener, {} of {count}: {failures:?}", failures.len());
        (peers, locals)
    }
}

/// What became of an adopted flow, beside its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) dialer_is_inside: bool,
    pub(crate) app: u16,
    pub(crate) prefix: Vec<u8>,
    pub(crate) held: Duration,
    pub(crate) built: Duration,
}

/// What the daemon does with what it adopts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Relays to the end.
    Relay,
    /// Moves the first payload, then gives the flow back.
    GiveBack,
    /// Adds a byte to the first payload, then tries to give the flow back, and
    /// relays it when that is refused.
    Meddle,
    /// Does not look at the ring before [`Daemon::listen`]; then relays.
    Deaf,
}

pub(crate) struct Daemon {
    pub(crate) adopter: Arc<Adopter>,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) given_back: Receiver<Result<(), String>>,
    stop: Arc<AtomicBool>,
    listening: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn options() -> Options {
    Options {
        inside: vec!["gin".to_owned()],
        outside: vec!["gout".to_owned()],
        mark: 0x4000_0000,
        table: 100,
        rule_pref: 100,
        flows_max: 16_384,
        adopted_max: 4096,
    }
}

pub(crate) fn signatures() -> Vec<KernelSignature> {
    let signature = |value: &[u8], from, app, adopt| KernelSignature {
        offset: 0,
        value: value.to_vec(),
        mask: vec![0xff; value.len()],
        from,
        app,
        adopt,
    };
    vec![
        signature(HANDSHAKE, Speaker::Either, 1, true),
        signature(GREETING, Speaker::Listener, 2, true),
        signature(COUNTED, Speaker::Dialer, 3, false),
    ]
}

impl Daemon {
    pub(crate) fn start(lab: &Lab, role: Role) -> Self {
        Self::start_with(lab, role, options())
    }

    pub(crate) fn start_with(lab: &Lab, role: Role, options: Options) -> Self {
        let (send, receive) = channel();
        let (give_backs, given_back) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let listening = Arc::new(AtomicBool::new(role != Role::Deaf));
        let (stopped, noted) = (Arc::clone(&stop), Arc::clone(&seen));
        let listens = Arc::clone(&listening);
        let thread = in_ns(&lab.gateway, move || {
            let adopter = Arc::new(Adopter::start(&options, &signatures()).unwrap());
            if role == Role::Deaf {
                send.send(Arc::clone(&adopter)).unwrap();
            }
            while !listens.load(Ordering::Relaxed) && !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            // Flows that begin before the builders run would wait for them to start.
            let builders = AtomicUsize::new(0);
            let running = || {
                if builders.fetch_add(1, Ordering::Relaxed) + 1 == BUILDERS && role != Role::Deaf {
                    send.send(Arc::clone(&adopter)).unwrap();
                }
            };
            serve(&adopter, role, &stopped, running, &noted, &give_backs);
        });
        let adopter = receive.recv().expect("the daemon starts");
        Self { adopter, seen, given_back, stop, listening, thread: Some(thread) }
    }

    pub(crate) fn listen(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    /// Waits until a reason has been counted so often.
    pub(crate) fn wait_for(&self, name: &str, count: u64) {
        for _ in 0..500 {
            if self.reason(name) >= count {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{name} never came to {count}: {:?}", self.adopter.counters());
    }

    pub(crate) fn reason(&self, name: &str) -> u64 {
        self.adopter.counters().reason(name)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the daemon's thread panicked");
        }
    }
}

/// Threads that build, as the gateway has on two processors.
const BUILDERS: usize = 2;

fn serve(
    adopter: &Adopter,
    role: Role,
    stop: &AtomicBool,
    running: impl Fn() + Sync,
    seen: &Mutex<Vec<Seen>>,
    given_back: &Sender<Result<(), String>>,
) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Nothing that an ordinary thread may hold is waited for on this one.
    let (relays, to_relay) = channel();
    let handle = runtime.handle().clone();
    thread::spawn(move || {
        for adopted in to_relay {
            drop(handle.spawn(relay(adopted)));
        }
    });
    let build = || {
        // Makes the thread a real-time one.
        let mut first = adopter.next(Duration::ZERO).unwrap();
        running();
        while !stop.load(Ordering::Relaxed) {
            let next = || adopter.next(Duration::from_millis(50)).unwrap();
            let Some(adopted) = first.take().or_else(next) else { continue };
            seen.lock().unwrap().push(Seen {
                client: adopted.client,
                server: adopted.server,
                dialer_is_inside: adopted.dialer_is_inside,
                app: adopted.app,
                prefix: adopted.prefix.clone(),
                held: adopted.held,
                built: adopted.built,
            });
            match role {
                Role::Relay | Role::Deaf => relays.send(adopted).unwrap(),
                Role::GiveBack | Role::Meddle => {
                    let (given_back, relays) = (given_back.clone(), relays.clone());
                    let extra: &[u8] = if role == Role::Meddle { b"!" } else { b"" };
                    thread::spawn(move || {
                        let result = give_back(adopted, extra).map_err(|refused| {
                            let (error, adopted) = *refused;
                            relays.send(adopted).unwrap();
                            error.to_string()
                        });
                        given_back.send(result).ok();
                    });
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..BUILDERS {
            scope.spawn(build);
        }
    });
    drop(relays);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

pub(crate) async fn relay(adopted: Adopted) {
    let _guard = adopted.guard;
    let tokio = |fd: OwnedFd| tokio::net::TcpStream::from_std(fd.into()).unwrap();
    let (inside, outside) = (tokio(adopted.inside), tokio(adopted.outside));
    weir_linux::splice::relay(&inside, &outside).await;
}

/// Moves the first payload and `extra`, and gives the flow back once all is quiet.
fn give_back(mut adopted: Adopted, extra: &[u8]) -> Result<(), Box<(GiveBackError, Adopted)>> {
    let inside = TcpStream::from(adopted.inside.try_clone().unwrap());
    let outside = TcpStream::from(adopted.outside.try_clone().unwrap());
    let (mut from, mut to) =
        if adopted.dialer_is_inside { (inside, outside) } else { (outside, inside) };
    let mut payload = [0; 16_384];
    let got = from.read(&mut payload).unwrap();
    to.write_all(&[&payload[..got], extra].concat()).unwrap();
    // A second descriptor would keep the socket open.
    drop((from, to));
    loop {
        let Adopted { inside, outside, guard, .. } = adopted;
        match guard.give_back(inside, outside) {
            Ok(()) => return Ok(()),
            Err((error, inside, outside, guard)) => {
                adopted = Adopted { inside, outside, guard, ..adopted };
                if !matches!(error, GiveBackError::Busy) {
                    return Err(Box::new((error, adopted)));
                }
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
}
