//! One side of a flow: its socket, what waits to be written to it, and how far
//! it has come.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;

/// Most bytes read at once, and the size of a read buffer.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Bytes that wait for a leg before the opposite leg is no longer read.
pub(super) const QUEUE_BYTES_HIGH: usize = 256 * 1024;
/// What a part of the queue takes beside its bytes, about: small messages in
/// great numbers must not cost more memory than the bound says.
const PART_BYTES: usize = 64;
/// Reads below this are copied out of the buffer, which then serves again: a few
/// bytes must not keep 64 KiB.
const COPY_BYTES: usize = 4096;
/// Parts handed to one `writev`.
const WRITE_PARTS: usize = 64;

pub(super) struct LegState {
    pub(super) socket: TcpStream,
    pub(super) queue: VecDeque<Bytes>,
    /// Sum of the queue's parts.
    pub(super) queued_bytes: usize,
    /// What the session was last told of it.
    pub(super) told_bytes: usize,
    /// Whether something was sent here since.
    pub(super) untold_sends: bool,
    pub(super) read_bytes: u64,
    /// Bytes the session sent here, written or not, less the skipped.
    pub(super) sent_bytes: u64,
    /// First bytes sent here that the other end has already.
    pub(super) skip_bytes: usize,
    buffer: BytesMut,
    /// It sends no more.
    pub(super) ended: bool,
    /// We send no more, once the queue is empty.
    pub(super) closing: bool,
    pub(super) closed: bool,
}

impl LegState {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            queue: VecDeque::new(),
            queued_bytes: 0,
            told_bytes: 0,
            untold_sends: false,
            read_bytes: 0,
            sent_bytes: 0,
            skip_bytes: 0,
            buffer: BytesMut::new(),
            ended: false,
            closing: false,
            closed: false,
        }
    }

    pub(super) fn wants_read(&self, other: &Self) -> bool {
        !self.ended && other.queued_bytes + other.queue.len() * PART_BYTES < QUEUE_BYTES_HIGH
    }

    pub(super) fn send(&mut self, mut data: Bytes) {
        let skipped = self.skip_bytes.min(data.len());
        self.skip_bytes -= skipped;
        let data = data.split_off(skipped);
        self.sent_bytes += data.len() as u64;
        self.untold_sends = true;
        if !data.is_empty() && !self.closed {
            self.queued_bytes += data.len();
            self.queue.push_back(data);
        }
    }

    /// What can be read now: nothing when the other end has closed, `None` when
    /// there is nothing at the moment.
    pub(super) fn read(&mut self) -> io::Result<Option<Bytes>> {
        self.buffer.reserve(READ_BYTES);
        match self.socket.try_read_buf(&mut self.buffer) {
            Ok(n) => {
                self.ended = n == 0;
                self.read_bytes += n as u64;
                if n >= COPY_BYTES {
                    return Ok(Some(self.buffer.split().freeze()));
                }
                let data = Bytes::copy_from_slice(&self.buffer);
                self.buffer.clear();
                Ok(Some(data))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes as much as the kernel takes now; half-closes when that was due.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut parts = [IoSlice::new(&[]); WRITE_PARTS];
            let count = self.queue.len().min(WRITE_PARTS);
            for (part, data) in parts.iter_mut().zip(&self.queue) {
                *part = IoSlice::new(data);
            }
            match self.socket.try_write_vectored(&parts[..count]) {
                Ok(n) => self.written(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.closing && !self.closed {
            self.closed = true;
            match socket2::SockRef::from(&self.socket).shutdown(std::net::Shutdown::Write) {
                // The other side has closed meanwhile: nothing is left to say.
                Err(error) if error.kind() != io::ErrorKind::NotConnected => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The bytes that wait.
    pub(super) fn unsent(&self) -> Vec<u8> {
        self.queue.iter().flatten().copied().collect()
    }

    fn written(&mut self, mut n: usize) {
        self.queued_bytes -= n;
        while n > 0 {
            let part = self.queue.front_mut().expect("the kernel takes no more than it was given");
            if part.len() > n {
                part.advance(n);
                return;
            }
            n -= part.len();
            self.queue.pop_front();
        }
    }
}

/// Closes `socket` so that its peer sees a reset, as it would without us.
pub(super) fn reset(socket: TcpStream) {
    // The socket may be gone already; closing it is all that is left to do.
    if let Err(error) = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)) {
        tracing::trace!(%error, "linger_refused");
    }
}
