//! A disk for tests: six files in memory that forget, tear and reorder what was
//! not synced when the power goes, and fail calls when told to.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{LazyLock, Mutex, MutexGuard};

use bytes::Bytes;
use weir_ranges::ByteRange;
use weir_store::disk::{Disk, File};

/// A small generator (splitmix64), so that a seed replays a run.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The tests' content of `object`, for each version of it: one long run of noise,
/// from a place of its own.
pub(crate) fn content(object: u128, version: u64, range: ByteRange) -> Bytes {
    static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
        let mut random = Random(5);
        (0..NOISE_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect()
    });
    let from = (object as u64 * 31 + version) * 40_961 % (NOISE_BYTES / 2) + range.start();
    NOISE.slice(from as usize..(from + range.len()) as usize)
}

const NOISE_BYTES: u64 = 16 << 20;

/// Something done to a file that a crash may undo.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Debug, Default)]
struct State {
    /// What a reader sees.
    live: HashMap<File, Vec<u8>>,
    /// What a crash leaves for sure.
    durable: HashMap<File, Vec<u8>>,
    /// What came since, oldest first.
    pending: Vec<(File, Change)>,
    /// Calls that change or sync something.
    calls: u64,
    /// From this call on nothing works any more.
    cut_at: Option<u64>,
    /// Reads of the data file fail within these bytes.
    bad_reads: Option<(u64, u64)>,
    /// Writes of this file fail.
    bad_writes: Option<File>,
    /// Syncs of this file fail.
    bad_syncs: Option<File>,
    /// Largest data file that fits.
    space: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct FaultDisk(Mutex<State>);

impl FaultDisk {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A disk that dies at its `call`th change or sync.
    pub(crate) fn cut_at(self, call: u64) -> Self {
        self.state().cut_at = Some(call);
        self
    }

    pub(crate) fn is_cut(&self) -> bool {
        let state = self.state();
        state.cut_at.is_some_and(|at| state.calls >= at)
    }

    pub(crate) fn fail_reads(&self, from: u64, to: u64) {
        self.state().bad_reads = Some((from, to));
    }

    pub(crate) fn fail_writes(&self, file: Option<File>) {
        self.state().bad_writes = file;
    }

    pub(crate) fn fail_syncs(&self, file: Option<File>) {
        self.state().bad_syncs = file;
    }

    pub(crate) fn limit_space(&self, bytes: u64) {
        self.state().space = Some(bytes);
    }

    /// Changes bytes behind the store's back.
    pub(crate) fn edit(&self, file: File, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        edit(state.live.entry(file).or_default());
        let now = state.live[&file].clone();
        state.durable.insert(file, now);
    }

    pub(crate) fn contents(&self, file: File) -> Vec<u8> {
        self.state().live.get(&file).cloned().unwrap_or_default()
    }

    /// The disk after the power came back: all that was synced, and of the rest a
    /// choice made by `random`, in any order, whole or in part.
    pub(crate) fn crash(&self, random: &mut Random) -> Self {
        let state = self.state();
        let mut files = state.durable.clone();
        let mut pending = state.pending.clone();
        let style = random.below(4);
        for i in (1..pending.len()).rev() {
            if style != 0 {
                pending.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        for (file, change) in pending {
            let bytes = files.entry(file).or_default();
            match (random.below(if style == 1 { 2 } else { 4 }), change) {
                (0, _) => {}
                (1, Change::Write(at, data)) => tear(bytes, at, &data, random),
                (_, change) => apply(bytes, &change),
            }
        }
        Self(Mutex::new(State { live: files.clone(), durable: files, ..State::default() }))
    }

    /// The disk after an orderly stop.
    pub(crate) fn reopened(&self) -> Self {
        let live = self.state().live.clone();
        Self(Mutex::new(State { live: live.clone(), durable: live, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn change(&self, file: File, change: Change) -> io::Result<()> {
        let mut state = self.state();
        state.count()?;
        if state.bad_writes == Some(file) {
            return Err(ErrorKind::StorageFull.into());
        }
        apply(state.live.entry(file).or_default(), &change);
        state.pending.push((file, change));
        Ok(())
    }
}

impl State {
    fn count(&mut self) -> io::Result<()> {
        if self.cut_at.is_some_and(|at| self.calls >= at) {
            return Err(io::Error::other("the power is gone"));
        }
        self.calls += 1;
        Ok(())
    }
}

impl Disk for FaultDisk {
    fn len(&self, file: File) -> io::Result<u64> {
        Ok(self.state().live.get(&file).map_or(0, |bytes| bytes.len() as u64))
    }

    fn read_at(&self, file: File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let end = offset + buf.len() as u64;
        if file == File::Data && state.bad_reads.is_some_and(|(a, b)| offset < b && a < end) {
            return Err(io::Error::other("a bad sector"));
        }
        let bytes = state.live.get(&file).map_or(&[][..], Vec::as_slice);
        let found = bytes.get(offset as usize..end as usize);
        buf.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, file: File, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(file, Change::Write(offset, data.to_vec()))
    }

    fn set_len(&self, file: File, len: u64) -> io::Result<()> {
        self.change(file, Change::SetLen(len))
    }

    fn allocate(&self, file: File, len: u64) -> io::Result<()> {
        if self.state().space.is_some_and(|space| len > space) {
            return Err(ErrorKind::StorageFull.into());
        }
        self.change(file, Change::SetLen(len))
    }

    fn sync(&self, file: File) -> io::Result<()> {
        let mut state = self.state();
        state.count()?;
        if state.bad_syncs == Some(file) {
            return Err(io::Error::other("lost in the cache"));
        }
        let state = &mut *state;
        let durable = state.durable.entry(file).or_default();
        state.pending.retain(|(of, change)| {
            if *of == file {
                apply(durable, change);
            }
            *of != file
        });
        Ok(())
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => resize(bytes, *len as usize),
        Change::Write(at, data) => {
            let (at, end) = (*at as usize, *at as usize + data.len());
            resize(bytes, bytes.len().max(end));
            bytes[at..end].copy_from_slice(data);
        }
    }
}

/// `Vec::resize`, without its loop over bytes when nothing is optimised.
fn resize(bytes: &mut Vec<u8>, len: usize) {
    if len <= bytes.len() {
        bytes.truncate(len);
    } else {
        let mut grown = vec![0; len];
        grown[..bytes.len()].copy_from_slice(bytes);
        *bytes = grown;
    }
}

/// Writes some of the 512-byte sectors of `data`; the file grows all the same.
fn tear(bytes: &mut Vec<u8>, at: u64, data: &[u8], random: &mut Random) {
    let end = at as usize + data.len();
    resize(bytes, bytes.len().max(end));
    let mut from = at as usize;
    while from < end {
        let to = (from / 512 * 512 + 512).min(end);
        if random.below(2) == 0 {
            bytes[from..to].copy_from_slice(&data[from - at as usize..to - at as usize]);
        }
        from = to;
    }
}
