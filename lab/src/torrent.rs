//! The content that is downloaded: made from a seed, described by mktorrent.
//!
//! Three files whose sizes are no multiple of a piece, so that pieces span
//! files. The info-hash is computed here from the bytes mktorrent wrote.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha1::{Digest, Sha1};

use crate::netns::run;
use crate::seed::SplitMix64;

/// A torrent and the content it describes.
#[derive(Clone, Debug)]
pub(crate) struct Torrent {
    /// The `.torrent` file.
    pub(crate) file: PathBuf,
    /// The directory that holds the content's directory.
    pub(crate) parent: PathBuf,
    /// Name of the content's directory.
    pub(crate) name: String,
    /// Relative paths with their SHA-1.
    pub(crate) digests: Vec<(String, String)>,
    /// Bytes of the whole content.
    pub(crate) bytes: u64,
    /// The info-hash in hexadecimal.
    pub(crate) info_hash: String,
    announce: String,
}

impl Torrent {
    /// Makes `bytes` of content under `dir` and its torrent, pieces of 2^`piece_log2` bytes.
    ///
    /// # Errors
    /// When the disk is full or mktorrent fails.
    pub(crate) fn create(
        dir: &Path,
        bytes: u64,
        piece_log2: u32,
        seed: u64,
        announce: &str,
    ) -> Result<Self> {
        let name = "weirdata";
        let parent = dir.join("content");
        let content = parent.join(name);
        fs::create_dir_all(content.join("part")).context("make the content's directory")?;
        // 62.5 %, 24 % and the rest, made odd so that no boundary is aligned.
        let first = bytes / 8 * 5 + 1;
        let second = bytes / 100 * 24 + 12_345;
        let sizes = [("one.bin", first), ("part/two.bin", second)];
        let last = bytes.checked_sub(first + second).context("content too small")?;
        let mut digests = Vec::new();
        let files = sizes.into_iter().chain([("part/three.bin", last)]);
        for (index, (path, size)) in (1_u64..).zip(files) {
            let digest = write_random(&content.join(path), size, SplitMix64::split(seed, index))?;
            digests.push((path.to_owned(), digest));
        }
        let file = dir.join(format!("{name}.torrent"));
        let (from, to) = (content.to_string_lossy(), file.to_string_lossy());
        run("mktorrent", &["-l", &piece_log2.to_string(), "-a", announce, "-o", &to, &from])?;
        let info_hash = info_hash(&fs::read(&file)?)?;
        let (name, announce) = (name.to_owned(), announce.to_owned());
        Ok(Self { file, parent, name, digests, bytes, info_hash, announce })
    }

    /// The magnet link, with the tracker.
    pub(crate) fn magnet(&self) -> String {
        let announce = self.announce.replace(':', "%3A").replace('/', "%2F");
        format!("magnet:?xt=urn:btih:{}&dn={}&tr={announce}", self.info_hash, self.name)
    }

    /// Compares what lies under `dir` with the content.
    ///
    /// # Errors
    /// Names the first file that is missing or differs.
    pub(crate) fn verify(&self, dir: &Path) -> Result<()> {
        for (path, digest) in &self.digests {
            let file = dir.join(&self.name).join(path);
            let found = sha1_of(&file).with_context(|| format!("verify {}", file.display()))?;
            ensure!(found == *digest, "{path} has SHA-1 {found}, the source {digest}");
        }
        Ok(())
    }
}

/// The SHA-1 of a file in hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn sha1_of(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha1::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            len => hasher.update(&buffer[..len]),
        }
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_random(path: &Path, size: u64, mut random: SplitMix64) -> Result<String> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut hasher = Sha1::new();
    let mut block = vec![0u8; 1 << 20];
    let mut left = size;
    while left > 0 {
        let len = usize::try_from(left.min(1 << 20)).expect("at most a block");
        random.fill(&mut block[..len]);
        hasher.update(&block[..len]);
        out.write_all(&block[..len]).with_context(|| format!("write {}", path.display()))?;
        left -= len as u64;
    }
    out.flush()?;
    Ok(hex(&hasher.finalize()))
}

/// SHA-1 of the value of `info` as it stands in the file (BEP 3).
fn info_hash(torrent: &[u8]) -> Result<String> {
    ensure!(torrent.first() == Some(&b'd'), "a torrent that is no dictionary");
    let mut at = 1;
    while torrent.get(at) != Some(&b'e') {
        let key_end = skip(torrent, at, 0)?;
        let value_end = skip(torrent, key_end, 0)?;
        if &torrent[at..key_end] == b"4:info" {
            return Ok(hex(&Sha1::digest(&torrent[key_end..value_end])));
        }
        at = value_end;
    }
    anyhow::bail!("a torrent without info")
}

/// The index after the bencoded value at `at`.
fn skip(data: &[u8], at: usize, depth: usize) -> Result<usize> {
    ensure!(depth < 16, "bencode nested deeper than any torrent");
    let find = |mark: u8, from: usize| {
        let rest = data.get(from..).unwrap_or_default();
        rest.iter().position(|&byte| byte == mark).map(|index| from + index)
    };
    match data.get(at).context("bencode that ends early")? {
        b'i' => Ok(find(b'e', at).context("an integer without end")? + 1),
        b'l' | b'd' => {
            let mut next = at + 1;
            while *data.get(next).context("a list without end")? != b'e' {
                next = skip(data, next, depth + 1)?;
            }
            Ok(next + 1)
        }
        _ => {
            let colon = find(b':', at).context("a string without length")?;
            let length: usize = std::str::from_utf8(&data[at..colon])?.parse()?;
            let end = colon.checked_add(length + 1).filter(|&end| end <= data.len());
            end.context("a string that ends early")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_info_hash_covers_the_value_of_info_alone() {
        let torrent = b"d8:announce3:url4:infod6:lengthi3e4:name1:aee";
        assert_eq!(info_hash(torrent).unwrap(), hex(&Sha1::digest(b"d6:lengthi3e4:name1:ae")));
        assert!(info_hash(b"d4:info9:shorte").is_err());
        assert!(info_hash(b"d8:announce3:urle").is_err());
        assert!(info_hash(&[b'l'; 100]).is_err());
    }

    #[test]
    fn verification_finds_a_changed_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let digest = write_random(&path, 3_000_000, SplitMix64::new(1)).unwrap();
        assert_eq!(sha1_of(&path).unwrap(), digest);
        let torrent = Torrent {
            file: PathBuf::new(),
            parent: PathBuf::new(),
            name: String::new(),
            digests: vec![("x".to_owned(), digest)],
            bytes: 3_000_000,
            info_hash: String::new(),
            announce: String::new(),
        };
        torrent.verify(dir.path()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[2_000_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(torrent.verify(dir.path()).is_err());
    }
}
