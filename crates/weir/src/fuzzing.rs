//! What must hold of an operator's text, whatever it is; run by the fuzz target.

use crate::config::{Config, resolve};
use crate::units::Size;

/// `text` is a configuration file, and a size.
///
/// # Panics
///
/// When what is read does not read back as the same.
pub fn config(text: &str) {
    if let Ok(size) = Size::parse(text) {
        assert_eq!(Size::parse(&size.to_string()), Ok(size));
    }
    let Ok(config) = Config::parse("fuzz.toml", text.to_owned()) else { return };
    let shown = toml::to_string(&config).expect("every configuration can be shown");
    let read = Config::parse("shown.toml", shown);
    assert!(read.is_ok_and(|read| read == config), "what is shown reads back");
    // Refused or not; the environment and the disk have their say, too.
    resolve(config).ok();
}
