//! Trace files: CSV and libCacheSim's `oracleGeneral` (`docs/formats/trace.md`).

pub(crate) mod csv;
pub(crate) mod oracle;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use self::csv::CsvReader;
use self::oracle::OracleReader;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text, a header and a line for each request.
    Csv,
    /// Binary records of 24 bytes, as libCacheSim reads them.
    Oracle,
}

/// One request, as far as a file tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Microseconds from the trace's beginning.
    pub(crate) time_us: u64,
    /// Whose bytes.
    pub(crate) object: u64,
    /// Bytes of the object, when the file says it.
    pub(crate) size: Option<u64>,
    /// Offset and length of what is asked for; `None` is the object as a whole.
    pub(crate) range: Option<(u64, u64)>,
}

impl Access {
    /// How many bytes are asked for.
    pub(crate) fn bytes(&self) -> u64 {
        match self.range {
            Some((_, len)) => len,
            None => self.size.unwrap_or(0),
        }
    }
}

/// A trace file that is being read.
#[derive(Debug)]
pub(crate) enum Reader<R> {
    /// Text.
    Csv(CsvReader<R>),
    /// Binary.
    Oracle(OracleReader<R>),
}

impl Reader<BufReader<File>> {
    /// Opens a file; without a format its first bytes and its length tell it.
    ///
    /// # Errors
    /// When it cannot be read, or is neither format.
    pub(crate) fn open(path: &Path, format: Option<Format>) -> Result<Self> {
        let open = || -> Result<Self> {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            Self::new(BufReader::with_capacity(BUFFER_BYTES, file), len, format)
        };
        open().with_context(|| format!("read {}", path.display()))
    }
}

impl<R: BufRead> Reader<R> {
    fn new(mut input: R, len: u64, format: Option<Format>) -> Result<Self> {
        let begins_as_csv = input.fill_buf()?.starts_with(csv::HEADER_START);
        Ok(match format {
            Some(Format::Csv) => Self::Csv(CsvReader::new(input)?),
            Some(Format::Oracle) => Self::Oracle(OracleReader::new(input)),
            None if begins_as_csv => Self::Csv(CsvReader::new(input)?),
            None if len > 0 && len.is_multiple_of(oracle::RECORD_BYTES as u64) => {
                Self::Oracle(OracleReader::new(input))
            }
            None => bail!(
                "neither a CSV trace, whose first line is one of {}, nor whole records of {} bytes",
                csv::headers(),
                oracle::RECORD_BYTES
            ),
        })
    }

    /// What the file is called in answers.
    pub(crate) fn format_name(&self) -> &'static str {
        match self {
            Self::Csv(reader) => reader.columns().name(),
            Self::Oracle(_) => "oracle-general",
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Access>;

    fn next(&mut self) -> Option<Result<Access>> {
        match self {
            Self::Csv(reader) => reader.next(),
            Self::Oracle(reader) => reader.next(),
        }
    }
}

const BUFFER_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn open(bytes: &[u8], format: Option<Format>) -> Result<Reader<&[u8]>> {
        Reader::new(bytes, bytes.len() as u64, format)
    }

    #[test]
    fn a_format_is_told_by_header_or_length() {
        let csv = b"time_ms,client,object,size\n1,2,3,4\n";
        assert_eq!(open(csv, None).unwrap().format_name(), "web-csv");
        assert_eq!(open(&[0; 48], None).unwrap().format_name(), "oracle-general");
        for neither in [&[0; 25][..], &[], b"1,2,3\n"] {
            let text = format!("{:#}", open(neither, None).unwrap_err());
            assert!(text.contains("time_s,object,offset,length,download"), "{text}");
        }
    }

    #[test]
    fn a_told_format_is_believed() {
        assert_eq!(open(&[0; 25], Some(Format::Oracle)).unwrap().count(), 2);
        assert!(open(&[0; 24], Some(Format::Csv)).is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Reader::open(Path::new("/no/such/trace"), None).unwrap_err();
        assert!(format!("{error:#}").starts_with("read /no/such/trace: "), "{error:#}");
    }
}
