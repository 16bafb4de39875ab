//! Mode adopt and packets no ordinary stack sends: both ends are scripts.

use super::*;
use crate::packets::{
    ACK, DIALER_ISN, Dialog, FIN, LISTENER_ISN, PSH, RST, SYN, Segment, TCP, URG, seal_v4,
};
use crate::tun::Wires;

/// The handshake of a dialog, which every gateway passes.
fn open(wires: &Wires, dialog: &Dialog) {
    wires.carry("the SYN", &dialog.syn().packet());
    wires.carry("the SYN-ACK", &dialog.syn_ack().packet());
}

/// Packets around the same segment which the kernel side does not read, and why.
fn unread(segment: Segment) -> Vec<(&'static str, Vec<u8>)> {
    let tcp = segment.tcp();
    let header_of = |words: u8| {
        let mut tcp = tcp.clone();
        tcp[12] = words << 4;
        segment.packet_of(TCP, &tcp)
    };
    let mut packets = vec![
        ("truncated", segment.packet_of(TCP, &tcp[..10])),
        ("truncated", header_of(4)),
        ("truncated", header_of(15)),
    ];
    if segment.from.is_ipv4() {
        const NO_OPERATION: u8 = 1;
        packets.extend([
            ("ip_options", segment.v4(&[NO_OPERATION; 4], 0, TCP, &tcp)),
            ("fragment", segment.v4(&[], 0x2000, TCP, &tcp[..24])),
            ("fragment", segment.v4(&[], 3, TCP, &tcp[24..])),
        ]);
    } else {
        let (hop_by_hop, routing, fragment, destination) = (0, 43, 44, 60);
        let with =
            |extension, head: [u8; 8]| segment.packet_of(extension, &[&head[..], &tcp].concat());
        packets.extend([
            ("ipv6_extension", with(hop_by_hop, [TCP, 0, 1, 4, 0, 0, 0, 0])),
            ("ipv6_extension", with(routing, [TCP, 0, 0, 0, 0, 0, 0, 0])),
            ("ipv6_extension", with(destination, [TCP, 0, 1, 4, 0, 0, 0, 0])),
            ("fragment", with(fragment, [TCP, 0, 0, 1, 0, 0, 0, 7])),
        ]);
    }
    packets
}

/// Headers that are not read cost a flow nothing: the packets come out as they
/// went in, and the flow is watched as before.
#[test]
fn packets_that_are_not_read_pass_as_they_are() {
    let Some((lab, wires)) = Lab::scripted() else { return };
    let daemon = Daemon::start(&lab, Role::Deaf);
    for (index, (v6, inside)) in WAYS.into_iter().enumerate() {
        let dialog = Dialog::new(v6, inside, 1);
        open(&wires, &dialog);
        for said in [dialog.handshake(), dialog.listener_says(GREETING)] {
            for (reason, packet) in unread(said) {
                let before = daemon.reason(reason);
                wires.carry(reason, &packet);
                daemon.expect(&[(reason, before + 1)]);
            }
        }
        let held = index as u64 + 1;
        daemon.expect(&[("watched", held), ("held", held - 1)]);
        let handshake = dialog.handshake().packet();
        wires.way(&handshake).0.send(&handshake);
        daemon.wait_for("held", held);
    }
    let each = [("truncated", 24), ("ip_options", 4), ("fragment", 12), ("ipv6_extension", 12)];
    daemon.expect(&each);
}

/// Makes a packet of a dialog.
type Make = fn(&Dialog) -> Segment;

/// First packets that leave a doubt, under which reason, and whether the listener
/// has answered before.
const DOUBTS: [(&str, bool, Make); 11] = [
    ("early_payload", false, Dialog::handshake),
    ("syn_data", false, |dialog| Segment { payload: GREETING, ..dialog.syn_ack() }),
    ("urgent", true, |dialog| with_flags(dialog, PSH | ACK | URG)),
    ("out_of_order", true, |dialog| with_flags(dialog, PSH)),
    ("out_of_order", true, |dialog| Segment { ack: LISTENER_ISN, ..dialog.handshake() }),
    ("out_of_order", true, |dialog| Segment { seq: DIALER_ISN + 2, ..dialog.handshake() }),
    ("no_match", true, |dialog| dialog.dialer_says(b"GET / HTTP/1.1\r\n")),
    ("no_match", true, |dialog| dialog.listener_says(b"220 ready\r\n")),
    // The listener refuses; either end goes away before it has said a word.
    ("ended_early", false, |dialog| Segment { flags: RST | ACK, ..dialog.listener_says(b"") }),
    ("ended_early", true, |dialog| Segment { flags: RST, ..dialog.dialer_says(b"") }),
    ("ended_early", true, |dialog| Segment { flags: FIN | ACK, ..dialog.dialer_says(b"") }),
];

fn with_flags(dialog: &Dialog, flags: u8) -> Segment {
    Segment { flags, ..dialog.handshake() }
}

/// Whatever leaves a doubt comes out as it went in, and so does all that follows:
/// the same handshake is held where there was none.
#[test]
fn a_flow_in_doubt_passes_for_good() {
    let Some((lab, wires)) = Lab::scripted() else { return };
    let daemon = Daemon::start(&lab, Role::Deaf);
    for (v6, inside) in WAYS {
        for (port, (reason, answered, doubtful)) in (1..).zip(DOUBTS) {
            let dialog = Dialog::new(v6, inside, port);
            wires.carry("the SYN", &dialog.syn().packet());
            if answered {
                wires.carry("the SYN-ACK", &dialog.syn_ack().packet());
            }
            let before = daemon.reason(reason);
            wires.carry(reason, &doubtful(&dialog).packet());
            daemon.expect(&[(reason, before + 1)]);
            wires.carry("the SYN-ACK", &dialog.syn_ack().packet());
            wires.carry("the handshake", &dialog.handshake().packet());
            daemon.expect(&[(reason, before + 1), ("held", 0)]);
        }
    }
    daemon.expect(&[("watched", 4 * DOUBTS.len() as u64)]);

    // A length that is not true: the kernel itself drops the packet later.
    for (v6, count) in [(false, 1), (true, 2)] {
        let dialog = Dialog::new(v6, true, 99);
        open(&wires, &dialog);
        let mut lying = dialog.handshake().packet();
        lying[if v6 { 5 } else { 3 }] += 100;
        if !v6 {
            seal_v4(&mut lying);
        }
        wires.inside.send(&lying);
        daemon.wait_for("unreadable", count);
        wires.carry("the handshake", &dialog.handshake().packet());
        wires.assert_lost("the lie", &lying, &dialog.marker(true));
    }
    daemon.expect(&[("held", 0)]);

    let certain = Dialog::new(false, true, 100);
    open(&wires, &certain);
    wires.inside.send(&certain.handshake().packet());
    daemon.wait_for("held", 1);
}

/// Nothing moves an end past the state the legs are built from; a reset passes,
/// and the flow with it.
#[test]
fn what_comes_while_a_flow_is_held_is_dropped() {
    let Some((lab, wires)) = Lab::scripted() else { return };
    let daemon = Daemon::start(&lab, Role::Deaf);
    for (index, (v6, inside)) in WAYS.into_iter().enumerate() {
        let dialog = Dialog::new(v6, inside, 1);
        open(&wires, &dialog);
        let handshake = dialog.handshake().packet();
        wires.way(&handshake).0.send(&handshake);
        let held = index as u64 + 1;
        daemon.expect(&[("held", held)]);
        wires.assert_lost("the handshake", &handshake, &dialog.marker(true));
        let follow: [(&str, bool, Segment); 5] = [
            ("the handshake again", true, dialog.handshake()),
            ("more", true, Segment { seq: DIALER_ISN + 21, ..dialog.dialer_says(b"more") }),
            ("the SYN again", true, dialog.syn()),
            ("an answer", false, dialog.listener_says(GREETING)),
            ("an acknowledgement", false, Segment { flags: ACK, ..dialog.listener_says(b"") }),
        ];
        for (what, from_dialer, segment) in follow {
            let before = daemon.reason("hold_drop");
            wires.way(&segment.packet()).0.send(&segment.packet());
            daemon.wait_for("hold_drop", before + 1);
            wires.assert_lost(what, &segment.packet(), &dialog.marker(from_dialer));
        }
        wires.carry("the RST", &Segment { flags: RST, ..dialog.dialer_says(b"") }.packet());
        wires.carry("the handshake", &handshake);
        daemon.expect(&[("hold_reset", held), ("hold_drop", 5 * held), ("hold_timeout", 0)]);
    }
}

/// What comes from outside by an interface that is not watched is not forwarded
/// beside the legs: their sequence numbers are others by then.
#[test]
fn a_packet_that_comes_beside_its_adopted_flow_is_dropped() {
    let Some((lab, wires)) = Lab::scripted() else { return };
    let bypass = lab.bypass();
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, count) in [(false, 1), (true, 2)] {
        let dialog = Dialog::new(v6, true, 1);
        open(&wires, &dialog);
        wires.inside.send(&dialog.handshake().packet());
        dialog.arrives(&wires.outside, HANDSHAKE);
        daemon.wait_for("adopted", count);
        let stray = dialog.listener_answers(b"welcome").packet();
        bypass.send(&stray);
        daemon.wait_for("adopted_stray", count);
        wires.assert_lost("the stray", &stray, &dialog.marker(false));
        // The way it should have come.
        wires.outside.send(&stray);
        dialog.arrives(&wires.inside, b"welcome");
    }
    daemon.expect(&[("adopted_stray", 2), ("hold_timeout", 0)]);
}

/// While a flow is given back, which takes about 100 us, what comes is dropped and
/// counted; a flood of acknowledgements meets one such moment before long.
#[test]
fn what_comes_while_a_flow_is_given_back_is_dropped() {
    let Some((lab, wires)) = Lab::scripted() else { return };
    let daemon = Daemon::start(&lab, Role::GiveBack);
    for port in 1..=50 {
        let dialog = Dialog::new(false, true, port);
        open(&wires, &dialog);
        wires.inside.send(&dialog.handshake().packet());
        dialog.arrives(&wires.outside, HANDSHAKE);
        let next = Segment { seq: DIALER_ISN + 21, ..dialog.dialer_says(b"more") };
        let nothing_new = Segment { flags: ACK, payload: b"", ..next }.packet();
        // From here on nothing keeps the flow.
        wires.outside.send(&dialog.listener_answers(b"").packet());
        let began = Instant::now();
        let given = loop {
            assert!(began.elapsed() < Duration::from_secs(10), "{}", daemon.counts());
            wires.inside.send(&nothing_new);
            if let Ok(given) = daemon.given_back.try_recv() {
                break given;
            }
        };
        assert_eq!(given, Ok(()));
        // A full device would lose what comes next.
        while wires.outside.next().is_some() {}
        wires.carry("what is said next", &next.packet());
        wires.carry("an answer", &dialog.listener_answers(b"welcome").packet());
        if daemon.reason("adopted_hold") > 0 {
            return;
        }
    }
    panic!("nothing was dropped in 50 flows: {}", daemon.counts());
}

/// The table at the least size the configuration allows, and half as many flows
/// again: the longest silent are forgotten, which lets them pass.
#[test]
fn a_full_table_of_watched_flows_forgets_and_breaks_nothing() {
    const FLOWS_MAX: u32 = 1024;
    let Some((lab, wires)) = Lab::scripted() else { return };
    let small = Options { flows_max: FLOWS_MAX, ..options() };
    let daemon = Daemon::start_with(&lab, Role::Relay, small);
    let dialogs = |ports: std::ops::RangeInclusive<u16>| {
        ports.map(|port| Dialog::new(false, true, port)).collect::<Vec<_>>()
    };
    let many = dialogs(1..=1536);
    for dialog in &many {
        open(&wires, dialog);
    }
    daemon.expect(&[("watched", 1536)]);
    // Every thirtieth would be adopted.
    for (index, dialog) in many.iter().enumerate() {
        let said = dialog.dialer_says(if index % 30 == 0 { HANDSHAKE } else { COUNTED });
        wires.inside.send(&said.packet());
        dialog.arrives(&wires.outside, said.payload);
    }
    let decided = daemon.reason("counted") + daemon.reason("held");
    assert!(decided <= u64::from(FLOWS_MAX), "{}", daemon.counts());
    assert!(daemon.reason("counted") > 0, "{}", daemon.counts());

    let before = daemon.reason("adopted");
    for dialog in dialogs(2001..=2005) {
        open(&wires, &dialog);
        wires.inside.send(&dialog.handshake().packet());
        dialog.arrives(&wires.outside, HANDSHAKE);
    }
    daemon.expect(&[("adopted", before + 5)]);
}

/// A SYN that somebody else sends in a live flow's name ends nothing: the bytes
/// that are said after it arrive.
#[test]
fn a_forged_syn_from_either_side_does_not_touch_a_live_flow() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    for (index, inside) in [true, false].into_iter().enumerate() {
        let ends = lab.ends(false, inside, PORT);
        let (connected, is_connected) = channel();
        let (go, may_go) = channel();
        let (dialing, listening) = ends.meet(
            move |mut stream| {
                stream.write_all(HANDSHAKE).unwrap();
                assert_eq!(read(&mut stream, 7).as_deref(), Ok(&b"welcome"[..]));
                connected.send(stream.local_addr().unwrap()).unwrap();
                may_go.recv().unwrap();
                stream.write_all(&bytes(BODY, 5)).unwrap();
                assert!(read(&mut stream, BODY) == Ok(bytes(BODY, 6)), "what the listener sent");
            },
            |mut stream| {
                assert_eq!(read(&mut stream, HANDSHAKE.len()).as_deref(), Ok(HANDSHAKE));
                stream.write_all(b"welcome").unwrap();
                // After the forgery.
                assert!(read(&mut stream, BODY) == Ok(bytes(BODY, 5)), "what the dialer sent");
                stream.write_all(&bytes(BODY, 6)).unwrap();
            },
        );
        let dialer = is_connected.recv().expect("the dialer is answered");
        let syn = |from, to| Segment { from, to, seq: 77, ack: 0, flags: SYN, payload: b"" };
        syn(dialer, ends.to).forge(&ends.dialer_ns);
        syn(ends.to, dialer).forge(&ends.listener_ns);
        daemon.wait_for("adopted_syn", 2 * (index as u64 + 1));
        go.send(()).unwrap();
        dialing.join().unwrap();
        listening.join().unwrap();
        daemon.expect(&[("adopted", index as u64 + 1)]);
    }
    daemon.expect(&[("reused", 0), ("watched", 2)]);
}
