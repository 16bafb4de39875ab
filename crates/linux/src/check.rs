//! What a machine lacks for mode adopt. Looks, tries, changes nothing.
//!
//! Each finding stands alone, so that an operator sees all that is missing in
//! one go. Loading is tried for real, without attaching.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use socket2::{Domain, Protocol, Socket, Type};

use crate::abi::Side;
use crate::interface::{self, Interface};
use crate::kernel::{self, Settings};
use crate::repair::{self, Leg};
use crate::{routes, sys};

/// One requirement and whether it is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable name.
    pub name: &'static str,
    /// Met.
    pub ok: bool,
    /// What was found.
    pub detail: String,
    /// What to do; empty when `ok`.
    pub fix: String,
}

/// Looks at everything mode adopt needs, in the calling thread's namespace.
pub fn run(inside: &[String], outside: &[String]) -> Vec<Finding> {
    let mut findings = vec![
        rights(),
        kernel_version(),
        btf(),
        transparent(),
        tcp_repair(),
        splice(),
        src_valid_mark(),
        program("iproute2", "ip", &["-V"], "apt-get install iproute2"),
        conntrack(),
    ];
    findings.extend(forwarding(sysctl(FORWARD_V4), sysctl(FORWARD_V6)));
    let (found, sides) = interfaces(inside, outside);
    findings.push(found);
    findings.push(load(sides));
    findings
}

fn finding(
    name: &'static str,
    result: Result<impl Into<String>, impl Into<String>>,
    fix: &str,
) -> Finding {
    match result {
        Ok(detail) => Finding { name, ok: true, detail: detail.into(), fix: String::new() },
        Err(detail) => Finding { name, ok: false, detail: detail.into(), fix: fix.to_owned() },
    }
}

fn rights() -> Finding {
    let effective = fs::read_to_string("/proc/thread-self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    let missing = missing_rights(effective.unwrap_or(0));
    let result = if !missing.is_empty() {
        Err(format!("missing: {}", missing.join(", ")))
    } else if let Err(error) = sys::hand_down_net_admin() {
        Err(format!("`ip` and `nft` cannot be given CAP_NET_ADMIN: {error}"))
    } else {
        Ok("all needed capabilities are there, `ip` and `nft` get CAP_NET_ADMIN")
    };
    finding("rights", result, RIGHTS_FIX)
}

/// Names of what an effective set (`CapEff`) lacks.
fn missing_rights(effective: u64) -> Vec<&'static str> {
    let has = |bit: u32| effective & (1 << bit) != 0;
    RIGHTS
        .into_iter()
        // The kernel takes CAP_SYS_ADMIN for what was split from it in 5.8.
        .filter(|&(_, bit)| !(has(bit) || bit >= CAP_PERFMON && has(CAP_SYS_ADMIN)))
        .map(|(name, _)| name)
        .collect()
}

fn kernel_version() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let result = match version(release) {
        Some(found) if found >= TCX_SINCE => Ok(format!("Linux {release}")),
        _ => Err(format!("Linux {release:?}, TCX needs 6.6")),
    };
    finding("kernel", result, "boot Linux 6.6 or later")
}

/// Major and minor of a kernel release, `6.18.44-x` say.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn btf() -> Finding {
    let path = "/sys/kernel/btf/vmlinux";
    let result = if fs::exists(path).unwrap_or(false) {
        Ok(path.to_owned())
    } else {
        Err(format!("{path} is not there"))
    };
    finding("btf", result, "use a kernel built with CONFIG_DEBUG_INFO_BTF=y")
}

fn transparent() -> Finding {
    let tried = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .and_then(|socket| sys::set_int(socket.as_fd(), libc::SOL_IP, libc::IP_TRANSPARENT, 1));
    let result = tried.map(|()| "a socket took it").map_err(|error| error.to_string());
    finding("ip_transparent", result, "run with CAP_NET_ADMIN")
}

/// Builds a leg between two loopback addresses; in repair mode it is silent.
fn tcp_repair() -> Finding {
    let side = Side { isn: 0, tsval: 0, window: 65_535, mss: 1460, wscale: 0, flags: 0 };
    let leg = |local: SocketAddr| {
        Leg {
            local,
            remote: SocketAddr::new(local.ip(), local.port() + 1),
            snd: 1,
            rcv: 1,
            me: side,
            peer: side,
            unacked: &[],
            inject: &[],
            mark: 0,
        }
        .build()
        .and_then(|socket| repair::sequences(socket.as_fd()).map_err(repair::while_checking))
    };
    let why = |error: repair::BuildError| format!("{error}: {}", error.source);
    // Another check may be at the same ports at this moment.
    let any = |ip: IpAddr| {
        let ports = (0..REPAIR_TRIES).map(|n| REPAIR_PORT + 2 * n);
        let mut tries = ports.map(|port| leg((ip, port).into()).map_err(why));
        let first = tries.next().expect("there is more than one try");
        first.or_else(|error| tries.find_map(Result::ok).ok_or(error))
    };
    let v4 = any(Ipv4Addr::LOCALHOST.into());
    let v6 = any(Ipv6Addr::LOCALHOST.into());
    let result = match (v4, v6) {
        (Ok(_), Ok(_)) => Ok("a socket took it, IPv4 and IPv6".to_owned()),
        // Where IPv6 is off there is none to adopt.
        (Ok(_), Err(error)) if sysctl(FORWARD_V6).as_deref() != Ok("1") => {
            Ok(format!("a socket took it, IPv4 only ({error})"))
        }
        (Ok(_), Err(error)) => Err(format!("IPv6: {error}")),
        (Err(error), _) => Err(error),
    };
    finding(
        "tcp_repair",
        result,
        "get the rights above; use a kernel built with CONFIG_CHECKPOINT_RESTORE=y",
    )
}

fn splice() -> Finding {
    let tried = sys::pipe(4096).and_then(|(read, write)| {
        let (from, to) = std::os::unix::net::UnixStream::pair()?;
        std::io::Write::write_all(&mut &from, b"x")?;
        let moved = sys::splice(to.as_fd(), write.as_fd(), 1)?;
        drop(read);
        Ok(moved)
    });
    let result = match tried {
        Ok(1) => Ok("works".to_owned()),
        Ok(moved) => Err(format!("{moved} bytes moved instead of 1")),
        Err(error) => Err(error.to_string()),
    };
    finding("splice", result, "allow splice(2) in the seccomp profile")
}

/// One family is enough; a router of one has the other off on purpose.
fn forwarding(v4: Result<String, String>, v6: Result<String, String>) -> [Finding; 2] {
    let on = |value: &Result<String, String>| value.as_deref().is_ok_and(|value| value != "0");
    let one_is_on = on(&v4) || on(&v6);
    let judge = |name, family, value: Result<String, String>, fix| {
        let result = match value {
            Ok(value) if value != "0" => Ok("on".to_owned()),
            _ if one_is_on => Ok(format!("off: {family} is not forwarded")),
            Ok(_) => Err("off".to_owned()),
            Err(error) => Err(error),
        };
        finding(name, result, fix)
    };
    [
        judge("ip_forward", "IPv4", v4, "sysctl -w net.ipv4.ip_forward=1"),
        judge("ip_forward_v6", "IPv6", v6, "sysctl -w net.ipv6.conf.all.forwarding=1"),
    ]
}

fn sysctl(path: &str) -> Result<String, String> {
    let value = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(value.trim().to_owned())
}

/// With it, a marked packet's way back is looked up in the local table, and the
/// packet is a martian.
fn src_valid_mark() -> Finding {
    let on = fs::read_to_string("/proc/sys/net/ipv4/conf/all/src_valid_mark")
        .is_ok_and(|value| value.trim() != "0");
    let result = if on { Err("on") } else { Ok("off") };
    finding("src_valid_mark", result, "sysctl -w net.ipv4.conf.all.src_valid_mark=0")
}

fn program(name: &'static str, program: &str, arguments: &[&str], fix: &str) -> Finding {
    let ran =
        Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let result = match ran {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("`{program}` ended with {}", output.status)),
        Err(error) => Err(format!("`{program}`: {error}")),
    };
    finding(name, result, fix)
}

/// Only where conntrack follows connections are nft and its zones needed.
fn conntrack() -> Finding {
    const NAME: &str = "conntrack";
    if !routes::conntrack_is_active() {
        return finding(NAME, Ok::<_, String>("not active, no zone is needed"), "");
    }
    let nft = program(NAME, "nft", &["--version"], "apt-get install nftables");
    if !nft.ok {
        return nft;
    }
    let result = if routes::conntrack_is_loose() {
        Ok("active, the inside legs get a zone of their own")
    } else {
        Err("active, and does not take up running connections")
    };
    finding(NAME, result, "sysctl -w net.netfilter.nf_conntrack_tcp_loose=1")
}

type Sides = (Vec<Interface>, Vec<Interface>);

fn interfaces(inside: &[String], outside: &[String]) -> (Finding, Option<Sides>) {
    let found = interface::find_sides(inside, outside);
    let fix = "name them with --inside and --outside";
    match found {
        Ok(sides) => {
            let names = |side: &[Interface]| {
                let names: Vec<_> = side
                    .iter()
                    .map(|one| format!("{} ({} bytes of link header)", one.name, one.l2_len))
                    .collect();
                names.join(", ")
            };
            let detail = format!("inside {}; outside {}", names(&sides.0), names(&sides.1));
            (finding("interfaces", Ok::<_, String>(detail), fix), Some(sides))
        }
        Err(error) => (finding("interfaces", Err::<String, _>(error.to_string()), fix), None),
    }
}

fn load(sides: Option<Sides>) -> Finding {
    let l2_len = |side: &[Interface]| side.first().map_or(14, |first| first.l2_len);
    let (inside, outside) = sides.unwrap_or_default();
    let settings = Settings {
        inside_l2_len: l2_len(&inside),
        outside_l2_len: l2_len(&outside),
        mark: 0x4000_0000,
        flows_max: 1024,
        adopted_max: 64,
    };
    let result = match kernel::load(settings, &[], &[]) {
        Ok(_) => Ok("the kernel takes the programs".to_owned()),
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            Err(format!("{error}: {}", source.unwrap_or_default()))
        }
    };
    finding("programs", result, "get the rights above, on Linux 6.6 or later with BTF")
}

const RIGHTS: [(&str, u32); 5] = [
    // Ports below 1024 are those of the flows.
    ("CAP_NET_BIND_SERVICE", 10),
    ("CAP_NET_ADMIN", 12),
    ("CAP_NET_RAW", 13),
    ("CAP_PERFMON", CAP_PERFMON),
    ("CAP_BPF", 39),
];
const CAP_PERFMON: u32 = 38;
const CAP_SYS_ADMIN: u32 = 21;
const RIGHTS_FIX: &str = "run as root, or: setcap \
    cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_net_bind_service+ep weir";

const FORWARD_V4: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARD_V6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
const TCX_SINCE: (u32, u32) = (6, 6);

/// Nobody has to listen there, and nothing is sent.
const REPAIR_PORT: u16 = 9;
/// Pairs of ports that are tried.
const REPAIR_TRIES: u16 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert!(version("6.10-rc1") >= Some(TCX_SINCE));
        assert!(version("5.15.0") < Some(TCX_SINCE));
        assert_eq!(version("x"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn each_missing_right_is_named() {
        let all = 1 << 10 | 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;
        assert!(missing_rights(all).is_empty());
        assert!(missing_rights(u64::MAX).is_empty());
        assert_eq!(missing_rights(all & !(1 << 10)), ["CAP_NET_BIND_SERVICE"]);
        assert_eq!(missing_rights(1 << 12 | 1 << 13 | 1 << 10), ["CAP_PERFMON", "CAP_BPF"]);
        assert!(missing_rights(1 << 12 | 1 << 13 | 1 << 10 | 1 << 21).is_empty());
        assert_eq!(missing_rights(0).len(), 5);
    }

    #[test]
    fn a_router_of_one_family_is_a_router() {
        let (on, off) = (|| Ok("1".to_owned()), || Ok("0".to_owned()));
        let oks = |v4, v6| forwarding(v4, v6).map(|one| one.ok);
        assert_eq!(oks(on(), off()), [true, true]);
        assert_eq!(oks(off(), on()), [true, true]);
        assert_eq!(oks(on(), Err("no IPv6".to_owned())), [true, true]);
        assert_eq!(oks(off(), off()), [false, false]);
        assert_eq!(oks(off(), Err("no IPv6".to_owned())), [false, false]);
        assert_eq!(forwarding(on(), off())[1].detail, "off: IPv6 is not forwarded");
    }

    #[test]
    fn each_requirement_is_told_once_and_has_a_fix_when_not_met() {
        let findings = run(&["wk-none".to_owned()], &[]);
        let mut names: Vec<_> = findings.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), findings.len());
        for one in &findings {
            assert_eq!(one.ok, one.fix.is_empty(), "{one:?}");
            assert!(!one.detail.is_empty(), "{one:?}");
        }
        let interfaces = findings.iter().find(|one| one.name == "interfaces").unwrap();
        assert!(!interfaces.ok);
        assert!(interfaces.detail.contains("wk-none"), "{interfaces:?}");
    }

    #[test]
    fn root_on_this_kernel_may_do_all_that_needs_no_router() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let needed =
            ["rights", "kernel", "btf", "ip_transparent", "tcp_repair", "splice", "programs"];
        for one in run(&[], &[]) {
            assert!(one.ok || !needed.contains(&one.name), "{one:?}");
        }
    }
}
