//! Round trips, and garbage: a decoder says no, and never panics.

use proptest::prelude::*;
use weir_ranges::ObjectId;

use super::*;
use crate::Description;
use crate::units::Window;

fn group() -> impl Strategy<Value = Entry> {
    let runs = proptest::collection::vec((0u8..64, 0u16..200, 1u16..200, any::<u32>()), 0..20);
    let numbers = (any::<u128>(), 0..1u64 << 44, any::<u32>(), any::<u32>());
    let window = (0u8..64, 0u8..64).prop_map(|(a, b)| Window::over(a.min(b), a.max(b)));
    (numbers, any::<u64>(), window, runs).prop_map(|(numbers, present, window, mut runs)| {
        let len = u32::from(window.class().segments());
        let mut state = GroupState {
            object: ObjectId::from(numbers.0),
            group: numbers.1,
            slot: numbers.2 / len * len,
            window,
            stamp: numbers.3,
            // Never nothing at all.
            present: present & window.mask() | 1 << window.first(),
            runs: Vec::new(),
        };
        runs.sort_unstable();
        runs.dedup_by_key(|run| run.0);
        for (segment, start, len, mark) in runs {
            if window.mask() & !state.present & 1 << segment != 0 {
                state.runs.push((segment, Run { start, end: start + len, mark }));
            }
        }
        Entry::Group(state)
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        4 => group(),
        1 => any::<(u128, u64)>().prop_map(|(id, group)| Entry::Drop(id.into(), group)),
        1 => any::<u128>().prop_map(|id| Entry::Forget(id.into())),
        1 => (any::<u128>(), "[a-zä]{0,100}", "\\PC{0,60}", any::<Option<u64>>()).prop_map(
            |(id, app, name, size_bytes)| {
                Entry::Describe(id.into(), Description { app, name, size_bytes })
            }
        ),
    ]
}

fn journal(entries: &[Entry], generation: u64) -> Vec<u8> {
    let mut writer = FrameWriter::new(FrameKind::Journal, generation, 3, 5);
    for entry in entries {
        writer.entry(|bytes| entry.encode(bytes));
    }
    writer.take()
}

/// The entries of all whole frames, and how many stretches were damaged.
fn entries(bytes: &[u8], generation: u64) -> (Vec<Entry>, u64) {
    let mut reader = FrameReader::new(FrameKind::Journal, generation, bytes);
    let mut all = Vec::new();
    for frame in reader.by_ref() {
        let mut fields = Fields(frame.payload);
        for _ in 0..frame.entries {
            all.extend(Entry::decode(&mut fields));
        }
    }
    (all, reader.damaged())
}

proptest! {
    #[test]
    fn entries_round_trip_through_frames(want in proptest::collection::vec(entry(), 0..150)) {
        let bytes = journal(&want, 9);
        prop_assert_eq!(entries(&bytes, 9), (want, 0));
        let (none, damaged) = entries(&bytes, 8);
        prop_assert!(none.is_empty() && damaged <= 1, "another store's frames are none");
    }

    /// A torn tail takes nothing else with it; nor does damage in the middle.
    #[test]
    fn what_is_whole_is_read(
        want in proptest::collection::vec(entry(), 1..120),
        cut: prop::sample::Index,
        flip: prop::sample::Index,
    ) {
        let bytes = journal(&want, 9);
        let (found, _) = entries(&bytes[..cut.index(bytes.len())], 9);
        prop_assert!(want.starts_with(&found));
        let mut flipped = bytes.clone();
        flipped[flip.index(bytes.len())] ^= 4;
        let (found, damaged) = entries(&flipped, 9);
        prop_assert!(damaged >= 1 && found.iter().all(|entry| want.contains(entry)));
    }

    #[test]
    fn garbage_is_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        magic in prop::sample::select(vec![&b""[..], b"WJNL", b"WCKP", b"WEIRSTOR", b"WEIRCKPT"]),
    ) {
        let bytes = [magic, &bytes].concat();
        prop_assert!(entries(&bytes, 0).0.is_empty());
        prop_assert!(Superblock::decode(&bytes).is_err());
        prop_assert_eq!(CheckpointHeader::decode(&bytes), None);
        let mut fields = Fields(&bytes);
        while Entry::decode(&mut fields).is_some() {}
    }

    /// Even with a right checksum, what makes no sense is refused or round-trips.
    #[test]
    fn a_decoded_entry_encodes_to_itself(kind in 0u8..6, bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let bytes = [&[kind][..], &bytes].concat();
        let mut fields = Fields(&bytes);
        if let Some(entry) = Entry::decode(&mut fields) {
            let mut again = Vec::new();
            entry.encode(&mut again);
            prop_assert_eq!(Entry::decode(&mut Fields(&again)), Some(entry));
        }
    }

    #[test]
    fn sealed_blocks_of_garbage_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let block = seal(&bytes);
        prop_assert!(Superblock::decode(&[&block[..], &block].concat()).is_err());
        prop_assert_eq!(CheckpointHeader::decode(&block), None);
    }
}

#[test]
fn the_newer_superblock_counts_and_a_short_file_is_none() {
    let old = Superblock { clusters: 8, generation: 3, serial: 1 };
    let new = Superblock { clusters: 9, serial: 2, ..old };
    let both = |a: &Superblock, b: &Superblock| [a.encode(), b.encode()].concat();
    assert_eq!(Superblock::decode(&both(&old, &new)), Ok(new));
    assert_eq!(Superblock::decode(&both(&new, &old)), Ok(new));
    assert_eq!(Superblock::decode(&old.encode()), Ok(old), "its creation was cut");
    assert_eq!(Superblock::decode(&old.encode()[..4000]), Err(SuperblockFault::Absent));
    assert_eq!(Superblock::decode(&[]), Err(SuperblockFault::Absent));
    assert_eq!(Superblock::decode(&[0; 8192]), Err(SuperblockFault::Damaged));
}

#[test]
fn another_version_is_named() {
    let mut fields = b"WEIRSTOR".to_vec();
    fields.extend(7u32.to_le_bytes());
    fields.extend([0; 32]);
    let block = seal(&fields);
    let found = Superblock::decode(&[&block[..], &block].concat());
    assert_eq!(found, Err(SuperblockFault::OtherVersion(7)));
}

#[test]
fn runs_that_no_index_can_hold_are_refused() {
    let run = |start, end| Run { start, end, mark: 0 };
    let bad = [
        vec![(0, run(5, 5))],
        vec![(0, run(6, 5))],
        vec![(0, run(0, 16384))],
        vec![(0, run(0, 16385))],
        vec![(64, run(0, 1))],
        vec![(1, run(0, 1))],
        vec![(2, run(0, 1)), (0, run(0, 1))],
        vec![(2, run(0, 1)), (2, run(1, 2))],
        vec![(2, run(0, 3)), (2, run(2, 5))],
        (0..17).map(|i| (2, run(i * 10, i * 10 + 1))).collect(),
    ];
    let encoded = |runs: Vec<(u8, Run)>| encode(2, 0, runs);
    for runs in bad {
        let bytes = encoded(runs.clone());
        assert_eq!(Entry::decode(&mut Fields(&bytes)), None, "{runs:?}");
    }
    let most = encoded((0..16).map(|i| (2, run(i * 10, i * 10 + 1))).collect());
    assert!(Entry::decode(&mut Fields(&most)).is_some());
}

#[test]
fn places_that_no_index_can_hold_are_refused() {
    let decoded = |present, slot| Entry::decode(&mut Fields(&encode(present, slot, Vec::new())));
    assert!(decoded(1 << 63, 64).is_some());
    assert_eq!(decoded(1, 63), None, "not where a cluster begins");
    assert_eq!(decoded(0, 64), None, "nothing held");
    let mut four = encode(1, 4, Vec::new());
    assert_eq!(four[29], Window::GROUP.code());
    four[29] = Window::over(4, 7).code();
    assert_eq!(Entry::decode(&mut Fields(&four)), None, "segment 0 is not in the window");
    four[29] = Window::over(0, 3).code();
    assert!(Entry::decode(&mut Fields(&four)).is_some());
    four[29] = 0b0100_0001;
    assert_eq!(Entry::decode(&mut Fields(&four)), None, "no such window");
}

/// A group of object 1, in one piece.
fn encode(present: u64, slot: u32, runs: Vec<(u8, Run)>) -> Vec<u8> {
    let object = ObjectId::from(1);
    let window = Window::GROUP;
    let state = GroupState { object, group: 0, slot, window, stamp: 0, present, runs };
    let mut bytes = Vec::new();
    Entry::Group(state).encode(&mut bytes);
    bytes
}
