//! What a segment costs: memory, look-up, and serving from memory.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_ranges::{ByteRange, SEGMENT_BYTES};
use weir_store::disk::Disk;
use weir_store::{Options, Policy, Store, Tuning};

use crate::disks::Nowhere;
use crate::{MIB, OBJECT_GROUPS, block, median, object, resident_bytes, timed};

/// Every size from 10^4 on, dense and sparse, each in a process of its own.
pub(crate) fn all(out: &mut impl io::Write, most: u64) -> io::Result<()> {
    writeln!(out, "kind\tsegments\tbytes_a_segment\tlook_up_ns\twrite_ns_a_segment")?;
    let sizes = std::iter::successors(Some(10_000), |n| Some(n * 10)).take_while(|n| *n <= most);
    for segments in sizes {
        for kind in ["dense", "sparse"] {
            let program = std::env::current_exe()?;
            let child =
                Command::new(program).args(["index", kind, &segments.to_string()]).output()?;
            out.write_all(&child.stdout)?;
            io::Write::write_all(&mut io::stderr(), &child.stderr)?;
        }
    }
    Ok(())
}

/// Memory and look-up time of `segments` segments: 64 in each group, or one. The
/// memory is all there is: 1 MiB of checksums and 3.5 MiB of buffers among it.
pub(crate) fn one(out: &mut impl io::Write, is_dense: bool, segments: u64) -> io::Result<()> {
    let before = resident_bytes()?;
    let mut store = None;
    let took = timed(|| store = Some(filled(Arc::new(Nowhere), is_dense, segments, 4 << 20)));
    let store = store.expect("just set")?;
    let after = resident_bytes()?;
    let stats = store.stats();
    let per_segment = after.saturating_sub(before) as f64 / stats.segments as f64;
    let (count, groups) = (2_000_000, stats.groups);
    let size = if is_dense { 4 * SEGMENT_BYTES } else { SEGMENT_BYTES };
    let mut held = 0;
    let rounds = (0..3).map(|_| {
        timed(|| {
            for i in 0..count {
                let group = i * 2_654_435_761 % groups;
                let at = group % OBJECT_GROUPS * MIB;
                let range = ByteRange::at(at, size).expect("small numbers");
                held += u64::from(store.covers(object(group), range));
            }
        })
        .as_nanos() as f64
            / count as f64
    });
    let look_up = median(rounds.collect());
    assert_eq!(held, 3 * count, "everything is held");
    writeln!(
        out,
        "{}\t{}\t{per_segment:.2}\t{look_up:.0}\t{:.0}",
        if is_dense { "dense" } else { "sparse" },
        stats.segments,
        took.as_nanos() as f64 / stats.segments as f64
    )
}

/// Reads of 16 KiB that are in memory, one thread.
pub(crate) fn hits(out: &mut impl io::Write) -> io::Result<()> {
    let groups = 32;
    let store = filled(Arc::new(Nowhere), true, groups * 64, 96 << 20)?;
    let count = 2_000_000;
    let rounds = (0..3).map(|_| {
        let mut bytes = 0;
        let took = timed(|| {
            for i in 0..count {
                let segment = i * 7919 % (groups * 64);
                let at = segment * SEGMENT_BYTES;
                let range = ByteRange::at(at, SEGMENT_BYTES).expect("small numbers");
                let read = store.read(object(at / MIB), range).expect("a read");
                bytes += read.whole().map_or(0, |bytes| bytes.len() as u64);
            }
        });
        assert_eq!(bytes, count * SEGMENT_BYTES, "everything is in memory");
        count as f64 / took.as_secs_f64()
    });
    let rate = median(rounds.collect());
    writeln!(out, "reads of 16 KiB from memory: {:.2} M/s, one thread", rate / 1e6)
}

/// A store of `segments` segments: whole groups, or one segment of each.
pub(crate) fn filled(
    disk: Arc<dyn Disk>,
    is_dense: bool,
    segments: u64,
    memory_bytes: usize,
) -> io::Result<Store> {
    let groups = if is_dense { segments.div_ceil(64) } else { segments };
    let extent = if is_dense { MIB } else { SEGMENT_BYTES };
    let capacity_bytes = groups * extent + 512 * MIB;
    let options = Options {
        memory_bytes,
        policy: Policy::ObjectFrequency,
        sync_interval: Duration::ZERO,
        ..Options::new("none", capacity_bytes)
    };
    let tuning = Tuning { journal_bytes_max: u64::MAX, ..Tuning::default() };
    let (store, _) = Store::open_on(disk, &options, tuning).map_err(io::Error::other)?;
    let data: Bytes = block().slice(..extent as usize);
    for group in 0..groups {
        let at = group % OBJECT_GROUPS * MIB;
        let data = std::slice::from_ref(&data);
        store.write(object(group), at, data).map_err(io::Error::other)?;
    }
    store.sync().map_err(io::Error::other)?;
    Ok(store)
}
