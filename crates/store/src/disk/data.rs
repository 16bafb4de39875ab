//! The data file behind [`super::Files`]: an ordinary file or a device, through the
//! page cache or past it.
//!
//! Where it is direct, it is only ever used direct, so that there is no second copy
//! of a byte to be stale: [`Data::read_at`] and [`Data::write_at`], which take any
//! bytes at any offset, go through a frame of whole blocks. Who reads the file by
//! other means, through the page cache, gets what was written too, for the kernel
//! drops the cached pages of what is written past them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use nix::fcntl::posix_fallocate;
use nix::sys::statvfs::fstatvfs;

use super::engine::{Carrier, Target};
use super::files::{DiskOptions, room};
use super::transfer::{Done, Engine, Transfer, Verb};
use crate::frame::{BLOCK_BYTES, FRAME_BYTES, FramePool};

/// The data file and what carries its transfers.
#[derive(Debug)]
pub(super) struct Data {
    carrier: Carrier,
    target: Arc<Target>,
    pool: FramePool,
    /// Held while a block is read, changed in a part and written, so that two who
    /// write different bytes of one block keep each other's.
    in_part: Mutex<()>,
    device: bool,
    reasons: Vec<String>,
}

impl Data {
    /// `target` with the engine that `options` ask for; `reasons` say why it is not
    /// direct.
    ///
    /// # Errors
    /// What io_uring was refused with, when nothing else was to be taken.
    pub(super) fn start(
        target: Target,
        options: &DiskOptions,
        mut reasons: Vec<String>,
    ) -> io::Result<Self> {
        let target = Arc::new(target);
        let (carrier, why) = Carrier::start(options.engine, &target, &options.pool)?;
        reasons.extend(why);
        let (pool, device) = (options.pool.clone(), options.device.is_some());
        Ok(Self { carrier, target, pool, in_part: Mutex::default(), device, reasons })
    }

    pub(super) fn engine(&self) -> Engine {
        Engine {
            kind: self.carrier.kind(),
            direct: self.target.direct,
            registered: self.carrier.is_registered(),
            device: self.device,
            reasons: self.reasons.clone(),
        }
    }

    pub(super) fn run(&self, verb: Verb, batch: Vec<Transfer>) -> Vec<Done> {
        self.carrier.run(verb, batch)
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        match self.target.room {
            Some(room) => Ok(room),
            None => Ok(self.target.file.metadata()?.len()),
        }
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        match self.target.room {
            Some(room) if len > room => Err(ErrorKind::StorageFull.into()),
            Some(_) => Ok(()),
            None => self.target.file.set_len(len),
        }
    }

    pub(super) fn allocate(&self, len: u64) -> io::Result<()> {
        match self.target.room {
            Some(_) => self.set_len(len),
            None => reserve(&self.target.file, len),
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.target.file.sync_data()
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.target.check_room(Verb::Read, offset, buf.len() as u64)?;
        if !self.target.direct {
            return self.target.file.read_exact_at(buf, self.target.base + offset);
        }
        for window in windows(offset, buf.len()) {
            let mut frame = self.pool.get_or_heap(window.blocks_len);
            let got = self.read_blocks(window.from, &mut frame[..window.blocks_len])?;
            let part = frame[..got].get(window.in_blocks());
            let part = part.ok_or(ErrorKind::UnexpectedEof)?;
            buf[window.place..window.place + window.len].copy_from_slice(part);
        }
        Ok(())
    }

    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.target.check_room(Verb::Write, offset, data.len() as u64)?;
        if !self.target.direct {
            return self.target.file.write_all_at(data, self.target.base + offset);
        }
        let end = offset + data.len() as u64;
        let in_blocks = [offset, end].iter().all(|at| at.is_multiple_of(BLOCK));
        let one_at_a_time = if in_blocks {
            None
        } else {
            Some(self.in_part.lock().expect("nothing under this lock can panic"))
        };
        let len = self.len()?;
        for window in windows(offset, data.len()) {
            let mut frame = self.pool.get_or_heap(window.blocks_len);
            let blocks = &mut frame[..window.blocks_len];
            let part = window.in_blocks();
            let last = blocks.len() - BLOCK_BYTES;
            if part.start > 0 {
                self.fill_block(window.from, &mut blocks[..BLOCK_BYTES])?;
            }
            if part.end < blocks.len() && (last > 0 || part.start == 0) {
                self.fill_block(window.from + last as u64, &mut blocks[last..])?;
            }
            blocks[part].copy_from_slice(&data[window.place..window.place + window.len]);
            let mut transfer = Transfer::new(window.from, frame, window.blocks_len);
            self.target.run(Verb::Write, &mut transfer)?;
        }
        // Whole blocks were written; what they have beyond the end is cut off.
        let len = len.max(end);
        if self.target.room.is_none() && end.next_multiple_of(BLOCK) > len {
            self.target.file.set_len(len)?;
        }
        drop(one_at_a_time);
        Ok(())
    }

    /// One block as it is; zeros past the end.
    fn fill_block(&self, from: u64, block: &mut [u8]) -> io::Result<()> {
        let got = self.read_blocks(from, block)?;
        block[got..].fill(0);
        Ok(())
    }

    /// Reads blocks from `from` on until `blocks` is full or the file ends; says how
    /// many bytes there were.
    fn read_blocks(&self, from: u64, blocks: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < blocks.len() {
            let at = self.target.base + from + done as u64;
            match self.target.file.read_at(&mut blocks[done..], at) {
                Ok(bytes) => {
                    done += bytes;
                    if !bytes.is_multiple_of(BLOCK_BYTES) || bytes == 0 {
                        break;
                    }
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(done)
    }
}

/// Extends `file` to `len` bytes that are reserved, or leaves it as it is.
pub(super) fn reserve(file: &fs::File, len: u64) -> io::Result<()> {
    let old = file.metadata()?.len();
    if len <= old {
        return Ok(());
    }
    let (Ok(from), Ok(by)) = (old.try_into(), (len - old).try_into()) else {
        return Err(ErrorKind::FileTooLarge.into());
    };
    // Asked first, for a reservation that fails late fills the disk meanwhile.
    if len - old > fstatvfs(file).map(room)? {
        return Err(ErrorKind::StorageFull.into());
    }
    posix_fallocate(file, from, by).map_err(|errno| {
        // A refused call may have reserved a part; the operator wants it back.
        let gave_back = file.set_len(old);
        gave_back.err().unwrap_or_else(|| io::Error::from(errno))
    })
}

/// A part of a range of bytes, and the blocks that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Where the blocks begin.
    from: u64,
    /// Bytes of the blocks.
    blocks_len: usize,
    /// Bytes in front of the part in the first block.
    skip: usize,
    /// Bytes of the part.
    len: usize,
    /// Where the part begins in the range.
    place: usize,
}

impl Window {
    /// Where the part lies in the blocks.
    const fn in_blocks(&self) -> std::ops::Range<usize> {
        self.skip..self.skip + self.len
    }
}

/// `len` bytes at `offset`, in parts whose blocks fit the largest frame.
fn windows(offset: u64, len: usize) -> impl Iterator<Item = Window> {
    let mut place = 0;
    std::iter::from_fn(move || {
        let left = len.checked_sub(place).filter(|left| *left > 0)?;
        let at = offset + place as u64;
        let skip = usize::try_from(at % BLOCK).ok()?;
        let len = left.min(WINDOW_BYTES - skip);
        let blocks_len = (skip + len).next_multiple_of(BLOCK_BYTES);
        let window = Window { from: at - skip as u64, blocks_len, skip, len, place };
        place += len;
        Some(window)
    })
}

/// Bytes of blocks handled at once.
const WINDOW_BYTES: usize = FRAME_BYTES[FRAME_BYTES.len() - 1];

const BLOCK: u64 = BLOCK_BYTES as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_a_range_once_in_blocks_that_hold_it() {
        for (offset, len) in [
            (0, 0),
            (0, 1),
            (4095, 2),
            (4096, 4096),
            (1, WINDOW_BYTES),
            (4095, 3 * WINDOW_BYTES + 1),
            (8192, 2 * WINDOW_BYTES),
        ] {
            let mut at = 0;
            for window in windows(offset, len) {
                assert_eq!(window.place, at);
                assert_eq!(window.from + window.skip as u64, offset + at as u64);
                assert!(window.from.is_multiple_of(BLOCK) && window.len > 0);
                assert!(window.blocks_len.is_multiple_of(BLOCK_BYTES));
                assert!(window.blocks_len <= WINDOW_BYTES);
                let end = window.in_blocks().end;
                assert!(end <= window.blocks_len && window.blocks_len - end < BLOCK_BYTES);
                at += window.len;
            }
            assert_eq!(at, len);
        }
    }
}
