//! What a segment holds: decided by its object and its offset, cheap to make and to
//! check.
//!
//! A word of 8 bytes is the segment's own number, mixed, plus its place times an odd
//! number: no two words of a segment are the same, and a page of one segment is not
//! that of another.

use bytes::Bytes;

use crate::layout::Segment;

/// The segment's bytes.
pub(crate) fn of(segment: Segment) -> Bytes {
    let base = base(segment);
    let mut bytes = vec![0; (segment.len as usize).next_multiple_of(8)];
    for (place, bytes) in (0..).zip(bytes.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word(base, place).to_le_bytes());
    }
    bytes.truncate(segment.len as usize);
    Bytes::from(bytes)
}

/// Whether `bytes` are the segment's: a word of every page of 4 KiB, and the last.
pub(crate) fn is_of(segment: Segment, bytes: &[u8]) -> bool {
    let base = base(segment);
    let holds = |at: usize| {
        let want = word(base, at as u64 / 8).to_le_bytes();
        let have = &bytes[at..bytes.len().min(at + 8)];
        have == &want[..have.len()]
    };
    // The word in a page moves on, so that a shift by a page is seen as well as any.
    let pages = (0..bytes.len()).step_by(PAGE).enumerate();
    bytes.len() == segment.len as usize
        && pages.map(|(page, at)| at + page * 8 % PAGE).filter(|at| *at < bytes.len()).all(holds)
        && holds(bytes.len().saturating_sub(1) / 8 * 8)
}

const fn word(base: u64, place: u64) -> u64 {
    base.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A number of the segment's own (the finalizer of `SplitMix64`).
const fn base(segment: Segment) -> u64 {
    let mut z = segment.object.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ segment.offset;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_their_place_and_of_no_other() {
        let segment = Segment { object: 3, offset: 1 << 19, len: 100_003 };
        let bytes = of(segment);
        assert_eq!(bytes.len(), 100_003);
        assert!(is_of(segment, &bytes));
        assert!(!is_of(Segment { object: 4, ..segment }, &bytes));
        assert!(!is_of(Segment { offset: 0, ..segment }, &bytes));
        assert!(!is_of(segment, &bytes[1..]), "too short");
        let mut moved = bytes.to_vec();
        moved.rotate_left(4096);
        assert!(!is_of(segment, &moved), "a page late");
        let mut torn = bytes.to_vec();
        torn[8192..12_288].fill(0);
        assert!(!is_of(segment, &torn), "a page lost");
    }
}
