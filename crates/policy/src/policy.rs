//! The contract between a policy and the host that holds the bytes.
//!
//! For each request the host calls, in this order:
//!
//! 1. [`Policy::wanted`], when the request is the first of a download;
//! 2. [`Policy::used`], saying whether the unit is held;
//! 3. for a miss when room must be taken from others: [`Policy::admits`], then
//!    [`Policy::victim`] and [`Policy::removed`] until there is room;
//! 4. [`Policy::inserted`] once the unit is held.
//!
//! Between the steps of one request the host may take steps of others: bytes
//! arrive long after they were asked for. A policy remembers nothing between two
//! calls that another call could make untrue.

use std::fmt::Debug;

/// An object, by a handle that the host makes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(pub u64);

/// What is evicted at once, a part of an object: a group of 1 MiB in the store, a
/// segment or a whole object in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// Of which object.
    pub object: ObjectKey,
    /// Which part, counted from the object's beginning.
    pub number: u32,
}

/// What goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// This unit.
    Unit(Unit),
    /// A unit of this object: which, is the host's choice, and by default the
    /// highest-numbered. Policies that keep no state per unit answer so.
    LastOf(ObjectKey),
}

/// Shares of the capacity between which eviction works.
///
/// `0 < low <= high <= 1`. Eviction begins when `high` would be passed and ends
/// when not more than `low` is held, the newcomer counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// Where eviction begins.
    pub high: f64,
    /// Where it ends.
    pub low: f64,
}

impl Watermarks {
    /// Room is made for what comes, and no more.
    pub const EXACT: Self = Self { high: 1.0, low: 1.0 };

    /// Whether room is made for one unit at a time.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.high <= self.low
    }
}

/// Admission and eviction of a cache.
///
/// Every call costs amortised O(1) or O(log n) in the number of objects or units
/// held. No call fails; what is unknown is ignored.
pub trait Policy: Debug + Send {
    /// The policy's name, as [`crate::Kind`] reads it.
    fn name(&self) -> &'static str;

    /// A download of the object begins. Called once per download, before the
    /// [`Policy::used`] of its first request.
    fn wanted(&mut self, object: ObjectKey);

    /// A unit of `bytes` bytes was asked for; `held` says that the cache has it.
    fn used(&mut self, unit: Unit, bytes: u32, held: bool);

    /// Whether a missed unit is worth room that must be taken from others. Asked
    /// only when there is no free room; may be asked without a victim following.
    fn admits(&mut self, unit: Unit, bytes: u32) -> bool;

    /// The unit is held from now on. Called once until it is removed: policies
    /// without state per unit count.
    fn inserted(&mut self, unit: Unit, bytes: u32);

    /// The unit was held and is no more, whether it was the victim or not.
    fn removed(&mut self, unit: Unit);

    /// What goes first, to make room for `for_unit`, or for nothing special when
    /// the low-water mark is to be reached. `None`: nothing that is held is worth
    /// less. What is named stays held until [`Policy::removed`] says otherwise;
    /// asked again before, the answer may be the same.
    fn victim(&mut self, for_unit: Option<Unit>) -> Option<Victim>;

    /// Where eviction begins and ends.
    fn watermarks(&self) -> Watermarks {
        Watermarks::EXACT
    }

    /// Objects and units of which something is remembered, those that are not held
    /// included. Bounded by a multiple of what is held plus a constant.
    fn entries(&self) -> usize;
}
