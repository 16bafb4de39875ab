//! One leg: what comes from it, and what waits to be sent to it.

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use weir_ranges::Instant;

use super::requests::Requests;
use crate::extension::Extensions;
use crate::handshake::Handshake;
use crate::wire::{Block, Framer};

/// Pieces remembered as allowed fast; clients send at most ten.
pub(super) const ALLOWED_FAST_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Side {
    /// What came of the handshake; complete when `handshake` is there.
    pub(super) handshake_bytes: Vec<u8>,
    pub(super) handshake: Option<Handshake>,
    pub(super) framer: Framer,
    /// Whether what comes from here is passed on without being looked at.
    pub(super) raw: bool,
    /// Whether it sends no more.
    pub(super) ended: bool,
    /// Whether it answers no requests now (BEP 3: at first it does not).
    pub(super) chokes: bool,
    /// Pieces it gives also while it chokes (BEP 6).
    pub(super) allowed_fast: BTreeSet<u32>,
    pub(super) extensions: Extensions,
    /// What it asked for.
    pub(super) requests: Requests,
    /// The block that comes from it now.
    pub(super) incoming: Option<Incoming>,
    /// What waits to be sent to it.
    pub(super) outbox: Outbox,
}

/// A block on its way through.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) block: Block,
    /// Whether the other leg had asked for it.
    pub(super) asked: bool,
    /// Its bytes so far, if they are of use.
    pub(super) data: Option<BytesMut>,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Composed, waiting for the end of the frame that is being passed on.
    pub(super) held: VecDeque<Composed>,
    /// Bytes of the pieces in `held`.
    pub(super) held_bytes: usize,
    /// Bytes that wait to be written, as the driver last said.
    pub(super) queued_bytes: usize,
    /// Bytes sent since the driver last said so, or had a turn to.
    pub(super) unreported_bytes: usize,
    /// Half-closed: nothing can be sent any more.
    pub(super) closed: bool,
    pub(super) last_sent: Option<Instant>,
    /// Whether the other leg spoke since `last_sent`.
    pub(super) owed: bool,
}

/// A message made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Composed {
    /// The answer to a request of the leg it goes to.
    Piece { block: Block, data: Bytes },
    /// A request of the other leg that is forwarded late.
    Request(Block),
    /// Any other whole message.
    Other(Bytes),
}

impl Side {
    pub(super) fn new() -> Self {
        Self {
            handshake_bytes: Vec::new(),
            handshake: None,
            framer: Framer::new(),
            raw: false,
            ended: false,
            chokes: true,
            allowed_fast: BTreeSet::new(),
            extensions: Extensions::default(),
            requests: Requests::new(),
            incoming: None,
            outbox: Outbox::default(),
        }
    }

    /// Whether what was passed on from here ends between two messages, so that
    /// a composed one can follow.
    pub(super) const fn is_at_boundary(&self) -> bool {
        !self.raw && self.handshake.is_some() && !self.framer.is_inside()
    }
}

impl Outbox {
    pub(super) fn hold(&mut self, composed: Composed) {
        if let Composed::Piece { data, .. } = &composed {
            self.held_bytes += data.len();
        }
        self.held.push_back(composed);
    }

    pub(super) fn pop(&mut self) -> Option<Composed> {
        let composed = self.held.pop_front()?;
        if let Composed::Piece { data, .. } = &composed {
            self.held_bytes -= data.len();
        }
        Some(composed)
    }

    /// Takes a held piece for `block` out; false when there is none.
    pub(super) fn take_piece(&mut self, wanted: Block) -> bool {
        let at = self.held.iter().rposition(
            |composed| matches!(composed, Composed::Piece { block, .. } if *block == wanted),
        );
        self.held_bytes -= if at.is_some() { wanted.len as usize } else { 0 };
        at.and_then(|at| self.held.remove(at)).is_some()
    }

    /// Takes the held requests out for which `which` holds.
    pub(super) fn take_requests(&mut self, which: impl Fn(&Block) -> bool) -> Vec<Block> {
        let mut taken = Vec::new();
        self.held.retain(|composed| match composed {
            Composed::Request(block) if which(block) => {
                taken.push(*block);
                false
            }
            _ => true,
        });
        taken
    }

    /// Takes all held pieces out.
    pub(super) fn take_pieces(&mut self) -> Vec<Block> {
        let mut taken = Vec::new();
        self.held.retain(|composed| match composed {
            Composed::Piece { block, .. } => {
                taken.push(*block);
                false
            }
            Composed::Request(_) | Composed::Other(_) => true,
        });
        self.held_bytes = 0;
        taken
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
    }
}
