//! `weir check`: what the configuration, the kernel or the rights lack.

use std::fmt::Write;

use weir_linux::check::{self, Finding};

use crate::cli::RunArgs;
use crate::config;
use crate::exit::{Code, Failure, Outcome, print};

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let config = config::load(args)?;
    let (inside, outside) = (config.intercept.inside.clone(), config.intercept.outside.clone());
    let plan = config::resolve(config)?;
    let mut report = String::from("configuration\n  ok    understood\n");
    if let Some(store) = &plan.options.store {
        let line =
            format!("  ok    store of {} bytes in {}\n", store.capacity_bytes, store.dir.display());
        report.push_str(&line);
    }
    let findings = check::run(&inside, &outside);
    report.push_str("mode adopt\n");
    for finding in &findings {
        line(&mut report, finding);
    }
    print(&report)?;
    let missing = findings.iter().filter(|finding| !finding.ok).count();
    if plan.options.adopt.is_some() && missing > 0 {
        let error =
            format!("{missing} of {} requirements of mode adopt are missing", findings.len());
        return Err(Failure::new(Code::Unavailable, error));
    }
    if missing > 0 {
        let error = "mode adopt would not run here; the explicit proxy does";
        eprint(error);
    }
    Ok(())
}

fn line(report: &mut String, finding: &Finding) {
    let mark = if finding.ok { "ok  " } else { "LACK" };
    // Writing to a string does not fail.
    writeln!(report, "  {mark}  {}: {}", finding.name, finding.detail).unwrap_or_default();
    if !finding.ok && !finding.fix.is_empty() {
        writeln!(report, "        do: {}", finding.fix).unwrap_or_default();
    }
}

fn eprint(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr().lock(), "weir: {text}").unwrap_or_default();
}
