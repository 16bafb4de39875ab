//! The door to the kernel: eBPF, TCP_REPAIR, splice, routes and checks.
//!
//! Everything that needs rights or `unsafe` to reach Linux is here, and nothing
//! about a protocol is. [`Adopter`] turns flows that match a signature into
//! socket pairs; [`splice::relay`] moves bytes between two sockets without
//! copying; [`check::run`] says what a machine lacks.

mod abi;
mod adopt;
pub mod check;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod interface;
mod kernel;
mod repair;
mod routes;
mod signature;
pub mod splice;
mod sys;

pub use adopt::{
    Adopted, Adopter, Counters, FlowGuard, GiveBackError, NextError, Options, StartError,
};
pub use signature::{KernelSignature, SignatureError, Speaker};
