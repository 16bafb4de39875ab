//! transmission-daemon over its RPC port.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Control, Place, Progress, START_LIMIT, START_POLL, Source};
use crate::{clock, http};

/// Starts the daemon and waits for its RPC port.
pub(super) fn start(at: &mut Place) -> Result<Box<dyn Control>> {
    let settings = json!({
        "dht-enabled": false,
        "download-dir": at.save(),
        // 0 = plaintext preferred.
        "encryption": 0,
        "lpd-enabled": false,
        "peer-port": 51413,
        "peer-port-random-on-start": false,
        "port-forwarding-enabled": false,
        "rpc-authentication-required": false,
        "rpc-bind-address": "127.0.0.1",
        "rpc-enabled": true,
        "rpc-port": 9091,
        "rpc-whitelist-enabled": false,
        "start-added-torrents": true,
        "utp-enabled": false,
    });
    fs::write(at.dir.join("settings.json"), settings.to_string())?;
    let config = at.dir.to_string_lossy().into_owned();
    let line = ["transmission-daemon", "-f", "-g", &config, "--log-error"].map(str::to_owned);
    at.run("transmission", &line, &[("HOME", config.clone())])?;
    let mut control = Transmission { session: String::new() };
    clock::wait_for("transmission's RPC", START_LIMIT, START_POLL, || {
        at.ensure_running()?;
        Ok(control.call(at, "session-get", &json!({})).ok())
    })?;
    Ok(Box::new(control))
}

struct Transmission {
    session: String,
}

impl Transmission {
    fn call(&mut self, at: &Place, method: &str, arguments: &Value) -> Result<Value> {
        let address: SocketAddr = "127.0.0.1:9091".parse()?;
        let body = json!({"method": method, "arguments": arguments}).to_string();
        for _ in 0..2 {
            let head = format!(
                "POST /transmission/rpc HTTP/1.1\r\nX-Transmission-Session-Id: {}",
                self.session
            );
            let answer = http::request(&at.space, address, &head, body.as_bytes())?;
            if answer.status == 409 {
                // The first answer hands out the id that every later call carries.
                let id = answer.header("x-transmission-session-id");
                self.session = id.context("a 409 without a session id")?.to_owned();
                continue;
            }
            let answer = answer.json()?;
            ensure!(answer["result"] == "success", "{method}: {}", answer["result"]);
            return Ok(answer["arguments"].clone());
        }
        anyhow::bail!("{method}: the session id is refused")
    }
}

impl Control for Transmission {
    fn add(&mut self, at: &mut Place, source: &Source) -> Result<()> {
        self.call(at, "torrent-add", &json!({"filename": source.text()})).map(drop)
    }

    fn progress(&mut self, at: &Place) -> Result<Progress> {
        let fields = [
            "metadataPercentComplete",
            "haveValid",
            "haveUnchecked",
            "leftUntilDone",
            "percentDone",
            "uploadedEver",
            "peersConnected",
        ];
        let answer = self.call(at, "torrent-get", &json!({"fields": fields}))?;
        let torrent = &answer["torrents"][0];
        let number = |key: &str| torrent[key].as_u64().unwrap_or(0);
        let whole = |key: &str| torrent[key].as_f64().unwrap_or(0.0) >= 1.0;
        Ok(Progress {
            done: whole("metadataPercentComplete")
                && whole("percentDone")
                && number("leftUntilDone") == 0,
            bytes: number("haveValid") + number("haveUnchecked"),
            uploaded: number("uploadedEver"),
            peers: number("peersConnected"),
            bans: 0,
        })
    }
}
