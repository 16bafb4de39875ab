//! From memory to disk: a gathered group is written in few large transfers, its
//! marks are noted, and the index is told.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use weir_ranges::{ByteRange, GROUP_BYTES, RangeSet, SEGMENT_BYTES};

use super::shard::{Gather, Shard, in_group};
use super::write::segment_range;
use super::{Locked, Shared};
use crate::disk::Transfer;
use crate::format::Run;
use crate::frame::{FramePool, PooledFrame};
use crate::index::{Claim, GroupId, Place, Written, segment_number, whole};
use crate::units::{RUNS_MAX, SEGMENT_LEN, Window};
use crate::{WriteError, checksum, clock};

impl Shared {
    /// Writes everything that is gathered.
    pub(super) fn flush_all(&self) -> Result<(), WriteError> {
        self.flush_where(|_| true)
    }

    /// Writes what was gathered before the round `before`.
    pub(super) fn flush_older(&self, before: u32) -> Result<(), WriteError> {
        self.flush_where(|gather| gather.since < before)
    }

    fn flush_where(&self, is: impl Fn(&Gather) -> bool) -> Result<(), WriteError> {
        let mut outcome = Ok(());
        for shard in &self.shards {
            let mut shard = shard.lock();
            let ids: Vec<GroupId> =
                shard.gathers.iter().filter(|(_, gather)| is(gather)).map(|(id, _)| *id).collect();
            for id in ids {
                // One that fails does not keep the others in memory.
                let flushed = self.flush(&mut shard, id);
                outcome = outcome.and(flushed);
            }
        }
        outcome
    }

    /// Writes one gathered group, and keeps its bytes as clean ones. They are lost
    /// when that fails: what was held before still is.
    pub(super) fn flush(&self, shard: &mut Shard, id: GroupId) -> Result<(), WriteError> {
        let Some(gather) = shard.gathers.remove(&id) else { return Ok(()) };
        self.count_out(&gather);
        shard.changes += 1;
        if gather.filled.is_empty() {
            return Ok(());
        }
        if self.index().stats.degraded {
            return Err(WriteError::Degraded);
        }
        let Some(place) = self.claim(id, gather.window)? else {
            self.index().stats.declined_bytes += gather.filled.bytes();
            return Ok(());
        };
        let gather = match self.compose(&place, gather) {
            Ok(gather) => gather,
            Err(why) => {
                // What is held is not written over by what could not be read.
                let mut index = self.index();
                index.give_up(&place);
                index.stats.read_errors += 1;
                return Err(why.into());
            }
        };
        let written = self.mark(&place, &gather);
        let put = self.put(&place, gather).map(|gather| (gather, written));
        let (gather, written) = match put {
            Ok(done) => done,
            Err(why) => {
                self.index().give_up(&place);
                self.degrade();
                return Err(why.into());
            }
        };
        if !self.index().note_written(&place, written, clock::unix_seconds()) {
            return Ok(());
        }
        if !gather.frame.is_pooled() {
            return Ok(());
        }
        let start = id.group * GROUP_BYTES;
        let ranges: Vec<_> = gather
            .filled
            .iter()
            .map(|range| (range.start(), gather.place(range.start())..gather.place(range.end())))
            .collect();
        let bytes = Bytes::from_owner(gather.frame);
        for (at, place) in ranges {
            shard.keep(id, start + at, bytes.slice(place));
        }
        Ok(())
    }

    /// Finds a place, with a commit where that makes one free; `None` when the group is
    /// not worth what would have to go for it.
    fn claim(&self, id: GroupId, window: Window) -> Result<Option<Place>, WriteError> {
        for _ in 0..CLAIMS_MAX {
            let claim = self.index().claim(id, window);
            match claim {
                Claim::Ready(place) => return Ok(Some(place)),
                Claim::Declined => return Ok(None),
                Claim::Reclaim => self.commit_soon()?,
                Claim::Full => break,
            }
        }
        self.index().stats.full_refusals += 1;
        Err(WriteError::Full)
    }

    /// Puts beside the gathered bytes what is on disk and must go along: all of the
    /// group when it moves, else what is held of the segments that are written.
    fn compose(&self, place: &Place, mut gather: Gather) -> std::io::Result<Gather> {
        let Some(group) = whole(place.id.group).filter(|_| place.old.is_some()) else {
            return Ok(gather);
        };
        if place.moves() && place.window != gather.window {
            let frame = self.pool.get_or_heap(place.window.class().bytes());
            gather.grow(place.window, frame);
        }
        let touched = touched(&gather);
        let (units, _) = self.index().compare(place.id, group);
        let units: Vec<_> = units
            .into_iter()
            .filter(|unit| place.moves() || touched & 1 << unit.segment != 0)
            .collect();
        let fetched = self.fetch(&units);
        if fetched.unread > 0 {
            return Err(std::io::Error::other("bytes that belong beside cannot be read"));
        }
        for (at, bytes) in fetched.parts {
            gather.fill(at - group.start(), std::iter::once(&bytes[..]));
        }
        Ok(gather)
    }

    /// Notes the marks of the gathered bytes; says what is to be noted of each
    /// segment. What is beyond the runs that are kept is let go.
    fn mark(&self, place: &Place, gather: &Gather) -> Vec<(u8, Written)> {
        let mut written = Vec::new();
        for (segment, filled) in by_touched_segment(gather) {
            let bound = checksum::place(place.id.object, segment_number(place.id.group, segment));
            let mark = |range: ByteRange| checksum::crc32c(gather.bytes(range)) ^ bound;
            let all = in_group(segment_range(place.id, segment), place.id.group * GROUP_BYTES);
            if filled.bytes() == SEGMENT_BYTES {
                self.marks.set(&*self.disk, place.slot_of(segment), mark(all));
                written.push((segment, Written::Whole));
                continue;
            }
            let offset = |at: u64| u16::try_from(at - all.start()).expect("within a segment");
            let run = |range: ByteRange| Run {
                start: offset(range.start()),
                end: offset(range.end()),
                mark: mark(range),
            };
            written.push((segment, Written::Runs(filled.iter().take(RUNS_MAX).map(run).collect())));
        }
        written
    }

    /// Writes the segments that anything is gathered of, whole, in as few transfers
    /// as they lie in stretches.
    fn put(&self, place: &Place, mut gather: Gather) -> std::io::Result<Gather> {
        blank(&mut gather);
        let segments: Vec<u8> = by_touched_segment(&gather).map(|(segment, _)| segment).collect();
        for stretch in segments.chunk_by(|a, b| a + 1 == *b) {
            let from = gather.place(u64::from(stretch[0]) * SEGMENT_BYTES);
            let len = stretch.len() * SEGMENT_LEN as usize;
            let offset = u64::from(place.slot_of(stretch[0])) * SEGMENT_BYTES;
            let frame = std::mem::replace(&mut gather.frame, FramePool::heap(0));
            let transfer = Transfer { offset, frame, range: from..from + len };
            for (transfer, done) in self.disk.write_batch(vec![transfer]) {
                gather.frame = transfer.frame;
                done?;
            }
        }
        Ok(gather)
    }

    /// A frame, of memory that something clean has or of memory that is not the
    /// pool's.
    pub(super) fn frame(&self, shard: &mut Shard, len_bytes: usize) -> PooledFrame {
        for _ in 0..RECLAIMS_MAX {
            if let Some(frame) = self.pool.get(len_bytes) {
                return frame;
            }
            // Others' locks are only tried: whoever holds one may want this one.
            let hand = self.hand.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let mut others = self.shards.iter().cycle().skip(hand).take(self.shards.len());
            let reclaims = |other: &Locked| other.try_lock().is_some_and(|mut s| s.reclaim());
            if !others.any(reclaims) && !shard.reclaim() {
                break;
            }
        }
        FramePool::heap(len_bytes)
    }
}

/// Segments of which anything is gathered, as bits.
fn touched(gather: &Gather) -> u64 {
    by_touched_segment(gather).fold(0, |bits, (segment, _)| bits | 1 << segment)
}

/// Segments of which anything is gathered, and what, counted from the group's first
/// byte.
fn by_touched_segment(gather: &Gather) -> impl Iterator<Item = (u8, RangeSet)> + '_ {
    gather.window.segments().filter_map(|segment| {
        let all = ByteRange::at(u64::from(segment) * SEGMENT_BYTES, SEGMENT_BYTES)?;
        let filled: RangeSet =
            gather.filled.iter().filter_map(|range| range.intersection(all)).collect();
        (!filled.is_empty()).then_some((segment, filled))
    })
}

/// Zeros where nothing is gathered: a frame has others' bytes in it.
fn blank(gather: &mut Gather) {
    let window = gather.window;
    let from = u64::from(window.first()) * SEGMENT_BYTES;
    let all = ByteRange::at(from, window.class().bytes() as u64).expect("within a group");
    for hole in gather.filled.holes(all).iter() {
        let (from, to) = (gather.place(hole.start()), gather.place(hole.end()));
        gather.frame[from..to].fill(0);
    }
}

/// Groups whose memory is taken, of whatever size, before a frame comes from elsewhere.
const RECLAIMS_MAX: usize = 16;
/// How often other writers may take the space that a commit made free before a
/// writer gives up.
const CLAIMS_MAX: usize = 16;
