//! COSS of Squid 2.7, re-implemented: one file written as a cyclic log.
//!
//! The file is stripes of 1 MiB. An object goes into the stripe in memory; a full
//! stripe is written with one call, and the next one in the file is taken, whose
//! objects are gone. That is the replacement. A hit on an object that lies more than
//! half of the disk behind (`overwrite-percent=50`, the default) is copied into the
//! stripe in memory, one nearer is only read; so it is between FIFO and LRU. An
//! object is read with one call. The file is reserved beforehand, as COSS asks for.
//! Nothing is ever synced.
//!
//! Deviates, in its favour: no swap header before an object. With one, two segments
//! of 0.5 MiB do not fit a stripe and half of the disk would be empty.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;
use nix::fcntl::posix_fallocate;

use crate::counted::Counted;
use crate::layout::{Key, Layout, Outcome, Segment};

/// The log and its index.
#[derive(Debug)]
pub(crate) struct Coss {
    file: File,
    index: HashMap<Key, Place>,
    /// What was put into each stripe; some of it may have moved on since.
    stripes: Vec<Vec<Key>>,
    /// The stripe in memory.
    buffer: Vec<u8>,
    current: usize,
    io: Counted,
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    stripe: usize,
    at: usize,
    len: u32,
}

impl Coss {
    /// Reserves the file in `dir`.
    pub(crate) fn open(dir: &Path, capacity_bytes: u64) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(dir.join("stripe"))?;
        let stripes = usize::try_from(capacity_bytes).map_err(io::Error::other)? / STRIPE;
        let bytes = i64::try_from(stripes * STRIPE).map_err(io::Error::other)?;
        posix_fallocate(&file, 0, bytes)?;
        Ok(Self {
            file,
            index: HashMap::new(),
            stripes: vec![Vec::new(); stripes],
            buffer: Vec::with_capacity(STRIPE),
            current: 0,
            io: Counted::default(),
        })
    }

    /// Copies `data` into the stripe in memory; a full one is written before.
    fn append(&mut self, key: Key, data: &[u8]) -> io::Result<()> {
        if self.buffer.len() + data.len() > STRIPE {
            self.write_stripe()?;
            self.buffer.clear();
            self.current = (self.current + 1) % self.stripes.len();
            for gone in std::mem::take(&mut self.stripes[self.current]) {
                if self.index.get(&gone).is_some_and(|place| place.stripe == self.current) {
                    self.index.remove(&gone);
                }
            }
        }
        let len = u32::try_from(data.len()).map_err(io::Error::other)?;
        let place = Place { stripe: self.current, at: self.buffer.len(), len };
        self.buffer.extend_from_slice(data);
        self.stripes[self.current].push(key);
        self.index.insert(key, place);
        Ok(())
    }

    fn write_stripe(&mut self) -> io::Result<()> {
        let at = (self.current * STRIPE) as u64;
        self.file.write_all_at(&self.buffer, at)?;
        self.io.wrote(Some(at), self.buffer.len());
        Ok(())
    }

    /// Stripes written since `stripe` was (`storeCossRelocateRequired`).
    const fn behind(&self, stripe: usize) -> usize {
        if self.current > stripe {
            self.current - stripe
        } else {
            self.stripes.len() + self.current - stripe
        }
    }
}

impl Layout for Coss {
    fn get(&mut self, segment: Segment, buf: &mut Vec<u8>) -> io::Result<Outcome> {
        let Some(&place) = self.index.get(&segment.key()) else { return Ok(Outcome::MISS) };
        if place.len < segment.len {
            return Ok(Outcome::MISS);
        }
        buf.resize(place.len as usize, 0);
        if place.stripe == self.current {
            buf.copy_from_slice(&self.buffer[place.at..place.at + place.len as usize]);
        } else {
            let at = (place.stripe * STRIPE + place.at) as u64;
            self.file.read_exact_at(buf, at)?;
            self.io.read(Some(at), buf.len());
            if self.behind(place.stripe) > self.stripes.len() * OVERWRITE_PERCENT / 100 {
                self.index.remove(&segment.key());
                self.append(segment.key(), buf)?;
            }
        }
        buf.truncate(segment.len as usize);
        Ok(Outcome::hit(buf.len()))
    }

    fn put(&mut self, segment: Segment, data: &Bytes) -> io::Result<()> {
        self.append(segment.key(), data)
    }

    /// Out of the index; its space comes back when the log comes round.
    fn forget(&mut self, segment: Segment) -> io::Result<()> {
        self.index.remove(&segment.key());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.write_stripe()?;
        self.io.synced();
        self.file.sync_data()
    }

    fn counters(&self) -> &Counted {
        &self.io
    }

    fn replaces(&self) -> bool {
        true
    }
}

/// `COSS_MEMBUF_SZ`.
const STRIPE: usize = 1 << 20;
const OVERWRITE_PERCENT: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content;

    fn of(object: u64) -> Segment {
        Segment { object, offset: 0, len: 512 << 10 }
    }

    fn filled(objects: u64) -> (tempfile::TempDir, Coss) {
        let dir = tempfile::tempdir().unwrap();
        let mut coss = Coss::open(dir.path(), 10 << 20).unwrap();
        for object in 0..objects {
            coss.put(of(object), &content::of(of(object))).unwrap();
        }
        (dir, coss)
    }

    #[test]
    fn the_log_comes_round_over_the_oldest() {
        let (_dir, mut coss) = filled(22);
        let mut buf = Vec::new();
        assert_eq!(coss.get(of(0), &mut buf).unwrap(), Outcome::MISS);
        assert_eq!(coss.get(of(1), &mut buf).unwrap(), Outcome::MISS);
        assert_eq!(coss.get(of(2), &mut buf).unwrap(), Outcome::hit(512 << 10));
    }

    #[test]
    fn a_hit_far_behind_moves_on_and_a_near_one_does_not() {
        let (_dir, mut coss) = filled(20);
        let (near, far) = (coss.index[&(14, 0)], coss.index[&(2, 0)]);
        let mut buf = Vec::new();
        for object in [14, 2] {
            coss.get(of(object), &mut buf).unwrap();
            assert!(content::is_of(of(object), &buf));
        }
        assert_eq!(coss.index[&(14, 0)], near);
        assert_ne!(coss.index[&(2, 0)], far);
        assert_eq!(coss.get(of(1), &mut buf).unwrap(), Outcome::MISS, "it made room for 2");
    }
}
