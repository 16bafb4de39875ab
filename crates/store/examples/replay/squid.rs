//! Squid's ufs, re-implemented: 16 x 256 directories, a file a segment.
//!
//! What is done as Squid does it (`ufs` of 2.7 and 3.x, its default layout): a file
//! number is the first free bit of a map from where the last search ended; the path
//! is `L1/L2/NUMBER` with L1 = number / 256 / 256 mod 16 and L2 = number / 256 mod
//! 256; a file begins with the swap meta header; bytes move in pages of 4 KiB, a
//! system call each; an unlink is handed to a helper (`unlinkd`) over a queue of 20;
//! each addition and removal appends a record of 72 bytes to `swap.state`. Nothing
//! is ever synced.
//!
//! What is left out: Squid's memory cache (the page cache stands for it), and its
//! event loop. Both favour the baseline.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use nix::unistd::syncfs;

use crate::counted::Counted;
use crate::layout::{Key, Layout, Outcome, Segment};

/// The directory, its index and the helper.
#[derive(Debug)]
pub(crate) struct Squid {
    root: PathBuf,
    index: HashMap<Key, Stored>,
    numbers: FileMap,
    swap_log: File,
    unlinkd: Option<Unlinkd>,
    page: Vec<u8>,
    io: Counted,
}

/// What Squid keeps of an entry in memory, as far as we need it.
#[derive(Clone, Copy, Debug)]
struct Stored {
    number: u32,
    len: u32,
}

impl Squid {
    /// Makes the directories (`squid -z`) and an empty index.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        for first in 0..L1 {
            for second in 0..L2 {
                fs::create_dir_all(root.join(format!("{first:02X}/{second:02X}")))?;
            }
        }
        let swap_log = File::options().append(true).create(true).open(root.join("swap.state"))?;
        Ok(Self {
            root: root.to_path_buf(),
            index: HashMap::new(),
            numbers: FileMap::default(),
            swap_log,
            unlinkd: Some(Unlinkd::start()?),
            page: vec![0; PAGE],
            io: Counted::default(),
        })
    }

    fn path(&self, number: u32) -> PathBuf {
        let (first, second) = (number / L2 / L2 % L1, number / L2 % L2);
        self.root.join(format!("{first:02X}/{second:02X}/{number:08X}"))
    }

    fn log(&mut self, what: u8, segment: Segment, number: u32) -> io::Result<()> {
        let mut record = [0; SWAP_LOG_RECORD];
        record[0] = what;
        record[4..8].copy_from_slice(&number.to_le_bytes());
        record[8..].copy_from_slice(&header(segment)[..SWAP_LOG_RECORD - 8]);
        self.io.wrote(None, record.len());
        self.swap_log.write_all(&record)
    }
}

impl Layout for Squid {
    fn get(&mut self, segment: Segment, buf: &mut Vec<u8>) -> io::Result<Outcome> {
        let Some(&stored) = self.index.get(&segment.key()) else { return Ok(Outcome::MISS) };
        let len = segment.len as usize;
        if stored.len < segment.len {
            return Ok(Outcome::MISS);
        }
        let mut file = File::open(self.path(stored.number))?;
        self.io.opened();
        buf.resize(len, 0);
        let (first, rest) = buf.split_at_mut(len.min(PAGE - HEADER));
        let page = &mut self.page[..HEADER + first.len()];
        file.read_exact(page)?;
        self.io.read(None, page.len());
        if page[..24] != header(segment)[..24] {
            return Err(io::Error::new(ErrorKind::InvalidData, "another entry's swap meta header"));
        }
        first.copy_from_slice(&page[HEADER..]);
        for part in rest.chunks_mut(PAGE) {
            file.read_exact(part)?;
            self.io.read(None, part.len());
        }
        Ok(Outcome::hit(len))
    }

    fn put(&mut self, segment: Segment, data: &Bytes) -> io::Result<()> {
        self.forget(segment)?;
        let number = self.numbers.allocate();
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).open(self.path(number))?;
        self.io.made();
        let (first, rest) = data.split_at(data.len().min(PAGE - HEADER));
        let page = &mut self.page[..HEADER + first.len()];
        page[..HEADER].copy_from_slice(&header(segment));
        page[HEADER..].copy_from_slice(first);
        file.write_all(page)?;
        self.io.wrote(None, page.len());
        for part in rest.chunks(PAGE) {
            file.write_all(part)?;
            self.io.wrote(None, part.len());
        }
        drop(file);
        self.index.insert(segment.key(), Stored { number, len: segment.len });
        self.log(SWAP_LOG_ADD, segment, number)
    }

    fn forget(&mut self, segment: Segment) -> io::Result<()> {
        let Some(stored) = self.index.remove(&segment.key()) else { return Ok(()) };
        self.log(SWAP_LOG_DEL, segment, stored.number)?;
        self.numbers.free(stored.number);
        self.io.removed();
        match &self.unlinkd {
            Some(unlinkd) => unlinkd.unlink(self.path(stored.number)),
            None => fs::remove_file(self.path(stored.number)),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.io.synced();
        Ok(syncfs(&self.swap_log)?)
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(unlinkd) = self.unlinkd.take() {
            unlinkd.finish()?;
        }
        self.sync()
    }

    fn counters(&self) -> &Counted {
        &self.io
    }
}

/// Squid's `file_map`: which file numbers are in use.
#[derive(Debug)]
struct FileMap {
    words: Vec<u64>,
    suggest: u32,
}

impl Default for FileMap {
    /// As many numbers as Squid begins with.
    fn default() -> Self {
        Self { words: vec![0; FILE_NUMBERS / 64], suggest: 0 }
    }
}

impl FileMap {
    /// The first free number from where the last search ended, round the map; when
    /// none is, the map doubles.
    fn allocate(&mut self) -> u32 {
        let words = self.words.len();
        let start = self.suggest as usize / 64 % words;
        // The word of the start comes once more at the end, for what lies before it.
        let free = (0..=words).find_map(|step| {
            let at = (start + step) % words;
            let passed = if step == 0 { (1_u64 << (self.suggest % 64)) - 1 } else { 0 };
            let bit = (self.words[at] | passed).trailing_ones() as usize;
            (bit < 64).then_some(at * 64 + bit)
        });
        let number = free.unwrap_or_else(|| {
            self.words.resize(2 * words, 0);
            words * 64
        });
        self.words[number / 64] |= 1 << (number % 64);
        let number = u32::try_from(number).expect("Squid has at most 2^24 files");
        self.suggest = number + 1;
        number
    }

    fn free(&mut self, number: u32) {
        self.words[number as usize / 64] &= !(1 << (number % 64));
    }
}

/// The helper that unlinks while the main loop goes on.
#[derive(Debug)]
struct Unlinkd {
    queue: SyncSender<PathBuf>,
    thread: JoinHandle<io::Result<()>>,
}

impl Unlinkd {
    fn start() -> io::Result<Self> {
        let (queue, paths) = sync_channel::<PathBuf>(UNLINKD_QUEUE_LIMIT);
        let work = move || paths.into_iter().try_for_each(fs::remove_file);
        let thread = thread::Builder::new().name("unlinkd".to_owned()).spawn(work)?;
        Ok(Self { queue, thread })
    }

    fn unlink(&self, path: PathBuf) -> io::Result<()> {
        self.queue.send(path).map_err(|_| io::Error::other("unlinkd ended early"))
    }

    fn finish(self) -> io::Result<()> {
        drop(self.queue);
        self.thread.join().map_err(|_| io::Error::other("unlinkd panicked"))?
    }
}

/// The swap meta header: key, sizes and URL of the entry, about 128 bytes.
fn header(segment: Segment) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&segment.object.to_le_bytes());
    header[8..16].copy_from_slice(&segment.offset.to_le_bytes());
    header[16..20].copy_from_slice(&segment.len.to_le_bytes());
    header[20..24].copy_from_slice(b"meta");
    header
}

const L1: u32 = 16;
const L2: u32 = 256;
/// `DISK_PAGE_SIZE`.
const PAGE: usize = 4096;
const HEADER: usize = 128;
/// `StoreSwapLogData` on a machine of 64 bits.
const SWAP_LOG_RECORD: usize = 72;
const SWAP_LOG_ADD: u8 = 1;
const SWAP_LOG_DEL: u8 = 2;
/// `UNLINKD_QUEUE_LIMIT`.
const UNLINKD_QUEUE_LIMIT: usize = 20;
/// Where `file_map_create` begins.
const FILE_NUMBERS: usize = 2 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_number_is_used_again_only_after_a_round() {
        let mut map = FileMap::default();
        assert_eq!([map.allocate(), map.allocate(), map.allocate()], [0, 1, 2]);
        map.free(1);
        assert_eq!(map.allocate(), 3);
        for number in 4..32_768 {
            assert_eq!(map.allocate(), number);
        }
        assert_eq!(map.allocate(), 1, "the round is over");
        assert_eq!(map.allocate(), 32_768, "the map has doubled");
    }

    #[test]
    fn paths_are_those_of_squid() {
        let dir = tempfile::tempdir().unwrap();
        let squid = Squid::open(dir.path()).unwrap();
        assert!(squid.path(0x0001_0203).ends_with("01/02/00010203"));
        assert!(dir.path().join("0F/FF").is_dir());
    }
}
