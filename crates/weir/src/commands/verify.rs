//! `weir cache verify`: has the gateway read all that it holds, and follows it.

use std::io::{self, IsTerminal, Write};
use std::thread::sleep;
use std::time::Duration;

use weir_gateway::state::{VerifyReport, VerifyStatus};

use super::text::{bytes, percent};
use crate::api;
use crate::cli::ApiArgs;
use crate::exit::{Code, Failure, Outcome, print};

const PATH: &str = "/api/v1/store/verify";

/// How often the gateway is asked how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) fn run(args: &ApiArgs) -> Outcome {
    let (began, VerifyStatus { number, .. }) = api::post(args.api, PATH)?;
    let mut progress = Progress::new(io::stderr(), io::stderr().is_terminal());
    if !began {
        progress.line("a scrub is under way already; this follows it");
    }
    let (json, report) = loop {
        let (json, status) = api::get::<VerifyStatus>(args.api, PATH)?;
        if status.number != number {
            let error = "the scrub's report is lost: the gateway or another scrub began anew";
            return Err(Failure::new(Code::Failed, error).hint("verify again"));
        }
        progress.show(&status);
        match status.report {
            Some(report) => break (json, report),
            None if status.running => sleep(POLL_INTERVAL),
            None => {
                let error = "the gateway stopped before all was read";
                return Err(Failure::new(Code::Unavailable, error));
            }
        }
    };
    drop(progress);
    print(&if args.json { format!("{}\n", json.trim_end()) } else { described(&report) })?;
    verdict(&report)
}

fn described(report: &VerifyReport) -> String {
    let VerifyReport { segments, bytes: read, bad_segments, bad_bytes, read_errors } = *report;
    let rows = [
        ("read", format!("{}, {}", count(segments), bytes(read))),
        ("bad", format!("{}, {}, freed", count(bad_segments), bytes(bad_bytes))),
        ("unreadable", count(read_errors)),
    ];
    rows.map(|(name, value)| format!("{name:<12}{value}\n")).concat()
}

fn verdict(report: &VerifyReport) -> Outcome {
    let (bad, unread) = (report.bad_segments, report.read_errors);
    let error = match (bad, unread) {
        (0, 0) => return Ok(()),
        (0, _) => format!("the disk would not read {}", count(unread)),
        (_, 0) => format!("{} not as written, and freed", count(bad)),
        _ => format!(
            "{} not as written, and freed; the disk would not read {}",
            count(bad),
            count(unread)
        ),
    };
    Err(Failure::new(Code::Failed, error)
        .hint("a crash can leave a few; without one, the disk or the memory may be failing"))
}

fn count(segments: u64) -> String {
    format!("{segments} {}", if segments == 1 { "segment" } else { "segments" })
}

/// How far it is, for people: one line that changes on a terminal, a line for each
/// tenth elsewhere. Output that fails is nobody's to see, and is not an error.
struct Progress<W: Write> {
    out: W,
    is_terminal: bool,
    /// The last tenth that was told.
    tenth: u64,
    /// A line is there that has no end yet.
    is_open: bool,
}

impl<W: Write> Progress<W> {
    const fn new(out: W, is_terminal: bool) -> Self {
        Self { out, is_terminal, tenth: 0, is_open: false }
    }

    fn show(&mut self, status: &VerifyStatus) {
        let (done, total) = (status.bytes_done, status.bytes_total);
        let text = format!(
            "{} of {} verified, {}",
            bytes(done),
            bytes(total),
            percent(done, total.max(1))
        );
        if self.is_terminal {
            // Back to the line's beginning, and whatever is longer there goes.
            write!(self.out, "\rweir: {text}\x1b[K").unwrap_or_default();
            self.out.flush().unwrap_or_default();
            self.is_open = true;
            return;
        }
        let tenth = done.saturating_mul(10) / total.max(1);
        if tenth > self.tenth {
            self.tenth = tenth;
            self.line(&text);
        }
    }

    fn line(&mut self, text: &str) {
        writeln!(self.out, "weir: {text}").unwrap_or_default();
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        if self.is_open {
            writeln!(self.out).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown at these numbers of bytes of a thousand.
    fn shown(is_terminal: bool, steps: &[u64]) -> String {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out, is_terminal);
        for &bytes_done in steps {
            progress.show(&VerifyStatus { bytes_done, bytes_total: 1000, ..Default::default() });
        }
        drop(progress);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_file_gets_a_line_for_each_tenth() {
        let text = shown(false, &[0, 99, 100, 150, 450, 1000, 1000]);
        let shares: Vec<_> = text.lines().map(|line| line.rsplit_once(", ").unwrap().1).collect();
        assert_eq!(shares, ["10.0 %", "45.0 %", "100.0 %"]);
        assert_eq!(shown(false, &[]), "");
    }

    #[test]
    fn a_terminal_gets_one_line_that_changes() {
        let text = shown(true, &[0, 5, 1000]);
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(text.matches('\r').count(), 3);
        assert!(text.ends_with("weir: 1000 B of 1000 B verified, 100.0 %\x1b[K\n"), "{text:?}");
    }

    #[test]
    fn what_was_bad_or_unreadable_is_a_failure() {
        let report = VerifyReport { segments: 9, bytes: 9 << 14, ..VerifyReport::default() };
        assert!(verdict(&report).is_ok());
        assert!(described(&report).contains("9 segments, 144.0 KiB"));
        let bad = VerifyReport { bad_segments: 1, bad_bytes: 16384, ..report };
        let failure = verdict(&bad).unwrap_err();
        assert_eq!(
            (failure.code, failure.error.as_str()),
            (Code::Failed, "1 segment not as written, and freed")
        );
        let unread = verdict(&VerifyReport { read_errors: 2, ..report }).unwrap_err();
        assert_eq!(unread.error, "the disk would not read 2 segments");
    }
}
