//! Mode adopt among real stacks: namespaces, veth, ordinary sockets.
//!
//! Needs root; every test builds and removes its own namespaces.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test: its helpers fail and tell the time as tests do"
)]

#[path = "adopt_lab.rs"]
mod lab;
#[path = "adopt_tun.rs"]
mod tun;
#[path = "adopt_user.rs"]
mod user;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lab::{
    COUNTED, Daemon, Ends, GREETING, HANDSHAKE, Lab, Role, Script, bytes, in_ns, is_root, options,
    run, signatures,
};
use weir_linux::Adopter;

const BODY: usize = 300_000;
const PORT: u16 = 6881;
const WAYS: [(bool, bool); 4] = [(false, true), (true, true), (false, false), (true, false)];

/// Two processors: scenarios that measure or wait do not run side by side.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hello() -> Script {
    Script::new(HANDSHAKE, BODY, 7)
}

/// Sent once the dialer has said something.
fn answer() -> Script {
    Script { after: 1, ..Script::new(b"welcome", BODY, 9) }
}

#[test]
fn both_families_and_both_dialers_are_adopted_and_relayed_whole() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (index, (v6, inside)) in WAYS.into_iter().enumerate() {
        let ends = lab.ends(v6, inside, PORT);
        let (peers, locals) = ends.talk(1, &hello(), &answer());
        assert_eq!(peers, locals, "the listener sees the dialer's own address and port");
        let seen = daemon.seen();
        assert_eq!(seen.len(), index + 1, "{:?}", daemon.adopter.counters());
        let last = &seen[index];
        assert_eq!(last.dialer_is_inside, inside);
        assert_eq!(last.app, 1);
        assert_eq!(if inside { last.client } else { last.server }, locals[0]);
        assert_eq!(if inside { last.server } else { last.client }, ends.to);
        assert!(last.prefix.is_empty());
    }
    assert_eq!(daemon.reason("adopted"), 4);
    assert_eq!(daemon.reason("hold_timeout"), 0);
    assert_eq!(daemon.adopter.counters().apps[1], 4);
}

#[test]
fn a_listener_that_speaks_first_is_adopted_by_its_own_signature() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        // The dialer waits for the greeting before its first byte.
        let to = lab.ends(v6, inside, PORT);
        let (dialer, listener) = greeted(&to);
        assert_eq!(dialer.as_deref(), Ok(GREETING));
        assert_eq!(listener.as_deref(), Ok(&b"thanks"[..]));
    }
    let seen = daemon.seen();
    assert_eq!(seen.iter().map(|flow| flow.app).collect::<Vec<_>>(), [2; 4]);
    assert_eq!(
        seen.iter().map(|flow| flow.dialer_is_inside).collect::<Vec<_>>(),
        [true, true, false, false]
    );
}

/// The listener says GREETING, the dialer answers; what each of them read.
fn greeted(ends: &Ends) -> (Result<Vec<u8>, ErrorKind>, Result<Vec<u8>, ErrorKind>) {
    let to = ends.to;
    let (ready, is_ready) = channel();
    let listening = in_ns(&ends.listener_ns, move || {
        let socket = TcpListener::bind(to).unwrap();
        ready.send(()).unwrap();
        let mut stream = socket.accept().unwrap().0;
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(GREETING).unwrap();
        read(&mut stream, 6)
    });
    is_ready.recv().unwrap();
    let dialing = in_ns(&ends.dialer_ns, move || {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let got = read(&mut stream, GREETING.len());
        stream.write_all(b"thanks").unwrap();
        got
    });
    (dialing.join().unwrap(), listening.join().unwrap())
}

fn read(stream: &mut TcpStream, len: usize) -> Result<Vec<u8>, ErrorKind> {
    let mut got = vec![0; len];
    stream.read_exact(&mut got).map(|()| got).map_err(|error| error.kind())
}

/// Sent once the dialer has said all of its handshake.
fn patient() -> Script {
    Script { after: HANDSHAKE.len(), ..answer() }
}

/// A first payload in three segments.
fn split() -> Script {
    let mut script = hello();
    script.first = vec![HANDSHAKE[..1].to_vec(), HANDSHAKE[1..6].to_vec(), HANDSHAKE[6..].to_vec()];
    script.gap = Duration::from_millis(30);
    script
}

#[test]
fn a_signature_split_over_three_segments_is_adopted_with_its_prefix() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &split(), &patient());
    }
    let seen = daemon.seen();
    assert_eq!(seen.len(), 4, "{:?}", daemon.adopter.counters());
    for flow in seen {
        assert_eq!(flow.prefix, HANDSHAKE[..6]);
    }
    assert_eq!(daemon.reason("prefix_kept"), 8);

    // A listener that answers half a handshake leaves nothing to decide by.
    lab.ends(false, true, PORT).talk(1, &split(), &answer());
    assert_eq!(daemon.reason("both_sides"), 1);
    assert_eq!(daemon.seen().len(), 4);
}

#[test]
fn a_prefix_lost_behind_the_gateway_is_sent_again_by_the_leg() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    // 20 + 32 + the first byte; only forwarded packets, so not the leg's own.
    lab.nft(
        "table ip wk {\n chain forward { type filter hook forward priority 0; policy accept;\n\
         iifname \"gin\" meta length { 53, 57 } drop\n}\n}",
    );
    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &split(), &patient());
    assert_eq!(daemon.seen()[0].prefix, HANDSHAKE[..6]);
}

#[test]
fn a_first_payload_of_several_segments_is_held_whole() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        let mut script = hello();
        script.first = vec![[HANDSHAKE, &bytes(8192 - HANDSHAKE.len(), 3)].concat()];
        lab.ends(v6, inside, PORT).talk(1, &script, &answer());
    }
    assert_eq!(daemon.reason("adopted"), 4);
    assert_eq!(daemon.reason("too_large"), 0);
}

#[test]
fn a_first_payload_above_the_record_passes() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let route =
        ["-n", &lab.client, "route", "replace", "default", "via", "10.1.0.1", "initcwnd", "60"];
    run("ip", &route, "");
    let daemon = Daemon::start(&lab, Role::Relay);
    let mut script = hello();
    script.first = vec![[HANDSHAKE, &bytes(40_000, 3)].concat()];
    lab.ends(false, true, PORT).talk(1, &script, &answer());
    assert_eq!(daemon.reason("too_large"), 1, "{:?}", daemon.adopter.counters());
    assert_eq!(daemon.reason("held"), 0);
}

#[test]
fn what_matches_nothing_never_reaches_user_space() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        let ends = lab.ends(v6, inside, PORT);
        ends.talk(1, &Script::new(b"GET / HTTP/1.1\r\n", BODY, 1), &answer());
        ends.talk(1, &Script::new(COUNTED, BODY, 1), &answer());
        ends.talk(1, &Script::new(b"", 0, 1), &Script::new(b"", 0, 1));
    }
    let counters = daemon.adopter.counters();
    assert_eq!(counters.reason("watched"), 12);
    assert_eq!(counters.reason("no_match"), 4);
    assert_eq!(counters.reason("counted"), 4);
    assert_eq!(counters.apps[3], 4);
    assert_eq!(counters.reason("ended_early"), 4);
    assert_eq!(counters.reason("held"), 0);
    assert!(daemon.seen().is_empty());
}

#[test]
fn signatures_changed_while_running_decide_the_next_flow() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    let ends = lab.ends(false, true, PORT);
    daemon.adopter.set_signatures(&[]).unwrap();
    ends.talk(1, &hello(), &answer());
    assert!(daemon.seen().is_empty());
    daemon.adopter.set_signatures(&signatures()).unwrap();
    ends.talk(1, &hello(), &answer());
    assert_eq!(daemon.seen().len(), 1);
}

#[test]
fn a_handshake_that_needs_a_second_try_is_still_adopted() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    // Every first SYN, and every first SYN-ACK that gets so far, is lost.
    lab.nft(
        "table inet wk {\n chain forward { type filter hook forward priority 0; policy accept;\n\
         tcp flags & (syn | ack) == syn numgen inc mod 2 == 0 drop\n\
         tcp flags & (syn | ack) == (syn | ack) numgen inc mod 2 == 0 drop\n}\n}",
    );
    let daemon = Daemon::start(&lab, Role::Relay);
    for inside in [true, false] {
        lab.ends(false, inside, PORT).talk(1, &hello(), &answer());
    }
    assert_eq!(daemon.reason("adopted"), 2, "{:?}", daemon.adopter.counters());
}

#[test]
fn a_fin_right_behind_the_payload_arrives() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &Script::new(HANDSHAKE, 0, 1), &answer());
    }
    assert_eq!(daemon.reason("adopted"), 4);
}

#[test]
fn a_reset_while_held_passes_and_ends_the_adoption() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Deaf);
    let to = lab.ends(false, true, PORT).to;
    let (ready, is_ready) = channel();
    let listening = in_ns(&lab.server, move || {
        let socket = TcpListener::bind(to).unwrap();
        ready.send(()).unwrap();
        let mut stream = socket.accept().unwrap().0;
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        read(&mut stream, 1)
    });
    is_ready.recv().unwrap();
    let (go, may_go) = channel();
    let dialing = in_ns(&lab.client, move || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(HANDSHAKE).unwrap();
        may_go.recv().unwrap();
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
    });
    daemon.wait_for("held", 1);
    go.send(()).unwrap();
    dialing.join().unwrap();
    assert_eq!(listening.join().unwrap(), Err(ErrorKind::ConnectionReset));
    assert_eq!(daemon.reason("hold_reset"), 1);
    daemon.listen();
    daemon.wait_for("hold_ended", 1);
    assert_eq!(daemon.reason("adopted"), 0);
}

#[test]
fn a_daemon_that_does_not_answer_costs_a_second_and_no_byte() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Deaf);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &hello(), &answer());
    }
    assert_eq!(daemon.reason("hold_timeout"), 4);
    // What lies in the ring is too old to be touched.
    daemon.listen();
    daemon.wait_for("hold_ended", 4);
    assert_eq!(daemon.reason("adopted"), 0);
}

#[test]
fn a_daemon_that_comes_too_late_lets_the_flow_pass_at_once() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Deaf);
    let ends = lab.ends(false, true, PORT);
    let talking = std::thread::spawn(move || ends.talk(1, &hello(), &answer()));
    daemon.wait_for("held", 1);
    std::thread::sleep(Duration::from_millis(600));
    daemon.listen();
    daemon.wait_for("too_late", 1);
    talking.join().unwrap();
    assert_eq!(daemon.reason("hold_timeout"), 0);
    assert_eq!(daemon.reason("adopted"), 0);
}

#[test]
fn a_syn_with_data_passes() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    // The client sends data in the SYN without a cookie (4), the server takes it.
    lab.sysctl(&lab.client, "net/ipv4/tcp_fastopen", "5");
    lab.sysctl(&lab.server, "net/ipv4/tcp_fastopen", "1538");
    let daemon = Daemon::start(&lab, Role::Relay);
    let to = lab.ends(false, true, PORT).to;
    let (ready, is_ready) = channel();
    let listening = in_ns(&lab.server, move || {
        let socket = TcpListener::bind(to).unwrap();
        ready.send(()).unwrap();
        read(&mut socket.accept().unwrap().0, HANDSHAKE.len())
    });
    is_ready.recv().unwrap();
    let dialing = in_ns(&lab.client, move || {
        use nix::sys::socket::{
            AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, sendto, socket,
        };
        let socket =
            socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let remote = SockaddrIn::new(10, 2, 0, 2, PORT);
        let fast_open = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
        assert_eq!(sendto(fd, HANDSHAKE, &remote, fast_open), Ok(HANDSHAKE.len()));
        TcpStream::from(socket).read_exact(&mut [0]).ok();
    });
    assert_eq!(listening.join().unwrap().as_deref(), Ok(HANDSHAKE));
    dialing.join().unwrap();
    assert_eq!(daemon.reason("syn_data"), 1, "{:?}", daemon.adopter.counters());
    assert_eq!(daemon.reason("held"), 0);
}

/// A daemon as a process of its own, so that it can be killed.
struct Process(Child);

impl Process {
    fn start(lab: &Lab) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env("WK_DAEMON_NS", &lab.gateway)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let mut lines = BufReader::new(output).lines();
        while lines.next().expect("the daemon starts").unwrap() != "ready" {}
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Not a test of its own: what [`Process`] runs.
#[test]
fn the_process_that_is_killed() {
    let Ok(ns) = std::env::var("WK_DAEMON_NS") else { return };
    in_ns(&ns, || {
        let _adopter = Adopter::start(&options(), &signatures()).unwrap();
        println!("\nready");
        // Killed long before.
        std::thread::sleep(Duration::from_secs(60));
    })
    .join()
    .unwrap();
}

#[test]
fn flows_held_by_a_killed_daemon_go_on_and_the_next_daemon_adopts() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let process = Process::start(&lab);
    let ends = lab.ends(false, true, PORT);
    let talking = std::thread::spawn(move || {
        let mut script = hello();
        script.gap = Duration::from_millis(150);
        ends.talk(20, &script, &answer());
    });
    // While the handshakes are held; nothing can tell from outside when.
    std::thread::sleep(Duration::from_millis(120));
    drop(process);
    talking.join().unwrap();

    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &hello(), &answer());
    assert_eq!(daemon.reason("adopted"), 1);
}

const FIREWALL: &str = "
table inet wk_filter {
  chain input { type filter hook input priority 0; policy drop;
    ct state invalid drop
    ct state established,related accept
    meta l4proto ipv6-icmp accept
  }
  chain forward { type filter hook forward priority 0; policy drop;
    ct state invalid drop
    ct state established,related accept
    meta l4proto ipv6-icmp accept
    iifname \"gin\" accept
    ct status dnat accept
  }
}
table inet wk_nat {
  chain pre { type nat hook prerouting priority -100; policy accept;
    iifname \"gout\" ip daddr 10.2.0.1 tcp dport 6881 dnat ip to 10.1.0.2:6999
  }
  chain post { type nat hook postrouting priority 100; policy accept;
    oifname \"gout\" masquerade
  }
}
";

#[test]
fn a_masquerading_gateway_with_a_stateful_firewall_adopts() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    lab.nft(FIREWALL);
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, address) in [(false, "10.2.0.1"), (true, "fd02::1")] {
        let began = Instant::now();
        let (peers, locals) = lab.ends(v6, true, PORT).talk(20, &hello(), &answer());
        println!("20 flows behind masquerade, v6 {v6}: {:?}", began.elapsed());
        assert_ne!(peers, locals);
        for peer in peers {
            assert_eq!(peer.ip().to_string(), address, "only the gateway's address is seen");
        }
    }
    assert_eq!(daemon.reason("adopted"), 40, "{:?}", daemon.adopter.counters());

    // From outside, to a port that is forwarded to another one inside.
    let ends = lab.ends(false, false, 6999);
    let at = SocketAddr::new("10.2.0.1".parse().unwrap(), PORT);
    let (ready, is_ready) = channel();
    let listening = in_ns(&ends.listener_ns, move || {
        let socket = TcpListener::bind(ends.to).unwrap();
        ready.send(()).unwrap();
        lab::converse(socket.accept().unwrap().0, &answer(), &hello())
    });
    is_ready.recv().unwrap();
    let dialing = in_ns(&ends.dialer_ns, move || {
        lab::converse(TcpStream::connect(at).unwrap(), &hello(), &answer())
    });
    assert_eq!(dialing.join().unwrap(), Ok(()));
    assert_eq!(listening.join().unwrap(), Ok(()));
    assert_eq!(daemon.reason("adopted"), 41, "{:?}", daemon.adopter.counters());
}

#[test]
fn the_held_payload_is_acknowledged_before_the_far_end_answers() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    // Longer than the dialer's retransmission timer.
    let mut slow = answer();
    slow.first.insert(0, Vec::new());
    slow.gap = Duration::from_millis(700);
    lab.ends(false, true, PORT).talk(1, &Script::new(HANDSHAKE, 0, 1), &slow);
    assert_eq!(daemon.reason("adopted"), 1);
    let snmp =
        in_ns(&lab.client, || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let snmp = snmp.join().unwrap();
    let mut tcp = snmp.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let (mut names, mut values) = (tcp.next().unwrap(), tcp.next().unwrap());
    let at = names.position(|name| name == "RetransSegs").unwrap();
    // The FIN, sent into the hold, may be: nothing but a timer brings it back.
    let sent_again: u32 = values.nth(at).unwrap().parse().unwrap();
    println!("sent again by the dialer: {sent_again}");
    assert!(sent_again <= 1);
}

#[test]
fn a_changed_stream_passes_the_stateful_firewall() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    lab.nft(FIREWALL);
    let daemon = Daemon::start(&lab, Role::Meddle);
    let arriving = Script { first: vec![HANDSHAKE.to_vec(), b"!".to_vec()], ..hello() };
    let quiet = Script { after: HANDSHAKE.len() + 2, ..answer() };
    let sent = Script { gap: Duration::from_millis(100), ..hello() };
    for v6 in [false, true] {
        lab.ends(v6, true, PORT).talk_through(10, &sent, &arriving, &quiet);
    }
    assert_eq!(daemon.reason("adopted"), 20, "{:?}", daemon.adopter.counters());
}

#[test]
fn packets_lost_on_either_side_cost_time_and_no_byte() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    // Two in a hundred on each of two ways: what arrives and what leaves.
    lab.nft(
        "table inet wk {\n chain pre { type filter hook prerouting priority 0; policy accept;\n\
         meta l4proto tcp numgen random mod 100 < 2 drop\n}\n\
         chain post { type filter hook postrouting priority 0; policy accept;\n\
         meta l4proto tcp numgen random mod 100 < 2 drop\n}\n}",
    );
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        let mut script = split();
        script.gap = Duration::from_millis(1);
        script.body_len = 100_000;
        let reply = Script { body_len: 100_000, ..patient() };
        lab.ends(v6, inside, PORT).talk(50, &script, &reply);
    }
    let counters = daemon.adopter.counters();
    println!("adopted {} of 200 under loss", counters.reason("adopted"));
    assert!(counters.reason("adopted") > 150, "{counters:?}");
}

#[test]
fn a_leg_learns_of_a_narrower_path() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::with_narrow_path();
    let daemon = Daemon::start(&lab, Role::Relay);
    for v6 in [false, true] {
        let began = Instant::now();
        lab.ends(v6, true, PORT).talk(1, &hello(), &answer());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    assert_eq!(daemon.reason("adopted"), 2);
    assert!(daemon.reason("icmp_delivered") >= 2, "{:?}", daemon.adopter.counters());
}

#[test]
fn an_outside_interface_without_link_header_works() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::with_tunnel();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &hello(), &answer());
    }
    assert_eq!(daemon.reason("adopted"), 4);
}

#[test]
fn strict_reverse_path_filters_do_not_matter() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    for interface in ["all", "gin", "gout"] {
        lab.sysctl(&lab.gateway, &format!("net/ipv4/conf/{interface}/rp_filter"), "1");
    }
    let daemon = Daemon::start(&lab, Role::Relay);
    for inside in [true, false] {
        lab.ends(false, inside, PORT).talk(5, &hello(), &answer());
    }
    assert_eq!(daemon.reason("adopted"), 10);
}

#[test]
fn a_full_table_lets_flows_pass() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let mut small = options();
    small.adopted_max = 3;
    let daemon = Daemon::start_with(&lab, Role::Relay, small);
    lab.ends(false, true, PORT).talk(5, &hello(), &answer());
    assert_eq!(daemon.reason("adopted"), 3, "{:?}", daemon.adopter.counters());
    assert_eq!(daemon.reason("adopted_full"), 2);
}

#[test]
fn a_full_ring_lets_flows_pass() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Deaf);
    // 4 MiB of ring, 16 KiB a record.
    let first = [HANDSHAKE, &bytes(8192 - HANDSHAKE.len(), 3)].concat();
    lab.ends(false, true, PORT).talk(
        300,
        &Script::new(&first, 0, 1),
        &Script { after: 1, ..Script::new(b"welcome", 0, 1) },
    );
    assert!(daemon.reason("ring_full") > 0, "{:?}", daemon.adopter.counters());
    assert_eq!(daemon.reason("ring_full") + daemon.reason("held"), 300);
    assert_eq!(daemon.reason("hold_timeout"), daemon.reason("held"));
}

#[test]
fn a_flow_given_back_goes_on_without_the_daemon() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    for (v6, inside) in WAYS {
        let daemon = Daemon::start(&lab, Role::GiveBack);
        let ends = lab.ends(v6, inside, PORT);
        let talking = std::thread::spawn(move || {
            let mut script = hello();
            script.gap = Duration::from_millis(400);
            // Quiet until the flow is back.
            ends.talk(10, &script, &Script { after: HANDSHAKE.len() + 1, ..answer() });
        });
        for _ in 0..10 {
            let given = daemon.given_back.recv_timeout(Duration::from_secs(5)).unwrap();
            assert_eq!(given, Ok(()));
        }
        assert_eq!(daemon.reason("given_back"), 10);
        drop(daemon);
        talking.join().unwrap();
    }
}

#[test]
fn a_flow_whose_stream_was_changed_is_not_given_back_and_goes_on() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Meddle);
    for (v6, inside) in WAYS {
        let mut sent = hello();
        sent.gap = Duration::from_millis(100);
        let arriving = Script { first: vec![HANDSHAKE.to_vec(), b"!".to_vec()], ..hello() };
        let quiet = Script { after: HANDSHAKE.len() + 2, ..answer() };
        lab.ends(v6, inside, PORT).talk_through(1, &sent, &arriving, &quiet);
        let given = daemon.given_back.recv_timeout(Duration::from_secs(5)).unwrap();
        let apart = if inside { "0 and 1" } else { "1 and 0" };
        assert_eq!(given, Err(format!("the two legs are {apart} bytes apart")));
    }
    assert_eq!(daemon.reason("given_back"), 0);
}

#[test]
fn a_tuple_used_again_is_a_new_flow() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    let to = lab.ends(false, true, PORT).to;
    let (ready, is_ready) = channel();
    let listening = in_ns(&lab.server, move || {
        let socket = TcpListener::bind(to).unwrap();
        ready.send(()).unwrap();
        for _ in 0..5 {
            let mut stream = socket.accept().unwrap().0;
            let mut got = vec![0; HANDSHAKE.len()];
            stream.read_exact(&mut got).unwrap();
            stream.write_all(b"welcome").unwrap();
            // Until the reset.
            assert!(stream.read_exact(&mut [0]).is_err());
        }
    });
    is_ready.recv().unwrap();
    let dialing = in_ns(&lab.client, move || {
        for _ in 0..5 {
            let from = nix::sys::socket::SockaddrIn::new(10, 1, 0, 2, 40_000);
            let socket = nix::sys::socket::socket(
                nix::sys::socket::AddressFamily::Inet,
                nix::sys::socket::SockType::Stream,
                nix::sys::socket::SockFlag::empty(),
                None,
            )
            .unwrap();
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::ReuseAddr, &true)
                .unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            nix::sys::socket::bind(fd, &from).unwrap();
            let remote = nix::sys::socket::SockaddrIn::new(10, 2, 0, 2, PORT);
            nix::sys::socket::connect(fd, &remote).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(HANDSHAKE).unwrap();
            assert_eq!(read(&mut stream, 7).as_deref(), Ok(&b"welcome"[..]));
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger)
                .unwrap();
        }
    });
    dialing.join().unwrap();
    listening.join().unwrap();
    // A SYN may overtake the reset, which goes through the daemon: the server then
    // ends the old connection first (RFC 9293 §3.5.1), and the new one passes.
    let counters = daemon.adopter.counters();
    assert!(counters.reason("reused") >= 1, "{counters:?}");
    assert_eq!(counters.reason("adopted") + counters.reason("ended_early"), 5, "{counters:?}");
}

#[test]
fn flows_older_than_the_daemon_are_left_alone_and_outlive_it() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let ends = lab.ends(false, true, PORT);
    let talking = std::thread::spawn(move || {
        let mut script = Script::new(b"", BODY, 3);
        // Looks like ours, but begins before anybody watches.
        script.first = vec![b"x".to_vec(), HANDSHAKE.to_vec(), b"y".to_vec(), b"z".to_vec()];
        script.gap = Duration::from_millis(200);
        ends.talk(1, &script, &answer());
    });
    std::thread::sleep(Duration::from_millis(100));
    let daemon = Daemon::start(&lab, Role::Relay);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.reason("held"), 0);
    drop(daemon);
    talking.join().unwrap();
}

#[test]
fn five_hundred_flows_at_once_are_adopted_in_time() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    let began = Instant::now();
    let small = 20_000;
    lab.ends(false, true, PORT).talk(
        500,
        &Script::new(HANDSHAKE, small, 5),
        &Script { after: 1, ..Script::new(b"welcome", small, 6) },
    );
    println!("500 flows in {:?}", began.elapsed());
    let held: Vec<_> = daemon.seen().iter().map(|flow| flow.held).collect();
    spread("held", &held);
    let built: Vec<_> = daemon.seen().iter().map(|flow| flow.built).collect();
    spread("built", &built);
    let counters = daemon.adopter.counters();
    // On a loaded machine a hold may end in its time-out, which passes the flow.
    let given_up = counters.reason("too_late") + counters.reason("hold_ended");
    assert_eq!(counters.reason("adopted") + given_up, 500, "{counters:?}");
    assert_eq!(held.len() as u64, counters.reason("adopted"));
}

fn spread(what: &str, times: &[Duration]) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{what}: n {} p50 {:?} p99 {:?} max {:?}", times.len(), at(50), at(99), at(100));
}

/// A TCP segment somebody forges, in an IPv4 packet without options.
struct Forged {
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    seq: u32,
    ack: u32,
    flags: u8,
    payload: &'static [u8],
}

const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

impl Forged {
    /// Sends it from a namespace, whoever its source address belongs to.
    fn send(self, ns: &str) {
        use nix::sys::socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
        };
        in_ns(ns, move || {
            let protocol = SockProtocol::Raw;
            let socket =
                socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), protocol).unwrap();
            let to = SockaddrIn::from(SocketAddrV4::new(self.to.0, 0));
            let packet = self.packet();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            assert_eq!(sendto(fd, &packet, &to, MsgFlags::empty()), Ok(packet.len()));
        })
        .join()
        .unwrap();
    }

    fn packet(&self) -> Vec<u8> {
        let mut tcp = [self.from.1.to_be_bytes(), self.to.1.to_be_bytes()].concat();
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([5 << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(self.payload);
        let len = u16::try_from(tcp.len()).unwrap();
        let ends = [self.from.0.octets(), self.to.0.octets()].concat();
        let pseudo = [&ends[..], &[0, 6], &len.to_be_bytes(), &tcp].concat();
        tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
        // The kernel fills in the IP header's own checksum and identification.
        let total = (20 + len).to_be_bytes();
        let ip = [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0];
        [&ip[..], &ends, &tcp].concat()
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

fn v4(address: SocketAddr) -> (Ipv4Addr, u16) {
    let SocketAddr::V4(v4) = address else { panic!("IPv4 only") };
    (*v4.ip(), v4.port())
}

#[test]
fn a_forged_syn_from_either_side_does_not_touch_a_live_flow() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (index, inside) in [true, false].into_iter().enumerate() {
        let ends = lab.ends(false, inside, PORT);
        let to = ends.to;
        let (ready, is_ready) = channel();
        let listening = in_ns(&ends.listener_ns, move || {
            let socket = TcpListener::bind(to).unwrap();
            ready.send(()).unwrap();
            let mut stream = socket.accept().unwrap().0;
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            assert_eq!(read(&mut stream, HANDSHAKE.len()).as_deref(), Ok(HANDSHAKE));
            stream.write_all(b"welcome").unwrap();
            // After the forgery.
            assert!(read(&mut stream, BODY) == Ok(bytes(BODY, 5)), "what the dialer sent");
            stream.write_all(&bytes(BODY, 6)).unwrap();
        });
        is_ready.recv().unwrap();
        let (connected, is_connected) = channel();
        let (go, may_go) = channel();
        let dialing = in_ns(&ends.dialer_ns, move || {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(HANDSHAKE).unwrap();
            assert_eq!(read(&mut stream, 7).as_deref(), Ok(&b"welcome"[..]));
            connected.send(stream.local_addr().unwrap()).unwrap();
            may_go.recv().unwrap();
            stream.write_all(&bytes(BODY, 5)).unwrap();
            assert!(read(&mut stream, BODY) == Ok(bytes(BODY, 6)), "what the listener sent");
        });
        let (dialer, listener) = (v4(is_connected.recv().unwrap()), v4(to));
        let syn = |from, to| Forged { from, to, seq: 77, ack: 0, flags: SYN, payload: b"" };
        syn(dialer, listener).send(&ends.dialer_ns);
        syn(listener, dialer).send(&ends.listener_ns);
        daemon.wait_for("adopted_syn", 2 * (index as u64 + 1));
        go.send(()).unwrap();
        dialing.join().unwrap();
        listening.join().unwrap();
        assert_eq!(daemon.reason("adopted"), index as u64 + 1);
    }
    let counters = daemon.adopter.counters();
    assert_eq!(counters.reason("reused"), 0, "{counters:?}");
    assert_eq!(counters.reason("watched"), 2, "{counters:?}");
}

#[test]
fn a_first_payload_that_acknowledges_something_else_is_not_held() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    // Two ends that no kernel answers for.
    let (near, far) = (Ipv4Addr::new(10, 1, 0, 77), Ipv4Addr::new(10, 2, 0, 77));
    for (address, interface) in [(near, "gin"), (far, "gout")] {
        let (address, lladdr) = (address.to_string(), "02:00:00:00:00:77");
        let neighbour = ["-n", &lab.gateway, "neigh", "add", &address, "lladdr", lladdr];
        run("ip", &[&neighbour[..], &["dev", interface]].concat(), "");
    }
    let daemon = Daemon::start(&lab, Role::Deaf);
    let handshake = |port: u16, ack: u32, flags: u8| {
        let (from, to) = ((near, port), (far, PORT));
        let segment = |seq, ack, flags, payload| Forged { from, to, seq, ack, flags, payload };
        segment(1000, 0, SYN, b"").send(&lab.client);
        let answer = Forged { from: to, to: from, ..segment(5000, 1001, SYN | ACK, b"") };
        answer.send(&lab.server);
        // Both forwarded at once by whoever sends; this is for a busy machine.
        std::thread::sleep(Duration::from_millis(50));
        segment(1001, ack, flags, HANDSHAKE).send(&lab.client);
    };
    handshake(1, 5000, PSH | ACK);
    daemon.wait_for("out_of_order", 1);
    handshake(2, 5001, PSH);
    daemon.wait_for("out_of_order", 2);
    assert_eq!(daemon.reason("held"), 0, "{:?}", daemon.adopter.counters());
    handshake(3, 5001, PSH | ACK);
    daemon.wait_for("held", 1);
}
