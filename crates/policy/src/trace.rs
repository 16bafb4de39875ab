//! Requests for a simulation, made of the records of a trace.
//!
//! A [`TraceBuilder`] is given records in the order of time. It numbers objects
//! densely, cuts ranges into units and marks where downloads begin. A request takes
//! 16 bytes of memory, an object 16 to 32 while the trace is built.
//!
//! Refuses: files and text; who reads a file gives fields. What a record cannot
//! say is estimated and said so at the method.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use thiserror::Error;

use crate::lists::mix;

/// One request for one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of the object in this trace, dense from 0.
    pub object: u32,
    /// Number of the unit in its object.
    pub number: u32,
    /// What is asked for, at least 1; larger objects count as `u32::MAX`.
    pub bytes: u32,
    /// The request is the first of a download.
    pub begins: bool,
}

/// What is evicted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Parts of an object of so many bytes, the last one shorter; at least 1.
    Units {
        /// Size of a part.
        bytes: u32,
    },
    /// An object is one unit, and a download one request for it.
    WholeObjects,
}

/// A trace in memory.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    requests: Vec<Request>,
    objects: u32,
    requested_bytes: u64,
    downloads: u64,
    misaligned: u64,
}

/// Why a record cannot be part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// A range ends beyond 64 bits.
    #[error("the range begins at {offset} and has {bytes} bytes, which is beyond 64 bits")]
    Range {
        /// Its begin.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// A unit's number is [`UNITS_MAX`] or more.
    #[error("the object would have more than {UNITS_MAX} units: choose larger ones")]
    TooManyUnits,
    /// There are 2^32 objects already.
    #[error("more than {} objects", u32::MAX)]
    TooManyObjects,
}

/// Makes a [`Trace`] of records.
#[derive(Debug)]
pub struct TraceBuilder {
    shape: Shape,
    trace: Trace,
    objects: Vec<Known>,
    /// Places in `objects` by the id in the records.
    index: HashTable<u32>,
    /// Downloads that have begun.
    downloads: HashTable<u64>,
}

#[derive(Debug, Default)]
struct Known {
    id: u64,
    /// Where its bytes end, as far as was seen.
    bytes: u64,
    /// Units asked for since the last download began, a bit each, and their bytes;
    /// when records do not say where downloads begin.
    round: Vec<u64>,
    round_bytes: u64,
}

impl TraceBuilder {
    /// Nothing so far.
    ///
    /// # Panics
    ///
    /// When units of 0 bytes are asked for.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        assert_ne!(shape, Shape::Units { bytes: 0 }, "a unit has bytes");
        let (index, downloads) = (HashTable::new(), HashTable::new());
        Self { shape, trace: Trace::default(), objects: Vec::new(), index, downloads }
    }

    /// A range, asked for by a download. The first record of a download begins it.
    /// A range of 0 bytes counts as one of 1.
    ///
    /// # Errors
    /// When the range is beyond what can be simulated.
    pub fn range(
        &mut self,
        object: u64,
        offset: u64,
        bytes: u64,
        download: u64,
    ) -> Result<(), TraceError> {
        let entry = self.downloads.entry(mix(download), |&d| d == download, |&d| mix(d));
        let begins = match entry {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(download);
                true
            }
        };
        self.part(object, offset, bytes, begins)
    }

    /// A range; `begins` says whether it is the first of a download.
    ///
    /// # Errors
    /// When the range is beyond what can be simulated.
    pub fn part(
        &mut self,
        object: u64,
        offset: u64,
        bytes: u64,
        begins: bool,
    ) -> Result<(), TraceError> {
        let end = offset.checked_add(bytes.max(1)).ok_or(TraceError::Range { offset, bytes })?;
        let place = self.object(object)?;
        let known = &mut self.objects[place as usize];
        known.bytes = known.bytes.max(end);
        let Shape::Units { bytes: unit_bytes } = self.shape else {
            self.push_whole(place, begins);
            return Ok(());
        };
        let unit_bytes = u64::from(unit_bytes);
        if (end - 1) / unit_bytes >= u64::from(UNITS_MAX) {
            return Err(TraceError::TooManyUnits);
        }
        self.trace.misaligned += u64::from(!offset.is_multiple_of(unit_bytes));
        let (mut at, mut begins) = (offset, begins);
        while at < end {
            let number = at / unit_bytes;
            let next = ((number + 1) * unit_bytes).min(end);
            let number = u32::try_from(number).expect("less than UNITS_MAX");
            self.push(place, number, next - at, begins);
            (at, begins) = (next, false);
        }
        Ok(())
    }

    /// A whole object, which is a download of its own.
    ///
    /// # Errors
    /// When the object is beyond what can be simulated.
    pub fn whole(&mut self, object: u64, bytes: u64) -> Result<(), TraceError> {
        self.part(object, 0, bytes, true)
    }

    /// A unit of an object, whatever size the shape says. A download is taken to
    /// begin when a unit is asked for that was asked for since the last began; with
    /// several downloads of one object at a time that is an estimate.
    ///
    /// # Errors
    /// When the number is too large.
    pub fn unit(&mut self, object: u64, number: u32, bytes: u32) -> Result<(), TraceError> {
        if number >= UNITS_MAX {
            return Err(TraceError::TooManyUnits);
        }
        let place = self.object(object)?;
        let known = &mut self.objects[place as usize];
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if known.round.len() <= word {
            known.round.resize(word + 1, 0);
        }
        let begins = known.round_bytes == 0 || known.round[word] & bit != 0;
        if begins {
            known.round.fill(0);
            known.round_bytes = 0;
        }
        known.round[word] |= bit;
        known.round_bytes += u64::from(bytes.max(1));
        // The largest download tells the size.
        known.bytes = known.bytes.max(known.round_bytes);
        match self.shape {
            Shape::Units { .. } => self.push(place, number, u64::from(bytes), begins),
            Shape::WholeObjects => self.push_whole(place, begins),
        }
        Ok(())
    }

    /// The trace.
    #[must_use]
    pub fn finish(mut self) -> Trace {
        if self.shape == Shape::WholeObjects {
            for request in &mut self.trace.requests {
                request.bytes = clamp(self.objects[request.object as usize].bytes);
            }
        }
        let bytes = self.trace.requests.iter().map(|request| u64::from(request.bytes));
        self.trace.requested_bytes = bytes.sum();
        self.trace
    }

    /// Requests so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.trace.requests.len()
    }

    /// Whether there is no request yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.trace.requests.is_empty()
    }
}

impl TraceBuilder {
    fn object(&mut self, id: u64) -> Result<u32, TraceError> {
        let objects = &self.objects;
        let id_at = |place: u32| objects[place as usize].id;
        let entry = self.index.entry(mix(id), |&at| id_at(at) == id, |&at| mix(id_at(at)));
        match entry {
            Entry::Occupied(found) => Ok(*found.get()),
            Entry::Vacant(vacant) => {
                let place = u32::try_from(objects.len()).map_err(|_| TraceError::TooManyObjects)?;
                vacant.insert(place);
                self.objects.push(Known { id, ..Known::default() });
                self.trace.objects = place.saturating_add(1);
                Ok(place)
            }
        }
    }

    fn push(&mut self, object: u32, number: u32, bytes: u64, begins: bool) {
        self.trace.downloads += u64::from(begins);
        self.trace.requests.push(Request { object, number, bytes: clamp(bytes), begins });
    }

    /// Its bytes are known at the end.
    fn push_whole(&mut self, object: u32, begins: bool) {
        if begins {
            self.push(object, 0, 1, true);
        }
    }
}

impl Trace {
    /// In the order of time.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Different objects.
    #[must_use]
    pub const fn objects(&self) -> u32 {
        self.objects
    }

    /// Bytes of all requests.
    #[must_use]
    pub const fn requested_bytes(&self) -> u64 {
        self.requested_bytes
    }

    /// Downloads that began.
    #[must_use]
    pub const fn downloads(&self) -> u64 {
        self.downloads
    }

    /// Records that begin inside a unit. A unit is held whole or not at all, so with
    /// many of them the units are too large for the trace.
    #[must_use]
    pub const fn misaligned(&self) -> u64 {
        self.misaligned
    }
}

fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes.max(1)).unwrap_or(u32::MAX)
}

/// Units of an object; an object of 2 TiB in units of 512 KiB has as many.
pub const UNITS_MAX: u32 = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(trace: &Trace) -> Vec<(u32, u32, u32, bool)> {
        trace.requests().iter().map(|r| (r.object, r.number, r.bytes, r.begins)).collect()
    }

    #[test]
    fn ranges_are_cut_into_units_and_downloads_begin_once() {
        let mut builder = TraceBuilder::new(Shape::Units { bytes: 100 });
        builder.range(7, 0, 100, 1).unwrap();
        builder.range(9, 50, 170, 2).unwrap();
        builder.range(7, 100, 30, 1).unwrap();
        let trace = builder.finish();
        let expected = [
            (0, 0, 100, true),
            (1, 0, 50, true),
            (1, 1, 100, false),
            (1, 2, 20, false),
            (0, 1, 30, false),
        ];
        assert_eq!(told(&trace), expected);
        assert_eq!((trace.objects(), trace.downloads(), trace.misaligned()), (2, 2, 1));
        assert_eq!(trace.requested_bytes(), 300);
    }

    #[test]
    fn whole_objects_are_as_large_as_the_largest_download() {
        let mut builder = TraceBuilder::new(Shape::WholeObjects);
        builder.range(7, 0, 100, 1).unwrap();
        builder.range(7, 0, 100, 2).unwrap();
        builder.range(7, 100, 50, 2).unwrap();
        builder.whole(8, 6_000_000_000).unwrap();
        let trace = builder.finish();
        let largest = u32::MAX;
        let expected = [(0, 0, 150, true), (0, 0, 150, true), (1, 0, largest, true)];
        assert_eq!(told(&trace), expected);
    }

    #[test]
    fn a_unit_that_comes_again_begins_a_download() {
        let numbers = [0, 1, 2, 1, 0, 70, 70];
        let mut units = TraceBuilder::new(Shape::Units { bytes: 10 });
        let mut whole = TraceBuilder::new(Shape::WholeObjects);
        for number in numbers {
            units.unit(5, number, 10).unwrap();
            whole.unit(5, number, 10).unwrap();
        }
        let begins: Vec<_> = units.finish().requests().iter().map(|r| r.begins).collect();
        assert_eq!(begins, [true, false, false, true, false, false, true]);
        let whole = whole.finish();
        assert_eq!(told(&whole), [(0, 0, 30, true); 3]);
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let mut builder = TraceBuilder::new(Shape::Units { bytes: 1 });
        let last = u64::from(UNITS_MAX) - 1;
        assert_eq!(builder.range(1, last, 1, 1), Ok(()));
        assert_eq!(builder.range(1, last, 2, 1), Err(TraceError::TooManyUnits));
        let range = TraceError::Range { offset: u64::MAX, bytes: 1 };
        assert_eq!(builder.range(1, u64::MAX, 1, 1), Err(range));
        assert_eq!(builder.unit(1, UNITS_MAX, 1), Err(TraceError::TooManyUnits));
        assert_eq!(builder.len(), 1);
    }
}
