//! A small HTTP/1.1 client for the control ports of programs under test.
//!
//! One request, one connection, bodies by length, chunks or close; refuses
//! everything else. It exists because the requests must be made from inside a
//! namespace, where the lab's own threads can be and a library's pool cannot.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::netns::Namespace;

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    /// The status code.
    pub(crate) status: u16,
    /// Header lines as they came, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The first header of that lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).context("read an answer as JSON")
    }
}

/// Makes one request from inside `space`.
///
/// # Errors
/// When nobody listens, nothing comes within five seconds or the answer is not HTTP.
pub(crate) fn request(
    space: &Namespace,
    address: SocketAddr,
    head: &str,
    body: &[u8],
) -> Result<Response> {
    space.inside(|| {
        let text = format!(
            "{head}\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        parse(&exchange(address, &[text.as_bytes(), body])?)
    })?
}

/// `GET path` from inside `space`.
///
/// # Errors
/// As [`request`].
pub(crate) fn get(space: &Namespace, address: SocketAddr, path: &str) -> Result<Response> {
    request(space, address, &format!("GET {path} HTTP/1.1"), &[])
}

/// Sends `parts` and reads until the other side closes; for HTTP and SCGI alike.
///
/// # Errors
/// When nobody listens or nothing comes within five seconds.
pub(crate) fn exchange(address: SocketAddr, parts: &[&[u8]]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)
        .with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    for part in parts {
        stream.write_all(part)?;
    }
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).context("read an answer")?;
    Ok(answer)
}

/// Reads a whole response.
pub(crate) fn parse(answer: &[u8]) -> Result<Response> {
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("an answer without the end of its headers")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut response = Response {
        status: status.with_context(|| format!("no status in {first:?}"))?,
        headers,
        body: answer[end + 4..].to_vec(),
    };
    if response.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        response.body = dechunk(&response.body)?;
    } else if let Some(length) = response.header("content-length") {
        let length: usize = length.parse().context("a content length that is no number")?;
        ensure!(response.body.len() >= length, "an answer shorter than it says");
        response.body.truncate(length);
    }
    Ok(response)
}

fn dechunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").context("a chunk without a size")?;
        let size = std::str::from_utf8(&rest[..end])?.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size.trim(), 16).context("a chunk size")?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(body);
        }
        let Some(chunk) = rest.get(..size) else { bail!("a chunk that ends early") };
        body.extend_from_slice(chunk);
        rest = rest.get(size + 2..).context("a chunk without its end")?;
    }
}

const LIMIT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_put_together() {
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        let response = parse(answer).unwrap();
        assert_eq!((response.status, response.body.as_slice()), (200, b"abcde".as_slice()));
    }

    #[test]
    fn a_body_of_known_length_is_cut_there() {
        let response = parse(b"HTTP/1.0 409 Conflict\r\nX-A: b\r\nContent-Length: 2\r\n\r\nokJUNK");
        let response = response.unwrap();
        assert_eq!(response.status, 409);
        assert_eq!(response.header("x-a"), Some("b"));
        assert_eq!(response.body, b"ok");
    }

    #[test]
    fn an_answer_that_ends_early_is_an_error() {
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
    }
}
