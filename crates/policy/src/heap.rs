//! A heap whose members can be found, changed and taken out: who is worth least.
//!
//! Four children a node, because a level costs a cache miss. Members are slab
//! places; priorities lie in the heap itself. A member costs 20 bytes, 28 with a tie-break.

/// Least first. `places[id]` is where `id` stands in `members`.
#[derive(Debug)]
pub(crate) struct Heap<P> {
    members: Vec<(P, u32)>,
    places: Vec<u32>,
}

impl<P: Ord + Copy> Default for Heap<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Ord + Copy> Heap<P> {
    pub(crate) const fn new() -> Self {
        Self { members: Vec::new(), places: Vec::new() }
    }

    /// Sets the priority of a member, new or not.
    pub(crate) fn set(&mut self, id: u32, priority: P) {
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, NOWHERE);
        }
        let at = self.places[id as usize];
        if at == NOWHERE {
            let at = self.members.len();
            self.members.push((priority, id));
            self.up(at);
        } else {
            self.members[at as usize].0 = priority;
            let at = self.up(at as usize);
            self.down(at);
        }
    }

    /// Takes a member out; nothing happens when it is none.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some(at) = self.place(id) else { return };
        self.places[id as usize] = NOWHERE;
        let last = self.members.pop().expect("a member that has a place is there");
        if at < self.members.len() {
            self.members[at] = last;
            let at = self.up(at);
            self.down(at);
        }
    }

    /// Changes every priority by a function that keeps their order.
    pub(crate) fn rescale(&mut self, change: impl Fn(P) -> P) {
        for member in &mut self.members {
            member.0 = change(member.0);
        }
    }

    /// The least and its priority.
    pub(crate) fn first(&self) -> Option<(P, u32)> {
        self.members.first().copied()
    }

    /// The least but for one member.
    pub(crate) fn first_but(&self, id: u32) -> Option<(P, u32)> {
        let first = self.first()?;
        if first.1 != id {
            return Some(first);
        }
        // The second least is a child of the least.
        self.members[1..].iter().take(CHILDREN).copied().min()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    fn place(&self, id: u32) -> Option<usize> {
        self.places.get(id as usize).filter(|&&at| at != NOWHERE).map(|&at| at as usize)
    }

    /// Lets the member at `at` rise; answers where it came to stand.
    fn up(&mut self, mut at: usize) -> usize {
        let member = self.members[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.members[parent].0 <= member.0 {
                break;
            }
            self.stand(at, self.members[parent]);
            at = parent;
        }
        self.stand(at, member);
        at
    }

    fn down(&mut self, mut at: usize) {
        let member = self.members[at];
        loop {
            let first = at * CHILDREN + 1;
            let end = (first + CHILDREN).min(self.members.len());
            let least = (first..end).min_by_key(|&child| self.members[child].0);
            let Some(child) = least.filter(|&child| self.members[child].0 < member.0) else {
                break;
            };
            self.stand(at, self.members[child]);
            at = child;
        }
        self.stand(at, member);
    }

    fn stand(&mut self, at: usize, member: (P, u32)) {
        self.members[at] = member;
        self.places[member.1 as usize] =
            u32::try_from(at).expect("members are slab places, which fit 32 bits");
    }
}

const CHILDREN: usize = 4;
const NOWHERE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_set(steps in prop::collection::vec((0..40_u32, 0..20_u32), 1..400)) {
            let mut heap = Heap::new();
            let mut priorities = [None; 40];
            for (id, priority) in steps {
                if priority == 0 {
                    heap.remove(id);
                    priorities[id as usize] = None;
                } else {
                    heap.set(id, (priority, id));
                    priorities[id as usize] = Some(priority);
                }
                let set: BTreeSet<_> =
                    (0..40).filter_map(|id| Some((priorities[id as usize]?, id))).collect();
                let least = |but: Option<u32>| {
                    set.iter().find(|(_, id)| Some(*id) != but).map(|&(p, id)| ((p, id), id))
                };
                prop_assert_eq!(heap.first(), least(None));
                prop_assert_eq!(heap.first_but(id), least(Some(id)));
                prop_assert_eq!(heap.len(), set.len());
            }
        }
    }
}
