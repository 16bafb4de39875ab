//! What can be said on the command line. Every flag of `run` has a key in the
//! configuration file that means the same; a flag wins.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::units::Size;

/// An edge gateway: it keeps bytes the network already has on its own side.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 90, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway; without anything else a proxy on 127.0.0.1:3128
    #[command(after_help = "Examples:
  weir run                                  a proxy for this machine, no rights needed
  weir run --inside eth1 --outside eth0     on a router: find and cache, as root
  weir run --config /etc/weir/weir.toml     as the file says")]
    Run(RunArgs),
    /// Say what the configuration, the kernel or the rights lack; change nothing
    Check(RunArgs),
    /// Show what a running gateway does
    Status(ApiArgs),
    /// Look at what is cached
    Cache {
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Show configurations
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Infer a piece length from requests on stdin, for the lab
    #[command(hide = true)]
    Infer(InferArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List the objects held
    Ls(ApiArgs),
    /// Drop an object
    Rm(RemoveArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the default configuration with an explanation of each key
    Default,
    /// Print the configuration that `run` would use
    Show(RunArgs),
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RunArgs {
    /// Configuration file [env: WEIR_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Interface towards the access network; may be repeated
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) inside: Vec<String>,
    /// Interface towards the expensive link; may be repeated
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) outside: Vec<String>,
    /// Address of the proxy port, or "off"
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) proxy: Option<String>,
    /// Address of the admin API and dashboard, or "off"
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) api: Option<String>,
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Size of the store, 0 for none
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_size: Option<Size>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ApiArgs {
    /// Admin API of the gateway to ask
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8480")]
    pub(crate) api: SocketAddr,
    /// Print JSON, as the API gives it
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RemoveArgs {
    /// Id of the object, as `weir cache ls` shows it
    pub(crate) id: String,
    /// Admin API of the gateway to ask
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8480")]
    pub(crate) api: SocketAddr,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct InferArgs {
    /// Leave out the reset heuristic
    #[arg(long)]
    pub(crate) no_reset: bool,
    /// Count every request as a sample, as the paper does
    #[arg(long)]
    pub(crate) every_request: bool,
}
