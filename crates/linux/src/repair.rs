//! A socket in the middle of a connection somebody else opened.
//!
//! `TCP_REPAIR` makes a socket ESTABLISHED in given addresses and sequence
//! numbers without a packet. The order of the calls matters:
//!
//! - the queues' numbers before `connect`, the options and the window after it;
//! - `SO_REUSEADDR` only after leaving repair: repair forces its own reuse, and
//!   leaving resets it, so that a second socket on the address would fail;
//! - `TCP_TIMESTAMP` even (its lowest bit selects another clock), rounded up;
//! - leave with -1: 0 sends a probe nobody asked for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::abi::{SIDE_SACK, SIDE_TS, SIDE_WSCALE, Side};
use crate::sys;

/// Everything a socket must know to be one end of a running connection.
#[derive(Debug)]
pub(crate) struct Leg<'a> {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Of the next byte to send.
    pub(crate) snd: u32,
    /// Of the next byte to receive; the first of `inject`.
    pub(crate) rcv: u32,
    /// What the end this socket stands in for had said.
    pub(crate) me: Side,
    /// What the end it talks to had said.
    pub(crate) peer: Side,
    /// Sent before `snd` and perhaps not acknowledged.
    pub(crate) unacked: &'a [u8],
    /// Put into the receive queue.
    pub(crate) inject: &'a [u8],
    /// For its packets, 0 for none.
    pub(crate) mark: u32,
}

impl Leg<'_> {
    /// Builds the socket; it is still in repair mode, and so is silent.
    ///
    /// # Errors
    ///
    /// Any of the calls', with the step's name.
    pub(crate) fn build(&self) -> Result<Socket, BuildError> {
        let domain = Domain::for_address(self.local);
        let socket =
            at("socket", Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP)))?;
        let fd = socket.as_fd();
        at("TCP_REPAIR", tcp(fd, TCP_REPAIR, sys::REPAIR_ON))?;
        let transparent = match self.local {
            SocketAddr::V4(_) => sys::set_int(fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1),
            SocketAddr::V6(_) => sys::set_int(fd, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1),
        };
        at("IP_TRANSPARENT", transparent)?;
        if self.mark != 0 {
            at("SO_MARK", socket.set_mark(self.mark))?;
        }
        at("bind", socket.bind(&SockAddr::from(self.local)))?;
        let prefix = u32::try_from(self.unacked.len()).expect("a prefix is shorter than 64 bytes");
        at("TCP_QUEUE_SEQ", set_seq(fd, QUEUE_SEND, self.snd.wrapping_sub(prefix)))?;
        at("TCP_QUEUE_SEQ", set_seq(fd, QUEUE_RECV, self.rcv))?;
        at("connect", socket.connect(&SockAddr::from(self.remote)))?;
        at("TCP_REPAIR_OPTIONS", self.set_options(fd))?;
        at("TCP_REPAIR_WINDOW", self.set_window(fd))?;
        if !self.inject.is_empty() {
            at("TCP_REPAIR_QUEUE", tcp(fd, TCP_REPAIR_QUEUE, QUEUE_RECV))?;
            whole("inject", socket.send(self.inject), self.inject.len())?;
        }
        if !self.unacked.is_empty() {
            at("TCP_REPAIR_QUEUE", tcp(fd, TCP_REPAIR_QUEUE, QUEUE_SEND))?;
            whole("prefix", socket.send(self.unacked), self.unacked.len())?;
        }
        Ok(socket)
    }

    fn both(&self, flag: u8) -> bool {
        self.me.flags & self.peer.flags & flag != 0
    }

    /// Of what is sent to in the lower half, of what is received in the upper;
    /// none unless both ends offered one (RFC 7323 §2.2).
    fn window_shifts(&self) -> u32 {
        if !self.both(SIDE_WSCALE) {
            return 0;
        }
        u32::from(self.peer.wscale) | u32::from(self.me.wscale) << 16
    }

    fn set_options(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut options = Vec::with_capacity(4 * 8);
        let mut put = |code: u32, value: u32| {
            options.extend_from_slice(&code.to_ne_bytes());
            options.extend_from_slice(&value.to_ne_bytes());
        };
        // RFC 9293 §3.7.1: 536 when the peer said nothing.
        put(2, if self.peer.mss == 0 { 536 } else { u32::from(self.peer.mss) });
        // Said in any case: `connect` has chosen a shift of its own, and without a
        // word here would announce windows that many times too small.
        put(3, self.window_shifts());
        if self.both(SIDE_SACK) {
            put(4, 0);
        }
        if self.both(SIDE_TS) {
            put(8, 0);
        }
        sys::set_bytes(fd, libc::IPPROTO_TCP, TCP_REPAIR_OPTIONS, &options)?;
        if self.both(SIDE_TS) {
            let even = self.me.tsval.wrapping_add(1) & !1;
            sys::set_bytes(fd, libc::IPPROTO_TCP, TCP_TIMESTAMP, &even.to_ne_bytes())?;
        }
        Ok(())
    }

    fn set_window(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        tcp(fd, TCP_REPAIR_QUEUE, QUEUE_NONE)?;
        let rcv_wnd = if self.inject.is_empty() {
            self.me.window
        } else {
            // Remembering a smaller offer than was made costs nothing that is
            // in flight, and makes the first look at the payload send an ACK
            // with the whole window: its sender stops its timer.
            let injected = u32::try_from(self.inject.len()).expect("at most 16 KiB");
            self.me.window.min(injected.saturating_add(IN_FLIGHT_BYTES))
        };
        let snd_wnd = self.peer.window;
        let mut bytes = [0; 20];
        let fields = [self.rcv, snd_wnd, snd_wnd.max(1), rcv_wnd, self.rcv];
        for (to, field) in bytes.chunks_exact_mut(4).zip(fields) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        sys::set_bytes(fd, libc::IPPROTO_TCP, TCP_REPAIR_WINDOW, &bytes)
    }
}

/// Lets a built leg live: leaves repair mode and sets what a live leg needs.
///
/// # Errors
///
/// As the kernel's.
pub(crate) fn leave(socket: &Socket) -> Result<(), BuildError> {
    let fd = socket.as_fd();
    at("TCP_REPAIR_QUEUE", tcp(fd, TCP_REPAIR_QUEUE, QUEUE_NONE))?;
    at("TCP_REPAIR", tcp(fd, TCP_REPAIR, sys::REPAIR_OFF_SILENT))?;
    at("SO_REUSEADDR", socket.set_reuse_address(true))?;
    at("TCP_NODELAY", tcp(fd, libc::TCP_NODELAY, 1))?;
    at("TCP_KEEPIDLE", tcp(fd, libc::TCP_KEEPIDLE, KEEPALIVE_SECONDS))?;
    at("SO_KEEPALIVE", socket.set_keepalive(true))
}

/// Freezes a live socket: from here on `close` is silent.
///
/// # Errors
///
/// As the kernel's: a socket that is neither open nor established is refused.
pub(crate) fn enter(fd: BorrowedFd<'_>) -> io::Result<()> {
    tcp(fd, TCP_REPAIR, sys::REPAIR_ON)
}

/// Undoes [`enter`].
///
/// # Errors
///
/// As the kernel's.
pub(crate) fn resume(fd: BorrowedFd<'_>) -> io::Result<()> {
    tcp(fd, TCP_REPAIR_QUEUE, QUEUE_NONE)?;
    tcp(fd, TCP_REPAIR, sys::REPAIR_OFF_SILENT)?;
    // Leaving repair has reset it; other legs share the local address.
    sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
}

/// (next to send, next to receive) of a frozen socket.
///
/// # Errors
///
/// As the kernel's.
pub(crate) fn sequences(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    tcp(fd, TCP_REPAIR_QUEUE, QUEUE_SEND)?;
    let snd = sys::get_u32(fd, libc::IPPROTO_TCP, TCP_QUEUE_SEQ)?;
    tcp(fd, TCP_REPAIR_QUEUE, QUEUE_RECV)?;
    let rcv = sys::get_u32(fd, libc::IPPROTO_TCP, TCP_QUEUE_SEQ)?;
    Ok((snd, rcv))
}

/// Whether a socket is ESTABLISHED (`tcpi_state`), its peer's FIN not seen.
///
/// # Errors
///
/// As the kernel's.
pub(crate) fn is_established(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut info = [0; 8];
    sys::get_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    Ok(info[0] == 1)
}

/// A step that failed while a leg was built.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub(crate) struct BuildError {
    pub(crate) step: &'static str,
    #[source]
    pub(crate) source: io::Error,
}

/// A read-back that failed.
pub(crate) fn while_checking(source: io::Error) -> BuildError {
    BuildError { step: "read back", source }
}

fn at<T>(step: &'static str, result: io::Result<T>) -> Result<T, BuildError> {
    result.map_err(|source| BuildError { step, source })
}

fn whole(step: &'static str, sent: io::Result<usize>, len: usize) -> Result<(), BuildError> {
    match sent {
        Ok(sent) if sent == len => Ok(()),
        Ok(_) => Err(BuildError { step, source: io::ErrorKind::WriteZero.into() }),
        Err(source) => Err(BuildError { step, source }),
    }
}

fn tcp(fd: BorrowedFd<'_>, name: i32, value: i32) -> io::Result<()> {
    sys::set_int(fd, libc::IPPROTO_TCP, name, value)
}

fn set_seq(fd: BorrowedFd<'_>, queue: i32, seq: u32) -> io::Result<()> {
    tcp(fd, TCP_REPAIR_QUEUE, queue)?;
    sys::set_bytes(fd, libc::IPPROTO_TCP, TCP_QUEUE_SEQ, &seq.to_ne_bytes())
}

const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_OPTIONS: i32 = 22;
const TCP_TIMESTAMP: i32 = 24;
const TCP_REPAIR_WINDOW: i32 = 29;

const QUEUE_NONE: i32 = 0;
const QUEUE_RECV: i32 = 1;
const QUEUE_SEND: i32 = 2;

/// A first flight after the held payload (RFC 6928: ten segments) fits.
const IN_FLIGHT_BYTES: u32 = 16 * 1024;

/// A flow idle longer is probed, so that a leg whose end vanished is noticed.
const KEEPALIVE_SECONDS: i32 = 300;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_leg_shifts_windows_only_when_both_ends_offered_to() {
        let side =
            |wscale, flags| Side { isn: 0, tsval: 0, window: 65_535, mss: 1460, wscale, flags };
        let shifts = |me, peer| {
            let (local, remote) =
                ((Ipv4Addr::LOCALHOST, 17).into(), (Ipv4Addr::LOCALHOST, 18).into());
            let leg =
                Leg { local, remote, snd: 1, rcv: 1, me, peer, unacked: &[], inject: &[], mark: 0 };
            leg.window_shifts()
        };
        assert_eq!(shifts(side(9, SIDE_WSCALE), side(7, SIDE_WSCALE)), 9 << 16 | 7);
        assert_eq!(shifts(side(9, SIDE_WSCALE), side(0, SIDE_SACK)), 0);
        assert_eq!(shifts(side(0, SIDE_SACK), side(7, SIDE_WSCALE)), 0);
    }
}
