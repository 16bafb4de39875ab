//! Signatures in the form the kernel compares: words, moved to their offset.

use crate::abi::{APPS_MAX, SIGNATURE_BYTES, SIGNATURES_MAX, WINDOW};

/// Which end's first payload a signature is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The end that sent the SYN.
    Dialer,
    /// The end that answered it.
    Listener,
    /// Whichever speaks first.
    Either,
}

/// One pattern for the first bytes of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSignature {
    /// Where the pattern begins, in bytes from the first payload byte.
    /// `offset + value.len() <= 64`.
    pub offset: u8,
    /// What is there, 1 to 32 bytes.
    pub value: Vec<u8>,
    /// Which bits count; as long as `value`.
    pub mask: Vec<u8>,
    /// Whose first payload.
    pub from: Speaker,
    /// Index for the counters, below 64.
    pub app: u16,
    /// Adopt the flow; otherwise it is counted and passes.
    pub adopt: bool,
}

/// Why a pack of signatures was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// More than the kernel looks at.
    #[error("{count} signatures given, at most {max} are looked at")]
    TooMany {
        /// How many were given.
        count: usize,
        /// How many fit.
        max: usize,
    },
    /// Not 1 to 32 bytes, or beyond the first 64.
    #[error("signature {index}: 1 to 32 bytes within the first 64 are compared")]
    Length {
        /// Which.
        index: usize,
    },
    /// `mask` is not as long as `value`.
    #[error("signature {index}: mask and value differ in length")]
    Mask {
        /// Which.
        index: usize,
    },
    /// The app's index is beyond the counters.
    #[error("signature {index}: app {app} is not below {max}")]
    App {
        /// Which.
        index: usize,
        /// Its app.
        app: u16,
        /// The bound.
        max: usize,
    },
}

/// The whole array, the unused entries zero.
pub(crate) fn encode(
    pack: &[KernelSignature],
) -> Result<Vec<[u8; SIGNATURE_BYTES]>, SignatureError> {
    if pack.len() > SIGNATURES_MAX {
        return Err(SignatureError::TooMany { count: pack.len(), max: SIGNATURES_MAX });
    }
    let mut entries = vec![[0; SIGNATURE_BYTES]; SIGNATURES_MAX];
    for (index, (signature, entry)) in pack.iter().zip(&mut entries).enumerate() {
        encode_one(index, signature, entry)?;
    }
    Ok(entries)
}

fn encode_one(
    index: usize,
    signature: &KernelSignature,
    entry: &mut [u8; SIGNATURE_BYTES],
) -> Result<(), SignatureError> {
    let start = usize::from(signature.offset);
    let end = start + signature.value.len();
    if signature.value.is_empty() || signature.value.len() > 32 || end > WINDOW {
        return Err(SignatureError::Length { index });
    }
    if signature.mask.len() != signature.value.len() {
        return Err(SignatureError::Mask { index });
    }
    if usize::from(signature.app) >= APPS_MAX {
        return Err(SignatureError::App { index, app: signature.app, max: APPS_MAX });
    }
    for (i, (value, mask)) in signature.value.iter().zip(&signature.mask).enumerate() {
        entry[start + i] = value & mask;
        entry[WINDOW + start + i] = *mask;
    }
    entry[128..130].copy_from_slice(&signature.app.to_ne_bytes());
    entry[130] = u8::try_from(end).expect("end <= 64");
    entry[131] = match signature.from {
        Speaker::Dialer => 1,
        Speaker::Listener => 2,
        Speaker::Either => 3,
    };
    entry[132] = u8::from(signature.adopt);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(offset: u8, len: usize) -> KernelSignature {
        KernelSignature {
            offset,
            value: vec![0xff; len],
            mask: vec![0x0f; len],
            from: Speaker::Either,
            app: 3,
            adopt: true,
        }
    }

    #[test]
    fn a_pattern_lies_at_its_offset_under_its_mask() {
        let entries = encode(&[signature(2, 4)]).unwrap();
        assert_eq!(entries[0][..8], [0, 0, 0x0f, 0x0f, 0x0f, 0x0f, 0, 0]);
        assert_eq!(entries[0][64..72], [0, 0, 0x0f, 0x0f, 0x0f, 0x0f, 0, 0]);
        assert_eq!(entries[0][128..133], [3, 0, 6, 3, 1]);
        assert_eq!(entries[1], [0; SIGNATURE_BYTES]);
    }

    #[test]
    fn what_the_kernel_cannot_compare_is_refused_at_the_limit() {
        assert!(encode(&[signature(32, 32)]).is_ok());
        assert_eq!(encode(&[signature(33, 32)]), Err(SignatureError::Length { index: 0 }));
        assert_eq!(encode(&[signature(0, 33)]), Err(SignatureError::Length { index: 0 }));
        assert_eq!(encode(&[signature(0, 0)]), Err(SignatureError::Length { index: 0 }));
        let mut bad = signature(0, 2);
        bad.mask.pop();
        assert_eq!(encode(&[bad]), Err(SignatureError::Mask { index: 0 }));
        let mut bad = signature(0, 2);
        bad.app = 64;
        assert_eq!(encode(&[bad]), Err(SignatureError::App { index: 0, app: 64, max: 64 }));
        assert!(encode(&vec![signature(0, 1); 64]).is_ok());
        assert_eq!(
            encode(&vec![signature(0, 1); 65]),
            Err(SignatureError::TooMany { count: 65, max: 64 })
        );
    }
}
