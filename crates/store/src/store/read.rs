//! Reading: what the index names, fetched and checked.

use bytes::Bytes;
use weir_ranges::{ByteRange, ObjectId, RangeSet};

use super::{READ_BYTES_MAX, Shared};
use crate::disk::File;
use crate::index::Unit;
use crate::{Read, ReadError, VerifyReport, clock};

/// What came of fetching units.
#[derive(Debug, Default)]
struct Fetched {
    /// Bytes that are as written; ascending, not adjacent.
    parts: Vec<(u64, Bytes)>,
    /// Units that were read and are not as written.
    bad: Vec<Unit>,
    /// Units that could not be read.
    unread: u64,
}

impl Shared {
    pub(super) fn read(&self, object: ObjectId, range: ByteRange) -> Result<Read, ReadError> {
        if range.len() > READ_BYTES_MAX {
            return Err(ReadError::TooLong { len_bytes: range.len(), max_bytes: READ_BYTES_MAX });
        }
        if range.is_empty() {
            return Ok(Read::default());
        }
        let plan = self.index().plan_read(object, range, clock::unix_seconds());
        let fetched = self.fetch(&plan.units);
        let parts: Vec<_> =
            fetched.parts.iter().filter_map(|(at, bytes)| clip(*at, bytes, range)).collect();
        let mut holes: RangeSet = [range].into_iter().collect();
        let mut served = 0;
        for (at, bytes) in &parts {
            served += holes.remove(extent(*at, bytes));
        }
        let mut index = self.index();
        for unit in &fetched.bad {
            if index.reject(unit) {
                index.stats.checksum_failures += 1;
            }
        }
        for pin in plan.pins {
            index.unpin(pin);
        }
        index.stats.read_errors += fetched.unread;
        index.stats.read_bytes += served;
        if holes.is_empty() {
            index.stats.hits += 1;
        } else {
            index.stats.misses += 1;
        }
        Ok(Read { parts, holes })
    }

    pub(super) fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> VerifyReport {
        let mut report = VerifyReport::default();
        let (clusters, total) = {
            let index = self.index();
            (index.clusters_used(), index.stats.held_bytes)
        };
        for cluster in 0..clusters {
            // A statement of its own: the lock is not held while reading.
            let plan = self.index().plan_scrub(cluster);
            let Some(plan) = plan else { continue };
            let fetched = self.fetch(&plan.units);
            let mut index = self.index();
            for unit in &fetched.bad {
                if index.reject(unit) {
                    index.stats.checksum_failures += 1;
                    report.bad_segments += 1;
                    report.bad_bytes += unit.range.len();
                }
            }
            for pin in plan.pins {
                index.unpin(pin);
            }
            index.stats.read_errors += fetched.unread;
            drop(index);
            report.segments += plan.units.len() as u64;
            report.bytes += plan.units.iter().map(|unit| unit.range.len()).sum::<u64>();
            report.read_errors += fetched.unread;
            // Writers may have added since the total was taken.
            progress(report.bytes, total.max(report.bytes));
        }
        report
    }

    /// The bytes of one unit, when they can be read and are as written.
    pub(super) fn fetch_one(&self, unit: &Unit) -> Option<Bytes> {
        let fetched = self.fetch(std::slice::from_ref(unit));
        fetched.parts.into_iter().next().map(|(_, bytes)| bytes)
    }

    /// Fetches and checks `units`, which are ascending and pinned.
    fn fetch(&self, units: &[Unit]) -> Fetched {
        let mut fetched = Fetched::default();
        for stretch in units.chunk_by(|a, b| a.range.end() == b.range.start()) {
            self.fetch_stretch(stretch, &mut fetched);
        }
        fetched
    }

    /// Fetches units that follow each other in the object, as one buffer and in as
    /// few reads as they lie in places.
    fn fetch_stretch(&self, stretch: &[Unit], fetched: &mut Fetched) {
        let start = stretch[0].range.start();
        let place = |unit: &Unit| {
            let from = local(unit.range.start() - start);
            from..from + local(unit.range.len())
        };
        let len = local(stretch[stretch.len() - 1].range.end() - start);
        let mut buf = vec![0; len];
        let mut good = RangeSet::new();
        let on_disk = |a: &Unit, b: &Unit| a.file_offset() + a.range.len() == b.file_offset();
        for together in stretch.chunk_by(on_disk) {
            let span = place(&together[0]).start..place(&together[together.len() - 1]).end;
            let offset = together[0].file_offset();
            let read = self.disk.read_at(File::Data, offset, &mut buf[span]).is_ok();
            for unit in together {
                let bytes = &mut buf[place(unit)];
                // One bad sector fails the whole read; its neighbours get a read of
                // their own.
                if !read && self.disk.read_at(File::Data, unit.file_offset(), bytes).is_err() {
                    fetched.unread += 1;
                } else if unit.is(bytes) {
                    good.insert(unit.range);
                } else {
                    fetched.bad.push(*unit);
                }
            }
        }
        let buf = Bytes::from(buf);
        for range in good.iter() {
            let from = local(range.start() - start);
            let bytes = buf.slice(from..from + local(range.len()));
            fetched.parts.push((range.start(), bytes));
        }
    }
}

/// What of `bytes`, which lie at `at`, is in `range`.
fn clip(at: u64, bytes: &Bytes, range: ByteRange) -> Option<(u64, Bytes)> {
    let part = extent(at, bytes).intersection(range)?;
    let from = local(part.start() - at);
    Some((part.start(), bytes.slice(from..from + local(part.len()))))
}

/// Where `bytes`, which lie at `at`, lie in all.
fn extent(at: u64, bytes: &Bytes) -> ByteRange {
    ByteRange::at(at, bytes.len() as u64).expect("held bytes end below 2^64")
}

/// A distance within one read, as a place in memory.
fn local(distance: u64) -> usize {
    usize::try_from(distance).expect("a read is at most 64 MiB and two segments long")
}
