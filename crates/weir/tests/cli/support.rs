//! The binary, run as operators run it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{self, Signal};

pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A command that hears nothing of the environment.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_remove("WEIR_CONFIG").env_remove("WEIR_TOKEN");
    command
}

pub(crate) fn weir(args: &[&str]) -> Output {
    command(WEIR).args(args).output().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The code, and something the message must hold.
#[track_caller]
pub(crate) fn expect(args: &[&str], code: i32, words: &str) {
    let output = weir(args);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(words), "{args:?}: {said}");
}

/// Whether this process may change the machine for itself; says so when not.
pub(crate) fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// `command`, after `before` was done in a mount namespace of its own. It is the
/// same process in the end, so that a signal to it arrives.
pub(crate) fn with_mounts(before: &str, program: &str, args: &[&str]) -> Command {
    let mut command = command("unshare");
    let script = format!("set -e; {before}; exec \"$@\"");
    command.args(["-m", "sh", "-c", &script, "sh", program]).args(args);
    command
}

/// What makes a directory read-only there.
pub(crate) fn read_only(dir: &Path) -> String {
    let dir = dir.display();
    format!("mount --bind '{dir}' '{dir}'; mount -o remount,ro,bind '{dir}'")
}

/// Flags of `weir run` with a store in `dir`, on ports that are free.
pub(crate) fn run_args(dir: &Path) -> [&str; 9] {
    let dir = dir.to_str().unwrap();
    let any = "127.0.0.1:0";
    ["run", "--proxy", any, "--api", any, "--cache-size", "64MiB", "--cache-dir", dir]
}

/// A gateway of its own, ended when dropped.
pub(crate) struct Running {
    child: Child,
    /// Where the admin API listens.
    pub(crate) api: String,
    /// All that it said at the start.
    pub(crate) said: String,
}

impl Running {
    pub(crate) fn start(dir: &Path) -> Self {
        let mut weir = command(WEIR);
        weir.args(run_args(dir));
        Self::of(weir)
    }

    /// Waits until it says what store it has, which it says last.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            said.extend([line.as_str(), "\n"]);
            if line.starts_with("weir: ") && line.to_lowercase().contains("store") {
                break;
            }
        }
        let dashboard = said.split_once("dashboard on http://").and_then(|it| it.1.split_once('/'));
        let Some((api, _)) = dashboard else { panic!("where is the dashboard? {said}") };
        Self { child, api: api.to_owned(), said }
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let status = weir(&["status", "--json", "--api", &self.api]);
        assert!(status.status.success(), "{}", said(&status));
        serde_json::from_slice(&status.stdout).unwrap()
    }

    /// `weir status`, for people.
    pub(crate) fn status_text(&self) -> String {
        String::from_utf8(weir(&["status", "--api", &self.api]).stdout).unwrap()
    }

    /// A page of the admin API, head and body.
    pub(crate) fn page(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.api).unwrap();
        write!(socket, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut page = String::new();
        socket.read_to_string(&mut page).unwrap();
        page
    }

    pub(crate) fn end(mut self) {
        let id = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        signal::kill(id, Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, in the good case.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}
