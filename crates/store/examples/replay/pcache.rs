//! pCache as printed, re-implemented: a balanced tree an object, blocks of 0.5 MiB,
//! in one file (`Fs`) or on a device without a file system (`Raw`).
//!
//! A hash table leads from the object to a balanced tree of its segments; a segment
//! takes one block. Segments are put into buffers in memory (0.5 GB in the paper,
//! `--memory` here). When no clean buffer is left, all dirty ones are written in the
//! order of their blocks, neighbours with one call. The block of a new segment is
//! the one that lies to its predecessor in the tree as their offsets do, else the
//! next free one; so segments of an object lie near each other. Nothing says what
//! survives a crash, and nothing is synced.
//!
//! The file is reserved beforehand and goes through the page cache; the device is
//! used with direct I/O. Re-implemented from second-hand descriptions of the paper
//! (IEEE Transactions on Computers 60(7), 2011), which gives no code.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use bytes::Bytes;
use nix::fcntl::{OFlag, posix_fallocate};

use crate::aligned::{ALIGN, Aligned};
use crate::counted::Counted;
use crate::layout::{Key, Layout, Outcome, SEGMENT_BYTES_MAX, Segment, Space};

/// Trees, blocks and buffers.
#[derive(Debug)]
pub(crate) struct Pcache {
    blocks: File,
    objects: HashMap<u64, BTreeMap<u64, Stored>>,
    free: FreeBlocks,
    buffers: Vec<Buffer>,
    buffered: HashMap<Key, usize>,
    clock: u64,
    io: Counted,
}

/// A segment in its tree.
#[derive(Clone, Copy, Debug)]
struct Stored {
    block: usize,
    len: u32,
}

/// A segment in memory.
#[derive(Debug)]
struct Buffer {
    bytes: Aligned,
    key: Option<Key>,
    block: usize,
    is_dirty: bool,
    used: u64,
}

impl Pcache {
    /// In one file of the directory of `space`.
    pub(crate) fn in_file(space: &Space) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(space.dir.join("pcache"))?;
        let bytes = i64::try_from(space.capacity_bytes).map_err(io::Error::other)?;
        posix_fallocate(&file, 0, bytes)?;
        Self::on(file, space)
    }

    /// On the device of `space`.
    pub(crate) fn on_device(space: &Space) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(OFlag::O_DIRECT.bits());
        Self::on(options.open(space.device()?)?, space)
    }

    fn on(blocks: File, space: &Space) -> io::Result<Self> {
        let count = |bytes: u64| usize::try_from(bytes).map_err(io::Error::other);
        let buffers = (count(space.memory_bytes)? / BLOCK).max(BUFFERS_MIN);
        Ok(Self {
            blocks,
            objects: HashMap::new(),
            free: FreeBlocks::new(count(space.capacity_bytes)? / BLOCK),
            buffers: (0..buffers).map(|_| Buffer::empty()).collect(),
            buffered: HashMap::new(),
            clock: 0,
            io: Counted::default(),
        })
    }

    /// A clean buffer that was not used for longest, taken from its segment.
    fn buffer(&mut self) -> io::Result<usize> {
        let oldest = |buffers: &[Buffer]| {
            let clean = buffers.iter().enumerate().filter(|(_, buffer)| !buffer.is_dirty);
            clean.min_by_key(|(_, buffer)| buffer.used).map(|(place, _)| place)
        };
        let place = match oldest(&self.buffers) {
            Some(place) => place,
            None => {
                self.flush()?;
                oldest(&self.buffers).ok_or_else(|| io::Error::other("no buffer"))?
            }
        };
        if let Some(key) = self.buffers[place].key.take() {
            self.buffered.remove(&key);
        }
        Ok(place)
    }

    /// Writes all dirty buffers in the order of their blocks.
    fn flush(&mut self) -> io::Result<()> {
        let mut dirty: Vec<&mut Buffer> =
            self.buffers.iter_mut().filter(|buffer| buffer.is_dirty).collect();
        dirty.sort_by_key(|buffer| buffer.block);
        for run in dirty.chunk_by_mut(|one, next| one.block + 1 == next.block) {
            for part in run.chunks_mut(RUN_MAX) {
                let at = (part[0].block * BLOCK) as u64;
                let slices: Vec<IoSlice<'_>> =
                    part.iter().map(|buffer| IoSlice::new(&buffer.bytes)).collect();
                write_all_at(&self.blocks, at, &slices)?;
                self.io.wrote(Some(at), part.len() * BLOCK);
                for buffer in part {
                    buffer.is_dirty = false;
                }
            }
        }
        Ok(())
    }

    /// Marks a buffer as holding `key` from now on.
    fn hold(&mut self, place: usize, key: Key, block: usize, is_dirty: bool) {
        self.clock += 1;
        let buffer = &mut self.buffers[place];
        (buffer.key, buffer.block, buffer.is_dirty) = (Some(key), block, is_dirty);
        buffer.used = self.clock;
        self.buffered.insert(key, place);
    }

    /// The block for a segment at `offset` of `object`.
    fn allocate(&mut self, object: u64, offset: u64) -> io::Result<usize> {
        let tree = self.objects.entry(object).or_default();
        let before = tree.range(..offset).next_back();
        let wanted = before.and_then(|(at, stored)| {
            let blocks = (offset - at).div_ceil(BLOCK as u64);
            stored.block.checked_add(usize::try_from(blocks).ok()?)
        });
        self.free.take(wanted).ok_or_else(|| io::Error::new(ErrorKind::StorageFull, "no block"))
    }
}

impl Layout for Pcache {
    fn get(&mut self, segment: Segment, buf: &mut Vec<u8>) -> io::Result<Outcome> {
        let tree = self.objects.get(&segment.object);
        let Some(&stored) = tree.and_then(|tree| tree.get(&segment.offset)) else {
            return Ok(Outcome::MISS);
        };
        if stored.len < segment.len {
            return Ok(Outcome::MISS);
        }
        let key = segment.key();
        let place = match self.buffered.get(&key) {
            Some(&place) => place,
            None => {
                let place = self.buffer()?;
                let at = (stored.block * BLOCK) as u64;
                let whole = (stored.len as usize).next_multiple_of(ALIGN);
                self.blocks.read_exact_at(&mut self.buffers[place].bytes[..whole], at)?;
                self.io.read(Some(at), whole);
                self.hold(place, key, stored.block, false);
                place
            }
        };
        self.clock += 1;
        self.buffers[place].used = self.clock;
        buf.clear();
        buf.extend_from_slice(&self.buffers[place].bytes[..segment.len as usize]);
        Ok(Outcome::hit(buf.len()))
    }

    fn put(&mut self, segment: Segment, data: &Bytes) -> io::Result<()> {
        if data.len() > BLOCK {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a segment longer than a block"));
        }
        self.forget(segment)?;
        let place = self.buffer()?;
        let block = self.allocate(segment.object, segment.offset)?;
        self.buffers[place].bytes[..data.len()].copy_from_slice(data);
        self.hold(place, segment.key(), block, true);
        let stored = Stored { block, len: segment.len };
        self.objects.entry(segment.object).or_default().insert(segment.offset, stored);
        Ok(())
    }

    fn forget(&mut self, segment: Segment) -> io::Result<()> {
        let Some(tree) = self.objects.get_mut(&segment.object) else { return Ok(()) };
        if let Some(stored) = tree.remove(&segment.offset) {
            self.free.give(stored.block);
        }
        if tree.is_empty() {
            self.objects.remove(&segment.object);
        }
        if let Some(place) = self.buffered.remove(&segment.key()) {
            (self.buffers[place].key, self.buffers[place].is_dirty) = (None, false);
            self.buffers[place].used = 0;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.io.synced();
        self.blocks.sync_data()
    }

    fn counters(&self) -> &Counted {
        &self.io
    }
}

impl Buffer {
    fn empty() -> Self {
        let bytes = Aligned::zeros(BLOCK);
        Self { bytes, key: None, block: 0, is_dirty: false, used: 0 }
    }
}

/// Which blocks hold nothing.
#[derive(Debug)]
struct FreeBlocks {
    is_free: Vec<bool>,
    next: usize,
}

impl FreeBlocks {
    fn new(count: usize) -> Self {
        Self { is_free: vec![true; count], next: 0 }
    }

    /// Takes `wanted` if it is free, else the next free one after it or, with no
    /// wish, after the last one that was taken.
    fn take(&mut self, wanted: Option<usize>) -> Option<usize> {
        let count = self.is_free.len();
        let start = wanted.filter(|wanted| *wanted < count).unwrap_or(self.next);
        let block =
            (0..count).map(|step| (start + step) % count).find(|block| self.is_free[*block])?;
        self.is_free[block] = false;
        self.next = (block + 1) % count;
        Some(block)
    }

    fn give(&mut self, block: usize) {
        self.is_free[block] = true;
    }
}

/// Writes `slices` one after another; a call that writes less is gone on with.
fn write_all_at(mut file: &File, at: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    let mut written = file.write_vectored(slices)?;
    let mut next = at;
    for slice in slices {
        let done = written.min(slice.len());
        written -= done;
        file.write_all_at(&slice[done..], next + done as u64)?;
        next += slice.len() as u64;
    }
    Ok(())
}

const BLOCK: usize = SEGMENT_BYTES_MAX as usize;
const BUFFERS_MIN: usize = 4;
/// Blocks of one call, 8 MiB.
const RUN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content;

    #[test]
    fn a_block_lies_to_its_predecessors_as_their_offsets_do() {
        let dir = tempfile::tempdir().unwrap();
        let (capacity_bytes, memory_bytes) = (64 << 20, 8 << 20);
        let space = Space {
            dir: dir.path().into(),
            device: None,
            capacity_bytes,
            memory_bytes,
            is_decided: true,
        };
        let mut layout = Pcache::in_file(&space).unwrap();
        let at = |place: u64| place * BLOCK as u64;
        for place in [0, 3, 1, 2, 5] {
            let segment = Segment { object: 9, offset: at(place), len: SEGMENT_BYTES_MAX };
            layout.put(segment, &content::of(segment)).unwrap();
        }
        let block = |place| layout.objects[&9][&at(place)].block;
        assert_eq!([0, 1, 2, 3, 5].map(block), [0, 1, 2, 3, 5]);
        layout.sync().unwrap();
        let told = layout.counters().told();
        assert_eq!(told["writes"]["count"], 2, "neighbours go together: {told}");
    }

    #[test]
    fn blocks_run_out_and_come_back() {
        let mut free = FreeBlocks::new(3);
        assert_eq!(free.take(Some(2)), Some(2));
        assert_eq!([free.take(Some(2)), free.take(None)], [Some(0), Some(1)]);
        assert_eq!(free.take(None), None);
        free.give(1);
        assert_eq!(free.take(Some(7)), Some(1));
    }
}
