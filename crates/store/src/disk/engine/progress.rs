//! How far a transfer has come, for kernels that answer with less than was asked.

use std::io::{self, ErrorKind};

use crate::disk::transfer::Verb;
use crate::frame::BLOCK_BYTES;

/// How much of a transfer is done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes, a multiple of [`BLOCK_BYTES`].
    done: usize,
    /// Times in a row that the kernel asked for another try.
    again: u32,
}

impl Progress {
    /// Bytes that are done; the next call begins behind them.
    pub(super) const fn done(self) -> usize {
        self.done
    }

    /// Takes the kernel's answer for the rest of a transfer of `len` bytes. `None`:
    /// ask again for what is left. A short answer counts in whole blocks, so that
    /// the next call is still one that direct IO takes.
    pub(super) fn take(
        &mut self,
        verb: Verb,
        len: usize,
        answer: io::Result<usize>,
    ) -> Option<io::Result<()>> {
        match answer {
            Ok(bytes) => {
                let whole = bytes / BLOCK_BYTES * BLOCK_BYTES;
                if whole == 0 {
                    let nothing = match verb {
                        Verb::Read => ErrorKind::UnexpectedEof,
                        Verb::Write => ErrorKind::WriteZero,
                    };
                    return Some(Err(nothing.into()));
                }
                self.done += whole;
                self.again = 0;
                (self.done >= len).then_some(Ok(()))
            }
            Err(why) => {
                let again = matches!(why.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
                self.again += 1;
                (!again || self.again >= AGAIN_MAX).then_some(Err(why))
            }
        }
    }
}

/// A kernel that asks for another try this often in a row has failed.
const AGAIN_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ErrorKind) -> io::Result<usize> {
        Err(kind.into())
    }

    #[test]
    fn short_answers_go_on_at_a_block() {
        let mut progress = Progress::default();
        assert!(progress.take(Verb::Read, 16384, Ok(8192)).is_none());
        assert!(progress.take(Verb::Read, 16384, Ok(4097)).is_none());
        assert_eq!(progress.done(), 12288);
        assert!(progress.take(Verb::Read, 16384, Ok(4096)).unwrap().is_ok());
    }

    #[test]
    fn less_than_a_block_is_the_end() {
        for bytes in [0, 1, 4095] {
            let read = Progress::default().take(Verb::Read, 4096, Ok(bytes)).unwrap();
            assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            let write = Progress::default().take(Verb::Write, 4096, Ok(bytes)).unwrap();
            assert_eq!(write.unwrap_err().kind(), ErrorKind::WriteZero);
        }
    }

    #[test]
    fn tries_again_but_not_for_ever() {
        for kind in [ErrorKind::Interrupted, ErrorKind::WouldBlock] {
            let mut progress = Progress::default();
            for _ in 1..AGAIN_MAX {
                assert!(progress.take(Verb::Read, 8192, error(kind)).is_none());
            }
            assert!(progress.take(Verb::Read, 8192, Ok(4096)).is_none(), "an answer starts anew");
            for _ in 1..AGAIN_MAX {
                assert!(progress.take(Verb::Read, 8192, error(kind)).is_none());
            }
            let last = progress.take(Verb::Read, 8192, error(kind)).unwrap();
            assert_eq!(last.unwrap_err().kind(), kind);
        }
        let failed = Progress::default().take(Verb::Write, 8192, error(ErrorKind::StorageFull));
        assert_eq!(failed.unwrap().unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
