//! rtorrent by XML-RPC over SCGI.
//!
//! The XML that goes out is fixed but for one string, and of what comes back
//! only the numbers in order are read, so no XML library is needed.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::{Control, Place, Progress, START_LIMIT, START_POLL, Source};
use crate::{clock, http};

/// Starts rtorrent and waits for its SCGI port.
pub(super) fn start(at: &mut Place) -> Result<Box<dyn Control>> {
    let session = at.dir.join("session");
    fs::create_dir_all(&session)?;
    let rc = at.dir.join("rtorrent.rc");
    let text = format!(
        "directory.default.set = {}\nsession.path.set = {}\n\
         network.port_range.set = 6895-6895\nnetwork.port_random.set = no\n\
         network.scgi.open_port = 127.0.0.1:5000\nprotocol.encryption.set = none\n\
         dht.mode.set = off\ntrackers.use_udp.set = yes\n\
         pieces.hash.on_completion.set = no\nsystem.daemon.set = true\n",
        at.save().display(),
        session.display()
    );
    fs::write(&rc, text)?;
    let import = format!("import={}", rc.display());
    let line = ["rtorrent", "-n", "-o", &import].map(str::to_owned);
    let home = at.dir.to_string_lossy().into_owned();
    at.run("rtorrent", &line, &[("HOME", home), ("TERM", "xterm".to_owned())])?;
    clock::wait_for("rtorrent's SCGI port", START_LIMIT, START_POLL, || {
        at.ensure_running()?;
        Ok(call(at, "system.pid", &[]).ok())
    })?;
    Ok(Box::new(Rtorrent))
}

struct Rtorrent;

impl Control for Rtorrent {
    fn add(&mut self, at: &mut Place, source: &Source) -> Result<()> {
        call(at, "load.start", &["", &source.text()]).map(drop)
    }

    fn progress(&mut self, at: &Place) -> Result<Progress> {
        let answer = call(
            at,
            "d.multicall2",
            &[
                "",
                "main",
                "d.is_meta=",
                "d.complete=",
                "d.completed_bytes=",
                "d.up.total=",
                "d.peers_connected=",
            ],
        )?;
        let numbers = parse_numbers(&answer);
        // A magnet link is first a download of its own, the metadata.
        let Some(&[meta, complete, bytes, uploaded, peers]) =
            numbers.chunks(5).find(|row| row[0] == 0).and_then(|row| row.first_chunk())
        else {
            return Ok(Progress::default());
        };
        ensure!(meta == 0, "the metadata's row was taken for the content's");
        Ok(Progress { done: complete == 1, bytes, uploaded, peers, bans: 0 })
    }
}

fn call(at: &Place, method: &str, params: &[&str]) -> Result<String> {
    let params: String = params
        .iter()
        .map(|param| {
            let param = param.replace('&', "&amp;").replace('<', "&lt;");
            format!("<param><value><string>{param}</string></value></param>")
        })
        .collect();
    let body = format!(
        "<?xml version=\"1.0\"?><methodCall><methodName>{method}</methodName>\
         <params>{params}</params></methodCall>"
    );
    let address: SocketAddr = "127.0.0.1:5000".parse()?;
    let head = netstring(&[("CONTENT_LENGTH", &body.len().to_string()), ("SCGI", "1")]);
    let answer = at.space.inside(|| http::exchange(address, &[&head, body.as_bytes()]))??;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    ensure!(!answer.contains("<fault>"), "{method}: {answer}");
    let start = answer.find("<?xml").with_context(|| format!("{method}: no answer in XML"))?;
    Ok(answer[start..].to_owned())
}

/// SCGI's header block: a netstring of zero-terminated names and values.
fn netstring(headers: &[(&str, &str)]) -> Vec<u8> {
    let block: String = headers.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
    format!("{}:{block},", block.len()).into_bytes()
}

/// Every integer value of an XML-RPC answer, in order.
fn parse_numbers(xml: &str) -> Vec<u64> {
    let number = |part: &str| -> Option<u64> {
        let rest = part.strip_prefix("i8>").or_else(|| part.strip_prefix("i4>"))?;
        rest.split('<').next()?.parse().ok()
    };
    let mut numbers = Vec::new();
    for (at, _) in xml.match_indices("<i") {
        numbers.extend(number(&xml[at + 1..]));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_widths_are_read_in_order() {
        let xml = "<value><i8>0</i8></value><value><i4>1</i4></value><value><i8>27</i8></value>";
        assert_eq!(parse_numbers(xml), [0, 1, 27]);
        assert!(parse_numbers("<int>").is_empty());
    }

    #[test]
    fn the_header_block_tells_its_length() {
        assert_eq!(netstring(&[("A", "1")]), b"4:A\x001\x00,");
    }
}
