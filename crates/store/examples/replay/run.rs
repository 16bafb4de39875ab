//! One run: requests in, a result out.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};

use crate::content;
use crate::front::Front;
use crate::layout::{Layout, Segment};
use crate::trace::Request;

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Of the front.
    pub(crate) capacity_bytes: u64,
    /// The front decides for every layout.
    pub(crate) same_decisions: bool,
    /// Zero: only as the layout does itself.
    pub(crate) sync_every: Duration,
    /// A JSON object a line, about every [`PROGRESS_EVERY`].
    pub(crate) progress: Option<PathBuf>,
}

/// What was counted so far.
#[derive(Clone, Debug, Default)]
struct Tally {
    requests: u64,
    requested_bytes: u64,
    hits: u64,
    hit_bytes: u64,
    puts: u64,
    put_bytes: u64,
    /// Segments that the front said are held, and the layout no longer had.
    lost: u64,
    forgotten: u64,
    get_times: Vec<Duration>,
    put_times: Vec<Duration>,
}

/// Replays `requests`; answers what came of it.
///
/// # Errors
/// When the layout fails, and `InvalidData` when it gives a wrong byte.
pub(crate) fn run(
    mut layout: Box<dyn Layout>,
    requests: &[Request],
    plan: &Plan,
) -> io::Result<Value> {
    let needs_front = plan.same_decisions || !layout.replaces();
    let mut front = needs_front.then(|| Front::new(plan.capacity_bytes));
    let mut progress = plan.progress.as_ref().map(File::create).transpose()?;
    let mut tally = Tally::default();
    let (start, mut buf) = (now(), Vec::new());
    let (mut told, mut synced) = (Duration::ZERO, Duration::ZERO);
    for &Request { segment, begins } in requests {
        if begins {
            layout.wanted(segment.object);
        }
        request(&mut *layout, front.as_mut(), segment, &mut buf, &mut tally)?;
        let at = start.elapsed();
        if let Some(progress) = progress.as_mut().filter(|_| at - told >= PROGRESS_EVERY) {
            tally.tell(at, progress)?;
            told = at;
        }
        if !plan.sync_every.is_zero() && at - synced >= plan.sync_every {
            layout.sync()?;
            synced = at;
        }
    }
    let replayed = start.elapsed();
    layout.finish()?;
    let finished = start.elapsed();
    if let Some(progress) = progress.as_mut() {
        tally.tell(finished, progress)?;
    }
    tally.result(&*layout, replayed, finished)
}

/// One request: looked for, checked when it is there, put when it is not.
fn request(
    layout: &mut dyn Layout,
    front: Option<&mut Front>,
    segment: Segment,
    buf: &mut Vec<u8>,
    tally: &mut Tally,
) -> io::Result<()> {
    tally.requests += 1;
    tally.requested_bytes += u64::from(segment.len);
    let expected = front.as_ref().is_none_or(|front| front.holds(segment.key()));
    if expected {
        let before = now();
        let found = layout.get(segment, buf)?;
        tally.get_times.push(before.elapsed());
        if found.hit_bytes == segment.len as usize {
            if !content::is_of(segment, buf) {
                let why = format!("wrong bytes for {segment:?}, request {}", tally.requests);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
            tally.hits += 1;
            tally.hit_bytes += u64::from(segment.len);
            if let Some(front) = front {
                front.touch(segment.key());
            }
            return Ok(());
        }
        tally.lost += u64::from(front.is_some());
    }
    let data = content::of(segment);
    let before = now();
    layout.put(segment, &data)?;
    tally.put_times.push(before.elapsed());
    tally.puts += 1;
    tally.put_bytes += u64::from(segment.len);
    for gone in front.map(|front| front.insert(segment)).unwrap_or_default() {
        layout.forget(gone)?;
        tally.forgotten += 1;
    }
    Ok(())
}

impl Tally {
    fn tell(&self, at: Duration, out: &mut File) -> io::Result<()> {
        let line = json!({
            "secs": at.as_secs_f64(),
            "requests": self.requests,
            "hit_bytes": self.hit_bytes,
            "put_bytes": self.put_bytes,
        });
        writeln!(out, "{line}")
    }

    fn result(
        mut self,
        layout: &dyn Layout,
        replayed: Duration,
        finished: Duration,
    ) -> io::Result<Value> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let secs = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
        Ok(json!({
            "secs": finished.as_secs_f64(),
            "replay_secs": replayed.as_secs_f64(),
            "finish_secs": (finished - replayed).as_secs_f64(),
            "user_secs": secs(usage.user_time()),
            "system_secs": secs(usage.system_time()),
            "peak_memory_kib": usage.max_rss(),
            "requests": self.requests,
            "requested_bytes": self.requested_bytes,
            "hits": self.hits,
            "hit_bytes": self.hit_bytes,
            "puts": self.puts,
            "put_bytes": self.put_bytes,
            "lost": self.lost,
            "forgotten": self.forgotten,
            "get_us": microseconds(&mut self.get_times),
            "put_us": microseconds(&mut self.put_times),
            "calls": layout.counters().told(),
        }))
    }
}

/// Mean, median and 99th percentile.
fn microseconds(times: &mut [Duration]) -> Value {
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let at = |share: usize| {
        let place = (times.len().max(1) - 1) * share / 100;
        times.get(place).copied().map_or(0.0, us)
    };
    let mean = us(times.iter().sum::<Duration>()) / times.len().max(1) as f64;
    json!({"mean": mean, "p50": at(50), "p99": at(99)})
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

const PROGRESS_EVERY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::counted::Counted;
    use crate::layout::{Kind, Outcome, Space};

    fn trace() -> Vec<Request> {
        let segment = |n: u64| Segment { object: n % 7, offset: (n % 11) << 19, len: 512 << 10 };
        let mut number = 1_u64;
        let mut next = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Request { segment: segment(number >> 33), begins: false }
        };
        (0..400).map(|_| next()).collect()
    }

    fn plan() -> Plan {
        let sync_every = Duration::from_millis(50);
        Plan { capacity_bytes: 24 << 20, same_decisions: true, sync_every, progress: None }
    }

    #[test]
    fn the_same_decisions_are_made_for_every_layout() {
        let counts = |kind: Kind| {
            let dir = tempfile::tempdir().unwrap();
            let space = Space {
                dir: dir.path().into(),
                device: None,
                capacity_bytes: 24 << 20,
                memory_bytes: 4 << 20,
                is_decided: true,
            };
            let progress = dir.path().join("progress");
            let plan = Plan { progress: Some(progress.clone()), ..plan() };
            let result = run(kind.open(&space).unwrap(), &trace(), &plan).unwrap();
            let lines = std::fs::read_to_string(progress).unwrap();
            let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
            assert_eq!(last["requests"], 400);
            let number = |name: &str| result[name].as_u64().unwrap();
            [number("hits") + number("lost"), number("puts") - number("lost"), number("forgotten")]
        };
        let want = counts(Kind::Directories);
        assert!(want[0] > 50 && want[1] > 50 && want[2] > 10, "{want:?}");
        for kind in [Kind::Squid, Kind::Coss, Kind::PcacheFile, Kind::WeirFile] {
            assert_eq!(counts(kind), want, "{kind:?}");
        }
    }

    /// Says that it has everything and gives zeros.
    #[derive(Debug, Default)]
    struct Liar(Counted);

    impl Layout for Liar {
        fn get(&mut self, segment: Segment, buf: &mut Vec<u8>) -> io::Result<Outcome> {
            buf.clear();
            buf.resize(segment.len as usize, 0);
            Ok(Outcome::hit(buf.len()))
        }
        fn put(&mut self, _: Segment, _: &Bytes) -> io::Result<()> {
            Ok(())
        }
        fn forget(&mut self, _: Segment) -> io::Result<()> {
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn counters(&self) -> &Counted {
            &self.0
        }
    }

    #[test]
    fn a_wrong_byte_ends_the_run() {
        let error = run(Box::new(Liar::default()), &trace(), &plan()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
