//! A gateway whose store cannot be opened goes on without one and says why.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::unwrap_used,
    reason = "a test that meets the unexpected fails"
)]

mod support;

use std::net::TcpListener;

use support::Proxy;

fn refused(dir: &std::path::Path) -> String {
    let proxy = Proxy::with_store(dir);
    // It serves all the same.
    let taken = TcpListener::bind(proxy.addr).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    let status = proxy.status();
    assert!(status.store.is_none());
    status.store_error.expect("it says why")
}

#[test]
fn a_store_in_use_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let first = Proxy::with_store(dir.path());
    assert!(first.status().store.is_some());
    assert!(refused(dir.path()).contains("use"), "names the cause");
}

#[test]
fn a_directory_that_is_a_file_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let why = refused(file.path());
    assert!(why.contains(&file.path().display().to_string()), "{why}");
}

#[test]
fn a_corrupt_superblock_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    drop(Proxy::with_store(dir.path()));
    let superblock = dir.path().join(weir_store::disk::File::Superblock.name());
    let mut bytes = std::fs::read(&superblock).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(&superblock, &bytes).unwrap();
    let why = refused(dir.path());
    assert!(why.contains("superblock"), "{why}");
    assert_eq!(std::fs::read(&superblock).unwrap(), bytes);
}
