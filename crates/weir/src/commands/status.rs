//! `weir status`.

use std::fmt::Write;

use weir_gateway::state::Status;

use super::text::{bytes, percent, span};
use crate::api;
use crate::cli::ApiArgs;
use crate::exit::{Outcome, print};

pub(crate) fn run(args: &ApiArgs) -> Outcome {
    let (json, status) = api::get::<Status>(args.api, "/api/v1/status")?;
    if args.json { print(&format!("{}\n", json.trim_end())) } else { print(&show(&status)) }
}

fn show(status: &Status) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        writeln!(out, "{name:<12}{value}").expect("writing to a string does not fail");
    };
    row("weir", format!("{}, up {}", status.version, span(status.uptime_seconds)));
    let modes = &status.modes;
    if !modes.inside.is_empty() {
        row("adopting", format!("{} | {}", modes.inside.join(", "), modes.outside.join(", ")));
    }
    if let Some(addr) = &modes.explicit {
        row("proxy", addr.clone());
    }
    let b = &status.bytes;
    row("asked for", bytes(b.asked));
    row("served", format!("{} ({} from the store)", bytes(b.served), percent(b.served, b.asked)));
    row("fetched", bytes(b.fetched));
    match (&status.store, &status.store_error) {
        (Some(s), _) => {
            let (held, capacity) = (bytes(s.held_bytes), bytes(s.capacity_bytes));
            let fill = percent(s.held_bytes, s.capacity_bytes);
            row("store", format!("{held} of {capacity} ({fill}), {} objects", s.objects));
            if s.degraded {
                row("", "DEGRADED: writes are refused since an error of the device".to_owned());
            }
        }
        (None, Some(why)) => row("store", format!("NONE: {why}")),
        (None, None) => row("store", "none".to_owned()),
    }
    if let Some(adopt) = &status.adopt {
        let (p50, p99) = (adopt.held_p50_us, adopt.held_p99_us);
        let counts = format!("{}, {} given back", adopt.adopted, adopt.given_back);
        row("adopted", format!("{counts}; held {p50:.0} us median, {p99:.0} us p99"));
    }
    for (app, flows) in status.apps.iter().filter(|(_, flows)| flows.seen + flows.sessions > 0) {
        let text =
            format!("{} seen, {} sessions, {} now", flows.seen, flows.sessions, flows.active);
        row(app, text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_gateway::state::{AppFlows, ContentBytes};

    #[test]
    fn says_what_is_saved_and_what_is_wrong() {
        let mut status = Status {
            version: "1.2.3".into(),
            bytes: ContentBytes { asked: 4096, served: 1024, fetched: 3072, ..Default::default() },
            store_error: Some("disk full".into()),
            ..Status::default()
        };
        status.apps.insert("ssh".into(), AppFlows { seen: 2, sessions: 0, active: 0 });
        status.apps.insert("tls".into(), AppFlows::default());
        let text = show(&status);
        assert!(text.contains("1.0 KiB (25.0 % from the store)"), "{text}");
        assert!(text.contains("NONE: disk full"), "{text}");
        assert!(text.contains("ssh") && !text.contains("tls"), "{text}");
    }
}
