//! How an engine ends: killed, stopped, idle, replaced; and what its end leaves, which is nothing.

use std::fs;
use std::process::{Child, Stdio};

use crate::support::order::shell;
use crate::support::peer::{bytes_of, hello, Peer};
use crate::support::process;
use crate::support::sandbox::{end_of, install, new_session, run, wait_until, TestSpace};
use wafengine::wire::{Request, Verdict, Why};

/// A stubborn command with a child, both of which write to a file for as long as they live; the processes of both.
fn heart(space: &TestSpace, peer: &mut Peer, name: &str) -> [i32; 2] {
    let beat = space.name(&format!("{name}.beat"));
    let notes = [0, 1].map(|i| space.name(&format!("{name}.pid{i}")));
    let work = format!("while :; do echo beat >> {beat}; sleep 0.002; done");
    let script = format!(
        "trap '' TERM INT HUP; ({work}) & echo $! > {}; echo $$ > {}; {work}",
        notes[0], notes[1]
    );
    peer.submit(&shell(&script));
    notes.map(|note| process::number_in(note.as_ref()))
}

fn beats(space: &TestSpace, name: &str) -> u64 {
    fs::metadata(space.path(format!("{name}.beat"))).map_or(0, |m| m.len())
}

#[track_caller]
fn still(space: &TestSpace, name: &str) {
    let before = beats(space, name);
    assert!(before > 0);
    for _ in 0..20 {
        space.tick();
    }
    assert_eq!(
        beats(space, name),
        before,
        "a command of an engine that is gone still works"
    );
}

#[track_caller]
fn gone(pid: i32) {
    wait_until("the process is gone", || !process::lives(pid));
}

fn spawn(space: &TestSpace, args: &[&str]) -> Child {
    let mut command = space.wafd(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn serves(space: &TestSpace) {
    assert_eq!(space.client(1).run(&shell("echo served")).text(), "served\n");
}

// ---- killed

/// When the engine is killed its clients see it at once, its commands are killed with their children, and when the next
/// start is ready none of them works any more.
#[test]
fn commands_end_with_a_killed_engine() {
    let space = TestSpace::started();
    let mut peer = space.client(4);
    let pids: Vec<[i32; 2]> = (0..4).map(|i| heart(&space, &mut peer, &format!("h{i}"))).collect();
    process::kill(peer.pid, libc::SIGKILL);
    assert_eq!(peer.receive(), None, "the connection ends");
    space.start();
    for pid in pids.iter().flatten() {
        assert!(!process::lives(*pid), "it lived when the next engine was ready");
    }
    (0..4).for_each(|i| still(&space, &format!("h{i}")));
    assert_ne!(space.engine(), peer.pid);
    serves(&space);
}

/// A guardian that somebody has stopped is woken by the next start, which waits until it has killed what the engine left.
#[test]
fn the_next_start_wakes_the_guardian_and_waits_for_it() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let [child, leader] = heart(&space, &mut peer, "heart");
    let guardian = space.guardian();
    process::kill(guardian, libc::SIGSTOP);
    process::kill(peer.pid, libc::SIGKILL);
    let before = beats(&space, "heart");
    wait_until("the child works", || beats(&space, "heart") > before);
    end_of(spawn(&space, &["start"])).succeeded();
    for pid in [child, leader] {
        assert!(!process::lives(pid), "ready beside a remnant of the last engine");
    }
    still(&space, "heart");
}

/// A command whose background child holds its pipe is live: the child ends with a killed engine.
#[test]
fn a_background_child_ends_with_a_killed_engine() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let notes = ["leader", "child"].map(|name| space.name(name));
    peer.submit(&shell(&format!(
        "sleep 1000 & echo $! > {}; echo $$ > {}",
        notes[1], notes[0]
    )));
    let [leader, child] = notes.map(|note| process::number_in(note.as_ref()));
    gone(leader);
    // Its end was noticed when somebody else is served.
    serves(&space);
    process::kill(peer.pid, libc::SIGKILL);
    space.start();
    assert!(!process::lives(child));
}

/// Commands that had ended have left nothing to kill: the numbers of their processes may be others' by now.
#[test]
fn what_commands_left_on_purpose_is_not_killed() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let note = space.name("server");
    peer.run(&shell(&format!("setsid sleep 1000 >/dev/null 2>&1 & echo $! > {note}")))
        .text();
    peer.run(&shell(&format!("sleep 1000 >/dev/null 2>&1 & echo $! > {note}2")))
        .text();
    let pids = [note.clone(), format!("{note}2")].map(|note| process::number_in(note.as_ref()));
    process::kill(peer.pid, libc::SIGKILL);
    space.start();
    for pid in pids {
        assert!(process::lives(pid));
        process::kill(pid, libc::SIGKILL);
    }
}

/// An engine whose guardian is killed goes on, and ends as well as any other.
#[test]
fn an_engine_goes_on_without_its_guardian() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let gate = space.close_gate("gate");
    let id = peer.submit(&shell(&format!("{}; echo unharmed", gate.script)));
    let guardian = process::parent(peer.pid);
    process::kill(guardian, libc::SIGKILL);
    gone(guardian);
    gate.open();
    assert_eq!(peer.finish(id).text(), "unharmed\n");
    assert_eq!(space.start(), format!("ready unix {}\n", space.socket().display()));
    assert_eq!(space.engine(), peer.pid);
    // Nobody starts another beside it.
    serves(&space);
    space.run(&["stop"]).succeeded();
    space.wait_until_empty();
}

/// A guardian that is killed, stopped before or not, has a successor, and that one another: whenever the engine is killed
/// then, nothing is left of its commands when the next start is ready.
#[test]
fn a_killed_guardian_is_replaced() {
    let space = TestSpace::started();
    let mut peer = space.client(2);
    let [child, leader] = heart(&space, &mut peer, "heart");
    let held = || fs::read_to_string(space.file("lock")).unwrap();
    for stops in [false, true] {
        let signed = held();
        let guardian = signed.trim().parse().unwrap();
        if stops {
            process::kill(guardian, libc::SIGSTOP);
        }
        process::kill(guardian, libc::SIGKILL);
        wait_until("another has signed", || !["", &signed].contains(&&*held()));
    }
    serves(&space);
    process::kill(peer.pid, libc::SIGKILL);
    gone(leader);
    space.start();
    assert!(!process::lives(child), "ready beside a remnant of the last engine");
    still(&space, "heart");
    serves(&space);
}

/// What has ended before is no longer of the stand-in's business, nor is what commands left on purpose.
#[test]
fn a_stand_in_kills_what_ran_and_nothing_else() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let note = space.name("server");
    peer.run(&shell(&format!("sleep 1000 >/dev/null 2>&1 & echo $! > {note}")))
        .text();
    let server = process::number_in(note.as_ref());
    process::kill(space.guardian(), libc::SIGKILL);
    wait_until("another has signed", || {
        let holder = fs::read_to_string(space.file("lock")).unwrap();
        holder.trim().parse().is_ok_and(process::lives)
    });
    process::kill(peer.pid, libc::SIGKILL);
    space.start();
    assert!(process::lives(server));
    process::kill(server, libc::SIGKILL);
}

/// When engine and guardian are both killed, their commands are killed at once, and what these have started before the next engine is
/// ready.
#[test]
fn commands_end_with_engine_and_guardian() {
    for stops in [false, true] {
        let space = TestSpace::started();
        let mut peer = space.client(2);
        let note = space.name("pid");
        peer.submit(&shell(&format!(
            "trap '' TERM INT HUP; echo $$ > {note}; while :; do read x; done"
        )));
        let alone = process::number_in(note.as_ref());
        let family = heart(&space, &mut peer, "heart");
        let guardian = process::parent(peer.pid);
        if stops {
            process::kill(peer.pid, libc::SIGSTOP);
        }
        process::kill(guardian, libc::SIGKILL);
        process::kill(peer.pid, libc::SIGKILL);
        gone(alone);
        space.start();
        for pid in family {
            assert!(!process::lives(pid), "ready beside a remnant of the last engine");
        }
        still(&space, "heart");
        serves(&space);
    }
}

/// Engine after engine can be killed, with many commands running: each time nothing is left and the next is ready.
#[test]
fn engines_can_be_killed_again_and_again() {
    let space = TestSpace::new();
    let order = shell("trap '' TERM; sleep 1000 & sleep 1000");
    for round in 0..42 {
        space.start();
        let mut watcher = space.greeter();
        let mut peer = space.client(16);
        let bytes: Vec<u8> = (0..30).flat_map(|_| bytes_of(&peer.number(&order))).collect();
        peer.write(&bytes);
        // Sooner and later: while the first are being started, while more are, and when they all run.
        match round % 3 {
            0 => {}
            1 => drop(watcher.report()),
            _ => wait_until("they run", || {
                space.status()["commands"].as_array().unwrap().len() == 16
            }),
        }
        process::kill(peer.pid, libc::SIGKILL);
    }
    space.start();
    let engine = space.engine();
    let expected = [engine, process::parent(engine)];
    let left = space.processes();
    assert!(left.iter().all(|(pid, _)| expected.contains(pid)), "{left:?}");
}

// ---- stopped by a signal

/// Each signal that asks to end, sent to engine or guardian, stops the engine with its commands and removes its socket.
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
    let space = TestSpace::new();
    space.run(&["start", "--tcp"]).succeeded();
    let mut peer = space.client(1);
    let pids = heart(&space, &mut peer, "heart");
    process::kill(target(peer.pid), signal);
    while peer.receive().is_some() {}
    space.wait_until_empty();
    assert!(!pids.into_iter().any(process::lives));
    assert!(!space.socket().exists() && !space.file("tcp").exists());
    space.start();
    serves(&space);
}

// ---- stopped by request

/// `stop` lets the running command end, tells its client, and is over when the engine is.
#[test]
fn a_stop_waits_for_what_runs() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let gate = space.close_gate("gate");
    let id = peer.submit(&shell(&format!("{}; echo ended by itself", gate.script)));
    wait_until("it runs", || space.status()["slots"]["running"] == 1);
    let mut stop = spawn(&space, &["stop"]);
    wait_until("it takes no more clients", || !space.socket().exists());
    for _ in 0..20 {
        space.tick();
        assert!(stop.try_wait().unwrap().is_none(), "stopped while a command runs");
    }
    gate.open();
    assert_eq!(peer.finish(id).text(), "ended by itself\n");
    end_of(stop).succeeded();
    assert_eq!(peer.receive(), None);
    gone(peer.pid);
}

/// An engine that was asked to stop ends the connections of clients that run nothing.
#[test]
fn a_stop_does_not_wait_for_clients_that_run_nothing() {
    let space = TestSpace::started();
    let mut idle = space.client(4);
    idle.run(&shell(":")).text();
    let mut stranger = space.stranger();
    let mut watcher = space.greeter();
    space.run(&["stop"]).succeeded();
    assert_eq!(idle.receive(), None);
    assert_eq!(stranger.receive(), None);
    assert_eq!(watcher.receive(), None);
    space.wait_until_empty();
}

/// `stop --now` ends running commands, too, and the stubborn ones; when it returns, or soon after, nothing is left.
#[test]
fn a_stop_now_ends_what_runs() {
    let space = TestSpace::started();
    let mut peer = space.client(2);
    let pids = heart(&space, &mut peer, "heart");
    for _ in 0..5 {
        peer.submit(&shell("sleep 1000"));
    }
    space.run(&["stop", "--now"]).succeeded();
    while peer.receive().is_some() {}
    space.wait_until_empty();
    assert!(!pids.into_iter().any(process::lives));
    assert!(!space.socket().exists());
}

/// `stop --now` ends a stop that waits.
#[test]
fn a_stop_now_ends_a_stop_that_waits() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let mut late = space.greeter();
    peer.submit(&shell("sleep 1000"));
    wait_until("it runs", || space.status()["slots"]["running"] == 1);
    let stop = spawn(&space, &["stop"]);
    wait_until("it takes no more clients", || !space.socket().exists());
    late.send(&Request::Stop { now: true });
    end_of(stop).succeeded();
    space.wait_until_empty();
}

/// Who stops an engine that is not there is told so in one line.
#[test]
fn stopping_nobody_is_told() {
    let space = TestSpace::new();
    for args in [&["stop"][..], &["stop", "--now"]] {
        let line = space.run(args).failed();
        assert!(line.contains("no engine"), "{line}");
    }
    assert_eq!(fs::read_dir(space.runtime()).unwrap().count(), 0);
}

/// A start while an engine is leaving waits for its end and makes the next.
#[test]
fn a_start_waits_for_an_engine_that_leaves() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let gate = space.close_gate("gate");
    let id = peer.submit(&shell(&gate.script));
    wait_until("it runs", || space.status()["slots"]["running"] == 1);
    let stop = spawn(&space, &["stop"]);
    wait_until("it takes no more clients", || !space.socket().exists());
    let mut start = spawn(&space, &["start"]);
    for _ in 0..10 {
        space.tick();
        assert!(start.try_wait().unwrap().is_none(), "two engines at once");
    }
    gate.open();
    peer.finish(id).text();
    end_of(stop).succeeded();
    end_of(start).succeeded();
    assert_ne!(space.engine(), peer.pid);
}

/// An engine that is leaving says so to whoever had connected before, and ends commands by cancel and time-out as ever.
#[test]
fn a_leaving_engine_is_of_use_until_it_has_left() {
    let space = TestSpace::started();
    let mut peer = space.client(2);
    let mut early = space.greeter();
    let (first, second) = (peer.submit(&shell("sleep 1000")), peer.submit(&shell("sleep 1000")));
    wait_until("they run", || early.report()["slots"]["running"] == 2);
    // Connected, but not yet taken notice of.
    let mut stranger = space.stranger();
    early.report();
    early.send(&Request::Stop { now: false });
    wait_until("it takes no more clients", || !space.socket().exists());
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
    space.wait_until_empty();
}

// ---- idle

/// An engine that nobody needs leaves, and takes socket and port along.
#[test]
fn an_idle_engine_leaves() {
    let space = TestSpace::new();
    space.run(&["start", "--idle", "1", "--tcp"]).succeeded();
    serves(&space);
    space.wait_until_empty();
    assert!(!space.socket().exists() && !space.file("tcp").exists());
    let log = fs::read_to_string(space.file("log")).unwrap();
    assert!(log.contains("leaving"), "{log}");
    run(space.wafd(&["start"]).env("WAFD_IDLE", "1")).succeeded();
    space.wait_until_empty();
}

/// An engine with a client is not idle, whether that runs something or not; nor is one that a background child keeps busy.
#[test]
fn an_engine_with_a_client_is_not_idle() {
    let space = TestSpace::new();
    space.run(&["start", "--idle", "1"]).succeeded();
    let mut peer = space.client(1);
    wait_until("it has stayed longer than idle", || {
        peer.report()["uptime_s"].as_f64() > Some(2.5)
    });
    assert_eq!(peer.run(&shell("echo here")).text(), "here\n");
    drop(peer);
    space.wait_until_empty();
}

/// Each client begins the time anew.
#[test]
fn a_client_begins_idleness_anew() {
    let space = TestSpace::new();
    space.run(&["start", "--idle", "2"]).succeeded();
    let engine = space.engine();
    // Longer than it would have stayed, with a client now and then.
    wait_until("it is old", || {
        space.tick();
        let report = space.greeter().report();
        assert_eq!(report["pid"], engine);
        report["uptime_s"].as_f64() > Some(3.5)
    });
    space.wait_until_empty();
}

// ---- replaced

/// Puts a fresh copy of the program in the place of the one that runs.
fn replace(space: &TestSpace, program: &std::path::Path) {
    let fresh = space.path("fresh");
    install(env!("CARGO_BIN_EXE_wafd").as_ref(), &fresh);
    fs::rename(&fresh, program).unwrap();
}

/// An engine whose program was replaced makes room for the new one when the next client comes.
#[test]
fn a_replaced_engine_makes_room() {
    let mut space = TestSpace::new();
    let program = space.use_copy().to_owned();
    space.start();
    let old = space.engine();
    replace(&space, &program);
    space.stranger().refused(&hello(new_session(), 1), Why::Leaving);
    space.start();
    assert_ne!(space.engine(), old);
    assert!(!process::lives(old));
    serves(&space);
}

/// A start alone is enough to replace it.
#[test]
fn a_start_replaces_a_replaced_engine() {
    let mut space = TestSpace::new();
    let program = space.use_copy().to_owned();
    space.start();
    let old = space.engine();
    replace(&space, &program);
    space.start();
    assert_ne!(space.engine(), old);
    let new = space.engine();
    space.start();
    assert_eq!(space.engine(), new, "once is enough");
}

/// While a build is connected its engine stays, whatever became of the program, and serves others, too.
#[test]
fn a_replaced_engine_stays_for_a_build() {
    let mut space = TestSpace::new();
    let program = space.use_copy().to_owned();
    space.start();
    let mut peer = space.client(1);
    replace(&space, &program);
    serves(&space);
    assert_eq!(space.engine(), peer.pid);
    assert_eq!(peer.run(&shell("echo undisturbed")).text(), "undisturbed\n");
    drop(peer);
    wait_until("the build has ended", || {
        match space.stranger().greet(&hello(new_session(), 1)) {
            wafengine::wire::Reply::Refused { why, .. } => why == Why::Leaving,
            _ => false,
        }
    });
}

/// An engine whose program was removed is replaced like one whose program is another.
#[test]
fn a_removed_program_is_another() {
    let mut space = TestSpace::new();
    let program = space.use_copy().to_owned();
    space.start();
    fs::remove_file(&program).unwrap();
    space.stranger().refused(&hello(new_session(), 1), Why::Leaving);
    space.wait_until_empty();
}

/// An engine whose folder was removed does not take the next one's socket along when it ends.
#[test]
fn an_engine_removes_only_its_own_socket() {
    let space = TestSpace::started();
    let mut old = space.greeter();
    fs::remove_dir_all(space.runtime()).unwrap();
    space.start();
    let new = space.engine();
    assert_ne!(new, old.pid);
    old.send(&Request::Stop { now: true });
    gone(old.pid);
    assert_eq!(space.engine(), new);
    serves(&space);
}

/// Nor does the next engine take its commands for remains.
#[test]
fn a_cleared_runtime_folder_ends_no_command() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    let pids = heart(&space, &mut peer, "heart");
    fs::remove_dir_all(space.runtime()).unwrap();
    space.start();
    serves(&space);
    for pid in pids {
        assert!(process::lives(pid), "a command of an engine that lives was ended");
    }
    process::kill(peer.pid, libc::SIGKILL);
    pids.into_iter().for_each(gone);
}

/// The same with the ports of both.
#[test]
fn an_engine_removes_only_its_own_token() {
    let space = TestSpace::new();
    space.run(&["start", "--tcp"]).succeeded();
    let mut old = space.greeter();
    fs::remove_dir_all(space.runtime()).unwrap();
    space.run(&["start", "--tcp"]).succeeded();
    let token = fs::read_to_string(space.file("tcp")).unwrap();
    old.send(&Request::Stop { now: true });
    gone(old.pid);
    assert_eq!(fs::read_to_string(space.file("tcp")).unwrap_or_default(), token);
}
