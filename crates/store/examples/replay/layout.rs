//! What a layout on disk must do, and which ones there are.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use clap::ValueEnum;

use crate::counted::Counted;
use crate::{coss, directories, pcache, squid, weir};

/// A range of an object, asked for, put and dropped as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The object's number in the trace.
    pub(crate) object: u64,
    /// Where in the object it begins.
    pub(crate) offset: u64,
    /// Its bytes, at most [`SEGMENT_BYTES_MAX`].
    pub(crate) len: u32,
}

/// Object and offset.
pub(crate) type Key = (u64, u64);

impl Segment {
    /// What it is found by.
    pub(crate) const fn key(self) -> Key {
        (self.object, self.offset)
    }
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Bytes from the segment's beginning on that are now in the caller's buffer.
    pub(crate) hit_bytes: usize,
}

impl Outcome {
    /// Nothing is there.
    pub(crate) const MISS: Self = Self { hit_bytes: 0 };

    /// The whole segment is in the buffer.
    pub(crate) const fn hit(bytes: usize) -> Self {
        Self { hit_bytes: bytes }
    }
}

/// A way to lay segments out on a disk. Every call may block.
pub(crate) trait Layout: Debug {
    /// Looks for `segment` and leaves its bytes in `buf`, whose length afterwards is
    /// that of the segment after a hit and anything after a miss.
    ///
    /// # Errors
    /// When the host fails, or what is on disk is not what the index says.
    fn get(&mut self, segment: Segment, buf: &mut Vec<u8>) -> io::Result<Outcome>;

    /// Keeps `data` as `segment`, in place of what it held before.
    ///
    /// # Errors
    /// When the host fails.
    fn put(&mut self, segment: Segment, data: &Bytes) -> io::Result<()>;

    /// Drops `segment`; a layout with a replacement of its own may keep it.
    ///
    /// # Errors
    /// When the host fails.
    fn forget(&mut self, segment: Segment) -> io::Result<()>;

    /// Makes everything put so far durable.
    ///
    /// # Errors
    /// When the host fails.
    fn sync(&mut self) -> io::Result<()>;

    /// Ends what goes on beside the caller and makes everything durable.
    ///
    /// # Errors
    /// When the host fails.
    fn finish(&mut self) -> io::Result<()> {
        self.sync()
    }

    /// A download of `object` begins.
    fn wanted(&mut self, object: u64) {
        let _ = object;
    }

    /// The I/O made so far, as this program asked for it.
    fn counters(&self) -> &Counted;

    /// Whether it makes room by itself; otherwise somebody must tell it to.
    fn replaces(&self) -> bool {
        false
    }
}

/// Where a layout is and how large it may be.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// For files.
    pub(crate) dir: PathBuf,
    /// For the raw layouts.
    pub(crate) device: Option<PathBuf>,
    /// Bytes of content.
    pub(crate) capacity_bytes: u64,
    /// Bytes of buffers.
    pub(crate) memory_bytes: u64,
    /// A front decides what is held.
    pub(crate) is_decided: bool,
}

impl Space {
    /// The device.
    ///
    /// # Errors
    /// `InvalidInput` when none was given.
    pub(crate) fn device(&self) -> io::Result<&PathBuf> {
        let why = "this layout needs --device";
        self.device.as_ref().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

/// The layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Squid's ufs.
    Squid,
    /// A directory an object.
    Directories,
    /// Squid's cyclic object storage system.
    Coss,
    /// pCache in one file.
    PcacheFile,
    /// pCache on a device.
    PcacheRaw,
    /// This crate's store in a directory.
    WeirFile,
    /// This crate's store on a device.
    WeirRaw,
}

impl Kind {
    /// As on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Squid => "squid",
            Self::Directories => "directories",
            Self::Coss => "coss",
            Self::PcacheFile => "pcache-file",
            Self::PcacheRaw => "pcache-raw",
            Self::WeirFile => "weir-file",
            Self::WeirRaw => "weir-raw",
        }
    }

    /// An empty one in `space`.
    ///
    /// # Errors
    /// When the host refuses.
    pub(crate) fn open(self, space: &Space) -> io::Result<Box<dyn Layout>> {
        Ok(match self {
            Self::Squid => Box::new(squid::Squid::open(&space.dir)?),
            Self::Directories => Box::new(directories::Directories::open(&space.dir)?),
            Self::Coss => Box::new(coss::Coss::open(&space.dir, space.capacity_bytes)?),
            Self::PcacheFile => Box::new(pcache::Pcache::in_file(space)?),
            Self::PcacheRaw => Box::new(pcache::Pcache::on_device(space)?),
            Self::WeirFile => Box::new(weir::Weir::in_dir(space)?),
            Self::WeirRaw => Box::new(weir::Weir::on_device(space)?),
        })
    }
}

/// The longest segment: pCache's 0.5 MiB.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 512 << 10;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::content;
    use crate::front::Front;

    /// Numbers that look random; the same ones every time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % bound
        }
    }

    /// One of 180, so that they meet; of some the length fills no page.
    fn segment(numbers: &mut Numbers, len: u32) -> Segment {
        let (object, place) = (numbers.below(6), numbers.below(30));
        let short = if place == 29 { 12_345 } else { 0 };
        Segment { object, offset: place * u64::from(len), len: len - short }
    }

    /// What was put is got, or missing where the layout replaces on its own, and
    /// never wrong; what was dropped is missing, likewise.
    fn behaves(kind: Kind, seed: u64) {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("device");
        std::fs::File::create(&device).unwrap().set_len(512 << 20).unwrap();
        // Half of the segments fit. pCache has a block for each, however short.
        let pcache = matches!(kind, Kind::PcacheFile | Kind::PcacheRaw);
        let len = if pcache { SEGMENT_BYTES_MAX } else { SEGMENT_BYTES_MAX / 4 };
        let space = Space {
            dir: dir.path().join("files"),
            device: Some(device),
            capacity_bytes: 90 * u64::from(len),
            memory_bytes: 4 << 20,
            is_decided: true,
        };
        std::fs::create_dir(&space.dir).unwrap();
        let mut layout = kind.open(&space).unwrap();
        let exact = !layout.replaces();
        let mut front = Front::new(space.capacity_bytes);
        let mut model: HashMap<Key, u32> = HashMap::new();
        let (mut numbers, mut buf, mut hits) = (Numbers(seed), Vec::new(), 0);
        for step in 0..400 {
            let segment = segment(&mut numbers, len);
            match numbers.below(8) {
                0 => {
                    layout.forget(segment).unwrap();
                    front.remove(segment.key());
                    model.remove(&segment.key());
                }
                1..=4 => {
                    layout.put(segment, &content::of(segment)).unwrap();
                    model.insert(segment.key(), segment.len);
                    for gone in front.insert(segment) {
                        layout.forget(gone).unwrap();
                        model.remove(&gone.key());
                    }
                }
                _ => {
                    let found = layout.get(segment, &mut buf).unwrap();
                    if found.hit_bytes > 0 {
                        assert_eq!(found.hit_bytes, segment.len as usize, "step {step}");
                        assert_eq!(buf, content::of(segment), "{kind:?} step {step} of {seed}");
                        hits += 1;
                    }
                    if exact {
                        let held = model.contains_key(&segment.key());
                        assert_eq!(found.hit_bytes > 0, held, "{kind:?} step {step} of {seed}");
                    }
                }
            }
            if step % 200 == 150 {
                layout.sync().unwrap();
            }
        }
        layout.finish().unwrap();
        assert!(hits > 5, "{kind:?} hit {hits} times");
        assert!(layout.counters().writes() > 0);
    }

    #[test]
    fn squid_gives_back_what_it_was_given() {
        (1..3).for_each(|seed| behaves(Kind::Squid, seed));
    }

    #[test]
    fn directories_give_back_what_they_were_given() {
        (1..3).for_each(|seed| behaves(Kind::Directories, seed));
    }

    #[test]
    fn coss_gives_back_what_it_was_given_or_nothing() {
        (1..3).for_each(|seed| behaves(Kind::Coss, seed));
    }

    #[test]
    fn pcache_gives_back_what_it_was_given() {
        (1..3).for_each(|seed| behaves(Kind::PcacheFile, seed));
        (1..3).for_each(|seed| behaves(Kind::PcacheRaw, seed));
    }

    #[test]
    fn the_store_gives_back_what_it_was_given_or_nothing() {
        (1..3).for_each(|seed| behaves(Kind::WeirFile, seed));
    }
}
