//! What a cache keeps and what it lets go: admission and eviction policies.
//!
//! One file per policy, with its paper. A [`Policy`] is told what is asked for
//! and what is held; it answers whether something is worth room and what goes
//! first. The host (the store, or a [`simulate::Simulation`]) owns the bytes, does
//! the accounting and drops what it is told to drop.
//!
//! Policies at the top of the crate may serve the store; those in [`baselines`]
//! are here to be compared with. Which one to take, and how large a cache, an
//! operator finds out by `weir simulate` with a trace of the own network.
//!
//! Refuses: to know time, bytes or disks; to draw random numbers. The same calls
//! give the same victims on every machine. Keys are handles that the host makes
//! up: the tables hash with a fixed function, so a stranger must not choose them.

#![forbid(unsafe_code)]

pub mod baselines;
mod gdsf;
mod heap;
mod kind;
mod lists;
mod object_frequency;
mod objects;
mod partial;
mod policy;
mod s3_fifo;
mod segment_lru;
mod sieve;
pub mod simulate;
#[cfg(test)]
mod tests;
pub mod trace;

pub use gdsf::Gdsf;
pub use kind::{Kind, UnknownPolicy};
pub use object_frequency::{
    HALF_LIFE_DOWNLOADS_MAX, HELD_OBJECTS_FACTOR, HalfLife, ObjectFrequency, ObjectFrequencyOptions,
};
pub use objects::HISTORY_OBJECTS_MIN;
pub use partial::Partial;
pub use policy::{ObjectKey, Policy, Unit, Victim, Watermarks};
pub use s3_fifo::S3Fifo;
pub use segment_lru::SegmentLru;
pub use sieve::Sieve;
