//! The gateway's metrics, one struct a room, and their text form for `/metrics`.
//!
//! A room's families are private and change through its methods, so that each
//! fact is counted in one place and callers need no label strings. A family's
//! doc comment is its help text. Names are `weir_<room>_<noun>[_<unit>]`, plus
//! `_total` for counters. Labels come from closed enums and from the names of
//! apps, never from the wire; every series of a closed enum exists from the
//! start, at 0. What other rooms count themselves (the store, the kernel side)
//! is read from a snapshot when somebody asks.
//!
//! The format is OpenMetrics text 1.0.

mod labels;
mod registry;
mod rooms;
mod snapshot;
#[cfg(test)]
mod tests;

pub use labels::{AdminRefusal, ExplicitRefusal, ProxyKind};
pub use registry::{CONTENT_TYPE, Metrics};
pub use rooms::{Admin, Adopt, Explicit, Sessions, Store};
