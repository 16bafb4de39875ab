//! A gateway whose store cannot be opened: it serves, and says what is missing.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use crate::support::{Running, WEIR, is_root, read_only, run_args, said, with_mounts};

/// It runs without a cache, and says why in each place where an operator looks.
fn assert_without_store(running: &Running, why: &str) {
    assert!(running.said.contains("running_without_a_store"), "the log: {}", running.said);
    assert!(running.said.contains("NO STORE, nothing is cached"), "{}", running.said);
    assert!(running.said.contains(why), "{}", running.said);
    let status = running.status();
    assert!(status["store"].is_null(), "{status}");
    assert!(status["store_error"].as_str().unwrap().contains(why), "{status}");
    let text = running.status_text();
    assert!(text.contains("NONE: ") && text.contains(why), "{text}");
    let metrics = running.page("/metrics");
    assert!(metrics.contains("weir_") && !metrics.contains("weir_store_"), "{metrics}");
    // The proxy is there.
    let (_, proxy) = running.said.split_once("SOCKS5 on ").unwrap();
    TcpStream::connect(proxy.lines().next().unwrap()).unwrap();
}

/// Each file of the store, with its bytes where they are few.
fn files(dir: &Path) -> Vec<(String, u64, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let len = entry.metadata().unwrap().len();
            let small = if len < 1 << 20 { fs::read(entry.path()).unwrap() } else { Vec::new() };
            (entry.file_name().into_string().unwrap(), len, small)
        })
        .collect();
    files.sort();
    files
}

/// A disk that was mounted read-only, with a store on it and without.
#[test]
fn a_read_only_store_is_said_to_be_one_and_the_gateway_runs() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for made_before in [false, true] {
        if made_before {
            Running::start(dir.path()).end();
        }
        let before = files(dir.path());
        assert_eq!(before.is_empty(), !made_before);
        let mounts = read_only(dir.path());
        let running = Running::of(with_mounts(&mounts, WEIR, &run_args(dir.path())));
        assert_without_store(&running, "read-only file system");
        running.end();
        assert!(files(dir.path()) == before, "something was written");

        let name = dir.path().to_str().unwrap();
        let args = ["check", "--cache-size", "64MiB", "--cache-dir", name];
        let checked = with_mounts(&mounts, WEIR, &args).output().unwrap();
        assert_eq!(checked.status.code(), Some(69), "{}", said(&checked));
        assert!(said(&checked).contains("lacking: store"), "{}", said(&checked));
        let found = String::from_utf8(checked.stdout).unwrap();
        assert!(found.contains(&format!("LACK  store: {name} cannot be written")), "{found}");
    }
    // Mended, it is a store again.
    let running = Running::start(dir.path());
    assert!(running.status()["store_error"].is_null());
    running.end();
}

/// A directory stands where a file of the store is to be.
#[test]
fn a_store_file_that_cannot_be_opened_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    Running::start(dir.path()).end();
    let journal = dir.path().join("journal");
    fs::remove_file(&journal).unwrap();
    fs::create_dir(&journal).unwrap();
    let running = Running::start(dir.path());
    assert_without_store(&running, "Is a directory");
    assert!(running.said.contains(dir.path().to_str().unwrap()), "{}", running.said);
    running.end();
    assert!(journal.is_dir());
}

/// Whichever file somebody has removed, and then the directory: it is made anew.
#[test]
fn a_store_file_that_vanished_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    Running::start(&cache).end();
    let names: Vec<_> = files(&cache).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), weir_store::disk::File::ALL.len(), "{names:?}");
    let opens = |what: &str| {
        let running = Running::start(&cache);
        let status = running.status();
        assert!(status["store_error"].is_null(), "without {what}: {status}");
        assert_eq!(status["store"]["capacity_bytes"], 64 << 20, "without {what}");
        running.end();
        let found: Vec<_> = files(&cache).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(found, names, "without {what}");
    };
    for name in &names {
        fs::remove_file(cache.join(name)).unwrap();
        opens(name);
    }
    fs::remove_dir_all(&cache).unwrap();
    opens("its directory");
}
