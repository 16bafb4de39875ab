//! What the gateway is told, parsed already: no text, no defaults with a
//! hidden meaning. The binary resolves its configuration file into this.

use std::net::SocketAddr;
use std::path::PathBuf;

use weir_linux::Options as AdoptOptions;
use weir_store::Policy;

use crate::admin::AdminOptions;
use crate::explicit::ExplicitOptions;

/// Everything `weir run` needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mode `adopt`; `None` to leave routed traffic alone.
    pub adopt: Option<AdoptOptions>,
    /// The explicit proxy; `None` for none.
    pub explicit: Option<ExplicitOptions>,
    /// Admin API and dashboard; `None` for none.
    pub admin: Option<AdminOptions>,
    /// The store; `None` to cache nothing.
    pub store: Option<StoreOptions>,
    /// BitTorrent.
    pub bittorrent: BitTorrentOptions,
    /// Whole addresses in logs and the API instead of prefixes.
    pub show_addresses: bool,
}

/// The store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Its directory, made when missing.
    pub dir: PathBuf,
    /// Its size.
    pub capacity_bytes: u64,
    /// Memory for bytes on their way to the disk or lately from it.
    pub memory_bytes: usize,
    /// A block device for its bytes instead of a file.
    pub device: Option<PathBuf>,
    /// What is let in and what goes when it is full.
    pub policy: Policy,
}

impl StoreOptions {
    /// The store's defaults for `dir` and `capacity_bytes`.
    pub fn new(dir: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        let weir_store::Options { dir, capacity_bytes, memory_bytes, device, policy, .. } =
            weir_store::Options::new(dir, capacity_bytes);
        Self { dir, capacity_bytes, memory_bytes, device, policy }
    }
}

/// BitTorrent.
#[derive(Clone, Debug)]
pub struct BitTorrentOptions {
    /// Whether its flows are taken at all.
    pub enabled: bool,
    /// Whether requests from outside are answered from the store too.
    pub answer_outside: bool,
    /// Whether blocks that never met their hash are served once the inferred
    /// piece length is sure enough.
    pub serve_inferred: bool,
    /// Bytes of incomplete pieces held in memory, all contents together.
    pub assembly_bytes_max: usize,
}

/// Addresses the gateway turned out to listen on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listening {
    /// Of the explicit proxy.
    pub explicit: Option<SocketAddr>,
    /// Of the admin API.
    pub admin: Option<SocketAddr>,
}
