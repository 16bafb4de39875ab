//! Disks that keep no data, so that only the store is measured.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use weir_store::disk::{Disk, Done, File, Transfer};

/// Takes everything and has nothing.
#[derive(Debug)]
pub(crate) struct Nowhere;

impl Disk for Nowhere {
    fn len(&self, _: File) -> io::Result<u64> {
        Ok(0)
    }
    fn read_at(&self, _: File, _: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }
    fn write_at(&self, _: File, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn set_len(&self, _: File, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn allocate(&self, _: File, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self, _: File) -> io::Result<()> {
        Ok(())
    }
}

/// Real files, but for the data, which goes nowhere.
#[derive(Debug)]
pub(crate) struct InDir(Vec<fs::File>);

impl InDir {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let open = |file: &File| {
            let mut options = fs::File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(dir.join(file.name()))
        };
        File::ALL.iter().map(open).collect::<io::Result<_>>().map(Self)
    }

    fn file(&self, file: File) -> &fs::File {
        &self.0[file as usize]
    }
}

impl Disk for InDir {
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
        self.file(file).set_len(len)
    }
    fn sync(&self, file: File) -> io::Result<()> {
        if file == File::Data { Ok(()) } else { self.file(file).sync_data() }
    }
    fn write_batch(&self, batch: Vec<Transfer>) -> Vec<Done> {
        batch.into_iter().map(|transfer| (transfer, Ok(()))).collect()
    }
}
