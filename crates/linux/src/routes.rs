//! Local delivery of marked packets, and a conntrack zone for the near leg.
//!
//! A packet of an adopted flow carries the delivery mark; `ip rule` sends it to
//! a table whose only route is "local". Two legs of a flow have one 4-tuple, so
//! where conntrack is active the inside leg must live in a zone of its own, else
//! both legs share one entry and NAT is applied to the wrong one. The nft rules
//! for that are installed when conntrack first has anything to track, and not
//! before: the rules themselves would switch it on for all traffic.
//!
//! All of it is idempotent and left harmless by `kill -9`: without the
//! programs no packet carries the mark.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

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
}

/// The policy route; removed when dropped.
#[derive(Debug)]
pub(crate) struct LocalDelivery {
    numbers: Numbers,
}

impl LocalDelivery {
    /// Installs rule and route for IPv4, and for IPv6 where the kernel has it.
    ///
    /// # Errors
    ///
    /// `ip` is missing or refused.
    pub(crate) fn install(numbers: Numbers) -> Result<Self, RouteError> {
        // Dropped, and so undone, when a step fails.
        let delivery = Self { numbers };
        for family in families() {
            // A rule left behind would be doubled; there may be none.
            run("ip", &rule(family, "del", numbers), None).ok();
            run("ip", &rule(family, "add", numbers), None)?;
            let (table, all) = (numbers.table.to_string(), any(family));
            let route = [family, "route", "replace", "local", all, "dev", "lo", "table", &table];
            run("ip", &route.map(str::to_owned), None)?;
        }
        Ok(delivery)
    }
}

impl Drop for LocalDelivery {
    fn drop(&mut self) {
        for family in families() {
            let table = self.numbers.table.to_string();
            let route =
                [family, "route", "del", "local", any(family), "dev", "lo", "table", &table];
            for arguments in [rule(family, "del", self.numbers), route.map(str::to_owned).to_vec()]
            {
                if let Err(error) = run("ip", &arguments, None) {
                    tracing::debug!(%error, "local delivery not removed");
                }
            }
        }
    }
}

/// The conntrack zone of the inside legs; removed when dropped.
#[derive(Debug)]
pub(crate) struct ConntrackZone {
    inside: Vec<String>,
    numbers: Numbers,
    state: ZoneState,
    /// Kept open: it is read before each adoption until the zone is there.
    count: Option<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneState {
    NotNeeded,
    Installed,
    Failed,
}

impl ConntrackZone {
    /// Looks at the calling thread's network namespace.
    pub(crate) fn new(inside: Vec<String>, numbers: Numbers) -> Self {
        let count = File::open(CONNTRACK_COUNT).ok();
        Self { inside, numbers, state: ZoneState::NotNeeded, count }
    }

    /// Called before each adoption: whether the inside leg may exist.
    ///
    /// An adopted flow that conntrack follows was in its table from the SYN on,
    /// so an empty table means that it does not follow this one.
    pub(crate) fn ensure(&mut self) -> bool {
        match self.state {
            ZoneState::Installed => true,
            ZoneState::Failed => false,
            ZoneState::NotNeeded if !self.count.as_ref().is_some_and(is_not_zero) => true,
            ZoneState::NotNeeded => {
                self.state = match self.install() {
                    Ok(()) => ZoneState::Installed,
                    Err(error) => {
                        tracing::error!(%error, "no conntrack zone: flows are not adopted");
                        ZoneState::Failed
                    }
                };
                self.state == ZoneState::Installed
            }
        }
    }

    fn install(&self) -> Result<(), RouteError> {
        let interfaces: Vec<_> = self.inside.iter().map(|name| format!("{name:?}")).collect();
        let (mark, own) = (self.numbers.mark, self.numbers.own_mark());
        // Without pick-up of running connections (loose) a zone's entry would
        // be INVALID; untracked at least passes a firewall that accepts it.
        let apart = if conntrack_is_loose() { "ct zone set 22354" } else { "notrack" };
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
        run("nft", &["-f".to_owned(), "-".to_owned()], Some(&rules))
    }
}

impl Drop for ConntrackZone {
    fn drop(&mut self) {
        if self.state == ZoneState::Installed {
            let delete = ["delete", "table", "inet", NFT_TABLE].map(str::to_owned);
            if let Err(error) = run("nft", &delete, None) {
                tracing::warn!(%error, "conntrack zone not removed");
            }
        }
    }
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

/// Runs a program, its answer in the error when it refuses.
///
/// # Errors
///
/// It is missing or refused.
pub(crate) fn run(
    program: &'static str,
    arguments: &[String],
    input: Option<&str>,
) -> Result<(), RouteError> {
    let spawn = |source| RouteError::Spawn { program, source };
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(spawn)?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes()).map_err(spawn)?;
    }
    let output = child.wait_with_output().map_err(spawn)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(RouteError::Refused { program, said })
}

fn is_not_zero(count: &File) -> bool {
    let mut digits = [0; 16];
    count.read_at(&mut digits, 0).is_ok_and(|len| digits[..len].trim_ascii() != b"0")
}

fn families() -> impl Iterator<Item = &'static str> {
    let v6 = fs::exists("/proc/sys/net/ipv6").unwrap_or(false);
    ["-4"].into_iter().chain(v6.then_some("-6"))
}

fn any(family: &str) -> &'static str {
    if family == "-4" { "0.0.0.0/0" } else { "::/0" }
}

fn rule(family: &str, verb: &str, numbers: Numbers) -> Vec<String> {
    let Numbers { mark, table, rule_pref } = numbers;
    vec![
        family.to_owned(),
        "rule".to_owned(),
        verb.to_owned(),
        "fwmark".to_owned(),
        format!("{mark:#x}/{mark:#x}"),
        "lookup".to_owned(),
        table.to_string(),
        "pref".to_owned(),
        rule_pref.to_string(),
    ]
}

const CONNTRACK_COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const NFT_TABLE: &str = "weir_adopt";
