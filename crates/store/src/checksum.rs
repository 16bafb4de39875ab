//! CRC32C (RFC 3720 §B.4) of runs of bytes, bound to the place they belong to.
//!
//! The mark of a run is its CRC32C, xor a CRC of object id and segment number. An
//! index entry that points at another object's or another segment's bytes then
//! fails even when the checksum table was read at the wrong place too. A mark is
//! no defence against an author of bytes who aims at a collision: that a cluster
//! is not reused before its eviction is durable does not rest on it.

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use crc_fast::Digest;
use weir_ranges::ObjectId;

/// CRC32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    low_word(crc_fast::checksum(Crc32Iscsi, bytes))
}

/// CRC32C of `parts`, one after another.
pub(crate) fn crc32c_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    low_word(digest.finalize())
}

/// What binds a checksum to segment number `segment` of `object`.
pub(crate) fn place(object: ObjectId, segment: u64) -> u32 {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&object.to_bytes());
    bytes[16..].copy_from_slice(&segment.to_le_bytes());
    crc32c(&bytes)
}

fn low_word(crc: u64) -> u32 {
    u32::try_from(crc).expect("a 32-bit CRC has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_vectors_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn parts_sum_to_the_whole() {
        assert_eq!(crc32c_of([&b"12345"[..], b"6789"].into_iter()), crc32c(b"123456789"));
    }

    #[test]
    fn places_differ() {
        let (a, b) = (ObjectId::from(1), ObjectId::from(2));
        assert_ne!(place(a, 0), place(b, 0));
        assert_ne!(place(a, 0), place(a, 1));
    }
}
