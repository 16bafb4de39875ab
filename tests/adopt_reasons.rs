//! Every reason the kernel side has is one a test here has met.

use std::path::Path;

/// Those that cannot be provoked from outside, and why.
const NOT_PROVOKED: &[(&str, &str)] =
    &[("table_full", "an LRU map makes room; only a race of processors for its last entry fails")];

#[test]
fn every_reason_is_provoked_and_asserted() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let sources: String = std::fs::read_dir(tests)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name != "adopt_reasons.rs"))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| read(&path))
        .collect();
    let header = read(&tests.join("../bpf/abi.h"));
    let (_, list) = header.split_once("REASON_NONE = 0,").unwrap();
    let (list, _) = list.split_once("REASON_COUNT,").unwrap();
    let names: Vec<_> = list
        .lines()
        .filter_map(|line| line.trim().strip_prefix("REASON_")?.split_once(','))
        .map(|(name, _)| name.to_lowercase())
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let excused = NOT_PROVOKED.iter().any(|(reason, _)| name == *reason);
        let asserted = sources.contains(&format!("(\"{name}\", "))
            || sources.contains(&format!("(\"{name}\")"));
        assert_ne!(asserted, excused, "{name} is asserted: {asserted}, excused: {excused}");
    }
}
