//! How the command ends. The codes are API: scripts and units rely on them.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed |
//! | 64 | the command line is wrong |
//! | 69 | something needed is unavailable: a gateway, a port, a kernel feature |
//! | 77 | the rights do not suffice |
//! | 78 | the configuration is wrong |

use std::io::{self, Write};
use std::process::ExitCode;

/// One of the documented codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Failed = 1,
    Usage = 64,
    Unavailable = 69,
    Rights = 77,
    Config = 78,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) error: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

/// What a command returns. Data is on stdout by then.
pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    pub(crate) fn new(code: Code, error: impl Into<String>) -> Self {
        Self { code, error: error.into(), hint: None }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Prints what happened and turns it into an exit code.
pub(crate) fn report(outcome: Outcome) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    let mut stderr = io::stderr().lock();
    // With stderr gone there is nobody to tell; the code still tells.
    let told = writeln!(stderr, "weir: error: {}", failure.error.trim_end());
    if let (Ok(()), Some(hint)) = (told, &failure.hint) {
        writeln!(stderr, "weir: hint: {hint}").unwrap_or_default();
    }
    ExitCode::from(failure.code as u8)
}

/// Help and version are success; anything else clap says is a usage error.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    error.print().unwrap_or_default();
    if error.use_stderr() { ExitCode::from(Code::Usage as u8) } else { ExitCode::SUCCESS }
}

/// Writes data to stdout. A reader that went away (`| head`) is success.
pub(crate) fn print(text: &str) -> Outcome {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(Code::Failed, format!("cannot write the output: {error}"))),
    }
}
