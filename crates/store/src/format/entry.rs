//! Entries: the changes of the index, each absolute, so that the last one counts.

use weir_ranges::ObjectId;

use super::Fields;
use crate::Description;
use crate::units::{GROUP_LEN, RUNS_MAX, SEGMENT_LEN, Window};

/// One change of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// What is known of an object.
    Describe(ObjectId, Description),
    /// Nothing of this object's group is held any more.
    Drop(ObjectId, u64),
    /// This object's bytes are gone, all of them.
    Forget(ObjectId),
    /// What is held of a group, in full; replaces what was held before.
    Group(GroupState),
}

/// What is held of one group, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupState {
    /// Whose.
    pub(crate) object: ObjectId,
    /// Which MiB of the object.
    pub(crate) group: u64,
    /// Where its extent begins in the data file, in slots of 16 KiB.
    pub(crate) slot: u32,
    /// Which part of the group the extent holds.
    pub(crate) window: Window,
    /// When its object was last used, in seconds since 1970.
    pub(crate) stamp: u32,
    /// Segments that are whole; their marks are in the table of marks.
    pub(crate) present: u64,
    /// What is held of the others: segment and run, ascending, never touching.
    pub(crate) runs: Vec<(u8, Run)>,
}

/// A run of bytes within a segment. `start < end <= 16384`, never the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First byte.
    pub(crate) start: u16,
    /// The byte after the last.
    pub(crate) end: u16,
    /// Its mark (`crate::checksum`).
    pub(crate) mark: u32,
}

impl Run {
    /// Bytes in it.
    pub(crate) fn len(self) -> u64 {
        u64::from(self.end - self.start)
    }
}

impl Entry {
    /// Appends the entry.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Describe(object, description) => {
                out.push(DESCRIBE);
                out.extend(object.to_bytes());
                let size = description.size_bytes;
                out.push(u8::from(size.is_some()));
                out.extend(size.unwrap_or(0).to_le_bytes());
                for text in [&description.app, &description.name] {
                    out.push(u8::try_from(text.len()).expect("texts are cut at 255 bytes"));
                    out.extend(text.as_bytes());
                }
            }
            Self::Drop(object, group) => {
                out.push(DROP);
                out.extend(object.to_bytes());
                out.extend(group.to_le_bytes());
            }
            Self::Forget(object) => {
                out.push(FORGET);
                out.extend(object.to_bytes());
            }
            Self::Group(state) => state.encode(out),
        }
    }

    /// Takes one entry off `fields`; `None` when it is none of ours.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        match fields.u8()? {
            DESCRIBE => {
                let object = ObjectId::from_bytes(fields.array()?);
                let known = fields.u8()? != 0;
                let size = fields.u64()?;
                let mut text = || {
                    let len = fields.u8()?;
                    let bytes = fields.bytes(usize::from(len))?;
                    Some(str::from_utf8(bytes).ok()?.to_owned())
                };
                let (app, name) = (text()?, text()?);
                let size_bytes = known.then_some(size);
                Some(Self::Describe(object, Description { app, name, size_bytes }))
            }
            DROP => {
                let object = ObjectId::from_bytes(fields.array()?);
                Some(Self::Drop(object, fields.u64()?))
            }
            FORGET => fields.array().map(|id| Self::Forget(ObjectId::from_bytes(id))),
            GROUP => GroupState::decode(fields).map(Self::Group),
            _ => None,
        }
    }
}

impl GroupState {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(GROUP);
        out.extend(self.object.to_bytes());
        out.extend(self.group.to_le_bytes());
        out.extend(self.slot.to_le_bytes());
        out.push(self.window.code());
        out.extend(self.stamp.to_le_bytes());
        out.extend(self.present.to_le_bytes());
        let runs = u16::try_from(self.runs.len()).expect("64 segments of 16 runs at most");
        out.extend(runs.to_le_bytes());
        for (segment, run) in &self.runs {
            out.push(*segment);
            out.extend(run.start.to_le_bytes());
            out.extend(run.end.to_le_bytes());
            out.extend(run.mark.to_le_bytes());
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let mut state = Self {
            object: ObjectId::from_bytes(fields.array()?),
            group: fields.u64()?,
            slot: fields.u32()?,
            window: Window::from_code(fields.u8()?)?,
            stamp: fields.u32()?,
            present: fields.u64()?,
            runs: Vec::new(),
        };
        let runs = fields.u16()?;
        for _ in 0..runs {
            let segment = fields.u8()?;
            let run = Run { start: fields.u16()?, end: fields.u16()?, mark: fields.u32()? };
            state.runs.push((segment, run));
        }
        state.is_sound().then_some(state)
    }

    /// Whether each byte of it has a number: the last group of all has one less.
    fn ends_below_all_numbers(&self) -> bool {
        let last = u64::MAX >> 20;
        let is_whole = self.present >> 63 != 0;
        let reaches = |run: &(u8, Run)| run.0 == 63 && u32::from(run.1.end) == SEGMENT_LEN;
        self.group < last || self.group == last && !is_whole && !self.runs.iter().any(reaches)
    }

    /// Whether it says something that the index can hold.
    fn is_sound(&self) -> bool {
        let window = self.window.mask();
        let something = self.present != 0 || !self.runs.is_empty();
        let in_window = self.present & !window == 0;
        let aligned = self.slot.is_multiple_of(self.window.class().segments().into());
        let each = self.runs.iter().all(|&(segment, run)| {
            usize::from(segment) < GROUP_LEN
                && window & !self.present & 1 << segment != 0
                && run.start < run.end
                && u32::from(run.end) <= SEGMENT_LEN
                && run.len() < u64::from(SEGMENT_LEN)
        });
        let ascending = self.runs.windows(2).all(|pair| {
            let ((a, left), (b, right)) = (pair[0], pair[1]);
            a < b || (a == b && left.end < right.start)
        });
        let bounded =
            self.runs.chunk_by(|a, b| a.0 == b.0).all(|of_segment| of_segment.len() <= RUNS_MAX);
        something
            && in_window
            && aligned
            && each
            && ascending
            && bounded
            && self.ends_below_all_numbers()
    }
}

const GROUP: u8 = 1;
const DROP: u8 = 2;
const FORGET: u8 = 3;
const DESCRIBE: u8 = 4;
