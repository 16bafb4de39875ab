//! A TUN device: IP packets as reads and writes of a file.
//!
//! The attach call is an ioctl with a structure of the kernel's, which no safe
//! library offers; it is the one operation of the lab that needs `unsafe`.

#![allow(unsafe_code, reason = "TUNSETIFF has no safe wrapper among the dependencies")]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};

/// `struct ifreq` as TUNSETIFF reads it: a name and flags.
#[repr(C)]
pub(crate) struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    // The union in `struct ifreq` is 24 bytes on 64-bit Linux.
    padding: [u8; 22],
}

mod sys {
    #![allow(unreachable_pub, reason = "the macro makes the function pub")]
    nix::ioctl_write_ptr_bad!(
        /// Attaches an open `/dev/net/tun` to the device that the request names.
        tun_set_iff,
        libc::TUNSETIFF,
        super::InterfaceRequest
    );
}

/// Creates the device `name` in the calling thread's network namespace.
///
/// Reads and writes are one IP packet each, without a header. The device goes
/// when the file is closed.
///
/// # Errors
/// A name that is too long; no `/dev/net/tun`; no right to make devices.
pub(crate) fn open(name: &str) -> Result<File> {
    ensure!(name.len() < libc::IFNAMSIZ, "{name}: longer than a device name may be");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("open /dev/net/tun")?;
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], flags: 0, padding: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    request.flags = libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI)
        .expect("the two flags fit 16 bits");
    // SAFETY: the descriptor is open for the whole call, and `request` is an
    // initialised structure of the layout and size of `struct ifreq`, which the
    // kernel reads and writes only during the call.
    unsafe { sys::tun_set_iff(file.as_raw_fd(), &raw const request) }
        .with_context(|| format!("make the TUN device {name}"))?;
    Ok(file)
}
