//! The operator's view: the JSON API under `/api/v1`, live events, `/metrics`
//! and the dashboard, on one listener.
//!
//! It shows what a [`View`] says, deletes objects and starts scrubs; it does nothing
//! else, and it knows no protocol. What the JSON means is in `state.rs`, what the API
//! promises in `openapi.json`, which it serves itself.
//!
//! Who may ask:
//!
//! - On a loopback address everybody on this machine; requests whose `Host` is
//!   not a name of this machine are refused (DNS rebinding).
//! - On any other address, and wherever a token is set, `/api` and `/metrics`
//!   ask for `Authorization: Bearer`. The page itself holds no data and is free.
//! - A change needs an `Origin` that is our own, or the header `X-Weir-Request`,
//!   which no other site's page can send.
//!
//! Refused: bodies (no request needs one), more than [`FOLLOWERS_MAX`] followers
//! of the live events, more than [`CONNECTIONS_MAX`] connections, and silence
//! for longer than [`IDLE_TIMEOUT`]. Each refused request is counted with its
//! reason. Errors are problem details (RFC 9457).

mod assets;
mod connections;
mod feed;
mod guard;
mod options;
mod problem;
mod routes;
mod server;
#[cfg(test)]
mod tests;

pub use connections::{CONNECTIONS_MAX, IDLE_TIMEOUT};
pub use feed::{FOLLOWERS_MAX, History, HistorySample};
pub use options::{AdminOptions, OptionsError};
pub use server::{View, serve};
