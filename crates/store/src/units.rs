//! Sizes in the types this crate counts in, and the arithmetic between bytes,
//! segments and groups.

use weir_ranges::{ByteRange, GROUP_BYTES, GROUP_SEGMENTS, SEGMENT_BYTES};

/// Bytes of a segment.
pub(crate) const SEGMENT_LEN: u32 = 16 << 10;
/// Bytes of a cluster, the unit of allocation: one group.
pub(crate) const CLUSTER_BYTES: u32 = 1 << 20;
/// Segments of a group, and slots of a cluster.
pub(crate) const GROUP_LEN: usize = 64;
/// The same, to count slots with.
pub(crate) const CLUSTER_SLOTS: u32 = 64;
/// Runs kept of one segment that is not whole; more are not kept.
pub(crate) const RUNS_MAX: usize = 16;

const _: () = assert!(SEGMENT_LEN as u64 == SEGMENT_BYTES);
const _: () = assert!(CLUSTER_BYTES as u64 == GROUP_BYTES);
const _: () = assert!(GROUP_LEN as u64 == GROUP_SEGMENTS);
const _: () = assert!(CLUSTER_SLOTS as u64 == GROUP_SEGMENTS);

/// An aligned stretch of a group: 1, 4, 16 or all 64 of its segments. What a group
/// has on disk, or in a buffer, is the bytes of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    first: u8,
    class: Class,
}

/// How long a window, and so an extent, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// 1 segment, 16 KiB.
    Segment,
    /// 4 segments, 64 KiB.
    Four,
    /// 16 segments, 256 KiB.
    Sixteen,
    /// 64 segments, 1 MiB: the whole group, a whole cluster.
    Group,
}

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::Segment, Self::Four, Self::Sixteen, Self::Group];

    /// Segments in it.
    pub(crate) const fn segments(self) -> u8 {
        1 << (2 * self as u8)
    }

    /// Bytes in it.
    pub(crate) const fn bytes(self) -> usize {
        (SEGMENT_LEN as usize) << (2 * self as u8)
    }
}

impl Window {
    /// The whole group.
    pub(crate) const GROUP: Self = Self { first: 0, class: Class::Group };

    /// The shortest with both segments in it.
    pub(crate) fn over(first: u8, last: u8) -> Self {
        let holds = |class: &Class| first / class.segments() == last / class.segments();
        let class = Class::ALL.into_iter().find(holds).unwrap_or(Class::Group);
        Self { first: first / class.segments() * class.segments(), class }
    }

    /// The shortest with all of `part`, a range of one group that is not empty.
    pub(crate) fn of(part: ByteRange) -> Self {
        let segment = |at: u64| small(at / SEGMENT_BYTES % GROUP_SEGMENTS);
        Self::over(segment(part.start()), segment(part.end() - 1))
    }

    /// The shortest with both in it.
    pub(crate) fn join(self, other: Self) -> Self {
        Self::over(self.first.min(other.first), self.last().max(other.last()))
    }

    pub(crate) const fn first(self) -> u8 {
        self.first
    }

    pub(crate) const fn class(self) -> Class {
        self.class
    }

    const fn last(self) -> u8 {
        self.first + self.class.segments() - 1
    }

    /// Its segments as bits.
    pub(crate) const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.class.segments()) << self.first
    }

    /// Its segments.
    pub(crate) fn segments(self) -> impl Iterator<Item = u8> {
        self.first..=self.last()
    }

    /// In one byte, for records and files.
    pub(crate) const fn code(self) -> u8 {
        (self.class as u8) << 6 | self.first
    }

    /// What [`Window::code`] made; `None` for what it cannot have made.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let window = Self { first: code & 63, class: Class::ALL[usize::from(code >> 6)] };
        window.first.is_multiple_of(window.class.segments()).then_some(window)
    }
}

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
    fn a_window_is_the_shortest_that_is_aligned() {
        let spans = [(0, 0, 0, 1), (5, 6, 4, 4), (3, 4, 0, 16), (15, 16, 0, 64), (48, 63, 48, 16)];
        for (first, last, start, len) in spans {
            let window = Window::over(first, last);
            assert_eq!((window.first(), window.class().segments()), (start, len));
            assert_eq!(window.mask().count_ones(), u32::from(len));
            assert_eq!(Window::from_code(window.code()), Some(window));
            assert_eq!(window.join(Window::over(first, first)), window);
        }
        assert_eq!(Window::over(0, 0).join(Window::over(2, 2)), Window::over(0, 3));
        assert_eq!(Window::of(r(GROUP_BYTES + 16384, GROUP_BYTES + 16385)), Window::over(1, 1));
        assert_eq!(Window::from_code(0b0100_0010), None);
    }

    #[test]
    fn the_last_group_of_all_numbers_is_cut_too() {
        let parts: Vec<_> = by_group(r(u64::MAX - 1, u64::MAX)).collect();
        assert_eq!(parts, [(u64::MAX / GROUP_BYTES, r(u64::MAX - 1, u64::MAX))]);
        let pieces: Vec<_> = by_segment(r(u64::MAX - 1, u64::MAX)).collect();
        assert_eq!(pieces, [Piece { segment: 63, start: 16382, end: 16383 }]);
    }
}
