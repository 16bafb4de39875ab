//! Random reads: our engines and fio in turns.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use nix::sys::resource::UsageWho;
use weir_store::disk::{Disk, EngineChoice, File, Transfer};
use weir_store::frame::FramePool;

use crate::{Args, Sample, cpu, fio, median, now, open};

const SIZES: [usize; 2] = [16 << 10, 512 << 10];

/// Callers and transfers in a batch of each.
const SHAPES: [(usize, &[(usize, usize)]); 2] = [(1, &[(1, 1)]), (32, &[(1, 32), (4, 8), (32, 1)])];

/// What is measured, one row of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    block_bytes: usize,
    depth: usize,
    /// fio first.
    order: usize,
    who: String,
}

pub(crate) fn measure(
    out: &mut impl io::Write,
    args: &Args,
    pool: &FramePool,
    bytes: u64,
) -> io::Result<serde_json::Value> {
    let mut found: BTreeMap<Row, Vec<Sample>> = BTreeMap::new();
    let file = args.dir.join(File::Data.name());
    for round in 0..args.rounds.max(1) {
        for block_bytes in SIZES {
            for (depth, shapes) in SHAPES {
                let mut note = |order, who: &str, sample| {
                    let row = Row { block_bytes, depth, order, who: who.to_owned() };
                    found.entry(row).or_default().push(sample);
                };
                for fixed in [false, true] {
                    let sample = fio::run(&file, block_bytes, depth, args.seconds, fixed)?;
                    note(0, if fixed { "fio, registered" } else { "fio" }, sample);
                }
                for (at, engine) in [EngineChoice::Uring, EngineChoice::Pread].iter().enumerate() {
                    let disk = open(args, *engine, pool)?;
                    let name = disk.engine().kind.name();
                    for (callers, batch) in shapes {
                        let load = Load { block_bytes, callers: *callers, batch: *batch };
                        let seed = round as u64;
                        let sample = load.run(&disk, pool, bytes, args.seconds, seed)?;
                        note(1 + at, &format!("{name}, {callers} x {batch}"), sample);
                    }
                }
            }
        }
    }
    report(out, found)
}

fn report(
    out: &mut impl io::Write,
    found: BTreeMap<Row, Vec<Sample>>,
) -> io::Result<serde_json::Value> {
    writeln!(
        out,
        "\n{:>8} {:>5}  {:<18} {:>8} {:>8} {:>6} {:>7}",
        "block", "depth", "who", "MB/s", "IOPS", "CPU", "of fio"
    )?;
    let medians: Vec<_> = found.into_iter().map(|(row, samples)| (row, median(samples))).collect();
    let mut json = Vec::new();
    for (row, sample) in &medians {
        // The better of fio's two is what counts.
        let of_fio = medians.iter().filter(|(other, _)| {
            (other.block_bytes, other.depth, other.order) == (row.block_bytes, row.depth, 0)
        });
        let best = of_fio.map(|(_, sample)| sample.bytes_per_sec).fold(0.0, f64::max);
        let ratio = sample.bytes_per_sec / best;
        let iops = sample.bytes_per_sec / row.block_bytes as f64;
        writeln!(
            out,
            "{:>4} KiB {:>5}  {:<18} {:>8.0} {:>8.0} {:>6.2} {:>7.2}",
            row.block_bytes >> 10,
            row.depth,
            row.who,
            sample.bytes_per_sec / 1e6,
            iops,
            sample.cpu,
            ratio
        )?;
        json.push(serde_json::json!({
            "block_bytes": row.block_bytes,
            "depth": row.depth,
            "who": row.who,
            "bytes_per_sec": sample.bytes_per_sec,
            "iops": iops,
            "cpu": sample.cpu,
            "of_fio": ratio,
        }));
    }
    Ok(json.into())
}

/// Callers that each have one batch under way all the time.
#[derive(Clone, Copy, Debug)]
struct Load {
    block_bytes: usize,
    callers: usize,
    batch: usize,
}

impl Load {
    fn run(
        self,
        disk: &dyn Disk,
        pool: &FramePool,
        bytes: u64,
        seconds: u64,
        seed: u64,
    ) -> io::Result<Sample> {
        let (start, before) = (now(), cpu(UsageWho::RUSAGE_SELF)?);
        let end = start + Duration::from_secs(seconds);
        let blocks = bytes / self.block_bytes as u64;
        let caller = |number: usize| -> io::Result<u64> {
            let mut state = (seed << 32) + number as u64 + 1;
            let mut read = 0;
            while now() < end {
                let mut next = || {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number as u64);
                    let offset = (state >> 20) % blocks * self.block_bytes as u64;
                    Transfer::new(offset, pool.get_or_heap(self.block_bytes), self.block_bytes)
                };
                let batch = (0..self.batch).map(|_| next()).collect();
                for (transfer, result) in disk.read_batch(batch) {
                    result?;
                    let last = transfer.bytes().len() - 4096;
                    let tag =
                        transfer.bytes()[last..].first_chunk().map(|tag| u64::from_le_bytes(*tag));
                    if tag != Some(transfer.offset + last as u64) {
                        return Err(io::Error::other("bytes of another place"));
                    }
                    read += 1;
                }
            }
            Ok(read)
        };
        let caller = &caller;
        let read = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.callers).map(|number| scope.spawn(move || caller(number))).collect();
            let mut read = 0;
            for thread in threads {
                read += thread.join().map_err(|_| io::Error::other("a caller panicked"))??;
            }
            io::Result::Ok(read)
        })?;
        let took = start.elapsed().as_secs_f64();
        let used = cpu(UsageWho::RUSAGE_SELF)?.saturating_sub(before);
        let bytes_per_sec = (read * self.block_bytes as u64) as f64 / took;
        Ok(Sample { bytes_per_sec, cpu: used.as_secs_f64() / took })
    }
}
