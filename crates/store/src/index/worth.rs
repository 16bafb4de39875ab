//! What is worth keeping: the index's side of the policy.
//!
//! The policy knows objects by handles and groups by 32 bits; here they get their
//! names back. What the policy picks and somebody reads or writes stays: it is
//! passed over, not waited for.

use std::hash::BuildHasher;

use hashbrown::HashMap;
use weir_policy::{Kind, ObjectKey, Policy, Unit, Victim};
use weir_ranges::ObjectId;

use super::{GroupId, Index};

/// The policy, and what its handles stand for.
#[derive(Debug)]
pub(super) struct Worth {
    policy: Box<dyn Policy>,
    /// Of objects that are held.
    objects: HashMap<ObjectKey, ObjectId>,
}

impl Worth {
    pub(super) fn new(kind: Kind, capacity_bytes: u64) -> Self {
        Self { policy: kind.build(capacity_bytes), objects: HashMap::new() }
    }

    /// The table's own seed keeps handles from being chosen by a stranger.
    fn key(&self, object: ObjectId) -> ObjectKey {
        ObjectKey(self.objects.hasher().hash_one(object))
    }

    fn unit(&self, id: GroupId) -> Unit {
        Unit { object: self.key(id.object), number: number(id.group) }
    }

    /// A download of `object` begins.
    pub(super) fn wanted(&mut self, object: ObjectId) {
        let key = self.key(object);
        self.policy.wanted(key);
    }

    pub(super) fn used(&mut self, id: GroupId, bytes: u64, held: bool) {
        let unit = self.unit(id);
        self.policy.used(unit, size(bytes), held);
    }

    pub(super) fn inserted(&mut self, id: GroupId, bytes: u64) {
        let unit = self.unit(id);
        self.objects.insert(unit.object, id.object);
        self.policy.inserted(unit, size(bytes));
    }

    pub(super) fn removed(&mut self, id: GroupId) {
        let unit = self.unit(id);
        self.policy.removed(unit);
    }

    /// Nothing of `object` is held any more.
    pub(super) fn gone(&mut self, object: ObjectId) {
        let key = self.key(object);
        self.objects.remove(&key);
    }

    /// Whether there is anything that could go at all.
    pub(super) fn has_victim(&mut self) -> bool {
        self.policy.victim(None).is_some()
    }

    pub(super) fn admits(&mut self, id: GroupId, bytes: u64) -> bool {
        let unit = self.unit(id);
        self.policy.admits(unit, size(bytes))
    }
}

impl Index {
    /// Drops the group that is least worth keeping and nobody is at, for `newcomer`
    /// if there is one. Says whether there was one.
    pub(super) fn evict(&mut self, newcomer: Option<GroupId>) -> bool {
        let unit = newcomer.map(|id| self.worth.unit(id));
        let mut passed_over = Vec::new();
        let mut evicted = false;
        for _ in 0..PASSED_OVER_MAX {
            let picked = self.worth.policy.victim(unit).and_then(|victim| self.named(victim));
            let Some(picked) = picked else { break };
            if !self.is_pinned(picked) {
                let before = self.stats.held_bytes;
                self.release(picked);
                self.stats.evicted_bytes += before - self.stats.held_bytes;
                evicted = true;
                break;
            }
            // Somebody is at it, and at all else that was meant: out of the policy's
            // sight for now.
            for group in self.groups_of(picked.object) {
                let id = GroupId { object: picked.object, group };
                if self.is_pinned(id) && !passed_over.contains(&id) {
                    self.worth.removed(id);
                    passed_over.push(id);
                }
            }
        }
        for id in passed_over {
            let bytes = self.record(id).map_or(0, |record| super::extent_of(record).bytes());
            self.worth.inserted(id, bytes);
        }
        evicted
    }

    /// The group that a policy means: of an object, the last that nobody is at.
    fn named(&self, victim: Victim) -> Option<GroupId> {
        match victim {
            Victim::LastOf(key) => {
                let object = *self.worth.objects.get(&key)?;
                let groups = &self.objects.get(&object)?.groups;
                let ids = || groups.down_from(u64::MAX).map(|(group, _)| GroupId { object, group });
                ids().find(|id| !self.is_pinned(*id)).or_else(|| ids().next())
            }
            Victim::Unit(unit) => {
                let object = *self.worth.objects.get(&unit.object)?;
                let groups = &self.objects.get(&object)?.groups;
                let exact = u64::from(unit.number);
                if groups.get(exact).is_some() {
                    return Some(GroupId { object, group: exact });
                }
                let far = groups.from(1 << 32).find(|(group, _)| number(*group) == unit.number);
                far.map(|(group, _)| GroupId { object, group })
            }
        }
    }

    fn is_pinned(&self, id: GroupId) -> bool {
        self.record(id).is_some_and(|record| self.pins.contains_key(&record.slot))
    }
}

/// A group's number as the policy knows it: two of an object above 4 PiB may share
/// one.
const fn number(group: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
    let low = group as u32;
    low
}

fn size(bytes: u64) -> u32 {
    u32::try_from(bytes).expect("an extent is at most 1 MiB")
}

/// Victims passed over, because somebody is at them, before none is found.
const PASSED_OVER_MAX: usize = 64;
