//! Bytes from one socket to another without copying them to user space.
//!
//! One pipe a direction, empty before each read, so that "would block" always
//! means the socket. Back-pressure is the pipe: at most 256 KiB wait in
//! a direction.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::sys;

/// Relays both directions until both have ended; says how many bytes went from
/// `a` to `b` and from `b` to `a`.
///
/// A half-close is passed on as one. When a direction fails, both end, and both
/// sockets are set to reset when they are closed: the ends learn that the stream
/// is cut, not complete.
///
/// # Cancel safety
///
/// Not cancel safe: bytes in the pipes are lost with the future, and both sockets
/// are set to reset.
pub async fn relay(a: &TcpStream, b: &TcpStream) -> Relayed {
    relay_after(a, b, &[], &[]).await
}

/// As [`relay`], when `to_b` and `to_a` were read from the other one already and
/// are still to be written. They count as relayed.
///
/// # Cancel safety
///
/// As [`relay`].
pub async fn relay_after(a: &TcpStream, b: &TcpStream, to_b: &[u8], to_a: &[u8]) -> Relayed {
    let mut relayed = Relayed::default();
    let cut = Cut([a, b]);
    let (forward, backward) = (&mut relayed.forward, &mut relayed.backward);
    match tokio::try_join!(pump(a, b, to_b, forward), pump(b, a, to_a, backward)) {
        Ok(_) => {
            std::mem::forget(cut);
            relayed.complete = true;
        }
        Err(error) => tracing::debug!(%error, "relay_cut"),
    }
    relayed
}

/// What a relay moved, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// From `a` to `b`.
    pub forward: u64,
    /// From `b` to `a`.
    pub backward: u64,
    /// Both directions came to their end; otherwise both sockets are set to reset.
    pub complete: bool,
}

/// Sets both sockets to reset unless it is forgotten: a stream that is cut must
/// not look complete.
struct Cut<'a>([&'a TcpStream; 2]);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        for leg in self.0 {
            // A socket that is gone needs no reset.
            SockRef::from(leg).set_linger(Some(Duration::ZERO)).ok();
        }
    }
}

async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    mut early: &[u8],
    moved: &mut u64,
) -> io::Result<()> {
    while !early.is_empty() {
        to.writable().await?;
        match to.try_write(early) {
            Ok(written) => {
                early = &early[written..];
                *moved += u64::try_from(written).expect("usize fits");
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let (read_end, write_end) = sys::pipe(PIPE_BYTES)?;
    loop {
        let mut left = ready(from, Interest::READABLE, || {
            sys::splice(from.as_fd(), write_end.as_fd(), READ_BYTES)
        })
        .await?;
        if left == 0 {
            // The other end may have closed the whole connection meanwhile.
            return match SockRef::from(to).shutdown(std::net::Shutdown::Write) {
                Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
                _ => Ok(()),
            };
        }
        while left > 0 {
            let written =
                ready(to, Interest::WRITABLE, || sys::splice(read_end.as_fd(), to.as_fd(), left))
                    .await?;
            left -= written;
            *moved += u64::try_from(written).expect("usize fits");
        }
    }
}

/// Runs `step` whenever the socket is ready, until it does not block.
async fn ready(
    socket: &TcpStream,
    interest: Interest,
    mut step: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match socket.try_io(interest, &mut step) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.ready(interest).await?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

const PIPE_BYTES: i32 = 256 * 1024;
const READ_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// (what an end holds, what the relay holds)
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (end.unwrap(), accepted.unwrap().0)
    }

    fn bytes(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect()
    }

    #[tokio::test]
    async fn both_directions_arrive_whole_and_half_close_passes() {
        let ((mut left, a), (mut right, b)) = (pair().await, pair().await);
        let relayed = tokio::spawn(async move { relay(&a, &b).await });
        let (up, down) = (bytes(5_000_000, 1), bytes(3_000_000, 2));
        let expected = (up.clone(), down.clone());
        let left = tokio::spawn(async move {
            left.write_all(&up).await.unwrap();
            left.shutdown().await.unwrap();
            let mut got = Vec::new();
            left.read_to_end(&mut got).await.unwrap();
            got
        });
        // Answers only after the FIN: the direction back must outlive it.
        let mut got = Vec::new();
        right.read_to_end(&mut got).await.unwrap();
        assert!(got == expected.0);
        right.write_all(&down).await.unwrap();
        drop(right);
        assert!(left.await.unwrap() == expected.1);
        let relayed = relayed.await.unwrap();
        assert_eq!((relayed.forward, relayed.backward), (5_000_000, 3_000_000));
        assert!(relayed.complete);
    }

    #[tokio::test]
    async fn a_reset_reaches_the_other_end_as_a_reset() {
        let ((left, a), (mut right, b)) = (pair().await, pair().await);
        let relayed = tokio::spawn(async move { relay(&a, &b).await });
        SockRef::from(&left).set_linger(Some(Duration::ZERO)).unwrap();
        drop(left);
        let error = right.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(relayed.await.unwrap(), Relayed::default());
    }

    #[tokio::test]
    async fn a_relay_that_is_dropped_looks_cut_and_not_complete() {
        let ((left, a), (mut right, b)) = (pair().await, pair().await);
        let relayed = tokio::spawn(async move { relay_after(&a, &b, b"early", b"").await });
        let mut early = [0; 5];
        right.read_exact(&mut early).await.unwrap();
        assert_eq!(&early, b"early");
        relayed.abort();
        let error = right.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        drop(left);
    }

    #[tokio::test]
    async fn a_reader_that_stalls_stalls_the_writer() {
        let ((left, a), (mut right, b)) = (pair().await, pair().await);
        let relayed = tokio::spawn(async move { relay(&a, &b).await });
        let data = bytes(64 * 1024, 3);
        let mut sent = 0_u64;
        // Full when nothing more is taken for a while, far below any leak.
        while tokio::time::timeout(Duration::from_millis(300), left.writable()).await.is_ok() {
            match left.try_write(&data) {
                Ok(written) => sent += written as u64,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(sent < 64 << 20, "no back-pressure");
        }
        drop(left);
        let mut got = Vec::new();
        right.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len() as u64, sent);
        drop(right);
        assert_eq!(relayed.await.unwrap().forward, sent);
    }
}
