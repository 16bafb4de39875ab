//! Ways to get bytes of the data file into a TCP socket, over loopback to a reader
//! that throws them away in the kernel (`MSG_TRUNC`). Figures for: hot in the page
//! cache, hot in frames, and cold on the disk.
//!
//! `sendfile` and `splice` send what is in the file. What goes through a frame is
//! summed up on the way where the table says so, as the store does once for each
//! read from the disk.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, SpliceFFlags, posix_fadvise, splice};
use nix::sys::resource::UsageWho;
use nix::sys::sendfile::sendfile64;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::pipe2;
use weir_store::disk::{Disk, EngineChoice, File, Files, Transfer};
use weir_store::frame::{FramePool, PooledFrame};

use crate::{Args, MIB, Sample, cpu, median, now, open};

const SIZES: [usize; 3] = [16 << 10, 64 << 10, 512 << 10];

/// Bytes of the file that are hot, and of those in frames.
const HOT_BYTES: u64 = 1 << 30;
const FRAMES: usize = 192;

/// Blocks that are read at once, ahead of the one that is sent.
const AHEAD: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    CacheSendfile,
    CacheSplice,
    CacheReadSend,
    CacheReadSumSend,
    FramesSend,
    ColdSendfile,
    ColdAheadSendfile,
    ColdReadSumSend,
    ColdAheadSumSend,
}

impl Way {
    const ALL: [Self; 9] = [
        Self::CacheSendfile,
        Self::CacheSplice,
        Self::CacheReadSend,
        Self::CacheReadSumSend,
        Self::FramesSend,
        Self::ColdSendfile,
        Self::ColdAheadSendfile,
        Self::ColdReadSumSend,
        Self::ColdAheadSumSend,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::CacheSendfile => "page cache: sendfile",
            Self::CacheSplice => "page cache: splice, 1 MiB pipe",
            Self::CacheReadSend => "page cache: pread, send",
            Self::CacheReadSumSend => "page cache: pread, checksum, send",
            Self::FramesSend => "frames: send",
            Self::ColdSendfile => "disk: sendfile",
            Self::ColdAheadSendfile => "disk: readahead of 8, sendfile",
            Self::ColdReadSumSend => "disk: direct, checksum, send",
            Self::ColdAheadSumSend => "disk: direct 8 ahead, checksum, send",
        }
    }
}

pub(crate) fn measure(
    out: &mut impl io::Write,
    args: &Args,
    pool: &FramePool,
    bytes: u64,
) -> io::Result<serde_json::Value> {
    let bench = Bench {
        cached: fs::File::open(args.dir.join(File::Data.name()))?,
        disk: open(args, EngineChoice::Auto, pool)?,
        pool: pool.clone(),
        bytes,
        seconds: args.seconds,
    };
    let mut samples = vec![vec![Vec::new(); SIZES.len()]; Way::ALL.len()];
    for _ in 0..args.rounds.max(1) {
        for (way, of_way) in Way::ALL.iter().zip(&mut samples) {
            for (size, of_size) in SIZES.iter().zip(of_way) {
                of_size.push(bench.run(*way, *size)?);
            }
        }
    }
    writeln!(out, "\nGB/s | GB for each second of the sender's processor time")?;
    writeln!(out, "{:<38} {:>13} {:>13} {:>13}", "way", "16 KiB", "64 KiB", "512 KiB")?;
    let mut json = Vec::new();
    for (way, of_way) in Way::ALL.iter().zip(samples) {
        write!(out, "{:<38}", way.name())?;
        for (size, of_size) in SIZES.iter().zip(of_way) {
            let sample = median(of_size);
            let per_cpu = sample.bytes_per_sec / sample.cpu;
            write!(out, " {:>5.2} | {:>5.2}", sample.bytes_per_sec / 1e9, per_cpu / 1e9)?;
            json.push(serde_json::json!({
                "way": way.name(),
                "block_bytes": size,
                "bytes_per_sec": sample.bytes_per_sec,
                "bytes_per_cpu_sec": per_cpu,
            }));
        }
        writeln!(out)?;
    }
    Ok(json.into())
}

struct Bench {
    /// Through the page cache.
    cached: fs::File,
    disk: Files,
    pool: FramePool,
    bytes: u64,
    seconds: u64,
}

/// A sender's end, and where in the file it sends from next.
struct Sender {
    socket: TcpStream,
    state: u64,
    sent: u64,
    end: Instant,
}

impl Bench {
    fn run(&self, way: Way, size: usize) -> io::Result<Sample> {
        let hot = self.bytes.min(HOT_BYTES);
        let mut frames = Vec::new();
        match way {
            Way::ColdSendfile | Way::ColdAheadSendfile => {
                posix_fadvise(&self.cached, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
                posix_fadvise(&self.cached, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)?;
            }
            Way::ColdReadSumSend | Way::ColdAheadSumSend => {}
            Way::FramesSend => {
                for at in 0..FRAMES {
                    let mut frame = self.pool.get_or_heap(MIB);
                    self.cached.read_exact_at(&mut frame[..MIB], (at * MIB) as u64)?;
                    frames.push(frame);
                }
            }
            _ => {
                let mut buf = vec![0; MIB];
                for at in (0..hot).step_by(MIB) {
                    self.cached.read_exact_at(&mut buf, at)?;
                }
            }
        }
        let (socket, sink) = connect()?;
        let (start, before) = (now(), cpu(UsageWho::RUSAGE_SELF)?);
        let end = start + Duration::from_secs(self.seconds);
        let mut sender = Sender { socket, state: 7, sent: 0, end };
        match way {
            Way::CacheSendfile => self.sendfile(&mut sender, size, hot, 0)?,
            Way::ColdSendfile => self.sendfile(&mut sender, size, self.bytes, 0)?,
            Way::ColdAheadSendfile => self.sendfile(&mut sender, size, self.bytes, AHEAD)?,
            Way::CacheSplice => self.splice(&mut sender, size, hot)?,
            Way::CacheReadSend => self.read_send(&mut sender, size, hot, false)?,
            Way::CacheReadSumSend => self.read_send(&mut sender, size, hot, true)?,
            Way::FramesSend => send_frames(&mut sender, size, &frames)?,
            Way::ColdReadSumSend => self.direct_send(&mut sender, size)?,
            Way::ColdAheadSumSend => self.ahead_send(&mut sender, size)?,
        }
        let took = start.elapsed().as_secs_f64();
        let sent = sender.sent;
        drop(sender);
        let sinks = sink.join().map_err(|_| io::Error::other("the sink panicked"))??;
        let used = cpu(UsageWho::RUSAGE_SELF)?.saturating_sub(before + sinks);
        Ok(Sample { bytes_per_sec: sent as f64 / took, cpu: used.as_secs_f64() / took })
    }

    /// Asks the kernel for `ahead` blocks before the first of them is sent.
    fn sendfile(
        &self,
        sender: &mut Sender,
        size: usize,
        within: u64,
        ahead: usize,
    ) -> io::Result<()> {
        let mut asked = VecDeque::new();
        while let Some(offset) = sender.next(size, within) {
            if ahead > 0 {
                let (at, len) = (offset.cast_signed(), size as i64);
                posix_fadvise(&self.cached, at, len, PosixFadviseAdvice::POSIX_FADV_WILLNEED)?;
            }
            asked.push_back(offset);
            if asked.len() <= ahead {
                continue;
            }
            let mut at = asked.pop_front().unwrap_or_default().cast_signed();
            let mut left = size;
            while left > 0 {
                left -= sendfile64(&sender.socket, &self.cached, Some(&mut at), left)?;
            }
        }
        sender.sent -= (asked.len() * size) as u64;
        Ok(())
    }

    fn splice(&self, sender: &mut Sender, size: usize, within: u64) -> io::Result<()> {
        let (read, write) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        nix::fcntl::fcntl(&write, nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20))?;
        let flags = SpliceFFlags::SPLICE_F_MOVE;
        while let Some(offset) = sender.next(size, within) {
            let mut at = offset.cast_signed();
            let mut left = size;
            while left > 0 {
                let mut piped = splice(&self.cached, Some(&mut at), &write, None, left, flags)?;
                left -= piped;
                while piped > 0 {
                    let more = if left > 0 { SpliceFFlags::SPLICE_F_MORE } else { flags };
                    piped -= splice(&read, None, &sender.socket, None, piped, flags | more)?;
                }
            }
        }
        Ok(())
    }

    fn read_send(
        &self,
        sender: &mut Sender,
        size: usize,
        within: u64,
        summed: bool,
    ) -> io::Result<()> {
        while let Some(offset) = sender.next(size, within) {
            let mut frame = self.pool.get_or_heap(size);
            self.cached.read_exact_at(&mut frame[..size], offset)?;
            sender.send(&frame[..size], summed)?;
        }
        Ok(())
    }

    fn direct_send(&self, sender: &mut Sender, size: usize) -> io::Result<()> {
        while let Some(offset) = sender.next(size, self.bytes) {
            let batch = vec![Transfer::new(offset, self.pool.get_or_heap(size), size)];
            for (transfer, result) in self.disk.read_batch(batch) {
                result?;
                sender.send(transfer.bytes(), true)?;
            }
        }
        Ok(())
    }

    fn ahead_send(&self, sender: &mut Sender, size: usize) -> io::Result<()> {
        std::thread::scope(|scope| {
            let (give, take) = sync_channel::<Transfer>(AHEAD);
            let mut places = Sender { socket: sender.socket.try_clone()?, ..*sender };
            scope.spawn(move || {
                let mut next = || {
                    let offset = places.next(size, self.bytes)?;
                    Some(Transfer::new(offset, self.pool.get_or_heap(size), size))
                };
                loop {
                    let batch: Vec<_> = (0..AHEAD).map_while(|_| next()).collect();
                    if batch.is_empty() {
                        return;
                    }
                    for (transfer, result) in self.disk.read_batch(batch) {
                        if result.is_err() || give.send(transfer).is_err() {
                            return;
                        }
                    }
                }
            });
            for transfer in take {
                sender.sent += size as u64;
                sender.send(transfer.bytes(), true)?;
            }
            Ok(())
        })
    }
}

impl Sender {
    /// The next place, until the time is over.
    fn next(&mut self, size: usize, within: u64) -> Option<u64> {
        if now() >= self.end {
            return None;
        }
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
        self.sent += size as u64;
        Some((self.state >> 20) % (within / size as u64) * size as u64)
    }

    fn send(&mut self, bytes: &[u8], summed: bool) -> io::Result<()> {
        if summed {
            // One for each segment, as the store has them.
            for segment in bytes.chunks(16 << 10) {
                let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, segment);
                std::hint::black_box(sum);
            }
        }
        self.socket.write_all(bytes)
    }
}

fn send_frames(sender: &mut Sender, size: usize, frames: &[PooledFrame]) -> io::Result<()> {
    while let Some(offset) = sender.next(size, (frames.len() * MIB) as u64) {
        let (frame, at) = (offset as usize / MIB, offset as usize % MIB);
        sender.send(&frames[frame][at..at + size], false)?;
    }
    Ok(())
}

/// A connection to a reader that copies nothing; it ends with the processor time
/// that it used.
fn connect() -> io::Result<(TcpStream, JoinHandle<io::Result<Duration>>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    let sink = std::thread::spawn(move || {
        let mut buf = vec![0; 4 << 20];
        while recv(reader.as_raw_fd(), &mut buf, MsgFlags::MSG_TRUNC)? > 0 {}
        cpu(UsageWho::RUSAGE_THREAD)
    });
    Ok((socket, sink))
}
