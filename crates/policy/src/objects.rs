//! What is remembered of objects: those held, and a bounded history of others.
//!
//! An object of which nothing is held stays in the history until
//! max([`HISTORY_OBJECTS_MIN`], 2 x objects held) others were asked for or dropped
//! after it. An object costs its state, 32 bytes of key and links, and 6 to 11 of index.

use crate::lists::{Lists, Place};
use crate::policy::ObjectKey;

/// Objects remembered after their last unit is gone, at least.
pub const HISTORY_OBJECTS_MIN: usize = 1 << 16;

/// Objects with a state `T`, held or remembered.
#[derive(Debug)]
pub(crate) struct Objects<T> {
    lists: Lists<ObjectKey, Object<T>, 2>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Object<T> {
    units: u32,
    state: T,
}

impl<T: Default> Default for Objects<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> Objects<T> {
    pub(crate) const fn new() -> Self {
        Self { lists: Lists::new() }
    }

    /// The object, made when it is not known; unless held it is now the youngest
    /// of the history.
    pub(crate) fn touch(&mut self, key: ObjectKey) -> Place {
        match self.lists.find(key) {
            Some(place) => {
                if self.units(place) == 0 {
                    self.lists.move_front(place, HISTORY);
                }
                place
            }
            None => {
                let place = self.lists.put_front(HISTORY, key, 0);
                self.forget();
                place
            }
        }
    }

    /// One more unit of it is held; answers how many.
    pub(crate) fn add_unit(&mut self, place: Place) -> u32 {
        let object = self.lists.value_mut(place);
        object.units += 1;
        let units = object.units;
        if units == 1 {
            self.lists.move_front(place, HELD);
        }
        units
    }

    /// One unit less of it is held; answers how many are left.
    pub(crate) fn remove_unit(&mut self, place: Place) -> u32 {
        let object = self.lists.value_mut(place);
        let Some(units) = object.units.checked_sub(1) else { return 0 };
        object.units = units;
        if units == 0 {
            self.lists.move_front(place, HISTORY);
            self.forget();
        }
        units
    }

    pub(crate) fn state_mut(&mut self, place: Place) -> &mut T {
        &mut self.lists.value_mut(place).state
    }

    /// Changes the state of every object, held or not.
    pub(crate) fn for_each(&mut self, mut change: impl FnMut(&mut T)) {
        for list in [HELD, HISTORY] {
            let mut at = self.lists.back(list);
            while let Some(place) = at {
                change(&mut self.lists.value_mut(place).state);
                at = self.lists.ahead(place);
            }
        }
    }

    pub(crate) fn find(&self, key: ObjectKey) -> Option<Place> {
        self.lists.find(key)
    }

    pub(crate) fn state(&self, place: Place) -> &T {
        &self.lists.node(place).value.state
    }

    pub(crate) fn units(&self, place: Place) -> u32 {
        self.lists.node(place).value.units
    }

    pub(crate) fn key(&self, place: Place) -> ObjectKey {
        self.lists.node(place).key
    }

    /// Objects of which something is held.
    pub(crate) const fn held(&self) -> usize {
        self.lists.len(HELD)
    }

    pub(crate) fn entries(&self) -> usize {
        self.lists.entries()
    }

    fn forget(&mut self) {
        let max = HISTORY_OBJECTS_MIN.max(2 * self.lists.len(HELD));
        while self.lists.len(HISTORY) > max {
            self.lists.pop_back(HISTORY);
        }
    }
}

const HELD: u8 = 0;
const HISTORY: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_forgets_who_was_not_asked_for_longest() {
        let mut objects = Objects::<u32>::new();
        let held = objects.touch(ObjectKey(0));
        objects.add_unit(held);
        let max = HISTORY_OBJECTS_MIN as u64;
        for key in 1..=max {
            objects.touch(ObjectKey(key));
        }
        assert_eq!(objects.entries(), HISTORY_OBJECTS_MIN + 1);
        objects.touch(ObjectKey(1));
        objects.touch(ObjectKey(max + 1));
        assert!(objects.find(ObjectKey(2)).is_none());
        for key in [0, 1, 3, max + 1] {
            assert!(objects.find(ObjectKey(key)).is_some(), "{key}");
        }
        // What leaves the cache is the youngest of the history.
        assert_eq!(objects.remove_unit(held), 0);
        assert_eq!(objects.remove_unit(held), 0);
        assert!(objects.find(ObjectKey(3)).is_none());
        assert_eq!(objects.entries(), HISTORY_OBJECTS_MIN);
    }
}
