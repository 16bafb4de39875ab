//! The system calls no safe crate wraps, one function each.
//!
//! This and `kernel` are the only modules with `unsafe`. Nothing here decides
//! anything; option numbers come from the kernel's user headers.

#![allow(unsafe_code, reason = "the door to the kernel")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `TCP_REPAIR` values.
pub(crate) const REPAIR_ON: i32 = 1;
/// Leave without the window probe that 0 sends.
pub(crate) const REPAIR_OFF_SILENT: i32 = -1;

/// Sets an integer option.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets an option from its bytes.
pub(crate) fn set_bytes(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: `value` is readable for `len` bytes during the call, which keeps no pointer.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    check(done).map(drop)
}

/// Reads an option into `value`; says how many bytes the kernel wrote.
pub(crate) fn get_bytes(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: `value` is writable for `len` bytes, `len` is a live local; no pointer is kept.
    let done = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    check(done)?;
    usize::try_from(len).map_err(io::Error::other)
}

/// Reads an integer option.
pub(crate) fn get_u32(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    let mut value = [0; 4];
    get_bytes(fd, level, name, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

/// Bytes sent and not acknowledged, the FIN included (`SIOCOUTQ`).
pub(crate) fn unacked_bytes(fd: BorrowedFd<'_>) -> io::Result<i32> {
    queued(fd, libc::TIOCOUTQ)
}

/// Bytes received and not read (`FIONREAD`).
pub(crate) fn unread_bytes(fd: BorrowedFd<'_>) -> io::Result<i32> {
    queued(fd, libc::FIONREAD)
}

fn queued(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<i32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one `int`, and `bytes` is one.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut bytes) };
    check(done).map(|_| bytes)
}

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of `bpf_ktime_get_ns()`.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live timespec; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock is not negative");
    let nanos = u64::try_from(now.tv_nsec).expect("0 <= tv_nsec < 1e9");
    seconds * 1_000_000_000 + nanos
}

/// Lets the calling thread run before all ordinary ones; what it starts does not.
pub(crate) fn run_first() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread; `lowest` is live during the call.
    let done = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const lowest)
    };
    check(done).map(drop)
}

/// Grows the process's table of descriptors at once to `count`, or to its limit.
///
/// Growing it later makes a thread wait for a grace period of the kernel's RCU,
/// several milliseconds, in the middle of whatever opens the next descriptor.
pub(crate) fn reserve_descriptors(fd: BorrowedFd<'_>, count: u32) -> io::Result<()> {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?.0;
    let highest = u64::from(count).min(limit.saturating_sub(1));
    let highest = i32::try_from(highest).map_err(io::Error::other)?;
    // SAFETY: a live descriptor and a plain number.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, highest) };
    check(copy)?;
    // SAFETY: the call made this descriptor, and nobody else has it. Dropped at
    // once; the table stays as large as it is.
    drop(unsafe { OwnedFd::from_raw_fd(copy) });
    Ok(())
}

/// Lets programs that the calling thread starts have its `CAP_NET_ADMIN`, as an
/// ambient capability (Linux 4.3): what a file's capabilities gave ends at `exec`.
pub(crate) fn hand_down_net_admin() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    const NET_ADMIN: libc::c_ulong = 12;
    let ambient = |verb: libc::c_int| {
        let none: libc::c_ulong = 0;
        let verb = libc::c_ulong::from(verb.cast_unsigned());
        // SAFETY: plain numbers; it acts on the calling thread only.
        check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, verb, NET_ADMIN, none, none) })
    };
    if ambient(libc::PR_CAP_AMBIENT_IS_SET)? == 1 {
        return Ok(());
    }
    // struct __user_cap_header_struct, and twice {effective, permitted, inheritable}.
    let mut header = [VERSION_3, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: version 3 reads the header and writes two sets of three words; 0 is
    // the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    sets[2] |= 1 << NET_ADMIN;
    // SAFETY: as above, and it only reads.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    ambient(libc::PR_CAP_AMBIENT_RAISE).map(drop)
}

/// The hardware type (`ARPHRD_*`) of an interface of this thread's namespace.
pub(crate) fn interface_type(socket: BorrowedFd<'_>, name: &str) -> io::Result<u16> {
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: SIOCGIFHWADDR reads the name and writes the address of a live `ifreq`.
    let done = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as libc::Ioctl, &raw mut request)
    };
    check(done)?;
    // SAFETY: the call above filled `ifru_hwaddr`.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    Ok(address.sa_family)
}

/// Attaches a TCX program (`BPF_TCX_INGRESS` or `BPF_TCX_EGRESS`, Linux 6.6).
/// Closing the descriptor detaches it.
pub(crate) fn attach_tcx(program: BorrowedFd<'_>, ifindex: u32, kind: u32) -> io::Result<OwnedFd> {
    let ifindex = i32::try_from(ifindex).map_err(io::Error::other)?;
    // SAFETY: both are live descriptors or plain numbers; no options are given.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, kind, std::ptr::null())
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A pipe of about `bytes`, non-blocking. A smaller one is taken if that is refused.
pub(crate) fn pipe(bytes: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    let done = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
    check(done)?;
    // SAFETY: pipe2 made it, and nobody else has it.
    let read = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: pipe2 made it, and nobody else has it.
    let write = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    // SAFETY: a plain integer argument. Refusal leaves the default size, which also works.
    unsafe { libc::fcntl(ends[1], libc::F_SETPIPE_SZ, bytes) };
    Ok((read, write))
}

/// Moves up to `len` bytes without copying; 0 is the end of the stream.
pub(crate) fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: live descriptors; null offsets mean "at the stream's position".
    let moved = unsafe {
        libc::splice(
            from.as_raw_fd(),
            std::ptr::null_mut(),
            to.as_raw_fd(),
            std::ptr::null_mut(),
            len,
            libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK,
        )
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
