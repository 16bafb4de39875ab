//! A block device of our own: a loop device over a file of this run.
//!
//! The file is written once from end to end, so that no run pays for the first touch
//! of its blocks, and the loop device does direct I/O on it, so that no page is
//! cached twice. The device detaches itself when nobody has it open or mounted any
//! more: it goes with this process and its mount namespace, however they end.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};

use crate::janitor::Janitor;
use crate::netns::run;

/// A loop device, and where it is mounted.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: PathBuf,
    bytes: u64,
    mounted: Option<PathBuf>,
    _bound: Option<Janitor>,
    // Holds the device; the last of the fields, so that it goes last.
    _held: File,
}

/// Gives the calling thread, and what it starts, mounts that end with them.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn own_mounts() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    run("mount", &["--make-rprivate", "/"]).map(drop)
}

impl LoopDevice {
    /// A device of `bytes` over the new file `image`.
    ///
    /// # Errors
    /// When the file cannot be written or no loop device can be had.
    pub(crate) fn create(image: &Path, bytes: u64) -> Result<Self> {
        fill(image, bytes).with_context(|| format!("write {}", image.display()))?;
        let image = image.to_string_lossy();
        let named = run("losetup", &["--find", "--show", "--direct-io=on", &image])?;
        let path = PathBuf::from(named.trim());
        let held = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        // In use, so it is only marked to be detached by its last user.
        run("losetup", &["-d", named.trim()])?;
        let device = Self { path, bytes, mounted: None, _bound: None, _held: held };
        let attached = fs::read_to_string(device.knob("loop/backing_file")).unwrap_or_default();
        ensure!(attached.trim() == image, "{} is not over {image}", device.path.display());
        Ok(device)
    }

    /// Bounds what may wait to be written to this device, as cgroup v2 does by itself
    /// and v1 does not; taken back at the end.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn bound_dirty(&mut self, bytes: u64) -> Result<()> {
        let bdi = format!("/sys/class/bdi/{}", self.number()?);
        let line = "echo 0 > \"$1/strict_limit\"; echo 100 > \"$1/max_ratio\"";
        self._bound = Some(Janitor::start(line, &[&bdi])?);
        fs::write(format!("{bdi}/max_bytes"), bytes.to_string()).context("bound dirty bytes")?;
        fs::write(format!("{bdi}/strict_limit"), "1").context("make the bound strict")
    }

    /// Makes an empty ext4 on it and mounts it at `dir`.
    ///
    /// Without discards (they would take the file's blocks away again) and with all
    /// tables written at once (else the kernel writes them during the measurement).
    ///
    /// # Errors
    /// When `mkfs.ext4` or `mount` refuses.
    pub(crate) fn mount_fresh(&mut self, dir: &Path) -> Result<()> {
        self.unmount()?;
        let path = self.path.to_string_lossy().into_owned();
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", options, &path])?;
        fs::create_dir_all(dir)?;
        run("mount", &["-t", "ext4", "-o", "noatime", &path, &dir.to_string_lossy()])?;
        self.mounted = Some(dir.to_path_buf());
        Ok(())
    }

    /// Unmounts it and makes its beginning empty, so that nobody takes what is left of
    /// an earlier run for somebody's.
    ///
    /// # Errors
    /// When something still uses the file system, or the device refuses.
    pub(crate) fn wipe(&mut self) -> Result<()> {
        self.unmount()?;
        let to = format!("of={}", self.path.display());
        run("dd", &["if=/dev/zero", &to, "bs=1M", "count=8", "oflag=direct"]).map(drop)
    }

    /// Unmounts it, if it is mounted.
    ///
    /// # Errors
    /// When something still uses the file system.
    pub(crate) fn unmount(&mut self) -> Result<()> {
        if let Some(dir) = self.mounted.take() {
            run("umount", &[&dir.to_string_lossy()])?;
        }
        Ok(())
    }

    /// `/dev/loopN`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in all.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A file of the device's directory in sysfs.
    pub(crate) fn knob(&self, name: &str) -> PathBuf {
        let device = self.path.file_name().unwrap_or_default();
        Path::new("/sys/block").join(device).join(name)
    }

    /// `MAJOR:MINOR`.
    ///
    /// # Errors
    /// When sysfs does not say.
    pub(crate) fn number(&self) -> Result<String> {
        let text = fs::read_to_string(self.knob("dev")).context("the device's number")?;
        Ok(text.trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("weir-lab: warning: {error:#}");
        }
    }
}

/// Writes everything back and drops every clean page of the machine.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn drop_caches() -> Result<()> {
    run("sync", &[])?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop the page cache")
}

/// Writes `bytes` zeros to a new file, past the page cache.
fn fill(path: &Path, bytes: u64) -> Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true).custom_flags(libc::O_DIRECT);
    let mut file = options.open(path)?;
    // Direct I/O wants memory that begins at a block.
    let memory = vec![0; FILL_BYTES + BLOCK_BYTES];
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    let zeros = &memory[start..start + FILL_BYTES];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).map_or(FILL_BYTES, |left| left.min(FILL_BYTES));
        file.write_all(&zeros[..part])?;
        left -= part as u64;
    }
    Ok(())
}

const BLOCK_BYTES: usize = 4096;
const FILL_BYTES: usize = 4 << 20;
