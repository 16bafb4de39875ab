//! The data on a block device or a partition, without a file system.
//!
//! The first MiB of a device is its label (docs/formats/device.md): it names the
//! store that the device belongs to, and a copy of it in the store's directory,
//! `device`, names the device. A store is opened only when the two agree. What it
//! refuses: a device with anything on it that it did not write, for that may be
//! somebody's; a device that is mounted or otherwise in use.

use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{EBUSY, ENODEV, ENXIO, O_DIRECT, O_EXCL};
use thiserror::Error;

use super::DirectChoice;
use super::engine::Target;
use crate::clock;
use crate::frame::{BLOCK_BYTES, FramePool};

/// Why a device cannot hold a store's data. Every message ends in what an operator
/// can do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It is mounted, or another program has claimed it.
    #[error(
        "{} is in use: unmount it, or stop the program that has it open", device.display()
    )]
    Busy {
        /// The device.
        device: PathBuf,
    },
    /// Something is on it that is not of a store.
    #[error(
        "{0} has something on it that is not a cache: if its content may go, run `wipefs -a {0}` \
         and then `dd if=/dev/zero of={0} bs=1M count=1`, or give another device",
        device.display()
    )]
    Foreign {
        /// The device.
        device: PathBuf,
    },
    /// The directory's store has its data on a device, and none is given.
    #[error(
        "the cache in {} has its data on a device: give that device, or remove this directory to \
         start with an empty cache", dir.display()
    )]
    Missing {
        /// The store's directory.
        dir: PathBuf,
    },
    /// There is no such device, or it is gone.
    #[error(
        "{} is not there: attach the device, or correct its name", device.display()
    )]
    NotFound {
        /// The device.
        device: PathBuf,
    },
    /// It is no block device.
    #[error(
        "{} is not a block device: give a disk or a partition, or none to keep the data in a file",
        device.display()
    )]
    NotADevice {
        /// What was given.
        device: PathBuf,
    },
    /// It belongs to a store in another directory, or this directory to another
    /// device or to none.
    #[error(
        "{0} and the cache in {1} do not belong together: give the device and the directory that \
         do; to start with an empty cache, remove {1} and run `dd if=/dev/zero of={0} bs=1M \
         count=1`", device.display(), dir.display()
    )]
    OtherStore {
        /// The device.
        device: PathBuf,
        /// The store's directory.
        dir: PathBuf,
    },
    /// Its label is of another version of the format.
    #[error(
        "{0} has a label of version {found} and this program writes version {ours}: run the \
         version that made it; to start with an empty cache, run `dd if=/dev/zero of={0} bs=1M \
         count=1`", device.display()
    )]
    OtherVersion {
        /// The device.
        device: PathBuf,
        /// The version on the device.
        found: u32,
        /// The version of this program.
        ours: u32,
    },
    /// It has no room for anything but its label.
    #[error(
        "{} has {size_bytes} bytes, too few for a cache: give a larger one", device.display()
    )]
    TooSmall {
        /// The device.
        device: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
}

impl From<DeviceError> for io::Error {
    fn from(why: DeviceError) -> Self {
        Self::other(why)
    }
}

/// Opens `device` for the store in `dir`; labels it when the store `is_new` and the
/// device empty.
pub(super) fn open(
    dir: &Path,
    device: &Path,
    direct: DirectChoice,
    is_new: bool,
) -> io::Result<Target> {
    let not_found = || io::Error::from(DeviceError::NotFound { device: device.into() });
    let kind = match fs::metadata(device) {
        Ok(metadata) => metadata.file_type(),
        Err(why) if why.kind() == ErrorKind::NotFound => return Err(not_found()),
        Err(why) => return Err(why),
    };
    if !kind.is_block_device() {
        return Err(DeviceError::NotADevice { device: device.into() }.into());
    }
    let direct = direct != DirectChoice::Off;
    // On a device, this asks that nobody else has claimed it, a mount included.
    let flags = O_EXCL | if direct { O_DIRECT } else { 0 };
    let opened = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(device);
    let file = opened.map_err(|why| match why.raw_os_error() {
        Some(EBUSY) => DeviceError::Busy { device: device.into() }.into(),
        Some(ENXIO | ENODEV) => not_found(),
        _ => why,
    })?;
    tie(Place { dir, device }, file, direct, is_new)
}

/// Refuses to open a store without a device when it was made with one.
pub(super) fn refuse_tied(dir: &Path, is_new: bool) -> io::Result<()> {
    let path = dir.join(TIE_NAME);
    if !path.exists() {
        return Ok(());
    }
    if is_new {
        // From a start on a device that was not finished.
        return fs::remove_file(path);
    }
    Err(DeviceError::Missing { dir: dir.into() }.into())
}

/// Who belongs together.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    dir: &'a Path,
    device: &'a Path,
}

/// Checks that `file` is the device of the store, or makes it so.
fn tie(place: Place<'_>, mut file: fs::File, direct: bool, is_new: bool) -> io::Result<Target> {
    let device = || place.device.to_path_buf();
    // The size of a block device, which its metadata does not have.
    let size_bytes = file.seek(SeekFrom::End(0))?;
    let room = size_bytes.saturating_sub(LABEL_AREA_BYTES) / BLOCK_BYTES as u64;
    if room == 0 {
        return Err(DeviceError::TooSmall { device: device(), size_bytes }.into());
    }
    let mut area = FramePool::heap(AREA_LEN);
    file.read_exact_at(&mut area[..AREA_LEN], 0)?;
    let tied = read_tie(place.dir)?;
    match Label::decode(&area) {
        Found::Label(label) if tied == Some(label) => {}
        Found::Nothing if is_new => {
            // The directory first: a label that no directory knows is another's.
            let label = tied.unwrap_or_else(|| Label { id: clock::generation() });
            area[..BLOCK_BYTES].copy_from_slice(&label.encode());
            write_tie(place.dir, &area[..BLOCK_BYTES])?;
            file.write_all_at(&area[..BLOCK_BYTES], 0)?;
            file.sync_all()?;
        }
        Found::Label(_) | Found::Nothing => {
            let dir = place.dir.into();
            return Err(DeviceError::OtherStore { device: device(), dir }.into());
        }
        Found::OtherVersion(found) => {
            let ours = LABEL_VERSION;
            return Err(DeviceError::OtherVersion { device: device(), found, ours }.into());
        }
        Found::Foreign => return Err(DeviceError::Foreign { device: device() }.into()),
    }
    let room = Some(room * BLOCK_BYTES as u64);
    Ok(Target { file, base: LABEL_AREA_BYTES, room, direct })
}

/// The label that the directory knows; `None` when it knows none that is whole.
fn read_tie(dir: &Path) -> io::Result<Option<Label>> {
    let file = match fs::File::open(dir.join(TIE_NAME)) {
        Ok(file) => file,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(why),
    };
    let mut block = Vec::new();
    file.take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
    match Label::decode(&block) {
        Found::Label(label) => Ok(Some(label)),
        _ => Ok(None),
    }
}

fn write_tie(dir: &Path, block: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(dir.join(TIE_NAME))?;
    file.write_all(block)?;
    file.sync_all()?;
    fs::File::open(dir)?.sync_all()
}

/// What ties a device and a directory together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    /// Drawn when the device is labelled.
    id: u64,
}

/// What was found where a label may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Foreign,
    Label(Label),
    Nothing,
    OtherVersion(u32),
}

impl Label {
    /// A block of [`BLOCK_BYTES`].
    fn encode(self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        block.extend(MAGIC);
        block.extend(LABEL_VERSION.to_le_bytes());
        block.extend([0; 4]);
        block.extend(self.id.to_le_bytes());
        block.extend(LABEL_AREA_BYTES.to_le_bytes());
        block.resize(BLOCK_BYTES - 4, 0);
        block.extend(crc32c(&block).to_le_bytes());
        block
    }

    /// Reads a block, and the rest of the label's area where that is given.
    fn decode(area: &[u8]) -> Found {
        if area.iter().all(|byte| *byte == 0) {
            return Found::Nothing;
        }
        let Some((block, crc)) = area.get(..BLOCK_BYTES).and_then(<[u8]>::split_last_chunk) else {
            return Found::Foreign;
        };
        if block[..8] != MAGIC || crc32c(block) != u32::from_le_bytes(*crc) {
            return Found::Foreign;
        }
        let word =
            |at: usize| -> [u8; 4] { block[at..].first_chunk().copied().unwrap_or_default() };
        let long =
            |at: usize| -> [u8; 8] { block[at..].first_chunk().copied().unwrap_or_default() };
        let version = u32::from_le_bytes(word(8));
        // A label that puts the data elsewhere would be of another version.
        if version != LABEL_VERSION || u64::from_le_bytes(long(24)) != LABEL_AREA_BYTES {
            return Found::OtherVersion(version);
        }
        Found::Label(Self { id: u64::from_le_bytes(long(16)) })
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    crate::checksum::crc32c(bytes)
}

const MAGIC: [u8; 8] = *b"WEIRDEV\0";

const LABEL_VERSION: u32 = 1;

/// Bytes in front of the data. As long as a group, so that groups lie on multiples
/// of their size, and longer than where file systems, volume managers and partition
/// tables put what they are known by (btrfs: 64 KiB; ZFS: the first 512 KiB).
pub const LABEL_AREA_BYTES: u64 = 1 << 20;

const AREA_LEN: usize = 1 << 20;
const _: () = assert!(AREA_LEN as u64 == LABEL_AREA_BYTES);

/// The file in the store's directory that has a copy of the label.
const TIE_NAME: &str = "device";

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// An ordinary file stands in for the device.
    struct Bench {
        dir: tempfile::TempDir,
    }

    impl Bench {
        fn new(device_bytes: u64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("a")).unwrap();
            fs::create_dir(dir.path().join("b")).unwrap();
            fs::File::create(dir.path().join("sdx")).unwrap().set_len(device_bytes).unwrap();
            Self { dir }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn device(&self) -> fs::File {
            fs::File::options().read(true).write(true).open(self.path("sdx")).unwrap()
        }

        fn tie(&self, dir: &str, is_new: bool) -> Result<Target, DeviceError> {
            let (dir, device) = (self.path(dir), self.path("sdx"));
            let place = Place { dir: &dir, device: &device };
            tie(place, self.device(), false, is_new)
                .map_err(|why| *why.into_inner().unwrap().downcast::<DeviceError>().unwrap())
        }
    }

    #[test]
    fn an_empty_device_is_labelled_once_and_found_again() {
        let bench = Bench::new(3 * MIB + 5000);
        let target = bench.tie("a", true).unwrap();
        assert_eq!((target.base, target.room), (MIB, Some(2 * MIB + 4096)));
        let before = fs::read(bench.path("sdx")).unwrap();
        for is_new in [true, false] {
            bench.tie("a", is_new).unwrap();
        }
        assert_eq!(fs::read(bench.path("sdx")).unwrap(), before);
    }

    #[test]
    fn a_start_that_broke_off_before_the_label_goes_on() {
        let bench = Bench::new(2 * MIB);
        bench.tie("a", true).unwrap();
        let labelled = fs::read(bench.path("sdx")).unwrap();
        bench.device().write_all_at(&[0; BLOCK_BYTES], 0).unwrap();
        bench.tie("a", true).unwrap();
        assert_eq!(fs::read(bench.path("sdx")).unwrap(), labelled);
        // And one that broke off while the directory's copy was written.
        fs::write(bench.path("b/device"), &labelled[..100]).unwrap();
        bench.device().write_all_at(&[0; BLOCK_BYTES], 0).unwrap();
        bench.tie("b", true).unwrap();
        bench.tie("b", false).unwrap();
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let other = |found: Result<Target, DeviceError>| {
            let why = found.unwrap_err();
            assert!(matches!(why, DeviceError::OtherStore { .. }), "{why:?}");
            assert!(why.to_string().contains("dd if=/dev/zero"));
        };
        let bench = Bench::new(2 * MIB);
        // A store that was made without a device.
        other(bench.tie("a", false));
        bench.tie("a", true).unwrap();
        // Another store, new or not.
        other(bench.tie("b", true));
        other(bench.tie("b", false));
        // The device was wiped, or is another.
        bench.device().write_all_at(&[0; BLOCK_BYTES], 0).unwrap();
        other(bench.tie("a", false));
        // The directory lost its copy.
        bench.tie("a", true).unwrap();
        fs::remove_file(bench.path("a/device")).unwrap();
        other(bench.tie("a", false));
        other(bench.tie("a", true));
    }

    #[test]
    fn anything_in_the_labels_area_is_left_alone() {
        // A boot record, ext4, btrfs, the last byte of the area.
        for at in [510, 1080, 65_600, MIB - 1] {
            let bench = Bench::new(2 * MIB);
            bench.device().write_all_at(&[0x55], at).unwrap();
            for is_new in [true, false] {
                let why = bench.tie("a", is_new).unwrap_err();
                assert!(matches!(why, DeviceError::Foreign { .. }), "{at} {why:?}");
                assert!(why.to_string().contains("wipefs -a"));
            }
            assert!(!bench.path("a/device").exists());
        }
        let bench = Bench::new(2 * MIB);
        bench.device().write_all_at(&[0x55], MIB).unwrap();
        bench.tie("a", true).unwrap();
    }

    #[test]
    fn a_damaged_label_is_foreign_and_another_version_is_named() {
        let bench = Bench::new(2 * MIB);
        bench.tie("a", true).unwrap();
        let label = fs::read(bench.path("sdx")).unwrap()[..BLOCK_BYTES].to_vec();
        let mut damaged = label.clone();
        damaged[17] ^= 1;
        bench.device().write_all_at(&damaged, 0).unwrap();
        assert!(matches!(bench.tie("a", false), Err(DeviceError::Foreign { .. })));
        let mut newer = label[..BLOCK_BYTES - 4].to_vec();
        newer[8] = 2;
        newer.extend(crc32c(&newer).to_le_bytes());
        bench.device().write_all_at(&newer, 0).unwrap();
        let why = bench.tie("a", false).unwrap_err();
        assert!(matches!(why, DeviceError::OtherVersion { found: 2, ours: 1, .. }));
    }

    #[test]
    fn a_device_needs_room_for_a_block() {
        for (size, fits) in [(0, false), (MIB, false), (MIB + 4095, false), (MIB + 4096, true)] {
            let found = Bench::new(size).tie("a", true);
            match found {
                Ok(target) => assert!(fits && target.room == Some(4096)),
                Err(why) => assert!(!fits && matches!(why, DeviceError::TooSmall { .. })),
            }
        }
    }

    #[test]
    fn a_device_must_be_one_and_must_be_there() {
        let bench = Bench::new(2 * MIB);
        let open = |device: &Path| {
            let why = open(&bench.path("a"), device, DirectChoice::Auto, true).unwrap_err();
            *why.into_inner().unwrap().downcast::<DeviceError>().unwrap()
        };
        assert!(matches!(open(&bench.path("sdx")), DeviceError::NotADevice { .. }));
        assert!(matches!(open(&bench.path("gone")), DeviceError::NotFound { .. }));
        assert!(matches!(open(Path::new("/dev/null")), DeviceError::NotADevice { .. }));
    }

    #[test]
    fn a_store_made_on_a_device_is_not_opened_without_it() {
        let bench = Bench::new(2 * MIB);
        refuse_tied(&bench.path("a"), false).unwrap();
        bench.tie("a", true).unwrap();
        let why = refuse_tied(&bench.path("a"), false).unwrap_err();
        assert!(why.to_string().contains("give that device"), "{why}");
        refuse_tied(&bench.path("a"), true).unwrap();
        assert!(!bench.path("a/device").exists());
    }
}
