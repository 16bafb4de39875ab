//! The proxy port, spoken to over loopback by clients written here and by
//! origins written here. No outside network.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::unwrap_used,
    reason = "a test that meets the unexpected fails"
)]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use weir_gateway::{Credentials, ExplicitOptions};

use support::{PATIENCE, Proxy};

/// A server that hands each accepted connection to `serve`, as often as asked.
fn origin(
    times: usize,
    serve: impl Fn(TcpStream) + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        for _ in 0..times {
            serve(listener.accept().unwrap().0);
        }
    });
    (addr, thread)
}

/// Reads up to the empty line that ends a head.
fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(
            socket.read(&mut byte).unwrap(),
            1,
            "ended in {:?}",
            String::from_utf8_lossy(&head)
        );
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn echo(mut socket: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer).unwrap() {
            0 => break,
            n => socket.write_all(&buffer[..n]).unwrap(),
        }
    }
    socket.shutdown(Shutdown::Write).unwrap();
}

/// Sends `up`, half-closes, and returns all that comes back.
fn exchange(socket: &mut TcpStream, up: &[u8]) -> Vec<u8> {
    let mut writer = socket.try_clone().unwrap();
    let up = up.to_vec();
    let sender = thread::spawn(move || {
        writer.write_all(&up).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut down = Vec::new();
    socket.read_to_end(&mut down).unwrap();
    sender.join().unwrap();
    down
}

#[test]
fn connect_relays_bytes_and_half_close_both_ways() {
    let proxy = Proxy::start(|_| {});
    let (to, server) = origin(1, echo);
    let mut socket = proxy.connect();
    write!(socket, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    assert!(head(&mut socket).starts_with("HTTP/1.1 200"));
    let up: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    assert!(exchange(&mut socket, &up) == up, "the echo differs");
    server.join().unwrap();
}

#[test]
fn connect_keeps_what_the_client_sent_early() {
    let proxy = Proxy::start(|_| {});
    let (to, server) = origin(1, echo);
    let mut socket = proxy.connect();
    write!(socket, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nearly bird").unwrap();
    assert!(head(&mut socket).starts_with("HTTP/1.1 200"));
    assert_eq!(exchange(&mut socket, b", worm"), b"early bird, worm");
    server.join().unwrap();
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let proxy = Proxy::start(|_| {});
    let (to, server) = origin(1, |mut socket| {
        socket.write_all(b"220 hello\r\n").unwrap();
        echo(socket);
    });
    let mut socket = proxy.connect();
    write!(socket, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    head(&mut socket);
    let mut greeting = [0; 11];
    socket.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 hello\r\n");
    assert_eq!(exchange(&mut socket, b"QUIT"), b"QUIT");
    server.join().unwrap();
}

fn socks_connect(socket: &mut TcpStream, to: SocketAddr) -> u8 {
    let SocketAddr::V4(to) = to else { panic!("tests use IPv4") };
    socket.write_all(&[5, 1, 0, 1]).unwrap();
    socket.write_all(&to.ip().octets()).unwrap();
    socket.write_all(&to.port().to_be_bytes()).unwrap();
    let mut reply = [0; 10];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[0], 5);
    reply[1]
}

#[test]
fn socks5_connects_by_address_and_by_name() {
    let proxy = Proxy::start(|_| {});
    let (to, server) = origin(2, echo);
    let mut socket = proxy.connect();
    socket.write_all(&[5, 2, 0, 2]).unwrap();
    let mut method = [0; 2];
    socket.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    assert_eq!(socks_connect(&mut socket, to), 0);
    assert_eq!(exchange(&mut socket, b"one"), b"one");

    let mut socket = proxy.connect();
    socket.write_all(&[5, 1, 0]).unwrap();
    socket.read_exact(&mut method).unwrap();
    socket.write_all(&[5, 1, 0, 3, 9]).unwrap();
    socket.write_all(b"127.0.0.1").unwrap();
    socket.write_all(&to.port().to_be_bytes()).unwrap();
    let mut reply = [0; 10];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..2], [5, 0]);
    assert_eq!(exchange(&mut socket, b"two"), b"two");
    server.join().unwrap();
}

#[test]
fn socks5_says_why_it_refuses() {
    let proxy = Proxy::start(|_| {});
    let mut method = [0; 2];
    // BIND is not offered.
    let mut socket = proxy.connect();
    socket.write_all(&[5, 1, 0]).unwrap();
    socket.read_exact(&mut method).unwrap();
    socket.write_all(&[5, 2, 0, 1, 93, 0, 1, 2, 0, 80]).unwrap();
    let mut reply = [0; 10];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[1], 7);
    // Nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut socket = proxy.connect();
    socket.write_all(&[5, 1, 0]).unwrap();
    socket.read_exact(&mut method).unwrap();
    assert_eq!(socks_connect(&mut socket, free), 5);
    // The proxy itself.
    let mut socket = proxy.connect();
    socket.write_all(&[5, 1, 0]).unwrap();
    socket.read_exact(&mut method).unwrap();
    assert_eq!(socks_connect(&mut socket, proxy.addr), 2);
    // No method in common.
    let mut socket = proxy.connect();
    socket.write_all(&[5, 1, 1]).unwrap();
    socket.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0xff]);
}

fn with_password(options: &mut ExplicitOptions) {
    options.credentials = Some(Credentials { user: "me".into(), password: "secret".into() });
}

#[test]
fn socks5_asks_for_the_password() {
    let proxy = Proxy::start(with_password);
    let (to, server) = origin(1, echo);
    for (password, accepted) in [("wrong!", false), ("secret", true)] {
        let mut socket = proxy.connect();
        socket.write_all(&[5, 2, 0, 2]).unwrap();
        let mut method = [0; 2];
        socket.read_exact(&mut method).unwrap();
        assert_eq!(method, [5, 2]);
        socket.write_all(&[1, 2]).unwrap();
        socket.write_all(b"me").unwrap();
        socket.write_all(&[6]).unwrap();
        socket.write_all(password.as_bytes()).unwrap();
        let mut status = [0; 2];
        socket.read_exact(&mut status).unwrap();
        assert_eq!(status[1] == 0, accepted);
        if accepted {
            assert_eq!(socks_connect(&mut socket, to), 0);
            assert_eq!(exchange(&mut socket, b"x"), b"x");
        }
    }
    server.join().unwrap();
}

#[test]
fn http_asks_for_the_password_and_does_not_pass_it_on() {
    let proxy = Proxy::start(with_password);
    let (heads, seen) = mpsc::channel();
    let (to, server) = origin(1, move |mut socket| {
        heads.send(head(&mut socket)).unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let mut socket = proxy.connect();
    write!(socket, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let refused = head(&mut socket);
    assert!(refused.starts_with("HTTP/1.1 407"), "{refused}");
    assert!(refused.to_lowercase().contains("proxy-authenticate: basic"), "{refused}");

    let mut socket = proxy.connect();
    // me:secret
    let basic = "Proxy-Authorization: Basic bWU6c2VjcmV0";
    write!(socket, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{basic}\r\n\r\n").unwrap();
    assert!(head(&mut socket).starts_with("HTTP/1.1 200"));
    assert!(!seen.recv_timeout(PATIENCE).unwrap().to_lowercase().contains("proxy-auth"));
    server.join().unwrap();
}

#[test]
fn http_requests_are_forwarded_as_the_rfc_says() {
    let proxy = Proxy::start(|_| {});
    let (heads, seen) = mpsc::channel();
    let (to, server) = origin(1, move |mut socket| {
        // Two requests on one kept-alive connection.
        for _ in 0..2 {
            heads.send(head(&mut socket)).unwrap();
            socket
                .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Hop: 1\r\nConnection: X-Hop\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
                .unwrap();
        }
    });
    let mut socket = proxy.connect();
    for path in ["/a?b=c", "/second"] {
        write!(
            socket,
            "GET http://{to}{path} HTTP/1.1\r\nHost: other.example\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\nX-Kept: 2\r\n\r\n"
        )
        .unwrap();
        let answer = head(&mut socket);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.to_lowercase().contains("x-hop"), "{answer}");
        assert!(answer.to_lowercase().contains("via: 1.1 weir-"), "{answer}");
        let mut body = [0; 15];
        socket.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"5\r\nhello\r\n0\r\n\r\n");
        let request = seen.recv_timeout(PATIENCE).unwrap();
        assert!(request.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{request}");
        let lower = request.to_lowercase();
        assert!(lower.contains(&format!("host: {to}")), "{request}");
        assert!(lower.contains("via: 1.1 weir-") && lower.contains("x-kept: 2"), "{request}");
        assert!(!lower.contains("x-mine"), "{request}");
    }
    server.join().unwrap();
}

#[test]
fn a_request_body_goes_through() {
    let proxy = Proxy::start(|_| {});
    let (bodies, seen) = mpsc::channel();
    let (to, server) = origin(1, move |mut socket| {
        head(&mut socket);
        let mut body = vec![0; 200_000];
        socket.read_exact(&mut body).unwrap();
        bodies.send(body).unwrap();
        socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let mut socket = proxy.connect();
    let body = vec![b'z'; 200_000];
    write!(socket, "POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 200000\r\n\r\n")
        .unwrap();
    socket.write_all(&body).unwrap();
    assert!(head(&mut socket).starts_with("HTTP/1.1 204"));
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), body);
    server.join().unwrap();
}

#[test]
fn an_upgrade_becomes_a_tunnel() {
    let proxy = Proxy::start(|_| {});
    let (to, server) = origin(1, |mut socket| {
        assert!(head(&mut socket).to_lowercase().contains("upgrade: websocket"));
        socket
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi")
            .unwrap();
        echo(socket);
    });
    let mut socket = proxy.connect();
    write!(socket, "GET http://{to}/ws HTTP/1.1\r\nHost: {to}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").unwrap();
    assert!(head(&mut socket).starts_with("HTTP/1.1 101"));
    assert_eq!(exchange(&mut socket, b" there"), b"hi there");
    server.join().unwrap();
}

#[test]
fn tunnels_count_among_the_connections() {
    let proxy = Proxy::start(|options| options.connections_max = 2);
    let (to, server) = origin(2, |socket| drop(thread::spawn(|| echo(socket))));
    let connect = || {
        let mut socket = proxy.connect();
        write!(socket, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
        socket
    };
    let mut tunnels = [connect(), connect()];
    for tunnel in &mut tunnels {
        assert!(head(tunnel).starts_with("HTTP/1.1 200"));
    }
    server.join().unwrap();
    // Both places are taken: the third waits until one is free.
    let mut third = connect();
    third.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    assert!(third.read(&mut [0]).is_err(), "a third connection was served");
    let [first, _second] = tunnels;
    drop(first);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    // Nobody accepts at the origin any more.
    assert!(head(&mut third).starts_with("HTTP/1.1 502"));
}

#[test]
fn the_content_of_a_chunked_get_arrives() {
    let proxy = Proxy::start(|_| {});
    let (bodies, seen) = mpsc::channel();
    let (to, server) = origin(1, move |mut socket| {
        let request = head(&mut socket);
        assert!(request.to_lowercase().contains("transfer-encoding: chunked"), "{request}");
        let mut body = [0; 15];
        socket.read_exact(&mut body).unwrap();
        bodies.send(body).unwrap();
        socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let mut socket = proxy.connect();
    write!(
        socket,
        "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    .unwrap();
    assert!(head(&mut socket).starts_with("HTTP/1.1 204"));
    assert_eq!(&seen.recv_timeout(PATIENCE).unwrap(), b"5\r\nhello\r\n0\r\n\r\n");
    server.join().unwrap();
}

#[test]
fn an_old_server_is_answered_for_in_the_clients_version() {
    let proxy = Proxy::start(|_| {});
    let (to, server) = origin(1, |mut socket| {
        head(&mut socket);
        socket.write_all(b"HTTP/1.0 200 OK\r\n\r\nold").unwrap();
    });
    let mut socket = proxy.connect();
    write!(socket, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n").unwrap();
    let answer = head(&mut socket);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_lowercase().contains("via: 1.0 weir-"), "{answer}");
    server.join().unwrap();
}

#[test]
fn a_server_that_changes_the_protocol_unasked_is_refused() {
    let proxy = Proxy::start(|_| {});
    let (to, server) = origin(1, |mut socket| {
        head(&mut socket);
        socket
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n",
            )
            .unwrap();
    });
    let mut socket = proxy.connect();
    write!(socket, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    assert!(head(&mut socket).starts_with("HTTP/1.1 502"));
    assert_eq!(proxy.status().reasons.get("upstream_broke"), Some(&1));
    server.join().unwrap();
}

#[test]
fn http_refusals_tell_the_client_what_to_do() {
    let proxy = Proxy::start(|_| {});
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let own = proxy.addr;
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400"),
        (format!("GET http://{own}/ HTTP/1.1\r\nHost: a\r\n\r\n"), "403"),
        (format!("GET http://{free}/ HTTP/1.1\r\nHost: a\r\n\r\n"), "502"),
        (format!("CONNECT {free} HTTP/1.1\r\nHost: a\r\n\r\n"), "502"),
        ("CONNECT nowhere HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400"),
        ("GET https://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "501"),
        (
            "OPTIONS http://a.invalid/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n".to_owned(),
            "200",
        ),
        (
            "TRACE http://a.invalid/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n".to_owned(),
            "405",
        ),
    ];
    for (request, status) in cases {
        let mut socket = proxy.connect();
        socket.write_all(request.as_bytes()).unwrap();
        let answer = head(&mut socket);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
    assert!(proxy.status().reasons["malformed_request"] >= 2);
}

#[test]
fn strangers_are_not_served_and_counted() {
    let proxy = Proxy::start(|options| options.clients = vec!["10.0.0.0/8".parse().unwrap()]);
    let mut socket = proxy.connect();
    // The refusal may reach us as an end or as a reset.
    let mut byte = [0];
    assert!(!matches!(socket.read(&mut byte), Ok(n) if n > 0));
    assert_eq!(proxy.status().reasons.get("client"), Some(&1));
}

#[test]
fn nonsense_gets_an_answer_and_no_more() {
    let proxy = Proxy::start(|_| {});
    let mut socket = proxy.connect();
    socket.write_all(b"\x00\x01\x02 nonsense\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap_or_default();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
}
