//! What a read has to fetch, and how to check it.

use weir_ranges::{ByteRange, GROUP_BYTES, SEGMENT_BYTES};

use super::{GroupId, Index, Record, segment_number};
use crate::checksum;
use crate::units::{SEGMENT_LEN, by_segment};

/// The smallest thing that can be checked: a whole segment, or a run of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Whose it is.
    pub(crate) id: GroupId,
    /// Which bytes of the object; never empty.
    pub(crate) range: ByteRange,
    /// Which slot of the data file its segment is in.
    pub(crate) slot: u32,
    /// Which segment of the group.
    pub(crate) segment: u8,
    pub(crate) mark: Mark,
}

/// Where to find what the checksum must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// In the table of marks, at the unit's slot.
    Table,
    /// Here.
    Run(u32),
}

/// The units that hold something of a range, ascending; their extents are pinned.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What to read.
    pub(crate) units: Vec<Unit>,
    /// To be given to [`Index::unpin`], each once.
    pub(crate) pins: Vec<u32>,
}

impl Unit {
    /// Where it lies in the data file.
    pub(crate) fn file_offset(&self) -> u64 {
        u64::from(self.slot) * u64::from(SEGMENT_LEN) + self.range.start() % SEGMENT_BYTES
    }

    /// Whether `bytes` are what was written, by their `mark`.
    pub(crate) fn is(&self, bytes: &[u8], mark: u32) -> bool {
        self.has(checksum::crc32c(bytes), mark)
    }

    /// The same, from the checksum of the bytes.
    pub(crate) fn has(&self, crc: u32, mark: u32) -> bool {
        crc ^ self.place() == mark
    }

    /// What binds its checksum to its place.
    fn place(&self) -> u32 {
        checksum::place(self.id.object, segment_number(self.id.group, self.segment))
    }
}

impl Index {
    /// What to read for the part of a range that is in one group; marks what it names
    /// as used.
    pub(crate) fn plan_group(&mut self, id: GroupId, part: ByteRange, now: u32, plan: &mut Plan) {
        let before = plan.units.len();
        self.units(id, part, &mut plan.units);
        if plan.units.len() > before
            && let Some(slot) = self.record(id).map(|record| record.slot)
        {
            self.pin(slot);
            plan.pins.push(slot);
            self.touch(id, now);
        }
    }

    /// Notes that all of `part` was served from memory; says no when it is not held
    /// any more.
    pub(crate) fn use_held(&mut self, id: GroupId, part: ByteRange, now: u32) -> bool {
        let held = self.record(id).is_some_and(|record| self.record_covers(record, part));
        if held {
            self.touch(id, now);
        }
        held
    }

    /// Everything of a group, pinned; `None` when nothing is held.
    pub(crate) fn plan_scrub(&mut self, id: GroupId) -> Option<Plan> {
        let slot = self.record(id)?.slot;
        let mut plan = Plan { units: Vec::new(), pins: vec![slot] };
        self.units(id, whole(id.group)?, &mut plan.units);
        self.pin(slot);
        Some(plan)
    }

    /// Appends the units of a group that hold something of `part`.
    pub(super) fn units(&self, id: GroupId, part: ByteRange, out: &mut Vec<Unit>) {
        let Some(record) = self.record(id) else { return };
        for piece in by_segment(part) {
            let segment = piece.segment;
            if record.present & 1 << segment != 0 {
                out.extend(unit(id, record, segment, (0, SEGMENT_LEN), Mark::Table));
                continue;
            }
            for run in self.runs_of(record, segment) {
                if run.start < piece.end && piece.start < run.end {
                    let extent = (u32::from(run.start), u32::from(run.end));
                    out.extend(unit(id, record, segment, extent, Mark::Run(run.mark)));
                }
            }
        }
    }

    /// Frees the segment of a unit whose bytes were wrong, when it is still held as
    /// the unit says; says whether it was. When not, the reader only lost a race.
    ///
    /// The caller still has the extent pinned.
    pub(crate) fn reject(&mut self, unit: &Unit) -> bool {
        let mut now = Vec::new();
        self.units(unit.id, unit.range, &mut now);
        if !now.contains(unit) {
            return false;
        }
        self.drop_segment(unit.id, unit.segment);
        true
    }
}

/// The unit of bytes `from` to `to` of a segment.
fn unit(
    id: GroupId,
    record: &Record,
    segment: u8,
    (from, to): (u32, u32),
    mark: Mark,
) -> Option<Unit> {
    let start = segment_number(id.group, segment) * SEGMENT_BYTES;
    let range = ByteRange::new(start + u64::from(from), start + u64::from(to))?;
    Some(Unit { id, range, slot: record.slot_of(segment), segment, mark })
}

/// All bytes of a group.
pub(crate) fn whole(group: u64) -> Option<ByteRange> {
    let start = group.checked_mul(GROUP_BYTES)?;
    ByteRange::new(start, start.saturating_add(GROUP_BYTES))
}
