//! The table of contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_ranges::Instant;

use super::assembly::Assembly;
use super::collector::{Collected, Collector};
use crate::handshake::InfoHash;
use crate::inference::{Inference, InferenceOptions, Observation};
use crate::metadata::{Info, PIECE_BYTES_MAX};
use crate::wire::Block;

/// Limits of what is known together.
#[derive(Clone, Debug, PartialEq)]
pub struct TorrentsOptions {
    /// Contents known at once; the one used longest ago makes room. Default 4096.
    pub contents_max: usize,
    /// Memory for the blocks of incomplete pieces, in bytes. Default 256 MiB.
    pub assembly_bytes_max: usize,
    /// Memory for metadata, read and being read, in bytes. Default 64 MiB.
    pub metadata_bytes_max: usize,
    /// How long one session may ask for metadata without an answer before another
    /// may. Default 10 s.
    pub ask_timeout: Duration,
    /// How piece lengths are inferred.
    pub inference: InferenceOptions,
}

impl Default for TorrentsOptions {
    fn default() -> Self {
        Self {
            contents_max: 4096,
            assembly_bytes_max: 256 << 20,
            metadata_bytes_max: 64 << 20,
            ask_timeout: Duration::from_secs(10),
            inference: InferenceOptions::default(),
        }
    }
}

/// What all sessions know. See the module's head.
#[derive(Debug)]
pub struct Torrents {
    options: TorrentsOptions,
    contents: BTreeMap<InfoHash, Content>,
    /// Contents that no session has entered, by last use. Exactly those.
    idle: BTreeMap<u64, InfoHash>,
    assembly: Assembly,
    /// Memory of all contents' metadata and collectors.
    metadata_bytes: usize,
    /// Counts sessions and uses; never repeats.
    clock: u64,
}

/// A piece that is all there and waits for its check.
#[derive(Debug)]
pub(crate) struct CompletePiece {
    pub(crate) info: Arc<Info>,
    pub(crate) index: u32,
    pub(crate) parts: Vec<Bytes>,
}

/// What came of a block.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// Its piece, when it was the last one missing.
    pub(crate) complete: Option<CompletePiece>,
    /// Incomplete pieces dropped to make room.
    pub(crate) dropped: usize,
}

/// What learning the metadata brought along.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// The metadata, shared; the one known before, should there be one.
    pub(crate) info: Arc<Info>,
    /// Whether it was not known before.
    pub(crate) fresh: bool,
    /// Pieces that had waited for it.
    pub(crate) complete: Vec<CompletePiece>,
    /// The piece length that had been inferred and relied on.
    pub(crate) inferred_piece_bytes: Option<u32>,
}

/// Metadata that is right but was not taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LearnError {
    /// It does not fit the budget.
    NoRoom,
}

/// Pieces with holes remembered for each content.
const HOLED_MAX: usize = 1024;

#[derive(Debug)]
struct Content {
    info: Option<Arc<Info>>,
    unsupported: bool,
    /// Sessions inside. While there is one, the content stays.
    sessions: usize,
    last_use: u64,
    inference: Inference,
    /// One bit a piece: handed out for its check, not seen missing since.
    handed_out: Vec<u64>,
    /// Pieces of which the store lacked something lately. What it still has of
    /// them is worth gathering, so that the hole is filled. At most `HOLED_MAX`.
    holed: BTreeSet<u32>,
    asking: Option<Asking>,
    collector: Option<Collector>,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    session: u64,
    until: Instant,
}

impl Torrents {
    /// Knowing nothing.
    pub fn new(options: TorrentsOptions) -> Self {
        let assembly = Assembly::new(options.assembly_bytes_max);
        Self {
            options,
            contents: BTreeMap::new(),
            idle: BTreeMap::new(),
            assembly,
            metadata_bytes: 0,
            clock: 0,
        }
    }

    /// Contents known.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Memory that incomplete pieces take, in bytes.
    pub const fn assembly_bytes(&self) -> usize {
        self.assembly.held_bytes()
    }

    /// The metadata of a content, if it is known.
    pub fn info(&self, info_hash: InfoHash) -> Option<Arc<Info>> {
        self.contents.get(&info_hash)?.info.clone()
    }

    /// Lets a session in and names it; `None` when the table is full of contents
    /// that other sessions are in.
    pub(crate) fn enter(&mut self, info_hash: InfoHash) -> Option<u64> {
        self.clock += 1;
        if let Some(content) = self.contents.get_mut(&info_hash) {
            if content.sessions == 0 {
                self.idle.remove(&content.last_use);
            }
            content.sessions += 1;
            return Some(self.clock);
        }
        if self.contents.len() >= self.options.contents_max && !self.evict() {
            return None;
        }
        let inference = Inference::new(self.options.inference.clone());
        self.contents.insert(
            info_hash,
            Content {
                info: None,
                unsupported: false,
                sessions: 1,
                last_use: 0,
                inference,
                handed_out: Vec::new(),
                holed: BTreeSet::new(),
                asking: None,
                collector: None,
            },
        );
        Some(self.clock)
    }

    /// Lets a session out; what it asked for, another may ask for now.
    pub(crate) fn exit(&mut self, info_hash: InfoHash, session: u64) {
        self.stop_asking(info_hash, session);
        let Some(content) = self.contents.get_mut(&info_hash) else { return };
        content.sessions = content.sessions.saturating_sub(1);
        if content.sessions == 0 {
            self.clock += 1;
            content.last_use = self.clock;
            self.idle.insert(self.clock, info_hash);
        }
    }

    /// Notes that a content is of a version that is not supported.
    pub(crate) fn set_unsupported(&mut self, info_hash: InfoHash) {
        if let Some(content) = self.contents.get_mut(&info_hash) {
            content.unsupported = true;
        }
    }

    pub(crate) fn is_unsupported(&self, info_hash: InfoHash) -> bool {
        self.contents.get(&info_hash).is_some_and(|content| content.unsupported)
    }

    /// Gives the inference a sample; the piece length that it proves wrong, if
    /// somebody had relied on one.
    pub(crate) fn observe(&mut self, info_hash: InfoHash, block: Block) -> Option<u32> {
        let content = self.contents.get_mut(&info_hash)?;
        match content.inference.observe(block.index, block.begin, block.len) {
            Observation::Contradicted { piece_bytes } => Some(piece_bytes),
            Observation::Steady | Observation::Raised => None,
        }
    }

    /// The inferred piece length, in bytes, once it can be relied on.
    pub(crate) fn inferred_piece_bytes(&self, info_hash: InfoHash) -> Option<u32> {
        Some(self.contents.get(&info_hash)?.inference.estimate()?.piece_bytes)
    }

    /// Whether a block is of use: its piece was not handed out for its check, or
    /// the store has lost it since.
    pub(crate) fn wants(&self, info_hash: InfoHash, index: u32) -> bool {
        let Some(content) = self.contents.get(&info_hash) else { return false };
        let word = content.handed_out.get(index as usize / 64);
        word.is_none_or(|word| word & (1 << (index % 64)) == 0)
    }

    /// Notes that the store does not have (all of) a piece.
    pub(crate) fn piece_missing(&mut self, info_hash: InfoHash, index: u32) {
        let Some(content) = self.contents.get_mut(&info_hash) else { return };
        if let Some(word) = content.handed_out.get_mut(index as usize / 64) {
            *word &= !(1 << (index % 64));
        }
        content.holed.insert(index);
        if content.holed.len() > HOLED_MAX {
            content.holed.pop_first();
        }
    }

    /// Takes a block that the caller has found to lie inside the content, or
    /// whose metadata is unknown.
    pub(crate) fn add(&mut self, info_hash: InfoHash, block: Block, data: &Bytes) -> Added {
        let fits = block.begin.checked_add(block.len).is_some_and(|end| end <= PIECE_BYTES_MAX);
        if !fits || !self.contents.contains_key(&info_hash) {
            return Added::default();
        }
        let dropped = self.assembly.insert(info_hash, block, data);
        Added { complete: self.complete(info_hash, block.index), dropped }
    }

    /// Takes a block that the store had, if something else of its piece was
    /// missing lately: with what is fetched, the piece becomes whole again.
    pub(crate) fn add_stored(&mut self, info_hash: InfoHash, block: Block, data: &Bytes) -> Added {
        let content = self.contents.get(&info_hash);
        let holed = content.is_some_and(|c| c.info.is_some() && c.holed.contains(&block.index));
        if holed { self.add(info_hash, block, data) } else { Added::default() }
    }

    /// Takes a piece of metadata.
    pub(crate) fn collect(
        &mut self,
        info_hash: InfoHash,
        total_bytes: u32,
        piece: u32,
        data: &[u8],
    ) -> Collected {
        let Some(content) = self.contents.get_mut(&info_hash) else { return Collected::More };
        if content.info.is_some() {
            return Collected::More;
        }
        // A peer that claims another size starts a new collection: one of them
        // is wrong, and the hash will tell which.
        if content.collector.as_ref().is_none_or(|c| c.total_bytes() != total_bytes) {
            self.metadata_bytes -= content.collector.take().map_or(0, |c| c.held_bytes());
            content.collector = Collector::new(total_bytes);
        }
        let Some(collector) = &mut content.collector else { return Collected::Refused };
        if self.metadata_bytes + data.len() > self.options.metadata_bytes_max {
            return Collected::Refused;
        }
        let before = collector.held_bytes();
        let fits = collector.insert(piece, data);
        self.metadata_bytes += collector.held_bytes() - before;
        match (fits, collector.whole()) {
            (false, _) => Collected::Refused,
            (true, None) => Collected::More,
            (true, Some(raw)) => {
                self.metadata_bytes -= collector.held_bytes();
                content.collector = None;
                Collected::Whole(raw)
            }
        }
    }

    /// Whether a piece of metadata was collected.
    pub(crate) fn has_metadata_piece(&self, info_hash: InfoHash, piece: u32) -> bool {
        let collector = self.contents.get(&info_hash).and_then(|c| c.collector.as_ref());
        collector.is_some_and(|c| c.has(piece))
    }

    /// Takes up metadata that hashes to its content's name.
    pub(crate) fn learn(&mut self, info: Info) -> Result<Learnt, LearnError> {
        let info_hash = info.info_hash();
        let known = self.info(info_hash);
        let fresh = known.is_none();
        if fresh {
            while self.metadata_bytes + info.memory_bytes() > self.options.metadata_bytes_max {
                if !self.evict() {
                    return Err(LearnError::NoRoom);
                }
            }
            self.metadata_bytes += info.memory_bytes();
        }
        let info = known.unwrap_or_else(|| Arc::new(info));
        let Some(content) = self.contents.get_mut(&info_hash) else {
            return Err(LearnError::NoRoom);
        };
        content.asking = None;
        self.metadata_bytes -= content.collector.take().map_or(0, |c| c.held_bytes());
        if fresh {
            content.info = Some(Arc::clone(&info));
            content.handed_out = vec![0; info.piece_count().div_ceil(64) as usize];
        }
        let inferred_piece_bytes = content.inference.estimate().map(|e| e.piece_bytes);
        let waiting = if fresh { self.assembly.indexes(info_hash) } else { Vec::new() };
        let complete = waiting.into_iter().filter_map(|i| self.complete(info_hash, i)).collect();
        Ok(Learnt { info, fresh, complete, inferred_piece_bytes })
    }

    /// Gives `session` the sole right to ask for metadata until it is silent for
    /// the time-out; false when another has it. Asked again, it is prolonged.
    pub(crate) fn try_ask(&mut self, info_hash: InfoHash, session: u64, now: Instant) -> bool {
        let until = now + self.options.ask_timeout;
        let Some(content) = self.contents.get_mut(&info_hash) else { return false };
        let free = content.asking.is_none_or(|a| a.session == session || a.until <= now);
        let may = free && content.info.is_none();
        if may {
            content.asking = Some(Asking { session, until });
        }
        may
    }

    /// Gives the right to ask back.
    pub(crate) fn stop_asking(&mut self, info_hash: InfoHash, session: u64) {
        if let Some(content) = self.contents.get_mut(&info_hash)
            && content.asking.is_some_and(|a| a.session == session)
        {
            content.asking = None;
        }
    }

    /// How long [`Torrents::try_ask`] holds.
    pub(crate) const fn ask_timeout(&self) -> Duration {
        self.options.ask_timeout
    }

    /// Takes a piece out of the assembly when all of it is there; drops it when
    /// there is no such piece.
    fn complete(&mut self, info_hash: InfoHash, index: u32) -> Option<CompletePiece> {
        let content = self.contents.get_mut(&info_hash)?;
        let info = content.info.as_ref()?;
        let Some(piece_len) = info.piece_len(index) else {
            self.assembly.forget(info_hash, index);
            return None;
        };
        let parts = self.assembly.take_complete(info_hash, index, piece_len)?;
        if let Some(word) = content.handed_out.get_mut(index as usize / 64) {
            *word |= 1 << (index % 64);
        }
        content.holed.remove(&index);
        Some(CompletePiece { info: Arc::clone(info), index, parts })
    }

    /// Drops the content used longest ago; false when sessions are in all.
    fn evict(&mut self) -> bool {
        let Some((_, info_hash)) = self.idle.pop_first() else { return false };
        self.assembly.forget_all(info_hash);
        if let Some(content) = self.contents.remove(&info_hash) {
            self.metadata_bytes -= content.info.map_or(0, |info| info.memory_bytes());
            self.metadata_bytes -= content.collector.map_or(0, |c| c.held_bytes());
        }
        true
    }
}
