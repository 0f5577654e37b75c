//! The end of an engine: killed, stopped, idle or replaced. It leaves nothing behind.

use std::fs;
use std::process::{Child, Stdio};

use crate::support::order::shell;
use crate::support::peer::{bytes_of, hello, Peer};
use crate::support::process;
use crate::support::sandbox::{end_of, install, new_session, run, wait_until, Sandbox};
use wafengine::wire::{Request, Verdict, Why};

/// Starts a command that ignores signals, with a child. Both write to a file as long as they live. Returns both
/// processes.
fn start_stubborn_command(sandbox: &Sandbox, peer: &mut Peer, name: &str) -> [i32; 2] {
    let file = sandbox.name(&format!("{name}.file"));
    let pid_files = [0, 1].map(|i| sandbox.name(&format!("{name}.pid{i}")));
    let work = format!("while :; do echo line >> {file}; sleep 0.002; done");
    let script = format!(
        "trap '' TERM INT HUP; ({work}) & echo $! > {}; echo $$ > {}; {work}",
        pid_files[0], pid_files[1]
    );
    peer.submit(&shell(&script));
    pid_files.map(|note| process::number_in(note.as_ref()))
}

fn written(sandbox: &Sandbox, name: &str) -> u64 {
    fs::metadata(sandbox.path(format!("{name}.file"))).map_or(0, |m| m.len())
}

#[track_caller]
fn assert_nothing_is_written(sandbox: &Sandbox, name: &str) {
    let before = written(sandbox, name);
    assert!(before > 0);
    for _ in 0..20 {
        sandbox.tick();
    }
    assert_eq!(
        written(sandbox, name),
        before,
        "a command of an engine that is gone still works"
    );
}

#[track_caller]
fn wait_until_gone(pid: i32) {
    wait_until("the process is gone", || !process::lives(pid));
}

fn spawn(sandbox: &Sandbox, args: &[&str]) -> Child {
    let mut command = sandbox.wafd(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn assert_serves(sandbox: &Sandbox) {
    assert_eq!(sandbox.client(1).run(&shell("echo served")).text(), "served\n");
}

// ---- killed

/// When the engine is killed, its clients notice at once, and its commands are killed with their children. When the
/// next start is ready, all are gone.
#[test]
fn commands_end_with_a_killed_engine() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(4);
    let pids: Vec<[i32; 2]> = (0..4)
        .map(|i| start_stubborn_command(&sandbox, &mut peer, &format!("h{i}")))
        .collect();
    process::kill(peer.pid, libc::SIGKILL);
    assert_eq!(peer.receive(), None, "the connection ends");
    sandbox.start();
    for pid in pids.iter().flatten() {
        assert!(!process::lives(*pid), "it lived when the next engine was ready");
    }
    (0..4).for_each(|i| assert_nothing_is_written(&sandbox, &format!("h{i}")));
    assert_ne!(sandbox.engine(), peer.pid);
    assert_serves(&sandbox);
}

/// If the guardian was stopped by a signal, the next start wakes it, and waits until it has killed the engine's
/// commands.
#[test]
fn the_next_start_wakes_the_guardian_and_waits_for_it() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let [child, leader] = start_stubborn_command(&sandbox, &mut peer, "stubborn");
    let guardian = sandbox.guardian();
    process::stop(guardian);
    process::kill(peer.pid, libc::SIGKILL);
    let before = written(&sandbox, "stubborn");
    wait_until("the child works", || written(&sandbox, "stubborn") > before);
    end_of(spawn(&sandbox, &["start"])).succeeded();
    for pid in [child, leader] {
        assert!(!process::lives(pid), "ready beside a remnant of the last engine");
    }
    assert_nothing_is_written(&sandbox, "stubborn");
}

/// A background child that holds its command's pipe counts as running: it ends with a killed engine.
#[test]
fn a_background_child_ends_with_a_killed_engine() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let pid_files = ["leader", "child"].map(|name| sandbox.name(name));
    peer.submit(&shell(&format!(
        "sleep 1000 & echo $! > {}; echo $$ > {}",
        pid_files[1], pid_files[0]
    )));
    let [leader, child] = pid_files.map(|note| process::number_in(note.as_ref()));
    wait_until_gone(leader);
    // When another client is served, the engine has noticed the command's end.
    assert_serves(&sandbox);
    process::kill(peer.pid, libc::SIGKILL);
    sandbox.start();
    assert!(!process::lives(child));
}

/// Background processes of finished commands are not killed: their process numbers may have been reused.
#[test]
fn background_processes_of_finished_commands_are_not_killed() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let note = sandbox.name("server");
    peer.run(&shell(&format!("setsid sleep 1000 >/dev/null 2>&1 & echo $! > {note}")))
        .text();
    peer.run(&shell(&format!("sleep 1000 >/dev/null 2>&1 & echo $! > {note}2")))
        .text();
    let pids = [note.clone(), format!("{note}2")].map(|note| process::number_in(note.as_ref()));
    process::kill(peer.pid, libc::SIGKILL);
    sandbox.start();
    for pid in pids {
        assert!(process::lives(pid));
        process::kill(pid, libc::SIGKILL);
    }
}

/// An engine whose guardian is killed goes on, and ends like any other.
#[test]
fn an_engine_goes_on_without_its_guardian() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let gate = sandbox.close_gate("gate");
    let id = peer.submit(&shell(&format!("{}; echo unharmed", gate.script)));
    let guardian = process::parent(peer.pid);
    process::kill(guardian, libc::SIGKILL);
    wait_until_gone(guardian);
    gate.open();
    assert_eq!(peer.finish(id).text(), "unharmed\n");
    assert_eq!(sandbox.start(), format!("ready unix {}\n", sandbox.socket().display()));
    assert_eq!(sandbox.engine(), peer.pid);
    // No second engine is started beside it.
    assert_serves(&sandbox);
    sandbox.run(&["stop"]).succeeded();
    sandbox.wait_until_empty();
}

/// A killed guardian is replaced, and so is its replacement. If the engine is then killed, nothing of its commands is
/// left when the next start is ready.
#[test]
fn a_killed_guardian_is_replaced() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let [child, leader] = start_stubborn_command(&sandbox, &mut peer, "stubborn");
    let held = || fs::read_to_string(sandbox.file("lock")).unwrap();
    for stops in [false, true] {
        let signed = held();
        let guardian = signed.trim().parse().unwrap();
        if stops {
            process::stop(guardian);
        }
        process::kill(guardian, libc::SIGKILL);
        wait_until("another has signed", || !["", &signed].contains(&&*held()));
    }
    assert_serves(&sandbox);
    process::kill(peer.pid, libc::SIGKILL);
    wait_until_gone(leader);
    sandbox.start();
    assert!(!process::lives(child), "ready beside a remnant of the last engine");
    assert_nothing_is_written(&sandbox, "stubborn");
    assert_serves(&sandbox);
}

/// The new guardian kills neither commands that have ended nor what they left on purpose.
#[test]
fn a_new_guardian_kills_running_commands_and_nothing_else() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let note = sandbox.name("server");
    peer.run(&shell(&format!("sleep 1000 >/dev/null 2>&1 & echo $! > {note}")))
        .text();
    let server = process::number_in(note.as_ref());
    process::kill(sandbox.guardian(), libc::SIGKILL);
    wait_until("another has signed", || {
        let holder = fs::read_to_string(sandbox.file("lock")).unwrap();
        holder.trim().parse().is_ok_and(process::lives)
    });
    process::kill(peer.pid, libc::SIGKILL);
    sandbox.start();
    assert!(process::lives(server));
    process::kill(server, libc::SIGKILL);
}

/// If engine and guardian are both killed, their commands are killed at once. Everything that the commands have started
/// is gone before the next engine is ready.
#[test]
fn commands_end_with_engine_and_guardian() {
    for stops in [false, true] {
        let sandbox = Sandbox::started();
        let mut peer = sandbox.client(2);
        let note = sandbox.name("pid");
        peer.submit(&shell(&format!(
            "trap '' TERM INT HUP; echo $$ > {note}; while :; do read x; done"
        )));
        let alone = process::number_in(note.as_ref());
        let family = start_stubborn_command(&sandbox, &mut peer, "stubborn");
        let guardian = process::parent(peer.pid);
        if stops {
            process::stop(peer.pid);
        }
        process::kill(guardian, libc::SIGKILL);
        process::kill(peer.pid, libc::SIGKILL);
        wait_until_gone(alone);
        sandbox.start();
        for pid in family {
            assert!(!process::lives(pid), "ready beside a remnant of the last engine");
        }
        assert_nothing_is_written(&sandbox, "stubborn");
        assert_serves(&sandbox);
    }
}

/// Several engines in a row can be killed with many commands running. Each time nothing is left, and the next one
/// starts.
#[test]
fn engines_can_be_killed_again_and_again() {
    let sandbox = Sandbox::new();
    let order = shell("trap '' TERM; sleep 1000 & sleep 1000");
    for round in 0..42 {
        sandbox.start();
        let mut watcher = sandbox.greeter();
        let mut peer = sandbox.client(16);
        let bytes: Vec<u8> = (0..30).flat_map(|_| bytes_of(&peer.number(&order))).collect();
        peer.write(&bytes);
        // At different times: while the first commands start, while more do, and when all run.
        match round % 3 {
            0 => {}
            1 => drop(watcher.report()),
            _ => wait_until("they run", || {
                sandbox.status()["commands"].as_array().unwrap().len() == 16
            }),
        }
        process::kill(peer.pid, libc::SIGKILL);
    }
    sandbox.start();
    let engine = sandbox.engine();
    let expected = [engine, process::parent(engine)];
    let left = sandbox.processes();
    assert!(left.iter().all(|(pid, _)| expected.contains(pid)), "{left:?}");
}

// ---- stopped by a signal

/// Each signal that asks to end, sent to the engine or the guardian, stops the engine with its commands and removes its
/// socket.
#[test]
fn a_signal_stops_the_engine() {
    std::thread::scope(|scope| {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            scope.spawn(move || is_stopped(signal, |engine| engine));
            scope.spawn(move || is_stopped(signal, process::parent));
        }
    });
}

fn is_stopped(signal: i32, target: impl Fn(i32) -> i32) {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--tcp"]).succeeded();
    let mut peer = sandbox.client(1);
    let pids = start_stubborn_command(&sandbox, &mut peer, "stubborn");
    process::kill(target(peer.pid), signal);
    while peer.receive().is_some() {}
    sandbox.wait_until_empty();
    assert!(!pids.into_iter().any(process::lives));
    assert!(!sandbox.socket().exists() && !sandbox.file("tcp").exists());
    sandbox.start();
    assert_serves(&sandbox);
}

// ---- stopped by request

/// `stop` lets the running command end, sends its outcome, and returns when the engine has ended.
#[test]
fn a_stop_waits_for_running_commands() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let gate = sandbox.close_gate("gate");
    let id = peer.submit(&shell(&format!("{}; echo ended by itself", gate.script)));
    wait_until("it runs", || sandbox.status()["slots"]["running"] == 1);
    let mut stop = spawn(&sandbox, &["stop"]);
    wait_until("it takes no more clients", || !sandbox.socket().exists());
    for _ in 0..20 {
        sandbox.tick();
        assert!(stop.try_wait().unwrap().is_none(), "stopped while a command runs");
    }
    gate.open();
    assert_eq!(peer.finish(id).text(), "ended by itself\n");
    end_of(stop).succeeded();
    assert_eq!(peer.receive(), None);
    wait_until_gone(peer.pid);
}

/// An engine that was asked to stop closes the connections of clients that run nothing.
#[test]
fn a_stop_does_not_wait_for_clients_that_run_nothing() {
    let sandbox = Sandbox::started();
    let mut idle = sandbox.client(4);
    idle.run(&shell(":")).text();
    let mut stranger = sandbox.stranger();
    let mut watcher = sandbox.greeter();
    sandbox.run(&["stop"]).succeeded();
    assert_eq!(idle.receive(), None);
    assert_eq!(stranger.receive(), None);
    assert_eq!(watcher.receive(), None);
    sandbox.wait_until_empty();
}

/// `stop --now` ends running commands, even those that ignore signals. Soon after it returns, nothing is left.
#[test]
fn a_stop_now_ends_running_commands() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let pids = start_stubborn_command(&sandbox, &mut peer, "stubborn");
    for _ in 0..5 {
        peer.submit(&shell("sleep 1000"));
    }
    sandbox.run(&["stop", "--now"]).succeeded();
    while peer.receive().is_some() {}
    sandbox.wait_until_empty();
    assert!(!pids.into_iter().any(process::lives));
    assert!(!sandbox.socket().exists());
}

/// `stop --now` also ends a `stop` that waits.
#[test]
fn a_stop_now_ends_a_stop_that_waits() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let mut late = sandbox.greeter();
    peer.submit(&shell("sleep 1000"));
    wait_until("it runs", || sandbox.status()["slots"]["running"] == 1);
    let stop = spawn(&sandbox, &["stop"]);
    wait_until("it takes no more clients", || !sandbox.socket().exists());
    late.send(&Request::Stop { now: true });
    end_of(stop).succeeded();
    sandbox.wait_until_empty();
}

/// `stop` without an engine is reported in one line.
#[test]
fn a_stop_without_an_engine_is_reported() {
    let sandbox = Sandbox::new();
    for args in [&["stop"][..], &["stop", "--now"]] {
        let line = sandbox.run(args).failed();
        assert!(line.contains("no engine"), "{line}");
    }
    assert_eq!(fs::read_dir(sandbox.runtime()).unwrap().count(), 0);
}

/// A start while an engine is leaving waits for its end, and starts the next one.
#[test]
fn a_start_waits_for_an_engine_that_leaves() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let gate = sandbox.close_gate("gate");
    let id = peer.submit(&shell(&gate.script));
    wait_until("it runs", || sandbox.status()["slots"]["running"] == 1);
    let stop = spawn(&sandbox, &["stop"]);
    wait_until("it takes no more clients", || !sandbox.socket().exists());
    let mut start = spawn(&sandbox, &["start"]);
    for _ in 0..10 {
        sandbox.tick();
        assert!(start.try_wait().unwrap().is_none(), "two engines at once");
    }
    gate.open();
    peer.finish(id).text();
    end_of(stop).succeeded();
    end_of(start).succeeded();
    assert_ne!(sandbox.engine(), peer.pid);
}

/// An engine that is leaving refuses clients that had connected before. Cancel and timeout of its commands still work.
#[test]
fn a_leaving_engine_is_of_use_until_it_has_left() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let mut early = sandbox.greeter();
    let (first, second) = (peer.submit(&shell("sleep 1000")), peer.submit(&shell("sleep 1000")));
    wait_until("they run", || early.report()["slots"]["running"] == 2);
    // Connected, but not accepted yet.
    let mut stranger = sandbox.stranger();
    early.report();
    early.send(&Request::Stop { now: false });
    wait_until("it takes no more clients", || !sandbox.socket().exists());
    let _ = stranger.try_write(&bytes_of(&Request::Hello(hello(new_session(), 1))));
    match stranger.receive() {
        None => {}
        Some(wafengine::wire::Reply::Refused { why: Why::Leaving, .. }) => stranger.is_closed(),
        Some(other) => panic!("{other:?}"),
    }
    for id in [first, second] {
        peer.send(&Request::Cancel { id });
        assert_eq!(peer.finish(id).outcome.verdict, Verdict::Cancelled);
    }
    sandbox.wait_until_empty();
}

// ---- idle

/// An idle engine leaves, and removes its socket and its port's token.
#[test]
fn an_idle_engine_leaves() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--idle", "1", "--tcp"]).succeeded();
    assert_serves(&sandbox);
    sandbox.wait_until_empty();
    assert!(!sandbox.socket().exists() && !sandbox.file("tcp").exists());
    let log = fs::read_to_string(sandbox.file("log")).unwrap();
    assert!(log.contains("leaving"), "{log}");
    run(sandbox.wafd(&["start"]).env("WAFD_IDLE", "1")).succeeded();
    sandbox.wait_until_empty();
}

/// An engine with a client is not idle, even if the client runs nothing. Nor is one whose command has a background
/// child.
#[test]
fn an_engine_with_a_client_is_not_idle() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--idle", "1"]).succeeded();
    let mut peer = sandbox.client(1);
    wait_until("it has stayed longer than idle", || {
        peer.report()["uptime_s"].as_f64() > Some(2.5)
    });
    assert_eq!(peer.run(&shell("echo here")).text(), "here\n");
    drop(peer);
    sandbox.wait_until_empty();
}

/// Each client starts the idle time anew.
#[test]
fn a_client_begins_idleness_anew() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--idle", "2"]).succeeded();
    let engine = sandbox.engine();
    // In all longer than the idle time, with a client now and then.
    wait_until("it is old", || {
        sandbox.tick();
        let report = sandbox.greeter().report();
        assert_eq!(report["pid"], engine);
        report["uptime_s"].as_f64() > Some(3.5)
    });
    sandbox.wait_until_empty();
}

// ---- replaced

/// Replaces the program that runs with a fresh copy.
fn replace(sandbox: &Sandbox, program: &std::path::Path) {
    let fresh = sandbox.path("fresh");
    install(env!("CARGO_BIN_EXE_wafd").as_ref(), &fresh);
    fs::rename(&fresh, program).unwrap();
}

/// An engine whose program was replaced leaves for the new one when the next client comes.
#[test]
fn a_replaced_engine_makes_room() {
    let mut sandbox = Sandbox::new();
    let program = sandbox.use_copy().to_owned();
    sandbox.start();
    let old = sandbox.engine();
    replace(&sandbox, &program);
    sandbox.stranger().refused(&hello(new_session(), 1), Why::Leaving);
    sandbox.start();
    assert_ne!(sandbox.engine(), old);
    assert!(!process::lives(old));
    assert_serves(&sandbox);
}

/// A start is enough to replace it.
#[test]
fn a_start_replaces_a_replaced_engine() {
    let mut sandbox = Sandbox::new();
    let program = sandbox.use_copy().to_owned();
    sandbox.start();
    let old = sandbox.engine();
    replace(&sandbox, &program);
    sandbox.start();
    assert_ne!(sandbox.engine(), old);
    let new = sandbox.engine();
    sandbox.start();
    assert_eq!(sandbox.engine(), new, "once is enough");
}

/// While a build is connected, its engine stays even if the program was replaced, and serves other clients, too.
#[test]
fn a_replaced_engine_stays_for_a_build() {
    let mut sandbox = Sandbox::new();
    let program = sandbox.use_copy().to_owned();
    sandbox.start();
    let mut peer = sandbox.client(1);
    replace(&sandbox, &program);
    assert_serves(&sandbox);
    assert_eq!(sandbox.engine(), peer.pid);
    assert_eq!(peer.run(&shell("echo undisturbed")).text(), "undisturbed\n");
    drop(peer);
    wait_until("the build has ended", || {
        match sandbox.stranger().greet(&hello(new_session(), 1)) {
            wafengine::wire::Reply::Refused { why, .. } => why == Why::Leaving,
            _ => false,
        }
    });
}

/// A removed program counts as replaced.
#[test]
fn a_removed_program_is_another() {
    let mut sandbox = Sandbox::new();
    let program = sandbox.use_copy().to_owned();
    sandbox.start();
    fs::remove_file(&program).unwrap();
    sandbox.stranger().refused(&hello(new_session(), 1), Why::Leaving);
    sandbox.wait_until_empty();
}

/// An engine whose folder was removed does not remove the next engine's socket when it ends.
#[test]
fn an_engine_removes_only_its_own_socket() {
    let sandbox = Sandbox::started();
    let mut old = sandbox.greeter();
    fs::remove_dir_all(sandbox.runtime()).unwrap();
    sandbox.start();
    let new = sandbox.engine();
    assert_ne!(new, old.pid);
    old.send(&Request::Stop { now: true });
    wait_until_gone(old.pid);
    assert_eq!(sandbox.engine(), new);
    assert_serves(&sandbox);
}

/// The next engine does not take the first one's commands for leftovers.
#[test]
fn a_cleared_runtime_folder_ends_no_command() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let pids = start_stubborn_command(&sandbox, &mut peer, "stubborn");
    fs::remove_dir_all(sandbox.runtime()).unwrap();
    sandbox.start();
    assert_serves(&sandbox);
    for pid in pids {
        assert!(process::lives(pid), "a command of an engine that lives was ended");
    }
    process::kill(peer.pid, libc::SIGKILL);
    pids.into_iter().for_each(wait_until_gone);
}

/// The same for the TCP ports of both.
#[test]
fn an_engine_removes_only_its_own_token() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--tcp"]).succeeded();
    let mut old = sandbox.greeter();
    fs::remove_dir_all(sandbox.runtime()).unwrap();
    sandbox.run(&["start", "--tcp"]).succeeded();
    let token = fs::read_to_string(sandbox.file("tcp")).unwrap();
    old.send(&Request::Stop { now: true });
    wait_until_gone(old.pid);
    assert_eq!(fs::read_to_string(sandbox.file("tcp")).unwrap_or_default(), token);
}
