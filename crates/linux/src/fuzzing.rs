//! What must hold of a ring record, whatever is in it; run by the fuzz target.

use crate::abi::{self, Held};

/// The kernel hands over `record`.
///
/// # Panics
///
/// When more is read from it than it holds.
pub fn held(record: &[u8]) {
    let Some(held) = Held::parse(record) else { return };
    assert!(held.payload.len() + abi::HELD_BYTES <= record.len());
    assert!(held.flow.prefix().len() <= abi::WINDOW);
    assert!(held.flow.dialer <= abi::OUTSIDE && held.from <= abi::OUTSIDE);
    let (client, server) = abi::tuple_ends(&held.inside);
    assert_eq!(abi::tuple_ends(&held.inside), (client, server));
    assert!(!abi::still_held(&held.flow.passed(), held.flow.hold_ns));
}
