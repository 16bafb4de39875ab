//! Header fields that a proxy reads, adds or takes out.

use base64::Engine;
use hyper::Version;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

/// How the gateway calls itself in `Via` (RFC 9110 §7.6.3). The suffix is drawn
/// at start, so that two gateways in a row are not taken for a loop.
const VIA_NAME: &str = "weir";

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

/// Fields that `Connection` cannot take off their way: end-to-end ones that a
/// proxy relies on.
const NEVER_NAMED: [HeaderName; 4] =
    [header::HOST, header::MAX_FORWARDS, header::VIA, header::CONTENT_LENGTH];

/// The gateway's name in `Via`.
#[derive(Debug)]
pub(super) struct Via {
    name: String,
}

impl Via {
    pub(super) fn new() -> Self {
        let nonce = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), VIA_NAME);
        Self { name: format!("{VIA_NAME}-{:08x}", nonce & 0xffff_ffff) }
    }

    /// Adds this hop to a message that was received in `version`.
    pub(super) fn add(&self, headers: &mut HeaderMap, version: Version) {
        let version = if version == Version::HTTP_10 { "1.0" } else { "1.1" };
        let value = HeaderValue::try_from(format!("{version} {}", self.name));
        headers.append(header::VIA, value.expect("letters, digits, a blank and a dash"));
    }

    /// Whether a message with these fields has been here before.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(header::VIA).iter();
        let hops = values.flat_map(|value| value.as_bytes().split(|b| *b == b','));
        let mut names = hops.filter_map(|hop| {
            hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(1)
        });
        names.any(|name| name == self.name.as_bytes())
    }
}

/// Whether a message is coded in another way than `chunked` on this hop, which
/// the codings' names alone do not undo (RFC 9112 §6.1).
pub(super) fn has_foreign_coding(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TRANSFER_ENCODING).iter();
    let mut codings = values.flat_map(|value| value.as_bytes().split(|b| *b == b','));
    codings.any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// The protocol a request wants to change to (RFC 9110 §7.8), if its
/// `Connection` field says so.
pub(super) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| asked).cloned()
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter();
    values.filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim)
}

/// Takes out what concerns one hop only, the fields that `Connection` names
/// among it.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        connection_options(headers).filter_map(|option| option.parse().ok()).collect();
    let named = named.iter().filter(|name| !NEVER_NAMED.contains(name));
    for name in named.chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Name and password of a Basic field (RFC 7617).
pub(super) fn basic(value: &HeaderValue) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, coded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = base64::engine::general_purpose::STANDARD.decode(coded.trim()).ok()?;
    let colon = text.iter().position(|b| *b == b':')?;
    Some((text[..colon].to_vec(), text[colon + 1..].to_vec()))
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
    fn connection_cannot_take_out_what_proxies_rely_on() {
        let mut fields = headers(&[("connection", "via, host"), ("via", "1.1 a"), ("host", "b")]);
        strip_hop_by_hop(&mut fields);
        assert_eq!(fields, headers(&[("via", "1.1 a"), ("host", "b")]));
    }

    #[test]
    fn knows_its_own_via_among_others_whatever_the_version() {
        let (own, other) = (Via::new(), Via { name: "weir-other".to_owned() });
        let mut fields = headers(&[("via", "1.0 squid (x), 1.1  weir-other")]);
        assert!(!own.is_in(&fields));
        assert!(other.is_in(&fields));
        own.add(&mut fields, Version::HTTP_10);
        assert!(own.is_in(&fields));
        let last = fields.get_all(header::VIA).iter().next_back().unwrap();
        assert!(last.to_str().unwrap().starts_with("1.0 weir-"));
    }

    #[test]
    fn only_chunked_is_a_coding_that_a_hop_undoes() {
        assert!(!has_foreign_coding(&headers(&[("transfer-encoding", "Chunked")])));
        assert!(has_foreign_coding(&headers(&[("transfer-encoding", "gzip, chunked")])));
        assert!(!has_foreign_coding(&headers(&[])));
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
}
