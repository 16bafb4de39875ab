//! SOCKS5: RFC 1928, with user and password by RFC 1929.
//!
//! CONNECT only; BIND and UDP ASSOCIATE are answered with "command not
//! supported".

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{DialError, GREETING_TIMEOUT, Proxy, tunnel};
use crate::metrics::{ExplicitRefusal, ProxyKind};

/// First byte of a SOCKS5 client.
pub(super) const VERSION: u8 = 5;

const METHOD_NONE: u8 = 0;
const METHOD_PASSWORD: u8 = 2;
const METHOD_NO_ACCEPTABLE: u8 = 0xff;
const PASSWORD_VERSION: u8 = 1;
const COMMAND_CONNECT: u8 = 1;

/// RFC 1928 §6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// What a client asked to be connected to.
#[derive(Debug, PartialEq, Eq)]
struct Destination {
    host: String,
    port: u16,
}

/// Why a greeting came to nothing.
#[derive(Debug)]
enum Refused {
    /// The connection ended or broke; nobody is left to tell.
    Gone,
    /// The client does not speak SOCKS5 as the RFCs have it.
    Malformed,
    /// Told by an authentication reply.
    Credentials,
    /// Told by this reply.
    Reply(Reply),
}

impl From<std::io::Error> for Refused {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// Serves one SOCKS5 client.
pub(super) async fn serve(proxy: &Arc<Proxy>, mut socket: TcpStream, client: SocketAddr) {
    proxy.accepted(ProxyKind::Socks5);
    let greeting = tokio::time::timeout(GREETING_TIMEOUT, greet(proxy, &mut socket)).await;
    let destination = match greeting {
        Ok(Ok(destination)) => destination,
        Ok(Err(refused)) => return refuse(proxy, socket, refused).await,
        Err(_) => return proxy.refuse(ExplicitRefusal::Timeout),
    };
    match proxy.dial(client, &destination.host, destination.port).await {
        Ok(outside) => {
            let bound = outside.local_addr().ok();
            if reply(&mut socket, Reply::Succeeded, bound).await.is_ok() {
                tunnel::run(proxy, socket, outside).await;
            }
        }
        Err(error) => {
            let code = match error {
                DialError::Forbidden => Reply::NotAllowed,
                DialError::Resolve(_) => Reply::HostUnreachable,
                DialError::Connect(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                    Reply::ConnectionRefused
                }
                DialError::Connect(_) => Reply::HostUnreachable,
            };
            // The client may be gone; there is nobody else to tell.
            reply(&mut socket, code, None).await.unwrap_or_default();
        }
    }
}

async fn refuse(proxy: &Proxy, mut socket: TcpStream, refused: Refused) {
    let reason = match refused {
        Refused::Gone => return,
        Refused::Malformed => ExplicitRefusal::Malformed,
        Refused::Credentials => ExplicitRefusal::Auth,
        Refused::Reply(code) => {
            reply(&mut socket, code, None).await.unwrap_or_default();
            ExplicitRefusal::UnsupportedCommand
        }
    };
    proxy.refuse(reason);
}

/// Method, password when asked for, request.
async fn greet(proxy: &Proxy, socket: &mut TcpStream) -> Result<Destination, Refused> {
    let [version, count] = read(socket).await?;
    if version != VERSION {
        return Err(Refused::Malformed);
    }
    let mut methods = vec![0; usize::from(count)];
    socket.read_exact(&mut methods).await?;
    let credentials = proxy.options.credentials.as_ref();
    let method = if credentials.is_some() { METHOD_PASSWORD } else { METHOD_NONE };
    if !methods.contains(&method) {
        socket.write_all(&[VERSION, METHOD_NO_ACCEPTABLE]).await?;
        return Err(Refused::Credentials);
    }
    socket.write_all(&[VERSION, method]).await?;
    if let Some(credentials) = credentials {
        let [version] = read(socket).await?;
        if version != PASSWORD_VERSION {
            return Err(Refused::Malformed);
        }
        let user = read_counted(socket).await?;
        let password = read_counted(socket).await?;
        let accepted = credentials.accept(&user, &password);
        socket.write_all(&[PASSWORD_VERSION, u8::from(!accepted)]).await?;
        if !accepted {
            return Err(Refused::Credentials);
        }
    }
    let [version, command, _reserved, kind] = read(socket).await?;
    if version != VERSION {
        return Err(Refused::Malformed);
    }
    let host = match kind {
        1 => Ipv4Addr::from(read::<4>(socket).await?).to_string(),
        3 => {
            let name = read_counted(socket).await?;
            String::from_utf8(name).map_err(|_| Refused::Malformed)?
        }
        4 => Ipv6Addr::from(read::<16>(socket).await?).to_string(),
        _ => return Err(Refused::Reply(Reply::AddressNotSupported)),
    };
    let port = u16::from_be_bytes(read(socket).await?);
    if command != COMMAND_CONNECT {
        return Err(Refused::Reply(Reply::CommandNotSupported));
    }
    Ok(Destination { host, port })
}

async fn read<const N: usize>(socket: &mut TcpStream) -> Result<[u8; N], Refused> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// A length byte and that many bytes.
async fn read_counted(socket: &mut TcpStream) -> Result<Vec<u8>, Refused> {
    let [len] = read(socket).await?;
    let mut bytes = vec![0; usize::from(len)];
    socket.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn reply(
    socket: &mut TcpStream,
    code: Reply,
    bound: Option<SocketAddr>,
) -> std::io::Result<()> {
    let mut message = vec![VERSION, code as u8, 0];
    let bound = bound.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    match bound {
        SocketAddr::V4(addr) => {
            message.push(1);
            message.extend_from_slice(&addr.ip().octets());
        }
        SocketAddr::V6(addr) => {
            message.push(4);
            message.extend_from_slice(&addr.ip().octets());
        }
    }
    message.extend_from_slice(&bound.port().to_be_bytes());
    socket.write_all(&message).await
}
