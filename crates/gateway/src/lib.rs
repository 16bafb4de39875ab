//! `weir run`: listeners, one driver per machine, admin API, metrics, wiring.
//!
//! The gateway is the shell around the machines of the pure crates: it gives
//! them bytes, time and the store's answers. It holds no protocol logic.

#![forbid(unsafe_code)]

pub mod admin;
mod adopted;
mod clock;
mod driver;
mod explicit;
mod flows;
mod gateway;
pub mod metrics;
mod options;
mod scrub;
mod sessions;
pub mod state;
mod storage;
mod supervise;

#[cfg(fuzzing)]
pub use explicit::fuzzing;
pub use explicit::{Credentials, ExplicitOptions, Network, ParseNetworkError};
pub use gateway::{Gateway, RunError, error_chain, run};
pub use options::{BitTorrentOptions, Listening, Options, StoreOptions};
pub use weir_linux::Options as AdoptOptions;
