//! What can be said on the command line. Every flag of `run` has a key in the
//! configuration file that means the same; a flag wins.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::simulate::SimulateArgs;
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
    /// Look at what is cached, drop it, check it
    Cache {
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Show configurations
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Replay a trace of requests: which policy, and how large a cache
    #[command(after_help = "Examples:
  weir simulate trace.csv                              every policy, 1 to 10 % of the bytes
  weir simulate trace.csv --policy object-frequency --capacity 500GB,1TB
  weir simulate trace.oracleGeneral --object-bits 20   ids are object << 20 | segment

A trace is text whose first line is one of
  time_s,object,offset,length,download
  time_ms,client,object,size
  time_ms,client,object,size,offset,length
or libCacheSim's oracleGeneral, records of 24 bytes.")]
    Simulate(SimulateArgs),
    /// Infer a piece length from requests on stdin, for the lab
    #[command(hide = true)]
    Infer(InferArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List the objects held
    Ls(ApiArgs),
    /// Show one object
    Show(ShowArgs),
    /// Drop an object
    Rm(RemoveArgs),
    /// Read all that is held, and free what is not as it was written
    #[command(
        after_help = "The gateway does it while it serves; interrupted, this command leaves it to go on,
and called again it follows. Exit code 0: all is as it was written. 1: something
was not, or the disk would not read it."
    )]
    Verify(ApiArgs),
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
pub(crate) struct ShowArgs {
    /// Id of the object, as `weir cache ls` shows it, or how only this one begins
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RemoveArgs {
    /// Id of the object, as `weir cache ls` shows it, or how only this one begins
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
