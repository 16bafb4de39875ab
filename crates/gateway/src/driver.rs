//! Drives one session between two sockets.
//!
//! One task owns both sockets, the session and both write queues. It drains the
//! session's outputs, then writes, then waits for whichever comes first: bytes,
//! room to write, answers, the deadline. It knows no protocol.
//!
//! Back-pressure: a leg is not read while more than [`QUEUE_BYTES_HIGH`] wait
//! for the other leg, so a slow reader slows its sender, not the gateway.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use weir_session::{Event, Input, LeaveReason, Leg, Output, Session};

use crate::clock;
use crate::storage::{Answer, Look, Storage};

/// Most bytes read at once, and the size of a read buffer.
const READ_BYTES: usize = 64 * 1024;
/// Bytes that wait for a leg before the opposite leg is no longer read.
const QUEUE_BYTES_HIGH: usize = 256 * 1024;
/// Parts handed to one `writev`.
const WRITE_PARTS: usize = 64;
/// Answers that wait for the flow's task.
const ANSWERS: usize = 64;

/// How a flow ended, or how it goes on without its session.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides are done.
    Finished,
    /// The session left; the sockets are to be relayed or given back.
    Left {
        /// Inside, outside.
        legs: [TcpStream; 2],
        /// Why.
        reason: LeaveReason,
        /// No byte was added or taken in either direction.
        untouched: bool,
    },
    /// A socket failed; the other was reset.
    Broken(io::Error),
}

/// Bytes that were on their way before the driver came.
#[derive(Debug)]
pub(crate) struct Prelude {
    /// Who sent them.
    pub(crate) from: Leg,
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// Whether the other side has them already.
    pub(crate) delivered: bool,
}

/// Runs `session` between `inside` and `outside` until it ends or leaves.
/// `count` is called with each event.
///
/// Cancel safety: dropping the future closes both sockets.
pub(crate) async fn drive(
    inside: TcpStream,
    outside: TcpStream,
    session: &mut dyn Session,
    prelude: Option<Prelude>,
    storage: &Storage,
    count: impl Fn(Event),
) -> End {
    let (answers_in, answers) = mpsc::channel(ANSWERS);
    let legs = [LegState::new(inside), LegState::new(outside)];
    let mut driver = Driver { legs, session, storage, count, answers_in, answers, left: None };
    let result = driver.run(prelude).await;
    let Driver { legs: [inside, outside], left, .. } = driver;
    match (result, left) {
        (Ok(()), None) => End::Finished,
        (Ok(()), Some(reason)) => {
            let untouched =
                inside.read_bytes == outside.sent_bytes && outside.read_bytes == inside.sent_bytes;
            End::Left { legs: [inside.socket, outside.socket], reason, untouched }
        }
        (Err(error), _) => {
            reset(inside.socket);
            reset(outside.socket);
            End::Broken(error)
        }
    }
}

/// Closes `socket` so that its peer sees a reset, as it would without us.
fn reset(socket: TcpStream) {
    // The socket may be gone already; closing it is all that is left to do.
    if let Err(error) = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)) {
        tracing::trace!(%error, "linger_refused");
    }
}

struct Driver<'a, F> {
    legs: [LegState; 2],
    session: &'a mut dyn Session,
    storage: &'a Storage,
    count: F,
    answers_in: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
    left: Option<LeaveReason>,
}

struct LegState {
    socket: TcpStream,
    queue: VecDeque<Bytes>,
    /// Sum of the queue's parts.
    queued_bytes: usize,
    /// What the session was last told.
    told_bytes: usize,
    read_bytes: u64,
    /// Bytes the session sent here, written or not, less the skipped.
    sent_bytes: u64,
    /// First bytes sent here that the other end has already.
    skip_bytes: usize,
    buffer: BytesMut,
    /// It sends no more.
    ended: bool,
    /// We send no more, once the queue is empty.
    closing: bool,
    closed: bool,
}

enum Wake {
    Read(Leg),
    Writable,
    Answer(Answer),
    Timer,
}

impl<F: Fn(Event)> Driver<'_, F> {
    async fn run(&mut self, prelude: Option<Prelude>) -> io::Result<()> {
        if let Some(Prelude { from, bytes, delivered }) = prelude {
            if delivered {
                self.legs[from.other().index()].skip_bytes = bytes.len();
            } else {
                self.legs[from.index()].read_bytes += bytes.len() as u64;
            }
            if !bytes.is_empty() {
                self.feed(Input::Bytes { leg: from, data: bytes });
            }
        }
        loop {
            for leg in Leg::BOTH {
                self.legs[leg.index()].write()?;
                self.tell_queued(leg);
            }
            if self.left.is_some() {
                return self.flush().await;
            }
            if self.legs.iter().all(|leg| leg.closed) {
                return Ok(());
            }
            match self.wait().await? {
                Wake::Read(leg) => self.read(leg)?,
                Wake::Writable => {}
                Wake::Answer(answer) => {
                    self.answered(answer);
                    while self.left.is_none()
                        && let Ok(answer) = self.answers.try_recv()
                    {
                        self.answered(answer);
                    }
                }
                Wake::Timer => self.feed(Input::Timer),
            }
        }
    }

    async fn wait(&mut self) -> io::Result<Wake> {
        let [inside, outside] = &self.legs;
        let deadline = self.session.next_deadline().map(clock::until);
        tokio::select! {
            biased;
            Some(answer) = self.answers.recv() => Ok(Wake::Answer(answer)),
            ready = inside.socket.writable(), if !inside.queue.is_empty() => {
                ready.map(|()| Wake::Writable)
            }
            ready = outside.socket.writable(), if !outside.queue.is_empty() => {
                ready.map(|()| Wake::Writable)
            }
            ready = inside.socket.readable(), if inside.wants_read(outside) => {
                ready.map(|()| Wake::Read(Leg::Inside))
            }
            ready = outside.socket.readable(), if outside.wants_read(inside) => {
                ready.map(|()| Wake::Read(Leg::Outside))
            }
            () = tokio::time::sleep(deadline.unwrap_or_default()), if deadline.is_some() => {
                Ok(Wake::Timer)
            }
        }
    }

    fn read(&mut self, leg: Leg) -> io::Result<()> {
        let state = &mut self.legs[leg.index()];
        state.buffer.reserve(READ_BYTES);
        match state.socket.try_read_buf(&mut state.buffer) {
            Ok(0) => {
                state.ended = true;
                self.feed(Input::Closed { leg });
            }
            Ok(n) => {
                state.read_bytes += n as u64;
                let data = state.buffer.split().freeze();
                self.feed(Input::Bytes { leg, data });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Looked(ticket, data) => self.feed(Input::Answer { ticket, data }),
            Answer::Checked(event) => (self.count)(event),
        }
    }

    /// Tells the session how much waits for `leg`, when that has changed enough
    /// to matter to it.
    fn tell_queued(&mut self, leg: Leg) {
        let state = &mut self.legs[leg.index()];
        let queued_bytes = state.queued_bytes;
        let emptied = queued_bytes == 0 && state.told_bytes != 0;
        if emptied || queued_bytes.abs_diff(state.told_bytes) >= READ_BYTES {
            state.told_bytes = queued_bytes;
            self.feed(Input::Queued { leg, queued_bytes });
        }
    }

    /// One input, then everything it causes; look-ups that are sure to miss are
    /// answered at once.
    fn feed(&mut self, input: Input) {
        let mut next = Some(input);
        let mut misses = VecDeque::new();
        while let Some(input) = next.take() {
            if self.left.is_some() {
                return;
            }
            self.session.handle(clock::now(), input);
            let mut hits = Vec::new();
            while let Some(output) = self.session.poll_output() {
                self.act(output, &mut hits, &mut misses);
            }
            if !hits.is_empty() {
                self.storage.look(hits, &self.answers_in);
            }
            next = misses.pop_front().map(|ticket| Input::Answer { ticket, data: None });
        }
    }

    fn act(
        &mut self,
        output: Output,
        hits: &mut Vec<Look>,
        misses: &mut VecDeque<weir_session::Ticket>,
    ) {
        match output {
            Output::Send { leg, data } => self.legs[leg.index()].send(data),
            Output::Close { leg } => self.legs[leg.index()].closing = true,
            Output::Look { ticket, object, range } => {
                let look = Look { ticket, object, range };
                if self.storage.misses(&look) {
                    misses.push_back(ticket);
                } else {
                    hits.push(look);
                }
            }
            Output::Keep(keep) => self.storage.keep(keep),
            Output::Check(check) => self.storage.check(check, &self.answers_in),
            Output::Forget { object } => self.storage.forget(object),
            Output::Describe(description) => self.storage.describe(description),
            Output::Leave(reason) => self.left = Some(reason),
            Output::Event(event) => (self.count)(event),
        }
    }

    /// Writes out everything queued, so that the sockets can be handed on.
    async fn flush(&mut self) -> io::Result<()> {
        for leg in &mut self.legs {
            while !leg.queue.is_empty() {
                leg.socket.writable().await?;
                leg.write()?;
            }
        }
        Ok(())
    }
}

impl LegState {
    fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            queue: VecDeque::new(),
            queued_bytes: 0,
            told_bytes: 0,
            read_bytes: 0,
            sent_bytes: 0,
            skip_bytes: 0,
            buffer: BytesMut::new(),
            ended: false,
            closing: false,
            closed: false,
        }
    }

    fn wants_read(&self, other: &Self) -> bool {
        !self.ended && other.queued_bytes < QUEUE_BYTES_HIGH
    }

    fn send(&mut self, mut data: Bytes) {
        let skipped = self.skip_bytes.min(data.len());
        self.skip_bytes -= skipped;
        let data = data.split_off(skipped);
        self.sent_bytes += data.len() as u64;
        if !data.is_empty() && !self.closed {
            self.queued_bytes += data.len();
            self.queue.push_back(data);
        }
    }

    /// Writes as much as the kernel takes now; half-closes when that was due.
    fn write(&mut self) -> io::Result<()> {
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

#[cfg(test)]
mod tests;
