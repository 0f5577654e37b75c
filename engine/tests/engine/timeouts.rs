//! Timeouts: a command that takes too long ends with all its processes.

use std::time::Duration;

use crate::support::order::{shell, Order};
use crate::support::peer::Finished;
use crate::support::process;
use crate::support::sandbox::{wait_until, Sandbox};
use wafengine::wire::{Stdio, Verdict};

/// Long enough for a shell to start, short enough for a test.
const SHORT: Duration = Duration::from_secs(1);

fn timed_out(finished: &Finished) {
    assert_eq!(finished.outcome.verdict, Verdict::TimedOut, "{finished:?}");
}

/// The process number that the command's script has written with `echo $! > FILE` or `echo $$ > FILE`.
fn process_from(sandbox: &Sandbox, name: &str) -> i32 {
    process::number_in(&sandbox.path(name))
}

/// After the timeout the whole process group is killed. The outcome has the output until then.
#[test]
fn a_timeout_ends_the_group_and_keeps_the_output() {
    let sandbox = Sandbox::started();
    let script = format!(
        "trap '' TERM INT HUP; echo begun; echo wrong >&2; sleep 1000 & echo $! > {}; wait",
        sandbox.name("child")
    );
    let finished = sandbox.client(1).run(&shell(&script).timeout(SHORT));
    timed_out(&finished);
    assert_eq!(finished.outcome.code, -libc::SIGKILL);
    assert_eq!(
        (&finished.stdout[..], &finished.stderr[..]),
        (&b"begun\n"[..], &b"wrong\n"[..])
    );
    let child = process_from(&sandbox, "child");
    wait_until("the child is gone", || !process::lives(child));
}

/// A grandchild that has left the group and holds the pipe does not delay the outcome.
#[test]
fn an_escaped_grandchild_does_not_delay_a_timeout() {
    let sandbox = Sandbox::started();
    let script = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 1000' & echo begun; wait",
        sandbox.name("escaped")
    );
    let finished = sandbox.client(1).run(&shell(&script).timeout(SHORT));
    let escaped = process_from(&sandbox, "escaped");
    let lived = process::lives(escaped);
    process::kill(escaped, libc::SIGKILL);
    timed_out(&finished);
    assert_eq!(finished.stdout, b"begun\n");
    assert!(lived, "it is not in the group, so that the test proves nothing");
}

/// If a command ends in time but its background child holds the pipe beyond the timeout, it has timed out, and the
/// child is killed.
#[test]
fn a_background_child_can_time_out() {
    let sandbox = Sandbox::started();
    let script = format!("sleep 1000 & echo $! > {}; echo done", sandbox.name("child"));
    let finished = sandbox.client(1).run(&shell(&script).timeout(SHORT));
    timed_out(&finished);
    assert_eq!(finished.stdout, b"done\n");
    let child = process_from(&sandbox, "child");
    wait_until("the child is gone", || !process::lives(child));
}

/// A command with a session of its own times out like any other.
#[test]
fn a_session_of_its_own_times_out() {
    let sandbox = Sandbox::started();
    let script = format!("sleep 1000 & echo $! > {}; wait", sandbox.name("child"));
    timed_out(&sandbox.client(1).run(&shell(&script).new_session().timeout(SHORT)));
    let child = process_from(&sandbox, "child");
    wait_until("the child is gone", || !process::lives(child));
}

/// A command without captured output times out like any other.
#[test]
fn a_command_without_pipes_times_out() {
    let sandbox = Sandbox::started();
    let order = shell("sleep 1000").stdio([Stdio::Null; 3]).timeout(SHORT);
    timed_out(&sandbox.client(1).run(&order));
}

/// A command that was stopped by a signal times out like any other.
#[test]
fn a_stopped_command_times_out() {
    let sandbox = Sandbox::started();
    timed_out(&sandbox.client(1).run(&shell("kill -STOP $$").timeout(SHORT)));
}

/// A command that ends in time has not timed out, and later its timeout has no effect.
#[test]
fn a_command_in_time_just_ran() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let mut order = shell("echo in time").timeout(Duration::from_secs(1000));
    assert_eq!(peer.run(&order).text(), "in time\n");
    for micros in [u64::MAX, u64::MAX / 2, i64::MAX as u64, 1 << 62] {
        order.0.timeout = micros;
        assert_eq!(peer.run(&order).text(), "in time\n", "{micros} µs");
    }
    // The alarm of the first command rings while another command has its number.
    let brief: Order = shell(":").timeout(SHORT);
    peer.run(&brief).text();
    assert_eq!(peer.run(&shell("sleep 1.3; echo not ended")).text(), "not ended\n");
}

/// The timeout begins with the start of the command, not with its arrival.
#[test]
fn waiting_for_a_slot_does_not_count_for_the_timeout() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let gate = sandbox.close_gate("gate");
    let first = peer.submit(&shell(&gate.script));
    let second = peer.submit(&shell("echo waited").timeout(SHORT));
    let mut age = || peer.report()["uptime_s"].as_f64().unwrap();
    let arrived = age();
    wait_until("its time would be up", || age() > arrived + SHORT.as_secs_f64());
    gate.open();
    peer.finish(first).text();
    let finished = peer.finish(second);
    assert!(u128::from(finished.outcome.queued) > SHORT.as_micros(), "{finished:?}");
    assert_eq!(finished.text(), "waited\n");
}

/// A hundred timeouts at once all work, and leave nothing behind.
#[test]
fn many_timeouts_at_once() {
    let sandbox = Sandbox::without_parking();
    let mut peer = sandbox.client(100);
    peer.run(&shell(":")).text();
    let before = process::descriptors(peer.pid);
    let ids: Vec<u32> = (0..100)
        .map(|_| peer.submit(&shell("sleep 1000 & wait").input(b"never read").timeout(SHORT)))
        .collect();
    for id in ids {
        timed_out(&peer.finish(id));
    }
    assert_eq!(process::descriptors(peer.pid), before);
    assert_eq!(peer.report()["totals"]["timed_out"], 100);
}
