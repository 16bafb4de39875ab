//! `weir config`.

use crate::cli::RunArgs;
use crate::config::{self, DEFAULT};
use crate::exit::{Code, Failure, Outcome, print};

pub(crate) fn default() -> Outcome {
    print(DEFAULT)
}

pub(crate) fn show(args: &RunArgs) -> Outcome {
    let config = config::load(args)?;
    let text = toml::to_string(&config);
    print(&text.map_err(|error| Failure::new(Code::Failed, error.to_string()))?)
}
