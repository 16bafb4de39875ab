//! What carries transfers to the kernel: io_uring on threads of its own, or `pread`
//! and `pwrite` on a pool of threads where io_uring is refused or not wanted.
//!
//! Both own a transfer from the moment it is given to them until the kernel is done
//! with it, and give all of a batch back at once.

mod batch;
mod pread;
mod progress;
mod ring;
mod target;
#[cfg(test)]
mod tests;
mod uring;

use std::io;
use std::sync::Arc;

pub(super) use target::Target;

use super::EngineChoice;
use super::transfer::{Done, EngineKind, Transfer, Verb};
use crate::frame::FramePool;
use pread::Pread;
use uring::Uring;

/// One of the two.
#[derive(Debug)]
pub(super) enum Carrier {
    /// Threads that block in the kernel.
    Pread(Pread),
    /// Threads that hand many transfers to the kernel at once.
    Uring(Uring),
}

impl Carrier {
    /// The carrier that `choice` asks for on `target`, and why it is another than
    /// io_uring if that was tried.
    ///
    /// # Errors
    /// What io_uring was refused with, if nothing else will do.
    pub(super) fn start(
        choice: EngineChoice,
        target: &Arc<Target>,
        pool: &FramePool,
    ) -> io::Result<(Self, Option<String>)> {
        Self::choose(choice, target, || Uring::start(target, pool))
    }

    fn choose(
        choice: EngineChoice,
        target: &Arc<Target>,
        uring: impl FnOnce() -> io::Result<Uring>,
    ) -> io::Result<(Self, Option<String>)> {
        let pread = || Self::Pread(Pread::new(Arc::clone(target)));
        if choice == EngineChoice::Pread {
            return Ok((pread(), None));
        }
        match uring() {
            Ok(uring) => Ok((Self::Uring(uring), None)),
            Err(why) if choice == EngineChoice::Uring => Err(why),
            Err(why) => Ok((pread(), Some(format!("io_uring: {why}")))),
        }
    }

    /// Carries all of `batch` and returns when all are done, in their order.
    pub(super) fn run(&self, verb: Verb, batch: Vec<Transfer>) -> Vec<Done> {
        match self {
            Self::Pread(pread) => pread.run(verb, batch),
            Self::Uring(uring) => uring.run(verb, batch),
        }
    }

    /// Which it is.
    pub(super) const fn kind(&self) -> EngineKind {
        match self {
            Self::Pread(_) => EngineKind::Pread,
            Self::Uring(_) => EngineKind::Uring,
        }
    }

    /// Whether the pool's frames are registered with the kernel.
    pub(super) fn is_registered(&self) -> bool {
        match self {
            Self::Pread(_) => false,
            Self::Uring(uring) => uring.is_registered(),
        }
    }
}
