//! Mode adopt behind NAT and a stateful firewall on the same machine.

use std::net::SocketAddr;

use super::give_back::meddled;
use super::*;

/// Lets in what belongs to connections from inside or to the forwarded port.
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

/// Only the gateway's address is seen outside; a forwarded port works as well.
#[test]
fn a_masquerading_gateway_with_a_stateful_firewall_adopts() {
    let Some(lab) = Lab::new() else { return };
    lab.nft(FIREWALL);
    let daemon = Daemon::start(&lab, Role::Relay);
    masqueraded(&lab, 20);
    daemon.expect(&[("adopted", 40)]);

    // From outside, to a port that is forwarded to another one inside.
    let dialed = SocketAddr::new("10.2.0.1".parse().unwrap(), PORT);
    ends::Ends { dialed, ..lab.ends(false, false, 6999) }.talk(1, &hello(), &answer());
    daemon.expect(&[("adopted", 41)]);
}

/// So many flows in each family, all of which outside is the gateway's.
fn masqueraded(lab: &Lab, count: usize) {
    for (v6, address) in [(false, "10.2.0.1"), (true, "fd02::1")] {
        let began = Instant::now();
        let (peers, locals) = lab.ends(v6, true, PORT).talk(count, &hello(), &answer());
        println!("{count} flows behind masquerade, v6 {v6}: {:?}", began.elapsed());
        assert_ne!(peers, locals);
        for peer in peers {
            assert_eq!(peer.ip().to_string(), address, "only the gateway's address is seen");
        }
    }
}

/// Conntrack that takes up no running connection would drop the inside legs'
/// packets: such flows pass, whole.
#[test]
fn flows_pass_where_conntrack_takes_up_no_running_connection() {
    let Some(lab) = Lab::new() else { return };
    lab.nft(FIREWALL);
    lab.sysctl(&lab.gateway, "net/netfilter/nf_conntrack_tcp_loose", "0");
    let daemon = Daemon::start(&lab, Role::Relay);
    masqueraded(&lab, 5);
    daemon.expect(&[("adopted", 0), ("no_zone", 10)]);
}

#[test]
fn a_changed_stream_passes_the_stateful_firewall() {
    let Some(lab) = Lab::new() else { return };
    lab.nft(FIREWALL);
    let daemon = Daemon::start(&lab, Role::Meddle);
    let [sent, arriving, quiet] = meddled();
    for v6 in [false, true] {
        lab.ends(v6, true, PORT).talk_through(10, &sent, &arriving, &quiet);
    }
    daemon.expect(&[("adopted", 20)]);
}

/// The far address is another one outside, so its SYN is not found there: the
/// flow passes, translated as before.
#[test]
fn a_flow_whose_far_address_is_translated_passes() {
    let Some(lab) = Lab::new() else { return };
    lab.nft(
        "table ip wk {\n chain pre { type nat hook prerouting priority -100; policy accept;\n\
         iifname \"gin\" ip daddr 10.9.0.9 dnat to 10.2.0.2\n}\n}",
    );
    let daemon = Daemon::start(&lab, Role::Relay);
    let dialed = SocketAddr::new("10.9.0.9".parse().unwrap(), PORT);
    ends::Ends { dialed, ..lab.ends(false, true, PORT) }.talk(3, &hello(), &answer());
    daemon.expect(&[("no_outside_key", 3), ("held", 0)]);
    // Beside it one that is not.
    lab.ends(false, true, PORT).talk(1, &hello(), &answer());
    daemon.expect(&[("no_outside_key", 3), ("adopted", 1)]);
}

#[test]
fn strict_reverse_path_filters_do_not_matter() {
    let Some(lab) = Lab::new() else { return };
    for interface in ["all", "gin", "gout"] {
        lab.sysctl(&lab.gateway, &format!("net/ipv4/conf/{interface}/rp_filter"), "1");
    }
    let daemon = Daemon::start(&lab, Role::Relay);
    for inside in [true, false] {
        lab.ends(false, inside, PORT).talk(5, &hello(), &answer());
    }
    daemon.expect(&[("adopted", 10)]);
}
