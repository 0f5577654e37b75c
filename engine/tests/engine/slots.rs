//! Slots: how many commands run at the same time, of which builds, and that a build inside a build goes on.

use std::fs;

use crate::support::order::{shell, Order};
use crate::support::peer::{hello, Peer};
use crate::support::sandbox::{new_session, wait_until, Gate, Sandbox};
use wafengine::wire::{Hello, Request, Verdict, WISH_OWN_SLOTS};

/// A build whose name is in the report.
fn build(sandbox: &Sandbox, name: &str, session: [u8; 16], jobs: u32, wishes: u32) -> Peer {
    let mut peer = sandbox.stranger();
    peer.welcome(&Hello {
        wishes,
        name: name.into(),
        ..hello(session, jobs)
    });
    peer.define(0, sandbox.environment());
    peer
}

/// (running, waiting) commands of a build.
fn load(report: &serde_json::Value, name: &str) -> (u64, u64) {
    let sessions = report["sessions"].as_array().unwrap();
    let session = sessions
        .iter()
        .find(|s| s["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {report}"));
    (
        session["running"].as_u64().unwrap(),
        session["waiting"].as_u64().unwrap(),
    )
}

fn wait_for_loads(sandbox: &Sandbox, expected: &[(&str, (u64, u64))]) {
    let mut watcher = sandbox.greeter();
    let mut seen = serde_json::Value::Null;
    let what = format!("running and waiting are {expected:?}");
    wait_until(&what, || {
        seen = watcher.report();
        expected.iter().all(|(name, wanted)| load(&seen, name) == *wanted)
    });
}

/// A command that counts how many of its kind run, and then waits at the gate.
fn counting_command(sandbox: &Sandbox, kind: &str, gate: &Gate) -> Order {
    let folder = sandbox.path(kind);
    let _ = fs::create_dir(&folder);
    shell(&format!(
        "touch run.$$; ls -d run.* | wc -l; {}; rm run.$$",
        gate.script
    ))
    .cwd(&folder)
}

fn count(text: &str) -> u64 {
    text.trim().parse().unwrap()
}

fn finish_all(peer: &mut Peer, ids: &[u32]) -> Vec<u64> {
    ids.iter().map(|id| count(&peer.finish(*id).text())).collect()
}

/// A build runs as many commands at the same time as it has jobs: not fewer while some wait, and never more.
#[test]
fn jobs_are_used_and_respected() {
    for jobs in [1, 3] {
        let sandbox = Sandbox::started();
        let mut peer = build(&sandbox, "a", new_session(), jobs, 0);
        let gate = sandbox.close_gate("gate");
        let order = counting_command(&sandbox, "a", &gate);
        let ids: Vec<u32> = (0..20).map(|_| peer.submit(&order)).collect();
        let jobs = u64::from(jobs);
        wait_for_loads(&sandbox, &[("a", (jobs, 20 - jobs))]);
        wait_until("all of them have begun", || {
            fs::read_dir(sandbox.path("a")).unwrap().count() as u64 == jobs
        });
        gate.open();
        let counts = finish_all(&mut peer, &ids);
        assert_eq!(counts.iter().max(), Some(&jobs), "{counts:?}");
    }
}

/// Waiting commands of one connection start in the order in which they were sent.
#[test]
fn commands_start_in_their_order() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let ids: Vec<u32> = (0..30).map(|_| peer.submit(&shell(":"))).collect();
    peer.finish(ids[29]);
    assert_eq!(peer.order, ids);
}

/// All connections of a build share its jobs. The largest number that any of them declared applies.
#[test]
fn connections_of_a_build_share_its_jobs() {
    let sandbox = Sandbox::started();
    let session = new_session();
    let mut peers: Vec<Peer> = [1, 2, 1]
        .iter()
        .map(|jobs| build(&sandbox, "a", session, *jobs, 0))
        .collect();
    let gate = sandbox.close_gate("gate");
    let order = counting_command(&sandbox, "a", &gate);
    let ids: Vec<Vec<u32>> = peers
        .iter_mut()
        .map(|peer| (0..4).map(|_| peer.submit(&order)).collect())
        .collect();
    wait_for_loads(&sandbox, &[("a", (2, 10))]);
    assert_eq!(sandbox.status()["slots"]["capacity"], 2);
    gate.open();
    let counts: Vec<u64> = peers
        .iter_mut()
        .zip(&ids)
        .flat_map(|(peer, ids)| finish_all(peer, ids))
        .collect();
    assert!(counts.iter().all(|n| *n <= 2), "{counts:?}");
}

/// Two builds share the slots: the second one gets a slot at once, and then the next free ones until both have as many.
#[test]
fn two_builds_share_the_slots() {
    let sandbox = Sandbox::started();
    let mut a = build(&sandbox, "a", new_session(), 4, 0);
    let mut b = build(&sandbox, "b", new_session(), 4, 0);
    let gates: Vec<Gate> = (0..8).map(|i| sandbox.close_gate(&format!("gate{i}"))).collect();
    for gate in &gates {
        a.submit(&shell(&gate.script));
    }
    wait_for_loads(&sandbox, &[("a", (4, 4))]);
    let shut = sandbox.close_gate("b");
    let order = shell(&shut.script);
    let ids: Vec<u32> = (0..8).map(|_| b.submit(&order)).collect();
    wait_for_loads(&sandbox, &[("a", (4, 4)), ("b", (1, 7))]);
    // Each command of `a` that ends frees a slot for `b`, until both have as many.
    let mut gates = gates.into_iter();
    let mut ended = 0;
    for loads in [[(3, 4), (1, 7)], [(2, 4), (2, 6)]] {
        drop(gates.next());
        a.finish(ended).text();
        ended += 1;
        wait_for_loads(&sandbox, &[("a", loads[0]), ("b", loads[1])]);
    }
    drop(gates.next());
    a.finish(ended).text();
    wait_for_loads(&sandbox, &[("a", (2, 3)), ("b", (2, 6))]);
    // Slots that `a` no longer uses go to `b`.
    drop(a);
    wait_until("b has all", || load(&sandbox.status(), "b") == (4, 4));
    shut.open();
    for id in ids {
        b.finish(id).text();
    }
}

/// Many builds together run no more commands than the largest one has jobs, plus one for each other build.
#[test]
fn many_builds_do_not_multiply_the_load() {
    let sandbox = Sandbox::started();
    let mut peers: Vec<Peer> = (0..5)
        .map(|i| build(&sandbox, &format!("b{i}"), new_session(), 6, 0))
        .collect();
    let gate = sandbox.close_gate("gate");
    let order = counting_command(&sandbox, "all", &gate);
    let ids: Vec<Vec<u32>> = peers
        .iter_mut()
        .map(|peer| (0..10).map(|_| peer.submit(&order)).collect())
        .collect();
    // The first build may have taken all six slots. Each other build has one then.
    wait_until("slots are full", || {
        let report = sandbox.status();
        report["slots"]["running"].as_u64() >= Some(6)
            && (0..5).all(|i| load(&report, &format!("b{i}")).0 >= 1)
            && report["slots"]["waiting"].as_u64() > Some(0)
    });
    gate.open();
    let counts: Vec<u64> = peers
        .iter_mut()
        .zip(&ids)
        .flat_map(|(peer, ids)| finish_all(peer, ids))
        .collect();
    assert!(counts.iter().all(|n| *n <= 6 + 4), "{counts:?}");
}

/// A build with slots of its own does not wait for others, does not delay them, and gives them no slots.
#[test]
fn own_slots_are_not_shared() {
    let sandbox = Sandbox::started();
    let mut a = build(&sandbox, "a", new_session(), 2, 0);
    let mut b = build(&sandbox, "b", new_session(), 3, WISH_OWN_SLOTS);
    let mut c = build(&sandbox, "c", new_session(), 3, WISH_OWN_SLOTS);
    let gate = sandbox.close_gate("gate");
    for peer in [&mut a, &mut b, &mut c] {
        for _ in 0..5 {
            peer.submit(&shell(&gate.script));
        }
    }
    wait_for_loads(&sandbox, &[("a", (2, 3)), ("b", (3, 2)), ("c", (3, 2))]);
    let report = sandbox.status();
    assert_eq!(report["slots"]["capacity"], 2);
    assert_eq!(
        report["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|s| s["own_slots"] == true)
            .count(),
        2
    );
    gate.open();
    for peer in [&mut a, &mut b, &mut c] {
        (0..5).for_each(|id| drop(peer.finish(id)));
    }
}

/// A command may wait for a command of another build, however deep builds are nested.
#[test]
fn a_build_inside_a_build_goes_on() {
    const DEPTH: usize = 4;
    let sandbox = Sandbox::started();
    let mut peers: Vec<Peer> = (0..DEPTH)
        .map(|i| build(&sandbox, &format!("level {i}"), new_session(), 1, 0))
        .collect();
    // Each holds its only slot until the file of the next level exists.
    for (i, peer) in peers.iter_mut().enumerate() {
        let (mine, inner) = (
            sandbox.name(&format!("level{i}")),
            sandbox.name(&format!("level{}", i + 1)),
        );
        let script = match i + 1 < DEPTH {
            true => format!("while [ ! -e {inner} ]; do sleep 0.01; done; touch {mine}; echo {i}"),
            false => format!("touch {mine}; echo {i}"),
        };
        let id = peer.submit(&shell(&script));
        peer.submit(&shell(":"));
        if i + 1 < DEPTH {
            wait_until("it runs", || load(&sandbox.status(), &format!("level {i}")).0 == 1);
            assert!(!peer.has_finished(id));
        }
    }
    for (i, peer) in peers.iter_mut().enumerate() {
        assert_eq!(peer.finish(0).text(), format!("{i}\n"));
        peer.finish(1).text();
    }
}

/// The command that a build may always start is only one: its others wait for a slot.
#[test]
fn the_implicit_command_is_one() {
    let sandbox = Sandbox::started();
    let mut a = build(&sandbox, "a", new_session(), 2, 0);
    let mut b = build(&sandbox, "b", new_session(), 2, 0);
    let (first, second) = (sandbox.close_gate("first"), sandbox.close_gate("second"));
    for _ in 0..2 {
        a.submit(&shell(&first.script));
    }
    wait_for_loads(&sandbox, &[("a", (2, 0))]);
    for _ in 0..3 {
        b.submit(&shell(&second.script));
    }
    wait_for_loads(&sandbox, &[("a", (2, 0)), ("b", (1, 2))]);
    for _ in 0..10 {
        sandbox.tick();
        assert_eq!(load(&sandbox.status(), "b"), (1, 2));
    }
    drop(first);
    wait_for_loads(&sandbox, &[("a", (0, 0)), ("b", (2, 1))]);
    drop(second);
    (0..3).for_each(|id| drop(b.finish(id)));
}

/// A build that disconnects leaves its slots, its waiting commands and its capacity.
#[test]
fn a_build_that_leaves_makes_room() {
    let sandbox = Sandbox::started();
    let mut big = build(&sandbox, "big", new_session(), 8, 0);
    for _ in 0..20 {
        big.submit(&shell("sleep 1000"));
    }
    let mut small = build(&sandbox, "small", new_session(), 2, 0);
    let gate = sandbox.close_gate("gate");
    for _ in 0..4 {
        small.submit(&shell(&gate.script));
    }
    wait_for_loads(&sandbox, &[("big", (8, 12)), ("small", (1, 3))]);
    drop(big);
    wait_for_loads(&sandbox, &[("small", (2, 2))]);
    wait_until("nothing is left of it", || {
        let slots = &sandbox.status()["slots"];
        (&slots["running"], &slots["waiting"], &slots["capacity"]) == (&2.into(), &2.into(), &2.into())
    });
    gate.open();
    (0..4).for_each(|id| drop(small.finish(id)));
}

/// A session ends with its last connection.
#[test]
fn a_build_lasts_as_long_as_one_of_its_connections() {
    let sandbox = Sandbox::started();
    let session = new_session();
    let mut stays = build(&sandbox, "a", session, 1, 0);
    let mut leaves = build(&sandbox, "a", session, 4, 0);
    let gate = sandbox.close_gate("gate");
    let waits = stays.submit(&shell(&gate.script));
    leaves.submit(&shell("sleep 1000"));
    wait_for_loads(&sandbox, &[("a", (2, 0))]);
    drop(leaves);
    wait_for_loads(&sandbox, &[("a", (1, 0))]);
    let more: Vec<u32> = (0..3).map(|_| stays.submit(&shell(&gate.script))).collect();
    // Its jobs are those that were declared for it.
    wait_for_loads(&sandbox, &[("a", (4, 0))]);
    gate.open();
    stays.finish(waits).text();
    more.into_iter().for_each(|id| drop(stays.finish(id)));
    drop(stays);
    wait_until("the session has ended", || {
        sandbox.status()["sessions"].as_array().unwrap().is_empty()
    });
}

/// A cancelled command frees its place in the queue or its slot.
#[test]
fn a_cancelled_command_makes_room() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let runs = peer.submit(&shell("sleep 1000"));
    let waits = peer.submit(&shell("echo never"));
    let last = peer.submit(&shell("echo next"));
    for id in [waits, runs] {
        peer.send(&Request::Cancel { id });
        assert_eq!(peer.finish(id).outcome.verdict, Verdict::Cancelled);
    }
    assert_eq!(peer.finish(last).text(), "next\n");
}

/// A TCP client and a Unix client with the same session are one build.
#[test]
fn a_build_may_use_both_sockets() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--tcp"]).succeeded();
    let (port, token) = sandbox.folder().read_token().unwrap();
    let session = new_session();
    let mut unix = build(&sandbox, "a", session, 1, 0);
    let mut tcp = Peer::tcp(port);
    tcp.welcome(&Hello {
        token: token.into_bytes(),
        name: b"a".to_vec(),
        ..hello(session, 1)
    });
    tcp.define(0, sandbox.environment());
    let gate = sandbox.close_gate("gate");
    unix.submit(&shell(&gate.script));
    wait_for_loads(&sandbox, &[("a", (1, 0))]);
    tcp.submit(&shell("echo at last"));
    wait_for_loads(&sandbox, &[("a", (1, 1))]);
    gate.open();
    assert_eq!(tcp.finish(0).text(), "at last\n");
}
