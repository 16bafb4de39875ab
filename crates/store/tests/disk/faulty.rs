//! A disk for tests: five files in memory that do what disks do on a bad day.
//!
//! **Between barriers.** What was not synced when the power goes is, at the choice
//! of a seed, dropped, torn at sectors of 512 bytes, reordered, written twice (the
//! second time after later writes) or damaged: [`FaultyDisk::crash`], by [`Faults`].
//!
//! **While it runs.** Reads of a range fail; writes or syncs of a file fail; the
//! disk is full from some size on; calls wait until the test lets them go on
//! (no time passes); from some call on nothing works.
//!
//! **Behind everybody's back**, and not undone by a sync: [`FaultyDisk::lie`] has
//! the disk lose, misplace or damage the next write of the data file and say that
//! all is well; [`FaultyDisk::edit`] changes bytes at rest.
//!
//! The transfers go by the trait's own methods, so that each counts as one read or
//! write. Other test targets use this file by `#[path]`; it needs `random.rs` beside
//! it as `crate::random`.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use weir_store::disk::{Disk, File};

use crate::random::Random;

/// How a crash treats each change that was not synced: chances of a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// It never happened.
    pub(crate) drop: u8,
    /// Some of its sectors were written.
    pub(crate) tear: u8,
    /// It was written again after some that came later.
    pub(crate) duplicate: u8,
    /// One of its sectors holds something else.
    pub(crate) corrupt: u8,
    /// All changes of one file since its last sync happened in any order.
    pub(crate) reorder: u8,
}

impl Faults {
    /// A mixture of everything but corruption, which no power cut does to a disk
    /// that is otherwise sound: a different one for each seed.
    pub(crate) fn of_a_power_cut(random: &mut Random) -> Self {
        let mut some = || if random.chance(30) { 0 } else { random.below(60) as u8 };
        Self { drop: some(), tear: some(), duplicate: some(), corrupt: 0, reorder: some() }
    }
}

/// What the disk does with one write of the data file and does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It is not written.
    Lose,
    /// It is written so many bytes further on; what was there is gone.
    Misplace(u64),
    /// The byte at this place in it is another.
    Damage(usize),
}

/// The disk. See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct FaultyDisk {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What a reader sees.
    live: HashMap<File, Image>,
    /// What a crash leaves for sure.
    durable: HashMap<File, Image>,
    /// What came since, oldest first.
    pending: Vec<(File, Change)>,
    /// Calls that change or sync something.
    calls: u64,
    /// From this call on nothing works any more.
    cut_at: Option<u64>,
    bad_reads: Vec<(File, Range<u64>)>,
    bad_writes: Option<File>,
    bad_syncs: Option<File>,
    /// Largest data file that fits.
    space: Option<u64>,
    lies: Vec<Lie>,
    stalled: bool,
    /// Calls that wait for the end of the stall.
    waiting: usize,
}

/// Something done to a file that a crash may undo.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Arc<[u8]>),
    SetLen(u64),
}

impl FaultyDisk {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A disk that dies at its `call`th change or sync.
    pub(crate) fn cut_at(self, call: u64) -> Self {
        self.state().cut_at = Some(call);
        self
    }

    /// Changes and syncs so far.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Reads that touch `range` of `file` fail.
    pub(crate) fn fail_reads(&self, file: File, range: Range<u64>) {
        self.state().bad_reads.push((file, range));
    }

    pub(crate) fn fail_writes(&self, file: Option<File>) {
        self.state().bad_writes = file;
    }

    pub(crate) fn fail_syncs(&self, file: Option<File>) {
        self.state().bad_syncs = file;
    }

    /// The data file cannot be longer than this.
    pub(crate) fn limit_space(&self, bytes: u64) {
        self.state().space = Some(bytes);
    }

    /// Does `lie` with the next write of the data file that no other lie is for.
    pub(crate) fn lie(&self, lie: Lie) {
        self.state().lies.push(lie);
    }

    /// Every call waits from now on.
    pub(crate) fn stall(&self) {
        self.state().stalled = true;
    }

    /// How many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Lets all that wait go on.
    pub(crate) fn release(&self) {
        self.state().stalled = false;
        self.released.notify_all();
    }

    /// Changes bytes at rest, durably and behind everybody's back.
    pub(crate) fn edit(&self, file: File, offset: u64, edit: impl FnOnce(&mut u8)) {
        let mut state = self.state();
        let mut byte = [0];
        state.live.entry(file).or_default().read(offset, &mut byte);
        edit(&mut byte[0]);
        state.live.entry(file).or_default().write(offset, &byte);
        state.durable.entry(file).or_default().write(offset, &byte);
    }

    /// What a reader sees of `file`.
    pub(crate) fn contents(&self, file: File) -> Vec<u8> {
        self.state().live.get(&file).map_or_else(Vec::new, Image::bytes)
    }

    /// The disk after the power came back: all that was synced, and of the rest
    /// what `faults` and `random` leave.
    pub(crate) fn crash(&self, random: &mut Random, faults: Faults) -> Self {
        let state = self.state();
        let mut files = state.durable.clone();
        for file in File::ALL {
            let of_file = state.pending.iter().filter(|(of, _)| *of == file);
            let mut changes: Vec<Change> = of_file.map(|(_, change)| change.clone()).collect();
            if random.chance(faults.reorder) {
                for i in (1..changes.len()).rev() {
                    changes.swap(i, random.below(i as u64 + 1) as usize);
                }
            }
            for i in (0..changes.len()).rev() {
                if random.chance(faults.duplicate) {
                    let later = random.within(i as u64 + 1..changes.len() as u64 + 1);
                    changes.insert(later as usize, changes[i].clone());
                }
            }
            let image = files.entry(file).or_default();
            for change in changes {
                if random.chance(faults.drop) {
                    continue;
                }
                match change {
                    Change::Write(at, data) if random.chance(faults.tear) => {
                        image.tear(at, &data, random);
                    }
                    Change::Write(at, data) if random.chance(faults.corrupt) => {
                        let mut data = data.to_vec();
                        if !data.is_empty() {
                            let place = random.below(data.len() as u64) as usize;
                            data[place] ^= 1 << random.below(8);
                        }
                        image.write(at, &data);
                    }
                    change => image.apply(&change),
                }
            }
        }
        Self::with(files)
    }

    /// The disk after an orderly stop.
    pub(crate) fn reopened(&self) -> Self {
        Self::with(self.state().live.clone())
    }

    fn with(files: HashMap<File, Image>) -> Self {
        let state = State { live: files.clone(), durable: files, ..State::default() };
        Self { state: Mutex::new(state), released: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits out a stall.
    fn enter(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.waiting += 1;
        let mut state = self.released.wait_while(state, |state| state.stalled).unwrap();
        state.waiting -= 1;
        state
    }

    fn change(&self, file: File, change: Change) -> io::Result<()> {
        let mut state = self.enter();
        state.count()?;
        if state.bad_writes == Some(file) {
            return Err(io::Error::other("a write that fails"));
        }
        let end = match &change {
            Change::Write(at, data) => at + data.len() as u64,
            Change::SetLen(len) => *len,
        };
        if file == File::Data && state.space.is_some_and(|space| end > space) {
            return Err(ErrorKind::StorageFull.into());
        }
        let mut change = change;
        if let (File::Data, Change::Write(at, data)) = (file, &mut change)
            && !state.lies.is_empty()
        {
            match state.lies.remove(0) {
                Lie::Lose => return Ok(()),
                Lie::Misplace(by) => *at += by,
                Lie::Damage(place) => {
                    let mut damaged = data.to_vec();
                    damaged[place] ^= 0x10;
                    *data = damaged.into();
                }
            }
        }
        state.live.entry(file).or_default().apply(&change);
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

impl Disk for FaultyDisk {
    fn len(&self, file: File) -> io::Result<u64> {
        Ok(self.enter().live.get(&file).map_or(0, |image| image.len))
    }

    fn read_at(&self, file: File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = self.enter();
        let end = offset + buf.len() as u64;
        let bad =
            |(of, bad): &(File, Range<u64>)| *of == file && offset < bad.end && bad.start < end;
        if state.bad_reads.iter().any(bad) {
            return Err(io::Error::other("a bad sector"));
        }
        match state.live.get(&file) {
            Some(image) if end <= image.len => {
                image.read(offset, buf);
                Ok(())
            }
            _ if buf.is_empty() => Ok(()),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, file: File, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(file, Change::Write(offset, data.into()))
    }

    fn set_len(&self, file: File, len: u64) -> io::Result<()> {
        self.change(file, Change::SetLen(len))
    }

    fn allocate(&self, file: File, len: u64) -> io::Result<()> {
        if Disk::len(self, file)? >= len {
            return Ok(());
        }
        self.change(file, Change::SetLen(len))
    }

    fn sync(&self, file: File) -> io::Result<()> {
        let mut state = self.enter();
        state.count()?;
        if state.bad_syncs == Some(file) {
            return Err(io::Error::other("lost in the cache"));
        }
        let state = &mut *state;
        let durable = state.durable.entry(file).or_default();
        state.pending.retain(|(of, change)| {
            if *of == file {
                durable.apply(change);
            }
            *of != file
        });
        Ok(())
    }
}

/// A file's bytes, in pages that copies share.
#[derive(Clone, Debug, Default)]
struct Image {
    len: u64,
    /// Pages that were written; others are zeros. Beyond `len` all is zero.
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

impl Image {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write(at, data) => self.write(*at, data),
            Change::SetLen(len) => self.set_len(*len),
        }
    }

    /// Fills `buf`; beyond the end with zeros.
    fn read(&self, offset: u64, buf: &mut [u8]) {
        for (page, within, place) in pages(offset, buf.len()) {
            match self.pages.get(&page) {
                Some(bytes) => buf[place].copy_from_slice(&bytes[within]),
                None => buf[place].fill(0),
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, within, place) in pages(offset, data.len()) {
            let bytes = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(bytes)[within].copy_from_slice(&data[place]);
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE as u64));
            let rest = (len % PAGE as u64) as usize;
            if let Some(last) = self.pages.get_mut(&(len / PAGE as u64)) {
                Arc::make_mut(last)[rest..].fill(0);
            }
        }
        self.len = len;
    }

    /// Writes some of the sectors of `data`; the file grows all the same.
    fn tear(&mut self, offset: u64, data: &[u8], random: &mut Random) {
        let end = offset + data.len() as u64;
        let mut from = offset;
        while from < end {
            let to = ((from / SECTOR + 1) * SECTOR).min(end);
            if random.chance(50) {
                self.write(from, &data[(from - offset) as usize..(to - offset) as usize]);
            }
            from = to;
        }
        self.len = self.len.max(end);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }
}

/// `len` bytes at `offset`, page by page: its number, where in it, where in all.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut place = 0;
    std::iter::from_fn(move || {
        let at = offset + place as u64;
        let within = (at % PAGE as u64) as usize;
        let here = (len - place).min(PAGE - within);
        let part = (at / PAGE as u64, within..within + here, place..place + here);
        place += here;
        (here > 0).then_some(part)
    })
}

const PAGE: usize = 4096;

const SECTOR: u64 = 512;
