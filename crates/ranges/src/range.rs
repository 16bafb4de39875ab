//! One contiguous run of bytes.

use std::fmt;

/// The bytes `start <= offset < end` of an object.
///
/// `start <= end` always; an empty range is legal and lies where it starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// Bytes from `start` up to and without `end`; `None` when `end < start`.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if end < start { None } else { Some(Self { start, end }) }
    }

    /// `len` bytes from `start`; `None` when they would pass 2^64 - 1.
    pub const fn at(start: u64, len: u64) -> Option<Self> {
        match start.checked_add(len) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// First byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The byte after the last.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether there is no byte in it.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether every byte of `other` is in `self`. An empty `other` is.
    pub const fn contains(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// The bytes in both, `None` when there are none.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    #[test]
    fn refuses_range_past_end_of_numbers() {
        assert_eq!(ByteRange::at(u64::MAX, 1), None);
        assert_eq!(ByteRange::at(u64::MAX, 0), Some(r(u64::MAX, u64::MAX)));
        assert_eq!(ByteRange::new(2, 1), None);
    }

    #[test]
    fn intersects_only_where_a_byte_is_shared() {
        assert_eq!(r(0, 4).intersection(r(2, 9)), Some(r(2, 4)));
        assert_eq!(r(0, 4).intersection(r(4, 9)), None);
        assert!(r(0, 4).contains(r(1, 4)));
        assert!(!r(0, 4).contains(r(1, 5)));
        assert!(r(0, 4).contains(r(9, 9)));
    }
}
