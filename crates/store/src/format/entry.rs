//! Entries: the changes of the index, each absolute, so that the last one counts.

use weir_ranges::ObjectId;

use super::Fields;
use crate::Description;
use crate::units::{GROUP_LEN, RUNS_MAX, SEGMENT_LEN};

/// One change of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// What is known of an object.
    Describe(ObjectId, Description),
    /// This cluster holds nothing any more.
    Drop(u32),
    /// This object's bytes are gone, all of them.
    Forget(ObjectId),
    /// What is held of a group, in full; replaces what was held before.
    Group(Box<GroupState>),
}

/// What is held of one group, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupState {
    /// Whose.
    pub(crate) object: ObjectId,
    /// Which MiB of the object.
    pub(crate) group: u64,
    /// Which MiB of the data file.
    pub(crate) cluster: u32,
    /// When it was last used, in seconds since 1970.
    pub(crate) stamp: u32,
    /// Segments that are whole.
    pub(crate) present: u64,
    /// Marks (`crate::checksum`) of the whole ones; the others are 0.
    pub(crate) marks: [u32; GROUP_LEN],
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
            Self::Drop(cluster) => {
                out.push(DROP);
                out.extend(cluster.to_le_bytes());
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
            DROP => fields.u32().map(Self::Drop),
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
        out.extend(self.cluster.to_le_bytes());
        out.extend(self.stamp.to_le_bytes());
        out.extend(self.present.to_le_bytes());
        for (segment, mark) in self.marks.iter().enumerate() {
            if self.present & 1 << segment != 0 {
                out.extend(mark.to_le_bytes());
            }
        }
        let runs = u16::try_from(self.runs.len()).expect("64 segments of 16 runs at most");
        out.extend(runs.to_le_bytes());
        for (segment, run) in &self.runs {
            out.push(*segment);
            out.extend(run.start.to_le_bytes());
            out.extend(run.end.to_le_bytes());
            out.extend(run.mark.to_le_bytes());
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Box<Self>> {
        let mut state = Box::new(Self {
            object: ObjectId::from_bytes(fields.array()?),
            group: fields.u64()?,
            cluster: fields.u32()?,
            stamp: fields.u32()?,
            present: fields.u64()?,
            marks: [0; GROUP_LEN],
            runs: Vec::new(),
        });
        for (segment, mark) in state.marks.iter_mut().enumerate() {
            if state.present & 1 << segment != 0 {
                *mark = fields.u32()?;
            }
        }
        let runs = fields.u16()?;
        for _ in 0..runs {
            let segment = fields.u8()?;
            let run = Run { start: fields.u16()?, end: fields.u16()?, mark: fields.u32()? };
            state.runs.push((segment, run));
        }
        state.is_sound().then_some(state)
    }

    /// Whether it says something that the index can hold.
    fn is_sound(&self) -> bool {
        let each = self.runs.iter().all(|&(segment, run)| {
            usize::from(segment) < GROUP_LEN
                && self.present & 1 << segment == 0
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
        each && ascending && bounded && self.group <= u64::MAX >> 20
    }
}

const GROUP: u8 = 1;
const DROP: u8 = 2;
const FORGET: u8 = 3;
const DESCRIBE: u8 = 4;
