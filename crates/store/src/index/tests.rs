//! Pins, evictions and the life of an extent.

use weir_ranges::{ByteRange, ObjectId};

use super::*;
use crate::format::{FrameKind, FrameWriter};
use crate::units::{Class, Window};

fn id(object: u128, group: u64) -> GroupId {
    GroupId { object: ObjectId::from(object), group }
}

fn run(start: u16, end: u16) -> Run {
    Run { start, end, mark: 7 }
}

fn first() -> Window {
    Window::over(0, 0)
}

/// Claims the whole group 0 of `object`.
fn claim(index: &mut Index, object: u128) -> Claim {
    index.claim(id(object, 0), Window::GROUP)
}

fn ready(claim: Claim) -> Place {
    let Claim::Ready(place) = claim else { panic!("no room: {claim:?}") };
    place
}

/// Holds a little of group 0 of `object`, in a whole cluster.
fn put(index: &mut Index, object: u128) -> u32 {
    let place = ready(claim(index, object));
    assert!(index.note_written(&place, vec![(0, Written::Runs(vec![run(0, 100)]))], 1));
    place.extent.slot
}

fn commit(index: &mut Index) {
    let mut frames = FrameWriter::new(FrameKind::Journal, 0, 0, 0);
    let batch = index.take_batch(&mut frames);
    index.settle(batch);
}

/// What to read of group 0 of `object`.
fn plan(index: &mut Index, object: u128, range: ByteRange) -> Plan {
    let mut plan = Plan::default();
    index.plan_group(id(object, 0), range, 2, &mut plan);
    plan
}

fn some() -> ByteRange {
    ByteRange::new(10, 20).unwrap()
}

#[test]
fn a_store_whose_extents_are_all_pinned_is_full() {
    let mut index = Index::new(2, Kind::Lru);
    put(&mut index, 1);
    put(&mut index, 2);
    let readers = [1, 2].map(|object| plan(&mut index, object, some()));
    assert!(matches!(claim(&mut index, 3), Claim::Declined | Claim::Full), "no place");
    for plan in readers {
        index.unpin(plan.pins[0]);
    }
    assert_eq!(claim(&mut index, 3), Claim::Reclaim);
    commit(&mut index);
    assert_eq!(ready(claim(&mut index, 3)).extent.slot, 0);
    assert!(!index.covers(1.into(), some()) && index.covers(2.into(), some()));
}

#[test]
fn an_extent_is_not_used_again_before_its_drop_is_durable() {
    let mut index = Index::new(1, Kind::Lru);
    assert_eq!(put(&mut index, 1), 0);
    commit(&mut index);
    assert!(index.forget(1.into()));
    assert_eq!(claim(&mut index, 2), Claim::Reclaim);
    let mut frames = FrameWriter::new(FrameKind::Journal, 0, 0, 0);
    let batch = index.take_batch(&mut frames);
    assert!(matches!(claim(&mut index, 2), Claim::Declined | Claim::Full), "not durable yet");
    index.settle(batch);
    assert_eq!(ready(claim(&mut index, 2)).extent.slot, 0);
}

#[test]
fn an_extent_forgotten_under_a_reader_outlives_the_reader() {
    let mut index = Index::new(1, Kind::Lru);
    put(&mut index, 1);
    let plan = plan(&mut index, 1, some());
    assert_eq!((plan.units.len(), plan.pins.len()), (1, 1));
    assert!(index.forget(1.into()));
    assert!(!index.forget(1.into()));
    commit(&mut index);
    assert_eq!(claim(&mut index, 2), Claim::Full);
    assert!(!index.reject(&plan.units[0]), "what a reader of old bytes says does not count");
    index.unpin(0);
    commit(&mut index);
    assert_eq!(ready(claim(&mut index, 2)).extent.slot, 0);
}

#[test]
fn a_place_that_came_to_nothing_is_free() {
    let mut index = Index::new(1, Kind::Lru);
    let place = ready(claim(&mut index, 1));
    index.give_up(&place);
    assert_eq!((index.stats.groups, index.stats.objects, index.stats.used_bytes), (0, 0, 0));
    assert!(index.is_clean());
    put(&mut index, 2);
}

#[test]
fn bytes_written_for_a_group_that_went_meanwhile_are_not_noted() {
    let mut index = Index::new(1, Kind::Lru);
    put(&mut index, 1);
    let place = ready(claim(&mut index, 1));
    assert!(index.forget(1.into()));
    assert!(!index.note_written(&place, vec![(1, Written::Whole)], 2));
    assert!(!index.covers(1.into(), some()));
    assert_eq!((index.stats.groups, index.stats.held_bytes, index.stats.used_bytes), (0, 0, 0));
    commit(&mut index);
    put(&mut index, 2);
}

#[test]
fn a_group_grows_into_a_larger_extent_and_leaves_the_old_one() {
    let mut index = Index::new(2, Kind::Lru);
    let place = ready(index.claim(id(1, 0), first()));
    assert_eq!((place.extent.class, place.old), (Class::Segment, None));
    assert!(index.note_written(&place, vec![(0, Written::Whole)], 1));
    assert_eq!(index.stats.used_bytes, 16 << 10);
    let old = place.extent;
    let place = ready(index.claim(id(1, 0), Window::over(2, 2)));
    assert!(place.moves());
    assert_eq!((place.window, place.old), (Window::over(0, 3), Some(old)));
    let written = vec![(0, Written::Whole), (2, Written::Runs(vec![run(5, 9)]))];
    assert!(index.note_written(&place, written, 1));
    assert_eq!((index.stats.used_bytes, index.stats.held_bytes), (64 << 10, 16384 + 4));
    assert_eq!((index.stats.segments, index.stats.groups), (2, 1));
    let two = 2 * 16384;
    assert!(index.covers(1.into(), ByteRange::new(two + 5, two + 9).unwrap()));
    assert!(!index.covers(1.into(), ByteRange::new(two + 4, two + 9).unwrap()));
    // The old extent comes back with the next commit.
    commit(&mut index);
    assert_eq!(ready(index.claim(id(2, 0), first())).extent, old);
}

#[test]
fn the_groups_of_an_object_follow_each_other() {
    let mut index = Index::new(64, Kind::Lru);
    for (object, group) in [(1, 0), (2, 5), (1, 2), (2, 4), (1, 1)] {
        let place = ready(index.claim(id(object, group), Window::GROUP));
        assert!(index.note_written(&place, vec![(0, Written::Whole)], 1));
        let zone = u32::try_from(object - 1).unwrap() * 16;
        let first = if object == 1 { 0 } else { 5 };
        let at = i64::from(zone) + i64::try_from(group).unwrap() - first;
        assert_eq!(i64::from(place.extent.slot), at * 64, "group {group} of {object}");
    }
}

#[test]
fn a_large_store_evicts_before_it_is_out_of_space() {
    let mut index = Index::new(128, Kind::Lru);
    for object in 0..126 {
        put(&mut index, object);
    }
    assert_eq!(index.stats.evicted_bytes, 0);
    put(&mut index, 126);
    put(&mut index, 127);
    assert!(index.stats.evicted_bytes > 0);
    assert!(!index.covers(0.into(), some()));
    for object in 128..1000 {
        commit(&mut index);
        put(&mut index, object);
    }
    assert!((125..=127).contains(&index.stats.groups), "{}", index.stats.groups);
}

#[test]
fn a_segment_that_becomes_whole_leaves_the_side_table() {
    let mut index = Index::new(1, Kind::Lru);
    for written in [Written::Runs(vec![run(0, 1)]), Written::Runs(vec![run(0, 1), run(5, 9)])] {
        let place = ready(claim(&mut index, 1));
        assert!(index.note_written(&place, vec![(0, written)], 1));
    }
    assert_eq!((index.stats.segments, index.stats.held_bytes), (1, 5));
    let place = ready(claim(&mut index, 1));
    assert!(index.note_written(&place, vec![(0, Written::Whole)], 1));
    assert!(index.runs.is_empty());
    assert_eq!((index.stats.segments, index.stats.held_bytes), (1, 16384));
}

#[test]
fn a_dropped_segment_takes_an_empty_group_with_it() {
    let mut index = Index::new(1, Kind::Lru);
    let place = ready(claim(&mut index, 1));
    let written = vec![(0, Written::Whole), (63, Written::Runs(vec![run(1, 2)]))];
    assert!(index.note_written(&place, written, 1));
    let plan = plan(&mut index, 1, ByteRange::new(0, 1 << 20).unwrap());
    assert_eq!(plan.units.len(), 2);
    assert!(index.reject(&plan.units[0]) && !index.reject(&plan.units[0]));
    assert_eq!((index.stats.segments, index.stats.held_bytes), (1, 1));
    assert!(index.reject(&plan.units[1]));
    assert_eq!((index.stats.groups, index.stats.objects, index.stats.used_bytes), (0, 0, 0));
    index.unpin(plan.pins[0]);
    commit(&mut index);
    put(&mut index, 2);
}

#[test]
fn what_is_pinned_is_passed_over_by_every_policy() {
    for kind in Kind::ALL {
        let mut index = Index::new(3, kind);
        for object in 1..=3 {
            index.wanted(object.into());
            put(&mut index, object);
        }
        for _ in 0..3 {
            index.wanted(4.into());
        }
        let readers = [1, 3].map(|object| plan(&mut index, object, some()));
        assert_eq!(claim(&mut index, 4), Claim::Reclaim, "{kind}");
        assert!(!index.covers(2.into(), some()), "{kind}: the one nobody is at");
        assert!(index.covers(1.into(), some()) && index.covers(3.into(), some()), "{kind}");
        for plan in readers {
            index.unpin(plan.pins[0]);
        }
    }
}

#[test]
fn space_in_pieces_is_space_and_is_made_whole_for_a_group() {
    let mut index = Index::new(128, Kind::Lru);
    // As many objects of 16 KiB as fit, and then some.
    for object in 0..10_000 {
        let place = match index.claim(id(object, 0), first()) {
            Claim::Ready(place) => place,
            Claim::Reclaim => {
                commit(&mut index);
                ready(index.claim(id(object, 0), first()))
            }
            Claim::Declined | Claim::Full => panic!("nobody is at anything"),
        };
        assert!(index.note_written(&place, vec![(0, Written::Whole)], 1));
    }
    assert!(index.stats.held_bytes > 120 << 20, "{}", index.stats.held_bytes);
    // Every other one goes: a half is free, and no cluster whole.
    for object in (0..10_000).step_by(2) {
        index.forget(object.into());
    }
    commit(&mut index);
    let before = index.stats.held_bytes;
    for group in 0..20 {
        let mut tries = 0;
        let place = loop {
            match index.claim(id(20_000, group), Window::GROUP) {
                Claim::Ready(place) => break place,
                Claim::Reclaim => commit(&mut index),
                Claim::Declined | Claim::Full => panic!("nobody is at anything"),
            }
            tries += 1;
            assert!(tries <= 16, "a writer gives up then");
        };
        assert!(index.note_written(&place, vec![(0, Written::Whole)], 1));
    }
    assert!(index.stats.held_bytes > before / 3, "not everything for a few groups");
}
