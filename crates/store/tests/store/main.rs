//! The store from outside: crashes, faults, and agreement with a plain vector.

#![allow(clippy::unwrap_used, reason = "a test's failed unwrap is its failure")]
#![allow(clippy::cast_possible_truncation, reason = "tests count in small numbers")]

mod common;
mod crash;
mod faults;
mod model;
