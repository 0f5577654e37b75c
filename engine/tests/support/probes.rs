//! Programs that are compiled for a test, and the engine's verdict on parking them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::order::{self, Order};
use super::peer::{Finished, Peer};
use super::sandbox::{install, wait_until, Sandbox};

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probes/parked.c");

/// An engine that tries to park a program at its first use.
pub fn eager() -> Sandbox {
    Sandbox::with(&[("WAFD_PARK_AFTER", "1")])
}

/// Compiles the probe. `before` has C statements for the end of its constructor.
#[track_caller]
pub fn probe(sandbox: &Sandbox, name: &str, before: &str) -> PathBuf {
    build(sandbox, name, before, &[])
}

#[track_caller]
pub fn build(sandbox: &Sandbox, name: &str, before: &str, flags: &[&str]) -> PathBuf {
    let fresh = sandbox.path(format!("{name}.fresh"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-w", "-pthread", PROBE, "-o"]).arg(&fresh).args(flags);
    if !before.is_empty() {
        cc.arg(format!("-DBEFORE={before}"));
    }
    assert!(cc.args(["-ldl"]).status().unwrap().success(), "cc {name}");
    let path = sandbox.path(name);
    install(&fresh, &path);
    fs::remove_file(fresh).unwrap();
    path.canonicalize().unwrap()
}

/// The engine's report on a program.
#[track_caller]
pub fn entry(peer: &mut Peer, path: &Path) -> Value {
    let report = peer.report();
    let programs = report["parking"]["programs"].as_array().expect("programs").iter();
    let wanted = path.to_string_lossy();
    let found = programs.rev().find(|p| p["path"] == *wanted);
    found.cloned().unwrap_or(Value::Null)
}

/// How many of a program's commands ran parked.
#[track_caller]
pub fn parked_runs(peer: &mut Peer, path: &Path) -> u64 {
    entry(peer, path)["commands"].as_u64().unwrap_or(0)
}

/// Sends commands until the engine has decided. Returns the state and its description.
#[track_caller]
pub fn judge(peer: &mut Peer, order: &Order, path: &Path) -> (String, String) {
    let mut last = Value::Null;
    wait_until(&format!("{} is judged", path.display()), || {
        peer.run(order);
        last = entry(peer, path);
        last["state"] == "parked" || last["state"] == "refused"
    });
    let text = |name: &str| last[name].as_str().unwrap().to_owned();
    (text("state"), text("words"))
}

/// Sends commands until the program is parked.
#[track_caller]
pub fn park(peer: &mut Peer, path: &Path) {
    let (state, words) = judge(peer, &told(path, &["--version"]), path);
    assert_eq!(state, "parked", "{}: {words}", path.display());
}

/// Runs a command, which must be run parked.
#[track_caller]
pub fn run_parked(peer: &mut Peer, path: &Path, order: &Order) -> Finished {
    let before = parked_runs(peer, path);
    let finished = peer.run(order);
    let after = parked_runs(peer, path);
    assert_eq!(after, before + 1, "not run parked: {}", peer.report()["parking"]);
    finished
}

/// A command of a program.
pub fn told<T: AsRef<OsStr>>(path: &Path, args: &[T]) -> Order {
    let words = std::iter::once(path.as_os_str()).chain(args.iter().map(AsRef::as_ref));
    let words: Vec<&[u8]> = words.map(OsStr::as_bytes).collect();
    order::command(&words)
}

/// The process in which a program is parked.
#[track_caller]
pub fn parked_process(peer: &mut Peer, path: &Path) -> i32 {
    let entry = entry(peer, path);
    entry["parked"][0]["pid"].as_i64().unwrap_or_else(|| panic!("{entry}")) as i32
}
