//! Mode adopt in namespaces: real stacks, and packets made by hand.
//!
//! Needs root; every test builds and removes its own namespaces.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test: its helpers fail and tell the time as tests do"
)]

#[path = "adopt_bounds.rs"]
mod bounds;
#[path = "adopt_daemon.rs"]
mod daemon;
#[path = "adopt_ends.rs"]
mod ends;
#[path = "adopt_firewall.rs"]
mod firewall;
#[path = "adopt_give_back.rs"]
mod give_back;
#[path = "adopt_hold.rs"]
mod hold;
#[path = "adopt_lab.rs"]
mod lab;
#[path = "adopt_packets.rs"]
mod packets;
#[path = "adopt_reasons.rs"]
mod reasons;
#[path = "adopt_scripted.rs"]
mod scripted;
#[path = "adopt_tun.rs"]
mod tun;
#[path = "adopt_user.rs"]
mod user;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use daemon::{COUNTED, Daemon, GREETING, HANDSHAKE, Role, options, signatures};
use ends::{Script, bytes, read, reset};
use lab::{Lab, in_ns, run};
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn};
use weir_linux::{Adopter, Options};

const BODY: usize = 300_000;
const PORT: u16 = 6881;
/// Family, IPv6 or not, and whether the dialer is inside.
const WAYS: [(bool, bool); 4] = [(false, true), (true, true), (false, false), (true, false)];

fn hello() -> Script {
    Script::new(HANDSHAKE, BODY, 7)
}

/// Sent once the dialer has said something.
fn answer() -> Script {
    Script { after: 1, ..Script::new(b"welcome", BODY, 9) }
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

/// Whoever dials, in either family: every byte arrives, and each end sees the
/// other's own address and port.
#[test]
fn both_families_and_both_dialers_are_adopted_and_relayed_whole() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (index, (v6, inside)) in WAYS.into_iter().enumerate() {
        let ends = lab.ends(v6, inside, PORT);
        let (peers, locals) = ends.talk(1, &hello(), &answer());
        assert_eq!(peers, locals, "the listener sees the dialer's own address and port");
        let seen = daemon.seen();
        assert_eq!(seen.len(), index + 1, "{}", daemon.counts());
        let last = &seen[index];
        assert_eq!(last.dialer_is_inside, inside);
        assert_eq!(last.app, 1);
        assert_eq!(if inside { last.client } else { last.server }, locals[0]);
        assert_eq!(if inside { last.server } else { last.client }, ends.to);
        assert!(last.prefix.is_empty());
    }
    daemon.expect(&[("adopted", 4), ("hold_timeout", 0)]);
    assert_eq!(daemon.adopter.counters().apps[1], 4);
}

/// The dialer waits for a greeting before its first byte; the greeting decides.
#[test]
fn a_listener_that_speaks_first_is_adopted_by_its_own_signature() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        let (dialing, listening) = lab.ends(v6, inside, PORT).meet(
            |mut stream| {
                let got = read(&mut stream, GREETING.len());
                stream.write_all(b"thanks").unwrap();
                got
            },
            |mut stream| {
                stream.write_all(GREETING).unwrap();
                read(&mut stream, 6)
            },
        );
        assert_eq!(dialing.join().unwrap().as_deref(), Ok(GREETING));
        assert_eq!(listening.join().unwrap().as_deref(), Ok(&b"thanks"[..]));
    }
    let seen: Vec<_> = daemon.seen().iter().map(|flow| (flow.app, flow.dialer_is_inside)).collect();
    assert_eq!(seen, WAYS.map(|(_, inside)| (2, inside)));
}

/// The first bytes have passed when the signature is whole: they are told, with
/// who sent them. Two ends that both began leave nothing to decide by.
#[test]
fn a_signature_split_over_three_segments_is_adopted_with_its_prefix() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &split(), &patient());
    }
    let seen = daemon.seen();
    assert_eq!(seen.len(), 4, "{}", daemon.counts());
    for (flow, (_, inside)) in seen.iter().zip(WAYS) {
        assert_eq!(flow.prefix, HANDSHAKE[..6]);
        assert_eq!(flow.prefix_from_inside, inside, "the dialer has sent it");
    }
    daemon.expect(&[("prefix_kept", 8)]);

    lab.ends(false, true, PORT).talk(1, &split(), &answer());
    daemon.expect(&[("both_sides", 1), ("adopted", 4)]);
}

/// What passed before the adoption and was lost on the far link comes again.
#[test]
fn a_prefix_lost_behind_the_gateway_is_sent_again_by_the_leg() {
    let Some(lab) = Lab::new() else { return };
    // 20 + 32 + the first byte; only forwarded packets, so not the leg's own.
    lab.nft(
        "table ip wk {\n chain forward { type filter hook forward priority 0; policy accept;\n\
         iifname \"gin\" meta length { 53, 57 } drop\n}\n}",
    );
    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &split(), &patient());
    assert_eq!(daemon.seen()[0].prefix, HANDSHAKE[..6]);
}

/// A first payload longer than a packet, as one that offloading has put together.
#[test]
fn a_first_payload_of_several_segments_is_held_whole() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        let mut script = hello();
        script.first = vec![[HANDSHAKE, &bytes(8192 - HANDSHAKE.len(), 3)].concat()];
        lab.ends(v6, inside, PORT).talk(1, &script, &answer());
    }
    daemon.expect(&[("adopted", 4), ("too_large", 0)]);
}

/// Traffic that is not ours: an unknown word, a known one that is only counted,
/// and no word at all.
#[test]
fn what_matches_nothing_never_reaches_user_space() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        let ends = lab.ends(v6, inside, PORT);
        ends.talk(1, &Script::new(b"GET / HTTP/1.1\r\n", BODY, 1), &answer());
        ends.talk(1, &Script::new(COUNTED, BODY, 1), &answer());
        ends.talk(1, &Script::new(b"", 0, 1), &Script::new(b"", 0, 1));
    }
    daemon.expect(&[("watched", 12), ("no_match", 4), ("counted", 4), ("ended_early", 4)]);
    daemon.expect(&[("held", 0)]);
    assert_eq!(daemon.adopter.counters().apps[3], 4);
    assert!(daemon.seen().is_empty());
}

#[test]
fn signatures_changed_while_running_decide_the_next_flow() {
    let Some(lab) = Lab::new() else { return };
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
    let Some(lab) = Lab::new() else { return };
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
    daemon.expect(&[("adopted", 2)]);
}

#[test]
fn a_fin_right_behind_the_payload_arrives() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &Script::new(HANDSHAKE, 0, 1), &answer());
    }
    daemon.expect(&[("adopted", 4)]);
}

/// TCP Fast Open without a cookie: the handshake is in the SYN, and arrives.
#[test]
fn a_syn_with_data_passes() {
    let Some(lab) = Lab::new() else { return };
    // The client sends data in the SYN without a cookie (4), the server takes it.
    lab.sysctl(&lab.client, "net/ipv4/tcp_fastopen", "5");
    lab.sysctl(&lab.server, "net/ipv4/tcp_fastopen", "1538");
    let daemon = Daemon::start(&lab, Role::Relay);
    let listening = lab
        .ends(false, true, PORT)
        .listen(|socket| read(&mut socket.accept().unwrap().0, HANDSHAKE.len()));
    let dialing = in_ns(&lab.client, || {
        let mut socket = tcp_socket();
        let fast_open = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
        let sent = socket::sendto(socket.as_raw_fd(), HANDSHAKE, &server(), fast_open);
        assert_eq!(sent, Ok(HANDSHAKE.len()));
        socket.read_exact(&mut [0]).ok();
    });
    assert_eq!(listening.join().unwrap().as_deref(), Ok(HANDSHAKE));
    dialing.join().unwrap();
    daemon.expect(&[("syn_data", 1), ("held", 0)]);
}

/// Not connected yet.
fn tcp_socket() -> TcpStream {
    socket::socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap().into()
}

fn server() -> SockaddrIn {
    SockaddrIn::new(10, 2, 0, 2, PORT)
}

/// The same port dials again as soon as it has reset its last connection.
#[test]
fn a_tuple_used_again_is_a_new_flow() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    let listening = lab.ends(false, true, PORT).listen(|socket| {
        for _ in 0..5 {
            let mut stream = socket.accept().unwrap().0;
            assert_eq!(read(&mut stream, HANDSHAKE.len()).as_deref(), Ok(HANDSHAKE));
            stream.write_all(b"welcome").unwrap();
            // Until the reset.
            assert!(stream.read_exact(&mut [0]).is_err());
        }
    });
    let dialing = in_ns(&lab.client, move || {
        for _ in 0..5 {
            let mut stream = tcp_socket();
            socket::setsockopt(&stream, socket::sockopt::ReuseAddr, &true).unwrap();
            let fd = stream.as_raw_fd();
            socket::bind(fd, &SockaddrIn::new(10, 1, 0, 2, 40_000)).unwrap();
            socket::connect(fd, &server()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(HANDSHAKE).unwrap();
            assert_eq!(read(&mut stream, 7).as_deref(), Ok(&b"welcome"[..]));
            reset(stream);
        }
    });
    dialing.join().unwrap();
    listening.join().unwrap();
    // A SYN may overtake the reset, which goes through the daemon: the server then
    // ends the old connection first (RFC 9293 §3.5.1), and the new one passes.
    assert!(daemon.reason("reused") >= 1, "{}", daemon.counts());
    let adopted_or_not = daemon.reason("adopted") + daemon.reason("ended_early");
    assert_eq!(adopted_or_not, 5, "{}", daemon.counts());
}

/// Connections that were open before anybody watched, whatever is said in them.
#[test]
fn flows_older_than_the_daemon_are_left_alone_and_outlive_it() {
    let Some(lab) = Lab::new() else { return };
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
    daemon.expect(&[("held", 0)]);
    drop(daemon);
    talking.join().unwrap();
}

/// Two packets in a hundred are lost on each of two ways: every byte arrives.
#[test]
fn packets_lost_on_either_side_cost_time_and_no_byte() {
    let Some(lab) = Lab::new() else { return };
    // What arrives and what leaves.
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
    println!("adopted {} of 200 under loss", daemon.reason("adopted"));
    assert!(daemon.reason("adopted") > 150, "{}", daemon.counts());
}

#[test]
fn a_leg_learns_of_a_narrower_path() {
    let Some(lab) = Lab::with_narrow_path() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for v6 in [false, true] {
        let began = Instant::now();
        lab.ends(v6, true, PORT).talk(1, &hello(), &answer());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    daemon.expect(&[("adopted", 2)]);
    assert!(daemon.reason("icmp_delivered") >= 2, "{}", daemon.counts());
}

#[test]
fn an_outside_interface_without_link_header_works() {
    let Some(lab) = Lab::with_tunnel() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &hello(), &answer());
    }
    daemon.expect(&[("adopted", 4)]);
}
