//! Reads a trace: `time_s,object,offset,length,download`, a request a line.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::path::Path;

use crate::layout::{SEGMENT_BYTES_MAX, Segment};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// What is asked for.
    pub(crate) segment: Segment,
    /// The first of its download.
    pub(crate) begins: bool,
}

/// The requests of a trace, in order. A first line of names is left out.
///
/// # Errors
/// When the file cannot be read, or `InvalidData` with the number of a line that is
/// no request.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Request>> {
    let (mut requests, mut downloads) = (Vec::new(), HashSet::new());
    for (number, line) in BufReader::new(File::open(path)?).lines().enumerate() {
        let line = line?;
        match parse(&line) {
            Some((segment, download)) => {
                requests.push(Request { segment, begins: downloads.insert(download) });
            }
            None if number == 0 && line.starts_with(|c: char| c.is_alphabetic()) => {}
            None => {
                let why = format!("{}: line {} is no request", path.display(), number + 1);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
    }
    Ok(requests)
}

/// The same requests in parts of at most `bytes`, which is not 0.
pub(crate) fn split(requests: &[Request], bytes: u32) -> Vec<Request> {
    let parts = |request: &Request| {
        let Request { segment, begins } = *request;
        (0..segment.len).step_by(bytes as usize).map(move |start| Request {
            segment: Segment {
                offset: segment.offset + u64::from(start),
                len: bytes.min(segment.len - start),
                ..segment
            },
            begins: begins && start == 0,
        })
    };
    requests.iter().flat_map(parts).collect()
}

/// A segment and the number of its download.
fn parse(line: &str) -> Option<(Segment, u64)> {
    let mut fields = line.trim_end().split(',').skip(1);
    let object = fields.next()?.parse().ok()?;
    let offset = fields.next()?.parse().ok()?;
    let len = fields.next()?.parse().ok()?;
    let download = fields.next()?.parse().ok()?;
    (1..=SEGMENT_BYTES_MAX).contains(&len).then_some((Segment { object, offset, len }, download))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_place_and_a_length_in_bounds() {
        let want = Segment { object: 7, offset: 524_288, len: 524_288 };
        assert_eq!(parse("1.250000,7,524288,524288,3"), Some((want, 3)));
        assert_eq!(parse("1.25,7,0,524289,3"), None);
        assert_eq!(parse("1.25,7,0,0,3"), None);
        assert_eq!(parse("1.25,7"), None);
    }

    #[test]
    fn parts_are_the_whole_request_in_order() {
        let segment = Segment { object: 7, offset: 1000, len: 40 };
        let parts = split(&[Request { segment, begins: true }], 16);
        let told = |part: &Request| (part.segment.offset, part.segment.len, part.begins);
        let parts: Vec<_> = parts.iter().map(told).collect();
        assert_eq!(parts, [(1000, 16, true), (1016, 16, false), (1032, 8, false)]);
    }

    #[test]
    fn a_line_that_is_no_request_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let text = "time_s,object,offset,length,download\n0.1,1,0,5,0\n0.1,1,5,5,0\n";
        std::fs::write(&path, text).unwrap();
        let begins: Vec<_> = read(&path).unwrap().iter().map(|request| request.begins).collect();
        assert_eq!(begins, [true, false]);
        std::fs::write(&path, "0.1,1,0,5,0\nx\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 2"));
    }
}
