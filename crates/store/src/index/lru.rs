//! The order of use: a list through the slots, newest to oldest.

use super::{NONE, Slot, place};

/// Ends of the list; the links are in the slots of live clusters.
#[derive(Debug)]
pub(super) struct Lru {
    newest: u32,
    oldest: u32,
}

impl Lru {
    /// The empty list.
    pub(super) const fn new() -> Self {
        Self { newest: NONE, oldest: NONE }
    }

    /// Puts `cluster`, which is in no list, in front.
    pub(super) fn push_newest(&mut self, slots: &mut [Slot], cluster: u32) {
        let second = self.newest;
        let slot = &mut slots[place(cluster)];
        (slot.newer, slot.older) = (NONE, second);
        match slots.get_mut(place(second)) {
            Some(slot) => slot.newer = cluster,
            None => self.oldest = cluster,
        }
        self.newest = cluster;
    }

    /// Takes `cluster`, which is in the list, out.
    pub(super) fn remove(&mut self, slots: &mut [Slot], cluster: u32) {
        let slot = &slots[place(cluster)];
        let (newer, older) = (slot.newer, slot.older);
        match slots.get_mut(place(newer)) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match slots.get_mut(place(older)) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// The cluster used longest ago that is not pinned.
    pub(super) fn oldest_unpinned(&self, slots: &[Slot]) -> Option<u32> {
        let mut at = self.oldest;
        while let Some(slot) = slots.get(place(at)) {
            if slot.pins == 0 {
                return Some(at);
            }
            at = slot.newer;
        }
        None
    }
}
