//! Mode `explicit`: one port for HTTP proxy requests, CONNECT and SOCKS5.
//!
//! The first byte of a connection tells: 5 is SOCKS5 (RFC 1928), anything else
//! is HTTP. What a client tunnels through CONNECT or SOCKS5 is looked at like a
//! routed flow: with a signature it gets a session and the store, without it is
//! relayed by `splice(2)`.
//!
//! Refuses: clients outside the configured networks, destinations on the
//! gateway itself unless the client is there too, and itself as destination.

mod access;
mod fields;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod socks5;
mod tunnel;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_identify::Pack;

pub use access::{Credentials, Network, ParseNetworkError};

use crate::metrics::{ExplicitRefusal, ProxyKind};
use crate::sessions::Sessions;
use crate::supervise;

/// Time a client has to say what it wants.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to resolve a destination and to try all its addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for one of several addresses, so that a dead one does not use it all up.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(8);
/// Pause after `accept` failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The explicit proxy.
#[derive(Clone, Debug)]
pub struct ExplicitOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Networks whose clients are served.
    pub clients: Vec<Network>,
    /// What a client must know; `None` asks for nothing.
    pub credentials: Option<Credentials>,
    /// Connections at once; beyond, new ones wait to be accepted.
    pub connections_max: usize,
}

/// What every connection's task shares.
#[derive(Debug)]
struct Proxy {
    options: ExplicitOptions,
    /// Where it listens, with the port the kernel chose.
    local: SocketAddr,
    sessions: Arc<Sessions>,
    pack: Arc<Pack>,
    via: fields::Via,
}

/// Serves `listener` for ever.
pub(crate) async fn serve(
    listener: TcpListener,
    options: ExplicitOptions,
    sessions: Arc<Sessions>,
    pack: Arc<Pack>,
) -> io::Result<()> {
    let local = listener.local_addr()?;
    let places = Arc::new(Semaphore::new(options.connections_max));
    let metrics = Arc::clone(&sessions.metrics);
    let proxy = Arc::new(Proxy { options, local, sessions, pack, via: fields::Via::new() });
    loop {
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        let (socket, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept_failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let proxy = Arc::clone(&proxy);
        supervise::spawn(&metrics, "explicit", async move {
            proxy.connection(socket, client, place).await;
        });
    }
}

impl Proxy {
    async fn connection(
        self: &Arc<Self>,
        socket: TcpStream,
        client: SocketAddr,
        place: OwnedSemaphorePermit,
    ) {
        if !self.options.clients.iter().any(|network| network.contains(client.ip())) {
            return self.refuse(ExplicitRefusal::Client);
        }
        set_socket_options(&socket);
        let mut first = [0];
        let peeked = tokio::time::timeout(GREETING_TIMEOUT, socket.peek(&mut first)).await;
        match (peeked, first) {
            (Ok(Ok(0)) | Ok(Err(_)), _) => {}
            (Err(_), _) => self.refuse(ExplicitRefusal::Timeout),
            (Ok(Ok(_)), [socks5::VERSION]) => socks5::serve(self, socket, client).await,
            (Ok(Ok(_)), _) => http::serve(self, socket, client, place).await,
        }
    }

    fn refuse(&self, reason: ExplicitRefusal) {
        self.sessions.metrics.explicit.connection_refused(reason);
    }

    fn accepted(&self, kind: ProxyKind) {
        self.sessions.metrics.explicit.connection_accepted(kind);
    }

    /// Connects to `host` and `port` for `client`, to the first address that
    /// answers and may be reached.
    async fn dial(
        &self,
        client: SocketAddr,
        host: &str,
        port: u16,
    ) -> Result<TcpStream, DialError> {
        let dial = async {
            let addrs = tokio::net::lookup_host((host, port)).await.map_err(DialError::Resolve)?;
            let mut last = DialError::Resolve(io::ErrorKind::NotFound.into());
            for addr in addrs {
                if !access::may_reach(client, addr, self.local) {
                    last = DialError::Forbidden;
                    continue;
                }
                let connect = tokio::time::timeout(ADDRESS_TIMEOUT, TcpStream::connect(addr));
                match connect.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(socket) if access::is_forbidden(client, &socket, self.local) => {
                        last = DialError::Forbidden;
                    }
                    Ok(socket) => {
                        set_socket_options(&socket);
                        return Ok(socket);
                    }
                    Err(error) => last = DialError::Connect(error),
                }
            }
            Err(last)
        };
        let result = tokio::time::timeout(CONNECT_TIMEOUT, dial).await;
        let result =
            result.unwrap_or_else(|_| Err(DialError::Connect(io::ErrorKind::TimedOut.into())));
        if let Err(error) = &result {
            self.refuse(error.refusal());
        }
        result
    }
}

/// Why a destination was not reached.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("the destination is the gateway itself")]
    Forbidden,
    #[error("the name has no address")]
    Resolve(#[source] io::Error),
    #[error("the destination cannot be reached")]
    Connect(#[source] io::Error),
}

impl DialError {
    const fn refusal(&self) -> ExplicitRefusal {
        match self {
            Self::Forbidden => ExplicitRefusal::Destination,
            Self::Resolve(_) => ExplicitRefusal::NameUnknown,
            Self::Connect(_) => ExplicitRefusal::ConnectFailed,
        }
    }
}

/// Small messages go out at once; a peer that vanished is noticed.
fn set_socket_options(socket: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(300));
    let set = socket
        .set_nodelay(true)
        .and_then(|()| socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "socket_option_refused");
    }
}
