//! The threads of the link emulator: one per direction, a queue each.
//!
//! A direction sleeps until its next release or until packets arrive; it reads
//! whatever is there before it looks at the clock again, so that a burst costs
//! one wake-up. It ends when its device is gone, which is when the namespaces
//! are removed or the process is killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::queue::{LinkCounts, LinkOptions, LinkQueue};
use super::tun;
use crate::clock;
use crate::netns::Namespace;
use crate::seed::SplitMix64;

/// The link between two devices; both directions alike.
#[derive(Args, Clone, Debug)]
pub(crate) struct EmulateArgs {
    /// Namespace of the first device.
    #[arg(long)]
    pub(crate) near: String,
    /// Namespace of the second device.
    #[arg(long)]
    pub(crate) far: String,
    /// Name of both devices.
    #[arg(long, default_value = "em0")]
    pub(crate) device: String,
    /// Delay each way, microseconds.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) delay_us: u64,
    /// Largest extra delay, microseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) jitter_us: u64,
    /// Packets lost, in a million.
    #[arg(long, default_value_t = 0)]
    pub(crate) loss_ppm: u32,
    /// Packets that overtake, in a million.
    #[arg(long, default_value_t = 0)]
    pub(crate) reorder_ppm: u32,
    /// Rate each way, Mbit/s; 0 for none.
    #[arg(long, default_value_t = 100)]
    pub(crate) rate_mbit: u64,
    /// Bytes that may wait, KiB.
    #[arg(long, default_value_t = 512)]
    pub(crate) queue_kib: usize,
    /// Decides losses and jitter.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl EmulateArgs {
    /// The link of the paper stories: 100 Mbit/s and 20 ms round trip.
    pub(crate) fn between(near: &Namespace, far: &Namespace, seed: u64) -> Self {
        Self {
            near: near.name().to_owned(),
            far: far.name().to_owned(),
            device: "em0".to_owned(),
            delay_us: 10_000,
            jitter_us: 0,
            loss_ppm: 0,
            reorder_ppm: 0,
            rate_mbit: 100,
            queue_kib: 512,
            seed,
        }
    }

    /// The arguments as a command line of `weir-lab emulate`.
    pub(crate) fn command_line(&self) -> Vec<String> {
        let pairs: [(&str, String); 10] = [
            ("--near", self.near.clone()),
            ("--far", self.far.clone()),
            ("--device", self.device.clone()),
            ("--delay-us", self.delay_us.to_string()),
            ("--jitter-us", self.jitter_us.to_string()),
            ("--loss-ppm", self.loss_ppm.to_string()),
            ("--reorder-ppm", self.reorder_ppm.to_string()),
            ("--rate-mbit", self.rate_mbit.to_string()),
            ("--queue-kib", self.queue_kib.to_string()),
            ("--seed", self.seed.to_string()),
        ];
        let mut line = vec!["emulate".to_owned()];
        line.extend(pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        line
    }

    fn options(&self) -> LinkOptions {
        LinkOptions {
            delay_ns: self.delay_us * 1000,
            jitter_ns: self.jitter_us * 1000,
            loss_ppm: self.loss_ppm,
            reorder_ppm: self.reorder_ppm,
            rate_bits_per_sec: self.rate_mbit * 1_000_000,
            queue_bytes_max: self.queue_kib * 1024,
        }
    }
}

/// Runs the link until a device goes away.
///
/// # Errors
/// A namespace that does not exist, a device that cannot be made.
pub(crate) fn run(args: &EmulateArgs) -> Result<()> {
    let near = Namespace::existing(&args.near).inside(|| tun::open(&args.device))??;
    let far = Namespace::existing(&args.far).inside(|| tun::open(&args.device))??;
    for file in [&near, &far] {
        fcntl(file.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("set O_NONBLOCK")?;
    }
    thread::scope(|scope| {
        let out = scope.spawn(|| pump(&near, &far, args.options(), args.seed, 1));
        let back = scope.spawn(|| pump(&far, &near, args.options(), args.seed, 2));
        let ends = [out.join(), back.join()];
        for end in ends {
            end.map_err(|_| anyhow::anyhow!("a direction panicked"))??;
        }
        Ok(())
    })
}

fn pump(from: &File, to: &File, options: LinkOptions, seed: u64, direction: u64) -> Result<()> {
    let mut queue = LinkQueue::new(options, SplitMix64::split(seed, direction).word());
    let start = clock::now();
    let mut buffer = vec![0u8; 65_536];
    let (mut told, mut tell_at_ns) = (LinkCounts::default(), TELL_EVERY_NS);
    loop {
        wait(from, &queue, start)?;
        for _ in 0..READ_BATCH {
            match (&mut &*from).read(&mut buffer) {
                Ok(len) => queue.offer(nanos_since(start), buffer[..len].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // EBADFD: the device is gone with its namespace.
                Err(_) => return Ok(()),
            }
        }
        let now_ns = nanos_since(start);
        let counts = queue.counts();
        if now_ns >= tell_at_ns && (counts.lost, counts.overflowed) != (told.lost, told.overflowed)
        {
            eprintln!("direction {direction}: {counts:?}");
            (told, tell_at_ns) = (counts, now_ns + TELL_EVERY_NS);
        }
        while let Some(packet) = queue.pop_due(now_ns) {
            // A device that is down refuses; the packet is lost, as on a cut cable.
            if let Err(error) = (&mut &*to).write_all(&packet)
                && error.raw_os_error() == Some(libc::EBADFD)
            {
                return Ok(());
            }
        }
    }
}

/// Sleeps until the next release or the next packet.
fn wait(from: &File, queue: &LinkQueue, start: Instant) -> Result<()> {
    let pause = queue.next_release_ns().map(|at_ns| {
        TimeSpec::from(Duration::from_nanos(at_ns.saturating_sub(nanos_since(start))))
    });
    let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    match ppoll(&mut fds, pause, None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("wait for packets"),
    }
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).expect("a run lasts less than 500 years")
}

/// How often losses are written to the log, while there are new ones.
const TELL_EVERY_NS: u64 = 1_000_000_000;

/// Packets read before the clock is looked at again.
const READ_BATCH: usize = 64;
