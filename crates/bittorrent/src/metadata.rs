//! What the info dictionary says: where pieces lie and what they hash to.
//!
//! Read only from raw bytes whose SHA-1 is the content's info-hash (BEP 3).
//! Hybrid torrents (BEP 52) are read by their v1 half; v2-only ones are told
//! apart and refused, their hashes are of another kind.

use bytes::{Buf, Bytes};
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::bencode::{BencodeError, Value};
use crate::extension::METADATA_BYTES_MAX;
use crate::handshake::InfoHash;
use crate::wire::Block;

/// The largest piece: 64 MiB. Clients make pieces of at most 32 MiB.
pub const PIECE_BYTES_MAX: u32 = 64 << 20;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of a SHA-1 digest.
const DIGEST_BYTES: usize = 20;

/// Why an info dictionary is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Its SHA-1 is not the info-hash.
    #[error("metadata does not hash to the info-hash")]
    Mismatch,
    /// It is a v2 torrent's, or the info-hash is a v2 one.
    #[error("metadata is of a version that is not supported")]
    Unsupported,
    /// Larger than [`METADATA_BYTES_MAX`].
    #[error("metadata of {len} bytes is larger than allowed")]
    TooLarge {
        /// Its size.
        len: usize,
    },
    /// Not bencoded.
    #[error("metadata is not bencoded")]
    Bencode(#[from] BencodeError),
    /// A key is missing, or not of its kind, or out of range.
    #[error("bad or missing `{key}` in metadata")]
    BadKey {
        /// Which.
        key: &'static str,
    },
}

/// The layout of a content, and its piece hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name on the wire.
    info_hash: InfoHash,
    /// `1 <= piece_bytes <= PIECE_BYTES_MAX`
    piece_bytes: u32,
    /// `1 <= total_bytes <= i64::MAX`
    total_bytes: u64,
    /// `pieces.len() == 20 * ceil(total_bytes / piece_bytes)`
    pieces: Bytes,
    name: String,
}

impl Info {
    /// Reads the raw info dictionary of the content `info_hash`.
    ///
    /// # Errors
    /// Any [`MetadataError`]; a wrong hash is found before anything is read.
    pub fn parse(raw: &[u8], info_hash: InfoHash) -> Result<Self, MetadataError> {
        if raw.len() > METADATA_BYTES_MAX as usize {
            return Err(MetadataError::TooLarge { len: raw.len() });
        }
        if Sha1::digest(raw)[..] != info_hash.0 {
            let v2 = Sha256::digest(raw)[..DIGEST_BYTES] == info_hash.0;
            return Err(if v2 { MetadataError::Unsupported } else { MetadataError::Mismatch });
        }
        let info = Value::parse(raw)?;
        let positive = |key: &'static str| {
            let value = info.lookup(key.as_bytes()).and_then(Value::as_int);
            value.and_then(|v| u64::try_from(v).ok()).ok_or(MetadataError::BadKey { key })
        };
        let pieces = match info.lookup(b"pieces") {
            None if info.lookup(b"meta version").is_some() => {
                return Err(MetadataError::Unsupported);
            }
            pieces => {
                pieces.and_then(Value::as_bytes).ok_or(MetadataError::BadKey { key: "pieces" })?
            }
        };
        let piece_bytes = u32::try_from(positive("piece length")?)
            .ok()
            .filter(|n| (1..=PIECE_BYTES_MAX).contains(n))
            .ok_or(MetadataError::BadKey { key: "piece length" })?;
        let total_bytes = match info.lookup(b"files") {
            None => positive("length")?,
            Some(files) => files_bytes(files)?,
        };
        if total_bytes == 0 || total_bytes > i64::MAX.unsigned_abs() {
            return Err(MetadataError::BadKey { key: "length" });
        }
        let count = total_bytes.div_ceil(piece_bytes.into());
        if !pieces.len().is_multiple_of(DIGEST_BYTES)
            || u64::try_from(pieces.len() / DIGEST_BYTES) != Ok(count)
        {
            return Err(MetadataError::BadKey { key: "pieces" });
        }
        let name = info.lookup(b"name").and_then(Value::as_bytes).unwrap_or_default();
        Ok(Self {
            info_hash,
            piece_bytes,
            total_bytes,
            pieces: Bytes::copy_from_slice(pieces),
            name: short_text(name),
        })
    }

    /// The content's info-hash.
    pub const fn info_hash(&self) -> InfoHash {
        self.info_hash
    }

    /// Bytes of every piece but the last.
    pub const fn piece_bytes(&self) -> u32 {
        self.piece_bytes
    }

    /// Bytes of the content.
    pub const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Number of pieces, at least 1.
    pub fn piece_count(&self) -> u32 {
        // Metadata has at most 16 MiB, so there are less than 2^20 hashes.
        u32::try_from(self.pieces.len() / DIGEST_BYTES).unwrap_or(u32::MAX)
    }

    /// The name its maker gave it, at most [`NAME_BYTES_MAX`] bytes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of piece `index`; `None` when there is no such piece.
    pub fn piece_len(&self, index: u32) -> Option<u32> {
        let start = u64::from(index) * u64::from(self.piece_bytes);
        let left = self.total_bytes.checked_sub(start).filter(|left| *left > 0)?;
        Some(u32::try_from(left).unwrap_or(u32::MAX).min(self.piece_bytes))
    }

    /// Where `block` lies in the content; `None` when it is empty, or any byte
    /// of it is outside its piece or the content.
    pub fn offset_of(&self, block: Block) -> Option<u64> {
        let end = block.begin.checked_add(block.len)?;
        let inside = block.len > 0 && end <= self.piece_len(block.index)?;
        let start = u64::from(block.index) * u64::from(self.piece_bytes);
        inside.then_some(start + u64::from(block.begin))
    }

    /// Whether the joined `parts` are piece `index`.
    pub fn piece_is(&self, index: u32, parts: &[Bytes]) -> bool {
        let mut hasher = Sha1::new();
        parts.iter().for_each(|part| hasher.update(part));
        let at = index as usize * DIGEST_BYTES;
        self.pieces.get(at..at + DIGEST_BYTES).is_some_and(|want| hasher.finalize()[..] == *want)
    }

    /// Memory it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.pieces.len() + NAME_BYTES_MAX + size_of::<Self>()
    }
}

/// Puts raw metadata into the form in which the store holds it: its length in
/// four bytes, big-endian, then itself.
pub(crate) fn seal(raw: &Bytes) -> [Bytes; 2] {
    let len = u32::try_from(raw.len()).unwrap_or(u32::MAX);
    [Bytes::copy_from_slice(&len.to_be_bytes()), raw.clone()]
}

/// The length in what [`seal`] put first; `None` when it is out of range.
pub(crate) fn sealed_len(mut head: &[u8]) -> Option<u32> {
    let len = head.try_get_u32().ok()?;
    (1..=METADATA_BYTES_MAX).contains(&len).then_some(len)
}

/// The sum of the files' lengths.
fn files_bytes(files: Value<'_>) -> Result<u64, MetadataError> {
    let bad = MetadataError::BadKey { key: "files" };
    files.items().try_fold(0u64, |sum, file| {
        let len = file.lookup(b"length").and_then(Value::as_int).ok_or(bad)?;
        sum.checked_add(u64::try_from(len).map_err(|_| bad)?).ok_or(bad)
    })
}

/// `bytes` as text of at most [`NAME_BYTES_MAX`] bytes.
fn short_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text[..text.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bencode::Writer;

    fn hash_of(raw: &[u8]) -> InfoHash {
        InfoHash(Sha1::digest(raw).into())
    }

    /// A single-file dictionary.
    fn raw(length: i64, piece_length: i64, pieces: usize) -> Vec<u8> {
        Writer::new()
            .begin_dict()
            .bytes(b"length")
            .int(length)
            .bytes(b"name")
            .bytes(b"n")
            .bytes(b"piece length")
            .int(piece_length)
            .bytes(b"pieces")
            .bytes(&vec![7; pieces])
            .end()
            .finish()
    }

    fn parse(raw: &[u8]) -> Result<Info, MetadataError> {
        Info::parse(raw, hash_of(raw))
    }

    #[test]
    fn places_blocks_and_refuses_those_outside() {
        let info = parse(&raw(100, 32, 80)).unwrap();
        let at = |index, begin, len| info.offset_of(Block { index, begin, len });
        assert_eq!((info.piece_count(), info.piece_len(3), info.piece_len(4)), (4, Some(4), None));
        assert_eq!(at(1, 16, 16), Some(48));
        assert_eq!(at(3, 0, 4), Some(96));
        for (index, begin, len) in [
            (1, 16, 17),
            (3, 0, 5),
            (4, 0, 1),
            (u32::MAX, 0, 1),
            (0, u32::MAX, 2),
            (0, 0, 0),
            (0, 32, 0),
        ] {
            assert_eq!(at(index, begin, len), None, "{index} {begin} {len}");
        }
    }

    #[test]
    fn sums_files_and_refuses_overflow() {
        let files = |a: i64, b: i64| {
            format!(
                "d5:filesld6:lengthi{a}e4:pathl1:aeed6:lengthi{b}e4:pathl1:beee4:name1:n12:piece lengthi32e6:pieces20:aaaaaaaaaaaaaaaaaaaae"
            )
        };
        assert_eq!(parse(files(20, 12).as_bytes()).unwrap().total_bytes(), 32);
        assert_eq!(parse(files(20, 13).as_bytes()), Err(MetadataError::BadKey { key: "pieces" }));
        assert_eq!(
            parse(files(i64::MAX, i64::MAX).as_bytes()),
            Err(MetadataError::BadKey { key: "length" })
        );
        assert_eq!(parse(files(-1, 5).as_bytes()), Err(MetadataError::BadKey { key: "files" }));
    }

    #[test]
    fn refuses_each_number_out_of_range() {
        for (length, piece_length, pieces, key) in [
            (0, 32, 0, "length"),
            (-5, 32, 20, "length"),
            (10, 0, 20, "piece length"),
            (10, -1, 20, "piece length"),
            (10, i64::from(PIECE_BYTES_MAX) + 1, 20, "piece length"),
            (33, 32, 20, "pieces"),
            (32, 32, 40, "pieces"),
            (32, 32, 21, "pieces"),
            (i64::MAX, 1, 20, "pieces"),
        ] {
            assert_eq!(
                parse(&raw(length, piece_length, pieces)),
                Err(MetadataError::BadKey { key })
            );
        }
        assert!(parse(&raw(10, PIECE_BYTES_MAX.into(), 20)).is_ok());
    }

    #[test]
    fn tells_wrong_bytes_from_version_2() {
        let info = raw(10, 32, 20);
        assert_eq!(Info::parse(&info, InfoHash([0; 20])), Err(MetadataError::Mismatch));
        let v2 = b"d9:file treede12:meta versioni2e4:name1:n12:piece lengthi32ee";
        assert_eq!(parse(v2), Err(MetadataError::Unsupported));
        let mut hash = [0; 20];
        hash.copy_from_slice(&Sha256::digest(v2)[..20]);
        assert_eq!(Info::parse(v2, InfoHash(hash)), Err(MetadataError::Unsupported));
        let bomb = vec![b'l'; 100_000];
        assert!(matches!(parse(&bomb), Err(MetadataError::Bencode(BencodeError::TooDeep { .. }))));
    }

    #[test]
    fn a_hybrid_torrent_is_read_by_its_first_half() {
        let hybrid = b"d9:file treede6:lengthi5e12:meta versioni2e4:name1:n12:piece lengthi32e6:pieces20:aaaaaaaaaaaaaaaaaaaae";
        assert_eq!(parse(hybrid).unwrap().total_bytes(), 5);
    }

    #[test]
    fn names_are_cut_and_made_legible() {
        assert_eq!(short_text(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(short_text("ü".repeat(200).as_bytes()).len(), 254);
    }

    #[test]
    fn knows_its_pieces() {
        let data = Bytes::from_static(b"hello");
        let digest: [u8; 20] = Sha1::digest(&data).into();
        let raw = Writer::new()
            .begin_dict()
            .bytes(b"length")
            .int(5)
            .bytes(b"piece length")
            .int(32)
            .bytes(b"pieces")
            .bytes(&digest)
            .end()
            .finish();
        let info = parse(&raw).unwrap();
        assert!(info.piece_is(0, &[data.slice(..2), data.slice(2..)]));
        assert!(!info.piece_is(0, &[Bytes::from_static(b"hellO")]));
        assert!(!info.piece_is(1, &[data]));
    }

    #[test]
    fn a_sealed_length_round_trips_and_is_bounded() {
        let [head, body] = seal(&Bytes::from_static(b"d1:ae"));
        assert_eq!((sealed_len(&head), body.len()), (Some(5), 5));
        for bad in [&[][..], &[0, 0, 0, 0], &[1, 0, 0, 1], &[255; 4]] {
            assert_eq!(sealed_len(bad), None);
        }
    }
}
