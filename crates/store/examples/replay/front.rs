//! The front: pCache's replacement, segment LRU with two watermarks.
//!
//! It knows which segments are held and in which order they were used. When more
//! than 90 % of the capacity is in use, it names the least recently used for removal
//! until at most 80 % is.

use std::collections::HashMap;

use crate::layout::{Key, Segment};

/// The order of use of all segments held.
#[derive(Debug)]
pub(crate) struct Front {
    places: HashMap<Key, usize>,
    /// A ring through the least (`next` of 0) and the most recently used (`previous`
    /// of 0); place 0 is no segment.
    ring: Vec<Node>,
    unused: Vec<usize>,
    used_bytes: u64,
    high_bytes: u64,
    low_bytes: u64,
}

/// A segment between its neighbours.
#[derive(Clone, Copy, Debug)]
struct Node {
    segment: Segment,
    previous: usize,
    next: usize,
}

impl Front {
    /// Nothing held yet of `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let nothing = Segment { object: 0, offset: 0, len: 0 };
        Self {
            places: HashMap::new(),
            ring: vec![Node { segment: nothing, previous: 0, next: 0 }],
            unused: Vec::new(),
            used_bytes: 0,
            high_bytes: capacity_bytes / 10 * 9,
            low_bytes: capacity_bytes / 10 * 8,
        }
    }

    /// Whether `key` is held.
    pub(crate) fn holds(&self, key: Key) -> bool {
        self.places.contains_key(&key)
    }

    /// Counts a use of `key`.
    pub(crate) fn touch(&mut self, key: Key) {
        if let Some(&place) = self.places.get(&key) {
            self.unlink(place);
            self.link(place);
        }
    }

    /// Holds `segment` as the most recently used; answers what goes for it.
    pub(crate) fn insert(&mut self, segment: Segment) -> Vec<Segment> {
        self.remove(segment.key());
        let node = Node { segment, previous: 0, next: 0 };
        let place = match self.unused.pop() {
            Some(place) => {
                self.ring[place] = node;
                place
            }
            None => {
                self.ring.push(node);
                self.ring.len() - 1
            }
        };
        self.link(place);
        self.places.insert(segment.key(), place);
        self.used_bytes += u64::from(segment.len);
        let mut gone = Vec::new();
        if self.used_bytes > self.high_bytes {
            while self.used_bytes > self.low_bytes {
                let oldest = self.ring[0].next;
                let victim = self.ring[oldest].segment;
                self.remove(victim.key());
                gone.push(victim);
            }
        }
        gone
    }

    /// Holds `key` no more.
    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(place) = self.places.remove(&key) {
            self.unlink(place);
            self.used_bytes -= u64::from(self.ring[place].segment.len);
            self.unused.push(place);
        }
    }

    /// Puts `place` at the end of the recently used.
    fn link(&mut self, place: usize) {
        let last = self.ring[0].previous;
        (self.ring[place].previous, self.ring[place].next) = (last, 0);
        self.ring[last].next = place;
        self.ring[0].previous = place;
    }

    fn unlink(&mut self, place: usize) {
        let Node { previous, next, .. } = self.ring[place];
        self.ring[previous].next = next;
        self.ring[next].previous = previous;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(object: u64) -> Segment {
        Segment { object, offset: 0, len: 10 }
    }

    #[test]
    fn above_ninety_percent_the_least_recently_used_go_down_to_eighty() {
        let mut front = Front::new(100);
        for object in 0..9 {
            assert!(front.insert(of(object)).is_empty(), "{object}");
        }
        front.touch((0, 0));
        front.touch((2, 0));
        assert_eq!(front.insert(of(9)), [of(1), of(3)]);
        assert!(!front.holds((1, 0)) && front.holds((0, 0)));
        assert!(front.insert(of(10)).is_empty());
        assert_eq!(front.insert(of(11)), [of(4), of(5)]);
    }

    #[test]
    fn what_is_put_again_or_removed_is_counted_once() {
        let mut front = Front::new(100);
        for _ in 0..50 {
            assert!(front.insert(of(1)).is_empty());
        }
        front.remove((1, 0));
        front.remove((1, 0));
        assert_eq!(front.used_bytes, 0);
        assert!(!front.holds((1, 0)));
    }
}
