//! The web trace: one day with the printed marginals of Kim et al., Table 2, as
//! docs/formats/trace.md defines it.
//!
//! A [`WebTrace`] is an iterator of requests in the order of time. Objects, and
//! the few requests for large ones, are drawn first; then each request takes its
//! words in this order: gap, object unless it is a large one, client.

mod body;
mod site;
mod tail;
#[cfg(test)]
mod tests;

pub(crate) use site::{Site, SiteName};

use std::collections::VecDeque;

use self::body::Body;
use self::tail::{OFF_MAX, Tail};
use super::alias::{AliasTable, zipf_weights};
use super::draws::{Draws, whole};

/// What decides a trace, besides the generator's version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    /// The first state of the stream of draws.
    pub(crate) seed: u64,
    /// Whose day, or which part of it.
    pub(crate) site: Site,
    /// Whether one in five requests above 1 MB comes as 2 to 8 ranges.
    pub(crate) ranges: bool,
}

/// A request for an object or a range of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Milliseconds from the beginning of the day.
    pub(crate) time_ms: u64,
    /// Number of the client, from 0, the busiest first.
    pub(crate) client: u32,
    /// Size class: 0 is at most 1 MB, then at most 10, at most 100, above.
    pub(crate) class: u8,
    /// Number of the object in its class, from 0, the most popular first.
    pub(crate) object: u32,
    /// Bytes of the object.
    pub(crate) size: u64,
    /// First byte that is asked for.
    pub(crate) offset: u64,
    /// Bytes that are asked for, `offset + len <= size`.
    pub(crate) len: u64,
}

impl Request {
    /// A number of the object that no other class has.
    pub(crate) fn object_number(&self) -> u64 {
        u64::from(self.class) << 40 | u64::from(self.object)
    }
}

/// The requests of a day, in the order of time.
#[derive(Debug)]
pub(crate) struct WebTrace {
    params: Params,
    body: Body,
    tail: Tail,
    clients: AliasTable,
    draws: Draws,
    /// Whether and how requests come as ranges, apart from all else.
    range_draws: Draws,
    /// Requests that were made, ranges counted once.
    made: u64,
    /// Those of them that were for large objects.
    made_of_tail: usize,
    /// Seconds from the beginning of the day.
    clock: f64,
    /// Ranges that are still to be told.
    pending: VecDeque<Request>,
}

impl WebTrace {
    /// Draws the objects.
    pub(crate) fn new(params: Params) -> Self {
        let bins = params.site.bins();
        let mut draws = Draws::new(params.seed);
        let body = Body::draw(&bins[0], &mut draws);
        let tail = Tail::draw(&bins, params.site.requests, &mut draws);
        let clients = zipf_weights(params.site.clients as usize, CLIENT_SKEW, CLIENT_PLATEAU);
        Self {
            body,
            tail,
            clients: AliasTable::new(&clients),
            draws,
            range_draws: Draws::split(params.seed, RANGES),
            made: 0,
            made_of_tail: 0,
            clock: 0.0,
            pending: VecDeque::new(),
            params,
        }
    }

    /// The classes above 1 MB, from 1, whose bytes are off the table by more than
    /// 1 %, and by how much.
    pub(crate) fn off(&self) -> impl Iterator<Item = (usize, f64)> {
        (1..).zip(self.tail.off).filter(|(_, off)| off.abs() > OFF_MAX)
    }

    /// The next request, as one.
    fn whole_request(&mut self) -> Option<Request> {
        if self.made == self.params.site.requests {
            return None;
        }
        let mean_rate = self.params.site.requests as f64 / DAY_SECS;
        let hours = self.clock / 3600.0 - MEAN_RISING_HOUR;
        let rate = mean_rate * (1.0 + DAY_SWING * (std::f64::consts::TAU * hours / 24.0).sin());
        self.clock += self.draws.exponential(1.0 / rate);
        let large = self.tail.request(self.made_of_tail).filter(|r| r.position == self.made);
        let (class, object, size) = if let Some(large) = large {
            self.made_of_tail += 1;
            (large.class, large.object, self.tail.size(&large))
        } else {
            let object = self.body.request(&mut self.draws);
            (0, object, self.body.size(object))
        };
        let client = self.clients.draw(&mut self.draws);
        self.made += 1;
        let time_ms = whole(self.clock * 1e3);
        Some(Request { time_ms, client, class, object, size, offset: 0, len: size })
    }
}

impl Iterator for WebTrace {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if let Some(range) = self.pending.pop_front() {
            return Some(range);
        }
        let request = self.whole_request()?;
        if !self.params.ranges || request.class == 0 || !self.range_draws.chance(RANGED) {
            return Some(request);
        }
        let part = request.size.div_ceil(RANGES_MIN + self.range_draws.below(RANGES_SPREAD));
        let mut offset = 0;
        while offset < request.size {
            let len = part.min(request.size - offset);
            self.pending.push_back(Request { offset, len, ..request });
            offset += len;
        }
        self.pending.pop_front()
    }
}

const CLIENT_SKEW: f64 = 0.8;
const CLIENT_PLATEAU: f64 = 10.0;
const DAY_SECS: f64 = 86_400.0;
const DAY_SWING: f64 = 0.6;
/// The load passes its mean upwards at nine in the morning.
const MEAN_RISING_HOUR: f64 = 9.0;
/// Purpose of the stream that decides ranges.
const RANGES: u64 = 1;
const RANGED: f64 = 0.2;
const RANGES_MIN: u64 = 2;
const RANGES_SPREAD: u64 = 7;
