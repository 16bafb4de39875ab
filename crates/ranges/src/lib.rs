//! Byte ranges, disjoint interval sets, ids, time and units: the nouns every
//! other room uses.
//!
//! Pure: no IO, no clock, no randomness. Builds for wasm32.
//!
//! Invariants: a [`ByteRange`] never has `end < start`; the intervals of a
//! [`RangeSet`] are disjoint, not empty, not adjacent, and ascending.

#![forbid(unsafe_code)]

mod id;
mod range;
mod set;
mod time;
mod units;

pub use id::{ObjectId, ParseObjectIdError};
pub use range::ByteRange;
pub use set::RangeSet;
pub use time::Instant;
pub use units::{GROUP_BYTES, GROUP_SEGMENTS, SEGMENT_BYTES};
