//! Sizes in the types this crate counts in, and the arithmetic between bytes,
//! segments and groups.

use weir_ranges::{ByteRange, GROUP_BYTES, GROUP_SEGMENTS, SEGMENT_BYTES};

/// Bytes of a segment.
pub(crate) const SEGMENT_LEN: u32 = 16 << 10;
/// Bytes of a cluster, the unit of allocation: one group.
pub(crate) const CLUSTER_BYTES: u32 = 1 << 20;
/// Segments of a group.
pub(crate) const GROUP_LEN: usize = 64;
/// Runs kept of one segment that is not whole; more are not kept.
pub(crate) const RUNS_MAX: usize = 16;

const _: () = assert!(SEGMENT_LEN as u64 == SEGMENT_BYTES);
const _: () = assert!(CLUSTER_BYTES as u64 == GROUP_BYTES);
const _: () = assert!(GROUP_LEN as u64 == GROUP_SEGMENTS);

/// A piece of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which of the group's segments, below 64.
    pub(crate) segment: u8,
    /// First byte in the segment.
    pub(crate) start: u16,
    /// The byte after the last. `start < end <= 16384`.
    pub(crate) end: u16,
}

/// `range`, cut where groups begin: group number and range.
pub(crate) fn by_group(range: ByteRange) -> impl Iterator<Item = (u64, ByteRange)> {
    let groups = range.start() / GROUP_BYTES..range.end().div_ceil(GROUP_BYTES);
    groups.filter_map(move |group| {
        // Only the very last group of all numbers has no end that is a number.
        let start = group * GROUP_BYTES;
        let end = start.saturating_add(GROUP_BYTES);
        Some((group, range.intersection(ByteRange::new(start, end)?)?))
    })
}

/// A range within one group, cut where segments begin.
pub(crate) fn by_segment(range: ByteRange) -> impl Iterator<Item = Piece> {
    let segments = range.start() / SEGMENT_BYTES..range.end().div_ceil(SEGMENT_BYTES);
    segments.map(move |segment| {
        let from = segment * SEGMENT_BYTES;
        let start = range.start().max(from) - from;
        let end = (range.end() - from).min(SEGMENT_BYTES);
        Piece { segment: small(segment % GROUP_SEGMENTS), start: small(start), end: small(end) }
    })
}

/// `number` in a type that holds it.
fn small<T: TryFrom<u64>>(number: u64) -> T {
    T::try_from(number).ok().expect("a place in a group or a segment is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    #[test]
    fn ranges_are_cut_at_groups_and_segments() {
        let parts: Vec<_> = by_group(r(GROUP_BYTES - 1, 2 * GROUP_BYTES + 1)).collect();
        let want = [
            (0, r(GROUP_BYTES - 1, GROUP_BYTES)),
            (1, r(GROUP_BYTES, 2 * GROUP_BYTES)),
            (2, r(2 * GROUP_BYTES, 2 * GROUP_BYTES + 1)),
        ];
        assert_eq!(parts, want);
        assert_eq!(by_group(r(7, 7)).count(), 0);
        let pieces: Vec<_> = by_segment(r(GROUP_BYTES + 1, GROUP_BYTES + 16385)).collect();
        let want =
            [Piece { segment: 0, start: 1, end: 16384 }, Piece { segment: 1, start: 0, end: 1 }];
        assert_eq!(pieces, want);
    }

    #[test]
    fn the_last_group_of_all_numbers_is_cut_too() {
        let parts: Vec<_> = by_group(r(u64::MAX - 1, u64::MAX)).collect();
        assert_eq!(parts, [(u64::MAX / GROUP_BYTES, r(u64::MAX - 1, u64::MAX))]);
        let pieces: Vec<_> = by_segment(r(u64::MAX - 1, u64::MAX)).collect();
        assert_eq!(pieces, [Piece { segment: 63, start: 16382, end: 16383 }]);
    }
}
