//! A store's data on a real block device: loop devices on files. Needs root and the
//! kernel's loop driver; where either is missing, it says so and proves nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_store::disk::{DeviceError, Disk, DiskOptions, File, Files, Transfer};
use weir_store::frame::FramePool;

const MIB: u64 = 1 << 20;

/// A loop device, detached when dropped.
struct Loop {
    device: PathBuf,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// One test at a time: a program that another test starts has every descriptor of
/// this process until it is executed, and a device that is open so is busy.
static ALONE: Mutex<()> = Mutex::new(());

impl Loop {
    /// A device of `bytes` zeros; `None` where there can be none.
    fn new(bytes: u64) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let out = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        match out {
            Ok(out) if out.status.success() => {
                let device = String::from_utf8(out.stdout).unwrap();
                Some(Self { device: device.trim().into(), dir, _alone: alone })
            }
            why => {
                println!("no loop device, not tested: {why:?}");
                None
            }
        }
    }

    fn open(&self, dir: &str) -> Result<Files, DeviceError> {
        let options = DiskOptions {
            device: Some(self.device.clone()),
            ..DiskOptions::new(FramePool::new(MIB as usize))
        };
        Files::open(&self.dir.path().join(dir), &options).map_err(|why| device_error(&why))
    }

    fn run(&self, command: &str, args: &[&str]) {
        let out = Command::new(command).args(args).arg(&self.device).output().unwrap();
        assert!(out.status.success(), "{command}: {out:?}");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.run("losetup", &["--detach"]);
    }
}

fn device_error(why: &weir_store::OpenError) -> DeviceError {
    let source = std::error::Error::source(why).unwrap();
    let source = source.downcast_ref::<io::Error>().unwrap();
    source.get_ref().unwrap().downcast_ref::<DeviceError>().unwrap().clone()
}

fn at(block: u64, byte: u8) -> Transfer {
    let mut frame = FramePool::heap(1);
    frame.fill(byte);
    Transfer::new(block * 4096, frame, 4096)
}

#[test]
fn a_device_holds_the_data_and_nothing_past_its_end() {
    let Some(device) = Loop::new(4 * MIB) else { return };
    let disk = device.open("a").unwrap();
    let engine = disk.engine();
    assert!(engine.device && engine.direct, "{engine}");
    assert_eq!(disk.len(File::Data).unwrap(), 3 * MIB);
    disk.allocate(File::Data, 3 * MIB).unwrap();
    let full = disk.allocate(File::Data, 3 * MIB + 1).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    let last = 3 * 256 - 1;
    let done = disk.write_batch(vec![at(0, 1), at(last, 2), at(last + 1, 3)]);
    let kinds: Vec<_> = done.iter().map(|(_, r)| r.as_ref().err().map(io::Error::kind)).collect();
    assert_eq!(kinds, [None, None, Some(io::ErrorKind::StorageFull)]);
    disk.write_at(File::Data, 5000, b"any bytes").unwrap();
    disk.sync(File::Data).unwrap();
    drop(disk);

    let disk = device.open("a").unwrap();
    let done = disk.read_batch(vec![at(0, 0), at(last, 0), at(last + 1, 0)]);
    assert!(done[0].0.bytes().iter().all(|byte| *byte == 1));
    assert!(done[1].0.bytes().iter().all(|byte| *byte == 2));
    assert_eq!(done[2].1.as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    let mut buf = [0; 9];
    disk.read_at(File::Data, 5000, &mut buf).unwrap();
    assert_eq!(&buf, b"any bytes");
    assert!(!device.dir.path().join("a/data").exists());
    drop(disk);
    let bytes = fs::read(device.dir.path().join("image")).unwrap();
    assert!(bytes.starts_with(b"WEIRDEV\0") && bytes[MIB as usize] == 1);
}

#[test]
fn a_device_in_use_is_not_opened() {
    let Some(device) = Loop::new(16 * MIB) else { return };
    let disk = device.open("a").unwrap();
    assert!(matches!(device.open("b"), Err(DeviceError::Busy { .. })));
    drop(disk);
    assert!(matches!(device.open("b"), Err(DeviceError::OtherStore { .. })));
}

/// What the message advises is what helps.
#[test]
fn a_file_system_is_refused_until_it_is_wiped_as_advised() {
    let Some(device) = Loop::new(16 * MIB) else { return };
    device.run("mkfs.ext4", &["-q"]);
    let advice = device.open("a").unwrap_err().to_string();
    assert!(advice.contains("something on it"), "{advice}");
    let mount = device.dir.path().join("mount");
    fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount").arg(&device.device).arg(&mount).status().unwrap();
    assert!(mounted.success());
    assert!(matches!(device.open("a"), Err(DeviceError::Busy { .. })));
    assert!(Command::new("umount").arg(&mount).status().unwrap().success());
    let mut commands = advice.split('`').skip(1).step_by(2);
    for command in [commands.next().unwrap(), commands.next().unwrap()] {
        assert!(device.open("a").is_err());
        let words: Vec<_> = command.split(' ').collect();
        let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
    }
    drop(device.open("a").unwrap());
}

#[test]
fn a_device_that_was_detached_is_missed() {
    let Some(device) = Loop::new(4 * MIB) else { return };
    drop(device.open("a").unwrap());
    let options = DiskOptions {
        device: Some(Path::new("/dev/weir-no-such-device").into()),
        ..DiskOptions::new(FramePool::new(0))
    };
    let dir = device.dir.path().join("a");
    let why = device_error(&Files::open(&dir, &options).unwrap_err());
    assert!(why.to_string().contains("attach the device"), "{why}");
    fs::write(dir.join("superblock"), "made").unwrap();
    let without = Files::open(&dir, &DiskOptions::new(FramePool::new(0))).unwrap_err();
    assert!(matches!(device_error(&without), DeviceError::Missing { .. }));
    // The device is whole: the directory with the same label opens it again.
    drop(device.open("a").unwrap());
}
