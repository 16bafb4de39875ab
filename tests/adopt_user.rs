//! Mode adopt on machines that others configure: options ends did not agree on,
//! rules that vanish, a family that is off.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The rule is there (again); at most some seconds.
fn wait_until(what: &str, lab: &Lab, arguments: &[&str], wanted: &str) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        let output = Command::new("ip")
            .args([&["netns", "exec", &lab.gateway], arguments].concat())
            .output()
            .unwrap();
        if String::from_utf8_lossy(&output.stdout).contains(wanted) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}");
}

fn in_gateway(lab: &Lab, arguments: &[&str]) {
    run("ip", &[&["netns", "exec", &lab.gateway], arguments].concat(), "");
}

#[test]
fn ends_that_do_not_scale_windows_get_whole_windows() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    lab.sysctl(&lab.server, "net/ipv4/tcp_window_scaling", "0");
    let daemon = Daemon::start(&lab, Role::Relay);
    let mut dialer = hello();
    dialer.body_len = 4_000_000;
    let listener = Script { body_len: 4_000_000, ..answer() };
    let began = Instant::now();
    lab.ends(false, true, PORT).talk(1, &dialer, &listener);
    let took = began.elapsed();
    assert_eq!(daemon.reason("adopted"), 1);
    // Windows of some hundred bytes take minutes.
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn rules_that_others_remove_come_back_and_no_flow_suffers() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    // Switches conntrack on.
    lab.nft(
        "table ip wk {\n chain forward { type filter hook forward priority 0; policy accept;\n\
         ct state invalid drop\n}\n}",
    );
    let daemon = Daemon::start(&lab, Role::Relay);
    let talk = || {
        for v6 in [false, true] {
            lab.ends(v6, true, PORT).talk(1, &hello(), &answer());
        }
    };
    talk();
    assert_eq!(daemon.reason("adopted"), 2, "{:?}", daemon.adopter.counters());

    // As a network service that is reloaded does; the next flow at once.
    in_gateway(&lab, &["ip", "rule", "del", "pref", "100"]);
    talk();
    wait_until("the rule comes back", &lab, &["ip", "rule"], "lookup 100");
    // As a firewall that is reloaded does.
    in_gateway(&lab, &["nft", "delete", "table", "inet", "weir_adopt"]);
    talk();
    wait_until("the zone comes back", &lab, &["nft", "list", "tables"], "weir_adopt");
    in_gateway(&lab, &["ip", "-6", "rule", "del", "pref", "100"]);
    wait_until("the IPv6 rule comes back", &lab, &["ip", "-6", "rule"], "lookup 100");
    // Between reinstalling and having looked once more a flow may still pass.
    std::thread::sleep(Duration::from_millis(300));
    let before = daemon.reason("adopted");
    talk();
    assert_eq!(daemon.reason("adopted"), before + 2, "{:?}", daemon.adopter.counters());
    assert_eq!(before + daemon.reason("no_zone"), 6, "{:?}", daemon.adopter.counters());
    assert_eq!(daemon.reason("hold_timeout"), 0);
}

#[test]
fn routes_that_vanish_without_a_word_come_back_while_flows_come() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let daemon = Daemon::start(&lab, Role::Relay);
    let ends = lab.ends(false, true, PORT);
    ends.talk(1, &hello(), &answer());
    in_gateway(&lab, &["ip", "route", "flush", "table", "100"]);
    wait_until("the route comes back", &lab, &["ip", "route", "show", "table", "100"], "local");
    std::thread::sleep(Duration::from_millis(300));
    ends.talk(1, &hello(), &answer());
    assert_eq!(daemon.reason("adopted"), 2, "{:?}", daemon.adopter.counters());
}

#[test]
fn a_gateway_without_local_ipv6_adopts_ipv4_and_lets_ipv6_pass() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    lab.sysctl(&lab.gateway, "net/ipv6/conf/lo/disable_ipv6", "1");
    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &hello(), &answer());
    lab.ends(true, true, PORT).talk(1, &hello(), &answer());
    assert_eq!(daemon.reason("adopted"), 1, "{:?}", daemon.adopter.counters());
    assert_eq!(daemon.reason("no_zone"), 1);
    drop(daemon);

    lab.sysctl(&lab.gateway, "net/ipv6/conf/all/disable_ipv6", "1");
    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &hello(), &answer());
    assert_eq!(daemon.reason("adopted"), 1, "{:?}", daemon.adopter.counters());
}

#[test]
fn a_prefix_is_said_to_come_from_the_end_that_sent_it() {
    static STOP: AtomicBool = AtomicBool::new(false);
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new();
    let (ready, is_ready) = channel();
    let daemon = in_ns(&lab.gateway, move || {
        let adopter = Adopter::start(&options(), &signatures()).unwrap();
        ready.send(()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut seen = Vec::new();
        while !STOP.load(Ordering::Relaxed) {
            let Some(adopted) = adopter.next(Duration::from_millis(50)).unwrap() else { continue };
            seen.push((adopted.dialer_is_inside, adopted.prefix_from_inside));
            drop(runtime.spawn(lab::relay(adopted)));
        }
        runtime.shutdown_timeout(Duration::from_secs(1));
        seen
    });
    is_ready.recv().unwrap();
    for inside in [true, false] {
        lab.ends(false, inside, PORT).talk(1, &split(), &patient());
    }
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(daemon.join().unwrap(), [(true, true), (false, false)]);
}
