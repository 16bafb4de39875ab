//! What an operator meets: damaged files, failing disks, other sizes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{FaultDisk, Random, content};
use bytes::Bytes;
use weir_ranges::{ByteRange, ObjectId};
use weir_store::disk::{Disk, File};
use weir_store::{
    Description, OpenError, Options, Policy, ReadError, Recovery, Store, Tuning, WriteError,
};

const MIB: u64 = 1 << 20;

fn open(disk: &Arc<FaultDisk>, capacity: u64) -> Result<(Store, Recovery), OpenError> {
    // Without memory everything is read from the disk.
    let (memory_bytes, policy, sync_interval) = (0, Policy::Lru, Duration::ZERO);
    let options = Options { memory_bytes, policy, sync_interval, ..Options::new("fake", capacity) };
    Store::open_on(disk.clone(), &options, Tuning::default())
}

fn r(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

fn put(store: &Store, object: u128, range: ByteRange) -> Result<(), WriteError> {
    store.write(object.into(), range.start(), &[content(object, 0, range)])
}

fn whole(store: &Store, object: u128, range: ByteRange) -> Option<Bytes> {
    store.read(object.into(), range).unwrap().whole()
}

#[test]
fn a_damaged_segment_is_a_miss_and_is_freed() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, MIB)).unwrap();
    disk.edit(File::Data, |bytes| bytes[3 * 16384 + 77] ^= 1);
    let read = store.read(1.into(), r(0, MIB)).unwrap();
    assert_eq!(read.holes.iter().collect::<Vec<_>>(), [r(3 * 16384, 4 * 16384)]);
    assert_eq!(read.parts.len(), 2);
    assert_eq!(read.parts[1].1, content(1, 0, r(4 * 16384, MIB)));
    let stats = store.stats();
    assert_eq!((stats.checksum_failures, stats.misses, stats.segments), (1, 1, 63));
    assert!(!store.covers(1.into(), r(3 * 16384, 3 * 16384 + 1)));
    // It can be written again.
    put(&store, 1, r(3 * 16384, 4 * 16384)).unwrap();
    assert_eq!(whole(&store, 1, r(0, MIB)), Some(content(1, 0, r(0, MIB))));
}

#[test]
fn a_damaged_run_is_a_miss_too() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(100, 200)).unwrap();
    put(&store, 1, r(300, 400)).unwrap();
    store.sync().unwrap();
    disk.edit(File::Data, |bytes| bytes[150] ^= 0x80);
    assert_eq!(whole(&store, 1, r(110, 120)), None);
    assert_eq!(store.stats().checksum_failures, 1);
}

#[test]
fn no_byte_comes_back_from_a_data_file_full_of_another_objects_bytes() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, MIB)).unwrap();
    put(&store, 2, r(0, MIB)).unwrap();
    disk.edit(File::Data, |bytes| bytes.copy_within(MIB as usize..2 * MIB as usize, 0));
    assert!(store.read(1.into(), r(0, MIB)).unwrap().parts.is_empty());
    assert_eq!(store.stats().checksum_failures, 64);
    assert_eq!(whole(&store, 2, r(0, MIB)), Some(content(2, 0, r(0, MIB))));
}

#[test]
fn a_scrub_finds_and_frees_what_is_bad() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, 3 * MIB)).unwrap();
    put(&store, 2, r(5, 105)).unwrap();
    store.sync().unwrap();
    disk.edit(File::Data, |bytes| {
        for at in [0, 5 * 16384, MIB + 1, 3 * MIB + 50] {
            bytes[at as usize] ^= 1;
        }
    });
    let mut steps = Vec::new();
    let report = store.verify(&mut |done, total| {
        steps.push((done, total));
        ControlFlow::Continue(())
    });
    assert_eq!((report.segments, report.bytes), (193, 3 * MIB + 100));
    assert_eq!((report.bad_segments, report.bad_bytes), (4, 3 * 16384 + 100));
    assert_eq!(steps.last(), Some(&(3 * MIB + 100, 3 * MIB + 100)));
    assert_eq!(store.stats().objects, 1);
    assert_eq!(store.verify(&mut |_, _| ControlFlow::Continue(())).bad_segments, 0);
}

#[test]
fn a_bad_sector_is_a_miss_of_its_segment_only() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, MIB)).unwrap();
    disk.fail_reads(16384, 16385);
    let read = store.read(1.into(), r(0, MIB)).unwrap();
    assert_eq!(read.holes.iter().collect::<Vec<_>>(), [r(16384, 32768)]);
    let stats = store.stats();
    assert_eq!((stats.read_errors, stats.checksum_failures, stats.degraded), (1, 0, false));
}

#[test]
fn a_failed_write_degrades_to_a_cache_that_is_read() {
    for (file, sync) in
        [(File::Data, false), (File::Journal, false), (File::Data, true), (File::Journal, true)]
    {
        let disk = Arc::new(FaultDisk::new());
        let (store, _) = open(&disk, 8 * MIB).unwrap();
        put(&store, 1, r(0, MIB)).unwrap();
        store.sync().unwrap();
        if sync {
            disk.fail_syncs(Some(file));
        } else {
            disk.fail_writes(Some(file));
        }
        let result = put(&store, 1, r(MIB, 2 * MIB)).and_then(|()| store.sync());
        assert!(matches!(result, Err(WriteError::Io(_))), "{file:?} {sync} {result:?}");
        assert!(store.stats().degraded && store.stats().write_errors >= 1);
        disk.fail_syncs(None);
        disk.fail_writes(None);
        assert!(matches!(put(&store, 2, r(0, 1)), Err(WriteError::Degraded)));
        assert!(matches!(store.sync(), Err(WriteError::Degraded)));
        assert_eq!(whole(&store, 1, r(0, MIB)), Some(content(1, 0, r(0, MIB))));
        drop(store);
        let (store, _) = open(&Arc::new(disk.reopened()), 8 * MIB).unwrap();
        assert!(!store.stats().degraded);
        assert_eq!(whole(&store, 1, r(0, MIB)), Some(content(1, 0, r(0, MIB))));
    }
}

#[test]
fn what_is_forgotten_while_degraded_stays_forgotten() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, MIB)).unwrap();
    store.sync().unwrap();
    disk.fail_writes(Some(File::Data));
    assert!(put(&store, 2, r(0, 1)).and_then(|()| store.sync()).is_err());
    assert!(store.forget(1.into()));
    let (store, _) = open(&Arc::new(disk.crash(&mut Random(1))), 8 * MIB).unwrap();
    assert!(store.objects().is_empty());
}

#[test]
fn a_superblock_survives_one_bad_copy_and_not_two() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, 10)).unwrap();
    drop(store);
    for copy in [0, 4096] {
        disk.edit(File::Superblock, |bytes| bytes[copy + 20] ^= 1);
        let (store, _) = open(&disk, 8 * MIB).unwrap();
        assert!(store.covers(1.into(), r(0, 10)));
    }
    disk.edit(File::Superblock, |bytes| {
        bytes[20] ^= 1;
        bytes[4096 + 20] ^= 1;
    });
    let why = open(&disk, 8 * MIB).unwrap_err();
    assert!(matches!(why, OpenError::CorruptSuperblock { .. }));
    assert!(why.to_string().contains("remove this directory"));
}

#[test]
fn another_size_keeps_what_still_fits() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, 8 * MIB)).unwrap();
    drop(store);
    let (store, _) = open(&disk, 16 * MIB).unwrap();
    assert_eq!(whole(&store, 1, r(0, 8 * MIB)), Some(content(1, 0, r(0, 8 * MIB))));
    put(&store, 2, r(0, 8 * MIB)).unwrap();
    assert_eq!((store.stats().groups, store.stats().capacity_bytes), (16, 16 * MIB));
    drop(store);
    let (store, _) = open(&disk, 12 * MIB + 5).unwrap();
    assert_eq!(store.stats().held_bytes, 12 * MIB);
    assert_eq!(disk.len(File::Data).unwrap(), 12 * MIB);
    drop(store);
    // What lay past the end does not come back when the store grows again.
    let (store, recovery) = open(&disk, 16 * MIB).unwrap();
    assert_eq!((recovery.bytes, recovery.dropped_records), (12 * MIB, 0));
    assert_eq!(store.verify(&mut |_, _| ControlFlow::Continue(())).bad_segments, 0);
}

#[test]
fn a_disk_too_small_says_how_much_is_missing() {
    let disk = Arc::new(FaultDisk::new());
    disk.limit_space(10 * MIB);
    let why = open(&disk, 16 * MIB).unwrap_err();
    assert!(matches!(why, OpenError::DiskFull { needed_bytes, .. } if needed_bytes == 16 * MIB));
    open(&disk, 8 * MIB).unwrap();
}

#[test]
fn capacity_bounds_are_exact() {
    let refused = |capacity| {
        matches!(open(&Arc::new(FaultDisk::new()), capacity), Err(OpenError::Capacity { .. }))
    };
    assert!(refused(0) && refused(8 * MIB - 1) && !refused(8 * MIB) && refused((64 << 40) + 1));
}

#[test]
fn bounds_of_reads_and_writes_are_exact() {
    let (store, _) = open(&Arc::new(FaultDisk::new()), 8 * MIB).unwrap();
    let max = weir_store::READ_BYTES_MAX;
    assert!(store.read(1.into(), r(0, max)).is_ok());
    let long = store.read(1.into(), r(0, max + 1)).unwrap_err();
    assert_eq!(long, ReadError::TooLong { len_bytes: max + 1, max_bytes: max });
    assert_eq!(whole(&store, 1, r(7, 7)), Some(Bytes::new()));
    let last = Bytes::from_static(b"last");
    let past = store.write(1.into(), u64::MAX - 3, std::slice::from_ref(&last));
    assert!(matches!(past, Err(WriteError::OutOfRange)));
    store.write(1.into(), u64::MAX - 4, std::slice::from_ref(&last)).unwrap();
    assert_eq!(whole(&store, 1, r(u64::MAX - 4, u64::MAX)), Some(last));
    store.write(2.into(), 0, &[]).unwrap();
    store.sync().unwrap();
    assert_eq!(store.stats().objects, 1);
}

#[test]
fn the_group_used_longest_ago_goes_first() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    for object in 0..8 {
        put(&store, object, r(0, MIB)).unwrap();
    }
    assert!(whole(&store, 0, r(0, 100)).is_some());
    // Asking whether it is there is no use of it.
    assert!(store.covers(1.into(), r(0, 100)));
    put(&store, 8, r(0, MIB)).unwrap();
    let held: Vec<_> = (0..9u128).filter(|o| store.covers((*o).into(), r(0, 100))).collect();
    assert_eq!(held, [0, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(store.stats().evicted_bytes, MIB);
    assert_eq!(store.stats().full_refusals, 0);
}

#[test]
fn descriptions_are_kept_with_their_objects() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    let said =
        Description { app: "bittorrent".into(), name: "ä".repeat(200), size_bytes: Some(7) };
    store.describe(1.into(), said.clone());
    assert!(store.objects().is_empty(), "an object without bytes is not held");
    put(&store, 1, r(0, 5)).unwrap();
    put(&store, 2, r(0, 5)).unwrap();
    let cut = Description { name: "ä".repeat(127), ..said };
    store.sync().unwrap();
    let (store, _) = open(&Arc::new(disk.crash(&mut Random(1))), 8 * MIB).unwrap();
    let objects = store.objects();
    let of = |id: u128| objects.iter().find(|o| o.object == ObjectId::from(id)).unwrap();
    assert_eq!(of(1).description.as_ref(), Some(&cut));
    assert_eq!((of(1).bytes_held, of(1).segments), (5, 1));
    assert_eq!(of(2).description, None);
}

/// Any one byte of journal and checkpoints may be wrong: the store opens, and what
/// it serves is right. What was forgotten is not part of this: a disk that changes
/// synced bytes may undo it.
#[test]
fn damage_to_journal_or_checkpoint_costs_bytes_but_no_truth() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    for object in 0..4 {
        put(&store, object, r(1000, 200_000)).unwrap();
    }
    drop(store);
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    for object in 4..8 {
        put(&store, object, r(1000, 200_000)).unwrap();
        store.sync().unwrap();
    }
    std::mem::forget(store);
    for file in [File::Journal, File::Checkpoint0, File::Checkpoint1] {
        let len = disk.contents(file).len();
        for at in (0..len).step_by(97) {
            let copy = Arc::new(disk.reopened());
            copy.edit(file, |bytes| bytes[at] ^= 1 << (at % 8));
            let (store, recovery) = open(&copy, 8 * MIB).unwrap();
            assert!(recovery.dropped_records > 0 || recovery.objects == 8, "{file:?} {at}");
            for object in 0..8 {
                let read = store.read(object.into(), r(0, 300_000)).unwrap();
                for (from, bytes) in read.parts {
                    let range = ByteRange::at(from, bytes.len() as u64).unwrap();
                    assert_eq!(bytes, content(object, 0, range));
                }
            }
        }
    }
}

#[test]
fn garbage_in_place_of_journal_and_checkpoints_is_an_empty_cache() {
    let disk = Arc::new(FaultDisk::new());
    let (store, _) = open(&disk, 8 * MIB).unwrap();
    put(&store, 1, r(0, MIB)).unwrap();
    drop(store);
    let mut random = Random(3);
    for file in [File::Journal, File::Checkpoint0, File::Checkpoint1] {
        let noise: Vec<u8> = (0..10_000).map(|_| random.next() as u8).collect();
        disk.edit(file, |bytes| *bytes = noise);
    }
    let (store, recovery) = open(&disk, 8 * MIB).unwrap();
    assert!(recovery.dropped_records >= 3 && recovery.objects == 0);
    put(&store, 1, r(0, MIB)).unwrap();
    drop(store);
    let (store, recovery) = open(&disk, 8 * MIB).unwrap();
    assert_eq!((recovery.dropped_records, recovery.bytes), (0, MIB));
    assert!(store.covers(1.into(), r(0, MIB)));
}

#[test]
fn real_files_hold_what_was_written_and_lock_out_a_second_store() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(dir.path().join("cache"), 8 * MIB);
    let (store, _) = Store::open(&options).unwrap();
    put(&store, 1, r(5, 3 * MIB)).unwrap();
    assert!(matches!(Store::open(&options), Err(OpenError::InUse { .. })));
    drop(store);
    let (store, recovery) = Store::open(&options).unwrap();
    assert_eq!((recovery.bytes, recovery.dropped_records), (3 * MIB - 5, 0));
    assert_eq!(whole(&store, 1, r(5, 3 * MIB)), Some(content(1, 0, r(5, 3 * MIB))));
    drop(store);
    // A data file that somebody cut is misses, not errors.
    let data = std::fs::OpenOptions::new().write(true).open(options.dir.join("data")).unwrap();
    data.set_len(MIB).unwrap();
    let (store, _) = Store::open(&options).unwrap();
    let holes = store.read(1.into(), r(5, 3 * MIB)).unwrap().holes.bytes();
    assert!((2 * MIB - 5..=2 * MIB).contains(&holes), "{holes}");
}

#[test]
fn a_capacity_no_disk_has_is_refused_and_takes_no_space() {
    let dir = tempfile::tempdir().unwrap();
    let why = Store::open(&Options::new(dir.path(), 60 << 40)).unwrap_err();
    let text = why.to_string();
    assert!(matches!(why, OpenError::DiskFull { .. }), "{why:?}");
    assert!(text.contains("lower the capacity"), "{text}");
    assert_eq!(std::fs::metadata(dir.path().join("data")).unwrap().len(), 0);
}
