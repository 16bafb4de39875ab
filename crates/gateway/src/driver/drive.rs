//! The loop around a session.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use weir_ranges::ObjectId;
use weir_session::{Event, Input, LeaveReason, Leg, Output, Session};

use super::leg::{LegState, READ_BYTES, reset};
use crate::clock;
use crate::storage::{Answer, Look, Storage};

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
        /// What is still to be written to each before what comes now.
        unsent: [Vec<u8>; 2],
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
    // A socket without a peer is about to say so to its first reader.
    let client = inside.peer_addr().map_or_else(|_| Ipv4Addr::UNSPECIFIED.into(), |addr| addr.ip());
    let legs = [LegState::new(inside), LegState::new(outside)];
    let (wanted, left) = (None, None);
    let mut driver =
        Driver { legs, session, storage, count, client, wanted, answers_in, answers, left };
    let result = driver.run(prelude).await;
    let Driver { legs: [inside, outside], left, .. } = driver;
    match (result, left) {
        (Ok(()), None) => End::Finished,
        (Ok(()), Some(reason)) => {
            let untouched =
                inside.read_bytes == outside.sent_bytes && outside.read_bytes == inside.sent_bytes;
            let unsent = [inside.unsent(), outside.unsent()];
            End::Left { legs: [inside.socket, outside.socket], unsent, reason, untouched }
        }
        (Err(error), _) => {
            reset(inside.socket);
            reset(outside.socket);
            End::Broken(error)
        }
    }
}

struct Driver<'a, F> {
    legs: [LegState; 2],
    session: &'a mut dyn Session,
    storage: &'a Storage,
    count: F,
    client: IpAddr,
    /// The object asked for last.
    wanted: Option<ObjectId>,
    answers_in: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
    left: Option<LeaveReason>,
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
                return Ok(());
            }
            if self.legs.iter().all(|leg| leg.closed) {
                return Ok(());
            }
            // Before reads, or a busy leg would put it off for ever.
            if self.session.next_deadline().is_some_and(|at| clock::until(at).is_zero()) {
                self.feed(Input::Timer);
                tokio::task::yield_now().await;
                continue;
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
        match self.legs[leg.index()].read()? {
            None => {}
            Some(data) if data.is_empty() => self.feed(Input::Closed { leg }),
            Some(data) => self.feed(Input::Bytes { leg, data }),
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
        let emptied = queued_bytes == 0 && (state.told_bytes != 0 || state.untold_sends);
        if emptied || queued_bytes.abs_diff(state.told_bytes) >= READ_BYTES {
            state.told_bytes = queued_bytes;
            state.untold_sends = false;
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
                if self.wanted != Some(object) {
                    self.wanted = Some(object);
                    self.storage.wanted(self.client, object);
                }
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
}
