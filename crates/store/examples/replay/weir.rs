//! The store of this crate, behind the same trait.
//!
//! Only what the gateway uses is used here: open, wanted, read, write, forget, sync.
//! The store drops whole objects, not segments, so a segment that the front gives up
//! is left to the store's own replacement, and an object is forgotten with its last
//! segment. Under a front that replacement is LRU, which lets everything in; on its
//! own it is the store's default.

use std::collections::{HashMap, HashSet};
use std::io;

use bytes::Bytes;
use weir_ranges::{ByteRange, ObjectId};
use weir_store::{Options, Policy, Store};

use crate::counted::Counted;
use crate::layout::{Layout, Outcome, Segment, Space};

/// A store and what it was asked to do.
#[derive(Debug)]
pub(crate) struct Weir {
    store: Store,
    /// Offsets of each object that the caller counts on.
    segments: HashMap<u64, HashSet<u64>>,
    io: Counted,
}

impl Weir {
    /// A store in the directory of `space`.
    pub(crate) fn in_dir(space: &Space) -> io::Result<Self> {
        Self::open(&Self::options(space))
    }

    /// A store whose data lies on the device of `space`, without a file system; what
    /// describes the data is in its directory.
    pub(crate) fn on_device(space: &Space) -> io::Result<Self> {
        Self::open(&Options { device: Some(space.device()?.clone()), ..Self::options(space) })
    }

    fn options(space: &Space) -> Options {
        let defaults = Options::new(&space.dir, space.capacity_bytes);
        Options {
            memory_bytes: usize::try_from(space.memory_bytes).unwrap_or(usize::MAX),
            // Whoever decides in front of the store is not to be decided against.
            policy: if space.is_decided { Policy::Lru } else { defaults.policy },
            ..defaults
        }
    }

    fn open(options: &Options) -> io::Result<Self> {
        let (store, _) = Store::open(options).map_err(io::Error::other)?;
        Ok(Self { store, segments: HashMap::new(), io: Counted::default() })
    }
}

impl Layout for Weir {
    fn get(&mut self, segment: Segment, buf: &mut Vec<u8>) -> io::Result<Outcome> {
        let read =
            self.store.read(id(segment.object), range(segment)?).map_err(io::Error::other)?;
        let Some(bytes) = read.whole() else { return Ok(Outcome::MISS) };
        self.io.read(None, bytes.len());
        *buf = Vec::from(bytes);
        Ok(Outcome::hit(buf.len()))
    }

    fn put(&mut self, segment: Segment, data: &Bytes) -> io::Result<()> {
        range(segment)?;
        let data = std::slice::from_ref(data);
        let written = self.store.write(id(segment.object), segment.offset, data);
        written.map_err(io::Error::other)?;
        self.io.wrote(None, segment.len as usize);
        self.segments.entry(segment.object).or_default().insert(segment.offset);
        Ok(())
    }

    fn forget(&mut self, segment: Segment) -> io::Result<()> {
        if let Some(segments) = self.segments.get_mut(&segment.object) {
            segments.remove(&segment.offset);
            if segments.is_empty() {
                self.segments.remove(&segment.object);
                self.store.forget(id(segment.object));
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.io.synced();
        self.store.sync().map_err(io::Error::other)
    }

    fn wanted(&mut self, object: u64) {
        self.store.wanted(id(object));
    }

    fn counters(&self) -> &Counted {
        &self.io
    }

    fn replaces(&self) -> bool {
        true
    }
}

/// Ids as far apart as hashes are.
fn id(object: u64) -> ObjectId {
    let id = u128::from(object) + 1;
    ObjectId::from(id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn range(segment: Segment) -> io::Result<ByteRange> {
    ByteRange::at(segment.offset, u64::from(segment.len))
        .ok_or_else(|| io::Error::other("a segment past the end of all numbers"))
}
