//! What goes into an adopter and what comes out of it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::guard::FlowGuard;
use crate::interface::InterfaceError;
use crate::kernel::KernelError;
use crate::routes::RouteError;
use crate::signature::SignatureError;

/// Where to watch, and which numbers to use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interfaces towards the access network; at least one.
    pub inside: Vec<String>,
    /// Interfaces towards the expensive link; at least one.
    pub outside: Vec<String>,
    /// One bit of the packet mark, and the next lower one with it: "deliver
    /// here" and "sent by an inside leg". Other bits are kept. Not bit 0.
    pub mark: u32,
    /// Routing table for local delivery.
    pub table: u32,
    /// Priority of the rule that leads there; before `main` (32766).
    pub rule_pref: u32,
    /// Flows watched at once; about 220 bytes of kernel memory each, at start.
    pub flows_max: u32,
    /// Flows adopted at once; about 300 bytes of kernel memory each, when used,
    /// beside the two sockets.
    pub adopted_max: u32,
}

/// Why the programs are not in place.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A signature cannot be compared.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// `mark` is not one bit, or bit 0.
    #[error("mark {mark:#x} is not a single bit from 0x2 to 0x80000000")]
    Mark {
        /// What was given.
        mark: u32,
    },
    /// A size is zero.
    #[error("flows_max and adopted_max must not be 0")]
    Size,
    /// Rights are missing.
    #[error(
        "the rights to load and attach eBPF are missing: run as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON and CAP_NET_BIND_SERVICE"
    )]
    Rights,
    /// The kernel refused a program.
    #[error(
        "the kernel refused the programs; Linux 6.6 or later with BTF is needed (`weir check` says more)"
    )]
    Load(#[source] libbpf_rs::Error),
    /// An interface refused a program.
    #[error("interface {interface:?} refused the programs; TCX needs Linux 6.6 or later")]
    Attach {
        /// Which.
        interface: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// `ip` is missing or refused.
    #[error("local delivery could not be set up: {detail}; {fix}")]
    Routes {
        /// What was tried and what it said.
        detail: String,
        /// What to do about it.
        fix: &'static str,
    },
}

/// The ring could not be read.
#[derive(Debug, thiserror::Error)]
#[error("read held flows")]
pub struct NextError(#[source] pub(super) libbpf_rs::Error);

/// An adopted flow: two sockets, and what keeps packets coming to them.
#[derive(Debug)]
pub struct Adopted {
    /// Non-blocking TCP socket that faces the client.
    pub inside: OwnedFd,
    /// Non-blocking TCP socket that faces the outside end.
    pub outside: OwnedFd,
    /// The inside end's own address and port.
    pub client: SocketAddr,
    /// The outside end's, as the client knows it.
    pub server: SocketAddr,
    /// The client opened the connection.
    pub dialer_is_inside: bool,
    /// The app of the signature that matched.
    pub app: u16,
    /// The first bytes of whoever spoke first that reached the other end before
    /// the flow was held; at most 63. What follows is read from the leg.
    pub prefix: Vec<u8>,
    /// The inside end sent `prefix`; else the outside end did. Says nothing when
    /// `prefix` is empty.
    pub prefix_from_inside: bool,
    /// From the hold in the kernel until the legs got their first packet.
    pub held: Duration,
    /// The part of `held` this flow took itself, the rest it waited for others.
    pub built: Duration,
    /// Keep it as long as the sockets.
    pub guard: FlowGuard,
}

/// What was counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Of the kernel and the daemon, by stable name.
    pub reasons: Vec<(&'static str, u64)>,
    /// Flows that matched, by app index.
    pub apps: Vec<u64>,
}

impl Counters {
    /// One reason's count; 0 for a name there is none of.
    pub fn reason(&self, name: &str) -> u64 {
        self.reasons.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }
}

impl From<KernelError> for StartError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Load(source)
                if source.kind() == libbpf_rs::ErrorKind::PermissionDenied =>
            {
                Self::Rights
            }
            KernelError::Load(source) => Self::Load(source),
            KernelError::Attach { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Self::Rights
            }
            KernelError::Attach { interface, source } => Self::Attach { interface, source },
        }
    }
}

pub(super) fn routes_error(error: RouteError) -> StartError {
    let (detail, fix) = match &error {
        RouteError::Spawn { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            (format!("{error}: {source}"), "iproute2 is needed (apt-get install iproute2)")
        }
        RouteError::Spawn { source, .. } | RouteError::Thread(source) => {
            (format!("{error}: {source}"), "`weir check` says more")
        }
        RouteError::Refused { said, .. } if said.contains("not permitted") => {
            (error.to_string(), "run as root, or with CAP_NET_ADMIN")
        }
        RouteError::Refused { .. } | RouteError::NotLoose => {
            (error.to_string(), "`weir check` says more")
        }
    };
    StartError::Routes { detail, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_rights_is_not_taken_for_a_lack_of_programs() {
        let said = "RTNETLINK answers: Operation not permitted".to_owned();
        let refused = routes_error(RouteError::Refused { program: "ip", said }).to_string();
        assert!(refused.contains("CAP_NET_ADMIN") && !refused.contains("apt-get"), "{refused}");
        let source = std::io::ErrorKind::NotFound.into();
        let missing = routes_error(RouteError::Spawn { program: "ip", source }).to_string();
        assert!(missing.contains("apt-get install iproute2"), "{missing}");
    }
}
