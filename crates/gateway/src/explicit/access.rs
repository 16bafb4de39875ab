//! Who may use the proxy, and to go where.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use tokio::net::TcpStream;

/// An address prefix, `10.0.0.0/8` say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    addr: IpAddr,
    bits: u8,
}

/// A text that is not ADDRESS/BITS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseNetworkError;

/// A name and a password, compared in constant time.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Network {
    /// Whether `addr` is in it. An IPv4-mapped IPv6 address is its IPv4 address.
    pub fn contains(self, addr: IpAddr) -> bool {
        match (self.addr, addr.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.bits);
                u32::from(net).checked_shr(shift) == u32::from(ip).checked_shr(shift)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.bits);
                u128::from(net).checked_shr(shift) == u128::from(ip).checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (addr, bits) = s.split_once('/').ok_or(ParseNetworkError)?;
        let addr: IpAddr = addr.parse().map_err(|_| ParseNetworkError)?;
        let bits: u8 = bits.parse().map_err(|_| ParseNetworkError)?;
        let most = if addr.is_ipv4() { 32 } else { 128 };
        if bits > most {
            return Err(ParseNetworkError);
        }
        Ok(Self { addr, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.bits)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for ParseNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network is ADDRESS/BITS, 10.0.0.0/8 say")
    }
}

impl std::error::Error for ParseNetworkError {}

impl Credentials {
    /// Whether `user` and `password` are these. Takes the same time wherever
    /// they differ; their lengths may show.
    pub fn accept(&self, user: &[u8], password: &[u8]) -> bool {
        let same = |a: &[u8], b: &[u8]| {
            a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
        };
        same(self.user.as_bytes(), user) & same(self.password.as_bytes(), password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Whether `client` may be connected to `to` by a proxy that listens on `own`.
///
/// The gateway's own services (the admin API on loopback asks for no token)
/// are for those who are on the gateway; the proxy itself is for nobody.
pub(super) fn may_reach(client: SocketAddr, to: SocketAddr, own: SocketAddr) -> bool {
    let ip = to.ip().to_canonical();
    let local = ip.is_loopback() || ip.is_unspecified() || is_link_local(ip);
    let itself = to.port() == own.port() && (local || ip == own.ip().to_canonical());
    !itself && (!local || client.ip().to_canonical().is_loopback())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Whether a connection made for `client` has turned out to end at the gateway
/// itself, whatever address led there: both ends then have the same one.
pub(super) fn is_forbidden(client: SocketAddr, socket: &TcpStream, own: SocketAddr) -> bool {
    match (socket.local_addr(), socket.peer_addr()) {
        (Ok(local), Ok(peer)) if local.ip() == peer.ip() => {
            peer.port() == own.port() || !client.ip().to_canonical().is_loopback()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(s: &str) -> Network {
        s.parse().unwrap()
    }

    fn addr(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        assert!(net("10.0.0.0/8").contains("10.255.1.1".parse().unwrap()));
        assert!(!net("10.0.0.0/8").contains("11.0.0.0".parse().unwrap()));
        assert!(net("10.0.0.0/8").contains("::ffff:10.1.1.1".parse().unwrap()));
        assert!(net("0.0.0.0/0").contains("200.1.1.1".parse().unwrap()));
        assert!(!net("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(net("fe80::/10").contains("febf::1".parse().unwrap()));
        assert!(!net("fe80::/10").contains("fec0::1".parse().unwrap()));
        assert!(net("::1/128").contains("::1".parse().unwrap()));
        for bad in ["10.0.0.0", "10.0.0.0/33", "x/8", "::/129", "10.0.0.0/-1"] {
            assert_eq!(bad.parse::<Network>(), Err(ParseNetworkError), "{bad}");
        }
    }

    #[test]
    fn the_gateway_itself_is_only_for_those_on_it() {
        let own = addr("192.168.1.1:3128");
        let (here, there) = (addr("127.0.0.1:9"), addr("192.168.1.7:9"));
        assert!(may_reach(here, addr("127.0.0.1:8480"), own));
        assert!(!may_reach(there, addr("127.0.0.1:8480"), own));
        assert!(!may_reach(there, addr("[::ffff:127.0.0.1]:8480"), own));
        assert!(!may_reach(there, addr("0.0.0.0:8480"), own));
        assert!(!may_reach(there, addr("169.254.169.254:80"), own));
        assert!(!may_reach(here, addr("127.0.0.1:3128"), own));
        assert!(!may_reach(there, addr("192.168.1.1:3128"), own));
        assert!(may_reach(there, addr("93.0.1.2:80"), own));
    }

    #[test]
    fn credentials_must_match_whole() {
        let known = Credentials { user: "u".into(), password: "pass".into() };
        assert!(known.accept(b"u", b"pass"));
        assert!(!known.accept(b"u", b"pas"));
        assert!(!known.accept(b"x", b"pass"));
        assert_eq!(format!("{known:?}"), "Credentials { .. }");
    }
}
