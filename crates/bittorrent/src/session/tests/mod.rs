//! Playbooks for every rule of the session, properties, and real captures.

mod answers;
mod bench;
mod blocks;
mod captures;
mod exchange;
mod framing;
mod properties;
