//! Sizes, offsets and names; see the module's head.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest `offset + length` of a signature, and the longest kept prefix, in bytes.
pub(crate) const WINDOW: usize = 64;
/// Most signatures the kernel looks at.
pub(crate) const SIGNATURES_MAX: usize = 64;
/// Most apps the kernel counts.
pub(crate) const APPS_MAX: usize = 64;
/// The longest first payload that is held, in bytes.
#[cfg(test)]
pub(crate) const PAYLOAD_MAX: usize = 16_384;

pub(crate) const TUPLE_BYTES: usize = 36;
pub(crate) const FLOW_BYTES: usize = 112;
pub(crate) const ADOPTED_BYTES: usize = 16;
pub(crate) const SIGNATURE_BYTES: usize = 136;
pub(crate) const HELD_BYTES: usize = 200;

pub(crate) const FLOW_PASS: u32 = 2;
pub(crate) const FLOW_HOLD: u32 = 3;

pub(crate) const SIDE_WSCALE: u8 = 2;
pub(crate) const SIDE_SACK: u8 = 4;
pub(crate) const SIDE_TS: u8 = 8;

pub(crate) const INSIDE: usize = 0;
pub(crate) const OUTSIDE: usize = 1;

/// `enum reason`, by index; stable names for metrics.
pub(crate) const REASONS: [&str; 29] = [
    "none",
    "watched",
    "no_match",
    "counted",
    "held",
    "prefix_kept",
    "hold_drop",
    "hold_timeout",
    "hold_reset",
    "syn_data",
    "early_payload",
    "out_of_order",
    "both_sides",
    "urgent",
    "too_large",
    "no_outside_key",
    "ring_full",
    "unreadable",
    "table_full",
    "ended_early",
    "ip_options",
    "fragment",
    "ipv6_extension",
    "truncated",
    "adopted_stray",
    "adopted_hold",
    "reused",
    "icmp_delivered",
    "adopted_syn",
];

/// `struct tuple` as the maps' key.
pub(crate) type TupleKey = [u8; TUPLE_BYTES];

/// The two ends named by a tuple, inside first.
pub(crate) fn tuple_ends(key: &TupleKey) -> (SocketAddr, SocketAddr) {
    let port = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
    (
        SocketAddr::new(address(&key[..16]), port(32)),
        SocketAddr::new(address(&key[16..32]), port(34)),
    )
}

/// `struct side`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) isn: u32,
    pub(crate) tsval: u32,
    /// Bytes, already scaled.
    pub(crate) window: u32,
    pub(crate) mss: u16,
    pub(crate) wscale: u8,
    pub(crate) flags: u8,
}

/// What the driver needs of `struct flow`; the bytes stay for writing it back.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) bytes: [u8; FLOW_BYTES],
    pub(crate) dialer: usize,
    pub(crate) hold_ns: u64,
    pub(crate) sides: [Side; 2],
}

impl Flow {
    /// The same flow, passed for good.
    pub(crate) fn passed(&self) -> [u8; FLOW_BYTES] {
        let mut bytes = self.bytes;
        bytes[..4].copy_from_slice(&FLOW_PASS.to_ne_bytes());
        bytes
    }

    /// Bytes of the dialer (or whoever sent the payload) that went through before.
    pub(crate) fn prefix(&self) -> &[u8] {
        let len = usize::from(u16::from_ne_bytes([self.bytes[6], self.bytes[7]])).min(WINDOW);
        &self.bytes[48..48 + len]
    }

    /// Reads one; `None` if it is not one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; FLOW_BYTES] = bytes.try_into().ok()?;
        let dialer = usize::from(bytes[4]);
        (dialer <= OUTSIDE).then_some(())?;
        Some(Self {
            dialer,
            hold_ns: u64_at(&bytes, 8)?,
            sides: [side(&bytes[16..32])?, side(&bytes[32..48])?],
            bytes,
        })
    }
}

/// Whether a flow's map entry is still on the hold that began at `hold_ns`.
pub(crate) fn still_held(entry: &[u8], hold_ns: u64) -> bool {
    u32_at(entry, 0) == Some(FLOW_HOLD) && u64_at(entry, 8) == Some(hold_ns)
}

/// `struct held` and its payload.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) inside: TupleKey,
    pub(crate) outside: TupleKey,
    pub(crate) flow: Flow,
    /// Of the first byte of `payload`.
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) app: u16,
    /// Who sent the payload: [`INSIDE`] or [`OUTSIDE`].
    pub(crate) from: usize,
    pub(crate) payload: Vec<u8>,
}

impl Held {
    /// Reads a ring record; `None` if it is not one.
    pub(crate) fn parse(record: &[u8]) -> Option<Self> {
        let len = usize::try_from(u32_at(record, 192)?).ok()?;
        let from = usize::from(*record.get(198)?);
        (from <= OUTSIDE).then_some(())?;
        Some(Self {
            inside: record.get(..36)?.try_into().ok()?,
            outside: record.get(36..72)?.try_into().ok()?,
            flow: Flow::parse(record.get(72..72 + FLOW_BYTES)?)?,
            seq: u32_at(record, 184)?,
            ack: u32_at(record, 188)?,
            app: u16::from_ne_bytes([record[196], record[197]]),
            from,
            payload: record.get(HELD_BYTES..HELD_BYTES + len)?.to_vec(),
        })
    }
}

/// `struct adopted`; `ended` and `hold` are 0 or 1.
pub(crate) fn adopted(dialer_isn: u32, ended: u32, hold: u32) -> [u8; ADOPTED_BYTES] {
    let mut bytes = [0; ADOPTED_BYTES];
    bytes[..4].copy_from_slice(&dialer_isn.to_ne_bytes());
    bytes[4..8].copy_from_slice(&ended.to_ne_bytes());
    bytes[8..12].copy_from_slice(&hold.to_ne_bytes());
    bytes
}

/// Which connection a `struct adopted` is for.
pub(crate) fn adopted_dialer_isn(bytes: &[u8]) -> Option<u32> {
    u32_at(bytes, 0)
}

/// A 32-bit field in host order, if the bytes are there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn side(bytes: &[u8]) -> Option<Side> {
    Some(Side {
        isn: u32_at(bytes, 0)?,
        tsval: u32_at(bytes, 4)?,
        window: u32_at(bytes, 8)?,
        mss: u16::from_ne_bytes([*bytes.get(12)?, *bytes.get(13)?]),
        wscale: *bytes.get(14)?,
        flags: *bytes.get(15)?,
    })
}

/// IPv4 where it is mapped (RFC 4291 §2.5.5.2).
fn address(bytes: &[u8]) -> IpAddr {
    let mut all = [0; 16];
    all.copy_from_slice(bytes);
    let v6 = Ipv6Addr::from(all);
    match v6.to_ipv4_mapped() {
        Some(v4) => IpAddr::V4(Ipv4Addr::from(v4.octets())),
        None => IpAddr::V6(v6),
    }
}
