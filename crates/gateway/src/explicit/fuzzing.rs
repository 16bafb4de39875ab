//! What must hold of the proxy's parsers, whatever a stranger or an operator
//! wrote; run by the fuzz targets.

use hyper::Version;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::socks5::{Greeting, NEED_MAX};
use super::{Credentials, Network, fields};

/// A SOCKS5 client says `said`.
///
/// # Panics
///
/// When the greeting asks for too much, answers too much, or takes no end.
pub fn socks5(password: bool, mut said: &[u8]) {
    let known = Credentials { user: "user".to_owned(), password: "password".to_owned() };
    let mut greeting = Greeting::new(password.then_some(&known));
    let mut answer = Vec::new();
    for _ in 0..8 {
        assert!(greeting.need() <= NEED_MAX);
        let Some((bytes, rest)) = said.split_at_checked(greeting.need()) else { return };
        said = rest;
        match greeting.take(bytes, &mut answer) {
            Ok(None) => {}
            Ok(Some(destination)) => {
                assert!(destination.host.len() <= 255);
                assert_eq!(answer.len(), if password { 4 } else { 2 });
                return;
            }
            Err(_) => return assert!(answer.len() <= 4),
        }
    }
    panic!("a greeting has at most seven steps");
}

/// A message arrives with these fields.
///
/// # Panics
///
/// When a field of one hop gets through, or one that a proxy relies on does not.
pub fn fields(named: &[(Vec<u8>, Vec<u8>)]) {
    let mut headers = HeaderMap::new();
    for (name, value) in named {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    let before = headers.clone();
    fields::upgrade_of(&headers);
    fields::has_foreign_coding(&headers);
    for value in headers.get_all("proxy-authorization") {
        fields::basic(value);
    }
    let via = fields::Via::new();
    assert!(!via.is_in(&headers), "the name is drawn at start");
    fields::strip_hop_by_hop(&mut headers);
    for name in ["connection", "proxy-connection", "te", "transfer-encoding", "upgrade"] {
        assert!(!headers.contains_key(name), "{name} got through");
    }
    for name in ["host", "via", "content-length"] {
        assert!(headers.get_all(name).iter().eq(before.get_all(name)), "{name} was lost");
    }
    via.add(&mut headers, Version::HTTP_11);
    assert!(via.is_in(&headers));
}

/// An operator writes `text` for a network.
///
/// # Panics
///
/// When what is read does not read back as the same, or holds not its own address.
pub fn network(text: &str) {
    let Ok(network) = text.parse::<Network>() else { return };
    let shown = network.to_string();
    assert_eq!(shown.parse(), Ok(network));
    let own = shown.split_once('/').and_then(|(address, _)| address.parse().ok());
    let own: std::net::IpAddr = own.expect("what was shown has an address");
    assert!(own.to_canonical() != own || network.contains(own), "{network} without {own}");
}
