//! Does the store agree with a plain vector of bytes, whatever is done in whatever
//! order, with the store opened anew in between?

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{FaultDisk, Random, content};
use bytes::Bytes;
use proptest::prelude::*;
use weir_ranges::{ByteRange, ObjectId, RangeSet};
use weir_store::{Options, Policy, Store, Tuning};

#[derive(Clone, Debug)]
enum Op {
    /// Object, version of its bytes, offset, length, where the parts are cut.
    Write(u128, u64, u64, u64, u64),
    Read(u128, u64, u64),
    Forget(u128),
    Sync,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let object = 0..3u128;
    let offset = prop_oneof![0..3u64 << 20, (0..192u64).prop_map(|s| s * 16384)];
    let len = prop_oneof![0..5000u64, Just(16384), 0..100_000u64, Just(1 << 20)];
    let version = prop_oneof![6 => Just(0u64), 1 => Just(1u64)];
    prop_oneof![
        8 => (object.clone(), version, offset.clone(), len.clone(), 0..100_000u64)
            .prop_map(|(o, v, at, len, cut)| Op::Write(o, v, at, len, cut)),
        6 => (object.clone(), offset, len).prop_map(|(o, at, len)| Op::Read(o, at, len)),
        1 => object.prop_map(Op::Forget),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

fn open(disk: Arc<FaultDisk>, capacity: u64) -> Store {
    let (memory_bytes, policy, sync_interval) = (2 << 20, Policy::Lru, Duration::ZERO);
    let options = Options { memory_bytes, policy, sync_interval, ..Options::new("fake", capacity) };
    let tuning = Tuning { dirty_bytes_max: 1 << 20, journal_bytes_max: 3000 };
    let (store, recovery) = Store::open_on(disk, &options, tuning).unwrap();
    assert_eq!(recovery.dropped_records, 0, "an orderly stop leaves nothing torn");
    store
}

/// What an object should hold.
struct Plain {
    bytes: Vec<u8>,
    held: RangeSet,
}

type Model = BTreeMap<u128, Plain>;

impl Plain {
    fn of(&self, range: ByteRange) -> &[u8] {
        &self.bytes[range.start() as usize..range.end() as usize]
    }

    /// Where bytes differ from those held, all else of their segment goes.
    fn write(&mut self, range: ByteRange, data: &[u8]) {
        for segment in range.start() / 16384..range.end().div_ceil(16384) {
            let segment = ByteRange::at(segment * 16384, 16384).unwrap();
            let Some(part) = range.intersection(segment) else { continue };
            let from = (part.start() - range.start()) as usize;
            let new = &data[from..from + part.len() as usize];
            let differs = self.of(part).iter().zip(new).enumerate().any(|(i, (old, new))| {
                let at = ByteRange::at(part.start() + i as u64, 1).unwrap();
                old != new && self.held.contains(at)
            });
            if differs {
                self.held.remove(segment);
            }
        }
        self.bytes[range.start() as usize..range.end() as usize].copy_from_slice(data);
        self.held.insert(range);
    }
}

/// Compares a read with the model. `all` demands that nothing is missing but the
/// parts of segments with too many runs.
fn check(store: &Store, model: &Model, object: u128, range: ByteRange, all: bool) {
    let id = ObjectId::from(object);
    let covers = store.covers(id, range);
    let read = store.read(id, range).unwrap();
    assert_eq!(covers, read.holes.is_empty(), "covers agrees with read");
    let mut next = range.start();
    for (at, bytes) in &read.parts {
        assert!(*at >= next && !bytes.is_empty(), "parts ascend");
        next = at + bytes.len() as u64;
        let part = ByteRange::new(*at, next).unwrap();
        let plain = model.get(&object).expect("something of it was written");
        assert!(plain.held.contains(part), "{part} of {object} came back");
        assert!(plain.of(part) == bytes, "wrong bytes of {object} in {part}");
    }
    let parts: u64 = read.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert_eq!(parts + read.holes.bytes(), range.len(), "parts and holes are the range");
    if let (true, Some(plain)) = (all, model.get(&object)) {
        for hole in read.holes.iter() {
            let lost = hole.len() - plain.held.holes(hole).bytes();
            assert_eq!(lost, 0, "held bytes of {object} in {hole}");
        }
    }
}

fn agrees(ops: Vec<Op>, capacity: u64, all: bool) {
    let mut disk = Arc::new(FaultDisk::new());
    let mut store = open(disk.clone(), capacity);
    let mut model = Model::new();
    for op in ops {
        match op {
            Op::Write(object, version, at, len, cut) => {
                let range = ByteRange::at(at, len).unwrap();
                let data = content(object, version, range);
                let cut = cut.min(len) as usize;
                store.write(object.into(), at, &[data.slice(..cut), data.slice(cut..)]).unwrap();
                let none = || Plain { bytes: vec![0; 5 << 20], held: RangeSet::new() };
                model.entry(object).or_insert_with(none).write(range, &data);
                check(&store, &model, object, range, false);
            }
            Op::Read(object, at, len) => {
                check(&store, &model, object, ByteRange::at(at, len).unwrap(), all);
            }
            Op::Forget(object) => {
                let had = model.remove(&object).is_some_and(|plain| !plain.held.is_empty());
                let did = store.forget(object.into());
                assert!(!all || did == had, "says whether there was any");
            }
            Op::Sync => store.sync().unwrap(),
            Op::Reopen => {
                store.sync().unwrap();
                let (held, objects) = (store.stats().held_bytes, store.stats().objects);
                drop(store);
                disk = Arc::new(disk.reopened());
                store = open(disk.clone(), capacity);
                assert_eq!((store.stats().held_bytes, store.stats().objects), (held, objects));
            }
        }
    }
    store.sync().unwrap();
    let held: u64 = store.objects().iter().map(|o| o.bytes_held).sum();
    assert_eq!(held, store.stats().held_bytes);
    for object in 0..3 {
        for group in 0..5 {
            let range = ByteRange::at(group << 20, 1 << 20).unwrap();
            check(&store, &model, object, range, all);
        }
    }
    let report = store.verify(&mut |done, total| {
        assert!(done <= total);
        ControlFlow::Continue(())
    });
    assert_eq!((report.bytes, report.bad_segments), (held, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// With room for everything, everything is there: no byte is lost unless the
    /// rule about differing bytes drops its segment.
    #[test]
    fn agrees_with_a_byte_vector(ops in proptest::collection::vec(op(), 1..40)) {
        agrees(ops, 32 << 20, true);
    }

    /// With room for a part, what is there is right.
    #[test]
    fn agrees_with_a_byte_vector_while_evicting(ops in proptest::collection::vec(op(), 1..60)) {
        agrees(ops, 8 << 20, false);
    }
}

/// Two writers, a reader and one who forgets, at once, on the same objects: nothing
/// wrong is read and nothing is left pinned.
#[test]
fn threads_never_read_a_wrong_byte() {
    let disk = Arc::new(FaultDisk::new());
    let (policy, sync_interval) = (Policy::Lru, Duration::from_millis(1));
    let options = Options { policy, sync_interval, ..Options::new("fake", 8 << 20) };
    let tuning = Tuning { dirty_bytes_max: 1 << 20, journal_bytes_max: 3000 };
    let (store, _) = Store::open_on(disk, &options, tuning).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..300 {
                    let object = u128::from(random.below(4));
                    let at = random.below(2 << 20);
                    let range = ByteRange::at(at, random.below(200_000)).unwrap();
                    match (seed, random.below(10)) {
                        (0, 0) => drop(store.forget(object.into())),
                        (0 | 1, _) => {
                            let data: Bytes = content(object, 0, range);
                            store.write(object.into(), at, &[data]).unwrap();
                        }
                        _ => {
                            let read = store.read(object.into(), range).unwrap();
                            for (at, bytes) in read.parts {
                                let part = ByteRange::at(at, bytes.len() as u64).unwrap();
                                assert_eq!(bytes, content(object, 0, part));
                            }
                        }
                    }
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!((stats.checksum_failures, stats.read_errors, stats.write_errors), (0, 0, 0));
    for object in 0..4u128 {
        store.forget(object.into());
    }
    let stats = store.stats();
    assert_eq!((stats.held_bytes, stats.groups, stats.objects, stats.segments), (0, 0, 0, 0));
    // All of the space can be had again.
    let range = ByteRange::at(0, 8 << 20).unwrap();
    store.write(9.into(), 0, &[content(9, 0, range)]).unwrap();
    assert_eq!((store.stats().groups, store.stats().used_bytes), (8, 8 << 20));
}
