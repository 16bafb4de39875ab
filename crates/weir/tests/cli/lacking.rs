//! A machine that lacks something for mode adopt: rights, or the kernel's types.
//!
//! Interfaces of its own, in a network namespace of its own; needs root.

use std::fs::File;
use std::process::{Command, Output};

use crate::support::{Running, WEIR, command, is_root, said};

/// A router without links: two interfaces in a namespace, removed when dropped.
struct Router {
    ns: String,
}

impl Router {
    fn new(name: &str) -> Self {
        let router = Self { ns: format!("wk-w-{name}-{}", std::process::id()) };
        ip(&["netns", "add", &router.ns]);
        let pair = ["add", "gin", "type", "veth", "peer", "name", "gout"];
        ip(&[&["-n", &router.ns, "link"], &pair[..]].concat());
        for interface in ["lo", "gin", "gout"] {
            ip(&["-n", &router.ns, "link", "set", interface, "up"]);
        }
        router.exec(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
        router
    }

    /// What a program in the namespace said.
    fn exec(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        output
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command("ip");
        command.args(["netns", "exec", &self.ns]).args(arguments);
        command
    }

    /// `weir` as a user that is nobody, with these capabilities and no other.
    fn as_nobody(&self, capabilities: &[&str], args: &[&str]) -> Command {
        let sets = ["-all".to_owned()].into_iter();
        let sets = sets.chain(capabilities.iter().map(|one| format!("+{one}")));
        let sets = sets.collect::<Vec<_>>().join(",");
        let (inherited, ambient) = (format!("--inh-caps={sets}"), format!("--ambient-caps={sets}"));
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        // By its descriptor: nobody may not pass through every directory above it.
        let mut command = self.command(&nobody);
        command.args([&inherited, &ambient, "/proc/self/fd/0"]).args(args);
        command.stdin(File::open(WEIR).unwrap());
        command
    }

    /// What somebody would find who looks for traces of the gateway.
    fn traces(&self) -> String {
        let mut traces = Vec::new();
        for looked in [["ip", "rule"], ["ip", "link"], ["nft", "list"]] {
            let what = if looked[0] == "nft" { "ruleset" } else { "show" };
            traces.extend(self.exec(&[looked[0], looked[1], what]).stdout);
        }
        String::from_utf8(traces).unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Best effort: the test has failed or passed by now.
        Command::new("ip").args(["netns", "del", &self.ns]).status().map(drop).unwrap_or_default();
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
}

const SIDES: [&str; 4] = ["--inside", "gin", "--outside", "gout"];
const NO_STORE: [&str; 2] = ["--cache-size", "0"];

const NEEDED: [(&str, &str); 5] = [
    ("net_bind_service", "CAP_NET_BIND_SERVICE"),
    ("net_admin", "CAP_NET_ADMIN"),
    ("net_raw", "CAP_NET_RAW"),
    ("perfmon", "CAP_PERFMON"),
    ("bpf", "CAP_BPF"),
];

/// Without any right, and without one of those that are needed.
#[test]
fn who_lacks_rights_is_told_which() {
    if !is_root() {
        return;
    }
    let router = Router::new("rights");
    let check = [&["check"], &SIDES[..], &NO_STORE].concat();
    let all = NEEDED.map(|(name, _)| name);
    for left_out in [&all[..], &["bpf"], &["net_raw"], &["perfmon", "net_admin"]] {
        let (missing, held): (Vec<_>, Vec<_>) =
            NEEDED.into_iter().partition(|(name, _)| left_out.contains(name));
        let held: Vec<_> = held.into_iter().map(|(name, _)| name).collect();
        let missing: Vec<_> = missing.into_iter().map(|(_, name)| name).collect();
        let checked = router.as_nobody(&held, &check).output().unwrap();
        let found = String::from_utf8_lossy(&checked.stdout);
        assert_eq!(checked.status.code(), Some(77), "{found}{}", said(&checked));
        let wanted = format!("LACK  rights: missing: {}\n", missing.join(", "));
        assert!(found.contains(&wanted), "{wanted}{found}");
        assert!(found.contains("do: run as root, or: setcap cap_net_admin,"), "{found}");
        assert!(said(&checked).contains("lacking: rights"), "{}", said(&checked));
    }
    let checked = router.as_nobody(&all, &check).output().unwrap();
    let found = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{found}{}", said(&checked));
}

/// It does not start, says what is needed, and leaves nothing behind.
#[test]
fn running_without_rights_is_refused_with_what_to_do() {
    if !is_root() {
        return;
    }
    let router = Router::new("run");
    let before = router.traces();
    let run = [&["run", "--proxy", "off", "--api", "off"], &SIDES[..], &NO_STORE].concat();
    for held in [&[][..], &["net_admin", "net_raw", "net_bind_service"], &["bpf", "perfmon"]] {
        let ran = router.as_nobody(held, &run).output().unwrap();
        let told = said(&ran);
        assert_eq!(ran.status.code(), Some(77), "with {held:?}: {told}");
        for words in ["weir: error: ", "run as root, or with CAP_NET_ADMIN", "weir check"] {
            assert!(told.contains(words), "with {held:?}: {told}");
        }
        assert_eq!(router.traces(), before, "with {held:?}");
    }
}

/// `/sys/kernel/btf` is empty, as on a kernel built without: `check` names it, and
/// `run`, which only needs what the kernel itself still has here, tries and starts.
#[test]
fn a_kernel_without_btf_is_named_by_check() {
    if !is_root() {
        return;
    }
    let router = Router::new("btf");
    let without_btf = "mount -t tmpfs none /sys/kernel/btf; exec \"$@\"";
    let weir = |args: &[&str]| {
        let mut command = router.command(&["unshare", "-m", "sh", "-ec", without_btf, "sh", WEIR]);
        command.args(args).args(SIDES).args(NO_STORE);
        command
    };
    let checked = weir(&["check"]).output().unwrap();
    let found = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(69), "{found}{}", said(&checked));
    assert!(found.contains("LACK  btf: /sys/kernel/btf/vmlinux is not there\n"), "{found}");
    assert!(found.contains("do: use a kernel built with CONFIG_DEBUG_INFO_BTF=y"), "{found}");
    assert_eq!(said(&checked).trim(), "weir: error: lacking: btf", "{found}");

    let running = Running::of(weir(&["run", "--proxy", "off", "--api", "127.0.0.1:0"]));
    assert!(running.said.contains("adopting flows between gin"), "{}", running.said);
    running.end();
}
