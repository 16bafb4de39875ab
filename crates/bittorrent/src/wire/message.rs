//! Messages: what they say and how they are written.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The longest frame's length field: 16 MiB. Nothing in use comes near it (the
/// bitfield of a content with four million pieces is 512 KiB).
pub const FRAME_BYTES_MAX: u32 = 16 << 20;

/// The largest block of a PIECE message: 128 KiB, what clients accept at most.
/// All of them ask for 16 KiB.
pub const BLOCK_BYTES_MAX: u32 = 128 << 10;

/// Bytes of a PIECE message before its block.
pub const PIECE_HEADER_BYTES: usize = 13;

/// Four zero bytes: still there.
pub const KEEP_ALIVE: &[u8; 4] = &[0; 4];

/// A part of a piece, as requests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Which piece.
    pub index: u32,
    /// Offset in the piece, in bytes.
    pub begin: u32,
    /// Bytes.
    pub len: u32,
}

/// A message that is yielded whole. Order of the ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// 0: requests are not answered from here on.
    Choke,
    /// 1: requests are answered from here on.
    Unchoke,
    /// 2: would ask if it were not choked.
    Interested,
    /// 3: has nothing to ask for.
    NotInterested,
    /// 4: has this piece.
    Have(u32),
    /// 5: has these pieces; the bits.
    Bitfield(Bytes),
    /// 6: asks for a block.
    Request(Block),
    /// 8: wants the block no more.
    Cancel(Block),
    /// 9: UDP port of its DHT node (BEP 5).
    Port(u16),
    /// 13: advises to ask for this piece (BEP 6).
    SuggestPiece(u32),
    /// 14: has everything (BEP 6).
    HaveAll,
    /// 15: has nothing (BEP 6).
    HaveNone,
    /// 16: will not answer this request (BEP 6).
    Reject(Block),
    /// 17: answers requests for this piece also while it chokes (BEP 6).
    AllowedFast(u32),
    /// 20: an extension's message (BEP 10).
    Extended {
        /// 0 is the extension handshake, others are the receiver's names.
        id: u8,
        /// What follows the id.
        payload: Bytes,
    },
}

impl Message {
    /// The whole frame.
    ///
    /// # Panics
    /// When a payload is larger than [`FRAME_BYTES_MAX`].
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Choke => frame(0, &[]),
            Self::Unchoke => frame(1, &[]),
            Self::Interested => frame(2, &[]),
            Self::NotInterested => frame(3, &[]),
            Self::Have(index) => frame(4, &index.to_be_bytes()),
            Self::Bitfield(bits) => frame(5, bits),
            Self::Request(block) => frame(6, &block.to_bytes()),
            Self::Cancel(block) => frame(8, &block.to_bytes()),
            Self::Port(port) => frame(9, &port.to_be_bytes()),
            Self::SuggestPiece(index) => frame(13, &index.to_be_bytes()),
            Self::HaveAll => frame(14, &[]),
            Self::HaveNone => frame(15, &[]),
            Self::Reject(block) => frame(16, &block.to_bytes()),
            Self::AllowedFast(index) => frame(17, &index.to_be_bytes()),
            Self::Extended { id, payload } => frame(20, &[&[*id], &payload[..]].concat()),
        }
    }
}

impl Block {
    /// The PIECE message that carries this block, up to the block's bytes.
    pub fn piece_header(self) -> Bytes {
        let mut out = BytesMut::with_capacity(PIECE_HEADER_BYTES);
        out.put_u32(9 + self.len.min(BLOCK_BYTES_MAX));
        out.put_u8(PIECE);
        out.put_u32(self.index);
        out.put_u32(self.begin);
        out.freeze()
    }

    fn to_bytes(self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..4].copy_from_slice(&self.index.to_be_bytes());
        out[4..8].copy_from_slice(&self.begin.to_be_bytes());
        out[8..].copy_from_slice(&self.len.to_be_bytes());
        out
    }
}

/// The id of the message that carries a block.
pub(super) const PIECE: u8 = 7;

pub(super) const fn is_known(id: u8) -> bool {
    matches!(id, 0..=9 | 13..=17 | 20)
}

/// Whether a message `id` may have the length field `len`, which is not 0.
pub(super) const fn length_fits(id: u8, len: u32) -> bool {
    match id {
        0..=3 | 14 | 15 => len == 1,
        4 | 13 | 17 => len == 5,
        6 | 8 | 16 => len == 13,
        PIECE => len >= 9 && len - 9 <= BLOCK_BYTES_MAX,
        9 => len == 3,
        20 => len >= 2,
        _ => true,
    }
}

/// The message `id` with its payload; `None` when it is not as long as it must be,
/// or is not one that is held whole.
pub(super) fn parse(id: u8, mut payload: Bytes) -> Option<Message> {
    let index = |p: &[u8]| p.first_chunk().map(|b| u32::from_be_bytes(*b));
    let block = |p: &[u8]| {
        let p: &[u8; 12] = p.first_chunk()?;
        Some(Block { index: be32(&p[..4]), begin: be32(&p[4..8]), len: be32(&p[8..]) })
    };
    Some(match id {
        0 => Message::Choke,
        1 => Message::Unchoke,
        2 => Message::Interested,
        3 => Message::NotInterested,
        4 => Message::Have(index(&payload)?),
        5 => Message::Bitfield(payload),
        6 => Message::Request(block(&payload)?),
        8 => Message::Cancel(block(&payload)?),
        9 => Message::Port(u16::from_be_bytes(*payload.first_chunk()?)),
        13 => Message::SuggestPiece(index(&payload)?),
        14 => Message::HaveAll,
        15 => Message::HaveNone,
        16 => Message::Reject(block(&payload)?),
        17 => Message::AllowedFast(index(&payload)?),
        20 if !payload.is_empty() => Message::Extended { id: payload.get_u8(), payload },
        _ => return None,
    })
}

/// Four bytes as a number; 0 when there are not four.
pub(super) fn be32(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_be_bytes)
}

fn frame(id: u8, payload: &[u8]) -> Bytes {
    let len = u32::try_from(payload.len()).ok().filter(|n| *n < FRAME_BYTES_MAX);
    let mut out = BytesMut::with_capacity(5 + payload.len());
    out.put_u32(1 + len.expect("composed messages are small"));
    out.put_u8(id);
    out.put_slice(payload);
    out.freeze()
}
