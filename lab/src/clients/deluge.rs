//! deluged, spoken to by a script on Deluge's own client library.
//!
//! Deluge has no key for uTP; a plugin in its configuration directory turns it
//! off through the plugin interface, as users do with ltConfig.

use std::fs;

use anyhow::Result;
use serde_json::json;

use super::{Control, PYTHON, Place, Progress, Source};
use crate::netns;

/// Starts the daemon and the script.
pub(super) fn start(at: &mut Place) -> Result<Box<dyn Control>> {
    let config = at.dir.join("config");
    let plugins = config.join("plugins");
    fs::create_dir_all(&plugins)?;
    let maker = at.dir.join("plugin.py");
    fs::write(&maker, include_str!("../../agents/deluge_plugin.py"))?;
    netns::run(PYTHON, &[&maker.to_string_lossy(), &plugins.to_string_lossy()])?;
    fs::write(config.join("auth"), format!("{USER}:{PASSWORD}:10\n"))?;
    // Deluge's files are two JSON values, the first being the format.
    let core = json!({
        "allow_remote": false,
        "daemon_port": PORT,
        "dht": false,
        "download_location": at.save(),
        "enabled_plugins": ["NoUtp"],
        "enc_in_policy": 2,
        "enc_out_policy": 2,
        "listen_ports": [6881, 6881],
        "lsd": false,
        "natpmp": false,
        "random_outgoing_ports": true,
        "random_port": false,
        "upnp": false,
    });
    fs::write(config.join("core.conf"), format!("{}{core}", json!({"file": 1, "format": 1})))?;

    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let daemon = ["deluged", "-d", "-c", &text(&config), "-L", "warning"].map(str::to_owned);
    let home = [("HOME", text(&at.dir)), ("PYTHONWARNINGS", "ignore".to_owned())];
    at.run("deluged", &daemon, &home)?;
    let script = at.dir.join("client.py");
    fs::write(&script, include_str!("../../agents/deluge_client.py"))?;
    let options = json!({
        "dir": at.dir,
        "save": at.save(),
        "port": PORT,
        "user": USER,
        "password": PASSWORD,
    });
    at.run("script", &[PYTHON.to_owned(), text(&script), options.to_string()], &home)?;
    at.wait_ready(LOG)?;
    Ok(Box::new(Deluge))
}

struct Deluge;

impl Control for Deluge {
    fn add(&mut self, at: &mut Place, source: &Source) -> Result<()> {
        at.write_source(source)
    }

    fn progress(&mut self, at: &Place) -> Result<Progress> {
        Ok(at.script_progress(LOG))
    }
}

const LOG: &str = "script.log";
const PORT: u16 = 58_846;
const USER: &str = "lab";
// Guards a port on the loopback of a namespace that lives for one run.
const PASSWORD: &str = "lab";
