//! Signature packs: what an operator can add.

use serde::Deserialize;
use thiserror::Error;

use crate::{App, Match, Pattern, PatternError, Speaker, Verdict};

/// Most signatures of one pack; the kernel's table has the same bound.
pub const SIGNATURES_MAX: usize = 32;

/// What to do with a flow whose first bytes match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Take it into a session.
    Adopt,
    /// Count its app and let it pass.
    Count,
}

/// One pattern of one app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Whose it is.
    pub app: App,
    /// Who must have sent it; `None` for either.
    pub from: Option<Speaker>,
    /// What to do.
    pub action: Action,
    /// The bytes.
    pub pattern: Pattern,
}

/// An ordered list of signatures; the first match wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    signatures: Vec<Signature>,
}

/// A pack that cannot be used.
#[derive(Debug, Error)]
pub enum PackError {
    /// Not TOML, or a key that packs do not have.
    #[error("the signature pack cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// An app the gateway does not know.
    #[error("signature {index}: there is no app {app:?}")]
    App {
        /// Place in the pack, from 0.
        index: usize,
        /// What was written.
        app: String,
    },
    /// A bad pattern.
    #[error("signature {index} ({app}): {source}")]
    Pattern {
        /// Place in the pack, from 0.
        index: usize,
        /// Its app.
        app: App,
        /// What is wrong with it.
        source: PatternError,
    },
    /// Not exactly one of `text` and `hex`.
    #[error("signature {index} ({app}): give either text or hex")]
    Form {
        /// Place in the pack, from 0.
        index: usize,
        /// Its app.
        app: App,
    },
    /// More than [`SIGNATURES_MAX`].
    #[error("{0} signatures, at most {SIGNATURES_MAX} are possible")]
    TooMany(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackFile {
    #[serde(default)]
    signature: Vec<SignatureFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureFile {
    app: String,
    from: FromFile,
    action: Action,
    #[serde(default)]
    offset: usize,
    text: Option<String>,
    hex: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FromFile {
    Dialer,
    Either,
    Listener,
}

impl Pack {
    /// The pack Weir ships.
    pub fn builtin() -> Self {
        Self::parse(include_str!("../packs/builtin.toml")).expect("the built-in pack is tested")
    }

    /// Reads a pack.
    ///
    /// # Errors
    /// Says which signature is wrong and why.
    pub fn parse(text: &str) -> Result<Self, PackError> {
        let file: PackFile = toml::from_str(text)?;
        if file.signature.len() > SIGNATURES_MAX {
            return Err(PackError::TooMany(file.signature.len()));
        }
        let signatures = file.signature.into_iter().enumerate();
        let signatures = signatures.map(|(index, s)| s.resolve(index)).collect::<Result<_, _>>()?;
        Ok(Self { signatures })
    }

    /// The same pack with every signature of `app` only counted.
    #[must_use]
    pub fn without_adopting(mut self, app: App) -> Self {
        for signature in self.signatures.iter_mut().filter(|s| s.app == app) {
            signature.action = Action::Count;
        }
        self
    }

    /// The signatures, in order.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// What the first bytes that `speaker` sent in a flow say.
    pub fn classify(&self, speaker: Speaker, payload: &[u8]) -> Verdict {
        let mut need_more = false;
        for (index, signature) in self.signatures.iter().enumerate() {
            if signature.from.is_some_and(|from| from != speaker) {
                continue;
            }
            match signature.pattern.compare(payload) {
                Match::Yes => {
                    return Verdict::Match { index, app: signature.app, action: signature.action };
                }
                Match::SoFar => need_more = true,
                Match::No => {}
            }
        }
        if need_more { Verdict::NeedMore } else { Verdict::NoMatch }
    }
}

impl SignatureFile {
    fn resolve(self, index: usize) -> Result<Signature, PackError> {
        let app: App =
            self.app.parse().map_err(|()| PackError::App { index, app: self.app.clone() })?;
        let pattern = match (&self.text, &self.hex) {
            (Some(text), None) => Pattern::parse_text(self.offset, text),
            (None, Some(hex)) => Pattern::parse_hex(self.offset, hex),
            _ => return Err(PackError::Form { index, app }),
        };
        let pattern = pattern.map_err(|source| PackError::Pattern { index, app, source })?;
        let from = match self.from {
            FromFile::Dialer => Some(Speaker::Dialer),
            FromFile::Either => None,
            FromFile::Listener => Some(Speaker::Listener),
        };
        Ok(Signature { app, from, action: self.action, pattern })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdict(speaker: Speaker, payload: &[u8]) -> Option<App> {
        match Pack::builtin().classify(speaker, payload) {
            Verdict::Match { app, .. } => Some(app),
            Verdict::NeedMore | Verdict::NoMatch => None,
        }
    }

    #[test]
    fn recognises_what_it_ships_signatures_for() {
        let d = Speaker::Dialer;
        assert_eq!(verdict(d, b"\x13BitTorrent protocol\0\0"), Some(App::BitTorrent));
        assert_eq!(verdict(d, b"GET / HTTP/1.1\r\n"), Some(App::Http));
        assert_eq!(verdict(d, b"\x16\x03\x01\x02\x00\x01\x00"), Some(App::Tls));
        assert_eq!(verdict(d, b"GNUTELLA CONNECT/0.6\r\n"), Some(App::Gnutella));
        assert_eq!(verdict(Speaker::Listener, b"SSH-2.0-OpenSSH"), Some(App::Ssh));
        assert_eq!(verdict(Speaker::Listener, b"GET / HTTP/1.1"), None);
    }

    #[test]
    fn only_bittorrent_is_adopted_yet() {
        for signature in Pack::builtin().signatures() {
            assert_eq!(signature.action == Action::Adopt, signature.app == App::BitTorrent);
        }
        let off = Pack::builtin().without_adopting(App::BitTorrent);
        assert!(off.signatures().iter().all(|s| s.action == Action::Count));
    }

    #[test]
    fn refuses_packs_that_cannot_work() {
        let cases = [
            ("[[signature]]\napp='x'\nfrom='dialer'\naction='adopt'\ntext='a'", "no app"),
            ("[[signature]]\napp='ssh'\nfrom='dialer'\naction='adopt'", "either text or hex"),
            ("[[signature]]\napp='ssh'\nfrom='dialer'\naction='count'\nhex='zz'", "hexadecimal"),
            ("[[signature]]\napp='ssh'\nfrom='dialer'\naction='count'\ncolour=1", "unknown field"),
        ];
        for (text, want) in cases {
            let error = Pack::parse(text).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
        let one = "[[signature]]\napp='ssh'\nfrom='dialer'\naction='count'\ntext='a'\n";
        assert!(Pack::parse(&one.repeat(SIGNATURES_MAX)).is_ok());
        assert!(Pack::parse(&one.repeat(SIGNATURES_MAX + 1)).is_err());
    }

    proptest! {
        /// More bytes may settle an open verdict but never change a settled one.
        #[test]
        fn verdicts_are_final(payload in proptest::collection::vec(any::<u8>(), 0..80), cut in 0usize..80) {
            let pack = Pack::builtin();
            let short = &payload[..cut.min(payload.len())];
            let first = pack.classify(Speaker::Dialer, short);
            if first == Verdict::NoMatch {
                prop_assert_eq!(pack.classify(Speaker::Dialer, &payload), Verdict::NoMatch);
            }
        }
    }
}
