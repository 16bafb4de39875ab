//! Who may ask: every request passes here first.

use std::hint::black_box;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::options::{AdminOptions, is_loopback};
use super::problem::Problem;
use super::routes::Shared;
use crate::metrics::AdminRefusal;

/// Middleware: refuses, or passes on and adds the headers every answer has.
pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let verdict = check(&shared.options, request.method(), request.uri().path(), request.headers());
    let mut response = match verdict {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            shared.metrics.admin.request_refused(refusal);
            problem(refusal).into_response()
        }
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The rules of the module's head, cheapest first.
pub(super) fn check(
    options: &AdminOptions,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), AdminRefusal> {
    if is_loopback(options.listen.ip()) && !host_is_ours(options, headers) {
        return Err(AdminRefusal::HostUnknown);
    }
    if !body_is_small(headers) {
        return Err(AdminRefusal::BodyTooLarge);
    }
    let is_data = path.starts_with("/api") || path == "/metrics";
    if let Some(token) = options.token.as_deref().filter(|_| is_data)
        && !bears(headers, token)
    {
        return Err(AdminRefusal::Token);
    }
    if !method.is_safe() && !is_our_own_request(headers) {
        return Err(AdminRefusal::OriginForeign);
    }
    Ok(())
}

/// Whether `Host` names this machine. The port may differ: it does behind a
/// port forward.
fn host_is_ours(options: &AdminOptions, headers: &HeaderMap) -> bool {
    let Some(host) = single(headers, &header::HOST) else { return false };
    let name = match host.rsplit_once(':') {
        // `[::1]` holds colons itself.
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let listen = match options.listen {
        std::net::SocketAddr::V4(addr) => addr.ip().to_string(),
        std::net::SocketAddr::V6(addr) => format!("[{}]", addr.ip()),
    };
    name.eq_ignore_ascii_case("localhost")
        || ["127.0.0.1", "[::1]", listen.as_str()].contains(&name)
}

fn body_is_small(headers: &HeaderMap) -> bool {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return false;
    }
    single(headers, &header::CONTENT_LENGTH)
        .is_none_or(|length| length.parse().is_ok_and(|length: u64| length <= BODY_BYTES_MAX))
}

fn bears(headers: &HeaderMap, token: &str) -> bool {
    let given = single(headers, &header::AUTHORIZATION).and_then(|value| value.split_once(' '));
    given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case("bearer") && equal_in_constant_time(given.trim(), token)
    })
}

/// Browsers send `Origin` with every change; other sites' pages cannot add a
/// header of their own without being asked first, and we never say yes.
fn is_our_own_request(headers: &HeaderMap) -> bool {
    if !headers.contains_key(header::ORIGIN) {
        return headers.contains_key(REQUEST_HEADER);
    }
    let (Some(origin), Some(host)) =
        (single(headers, &header::ORIGIN), single(headers, &header::HOST))
    else {
        return false;
    };
    origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"))
        .is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Compares without telling by its duration where the first difference is. The
/// length is no secret.
fn equal_in_constant_time(a: &str, b: &str) -> bool {
    let differences = a.bytes().zip(b.bytes()).fold(0, |acc, (a, b)| black_box(acc | (a ^ b)));
    a.len() == b.len() && differences == 0
}

/// The header's value when it is there once and is text.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

/// What a refused client is told.
pub(super) fn problem(refusal: AdminRefusal) -> Problem {
    let (status, detail) = match refusal {
        AdminRefusal::BodyTooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "no request of this API needs a body")
        }
        AdminRefusal::HostUnknown => (
            StatusCode::MISDIRECTED_REQUEST,
            "ask for this page as localhost, or set a token and listen on the address you use",
        ),
        AdminRefusal::OriginForeign => (
            StatusCode::FORBIDDEN,
            "a change needs an Origin that is this server's, or the header X-Weir-Request",
        ),
        AdminRefusal::Token => {
            (StatusCode::UNAUTHORIZED, "send the configured token: Authorization: Bearer <token>")
        }
        AdminRefusal::TooManyFollowers => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many programs follow the live events already")
        }
    };
    Problem::new(status, refusal.as_str(), detail)
}

/// Proves that a change does not come from another site's page.
const REQUEST_HEADER: HeaderName = HeaderName::from_static("x-weir-request");

/// Bytes of a body that are put up with, and not read.
const BODY_BYTES_MAX: u64 = 4096;

/// Of every answer.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
