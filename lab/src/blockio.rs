//! What a block device was asked to do, and how busy it was.
//!
//! Requests come from the kernel's own events (`block_rq_issue`, read in a private
//! instance of tracefs with a filter for the device); blktrace is not to be had on
//! every machine. Busy time and bytes come from the device's `stat` in sysfs, read
//! four times a second. From the requests a disk of the paper's time is modelled as
//! well, because where a seek costs nothing their distances are all that is left of
//! it.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::clock;
use crate::janitor::Janitor;
use crate::loopdev::LoopDevice;

/// Requests of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    /// Requests.
    pub(crate) count: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Requests of `[2^i, 2^(i+1))` bytes.
    by_log2: [u64; 32],
}

/// All requests of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// Reads.
    pub(crate) reads: Side,
    /// Writes.
    pub(crate) writes: Side,
    /// Requests to make everything durable.
    pub(crate) flushes: u64,
    /// Requests that did not begin where the one before had ended.
    pub(crate) seeks: u64,
    /// Sectors between the end of a request and the start of the next, summed.
    pub(crate) seek_sectors: u64,
    /// What the requests would take on a disk of the paper's time; see [`Disk2008`].
    pub(crate) modelled_secs: f64,
    /// Events that the kernel dropped because we read too slowly.
    pub(crate) lost: u64,
    next_sector: Option<u64>,
}

impl Side {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.by_log2[(bytes.max(1).ilog2() as usize).min(31)] += 1;
    }

    fn told(&self) -> Value {
        let sizes = self.by_log2.iter().enumerate().filter(|(_, count)| **count > 0);
        let sizes: serde_json::Map<_, _> =
            sizes.map(|(log2, count)| ((1_u64 << log2).to_string(), json!(count))).collect();
        json!({"count": self.count, "bytes": self.bytes, "by_size": sizes})
    }
}

impl Requests {
    /// Requests that move bytes.
    pub(crate) const fn count(&self) -> u64 {
        self.reads.count + self.writes.count
    }

    /// Mean bytes of a request.
    pub(crate) fn mean_bytes(&self) -> f64 {
        (self.reads.bytes + self.writes.bytes) as f64 / self.count() as f64
    }

    /// Mean sectors from one request to the next, those that follow on included.
    pub(crate) fn mean_seek_sectors(&self) -> f64 {
        self.seek_sectors as f64 / self.count() as f64
    }

    /// For the record.
    pub(crate) fn told(&self) -> Value {
        json!({
            "reads": self.reads.told(),
            "writes": self.writes.told(),
            "flushes": self.flushes,
            "seeks": self.seeks,
            "seek_sectors": self.seek_sectors,
            "modelled_secs": self.modelled_secs,
            "lost_events": self.lost,
        })
    }

    fn add(&mut self, event: &Event<'_>, disk: &Disk2008) {
        if event.flags.contains('D') {
            return;
        }
        self.flushes += u64::from(event.flags.contains('F'));
        if event.bytes == 0 {
            return;
        }
        let side = if event.flags.contains('W') { &mut self.writes } else { &mut self.reads };
        side.add(event.bytes);
        let next = self.next_sector.unwrap_or(event.sector);
        self.seeks += u64::from(next != event.sector);
        self.seek_sectors += next.abs_diff(event.sector);
        self.modelled_secs += disk.secs(next, event.sector, event.bytes);
        self.next_sector = Some(event.sector + event.bytes / SECTOR_BYTES);
    }
}

/// A disk of 7200 rpm as they were sold in 2008, as a model: requests one by one, in
/// the order in which they were issued.
///
/// Seek 0.8 ms to the next track and 17 ms over the whole disk, growing with the
/// root of the distance (mean 9.4 ms); half a turn, 4.17 ms; 72 MB/s. Gaps of up to
/// 1 MiB forward are passed over. Distances are shares of the device, as data scaled
/// down lie on a disk scaled down. No such disk was measured here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk2008 {
    sectors: u64,
}

impl Disk2008 {
    /// One as large as the device.
    pub(crate) const fn of(bytes: u64) -> Self {
        Self { sectors: bytes / SECTOR_BYTES }
    }

    /// Seconds from the end of the last request, at `from`, to that of this one.
    fn secs(&self, from: u64, sector: u64, bytes: u64) -> f64 {
        let transfer = bytes as f64 / 72e6;
        let passed_over = sector.checked_sub(from).filter(|gap| *gap <= (1 << 20) / SECTOR_BYTES);
        if let Some(gap) = passed_over {
            return (gap * SECTOR_BYTES) as f64 / 72e6 + transfer;
        }
        let share = from.abs_diff(sector) as f64 / self.sectors as f64;
        0.0008 + 0.0162 * share.sqrt() + 0.00417 + transfer
    }
}

/// Reading of block events in a thread.
#[derive(Debug)]
pub(crate) struct BlockTrace {
    instance: PathBuf,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Requests>>,
    _janitor: Janitor,
}

impl BlockTrace {
    /// Begins to read the events of `device`.
    ///
    /// # Errors
    /// When tracefs is not there or may not be used.
    pub(crate) fn start(device: &LoopDevice) -> Result<Self> {
        let instance = Path::new(TRACEFS).join("instances/weir-lab");
        if !instance.exists() {
            fs::create_dir(&instance).context("an instance of tracefs")?;
        }
        let janitor = Janitor::removing(&instance.to_string_lossy())?;
        let set = |knob: &str, value: &str| {
            fs::write(instance.join(knob), value).with_context(|| format!("set {knob}"))
        };
        let number = device.number()?;
        let (major, minor) = number.split_once(':').context("a device number")?;
        // The kernel's own form of a device number: 20 bits for the minor.
        let dev = (major.parse::<u64>()? << 20) + minor.parse::<u64>()?;
        set("events/enable", "0")?;
        set("trace", "")?;
        set("buffer_size_kb", "4096")?;
        set("events/block/block_rq_issue/filter", &format!("dev == {dev}"))?;
        set("events/block/block_rq_issue/enable", "1")?;
        set("tracing_on", "1")?;
        let mut options = File::options();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        let pipe = options.open(instance.join("trace_pipe")).context("open trace_pipe")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, disk) = (Arc::clone(&stop), Disk2008::of(device.bytes()));
        let thread = thread::Builder::new()
            .name("block-events".to_owned())
            .spawn(move || read_events(pipe, &stopped, &disk))?;
        Ok(Self { instance, stop, thread, _janitor: janitor })
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// When events could not be read.
    pub(crate) fn finish(self) -> Result<Requests> {
        let enabled = self.instance.join("events/block/block_rq_issue/enable");
        fs::write(enabled, "0").context("end the events")?;
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| anyhow!("the reader of block events panicked"))?
    }
}

fn read_events(mut pipe: File, stop: &AtomicBool, disk: &Disk2008) -> Result<Requests> {
    let mut requests = Requests::default();
    let (mut text, mut buf) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        // Asked before the pipe is, so that nothing comes between.
        let stopping = stop.load(Ordering::SeqCst);
        match pipe.read(&mut buf) {
            Ok(count @ 1..) => {
                text.extend_from_slice(&buf[..count]);
                let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                for line in String::from_utf8_lossy(&text[..whole]).lines() {
                    if let Some(event) = Event::parse(line) {
                        requests.add(&event, disk);
                    } else if line.contains("LOST") {
                        let lost = line.split_whitespace().find_map(|word| word.parse().ok());
                        requests.lost += lost.unwrap_or(1);
                    }
                }
                text.drain(..whole);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            _ if stopping => return Ok(requests),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// One request as the kernel tells it.
#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    flags: &'a str,
    bytes: u64,
    sector: u64,
}

impl<'a> Event<'a> {
    /// `… block_rq_issue: 7,0 WS 524288 () 2048 + 1024 none,0,0 [comm]`
    fn parse(line: &'a str) -> Option<Self> {
        let (_, told) = line.split_once("block_rq_issue: ")?;
        let mut words = told.split_whitespace().skip(1);
        let (flags, bytes) = (words.next()?, words.next()?.parse().ok()?);
        // The command of a passthrough request may hold blanks.
        let (_, place) = told.split_once(") ")?;
        let sector = place.split_whitespace().next()?.parse().ok()?;
        Some(Self { flags, bytes, sector })
    }
}

/// A device's counters at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Seconds since the meter was started.
    pub(crate) secs: f64,
    /// Requests completed.
    pub(crate) requests: u64,
    /// Bytes read.
    pub(crate) read_bytes: u64,
    /// Bytes written.
    pub(crate) written_bytes: u64,
    /// Seconds in which at least one request was under way.
    pub(crate) busy_secs: f64,
}

/// A device's counters over time, read in a thread.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Load>>>,
}

impl LoadMeter {
    /// Begins to read the counters of `device`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(device: &LoopDevice) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, path) = (Arc::clone(&stop), device.knob("stat"));
        let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
            let (start, mut loads) = (clock::now(), Vec::new());
            loop {
                let stopping = stopped.load(Ordering::SeqCst);
                let text = fs::read_to_string(&path)?;
                let secs = start.elapsed().as_secs_f64();
                loads.push(parse_stat(&text, secs).context("a stat line without counters")?);
                if stopping {
                    return Ok(loads);
                }
                thread::sleep(LOAD_EVERY);
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the reading; what is told is since its start.
    ///
    /// # Errors
    /// When the counters could not be read.
    pub(crate) fn finish(self) -> Result<Vec<Load>> {
        self.stop.store(true, Ordering::SeqCst);
        let loads = self.thread.join().map_err(|_| anyhow!("the load meter panicked"))??;
        let first = loads.first().copied().unwrap_or_default();
        let since = |load: Load| Load {
            secs: load.secs,
            requests: load.requests - first.requests,
            read_bytes: load.read_bytes - first.read_bytes,
            written_bytes: load.written_bytes - first.written_bytes,
            busy_secs: load.busy_secs - first.busy_secs,
        };
        Ok(loads.into_iter().map(since).collect())
    }
}

/// Documentation/block/stat.rst: reads, merges, sectors, ms; the same of writes; under
/// way; ms busy.
fn parse_stat(text: &str, secs: f64) -> Option<Load> {
    let fields: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some(Load {
        secs,
        requests: fields.first()? + fields.get(4)?,
        read_bytes: fields.get(2)? * SECTOR_BYTES,
        written_bytes: fields.get(6)? * SECTOR_BYTES,
        busy_secs: *fields.get(9)? as f64 / 1e3,
    })
}

const TRACEFS: &str = "/sys/kernel/tracing";
const SECTOR_BYTES: u64 = 512;
const LOAD_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_the_kernel_is_read() {
        let line = "  kworker/0:1H-44  [000] d..1.  123.456789: block_rq_issue: 7,0 WS 524288 () \
                    2048 + 1024 none,0,0 [kworker/0:1H]";
        let want = Event { flags: "WS", bytes: 524_288, sector: 2048 };
        assert_eq!(Event::parse(line), Some(want));
        assert_eq!(Event::parse("CPU:0 [LOST 12 EVENTS]"), None);
    }

    #[test]
    fn seeks_are_from_the_end_of_a_request_to_the_start_of_the_next() {
        let (mut requests, disk) = (Requests::default(), Disk2008::of(1 << 30));
        for (flags, bytes, sector) in
            [("R", 4096, 0), ("RA", 8192, 8), ("WS", 512, 1000), ("FF", 0, 0), ("D", 512, 9)]
        {
            requests.add(&Event { flags, bytes, sector }, &disk);
        }
        assert_eq!((requests.reads.count, requests.writes.count), (2, 1));
        assert_eq!((requests.flushes, requests.seeks, requests.seek_sectors), (1, 1, 976));
        assert_eq!(requests.told()["reads"]["by_size"], json!({"4096": 1, "8192": 1}));
    }

    #[test]
    fn the_modelled_disk_passes_over_short_gaps_and_seeks_over_long_ones() {
        let disk = Disk2008::of(512 * 1_000_000);
        assert!((disk.secs(0, 0, 72_000_000) - 1.0).abs() < 1e-9);
        assert!(disk.secs(0, 2000, 0) < 0.02 && disk.secs(2000, 0, 0) > 0.005);
        assert!((disk.secs(0, 1_000_000, 0) - 0.021_17).abs() < 1e-9, "over the whole disk");
    }

    #[test]
    fn counters_of_a_device_are_read() {
        let text = "  10 0 80 5 20 0 160 6 0 1500 11 0 0 0 0 0 0\n";
        let load = parse_stat(text, 1.0).unwrap();
        assert_eq!((load.requests, load.read_bytes, load.written_bytes), (30, 40_960, 81_920));
        assert!((load.busy_secs - 1.5).abs() < 1e-9);
        assert_eq!(parse_stat("1 2", 0.0), None);
    }
}
