//! Mode `adopt`: flows the kernel side hands over become sessions.
//!
//! A thread for each processor, up to four, builds sockets and does nothing else:
//! the kernel holds the next flow meanwhile. One more makes tasks of them. All end
//! when the gateway does.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{JoinHandle, available_parallelism};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use weir_identify::{Action, App, Pack, Speaker};
use weir_linux::{
    Adopted, Adopter, KernelSignature, Options as AdoptOptions, Speaker as KernelSpeaker,
    StartError,
};
use weir_session::Leg;

use crate::driver::Prelude;
use crate::flows::{Ends, Mode};
use crate::sessions::{NewFlow, Sessions};
use crate::state::AdoptStatus;
use crate::supervise;

/// How long the thread waits for the kernel before it looks whether to stop.
const POLL: Duration = Duration::from_millis(200);

/// Threads that build sockets.
const BUILDERS_MAX: usize = 4;
/// Adopted flows on their way to a task.
const HAND_OVER: usize = 1024;

/// Mode `adopt`, running.
#[derive(Debug)]
pub(crate) struct Adoption {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    adopter: Adopter,
    apps: Vec<App>,
    stop: AtomicBool,
    sessions: Arc<Sessions>,
    runtime: Handle,
}

impl Adoption {
    /// Loads and attaches the kernel side and starts the thread.
    ///
    /// # Errors
    /// Says what the kernel, the rights or the interfaces lack.
    pub(crate) fn start(
        options: &AdoptOptions,
        pack: &Pack,
        sessions: Arc<Sessions>,
        runtime: Handle,
    ) -> Result<Self, StartError> {
        let adopter = Adopter::start(options, &kernel_signatures(pack))?;
        let shared = Arc::new(Shared {
            adopter,
            apps: pack.signatures().iter().map(|signature| signature.app).collect(),
            stop: AtomicBool::new(false),
            sessions,
            runtime,
        });
        // The metrics outlive the programs and must not keep them attached.
        let counters = Arc::downgrade(&shared);
        shared.sessions.metrics.adopt.set_kernel_source(move || {
            counters.upgrade().map(|shared| shared.reasons()).unwrap_or_default()
        });
        let (hand_over, adopted) = mpsc::sync_channel(HAND_OVER);
        let beginner = Arc::clone(&shared);
        let mut threads =
            vec![spawn("adopt-begin", move || adopted.iter().for_each(|f| beginner.begin(f)))];
        for _ in 0..available_parallelism().map_or(1, usize::from).min(BUILDERS_MAX) {
            let (builder, hand_over) = (Arc::clone(&shared), hand_over.clone());
            threads.push(spawn("adopt", move || builder.build(&hand_over)));
        }
        Ok(Self { shared, threads })
    }

    /// Flows the kernel recognised, by place in [`App::ALL`].
    pub(crate) fn seen(&self) -> [u64; App::ALL.len()] {
        let mut seen = [0; App::ALL.len()];
        let counters = self.shared.adopter.counters();
        for (app, count) in self.shared.apps.iter().zip(counters.apps) {
            seen[app.index()] += count;
        }
        seen
    }

    /// For the admin API.
    pub(crate) fn status(&self) -> AdoptStatus {
        let adopt = &self.shared.sessions.metrics.adopt;
        let (adopted, given_back) = adopt.flow_counts();
        let (p50, p99) = adopt.held_percentiles();
        let micros = |held: Duration| held.as_secs_f64() * 1e6;
        AdoptStatus {
            adopted,
            given_back,
            held_p50_us: micros(p50),
            held_p99_us: micros(p99),
            reasons: self.shared.reasons(),
        }
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("adopt_thread_panicked");
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).expect("a process that has just started can start a thread")
}

impl Shared {
    fn build(&self, hand_over: &SyncSender<Adopted>) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.adopter.next(POLL) {
                Ok(Some(adopted)) => {
                    if hand_over.send(adopted).is_err() {
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    // Held flows pass by themselves meanwhile. This is a real-time
                    // thread: it must not spin.
                    tracing::error!(%error, "held_flows_unreadable");
                    std::thread::sleep(POLL);
                }
            }
        }
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        let reasons = self.adopter.counters().reasons.into_iter();
        reasons.map(|(name, count)| (name.to_owned(), count)).collect()
    }

    fn begin(&self, adopted: Adopted) {
        self.sessions.metrics.adopt.flow_adopted(adopted.held);
        let Some(app) = self.apps.get(usize::from(adopted.app)).copied() else {
            // A table of another pack: impossible as long as packs are set once.
            tracing::error!(app = adopted.app, "adopted_unknown_signature");
            return;
        };
        let sessions = Arc::clone(&self.sessions);
        let metrics = Arc::clone(&sessions.metrics);
        let _context = self.runtime.enter();
        supervise::spawn(&metrics, "flow", async move {
            if let Some(flow) = new_flow(app, adopted) {
                sessions.run(flow).await;
            }
        });
    }
}

fn new_flow(app: App, adopted: Adopted) -> Option<NewFlow> {
    let Adopted { inside, outside, client, server, prefix, guard, .. } = adopted;
    let legs = [inside, outside].map(|fd| TcpStream::from_std(StdTcpStream::from(fd)));
    let [Ok(inside), Ok(outside)] = legs else {
        tracing::warn!("adopted_socket_refused_by_reactor");
        return None;
    };
    let leg = |is_inside| if is_inside { Leg::Inside } else { Leg::Outside };
    let dialer = leg(adopted.dialer_is_inside);
    let prelude = (!prefix.is_empty()).then(|| Prelude {
        from: leg(adopted.prefix_from_inside),
        bytes: Bytes::from(prefix),
        delivered: true,
    });
    let ends = Ends { client: canonical(client), peer: canonical(server), dialer };
    let mode = Mode::Adopt;
    Some(NewFlow { app, mode, ends, inside, outside, prelude, kernel: Some(guard) })
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

fn kernel_signatures(pack: &Pack) -> Vec<KernelSignature> {
    let signatures = pack.signatures().iter().enumerate();
    let kernel = signatures.map(|(index, signature)| KernelSignature {
        offset: u8::try_from(signature.pattern.offset()).expect("patterns end within 64 bytes"),
        value: signature.pattern.value().to_vec(),
        mask: signature.pattern.mask().to_vec(),
        from: match signature.from {
            Some(Speaker::Dialer) => KernelSpeaker::Dialer,
            Some(Speaker::Listener) => KernelSpeaker::Listener,
            None => KernelSpeaker::Either,
        },
        app: u16::try_from(index).expect("packs have at most 32 signatures"),
        adopt: signature.action == Action::Adopt,
    });
    kernel.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_gets_the_pack_in_order() {
        let kernel = kernel_signatures(&Pack::builtin());
        assert_eq!(kernel[0].value, b"\x13BitTorrent protocol");
        assert!(kernel[0].adopt && kernel[0].from == KernelSpeaker::Dialer);
        assert!(kernel.iter().enumerate().all(|(i, s)| usize::from(s.app) == i));
    }
}
