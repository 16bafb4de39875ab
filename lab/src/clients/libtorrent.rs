//! libtorrent (rasterbar) by a script on its Python binding.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::{Control, PYTHON, Place, Progress, Source, Tuning};

/// Starts the script; `save` is where content lies or goes.
pub(super) fn start(
    at: &mut Place,
    mode: &str,
    save: &Path,
    tuning: Tuning<'_>,
) -> Result<Box<dyn Control>> {
    let script = at.dir.join("client.py");
    fs::write(&script, include_str!("../../agents/libtorrent_client.py"))?;
    let settings = match tuning.reconnect_secs {
        Some(secs) => json!({"min_reconnect_time": secs}),
        None => json!({}),
    };
    let options = json!({
        "listen": format!("{}:6881", at.address),
        "dir": at.dir,
        "save": save,
        "mode": mode,
        "blocked": tuning.blocked,
        "settings": settings,
    });
    let script = script.to_string_lossy().into_owned();
    at.run("libtorrent", &[PYTHON.to_owned(), script, options.to_string()], &[])?;
    at.wait_ready(LOG)?;
    Ok(Box::new(Libtorrent))
}

struct Libtorrent;

impl Control for Libtorrent {
    fn add(&mut self, at: &mut Place, source: &Source) -> Result<()> {
        at.write_source(source)
    }

    fn progress(&mut self, at: &Place) -> Result<Progress> {
        Ok(at.script_progress(LOG))
    }
}

const LOG: &str = "libtorrent.log";
