//! The P2P trace: pCache's experiment (§7.3.2) as docs/formats/trace.md defines it.
//!
//! A [`P2pTrace`] is an iterator of requests in the order of time. All downloads
//! are planned first; then a heap merges them, and the pause after a request is
//! drawn when the request is taken from the heap.

mod catalogue;
mod downloads;
mod popularity;
mod ranges;
#[cfg(test)]
mod tests;

pub(crate) use ranges::{RequestsAs, SEGMENT_BYTES};

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use self::downloads::{Download, Plan};
use self::ranges::Cursor;
use super::draws::{Draws, whole};

/// What decides a trace, besides the generator's version.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    /// The first state of the stream of draws.
    pub(crate) seed: u64,
    /// Objects of the catalogue, at least 1.
    pub(crate) objects: u32,
    /// Requests of the trace.
    pub(crate) requests: u64,
    /// Skew of the popularity, at least 0.
    pub(crate) alpha: f64,
    /// Plateau of the popularity in ranks, at least 0.
    pub(crate) q: f64,
    /// Downloads from one change of the popularity to the next; 0: it never changes.
    pub(crate) drift: u32,
    /// Which ranges are asked for.
    pub(crate) requests_as: RequestsAs,
}

impl Default for Params {
    /// The paper's volume: 5,000 objects, 1.5 million segments, seed 1, no drift.
    fn default() -> Self {
        Self {
            seed: 1,
            objects: OBJECTS,
            requests: REQUESTS,
            alpha: 0.6,
            q: 25.0,
            drift: 0,
            requests_as: RequestsAs::Segments,
        }
    }
}

impl Params {
    /// The paper's volume divided by `scale`: objects and requests, never the
    /// segment (§2.7).
    pub(crate) fn scaled(scale: f64) -> Self {
        let objects = whole((f64::from(OBJECTS) / scale).round()).max(1);
        let requests = whole((REQUESTS as f64 / scale).round()).max(1);
        let objects = u32::try_from(objects).unwrap_or(u32::MAX);
        Self { objects, requests, ..Self::default() }
    }
}

/// A request for a range of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Microseconds from the trace's beginning.
    pub(crate) time_us: u64,
    /// Number of the object, from 0.
    pub(crate) object: u32,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes, at least 1.
    pub(crate) len: u64,
    /// Number of the download, from 0, in the order of their starts.
    pub(crate) download: u32,
}

/// Why a trace cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceFault {
    /// Clients fetch an object once, and hardly one is left that somebody lacks.
    Exhausted {
        /// How many were planned.
        downloads: usize,
    },
}

impl fmt::Display for TraceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Exhausted { downloads } = self;
        write!(
            f,
            "after {downloads} downloads every client has every object: more --objects or fewer --requests"
        )
    }
}

impl std::error::Error for TraceFault {}

/// The requests of a trace, in the order of time.
#[derive(Debug)]
pub(crate) struct P2pTrace {
    sizes: Vec<u64>,
    downloads: Vec<Download>,
    progress: Vec<Progress>,
    /// When each download that is not done asks next.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    draws: Draws,
    /// Requests that are still to come.
    left: u64,
}

/// How far a download is.
#[derive(Clone, Debug)]
struct Progress {
    cursor: Cursor,
    /// The request that goes out next.
    next: Option<(u64, u64)>,
    /// Requests that went out.
    sent: u64,
}

impl P2pTrace {
    /// Plans the downloads.
    ///
    /// # Errors
    /// When there are too few objects and clients for so many requests.
    pub(crate) fn new(params: &Params) -> Result<Self, TraceFault> {
        let mut draws = Draws::new(params.seed);
        let Plan { sizes, downloads } = Plan::draw(params, &mut draws)?;
        let begin = |download: &Download| {
            let mut cursor = Cursor::default();
            let next = cursor.next(&download.layout, &download.order);
            Progress { cursor, next, sent: 0 }
        };
        let progress = downloads.iter().map(begin).collect();
        let due = downloads.iter().zip(0..).map(|(d, number)| Reverse((micros(d.start), number)));
        let due = due.collect();
        Ok(Self { sizes, downloads, progress, due, draws, left: params.requests })
    }

    /// Bytes of each object.
    pub(crate) fn sizes(&self) -> &[u64] {
        &self.sizes
    }
}

impl Iterator for P2pTrace {
    type Item = Request;

    /// Takes one word when the request is followed by a pause.
    fn next(&mut self) -> Option<Request> {
        self.left = self.left.checked_sub(1)?;
        let Reverse((time_us, number)) = self.due.pop()?;
        let download = &mut self.downloads[number as usize];
        let progress = &mut self.progress[number as usize];
        let (offset, len) = progress.next.take()?;
        progress.sent += 1;
        progress.next = progress.cursor.next(&download.layout, &download.order);
        if progress.next.is_some() {
            let pause = match download.layout.pause_bytes(progress.sent) {
                0 => 0.0,
                bytes => self.draws.exponential(bytes as f64 / download.rate),
            };
            self.due.push(Reverse((time_us.saturating_add(micros(pause)), number)));
        } else {
            download.order = Vec::new();
        }
        Some(Request { time_us, object: download.object, offset, len, download: number })
    }
}

fn micros(secs: f64) -> u64 {
    whole(secs * 1e6)
}

const OBJECTS: u32 = 5000;
const REQUESTS: u64 = 1_500_000;
