//! A link of bare IP packets: two TUN devices in two namespaces.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::lab::in_ns;

/// Two TUN devices and two threads that carry packets between them.
pub(crate) struct Tunnel {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Tunnel {
    pub(crate) fn start(near: &str, near_name: &str, far: &str, far_name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let open = |ns: &str, name: &str| {
            let name = name.to_owned();
            Arc::new(in_ns(ns, move || open_tun(&name)).join().unwrap())
        };
        let (near, far) = (open(near, near_name), open(far, far_name));
        let threads = [(Arc::clone(&near), Arc::clone(&far)), (far, near)]
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

fn carry(mut from: &File, mut to: &File, stop: &AtomicBool) {
    let mut packet = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        match from.read(&mut packet) {
            Ok(len) => drop(to.write_all(&packet[..len])),
            // Nothing there, or the device is not up yet.
            Err(_) => thread::sleep(Duration::from_micros(200)),
        }
    }
}

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
