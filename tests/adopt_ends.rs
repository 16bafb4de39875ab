//! A dialer and a listener with real sockets, which check each other's bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::lab::in_ns;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one end sends: `first` in so many writes, then `body_len` seeded bytes.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) first: Vec<Vec<u8>>,
    /// After each write of `first`.
    pub(crate) gap: Duration,
    pub(crate) body_len: usize,
    /// Bytes of the other end to read before the first write.
    pub(crate) after: usize,
    pub(crate) seed: u64,
}

impl Script {
    pub(crate) fn new(first: &[u8], body_len: usize, seed: u64) -> Self {
        Self { first: vec![first.to_vec()], gap: Duration::ZERO, body_len, after: 0, seed }
    }

    fn whole(&self) -> Vec<u8> {
        let mut all = self.first.concat();
        all.extend(bytes(self.body_len, self.seed));
        all
    }

    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        for part in &self.first {
            stream.write_all(part)?;
            if !self.gap.is_zero() {
                thread::sleep(self.gap);
            }
        }
        if self.body_len > 0 {
            stream.write_all(&bytes(self.body_len, self.seed))?;
        }
        stream.shutdown(std::net::Shutdown::Write)
    }
}

pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            state.to_be_bytes()[0]
        })
        .collect()
}

/// Exactly `len` bytes, or why not.
pub(crate) fn read(stream: &mut TcpStream, len: usize) -> Result<Vec<u8>, ErrorKind> {
    let mut got = vec![0; len];
    stream.read_exact(&mut got).map(|()| got).map_err(|error| error.kind())
}

/// Ends a connection by a RST.
pub(crate) fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
}

/// One end's life: send the script, read the other's to its end, compare.
fn converse(mut stream: TcpStream, mine: &Script, theirs: &Script) -> Result<(), String> {
    stream.set_nodelay(true).unwrap();
    bound(&stream);
    let mut writer = stream.try_clone().unwrap();
    let mut got = vec![0; mine.after];
    stream.read_exact(&mut got).map_err(|error| format!("first read: {error}"))?;
    let mine = mine.clone();
    let sent = spawn(move || mine.send(&mut writer));
    let read = stream.read_to_end(&mut got);
    let sent = sent.join().unwrap();
    read.map_err(|error| format!("read after {} bytes: {error}", got.len()))?;
    sent.map_err(|error| format!("write: {error}"))?;
    let expected = theirs.whole();
    if got == expected {
        Ok(())
    } else {
        Err(format!("{} bytes instead of {}, or others", got.len(), expected.len()))
    }
}

/// A flow that stands still fails its test, and not the whole run.
fn bound(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// One of hundreds of threads.
fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap()
}

pub(crate) struct Ends {
    pub(crate) dialer_ns: String,
    pub(crate) listener_ns: String,
    /// Where the listener is.
    pub(crate) to: SocketAddr,
    /// What the dialer dials: something else where the gateway translates it.
    pub(crate) dialed: SocketAddr,
}

impl Ends {
    /// A listener that is there when this returns.
    pub(crate) fn listen<T: Send + 'static>(
        &self,
        serve: impl FnOnce(&TcpListener) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let to = self.to;
        let (ready, is_ready) = channel();
        let listening = in_ns(&self.listener_ns, move || {
            let socket = TcpListener::bind(to).unwrap();
            // The standard library's backlog of 128 is not enough for 500.
            nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::new(1024).unwrap())
                .unwrap();
            ready.send(()).unwrap();
            serve(&socket)
        });
        is_ready.recv().expect("the listener listens");
        listening
    }

    /// One connection, each end with a life of its own: the dialer's and the
    /// listener's.
    pub(crate) fn meet<D: Send + 'static, L: Send + 'static>(
        &self,
        dialer: impl FnOnce(TcpStream) -> D + Send + 'static,
        listener: impl FnOnce(TcpStream) -> L + Send + 'static,
    ) -> (JoinHandle<D>, JoinHandle<L>) {
        let listening = self.listen(|socket| {
            let stream = socket.accept().unwrap().0;
            bound(&stream);
            listener(stream)
        });
        let dialed = self.dialed;
        let dialing = in_ns(&self.dialer_ns, move || {
            let stream = TcpStream::connect_timeout(&dialed, PATIENCE).unwrap();
            bound(&stream);
            dialer(stream)
        });
        (dialing, listening)
    }

    /// `count` connections at once; the peers' addresses as the listener saw them,
    /// and as the dialers had them.
    pub(crate) fn talk(
        &self,
        count: usize,
        dialer: &Script,
        listener: &Script,
    ) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        self.talk_through(count, dialer, dialer, listener)
    }

    /// As [`Self::talk`], where the listener gets `arriving` of what is sent.
    pub(crate) fn talk_through(
        &self,
        count: usize,
        dialer: &Script,
        arriving: &Script,
        listener: &Script,
    ) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        self.talk_when(&Arc::new(Barrier::new(1)), count, dialer, arriving, listener)
    }

    /// As [`Self::talk`], where all are connected before the first one speaks.
    pub(crate) fn talk_gathered(&self, count: usize, dialer: &Script, listener: &Script) {
        self.talk_when(&Arc::new(Barrier::new(count)), count, dialer, dialer, listener);
    }

    fn talk_when(
        &self,
        gathered: &Arc<Barrier>,
        count: usize,
        dialer: &Script,
        arriving: &Script,
        listener: &Script,
    ) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let (mine, theirs) = (listener.clone(), arriving.clone());
        let accepting = self.listen(move |socket| {
            let mut peers = Vec::new();
            let mut threads = Vec::new();
            for _ in 0..count {
                let (stream, peer) = socket.accept().unwrap();
                peers.push(peer);
                let (mine, theirs) = (mine.clone(), theirs.clone());
                threads.push(spawn(move || converse(stream, &mine, &theirs)));
            }
            let results: Vec<_> =
                threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            (peers, results)
        });
        let dialed = self.dialed;
        let dialing: Vec<_> = (0..count)
            .map(|_| {
                let (mine, theirs) = (dialer.clone(), listener.clone());
                let gathered = Arc::clone(gathered);
                in_ns(&self.dialer_ns, move || {
                    let connected = TcpStream::connect_timeout(&dialed, PATIENCE);
                    // Before a failure is one, or the others would wait for ever.
                    gathered.wait();
                    let stream = connected.unwrap();
                    let local = stream.local_addr().unwrap();
                    (local, converse(stream, &mine, &theirs))
                })
            })
            .collect();
        let mut locals = Vec::new();
        let mut failures = Vec::new();
        for dialer in dialing {
            let (local, result) = dialer.join().unwrap();
            locals.push(local);
            failures.extend(result.err().map(|error| format!("dialer {local}: {error}")));
        }
        assert!(failures.is_empty(), "{} of {count}: {failures:?}", failures.len());
        let (peers, results) = accepting.join().unwrap();
        let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert!(failures.is_empty(), "listener, {} of {count}: {failures:?}", failures.len());
        (peers, locals)
    }
}
