//! Dependencies go down only: way in, shell, effects, pure (ARCHITECTURE.md).
//!
//! The edges are data here and are compared with what cargo knows. A new edge
//! is a decision and belongs into this table first.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Each crate of the product with the crates of the product it may name.
const EDGES: &[(&str, &[&str])] = &[
    ("weir-ranges", &[]),
    ("weir-session", &["weir-ranges"]),
    ("weir-identify", &[]),
    ("weir-bittorrent", &["weir-ranges", "weir-session"]),
    ("weir-policy", &[]),
    ("weir-store", &["weir-policy", "weir-ranges"]),
    ("weir-linux", &[]),
    (
        "weir-gateway",
        &[
            "weir-bittorrent",
            "weir-identify",
            "weir-linux",
            "weir-ranges",
            "weir-session",
            "weir-store",
        ],
    ),
    ("weir", &["weir-bittorrent", "weir-gateway", "weir-linux", "weir-policy", "weir-store"]),
    ("weir-lab", &[]),
];

/// Crates without IO, clock or randomness, and what they may use from outside.
const PURE: &[(&str, &[&str])] = &[
    ("weir-ranges", &[]),
    ("weir-session", &["bytes"]),
    ("weir-identify", &["serde", "thiserror", "toml"]),
    ("weir-bittorrent", &["bytes", "sha1", "sha2", "thiserror"]),
    ("weir-policy", &["hashbrown", "thiserror"]),
];

/// Names a pure crate's source must not contain.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::time::Instant",
    "SystemTime",
    "std::thread",
    "std::env",
    "tokio",
    "RandomState",
];

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    let of = |package: &cargo_metadata::Package| {
        let normal = package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal);
        (package.name.to_string(), normal.map(|d| d.name.clone()).collect())
    };
    metadata.packages.iter().map(of).collect()
}

#[test]
fn crates_depend_downwards_as_the_table_says() {
    let found = dependencies();
    let ours: BTreeSet<_> = found.keys().cloned().collect();
    for (name, allowed) in EDGES {
        let edges: Vec<_> = found[*name].intersection(&ours).map(String::as_str).collect();
        for edge in edges {
            assert!(allowed.contains(&edge), "{name} must not depend on {edge}");
        }
    }
    let listed: BTreeSet<_> = EDGES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let unlisted: Vec<_> = ours.difference(&listed).filter(|name| *name != "weir-tests").collect();
    assert!(unlisted.is_empty(), "not in the table: {unlisted:?}");
}

#[test]
fn pure_crates_use_only_what_is_listed() {
    let found = dependencies();
    let ours: BTreeSet<_> = found.keys().cloned().collect();
    for (name, allowed) in PURE {
        let outside: Vec<_> = found[*name].difference(&ours).collect();
        for dependency in outside {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not use {dependency}");
        }
    }
}

#[test]
fn pure_crates_name_no_effects() {
    for (name, _) in PURE {
        let room = name.strip_prefix("weir-").unwrap();
        let src = format!("{}/../crates/{room}/src", env!("CARGO_MANIFEST_DIR"));
        for file in rust_files(std::path::Path::new(&src)) {
            let text = std::fs::read_to_string(&file).unwrap();
            // Tests may read captures; the machine may not.
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            if file.ends_with("tests.rs") || file.components().any(|c| c.as_os_str() == "tests") {
                continue;
            }
            for word in IMPURE {
                assert!(!product.contains(word), "{} names {word}", file.display());
            }
        }
    }
}

fn rust_files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
