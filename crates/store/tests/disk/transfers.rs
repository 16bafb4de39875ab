//! Real files, by every engine, through the page cache and past it: all move the
//! same bytes, and none makes another's mistake its own.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;
use weir_store::OpenError;
use weir_store::disk::{DirectChoice, Disk, DiskOptions, EngineChoice, EngineKind, File, Files};
use weir_store::disk::{Done, Transfer};
use weir_store::frame::{FramePool, PooledFrame};

use crate::random::Random;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A directory on a disk: where the build is, for `/tmp` may be in memory.
fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn open(dir: &Path, engine: EngineChoice, direct: DirectChoice, pool: &FramePool) -> Files {
    try_open(dir, engine, direct, pool).unwrap()
}

fn try_open(
    dir: &Path,
    engine: EngineChoice,
    direct: DirectChoice,
    pool: &FramePool,
) -> Result<Files, OpenError> {
    let options = DiskOptions { engine, direct, ..DiskOptions::new(pool.clone()) };
    Files::open(dir, &options)
}

/// Runs `check` on a new disk of each kind.
fn on_each(check: impl Fn(&Files, &FramePool, &Path)) {
    for engine in [EngineChoice::Uring, EngineChoice::Pread] {
        for direct in [DirectChoice::On, DirectChoice::Off] {
            let (dir, pool) = (scratch(), FramePool::new(8 * MIB as usize));
            let free = pool.free_frames();
            // A host may have no io_uring, or no direct IO; pread it must have.
            let disk = match try_open(dir.path(), engine, direct, &pool) {
                Err(why) if (engine, direct) != (EngineChoice::Pread, DirectChoice::Off) => {
                    eprintln!("not tested: {engine:?}, {direct:?}: {why}");
                    continue;
                }
                opened => opened.unwrap(),
            };
            let found = disk.engine();
            assert_eq!(found.direct, direct == DirectChoice::On);
            assert_eq!(found.kind == EngineKind::Uring, engine == EngineChoice::Uring);
            check(&disk, &pool, dir.path());
            drop(disk);
            assert_eq!(pool.free_frames(), free, "{found}: every frame came back");
        }
    }
}

/// Where the pool has none, and now and then besides, a frame of no pool.
fn frame(pool: &FramePool, random: &mut Random, len: usize) -> PooledFrame {
    if random.chance(10) { FramePool::heap(len) } else { pool.get_or_heap(len) }
}

/// A transfer of up to 32 blocks within `blocks`, somewhere in its frame.
fn any(pool: &FramePool, random: &mut Random, blocks: std::ops::Range<u64>) -> Transfer {
    let count = random.within(1..33.min(blocks.end - blocks.start) + 1);
    let offset = random.within(blocks.start..blocks.end - count + 1) * BLOCK;
    let skip = random.below(3) as usize * BLOCK as usize;
    let len = (count * BLOCK) as usize;
    let frame = frame(pool, random, skip + len);
    Transfer { offset, frame, range: skip..skip + len }
}

fn place(transfer: &Transfer) -> std::ops::Range<usize> {
    transfer.offset as usize..transfer.offset as usize + transfer.len()
}

fn all_well(done: Vec<Done>) -> Vec<Transfer> {
    done.into_iter().map(|(transfer, result)| result.map(|()| transfer).unwrap()).collect()
}

#[test]
fn batches_agree_with_a_vector_of_bytes() {
    on_each(|disk, pool, _| {
        let mut random = Random(11);
        let blocks = 1024;
        let mut model = vec![0; (blocks * BLOCK) as usize];
        disk.allocate(File::Data, model.len() as u64).unwrap();
        // More than a ring holds, and as many frames as the pool does not have.
        for size in [1, 2, 3, 7, 32, 33, 128, 300] {
            for _ in 0..4 {
                // Writes that do not overlap: each has a stripe of its own.
                let stripe = blocks / size;
                let write = |n: u64, random: &mut Random| {
                    let mut transfer = any(pool, random, n * stripe..(n + 1) * stripe);
                    random.fill(transfer.bytes_mut());
                    transfer
                };
                let batch: Vec<_> = (0..size).map(|n| write(n, &mut random)).collect();
                for transfer in &batch {
                    model[place(transfer)].copy_from_slice(transfer.bytes());
                }
                drop(all_well(disk.write_batch(batch)));
                let batch: Vec<_> = (0..size).map(|_| any(pool, &mut random, 0..blocks)).collect();
                let asked: Vec<_> = batch.iter().map(place).collect();
                let done = all_well(disk.read_batch(batch));
                assert!(done.iter().map(place).eq(asked), "in the order of the batch");
                for transfer in done {
                    assert!(transfer.bytes() == &model[place(&transfer)], "{size} {transfer:?}");
                }
            }
        }
        disk.sync(File::Data).unwrap();
        assert!(disk.read_batch(Vec::new()).is_empty() && disk.write_batch(Vec::new()).is_empty());
    });
}

#[test]
fn any_bytes_and_whole_blocks_see_each_other() {
    on_each(|disk, pool, _| {
        let mut random = Random(12);
        let mut model: Vec<u8> = Vec::new();
        for step in 0..300 {
            match random.below(6) {
                0 | 1 => {
                    let at = random.below(300_000) as usize;
                    let mut bytes = vec![0; random.below(40_000) as usize];
                    random.fill(&mut bytes);
                    disk.write_at(File::Data, at as u64, &bytes).unwrap();
                    if !bytes.is_empty() {
                        model.resize(model.len().max(at + bytes.len()), 0);
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                2 => {
                    let mut transfer = any(pool, &mut random, 0..80);
                    random.fill(transfer.bytes_mut());
                    let place = place(&transfer);
                    model.resize(model.len().max(place.end), 0);
                    model[place].copy_from_slice(transfer.bytes());
                    let other = any(pool, &mut random, 100..120);
                    let mut batch = vec![transfer];
                    if step % 2 == 0 {
                        model.resize(model.len().max(place_end(&other)), 0);
                        model[self::place(&other)].copy_from_slice(other.bytes());
                        batch.push(other);
                    }
                    drop(all_well(disk.write_batch(batch)));
                }
                3 if !model.is_empty() => {
                    let at = random.below(model.len() as u64) as usize;
                    let len = random.below((model.len() - at) as u64 + 1) as usize;
                    let mut buf = vec![0; len];
                    disk.read_at(File::Data, at as u64, &mut buf).unwrap();
                    assert!(buf == model[at..at + len], "{step}");
                }
                4 => {
                    let len = random.below(400_000);
                    disk.set_len(File::Data, len).unwrap();
                    model.resize(len as usize, 0);
                }
                _ => {
                    let blocks = model.len() as u64 / BLOCK;
                    if blocks > 0 {
                        let transfer = any(pool, &mut random, 0..blocks);
                        let done = all_well(disk.read_batch(vec![transfer]));
                        assert!(done[0].bytes() == &model[place(&done[0])], "{step}");
                    }
                }
            }
            assert_eq!(disk.len(File::Data).unwrap(), model.len() as u64, "{step}");
            let mut past = [0; 1];
            let past = disk.read_at(File::Data, model.len() as u64, &mut past).unwrap_err();
            assert_eq!(past.kind(), ErrorKind::UnexpectedEof);
        }
    });
}

fn place_end(transfer: &Transfer) -> usize {
    place(transfer).end
}

#[test]
fn a_failure_is_that_of_its_transfer_alone() {
    on_each(|disk, pool, _| {
        disk.write_at(File::Data, 0, &vec![7; 2 * BLOCK as usize + 100]).unwrap();
        let at = |offset| Transfer::new(offset, pool.get(1).unwrap(), BLOCK as usize);
        let mut batch: Vec<_> = [0, BLOCK, 1, BLOCK, 2 * BLOCK, 4 * BLOCK, 0].map(at).into();
        batch[3].range = 0..0;
        let kinds: Vec<_> = disk
            .read_batch(batch)
            .into_iter()
            .map(|(_, result)| result.err().map(|why| why.kind()))
            .collect();
        let (refused, end) = (Some(ErrorKind::InvalidInput), Some(ErrorKind::UnexpectedEof));
        assert_eq!(kinds, [None, None, refused, refused, end, end, None]);
        for lone in [at(1), at(2 * BLOCK)] {
            assert!(disk.read_batch(vec![lone])[0].1.is_err());
        }
        let mut refused = disk.write_batch(vec![at(1), at(2)]);
        assert!(refused.drain(..).all(|(_, result)| result.is_err()));
    });
}

#[test]
fn callers_on_many_threads_get_their_own_bytes() {
    on_each(|disk, pool, _| {
        let blocks = 64;
        disk.allocate(File::Data, 16 * blocks * BLOCK).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..16 {
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for round in 0..30 {
                        let size = random.within(1..40);
                        let own = thread * blocks;
                        let write = |n: u64| {
                            let mut frame = frame(pool, &mut Random(n ^ round), BLOCK as usize);
                            frame.fill((thread * 16 + n + round) as u8);
                            Transfer::new((own + n) * BLOCK, frame, BLOCK as usize)
                        };
                        drop(all_well(disk.write_batch((0..size).map(write).collect())));
                        let read = |n| Transfer::new((own + n) * BLOCK, FramePool::heap(1), 4096);
                        let done = all_well(disk.read_batch((0..size).rev().map(read).collect()));
                        for (transfer, n) in done.iter().zip((0..size).rev()) {
                            let byte = (thread * 16 + n + round) as u8;
                            assert!(transfer.bytes().iter().all(|found| *found == byte));
                        }
                    }
                });
            }
        });
    });
}

/// The page cache may hold what is on the disk, and must not be asked instead of it.
#[test]
fn who_reads_through_the_page_cache_gets_what_was_written_past_it() {
    on_each(|disk, pool, dir| {
        let mut random = Random(13);
        disk.allocate(File::Data, MIB).unwrap();
        let cached = fs::File::open(dir.join(File::Data.name())).unwrap();
        let mut model = vec![0; MIB as usize];
        let mut found = vec![0; MIB as usize];
        for step in 0..50 {
            // All of the file is in the page cache from here on.
            cached.read_exact_at(&mut found, 0).unwrap();
            assert!(found == model, "{step}");
            if step % 2 == 0 {
                let mut batch =
                    vec![any(pool, &mut random, 0..128), any(pool, &mut random, 128..256)];
                for transfer in &mut batch {
                    random.fill(transfer.bytes_mut());
                    model[place(transfer)].copy_from_slice(transfer.bytes());
                }
                drop(all_well(disk.write_batch(batch)));
            } else {
                let at = random.below(900_000) as usize;
                let bytes = vec![step; random.within(1..10_000) as usize];
                model[at..at + bytes.len()].copy_from_slice(&bytes);
                disk.write_at(File::Data, at as u64, &bytes).unwrap();
            }
        }
    });
}

#[test]
fn what_an_earlier_run_left_in_the_page_cache_is_read_past_it() {
    let (dir, pool) = (scratch(), FramePool::new(MIB as usize));
    let mut bytes = vec![0; MIB as usize];
    for round in 0..20u64 {
        Random(round).fill(&mut bytes);
        let disk = open(dir.path(), EngineChoice::Pread, DirectChoice::Off, &pool);
        disk.write_at(File::Data, 0, &bytes).unwrap();
        drop(disk);
        let disk = open(dir.path(), EngineChoice::Auto, DirectChoice::Auto, &pool);
        let at = |n: u64| Transfer::new(n * 65536, pool.get_or_heap(65536), 65536);
        for transfer in all_well(disk.read_batch((0..16).map(at).collect())) {
            assert!(transfer.bytes() == &bytes[place(&transfer)], "{round}");
        }
    }
}

#[test]
fn a_pool_with_nothing_left_stops_nobody() {
    for pool in [FramePool::new(0), FramePool::new(128 << 10)] {
        let dir = scratch();
        let disk = open(dir.path(), EngineChoice::Auto, DirectChoice::Auto, &pool);
        let held: Vec<_> = std::iter::from_fn(|| pool.get(1)).collect();
        disk.write_at(File::Data, 77, &[5; 5000]).unwrap();
        let mut buf = [0; 5000];
        disk.read_at(File::Data, 77, &mut buf).unwrap();
        assert_eq!(buf, [5; 5000]);
        let at = |n: u64| Transfer::new(n * BLOCK, FramePool::heap(1), 4096);
        assert_eq!(all_well(disk.read_batch(vec![at(0)]))[0].bytes()[77], 5);
        drop(held);
    }
}

/// A frame of one pool may be given to a disk of another: it is no registered one.
#[test]
fn frames_of_another_pool_are_taken_too() {
    let (dir, pool, other) =
        (scratch(), FramePool::new(MIB as usize), FramePool::new(MIB as usize));
    let disk = open(dir.path(), EngineChoice::Auto, DirectChoice::Auto, &pool);
    let with = |pool: &FramePool, byte: u8, n: u64| {
        let mut frame = pool.get(1).unwrap();
        frame.fill(byte);
        Transfer::new(n * BLOCK, frame, BLOCK as usize)
    };
    drop(all_well(disk.write_batch((0..4).map(|n| with(&pool, n as u8 + 1, n)).collect())));
    let done = all_well(disk.read_batch((0..4).map(|n| with(&other, 99, n)).collect()));
    for (transfer, byte) in done.iter().zip(1..) {
        assert!(transfer.bytes().iter().all(|found| *found == byte));
    }
}

#[test]
fn what_is_asked_for_and_cannot_be_is_an_error_and_auto_is_none() {
    let pool = FramePool::new(MIB as usize);
    // A file system in memory that knows no direct IO, on every Linux.
    let dir = Path::new("/proc/self/fd");
    let options = DiskOptions { direct: DirectChoice::On, ..DiskOptions::new(pool.clone()) };
    assert!(Files::open(dir, &options).is_err());
    let dir = scratch();
    let disk = open(dir.path(), EngineChoice::Auto, DirectChoice::Auto, &pool);
    let engine = disk.engine();
    assert_eq!(engine.to_string().starts_with("io_uring, direct"), engine.reasons.is_empty());
    drop(disk);
    let refused = fs::write(dir.path().join("device"), "");
    refused.and_then(|()| fs::write(dir.path().join("superblock"), "x")).unwrap();
    let why = Files::open(dir.path(), &DiskOptions::new(pool)).unwrap_err();
    let source = std::error::Error::source(&why).unwrap();
    let source = source.downcast_ref::<io::Error>().unwrap().to_string();
    assert!(source.contains("has its data on a device"), "{source}");
}
