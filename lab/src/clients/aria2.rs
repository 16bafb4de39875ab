//! aria2c, with JSON-RPC for its state.
//!
//! It always dials with an MSE handshake; no setting makes it dial plaintext.

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Control, Place, Progress, Source};
use crate::http;

/// The client; the program starts when it is given its source.
pub(super) fn start() -> Box<dyn Control> {
    Box::new(Aria2)
}

struct Aria2;

impl Control for Aria2 {
    fn add(&mut self, at: &mut Place, source: &Source) -> Result<()> {
        let save = format!("--dir={}", at.save().display());
        let line = [
            "aria2c",
            "--no-conf",
            "--seed-ratio=0.0",
            "--check-integrity=true",
            "--listen-port=6881",
            "--enable-dht=false",
            "--bt-enable-lpd=false",
            "--file-allocation=none",
            "--enable-rpc=true",
            "--rpc-listen-port=6800",
            "--quiet=true",
            &save,
            &source.text(),
        ]
        .map(str::to_owned);
        let home = at.dir.to_string_lossy().into_owned();
        at.run("aria2", &line, &[("HOME", home)])
    }

    fn progress(&mut self, at: &Place) -> Result<Progress> {
        let address: SocketAddr = "127.0.0.1:6800".parse()?;
        let body = json!({"jsonrpc": "2.0", "id": "lab", "method": "aria2.tellActive"});
        let head = "POST /jsonrpc HTTP/1.1\r\nContent-Type: application/json";
        // Before its port is open it has no progress either.
        let Ok(answer) = http::request(&at.space, address, head, body.to_string().as_bytes())
        else {
            return Ok(Progress::default());
        };
        let answer = answer.json()?;
        let number = |item: &Value, key: &str| -> u64 {
            item[key].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        // A magnet link's metadata is an item of its own, without a piece list of files.
        let items = answer["result"].as_array().cloned().unwrap_or_default();
        let item = items.iter().find(|item| item["bittorrent"]["info"].is_object());
        let Some(item) = item else { return Ok(Progress::default()) };
        let (bytes, total) = (number(item, "completedLength"), number(item, "totalLength"));
        Ok(Progress {
            done: total > 0 && bytes == total,
            bytes,
            uploaded: number(item, "uploadLength"),
            peers: number(item, "connections"),
            bans: 0,
        })
    }
}
