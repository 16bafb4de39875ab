//! Object ids.

use std::fmt;
use std::str::FromStr;

/// The 128-bit name of an object: what is cached as one thing.
///
/// Rooms derive it from a digest that names the content, so that two flows that
/// carry the same content meet in the same object. Shown as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u128);

/// A text that is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseObjectIdError;

impl ObjectId {
    /// The id whose big-endian bytes are `bytes`.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Big-endian bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The id as a number, for hashing.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl From<u128> for ObjectId {
    fn from(value: u128) -> Self {
        Self(value)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

impl FromStr for ObjectId {
    type Err = ParseObjectIdError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        if s.len() != 32 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ParseObjectIdError);
        }
        u128::from_str_radix(s, 16).map(Self).map_err(|_| ParseObjectIdError)
    }
}

impl fmt::Display for ParseObjectIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object id is 32 hexadecimal digits")
    }
}

impl std::error::Error for ParseObjectIdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let id = ObjectId::from_bytes(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_bytes(), *b"0123456789abcdef");
    }

    #[test]
    fn refuses_signs_and_other_lengths() {
        for bad in ["", "+1234567890123456789012345678901", "0", "g0000000000000000000000000000000"]
        {
            assert_eq!(bad.parse::<ObjectId>(), Err(ParseObjectIdError), "{bad}");
        }
    }
}
