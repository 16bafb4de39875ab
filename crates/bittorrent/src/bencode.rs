//! Bencoding (BEP 3) over borrowed bytes.
//!
//! A [`Value`] is a view of the raw bytes of exactly one well-formed value, so
//! that a digest can be taken over what was really sent (the info-hash is a
//! digest of the raw `info` dictionary). Well-formedness is proved once, by one
//! pass without recursion and with a bounded stack; views are cut lazily after.
//! Nothing is allocated in proportion to the input, so there is no bomb to set.
//!
//! Strict where BEP 3 is: lengths and integers without leading zeros, no `-0`,
//! integers within `i64`, keys are strings. Tolerant where real clients are not:
//! keys in any order, and of two equal keys the first counts.

use std::fmt;

/// Lists and dictionaries that may be open at once: deeper input is refused.
///
/// Metadata needs five (`info`, `files`, one file, `path`), v2 file trees one
/// for each directory.
pub const DEPTH_MAX: usize = 32;

/// Why bytes are not one bencoded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BencodeError {
    /// The input ends inside a value.
    #[error("bencoded value ends too early, at byte {at}")]
    Truncated {
        /// Where more was expected.
        at: usize,
    },
    /// A byte that cannot stand here.
    #[error("unexpected byte {byte:#04x} at byte {at} of bencoded value")]
    Unexpected {
        /// Where.
        at: usize,
        /// Which.
        byte: u8,
    },
    /// An integer with leading zeros, without digits, `-0`, or outside `i64`.
    #[error("bad integer at byte {at} of bencoded value")]
    BadInteger {
        /// Where its `i` or its first digit stands.
        at: usize,
    },
    /// More nesting than allowed.
    #[error("bencoded value is nested too deep at byte {at}")]
    TooDeep {
        /// Where the container begins that is one too many.
        at: usize,
    },
    /// Bytes follow where the value should have been everything.
    #[error("bytes follow the bencoded value, from byte {at}")]
    Trailing {
        /// Where they begin.
        at: usize,
    },
}

/// A view of one well-formed value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// Exactly one well-formed value, nothing after it.
    raw: &'a [u8],
}

impl<'a> Value<'a> {
    /// The value that `input` is, with nothing after it.
    ///
    /// # Errors
    /// Any [`BencodeError`]; nesting is bounded by [`DEPTH_MAX`].
    pub fn parse(input: &'a [u8]) -> Result<Self, BencodeError> {
        let (value, rest) = Self::parse_prefix(input)?;
        if rest.is_empty() {
            Ok(value)
        } else {
            Err(BencodeError::Trailing { at: value.raw.len() })
        }
    }

    /// The value that `input` begins with, and what follows it (BEP 9 puts a
    /// piece of metadata right behind a dictionary).
    ///
    /// # Errors
    /// Any [`BencodeError`] but `Trailing`.
    pub fn parse_prefix(input: &'a [u8]) -> Result<(Self, &'a [u8]), BencodeError> {
        Self::parse_prefix_within(input, DEPTH_MAX)
    }

    /// [`Value::parse_prefix`] with at most `depth_max` containers open at once.
    ///
    /// # Errors
    /// Any [`BencodeError`] but `Trailing`.
    pub fn parse_prefix_within(
        input: &'a [u8],
        depth_max: usize,
    ) -> Result<(Self, &'a [u8]), BencodeError> {
        let (raw, rest) = input.split_at(span(input, depth_max)?);
        Ok((Self { raw }, rest))
    }

    /// The bytes as they were sent.
    pub const fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// The integer, if it is one.
    pub fn as_int(self) -> Option<i64> {
        let digits = self.raw.strip_prefix(b"i")?.strip_suffix(b"e")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// The byte string, if it is one.
    pub fn as_bytes(self) -> Option<&'a [u8]> {
        if !self.raw.first()?.is_ascii_digit() {
            return None;
        }
        let colon = self.raw.iter().position(|b| *b == b':')?;
        self.raw.get(colon + 1..)
    }

    /// Whether it is a list.
    pub fn is_list(self) -> bool {
        self.raw.first() == Some(&b'l')
    }

    /// Whether it is a dictionary.
    pub fn is_dict(self) -> bool {
        self.raw.first() == Some(&b'd')
    }

    /// The values of a list; none when it is not a list.
    pub fn items(self) -> Items<'a> {
        Items { rest: if self.is_list() { &self.raw[1..] } else { b"e" } }
    }

    /// The keys and values of a dictionary in the order sent; none when it is
    /// not a dictionary.
    pub fn entries(self) -> Entries<'a> {
        Entries { items: Items { rest: if self.is_dict() { &self.raw[1..] } else { b"e" } } }
    }

    /// The value under `key` of a dictionary; the first, should there be two.
    pub fn lookup(self, key: &[u8]) -> Option<Self> {
        self.entries().find(|(k, _)| *k == key).map(|(_, value)| value)
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.raw.len())
    }
}

/// The values of a list. See [`Value::items`].
#[derive(Clone, Debug)]
pub struct Items<'a> {
    /// Well-formed values and the `e` that ends the container.
    rest: &'a [u8],
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.first() == Some(&b'e') {
            return None;
        }
        // The whole was proved well-formed, the depth included.
        let (value, rest) = Value::parse_prefix_within(self.rest, usize::MAX).ok()?;
        self.rest = rest;
        Some(value)
    }
}

/// The entries of a dictionary. See [`Value::entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    items: Items<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.items.next()?.as_bytes()?;
        Some((key, self.items.next()?))
    }
}

/// Writes bencoded bytes. The caller keeps keys sorted and containers closed.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// With nothing written.
    pub const fn new() -> Self {
        Self { out: Vec::new() }
    }

    /// Begins a dictionary; [`Writer::end`] ends it.
    pub fn begin_dict(mut self) -> Self {
        self.out.push(b'd');
        self
    }

    /// Begins a list; [`Writer::end`] ends it.
    pub fn begin_list(mut self) -> Self {
        self.out.push(b'l');
        self
    }

    /// Ends the innermost container.
    pub fn end(mut self) -> Self {
        self.out.push(b'e');
        self
    }

    /// Writes an integer.
    pub fn int(mut self, value: i64) -> Self {
        self.out.extend_from_slice(format!("i{value}e").as_bytes());
        self
    }

    /// Writes a byte string, or a key.
    pub fn bytes(mut self, value: &[u8]) -> Self {
        self.out.extend_from_slice(format!("{}:", value.len()).as_bytes());
        self.out.extend_from_slice(value);
        self
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// What an open container waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    List,
    Key,
    ValueOfKey,
}

/// Bytes of the value that `input` begins with.
fn span(input: &[u8], depth_max: usize) -> Result<usize, BencodeError> {
    // Views are re-scanned often and are mostly flat: no allocation for those.
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    loop {
        let byte = *input.get(at).ok_or(BencodeError::Truncated { at })?;
        match (byte, open.last()) {
            (b'e', Some(Open::List | Open::Key)) => {
                open.pop();
                at += 1;
            }
            (b'0'..=b'9', _) => at = string_end(input, at)?,
            (_, Some(Open::Key)) => return Err(BencodeError::Unexpected { at, byte }),
            (b'i', _) => at = integer_end(input, at)?,
            (b'l' | b'd', _) => {
                if open.len() >= depth_max {
                    return Err(BencodeError::TooDeep { at });
                }
                open.push(if byte == b'l' { Open::List } else { Open::Key });
                at += 1;
                continue;
            }
            _ => return Err(BencodeError::Unexpected { at, byte }),
        }
        // One value is complete; its container moves on.
        match open.last_mut() {
            None => return Ok(at),
            Some(Open::List) => {}
            Some(state @ Open::Key) => *state = Open::ValueOfKey,
            Some(state @ Open::ValueOfKey) => *state = Open::Key,
        }
    }
}

/// Where the string ends whose length begins at `at`.
fn string_end(input: &[u8], at: usize) -> Result<usize, BencodeError> {
    let mut len = 0usize;
    let mut here = at;
    loop {
        match input.get(here) {
            None => return Err(BencodeError::Truncated { at: here }),
            Some(b':') => break,
            Some(digit @ b'0'..=b'9') => {
                if here > at && len == 0 {
                    return Err(BencodeError::BadInteger { at });
                }
                len = len
                    .checked_mul(10)
                    .and_then(|l| l.checked_add(usize::from(digit - b'0')))
                    .ok_or(BencodeError::BadInteger { at })?;
                here += 1;
            }
            Some(byte) => return Err(BencodeError::Unexpected { at: here, byte: *byte }),
        }
    }
    match (here + 1).checked_add(len) {
        Some(end) if end <= input.len() => Ok(end),
        _ => Err(BencodeError::Truncated { at: input.len() }),
    }
}

/// Where the integer ends whose `i` stands at `at`.
fn integer_end(input: &[u8], at: usize) -> Result<usize, BencodeError> {
    // `i`, a sign, the 19 digits of i64 and `e`; longer is out of range.
    let window = &input[at + 1..input.len().min(at + 22)];
    let Some(len) = window.iter().position(|b| *b == b'e') else {
        return Err(if window.len() < 21 {
            BencodeError::Truncated { at: input.len() }
        } else {
            BencodeError::BadInteger { at }
        });
    };
    let text = &window[..len];
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let negative = digits.len() < text.len();
    let well_formed = match digits {
        [] => false,
        [b'0'] => !negative,
        [first, ..] => *first != b'0' && digits.iter().all(u8::is_ascii_digit),
    };
    let in_range = std::str::from_utf8(text).is_ok_and(|t| t.parse::<i64>().is_ok());
    if well_formed && in_range { Ok(at + len + 2) } else { Err(BencodeError::BadInteger { at }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_each_kind_of_value() {
        let v = Value::parse(b"d1:ai-3e1:bl2:xyi0ee1:c0:e").unwrap();
        assert_eq!(v.lookup(b"a").unwrap().as_int(), Some(-3));
        let list: Vec<_> = v.lookup(b"b").unwrap().items().collect();
        assert_eq!(list[0].as_bytes(), Some(&b"xy"[..]));
        assert_eq!(list[1].as_int(), Some(0));
        assert_eq!(v.lookup(b"c").unwrap().as_bytes(), Some(&b""[..]));
        assert_eq!(v.lookup(b"d"), None);
    }

    #[test]
    fn keeps_the_raw_bytes_of_an_inner_value() {
        let v = Value::parse(b"d4:infod1:xi1e1:ai2eee").unwrap();
        assert_eq!(v.lookup(b"info").unwrap().raw(), b"d1:xi1e1:ai2ee");
    }

    #[test]
    fn refuses_what_bep_3_refuses() {
        for bad in [
            "i-0e",
            "i01e",
            "ie",
            "i-e",
            "i+1e",
            "i1",
            "01:a",
            "3:ab",
            "di1e1:ae",
            "d1:ae",
            "le1",
            "e",
            "x",
            "",
            "l",
            "i9223372036854775808e",
            "i99999999999999999999999999e",
            "99999999999999999999999:a",
            "-1:a",
        ] {
            assert!(Value::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(Value::parse(b"i-9223372036854775808e").unwrap().as_int(), Some(i64::MIN));
    }

    #[test]
    fn accepts_unsorted_and_repeated_keys_as_clients_send_them() {
        let v = Value::parse(b"d1:bi1e1:ai2e1:bi3ee").unwrap();
        assert_eq!(v.lookup(b"b").unwrap().as_int(), Some(1));
    }

    #[test]
    fn refuses_nesting_past_the_limit() {
        let nested = |n: usize| [vec![b'l'; n], vec![b'e'; n]].concat();
        assert!(Value::parse(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(
            Value::parse(&nested(DEPTH_MAX + 1)),
            Err(BencodeError::TooDeep { at: DEPTH_MAX })
        );
        let bomb = vec![b'd'; 1 << 20];
        assert!(Value::parse(&bomb).is_err());
    }

    #[test]
    fn gives_back_what_follows_a_value() {
        let (v, rest) = Value::parse_prefix(b"d8:msg_typei1eeDATA").unwrap();
        assert!(v.is_dict());
        assert_eq!(rest, b"DATA");
    }

    #[test]
    fn writes_what_it_reads() {
        let out = Writer::new().begin_dict().bytes(b"k").begin_list().int(7).end().end().finish();
        assert_eq!(out, b"d1:kli7eee");
        assert!(Value::parse(&out).is_ok());
    }

    proptest! {
        #[test]
        fn never_panics_and_never_reads_past_a_value(input in proptest::collection::vec(
            prop_oneof![Just(b'd'), Just(b'l'), Just(b'i'), Just(b'e'), Just(b':'), Just(b'-'), b'0'..=b'9', any::<u8>()], 0..64))
        {
            if let Ok((v, rest)) = Value::parse_prefix(&input) {
                prop_assert_eq!(v.raw().len() + rest.len(), input.len());
                prop_assert_eq!(Value::parse(v.raw()), Ok(v));
                for (_, inner) in v.entries() {
                    prop_assert!(Value::parse(inner.raw()).is_ok());
                }
                for inner in v.items() {
                    prop_assert!(Value::parse(inner.raw()).is_ok());
                }
            }
        }
    }
}
