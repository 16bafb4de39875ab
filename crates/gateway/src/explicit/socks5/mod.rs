//! SOCKS5: RFC 1928, with user and password by RFC 1929.
//!
//! CONNECT only; BIND and UDP ASSOCIATE are answered with "command not
//! supported".

mod greeting;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use greeting::{Destination, Refused, Reply};
pub(crate) use greeting::{Greeting, NEED_MAX, VERSION};

use super::{DialError, GREETING_TIMEOUT, Proxy, tunnel};
use crate::metrics::{ExplicitRefusal, ProxyKind};

/// Serves one SOCKS5 client.
pub(super) async fn serve(proxy: &Arc<Proxy>, mut socket: TcpStream, client: SocketAddr) {
    proxy.accepted(ProxyKind::Socks5);
    let greeting = tokio::time::timeout(GREETING_TIMEOUT, greet(proxy, &mut socket)).await;
    let destination = match greeting {
        Ok(Ok(Ok(destination))) => destination,
        Ok(Ok(Err(refused))) => return refuse(proxy, socket, refused).await,
        // The connection ended or broke; nobody is left to tell.
        Ok(Err(_)) => return,
        Err(_) => return proxy.refuse(ExplicitRefusal::Timeout),
    };
    match proxy.dial(client, &destination.host, destination.port).await {
        Ok(outside) => {
            let bound = outside.local_addr().ok();
            if socket.write_all(&Reply::Succeeded.message(bound)).await.is_ok() {
                tunnel::run(proxy, socket, outside).await;
            }
        }
        Err(error) => tell(&mut socket, reply_to(&error)).await,
    }
}

fn reply_to(error: &DialError) -> Reply {
    match error {
        DialError::Forbidden => Reply::NotAllowed,
        DialError::Connect(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            Reply::ConnectionRefused
        }
        DialError::Resolve(_) | DialError::Connect(_) => Reply::HostUnreachable,
    }
}

async fn refuse(proxy: &Proxy, mut socket: TcpStream, refused: Refused) {
    let reason = match refused {
        Refused::Malformed => ExplicitRefusal::Malformed,
        Refused::Credentials => ExplicitRefusal::Auth,
        Refused::Reply(reply) => {
            tell(&mut socket, reply).await;
            ExplicitRefusal::UnsupportedCommand
        }
    };
    proxy.refuse(reason);
}

/// The client may be gone; there is nobody else to tell.
async fn tell(socket: &mut TcpStream, reply: Reply) {
    socket.write_all(&reply.message(None)).await.unwrap_or_default();
}

/// Method, password when asked for, request.
async fn greet(proxy: &Proxy, socket: &mut TcpStream) -> io::Result<Result<Destination, Refused>> {
    let mut greeting = Greeting::new(proxy.options.credentials.as_ref());
    let (mut bytes, mut answer) = ([0; NEED_MAX], Vec::new());
    loop {
        let needed = &mut bytes[..greeting.need()];
        socket.read_exact(needed).await?;
        let taken = greeting.take(needed, &mut answer);
        socket.write_all(&answer).await?;
        answer.clear();
        if let Some(result) = taken.transpose() {
            return Ok(result);
        }
    }
}
