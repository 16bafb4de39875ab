//! `weir cache` against a gateway that holds something: what it shows, what it takes
//! for an id, and what it finds when the disk has changed a byte.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use weir_store::{Description, Options, Store};

use crate::support::{Running, WEIR, command, expect, run_args, said, weir};

const MIB: u64 = 1 << 20;

/// Two that begin alike, and a third.
const IDS: [u128; 3] = [
    0xabcd_ef01_0000_0000_0000_0000_0000_0001,
    0xabcd_ef02_0000_0000_0000_0000_0000_0002,
    0x1234_5678_0000_0000_0000_0000_0000_0003,
];

/// A store with half of each object of three MiB, made while no gateway runs.
fn fill(dir: &Path) {
    let (store, _) = Store::open(&Options::new(dir, 64 * MIB)).unwrap();
    for id in IDS {
        let (app, name) = ("bittorrent".to_owned(), format!("the \u{1b}[31mname of {id:x}"));
        store.describe(id.into(), Description { app, name, size_bytes: Some(3 * MIB) });
        let data = vec![0x5a; 3 << 19];
        store.write(id.into(), 0, &[data.into()]).unwrap();
    }
    store.sync().unwrap();
}

/// Changes a byte of some segment.
fn damage(dir: &Path) {
    let data = fs::File::options().read(true).write(true).open(dir.join("data")).unwrap();
    let mut bytes = vec![0; 32 << 20];
    data.read_exact_at(&mut bytes, 0).unwrap();
    let at = bytes.iter().position(|byte| *byte == 0x5a).unwrap();
    data.write_all_at(&[0x5b], at as u64).unwrap();
    data.sync_all().unwrap();
}

/// The code, stdout and stderr of `weir cache`.
fn cache(running: &Running, args: &[&str]) -> (i32, String, String) {
    let output = weir(&[&["cache"], args, &["--api", &running.api]].concat());
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    (output.status.code().unwrap(), out, said(&output))
}

#[test]
fn an_object_is_shown_and_removed_by_what_only_its_id_begins_with() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let running = Running::start(dir.path());
    let whole = format!("{:032x}", IDS[0]);
    let shown = |id: &str| cache(&running, &["show", id, "--json"]);
    let (code, out, _) = shown(&whole);
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    assert_eq!(object["id"], whole);
    assert_eq!(object["size_bytes"], 3 * MIB);
    assert_eq!((&object["held_bytes"], &object["segments"]), (&(3 * MIB / 2).into(), &96.into()));
    for short in ["abcdef01", "ABCDEF010"] {
        let (_, out, _) = shown(short);
        let same: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(same["id"], whole, "{short}");
    }

    let (code, out, _) = cache(&running, &["show", "1234"]);
    assert_eq!(code, 0);
    for row in ["id          12345678000", "app         bittorrent\n", "size        3.0 MiB\n"] {
        assert!(out.contains(row), "{out}");
    }
    for row in ["held        1.5 MiB (50.0 %)\n", "segments    96\n", "idle        "] {
        assert!(out.contains(row), "{out}");
    }
    let (_, list, _) = cache(&running, &["ls"]);
    assert!(list.contains("name of 1234") && out.contains("name of 1234"), "{out}{list}");
    assert!(!list.contains('\u{1b}') && !out.contains('\u{1b}'), "{out}{list}");

    let api = ["--api", &running.api];
    for verb in ["show", "rm"] {
        let refused =
            |id: &str, code, words| expect(&[&["cache", verb, id], &api[..]].concat(), code, words);
        refused("abcd", 1, "2 objects have ids that begin with abcd");
        refused("abcdef0", 1, "write more of it");
        refused("9999", 1, "no object 9999");
        refused(&"9".repeat(32), 1, "no object 9999");
        for id in ["abc", "", "xyzxyz", &"a".repeat(33), "../flows"] {
            refused(id, 64, "4 to 32 hexadecimal digits");
        }
    }

    assert_eq!(cache(&running, &["rm", "abcdef02"]).0, 0);
    let (_, list, _) = cache(&running, &["ls"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    // What was ambiguous no longer is.
    assert_eq!(shown("abcd").0, 0);
    running.end();
}

#[test]
fn a_changed_byte_is_found_once() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let running = Running::start(dir.path());
    let (code, out, told) = cache(&running, &["verify"]);
    assert_eq!(code, 0, "{out}{told}");
    assert_eq!(
        out,
        "read        288 segments, 4.5 MiB\nbad         0 segments, 0 B, freed\nunreadable  0 segments\n"
    );
    assert!(told.ends_with("weir: 4.5 MiB of 4.5 MiB verified, 100.0 %\n"), "{told}");
    running.end();

    damage(dir.path());
    let running = Running::start(dir.path());
    let (code, out, told) = cache(&running, &["verify", "--json"]);
    assert_eq!(code, 1, "{out}{told}");
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    let report = &status["report"];
    assert_eq!((&report["bad_segments"], &report["bad_bytes"]), (&1.into(), &16384.into()));
    assert_eq!((&report["bytes"], &report["read_errors"]), (&(9 * MIB / 2).into(), &0.into()));
    assert!(told.contains("error: 1 segment not as written, and freed"), "{told}");
    let (code, out, told) = cache(&running, &["verify"]);
    assert_eq!(code, 0, "{out}{told}");
    assert!(out.starts_with("read        287 segments,"), "{out}");
    running.end();

    // It stays freed.
    let running = Running::start(dir.path());
    assert_eq!(running.status()["store"]["segments"], 287);
    assert_eq!(cache(&running, &["verify"]).0, 0);
    running.end();
}

#[test]
fn without_a_store_there_is_nothing_to_verify_or_show() {
    let dir = tempfile::tempdir().unwrap();
    let mut args = run_args(dir.path());
    assert_eq!(args[6], "64MiB");
    args[6] = "0";
    let mut without = command(WEIR);
    without.args(args);
    let running = Running::of(without);
    let (code, out, told) = cache(&running, &["verify"]);
    assert_eq!((code, out.as_str()), (69, ""), "{told}");
    assert!(told.contains("the gateway runs without a store"), "{told}");
    assert_eq!(cache(&running, &["show", &"0".repeat(32)]).0, 1);
    running.end();
}
