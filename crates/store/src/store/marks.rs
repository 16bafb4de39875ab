//! The table of marks: for each slot of the data file, what the checksum of its
//! segment must say.
//!
//! On disk it is a flat file, 4 bytes a slot. In memory is what was used last, in
//! pages of 1024 marks, bounded. A page is never let go while it is dirty; dirty
//! pages are written before the journal names their slots ([`Marks::write_back`]).
//! A mark that was lost in a crash makes a miss, never a wrong byte.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};

use hashbrown::HashMap;

use crate::disk::{Disk, File};

/// The marks of one store. Shared between threads.
#[derive(Debug)]
pub(super) struct Marks {
    /// By page number, so that two threads seldom wait for each other.
    parts: [Mutex<Part>; PARTS],
    /// Pages that each part keeps.
    pages_max: usize,
}

#[derive(Debug, Default)]
struct Part {
    pages: HashMap<u32, Page>,
    /// In the order in which they were loaded; a used one gets a second chance.
    queue: VecDeque<u32>,
}

#[derive(Debug)]
struct Page {
    marks: Box<[u32; PAGE_MARKS]>,
    dirty: bool,
    used: bool,
}

impl Marks {
    /// Keeps about `memory_bytes` of marks in memory.
    pub(super) fn new(memory_bytes: usize) -> Self {
        let pages_max = (memory_bytes / PAGE_BYTES / PARTS).max(1);
        Self { parts: std::array::from_fn(|_| Mutex::default()), pages_max }
    }

    /// The mark of a slot.
    pub(super) fn get(&self, disk: &dyn Disk, slot: u32) -> io::Result<u32> {
        let (number, at) = place(slot);
        let mut part = self.part(number);
        Ok(part.page(disk, number, self.pages_max)?.marks[at])
    }

    /// Notes the mark of a slot. A page that cannot be read begins anew: the others'
    /// marks in it are lost, and their segments will be misses.
    pub(super) fn set(&self, disk: &dyn Disk, slot: u32, mark: u32) {
        let (number, at) = place(slot);
        let mut part = self.part(number);
        if part.page(disk, number, self.pages_max).is_err() {
            part.add(number, Box::new([0; PAGE_MARKS]), self.pages_max);
        }
        let page = part.pages.get_mut(&number).expect("loaded or begun anew");
        if page.marks[at] != mark {
            page.marks[at] = mark;
            page.dirty = true;
        }
    }

    /// Writes what is dirty; it is durable after the next sync of the file.
    pub(super) fn write_back(&self, disk: &dyn Disk) -> io::Result<()> {
        for part in &self.parts {
            let mut part = lock(part);
            for (&number, page) in part.pages.iter_mut().filter(|(_, page)| page.dirty) {
                let bytes: Vec<u8> =
                    page.marks.iter().flat_map(|mark| mark.to_le_bytes()).collect();
                disk.write_at(File::Marks, u64::from(number) * PAGE_BYTES as u64, &bytes)?;
                page.dirty = false;
            }
        }
        Ok(())
    }

    fn part(&self, number: u32) -> MutexGuard<'_, Part> {
        let at = usize::try_from(number).unwrap_or_default() % PARTS;
        lock(&self.parts[at])
    }
}

impl Part {
    /// A page, loaded when it is not there. The part stays locked meanwhile: nobody
    /// may change on disk what is being read.
    fn page(&mut self, disk: &dyn Disk, number: u32, pages_max: usize) -> io::Result<&mut Page> {
        if !self.pages.contains_key(&number) {
            self.add(number, load(disk, number)?, pages_max);
        }
        let page = self.pages.get_mut(&number).expect("just made sure");
        page.used = true;
        Ok(page)
    }

    fn add(&mut self, number: u32, marks: Box<[u32; PAGE_MARKS]>, pages_max: usize) {
        self.make_room(pages_max);
        self.queue.push_back(number);
        self.pages.insert(number, Page { marks, dirty: false, used: false });
    }

    fn make_room(&mut self, pages_max: usize) {
        // Twice around: the first pass may only take chances away.
        for _ in 0..self.queue.len() * 2 {
            if self.pages.len() < pages_max {
                return;
            }
            let Some(number) = self.queue.pop_front() else { return };
            match self.pages.get_mut(&number) {
                Some(page) if page.dirty || page.used => {
                    page.used = false;
                    self.queue.push_back(number);
                }
                _ => drop(self.pages.remove(&number)),
            }
        }
    }
}

/// Past the end of the file marks are 0.
fn load(disk: &dyn Disk, number: u32) -> io::Result<Box<[u32; PAGE_MARKS]>> {
    let offset = u64::from(number) * PAGE_BYTES as u64;
    let there = disk.len(File::Marks)?.saturating_sub(offset).min(PAGE_BYTES as u64);
    let mut bytes = [0; PAGE_BYTES];
    let there = usize::try_from(there).expect("at most a page");
    disk.read_at(File::Marks, offset, &mut bytes[..there])?;
    let mut marks = Box::new([0; PAGE_MARKS]);
    for (mark, bytes) in marks.iter_mut().zip(bytes.as_chunks().0) {
        *mark = u32::from_le_bytes(*bytes);
    }
    Ok(marks)
}

fn place(slot: u32) -> (u32, usize) {
    let slot = usize::try_from(slot).expect("a slot is an address on every host we build for");
    let number = u32::try_from(slot / PAGE_MARKS).expect("a page has a slot");
    (number, slot % PAGE_MARKS)
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().expect("a panic in the store ends the process")
}

const PAGE_MARKS: usize = 1024;
const PAGE_BYTES: usize = PAGE_MARKS * 4;
const PARTS: usize = 16;
