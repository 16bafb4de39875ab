//! That the disk of faults does what it says, for a test that rests on a fault that
//! never happens proves nothing.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use weir_store::disk::{Disk, EngineKind, File, Transfer};
use weir_store::frame::FramePool;

use crate::faulty::{Faults, FaultyDisk, Lie};
use crate::random::Random;

const SECTORS: usize = 4;
const LEN: usize = SECTORS * 512;

/// A disk with zeros that are durable.
fn zeros() -> FaultyDisk {
    let disk = FaultyDisk::new();
    disk.allocate(File::Data, LEN as u64).unwrap();
    disk.sync(File::Data).unwrap();
    disk
}

/// What 200 crashes leave after each of `writes` filled the file, as the number in
/// each sector; `None` for a sector of several.
fn outcomes(writes: &[u8], faults: Faults) -> BTreeSet<[Option<u8>; SECTORS]> {
    let disk = zeros();
    for number in writes {
        disk.write_at(File::Data, 0, &[*number; LEN]).unwrap();
    }
    let crash = |seed| {
        let bytes = disk.crash(&mut Random(seed), faults).contents(File::Data);
        assert_eq!(bytes.len(), LEN);
        std::array::from_fn(|n| {
            let sector = &bytes[n * 512..][..512];
            sector.iter().all(|byte| *byte == sector[0]).then_some(sector[0])
        })
    };
    (0..200).map(crash).collect()
}

fn whole(number: u8) -> [Option<u8>; SECTORS] {
    [Some(number); SECTORS]
}

#[test]
fn without_faults_a_crash_loses_nothing() {
    assert_eq!(outcomes(&[1, 2], Faults::default()), BTreeSet::from([whole(2)]));
}

#[test]
fn drops_tears_reorders_and_duplicates_between_barriers() {
    let none = Faults::default();
    let dropped = outcomes(&[1], Faults { drop: 50, ..none });
    assert_eq!(dropped, BTreeSet::from([whole(0), whole(1)]));
    let torn = outcomes(&[1], Faults { tear: 100, ..none });
    assert_eq!(torn.len(), 1 << SECTORS, "any of the sectors, and each whole");
    assert!(torn.iter().flatten().all(|sector| matches!(sector, Some(0 | 1))));
    let reordered = outcomes(&[1, 2, 3], Faults { reorder: 100, ..none });
    assert_eq!(reordered, BTreeSet::from([whole(1), whole(2), whole(3)]));
    let doubled = outcomes(&[1, 2], Faults { duplicate: 50, ..none });
    assert_eq!(doubled, BTreeSet::from([whole(1), whole(2)]), "the old one after the new");
    let corrupt = outcomes(&[1], Faults { corrupt: 100, ..none });
    assert!(corrupt.iter().all(|sectors| sectors.iter().filter(|s| s.is_none()).count() == 1));
}

#[test]
fn what_was_synced_survives_every_power_cut() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let disk = zeros();
        disk.write_at(File::Data, 0, &[1; LEN]).unwrap();
        disk.sync(File::Data).unwrap();
        disk.write_at(File::Data, 512, &[2; 512]).unwrap();
        disk.set_len(File::Journal, 9).unwrap();
        let faults = Faults::of_a_power_cut(&mut random);
        let after = disk.crash(&mut random, faults).contents(File::Data);
        assert!(after[..512].iter().chain(&after[1024..]).all(|byte| *byte == 1), "{seed}");
        assert!(matches!(after[512..1024], [1, .., 1] | [2, .., 2]));
    }
}

#[test]
fn calls_fail_where_they_are_told_to() {
    let disk = zeros();
    disk.fail_reads(File::Data, 1000..1001);
    let mut buf = [0; 500];
    assert!(disk.read_at(File::Data, 501, &mut buf).is_err());
    disk.read_at(File::Data, 500, &mut buf).unwrap();
    disk.read_at(File::Data, 1001, &mut buf).unwrap();
    let past = disk.read_at(File::Data, LEN as u64 - 499, &mut buf).unwrap_err();
    assert_eq!(past.kind(), ErrorKind::UnexpectedEof);

    disk.fail_writes(Some(File::Journal));
    disk.fail_syncs(Some(File::Data));
    assert!(disk.write_at(File::Journal, 0, b"x").is_err());
    assert!(disk.sync(File::Data).is_err());
    disk.sync(File::Journal).unwrap();
    disk.fail_syncs(None);
    disk.sync(File::Data).unwrap();

    disk.limit_space(LEN as u64);
    disk.write_at(File::Data, LEN as u64 - 1, b"x").unwrap();
    let full = disk.write_at(File::Data, LEN as u64, b"x").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    let full = disk.allocate(File::Data, LEN as u64 + 1).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);

    let disk = FaultyDisk::new().cut_at(2);
    disk.write_at(File::Data, 0, b"x").unwrap();
    disk.sync(File::Data).unwrap();
    assert!(disk.write_at(File::Data, 0, b"y").is_err() && disk.sync(File::Data).is_err());
    assert_eq!((disk.calls(), disk.contents(File::Data)), (2, b"x".to_vec()));
}

#[test]
fn a_lie_is_told_once_and_no_sync_undoes_it() {
    let told = |lie| {
        let disk = zeros();
        disk.lie(lie);
        disk.write_at(File::Data, 0, &[1; 512]).unwrap();
        disk.write_at(File::Data, 1024, &[2; 512]).unwrap();
        disk.sync(File::Data).unwrap();
        let after = disk.crash(&mut Random(1), Faults::default()).contents(File::Data);
        assert_eq!(after, disk.reopened().contents(File::Data));
        assert!(after[1024..1536].iter().all(|byte| *byte == 2));
        [after[0], after[7], after[512], after[1023]]
    };
    assert_eq!(told(Lie::Lose), [0, 0, 0, 0]);
    assert_eq!(told(Lie::Misplace(512)), [0, 0, 1, 1]);
    assert_eq!(told(Lie::Damage(7)), [1, 0x11, 0, 0]);
    let disk = zeros();
    disk.edit(File::Data, 9, |byte| *byte ^= 3);
    assert_eq!(disk.crash(&mut Random(1), Faults::default()).contents(File::Data)[9], 3);
}

#[test]
fn a_stall_holds_every_call_until_it_is_released() {
    let disk = Arc::new(zeros());
    disk.stall();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| disk.write_at(File::Data, 0, b"late").unwrap());
        let sync = scope.spawn(|| disk.sync(File::Journal).unwrap());
        while disk.waiting() < 2 {
            std::thread::yield_now();
        }
        assert!(!write.is_finished() && !sync.is_finished());
        assert_eq!(disk.calls(), 2, "those that made it");
        disk.release();
    });
    assert_eq!((disk.waiting(), disk.calls()), (0, 4));
    assert_eq!(&disk.contents(File::Data)[..4], b"late");
}

#[test]
fn a_disk_of_six_verbs_does_transfers_one_by_one() {
    let disk = FaultyDisk::new();
    disk.allocate(File::Data, 4 << 12).unwrap();
    let calls = disk.calls();
    let transfer = |block: u64, byte: u8| {
        let mut frame = FramePool::heap(8192);
        frame.fill(byte);
        Transfer { offset: block << 12, frame, range: 4096..8192 }
    };
    let mut batch: Vec<_> = (0..4).map(|n| transfer(n, n as u8 + 1)).collect();
    batch[2].offset += 1;
    let done = disk.write_batch(batch);
    let kinds = |done: &[(Transfer, std::io::Result<()>)]| -> Vec<_> {
        done.iter().map(|(_, result)| result.as_ref().err().map(std::io::Error::kind)).collect()
    };
    assert_eq!(kinds(&done), [None, None, Some(ErrorKind::InvalidInput), None]);
    assert_eq!(disk.calls(), calls + 3);
    disk.fail_reads(File::Data, 0..1);
    let done = disk.read_batch(vec![transfer(3, 9), transfer(0, 9), transfer(4, 9)]);
    assert_eq!(kinds(&done), [None, Some(ErrorKind::Other), Some(ErrorKind::UnexpectedEof)]);
    assert!(done[0].0.bytes().iter().all(|byte| *byte == 4));
    assert!(done[0].0.frame[..4096].iter().all(|byte| *byte == 9), "outside of the range");
    assert_eq!(disk.engine().kind, EngineKind::Plain);
}
