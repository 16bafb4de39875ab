//! The runs of one segment: what is held of it while it is not whole.

use crate::checksum;
use crate::format::Run;
use crate::units::RUNS_MAX;

/// Adds `run` to `runs`, joined with the neighbours it touches. Says no, and
/// changes nothing, when it overlaps one or would be one too many.
///
/// `place` is what the marks are bound to (`checksum::place`).
pub(super) fn insert(runs: &mut Vec<Run>, run: Run, place: u32) -> bool {
    let at = runs.partition_point(|old| old.end < run.start);
    let after = runs.partition_point(|old| old.start <= run.end);
    let touching = &runs[at..after];
    if touching.iter().any(|old| old.start < run.end && run.start < old.end) {
        return false;
    }
    if touching.is_empty() && runs.len() == RUNS_MAX {
        return false;
    }
    let left = touching.first().filter(|old| old.end == run.start).copied();
    let right = touching.last().filter(|old| old.start == run.end).copied();
    let joined = left.into_iter().chain([run]).chain(right).reduce(|a, b| Run {
        start: a.start,
        end: b.end,
        mark: checksum::join(a.mark ^ place, b.mark ^ place, b.len()) ^ place,
    });
    runs.splice(at..after, joined);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u16, end: u16) -> Run {
        let bytes: Vec<u8> = (start..end).map(|i| (i % 251) as u8).collect();
        Run { start, end, mark: checksum::crc32c(&bytes) ^ 0x55 }
    }

    #[test]
    fn neighbours_are_joined_with_their_checksums() {
        let mut runs = Vec::new();
        assert!(insert(&mut runs, run(10, 20), 0x55));
        assert!(insert(&mut runs, run(30, 40), 0x55));
        assert_eq!(runs, [run(10, 20), run(30, 40)]);
        assert!(insert(&mut runs, run(20, 30), 0x55));
        assert_eq!(runs, [run(10, 40)]);
        assert!(insert(&mut runs, run(0, 10), 0x55));
        assert!(insert(&mut runs, run(40, 41), 0x55));
        assert_eq!(runs, [run(0, 41)]);
    }

    #[test]
    fn an_overlap_changes_nothing() {
        let mut runs = vec![run(10, 20)];
        for bad in [run(10, 20), run(0, 11), run(19, 30), run(12, 13), run(0, 40)] {
            assert!(!insert(&mut runs, bad, 0x55), "{bad:?}");
        }
        assert_eq!(runs, [run(10, 20)]);
    }

    #[test]
    fn the_run_past_the_bound_is_not_kept_unless_it_joins() {
        let mut runs = Vec::new();
        for i in (0u16..).take(RUNS_MAX) {
            assert!(insert(&mut runs, run(i * 10, i * 10 + 2), 0x55));
        }
        assert!(!insert(&mut runs, run(5, 6), 0x55));
        assert!(insert(&mut runs, run(2, 3), 0x55));
        assert_eq!(runs.len(), RUNS_MAX);
        assert_eq!(runs[0], run(0, 3));
    }
}
