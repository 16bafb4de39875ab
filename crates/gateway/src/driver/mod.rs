//! Drives one session between two sockets.
//!
//! One task owns both sockets, the session and both write queues. It drains the
//! session's outputs, then writes, then waits for whichever comes first: bytes,
//! room to write, answers, the deadline. It knows no protocol.
//!
//! Back-pressure: a leg is not read while more than [`leg::QUEUE_BYTES_HIGH`] wait
//! for the other leg, so a slow reader slows its sender, not the gateway.

mod drive;
mod leg;
#[cfg(test)]
mod tests;

pub(crate) use drive::{End, Prelude, drive};
