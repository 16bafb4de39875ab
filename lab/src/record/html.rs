//! The report: every story's conditions, checks and figures on one page.
//!
//! Figures are set into the page, so that it is one file that can be sent.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::data::{Record, text_of};

/// Writes `index.html` into `dir`; the figures were drawn there.
///
/// # Errors
/// When a figure cannot be read or the page cannot be written.
pub(crate) fn write(dir: &Path, stories: &[(Record, Vec<String>)]) -> Result<()> {
    let mut page = String::from(HEAD);
    for (record, figures) in stories {
        section(&mut page, record).expect("writing to a string never fails");
        for figure in figures {
            let svg = fs::read_to_string(dir.join(figure))?;
            page.push_str("<figure>");
            page.push_str(&svg);
            page.push_str("</figure>\n");
        }
        page.push_str("</section>\n");
    }
    page.push_str("</body></html>\n");
    let path = dir.join("index.html");
    fs::write(&path, page).with_context(|| format!("write {}", path.display()))
}

fn section(page: &mut String, record: &Record) -> std::fmt::Result {
    let verdict = if record.is_good() { "every check holds" } else { "a check fails" };
    writeln!(page, "<section><h2>{}</h2>", escape(&record.story))?;
    let quick = if record.quick { " Shortened run: not to be quoted." } else { "" };
    writeln!(
        page,
        "<p>{verdict}.{quick} Seed {}, commit {}, {:.0} s on {} ({} CPUs, kernel {}).</p>",
        record.seed,
        escape(&record.commit),
        record.secs,
        escape(&record.machine.cpu),
        record.machine.cpus,
        escape(&record.machine.kernel)
    )?;
    page.push_str("<ul>");
    for condition in &record.conditions {
        writeln!(page, "<li>{}</li>", escape(condition))?;
    }
    page.push_str("</ul><table><tr><th></th><th>check</th><th>value</th><th>must be</th></tr>\n");
    for check in &record.checks {
        let (class, mark) = if check.ok { ("ok", "holds") } else { ("bad", "fails") };
        writeln!(
            page,
            "<tr class={class}><td>{mark}</td><td>{}</td><td>{} {}</td><td>{}</td></tr>",
            escape(&check.name),
            escape(&text_of(&check.value)),
            escape(&check.unit),
            escape(&check.bound)
        )?;
    }
    page.push_str("</table>\n");
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const HEAD: &str = "<!doctype html><html lang=en><head><meta charset=utf-8>
<meta name=viewport content='width=device-width,initial-scale=1'>
<title>Weir: the lab's report</title><style>
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1c2024;background:#fff}
h1,h2{line-height:1.2}section{margin-top:3rem}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #d8dde2;vertical-align:top}
.ok td:first-child{color:#00724f}.bad td:first-child{color:#b83c00;font-weight:700}
figure{margin:1.5rem 0}svg{max-width:100%;height:auto}li{color:#454c53}
</style></head><body><h1>Weir: the lab's report</h1>
<p>Real programs in network namespaces on one machine; each story states its conditions.
Ratios are reliable, absolute speeds are those of the machine.</p>
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_every_check_and_escapes_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::new("a/b", 1, true);
        record.condition("x < y");
        record.at_most("bytes", 2.0, 3.0, "%");
        write(dir.path(), &[(record, Vec::new())]).unwrap();
        let page = fs::read_to_string(dir.path().join("index.html")).unwrap();
        assert!(page.contains("x &lt; y") && page.contains("&lt;= 3") && page.contains("holds"));
    }
}
