//! The I/O a layout asked the kernel for.
//!
//! It is what is left to count where block events may not be read, and what shows
//! how much the kernel merged and read ahead where they may.

use serde_json::{Value, json};

/// Calls, bytes, sizes and, in one file or device, distances.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    reads: Calls,
    writes: Calls,
    files_opened: u64,
    files_made: u64,
    files_removed: u64,
    syncs: u64,
    seeks: u64,
    seek_bytes: u64,
    next: Option<u64>,
}

/// Calls of one kind.
#[derive(Clone, Debug, Default)]
struct Calls {
    count: u64,
    bytes: u64,
    /// Calls of `[2^i, 2^(i+1))` bytes.
    by_log2: [u64; 32],
}

impl Calls {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
        let log2 = (bytes.max(1).ilog2() as usize).min(self.by_log2.len() - 1);
        self.by_log2[log2] += 1;
    }

    fn told(&self) -> Value {
        let sizes = self.by_log2.iter().enumerate().filter(|(_, count)| **count > 0);
        let sizes: serde_json::Map<_, _> =
            sizes.map(|(log2, count)| ((1_u64 << log2).to_string(), json!(count))).collect();
        json!({"count": self.count, "bytes": self.bytes, "by_size": sizes})
    }
}

impl Counted {
    /// Bytes were read; `at` where the layout is one file or device.
    pub(crate) fn read(&mut self, at: Option<u64>, bytes: usize) {
        self.reads.add(bytes);
        self.moved(at, bytes);
    }

    /// Bytes were written; `at` where the layout is one file or device.
    pub(crate) fn wrote(&mut self, at: Option<u64>, bytes: usize) {
        self.writes.add(bytes);
        self.moved(at, bytes);
    }

    /// A file was opened.
    pub(crate) const fn opened(&mut self) {
        self.files_opened += 1;
    }

    /// A file or directory was made.
    pub(crate) const fn made(&mut self) {
        self.files_made += 1;
    }

    /// A file or directory was removed.
    pub(crate) const fn removed(&mut self) {
        self.files_removed += 1;
    }

    /// The layout waited for the disk to have everything.
    pub(crate) const fn synced(&mut self) {
        self.syncs += 1;
    }

    /// Calls that wrote.
    #[cfg(test)]
    pub(crate) const fn writes(&self) -> u64 {
        self.writes.count
    }

    /// All of it.
    pub(crate) fn told(&self) -> Value {
        json!({
            "reads": self.reads.told(),
            "writes": self.writes.told(),
            "files_opened": self.files_opened,
            "files_made": self.files_made,
            "files_removed": self.files_removed,
            "syncs": self.syncs,
            "seeks": self.seeks,
            "seek_bytes": self.seek_bytes,
        })
    }

    fn moved(&mut self, at: Option<u64>, bytes: usize) {
        let Some(at) = at else { return };
        if let Some(next) = self.next {
            self.seeks += u64::from(next != at);
            self.seek_bytes += next.abs_diff(at);
        }
        self.next = Some(at + bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_from_the_end_of_one_call_to_the_start_of_the_next() {
        let mut io = Counted::default();
        io.wrote(Some(100), 50);
        io.read(Some(150), 10);
        io.read(Some(60), 10);
        io.read(None, 4096);
        let told = io.told();
        assert_eq!((&told["seeks"], &told["seek_bytes"]), (&json!(1), &json!(100)));
        assert_eq!(told["reads"]["by_size"], json!({"8": 2, "4096": 1}));
        assert_eq!(told["writes"], json!({"count": 1, "bytes": 50, "by_size": {"32": 1}}));
    }
}
