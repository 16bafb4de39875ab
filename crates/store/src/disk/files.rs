//! [`Disk`] on ordinary files in one directory, the data on a device if so wished.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc::O_DIRECT;
use nix::sys::statvfs::{Statvfs, statvfs};

use super::data::{Data, reserve};
use super::engine::Target;
use super::transfer::{Done, Engine, Transfer, Verb};
use super::{Disk, File, raw};
use crate::OpenError;
use crate::frame::{BLOCK_BYTES, FramePool};

/// How the data file is to be used. The other files are small, and always ordinary
/// ones that are used through the page cache.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// What carries transfers.
    pub engine: EngineChoice,
    /// Whether the page cache is passed by.
    pub direct: DirectChoice,
    /// A block device or a partition that holds the data instead of a file in the
    /// directory. All of it is the store's.
    pub device: Option<PathBuf>,
    /// Where the frames of transfers come from; others are taken too, and with
    /// io_uring are a little slower.
    pub pool: FramePool,
}

impl DiskOptions {
    /// The best that the host allows, on a file in the directory.
    pub const fn new(pool: FramePool) -> Self {
        Self { engine: EngineChoice::Auto, direct: DirectChoice::Auto, device: None, pool }
    }
}

/// What is to carry transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring, or `pread` where that is refused.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// `pread`.
    Pread,
}

/// Whether the data file is used past the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectChoice {
    /// Where the file system has it.
    #[default]
    Auto,
    /// Yes, or an error.
    On,
    /// No.
    Off,
}

/// The six files, open, and locked against a second process.
#[derive(Debug)]
pub struct Files {
    superblock: fs::File,
    checkpoints: [fs::File; 2],
    journal: fs::File,
    marks: fs::File,
    data: Data,
}

impl Files {
    /// Opens or makes the files of `dir`, and `dir` itself.
    ///
    /// The superblock carries the lock; it goes when the process does. A device is
    /// claimed from the kernel too.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when another has the store open; `NotWritable`,
    /// `DiskFull` or `Io` for what the host reports. A device that cannot be used,
    /// or is not this store's, is an `Io` whose source is a [`super::DeviceError`].
    pub fn open(dir: &Path, options: &DiskOptions) -> Result<Self, OpenError> {
        let fail = |source: io::Error| match source.kind() {
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                OpenError::NotWritable { dir: dir.into(), source }
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                OpenError::DiskFull { dir: dir.into(), needed_bytes: 0, free_bytes: free(dir) }
            }
            _ => OpenError::Io { dir: dir.into(), source },
        };
        fs::create_dir_all(dir).map_err(fail)?;
        let open = |file: File| open_file(&dir.join(file.name()), 0).map_err(fail);
        let superblock = open(File::Superblock)?;
        superblock.try_lock().map_err(|why| match why {
            fs::TryLockError::WouldBlock => OpenError::InUse { dir: dir.into() },
            fs::TryLockError::Error(source) => fail(source),
        })?;
        let checkpoints = [open(File::Checkpoint0)?, open(File::Checkpoint1)?];
        let journal = open(File::Journal)?;
        let marks = open(File::Marks)?;
        // The superblock is the last thing that is written when a store is made.
        let is_new = superblock.metadata().map_err(fail)?.len() == 0;
        let (target, reasons) = if let Some(device) = &options.device {
            (raw::open(dir, device, options.direct, is_new).map_err(fail)?, Vec::new())
        } else {
            raw::refuse_tied(dir, is_new).map_err(fail)?;
            open_data(&dir.join(File::Data.name()), options.direct).map_err(fail)?
        };
        let data = Data::start(target, options, reasons).map_err(fail)?;
        // New names are durable once their directory is.
        fs::File::open(dir).and_then(|d| d.sync_all()).map_err(fail)?;
        Ok(Self { superblock, checkpoints, journal, marks, data })
    }

    /// The file, or `None` for the data.
    const fn file(&self, file: File) -> Option<&fs::File> {
        let [checkpoint0, checkpoint1] = &self.checkpoints;
        match file {
            File::Superblock => Some(&self.superblock),
            File::Checkpoint0 => Some(checkpoint0),
            File::Checkpoint1 => Some(checkpoint1),
            File::Journal => Some(&self.journal),
            File::Marks => Some(&self.marks),
            File::Data => None,
        }
    }
}

impl Disk for Files {
    fn len(&self, file: File) -> io::Result<u64> {
        match self.file(file) {
            Some(file) => Ok(file.metadata()?.len()),
            None => self.data.len(),
        }
    }

    fn read_at(&self, file: File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.file(file) {
            Some(file) => file.read_exact_at(buf, offset),
            None => self.data.read_at(offset, buf),
        }
    }

    fn write_at(&self, file: File, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.file(file) {
            Some(file) => file.write_all_at(data, offset),
            None => self.data.write_at(offset, data),
        }
    }

    fn set_len(&self, file: File, len: u64) -> io::Result<()> {
        match self.file(file) {
            Some(file) => file.set_len(len),
            None => self.data.set_len(len),
        }
    }

    fn allocate(&self, file: File, len: u64) -> io::Result<()> {
        match self.file(file) {
            Some(file) => reserve(file, len),
            None => self.data.allocate(len),
        }
    }

    fn sync(&self, file: File) -> io::Result<()> {
        match self.file(file) {
            Some(file) => file.sync_data(),
            None => self.data.sync(),
        }
    }

    fn read_batch(&self, batch: Vec<Transfer>) -> Vec<Done> {
        self.data.run(Verb::Read, batch)
    }

    fn write_batch(&self, batch: Vec<Transfer>) -> Vec<Done> {
        self.data.run(Verb::Write, batch)
    }

    fn engine(&self) -> Engine {
        self.data.engine()
    }
}

/// Opens or makes the data file; says why it is not direct if that was tried.
fn open_data(path: &Path, direct: DirectChoice) -> io::Result<(Target, Vec<String>)> {
    let buffered = open_file(path, 0)?;
    if direct == DirectChoice::Off {
        return Ok((Target::on_file(buffered), Vec::new()));
    }
    match open_file(path, O_DIRECT).and_then(|file| probe(&file).map(|()| file)) {
        Ok(file) => {
            // Pages that an earlier run through the page cache left there are of no
            // more use. Those not yet written stay, and the kernel writes them before
            // anybody reads past them.
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).ok();
            Ok((Target { direct: true, ..Target::on_file(file) }, Vec::new()))
        }
        Err(why) if direct == DirectChoice::On => Err(why),
        Err(why) => Ok((Target::on_file(buffered), vec![format!("direct: {why}")])),
    }
}

fn open_file(path: &Path, flags: i32) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

/// Whether blocks can be transferred past the page cache: some file systems refuse
/// only when asked for one. Errors that mean something else are left to whoever
/// meets them next.
pub(super) fn probe(file: &fs::File) -> io::Result<()> {
    let mut frame = FramePool::heap(BLOCK_BYTES);
    let is_empty = file.metadata()?.len() == 0;
    let tried = if is_empty {
        let tried = file.write_at(&frame, 0);
        file.set_len(0)?;
        tried
    } else {
        file.read_at(&mut frame, 0)
    };
    match tried {
        Err(why) if matches!(why.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Err(why)
        }
        _ => Ok(()),
    }
}

/// Bytes that an ordinary user may still take of the file system of `dir`; 0 when
/// it does not say.
pub(crate) fn free(dir: &Path) -> u64 {
    statvfs(dir).map_or(0, room)
}

/// Bytes that an ordinary user may still take.
pub(super) fn room(file_system: Statvfs) -> u64 {
    file_system.blocks_available().saturating_mul(file_system.fragment_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Result<Files, OpenError> {
        Files::open(dir, &DiskOptions::new(FramePool::new(1 << 20)))
    }

    #[test]
    fn reads_back_and_refuses_a_read_past_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(&dir.path().join("deep/er")).unwrap();
        for file in [File::Journal, File::Data] {
            disk.write_at(file, 3, b"abc").unwrap();
            assert_eq!(disk.len(file).unwrap(), 6);
            let mut buf = [0; 4];
            disk.read_at(file, 2, &mut buf).unwrap();
            assert_eq!(&buf, b"\0abc");
            let past = disk.read_at(file, 3, &mut buf).unwrap_err();
            assert_eq!(past.kind(), ErrorKind::UnexpectedEof);
        }
        disk.allocate(File::Data, 8192).unwrap();
        assert_eq!(disk.len(File::Data).unwrap(), 8192);
        disk.allocate(File::Data, 1).unwrap();
        assert_eq!(disk.len(File::Data).unwrap(), 8192);
    }

    #[test]
    fn a_second_opener_is_told_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path()).unwrap();
        assert!(matches!(open(dir.path()), Err(OpenError::InUse { .. })));
        drop(first);
        open(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_that_takes_no_file_is_named() {
        let refused = open(Path::new("/sys/kernel")).unwrap_err();
        assert!(matches!(refused, OpenError::NotWritable { .. }), "{refused:?}");
        assert!(refused.to_string().contains("/sys/kernel"));
    }
}
