//! After a cut at any write, does the store open, is all that it serves whole, and
//! is what was durable still there?
//!
//! A script of operations runs once to count the calls that change the disk. Then,
//! for every one of them, it runs on a disk that dies there; what was not synced is
//! dropped, torn and reordered by a seed; the store is opened again and compared
//! with what the script had written. The whole is done twice over: a second crash
//! follows the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{FaultDisk, Random, content};
use weir_ranges::{ByteRange, ObjectId, RangeSet};
use weir_store::{Description, Options, Policy, Store, Tuning};

/// What the script knows of one object.
#[derive(Debug, Default, Clone)]
struct Known {
    version: u64,
    /// Of which version bytes may be served: more than one while a change is under
    /// way.
    allowed: Vec<u64>,
    /// Written in this version.
    written: RangeSet,
    /// Durable, and not seen to be gone since.
    durable: RangeSet,
}

impl Known {
    /// Whether each of `bytes` is of a version that may be served.
    fn allows(&self, object: u128, range: ByteRange, bytes: &[u8]) -> bool {
        let versions: Vec<_> =
            self.allowed.iter().map(|&version| content(object, version, range)).collect();
        if versions.iter().any(|version| version == bytes) {
            return true;
        }
        (0..bytes.len()).all(|i| versions.iter().any(|version| version[i] == bytes[i]))
    }
}

#[derive(Debug, Default, Clone)]
struct Oracle(BTreeMap<u128, Known>);

impl Oracle {
    /// Everything that is served is something that was written and not forgotten;
    /// everything durable is served.
    fn check(&self, store: &Store, context: &str) {
        for (&object, known) in &self.0 {
            for group in 0..GROUPS {
                let range = ByteRange::at(group << 20, 1 << 20).unwrap();
                let read = store.read(ObjectId::from(object), range).unwrap();
                for (at, bytes) in &read.parts {
                    let range = ByteRange::at(*at, bytes.len() as u64).unwrap();
                    let right = known.allows(object, range, bytes);
                    assert!(right, "{context}: wrong bytes of {object} in {range}");
                }
                let missing: u64 = read
                    .holes
                    .iter()
                    .map(|hole| hole.len() - known.durable.holes(hole).bytes())
                    .sum();
                assert_eq!(missing, 0, "{context}: durable bytes of {object} {range} are gone");
            }
        }
    }

    /// Takes out of `durable` what the store no longer holds.
    fn note_evictions(&mut self, store: &Store) {
        for (&object, known) in &mut self.0 {
            let gone: Vec<_> = pages(&known.durable)
                .filter(|page| !store.covers(ObjectId::from(object), *page))
                .collect();
            for page in gone {
                known.durable.remove(page);
            }
        }
    }
}

/// The ranges of `set`, cut into 4 KiB.
fn pages(set: &RangeSet) -> impl Iterator<Item = ByteRange> {
    let cut = |range: ByteRange| {
        let first = range.start() / 4096;
        (first..range.end().div_ceil(4096))
            .filter_map(move |page| range.intersection(ByteRange::at(page * 4096, 4096)?))
    };
    set.iter().flat_map(cut)
}

fn options() -> Options {
    // Little memory is made quickly, and is reused soon.
    let (memory_bytes, policy) = (1 << 20, Policy::Lru);
    let sync_interval = Duration::ZERO;
    Options { memory_bytes, policy, sync_interval, ..Options::new("fake", 8 << 20) }
}

/// A journal bound so low that it is folded every few commits.
fn tuning() -> Tuning {
    Tuning { dirty_bytes_max: 2 << 20, journal_bytes_max: 1500 }
}

/// Runs steps of the script made by `random` until all are done or the disk dies;
/// the oracle is right in both cases.
fn run(disk: &Arc<FaultDisk>, oracle: &mut Oracle, random: &mut Random, steps: u64) {
    let Ok((store, _)) = Store::open_on(disk.clone(), &options(), tuning()) else {
        assert!(disk.is_cut(), "only a dead disk keeps a store from opening");
        return;
    };
    oracle.check(&store, "opened");
    let mut evicted = 0;
    for _ in 0..steps {
        step(&store, oracle, random);
        if store.stats().evicted_bytes != evicted {
            evicted = store.stats().evicted_bytes;
            oracle.note_evictions(&store);
        }
        if disk.is_cut() {
            break;
        }
    }
    // What is still gathered may need the space of something durable. The sync runs
    // into the dead disk, or counts for the next run.
    drop(store.sync());
    oracle.note_evictions(&store);
    drop(store);
}

fn step(store: &Store, oracle: &mut Oracle, random: &mut Random) {
    let object = u128::from(random.below(OBJECTS));
    let id = ObjectId::from(object);
    let known = oracle.0.entry(object).or_default();
    match random.below(20) {
        0..=11 => {
            let sizes = [700, 16384, 40_000, 131_072, 1_048_576];
            let mut start = random.below(GROUPS << 20);
            if random.below(3) > 0 {
                start &= !16383;
            }
            let len = sizes[random.below(5) as usize].min((GROUPS << 20) - start);
            let range = ByteRange::at(start, len).unwrap();
            if !known.allowed.contains(&known.version) {
                known.allowed.push(known.version);
            }
            let data = content(object, known.version, range);
            let (left, right) = (data.slice(..data.len() / 3), data.slice(data.len() / 3..));
            let evicted = store.stats().evicted_bytes;
            if store.write(id, start, &[left, right]).is_ok() {
                known.written.insert(range);
            }
            // A range may be evicted, or dropped for bytes of an older version, and
            // written anew in one call: held before and after, durable only before.
            if store.stats().evicted_bytes != evicted || known.allowed.len() > 1 {
                let segments = range.start() / 16384 * 16384..range.end().div_ceil(16384) * 16384;
                known.durable.remove(ByteRange::new(segments.start, segments.end).unwrap());
            }
        }
        12 => {
            // The same place with other bytes: old ones must not come back, new
            // ones may be there before the call returns.
            let Some(range) = known.written.iter().next() else { return };
            let segments = range.start() / 16384 * 16384..range.end().div_ceil(16384) * 16384;
            let segments = ByteRange::new(segments.start, segments.end).unwrap();
            known.version += 1;
            known.allowed.push(known.version);
            // The rest of the object stays of the old version, so all of it goes.
            known.durable = RangeSet::new();
            known.written = RangeSet::new();
            let data = content(object, known.version, segments);
            let done = store.write(id, segments.start(), &[data]).is_ok();
            if done {
                let read = store.read(id, segments).unwrap();
                for (at, bytes) in read.parts {
                    let range = ByteRange::at(at, bytes.len() as u64).unwrap();
                    assert_eq!(bytes, content(object, known.version, range), "replaced");
                }
                store.forget(id);
                if !store.stats().degraded {
                    known.allowed = Vec::new();
                }
            }
        }
        13 => {
            store.forget(id);
            known.durable = RangeSet::new();
            known.written = RangeSet::new();
            if !store.stats().degraded {
                // It has returned: nothing of this version may be seen again.
                known.version += 1;
                known.allowed = Vec::new();
            }
        }
        14 => {
            let name = format!("name {}", random.below(9));
            store.describe(id, Description { app: "test".into(), name, size_bytes: None });
        }
        15..=16 => {
            let range = ByteRange::at(random.below(GROUPS << 20), 50_000).unwrap();
            let read = store.read(id, range).unwrap();
            for (at, bytes) in read.parts {
                let range = ByteRange::at(at, bytes.len() as u64).unwrap();
                let right = known.allows(object, range, &bytes);
                assert!(right, "wrong bytes of {object} in {range} while running");
            }
        }
        _ => {
            if store.sync().is_ok() {
                for (&object, known) in &mut oracle.0 {
                    let held: Vec<_> = pages(&known.written)
                        .filter(|page| store.covers(ObjectId::from(object), *page))
                        .collect();
                    known.durable.extend_with(held);
                }
            }
        }
    }
}

trait ExtendWith {
    fn extend_with(&mut self, ranges: Vec<ByteRange>);
}

impl ExtendWith for RangeSet {
    fn extend_with(&mut self, ranges: Vec<ByteRange>) {
        for range in ranges {
            self.insert(range);
        }
    }
}

/// Runs the script of `seed` cut at `call`; says whether the cut came before its end.
fn crash_at(seed: u64, call: u64) -> bool {
    let mut oracle = Oracle::default();
    let mut random = Random(seed);
    let disk = Arc::new(FaultDisk::new().cut_at(call));
    run(&disk, &mut oracle, &mut random, STEPS);
    let cut = disk.is_cut();
    let mut faults = Random(seed ^ call.rotate_left(32));

    let disk = Arc::new(disk.crash(&mut faults));
    let context = format!("seed {seed} call {call}");
    {
        let opened = Store::open_on(disk.clone(), &options(), tuning());
        let (store, _) = opened.unwrap_or_else(|why| panic!("{context}: {why:?}"));
        assert!(!store.stats().degraded, "{context}");
        oracle.check(&store, &context);
        assert_eq!(store.stats().checksum_failures, 0, "{context}: the journal named lost bytes");
    }

    // Life goes on, and is cut again somewhere.
    let second = faults.below(40);
    let disk = Arc::new(disk.reopened().cut_at(second));
    run(&disk, &mut oracle, &mut random, STEPS / 4);
    let disk = Arc::new(disk.crash(&mut faults));
    let context = format!("{context}, then {second}");
    let opened = Store::open_on(disk, &options(), tuning());
    let (store, _) = opened.unwrap_or_else(|why| panic!("{context}: {why:?}"));
    oracle.check(&store, &context);
    cut
}

fn every_cut(seed: u64) {
    let mut call = 0;
    while crash_at(seed, call) {
        call += 1;
    }
    assert!(call > 100, "the script is long enough to prove something: {call} calls");
}

#[test]
fn opens_whole_after_a_cut_at_any_write_of_one_script() {
    every_cut(1);
}

#[test]
fn opens_whole_after_a_cut_at_any_write_of_another_script() {
    every_cut(2);
}

#[test]
fn opens_whole_after_a_cut_somewhere_in_many_scripts() {
    let mut random = Random(77);
    for seed in 100..200 {
        crash_at(seed, random.below(160));
    }
}

const OBJECTS: u64 = 5;
const GROUPS: u64 = 3;
const STEPS: u64 = 60;
