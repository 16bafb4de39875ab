//! What the admin API is told at the start.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

/// How the admin API listens, and who may ask.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminOptions {
    /// Where it listens. Only a loopback address goes without a token.
    pub listen: SocketAddr,
    /// The bearer token that `/api` and `/metrics` ask for, at least 16 bytes.
    pub token: Option<String>,
}

/// Why options are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OptionsError {
    /// An address that others can reach, and no token.
    #[error("the admin API on {0} needs a token, because others can reach that address")]
    TokenMissing(SocketAddr),
    /// A token that can be guessed.
    #[error("the admin token has {0} bytes, and needs at least {TOKEN_BYTES_MIN}")]
    TokenShort(usize),
    /// A token that no `Authorization` header can carry, RFC 6750 §2.1.
    #[error("the admin token holds a character other than letters, digits and -._~+/=")]
    TokenCharacter,
}

impl AdminOptions {
    /// Refuses what must not be served.
    ///
    /// # Errors
    ///
    /// No token on an address that is not loopback; on any address a token that
    /// is too short or that a header cannot carry.
    pub fn check(&self) -> Result<(), OptionsError> {
        match &self.token {
            None if !is_loopback(self.listen.ip()) => Err(OptionsError::TokenMissing(self.listen)),
            None => Ok(()),
            Some(token) if token.len() < TOKEN_BYTES_MIN => {
                Err(OptionsError::TokenShort(token.len()))
            }
            Some(token) if !token.bytes().all(is_token_byte) => Err(OptionsError::TokenCharacter),
            Some(_) => Ok(()),
        }
    }
}

// The token stays out of logs.
impl fmt::Debug for AdminOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminOptions")
            .field("listen", &self.listen)
            .field("token", &self.token.as_ref().map(|_| "redacted"))
            .finish()
    }
}

/// Whether only this machine reaches `ip`.
pub(super) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// RFC 6750 §2.1, `b64token`.
const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

const TOKEN_BYTES_MIN: usize = 16;
