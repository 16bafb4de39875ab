//! The `weir` command: an edge gateway that keeps bytes the network already has
//! on its own side.
//!
//! People's words go to stderr, data to stdout. Exit codes are documented in
//! `exit.rs` and are API. A library only so that its parsers can be fuzzed.

#![forbid(unsafe_code)]

mod api;
mod cli;
mod commands;
mod config;
mod exit;
#[cfg(fuzzing)]
pub mod fuzzing;
mod logs;
mod units;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{CacheCommand, Cli, Command, ConfigCommand};

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    let result = match cli.command {
        Command::Run(args) => commands::run::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Cache { command: CacheCommand::Ls(args) } => commands::cache::list(&args),
        Command::Cache { command: CacheCommand::Show(args) } => commands::cache::show(&args),
        Command::Cache { command: CacheCommand::Rm(args) } => commands::cache::remove(&args),
        Command::Cache { command: CacheCommand::Verify(args) } => commands::verify::run(&args),
        Command::Config { command: ConfigCommand::Default } => commands::config::default(),
        Command::Config { command: ConfigCommand::Show(args) } => commands::config::show(&args),
        Command::Simulate(args) => commands::simulate::run(&args),
        Command::Infer(args) => commands::infer::run(&args),
    };
    exit::report(result)
}
