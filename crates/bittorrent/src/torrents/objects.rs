//! Names of the objects that one content has in the store.

use sha1::{Digest, Sha1};
use weir_ranges::ObjectId;

use crate::handshake::InfoHash;

/// The content itself: its pieces, joined. Only checked bytes are kept here.
pub fn content_object(info_hash: InfoHash) -> ObjectId {
    object(b"content", info_hash, 0)
}

/// Blocks placed by an inferred piece length, in bytes; never checked.
///
/// Each piece length has its own object. Whatever the length really is, two
/// blocks that were placed in the same one never overlap wrongly.
pub fn inferred_object(info_hash: InfoHash, piece_bytes: u32) -> ObjectId {
    object(b"inferred", info_hash, piece_bytes)
}

/// The raw info dictionary behind its length in four bytes, big-endian.
pub fn metadata_object(info_hash: InfoHash) -> ObjectId {
    object(b"metadata", info_hash, 0)
}

fn object(kind: &[u8], info_hash: InfoHash, piece_bytes: u32) -> ObjectId {
    let digest = Sha1::new()
        .chain_update(b"weir bt v1 ")
        .chain_update(kind)
        .chain_update(info_hash.0)
        .chain_update(piece_bytes.to_be_bytes())
        .finalize();
    let first = digest.first_chunk().expect("a SHA-1 digest has 20 bytes");
    ObjectId::from_bytes(*first)
}
