//! HTTP/1.1 to the proxy port: absolute-form requests and CONNECT.
//!
//! Forwards by RFC 9110 §7 and RFC 9112: hop-by-hop fields stay on their hop,
//! `Via` names the gateway, a request that comes round again is refused,
//! `Max-Forwards` is honoured, upgrades (WebSocket) become tunnels. hyper does
//! the framing. Nothing is cached here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::{DialError, GREETING_TIMEOUT, Proxy, tunnel};
use crate::metrics::{ExplicitRefusal, ProxyKind};
use crate::supervise;

/// How the gateway calls itself in `Via` (RFC 9110 §7.6.3). The suffix is drawn
/// at start, so that two gateways in a row are not taken for a loop.
const VIA_NAME: &str = "weir";
/// Bytes of a request's head; more is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Fields that concern one hop only (RFC 9110 §7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

type Body = BoxBody<Bytes, hyper::Error>;
type SendRequest = hyper::client::conn::http1::SendRequest<Incoming>;

/// What all forwarded requests share.
#[derive(Debug)]
pub(super) struct Forward {
    via: HeaderValue,
}

impl Forward {
    pub(super) fn new() -> Self {
        let nonce = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), VIA_NAME);
        let via = format!("1.1 {VIA_NAME}-{:08x}", nonce & 0xffff_ffff);
        Self { via: HeaderValue::try_from(via).expect("letters, digits, a blank and a dash") }
    }

    /// Whether a request with these fields has been here before.
    fn has_been_here(&self, headers: &HeaderMap) -> bool {
        let name = self.via.as_bytes();
        headers
            .get_all(header::VIA)
            .iter()
            .any(|value| value.as_bytes().split(|b| *b == b',').any(|hop| hop.trim_ascii() == name))
    }
}

/// One client connection, with the upstream connection it used last. Not shared
/// with other clients: they may not be allowed to go where this one went.
struct Connection {
    proxy: Arc<Proxy>,
    client: SocketAddr,
    upstream: tokio::sync::Mutex<Option<(String, SendRequest)>>,
}

/// Serves one client that speaks HTTP.
pub(super) async fn serve(proxy: &Arc<Proxy>, socket: TcpStream, client: SocketAddr) {
    let upstream = tokio::sync::Mutex::default();
    let connection = Arc::new(Connection { proxy: Arc::clone(proxy), client, upstream });
    let service = service_fn(move |request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .preserve_header_case(true)
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
        if self.proxy.forward.has_been_here(request.headers()) {
            self.proxy.refuse(ExplicitRefusal::Destination);
            return Err(Refusal(StatusCode::LOOP_DETECTED, "this request goes round in circles"));
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
        let proxy = Arc::clone(&self.proxy);
        supervise::spawn(&self.proxy.sessions.metrics, "connect", async move {
            if let Some((inside, early)) = upgraded(hyper::upgrade::on(request).await) {
                tunnel::run_with(&proxy, inside, outside, early).await;
            }
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
        request.headers_mut().append(header::VIA, self.proxy.forward.via.clone());
        // RFC 9112 §3.2.2: what the request line says replaces what Host said.
        let host_field = HeaderValue::try_from(&authority)
            .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "that is no host name"))?;
        request.headers_mut().insert(header::HOST, host_field);
        *request.uri_mut() = origin_form(request.uri());
        *request.version_mut() = Version::HTTP_11;

        let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let mut response = self.send(&authority, &host, port, request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upstream_side = hyper::upgrade::on(&mut response);
            if let Some(client_side) = client_side {
                let proxy = Arc::clone(&self.proxy);
                supervise::spawn(&self.proxy.sessions.metrics, "upgrade", async move {
                    let (inside, outside) = tokio::join!(client_side, upstream_side);
                    if let (Some(inside), Some(outside)) = (upgraded(inside), upgraded(outside)) {
                        tunnel::join(&proxy, inside, outside).await;
                    }
                });
            }
        } else {
            strip_hop_by_hop(response.headers_mut());
        }
        response.headers_mut().append(header::VIA, self.proxy.forward.via.clone());
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
        self.proxy.refuse(ExplicitRefusal::ConnectFailed);
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

/// The protocol a request wants to change to (RFC 9110 §7.8), if its
/// `Connection` field says so.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| asked).cloned()
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter();
    values.filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim)
}

/// Takes out what concerns one hop only, the fields that `Connection` names
/// among it.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        connection_options(headers).filter_map(|option| option.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
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

/// Name and password of a Basic field (RFC 7617).
fn basic(value: &HeaderValue) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, coded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = base64::engine::general_purpose::STANDARD.decode(coded.trim()).ok()?;
    let colon = text.iter().position(|b| *b == b':')?;
    Some((text[..colon].to_vec(), text[colon + 1..].to_vec()))
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

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn strips_what_connection_names_and_the_standing_list() {
        let mut fields = headers(&[
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("x-yours", "2"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "trailers"),
        ]);
        strip_hop_by_hop(&mut fields);
        assert_eq!(fields, headers(&[("x-yours", "2")]));
    }

    #[test]
    fn knows_its_own_via_among_others() {
        let forward = Forward::new();
        let other = Forward { via: HeaderValue::from_static("1.1 weir-other") };
        let mut fields = headers(&[("via", "1.0 squid, 1.1 weir-other")]);
        assert!(!forward.has_been_here(&fields));
        assert!(other.has_been_here(&fields));
        fields.append(header::VIA, forward.via.clone());
        assert!(forward.has_been_here(&fields));
    }

    #[test]
    fn an_upgrade_must_be_asked_for_in_connection() {
        let asked = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade_of(&asked), Some(HeaderValue::from_static("websocket")));
        assert_eq!(upgrade_of(&headers(&[("upgrade", "h2c")])), None);
    }

    #[test]
    fn reads_basic_credentials() {
        let basic_of = |s| basic(&HeaderValue::from_static(s));
        assert_eq!(basic_of("Basic dTpwOnc="), Some((b"u".to_vec(), b"p:w".to_vec())));
        assert_eq!(basic_of("Bearer dTpw"), None);
        assert_eq!(basic_of("Basic !!"), None);
    }

    #[test]
    fn absolute_form_becomes_origin_form() {
        let of = |s: &str| origin_form(&s.parse().unwrap()).to_string();
        assert_eq!(of("http://a.b/c?d=e"), "/c?d=e");
        assert_eq!(of("http://a.b"), "/");
        assert_eq!(of("http://a.b?x"), "/?x");
        assert_eq!(unbracketed("[::1]"), "::1");
    }
}
