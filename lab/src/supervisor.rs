//! The outer process of a run: whatever happens within, everything is removed.
//!
//! The story runs in a child of the same binary. However the child ends (done,
//! failed, panicked, killed, interrupted), this process then removes the lab's
//! namespaces with what runs in them and the working directory. It holds a lock,
//! so that two runs never share names; what a run killed together with its
//! supervisor left behind is removed when the next one starts.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, geteuid, setsid};

use crate::netns;

/// Exit status for want of rights, as the gateway's own.
pub(crate) const EXIT_RIGHTS: u8 = 77;

/// The working directory when this process is the inner one.
pub(crate) fn work_dir() -> Option<PathBuf> {
    env::var_os(WORK_DIR).map(PathBuf::from)
}

/// Prepares the inner process: it takes signals again and dies with the outer one.
///
/// # Errors
/// When the kernel refuses either.
pub(crate) fn begin_inner() -> Result<()> {
    signals().thread_unblock().context("take signals")?;
    // A session of its own has a scheduling group of its own; measured programs go
    // before builds that run on the same machine (sched(7), autogroup). Where the
    // kernel has no such groups, the run is only noisier.
    if setsid().is_ok() {
        drop(fs::write("/proc/self/autogroup", "-10"));
    }
    set_pdeathsig(Signal::SIGKILL).context("die with the outer process")
}

/// Runs this command line again as the inner process and cleans up after it.
///
/// # Errors
/// When the lock, the directory or the process cannot be had, or clean-up fails.
pub(crate) fn supervise() -> Result<ExitCode> {
    if !geteuid().is_root() {
        eprintln!("weir-lab: error: network namespaces need root");
        eprintln!("weir-lab: hint: sudo weir-lab …");
        return Ok(ExitCode::from(EXIT_RIGHTS));
    }
    signals().thread_block().context("hold signals back")?;
    let _lock = lock()?;
    netns::sweep()?;
    remove_stale_dirs()?;
    let dir = env::temp_dir().join(format!("{DIR_PREFIX}{}", std::process::id()));
    fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
    let code = run_inner(&dir);
    netns::sweep()?;
    fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    code
}

fn run_inner(dir: &Path) -> Result<ExitCode> {
    let mut child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(WORK_DIR, dir)
        .spawn()
        .context("start the inner process")?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id beyond 31 bits")?);
    static CAUGHT: AtomicI32 = AtomicI32::new(0);
    thread::spawn(move || {
        if let Ok(signal) = signals().wait() {
            eprintln!("weir-lab: {signal}: cleaning up");
            CAUGHT.store(signal as i32, Ordering::SeqCst);
            // It may have ended in the same moment.
            kill(pid, Signal::SIGKILL).ok();
        }
    });
    let status = child.wait().context("wait for the inner process")?;
    if let number @ 1.. = CAUGHT.load(Ordering::SeqCst) {
        return Ok(u8::try_from(128 + number).map_or(ExitCode::FAILURE, ExitCode::from));
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn lock() -> Result<Flock<File>> {
    let file = File::create(LOCK).with_context(|| format!("open {LOCK}"))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((file, _)) => {
            eprintln!("weir-lab: another run holds {LOCK}; waiting for its end");
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error).context("lock")
        }
    }
}

fn remove_stale_dirs() -> Result<()> {
    for entry in fs::read_dir(env::temp_dir())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(DIR_PREFIX) {
            fs::remove_dir_all(entry.path()).context("remove what an earlier run left")?;
        }
    }
    Ok(())
}

fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

const WORK_DIR: &str = "WEIR_LAB_WORK_DIR";
const DIR_PREFIX: &str = "weir-lab-";
const LOCK: &str = "/run/weir-lab.lock";
