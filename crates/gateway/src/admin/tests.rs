//! The server as a client meets it, over loopback sockets, and the description
//! held against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weir_ranges::ObjectId;

use super::guard::check;
use super::*;
use crate::metrics::{AdminRefusal, Metrics};
use crate::state::{
    API_VERSION, AdoptStatus, AppFlows, ContentBytes, FlowStatus, Modes, ObjectStatus, Status,
    StoreStatus, VerifyReport, VerifyStatus,
};

const ID: &str = "00112233445566778899aabbccddeeff";
const TOKEN: &str = "0123456789abcdef-token";

/// A view with one of everything, and every optional field present.
#[derive(Debug, Default)]
struct Sample {
    removed: Mutex<Vec<ObjectId>>,
    panics: AtomicBool,
    has_no_store: AtomicBool,
    scrubs: AtomicU64,
}

impl View for Sample {
    fn status(&self) -> Status {
        assert!(!self.panics.load(Ordering::Relaxed), "asked to");
        Status {
            api_version: API_VERSION,
            version: "0.1.0".to_owned(),
            uptime_seconds: 12.5,
            modes: Modes {
                inside: vec!["eth1".to_owned()],
                outside: vec!["eth0".to_owned()],
                explicit: Some("127.0.0.1:3128".to_owned()),
            },
            bytes: ContentBytes { asked: 3, served: 2, fetched: 1, ..ContentBytes::default() },
            apps: BTreeMap::from([("bittorrent".to_owned(), AppFlows::default())]),
            store: Some(StoreStatus::default()),
            store_error: Some("none".to_owned()),
            adopt: Some(AdoptStatus {
                reasons: BTreeMap::from([("map_full".to_owned(), 1)]),
                ..AdoptStatus::default()
            }),
            reasons: BTreeMap::from([("assembly_full".to_owned(), 1)]),
        }
    }

    fn flows(&self) -> Vec<FlowStatus> {
        [5.0, 1.0, 3.0]
            .map(|age_seconds| FlowStatus {
                id: 1,
                app: "bittorrent".to_owned(),
                mode: "adopt".to_owned(),
                client: "10.0.0.0/24".to_owned(),
                peer: "192.0.2.0/24".to_owned(),
                dialer: "inside".to_owned(),
                age_seconds,
                bytes: ContentBytes::default(),
            })
            .to_vec()
    }

    fn objects(&self) -> Vec<ObjectStatus> {
        vec![ObjectStatus {
            id: ID.to_owned(),
            app: "bittorrent".to_owned(),
            name: "a <b>name</b>".to_owned(),
            size_bytes: Some(10),
            held_bytes: 5,
            segments: 1,
            idle_seconds: 1.0,
        }]
    }

    fn remove_object(&self, id: ObjectId) -> bool {
        self.removed.lock().unwrap().push(id);
        id.to_string() == ID
    }

    fn verify_status(&self) -> Option<VerifyStatus> {
        let number = self.scrubs.load(Ordering::Relaxed);
        let report = Some(VerifyReport { segments: 1, bytes: 5, ..VerifyReport::default() });
        let status = VerifyStatus { number, running: number > 0, report, ..Default::default() };
        (!self.has_no_store.load(Ordering::Relaxed)).then_some(status)
    }

    /// The first one never ends.
    fn start_verify(&self) -> Option<(bool, VerifyStatus)> {
        let began = self.scrubs.swap(1, Ordering::Relaxed) == 0;
        Some((began, self.verify_status()?))
    }
}

/// A server under test; stops when told.
struct Server {
    addr: SocketAddr,
    view: Arc<Sample>,
    metrics: Arc<Metrics>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

async fn start(token: Option<&str>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let options = AdminOptions { listen: addr, token: token.map(str::to_owned) };
    let view = Arc::<Sample>::default();
    let metrics = Metrics::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let shared = (Arc::clone(&view), Arc::clone(&metrics));
    let shutdown = async move { drop(stopped.await) };
    let task = tokio::spawn(serve(listener, options, shared.0, shared.1, shutdown));
    Server { addr, view, metrics, stop, task }
}

/// Status, head and body of one request on its own connection.
async fn ask(server: &Server, method: &str, path: &str, head: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let host = if head.to_ascii_lowercase().contains("host:") {
        String::new()
    } else {
        format!("Host: {}\r\n", server.addr)
    };
    let request = format!("{method} {path} HTTP/1.1\r\n{host}{head}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

async fn json(server: &Server, path: &str) -> Value {
    let (status, head, body) = ask(server, "GET", path, "").await;
    assert_eq!(status, 200, "{body}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn status_flows_and_objects_are_the_views_own() {
    let server = start(None).await;
    let status: Status = serde_json::from_value(json(&server, "/api/v1/status").await).unwrap();
    assert_eq!(status, server.view.status());
    let flows: Vec<FlowStatus> =
        serde_json::from_value(json(&server, "/api/v1/flows").await).unwrap();
    assert_eq!(flows.iter().map(|f| f.age_seconds).collect::<Vec<_>>(), [1.0, 3.0, 5.0]);
    let objects: Vec<ObjectStatus> =
        serde_json::from_value(json(&server, "/api/v1/objects").await).unwrap();
    assert_eq!(objects, server.view.objects());
}

#[tokio::test]
async fn a_limit_cuts_the_list_and_the_header_says_how_many_there_are() {
    let server = start(None).await;
    let (_, head, body) = ask(&server, "GET", "/api/v1/flows?limit=2", "").await;
    assert!(head.contains("x-weir-total: 3"), "{head}");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap().as_array().unwrap().len(), 2);
    for query in ["limit=0", "limit=10001", "limit=x", "other=1"] {
        let (status, head, _) = ask(&server, "GET", &format!("/api/v1/flows?{query}"), "").await;
        assert_eq!(status, 400, "{query}");
        assert!(head.contains("application/problem+json"), "{head}");
    }
}

#[tokio::test]
async fn an_object_is_removed_only_by_our_own_page_or_a_program() {
    let server = start(None).await;
    let path = format!("/api/v1/objects/{ID}");
    let own = format!("Origin: http://{}\r\n", server.addr);
    for (head, want) in [
        ("", 403),
        ("Origin: http://evil.example\r\nX-Weir-Request: 1\r\n", 403),
        ("Origin: null\r\n", 403),
        ("X-Weir-Request: 1\r\n", 204),
        (own.as_str(), 204),
    ] {
        assert_eq!(ask(&server, "DELETE", &path, head).await.0, want, "{head}");
    }
    assert_eq!(server.view.removed.lock().unwrap().len(), 2);
    let (status, _, body) =
        ask(&server, "DELETE", "/api/v1/objects/xyz", "X-Weir-Request: 1\r\n").await;
    assert_eq!(status, 400);
    assert!(body.contains("urn:weir:problem:object_id"), "{body}");
    let unknown = "/api/v1/objects/00000000000000000000000000000000";
    assert_eq!(ask(&server, "DELETE", unknown, "X-Weir-Request: 1\r\n").await.0, 404);
}

#[tokio::test]
async fn one_object_is_found_by_its_whole_id() {
    let server = start(None).await;
    let found = json(&server, &format!("/api/v1/objects/{ID}")).await;
    let found: ObjectStatus = serde_json::from_value(found).unwrap();
    assert_eq!([found], server.view.objects()[..]);
    let upper = ID.to_ascii_uppercase();
    assert_eq!(json(&server, &format!("/api/v1/objects/{upper}")).await["id"], ID);
    for (id, code, name) in [
        ("xyz", 400, "object_id"),
        (&ID[..31], 400, "object_id"),
        ("+0112233445566778899aabbccddeeff", 400, "object_id"),
        ("00000000000000000000000000000000", 404, "object_unknown"),
    ] {
        let (status, head, body) = ask(&server, "GET", &format!("/api/v1/objects/{id}"), "").await;
        assert_eq!(status, code, "{id}");
        assert!(head.contains("application/problem+json"), "{head}");
        assert!(body.contains(&format!("urn:weir:problem:{name}\"")), "{body}");
    }
}

#[tokio::test]
async fn a_scrub_begins_once_and_only_for_our_own_page_or_a_program() {
    let server = start(None).await;
    let path = "/api/v1/store/verify";
    assert_eq!(json(&server, path).await["number"], 0);
    for head in ["", "Origin: http://evil.example\r\nX-Weir-Request: 1\r\n", "Origin: null\r\n"] {
        assert_eq!(ask(&server, "POST", path, head).await.0, 403, "{head}");
    }
    assert_eq!(server.view.scrubs.load(Ordering::Relaxed), 0);
    let own = format!("Origin: http://{}\r\n", server.addr);
    for (head, want) in [(own.as_str(), 202), ("X-Weir-Request: 1\r\n", 200)] {
        let (status, _, body) = ask(&server, "POST", path, head).await;
        assert_eq!(status, want, "{body}");
        let status: VerifyStatus = serde_json::from_str(&body).unwrap();
        assert_eq!(Some(status), server.view.verify_status());
        assert!(status.running && status.number == 1);
    }
    let status = serde_json::from_value(json(&server, path).await).unwrap();
    assert_eq!(server.view.verify_status(), Some(status));
    assert_eq!(ask(&server, "DELETE", path, "X-Weir-Request: 1\r\n").await.0, 405);
}

#[tokio::test]
async fn a_scrub_needs_the_token_where_there_is_one() {
    let server = start(Some(TOKEN)).await;
    let path = "/api/v1/store/verify";
    for method in ["GET", "POST"] {
        assert_eq!(ask(&server, method, path, "X-Weir-Request: 1\r\n").await.0, 401, "{method}");
    }
    let head = format!("Authorization: Bearer {TOKEN}\r\nX-Weir-Request: 1\r\n");
    assert_eq!(ask(&server, "POST", path, &head).await.0, 202);
}

#[tokio::test]
async fn without_a_store_there_is_nothing_to_verify() {
    let server = start(None).await;
    server.view.has_no_store.store(true, Ordering::Relaxed);
    for method in ["GET", "POST"] {
        let (status, _, body) =
            ask(&server, method, "/api/v1/store/verify", "X-Weir-Request: 1\r\n").await;
        assert_eq!(status, 409, "{method}");
        assert!(body.contains("urn:weir:problem:store_none"), "{body}");
    }
}

#[tokio::test]
async fn a_foreign_host_is_refused_on_loopback() {
    let server = start(None).await;
    for host in ["localhost", "localhost:8480", "127.0.0.1", "[::1]:1", "LOCALHOST:80"] {
        let head = format!("Host: {host}\r\n");
        assert_eq!(ask(&server, "GET", "/api/v1/status", &head).await.0, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:8480", "127.0.0.1.nip.io", "[::2]"] {
        let head = format!("Host: {host}\r\n");
        assert_eq!(ask(&server, "GET", "/", &head).await.0, 421, "{host}");
    }
    let text = server.metrics.encode();
    assert!(text.contains("weir_admin_refused_total{reason=\"host_unknown\"} 4"), "{text}");
}

#[tokio::test]
async fn a_token_guards_the_data_and_not_the_page() {
    let server = start(Some(TOKEN)).await;
    for path in ["/api/v1/status", "/api/v1/events", "/metrics", "/api/v1/openapi.json"] {
        let (status, head, body) = ask(&server, "GET", path, "").await;
        assert_eq!(status, 401, "{path}");
        assert!(head.contains("www-authenticate: bearer"), "{head}");
        assert!(body.contains("urn:weir:problem:token"), "{body}");
    }
    for wrong in
        ["Bearer", "Bearer x", "Basic 0123456789abcdef-token", "Bearer 0123456789abcdef-tokem"]
    {
        let head = format!("Authorization: {wrong}\r\n");
        assert_eq!(ask(&server, "GET", "/metrics", &head).await.0, 401, "{wrong}");
    }
    let head = format!("Authorization: bearer {TOKEN}\r\n");
    assert_eq!(ask(&server, "GET", "/metrics", &head).await.0, 200);
    assert_eq!(ask(&server, "GET", "/", "").await.0, 200);
}

#[test]
fn only_loopback_goes_without_token() {
    let options = |listen: &str, token: Option<&str>| AdminOptions {
        listen: listen.parse().unwrap(),
        token: token.map(str::to_owned),
    };
    for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(options(listen, None).check(), Ok(()), "{listen}");
    }
    for listen in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1"] {
        let refused = Err(OptionsError::TokenMissing(listen.parse().unwrap()));
        assert_eq!(options(listen, None).check(), refused);
        assert_eq!(options(listen, Some(TOKEN)).check(), Ok(()));
    }
    assert_eq!(options("0.0.0.0:1", Some("1234567890123456")).check(), Ok(()));
    let short = options("127.0.0.1:1", Some("123456789012345")).check();
    assert_eq!(short, Err(OptionsError::TokenShort(15)));
    let spaced = options("127.0.0.1:1", Some("1234567890 123456")).check();
    assert_eq!(spaced, Err(OptionsError::TokenCharacter));
    assert!(!format!("{:?}", options("127.0.0.1:1", Some(TOKEN))).contains(TOKEN));
}

#[test]
fn bodies_are_refused_above_the_limit() {
    let options = AdminOptions { listen: "127.0.0.1:1".parse().unwrap(), token: None };
    let verdict = |name: &'static str, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost"));
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        check(&options, &Method::GET, "/api/v1/status", &headers)
    };
    assert_eq!(verdict("content-length", "4096"), Ok(()));
    for value in ["4097", "18446744073709551616", "-1", "x"] {
        assert_eq!(verdict("content-length", value), Err(AdminRefusal::BodyTooLarge), "{value}");
    }
    assert_eq!(verdict("transfer-encoding", "chunked"), Err(AdminRefusal::BodyTooLarge));
}

#[tokio::test]
async fn the_page_has_a_strict_policy_and_is_revalidated() {
    let server = start(None).await;
    let (status, head, body) = ask(&server, "GET", "/", "").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-security-policy: default-src 'self';"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    assert!(body.contains("<title>Weir"), "{body}");
    assert!(!body.contains("<style") && !body.contains("<script>"), "inline is forbidden");
    let etag = head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let head = format!("If-None-Match: \"x\", {etag}\r\n");
    assert_eq!(ask(&server, "GET", "/index.html", &head).await.0, 304);
    let (status, head, _) = ask(&server, "GET", "/nothing", "").await;
    assert_eq!(status, 404);
    assert!(head.contains("application/problem+json"), "{head}");
    assert_eq!(ask(&server, "POST", "/api/v1/status", "X-Weir-Request: 1\r\n").await.0, 405);
}

/// Follows the live events; the reader stands behind the answer's head.
async fn follow(server: &Server) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).await.unwrap();
    }
    (status, reader)
}

#[tokio::test]
async fn the_first_event_is_the_status_and_the_stream_ends_at_shutdown() {
    let server = start(None).await;
    let (status, mut events) = follow(&server).await;
    assert_eq!(status, 200);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert_ne!(events.read_line(&mut line).await.unwrap(), 0, "ended before an event");
    }
    let status: Status = serde_json::from_str(line.trim_start_matches("data: ")).unwrap();
    assert_eq!(status, server.view.status());
    let history = json(&server, "/api/v1/history").await;
    assert_eq!(history["samples"][0]["uptime_seconds"], 12.5);

    server.stop.send(()).unwrap();
    let mut rest = String::new();
    events.read_to_string(&mut rest).await.unwrap();
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn followers_beyond_the_limit_are_told_to_come_back() {
    let server = start(None).await;
    let mut followers = Vec::new();
    for _ in 0..FOLLOWERS_MAX {
        let (status, reader) = follow(&server).await;
        assert_eq!(status, 200);
        followers.push(reader);
    }
    assert!(server.metrics.encode().contains(&format!("weir_admin_followers {FOLLOWERS_MAX}")));
    assert_eq!(follow(&server).await.0, 503);
    drop(followers);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_one_ends() {
    let server = start(None).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        idle.push(TcpStream::connect(server.addr).await.unwrap());
    }
    let mut waiting = std::pin::pin!(ask(&server, "GET", "/api/v1/status", ""));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "answered beyond the limit");
    drop(idle.pop());
    assert_eq!(waiting.await.0, 200);
}

#[tokio::test]
async fn a_view_that_panics_is_a_500_and_the_server_goes_on() {
    let server = start(None).await;
    server.view.panics.store(true, Ordering::Relaxed);
    let (status, _, body) = ask(&server, "GET", "/api/v1/status", "").await;
    assert_eq!(status, 500);
    assert!(body.contains("urn:weir:problem:internal"), "{body}");
    assert_eq!(ask(&server, "GET", "/api/v1/flows", "").await.0, 200);
}

#[test]
fn every_route_is_described_and_every_described_route_exists() {
    let document: Value = serde_json::from_str(routes::OPENAPI).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut described = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            described.insert((path.clone(), method.clone()));
        }
    }
    let served: BTreeSet<_> = routes::table()
        .iter()
        .map(|(path, method, _)| ((*path).to_owned(), (*method).to_owned()))
        .collect();
    assert_eq!(described, served);
}

#[test]
fn schemas_have_the_keys_of_what_is_serialised() {
    let view = Sample::default();
    let history = History { samples: vec![HistorySample::default()] };
    let problem = guard::problem(AdminRefusal::Token);
    assert_described("Status", &view.status());
    assert_described("FlowStatus", &view.flows()[0]);
    assert_described("ObjectStatus", &view.objects()[0]);
    assert_described("VerifyStatus", &view.verify_status());
    assert_described("History", &history);
    assert_described("Problem", &problem);
}

fn assert_described(schema: &str, value: &impl Serialize) {
    let document: Value = serde_json::from_str(routes::OPENAPI).unwrap();
    let value = serde_json::to_value(value).unwrap();
    compare(&document, &document["components"]["schemas"][schema], &value, schema);
}

/// Holds `value` against `schema`, through references, options, lists and maps.
fn compare(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return compare(document, target.expect("references resolve"), value, place);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return compare(document, &options[0], value, place);
    }
    match (schema["type"].as_str().unwrap(), value) {
        ("object", Value::Object(fields)) => {
            if let Some(properties) = schema["properties"].as_object() {
                let described: BTreeSet<_> = properties.keys().collect();
                assert_eq!(described, fields.keys().collect(), "{place}");
                let required: BTreeSet<_> = schema["required"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                assert_eq!(required, fields.keys().map(String::as_str).collect(), "{place}");
                for (name, field) in fields {
                    compare(document, &properties[name], field, &format!("{place}.{name}"));
                }
            } else {
                for (name, field) in fields {
                    let inner = &schema["additionalProperties"];
                    compare(document, inner, field, &format!("{place}.{name}"));
                }
            }
        }
        ("array", Value::Array(elements)) => {
            for element in elements {
                compare(document, &schema["items"], element, &format!("{place}[]"));
            }
        }
        ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_)) => {}
        ("integer", Value::Number(number)) => assert!(number.is_u64(), "{place} is {number}"),
        (kind, value) => panic!("{place} is described as {kind}, and is {value}"),
    }
}
