//! The layouts shared with `bpf/abi.h`, read and written field by field.
//!
//! Keys and records cross the border as bytes, so no `unsafe` is needed; a test
//! compares every size and offset with the BTF of the compiled object. What a
//! record cannot be (too short, an unknown side) is refused as `None`.

mod layout;

pub(crate) use layout::*;

#[cfg(test)]
mod tests;
