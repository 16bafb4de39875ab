//! The 68 bytes that both sides of a connection send first (BEP 3).
//!
//! ```text
//! 0      1                       20         28          48        68
//! | 0x13 | BitTorrent protocol   | reserved | info-hash | peer id |
//! ```

use std::fmt;

/// Bytes of a handshake.
pub const HANDSHAKE_BYTES: usize = 68;

/// What every handshake begins with.
pub const PROTOCOL: &[u8; 20] = b"\x13BitTorrent protocol";

/// The name of a content: SHA-1 of its info dictionary (BEP 3), or the first 20
/// bytes of its SHA-256 (BEP 52).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfoHash(pub [u8; 20]);

impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InfoHash({self})")
    }
}

/// The reserved bytes: which extensions a side speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved(pub [u8; 8]);

impl Reserved {
    /// Bits for the extension protocol and the fast extension.
    pub const EXTENSION_AND_FAST: Self = Self([0, 0, 0, 0, 0, 0x10, 0, 0x04]);

    /// Speaks the extension protocol (BEP 10).
    pub const fn extension(self) -> bool {
        self.0[5] & 0x10 != 0
    }

    /// Speaks the fast extension (BEP 6).
    pub const fn fast(self) -> bool {
        self.0[7] & 0x04 != 0
    }

    /// Has a DHT node (BEP 5).
    pub const fn dht(self) -> bool {
        self.0[7] & 0x01 != 0
    }
}

/// A handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Extensions.
    pub reserved: Reserved,
    /// The content both sides must name.
    pub info_hash: InfoHash,
    /// Who speaks; by custom, client and version.
    pub peer_id: [u8; 20],
}

/// Bytes that cannot become a handshake whatever follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a BitTorrent handshake from byte {at}")]
pub struct HandshakeError {
    /// The first byte that differs from [`PROTOCOL`].
    pub at: usize,
}

impl Handshake {
    /// The handshake that `input` begins with; `None` while bytes are missing.
    ///
    /// # Errors
    /// As soon as a byte says that it is none.
    pub fn parse_prefix(input: &[u8]) -> Result<Option<Self>, HandshakeError> {
        if let Some(at) = input.iter().zip(PROTOCOL).position(|(got, want)| got != want) {
            return Err(HandshakeError { at });
        }
        let part = |from: usize, to: usize| input.get(from..to);
        let (Some(reserved), Some(hash), Some(id)) = (part(20, 28), part(28, 48), part(48, 68))
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            reserved: Reserved(reserved.try_into().expect("eight bytes were cut")),
            info_hash: InfoHash(hash.try_into().expect("twenty bytes were cut")),
            peer_id: id.try_into().expect("twenty bytes were cut"),
        }))
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> [u8; HANDSHAKE_BYTES] {
        let mut out = [0; HANDSHAKE_BYTES];
        out[..20].copy_from_slice(PROTOCOL);
        out[20..28].copy_from_slice(&self.reserved.0);
        out[28..48].copy_from_slice(&self.info_hash.0);
        out[48..].copy_from_slice(&self.peer_id);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Handshake {
        Handshake {
            reserved: Reserved([0, 0, 0, 0, 0, 0x10, 0, 0x05]),
            info_hash: InfoHash(*b"0123456789abcdefghij"),
            peer_id: *b"-TR3000-abcdefghijkl",
        }
    }

    #[test]
    fn bytes_round_trip_and_wait_for_the_last_one() {
        let bytes = example().to_bytes();
        for n in 0..HANDSHAKE_BYTES {
            assert_eq!(Handshake::parse_prefix(&bytes[..n]), Ok(None), "{n}");
        }
        assert_eq!(Handshake::parse_prefix(&bytes), Ok(Some(example())));
        let reserved = example().reserved;
        assert!(reserved.extension() && reserved.fast() && reserved.dht());
    }

    #[test]
    fn refuses_at_the_first_odd_byte() {
        assert_eq!(Handshake::parse_prefix(b"\x13BitTorrent-"), Err(HandshakeError { at: 11 }));
        assert_eq!(Handshake::parse_prefix(b"GET "), Err(HandshakeError { at: 0 }));
    }
}
