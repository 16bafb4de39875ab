//! What a read has to fetch, and how to check it.

use weir_ranges::{ByteRange, GROUP_BYTES, ObjectId, SEGMENT_BYTES};

use super::{Index, State};
use crate::checksum;
use crate::units::{CLUSTER_BYTES, SEGMENT_LEN, by_group, by_segment};

/// The smallest thing that can be checked: a whole segment, or a run of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Whose it is.
    pub(crate) object: ObjectId,
    /// Which bytes of the object; never empty.
    pub(crate) range: ByteRange,
    /// Whose cluster it is in.
    pub(crate) cluster: u32,
    /// Which segment of the group.
    pub(crate) segment: u8,
    /// What `checksum` must say.
    mark: u32,
    place: u32,
}

/// The units that hold something of a range, ascending; their clusters are pinned.
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
        u64::from(self.cluster) * u64::from(CLUSTER_BYTES) + self.range.start() % GROUP_BYTES
    }

    /// Whether `bytes` are what was written.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        checksum::crc32c(bytes) ^ self.place == self.mark
    }
}

impl Index {
    /// What to read for `range`; marks what it names as used.
    pub(crate) fn plan_read(&mut self, object: ObjectId, range: ByteRange, now: u32) -> Plan {
        let mut plan = Plan::default();
        for (group, part) in by_group(range) {
            let held = self.objects.get(&object).and_then(|o| o.groups.get(&group));
            let Some(&cluster) = held else { continue };
            let before = plan.units.len();
            self.units(cluster, part, &mut plan.units);
            if plan.units.len() > before {
                self.slot_mut(cluster).pins += 1;
                plan.pins.push(cluster);
                self.touch(cluster, now);
            }
        }
        plan
    }

    /// Everything in `cluster`, pinned; `None` when it holds nothing.
    pub(crate) fn plan_scrub(&mut self, cluster: u32) -> Option<Plan> {
        let slot = self.slot_mut(cluster);
        if slot.state != State::Live || slot.is_empty() {
            return None;
        }
        slot.pins += 1;
        let start = slot.group_start();
        let whole = ByteRange::new(start, start.saturating_add(GROUP_BYTES))?;
        let mut plan = Plan { units: Vec::new(), pins: vec![cluster] };
        self.units(cluster, whole, &mut plan.units);
        Some(plan)
    }

    /// Appends the units of `cluster` that hold something of `part`.
    pub(super) fn units(&self, cluster: u32, part: ByteRange, out: &mut Vec<Unit>) {
        let slot = self.slot(cluster);
        for piece in by_segment(part) {
            let segment = piece.segment;
            let start = slot.group_start() + u64::from(segment) * SEGMENT_BYTES;
            let unit = |from: u32, to: u32, mark| {
                let range = ByteRange::new(start + u64::from(from), start + u64::from(to))?;
                let place = slot.place_mark(segment);
                Some(Unit { object: slot.object, range, cluster, segment, mark, place })
            };
            if slot.present & 1 << segment != 0 {
                let mark = self.marks[super::place(cluster)][usize::from(segment)];
                out.extend(unit(0, SEGMENT_LEN, mark));
            } else if slot.partial & 1 << segment != 0 {
                let wanted = self
                    .runs_of(cluster, segment)
                    .iter()
                    .filter(|run| run.start < piece.end && piece.start < run.end);
                for run in wanted {
                    out.extend(unit(u32::from(run.start), u32::from(run.end), run.mark));
                }
            }
        }
    }

    /// Frees the segment of a unit whose bytes were wrong, when it is still held as
    /// the unit says; says whether it was. When not, the reader only lost a race.
    ///
    /// The caller still has the cluster pinned.
    pub(crate) fn reject(&mut self, unit: &Unit) -> bool {
        let slot = self.slot(unit.cluster);
        if slot.state != State::Live || slot.object != unit.object {
            return false;
        }
        let mut now = Vec::new();
        self.units(unit.cluster, unit.range, &mut now);
        if !now.contains(unit) {
            return false;
        }
        self.drop_segment(unit.cluster, unit.segment);
        self.mark_dirty(unit.cluster);
        true
    }
}
