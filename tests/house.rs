//! What the house does not collect: promises in the code, giants, tests that
//! are switched off.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a source file, the tests within it apart, before somebody asks for a
/// reason.
const LINES_MAX: usize = 600;

/// Files that have a reason to be longer, and the reason.
const GIANTS: &[(&str, &str)] = &[];

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .expect("git is there, the tests run in a checkout");
    assert!(listed.status.success(), "git lists no files");
    let names = String::from_utf8(listed.stdout).expect("our file names are UTF-8");
    let code = |name: &&str| [".rs", ".c", ".h", ".ts"].iter().any(|ending| name.ends_with(ending));
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name)).ok().map(|text| (PathBuf::from(name), text))
    };
    names.lines().filter(code).filter_map(read).collect()
}

#[test]
fn nothing_is_left_undone_in_the_code() {
    let words = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["#[ig", "nore"].concat()];
    for (name, text) in sources() {
        for word in &words {
            assert!(!text.contains(word.as_str()), "{} says {word}", name.display());
        }
    }
}

#[test]
fn no_file_grows_into_a_giant() {
    for (name, text) in sources() {
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        let excused = GIANTS.iter().any(|(giant, _)| name == Path::new(giant));
        assert!(lines <= LINES_MAX || excused, "{} has {lines} lines", name.display());
    }
}
