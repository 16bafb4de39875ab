//! The head of a checkpoint: written last, so that a whole head means a whole body.

use super::{FORMAT_VERSION, Fields, seal, unseal};

/// Says that the frames after it are the index as of the start of `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointHeader {
    /// The store it belongs to.
    pub(crate) generation: u64,
    /// Its number; the journal's frames that follow on it carry the same.
    pub(crate) epoch: u64,
    /// Bytes of frames after the head.
    pub(crate) body_bytes: u64,
}

impl CheckpointHeader {
    /// One block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(FORMAT_VERSION.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.body_bytes.to_le_bytes());
        seal(&out)
    }

    /// `None` when it is damaged, or of another version.
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        let mut fields = Fields(unseal(block)?);
        if fields.array()? != MAGIC || fields.u32()? != FORMAT_VERSION {
            return None;
        }
        fields.u32()?;
        let (generation, epoch, body_bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        // One more must be a number, too.
        (epoch < u64::MAX).then_some(Self { generation, epoch, body_bytes })
    }
}

const MAGIC: [u8; 8] = *b"WEIRCKPT";
