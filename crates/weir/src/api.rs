//! Asks a running gateway's admin API.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::exit::{Code, Failure};

/// The header that a change needs; no other site's page can send it.
const REQUEST_HEADER: &str = "x-weir-request";

/// The body of `GET path`, as it came and decoded.
pub(crate) fn get<T: DeserializeOwned>(
    api: SocketAddr,
    path: &str,
) -> Result<(String, T), Failure> {
    let (status, body) = call(api, Method::GET, path)?;
    decoded(status, &body)
}

/// The body of `GET path`, as it came and decoded; `None` when there is no such thing.
pub(crate) fn find<T: DeserializeOwned>(
    api: SocketAddr,
    path: &str,
) -> Result<Option<(String, T)>, Failure> {
    match call(api, Method::GET, path)? {
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (status, body) => decoded(status, &body).map(Some),
    }
}

/// `POST path`, which begins something; whether it did, else it was under way already,
/// and how that stands.
pub(crate) fn post<T: DeserializeOwned>(api: SocketAddr, path: &str) -> Result<(bool, T), Failure> {
    let (status, body) = call(api, Method::POST, path)?;
    let (_, value) = decoded(status, &body)?;
    Ok((status == StatusCode::ACCEPTED, value))
}

/// `DELETE path`; false when there is no such thing.
pub(crate) fn delete(api: SocketAddr, path: &str) -> Result<bool, Failure> {
    let (status, body) = call(api, Method::DELETE, path)?;
    match status {
        StatusCode::NOT_FOUND => Ok(false),
        status if status.is_success() => Ok(true),
        status => Err(refused(status, &body)),
    }
}

fn decoded<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<(String, T), Failure> {
    if !status.is_success() {
        return Err(refused(status, body));
    }
    let value = serde_json::from_slice(body).map_err(|error| {
        Failure::new(Code::Failed, format!("the gateway's answer makes no sense: {error}"))
            .hint("is it another version of Weir?")
    })?;
    Ok((String::from_utf8_lossy(body).into_owned(), value))
}

/// What a problem's `detail` says, or else the whole answer.
fn refused(status: StatusCode, body: &[u8]) -> Failure {
    let problem = serde_json::from_slice::<Problem>(body).ok();
    let detail = problem.map_or_else(|| String::from_utf8_lossy(body).into_owned(), |p| p.detail);
    let failure = Failure::new(Code::Failed, format!("the gateway refuses: {status}: {detail}"));
    match status {
        StatusCode::UNAUTHORIZED => failure.hint("set WEIR_TOKEN to the gateway's token"),
        StatusCode::METHOD_NOT_ALLOWED => failure.hint("is it another version of Weir?"),
        StatusCode::CONFLICT => Failure { code: Code::Unavailable, ..failure },
        _ => failure,
    }
}

/// RFC 9457, the part for people.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

fn call(api: SocketAddr, method: Method, path: &str) -> Result<(StatusCode, Bytes), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
    runtime.block_on(request(api, method, path)).map_err(|error| {
        Failure::new(Code::Unavailable, format!("no gateway answers at {api}: {error}"))
            .hint("start one with `weir run`, or name its admin API with --api")
    })
}

async fn request(
    api: SocketAddr,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error>> {
    let socket = tokio::net::TcpStream::connect(api).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, api.to_string())
        .header(REQUEST_HEADER, "1")
        .body(Empty::<Bytes>::new())?;
    if let Ok(token) = std::env::var("WEIR_TOKEN") {
        let value = HeaderValue::try_from(format!("Bearer {token}"))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
    };
    tokio::select! {
        answer = exchange => Ok(answer?),
        ended = connection => Err(ended.err().map_or_else(|| "it closed the connection".into(), Into::into)),
    }
}
