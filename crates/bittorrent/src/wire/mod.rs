//! Messages after the handshake (BEP 3, BEP 6, BEP 10) and their framing.
//!
//! ```text
//! | length u32 | id u8 | payload of length - 1 |      length 0: keep-alive
//! ```
//!
//! A [`Framer`] is fed a stream and yields small messages whole, with their raw
//! bytes so that they can be forwarded verbatim; the blocks of PIECE messages
//! and everything large or unknown in slices, as they come, without a copy. What
//! it holds back between two feeds is less than [`WHOLE_BYTES_MAX`].
//!
//! It refuses frames above [`FRAME_BYTES_MAX`], blocks above [`BLOCK_BYTES_MAX`]
//! and known messages of a wrong length. It does not refuse a BITFIELD or HAVE
//! ALL in mid-stream: real clients send them.

mod framer;
mod message;

#[cfg(test)]
mod tests;

pub use framer::{Framer, Item, WHOLE_BYTES_MAX, WireError};
pub use message::{
    BLOCK_BYTES_MAX, Block, FRAME_BYTES_MAX, KEEP_ALIVE, Message, PIECE_HEADER_BYTES,
};
