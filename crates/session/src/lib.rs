//! The contract between a protocol's machine and the driver of a flow.
//!
//! A flow has two legs, the client's side and the peer's. A [`Session`] is a
//! pure machine between them: it is fed what was read from either leg, the
//! answers of the store and the time, and says what to write to which leg, what
//! to look up, what to keep. It names no socket, no file and no clock. A new
//! protocol is a new `Session` and a signature; the driver does not change.
//!
//! # The run loop
//!
//! ```text
//! driver                             session
//!   handle(now, input)        ──►      one input
//!   poll_output() until None  ◄──      drain everything it caused
//!   wait for bytes, answers or next_deadline(), whichever is first
//! ```
//!
//! One input, then drain. At [`Session::next_deadline`] the driver hands in
//! [`Input::Timer`].
//!
//! # What a session promises
//!
//! - Bytes it does not understand pass verbatim and in order.
//! - It holds at most what its options state, however long either side stalls:
//!   the driver says how much of what was sent still waits ([`Input::Queued`]),
//!   and stops reading a leg whose opposite leg is full.
//! - It never fails. A stranger's nonsense makes it [`Output::Leave`].

#![forbid(unsafe_code)]

use std::fmt;

use bytes::Bytes;
use weir_ranges::{ByteRange, Instant, ObjectId};

/// One side of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// The client's side: the access network.
    Inside,
    /// The peer's side: across the expensive link.
    Outside,
}

impl Leg {
    /// Both legs, inside first.
    pub const BOTH: [Self; 2] = [Self::Inside, Self::Outside];

    /// The opposite leg.
    pub const fn other(self) -> Self {
        match self {
            Self::Inside => Self::Outside,
            Self::Outside => Self::Inside,
        }
    }

    /// 0 for inside, 1 for outside.
    pub const fn index(self) -> usize {
        match self {
            Self::Inside => 0,
            Self::Outside => 1,
        }
    }

    /// Stable name, for metrics and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }
}

/// Names one look-up of one session; the answer carries it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a driver feeds a session.
#[derive(Debug)]
pub enum Input {
    /// Bytes read from `leg`, in order. Never empty.
    Bytes {
        /// Where they were read.
        leg: Leg,
        /// The bytes.
        data: Bytes,
    },
    /// `leg` sends no more: a FIN, after all its bytes.
    Closed {
        /// The leg that ended.
        leg: Leg,
    },
    /// The store's answer to [`Output::Look`].
    Answer {
        /// The look-up's name.
        ticket: Ticket,
        /// The whole range asked for, or `None` when any byte of it is missing.
        data: Option<Bytes>,
    },
    /// How many bytes sent to `leg` still wait to be written. Given after each
    /// change that crosses a driver's own mark, at the latest when it falls to 0.
    Queued {
        /// The leg.
        leg: Leg,
        /// Bytes not yet taken by the kernel.
        queued_bytes: usize,
    },
    /// The deadline of [`Session::next_deadline`] has come.
    Timer,
}

/// What a session asks of its driver.
#[derive(Debug)]
pub enum Output {
    /// Write `data` to `leg`, after everything sent to it before.
    Send {
        /// Where to.
        leg: Leg,
        /// What.
        data: Bytes,
    },
    /// Half-close `leg` once everything sent to it is written.
    Close {
        /// Which.
        leg: Leg,
    },
    /// Ask the store for `range` of `object`; answered by [`Input::Answer`],
    /// once, in any order.
    Look {
        /// Comes back with the answer.
        ticket: Ticket,
        /// Whose bytes.
        object: ObjectId,
        /// Which bytes.
        range: ByteRange,
    },
    /// Put bytes known to be right into the store. Not answered; may be lost.
    Keep(Keep),
    /// Run this check off the flow's task, then keep what it returns.
    Check(Box<dyn Check>),
    /// Drop all bytes of `object`: they turned out to be in the wrong place.
    Forget {
        /// Whose.
        object: ObjectId,
    },
    /// Say what an object is, for those who read the list of objects.
    Describe(Description),
    /// The session wants no more of this flow. Everything it held was sent
    /// before; from here on the driver relays verbatim, or gives the flow back
    /// to the kernel when no byte was added or taken. Nothing follows.
    Leave(LeaveReason),
    /// Something to count.
    Event(Event),
}

/// Bytes for the store.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Whose.
    pub object: ObjectId,
    /// Where the first byte of `data` lies in the object.
    pub offset: u64,
    /// Consecutive parts.
    pub data: Vec<Bytes>,
}

impl Keep {
    /// Bytes in all parts.
    pub fn len(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What an object is, in an operator's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The object.
    pub object: ObjectId,
    /// The app it belongs to, `bittorrent` say.
    pub app: &'static str,
    /// A name for people, at most 255 bytes.
    pub name: String,
    /// The whole object's size, where it is known.
    pub size_bytes: Option<u64>,
}

/// A computation too long for a flow's task: hashing a piece, say.
///
/// Pure: it may touch the machine's shared state but does no IO.
pub trait Check: Send {
    /// Bytes it holds until it has run, for the driver's bound.
    fn cost_bytes(&self) -> usize;

    /// Runs it; says what has turned out fit to keep, and what to count.
    fn run(self: Box<Self>) -> Checked;
}

/// What came of a [`Check`].
#[derive(Debug, Default)]
pub struct Checked {
    /// Fit for the store.
    pub keep: Option<Keep>,
    /// To be counted.
    pub event: Option<Event>,
}

impl fmt::Debug for dyn Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("cost_bytes", &self.cost_bytes()).finish()
    }
}

/// Things a session counts. `leg` is always the leg that asked, whose traffic
/// in the other direction was or was not saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `leg` asked for content.
    Asked {
        /// Who asked.
        leg: Leg,
        /// How much.
        bytes: u64,
    },
    /// Content was answered from the store.
    Served {
        /// Who had asked.
        leg: Leg,
        /// How much.
        bytes: u64,
    },
    /// Content came from the other side.
    Fetched {
        /// Who had asked.
        leg: Leg,
        /// How much.
        bytes: u64,
    },
    /// A unit of content (a piece) passed its hash check.
    CheckPassed {
        /// Its size.
        bytes: u64,
    },
    /// A unit of content failed its hash check and was dropped.
    CheckFailed {
        /// Its size.
        bytes: u64,
    },
    /// The metadata of a content was learnt and is right.
    MetadataLearnt,
    /// Something that was not acted upon, with its reason.
    Ignored(Reason),
}

/// Why something was let pass without being cached or served. A closed list;
/// each is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The assembly budget was full and an incomplete unit was dropped.
    AssemblyFull,
    /// A block came that nobody had asked for, and it cannot be checked.
    BlockUnasked,
    /// A block lies outside the content or its piece.
    BlockOutOfRange,
    /// A request lies outside the content or its piece.
    RequestOutOfRange,
    /// The table of look-ups was full.
    LookupsFull,
    /// Metadata did not hash to the content's name.
    MetadataMismatch,
    /// Metadata was larger than the limit, or not what BEP 3 says.
    MetadataRefused,
    /// The inferred piece length was wrong; what was stored under it is dropped.
    InferenceWrong,
    /// A unit was asked for too often, so the peer is asked instead.
    AskedTooOften,
    /// Too many writes waited for the store, so this one was dropped.
    StoreBusy,
}

impl Reason {
    /// All, in order.
    pub const ALL: [Self; 10] = [
        Self::AssemblyFull,
        Self::BlockUnasked,
        Self::BlockOutOfRange,
        Self::RequestOutOfRange,
        Self::LookupsFull,
        Self::MetadataMismatch,
        Self::MetadataRefused,
        Self::InferenceWrong,
        Self::AskedTooOften,
        Self::StoreBusy,
    ];

    /// Stable name, for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AssemblyFull => "assembly_full",
            Self::BlockUnasked => "block_unasked",
            Self::BlockOutOfRange => "block_out_of_range",
            Self::RequestOutOfRange => "request_out_of_range",
            Self::LookupsFull => "lookups_full",
            Self::MetadataMismatch => "metadata_mismatch",
            Self::MetadataRefused => "metadata_refused",
            Self::InferenceWrong => "inference_wrong",
            Self::AskedTooOften => "asked_too_often",
            Self::StoreBusy => "store_busy",
        }
    }
}

/// Why a session left its flow. A closed list; each is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaveReason {
    /// The first bytes only looked like the protocol.
    NotOurs,
    /// The two sides name different content.
    ContentMismatch,
    /// A version of the protocol that is not cached yet.
    Unsupported,
    /// A message broke the protocol's framing.
    Malformed,
    /// The flow's content is switched off, or its table is full.
    Refused,
}

impl LeaveReason {
    /// All, in order.
    pub const ALL: [Self; 5] =
        [Self::NotOurs, Self::ContentMismatch, Self::Unsupported, Self::Malformed, Self::Refused];

    /// Stable name, for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotOurs => "not_ours",
            Self::ContentMismatch => "content_mismatch",
            Self::Unsupported => "unsupported",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
        }
    }
}

/// A protocol's machine for one flow. See the crate's head for the contract.
pub trait Session: Send {
    /// Takes one input. The driver drains [`Session::poll_output`] before the next.
    fn handle(&mut self, now: Instant, input: Input);

    /// The next thing to do, in order; `None` when there is nothing left.
    fn poll_output(&mut self) -> Option<Output>;

    /// When [`Input::Timer`] is wanted, if at all.
    fn next_deadline(&self) -> Option<Instant>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|r| r.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
        let mut names: Vec<_> = LeaveReason::ALL.iter().map(|r| r.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LeaveReason::ALL.len());
    }

    #[test]
    fn the_other_leg_of_the_other_leg_is_the_leg() {
        for leg in Leg::BOTH {
            assert_eq!(leg.other().other(), leg);
            assert_eq!(Leg::BOTH[leg.index()], leg);
        }
    }
}
