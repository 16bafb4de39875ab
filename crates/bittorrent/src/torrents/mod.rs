//! What all sessions know together about contents: metadata, who asks for it,
//! the inference, and the blocks of pieces that are not complete yet.
//!
//! Sessions hold it as `Arc<Mutex<Torrents>>` and lock it for the length of one
//! look or one block; hashing happens outside the lock. Everything is bounded by
//! [`TorrentsOptions`], whatever strangers send.
//!
//! Invariants: a content that a session has entered is never dropped. What the
//! assembly holds is not more than its budget after each call. A piece leaves
//! the assembly only whole, or not at all.

mod assembly;
mod check;
mod collector;
mod objects;
mod table;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "sizes in tests are small")]
mod tests;

pub(crate) use check::PieceCheck;
pub(crate) use collector::{Collected, metadata_pieces};
pub use objects::{content_object, inferred_object, metadata_object};
pub(crate) use table::Added;
pub use table::{Torrents, TorrentsOptions};
