//! Mode adopt: flows that match a signature become a pair of sockets.
//!
//! The kernel side (`bpf/`) watches handshakes and first payloads. What matches
//! is held there and its first payload handed over; [`Adopter::next`] builds a
//! socket for either end in the flow's own addresses and sequence numbers, and
//! only then makes the adoption visible to the kernel side. Whatever goes wrong
//! before that moment lets the flow pass, and is counted. See
//! `docs/decisions/0002-adopt.md`.
//!
//! Invariants:
//! - an entry in `adopted` has one in `adopted_outside`, and both legs existed
//!   when they were written;
//! - the entries outlive the legs, so that no packet of a flow that ended is
//!   forwarded between ends whose sequence numbers no longer agree.

mod adopter;
mod guard;
mod types;

pub use adopter::Adopter;
pub use guard::{FlowGuard, GiveBackError};
pub use types::{Adopted, Counters, NextError, Options, StartError};
