//! TUN devices: links of bare IP packets, and ends that are scripts.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lab::in_ns;

/// Two TUN devices and two threads that carry packets between them.
pub(crate) struct Tunnel {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Tunnel {
    pub(crate) fn start(near: &str, near_name: &str, far: &str, far_name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (near, far) = (Wire::open(near, near_name), Wire::open(far, far_name));
        let threads = [(near.clone(), far.clone()), (far, near)]
            .map(|(from, to)| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || carry(&from, &to, &stop))
            })
            .into();
        Self { stop, threads }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

fn carry(from: &Wire, to: &Wire, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match from.next() {
            // A device that is full or not up yet loses packets, as links do.
            Some(packet) => drop((&*to.file).write_all(&packet)),
            None => thread::sleep(PAUSE),
        }
    }
}

/// A TUN device in the hands of a test.
#[derive(Clone)]
pub(crate) struct Wire {
    file: Arc<File>,
}

impl Wire {
    pub(crate) fn open(ns: &str, name: &str) -> Self {
        let name = name.to_owned();
        Self { file: Arc::new(in_ns(ns, move || open_tun(&name)).join().unwrap()) }
    }

    /// Sends a packet into the namespace.
    pub(crate) fn send(&self, packet: &[u8]) {
        assert_eq!((&*self.file).write(packet).unwrap(), packet.len());
    }

    /// What came out of the namespace and was not looked at yet.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; PACKET_MAX];
        // Nothing there, or the device is not up yet.
        let len = (&*self.file).read(&mut packet).ok()?;
        packet.truncate(len);
        Some(packet)
    }

    /// The first packet of the wanted kind, and those that came before it.
    #[track_caller]
    pub(crate) fn until(
        &self,
        what: &str,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut before = Vec::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            match self.next() {
                Some(packet) if wanted(&packet) => return (packet, before),
                Some(packet) => before.push(packet),
                None => thread::sleep(PAUSE),
            }
        }
        panic!("{what} never came; {} others did", before.len());
    }
}

/// Both sides of a gateway in the hands of a test.
pub(crate) struct Wires {
    pub(crate) inside: Wire,
    pub(crate) outside: Wire,
}

impl Wires {
    /// The wire a packet is sent on, and the one it is to come out of.
    pub(crate) fn way(&self, packet: &[u8]) -> (&Wire, &Wire) {
        // The second byte of its source says the network: 10.1, fd01.
        let net = if packet[0] >> 4 == 4 { packet[13] } else { packet[9] };
        if net == 1 { (&self.inside, &self.outside) } else { (&self.outside, &self.inside) }
    }

    /// Sends a packet, which must come out on the other side as it was.
    #[track_caller]
    pub(crate) fn carry(&self, what: &str, packet: &[u8]) {
        let (near, far) = self.way(packet);
        near.send(packet);
        far.until(what, |seen| is_same(seen, packet));
    }

    /// Asserts that a packet sent before has not come out on the other side: what
    /// is sent now comes first.
    #[track_caller]
    pub(crate) fn assert_lost(&self, what: &str, packet: &[u8], marker: &[u8]) {
        let (near, far) = self.way(packet);
        near.send(marker);
        let (_, before) = far.until("the marker", |seen| is_same(seen, marker));
        assert!(before.iter().all(|seen| !is_same(seen, packet)), "{what} came out");
    }
}

/// Whether both are one packet, apart from what a router changes.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let plain = |packet: &[u8]| {
        let mut packet = packet.to_vec();
        let changed = if packet[0] >> 4 == 4 { [8, 10, 11] } else { [7; 3] };
        changed.into_iter().for_each(|at| packet[at] = 0);
        packet
    };
    one.len() == other.len() && plain(one) == plain(other)
}

/// More than the devices' MTU of 1500.
const PACKET_MAX: usize = 2048;

/// Between two looks at a device that has nothing.
const PAUSE: Duration = Duration::from_micros(200);

#[allow(unsafe_code, reason = "no safe crate makes a TUN device")]
fn open_tun(name: &str) -> File {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open("/dev/net/tun").unwrap();
    // `struct ifreq`: a name of 16 bytes, then the flags.
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let flags = u16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).unwrap();
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which has 40 bytes.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    file
}
