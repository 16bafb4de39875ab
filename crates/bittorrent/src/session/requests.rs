//! The requests of one leg that are not answered yet.

use std::collections::{BTreeMap, VecDeque};

use weir_session::Ticket;

use super::recent::Recent;
use crate::wire::Block;

/// Requests remembered as forwarded; clients keep 500 to 10,000 outstanding.
const FORWARDED_MAX: usize = 16_384;

/// Blocks remembered as served.
const SERVED_MAX: usize = 2048;

/// A request is in exactly one place: `waiting`, `looking`, `forwarded`, or in
/// an outbox, as a piece to the asker or as a request to the peer.
#[derive(Debug)]
pub(super) struct Requests {
    /// Wait for their look-up, oldest first.
    pub(super) waiting: VecDeque<Block>,
    /// Looked up now.
    looking: BTreeMap<Ticket, Block>,
    /// Sum of the lengths in `looking`.
    looking_bytes: usize,
    /// Sent to the peer, not answered by it yet.
    pub(super) forwarded: Recent<Block, ()>,
    /// How often each was served.
    served: Recent<Block, u32>,
}

impl Requests {
    pub(super) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            looking: BTreeMap::new(),
            looking_bytes: 0,
            forwarded: Recent::new(FORWARDED_MAX),
            served: Recent::new(SERVED_MAX),
        }
    }

    pub(super) fn start_look(&mut self, ticket: Ticket, block: Block) {
        self.looking_bytes += block.len as usize;
        self.looking.insert(ticket, block);
    }

    pub(super) fn end_look(&mut self, ticket: Ticket) -> Option<Block> {
        let block = self.looking.remove(&ticket)?;
        self.looking_bytes -= block.len as usize;
        Some(block)
    }

    /// Takes one request for `block` back that no one has answered; false when
    /// there is none here. The last asked goes first, it is the least far.
    pub(super) fn take_back(&mut self, block: Block) -> bool {
        if let Some(at) = self.waiting.iter().rposition(|b| *b == block) {
            self.waiting.remove(at);
            return true;
        }
        let ticket = self.looking.iter().rev().find(|(_, b)| **b == block).map(|(t, _)| *t);
        ticket.and_then(|ticket| self.end_look(ticket)).is_some()
    }

    /// Takes all back for which `which` holds, in the order asked.
    pub(super) fn take_back_all(&mut self, which: impl Fn(&Block) -> bool) -> Vec<Block> {
        let mut taken = Vec::new();
        let tickets: Vec<_> =
            self.looking.iter().filter(|(_, b)| which(b)).map(|(t, _)| *t).collect();
        taken.extend(tickets.into_iter().filter_map(|ticket| self.end_look(ticket)));
        self.waiting.retain(|block| {
            if which(block) {
                taken.push(*block);
            }
            !which(block)
        });
        taken
    }

    pub(super) fn note_served(&mut self, block: Block) {
        let times = self.served.get(&block).copied().unwrap_or(0);
        self.served.put(block, times.saturating_add(1));
    }

    pub(super) fn times_served(&self, block: Block) -> u32 {
        self.served.get(&block).copied().unwrap_or(0)
    }

    pub(super) fn looking_len(&self) -> usize {
        self.looking.len()
    }

    pub(super) const fn looking_bytes(&self) -> usize {
        self.looking_bytes
    }
}
