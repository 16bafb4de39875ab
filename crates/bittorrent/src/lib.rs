//! BitTorrent: wire messages, metadata, inference and the session.
//!
//! pCache's three parts for one protocol. *Parser*: [`Handshake`], [`Framer`],
//! [`Extensions`] and [`MetadataMessage`] read what goes over the wire (BEP 3, 6,
//! 9, 10). *Composer*: the same types write. *Analyzer*: [`Info`] knows where
//! pieces lie and what they hash to, [`Inference`] guesses as long as nobody
//! does, [`Torrents`] puts blocks together and has them checked. [`BtSession`] is
//! the machine between the two legs of a flow that uses all of them.
//!
//! Pure: no IO, no clock, no randomness. Refuses to serve a byte that was not
//! checked, but for contents whose metadata nobody has (see [`SessionOptions`]).

#![forbid(unsafe_code)]

pub mod bencode;
mod extension;
mod handshake;
pub mod inference;
mod metadata;
mod session;
mod torrents;
mod wire;

pub use extension::{Extensions, METADATA_BYTES_MAX, METADATA_PIECE_BYTES, MetadataMessage};
pub use handshake::{HANDSHAKE_BYTES, Handshake, HandshakeError, InfoHash, PROTOCOL, Reserved};
pub use inference::{Inference, InferenceOptions};
pub use metadata::{Info, MetadataError, NAME_BYTES_MAX, PIECE_BYTES_MAX};
pub use session::{BtSession, SessionOptions};
pub use torrents::{Torrents, TorrentsOptions, content_object, inferred_object, metadata_object};
pub use wire::{
    BLOCK_BYTES_MAX, Block, FRAME_BYTES_MAX, Framer, Item, KEEP_ALIVE, Message, PIECE_HEADER_BYTES,
    WHOLE_BYTES_MAX, WireError,
};
