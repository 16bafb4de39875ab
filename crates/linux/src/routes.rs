//! Local delivery of marked packets, a conntrack zone for the near leg, and
//! seeing to it that both stay.
//!
//! A packet of an adopted flow carries the delivery mark; `ip rule` sends it to
//! a table whose only route is "local". Two legs of a flow have one 4-tuple, so
//! where conntrack is active the inside leg must live in a zone of its own, else
//! both legs share one entry and NAT is applied to the wrong one. The nft rules
//! for that are installed when conntrack first has anything to track, and not
//! before: the rules themselves would switch it on for all traffic.
//!
//! Others may remove these rules: a firewall or a network service that is
//! reloaded. The kernel tells of every change of policy rules and of nftables;
//! from then on nothing is adopted until a thread of this module has looked, and
//! has installed again what is gone. Routes it looks at from time to time.
//!
//! All of it is idempotent and left harmless by `kill -9`: without the
//! programs no packet carries the mark.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::sys;

/// Numbers an operator may need to keep apart from his own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// One bit: "deliver here".
    pub(crate) mark: u32,
    pub(crate) table: u32,
    pub(crate) rule_pref: u32,
}

impl Numbers {
    /// One bit: "sent by an inside leg".
    pub(crate) const fn own_mark(self) -> u32 {
        self.mark >> 1
    }
}

/// Why routes or rules could not be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RouteError {
    #[error("run `{program}`")]
    Spawn {
        program: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("`{program}` refused: {said}")]
    Refused { program: &'static str, said: String },
    #[error("nf_conntrack_tcp_loose is 0: `sysctl -w net.netfilter.nf_conntrack_tcp_loose=1`")]
    NotLoose,
    #[error("start the thread that keeps the routes")]
    Thread(#[source] io::Error),
}

/// The policy routes and the zone; looked after until dropped, then removed.
#[derive(Debug)]
pub(crate) struct Routes {
    ground: Arc<Ground>,
    keeper: Option<JoinHandle<()>>,
    keeper_thread: Thread,
}

impl Routes {
    /// Installs local delivery for IPv4, and for IPv6 where it is in use, in the
    /// calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// `ip` is missing or refused; nothing stays behind.
    pub(crate) fn install(inside: Vec<String>, numbers: Numbers) -> Result<Self, RouteError> {
        let ground = Arc::new(Ground {
            inside,
            numbers,
            changes: Changes::watch(),
            delivers: Default::default(),
            asked: Default::default(),
            zone: AtomicU8::new(Zone::NotNeeded as u8),
            looking: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            work: Mutex::new(()),
            count: File::open(CONNTRACK_COUNT).ok(),
        });
        if let Err(error) = ground.deliver(Family::V4) {
            ground.remove();
            return Err(error);
        }
        if fs::exists("/proc/sys/net/ipv6").unwrap_or(false)
            && let Err(error) = ground.deliver(Family::V6)
        {
            // Off by sysctl, most likely; such a machine does not forward it either.
            tracing::warn!(%error, "IPv6 flows are not adopted");
        }
        ground.changes.drain();
        let kept = Arc::clone(&ground);
        let keeper = thread::Builder::new().name("weir-routes".to_owned());
        match keeper.spawn(move || kept.keep()) {
            Ok(keeper) => {
                let keeper_thread = keeper.thread().clone();
                Ok(Self { ground, keeper: Some(keeper), keeper_thread })
            }
            Err(error) => {
                ground.remove();
                Err(RouteError::Thread(error))
            }
        }
    }

    /// Called before each adoption: whether its legs would get their packets.
    ///
    /// Does not wait, but for the first flow that needs the zone.
    pub(crate) fn ready(&self, v6: bool) -> bool {
        let family = if v6 { Family::V6 } else { Family::V4 };
        let ground = &self.ground;
        ground.asked[family as usize].store(true, Ordering::Relaxed);
        // In this order: changes vanish only while somebody is looking.
        if ground.has_changed() || ground.looking.load(Ordering::SeqCst) {
            self.keeper_thread.unpark();
            return false;
        }
        ground.delivers[family as usize].load(Ordering::SeqCst) && ground.zone_is_right()
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.ground.stop.store(true, Ordering::SeqCst);
        self.keeper_thread.unpark();
        // It removes what is installed: it is in the right namespace.
        if self.keeper.take().is_some_and(|keeper| keeper.join().is_err()) {
            tracing::error!("the thread that keeps the routes panicked; they stay");
        }
    }
}

/// What the builders and the keeper share.
#[derive(Debug)]
struct Ground {
    inside: Vec<String>,
    numbers: Numbers,
    changes: Changes,
    /// By family: rule and route are there, as far as known.
    delivers: [AtomicBool; 2],
    /// By family: a flow has come since the last look.
    asked: [AtomicBool; 2],
    /// A [`Zone`].
    zone: AtomicU8,
    /// A change is being looked into.
    looking: AtomicBool,
    stop: AtomicBool,
    /// Held by who changes routes or rules.
    work: Mutex<()>,
    /// Kept open: it is read before each adoption until the zone is there.
    count: Option<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    NotNeeded,
    Installed,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Self; 2] = [Self::V4, Self::V6];

    const fn flag(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }

    const fn any(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0/0",
            Self::V6 => "::/0",
        }
    }
}

impl Ground {
    /// The keeper's life.
    fn keep(&self) {
        let mut look_ns = 0;
        // Flows came before the last look; what vanished after it is noticed.
        let mut again = false;
        while !self.stop.load(Ordering::SeqCst) {
            let now_ns = sys::monotonic_ns();
            let changed = self.has_changed();
            let asked = self.asked.iter().any(|asked| asked.load(Ordering::Relaxed));
            let pause_ns = if changed { LOOK_AGAIN_NS } else { LOOK_ANYWAY_NS };
            if (changed || asked || again) && now_ns.saturating_sub(look_ns) >= pause_ns {
                self.look();
                look_ns = sys::monotonic_ns();
                again = asked;
            }
            // Woken when a change keeps a flow from being adopted.
            thread::park_timeout(PARK);
        }
        self.remove();
    }

    /// Installs again what is gone.
    fn look(&self) {
        let _work = self.work.lock().expect("nothing panics under this lock");
        let changed = self.has_changed();
        let asked =
            [&self.asked[0], &self.asked[1]].map(|asked| asked.swap(false, Ordering::Relaxed));
        self.looking.store(changed, Ordering::SeqCst);
        // What is installed here is a change too; a foreign one may hide behind it.
        for _ in 0..3 {
            self.changes.drain();
            let mut mended = false;
            for family in Family::ALL {
                let delivers = &self.delivers[family as usize];
                let wanted = delivers.load(Ordering::SeqCst) || asked[family as usize];
                if wanted && !self.is_delivered(family) {
                    mended |= self.mend_delivery(family);
                }
            }
            let zone = self.zone.load(Ordering::SeqCst);
            if zone == Zone::Installed as u8 && !self.zone_is_there() {
                tracing::warn!("the conntrack zone's rules were removed by others");
                mended |= self.install_zone();
            } else if zone == Zone::Installed as u8 && !conntrack_is_loose() {
                // Says so, and keeps flows from being adopted.
                self.install_zone();
            } else if zone == Zone::Failed as u8 {
                mended |= self.install_zone();
            }
            if !mended {
                break;
            }
            self.looking.store(true, Ordering::SeqCst);
        }
        self.looking.store(false, Ordering::SeqCst);
    }

    /// Others' nftables matter only to the zone.
    fn has_changed(&self) -> bool {
        self.changes.of_rules()
            || self.zone.load(Ordering::SeqCst) != Zone::NotNeeded as u8
                && self.changes.of_nftables()
    }

    fn mend_delivery(&self, family: Family) -> bool {
        let delivers = &self.delivers[family as usize];
        if delivers.swap(false, Ordering::SeqCst) {
            tracing::warn!(family = family.flag(), "local delivery was removed by others");
        }
        match self.deliver(family) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, family = family.flag(), "no local delivery");
                false
            }
        }
    }

    fn deliver(&self, family: Family) -> Result<(), RouteError> {
        // A rule left behind would be doubled; there may be none.
        run("ip", &rule(family, "del", self.numbers), None).ok();
        run("ip", &rule(family, "add", self.numbers), None)?;
        if let Err(error) = run("ip", &route(family, "replace", self.numbers), None) {
            run("ip", &rule(family, "del", self.numbers), None).ok();
            return Err(error);
        }
        self.delivers[family as usize].store(true, Ordering::SeqCst);
        Ok(())
    }

    fn is_delivered(&self, family: Family) -> bool {
        let Numbers { mark, table, rule_pref } = self.numbers;
        let (pref, fwmark) = (format!("{rule_pref}:"), format!(" fwmark {mark:#x}/{mark:#x} "));
        let table = table.to_string();
        let says = |arguments: &[&str], wanted: &dyn Fn(&str) -> bool| {
            let arguments: Vec<_> = arguments.iter().map(|&one| one.to_owned()).collect();
            run("ip", &arguments, None).is_ok_and(|said| said.lines().any(wanted))
        };
        says(&[family.flag(), "rule", "show"], &|line| {
            line.starts_with(&pref) && line.contains(&fwmark)
        }) && says(&[family.flag(), "route", "show", "table", &table], &|line| {
            line.starts_with("local default dev lo")
        })
    }

    /// Whether the inside leg of a flow that conntrack follows may exist.
    ///
    /// An adopted flow that conntrack follows was in its table from the SYN on,
    /// so an empty table means that it does not follow this one.
    fn zone_is_right(&self) -> bool {
        let zone = self.zone.load(Ordering::SeqCst);
        if zone == Zone::NotNeeded as u8 {
            return !self.count.as_ref().is_some_and(is_not_zero) || self.first_zone();
        }
        zone == Zone::Installed as u8
    }

    fn first_zone(&self) -> bool {
        let _work = self.work.lock().expect("nothing panics under this lock");
        let zone = self.zone.load(Ordering::SeqCst);
        if zone != Zone::NotNeeded as u8 {
            return zone == Zone::Installed as u8;
        }
        if !self.install_zone() {
            return false;
        }
        // Told of our own change; another's that hides behind it has left a trace.
        self.changes.drain_nftables();
        if !self.zone_is_there() {
            self.zone.store(Zone::Failed as u8, Ordering::SeqCst);
            return false;
        }
        true
    }

    fn install_zone(&self) -> bool {
        let interfaces: Vec<_> = self.inside.iter().map(|name| format!("{name:?}")).collect();
        let (mark, own) = (self.numbers.mark, self.numbers.own_mark());
        let apart = "ct zone set 22354";
        let rules = format!(
            "table inet {NFT_TABLE}\n\
             delete table inet {NFT_TABLE}\n\
             table inet {NFT_TABLE} {{\n\
             chain arriving {{\n\
             type filter hook prerouting priority raw; policy accept;\n\
             iifname {{ {} }} meta mark & {mark:#x} == {mark:#x} {apart}\n\
             }}\n\
             chain leaving {{\n\
             type filter hook output priority raw; policy accept;\n\
             meta mark & {own:#x} == {own:#x} {apart}\n\
             }}\n\
             }}\n",
            interfaces.join(", ")
        );
        // Without pick-up of running connections a zone's entry would be INVALID, and
        // an untracked leg passes no stateful firewall.
        let installed = if conntrack_is_loose() {
            run("nft", &["-f".to_owned(), "-".to_owned()], Some(&rules))
        } else {
            Err(RouteError::NotLoose)
        };
        let zone = if installed.is_ok() { Zone::Installed } else { Zone::Failed };
        let before = self.zone.swap(zone as u8, Ordering::SeqCst);
        if let Err(error) = installed
            && before != Zone::Failed as u8
        {
            tracing::error!(%error, "no conntrack zone: flows are not adopted");
        }
        zone == Zone::Installed
    }

    fn zone_is_there(&self) -> bool {
        let list = ["list", "table", "inet", NFT_TABLE].map(str::to_owned);
        run("nft", &list, None).is_ok_and(|said| said.matches("ct zone set").count() == 2)
    }

    fn remove(&self) {
        let _work = self.work.lock().expect("nothing panics under this lock");
        for family in Family::ALL {
            if !self.delivers[family as usize].swap(false, Ordering::SeqCst) {
                continue;
            }
            for arguments in [rule(family, "del", self.numbers), route(family, "del", self.numbers)]
            {
                if let Err(error) = run("ip", &arguments, None) {
                    tracing::debug!(%error, "local delivery not removed");
                }
            }
        }
        if self.zone.swap(Zone::NotNeeded as u8, Ordering::SeqCst) == Zone::Installed as u8 {
            let delete = ["delete", "table", "inet", NFT_TABLE].map(str::to_owned);
            if let Err(error) = run("nft", &delete, None) {
                tracing::warn!(%error, "conntrack zone not removed");
            }
        }
    }
}

/// The kernel's word that policy rules or nftables were changed.
///
/// What cannot be watched is only looked at from time to time.
#[derive(Debug)]
struct Changes {
    rules: Option<OwnedFd>,
    nftables: Option<OwnedFd>,
}

impl Changes {
    fn watch() -> Self {
        let open = |protocol, groups| -> nix::Result<OwnedFd> {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
            bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
            Ok(socket)
        };
        let watched = |protocol, groups| {
            let opened = open(protocol, groups);
            opened.inspect_err(|error| tracing::warn!(%error, "changes not watched")).ok()
        };
        Self {
            rules: watched(SockProtocol::NetlinkRoute, RULE_GROUPS),
            nftables: watched(SockProtocol::NetlinkNetFilter, NFTABLES_GROUP),
        }
    }

    /// Whether there was one since it was drained.
    fn of_rules(&self) -> bool {
        self.rules.as_ref().is_some_and(|told| message(told, MsgFlags::MSG_PEEK))
    }

    fn of_nftables(&self) -> bool {
        self.nftables.as_ref().is_some_and(|told| message(told, MsgFlags::MSG_PEEK))
    }

    fn drain(&self) {
        self.rules.as_ref().map(drain);
        self.drain_nftables();
    }

    fn drain_nftables(&self) {
        self.nftables.as_ref().map(drain);
    }
}

/// Bounded: whoever changes without end is seen again.
fn drain(told: &OwnedFd) {
    for _ in 0..MESSAGES_MAX {
        if !message(told, MsgFlags::empty()) {
            break;
        }
    }
}

/// An overrun of the queue says as much as a message.
fn message(told: &OwnedFd, flags: MsgFlags) -> bool {
    let answer = recv(told.as_raw_fd(), &mut [0; 16], flags | MsgFlags::MSG_DONTWAIT);
    !matches!(answer, Err(nix::errno::Errno::EAGAIN))
}

/// Whether conntrack follows anything in this network namespace.
pub(crate) fn conntrack_is_active() -> bool {
    File::open(CONNTRACK_COUNT).is_ok_and(|file| is_not_zero(&file))
}

/// Whether conntrack takes up connections it has not seen begin.
pub(crate) fn conntrack_is_loose() -> bool {
    fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
        .is_ok_and(|loose| loose.trim() != "0")
}

/// Runs a program with this thread's `CAP_NET_ADMIN`; what it said.
///
/// # Errors
///
/// It is missing or refused, with its answer.
fn run(
    program: &'static str,
    arguments: &[String],
    input: Option<&str>,
) -> Result<String, RouteError> {
    let spawn = |source| RouteError::Spawn { program, source };
    if let Err(error) = sys::hand_down_net_admin() {
        // Root's children have it anyway; others' say what they miss.
        tracing::debug!(%error, "CAP_NET_ADMIN not handed down");
    }
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(spawn)?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes()).map_err(spawn)?;
    }
    let output = child.wait_with_output().map_err(spawn)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(RouteError::Refused { program, said })
}

fn is_not_zero(count: &File) -> bool {
    let mut digits = [0; 16];
    count.read_at(&mut digits, 0).is_ok_and(|len| digits[..len].trim_ascii() != b"0")
}

fn rule(family: Family, verb: &str, numbers: Numbers) -> Vec<String> {
    let Numbers { mark, table, rule_pref } = numbers;
    let (mark, table, pref) =
        (format!("{mark:#x}/{mark:#x}"), table.to_string(), rule_pref.to_string());
    [family.flag(), "rule", verb, "fwmark", &mark, "lookup", &table, "pref", &pref]
        .map(str::to_owned)
        .to_vec()
}

fn route(family: Family, verb: &str, numbers: Numbers) -> Vec<String> {
    let table = numbers.table.to_string();
    [family.flag(), "route", verb, "local", family.any(), "dev", "lo", "table", &table]
        .map(str::to_owned)
        .to_vec()
}

const CONNTRACK_COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const NFT_TABLE: &str = "weir_adopt";

/// `RTNLGRP_IPV4_RULE` (8) and `RTNLGRP_IPV6_RULE` (19).
const RULE_GROUPS: u32 = 1 << 7 | 1 << 18;
/// `NFNLGRP_NFTABLES` (7).
const NFTABLES_GROUP: u32 = 1 << 6;
/// Taken from a queue at once.
const MESSAGES_MAX: usize = 4096;

/// Between two looks that others' changes ask for: each starts some programs.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// Between two looks at what no message tells of, and two tries at what failed.
const LOOK_ANYWAY_NS: u64 = 5_000_000_000;
const PARK: Duration = Duration::from_millis(100);
