//! One file a verb.

pub(crate) mod cache;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod infer;
pub(crate) mod run;
pub(crate) mod simulate;
pub(crate) mod status;
mod text;
pub(crate) mod verify;
