//! The file, as it is written.

use miette::{LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde::{Deserialize, Serialize};

use crate::cli::RunArgs;
use crate::exit::{Code, Failure};
use crate::units::Size;

/// A whole configuration. `config/default.toml` explains the keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) intercept: Intercept,
    pub(crate) explicit: Explicit,
    pub(crate) admin: Admin,
    pub(crate) store: Store,
    pub(crate) bittorrent: BitTorrent,
    pub(crate) log: Log,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Intercept {
    pub(crate) inside: Vec<String>,
    pub(crate) outside: Vec<String>,
    pub(crate) mark: u32,
    pub(crate) table: u32,
    pub(crate) rule_pref: u32,
    pub(crate) flows_max: u32,
    pub(crate) adopted_max: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Explicit {
    pub(crate) enabled: bool,
    pub(crate) listen: String,
    pub(crate) clients: Vec<String>,
    pub(crate) user: String,
    pub(crate) connections_max: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Admin {
    pub(crate) enabled: bool,
    pub(crate) listen: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Store {
    pub(crate) enabled: bool,
    pub(crate) dir: String,
    pub(crate) device: String,
    pub(crate) capacity: Capacity,
    pub(crate) memory: Size,
    pub(crate) policy: String,
}

/// `"auto"` or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    Auto,
    Fixed(Size),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BitTorrent {
    pub(crate) enabled: bool,
    pub(crate) answer_outside: bool,
    pub(crate) serve_inferred: bool,
    pub(crate) assembly_memory: Size,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
    pub(crate) show_addresses: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Json,
    Text,
}

impl Config {
    /// Reads `text`; an error shows the line and points at what is wrong.
    pub(crate) fn parse(name: &str, text: String) -> Result<Self, Failure> {
        toml::from_str(&text).map_err(|error| {
            let label = error.span().map(|span| LabeledSpan::at(span, error.message()));
            let diagnostic = MietteDiagnostic::new(format!("{name} is no valid configuration"))
                .with_labels(label);
            let report = Report::new(diagnostic).with_source_code(NamedSource::new(name, text));
            Failure::new(Code::Config, format!("{report:?}"))
                .hint("`weir config default` prints every key with its meaning")
        })
    }

    /// Puts the flags on top of the file.
    pub(crate) fn apply(&mut self, args: &RunArgs) -> Result<(), Failure> {
        if !args.inside.is_empty() {
            self.intercept.inside.clone_from(&args.inside);
        }
        if !args.outside.is_empty() {
            self.intercept.outside.clone_from(&args.outside);
        }
        for (flag, enabled, listen) in [
            (&args.proxy, &mut self.explicit.enabled, &mut self.explicit.listen),
            (&args.api, &mut self.admin.enabled, &mut self.admin.listen),
        ] {
            match flag.as_deref() {
                None => {}
                Some("off") => *enabled = false,
                Some(addr) => {
                    *enabled = true;
                    addr.clone_into(listen);
                }
            }
        }
        if let Some(dir) = &args.cache_dir {
            let dir = dir.to_str();
            let dir = dir.ok_or_else(|| Failure::new(Code::Usage, "--cache-dir is not UTF-8"))?;
            dir.clone_into(&mut self.store.dir);
        }
        match args.cache_size {
            None => {}
            Some(Size(0)) => self.store.enabled = false,
            Some(size) => {
                self.store.enabled = true;
                self.store.capacity = Capacity::Fixed(size);
            }
        }
        Ok(())
    }
}

impl Default for Intercept {
    fn default() -> Self {
        Self {
            inside: Vec::new(),
            outside: Vec::new(),
            mark: 0x4000_0000,
            table: 8480,
            rule_pref: 100,
            flows_max: 262_144,
            adopted_max: 65_536,
        }
    }
}

impl Default for Explicit {
    fn default() -> Self {
        let clients = [
            "127.0.0.0/8",
            "::1/128",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "fc00::/7",
            "fe80::/10",
        ];
        Self {
            enabled: true,
            listen: "127.0.0.1:3128".to_owned(),
            clients: clients.map(str::to_owned).to_vec(),
            user: String::new(),
            connections_max: 16_384,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self { enabled: true, listen: "127.0.0.1:8480".to_owned() }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            enabled: true,
            dir: String::new(),
            device: String::new(),
            capacity: Capacity::Auto,
            memory: Size(128 << 20),
            policy: "object-frequency".to_owned(),
        }
    }
}

impl Default for BitTorrent {
    fn default() -> Self {
        Self {
            enabled: true,
            answer_outside: true,
            serve_inferred: false,
            assembly_memory: Size(256 << 20),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text, show_addresses: false }
    }
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "auto" {
            return Ok(Self::Auto);
        }
        Size::parse(&text).map(Self::Fixed).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Capacity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(size) => size.serialize(serializer),
        }
    }
}
