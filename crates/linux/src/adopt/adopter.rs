//! The daemon's side of an adoption: one record in, two sockets out.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use socket2::Socket;

use super::guard::{Entry, FlowGuard, Shared, UserReason};
use super::types::{Adopted, Counters, NextError, Options, StartError, routes_error};
use crate::abi::{self, Held, INSIDE, OUTSIDE};
use crate::interface;
use crate::kernel::{self, Kernel, Settings};
use crate::repair::{self, BuildError, Leg};
use crate::routes::{Numbers, Routes};
use crate::signature::{self, KernelSignature};
use crate::sys;

thread_local! {
    /// Whether this thread has asked for real-time scheduling.
    static RUNS_FIRST: Cell<bool> = const { Cell::new(false) };
}

/// The programs in place, and the way held flows come out.
///
/// Start it, and call [`Adopter::next`], on threads of the gateway's network
/// namespace. Dropping it detaches the programs; adopted flows then end.
#[derive(Debug)]
pub struct Adopter {
    shared: Arc<Shared>,
    signatures: MapHandle,
    reasons: MapHandle,
    apps: MapHandle,
    numbers: Numbers,
    incoming: Mutex<Incoming>,
    // Dropped in this order: first no new packets, then no routes.
    _kernel: Attached,
    routes: Routes,
}

/// Keeps the links; its maps are held by others.
#[derive(Debug)]
struct Attached {
    _kernel: Kernel,
}

#[derive(Debug)]
struct Incoming {
    ring: RingBuffer<'static>,
    records: Arc<Mutex<VecDeque<Option<Held>>>>,
}

impl Adopter {
    /// Loads and attaches the programs and sets up local delivery.
    ///
    /// # Errors
    ///
    /// Says what is missing, and how to get it. Nothing stays behind.
    pub fn start(options: &Options, pack: &[KernelSignature]) -> Result<Self, StartError> {
        if options.mark.count_ones() != 1 || options.mark == 1 {
            return Err(StartError::Mark { mark: options.mark });
        }
        if options.flows_max == 0 || options.adopted_max == 0 {
            return Err(StartError::Size);
        }
        let entries = signature::encode(pack)?;
        let (inside, outside) = interface::find_sides(&options.inside, &options.outside)?;
        let numbers =
            Numbers { mark: options.mark, table: options.table, rule_pref: options.rule_pref };
        let settings = Settings {
            inside_l2_len: inside[0].l2_len,
            outside_l2_len: outside[0].l2_len,
            mark: options.mark,
            flows_max: options.flows_max,
            adopted_max: options.adopted_max,
        };
        let descriptors = options.adopted_max.saturating_mul(2).min(DESCRIPTORS_MAX);
        let kernel = kernel::load(settings, &inside, &outside)?;
        // Nothing is marked before a flow is adopted, so routes may come second.
        let routes = Routes::install(options.inside.clone(), numbers).map_err(routes_error)?;
        if let Err(error) = sys::reserve_descriptors(kernel.ring.as_fd(), descriptors) {
            tracing::debug!(%error, "descriptors not reserved");
        }
        let copy = |map: &MapHandle| MapHandle::try_from(map).map_err(StartError::Load);
        let records = Arc::new(Mutex::new(VecDeque::new()));
        let ring = ring(&kernel.ring, Arc::clone(&records)).map_err(StartError::Load)?;
        let adopter = Self {
            shared: Arc::new(Shared::new(
                copy(&kernel.flows)?,
                copy(&kernel.adopted)?,
                copy(&kernel.adopted_outside)?,
            )),
            signatures: copy(&kernel.signatures)?,
            reasons: copy(&kernel.reasons)?,
            apps: copy(&kernel.apps)?,
            numbers,
            incoming: Mutex::new(Incoming { ring, records }),
            _kernel: Attached { _kernel: kernel },
            routes,
        };
        adopter.write_signatures(&entries).map_err(StartError::Load)?;
        Ok(adopter)
    }

    /// The next adopted flow; `None` when none came within `timeout`.
    ///
    /// Call it on dedicated threads, all the time: a held flow waits at most 500 ms
    /// for one, then it passes. One thread at a time waits for the kernel; while it
    /// builds, the next one waits. The first call makes the calling thread a
    /// real-time one (`SCHED_RR`, lowest priority), where it has the right to. Hand
    /// on what it returns without waiting for a lock that ordinary threads hold:
    /// they may not get to run.
    ///
    /// # Errors
    ///
    /// The ring could not be read; the kernel side then lets flows pass.
    pub fn next(&self, timeout: Duration) -> Result<Option<Adopted>, NextError> {
        if !RUNS_FIRST.replace(true) {
            // A held flow's ends wait; without the right to it, they wait longer.
            if let Err(error) = sys::run_first() {
                tracing::debug!(%error, "no real-time scheduling");
            }
        }
        let deadline_ns = sys::monotonic_ns()
            .saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        while let Some(record) = self.record(deadline_ns)? {
            if let Some(adopted) = self.take(record) {
                return Ok(Some(adopted));
            }
        }
        Ok(None)
    }

    /// The next record of the ring; `None` when none came before `deadline_ns`.
    fn record(&self, deadline_ns: u64) -> Result<Option<Option<Held>>, NextError> {
        let incoming = if sys::monotonic_ns() < deadline_ns {
            self.incoming.lock().expect("nothing panics under this lock")
        } else {
            // Who may not wait does not wait for the thread that does either.
            match self.incoming.try_lock() {
                Ok(incoming) => incoming,
                Err(_) => return Ok(None),
            }
        };
        loop {
            let record = pop(&incoming.records);
            let now_ns = sys::monotonic_ns();
            if record.is_some() || now_ns >= deadline_ns {
                return Ok(record);
            }
            self.shared.reap(now_ns);
            let left = Duration::from_nanos(deadline_ns - now_ns);
            // Never longer than the reaper may wait.
            match incoming.ring.poll(left.min(Duration::from_secs(1))) {
                Ok(()) => {}
                Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
                Err(error) => return Err(NextError(error)),
            }
        }
    }

    /// Replaces the signatures; flows already decided stay so.
    ///
    /// # Errors
    ///
    /// A signature cannot be compared ([`StartError::Signature`]; nothing is
    /// changed), or the kernel refused.
    pub fn set_signatures(&self, pack: &[KernelSignature]) -> Result<(), StartError> {
        let entries = signature::encode(pack)?;
        self.write_signatures(&entries).map_err(StartError::Load)
    }

    /// What was counted since the start, by the kernel side and here.
    pub fn counters(&self) -> Counters {
        let kernel = abi::REASONS.into_iter().zip(kernel::sums(&self.reasons)).skip(1);
        Counters {
            reasons: kernel.chain(self.shared.counts()).collect(),
            apps: kernel::sums(&self.apps),
        }
    }

    fn write_signatures(&self, entries: &[[u8; abi::SIGNATURE_BYTES]]) -> libbpf_rs::Result<()> {
        for (index, entry) in entries.iter().enumerate() {
            let key = u32::try_from(index).expect("at most 64 signatures");
            self.signatures.update(&key.to_ne_bytes(), entry, MapFlags::ANY)?;
        }
        Ok(())
    }

    /// One record: adopted, or passed and counted.
    fn take(&self, record: Option<Held>) -> Option<Adopted> {
        let Some(held) = record else {
            self.shared.count(UserReason::BadRecord);
            return None;
        };
        match self.adopt(&held) {
            Ok(adopted) => {
                self.shared.count(UserReason::Adopted);
                Some(adopted)
            }
            Err(refusal) => {
                self.shared.count(refusal);
                // After a RST or a new SYN the entry is somebody else's.
                if refusal != UserReason::HoldEnded {
                    self.shared.pass(&held.inside, &held.flow);
                }
                None
            }
        }
    }

    fn adopt(&self, held: &Held) -> Result<Adopted, UserReason> {
        let began_ns = sys::monotonic_ns();
        self.check_hold(held)?;
        let (client, server) = abi::tuple_ends(&held.inside);
        if !self.routes.ready(client.is_ipv6()) {
            return Err(UserReason::NoZone);
        }
        let built = |error: BuildError| {
            tracing::debug!(step = error.step, source = %error.source, "leg not built");
            UserReason::BuildFailed
        };
        // Still in repair mode: dropped as they are, they are silent.
        let (inside, outside) = self.legs(held, client, server).map_err(built)?;
        self.check_hold(held)?;
        let live = repair::leave(&inside).and_then(|()| repair::leave(&outside));
        let visible = live.map_err(built).and_then(|()| self.make_visible(held));
        if let Err(refusal) = visible {
            silence(&inside, &outside);
            return Err(refusal);
        }
        // A look at the held payload sends its ACK: the sender's timer stops, and
        // conntrack knows the inside leg before the sender's next packet.
        let near = if held.from == INSIDE { &inside } else { &outside };
        near.peek(&mut [MaybeUninit::uninit()]).ok();
        let now_ns = sys::monotonic_ns();
        let entry = Entry {
            inside: held.inside,
            outside: held.outside,
            dialer_isn: held.flow.sides[held.flow.dialer].isn,
            flow: held.flow.clone(),
        };
        Ok(Adopted {
            inside: inside.into(),
            outside: outside.into(),
            client,
            server,
            dialer_is_inside: held.flow.dialer == INSIDE,
            app: held.app,
            prefix: held.flow.prefix().to_vec(),
            prefix_from_inside: held.from == INSIDE,
            held: Duration::from_nanos(now_ns.saturating_sub(held.flow.hold_ns)),
            built: Duration::from_nanos(now_ns - began_ns),
            guard: FlowGuard::new(Arc::clone(&self.shared), entry),
        })
    }

    /// Writes the entries that bring the flow's packets to the legs.
    fn make_visible(&self, held: &Held) -> Result<(), UserReason> {
        let shared = &self.shared;
        let dialer_isn = held.flow.sides[held.flow.dialer].isn;
        let value = abi::adopted(dialer_isn, 0, 0);
        if shared.adopted_outside.update(&held.outside, &value, MapFlags::ANY).is_err() {
            return Err(UserReason::AdoptedFull);
        }
        if shared.adopted.update(&held.inside, &value, MapFlags::ANY).is_err() {
            shared.forget_outside(&held.outside);
            return Err(UserReason::AdoptedFull);
        }
        // A RST may have passed after the last check; nobody is there then.
        if !self.still_held(held) {
            shared.forget_outside(&held.outside);
            shared.forget_inside(&held.inside);
            return Err(UserReason::HoldEnded);
        }
        Ok(())
    }

    fn check_hold(&self, held: &Held) -> Result<(), UserReason> {
        if !self.still_held(held) {
            return Err(UserReason::HoldEnded);
        }
        if sys::monotonic_ns().saturating_sub(held.flow.hold_ns) > GIVE_UP_NS {
            return Err(UserReason::TooLate);
        }
        Ok(())
    }

    fn still_held(&self, held: &Held) -> bool {
        let entry = self.shared.flows.lookup(&held.inside, MapFlags::ANY);
        entry.ok().flatten().is_some_and(|entry| abi::still_held(&entry, held.flow.hold_ns))
    }

    /// Builds both legs, still in repair mode.
    fn legs(
        &self,
        held: &Held,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<(Socket, Socket), BuildError> {
        let own_mark = self.numbers.own_mark();
        let (addresses, sides) = ([client, server], held.flow.sides);
        // The leg that faces the payload's sender has it to read; the other one
        // goes on where the payload will be sent.
        let leg = |facing: usize| {
            let (snd, rcv, unacked, inject): (_, _, &[u8], &[u8]) = if held.from == facing {
                (held.ack, held.seq, &[], &held.payload)
            } else {
                (held.seq, held.ack, held.flow.prefix(), &[])
            };
            let played = INSIDE + OUTSIDE - facing;
            let (local, remote) = (addresses[played], addresses[facing]);
            let (me, peer) = (sides[played], sides[facing]);
            let mark = if facing == INSIDE { own_mark } else { 0 };
            Leg { local, remote, snd, rcv, me, peer, unacked, inject, mark }.build()
        };
        Ok((leg(INSIDE)?, leg(OUTSIDE)?))
    }
}

fn ring(
    map: &MapHandle,
    records: Arc<Mutex<VecDeque<Option<Held>>>>,
) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(map, move |bytes| {
        records.lock().expect("only moves records").push_back(Held::parse(bytes));
        0
    })?;
    builder.build()
}

fn pop(records: &Mutex<VecDeque<Option<Held>>>) -> Option<Option<Held>> {
    records.lock().expect("only moves records").pop_front()
}

/// Makes the closing of two sockets that must not speak a silent one.
fn silence(inside: &Socket, outside: &Socket) {
    for leg in [inside, outside] {
        // Refused only when the leg is closed already.
        repair::enter(leg.as_fd()).ok();
    }
}

/// Table of descriptors made at the start: 8 bytes each.
const DESCRIPTORS_MAX: u32 = 1 << 17;

/// The kernel side gives up after 1 s; this must be well before.
const GIVE_UP_NS: u64 = 500_000_000;
