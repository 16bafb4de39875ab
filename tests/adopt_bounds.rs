//! More of something than there is room for.

use super::*;

/// The table of adopted flows is full: the next ones pass.
#[test]
fn a_full_table_lets_flows_pass() {
    let Some(lab) = Lab::new() else { return };
    let small = Options { adopted_max: 3, ..options() };
    let daemon = Daemon::start_with(&lab, Role::Relay, small);
    lab.ends(false, true, PORT).talk(5, &hello(), &answer());
    daemon.expect(&[("adopted", 3), ("adopted_full", 2)]);
}

/// Four times as many flows as the table of watched ones holds are open when the
/// first one speaks: every byte arrives, and the next flow is adopted.
#[test]
fn forgotten_flows_pass_whole() {
    let Some(lab) = Lab::new() else { return };
    // One entry for all: whatever can go wrong with so few does.
    for (flows_max, count) in [(16, 64), (1, 16)] {
        let small = Options { flows_max, ..options() };
        let daemon = Daemon::start_with(&lab, Role::Relay, small);
        let (dialer, listener) = (Script { body_len: 50_000, ..hello() }, answer());
        let ends = lab.ends(false, true, PORT);
        ends.talk_gathered(count, &dialer, &listener);
        println!("{count} flows, room for {flows_max}: {}", daemon.counts());
        let before = daemon.reason("adopted");
        assert!(before <= u64::from(flows_max), "{}", daemon.counts());
        for _ in 0..3 {
            ends.talk(1, &dialer, &listener);
        }
        daemon.expect(&[("adopted", before + 3)]);
    }
}

/// 16 KiB a record are kept in a ring of 4 MiB that nobody empties.
#[test]
fn a_full_ring_lets_flows_pass() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Deaf);
    let first = [HANDSHAKE, &bytes(8192 - HANDSHAKE.len(), 3)].concat();
    lab.ends(false, true, PORT).talk(
        300,
        &Script::new(&first, 0, 1),
        &Script { after: 1, ..Script::new(b"welcome", 0, 1) },
    );
    assert!(daemon.reason("ring_full") > 0, "{}", daemon.counts());
    assert_eq!(daemon.reason("ring_full") + daemon.reason("held"), 300);
    assert_eq!(daemon.reason("hold_timeout"), daemon.reason("held"));
}

#[test]
fn a_first_payload_above_the_record_passes() {
    let Some(lab) = Lab::new() else { return };
    let route =
        ["-n", &lab.client, "route", "replace", "default", "via", "10.1.0.1", "initcwnd", "60"];
    run("ip", &route, "");
    let daemon = Daemon::start(&lab, Role::Relay);
    let mut script = hello();
    script.first = vec![[HANDSHAKE, &bytes(40_000, 3)].concat()];
    lab.ends(false, true, PORT).talk(1, &script, &answer());
    daemon.expect(&[("too_large", 1), ("held", 0)]);
}

#[test]
fn five_hundred_flows_at_once_are_adopted_in_time() {
    let Some(lab) = Lab::new() else { return };
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
    // On a loaded machine a hold may end in its time-out, which passes the flow.
    let given_up = daemon.reason("too_late") + daemon.reason("hold_ended");
    assert_eq!(daemon.reason("adopted") + given_up, 500, "{}", daemon.counts());
    assert_eq!(held.len() as u64, daemon.reason("adopted"));
}

fn spread(what: &str, times: &[Duration]) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{what}: n {} p50 {:?} p99 {:?} max {:?}", times.len(), at(50), at(99), at(100));
}
