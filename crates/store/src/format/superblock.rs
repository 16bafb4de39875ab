//! The superblock: what the store is.

use super::{BLOCK_BYTES, FORMAT_VERSION, Fields, seal, unseal};
use crate::units::{CLUSTER_BYTES, SEGMENT_LEN};

/// One copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Clusters of the data file.
    pub(crate) clusters: u32,
    /// Names this store among all that were in this directory.
    pub(crate) generation: u64,
    /// The copy with the larger one counts.
    pub(crate) serial: u64,
}

/// Why no superblock could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockFault {
    /// Too short to hold what a finished creation leaves.
    Absent,
    /// Whole, but of a version or geometry that is not ours.
    OtherVersion(u32),
    /// No copy is whole.
    Damaged,
}

impl Superblock {
    /// Bytes of the file: two copies.
    pub(crate) const FILE_BYTES: usize = 2 * BLOCK_BYTES;

    /// One copy, [`BLOCK_BYTES`] long.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(FORMAT_VERSION.to_le_bytes());
        out.extend(CLUSTER_BYTES.to_le_bytes());
        out.extend(SEGMENT_LEN.to_le_bytes());
        out.extend(self.clusters.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.serial.to_le_bytes());
        seal(&out)
    }

    /// The newer whole copy in the bytes of the file.
    pub(crate) fn decode(file: &[u8]) -> Result<Self, SuperblockFault> {
        let copies = file.chunks(BLOCK_BYTES).take(2).map(decode_copy);
        let mut best: Result<Self, SuperblockFault> = Err(if file.len() < Self::FILE_BYTES {
            SuperblockFault::Absent
        } else {
            SuperblockFault::Damaged
        });
        for copy in copies {
            best = match (best, copy) {
                (Ok(a), Ok(b)) => Ok(if b.serial > a.serial { b } else { a }),
                (Ok(a), Err(_)) => Ok(a),
                (Err(_), Ok(b)) => Ok(b),
                (Err(_), Err(other @ SuperblockFault::OtherVersion(_))) => Err(other),
                (Err(a), Err(_)) => Err(a),
            };
        }
        best
    }
}

fn decode_copy(block: &[u8]) -> Result<Superblock, SuperblockFault> {
    let fields = unseal(block).ok_or(SuperblockFault::Damaged)?;
    let copy = || {
        let mut fields = Fields(fields);
        let magic: [u8; 8] = fields.array()?;
        let version = fields.u32()?;
        let (cluster, segment) = (fields.u32()?, fields.u32()?);
        let superblock = Superblock {
            clusters: fields.u32()?,
            generation: fields.u64()?,
            serial: fields.u64()?,
        };
        Some((magic, (version, cluster, segment), superblock))
    };
    match copy() {
        Some((MAGIC, geometry, superblock)) => {
            if geometry == (FORMAT_VERSION, CLUSTER_BYTES, SEGMENT_LEN) {
                Ok(superblock)
            } else {
                Err(SuperblockFault::OtherVersion(geometry.0))
            }
        }
        _ => Err(SuperblockFault::Damaged),
    }
}

const MAGIC: [u8; 8] = *b"WEIRSTOR";
