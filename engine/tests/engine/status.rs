//! The engine's status report, and the engine in the foreground.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};

use crate::support::order::{command, shell};
use crate::support::peer::hello;
use crate::support::process;
use crate::support::sandbox::{end_of, new_session, run, wait_until, Sandbox};
use serde_json::{json, Value};
use wafengine::files::folder::ENGINE;
use wafengine::wire::{Hello, WISH_OWN_SLOTS};

fn keys(value: &Value) -> Vec<&str> {
    let mut found: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    found.sort_unstable();
    found
}

/// The report for programs has these keys with these values.
#[test]
fn the_report_is_complete() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.stranger();
    peer.welcome(&Hello {
        name: b"/src/project \xff".to_vec(),
        wishes: WISH_OWN_SLOTS,
        ..hello(new_session(), 3)
    });
    peer.define(0, sandbox.environment());
    peer.run(&shell("exit 0"));
    peer.run(&shell("exit 1"));
    peer.run(&command(&["/no/such/command"]));
    peer.run(&shell("sleep 1000").timeout(std::time::Duration::from_millis(1)));
    peer.submit(&command(&["sleep", "1000"]));
    let mut report = Value::Null;
    wait_until("the command runs", || {
        report = sandbox.status();
        report["commands"]
            .as_array()
            .is_some_and(|commands| !commands.is_empty())
    });
    assert_eq!(
        keys(&report),
        [
            "brake",
            "cache",
            "cluster",
            "commands",
            "connections",
            "leaving",
            "memory_kib",
            "memory_waits",
            "parking",
            "pid",
            "protocol",
            "sessions",
            "slots",
            "socket",
            "tcp_port",
            "totals",
            "uptime_s",
            "version"
        ]
    );
    assert!(report["cache"].is_null());
    assert!(report["cluster"].is_null());
    assert_eq!(report["version"], ENGINE);
    assert_eq!(report["protocol"], 1);
    assert_eq!(report["pid"], peer.pid);
    assert_eq!(report["socket"], sandbox.socket().to_str().unwrap());
    assert_eq!(report["leaving"], false);
    assert!(report["tcp_port"].is_null());
    assert!(report["uptime_s"].as_f64().unwrap() > 0.0);
    assert_eq!(report["slots"], json!({"capacity": 0, "running": 1, "waiting": 0}));
    assert!(report["connections"].as_u64().unwrap() >= 1);
    assert!(report["memory_kib"].as_u64().unwrap() > 100);
    let mut session = report["sessions"][0].clone();
    let id = session["id"].take();
    assert!(session["seconds"].take().as_f64().unwrap() > 0.0);
    assert_eq!(
        session,
        json!({
            "name": "/src/project \u{fffd}", "pid": std::process::id(), "jobs": 3, "running": 1, "waiting": 0,
            "connections": 1, "own_slots": true, "neighbor": {}, "memory_waits": null, "id": null, "seconds": null,
            "hits": 0, "succeeded": 1, "failed": 3,
        })
    );
    let commands = report["commands"].as_array().unwrap();
    assert_eq!(
        keys(&commands[0]),
        ["argv", "folder", "id", "known", "pid", "seconds", "session", "why"]
    );
    assert_eq!(commands[0]["session"], id);
    assert!(commands[0]["known"].is_null() && commands[0]["why"].is_null());
    assert_eq!(commands[0]["argv"], json!(["sleep", "1000"]));
    assert!(process::command_line(commands[0]["pid"].as_i64().unwrap() as i32).starts_with("sleep 1000"));
    let totals = &report["totals"];
    for (key, count) in [
        ("sessions", 1),
        ("succeeded", 1),
        ("failed", 1),
        ("not_started", 1),
        ("timed_out", 1),
        ("cancelled", 0),
        ("malformed", 0),
    ] {
        assert_eq!(totals[key], count, "{key}");
    }
    for key in ["connections", "peak_kib"] {
        assert!(totals[key].as_u64().unwrap() > 0, "{key}");
    }
    for key in ["user_s", "system_s", "wall_s", "queued_s"] {
        assert!(totals[key].as_f64().unwrap() >= 0.0, "{key}");
    }
    assert_eq!(
        keys(&totals["refused"]),
        ["crowded", "greeting", "leaving", "place", "token", "version"]
    );
}

/// The report for users names the same things, each in a line.
#[test]
fn the_text_has_the_same_facts() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--tcp"]).succeeded();
    let mut peer = sandbox.client(2);
    peer.run(&shell("exit 1"));
    peer.submit(&command(&["sleep", "1000"]));
    wait_until("the command runs", || {
        !sandbox.status()["commands"].as_array().unwrap().is_empty()
    });
    let report = sandbox.status();
    let text = sandbox.run(&["status"]).succeeded();
    for part in [
        format!("wafd {ENGINE}, process {}", peer.pid),
        sandbox.socket().to_str().unwrap().to_owned(),
        format!("127.0.0.1:{}", report["tcp_port"]),
        "1 of 2 in use, 0 commands wait".to_owned(),
        "test (process".to_owned(),
        "-j2, 1 running, 0 waiting".to_owned(),
        "sleep 1000".to_owned(),
        "failed".to_owned(),
    ] {
        assert!(text.contains(&part), "{part:?} in\n{text}");
    }
}

/// Control characters in names and arguments do not reach the terminal.
#[test]
fn control_characters_are_not_shown() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.stranger();
    peer.welcome(&Hello {
        name: b"bad\x1b[2Jname\nengine  none".to_vec(),
        ..hello(new_session(), 1)
    });
    peer.define(0, sandbox.environment());
    peer.submit(&command(&["sh", "-c", "sleep 1000\n: \x1b]0;title\x07"]));
    wait_until("the command runs", || {
        !sandbox.status()["commands"].as_array().unwrap().is_empty()
    });
    let text = sandbox.run(&["status"]).succeeded();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("engine  none")), "{text}");
}

/// `status` without an engine is one line, and starts none.
#[test]
fn without_an_engine_there_is_no_status() {
    let sandbox = Sandbox::new();
    for args in [&["status"][..], &["status", "--json"]] {
        let line = sandbox.run(args).failed();
        assert!(line.contains("no engine runs"), "{line}");
    }
    assert!(sandbox.processes().is_empty());
}

/// A report fits into its frame, however long the running commands are.
#[test]
fn long_commands_fit_into_a_report() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(16);
    let long = "x".repeat(100_000);
    for _ in 0..16 {
        let mut argv = vec!["/bin/sh", "-c", "sleep 1000"];
        argv.extend([long.as_str(); 10]);
        peer.submit(&command(&argv));
    }
    wait_until("all run", || {
        sandbox.status()["commands"].as_array().unwrap().len() == 16
    });
    sandbox.run(&["status"]).succeeded();
}

// ---- in the foreground

/// An engine in the foreground, and the line that it prints when it is ready.
struct Foreground {
    child: Child,
    stdout: BufReader<ChildStdout>,
    line: String,
}

fn foreground(sandbox: &Sandbox, args: &[&str]) -> Foreground {
    let mut command = sandbox.wafd(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    Foreground { child, stdout, line }
}

/// In the foreground an engine prints a line when it is ready, serves, logs to standard error, and exits with 0 when it
/// is stopped.
#[test]
fn it_serves_in_the_foreground() {
    let sandbox = Sandbox::new();
    for args in [&["--foreground"][..], &["start", "--foreground"]] {
        let mut engine = foreground(&sandbox, args);
        assert_eq!(engine.line, format!("ready unix {}\n", sandbox.socket().display()));
        assert_eq!(sandbox.client(1).run(&shell("echo served")).text(), "served\n");
        // A start finds it. A second one in the foreground is an error.
        sandbox.start();
        let line = sandbox.run(&["--foreground"]).failed();
        assert!(line.contains("runs already"), "{line}");
        sandbox.run(&["stop"]).succeeded();
        let mut rest = String::new();
        engine.stdout.read_line(&mut rest).unwrap();
        assert_eq!(rest, "");
        let said = end_of(engine.child);
        assert_eq!(said.status, Some(0), "{said:?}");
        assert!(said.stderr.contains("starts"), "{said:?}");
        assert!(!sandbox.file("log").exists());
    }
}

/// The line has the port, if a port was asked for.
#[test]
fn it_opens_a_port_in_the_foreground() {
    let sandbox = Sandbox::new();
    let engine = foreground(&sandbox, &["--foreground", "--tcp"]);
    let (port, _) = sandbox.folder().read_token().unwrap();
    assert_eq!(
        engine.line,
        format!("ready tcp {port} {}\n", sandbox.file("tcp").display())
    );
    sandbox.run(&["stop", "--now"]).succeeded();
    assert_eq!(end_of(engine.child).status, Some(0));
}

/// Ctrl-C, which a terminal sends to the whole group, ends it with its commands. So does SIGTERM.
#[test]
fn an_interrupt_ends_it() {
    for (signal, whole_group) in [
        (libc::SIGINT, true),
        (libc::SIGINT, false),
        (libc::SIGTERM, false),
        (libc::SIGHUP, true),
    ] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.wafd(&["--foreground"]);
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let mut peer = sandbox.client(2);
        peer.submit(&shell("sleep 1000 & wait"));
        peer.submit(&shell("trap '' INT TERM; sleep 1000 & wait; sleep 1000"));
        wait_until("they run", || sandbox.status()["slots"]["running"] == 2);
        let pid = child.id() as i32;
        match whole_group {
            // SAFETY: the process group of our own child.
            true => drop(unsafe { libc::kill(-pid, signal) }),
            false => process::kill(pid, signal),
        }
        let said = end_of(child);
        assert_eq!(said.status, Some(0), "{said:?}");
        sandbox.wait_until_empty();
        assert!(!sandbox.socket().exists());
    }
}

/// If the engine itself is killed, the exit status of the foreground process shows it.
#[test]
fn a_killed_engine_is_reported_in_the_foreground() {
    let sandbox = Sandbox::new();
    let engine = foreground(&sandbox, &["--foreground"]);
    let mut peer = sandbox.client(1);
    let note = sandbox.name("pid");
    peer.submit(&shell(&format!("sleep 1000 & echo $! > {note}; wait")));
    let pid = process::number_in(note.as_ref());
    process::kill(peer.pid, libc::SIGKILL);
    assert_eq!(end_of(engine.child).status, Some(128 + libc::SIGKILL));
    assert!(!process::lives(pid));
}

/// An idle engine leaves in the foreground, too.
#[test]
fn it_leaves_when_idle_in_the_foreground() {
    let sandbox = Sandbox::new();
    let engine = foreground(&sandbox, &["--foreground", "--idle", "1"]);
    assert_eq!(end_of(engine.child).status, Some(0));
    sandbox.wait_until_empty();
}

/// A mistake in the foreground is reported, and leaves nothing behind.
#[test]
fn a_mistake_in_the_foreground_is_reported() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.socket()).unwrap();
    let said = run(&mut sandbox.wafd(&["--foreground"]));
    assert_eq!((said.status, &said.stdout[..]), (Some(1), ""), "{said:?}");
    let last = said.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("wafd: ") && last.contains(sandbox.socket().to_str().unwrap()),
        "{said:?}"
    );
    sandbox.wait_until_empty();
}

/// Open descriptors of the caller do not reach the commands.
#[test]
fn commands_get_no_descriptors_of_a_caller_in_the_foreground() {
    let sandbox = Sandbox::new();
    let file = File::open("/dev/null").unwrap();
    let number = file.as_raw_fd();
    let mut start = sandbox.wafd(&["--foreground"]);
    start.stdout(Stdio::piped()).stderr(Stdio::null());
    // SAFETY: only a system call. The copy stays open in the engine, since the caller forgot close-on-exec.
    unsafe {
        start.pre_exec(move || match libc::dup2(number, 77) {
            77 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut child = start.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let text = sandbox.client(1).run(&command(&["ls", "/proc/self/fd"])).text();
    assert_eq!(text, "0\n1\n2\n3\n");
    sandbox.run(&["stop"]).succeeded();
    end_of(child);
}
