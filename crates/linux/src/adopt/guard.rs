//! What an adopted flow leaves behind, and how it goes back to the kernel.
//!
//! Give back: hold both directions, see that nothing is queued and that both
//! legs agree on every sequence number, close both silently, let the flow pass.
//! Anything else ends by dropping the guard: the map entries stay [`LINGER_NS`]
//! longer, so that FIN, ACK and TIME_WAIT of the two sockets still get their
//! packets. A SYN that reuses the tuple ends an entry at once, in the kernel.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::abi::{self, Flow, TupleKey};
use crate::{repair, sys};

/// Keeps an adopted flow's packets coming to its sockets.
///
/// Drop it when the flow is over; see [`FlowGuard::give_back`] for the other way.
#[derive(Debug)]
pub struct FlowGuard {
    entry: Box<Entry>,
    shared: Arc<Shared>,
    /// Given back: nothing to reap.
    done: bool,
}

/// Why a flow was not given back. The flow goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum GiveBackError {
    /// Bytes wait in a queue of the leg: unread, or sent and not acknowledged.
    #[error("bytes are queued on a leg")]
    Busy,
    /// A leg has seen or sent a FIN, or is closed.
    #[error("a leg is not in state ESTABLISHED")]
    NotEstablished,
    /// Bytes were added to the stream or taken out of it.
    #[error("the two legs are {inside} and {outside} bytes apart")]
    Apart {
        /// Towards the inside: leg's next byte minus that of the outside stream.
        inside: i32,
        /// Towards the outside, likewise.
        outside: i32,
    },
    /// The kernel refused a step.
    #[error("give back")]
    Io(#[source] io::Error),
}

impl FlowGuard {
    /// Returns the flow to the kernel, its sequence numbers as they are.
    ///
    /// There must be no second descriptor of either socket: closing must close.
    /// Possible only while nothing is queued and not one byte was added or taken;
    /// everything comes back otherwise, and the flow goes on. Takes about 100 us,
    /// in which packets of the flow are dropped (and sent again by their sender).
    ///
    /// # Errors
    ///
    /// [`GiveBackError`], with both sockets and the guard.
    pub fn give_back(
        mut self,
        inside: OwnedFd,
        outside: OwnedFd,
    ) -> Result<(), (GiveBackError, OwnedFd, OwnedFd, Self)> {
        // Cheap and without side effects, before any packet is dropped.
        if let Err(error) = ready(inside.as_fd(), outside.as_fd()) {
            return Err((error, inside, outside, self));
        }
        if let Err(error) = self.try_give_back(inside.as_fd(), outside.as_fd()) {
            for leg in [inside.as_fd(), outside.as_fd()] {
                // Refused on a leg that never entered repair, which is as well.
                repair::resume(leg).ok();
            }
            if let Err(error) = self.hold(false) {
                tracing::error!(%error, "flow stays on hold");
            }
            return Err((error, inside, outside, self));
        }
        drop(inside);
        drop(outside);
        // From the packet's view: dropped until its own entry is gone.
        self.shared.forget_outside(&self.entry.outside);
        self.shared.pass(&self.entry.inside, &self.entry.flow);
        self.shared.forget_inside(&self.entry.inside);
        self.shared.count(UserReason::GivenBack);
        self.done = true;
        Ok(())
    }

    pub(super) fn new(shared: Arc<Shared>, entry: Entry) -> Self {
        Self { entry: Box::new(entry), shared, done: false }
    }

    fn try_give_back(
        &self,
        inside: BorrowedFd<'_>,
        outside: BorrowedFd<'_>,
    ) -> Result<(), GiveBackError> {
        self.hold(true).map_err(GiveBackError::Io)?;
        // A packet that passed the hook before the hold may still be on its way
        // up on the other processor; a soft interrupt takes far less than this.
        thread::sleep(SETTLE);
        ready(inside, outside)?;
        repair::enter(inside).map_err(GiveBackError::Io)?;
        repair::enter(outside).map_err(GiveBackError::Io)?;
        ready(inside, outside)?;
        let (inside_snd, inside_rcv) = repair::sequences(inside).map_err(GiveBackError::Io)?;
        let (outside_snd, outside_rcv) = repair::sequences(outside).map_err(GiveBackError::Io)?;
        let apart = [
            inside_snd.wrapping_sub(outside_rcv).cast_signed(),
            outside_snd.wrapping_sub(inside_rcv).cast_signed(),
        ];
        if apart != [0, 0] {
            return Err(GiveBackError::Apart { inside: apart[0], outside: apart[1] });
        }
        Ok(())
    }

    fn hold(&self, on: bool) -> io::Result<()> {
        let shared = &self.shared;
        for (map, key) in
            [(&shared.adopted_outside, &self.entry.outside), (&shared.adopted, &self.entry.inside)]
        {
            let current = map.lookup(key, MapFlags::ANY).map_err(io::Error::other)?;
            let current = current.ok_or(io::ErrorKind::NotFound)?;
            if abi::adopted_dialer_isn(&current) != Some(self.entry.dialer_isn) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let kernel = abi::adopted_kernel_flags(&current);
            let daemon = if on { abi::ADOPTED_HOLD } else { 0 };
            let value = abi::adopted(self.entry.dialer_isn, kernel, daemon);
            map.update(key, &value, MapFlags::EXIST).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        if !self.done {
            self.shared.reap_later(&self.entry);
        }
    }
}

/// The map entries of one adopted flow.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) inside: TupleKey,
    pub(super) outside: TupleKey,
    pub(super) dialer_isn: u32,
    pub(super) flow: Flow,
}

/// What the adopter and all guards share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) flows: MapHandle,
    pub(super) adopted: MapHandle,
    pub(super) adopted_outside: MapHandle,
    counts: [AtomicU64; UserReason::ALL.len()],
    ended: Mutex<VecDeque<Ended>>,
}

/// Map entries waiting for the last packets of their flow.
#[derive(Debug)]
struct Ended {
    due_ns: u64,
    inside: TupleKey,
    outside: TupleKey,
    dialer_isn: u32,
}

impl Shared {
    pub(super) fn new(flows: MapHandle, adopted: MapHandle, adopted_outside: MapHandle) -> Self {
        Self {
            flows,
            adopted,
            adopted_outside,
            counts: Default::default(),
            ended: Mutex::default(),
        }
    }

    pub(super) fn count(&self, reason: UserReason) {
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        UserReason::ALL
            .into_iter()
            .map(|reason| (reason.as_str(), self.counts[reason as usize].load(Ordering::Relaxed)))
    }

    /// Marks a flow as passed for good.
    pub(super) fn pass(&self, key: &TupleKey, flow: &Flow) {
        if let Err(error) = self.flows.update(key, &flow.passed(), MapFlags::ANY) {
            // The kernel's own time-out lets it pass a second later.
            tracing::warn!(%error, "flow not passed");
        }
    }

    pub(super) fn forget_inside(&self, key: &TupleKey) {
        forget(&self.adopted, key);
    }

    pub(super) fn forget_outside(&self, key: &TupleKey) {
        forget(&self.adopted_outside, key);
    }

    /// Removes entries whose time has come. Cheap when there are none.
    pub(super) fn reap(&self, now_ns: u64) {
        let mut ended = self.ended.lock().expect("nothing panics under this lock");
        while let Some(first) = ended.front() {
            if first.due_ns > now_ns {
                break;
            }
            // The same tuple may belong to a newer flow by now.
            for (map, key) in
                [(&self.adopted_outside, &first.outside), (&self.adopted, &first.inside)]
            {
                let entry = map.lookup(key, MapFlags::ANY).ok().flatten();
                let isn = entry.and_then(|entry| abi::adopted_dialer_isn(&entry));
                if isn == Some(first.dialer_isn) {
                    forget(map, key);
                }
            }
            ended.pop_front();
        }
    }

    fn reap_later(&self, entry: &Entry) {
        let due_ns = sys::monotonic_ns() + LINGER_NS;
        let Entry { inside, outside, dialer_isn, .. } = *entry;
        let mut ended = self.ended.lock().expect("nothing panics under this lock");
        ended.push_back(Ended { due_ns, inside, outside, dialer_isn });
    }
}

/// Why the daemon let a held flow go, and what else it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserReason {
    /// Adopted.
    Adopted,
    /// Held too long before the daemon came to it.
    TooLate,
    /// The hold had ended in the kernel: RST, time-out or a new SYN.
    HoldEnded,
    /// A socket could not be built.
    BuildFailed,
    /// No room in `adopted`.
    AdoptedFull,
    /// Conntrack is active and its zone could not be installed.
    NoZone,
    /// The record was not one.
    BadRecord,
    /// Given back.
    GivenBack,
}

impl UserReason {
    pub(super) const ALL: [Self; 8] = [
        Self::Adopted,
        Self::TooLate,
        Self::HoldEnded,
        Self::BuildFailed,
        Self::AdoptedFull,
        Self::NoZone,
        Self::BadRecord,
        Self::GivenBack,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Adopted => "adopted",
            Self::TooLate => "too_late",
            Self::HoldEnded => "hold_ended",
            Self::BuildFailed => "build_failed",
            Self::AdoptedFull => "adopted_full",
            Self::NoZone => "no_zone",
            Self::BadRecord => "bad_record",
            Self::GivenBack => "given_back",
        }
    }
}

fn forget(map: &MapHandle, key: &TupleKey) {
    // Already gone is as good.
    map.delete(key).ok();
}

/// Both legs open both ways, nothing queued on either.
fn ready(inside: BorrowedFd<'_>, outside: BorrowedFd<'_>) -> Result<(), GiveBackError> {
    for leg in [inside, outside] {
        if !repair::is_established(leg).map_err(GiveBackError::Io)? {
            return Err(GiveBackError::NotEstablished);
        }
        let unacked = sys::unacked_bytes(leg).map_err(GiveBackError::Io)?;
        let unread = sys::unread_bytes(leg).map_err(GiveBackError::Io)?;
        if unacked != 0 || unread != 0 {
            return Err(GiveBackError::Busy);
        }
    }
    Ok(())
}

const SETTLE: Duration = Duration::from_micros(50);

/// TIME_WAIT and FIN_WAIT2 of an orphan last 60 s in Linux; and some more for
/// what still waits for an acknowledgement.
const LINGER_NS: u64 = 65_000_000_000;

#[cfg(test)]
mod tests {
    use libbpf_rs::MapType;

    use super::*;

    fn shared() -> Shared {
        let options = libbpf_sys::bpf_map_create_opts { sz: size(), ..Default::default() };
        let map = |value: usize| {
            let size = |bytes: usize| u32::try_from(bytes).unwrap();
            let (key, value) = (size(abi::TUPLE_BYTES), size(value));
            MapHandle::create(MapType::Hash, Some("wk_test"), key, value, 16, &options).unwrap()
        };
        Shared::new(map(abi::FLOW_BYTES), map(abi::ADOPTED_BYTES), map(abi::ADOPTED_BYTES))
    }

    fn size() -> u64 {
        size_of::<libbpf_sys::bpf_map_create_opts>() as u64
    }

    fn entry(dialer_isn: u32) -> Entry {
        let flow = Flow::parse(&[0; abi::FLOW_BYTES]).unwrap();
        Entry { inside: [1; 36], outside: [2; 36], dialer_isn, flow }
    }

    fn write(shared: &Shared, isn: u32) {
        let value = abi::adopted(isn, 0, 0);
        shared.adopted.update(&[1; 36], &value, MapFlags::ANY).unwrap();
        shared.adopted_outside.update(&[2; 36], &value, MapFlags::ANY).unwrap();
    }

    fn there(shared: &Shared) -> [bool; 2] {
        [
            shared.adopted.lookup(&[1; 36], MapFlags::ANY).unwrap().is_some(),
            shared.adopted_outside.lookup(&[2; 36], MapFlags::ANY).unwrap().is_some(),
        ]
    }

    #[test]
    fn entries_outlive_the_guard_and_a_newer_flow_keeps_its_own() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let shared = Arc::new(shared());
        write(&shared, 7);
        drop(FlowGuard::new(Arc::clone(&shared), entry(7)));
        shared.reap(sys::monotonic_ns());
        assert_eq!(there(&shared), [true, true], "too early");
        write(&shared, 8);
        shared.reap(u64::MAX);
        assert_eq!(there(&shared), [true, true], "the tuple belongs to another flow");
        drop(FlowGuard::new(Arc::clone(&shared), entry(8)));
        shared.reap(sys::monotonic_ns() + LINGER_NS);
        assert_eq!(there(&shared), [false, false]);
    }
}
