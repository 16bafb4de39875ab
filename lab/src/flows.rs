//! Flows that the lab speaks itself: scripted BitTorrent peers, and keystrokes.
//!
//! The peers send a handshake (BEP 3) and then messages of an unknown id, which
//! must pass unchanged; the far end answers with its own handshake and sends
//! every byte back, so that one comparison covers both directions. Keystrokes
//! are small segments whose echo is timed, as in an interactive shell.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::clock;
use crate::netns::Namespace;
use crate::seed::SplitMix64;

/// A server that sends back what it receives.
#[derive(Debug)]
pub(crate) struct EchoServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// What is expected before bytes are sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Nothing.
    None,
    /// A BitTorrent handshake, answered by another of the same info-hash.
    BitTorrent,
}

impl EchoServer {
    /// Listens in a namespace until it is dropped.
    ///
    /// # Errors
    /// When the address is taken.
    pub(crate) fn start(
        space: &Namespace,
        address: SocketAddr,
        greeting: Greeting,
    ) -> Result<Self> {
        let listener = space.inside(|| TcpListener::bind(address))??;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || -> Result<()> {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => small_thread("echo", move || echo(stream, greeting))?,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        thread::sleep(ACCEPT_POLL)
                    }
                    Err(error) => return Err(error).context("accept"),
                }
            }
            Ok(())
        };
        Ok(Self {
            stop,
            thread: Some(thread::Builder::new().name("echo-accept".into()).spawn(work)?),
        })
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("weir-lab: warning: {error:#}");
        }
    }
}

/// A batch of scripted peers that all connect first and greet at the same moment.
#[derive(Clone, Debug)]
pub(crate) struct PeerBatch {
    /// Where they connect to.
    pub(crate) address: SocketAddr,
    /// How many.
    pub(crate) count: usize,
    /// Decides the bytes they send.
    pub(crate) seed: u64,
}

/// Runs one batch; `go` is shared by every batch and has room for all peers.
///
/// Answers the faults, one line per peer that went wrong.
///
/// # Errors
/// When the namespace is gone or threads cannot be started.
pub(crate) fn greet_all(
    space: &Namespace,
    batch: &PeerBatch,
    go: &Arc<Barrier>,
) -> Result<Vec<String>> {
    space.inside(|| -> Result<Vec<String>> {
        let mut peers = Vec::new();
        for index in 0..batch.count {
            let go = Arc::clone(go);
            let (address, seed) = (batch.address, batch.seed);
            let random = SplitMix64::split(seed, u64::try_from(index).expect("a small count"));
            let work = move || peer(address, random, &go);
            // Created here, the thread is in the namespace too.
            peers.push(thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?);
        }
        let mut faults = Vec::new();
        for peer in peers {
            match peer.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => faults.push(format!("{error:#}")),
                Err(_) => faults.push("a peer panicked".to_owned()),
            }
        }
        Ok(faults)
    })?
}

/// Opens `batch.count` connections, greets on each and leaves them open.
///
/// # Errors
/// When one of them does not come about.
pub(crate) fn greet_and_stay(space: &Namespace, batch: &PeerBatch) -> Result<Vec<TcpStream>> {
    space.inside(|| {
        let open = |index: usize| {
            let index = u64::try_from(index).expect("a small count");
            greet(
                TcpStream::connect_timeout(&batch.address, LIMIT).context("connect")?,
                &mut SplitMix64::split(batch.seed, index),
            )
        };
        (0..batch.count).map(open).collect()
    })?
}

/// Sends `count` small segments, one every `every`, and times each echo, in ms.
///
/// # Errors
/// When the connection breaks or an echo is not what was sent.
pub(crate) fn keystrokes(
    space: &Namespace,
    address: SocketAddr,
    count: usize,
    every: Duration,
) -> Result<Vec<f64>> {
    space.inside(|| -> Result<Vec<f64>> {
        let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut random = SplitMix64::new(1);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let (mut sent, mut back) = ([0u8; 36], [0u8; 36]);
            random.fill(&mut sent);
            let start = clock::now();
            stream.write_all(&sent)?;
            stream.read_exact(&mut back).context("wait for an echo")?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            ensure!(sent == back, "an echo differs from what was sent");
            thread::sleep(every);
        }
        Ok(times)
    })?
}

fn peer(address: SocketAddr, mut random: SplitMix64, go: &Barrier) -> Result<()> {
    let connected = TcpStream::connect_timeout(&address, LIMIT).context("connect");
    // A peer that failed must not keep the others waiting.
    go.wait();
    let mut stream = greet(connected?, &mut random)?;
    for number in 0..MESSAGES {
        let message = message(&mut random);
        stream.write_all(&message).with_context(|| format!("send message {number}"))?;
        let mut back = vec![0u8; message.len()];
        stream.read_exact(&mut back).with_context(|| format!("wait for message {number}"))?;
        ensure!(back == message, "message {number} came back changed");
    }
    Ok(())
}

fn greet(mut stream: TcpStream, random: &mut SplitMix64) -> Result<TcpStream> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let hello = handshake(*INFO_HASH, random);
    stream.write_all(&hello).context("send the handshake")?;
    let mut answer = [0u8; HANDSHAKE_BYTES];
    stream.read_exact(&mut answer).context("wait for the handshake")?;
    ensure!(answer[..20] == hello[..20], "the answer is no handshake");
    ensure!(answer[28..48] == hello[28..48], "the answer is of another torrent");
    Ok(stream)
}

/// A message of an id that no BEP defines, with up to 8 KiB of random bytes.
fn message(random: &mut SplitMix64) -> Vec<u8> {
    let len = u32::try_from(random.below(8 << 10)).expect("below 8 KiB");
    let mut message = (len + 1).to_be_bytes().to_vec();
    message.push(UNKNOWN_ID);
    let start = message.len();
    message.resize(start + usize::try_from(len).expect("below 8 KiB"), 0);
    random.fill(&mut message[start..]);
    message
}

/// BEP 3: length, name, eight reserved bytes, info-hash, peer id.
fn handshake(info_hash: [u8; 20], random: &mut SplitMix64) -> [u8; HANDSHAKE_BYTES] {
    let mut out = [0u8; HANDSHAKE_BYTES];
    out[..20].copy_from_slice(b"\x13BitTorrent protocol");
    out[28..48].copy_from_slice(&info_hash);
    out[48..56].copy_from_slice(b"-WL0100-");
    random.fill(&mut out[56..]);
    out
}

fn echo(mut stream: TcpStream, greeting: Greeting) {
    // A connection that breaks is the other end's to report.
    drop(echo_until_end(&mut stream, greeting));
}

fn echo_until_end(stream: &mut TcpStream, greeting: Greeting) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    if greeting == Greeting::BitTorrent {
        let mut hello = [0u8; HANDSHAKE_BYTES];
        stream.read_exact(&mut hello)?;
        let hash: [u8; 20] = hello[28..48].try_into().expect("twenty bytes");
        stream.write_all(&handshake(hash, &mut SplitMix64::new(9)))?;
    }
    let mut buffer = vec![0u8; 16 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            len => stream.write_all(&buffer[..len])?,
        }
    }
}

fn small_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    builder.spawn(work).map(drop).context("start a thread")
}

const HANDSHAKE_BYTES: usize = 68;
const INFO_HASH: &[u8; 20] = b"a torrent of the lab";
const UNKNOWN_ID: u8 = 200;
const MESSAGES: u32 = 12;
const STACK_BYTES: usize = 128 << 10;
const LIMIT: Duration = Duration::from_secs(20);
const ACCEPT_POLL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_its_length_and_an_unknown_id() {
        let mut random = SplitMix64::new(5);
        for _ in 0..50 {
            let message = message(&mut random);
            let told = u32::from_be_bytes(message[..4].try_into().unwrap());
            assert_eq!(usize::try_from(told).unwrap(), message.len() - 4);
            assert_eq!(message[4], UNKNOWN_ID);
        }
    }

    #[test]
    fn a_handshake_is_that_of_bep_3() {
        let hello = handshake(*INFO_HASH, &mut SplitMix64::new(1));
        assert_eq!(hello[0], 19);
        assert_eq!(&hello[1..20], b"BitTorrent protocol");
        assert_eq!(&hello[20..28], &[0; 8]);
        assert_eq!(&hello[28..48], INFO_HASH);
    }

    #[test]
    fn a_peer_and_the_server_agree_over_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server =
            thread::spawn(move || echo(listener.accept().unwrap().0, Greeting::BitTorrent));
        peer(address, SplitMix64::new(2), &Barrier::new(1)).unwrap();
        server.join().unwrap();
    }
}
