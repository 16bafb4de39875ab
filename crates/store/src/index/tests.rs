//! Pins, evictions and the life of a cluster.

use weir_ranges::{ByteRange, ObjectId};

use super::*;
use crate::format::{FrameKind, FrameWriter};

fn piece(start: u16, end: u16) -> Written {
    Written { piece: Piece { segment: 0, start, end }, crc: 7 }
}

fn claim(index: &mut Index, object: u128) -> Claim {
    index.claim(ObjectId::from(object), 0, 1)
}

/// Claims a cluster for `object` and fills a little of it.
fn put(index: &mut Index, object: u128) -> u32 {
    let Claim::Ready(cluster) = claim(index, object) else { panic!("no room for {object}") };
    index.note_written(cluster, &[piece(0, 100)]);
    index.unpin(cluster);
    cluster
}

fn commit(index: &mut Index) {
    let mut frames = FrameWriter::new(FrameKind::Journal, 0, 0, 0);
    let batch = index.take_batch(&mut frames);
    index.settle(batch);
}

fn some() -> ByteRange {
    ByteRange::new(10, 20).unwrap()
}

#[test]
fn a_store_whose_clusters_are_all_pinned_is_full() {
    let mut index = Index::new(2);
    put(&mut index, 1);
    put(&mut index, 2);
    let readers = [1, 2].map(|o| index.plan_read(o.into(), some(), 2));
    assert_eq!(claim(&mut index, 3), Claim::Full);
    for plan in readers {
        index.unpin(plan.pins[0]);
    }
    assert_eq!(claim(&mut index, 3), Claim::Reclaim);
    commit(&mut index);
    assert_eq!(claim(&mut index, 3), Claim::Ready(0));
    assert!(!index.covers(1.into(), some()) && index.covers(2.into(), some()));
}

#[test]
fn a_cluster_is_not_used_again_before_its_drop_is_durable() {
    let mut index = Index::new(1);
    assert_eq!(put(&mut index, 1), 0);
    commit(&mut index);
    assert!(index.forget(1.into()));
    assert_eq!(claim(&mut index, 2), Claim::Reclaim);
    let mut frames = FrameWriter::new(FrameKind::Journal, 0, 0, 0);
    let batch = index.take_batch(&mut frames);
    assert_eq!(claim(&mut index, 2), Claim::Full, "on its way is not durable");
    index.settle(batch);
    assert_eq!(claim(&mut index, 2), Claim::Ready(0));
}

#[test]
fn a_cluster_forgotten_under_a_reader_outlives_the_reader() {
    let mut index = Index::new(1);
    put(&mut index, 1);
    let plan = index.plan_read(1.into(), some(), 2);
    assert_eq!((plan.units.len(), plan.pins.len()), (1, 1));
    assert!(index.forget(1.into()));
    assert!(!index.forget(1.into()));
    commit(&mut index);
    assert_eq!(claim(&mut index, 2), Claim::Full);
    assert!(!index.reject(&plan.units[0]), "what a reader of old bytes says does not count");
    index.unpin(0);
    commit(&mut index);
    assert_eq!(claim(&mut index, 2), Claim::Ready(0));
}

#[test]
fn bytes_written_for_a_forgotten_group_are_not_noted() {
    let mut index = Index::new(1);
    assert_eq!(claim(&mut index, 1), Claim::Ready(0));
    assert!(index.forget(1.into()));
    index.note_written(0, &[piece(0, 100)]);
    assert!(!index.covers(1.into(), some()));
    index.unpin(0);
    assert_eq!((index.stats.groups, index.stats.held_bytes), (0, 0));
}

#[test]
fn a_claim_that_came_to_nothing_leaves_nothing() {
    let mut index = Index::new(1);
    assert_eq!(claim(&mut index, 1), Claim::Ready(0));
    index.unpin(0);
    assert_eq!((index.stats.groups, index.stats.objects), (0, 0));
    commit(&mut index);
    put(&mut index, 2);
}

#[test]
fn a_large_store_evicts_before_it_is_out_of_clusters() {
    let mut index = Index::new(128);
    for object in 0..126 {
        put(&mut index, object);
    }
    assert_eq!(index.stats.evicted_bytes, 0);
    put(&mut index, 126);
    assert_eq!(index.stats.evicted_bytes, 100);
    assert!(!index.covers(0.into(), some()));
    for object in 127..1000 {
        commit(&mut index);
        put(&mut index, object);
    }
    assert_eq!(index.stats.groups, 126);
}

#[test]
fn a_segment_that_becomes_whole_leaves_the_side_table() {
    let mut index = Index::new(1);
    let Claim::Ready(cluster) = claim(&mut index, 1) else { panic!("there is room") };
    for (start, end) in [(0, 1), (8000, 16384), (1, 8000)] {
        index.note_written(cluster, &[piece(start, end)]);
    }
    assert!(index.runs.is_empty());
    assert_eq!(index.slot(cluster).present, 1);
    assert_eq!((index.stats.segments, index.stats.held_bytes), (1, 16384));
    index.note_written(cluster, &[piece(0, 16384)]);
    assert_eq!((index.stats.segments, index.stats.held_bytes), (1, 16384));
}

#[test]
fn the_sixteen_first_runs_of_a_segment_are_kept() {
    let mut index = Index::new(1);
    let Claim::Ready(cluster) = claim(&mut index, 1) else { panic!("there is room") };
    for i in 0..20 {
        index.note_written(cluster, &[piece(i * 10, i * 10 + 1)]);
    }
    assert_eq!((index.stats.segments, index.stats.held_bytes), (1, 16));
}
