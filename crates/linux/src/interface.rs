//! Interfaces by name: their index, and how many bytes precede the IP header.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Socket, Type};

use crate::sys;

/// An interface the programs can be attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index in this network namespace.
    pub index: u32,
    /// Bytes before the IP header: 14 (Ethernet) or 0 (TUN, PPP, raw IP).
    pub l2_len: u32,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is none of this name.
    #[error("no interface is called {name:?} (`ip -brief link` lists them)")]
    Missing {
        /// The name asked for.
        name: String,
    },
    /// Its link layer is neither Ethernet nor bare IP.
    #[error(
        "interface {name:?} has link type {kind} (ARPHRD), only Ethernet, PPP, TUN and raw IP work"
    )]
    Kind {
        /// Its name.
        name: String,
        /// Its `ARPHRD_*` number.
        kind: u16,
    },
    /// Interfaces of one side differ in their link layer.
    #[error("interfaces of one side must be of one kind, {first:?} and {second:?} are not")]
    Mixed {
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
    /// An interface was named twice, or none was named for a side.
    #[error("name each interface once, and at least one for each side")]
    Set,
    /// The kernel would not say.
    #[error("look up interface {name:?}")]
    Io {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Looks one up in the calling thread's network namespace.
///
/// # Errors
///
/// [`InterfaceError::Missing`], [`InterfaceError::Kind`] or [`InterfaceError::Io`].
pub fn find(name: &str) -> Result<Interface, InterfaceError> {
    let io = |source| InterfaceError::Io { name: name.to_owned(), source };
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(io)?;
    let kind = sys::interface_type(socket.as_fd(), name).map_err(|source| {
        if source.raw_os_error() == Some(libc::ENODEV) {
            InterfaceError::Missing { name: name.to_owned() }
        } else {
            io(source)
        }
    })?;
    let l2_len = match kind {
        libc::ARPHRD_ETHER => 14,
        libc::ARPHRD_PPP | libc::ARPHRD_NONE | ARPHRD_RAWIP => 0,
        kind => return Err(InterfaceError::Kind { name: name.to_owned(), kind }),
    };
    let index = nix::net::if_::if_nametoindex(name).map_err(|error| io(error.into()))?;
    Ok(Interface { name: name.to_owned(), index, l2_len })
}

/// Looks up one side's interfaces: at least one, all of one kind.
///
/// # Errors
///
/// As [`find`]; [`InterfaceError::Mixed`], [`InterfaceError::Set`].
pub fn find_side(names: &[String]) -> Result<Vec<Interface>, InterfaceError> {
    let found = names.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = found.first() else { return Err(InterfaceError::Set) };
    if let Some(other) = found.iter().find(|other| other.l2_len != first.l2_len) {
        return Err(InterfaceError::Mixed {
            first: first.name.clone(),
            second: other.name.clone(),
        });
    }
    Ok(found)
}

/// Looks up both sides; no interface may be on both.
///
/// # Errors
///
/// As [`find_side`].
pub fn find_sides(
    inside: &[String],
    outside: &[String],
) -> Result<(Vec<Interface>, Vec<Interface>), InterfaceError> {
    let (inside, outside) = (find_side(inside)?, find_side(outside)?);
    let mut all: Vec<u32> = inside.iter().chain(&outside).map(|found| found.index).collect();
    all.sort_unstable();
    if all.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(InterfaceError::Set);
    }
    Ok((inside, outside))
}

const ARPHRD_RAWIP: u16 = 519;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_said_to_be_unknown() {
        let error = find("wk-no-such-if").unwrap_err();
        assert!(matches!(error, InterfaceError::Missing { .. }), "{error}");
        assert!(matches!(find(""), Err(InterfaceError::Missing { .. })));
        assert!(matches!(find(&"x".repeat(40)), Err(InterfaceError::Missing { .. })));
    }

    #[test]
    fn a_link_layer_that_is_not_understood_is_refused() {
        assert!(matches!(find("lo"), Err(InterfaceError::Kind { kind: 772, .. })));
    }

    #[test]
    fn a_side_needs_an_interface() {
        assert!(matches!(find_side(&[]), Err(InterfaceError::Set)));
    }
}
