//! Every family changes, every method is called, names keep the grammar.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use weir_session::{Event, LeaveReason, Leg, Reason};

use super::*;
use crate::state::StoreStatus;

/// Everything that can happen, once.
fn drive_everything(metrics: &Metrics) {
    let sessions = &metrics.sessions;
    sessions.session_started("bittorrent");
    sessions.session_started("bittorrent");
    sessions.session_ended("bittorrent");
    for leg in Leg::BOTH {
        sessions.session_event(&Event::Asked { leg, bytes: 30 });
        sessions.session_event(&Event::Served { leg, bytes: 20 });
        sessions.session_event(&Event::Fetched { leg, bytes: 10 });
        metrics.explicit.bytes_relayed(leg, 7);
        metrics.explicit.relay_cut();
    }
    sessions.session_event(&Event::CheckPassed { bytes: 5 });
    sessions.session_event(&Event::CheckFailed { bytes: 5 });
    sessions.session_event(&Event::MetadataLearnt);
    for reason in Reason::ALL {
        sessions.session_event(&Event::Ignored(reason));
    }
    for reason in LeaveReason::ALL {
        sessions.session_left(reason);
    }
    sessions.panics.inc();
    metrics.adopt.flow_adopted(Duration::from_micros(300));
    metrics.adopt.flow_given_back();
    metrics.adopt.set_kernel_source(|| BTreeMap::from([("map_full".to_owned(), 3)]));
    for kind in ProxyKind::ALL {
        metrics.explicit.connection_accepted(kind);
    }
    for reason in ExplicitRefusal::ALL {
        metrics.explicit.connection_refused(reason);
    }
    for reason in AdminRefusal::ALL {
        metrics.admin.request_refused(reason);
    }
    metrics.admin.follower_came();
    metrics.admin.follower_came();
    metrics.admin.follower_went();
    metrics.store.set_store_source(|| {
        Some(StoreStatus {
            capacity_bytes: 1,
            held_bytes: 1,
            used_bytes: 1,
            objects: 1,
            segments: 1,
            hits: 1,
            misses: 1,
            evicted_bytes: 1,
            declined_bytes: 1,
            checksum_failures: 1,
            errors: 1,
            degraded: true,
        })
    });
}

/// Samples as `name{labels}` and value.
fn samples(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name, value.parse().unwrap())
    })
}

#[test]
fn every_series_changes_when_everything_happens() {
    let metrics = Metrics::new();
    drive_everything(&metrics);
    let text = metrics.encode();
    for (name, value) in samples(&text) {
        let below_the_sample = name.contains("le=\"0.0001\"") || name.contains("le=\"0.00005\"");
        let below_the_sample = below_the_sample || name.contains("le=\"0.0002\"");
        assert!(value > 0.0 || below_the_sample, "{name} is still {value}\n{text}");
    }
}

#[test]
fn series_of_closed_enums_exist_before_anything_happens() {
    let text = Metrics::new().encode();
    assert!(text.contains("weir_sessions_served_bytes_total{leg=\"inside\"} 0"), "{text}");
    for reason in Reason::ALL {
        let series = format!("weir_sessions_ignored_total{{reason=\"{}\"}} 0", reason.as_str());
        assert!(text.contains(&series), "{series} is missing");
    }
}

#[test]
fn names_keep_the_grammar_and_help_is_there() {
    let metrics = Metrics::new();
    drive_everything(&metrics);
    let text = metrics.encode();
    let rooms = ["admin", "adopt", "explicit", "gateway", "sessions", "store"];
    for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
        let name = line.split(' ').nth(2).unwrap();
        let room = name.strip_prefix("weir_").and_then(|rest| rest.split('_').next());
        assert!(room.is_some_and(|room| rooms.contains(&room)), "{name}");
        let help = text.lines().find(|l| l.starts_with(&format!("# HELP {name} ")));
        let help = help.unwrap_or_else(|| panic!("{name} has no help"));
        assert!(help.ends_with('.') && !help.ends_with(".."), "{help}");
    }
}

#[test]
fn everything_that_counts_is_used_by_the_gateway() {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let rooms = fs::read_to_string(source.join("metrics/rooms.rs")).unwrap();
    let mut users = String::new();
    collect_sources(source, &mut users).unwrap();

    let (mut room, mut uses) = (String::new(), Vec::new());
    for line in rooms.lines() {
        if let Some(rest) =
            ["impl ", "pub struct "].iter().find_map(|start| line.strip_prefix(start))
        {
            room = rest.split(' ').next().unwrap().to_lowercase();
        } else if let Some(rest) = line.strip_prefix("    pub fn ") {
            uses.push(format!(".{}(", rest.split('(').next().unwrap()));
        } else if let Some(counter) = line.strip_prefix("    pub ")
            && let Some((name, "Counter,")) = counter.split_once(": ")
        {
            uses.push(format!("{room}.{name}.inc"));
        }
    }
    assert!(uses.len() >= 16, "the scan found only {uses:?}");
    let unused: Vec<_> = uses.iter().filter(|call| !users.contains(*call)).collect();
    assert!(unused.is_empty(), "nothing in the gateway says {unused:?}");
}

/// Appends every source file that is neither a metric's nor a test's, without
/// blanks and line ends.
fn collect_sources(dir: &Path, out: &mut String) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("metrics") {
                collect_sources(&path, out)?;
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs") {
            let source = fs::read_to_string(path)?;
            let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            out.extend(code.chars().filter(|c| !c.is_whitespace()));
        }
    }
    Ok(())
}

#[test]
fn reasons_are_those_that_occurred() {
    let metrics = Metrics::new();
    assert!(metrics.reasons().is_empty());
    metrics.sessions.session_event(&Event::Ignored(Reason::AssemblyFull));
    metrics.sessions.session_left(LeaveReason::Malformed);
    metrics.explicit.connection_refused(ExplicitRefusal::Timeout);
    metrics.explicit.connection_refused(ExplicitRefusal::Timeout);
    let expected = [("assembly_full", 1), ("malformed", 1), ("timeout", 2)];
    let expected = expected.map(|(reason, count)| (reason.to_owned(), count));
    assert_eq!(metrics.reasons(), BTreeMap::from(expected));
}

#[test]
fn content_bytes_are_those_of_the_events() {
    let metrics = Metrics::new();
    drive_everything(&metrics);
    let bytes = metrics.sessions.content_bytes();
    assert_eq!((bytes.asked, bytes.served, bytes.fetched), (60, 40, 20));
    assert_eq!((bytes.asked_inside, bytes.served_inside, bytes.fetched_inside), (30, 20, 10));
}

#[test]
fn percentiles_are_those_of_the_last_adoptions() {
    let metrics = Metrics::new();
    let adopt = &metrics.adopt;
    assert_eq!(adopt.held_percentiles(), (Duration::ZERO, Duration::ZERO));
    for _ in 0..10 {
        adopt.flow_adopted(Duration::from_secs(9));
    }
    for us in 1..=4096 {
        adopt.flow_adopted(Duration::from_micros(us));
    }
    let (p50, p99) = adopt.held_percentiles();
    assert_eq!(p50, Duration::from_micros(2048));
    assert_eq!(p99, Duration::from_micros(4056));
    assert_eq!(adopt.flow_counts(), (4106, 0));
}

#[test]
fn the_dashboard_explains_every_reason() {
    let page = include_str!("../../../../web/src/dashboard/core/health.ts");
    let reasons = Reason::ALL.map(Reason::as_str).into_iter();
    let reasons = reasons.chain(LeaveReason::ALL.map(LeaveReason::as_str));
    for reason in reasons.chain(ExplicitRefusal::ALL.map(ExplicitRefusal::as_str)) {
        assert!(page.contains(&format!("[\"{reason}\", ")), "{reason} has no explanation");
    }
}

#[test]
fn reasons_of_different_rooms_have_different_names() {
    let mut names: Vec<_> = Reason::ALL.map(Reason::as_str).to_vec();
    names.extend(LeaveReason::ALL.map(LeaveReason::as_str));
    names.extend(ExplicitRefusal::ALL.map(ExplicitRefusal::as_str));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_gateway_without_store_shows_no_store_series() {
    let metrics = Metrics::new();
    metrics.store.set_store_source(|| None);
    assert!(!metrics.encode().contains("weir_store_"));
}
