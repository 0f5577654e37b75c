//! Clients that disconnect and commands that are cancelled: all that they started ends, and nothing else does.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::order::shell;
use crate::support::peer::{bytes_of, hello, Peer};
use crate::support::process;
use crate::support::sandbox::{new_session, wait_until, Sandbox};
use crate::support::stand_in::StandIn;
use wafengine::wire::{Hello, Request, Stdio, Step, Verdict};

/// Writes its process number to a file, and then runs the script.
fn write_pid_and(path: &str, script: &str) -> String {
    format!("echo $$ > {path}.new; mv {path}.new {path}; {script}")
}

#[track_caller]
fn wait_until_gone(pid: i32) {
    wait_until("the process is gone", || !process::lives(pid));
}

/// When a connection ends, its commands end with their children, with or without a session of their own.
#[test]
fn commands_end_with_their_connection() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(4);
    let mut pids = Vec::new();
    for (i, new_session) in [false, true].into_iter().enumerate() {
        let (leader, child) = (sandbox.name(&format!("leader{i}")), sandbox.name(&format!("child{i}")));
        let script = format!("sleep 1000 & echo $! > {child}; sleep 1000");
        let mut order = shell(&write_pid_and(&leader, &script));
        order.0.new_session = new_session;
        peer.submit(&order);
        pids.extend([leader, child].map(|path| process::number_in(Path::new(&path))));
    }
    assert!(pids.iter().all(|pid| process::lives(*pid)));
    drop(peer);
    pids.into_iter().for_each(wait_until_gone);
}

/// When a TCP connection ends, its commands end as well.
#[test]
fn commands_end_with_their_tcp_connection() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--tcp"]).succeeded();
    let (port, token) = sandbox.folder().read_token().unwrap();
    let mut peer = Peer::tcp(port);
    peer.welcome(&Hello {
        token: token.into_bytes(),
        ..hello(new_session(), 1)
    });
    peer.define(0, sandbox.environment());
    let (leader, child) = (sandbox.name("leader"), sandbox.name("child"));
    peer.submit(&shell(&write_pid_and(
        &leader,
        &format!("sleep 1000 & echo $! > {child}; wait"),
    )));
    let pids = [leader, child].map(|path| process::number_in(Path::new(&path)));
    drop(peer);
    pids.into_iter().for_each(wait_until_gone);
}

/// When a client is killed, its commands end with their children.
#[test]
fn commands_end_with_their_client() {
    let sandbox = Sandbox::started();
    let (stand_in, mut peer) = StandIn::start(&sandbox, || Ok(()));
    peer.welcome(&hello(new_session(), 2));
    peer.define(0, sandbox.environment());
    let leader = sandbox.name("leader");
    peer.submit(&shell(&write_pid_and(&leader, "sleep 1000 & sleep 1000")));
    let pid = process::number_in(Path::new(&leader));
    // The stand-in keeps the connection open until it is killed.
    drop(peer);
    sandbox.client(1).run(&shell(":")).text();
    assert!(process::lives(pid));
    drop(stand_in);
    wait_until_gone(pid);
}

/// A command first gets SIGTERM, even if it is stopped, and SIGKILL only later.
#[test]
fn a_command_may_clean_up() {
    let sandbox = Sandbox::started();
    for stop in ["", "kill -STOP $$;"] {
        let mut peer = sandbox.client(1);
        let (ready, cleaned) = (sandbox.name("ready"), sandbox.path("cleaned"));
        let trap = format!("trap 'echo cleaned > {}; exit' TERM; ", cleaned.display());
        peer.submit(&shell(&format!(
            "{trap}{}",
            write_pid_and(&ready, &format!("{stop} sleep 1000 & wait"))
        )));
        let pid = process::number_in(Path::new(&ready));
        if !stop.is_empty() {
            wait_until("it is stopped", || {
                process::stat(pid).is_some_and(|(state, ..)| state == 'T')
            });
        }
        drop(peer);
        wait_until_gone(pid);
        wait_until("it has cleaned up", || {
            fs::read_to_string(&cleaned).unwrap_or_default() == "cleaned\n"
        });
        fs::remove_file(&cleaned).unwrap();
        fs::remove_file(&ready).unwrap();
    }
}

/// A command may print while it cleans up, whether its client is gone or has cancelled it.
#[test]
fn a_command_may_talk_while_it_cleans_up() {
    let sandbox = Sandbox::started();
    for vanish in [true, false] {
        let mut peer = sandbox.client(1);
        let (ready, cleaned) = (sandbox.name("ready"), sandbox.path("cleaned"));
        // More than a pipe holds, so that it must be read.
        let trap = format!(
            "echo wait; seq 1 20000; echo a moment >&2; echo cleaned > {}; exit",
            cleaned.display()
        );
        let id = peer.submit(&shell(&format!(
            "trap '{trap}' TERM; {}",
            write_pid_and(&ready, "sleep 1000 & wait")
        )));
        let pid = process::number_in(Path::new(&ready));
        match vanish {
            true => drop(peer),
            false => {
                cancel(&mut peer, id);
                assert_eq!(peer.finish(id).outcome.verdict, Verdict::Cancelled);
            }
        }
        wait_until_gone(pid);
        assert_eq!(
            fs::read_to_string(&cleaned).unwrap_or_default(),
            "cleaned\n",
            "vanish: {vanish}"
        );
        fs::remove_file(&cleaned).unwrap();
        fs::remove_file(&ready).unwrap();
    }
}

/// The children of a command may clean up, even if the command itself dies at once.
#[test]
fn children_may_clean_up() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let (ready, cleaned) = (sandbox.name("ready"), sandbox.path("cleaned"));
    // The cleanup runs some programs. The parent has no trap and dies at once. The shell's messages about signals go
    // elsewhere.
    let child = format!(
        "trap 'for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done; echo cleaned > {}; exit' TERM; {}",
        cleaned.display(),
        write_pid_and(&ready, "while :; do sleep 0.01; done")
    );
    peer.submit(&shell(&format!("({child}) 2>/dev/null & wait")));
    process::number_in(Path::new(&ready));
    drop(peer);
    wait_until("the child has cleaned up", || {
        fs::read_to_string(&cleaned).unwrap_or_default() == "cleaned\n"
    });
}

/// A command that ignores SIGTERM is killed after the grace time, with its children.
#[test]
fn a_command_that_ignores_it_is_killed() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let (leader, child) = (sandbox.name("leader"), sandbox.name("child"));
    let script = format!(
        "trap '' TERM INT HUP; {}",
        write_pid_and(
            &leader,
            &format!("(echo started > /dev/null; sleep 1000) & echo $! > {child}; wait; sleep 1000")
        )
    );
    peer.submit(&shell(&script));
    let pids = [leader, child].map(|path| process::number_in(Path::new(&path)));
    drop(peer);
    pids.into_iter().for_each(wait_until_gone);
}

/// A child that ignores SIGTERM while its parent ends is killed after the grace time.
#[test]
fn a_child_that_ignores_it_is_killed() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let child = sandbox.name("child");
    let script = format!(
        "(trap '' TERM; {}) & wait",
        write_pid_and(&child, "while :; do sleep 1000; done")
    );
    // The outer shell writes the number: the children of a subshell are found by their group.
    let id = peer.submit(&shell(&script));
    let leader = process::number_in(Path::new(&child));
    wait_until("it has children", || !process::children(leader).is_empty());
    let children = process::children(leader);
    assert!(!peer.has_finished(id));
    drop(peer);
    wait_until_gone(leader);
    children.into_iter().for_each(wait_until_gone);
}

/// A command that has ended while a background child holds its pipe still counts as running: the child ends with the
/// connection.
#[test]
fn a_background_child_ends_with_the_connection() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let (leader, child) = (sandbox.name("leader"), sandbox.name("child"));
    peer.submit(&shell(&write_pid_and(
        &leader,
        &format!("sleep 1000 & echo $! > {child}"),
    )));
    let [leader, child] = [leader, child].map(|path| process::number_in(Path::new(&path)));
    wait_until_gone(leader);
    // After another client's command, the engine has noticed the end.
    sandbox.client(1).run(&shell(":")).text();
    assert!(process::lives(child));
    drop(peer);
    wait_until_gone(child);
}

/// Commands that wait for a slot when their connection ends never start.
#[test]
fn waiting_commands_never_start() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let ready = sandbox.name("ready");
    peer.submit(&shell(&write_pid_and(&ready, "sleep 1000")));
    for i in 0..50 {
        peer.submit(&shell(&format!("touch {}", sandbox.name(&format!("started{i}")))));
    }
    let pid = process::number_in(Path::new(&ready));
    drop(peer);
    wait_until_gone(pid);
    wait_until("nothing waits", || {
        let slots = &sandbox.status()["slots"];
        slots["waiting"] == 0 && slots["running"] == 0
    });
    let mut other = sandbox.client(1);
    (0..5).for_each(|_| drop(other.run(&shell(":")).text()));
    let started = fs::read_dir(sandbox.path("")).unwrap().flatten();
    let started = started.filter(|e| e.file_name().to_string_lossy().starts_with("started"));
    assert_eq!(started.count(), 0);
}

/// If a connection ends right after it has sent commands, all of them end, whether they had started or not.
#[test]
fn commands_that_are_just_starting_end_too() {
    let sandbox = Sandbox::without_parking();
    let mut watcher = sandbox.greeter();
    for round in 0..30 {
        let mut peer = sandbox.client(8);
        let mut bytes = Vec::new();
        for _ in 0..12 {
            bytes.extend(bytes_of(&peer.number(&shell("sleep 1000 & sleep 1000"))));
        }
        peer.write(&bytes);
        if round % 2 == 0 {
            watcher.report();
        }
    }
    wait_until("nothing runs", || watcher.report()["slots"]["running"] == 0);
    sandbox.wait_until_idle(watcher.pid);
}

/// The end of one client does not affect another one, nor another connection of the same build.
#[test]
fn others_are_not_affected() {
    let sandbox = Sandbox::started();
    let session = new_session();
    let mut leaves = sandbox.client_of(session, 4);
    let mut same = sandbox.client_of(session, 4);
    let mut other = sandbox.client(4);
    let gate = sandbox.close_gate("gate");
    let order = shell(&format!("{}; echo kept", gate.script));
    leaves.submit(&order);
    let ids = [same.submit(&order), other.submit(&order)];
    wait_until("all run", || sandbox.status()["slots"]["running"] == 3);
    drop(leaves);
    wait_until("one is gone", || sandbox.status()["slots"]["running"] == 2);
    gate.open();
    assert_eq!(same.finish(ids[0]).text(), "kept\n");
    assert_eq!(other.finish(ids[1]).text(), "kept\n");
}

/// If a client that does not read disconnects, its commands end as well.
#[test]
fn the_commands_of_a_client_that_does_not_read_end_with_it() {
    let sandbox = Sandbox::without_parking();
    let mut other = sandbox.client(1);
    let engine = other.pid;
    other.run(&shell(":")).text();
    let before = process::descriptors(engine);
    let mut peer = sandbox.client(2);
    let notes = [0, 1].map(|i| sandbox.name(&format!("deaf{i}")));
    // One write for all: soon the engine reads nothing more from it.
    let mut bytes = Vec::new();
    for note in &notes {
        let order = shell(&write_pid_and(note, "cat /dev/zero & exec cat /dev/zero >&2"));
        bytes.extend(bytes_of(&peer.number(&order)));
    }
    peer.write(&bytes);
    let pids = notes.map(|note| process::number_in(Path::new(&note)));
    // The engine will not read these requests.
    let _ = peer.stream.set_nonblocking(true);
    for _ in 0..20 {
        other.run(&shell(":")).text();
        let _ = peer.try_write(&bytes_of(&Request::Status).repeat(1000));
    }
    drop(peer);
    pids.into_iter().for_each(wait_until_gone);
    wait_until("its connection is closed", || process::descriptors(engine) == before);
}

/// Ten thousand waiting commands are dropped with their client, and other clients are served.
#[test]
fn a_long_queue_vanishes() {
    let sandbox = Sandbox::started();
    let mut other = sandbox.client(1);
    let mut peer = sandbox.client(1);
    peer.submit(&shell("sleep 1000"));
    let mut bytes = Vec::new();
    for _ in 0..10_000 {
        bytes.extend(bytes_of(&peer.number(&shell("echo never"))));
    }
    peer.write(&bytes);
    wait_until("all wait", || other.report()["slots"]["waiting"] == 10_000);
    drop(peer);
    wait_until("none waits", || other.report()["slots"]["waiting"] == 0);
    assert_eq!(other.run(&shell("echo served")).text(), "served\n");
    assert_eq!(other.report()["totals"]["succeeded"], 1);
}

/// Many clients that send, cancel, read, do not read, and disconnect at random leave nothing behind.
#[test]
fn a_crowd_leaves_nothing_behind() {
    let sandbox = Sandbox::without_parking();
    let mut watcher = sandbox.greeter();
    let (engine, guardian) = (watcher.pid, process::parent(watcher.pid));
    sandbox.client(1).run(&shell(":")).text();
    wait_until("that client is gone", || {
        watcher.report()["sessions"].as_array().unwrap().is_empty()
    });
    let before = process::descriptors(engine);
    let sessions = [new_session(), new_session(), new_session()];
    let orders = [
        shell(":"),
        shell("sleep 1000"),
        shell("sleep 1000 & sleep 1000").new_session(),
        shell("trap '' TERM; sleep 1000 & sleep 0.2"),
        shell("sleep 0.05; seq 1 300000"),
        shell("cat | wc -c").input(&vec![b'x'; 300_000]),
        shell("(sleep 0.1; echo late) & echo early"),
        shell("sleep 1000").timeout(Duration::from_millis(30)),
        shell("no-such-command"),
        shell(":").cwd(Path::new("/no/such/folder")),
        shell("sleep 1000").stdio([Stdio::Null; 3]),
    ];
    let mut state = 88_172_645_463_325_252_u64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let mut crowd: Vec<(Peer, u32)> = Vec::new();
    for _ in 0..600 {
        if crowd.len() < 3 || (crowd.len() < 12 && below(8) == 0) {
            let jobs = 1 + below(5) as u32;
            crowd.push((sandbox.client_of(sessions[below(3)], jobs), 0));
            continue;
        }
        let number = below(crowd.len());
        let (peer, sent) = &mut crowd[number];
        match below(12) {
            0 => drop(crowd.swap_remove(number)),
            1..=2 if *sent > 0 => cancel(peer, below(*sent as usize) as u32),
            // It reads only now and then.
            3..=5 => drop(peer.has_finished(0)),
            _ => {
                let count = 1 + below(3);
                let bytes = (0..count).flat_map(|_| bytes_of(&peer.number(&orders[below(orders.len())])));
                let bytes: Vec<u8> = bytes.collect();
                peer.write(&bytes);
                *sent += count as u32;
            }
        }
    }
    drop(crowd);
    wait_until("nothing runs or waits", || {
        let report = watcher.report();
        report["slots"]["running"] == 0 && report["slots"]["waiting"] == 0
    });
    wait_until("all is closed", || process::descriptors(engine) == before);
    wait_until("no process is left", || {
        sandbox
            .processes()
            .iter()
            .all(|(pid, _)| [engine, guardian].contains(pid))
    });
    assert_eq!(watcher.report()["totals"]["malformed"], 0);
    assert_eq!(sandbox.client(4).run(&shell("echo served")).text(), "served\n");
}

// ---- cancel

fn cancel(peer: &mut Peer, id: u32) {
    peer.send(&Request::Cancel { id });
}

/// A waiting command that is cancelled never starts.
#[test]
fn a_waiting_command_is_cancelled() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let gate = sandbox.close_gate("gate");
    let first = peer.submit(&shell(&gate.script));
    let touched = sandbox.path("touched");
    let second = peer.submit(&shell(&format!("touch {}", touched.display())));
    let third = peer.submit(&shell("echo third"));
    cancel(&mut peer, second);
    let finished = peer.finish(second);
    assert_eq!(finished.outcome.verdict, Verdict::Cancelled);
    assert_eq!((finished.outcome.step, finished.outcome.wall), (Step::None, 0));
    assert!(!peer.has_finished(first), "it came before the one that runs");
    gate.open();
    peer.finish(first).text();
    assert_eq!(peer.finish(third).text(), "third\n");
    assert!(!touched.exists());
}

/// A running command is cancelled with its children. The client gets the output so far, and can use the number again.
#[test]
fn a_running_command_is_cancelled() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let (leader, child) = (sandbox.name("leader"), sandbox.name("child"));
    let script = format!("sleep 1000 & echo $! > {child}; echo begun; wait");
    // The file is written after the output.
    let id = peer.submit(&shell(&format!(
        "{script} & {}",
        write_pid_and(&leader, "wait; sleep 1000")
    )));
    let pids = [leader, child].map(|path| process::number_in(Path::new(&path)));
    wait_until("its output is read", || {
        let unread = format!("/proc/{}/fd/1", pids[1]);
        rustix::io::ioctl_fionread(fs::File::open(unread).unwrap()).unwrap() == 0
    });
    cancel(&mut peer, id);
    let finished = peer.finish(id);
    assert_eq!(finished.outcome.verdict, Verdict::Cancelled);
    assert_eq!(finished.outcome.code, -libc::SIGTERM);
    assert_eq!(finished.stdout, b"begun\n");
    assert!(finished.outcome.wall > 0);
    pids.into_iter().for_each(wait_until_gone);
    peer.expect(id);
    let mut again = shell("echo again").0;
    again.id = id;
    peer.send(&Request::Execute(Box::new(again)));
    assert_eq!(peer.finish(id).text(), "again\n");
}

/// A command that is cancelled right after it was sent is reported as cancelled or as finished, and leaves nothing
/// behind.
#[test]
fn a_command_is_cancelled_at_once() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    for round in 0..50 {
        let order = shell("sleep 1000");
        let mut bytes = bytes_of(&peer.number(&order));
        Request::Cancel { id: round }.encode(&mut bytes);
        Request::Cancel { id: round }.encode(&mut bytes);
        peer.write(&bytes);
        assert_eq!(peer.finish(round).outcome.verdict, Verdict::Cancelled);
    }
    sandbox.wait_until_idle(peer.pid);
}

/// A command whose background child holds the pipe is cancelled with that child.
#[test]
fn a_background_child_is_cancelled() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let (leader, child) = (sandbox.name("leader"), sandbox.name("child"));
    let id = peer.submit(&shell(&write_pid_and(
        &leader,
        &format!("echo said; sleep 1000 & echo $! > {child}"),
    )));
    let [leader, child] = [leader, child].map(|path| process::number_in(Path::new(&path)));
    wait_until_gone(leader);
    peer.report();
    cancel(&mut peer, id);
    let finished = peer.finish(id);
    assert_eq!(finished.outcome.verdict, Verdict::Cancelled);
    assert_eq!(finished.stdout, b"said\n");
    wait_until_gone(child);
}

/// A command that ignores SIGTERM is killed after the grace time, and reported as cancelled.
#[test]
fn a_stubborn_command_is_cancelled() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let leader = sandbox.name("leader");
    let id = peer.submit(&shell(&format!(
        "trap '' TERM; {}",
        write_pid_and(&leader, "while :; do sleep 1000; done")
    )));
    let pid = process::number_in(Path::new(&leader));
    cancel(&mut peer, id);
    cancel(&mut peer, id);
    let finished = peer.finish(id);
    assert_eq!(
        (finished.outcome.verdict, finished.outcome.code),
        (Verdict::Cancelled, -libc::SIGKILL)
    );
    wait_until_gone(pid);
}

/// The outcome of a cancelled command does not wait for a process that has left its group and holds its pipe.
#[test]
fn an_escaped_child_does_not_delay_a_cancelled_command() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let escaped = sandbox.name("escaped");
    let script = format!("setsid sh -c '{}' & wait", write_pid_and(&escaped, "exec sleep 1000"));
    let id = peer.submit(&shell(&script));
    let pid = process::number_in(Path::new(&escaped));
    cancel(&mut peer, id);
    assert_eq!(peer.finish(id).outcome.verdict, Verdict::Cancelled);
    assert!(
        process::lives(pid),
        "it is not in the group, so that the test proves nothing"
    );
    process::kill(pid, libc::SIGKILL);
}

/// Cancelling an unknown or finished command has no effect.
#[test]
fn cancelling_nothing_is_nothing() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    cancel(&mut peer, 77);
    let id = peer.submit(&shell("echo done"));
    assert_eq!(peer.finish(id).text(), "done\n");
    cancel(&mut peer, id);
    assert_eq!(peer.run(&shell("echo next")).text(), "next\n");
    assert_eq!(peer.report()["totals"]["cancelled"], 0);
}

/// A command with a timeout that is cancelled gets one outcome, with the first reason.
#[test]
fn the_first_reason_counts() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let order = shell("trap '' TERM; while :; do sleep 1000; done").timeout(Duration::from_millis(300));
    let id = peer.submit(&order.clone().stdio([Stdio::Null; 3]));
    cancel(&mut peer, id);
    assert_eq!(peer.finish(id).outcome.verdict, Verdict::Cancelled);
    let id = peer.submit(&order);
    let finished = peer.finish(id);
    cancel(&mut peer, id);
    assert_eq!(finished.outcome.verdict, Verdict::TimedOut);
    peer.run(&shell(":")).text();
}
