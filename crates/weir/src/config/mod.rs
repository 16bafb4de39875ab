//! The configuration: a TOML file, flags on top, resolved into plain options.
//!
//! `schema` is the file as it is written; `resolve` turns it into what the
//! gateway takes, parsed, not validated later. The commented default file is
//! embedded, and a test holds it equal to the schema's defaults.

mod resolve;
mod schema;

use std::path::Path;

pub(crate) use resolve::resolve;
pub(crate) use schema::{Config, LogFormat};

use crate::cli::RunArgs;
use crate::exit::{Code, Failure};

/// The default configuration, with an explanation of each key.
pub(crate) const DEFAULT: &str = include_str!("default.toml");

/// Reads the file that `args` or the environment name, and puts the flags on top.
pub(crate) fn load(args: &RunArgs) -> Result<Config, Failure> {
    let from_env = || std::env::var_os("WEIR_CONFIG").map(Into::into);
    let path = args.config.clone().or_else(from_env);
    let mut config = path.as_deref().map_or_else(|| Ok(Config::default()), read)?;
    config.apply(args)?;
    Ok(config)
}

fn read(path: &Path) -> Result<Config, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(Code::Config, format!("cannot read {}: {error}", path.display()))
    })?;
    Config::parse(&path.display().to_string(), text)
}

#[cfg(test)]
mod tests;
