//! A directory an object, a file a segment: what is at hand without a store.
//!
//! A segment is one write and one read of its whole length. There is no index in
//! memory: the file is there or it is not. Nothing is ever synced.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::unistd::syncfs;

use crate::counted::Counted;
use crate::layout::{Layout, Outcome, Segment};

/// The directory of directories.
#[derive(Debug)]
pub(crate) struct Directories {
    root: PathBuf,
    /// Offsets of each object's files, to make its directory with the first and
    /// remove it with the last.
    files: HashMap<u64, HashSet<u64>>,
    io: Counted,
}

impl Directories {
    /// Nothing in `root` yet.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Ok(Self { root: root.to_path_buf(), files: HashMap::new(), io: Counted::default() })
    }

    fn dir(&self, object: u64) -> PathBuf {
        self.root.join(format!("{object:032x}"))
    }

    fn path(&self, segment: Segment) -> PathBuf {
        self.dir(segment.object).join(segment.offset.to_string())
    }
}

impl Layout for Directories {
    fn get(&mut self, segment: Segment, buf: &mut Vec<u8>) -> io::Result<Outcome> {
        let mut file = match File::open(self.path(segment)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Outcome::MISS),
            Err(error) => return Err(error),
        };
        self.io.opened();
        let len = segment.len as usize;
        buf.resize(len, 0);
        file.read_exact(buf)?;
        self.io.read(None, len);
        Ok(Outcome::hit(len))
    }

    fn put(&mut self, segment: Segment, data: &Bytes) -> io::Result<()> {
        if !self.files.contains_key(&segment.object) {
            fs::create_dir(self.dir(segment.object))?;
            self.io.made();
        }
        self.files.entry(segment.object).or_default().insert(segment.offset);
        fs::write(self.path(segment), data)?;
        self.io.made();
        self.io.wrote(None, data.len());
        Ok(())
    }

    fn forget(&mut self, segment: Segment) -> io::Result<()> {
        match fs::remove_file(self.path(segment)) {
            Ok(()) => self.io.removed(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        if let Some(files) = self.files.get_mut(&segment.object) {
            files.remove(&segment.offset);
            if files.is_empty() {
                self.files.remove(&segment.object);
                fs::remove_dir(self.dir(segment.object))?;
                self.io.removed();
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.io.synced();
        Ok(syncfs(File::open(&self.root)?)?)
    }

    fn counters(&self) -> &Counted {
        &self.io
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content;

    #[test]
    fn a_directory_goes_with_its_last_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut layout = Directories::open(dir.path()).unwrap();
        let first = Segment { object: 1, offset: 0, len: 10 };
        let second = Segment { offset: 10, ..first };
        for segment in [first, second, first] {
            layout.put(segment, &content::of(segment)).unwrap();
        }
        layout.forget(first).unwrap();
        layout.forget(first).unwrap();
        assert!(layout.dir(1).exists());
        layout.forget(second).unwrap();
        assert!(!layout.dir(1).exists());
    }
}
