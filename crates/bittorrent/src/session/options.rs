//! Settings and limits of a session.

use std::time::Duration;

/// Settings and limits of one session. Defaults hold about 4 MiB in the worst
/// case: `queued_bytes_max` and one block for each leg, and the two tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Whether requests from outside are answered too. Default false: clients
    /// upload themselves, and their count of it stays true.
    pub answer_outside: bool,
    /// Look-ups in flight for each leg. Default 64.
    pub lookups_max: usize,
    /// Requests of each leg that wait for their look-up; more are forwarded. Clients
    /// queue as many as their peer says it takes: 500 to 2000 mostly, 10,000 seen.
    /// Default 16,384: 192 KiB.
    pub waiting_max: usize,
    /// Answered bytes that may wait to be written to a leg before no more is
    /// looked up for it. Default 1 MiB.
    pub queued_bytes_max: usize,
    /// How often one block is served; after that its peer is asked. Remembers the
    /// last 2048 blocks. Default 8.
    pub serves_max: u32,
    /// Silence towards a leg after which a keep-alive is sent to it, if the other
    /// leg spoke since. Clients hang up after 120 s. Default 55 s.
    pub keep_alive: Duration,
    /// Whether to ask peers for metadata that they do not exchange. Default true.
    pub ask_metadata: bool,
    /// How long a side without metadata is given to get it itself. Default 5 s.
    pub ask_delay: Duration,
    /// Whether blocks of contents without metadata are served once the inference
    /// is confident. They were never checked. Default true.
    pub serve_unchecked: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            answer_outside: false,
            lookups_max: 64,
            waiting_max: 16_384,
            queued_bytes_max: 1 << 20,
            serves_max: 8,
            keep_alive: Duration::from_secs(55),
            ask_metadata: true,
            ask_delay: Duration::from_secs(5),
            serve_unchecked: true,
        }
    }
}
