//! Structured logs on stderr.

use std::io::{self, IsTerminal};

use tracing::Level;
use tracing_subscriber::fmt;

use crate::config::LogFormat;

/// Starts logging. The configuration says the level; the environment does not.
pub(crate) fn start(level: Level, format: LogFormat) {
    let builder = fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // A log that nobody reads any more must not end the gateway.
        .log_internal_errors(false);
    match format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Text => builder.compact().init(),
    }
}
