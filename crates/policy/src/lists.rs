//! Doubly linked lists in one slab, with an index: the bones of every policy here.
//!
//! A node is in exactly one of `N` lists. A key is found by a hash table of slab
//! places, so that it is stored once. A unit costs 32 bytes in the slab and 6 to
//! 11 in the index, twice that at worst when both have just doubled; freed places
//! are used again.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::policy::{ObjectKey, Unit};

/// What can be looked up.
pub(crate) trait Key: Copy + Eq {
    /// Well mixed in all bits, the same on every machine.
    fn hash(self) -> u64;
}

impl Key for ObjectKey {
    fn hash(self) -> u64 {
        mix(self.0)
    }
}

impl Key for Unit {
    fn hash(self) -> u64 {
        mix(mix(self.object.0) ^ u64::from(self.number))
    }
}

/// The place of a node in the slab, valid until the node is removed.
pub(crate) type Place = u32;

/// A member of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    pub(crate) bytes: u32,
    // Towards the front and towards the back; `next` also links free places.
    prev: Place,
    next: Place,
    /// The list it is in, below `N`.
    pub(crate) list: u8,
    /// The policy's own: a visited bit, a small counter.
    pub(crate) mark: u8,
}

/// `N` lists over one slab.
#[derive(Debug)]
pub(crate) struct Lists<K, V, const N: usize> {
    nodes: Vec<Node<K, V>>,
    free: Place,
    index: HashTable<Place>,
    ends: [Ends; N],
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: Place,
    back: Place,
    len: usize,
    bytes: u64,
}

impl<K: Key, V: Default, const N: usize> Lists<K, V, N> {
    pub(crate) const fn new() -> Self {
        let ends = Ends { front: NIL, back: NIL, len: 0, bytes: 0 };
        Self { nodes: Vec::new(), free: NIL, index: HashTable::new(), ends: [ends; N] }
    }

    /// Puts the key at the front of a list, from whichever it was in, with a fresh
    /// mark and value when it was in none.
    pub(crate) fn put_front(&mut self, list: u8, key: K, bytes: u32) -> Place {
        let nodes = &self.nodes;
        let at = |&place: &Place| nodes[place as usize].key.hash();
        let found = self.index.entry(key.hash(), |&p| nodes[p as usize].key == key, at);
        match found {
            Entry::Occupied(found) => {
                let place = *found.get();
                self.unlink(place);
                self.nodes[place as usize].bytes = bytes;
                self.link_front(place, list);
                place
            }
            Entry::Vacant(vacant) => {
                let fresh = Self::fresh(key, bytes);
                let place = if self.free == NIL {
                    let place = Place::try_from(self.nodes.len()).ok().filter(|&p| p != NIL);
                    place.expect("fewer units than 2^32 fit any store")
                } else {
                    self.free
                };
                vacant.insert(place);
                if place == self.free {
                    self.free = self.nodes[place as usize].next;
                    self.nodes[place as usize] = fresh;
                } else {
                    self.nodes.push(fresh);
                }
                self.link_front(place, list);
                place
            }
        }
    }

    /// Moves a node to the front of a list.
    pub(crate) fn move_front(&mut self, place: Place, list: u8) {
        if self.ends[usize::from(list)].front != place {
            self.unlink(place);
            self.link_front(place, list);
        }
    }

    /// Takes a node out and frees its place.
    pub(crate) fn remove(&mut self, place: Place) {
        self.unlink(place);
        let key = self.nodes[place as usize].key;
        let found = self.index.find_entry(key.hash(), |&p| p == place);
        if let Ok(found) = found {
            found.remove();
        }
        let node = &mut self.nodes[place as usize];
        (node.next, node.list) = (self.free, FREE);
        self.free = place;
    }

    /// Takes the last of a list out.
    pub(crate) fn pop_back(&mut self, list: u8) -> Option<K> {
        let place = self.back(list)?;
        let key = self.nodes[place as usize].key;
        self.remove(place);
        Some(key)
    }

    pub(crate) fn value_mut(&mut self, place: Place) -> &mut V {
        &mut self.nodes[place as usize].value
    }

    pub(crate) fn mark_mut(&mut self, place: Place) -> &mut u8 {
        &mut self.nodes[place as usize].mark
    }

    pub(crate) fn find(&self, key: K) -> Option<Place> {
        self.index.find(key.hash(), |&place| self.nodes[place as usize].key == key).copied()
    }

    /// The place of a key in any of the lists below `lists`.
    pub(crate) fn find_in(&self, key: K, lists: u8) -> Option<Place> {
        self.find(key).filter(|&place| self.nodes[place as usize].list < lists)
    }

    pub(crate) fn node(&self, place: Place) -> &Node<K, V> {
        &self.nodes[place as usize]
    }

    pub(crate) fn back(&self, list: u8) -> Option<Place> {
        Some(self.ends[usize::from(list)].back).filter(|&place| place != NIL)
    }

    /// The neighbour towards the front.
    pub(crate) fn ahead(&self, place: Place) -> Option<Place> {
        Some(self.nodes[place as usize].prev).filter(|&place| place != NIL)
    }

    pub(crate) fn bytes(&self, list: u8) -> u64 {
        self.ends[usize::from(list)].bytes
    }

    pub(crate) const fn len(&self, list: u8) -> usize {
        self.ends[list as usize].len
    }

    /// Members of all lists.
    pub(crate) fn entries(&self) -> usize {
        self.index.len()
    }

    fn fresh(key: K, bytes: u32) -> Node<K, V> {
        Node { key, value: V::default(), bytes, prev: NIL, next: NIL, list: FREE, mark: 0 }
    }

    fn link_front(&mut self, place: Place, list: u8) {
        let ends = &mut self.ends[usize::from(list)];
        let front = ends.front;
        ends.front = place;
        if front == NIL {
            ends.back = place;
        }
        ends.len += 1;
        ends.bytes += u64::from(self.nodes[place as usize].bytes);
        if front != NIL {
            self.nodes[front as usize].prev = place;
        }
        let node = &mut self.nodes[place as usize];
        (node.prev, node.next, node.list) = (NIL, front, list);
    }

    fn unlink(&mut self, place: Place) {
        let Node { prev, next, list, bytes, .. } = self.nodes[place as usize];
        let ends = &mut self.ends[usize::from(list)];
        if prev == NIL {
            ends.front = next;
        }
        if next == NIL {
            ends.back = prev;
        }
        ends.len -= 1;
        ends.bytes -= u64::from(bytes);
        if prev != NIL {
            self.nodes[prev as usize].next = next;
        }
        if next != NIL {
            self.nodes[next as usize].prev = prev;
        }
    }
}

/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014): one to one, well mixed.
pub(crate) const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const NIL: Place = Place::MAX;
/// The list of nodes that are in none.
const FREE: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn order<const N: usize>(lists: &Lists<ObjectKey, (), N>, list: u8) -> Vec<u64> {
        let mut at = lists.back(list);
        let mut keys = Vec::new();
        while let Some(place) = at {
            keys.push(lists.node(place).key.0);
            at = lists.ahead(place);
        }
        keys
    }

    #[test]
    fn members_move_between_lists_and_places_are_used_again() {
        let mut lists = Lists::<ObjectKey, (), 2>::new();
        for key in 0..4 {
            lists.put_front(0, ObjectKey(key), 10);
        }
        assert_eq!(order(&lists, 0), [0, 1, 2, 3]);
        let one = lists.find(ObjectKey(1)).unwrap();
        lists.move_front(one, 0);
        assert_eq!(order(&lists, 0), [0, 2, 3, 1]);
        lists.move_front(one, 1);
        assert_eq!((order(&lists, 0), order(&lists, 1)), (vec![0, 2, 3], vec![1]));
        assert_eq!((lists.bytes(0), lists.bytes(1), lists.len(0)), (30, 10, 3));
        assert_eq!(lists.pop_back(0), Some(ObjectKey(0)));
        assert_eq!((lists.find(ObjectKey(0)), lists.entries()), (None, 3));
        lists.put_front(1, ObjectKey(9), 1);
        assert_eq!((order(&lists, 1), lists.nodes.len()), (vec![1, 9], 4));
        assert_eq!(lists.find_in(ObjectKey(9), 1), None);
    }

    #[test]
    fn a_unit_costs_what_is_promised() {
        assert_eq!(size_of::<Node<Unit, ()>>(), 32);
        assert_eq!(size_of::<Node<ObjectKey, [u64; 3]>>(), 48);
    }

    #[test]
    fn a_key_that_is_put_again_keeps_its_mark() {
        let mut lists = Lists::<ObjectKey, (), 2>::new();
        let place = lists.put_front(0, ObjectKey(5), 1);
        *lists.mark_mut(place) = 2;
        assert_eq!(lists.put_front(1, ObjectKey(5), 7), place);
        assert_eq!((lists.node(place).mark, lists.bytes(0), lists.bytes(1)), (2, 0, 7));
    }
}
