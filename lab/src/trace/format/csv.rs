//! CSV traces: the first line says which columns there are.

use std::io::{self, BufRead, Read as _, Write};

use anyhow::{Context, Result, bail, ensure};

use super::Access;
use crate::trace::{p2p, web};

/// Which columns a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// Ranges of objects of unknown size.
    P2p,
    /// Whole objects.
    Web,
    /// Objects, whole or in ranges.
    WebRanges,
}

impl Columns {
    const ALL: [Self; 3] = [Self::P2p, Self::Web, Self::WebRanges];

    /// The first line.
    const fn header(self) -> &'static str {
        match self {
            Self::P2p => "time_s,object,offset,length,download",
            Self::Web => "time_ms,client,object,size",
            Self::WebRanges => "time_ms,client,object,size,offset,length",
        }
    }

    /// What the file is called in answers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::P2p => "p2p-csv",
            Self::Web => "web-csv",
            Self::WebRanges => "web-ranges-csv",
        }
    }
}

/// Every first line, for people.
pub(super) fn headers() -> String {
    Columns::ALL.map(|columns| format!("{:?}", columns.header())).join(", ")
}

/// What every first line begins with.
pub(super) const HEADER_START: &[u8] = b"time_";

/// Writes a P2P trace.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn write_p2p(
    out: &mut impl Write,
    requests: impl Iterator<Item = p2p::Request>,
) -> io::Result<()> {
    writeln!(out, "{}", Columns::P2p.header())?;
    for p2p::Request { time_us, object, offset, len, download } in requests {
        let (secs, micros) = (time_us / 1_000_000, time_us % 1_000_000);
        writeln!(out, "{secs}.{micros:06},{object},{offset},{len},{download}")?;
    }
    Ok(())
}

/// Writes a web trace, with columns for ranges or without.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn write_web(
    out: &mut impl Write,
    ranges: bool,
    requests: impl Iterator<Item = web::Request>,
) -> io::Result<()> {
    let columns = if ranges { Columns::WebRanges } else { Columns::Web };
    writeln!(out, "{}", columns.header())?;
    for request in requests {
        let web::Request { time_ms, client, size, offset, len, .. } = request;
        write!(out, "{time_ms},{client},{},{size}", request.object_number())?;
        if ranges {
            write!(out, ",{offset},{len}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Reads any of these.
#[derive(Debug)]
pub(crate) struct CsvReader<R> {
    input: R,
    columns: Columns,
    line: String,
    /// Number of the line in `line`, from 1.
    number: u64,
    /// A fault was told; what comes after it means nothing.
    failed: bool,
}

impl<R: BufRead> CsvReader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// When it is none that this program writes.
    pub(super) fn new(mut input: R) -> Result<Self> {
        let mut line = String::new();
        read_line(&mut input, &mut line).context("line 1")?;
        let known = |columns: &Columns| line.trim_end() == columns.header();
        let Some(columns) = Columns::ALL.into_iter().find(known) else {
            bail!("line 1 is {:?}, not one of {}", line.trim_end(), headers());
        };
        Ok(Self { input, columns, line, number: 1, failed: false })
    }

    /// Which columns the file has.
    pub(super) const fn columns(&self) -> Columns {
        self.columns
    }

    fn access(&mut self) -> Result<Option<Access>> {
        self.number += 1;
        if read_line(&mut self.input, &mut self.line)? == 0 {
            return Ok(None);
        }
        let line = self.line.trim_end();
        let mut fields = Fields { line, rest: line.split(',') };
        let access = match self.columns {
            Columns::P2p => {
                let time_us = fields.micros("time_s")?;
                let object = fields.integer("object")?;
                let range = Some((fields.integer("offset")?, fields.integer("length")?));
                fields.integer("download")?;
                Access { time_us, object, size: None, range }
            }
            Columns::Web | Columns::WebRanges => {
                let time_us = fields.integer("time_ms")?.saturating_mul(1000);
                fields.integer("client")?;
                let object = fields.integer("object")?;
                let size = Some(fields.integer("size")?);
                let range = match self.columns {
                    Columns::WebRanges => {
                        Some((fields.integer("offset")?, fields.integer("length")?))
                    }
                    Columns::P2p | Columns::Web => None,
                };
                Access { time_us, object, size, range }
            }
        };
        let ended = fields.rest.next().is_none();
        ensure!(ended, "{line:?} has more columns than {:?}", self.columns.header());
        let end = access.range.map(|(offset, len)| offset.checked_add(len));
        ensure!(end != Some(None), "{line:?} is a range beyond 64 bits");
        Ok(Some(access))
    }
}

impl<R: BufRead> Iterator for CsvReader<R> {
    type Item = Result<Access>;

    fn next(&mut self) -> Option<Result<Access>> {
        if self.failed {
            return None;
        }
        let access = self.access().transpose()?;
        self.failed = access.is_err();
        Some(access.with_context(|| format!("line {}", self.number)))
    }
}

/// The columns of a line, from left to right.
struct Fields<'a> {
    line: &'a str,
    rest: std::str::Split<'a, char>,
}

impl<'a> Fields<'a> {
    fn text(&mut self, name: &str) -> Result<&'a str> {
        self.rest.next().with_context(|| format!("{:?} has no {name}", self.line))
    }

    fn integer(&mut self, name: &str) -> Result<u64> {
        let text = self.text(name)?;
        text.parse().ok().with_context(|| format!("{name} is no whole number: {text:?}"))
    }

    fn micros(&mut self, name: &str) -> Result<u64> {
        let text = self.text(name)?;
        parse_micros(text).with_context(|| format!("{name} is no time in seconds: {text:?}"))
    }
}

/// Seconds with up to six decimals that count.
fn parse_micros(text: &str) -> Option<u64> {
    let (secs, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = decimals.bytes().all(|byte| byte.is_ascii_digit());
    let micros = decimals.bytes().chain(std::iter::repeat(b'0')).take(6);
    let micros = micros.fold(0, |sum, byte| sum * 10 + u64::from(byte.wrapping_sub(b'0')));
    let secs: u64 = secs.parse().ok()?;
    digits.then(|| secs.saturating_mul(1_000_000).saturating_add(micros))
}

/// Reads one line, answers how many bytes, 0 at the end.
fn read_line(input: &mut impl BufRead, line: &mut String) -> Result<usize> {
    line.clear();
    let len = input.by_ref().take(LINE_MAX).read_line(line)?;
    ensure!((len as u64) < LINE_MAX, "longer than {LINE_MAX} bytes");
    Ok(len)
}

/// Bytes of a line, more than any that this program writes.
const LINE_MAX: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Access>> {
        CsvReader::new(text.as_bytes())?.collect()
    }

    fn complaint(text: &str) -> String {
        format!("{:#}", read(text).unwrap_err())
    }

    #[test]
    fn a_p2p_trace_reads_as_it_was_written() {
        let request =
            p2p::Request { time_us: 12_000_345, object: 7, offset: 524_288, len: 9, download: 3 };
        let mut out = Vec::new();
        write_p2p(&mut out, std::iter::once(request)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "time_s,object,offset,length,download\n12.000345,7,524288,9,3\n");
        let access =
            Access { time_us: 12_000_345, object: 7, size: None, range: Some((524_288, 9)) };
        assert_eq!(read(&text).unwrap(), [access]);
    }

    #[test]
    fn a_web_trace_reads_as_it_was_written() {
        let request = web::Request {
            time_ms: 5,
            client: 2,
            class: 1,
            object: 4,
            size: 100,
            offset: 60,
            len: 40,
        };
        let object = (1 << 40) + 4;
        for (ranges, range) in [(false, None), (true, Some((60, 40)))] {
            let mut out = Vec::new();
            write_web(&mut out, ranges, std::iter::once(request)).unwrap();
            let access = Access { time_us: 5000, object, size: Some(100), range };
            assert_eq!(read(&String::from_utf8(out).unwrap()).unwrap(), [access]);
        }
    }

    #[test]
    fn seconds_have_any_number_of_decimals() {
        let times = ["3", "3.5", "3.0000019", "0.", "x", "3.x", "-1", "1e3", ""];
        let read = times.map(parse_micros);
        let seconds = [Some(3_000_000), Some(3_500_000), Some(3_000_001), Some(0)];
        assert_eq!(read[..4], seconds);
        assert_eq!(read[4..], [None; 5]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let header = Columns::Web.header();
        let told = complaint(&format!("{header}\n1,2,3,4\n1,2,3\n"));
        assert_eq!(told, "line 3: \"1,2,3\" has no size");
        let told = complaint(&format!("{header}\n1,2,3,4,5\n"));
        assert!(told.starts_with("line 2: \"1,2,3,4,5\" has more columns"), "{told}");
        let told = complaint(&format!("{header}\n1,2,x,4\n"));
        assert_eq!(told, "line 2: object is no whole number: \"x\"");
        let told = complaint(&format!("{}\n1,2,{},5,0\n", Columns::P2p.header(), u64::MAX));
        assert!(told.ends_with("is a range beyond 64 bits"), "{told}");
        let told = complaint("time_s,key\n");
        assert!(told.starts_with("line 1 is \"time_s,key\", not one of"), "{told}");
        let told = complaint(&format!("{header}\n{}", "1".repeat(5000)));
        assert_eq!(told, "line 2: longer than 1000 bytes");
        assert!(complaint("").starts_with("line 1 is \"\""));
    }

    #[test]
    fn after_a_fault_nothing_more_is_read() {
        let text = format!("{}\n1,2,x,4\n1,2,3,4\n", Columns::Web.header());
        let reader = CsvReader::new(text.as_bytes()).unwrap();
        assert_eq!(reader.count(), 1);
    }
}
