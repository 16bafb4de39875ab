//! HTTP/1.1 to the proxy port: absolute-form requests and CONNECT.
//!
//! Forwards by RFC 9110 §7 and RFC 9112: hop-by-hop fields stay on their hop,
//! `Via` names the gateway, a request that comes round again is refused,
//! `Max-Forwards` is honoured, upgrades (WebSocket) become tunnels. hyper does
//! the framing. Nothing is cached here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::fields::{basic, has_foreign_coding, strip_hop_by_hop, upgrade_of};
use super::{DialError, GREETING_TIMEOUT, Proxy, tunnel};
use crate::metrics::{ExplicitRefusal, ProxyKind};
use crate::supervise;

/// Bytes of a request's head; more is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;

type Body = BoxBody<Bytes, hyper::Error>;
type SendRequest = hyper::client::conn::http1::SendRequest<Incoming>;

/// One client connection, with the upstream connection it used last. Not shared
/// with other clients: they may not be allowed to go where this one went.
struct Connection {
    proxy: Arc<Proxy>,
    client: SocketAddr,
    upstream: tokio::sync::Mutex<Option<(String, SendRequest)>>,
    /// Its place among the connections; a tunnel takes it along.
    place: Arc<OwnedSemaphorePermit>,
}

/// Serves one client that speaks HTTP.
pub(super) async fn serve(
    proxy: &Arc<Proxy>,
    socket: TcpStream,
    client: SocketAddr,
    place: OwnedSemaphorePermit,
) {
    let (upstream, place) = (tokio::sync::Mutex::default(), Arc::new(place));
    let connection = Arc::new(Connection { proxy: Arc::clone(proxy), client, upstream, place });
    let service = service_fn(move |request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .preserve_header_case(true)
        .half_close(true)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        if error.is_parse() {
            proxy.refuse(ExplicitRefusal::Malformed);
        }
        tracing::debug!(%error, "http_connection_ended");
    }
}

/// A refusal the client is told about.
struct Refusal(StatusCode, &'static str);

impl From<DialError> for Refusal {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Forbidden => Self(StatusCode::FORBIDDEN, "that is the gateway itself"),
            DialError::Resolve(_) => Self(StatusCode::BAD_GATEWAY, "that name has no address"),
            DialError::Connect(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                Self(StatusCode::GATEWAY_TIMEOUT, "that server does not answer")
            }
            DialError::Connect(_) => Self(StatusCode::BAD_GATEWAY, "that server refuses"),
        }
    }
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let is_connect = request.method() == Method::CONNECT;
        let kind = if is_connect { ProxyKind::Connect } else { ProxyKind::Http };
        self.proxy.accepted(kind);
        let answer = match self.check(&request) {
            Err(refusal) => Err(refusal),
            Ok(()) if is_connect => self.connect(request).await,
            Ok(()) => self.forward(request).await,
        };
        answer.unwrap_or_else(|Refusal(status, why)| {
            let mut response = text(status, why);
            if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
                let realm = HeaderValue::from_static("Basic realm=\"weir\"");
                response.headers_mut().insert(header::PROXY_AUTHENTICATE, realm);
            }
            response
        })
    }

    fn check(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        if let Some(credentials) = &self.proxy.options.credentials {
            let given = request.headers().get(header::PROXY_AUTHORIZATION);
            let (user, password) = given.and_then(basic).unwrap_or_default();
            if !credentials.accept(&user, &password) {
                self.proxy.refuse(ExplicitRefusal::Auth);
                let why = "this proxy asks for a name and a password";
                return Err(Refusal(StatusCode::PROXY_AUTHENTICATION_REQUIRED, why));
            }
        }
        if self.proxy.via.is_in(request.headers()) {
            self.proxy.refuse(ExplicitRefusal::Loop);
            return Err(Refusal(StatusCode::LOOP_DETECTED, "this request goes round in circles"));
        }
        if has_foreign_coding(request.headers()) {
            self.proxy.refuse(ExplicitRefusal::UnsupportedCommand);
            let why = "of the transfer codings only chunked is understood";
            return Err(Refusal(StatusCode::NOT_IMPLEMENTED, why));
        }
        Ok(())
    }

    /// RFC 9110 §9.3.6.
    async fn connect(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let authority = request.uri().authority();
        let Some((host, port)) = authority.and_then(|a| Some((a.host(), a.port_u16()?))) else {
            self.proxy.refuse(ExplicitRefusal::Malformed);
            return Err(Refusal(StatusCode::BAD_REQUEST, "CONNECT takes HOST:PORT"));
        };
        let outside = self.proxy.dial(self.client, unbracketed(host), port).await?;
        let (proxy, place) = (Arc::clone(&self.proxy), Arc::clone(&self.place));
        supervise::spawn(&self.proxy.sessions.metrics, "connect", async move {
            if let Some((inside, early)) = upgraded(hyper::upgrade::on(request).await) {
                tunnel::run_with(&proxy, inside, outside, early).await;
            }
            drop(place);
        });
        Ok(Response::new(empty()))
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let (Some(authority), Some(scheme)) = (request.uri().authority(), request.uri().scheme())
        else {
            self.proxy.refuse(ExplicitRefusal::Malformed);
            let why = "this is a proxy: set it as HTTP or SOCKS5 proxy and ask for whole URLs";
            return Err(Refusal(StatusCode::BAD_REQUEST, why));
        };
        if *scheme != Scheme::HTTP {
            self.proxy.refuse(ExplicitRefusal::UnsupportedCommand);
            let why = "only http URLs are forwarded; https goes through CONNECT";
            return Err(Refusal(StatusCode::NOT_IMPLEMENTED, why));
        }
        let host = unbracketed(authority.host()).to_owned();
        let port = authority.port_u16().unwrap_or(80);
        let authority = authority.as_str().rsplit('@').next().unwrap_or_default().to_owned();
        if let Some(answer) = max_forwards(&mut request) {
            return Ok(answer);
        }

        let upgrade = upgrade_of(request.headers());
        strip_hop_by_hop(request.headers_mut());
        if let Some(protocol) = &upgrade {
            let connection = HeaderValue::from_static("upgrade");
            request.headers_mut().insert(header::CONNECTION, connection);
            request.headers_mut().insert(header::UPGRADE, protocol.clone());
        }
        let received = request.version();
        self.proxy.via.add(request.headers_mut(), received);
        // hyper takes a GET without framing for one without content.
        if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
            let chunked = HeaderValue::from_static("chunked");
            request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
        }
        // RFC 9112 §3.2.2: what the request line says replaces what Host said.
        let host_field = HeaderValue::try_from(&authority)
            .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "that is no host name"))?;
        request.headers_mut().insert(header::HOST, host_field);
        *request.uri_mut() = origin_form(request.uri());
        *request.version_mut() = Version::HTTP_11;

        let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let mut response = self.send(&authority, &host, port, request).await?;
        let received = response.version();
        *response.version_mut() = Version::HTTP_11;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = upgrade_of(response.headers());
        strip_hop_by_hop(response.headers_mut());
        if switched {
            let (Some(client_side), Some(protocol)) = (client_side, protocol) else {
                self.proxy.refuse(ExplicitRefusal::UpstreamBroke);
                let why = "that server changes the protocol without being asked";
                return Err(Refusal(StatusCode::BAD_GATEWAY, why));
            };
            let connection = HeaderValue::from_static("upgrade");
            response.headers_mut().insert(header::CONNECTION, connection);
            response.headers_mut().insert(header::UPGRADE, protocol);
            let upstream_side = hyper::upgrade::on(&mut response);
            let (proxy, place) = (Arc::clone(&self.proxy), Arc::clone(&self.place));
            supervise::spawn(&self.proxy.sessions.metrics, "upgrade", async move {
                let (inside, outside) = tokio::join!(client_side, upstream_side);
                if let (Some(inside), Some(outside)) = (upgraded(inside), upgraded(outside)) {
                    tunnel::join(&proxy, inside, outside).await;
                }
                drop(place);
            });
        }
        self.proxy.via.add(response.headers_mut(), received);
        Ok(response.map(BodyExt::boxed))
    }

    /// Sends to the connection used before when it goes to the same place and
    /// is still good, else to a new one.
    async fn send(
        &self,
        authority: &str,
        host: &str,
        port: u16,
        mut request: Request<Incoming>,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut kept = self.upstream.lock().await;
        if let Some((to, mut sender)) = kept.take().filter(|(to, _)| to == authority)
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    *kept = Some((to, sender));
                    return Ok(response);
                }
                // The upstream closed it before the request was written.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(self.upstream_broke(error.error())),
                },
            }
        }
        let socket = self.proxy.dial(self.client, host, port).await?;
        let made = hyper::client::conn::http1::Builder::new()
            .preserve_header_case(true)
            .handshake(TokioIo::new(socket))
            .await;
        let (mut sender, connection) = made.map_err(|error| self.upstream_broke(&error))?;
        supervise::spawn(&self.proxy.sessions.metrics, "upstream", async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "upstream_connection_ended");
            }
        });
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| self.upstream_broke(&error))?;
        *kept = Some((authority.to_owned(), sender));
        Ok(response)
    }

    fn upstream_broke(&self, error: &hyper::Error) -> Refusal {
        tracing::debug!(%error, "upstream_broke");
        self.proxy.refuse(ExplicitRefusal::UpstreamBroke);
        Refusal(StatusCode::BAD_GATEWAY, "that server broke off")
    }
}

/// RFC 9110 §7.6.2: counts down; the answer when we are the last to ask.
fn max_forwards(request: &mut Request<Incoming>) -> Option<Response<Body>> {
    if request.method() != Method::OPTIONS && request.method() != Method::TRACE {
        return None;
    }
    let left = request.headers().get(header::MAX_FORWARDS)?.to_str().ok()?.parse::<u64>().ok()?;
    match left.checked_sub(1) {
        Some(left) => {
            request.headers_mut().insert(header::MAX_FORWARDS, HeaderValue::from(left));
            None
        }
        None if request.method() == Method::OPTIONS => Some(Response::new(empty())),
        None => Some(text(StatusCode::METHOD_NOT_ALLOWED, "this proxy does not answer TRACE")),
    }
}

fn origin_form(uri: &Uri) -> Uri {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    path.parse().expect("the path of a URI is a URI")
}

/// The address in brackets, as sockets want it.
fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The socket under an upgraded connection, and what was read ahead from it.
fn upgraded(upgraded: Result<Upgraded, hyper::Error>) -> Option<(TcpStream, Bytes)> {
    let parts = upgraded.ok()?.downcast::<TokioIo<TcpStream>>().ok()?;
    Some((parts.io.into_inner(), parts.read_buf))
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

fn text(status: StatusCode, why: &'static str) -> Response<Body> {
    let body = Full::from(format!("weir: {why}\n")).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_form_becomes_origin_form() {
        let of = |s: &str| origin_form(&s.parse().unwrap()).to_string();
        assert_eq!(of("http://a.b/c?d=e"), "/c?d=e");
        assert_eq!(of("http://a.b"), "/");
        assert_eq!(of("http://a.b?x"), "/?x");
        assert_eq!(unbracketed("[::1]"), "::1");
    }
}
