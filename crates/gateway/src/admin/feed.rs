//! The live events: one status a second, made once for all who follow, and the
//! last minutes of it for those who come later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::sse::Event;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};

use super::server::{View, read};
use crate::metrics::Metrics;
use crate::state::Status;

/// Programs that may follow the live events at once.
pub const FOLLOWERS_MAX: usize = 32;

/// `GET /api/v1/history`: what the dashboard's chart starts with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// One sample a second, oldest first, at most 301: five minutes.
    pub samples: Vec<HistorySample>,
}

/// Content bytes that inside clients asked for, from the start to one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistorySample {
    /// The moment, in seconds since the gateway's start.
    pub uptime_seconds: f64,
    /// Asked for.
    pub asked_inside: u64,
    /// Of it, answered from the store.
    pub served_inside: u64,
    /// Of it, come from the other side.
    pub fetched_inside: u64,
}

impl From<&Status> for HistorySample {
    fn from(status: &Status) -> Self {
        Self {
            uptime_seconds: status.uptime_seconds,
            asked_inside: status.bytes.asked_inside,
            served_inside: status.bytes.served_inside,
            fetched_inside: status.bytes.fetched_inside,
        }
    }
}

/// What is kept of the last five minutes.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<HistorySample>>);

impl Recent {
    /// A copy, oldest first.
    pub(super) fn history(&self) -> History {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        History { samples: samples.iter().copied().collect() }
    }

    fn push(&self, sample: HistorySample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}

/// Reads the status every second and hands it to all followers, as JSON.
///
/// Never returns. Dropping it ends every follower's stream.
///
/// # Cancel safety
///
/// Safe: at most one sample is lost.
pub(super) async fn run(view: Arc<dyn View>, recent: Arc<Recent>, latest: watch::Sender<Arc<str>>) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        // A view that panicked is reported to those who ask it; the next tick tries again.
        let Ok(status) = read(&view, |view| view.status()).await else { continue };
        recent.push(HistorySample::from(&status));
        let json = serde_json::to_string(&status).expect("a status serialises");
        latest.send_replace(json.into());
    }
}

/// Those who follow, and how to become one.
#[derive(Debug)]
pub(super) struct Followers {
    latest: watch::Receiver<Arc<str>>,
    slots: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Followers {
    pub(super) fn new(latest: watch::Receiver<Arc<str>>, metrics: Arc<Metrics>) -> Self {
        Self { latest, slots: Arc::new(Semaphore::new(FOLLOWERS_MAX)), metrics }
    }

    /// A stream of `status` events, the latest at once; `None` when all places are taken.
    pub(super) fn follow(
        &self,
    ) -> Option<impl Stream<Item = Result<Event, std::convert::Infallible>> + use<>> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        self.metrics.admin.follower_came();
        let place = Place { metrics: Arc::clone(&self.metrics), _slot: slot };
        let events = WatchStream::new(self.latest.clone());
        Some(events.filter(|json| !json.is_empty()).map(move |json| {
            let Place { .. } = &place;
            Ok(Event::default().event("status").data(&*json))
        }))
    }
}

/// One follower's place, given back when the stream is dropped.
#[derive(Debug)]
struct Place {
    metrics: Arc<Metrics>,
    _slot: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.admin.follower_went();
    }
}

/// Five minutes of rates need one sample more than they have seconds.
const SAMPLES_MAX: usize = 301;
