//! libCacheSim's `oracleGeneral`: records of 24 bytes that know the future.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use anyhow::{Context, Result, bail};

use super::Access;
use crate::trace::p2p::{self, SEGMENT_BYTES};
use crate::trace::web;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 24;

/// A record without its look into the future. 16 bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OracleRecord {
    /// Number of the object, never 0.
    pub(crate) id: u64,
    /// Seconds; the last one stands for everything beyond 32 bits.
    pub(crate) time_s: u32,
    /// Bytes; objects beyond 32 bits are told as 4,294,967,295.
    pub(crate) size: u32,
}

impl OracleRecord {
    fn new(id: u64, time_s: u64, size: u64) -> Self {
        let fit = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self { id, time_s: fit(time_s), size: fit(size) }
    }

    /// A segment as an object of its own, for requests of whole segments.
    pub(crate) fn of_segment(request: &p2p::Request) -> Self {
        let segment = request.offset / SEGMENT_BYTES;
        let id = (u64::from(request.object) + 1) << SEGMENT_BITS | segment;
        Self::new(id, request.time_us / 1_000_000, request.len)
    }

    /// A download as one request for its object of `size` bytes.
    pub(crate) fn of_download(request: &p2p::Request, size: u64) -> Self {
        Self::new(u64::from(request.object) + 1, request.time_us / 1_000_000, size)
    }

    /// A request for a whole web object.
    pub(crate) fn of_web(request: &web::Request) -> Self {
        Self::new(request.object_number() + 1, request.time_ms / 1000, request.size)
    }
}

/// Writes a trace.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn write(out: &mut impl Write, records: &[OracleRecord]) -> io::Result<()> {
    for (record, next) in records.iter().zip(next_accesses(records)) {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&record.time_s.to_le_bytes());
        bytes[4..12].copy_from_slice(&record.id.to_le_bytes());
        bytes[12..16].copy_from_slice(&record.size.to_le_bytes());
        bytes[16..].copy_from_slice(&next.to_le_bytes());
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// For each record the number of the next one with its id, counted from 1 as
/// libCacheSim's own converter does; -1 when there is none.
fn next_accesses(records: &[OracleRecord]) -> Vec<i64> {
    let mut last = HashMap::new();
    let mut next = vec![NEVER; records.len()];
    let mut number = i64::try_from(records.len()).expect("memory ends before 2^63 records");
    for (record, next) in records.iter().zip(&mut next).rev() {
        *next = last.insert(record.id, number).unwrap_or(NEVER);
        number -= 1;
    }
    next
}

/// Reads records one by one.
#[derive(Debug)]
pub(crate) struct OracleReader<R> {
    input: R,
    /// Number of the next record, from 1.
    number: u64,
    /// A fault was told.
    failed: bool,
}

impl<R: BufRead> OracleReader<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, number: 1, failed: false }
    }

    fn access(&mut self) -> Result<Option<Access>> {
        let mut bytes = [0; RECORD_BYTES];
        let mut filled = 0;
        while filled < RECORD_BYTES {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => bail!("{filled} bytes instead of {RECORD_BYTES}"),
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let [time, id_low, id_high, size, ..] = words(&bytes);
        Ok(Some(Access {
            time_us: u64::from(time) * 1_000_000,
            object: u64::from(id_high) << 32 | u64::from(id_low),
            size: Some(u64::from(size)),
            range: None,
        }))
    }
}

impl<R: BufRead> Iterator for OracleReader<R> {
    type Item = Result<Access>;

    fn next(&mut self) -> Option<Result<Access>> {
        if self.failed {
            return None;
        }
        let access = self.access().transpose()?;
        self.failed = access.is_err();
        let access = access.with_context(|| format!("record {}", self.number));
        self.number += 1;
        Some(access)
    }
}

/// The record's little-endian words of 32 bits.
fn words(bytes: &[u8; RECORD_BYTES]) -> [u32; RECORD_BYTES / 4] {
    let mut words = [0; RECORD_BYTES / 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    words
}

/// Bits of an id below the object's number.
const SEGMENT_BITS: u32 = 20;
const NEVER: i64 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u64, time_s: u32, size: u32) -> OracleRecord {
        OracleRecord { id, time_s, size }
    }

    #[test]
    fn the_next_access_is_counted_from_one_and_never_is_minus_one() {
        let records = [7, 8, 7, 7, 9].map(|id| record(id, 0, 1));
        assert_eq!(next_accesses(&records), [3, -1, 4, -1, -1]);
        assert!(next_accesses(&[]).is_empty());
    }

    #[test]
    fn a_record_is_24_little_endian_bytes() {
        let mut out = Vec::new();
        write(&mut out, &[record(0x0102_0304_0506_0708, 0x1112_1314, 0x2122_2324)]).unwrap();
        let expected = [
            [0x14, 0x13, 0x12, 0x11, 8, 7, 6, 5],
            [4, 3, 2, 1, 0x24, 0x23, 0x22, 0x21],
            [255, 255, 255, 255, 255, 255, 255, 255],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn records_read_as_they_were_written() {
        let records = [record(3 << 40, 5, 700), record(u64::MAX, u32::MAX, u32::MAX)];
        let mut out = Vec::new();
        write(&mut out, &records).unwrap();
        let read: Vec<Access> = OracleReader::new(out.as_slice()).map(Result::unwrap).collect();
        for (access, record) in read.iter().zip(records) {
            assert_eq!(access.object, record.id);
            assert_eq!(access.time_us, u64::from(record.time_s) * 1_000_000);
            assert_eq!((access.size, access.range), (Some(u64::from(record.size)), None));
        }
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn a_record_that_is_cut_off_is_told_with_its_number() {
        let mut reader = OracleReader::new(&[0u8; 40][..]);
        assert!(reader.next().unwrap().is_ok());
        let error = format!("{:#}", reader.next().unwrap().unwrap_err());
        assert_eq!(error, "record 2: 16 bytes instead of 24");
        assert!(reader.next().is_none());
    }

    #[test]
    fn sizes_beyond_32_bits_are_told_as_the_largest() {
        let request = p2p::Request { time_us: 0, object: 4, offset: 0, len: 1, download: 0 };
        assert_eq!(OracleRecord::of_download(&request, 4_370_000_000), record(5, 0, u32::MAX));
    }

    #[test]
    fn a_segment_has_its_object_in_the_upper_bits() {
        let request = p2p::Request {
            time_us: 2_900_000,
            object: 4,
            offset: 3 * SEGMENT_BYTES,
            len: SEGMENT_BYTES,
            download: 9,
        };
        assert_eq!(OracleRecord::of_segment(&request), record(5 << 20 | 3, 2, 524_288));
    }
}
