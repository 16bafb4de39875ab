//! Reading: what is in memory is served from there; the rest is fetched, checked,
//! and kept in memory.

use std::ops::ControlFlow;

use bytes::Bytes;
use weir_ranges::{ByteRange, ObjectId, RangeSet};

use super::shard::{Found, Shard, local};
use super::{READ_BYTES_MAX, Shared};
use crate::disk::Transfer;
use crate::frame::BLOCK_BYTES;
use crate::index::{GroupId, Mark, Plan, Unit};
use crate::units::by_group;
use crate::{Read, ReadError, VerifyReport, clock};

/// What came of fetching units.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// Bytes that are as written; ascending.
    pub(super) parts: Found,
    /// Those of them that lie in the pool's memory, and so can be kept.
    pooled: Found,
    /// Units that were read and are not as written.
    bad: Vec<Unit>,
    /// Units that could not be read.
    pub(super) unread: u64,
}

/// A range of one group that is to be fetched.
#[derive(Debug)]
struct Fetch {
    /// Which of the ranges asked for it belongs to.
    want: usize,
    id: GroupId,
    plan: Plan,
    /// The shard's changes when it was planned.
    changes: u64,
    /// Whether it is the one that others wait for.
    is_first: bool,
}

impl Shared {
    /// Reads what is held of each of `wants`, all in one batch.
    pub(super) fn read(&self, wants: &[(ObjectId, ByteRange)]) -> Result<Vec<Read>, ReadError> {
        let len_bytes = wants.iter().fold(0, |sum: u64, (_, r)| sum.saturating_add(r.len()));
        if len_bytes > READ_BYTES_MAX {
            return Err(ReadError::TooLong { len_bytes, max_bytes: READ_BYTES_MAX });
        }
        let now = clock::unix_seconds();
        let mut found: Vec<Found> = wants.iter().map(|_| Found::new()).collect();
        let mut fetches: Vec<Fetch> = Vec::new();
        for (want, &(object, range)) in wants.iter().enumerate() {
            for (group, part) in by_group(range) {
                let id = GroupId { object, group };
                fetches.extend(self.look(want, id, part, &mut found[want], &fetches, now));
            }
        }
        for (at, fetched) in self.fetch_all(&fetches).into_iter().enumerate() {
            let fetch = &fetches[at];
            found[fetch.want].extend(fetched.parts.iter().cloned());
            self.finish(fetch, fetched);
        }
        let reads = wants.iter().zip(found).map(|((_, range), found)| answer(*range, found));
        let reads: Vec<Read> = reads.collect();
        self.note_reads(&reads);
        Ok(reads)
    }

    /// Takes what is in memory of `part`, and plans to fetch the rest.
    fn look(
        &self,
        want: usize,
        id: GroupId,
        part: ByteRange,
        found: &mut Found,
        fetches: &[Fetch],
        now: u32,
    ) -> Option<Fetch> {
        let ours = |fetch: &Fetch| fetch.id == id && fetch.is_first;
        let mut shard = self.shard(id);
        let mut may_wait = fetches.is_empty();
        loop {
            let mut holes: RangeSet = [part].into_iter().collect();
            let (dirty, clean) = shard.find(id, part);
            let mut index = self.index();
            let mut here = dirty;
            // What is clean is served while the index says that it is held.
            here.extend(
                clean.into_iter().filter(|(at, bytes)| index.use_held(id, extent(*at, bytes), now)),
            );
            for (at, bytes) in &here {
                holes.remove(extent(*at, bytes));
            }
            let mut plan = Plan::default();
            let waits = may_wait && !holes.is_empty() && shard.loading.contains(&id);
            if !waits {
                for hole in holes.iter() {
                    index.plan_group(id, hole, now, &mut plan);
                }
            }
            drop(index);
            if waits {
                // Somebody fetches of this group; what comes may be what is wanted.
                // Who fetches already does not wait: the other may wait for this one.
                shard = self.shard_of(id).wait(shard);
                may_wait = false;
                continue;
            }
            found.extend(here);
            if plan.units.is_empty() {
                return None;
            }
            let is_first = !fetches.iter().any(ours) && shard.loading.insert(id);
            return Some(Fetch { want, id, plan, changes: shard.changes, is_first });
        }
    }

    /// Keeps what was fetched, drops what was bad, lets others go on.
    fn finish(&self, fetch: &Fetch, fetched: Fetched) {
        let mut shard = self.shard(fetch.id);
        if fetch.is_first {
            shard.loading.remove(&fetch.id);
            self.shard_of(fetch.id).loaded.notify_all();
        }
        let unchanged = shard.changes == fetch.changes;
        if unchanged && fetch.is_first {
            for (at, bytes) in fetched.pooled {
                shard.keep(fetch.id, at, bytes);
            }
        }
        // Where others wrote meanwhile, bad may be new.
        let bad = if unchanged { fetched.bad } else { Vec::new() };
        let rejected = self.settle(&fetch.plan, &bad, fetched.unread);
        drop(shard);
        if rejected > 0 {
            // Their places are written again only when this is durable.
            self.commit_quietly();
        }
    }

    /// Lets a plan's extents go; drops what was bad, and says how many of it.
    fn settle(&self, plan: &Plan, bad: &[Unit], unread: u64) -> u64 {
        let mut index = self.index();
        let rejected = bad.iter().filter(|unit| index.reject(unit)).count() as u64;
        for pin in &plan.pins {
            index.unpin(*pin);
        }
        index.stats.checksum_failures += rejected;
        index.stats.read_errors += unread;
        rejected
    }

    fn note_reads(&self, reads: &[Read]) {
        let stats = &mut self.index().stats;
        for read in reads {
            stats.read_bytes += read.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            if !read.holes.is_empty() {
                stats.misses += 1;
            } else if !read.parts.is_empty() {
                stats.hits += 1;
            }
        }
    }

    pub(super) fn verify(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> VerifyReport {
        let mut report = VerifyReport::default();
        // What cannot be written is counted, and is not there to be verified.
        self.flush_all().unwrap_or_default();
        let (objects, total) = {
            let index = self.index();
            (index.object_ids(), index.stats.held_bytes)
        };
        for object in objects {
            let mut from = 0;
            loop {
                // A statement of its own: the lock is not held while reading.
                let group = self.index().next_group(object, from);
                let Some(group) = group else { break };
                self.verify_group(GroupId { object, group }, &mut report);
                // Writers may have added since the total was taken.
                if progress(report.bytes, total.max(report.bytes)).is_break() {
                    return report;
                }
                from = group + 1;
            }
        }
        report
    }

    fn verify_group(&self, id: GroupId, report: &mut VerifyReport) {
        let (plan, changes) = {
            let shard = self.shard(id);
            (self.index().plan_scrub(id), shard.changes)
        };
        let Some(plan) = plan else { return };
        let fetched = self.fetch(&plan.units);
        let shard = self.shard(id);
        // Where others wrote meanwhile, bad may be new.
        let bad = if shard.changes == changes { fetched.bad } else { Vec::new() };
        report.bad_segments += self.settle(&plan, &bad, fetched.unread);
        drop(shard);
        report.bad_bytes += bad.iter().map(|unit| unit.range.len()).sum::<u64>();
        report.segments += plan.units.len() as u64;
        report.bytes += plan.units.iter().map(|unit| unit.range.len()).sum::<u64>();
        report.read_errors += fetched.unread;
        if !bad.is_empty() {
            self.commit_quietly();
        }
    }

    /// The bytes of one unit, when they can be read and are as written.
    pub(super) fn fetch_one(&self, unit: &Unit) -> Option<Bytes> {
        let fetched = self.fetch(std::slice::from_ref(unit));
        fetched.parts.into_iter().next().map(|(_, bytes)| bytes)
    }

    /// Fetches and checks `units` of one group, which are ascending.
    pub(super) fn fetch(&self, units: &[Unit]) -> Fetched {
        let plan = Plan { units: units.to_vec(), pins: Vec::new() };
        let id = match units.first() {
            Some(unit) => unit.id,
            None => return Fetched::default(),
        };
        let fetch = Fetch { want: 0, id, plan, changes: 0, is_first: false };
        self.fetch_all(&[fetch]).pop().unwrap_or_default()
    }

    /// Fetches and checks all units of `fetches`, in one batch of as few transfers as
    /// they lie in stretches.
    fn fetch_all(&self, fetches: &[Fetch]) -> Vec<Fetched> {
        let mut stretches: Vec<(usize, &[Unit])> = Vec::new();
        for (at, fetch) in fetches.iter().enumerate() {
            let follows = |a: &Unit, b: &Unit| {
                a.range.end() == b.range.start()
                    && a.file_offset() + a.range.len() == b.file_offset()
            };
            stretches.extend(fetch.plan.units.chunk_by(follows).map(|stretch| (at, stretch)));
        }
        let batch = stretches.iter().map(|(_, stretch)| self.transfer(stretch)).collect();
        let mut all: Vec<Fetched> = fetches.iter().map(|_| Fetched::default()).collect();
        for ((at, stretch), (transfer, done)) in stretches.iter().zip(self.disk.read_batch(batch)) {
            if done.is_ok() {
                self.check(stretch, transfer, &mut all[*at]);
                continue;
            }
            if let [_] = stretch {
                all[*at].unread += 1;
                continue;
            }
            // One bad sector fails the whole read; its neighbours get one of their own.
            for unit in *stretch {
                let unit = std::slice::from_ref(unit);
                for (transfer, done) in self.disk.read_batch(vec![self.transfer(unit)]) {
                    match done {
                        Ok(()) => self.check(unit, transfer, &mut all[*at]),
                        Err(_) => all[*at].unread += 1,
                    }
                }
            }
        }
        all
    }

    /// The read of the blocks that hold `stretch`.
    fn transfer(&self, stretch: &[Unit]) -> Transfer {
        let (first, last) = (&stretch[0], &stretch[stretch.len() - 1]);
        let block = BLOCK_BYTES as u64;
        let offset = first.file_offset() / block * block;
        let end = (last.file_offset() + last.range.len()).next_multiple_of(block);
        let len = local(end - offset);
        let frame = self.pool.get(len).unwrap_or_else(|| self.frame(&mut Shard::default(), len));
        Transfer { offset, frame, range: 0..len }
    }

    /// Sorts the units that `transfer` brought into good ones and bad ones.
    fn check(&self, stretch: &[Unit], transfer: Transfer, fetched: &mut Fetched) {
        let Transfer { offset, frame, .. } = transfer;
        let place = |unit: &Unit| {
            let from = local(unit.file_offset() - offset);
            from..from + local(unit.range.len())
        };
        let mut good = RangeSet::new();
        for unit in stretch {
            let mark = match unit.mark {
                Mark::Run(mark) => Ok(mark),
                Mark::Table => self.marks.get(&*self.disk, unit.slot),
            };
            match mark {
                Ok(mark) if unit.is(&frame[place(unit)], mark) => drop(good.insert(unit.range)),
                Ok(_) => fetched.bad.push(*unit),
                Err(_) => fetched.unread += 1,
            }
        }
        let start = stretch[0].range.start();
        let skipped = place(&stretch[0]).start;
        let is_pooled = frame.is_pooled();
        let bytes = Bytes::from_owner(frame);
        for range in good.iter() {
            let from = skipped + local(range.start() - start);
            let part = (range.start(), bytes.slice(from..from + local(range.len())));
            if is_pooled {
                fetched.pooled.push(part.clone());
            }
            fetched.parts.push(part);
        }
    }
}

/// What was found, cut to the range asked for, and what was not.
fn answer(range: ByteRange, mut found: Found) -> Read {
    found.sort_by_key(|(at, _)| *at);
    let mut holes: RangeSet = [range].into_iter().collect();
    let mut parts: Found = Vec::with_capacity(found.len());
    for (at, bytes) in found {
        // Two sources may have had the same bytes; each byte is given once.
        let next =
            parts.last().map_or_else(|| range.start(), |(at, bytes)| extent(*at, bytes).end());
        let Some(rest) = ByteRange::new(next, range.end()) else { continue };
        let Some(part) = extent(at, &bytes).intersection(rest) else { continue };
        holes.remove(part);
        let from = local(part.start() - at);
        parts.push((part.start(), bytes.slice(from..from + local(part.len()))));
    }
    Read { parts, holes }
}

/// Where `bytes`, which lie at `at`, lie in all.
fn extent(at: u64, bytes: &Bytes) -> ByteRange {
    ByteRange::at(at, bytes.len() as u64).expect("held bytes end below 2^64")
}
