//! From the file to what the gateway takes.

use std::io::{Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use weir_gateway::admin::AdminOptions;
use weir_gateway::{
    AdoptOptions, BitTorrentOptions, Credentials, ExplicitOptions, Options, StoreOptions,
};

use super::schema::{Capacity, Config, LogFormat};
use crate::exit::{Code, Failure};
use crate::units::Size;

/// Smallest store that makes sense.
const CAPACITY_MIN: u64 = 64 << 20;
/// Most memory for the store's buffers.
const MEMORY_MAX: usize = 64 << 30;
/// The share of the free disk that `auto` takes.
const AUTO_SHARE: u64 = 10;

/// What a configuration comes to.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) options: Options,
    pub(crate) log_level: tracing::Level,
    pub(crate) log_format: LogFormat,
}

/// Resolves `config`; secrets come from the environment.
pub(crate) fn resolve(config: Config) -> Result<Plan, Failure> {
    let adopt = adopt(&config)?;
    let explicit = explicit(&config)?;
    let admin = config.admin.enabled.then(|| {
        let listen = address("admin.listen", &config.admin.listen)?;
        let token = std::env::var("WEIR_TOKEN").ok().filter(|token| !token.is_empty());
        let options = AdminOptions { listen, token };
        options.check().map_err(|error| {
            Failure::new(Code::Config, error.to_string())
                .hint("set WEIR_TOKEN to at least 16 characters, or listen on 127.0.0.1")
        })?;
        Ok(options)
    });
    let assembly = config.bittorrent.assembly_memory;
    let bittorrent = BitTorrentOptions {
        enabled: config.bittorrent.enabled,
        answer_outside: config.bittorrent.answer_outside,
        serve_inferred: config.bittorrent.serve_inferred,
        assembly_bytes_max: usize::try_from(assembly.0)
            .map_err(|_| bad("bittorrent.assembly_memory", "is more than memory can be"))?,
    };
    let options = Options {
        adopt,
        explicit,
        admin: admin.transpose()?,
        store: store(&config)?,
        bittorrent,
        show_addresses: config.log.show_addresses,
    };
    let log_level = config
        .log
        .level
        .parse()
        .map_err(|_| bad("log.level", "is one of error, warn, info, debug and trace"))?;
    Ok(Plan { options, log_level, log_format: config.log.format })
}

fn bad(key: &str, why: &str) -> Failure {
    Failure::new(Code::Config, format!("{key} {why}"))
}

fn address(key: &str, text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| {
        let why = format!("is an address and a port, \"127.0.0.1:3128\" say, not {text:?}");
        bad(key, &why)
    })
}

fn in_range(key: &str, value: u32, least: u32, most: u32) -> Result<u32, Failure> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(bad(key, &format!("is {value}, and may be {least} to {most}")))
}

fn adopt(config: &Config) -> Result<Option<AdoptOptions>, Failure> {
    let c = &config.intercept;
    match (c.inside.is_empty(), c.outside.is_empty()) {
        (true, true) => return Ok(None),
        (false, false) => {}
        _ => {
            return Err(Failure::new(
                Code::Config,
                "inside and outside interfaces are given together or not at all",
            )
            .hint("weir run --inside eth1 --outside eth0"));
        }
    }
    if let Some(both) = c.inside.iter().find(|name| c.outside.contains(name)) {
        return Err(Failure::new(Code::Config, format!("{both} is named inside and outside")));
    }
    if !c.mark.is_power_of_two() || c.mark == 1 {
        return Err(bad("intercept.mark", "is one bit: a power of two from 0x2 up"));
    }
    Ok(Some(AdoptOptions {
        inside: c.inside.clone(),
        outside: c.outside.clone(),
        mark: c.mark,
        table: local_delivery_table(c.table)?,
        rule_pref: in_range("intercept.rule_pref", c.rule_pref, 1, 32_765)?,
        flows_max: in_range("intercept.flows_max", c.flows_max, 1024, 1 << 24)?,
        adopted_max: in_range("intercept.adopted_max", c.adopted_max, 16, 1 << 20)?,
    }))
}

/// The kernel's own tables route the whole machine; what the gateway puts into
/// its table would make every address a local one.
fn local_delivery_table(table: u32) -> Result<u32, Failure> {
    match table {
        0 | 253..=255 => {
            let why = format!("is {table}, one of the kernel's own; choose another");
            Err(bad("intercept.table", &why))
        }
        table => Ok(table),
    }
}

fn explicit(config: &Config) -> Result<Option<ExplicitOptions>, Failure> {
    let c = &config.explicit;
    if !c.enabled {
        return Ok(None);
    }
    let credentials = if c.user.is_empty() {
        None
    } else {
        let password = std::env::var("WEIR_PROXY_PASSWORD").ok().filter(|p| !p.is_empty());
        let password = password.ok_or_else(|| {
            bad("explicit.user", "is set, but there is no password")
                .hint("set WEIR_PROXY_PASSWORD in the environment")
        })?;
        Some(Credentials { user: c.user.clone(), password })
    };
    let clients = c.clients.iter().map(|text| {
        text.parse().map_err(|error| bad("explicit.clients", &format!("holds {text:?}; {error}")))
    });
    let most = in_range("explicit.connections_max", c.connections_max, 1, 1_000_000)?;
    Ok(Some(ExplicitOptions {
        listen: address("explicit.listen", &c.listen)?,
        clients: clients.collect::<Result<_, _>>()?,
        credentials,
        connections_max: usize::try_from(most).expect("a million fits"),
    }))
}

fn store(config: &Config) -> Result<Option<StoreOptions>, Failure> {
    let c = &config.store;
    if !c.enabled {
        return Ok(None);
    }
    let dir = if c.dir.is_empty() { default_dir()? } else { PathBuf::from(&c.dir) };
    let device = (!c.device.is_empty()).then(|| PathBuf::from(&c.device));
    let capacity_bytes = match c.capacity {
        Capacity::Fixed(Size(bytes)) if bytes < CAPACITY_MIN => {
            let why = format!("is {}, and may not be below {}", Size(bytes), Size(CAPACITY_MIN));
            return Err(bad("store.capacity", &why));
        }
        Capacity::Fixed(Size(bytes)) => bytes,
        Capacity::Auto => match &device {
            Some(device) => device_capacity(device)?,
            None => auto_capacity(&dir)?,
        },
    };
    let policy = c.policy.parse().map_err(|error| bad("store.policy", &format!("is: {error}")))?;
    let memory_bytes = usize::try_from(c.memory.0).ok().filter(|bytes| *bytes <= MEMORY_MAX);
    let memory_bytes = memory_bytes.ok_or_else(|| {
        bad("store.memory", &format!("may not be above {}", Size(MEMORY_MAX as u64)))
    })?;
    Ok(Some(StoreOptions {
        memory_bytes,
        device,
        policy,
        ..StoreOptions::new(dir, capacity_bytes)
    }))
}

/// All of a device but its label.
fn device_capacity(device: &Path) -> Result<u64, Failure> {
    let end = std::fs::File::open(device).and_then(|mut file| file.seek(SeekFrom::End(0)));
    let end = end.map_err(|error| {
        Failure::new(Code::Config, format!("cannot use {}: {error}", device.display()))
            .hint("store.device names a block device, /dev/sdb1 say")
    })?;
    Ok(end.saturating_sub(weir_store::disk::LABEL_AREA_BYTES))
}

fn default_dir() -> Result<PathBuf, Failure> {
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/weir"));
    }
    let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = xdg.or_else(home).ok_or_else(|| {
        bad("store.dir", "is not set, and there is no HOME to put the store under")
    })?;
    Ok(base.join("weir"))
}

/// What is there already, else a tenth of the free disk.
fn auto_capacity(dir: &Path) -> Result<u64, Failure> {
    if let Ok(data) = std::fs::metadata(dir.join(weir_store::disk::File::Data.name())) {
        return Ok(data.len());
    }
    // The directory may not be there yet; its nearest ancestor's disk counts.
    let stat = dir.ancestors().find_map(|at| nix::sys::statvfs::statvfs(at).ok());
    let free = stat.map_or(0, |stat| stat.blocks_available().saturating_mul(stat.fragment_size()));
    let share = free / AUTO_SHARE;
    if share < CAPACITY_MIN {
        let error = format!(
            "a tenth of the free disk at {} is less than {}",
            dir.display(),
            Size(CAPACITY_MIN)
        );
        return Err(Failure::new(Code::Config, error)
            .hint("free some space, name another --cache-dir, or run with --cache-size 0"));
    }
    Ok(share)
}
