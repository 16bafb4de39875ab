//! `pcache/corruption`: no wrong byte leaves a damaged store or a killed gateway.
//!
//! The judge is libtorrent, which drops a peer for good at its first wrong piece,
//! and the files' SHA-1. The store's data file is overwritten at random places,
//! then every file of the store, then the gateway is killed in mid-download.
//! Refuted when a file differs, a piece fails its hash at a client, a client is
//! stuck, the damage goes unnoticed, or the gateway does not start again.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::Conditions;
use super::swarm::{Outcome, Swarm, state_conditions};
use crate::clients::{Kind, Tuning};
use crate::clock;
use crate::gateway::{Gateway, Mode};
use crate::record::data::Record;
use crate::seed::SplitMix64;

/// Runs the story.
///
/// # Errors
/// When a part does not come up.
pub(super) fn run(at: &Conditions, record: &mut Record) -> Result<()> {
    let bytes = if at.quick { 24_000_000 } else { 256_000_000 };
    state_conditions(record, bytes);
    record.condition(
        "libtorrent connects again 3 s after a peer was lost (its own setting; 60 s by default), \
         so that a killed gateway does not stall the story.",
    );
    let mut swarm = Swarm::start(at, bytes, 2)?;
    damaged(at, record, &mut swarm)?;
    let kills = if at.quick { 1 } else { 3 };
    for number in 0..kills {
        killed(at, record, &mut swarm, number)?;
    }
    Ok(())
}

/// Fill the store, damage it, download through it; twice.
fn damaged(at: &Conditions, record: &mut Record, swarm: &mut Swarm) -> Result<()> {
    let dir = swarm.new_dir("gateway")?;
    let gateway = Gateway::start(&swarm.net, &at.weir, Mode::Caching, &dir)?;
    let mut gateway = gateway.context("a gateway")?;
    let first = download(swarm, Kind::Libtorrent, "c2")?;
    judge(record, "filling the store", &first);

    let mut random = SplitMix64::split(at.seed, 77);
    gateway.stop();
    let data = largest_file(&gateway.store_dir())?;
    let places = damage(&data, if at.quick { 12 } else { 120 }, &mut random)?;
    gateway.restart()?;
    for (kind, host) in [(Kind::Libtorrent, "c3"), (Kind::Rtorrent, "c2")] {
        let outcome = download(swarm, kind, host)?;
        judge(record, &format!("{kind} after damage at {places} places of the data"), &outcome);
        record.rows.push(outcome.row(Mode::Caching, "damaged data", swarm.torrent.bytes));
    }
    let failures = gateway.status()?["store"]["checksum_failures"].as_f64().unwrap_or(0.0);
    record.at_least("damaged segments noticed", failures, 1.0, "");

    gateway.stop();
    let mut files = Vec::new();
    collect_files(&gateway.store_dir(), &mut files)?;
    for file in &files {
        damage(file, 5, &mut random)?;
    }
    record.rows.push(json!({"phase": "damaged store", "files": files.len()}));
    let restarted = gateway.restart();
    record.holds(
        "the gateway starts on a store with damage in every file",
        restarted.is_ok(),
        format!("{restarted:?}"),
    );
    let outcome = download(swarm, Kind::Libtorrent, "c3")?;
    judge(record, "libtorrent after damage in every file", &outcome);
    gateway.ensure_running()
}

/// Kill the gateway at a random point of a download into an empty store.
fn killed(at: &Conditions, record: &mut Record, swarm: &mut Swarm, number: u64) -> Result<()> {
    swarm.restart()?;
    let dir = swarm.new_dir("gateway")?;
    let gateway = Gateway::start(&swarm.net, &at.weir, Mode::Caching, &dir)?;
    let mut gateway = gateway.context("a gateway")?;
    let mut random = SplitMix64::split(at.seed, 100 + number);
    let bytes = swarm.torrent.bytes;
    let until = bytes / 5 + random.below(bytes / 2);

    let tuning = Tuning { reconnect_secs: Some(3), ..Tuning::default() };
    let mut client = swarm.client(Kind::Libtorrent, "c2", tuning)?;
    client.add(&swarm.by_file())?;
    clock::wait_for("the point of the kill", LIMIT, Duration::from_millis(20), || {
        Ok((client.progress()?.bytes >= until).then_some(()))
    })?;
    gateway.kill9();
    gateway.restart().context("start again after kill -9")?;
    let end = clock::wait_for("the end of the download", LIMIT, Duration::from_millis(100), || {
        let progress = client.progress()?;
        Ok(progress.done.then_some(progress))
    });
    client.stop();
    let name = format!("kill -9 at {:.0} % of a download", until as f64 / bytes as f64 * 100.0);
    let fault = match &end {
        Ok(progress) if progress.bans > 0 => format!("{} pieces failed or bans", progress.bans),
        Ok(_) => swarm
            .torrent
            .verify(&client.save())
            .err()
            .map_or_else(String::new, |e| format!("{e:#}")),
        Err(error) => format!("{error:#}"),
    };
    record.holds(format!("{name}: the file is right, nobody banned"), fault.is_empty(), fault);
    fs::remove_dir_all(client.save())?;

    let outcome = download(swarm, Kind::Libtorrent, "c3")?;
    judge(record, &format!("next client after {name}"), &outcome);
    record.rows.push(outcome.row(Mode::Caching, "after kill -9", bytes));
    gateway.ensure_running()
}

fn download(swarm: &mut Swarm, kind: Kind, host: &str) -> Result<Outcome> {
    let source = swarm.by_file();
    let outcomes = swarm.download(&[(kind, host)], &source, LIMIT)?;
    outcomes.into_iter().next().context("an outcome")
}

fn judge(record: &mut Record, what: &str, outcome: &Outcome) {
    let bans = (outcome.bans > 0).then(|| format!("{} pieces failed or bans", outcome.bans));
    let fault = outcome.fault.clone().or(bans);
    record.holds(
        format!("{what}: the file is right, nobody banned"),
        fault.is_none(),
        fault.unwrap_or_default(),
    );
}

/// Changes bytes at `count` random places of a file where something is written.
///
/// Answers how many places were changed: fewer when the file holds less.
fn damage(path: &Path, count: usize, random: &mut SplitMix64) -> Result<usize> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let mut written = Vec::new();
    let mut block = vec![0u8; BLOCK_BYTES];
    let mut at = 0u64;
    loop {
        let len = read_full(&mut file, &mut block)?;
        if block[..len].iter().any(|&byte| byte != 0) {
            written.push((at, len));
        }
        at += len as u64;
        if len < BLOCK_BYTES {
            break;
        }
    }
    let mut changed = 0;
    for _ in 0..count.min(written.len()) {
        let pick = usize::try_from(random.below(written.len() as u64)).expect("an index");
        let (start, len) = written.swap_remove(pick);
        let place = start + random.below(len as u64);
        let mut byte = [0u8];
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(&mut byte)?;
        byte[0] ^= 1 << random.below(8);
        file.seek(SeekFrom::Start(place))?;
        file.write_all(&byte)?;
        changed += 1;
    }
    file.sync_all().with_context(|| format!("damage {}", path.display()))?;
    Ok(changed)
}

fn read_full(file: &mut File, block: &mut [u8]) -> Result<usize> {
    let mut len = 0;
    while len < block.len() {
        match file.read(&mut block[len..])? {
            0 => break,
            got => len += got,
        }
    }
    Ok(len)
}

fn largest_file(dir: &Path) -> Result<PathBuf> {
    let mut files = Vec::new();
    collect_files(dir, &mut files)?;
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
    files.into_iter().max_by_key(size).with_context(|| format!("no file in {}", dir.display()))
}

fn collect_files(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

const LIMIT: Duration = Duration::from_secs(180);
const BLOCK_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_changes_written_blocks_only_and_each_at_one_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let mut before = vec![0u8; BLOCK_BYTES * 8 + 100];
        before[BLOCK_BYTES * 3..BLOCK_BYTES * 5].fill(7);
        fs::write(&path, &before).unwrap();
        let changed = damage(&path, 9, &mut SplitMix64::new(1)).unwrap();
        assert_eq!(changed, 2);
        let after = fs::read(&path).unwrap();
        let places: Vec<usize> = (0..before.len())
            .filter(|&at| before[at] != after[at])
            .map(|at| at / BLOCK_BYTES)
            .collect();
        assert_eq!(places, [3, 4]);
    }

    #[test]
    fn the_largest_file_is_found_below() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("a"), [0; 3]).unwrap();
        fs::write(dir.path().join("d/b"), [0; 5]).unwrap();
        assert!(largest_file(dir.path()).unwrap().ends_with("d/b"));
    }
}
