//! The store's units of index and allocation (DESIGN.md, words).

/// Bytes of one full segment: 16 KiB, the block size of every BitTorrent client.
pub const SEGMENT_BYTES: u64 = 16 * 1024;

/// Segments of one group: as many as a presence bitmap of one word has bits.
pub const GROUP_SEGMENTS: u64 = 64;

/// Bytes of one full group: 1 MiB.
pub const GROUP_BYTES: u64 = SEGMENT_BYTES * GROUP_SEGMENTS;
