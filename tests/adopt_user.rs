//! Mode adopt on machines that others configure: options ends did not agree on,
//! rules that vanish, routes that refuse, a family that is off.

use std::process::Command;

use super::*;

/// A program's output in the gateway holds the wanted words (again); at most some
/// seconds.
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

#[test]
fn ends_that_do_not_scale_windows_get_whole_windows() {
    let Some(lab) = Lab::new() else { return };
    lab.sysctl(&lab.server, "net/ipv4/tcp_window_scaling", "0");
    let daemon = Daemon::start(&lab, Role::Relay);
    let dialer = Script { body_len: 4_000_000, ..hello() };
    let listener = Script { body_len: 4_000_000, ..answer() };
    let began = Instant::now();
    lab.ends(false, true, PORT).talk(1, &dialer, &listener);
    let took = began.elapsed();
    daemon.expect(&[("adopted", 1)]);
    // Windows of some hundred bytes take minutes.
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// A network service and a firewall are reloaded while flows come.
#[test]
fn rules_that_others_remove_come_back_and_no_flow_suffers() {
    let Some(lab) = Lab::new() else { return };
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
    daemon.expect(&[("adopted", 2)]);

    // As a network service that is reloaded does; the next flow at once.
    lab.in_gateway(&["ip", "rule", "del", "pref", "100"]);
    talk();
    wait_until("the rule comes back", &lab, &["ip", "rule"], "lookup 100");
    // As a firewall that is reloaded does.
    lab.in_gateway(&["nft", "delete", "table", "inet", "weir_adopt"]);
    talk();
    wait_until("the zone comes back", &lab, &["nft", "list", "tables"], "weir_adopt");
    lab.in_gateway(&["ip", "-6", "rule", "del", "pref", "100"]);
    wait_until("the IPv6 rule comes back", &lab, &["ip", "-6", "rule"], "lookup 100");
    // Between reinstalling and having looked once more a flow may still pass.
    std::thread::sleep(Duration::from_millis(300));
    let before = daemon.reason("adopted");
    talk();
    daemon.expect(&[("adopted", before + 2), ("no_zone", 6 - before), ("hold_timeout", 0)]);
}

#[test]
fn routes_that_vanish_without_a_word_come_back_while_flows_come() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    let ends = lab.ends(false, true, PORT);
    ends.talk(1, &hello(), &answer());
    lab.in_gateway(&["ip", "route", "flush", "table", "100"]);
    wait_until("the route comes back", &lab, &["ip", "route", "show", "table", "100"], "local");
    std::thread::sleep(Duration::from_millis(300));
    ends.talk(1, &hello(), &answer());
    daemon.expect(&[("adopted", 2)]);
}

/// A router that may forward to the far network and not speak to it itself.
#[test]
fn a_leg_that_cannot_be_built_lets_its_flow_pass() {
    let Some(lab) = Lab::new() else { return };
    for (family, net) in [("-4", "10.2.0.0/24"), ("-6", "fd02::/64")] {
        let refuse = ["iif", "lo", "to", net, "pref", "50", "prohibit"];
        lab.in_gateway(&[&["ip", family, "rule", "add"], &refuse[..]].concat());
    }
    let daemon = Daemon::start(&lab, Role::Relay);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &hello(), &answer());
    }
    daemon.expect(&[("build_failed", 4), ("adopted", 0), ("hold_timeout", 0)]);
}

#[test]
fn a_gateway_without_local_ipv6_adopts_ipv4_and_lets_ipv6_pass() {
    let Some(lab) = Lab::new() else { return };
    lab.sysctl(&lab.gateway, "net/ipv6/conf/lo/disable_ipv6", "1");
    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &hello(), &answer());
    lab.ends(true, true, PORT).talk(1, &hello(), &answer());
    daemon.expect(&[("adopted", 1), ("no_zone", 1)]);
    drop(daemon);

    lab.sysctl(&lab.gateway, "net/ipv6/conf/all/disable_ipv6", "1");
    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &hello(), &answer());
    daemon.expect(&[("adopted", 1)]);
}
