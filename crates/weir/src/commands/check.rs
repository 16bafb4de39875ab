//! `weir check`: what the configuration, the disk, the kernel or the rights lack.

use std::fmt::Write;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use weir_linux::check::{self, Finding};

use super::text::bytes;
use crate::cli::RunArgs;
use crate::config;
use crate::exit::{Code, Failure, Outcome, print};

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let config = config::load(args)?;
    let (inside, outside) = (config.intercept.inside.clone(), config.intercept.outside.clone());
    let options = config::resolve(config)?.options;
    let mut report = String::from("configuration\n  ok    understood\n");
    let mut lacks = Vec::new();
    if let Some(store) = &options.store {
        report.push_str("store\n");
        let finding = check_store(&store.dir, store.capacity_bytes);
        line(&mut report, &finding);
        lacks.extend(Some(finding).filter(|finding| !finding.ok));
    }
    report.push_str("mode adopt\n");
    let findings = check::run(&inside, &outside);
    for finding in &findings {
        line(&mut report, finding);
    }
    let adopt_lacks = findings.into_iter().filter(|finding| !finding.ok);
    if options.adopt.is_some() {
        lacks.extend(adopt_lacks);
    } else if adopt_lacks.count() > 0 {
        report.push_str("        mode adopt is not asked for: the proxy port needs none of this\n");
    }
    print(&report)?;
    if lacks.is_empty() {
        return Ok(());
    }
    let rights = lacks.iter().any(|finding| finding.name == "rights");
    let code = if rights { Code::Rights } else { Code::Unavailable };
    let names: Vec<_> = lacks.iter().map(|finding| finding.name).collect();
    Err(Failure::new(code, format!("lacking: {}", names.join(", "))))
}

/// Whether the store can be where it is to be. Looks only.
fn check_store(dir: &Path, capacity_bytes: u64) -> Finding {
    let finding =
        |ok, detail, fix: &str| Finding { name: "store", ok, detail, fix: fix.to_owned() };
    let (size, shown) = (bytes(capacity_bytes), dir.display());
    let Some(there) = dir.ancestors().find(|at| at.exists()) else {
        return finding(false, format!("{shown} has no root"), "name an absolute --cache-dir");
    };
    if !there.is_dir() || access(there, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        let detail = format!("{} cannot be written", there.display());
        return finding(false, detail, "name another --cache-dir, or mend its rights");
    }
    let data = dir.join(weir_store::disk::File::Data.name());
    let taken = std::fs::metadata(data).map_or(0, |data| data.len());
    let free = statvfs(there).map_or(0, |s| s.blocks_available().saturating_mul(s.fragment_size()));
    let wanted = capacity_bytes.saturating_sub(taken);
    if wanted > free {
        let detail =
            format!("{size} in {shown}: {} are missing on that disk", bytes(wanted - free));
        return finding(false, detail, "free some space, or choose a smaller --cache-size");
    }
    finding(true, format!("{size} in {shown}"), "")
}

fn line(report: &mut String, finding: &Finding) {
    let mark = if finding.ok { "ok  " } else { "LACK" };
    // Writing to a string does not fail.
    writeln!(report, "  {mark}  {}: {}", finding.name, finding.detail).unwrap_or_default();
    if !finding.ok && !finding.fix.is_empty() {
        writeln!(report, "        do: {}", finding.fix).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_must_fit_and_have_a_place() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("a/b");
        assert!(check_store(&inside, 1 << 20).ok);
        assert!(!check_store(&inside, 1 << 60).ok);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!check_store(&file.path().join("c"), 1 << 20).ok);
        // It only looked.
        assert!(!inside.exists());
    }
}
