//! [`Disk`] on ordinary files in one directory, through the page cache.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::posix_fallocate;
use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};

use super::{Disk, File};
use crate::OpenError;

/// The five files, open, and locked against a second process.
#[derive(Debug)]
pub(crate) struct Files {
    files: [fs::File; File::ALL.len()],
}

impl Files {
    /// Opens or makes the files of `dir`, and `dir` itself.
    ///
    /// The superblock carries the lock; it goes when the process does.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
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
        let open = |file: File| {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(dir.join(file.name()))
        };
        let superblock = open(File::Superblock).map_err(fail)?;
        superblock.try_lock().map_err(|why| match why {
            fs::TryLockError::WouldBlock => OpenError::InUse { dir: dir.into() },
            fs::TryLockError::Error(source) => fail(source),
        })?;
        let files = [
            superblock,
            open(File::Checkpoint0).map_err(fail)?,
            open(File::Checkpoint1).map_err(fail)?,
            open(File::Journal).map_err(fail)?,
            open(File::Data).map_err(fail)?,
        ];
        // New names are durable once their directory is.
        fs::File::open(dir).and_then(|d| d.sync_all()).map_err(fail)?;
        Ok(Self { files })
    }

    const fn file(&self, file: File) -> &fs::File {
        let [superblock, checkpoint0, checkpoint1, journal, data] = &self.files;
        match file {
            File::Superblock => superblock,
            File::Checkpoint0 => checkpoint0,
            File::Checkpoint1 => checkpoint1,
            File::Journal => journal,
            File::Data => data,
        }
    }
}

impl Disk for Files {
    fn len(&self, file: File) -> io::Result<u64> {
        Ok(self.file(file).metadata()?.len())
    }

    fn read_at(&self, file: File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file(file).read_exact_at(buf, offset)
    }

    fn write_at(&self, file: File, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file(file).write_all_at(data, offset)
    }

    fn set_len(&self, file: File, len: u64) -> io::Result<()> {
        self.file(file).set_len(len)
    }

    fn allocate(&self, file: File, len: u64) -> io::Result<()> {
        let old = self.len(file)?;
        if len <= old {
            return Ok(());
        }
        let (Ok(from), Ok(by)) = (old.try_into(), (len - old).try_into()) else {
            return Err(ErrorKind::FileTooLarge.into());
        };
        // Asked first, for a reservation that fails late fills the disk meanwhile.
        let room = fstatvfs(self.file(file)).map(room)?;
        if len - old > room {
            return Err(ErrorKind::StorageFull.into());
        }
        posix_fallocate(self.file(file), from, by).map_err(|errno| {
            // A refused call may have reserved a part; the operator wants it back.
            let gave_back = self.set_len(file, old);
            gave_back.err().unwrap_or_else(|| io::Error::from(errno))
        })
    }

    fn sync(&self, file: File) -> io::Result<()> {
        self.file(file).sync_data()
    }
}

/// Bytes that an ordinary user may still take of the file system of `dir`; 0 when
/// it does not say.
pub(crate) fn free(dir: &Path) -> u64 {
    statvfs(dir).map_or(0, room)
}

fn room(file_system: Statvfs) -> u64 {
    file_system.blocks_available().saturating_mul(file_system.fragment_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_and_refuses_a_read_past_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Files::open(&dir.path().join("deep/er")).unwrap();
        disk.write_at(File::Journal, 3, b"abc").unwrap();
        let mut buf = [0; 4];
        disk.read_at(File::Journal, 2, &mut buf).unwrap();
        assert_eq!(&buf, b"\0abc");
        let past = disk.read_at(File::Journal, 3, &mut buf).unwrap_err();
        assert_eq!(past.kind(), ErrorKind::UnexpectedEof);
        disk.allocate(File::Data, 8192).unwrap();
        assert_eq!(disk.len(File::Data).unwrap(), 8192);
        disk.allocate(File::Data, 1).unwrap();
        assert_eq!(disk.len(File::Data).unwrap(), 8192);
    }

    #[test]
    fn a_second_opener_is_told_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = Files::open(dir.path()).unwrap();
        assert!(matches!(Files::open(dir.path()), Err(OpenError::InUse { .. })));
        drop(first);
        Files::open(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_that_takes_no_file_is_named() {
        let refused = Files::open(Path::new("/sys/kernel")).unwrap_err();
        assert!(matches!(refused, OpenError::NotWritable { .. }), "{refused:?}");
        assert!(refused.to_string().contains("/sys/kernel"));
    }
}
