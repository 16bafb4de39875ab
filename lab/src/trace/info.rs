//! Figures of a trace: how much is asked for, how much of it is new.

use std::collections::{HashMap, HashSet};
use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

use super::format::Access;

/// What a trace asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Info {
    /// Version of this answer.
    pub(crate) version: u32,
    /// Which format the file has.
    pub(crate) format: &'static str,
    /// Requests.
    pub(crate) requests: u64,
    /// Bytes of all requests.
    pub(crate) bytes: u64,
    /// Objects that are asked for.
    pub(crate) objects: u64,
    /// Different things that are asked for: objects, or ranges of them.
    pub(crate) units: u64,
    /// Bytes that are asked for at least once.
    pub(crate) unique_bytes: u64,
    /// Share of requests whose unit was asked for before.
    pub(crate) max_hit_ratio: f64,
    /// Share of bytes that an endless cache saves.
    pub(crate) max_byte_hit_ratio: f64,
    /// Seconds from the first request to the last.
    pub(crate) span_s: f64,
    /// Bytes of the largest object, when sizes are told.
    pub(crate) largest_bytes: Option<u64>,
    /// Requests for large objects, when sizes are told.
    pub(crate) above: Vec<Above>,
}

/// Requests for objects of more than so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Above {
    /// The bound in bytes.
    pub(crate) object_bytes: u64,
    /// How many requests.
    pub(crate) requests: u64,
    /// Of all requests.
    pub(crate) request_share: f64,
    /// Bytes of these requests.
    pub(crate) bytes: u64,
    /// Of all bytes.
    pub(crate) byte_share: f64,
}

impl Info {
    /// The figures of these requests.
    ///
    /// Holds 24 bytes and an entry of a hash table for each unit.
    ///
    /// # Errors
    /// The first error among the requests, or that there are none.
    pub(crate) fn of(
        format: &'static str,
        accesses: impl Iterator<Item = Result<Access>>,
    ) -> Result<Self> {
        let mut tally = Tally::default();
        for access in accesses {
            tally.add(&access?);
        }
        tally.finish(format).context("the trace has no requests")
    }
}

#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    bytes: u64,
    /// The size of each object that was asked for as a whole.
    wholes: HashMap<u64, u64>,
    /// Object, offset and length.
    ranges: HashSet<(u64, u64, u64)>,
    /// First and last time.
    times: Option<(u64, u64)>,
    largest: Option<u64>,
    /// Requests and bytes above each of [`BOUNDS`].
    above: [(u64, u64); BOUNDS.len()],
}

impl Tally {
    fn add(&mut self, access: &Access) {
        let bytes = access.bytes();
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let (first, last) = self.times.unwrap_or((access.time_us, access.time_us));
        self.times = Some((first.min(access.time_us), last.max(access.time_us)));
        match access.range {
            Some((offset, len)) => {
                self.ranges.insert((access.object, offset, len));
            }
            None => {
                // An object that grew counts as large as it became.
                let size = self.wholes.entry(access.object).or_default();
                *size = bytes.max(*size);
            }
        }
        if let Some(size) = access.size {
            self.largest = Some(self.largest.map_or(size, |largest| largest.max(size)));
            for (bound, above) in BOUNDS.iter().zip(&mut self.above) {
                if size > *bound {
                    *above = (above.0 + 1, above.1.saturating_add(bytes));
                }
            }
        }
    }

    fn finish(self, format: &'static str) -> Option<Info> {
        let (first, last) = self.times?;
        let units = (self.wholes.len() + self.ranges.len()) as u64;
        let (ranged_objects, ranged_bytes) = union(self.ranges);
        let unique_bytes = self.wholes.values().fold(ranged_bytes, |sum, &n| sum.saturating_add(n));
        let requests = self.requests as f64;
        let of_bytes =
            |bytes: u64| if self.bytes == 0 { 0.0 } else { bytes as f64 / self.bytes as f64 };
        let above = |(&object_bytes, &(count, bytes)): (&u64, &(u64, u64))| Above {
            object_bytes,
            requests: count,
            request_share: count as f64 / requests,
            bytes,
            byte_share: of_bytes(bytes),
        };
        let above = BOUNDS.iter().zip(&self.above).map(above);
        Some(Info {
            version: 1,
            format,
            requests: self.requests,
            bytes: self.bytes,
            objects: self.wholes.len() as u64 + ranged_objects,
            units,
            unique_bytes,
            max_hit_ratio: 1.0 - units as f64 / requests,
            // A trace whose objects shrink has less than its unique bytes.
            max_byte_hit_ratio: of_bytes(self.bytes.saturating_sub(unique_bytes)),
            span_s: (last - first) as f64 / 1e6,
            largest_bytes: self.largest,
            above: if self.largest.is_some() { above.collect() } else { Vec::new() },
        })
    }
}

/// How many objects these ranges are of, and how many bytes they cover.
fn union(ranges: HashSet<(u64, u64, u64)>) -> (u64, u64) {
    let mut sorted: Vec<_> = ranges.into_iter().collect();
    sorted.sort_unstable();
    let (mut objects, mut bytes) = (0, 0u64);
    let mut covered: Option<(u64, u64)> = None;
    for (object, offset, len) in sorted {
        let end = offset.saturating_add(len);
        let known = match covered {
            Some((current, known)) if current == object => known,
            _ => {
                objects += 1;
                offset
            }
        };
        bytes = bytes.saturating_add(end.saturating_sub(known.max(offset)));
        covered = Some((object, known.max(end)));
    }
    (objects, bytes)
}

impl fmt::Display for Info {
    /// A table for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:20} {}", "format", self.format)?;
        writeln!(f, "{:20} {}", "requests", self.requests)?;
        writeln!(f, "{:20} {}", "bytes", gigabytes(self.bytes))?;
        writeln!(f, "{:20} {}", "objects", self.objects)?;
        writeln!(f, "{:20} {}", "units", self.units)?;
        writeln!(f, "{:20} {}", "unique bytes", gigabytes(self.unique_bytes))?;
        writeln!(f, "{:20} {:.4}", "max hit ratio", self.max_hit_ratio)?;
        writeln!(f, "{:20} {:.4}", "max byte hit ratio", self.max_byte_hit_ratio)?;
        writeln!(f, "{:20} {:.0} s", "span", self.span_s)?;
        if let Some(largest) = self.largest_bytes {
            writeln!(f, "{:20} {:.3} MB", "largest object", largest as f64 / 1e6)?;
        }
        for above in &self.above {
            let name = format!("above {} MB", above.object_bytes / 1_000_000);
            let (requests, bytes) = (above.request_share * 100.0, above.byte_share * 100.0);
            writeln!(
                f,
                "{name:20} {} requests ({requests:.5} %), {} ({bytes:.2} %)",
                above.requests,
                gigabytes(above.bytes)
            )?;
        }
        Ok(())
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.3} GB", bytes as f64 / 1e9)
}

/// Bytes above which an object is large, larger, largest (Kim et al., Table 2).
const BOUNDS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(time_us: u64, object: u64, size: u64) -> Access {
        Access { time_us, object, size: Some(size), range: None }
    }

    fn part(object: u64, offset: u64, len: u64) -> Access {
        Access { time_us: 0, object, size: None, range: Some((offset, len)) }
    }

    fn info(accesses: &[Access]) -> Info {
        Info::of("test", accesses.iter().copied().map(Ok)).unwrap()
    }

    #[test]
    fn whole_objects_are_counted_once_and_by_size() {
        let found = info(&[
            whole(1_000_000, 1, 500),
            whole(2_000_000, 2, 20_000_000),
            whole(4_500_000, 1, 500),
            whole(3_000_000, 3, 1_000_000),
        ]);
        assert_eq!((found.requests, found.bytes), (4, 21_001_000));
        assert_eq!((found.objects, found.units, found.unique_bytes), (3, 3, 21_000_500));
        assert!((found.max_hit_ratio - 0.25).abs() < 1e-12);
        assert!((found.max_byte_hit_ratio - 500.0 / 21_001_000.0).abs() < 1e-12);
        assert!((found.span_s - 3.5).abs() < 1e-12);
        assert_eq!(found.largest_bytes, Some(20_000_000));
        assert_eq!(found.above.iter().map(|above| above.requests).collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn ranges_that_overlap_count_their_union() {
        let found = info(&[
            part(1, 0, 100),
            part(1, 50, 100),
            part(1, 60, 10),
            part(1, 0, 100),
            part(1, 200, 1),
            part(2, 0, 5),
        ]);
        assert_eq!((found.objects, found.units, found.unique_bytes), (2, 5, 156));
        assert_eq!(found.bytes, 316);
        assert_eq!((found.largest_bytes, found.above.len()), (None, 0));
    }

    #[test]
    fn a_trace_without_requests_is_told() {
        let error = Info::of("test", std::iter::empty()).unwrap_err();
        assert_eq!(error.to_string(), "the trace has no requests");
    }

    #[test]
    fn the_first_fault_ends_it() {
        let faulty = [Ok(part(1, 0, 1)), Err(anyhow::anyhow!("line 3: no"))];
        assert_eq!(Info::of("test", faulty.into_iter()).unwrap_err().to_string(), "line 3: no");
    }

    #[test]
    fn empty_requests_are_no_division_by_zero() {
        let found = info(&[whole(0, 1, 0), whole(0, 1, 0)]);
        assert!((found.max_hit_ratio - 0.5).abs() < 1e-12);
        assert!(found.max_byte_hit_ratio.abs() < 1e-12);
    }
}
