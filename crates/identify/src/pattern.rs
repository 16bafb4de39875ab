//! One fixed byte pattern with a mask.

use thiserror::Error;

/// Longest pattern, in bytes. The kernel's table has the same bound.
pub const PATTERN_BYTES_MAX: usize = 32;

/// A pattern lies within this many first bytes of a payload.
pub const WINDOW_BYTES: usize = 64;

/// Bytes to be found at a fixed offset; a zero mask bit matches anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    offset: usize,
    value: Vec<u8>,
    mask: Vec<u8>,
}

/// How some bytes compare with a [`Pattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The pattern is there.
    Yes,
    /// What is there agrees so far, but it ends too early.
    SoFar,
    /// A byte differs.
    No,
}

/// A pattern that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// There is nothing to match.
    #[error("the pattern is empty")]
    Empty,
    /// It is longer than [`PATTERN_BYTES_MAX`].
    #[error("the pattern has {0} bytes, at most {PATTERN_BYTES_MAX} are possible")]
    TooLong(usize),
    /// It ends after [`WINDOW_BYTES`].
    #[error("the pattern ends at byte {0}, only the first {WINDOW_BYTES} are looked at")]
    TooFar(usize),
    /// It begins with bytes that match anything, so it could match too much.
    #[error("the pattern begins with a byte that matches anything")]
    Floating,
    /// A text escape is not `\\`, or `\x` with two digits.
    #[error("bad escape at character {0}: write \\\\ or \\xNN")]
    Escape(usize),
    /// Not pairs of hexadecimal digits or `??`.
    #[error("{0:?} is neither two hexadecimal digits nor ??")]
    Hex(String),
}

impl Pattern {
    /// `value` at `offset`, every bit significant.
    pub fn exact(offset: usize, value: &[u8]) -> Result<Self, PatternError> {
        Self::masked(offset, value.to_vec(), vec![0xff; value.len()])
    }

    /// Parses the `text` form of a pack: literal characters, `\\`, `\xNN`.
    pub fn parse_text(offset: usize, text: &str) -> Result<Self, PatternError> {
        let mut value = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let at = text.len() - rest.len();
            rest = &rest[c.len_utf8()..];
            if c != '\\' {
                value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            } else if let Some(after) = rest.strip_prefix('\\') {
                value.push(b'\\');
                rest = after;
            } else {
                let digits = rest.strip_prefix('x').and_then(|r| r.get(..2));
                let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
                value.push(byte.ok_or(PatternError::Escape(at))?);
                rest = &rest[3..];
            }
        }
        Self::exact(offset, &value)
    }

    /// Parses the `hex` form of a pack: byte pairs, `??` for any byte.
    pub fn parse_hex(offset: usize, hex: &str) -> Result<Self, PatternError> {
        let (mut value, mut mask) = (Vec::new(), Vec::new());
        for pair in hex.split_ascii_whitespace() {
            if pair == "??" {
                value.push(0);
                mask.push(0);
                continue;
            }
            let digits = pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
            let byte = u8::from_str_radix(pair, 16).ok().filter(|_| digits);
            value.push(byte.ok_or_else(|| PatternError::Hex(pair.to_owned()))?);
            mask.push(0xff);
        }
        Self::masked(offset, value, mask)
    }

    fn masked(offset: usize, value: Vec<u8>, mask: Vec<u8>) -> Result<Self, PatternError> {
        let end = offset.saturating_add(value.len());
        match mask.first() {
            None => Err(PatternError::Empty),
            Some(0) => Err(PatternError::Floating),
            Some(_) if value.len() > PATTERN_BYTES_MAX => Err(PatternError::TooLong(value.len())),
            Some(_) if end > WINDOW_BYTES => Err(PatternError::TooFar(end)),
            Some(_) => Ok(Self { offset, value, mask }),
        }
    }

    /// Compares with the first bytes of a payload.
    pub fn compare(&self, payload: &[u8]) -> Match {
        let seen = payload.get(self.offset..).unwrap_or_default();
        let pairs = self.value.iter().zip(&self.mask);
        if !seen.iter().zip(pairs).all(|(byte, (value, mask))| byte & mask == *value) {
            return Match::No;
        }
        if seen.len() >= self.value.len() { Match::Yes } else { Match::SoFar }
    }

    /// Offset of the first byte.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The bytes, zero where the mask is.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// As long as [`Pattern::value`].
    pub fn mask(&self) -> &[u8] {
        &self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_not_yet_from_no() {
        let p = Pattern::parse_text(0, r"\x13BitTorrent protocol").unwrap();
        assert_eq!(p.compare(b""), Match::SoFar);
        assert_eq!(p.compare(b"\x13BitTor"), Match::SoFar);
        assert_eq!(p.compare(b"\x13BitTorrent protocol\0\0"), Match::Yes);
        assert_eq!(p.compare(b"\x13BitTorn"), Match::No);
    }

    #[test]
    fn mask_matches_any_byte() {
        let p = Pattern::parse_hex(0, "e3 ?? ?? 00 00 01").unwrap();
        assert_eq!(p.compare(&[0xe3, 9, 9, 0, 0, 1, 7]), Match::Yes);
        assert_eq!(p.compare(&[0xe3, 9, 9, 0, 1]), Match::No);
        let p = Pattern::parse_hex(4, "aa").unwrap();
        assert_eq!(p.compare(&[1, 2, 3]), Match::SoFar);
    }

    #[test]
    fn refuses_what_cannot_be_matched() {
        assert_eq!(Pattern::parse_text(0, ""), Err(PatternError::Empty));
        assert_eq!(Pattern::parse_hex(0, "?? 01"), Err(PatternError::Floating));
        assert_eq!(Pattern::exact(0, &[1; 33]), Err(PatternError::TooLong(33)));
        assert_eq!(Pattern::exact(33, &[1; 32]), Err(PatternError::TooFar(65)));
        assert!(Pattern::exact(32, &[1; 32]).is_ok());
        assert_eq!(Pattern::parse_text(0, r"a\q"), Err(PatternError::Escape(1)));
        assert_eq!(Pattern::parse_text(0, "\\x1"), Err(PatternError::Escape(0)));
        assert_eq!(Pattern::parse_hex(0, "+1"), Err(PatternError::Hex("+1".into())));
        assert_eq!(Pattern::exact(usize::MAX, &[1]), Err(PatternError::TooFar(usize::MAX)));
    }
}
