//! Policies to compare with, by unit: those of libCacheSim's set that are not
//! candidates for the store, re-implemented from their papers.
//!
//! J. Yang, Y. Yue, K. V. Rashmi, "A large-scale analysis of hundreds of in-memory
//! key-value cache clusters at Twitter", OSDI 2020, and its libCacheSim name the
//! set; its parameters are taken where the paper leaves a choice. Shares are shares
//! of bytes. A unit or a ghost costs about 40 bytes in most of them, 75 in LFU-DA.

mod arc;
mod clock;
mod fifo;
mod lfu_da;
mod slru;
mod two_q;
mod w_tiny_lfu;

pub use arc::Arc;
pub use clock::Clock;
pub use fifo::Fifo;
pub use lfu_da::LfuDa;
pub use slru::Slru;
pub use two_q::TwoQ;
pub use w_tiny_lfu::WTinyLfu;
