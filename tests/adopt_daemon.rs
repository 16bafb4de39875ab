//! The adopter, and a gateway's work around it in the small.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir_linux::{Adopted, Adopter, GiveBackError, KernelSignature, Options, Speaker};

use crate::lab::{Lab, in_ns};

pub(crate) const HANDSHAKE: &[u8] = b"\x13BitTorrent protocol";
pub(crate) const GREETING: &[u8] = b"GREETING-";
pub(crate) const COUNTED: &[u8] = b"COUNT ME";

/// What became of an adopted flow, beside its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) dialer_is_inside: bool,
    pub(crate) app: u16,
    pub(crate) prefix: Vec<u8>,
    pub(crate) prefix_from_inside: bool,
    pub(crate) held: Duration,
    pub(crate) built: Duration,
}

/// What the daemon does with what it adopts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Relays to the end.
    Relay,
    /// Moves the first payload, then gives the flow back.
    GiveBack,
    /// Adds a byte to the first payload, then tries to give the flow back, and
    /// relays it when that is refused.
    Meddle,
    /// Does not look at the ring before [`Daemon::listen`]; then relays.
    Deaf,
}

pub(crate) struct Daemon {
    pub(crate) adopter: Arc<Adopter>,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) given_back: Receiver<Result<(), String>>,
    stop: Arc<AtomicBool>,
    listening: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn options() -> Options {
    Options {
        inside: vec!["gin".to_owned()],
        outside: vec!["gout".to_owned()],
        mark: 0x4000_0000,
        table: 100,
        rule_pref: 100,
        flows_max: 16_384,
        adopted_max: 4096,
    }
}

pub(crate) fn signatures() -> Vec<KernelSignature> {
    let signature = |value: &[u8], from, app, adopt| KernelSignature {
        offset: 0,
        value: value.to_vec(),
        mask: vec![0xff; value.len()],
        from,
        app,
        adopt,
    };
    vec![
        signature(HANDSHAKE, Speaker::Either, 1, true),
        signature(GREETING, Speaker::Listener, 2, true),
        signature(COUNTED, Speaker::Dialer, 3, false),
    ]
}

impl Daemon {
    pub(crate) fn start(lab: &Lab, role: Role) -> Self {
        Self::start_with(lab, role, options())
    }

    pub(crate) fn start_with(lab: &Lab, role: Role, options: Options) -> Self {
        let (send, receive) = channel();
        let (give_backs, given_back) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let listening = Arc::new(AtomicBool::new(role != Role::Deaf));
        let (stopped, noted) = (Arc::clone(&stop), Arc::clone(&seen));
        let listens = Arc::clone(&listening);
        let thread = in_ns(&lab.gateway, move || {
            let adopter = Arc::new(Adopter::start(&options, &signatures()).unwrap());
            if role == Role::Deaf {
                send.send(Arc::clone(&adopter)).unwrap();
            }
            while !listens.load(Ordering::Relaxed) && !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            // Flows that begin before the builders run would wait for them to start.
            let builders = AtomicUsize::new(0);
            let running = || {
                if builders.fetch_add(1, Ordering::Relaxed) + 1 == BUILDERS && role != Role::Deaf {
                    send.send(Arc::clone(&adopter)).unwrap();
                }
            };
            serve(&adopter, role, &stopped, running, &noted, &give_backs);
        });
        let adopter = receive.recv().expect("the daemon starts");
        Self { adopter, seen, given_back, stop, listening, thread: Some(thread) }
    }

    pub(crate) fn listen(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    /// Waits until a reason has been counted so often.
    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str, count: u64) {
        for _ in 0..500 {
            if self.reason(name) >= count {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{name} never came to {count}: {}", self.counts());
    }

    #[track_caller]
    pub(crate) fn reason(&self, name: &str) -> u64 {
        let reasons = self.adopter.counters().reasons;
        let found = reasons.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("nothing is counted as {name}")).1
    }

    /// Asserts how often reasons have been counted since the start.
    #[track_caller]
    pub(crate) fn expect(&self, wanted: &[(&str, u64)]) {
        for (name, count) in wanted {
            assert_eq!(self.reason(name), *count, "{name}: {}", self.counts());
        }
    }

    /// All that was counted at all, for people.
    pub(crate) fn counts(&self) -> String {
        let mut reasons = self.adopter.counters().reasons;
        reasons.retain(|(_, count)| *count > 0);
        format!("{reasons:?}")
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the daemon's thread panicked");
        }
    }
}

/// Threads that build, as the gateway has on two processors.
const BUILDERS: usize = 2;

fn serve(
    adopter: &Adopter,
    role: Role,
    stop: &AtomicBool,
    running: impl Fn() + Sync,
    seen: &Mutex<Vec<Seen>>,
    given_back: &Sender<Result<(), String>>,
) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Nothing that an ordinary thread may hold is waited for on this one.
    let (relays, to_relay) = channel();
    let handle = runtime.handle().clone();
    thread::spawn(move || {
        for adopted in to_relay {
            drop(handle.spawn(relay(adopted)));
        }
    });
    let build = || {
        // Makes the thread a real-time one.
        let mut first = adopter.next(Duration::ZERO).unwrap();
        running();
        while !stop.load(Ordering::Relaxed) {
            let next = || adopter.next(Duration::from_millis(50)).unwrap();
            let Some(adopted) = first.take().or_else(next) else { continue };
            seen.lock().unwrap().push(Seen {
                client: adopted.client,
                server: adopted.server,
                dialer_is_inside: adopted.dialer_is_inside,
                app: adopted.app,
                prefix: adopted.prefix.clone(),
                prefix_from_inside: adopted.prefix_from_inside,
                held: adopted.held,
                built: adopted.built,
            });
            match role {
                Role::Relay | Role::Deaf => relays.send(adopted).unwrap(),
                Role::GiveBack | Role::Meddle => {
                    let (given_back, relays) = (given_back.clone(), relays.clone());
                    let extra: &[u8] = if role == Role::Meddle { b"!" } else { b"" };
                    thread::spawn(move || {
                        let result = give_back(adopted, extra).map_err(|refused| {
                            let (error, adopted) = *refused;
                            relays.send(adopted).unwrap();
                            error.to_string()
                        });
                        given_back.send(result).ok();
                    });
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..BUILDERS {
            scope.spawn(build);
        }
    });
    drop(relays);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

pub(crate) async fn relay(adopted: Adopted) {
    let _guard = adopted.guard;
    let tokio = |fd: OwnedFd| tokio::net::TcpStream::from_std(fd.into()).unwrap();
    let (inside, outside) = (tokio(adopted.inside), tokio(adopted.outside));
    weir_linux::splice::relay(&inside, &outside).await;
}

/// Moves the first payload and `extra`, and gives the flow back once all is quiet.
fn give_back(mut adopted: Adopted, extra: &[u8]) -> Result<(), Box<(GiveBackError, Adopted)>> {
    let inside = TcpStream::from(adopted.inside.try_clone().unwrap());
    let outside = TcpStream::from(adopted.outside.try_clone().unwrap());
    let (mut from, mut to) =
        if adopted.dialer_is_inside { (inside, outside) } else { (outside, inside) };
    let mut payload = [0; 16_384];
    let got = from.read(&mut payload).unwrap();
    to.write_all(&[&payload[..got], extra].concat()).unwrap();
    // A second descriptor would keep the socket open.
    drop((from, to));
    loop {
        let Adopted { inside, outside, guard, .. } = adopted;
        match guard.give_back(inside, outside) {
            Ok(()) => return Ok(()),
            Err((error, inside, outside, guard)) => {
                adopted = Adopted { inside, outside, guard, ..adopted };
                if !matches!(error, GiveBackError::Busy) {
                    return Err(Box::new((error, adopted)));
                }
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
}
