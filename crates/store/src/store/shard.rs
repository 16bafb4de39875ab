//! Buffers: bytes on their way to the disk, and bytes that came from it.
//!
//! A group that is being written is *gathered*: its bytes are put together in one
//! frame, and go to disk together. What was read or written lately is kept *clean*
//! and served from memory until its frame is wanted. Groups are spread over shards
//! by hash; who holds a shard's lock is the one writer of its groups.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use weir_ranges::{ByteRange, GROUP_BYTES, RangeSet, SEGMENT_BYTES};

use crate::frame::PooledFrame;
use crate::index::GroupId;
use crate::units::Window;

/// The groups of one hash.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) gathers: HashMap<GroupId, Gather>,
    clean: HashMap<GroupId, Vec<Clean>>,
    /// The groups in `clean`, each once, for a second chance each.
    queue: VecDeque<GroupId>,
    /// Groups that somebody reads from disk.
    pub(super) loading: HashSet<GroupId>,
    /// Counts what may make bytes just read from disk the wrong ones to keep.
    pub(super) changes: u64,
}

/// Bytes of a group that are not on disk yet.
#[derive(Debug)]
pub(super) struct Gather {
    /// What the frame holds a place for.
    pub(super) window: Window,
    pub(super) frame: PooledFrame,
    /// Which bytes are there, counted from the group's first.
    pub(super) filled: RangeSet,
    /// In which round of the syncing thread it began.
    pub(super) since: u32,
}

/// Bytes of a group that are on disk as well.
#[derive(Debug)]
struct Clean {
    range: ByteRange,
    bytes: Bytes,
    used: bool,
}

impl Gather {
    /// Where a byte of the group lies in the frame.
    pub(super) fn place(&self, at: u64) -> usize {
        local(at - u64::from(self.window.first()) * SEGMENT_BYTES)
    }

    /// Its bytes of `range`, which is within the window and counted from the group's
    /// first byte.
    pub(super) fn bytes(&self, range: ByteRange) -> &[u8] {
        &self.frame[self.place(range.start())..self.place(range.end())]
    }

    /// Whether all of `part`, of its group's object, is gathered.
    pub(super) fn has(&self, id: GroupId, part: ByteRange) -> bool {
        self.filled.contains(in_group(part, id.group * GROUP_BYTES))
    }

    /// Puts `parts` in, from byte `at` of the group on; says how many bytes are new.
    pub(super) fn fill<'a>(&mut self, at: u64, parts: impl Iterator<Item = &'a [u8]>) -> u64 {
        let mut next = at;
        for part in parts {
            let from = self.place(next);
            self.frame[from..from + part.len()].copy_from_slice(part);
            next += part.len() as u64;
        }
        ByteRange::new(at, next).map_or(0, |range| self.filled.insert(range))
    }

    /// Moves to a larger window, whose frame is `frame`.
    pub(super) fn grow(&mut self, window: Window, frame: PooledFrame) {
        let mut grown = Self { window, frame, filled: RangeSet::new(), since: self.since };
        for range in self.filled.iter() {
            grown.fill(range.start(), std::iter::once(self.bytes(range)));
        }
        *self = grown;
    }
}

impl Shard {
    /// What is in memory of `part` of a group: bytes not yet on disk, and clean ones.
    /// The second may have been evicted or forgotten on disk; the caller asks.
    pub(super) fn find(&mut self, id: GroupId, part: ByteRange) -> (Found, Found) {
        let (mut dirty, mut clean) = (Vec::new(), Vec::new());
        let start = id.group * GROUP_BYTES;
        if let Some(gather) = self.gathers.get(&id) {
            let inner = in_group(part, start);
            for range in gather.filled.iter().filter_map(|range| range.intersection(inner)) {
                dirty.push((start + range.start(), Bytes::copy_from_slice(gather.bytes(range))));
            }
        }
        for kept in self.clean.get_mut(&id).into_iter().flatten() {
            if let Some(range) = kept.range.intersection(part) {
                kept.used = true;
                let from = local(range.start() - kept.range.start());
                clean.push((range.start(), kept.bytes.slice(from..from + local(range.len()))));
            }
        }
        clean.sort_unstable_by_key(|(at, _)| *at);
        (dirty, clean)
    }

    /// Keeps bytes of a group that are on disk.
    pub(super) fn keep(&mut self, id: GroupId, at: u64, bytes: Bytes) {
        let Some(range) = ByteRange::at(at, bytes.len() as u64) else { return };
        let kept = self.clean.entry(id).or_insert_with(|| {
            self.queue.push_back(id);
            Vec::new()
        });
        if kept.iter().any(|clean| clean.range.contains(range)) {
            return;
        }
        kept.retain(|clean| !range.contains(clean.range));
        kept.push(Clean { range, bytes, used: false });
    }

    /// Lets go of what is clean of `part`, for other bytes come.
    pub(super) fn spoil(&mut self, id: GroupId, part: ByteRange) {
        if let Some(kept) = self.clean.get_mut(&id) {
            kept.retain(|clean| clean.range.intersection(part).is_none());
        }
    }

    /// Lets go of everything of the groups that `is` picks; hands out what was not on
    /// disk.
    pub(super) fn forget(&mut self, is: impl Fn(GroupId) -> bool) -> Vec<Gather> {
        self.changes += 1;
        self.clean.retain(|id, _| !is(*id));
        self.queue.retain(|id| !is(*id));
        self.gathers.extract_if(|id, _| is(*id)).map(|(_, gather)| gather).collect()
    }

    /// Lets go of the group that was used longest ago, about; says whether there was
    /// one.
    pub(super) fn reclaim(&mut self) -> bool {
        for _ in 0..=self.queue.len() {
            let Some(id) = self.queue.pop_front() else { return false };
            match self.clean.get_mut(&id) {
                None => {}
                Some(kept) if kept.iter().any(|clean| clean.used) => {
                    kept.iter_mut().for_each(|clean| clean.used = false);
                    self.queue.push_back(id);
                }
                Some(_) => {
                    let kept = self.clean.remove(&id);
                    if kept.is_some_and(|kept| !kept.is_empty()) {
                        return true;
                    }
                }
            }
        }
        false
    }
}

/// Bytes and where they are in the object, ascending.
pub(super) type Found = Vec<(u64, Bytes)>;

/// A range of the object, counted from `start`, where its group begins.
pub(super) fn in_group(part: ByteRange, start: u64) -> ByteRange {
    ByteRange::new(part.start() - start, part.end() - start).expect("its order is kept")
}

/// A distance within a group, as a place in memory.
pub(super) fn local(distance: u64) -> usize {
    usize::try_from(distance).expect("a group is 1 MiB long")
}
