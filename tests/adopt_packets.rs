//! Packets made by hand.

use std::net::{IpAddr, SocketAddr};

use crate::daemon::HANDSHAKE;
use crate::lab::{host, in_ns};
use crate::{PORT, tun::Wire};

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;

pub(crate) const TCP: u8 = 6;
const UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;

/// A TCP segment without options.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) payload: &'static [u8],
}

impl Segment {
    /// In an IP packet that has nothing special.
    pub(crate) fn packet(&self) -> Vec<u8> {
        self.packet_of(TCP, &self.tcp())
    }

    /// In an IP packet of another protocol, or with another body.
    pub(crate) fn packet_of(&self, protocol: u8, body: &[u8]) -> Vec<u8> {
        if self.from.is_ipv4() {
            self.v4(&[], DONT_FRAGMENT, protocol, body)
        } else {
            let len = u16::try_from(body.len()).unwrap().to_be_bytes();
            let head = [0x60, 0, 0, 0, len[0], len[1], protocol, 64];
            [&head[..], &octets(self.from.ip()), &octets(self.to.ip()), body].concat()
        }
    }

    /// In an IPv4 packet with options, flags and offset as given.
    pub(crate) fn v4(&self, options: &[u8], fragment: u16, protocol: u8, body: &[u8]) -> Vec<u8> {
        let words = 5 + u8::try_from(options.len() / 4).unwrap();
        let total = u16::try_from(20 + options.len() + body.len()).unwrap().to_be_bytes();
        let [high, low] = fragment.to_be_bytes();
        let head =
            [0x40 | words, 0, total[0], total[1], 0, 7, high, low, 64, protocol, 0, 0].to_vec();
        let head = [head, octets(self.from.ip()), octets(self.to.ip()), options.to_vec()].concat();
        let mut packet = [&head[..], body].concat();
        seal_v4(&mut packet);
        packet
    }

    /// The segment itself, with its checksum.
    pub(crate) fn tcp(&self) -> Vec<u8> {
        let ports = [self.from.port().to_be_bytes(), self.to.port().to_be_bytes()].concat();
        let mut tcp =
            [ports, self.seq.to_be_bytes().into(), self.ack.to_be_bytes().into()].concat();
        // As an urgent pointer, which nobody looks at without the flag.
        let [_, urgent] = u16::try_from(self.payload.len()).unwrap().to_be_bytes();
        let urgent = if self.flags & URG == 0 { 0 } else { urgent };
        tcp.extend([5 << 4, self.flags, 0xff, 0xff, 0, 0, 0, urgent]);
        tcp.extend(self.payload);
        let len = u16::try_from(tcp.len()).unwrap().to_be_bytes();
        let ends = [octets(self.from.ip()), octets(self.to.ip())].concat();
        let sum = checksum(&[&ends[..], &[0, TCP], &len, &tcp].concat());
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        tcp
    }

    /// Sends it from a namespace, whoever its source address belongs to.
    pub(crate) fn forge(self, ns: &str) {
        use nix::sys::socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
        };
        in_ns(ns, move || {
            let protocol = SockProtocol::Raw;
            let socket =
                socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), protocol).unwrap();
            let SocketAddr::V4(to) = self.to else { panic!("IPv4 only") };
            let packet = self.packet();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            let sent = sendto(fd, &packet, &SockaddrIn::from(to), MsgFlags::empty());
            assert_eq!(sent, Ok(packet.len()));
        })
        .join()
        .unwrap();
    }
}

/// Puts the right checksum into an IPv4 header.
pub(crate) fn seal_v4(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().into(),
        IpAddr::V6(v6) => v6.octets().into(),
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// A connection whose two ends are scripts.
#[derive(Clone, Copy)]
pub(crate) struct Dialog {
    pub(crate) v6: bool,
    dialer: SocketAddr,
    listener: SocketAddr,
}

pub(crate) const DIALER_ISN: u32 = 1000;
pub(crate) const LISTENER_ISN: u32 = 5000;

impl Dialog {
    /// The dialer's port tells dialogs apart.
    pub(crate) fn new(v6: bool, dialer_is_inside: bool, port: u16) -> Self {
        let (near, far) = if dialer_is_inside { (1, 2) } else { (2, 1) };
        let dialer = SocketAddr::new(host(v6, near), port);
        Self { v6, dialer, listener: SocketAddr::new(host(v6, far), PORT) }
    }

    pub(crate) fn syn(&self) -> Segment {
        let (from, to) = (self.dialer, self.listener);
        Segment { from, to, seq: DIALER_ISN, ack: 0, flags: SYN, payload: b"" }
    }

    pub(crate) fn syn_ack(&self) -> Segment {
        Segment { seq: LISTENER_ISN, flags: SYN | ACK, ..self.listener_says(b"") }
    }

    /// The first thing the dialer says.
    pub(crate) fn dialer_says(&self, payload: &'static [u8]) -> Segment {
        let (seq, ack) = (DIALER_ISN + 1, LISTENER_ISN + 1);
        Segment { seq, ack, flags: PSH | ACK, payload, ..self.syn() }
    }

    pub(crate) fn handshake(&self) -> Segment {
        self.dialer_says(HANDSHAKE)
    }

    /// The first thing the listener says, when the dialer has said nothing yet.
    pub(crate) fn listener_says(&self, payload: &'static [u8]) -> Segment {
        let (from, to) = (self.listener, self.dialer);
        let (seq, ack) = (LISTENER_ISN + 1, DIALER_ISN + 1);
        Segment { from, to, seq, ack, flags: PSH | ACK, payload }
    }

    /// The listener's answer to the handshake; a bare acknowledgement if empty.
    pub(crate) fn listener_answers(&self, payload: &'static [u8]) -> Segment {
        let len = u32::try_from(HANDSHAKE.len()).unwrap();
        let said = self.listener_says(payload);
        Segment { ack: said.ack + len, ..said }
    }

    /// A datagram between the ends, which is nobody's business.
    pub(crate) fn marker(&self, from_dialer: bool) -> Vec<u8> {
        let said = if from_dialer { self.syn() } else { self.syn_ack() };
        said.packet_of(UDP, &[0, 9, 0, 9, 0, 8, 0, 0])
    }

    /// Waits for a segment of this dialog with this payload, whoever made it.
    #[track_caller]
    pub(crate) fn arrives(&self, wire: &Wire, payload: &[u8]) {
        wire.until("the payload", |packet| {
            let ip = if self.v6 { 40 } else { 20 };
            let Some(tcp) = packet.get(ip..).filter(|tcp| tcp.len() >= 20) else { return false };
            let (dialer, listener) = (self.dialer.port().to_be_bytes(), PORT.to_be_bytes());
            let ours = [[dialer, listener].concat(), [listener, dialer].concat()];
            let head = usize::from(tcp[12] >> 4) * 4;
            ours.iter().any(|ports| tcp.starts_with(ports)) && tcp.get(head..) == Some(payload)
        });
    }
}
