//! A gateway for the tests of this crate, on loopback ports of its own.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use weir_gateway::state::Status;
use weir_gateway::{BitTorrentOptions, ExplicitOptions, Gateway, Options, StoreOptions};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    gateway: Option<Gateway>,
    runtime: tokio::runtime::Runtime,
}

impl Proxy {
    /// Without a store, and with `change` made to the proxy's options.
    pub(crate) fn start(change: impl FnOnce(&mut ExplicitOptions)) -> Self {
        Self::start_with(change, None)
    }

    /// With a store in `dir`.
    pub(crate) fn with_store(dir: &Path) -> Self {
        Self::start_with(|_| {}, Some(StoreOptions::new(dir, 64 << 20)))
    }

    fn start_with(change: impl FnOnce(&mut ExplicitOptions), store: Option<StoreOptions>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let mut explicit = ExplicitOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            clients: vec!["127.0.0.0/8".parse().unwrap()],
            credentials: None,
            connections_max: 64,
        };
        change(&mut explicit);
        let options = Options {
            adopt: None,
            explicit: Some(explicit),
            admin: None,
            store,
            bittorrent: BitTorrentOptions {
                enabled: true,
                answer_outside: true,
                serve_inferred: true,
                assembly_bytes_max: 16 << 20,
            },
            show_addresses: false,
        };
        let gateway = runtime.block_on(Gateway::start(options)).unwrap();
        let addr = gateway.listening.explicit.unwrap();
        Self { addr, gateway: Some(gateway), runtime }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.addr).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    pub(crate) fn status(&self) -> Status {
        self.gateway.as_ref().expect("it runs until it is dropped").status()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            self.runtime.block_on(gateway.stop());
        }
    }
}
