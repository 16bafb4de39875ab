//! Byte counters of devices, once a second.
//!
//! A thread inside a namespace reads `/proc/thread-self/net/dev`, which counts
//! at the device: what a capture would see, headers included.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock;
use crate::netns::Namespace;

/// Bytes in and out of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Bytes {
    /// Bytes the device received.
    pub(crate) rx: u64,
    /// Bytes the device sent.
    pub(crate) tx: u64,
}

impl Bytes {
    /// What came since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self { rx: self.rx.saturating_sub(earlier.rx), tx: self.tx.saturating_sub(earlier.tx) }
    }
}

/// One reading of every device of a namespace.
pub(crate) type Reading = BTreeMap<String, Bytes>;

/// Readings with their time in seconds since the meter was started.
pub(crate) type Readings = Vec<(f64, Reading)>;

/// A running meter.
#[derive(Debug)]
pub(crate) struct Meter {
    stop: SyncSender<()>,
    thread: Option<JoinHandle<Result<Readings>>>,
}

impl Meter {
    /// Reads every device of `space` every `every` until [`Meter::finish`].
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(space: &Namespace, every: Duration) -> Result<Self> {
        let space = Arc::new(Namespace::existing(space.name()));
        let (stop, stopped) = sync_channel(1);
        let work = move || {
            space.enter()?;
            let start = clock::now();
            let mut readings = Vec::new();
            loop {
                readings.push((start.elapsed().as_secs_f64(), read_here()?));
                match stopped.recv_timeout(every) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => break,
                }
            }
            readings.push((start.elapsed().as_secs_f64(), read_here()?));
            Ok(readings)
        };
        let thread = thread::Builder::new().name("meter".to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the meter with a last reading.
    ///
    /// # Errors
    /// When the counters could not be read.
    pub(crate) fn finish(mut self) -> Result<Readings> {
        // The thread ends on its own when it failed; its error is told below.
        self.stop.try_send(()).ok();
        let thread = self.thread.take().context("a meter finishes once")?;
        thread.join().map_err(|_| anyhow::anyhow!("the meter panicked"))?
    }
}

/// The counters of a namespace's devices now.
///
/// # Errors
/// When the namespace is gone.
pub(crate) fn read(space: &Namespace) -> Result<Reading> {
    space.inside(read_here)?
}

/// The counters of one device now.
///
/// # Errors
/// When the namespace or the device is gone.
pub(crate) fn read_device(space: &Namespace, device: &str) -> Result<Bytes> {
    let reading = read(space)?;
    reading.get(device).copied().with_context(|| format!("no device {device}"))
}

/// Differences between readings as (seconds, Mbit/s in, Mbit/s out) of one device.
pub(crate) fn rates(readings: &Readings, device: &str) -> Vec<(f64, f64, f64)> {
    let of = |reading: &Reading| reading.get(device).copied().unwrap_or_default();
    readings
        .windows(2)
        .filter(|pair| pair[1].0 - pair[0].0 > 0.05)
        .map(|pair| {
            let bytes = of(&pair[1].1).since(of(&pair[0].1));
            let mbit = |count: u64| count as f64 * 8e-6 / (pair[1].0 - pair[0].0);
            (pair[1].0, mbit(bytes.rx), mbit(bytes.tx))
        })
        .collect()
}

fn read_here() -> Result<Reading> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").context("read device counters")?;
    Ok(parse(&text))
}

/// Reads proc(5) `net/dev`: received bytes are the first number, sent the ninth.
fn parse(text: &str) -> Reading {
    let line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> =
            counts.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some((name.trim().to_owned(), Bytes { rx: *counts.first()?, tx: *counts.get(8)? }))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_first_and_the_ninth_number_of_a_device() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo:       1 2 3 4 5 6 7 8 9 10\n\
                    wan0:100 0 0 0 0 0 0 0 200 0 0 0 0 0 0 0\n";
        let reading = parse(text);
        assert_eq!(reading["lo"], Bytes { rx: 1, tx: 9 });
        assert_eq!(reading["wan0"], Bytes { rx: 100, tx: 200 });
        assert_eq!(reading.len(), 2);
    }

    #[test]
    fn rates_are_differences_over_time() {
        let reading = |rx| Reading::from([("d".to_owned(), Bytes { rx, tx: 0 })]);
        let readings = vec![(0.0, reading(0)), (2.0, reading(1_000_000))];
        assert_eq!(rates(&readings, "d"), [(2.0, 4.0, 0.0)]);
    }
}
