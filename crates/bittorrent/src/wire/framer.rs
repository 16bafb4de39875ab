//! Cuts a stream into messages.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::message::{
    Block, FRAME_BYTES_MAX, Message, PIECE, PIECE_HEADER_BYTES, be32, is_known, length_fits, parse,
};

/// The largest frame that is yielded whole, length field included: 64 KiB.
pub const WHOLE_BYTES_MAX: usize = 64 << 10;

/// What a [`Framer`] yields. The raw bytes of all items, joined, are the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A keep-alive.
    KeepAlive {
        /// Its four bytes.
        raw: Bytes,
    },
    /// A whole message.
    Message {
        /// What it says.
        message: Message,
        /// The frame.
        raw: Bytes,
    },
    /// A PIECE message begins; `block.len` bytes follow as [`Item::PieceData`].
    PieceHeader {
        /// Which block.
        block: Block,
        /// The 13 bytes before it.
        raw: Bytes,
    },
    /// A slice of the block, never empty.
    PieceData {
        /// The slice.
        data: Bytes,
        /// Whether the block ends with it.
        last: bool,
    },
    /// A slice of a frame that is too large to hold or has an unknown id.
    Opaque {
        /// The slice, from the length field on.
        data: Bytes,
        /// Whether the frame ends with it.
        last: bool,
    },
}

/// A frame that breaks the protocol. The stream has no boundaries after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Longer than [`FRAME_BYTES_MAX`].
    #[error("frame of {len} bytes is longer than allowed")]
    FrameTooLong {
        /// Its length field.
        len: u32,
    },
    /// Not the length that this message has.
    #[error("message {id} cannot be {len} bytes long")]
    BadLength {
        /// Its id.
        id: u8,
        /// Its length field.
        len: u32,
    },
}

/// Cuts a stream into messages. See the module's head.
#[derive(Debug, Default)]
pub struct Framer {
    chunks: VecDeque<Bytes>,
    /// Bytes in `chunks`, none of which is empty.
    held_bytes: usize,
    inside: Inside,
}

impl Framer {
    /// At a boundary, holding nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream. Drain with [`Framer::poll_item`].
    pub fn push(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.held_bytes += data.len();
            self.chunks.push_back(data);
        }
    }

    /// The next item; `None` until more bytes come.
    ///
    /// # Errors
    /// When a frame breaks the protocol, from then on always. What was not
    /// yielded is in [`Framer::take_rest`].
    pub fn poll_item(&mut self) -> Result<Option<Item>, WireError> {
        match self.inside {
            Inside::Boundary => self.poll_frame(),
            Inside::Piece { left } => Ok(self.slice(left).map(|(data, left)| {
                self.inside = if left == 0 { Inside::Boundary } else { Inside::Piece { left } };
                Item::PieceData { data, last: left == 0 }
            })),
            Inside::Opaque { left } => Ok(self.poll_opaque(left)),
        }
    }

    /// All bytes that were pushed and not yielded, in order.
    pub fn take_rest(&mut self) -> Vec<Bytes> {
        self.held_bytes = 0;
        self.chunks.drain(..).collect()
    }

    /// Whether the last item yielded was not the end of its frame.
    pub const fn is_inside(&self) -> bool {
        !matches!(self.inside, Inside::Boundary)
    }

    fn poll_frame(&mut self) -> Result<Option<Item>, WireError> {
        let mut head = [0; PIECE_HEADER_BYTES];
        let head = self.peek(&mut head);
        let Some((len, rest)) = head.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*len);
        if len == 0 {
            return Ok(Some(Item::KeepAlive { raw: self.take(4) }));
        }
        if len > FRAME_BYTES_MAX {
            return Err(WireError::FrameTooLong { len });
        }
        let Some((&id, rest)) = rest.split_first() else { return Ok(None) };
        if !length_fits(id, len) {
            return Err(WireError::BadLength { id, len });
        }
        if id == PIECE {
            let Some((index, begin)) = rest.split_at_checked(4).filter(|(_, b)| b.len() == 4)
            else {
                return Ok(None);
            };
            let block = Block { index: be32(index), begin: be32(begin), len: len - 9 };
            if block.len > 0 {
                self.inside = Inside::Piece { left: block.len };
            }
            return Ok(Some(Item::PieceHeader { block, raw: self.take(PIECE_HEADER_BYTES) }));
        }
        let frame_bytes = 4 + len as usize;
        if !is_known(id) || frame_bytes > WHOLE_BYTES_MAX {
            return Ok(self.poll_opaque(4 + len));
        }
        if self.held_bytes < frame_bytes {
            return Ok(None);
        }
        let raw = self.take(frame_bytes);
        let message = parse(id, raw.slice(5..)).ok_or(WireError::BadLength { id, len })?;
        Ok(Some(Item::Message { message, raw }))
    }

    fn poll_opaque(&mut self, left: u32) -> Option<Item> {
        let (data, left) = self.slice(left)?;
        self.inside = if left == 0 { Inside::Boundary } else { Inside::Opaque { left } };
        Some(Item::Opaque { data, last: left == 0 })
    }

    /// The next slice of at most `left` bytes, and what is left after it.
    fn slice(&mut self, left: u32) -> Option<(Bytes, u32)> {
        let first = self.chunks.front()?.len();
        let n = u32::try_from(first).unwrap_or(u32::MAX).min(left);
        Some((self.take(n as usize), left - n))
    }

    /// The first bytes, as many as there are up to the buffer's size.
    fn peek<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        let mut filled = 0;
        for chunk in &self.chunks {
            let n = chunk.len().min(buffer.len() - filled);
            buffer[filled..filled + n].copy_from_slice(&chunk[..n]);
            filled += n;
            if filled == buffer.len() {
                break;
            }
        }
        &buffer[..filled]
    }

    /// Takes `n` held bytes; copies only when they lie in several chunks.
    fn take(&mut self, n: usize) -> Bytes {
        assert!(n <= self.held_bytes, "only held bytes are taken");
        self.held_bytes -= n;
        if let Some(first) = self.chunks.front_mut()
            && first.len() > n
        {
            return first.split_to(n);
        }
        if self.chunks.front().is_some_and(|first| first.len() == n) {
            return self.chunks.pop_front().unwrap_or_default();
        }
        let mut out = BytesMut::with_capacity(n);
        while out.len() < n {
            let first = self.chunks.front_mut().expect("the held bytes lie in chunks");
            let part = first.len().min(n - out.len());
            out.extend_from_slice(&first[..part]);
            first.advance(part);
            if first.is_empty() {
                self.chunks.pop_front();
            }
        }
        out.freeze()
    }
}

/// Where in a frame the yielded part of the stream ends.
#[derive(Clone, Copy, Debug, Default)]
enum Inside {
    #[default]
    Boundary,
    /// `0 < left <= BLOCK_BYTES_MAX`.
    Piece { left: u32 },
    /// `0 < left`.
    Opaque { left: u32 },
}
