//! What an adopted flow leaves behind, and how it goes back to the kernel.
//!
//! Give back: hold both directions, see that nothing is queued and that both
//! legs agree on every sequence number, close both silently, let the flow pass.
//! Anything else ends by dropping the guard: the map entries stay [`LINGER_NS`]
//! longer, so that FIN, ACK and TIME_WAIT of the two sockets still get their
//! packets. They say so (`ended`), and a SYN that reuses the tuple then removes
//! them at once, in the kernel. While the guard lives no SYN does.

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
            match self.hold(false) {
                Ok(()) => {}
                // The flow is over, and the tuple is another one's.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::error!(%error, "flow stays on hold"),
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
        let Entry { inside, outside, dialer_isn, .. } = &*self.entry;
        let value = abi::adopted(*dialer_isn, 0, u32::from(on));
        // Both, whatever becomes of the first: a hold must not stay behind.
        let outside = rewrite(&self.shared.adopted_outside, outside, *dialer_isn, &value);
        rewrite(&self.shared.adopted, inside, *dialer_isn, &value).and(outside)
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
#[derive(Clone, Debug)]
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
    flow: Flow,
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
            if is_of(&self.adopted_outside, &first.outside, first.dialer_isn) {
                self.forget_outside(&first.outside);
            }
            // Otherwise a late packet would find a hold, and count its time-out.
            let flow = self.flows.lookup(&first.inside, MapFlags::ANY).ok().flatten();
            if flow.is_some_and(|flow| abi::still_held(&flow, first.flow.hold_ns)) {
                self.pass(&first.inside, &first.flow);
            }
            if is_of(&self.adopted, &first.inside, first.dialer_isn) {
                self.forget_inside(&first.inside);
            }
            ended.pop_front();
        }
    }

    fn reap_later(&self, entry: &Entry) {
        let due_ns = sys::monotonic_ns() + LINGER_NS;
        let Entry { inside, outside, dialer_isn, flow } = entry.clone();
        let value = abi::adopted(dialer_isn, 1, 0);
        // Inside first: what the outside hook lets in, the inside hook must know.
        for (map, key) in [(&self.adopted, &inside), (&self.adopted_outside, &outside)] {
            match rewrite(map, key, dialer_isn, &value) {
                Ok(()) => {}
                // A new flow has taken the tuple.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(%error, "flow not marked as ended"),
            }
        }
        let mut ended = self.ended.lock().expect("nothing panics under this lock");
        ended.push_back(Ended { due_ns, inside, outside, dialer_isn, flow });
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

/// Whether an entry is there, and that of the connection with this ISN.
fn is_of(map: &MapHandle, key: &TupleKey, dialer_isn: u32) -> bool {
    let entry = map.lookup(key, MapFlags::ANY).ok().flatten();
    entry.and_then(|entry| abi::adopted_dialer_isn(&entry)) == Some(dialer_isn)
}

/// Replaces a connection's entry; `NotFound` if it has none (any more).
///
/// The kernel writes nothing into entries, it only removes them: nothing of its
/// can be lost here, and what it removed does not come back.
fn rewrite(
    map: &MapHandle,
    key: &TupleKey,
    dialer_isn: u32,
    value: &[u8; abi::ADOPTED_BYTES],
) -> io::Result<()> {
    if !is_of(map, key, dialer_isn) {
        return Err(io::ErrorKind::NotFound.into());
    }
    map.update(key, value, MapFlags::EXIST).map_err(|error| match error.kind() {
        libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound.into(),
        _ => io::Error::other(error),
    })
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

    fn inside(shared: &Shared) -> Option<Vec<u8>> {
        shared.adopted.lookup(&[1; 36], MapFlags::ANY).unwrap()
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
        assert_eq!(inside(&shared), Some(abi::adopted(7, 1, 0).to_vec()), "a SYN may take it");
        write(&shared, 8);
        shared.reap(u64::MAX);
        assert_eq!(there(&shared), [true, true], "the tuple belongs to another flow");
        drop(FlowGuard::new(Arc::clone(&shared), entry(8)));
        shared.reap(sys::monotonic_ns() + LINGER_NS);
        assert_eq!(there(&shared), [false, false]);
    }

    #[test]
    fn a_hold_does_not_bring_back_what_the_kernel_removed() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let shared = Arc::new(shared());
        write(&shared, 7);
        let guard = FlowGuard::new(Arc::clone(&shared), entry(7));
        guard.hold(true).unwrap();
        assert_eq!(inside(&shared), Some(abi::adopted(7, 0, 1).to_vec()));
        shared.forget_outside(&[2; 36]);
        assert_eq!(guard.hold(false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(inside(&shared), Some(abi::adopted(7, 0, 0).to_vec()), "no hold stays behind");
        write(&shared, 8);
        assert_eq!(guard.hold(true).unwrap_err().kind(), io::ErrorKind::NotFound);
        drop(guard);
        assert_eq!(inside(&shared), Some(abi::adopted(8, 0, 0).to_vec()), "another flow's");
    }

    #[test]
    fn a_flow_that_is_over_is_not_on_hold_any_more() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let shared = Arc::new(shared());
        for (hold_ns, state) in [(9_u64, abi::FLOW_PASS), (10, abi::FLOW_HOLD)] {
            let mut bytes = [0; abi::FLOW_BYTES];
            bytes[..4].copy_from_slice(&abi::FLOW_HOLD.to_ne_bytes());
            bytes[8..16].copy_from_slice(&hold_ns.to_ne_bytes());
            shared.flows.update(&[1; 36], &bytes, MapFlags::ANY).unwrap();
            bytes[8..16].copy_from_slice(&9_u64.to_ne_bytes());
            let flow = Flow::parse(&bytes).unwrap();
            drop(FlowGuard::new(Arc::clone(&shared), Entry { flow, ..entry(7) }));
            shared.reap(u64::MAX);
            let found = shared.flows.lookup(&[1; 36], MapFlags::ANY).unwrap().unwrap();
            assert_eq!(abi::u32_at(&found, 0), Some(state), "only the hold it was adopted from");
        }
    }
}
