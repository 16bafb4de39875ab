//! Where transfers go: the open data file, or the part of a device behind its label.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use super::progress::Progress;
use crate::disk::transfer::{Transfer, Verb};

/// The data file, open.
#[derive(Debug)]
pub(in crate::disk) struct Target {
    /// Open for reading and writing; with `O_DIRECT` when `direct`.
    pub(in crate::disk) file: fs::File,
    /// Where the data file's first byte is in `file`.
    pub(in crate::disk) base: u64,
    /// Bytes that there can be at most; `None` when `file` grows.
    pub(in crate::disk) room: Option<u64>,
    /// Whether `file` takes whole blocks only.
    pub(in crate::disk) direct: bool,
}

impl Target {
    /// All of an ordinary file, through the page cache.
    pub(in crate::disk) const fn on_file(file: fs::File) -> Self {
        Self { file, base: 0, room: None, direct: false }
    }

    /// Whether `transfer` can be asked of this file.
    pub(super) fn check(&self, verb: Verb, transfer: &Transfer) -> io::Result<()> {
        transfer.check()?;
        let len = u64::try_from(transfer.len()).map_err(io::Error::other)?;
        self.check_room(verb, transfer.offset, len)
    }

    /// Whether `len` bytes at `offset` are within the room.
    pub(in crate::disk) fn check_room(&self, verb: Verb, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).ok_or(ErrorKind::InvalidInput)?;
        match (self.room, verb) {
            (Some(room), Verb::Read) if end > room => Err(ErrorKind::UnexpectedEof.into()),
            (Some(room), Verb::Write) if end > room => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// Does `transfer` in the calling thread.
    pub(in crate::disk) fn run(&self, verb: Verb, transfer: &mut Transfer) -> io::Result<()> {
        self.check(verb, transfer)?;
        let offset = self.base + transfer.offset;
        let len = transfer.len();
        let mut progress = Progress::default();
        loop {
            let done = progress.done();
            let at = offset + done as u64;
            let answer = match verb {
                Verb::Read => self.file.read_at(&mut transfer.bytes_mut()[done..], at),
                Verb::Write => self.file.write_at(&transfer.bytes()[done..], at),
            };
            if let Some(over) = progress.take(verb, len, answer) {
                return over;
            }
        }
    }
}
