//! Frames: memory that the disk reads into and writes from without a copy.
//!
//! Direct IO asks for memory that begins on a block and is whole blocks long. A
//! [`Frame`] is that, in one of four sizes. A [`FramePool`] holds a fixed number of
//! them, which are made once, at addresses that never change, so that an io_uring
//! engine can register them with the kernel. A [`PooledFrame`] is lent from the pool
//! and goes back when it is dropped; since it is `AsRef<[u8]>`, `bytes::Bytes`
//! can own one.
//!
//! What it refuses: to grow, and to wait. A pool with nothing left says `None`, and
//! the caller may go on with [`FramePool::heap`], so that a read never waits for
//! another read's frame.
//!
//! # Invariants
//!
//! - A frame's bytes begin at a multiple of [`BLOCK_BYTES`] and stay where they are
//!   until it is dropped, wherever the `Frame` itself is moved.
//! - A frame from a pool has bytes of earlier uses in it. Only what was read into it
//!   means anything.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};

use memmap2::MmapMut;

/// Bytes of a block, the unit of transfers: 4 KiB, which is a multiple of what any
/// disk asks for.
pub const BLOCK_BYTES: usize = 4096;

/// Sizes of a pool's frames in bytes, ascending: a segment, four, sixteen, a group.
pub const FRAME_BYTES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Memory for whole blocks, aligned as direct IO needs it.
pub struct Frame {
    memory: Memory,
    /// Its number in its pool, from 0; `None` outside of a pool.
    slot: Option<u32>,
}

impl Frame {
    /// A pool's frame: pages of its own, not in memory before they are touched.
    fn mapped(len_bytes: usize, slot: u32) -> Option<Self> {
        let pages = MmapMut::map_anon(len_bytes).ok()?;
        Some(Self { memory: Memory::Mapped(pages), slot: Some(slot) })
    }

    /// A frame of at least `len_bytes`, zeroed, in whole blocks.
    fn heap(len_bytes: usize) -> Self {
        let len = len_bytes.max(1).next_multiple_of(BLOCK_BYTES);
        let bytes = vec![0; len + BLOCK_BYTES];
        let address = bytes.as_ptr().addr();
        let start = address.next_multiple_of(BLOCK_BYTES) - address;
        Self { memory: Memory::Heap { bytes, start, len }, slot: None }
    }

    /// No memory at all; stands where a frame was taken out.
    const fn none() -> Self {
        Self { memory: Memory::Heap { bytes: Vec::new(), start: 0, len: 0 }, slot: None }
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(pages) => pages,
            Memory::Heap { bytes, start, len } => &bytes[*start..*start + *len],
        }
    }

    /// Its bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Mapped(pages) => pages,
            Memory::Heap { bytes, start, len } => &mut bytes[*start..*start + *len],
        }
    }

    /// How many bytes it has: a multiple of [`BLOCK_BYTES`].
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Mapped(pages) => pages.len(),
            Memory::Heap { len, .. } => *len,
        }
    }

    /// Whether it has no bytes; none that a caller meets is so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Frame").field("len", &self.len()).field("slot", &self.slot).finish()
    }
}

/// Where a frame's bytes are.
enum Memory {
    /// Pages of their own.
    Mapped(MmapMut),
    /// A part of an allocation a block longer than it. A vector, not a box: its
    /// bytes may be known to the kernel while it is moved.
    Heap { bytes: Vec<u8>, start: usize, len: usize },
}

/// A bounded supply of frames, shared by cloning. Made once, at the start.
///
/// How `bytes_max` is split: half into frames of 1 MiB, a quarter into 256 KiB, an
/// eighth each into 64 KiB and 16 KiB. So 256 MiB are 128, 256, 512 and 2048 frames.
/// Large ones get most because they serve every request while small ones serve small
/// requests only: a request whose size is used up takes the next larger. They are
/// also held longest, by groups that wait to be written and by large reads on their
/// way to a slow client. The many small ones are there so that a flood of 16 KiB
/// reads finds 2048 frames and does not spend a MiB on each.
///
/// Memory is taken from the host when a frame is first used, and then kept: a pool
/// costs at most `bytes_max` and at first next to nothing. Of frames of one size,
/// the one that came back last is lent first, so that what is seldom needed is not
/// touched. With io_uring, a frame's pages cannot be swapped from its first transfer
/// on.
#[derive(Clone)]
pub struct FramePool(Arc<Pool>);

struct Pool {
    /// Frames not lent, one list for each of [`FRAME_BYTES`].
    free: [Mutex<Vec<Frame>>; FRAME_BYTES.len()],
    /// Frames in all; their slots are the numbers below.
    frames: u32,
    /// Their bytes.
    capacity_bytes: usize,
}

impl FramePool {
    /// A pool of at most `bytes_max` bytes, at most 64 GiB; below 1 MiB some sizes,
    /// below 128 KiB all, have no frame. Where the host refuses address space it is
    /// smaller: see [`Self::capacity_bytes`].
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.min(POOL_BYTES_MAX);
        let (mut frames, mut capacity_bytes) = (0, 0);
        let free = std::array::from_fn(|class| {
            let size = FRAME_BYTES[class];
            let count = bytes_max / SHARES[class] / size;
            let made: Vec<_> =
                (frames..).take(count).map_while(|slot| Frame::mapped(size, slot)).collect();
            frames += u32::try_from(made.len()).expect("64 GiB are 2^19 frames of 16 KiB");
            capacity_bytes += made.len() * size;
            Mutex::new(made)
        });
        Self(Arc::new(Pool { free, frames, capacity_bytes }))
    }

    /// A frame of at least `len_bytes`: of the smallest size that is large enough,
    /// or of a larger one when those are all lent. `None` when nothing that fits is
    /// left, and always above 1 MiB. What is in it is of an earlier use.
    pub fn get(&self, len_bytes: usize) -> Option<PooledFrame> {
        let first = FRAME_BYTES.iter().position(|size| *size >= len_bytes)?;
        let frame = (first..FRAME_BYTES.len()).find_map(|class| self.free(class).pop())?;
        Some(PooledFrame { frame, home: Some(self.clone()) })
    }

    /// A zeroed frame of at least `len_bytes` that is in no pool; its memory is
    /// given back when it is dropped.
    pub fn heap(len_bytes: usize) -> PooledFrame {
        PooledFrame { frame: Frame::heap(len_bytes), home: None }
    }

    /// [`Self::get`], and [`Self::heap`] where that has none.
    pub fn get_or_heap(&self, len_bytes: usize) -> PooledFrame {
        self.get(len_bytes).unwrap_or_else(|| Self::heap(len_bytes))
    }

    /// Bytes of all its frames, lent or not.
    pub fn capacity_bytes(&self) -> usize {
        self.0.capacity_bytes
    }

    /// How many frames of each of [`FRAME_BYTES`] are not lent now.
    pub fn free_frames(&self) -> [usize; FRAME_BYTES.len()] {
        std::array::from_fn(|class| self.free(class).len())
    }

    /// Frames in all; their slots are the numbers below.
    pub(crate) fn frames(&self) -> u32 {
        self.0.frames
    }

    /// The number of `frame` in this pool, `None` when it is not of this pool. No
    /// other frame of the pool has it, and its bytes are always at one place.
    pub(crate) fn slot_of(&self, frame: &PooledFrame) -> Option<u32> {
        let ours = frame.home.as_ref().is_some_and(|home| Arc::ptr_eq(&home.0, &self.0));
        frame.frame.slot.filter(|_| ours)
    }

    fn free(&self, class: usize) -> MutexGuard<'_, Vec<Frame>> {
        self.0.free[class].lock().expect("nothing under this lock can panic")
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FramePool")
            .field("capacity_bytes", &self.capacity_bytes())
            .field("free_frames", &self.free_frames())
            .finish()
    }
}

/// A frame that is lent: back in its pool when dropped, or freed when it has none.
#[derive(Debug)]
pub struct PooledFrame {
    frame: Frame,
    home: Option<FramePool>,
}

impl PooledFrame {
    /// Whether it came from a pool.
    pub fn is_pooled(&self) -> bool {
        self.home.is_some()
    }
}

impl Deref for PooledFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.as_slice()
    }
}

impl DerefMut for PooledFrame {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.frame.as_mut_slice()
    }
}

impl AsRef<[u8]> for PooledFrame {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PooledFrame {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        let frame = std::mem::replace(&mut self.frame, Frame::none());
        if let Some(class) = FRAME_BYTES.iter().position(|size| *size == frame.len()) {
            home.free(class).push(frame);
        }
    }
}

/// One part in so many of a pool's bytes, for each of [`FRAME_BYTES`].
const SHARES: [usize; FRAME_BYTES.len()] = [8, 8, 4, 2];

/// More than any gateway has use for, and few enough frames to number.
const POOL_BYTES_MAX: usize = 64 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn every_frame_is_aligned_and_of_its_size() {
        let pool = FramePool::new(4 * MIB);
        assert_eq!(pool.free_frames(), [32, 8, 4, 2]);
        assert_eq!((pool.capacity_bytes(), pool.frames()), (4 * MIB, 46));
        let sizes = [(0, 16), (1, 16), (16 << 10, 16), ((16 << 10) + 1, 64), (65_536, 64)];
        let sizes = sizes.into_iter().chain([(65_537, 256), (MIB / 4 + 1, 1024), (MIB, 1024)]);
        for (asked, kib) in sizes {
            let frame = pool.get(asked).unwrap();
            assert_eq!((frame.len(), frame.as_ptr().addr() % BLOCK_BYTES), (kib << 10, 0));
            assert!(frame.is_pooled());
        }
        assert!(pool.get(MIB + 1).is_none());
        for (asked, len) in
            [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (MIB + 1, MIB + 4096)]
        {
            let frame = FramePool::heap(asked);
            assert_eq!((frame.len(), frame.as_ptr().addr() % BLOCK_BYTES), (len, 0));
            assert!(frame.iter().all(|byte| *byte == 0) && !frame.is_pooled());
        }
    }

    #[test]
    fn a_size_that_is_out_falls_to_the_larger_ones_and_then_to_none() {
        let pool = FramePool::new(2 * MIB);
        assert_eq!(pool.free_frames(), [16, 4, 2, 1]);
        let held: Vec<_> = (0..23).map(|_| pool.get(1).unwrap()).collect();
        assert!(held.is_sorted_by_key(|frame| frame.len()));
        assert!(pool.get(1).is_none());
        assert_eq!(pool.get_or_heap(1).len(), BLOCK_BYTES);
        drop(held);
        assert_eq!(pool.free_frames(), [16, 4, 2, 1]);
        let large = pool.get(MIB).unwrap();
        assert!(pool.get(MIB).is_none());
        assert_eq!(pool.get(MIB / 4).unwrap().len(), MIB / 4);
        drop(large);
    }

    #[test]
    fn a_pool_too_small_for_a_size_has_none_of_it() {
        for (bytes, free) in [
            (0, [0, 0, 0, 0]),
            ((128 << 10) - 1, [0, 0, 0, 0]),
            (128 << 10, [1, 0, 0, 0]),
            (MIB, [8, 2, 1, 0]),
            (2 * MIB - 1, [15, 3, 1, 0]),
        ] {
            assert_eq!(FramePool::new(bytes).free_frames(), free, "{bytes}");
        }
    }

    #[test]
    fn bytes_own_a_frame_and_give_it_back_from_another_thread() {
        let pool = FramePool::new(MIB);
        let mut frame = pool.get(16 << 10).unwrap();
        frame[..5].copy_from_slice(b"seven");
        let bytes = bytes::Bytes::from_owner(frame).slice(1..5);
        assert_eq!(pool.free_frames()[0], 7);
        std::thread::spawn(move || assert_eq!(&bytes[..], b"even")).join().unwrap();
        assert_eq!(pool.free_frames()[0], 8);
    }

    #[test]
    fn slots_are_distinct_and_those_of_their_own_pool() {
        let (pool, other) = (FramePool::new(MIB), FramePool::new(MIB));
        let held: Vec<_> = std::iter::from_fn(|| pool.get(1)).collect();
        let mut slots: Vec<_> = held.iter().filter_map(|frame| pool.slot_of(frame)).collect();
        slots.sort_unstable();
        assert!(slots.iter().copied().eq(0..pool.frames()));
        assert_eq!(other.slot_of(&held[0]), None);
        assert_eq!(pool.slot_of(&FramePool::heap(1)), None);
    }

    #[test]
    fn the_frame_that_came_back_last_goes_first() {
        let pool = FramePool::new(MIB);
        let (first, second) = (pool.get(1).unwrap(), pool.get(1).unwrap());
        let slot = pool.slot_of(&first);
        drop((second, first));
        assert_eq!(pool.slot_of(&pool.get(1).unwrap()), slot);
    }
}
