//! First bytes of a flow to an app: signature packs and verdicts.
//!
//! A [`Pack`] is an ordered list of [`Signature`]s; the first that matches
//! wins. The same pack fills the kernel's table, so what is decided here for a
//! flow through the explicit port is what the kernel decides for a routed one.
//!
//! Refuses: anything but fixed byte patterns near the start of the first
//! payload. What needs more (flow statistics, later packets) is not this room's.

#![forbid(unsafe_code)]

mod app;
mod pack;
mod pattern;

pub use app::App;
pub use pack::{Action, Pack, PackError, SIGNATURES_MAX, Signature};
pub use pattern::{Match, PATTERN_BYTES_MAX, Pattern, PatternError, WINDOW_BYTES};

/// Which end of a connection sent a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Speaker {
    /// The end that opened the connection.
    Dialer,
    /// The end that accepted it.
    Listener,
}

/// What the first bytes of a flow say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are this app's, and this is to be done.
    Match {
        /// Place of the signature in its pack.
        index: usize,
        /// Whose they are.
        app: App,
        /// What to do.
        action: Action,
    },
    /// They are the beginning of at least one signature: ask again with more.
    NeedMore,
    /// No signature can match any more.
    NoMatch,
}
