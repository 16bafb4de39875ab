//! The apps the gateway can tell apart.

use std::fmt;
use std::str::FromStr;

/// What a flow carries. A closed list: each is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum App {
    /// Advanced Direct Connect.
    Adc,
    /// BitTorrent over TCP (BEP 3).
    BitTorrent,
    /// eDonkey and eMule.
    EDonkey,
    /// Gnutella 0.6.
    Gnutella,
    /// HTTP/1 and HTTP/2 in clear.
    Http,
    /// SMTP, FTP and POP: protocols whose server greets first.
    Mail,
    /// SSH.
    Ssh,
    /// TLS, whatever is in it.
    Tls,
}

impl App {
    /// All, in order.
    pub const ALL: [Self; 8] = [
        Self::Adc,
        Self::BitTorrent,
        Self::EDonkey,
        Self::Gnutella,
        Self::Http,
        Self::Mail,
        Self::Ssh,
        Self::Tls,
    ];

    /// Stable name, for packs, metrics and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adc => "adc",
            Self::BitTorrent => "bittorrent",
            Self::EDonkey => "edonkey",
            Self::Gnutella => "gnutella",
            Self::Http => "http",
            Self::Mail => "mail",
            Self::Ssh => "ssh",
            Self::Tls => "tls",
        }
    }

    /// Place in [`App::ALL`].
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|app| *app == self).expect("ALL lists every app")
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for App {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|app| app.as_str() == s).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (i, app) in App::ALL.into_iter().enumerate() {
            assert_eq!(app.as_str().parse(), Ok(app));
            assert_eq!(app.index(), i);
        }
        assert_eq!("kazaa".parse::<App>(), Err(()));
    }
}
