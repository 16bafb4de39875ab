//! Memory that begins where direct I/O wants it to.

use std::ops::{Deref, DerefMut};

/// Bytes whose first lies at a multiple of [`ALIGN`].
#[derive(Debug)]
pub(crate) struct Aligned {
    // Never grows, so that it never moves.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        assert!(start <= ALIGN, "a byte pointer can be aligned");
        Self { bytes, start, len }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Enough for every device's sectors and pages.
pub(crate) const ALIGN: usize = 4096;
