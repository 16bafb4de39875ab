//! The machine between the two legs of one BitTorrent connection.
//!
//! Everything passes verbatim and in order, except:
//!
//! - a request whose block the store has is answered here, and the peer never
//!   hears of it; one that the store lacks is forwarded a little later;
//! - a cancel of a request that the peer never heard of goes no further;
//! - metadata that neither side would ask for is asked for in one side's name,
//!   and the answer is not passed on (BEP 9);
//! - a keep-alive is added where swallowed requests would make a leg look dead.
//!
//! What is composed is placed between messages only: while a frame is being
//! passed in slices, composed messages wait in the outbox of that leg.
//!
//! ```text
//! Running ──malformed, unsupported, content differs──► Leaving ──► Left
//!    forwards, answers, reads                 waits for a     relays no more,
//!                                             boundary        the driver does
//! ```
//!
//! In *Leaving* nothing is answered: requests that waited here are sent to the
//! peer after all, as soon as the stream to it is between two messages.
//!
//! "A" in comments is the leg that asks, "P" the one that is asked.

mod answers;
mod blocks;
mod exchange;
mod machine;
mod options;
mod recent;
mod requests;
mod side;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "sizes in tests are small")]
mod tests;

pub use machine::BtSession;
pub use options::SessionOptions;
