//! Both sides of the border agree: C's layouts, constants and names are ours.

use std::net::Ipv6Addr;

use libbpf_rs::HasSize;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{MemberAttr, Struct};

use super::*;

const HEADER: &str = include_str!("../../../../bpf/abi.h");

/// Size in bytes, and each member's offset in bytes.
fn layout(name: &str) -> (usize, Vec<(String, u32)>) {
    let btf = Btf::from_path(concat!(env!("OUT_DIR"), "/weir.bpf.o")).unwrap();
    let found: Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("no struct {name}"));
    let members = found
        .iter()
        .map(|member| {
            let MemberAttr::Normal { offset } = member.attr else { panic!("a bit field") };
            (member.name.unwrap().to_str().unwrap().to_owned(), offset / 8)
        })
        .collect();
    (found.size(), members)
}

fn assert_layout(name: &str, size: usize, members: &[(&str, u32)]) {
    let members = members.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
    assert_eq!(layout(name), (size, members), "struct {name}");
}

#[test]
fn layouts_are_those_of_the_compiled_object() {
    assert_layout(
        "tuple",
        TUPLE_BYTES,
        &[("inside", 0), ("outside", 16), ("inside_port_be", 32), ("outside_port_be", 34)],
    );
    assert_layout(
        "side",
        16,
        &[("isn", 0), ("tsval", 4), ("window", 8), ("mss", 12), ("wscale", 14), ("flags", 15)],
    );
    assert_layout(
        "flow",
        FLOW_BYTES,
        &[
            ("state", 0),
            ("dialer", 4),
            ("prefix_side", 5),
            ("prefix_len", 6),
            ("hold_ns", 8),
            ("sides", 16),
            ("prefix", 48),
        ],
    );
    assert_layout(
        "adopted",
        ADOPTED_BYTES,
        &[("dialer_isn", 0), ("ended", 4), ("hold", 8), ("pad", 12)],
    );
    assert_layout(
        "signature",
        SIGNATURE_BYTES,
        &[
            ("value", 0),
            ("mask", 64),
            ("app", 128),
            ("end", 130),
            ("from", 131),
            ("adopt", 132),
            ("pad", 133),
        ],
    );
}

#[test]
fn a_record_has_the_layout_the_header_asserts() {
    let members = [
        ("outside", 36),
        ("flow", 72),
        ("seq", 184),
        ("ack", 188),
        ("len", 192),
        ("app", 196),
        ("from", 198),
    ];
    for (member, at) in members {
        let line = format!("__builtin_offsetof(struct held, {member}) == {at},");
        assert!(HEADER.contains(&line), "{line}");
    }
    let line = format!("sizeof(struct held) == {HELD_BYTES},");
    assert!(HEADER.contains(&line), "{line}");
}

#[test]
fn reasons_are_those_of_the_header_in_its_order() {
    let (_, list) = HEADER.split_once("REASON_NONE = 0,").unwrap();
    let (list, _) = list.split_once("REASON_COUNT,").unwrap();
    let names = list.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix("REASON_")?.split_once(',')?;
        Some(name.to_lowercase())
    });
    let names: Vec<_> = ["none".to_owned()].into_iter().chain(names).collect();
    assert_eq!(names, REASONS);
}

#[test]
fn constants_are_those_of_the_header() {
    let defines = [
        ("WEIR_WINDOW", WINDOW),
        ("WEIR_SIGNATURES", SIGNATURES_MAX),
        ("WEIR_APPS", APPS_MAX),
        ("WEIR_PAYLOAD_MAX", PAYLOAD_MAX),
        ("SIDE_WSCALE", usize::from(SIDE_WSCALE)),
        ("SIDE_SACK", usize::from(SIDE_SACK)),
        ("SIDE_TS", usize::from(SIDE_TS)),
    ];
    for (name, value) in defines {
        let line = format!("#define {name} {value}");
        assert!(
            HEADER.lines().any(|found| found == line
                || found.starts_with(&format!("{line}\t"))
                || found.starts_with(&format!("{line} "))),
            "{line}"
        );
    }
    for line in ["FLOW_PASS = 2,", "FLOW_HOLD = 3,", "INSIDE = 0,", "OUTSIDE = 1,"] {
        assert!(HEADER.contains(line), "{line}");
    }
}

fn record(payload: &[u8]) -> Vec<u8> {
    let mut record = vec![0; HELD_BYTES];
    record[10..16].copy_from_slice(&[0xff, 0xff, 10, 1, 0, 2]);
    record[16..32].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
    record[32..36].copy_from_slice(&[0x1a, 0xe1, 0, 80]);
    record[72] = 3;
    record[76] = 1;
    record[78] = 2;
    record[80..88].copy_from_slice(&77_u64.to_ne_bytes());
    record[120..122].copy_from_slice(b"ab");
    record[192..196].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_ne_bytes());
    record[196] = 5;
    record[198] = 1;
    record.extend_from_slice(payload);
    record
}

#[test]
fn a_record_is_read_with_its_ends_prefix_and_payload() {
    let mut bytes = record(b"payload");
    bytes.extend_from_slice(&[0; 100]); // the rest of its size class
    let held = Held::parse(&bytes).unwrap();
    let (inside, outside) = tuple_ends(&held.inside);
    assert_eq!(inside, "10.1.0.2:6881".parse().unwrap());
    assert_eq!(outside, "[::1]:80".parse().unwrap());
    assert_eq!((held.app, held.from, held.flow.dialer), (5, OUTSIDE, OUTSIDE));
    assert_eq!(held.payload, b"payload");
    assert_eq!(held.flow.prefix(), b"ab");
    assert!(still_held(&held.flow.bytes, 77));
    assert!(!still_held(&held.flow.bytes, 78));
    assert!(!still_held(&held.flow.passed(), 77));
}

#[test]
fn what_is_no_record_is_refused() {
    let whole = record(b"payload");
    for len in 0..whole.len() {
        assert!(Held::parse(&whole[..len]).is_none(), "{len} bytes");
    }
    for (at, value) in [(76, 2), (198, 2), (195, 0xff)] {
        let mut bad = record(b"payload");
        bad[at] = value;
        assert!(Held::parse(&bad).is_none());
    }
    let mut long = record(b"x");
    long[78] = 0xff; // a prefix longer than there can be
    assert_eq!(Held::parse(&long).unwrap().flow.prefix().len(), WINDOW);
}
