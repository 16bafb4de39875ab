//! `weir run`.

use std::io::Write;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use weir_gateway::{Gateway, RunError, error_chain};
use weir_linux::StartError;

use crate::cli::RunArgs;
use crate::config;
use crate::exit::{Code, Failure, Outcome};
use crate::logs;

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let plan = config::resolve(config::load(args)?)?;
    logs::start(plan.log_level, plan.log_format);
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
    let ran = runtime.block_on(async {
        // Before anything is set up: what is set up is taken down in order.
        let stop = stop_signal();
        weir_gateway::run(plan.options, greet, stop).await
    });
    ran.map_err(failure)
}

/// A flow takes two descriptors, and four more while it is relayed; shells allow
/// far fewer than the kernel does.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "descriptor_limit_not_raised");
    }
}

/// Completes at the first SIGINT or SIGTERM after the call.
fn stop_signal() -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            tracing::error!("signals_unavailable");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping");
    }
}

/// Tells an operator where everything is.
fn greet(gateway: &Gateway) {
    let status = gateway.status();
    let mut lines = Vec::new();
    if status.adopt.is_some() {
        let (inside, outside) = (status.modes.inside.join(", "), status.modes.outside.join(", "));
        lines.push(format!("adopting flows between {inside} (inside) and {outside} (outside)"));
    }
    if let Some(addr) = gateway.listening.explicit {
        lines.push(format!("proxy for HTTP, CONNECT and SOCKS5 on {addr}"));
    }
    if let Some(addr) = gateway.listening.admin {
        lines.push(format!("dashboard on http://{addr}/"));
    }
    match (&status.store, &status.store_error) {
        (Some(store), _) => lines.push(format!(
            "store of {}, {} of it filled with {} objects",
            super::text::bytes(store.capacity_bytes),
            super::text::percent(store.held_bytes, store.capacity_bytes),
            store.objects
        )),
        (None, Some(why)) => lines.push(format!("NO STORE, nothing is cached: {why}")),
        (None, None) => lines.push("no store: nothing is cached".to_owned()),
    }
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        // Without a stderr the logs are gone as well; the gateway runs on.
        writeln!(stderr, "weir: {line}").unwrap_or_default();
    }
}

fn failure(error: RunError) -> Failure {
    match &error {
        RunError::Listen { source, .. } => {
            let code = match source.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Rights,
                _ => Code::Unavailable,
            };
            Failure::new(code, format!("{error}: {source}"))
                .hint("is another one running? --proxy and --api choose other addresses")
        }
        RunError::Adopt(start) => {
            let code = match start {
                StartError::Rights => Code::Rights,
                StartError::Interface(_) | StartError::Signature(_) => Code::Config,
                _ => Code::Unavailable,
            };
            Failure::new(code, error_chain(start))
                .hint("`weir check` with the same flags says what is missing")
        }
        RunError::Admin(_) => Failure::new(Code::Config, error.to_string()),
    }
}
