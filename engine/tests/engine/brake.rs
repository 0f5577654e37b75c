//! The brake holds commands back when memory is short or the machine is busy, but never the first command of a build.

use std::fs;
use std::path::PathBuf;

use crate::support::order::shell;
use crate::support::peer::Peer;
use crate::support::sandbox::{run, wait_until, Sandbox};
use wafengine::wire::{Policy, Request};

/// Files that replace the kernel's.
struct Gauges(PathBuf);

impl Gauges {
    fn new(sandbox: &Sandbox) -> Gauges {
        let gauges = Gauges(sandbox.path("gauges"));
        fs::create_dir_all(gauges.0.join("pressure")).unwrap();
        gauges.set_pressure(0.0);
        gauges.set_available(4096);
        gauges.set_runnable(0);
        gauges
    }

    /// Replaces the file in one step, as the kernel's own change, so that a reader never sees half of it.
    fn write(&self, name: &str, text: &str) {
        let fresh = self.0.join("fresh");
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, self.0.join(name)).unwrap();
    }

    fn set_pressure(&self, percent: f64) {
        let some = format!("some avg10={percent:.2} avg60=0.00 avg300=0.00 total=0\n");
        self.write("pressure/memory", &some);
    }

    fn set_available(&self, mib: u64) {
        let (total, available) = (8192 << 10, mib << 10);
        let text = format!("MemTotal: {total} kB\nMemFree: 0 kB\nMemAvailable: {available} kB\n");
        self.write("meminfo", &text);
    }

    fn set_runnable(&self, others: usize) {
        self.write("loadavg", &format!("0.00 0.00 0.00 {}/100 1\n", others + 1));
    }

    /// Starts an engine that reads these files.
    fn start(&self, sandbox: &Sandbox, brake: &str) {
        let mut start = sandbox.wafd(&["start"]);
        run(start.env("WAFD_GAUGES", &self.0).env("WAFD_MEMORY_BRAKE", brake)).succeeded();
    }
}

fn wait_for_running(sandbox: &Sandbox, wanted: (u64, u64)) {
    let mut watcher = sandbox.greeter();
    wait_until(&format!("{wanted:?} run and wait"), || {
        let slots = &watcher.report()["slots"];
        (slots["running"].as_u64().unwrap(), slots["waiting"].as_u64().unwrap()) == wanted
    });
}

fn finish(peer: &mut Peer, ids: Vec<u32>) {
    ids.into_iter().for_each(|id| drop(peer.finish(id).text()));
}

#[test]
fn under_memory_pressure_one_command_runs_and_then_all_again() {
    let sandbox = Sandbox::new();
    let gauges = Gauges::new(&sandbox);
    gauges.set_pressure(40.0);
    gauges.start(&sandbox, "yes");
    let gate = sandbox.close_gate("gate");
    let mut peer = sandbox.client(3);
    let ids = (0..3).map(|_| peer.submit(&shell(&gate.script))).collect();
    wait_for_running(&sandbox, (1, 2));
    let told = sandbox.run(&["status"]).succeeded();
    assert!(
        told.contains("memory pressure: somebody waits for memory 40 % of the time"),
        "{told}"
    );
    gauges.set_pressure(7.0);
    wait_until("the milder pressure is read", || {
        sandbox.status()["brake"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("7 %"))
    });
    assert_eq!(sandbox.status()["slots"]["running"], 1, "released only below 5 %");
    gauges.set_pressure(1.0);
    wait_for_running(&sandbox, (3, 0));
    assert_eq!(sandbox.status()["brake"]["times"], 1);
    gate.open();
    finish(&mut peer, ids);
}

#[test]
fn with_little_memory_left_one_command_of_each_build_runs() {
    let sandbox = Sandbox::new();
    let gauges = Gauges::new(&sandbox);
    fs::remove_file(gauges.0.join("pressure/memory")).unwrap();
    gauges.set_available(100);
    gauges.start(&sandbox, "yes");
    let gate = sandbox.close_gate("gate");
    let mut builds = [sandbox.client(4), sandbox.client(4)];
    let ids: Vec<Vec<u32>> = builds
        .iter_mut()
        .map(|peer| (0..2).map(|_| peer.submit(&shell(&gate.script))).collect())
        .collect();
    wait_for_running(&sandbox, (2, 2));
    let told = sandbox.run(&["status"]).succeeded();
    assert!(told.contains("100 MiB available, 256 MiB are to be left"), "{told}");
    gate.open();
    for (peer, ids) in builds.iter_mut().zip(ids) {
        finish(peer, ids);
    }
}

#[test]
fn a_build_or_the_engine_can_do_without_the_brake() {
    for (brake, no_brake) in [("no", false), ("yes", true)] {
        let sandbox = Sandbox::new();
        let gauges = Gauges::new(&sandbox);
        gauges.set_pressure(90.0);
        gauges.start(&sandbox, brake);
        let gate = sandbox.close_gate("gate");
        let mut peer = sandbox.client(3);
        peer.send(&policy(no_brake, 0));
        let ids = (0..3).map(|_| peer.submit(&shell(&gate.script))).collect();
        wait_for_running(&sandbox, (3, 0));
        gate.open();
        finish(&mut peer, ids);
    }
}

fn policy(no_brake: bool, load: u32) -> Request {
    Request::Policy(Policy {
        no_brake,
        tokens: false,
        serve: None,
        load,
        memory: None,
    })
}

#[test]
fn a_build_that_limits_the_load_adds_nothing_to_a_busy_machine() {
    let sandbox = Sandbox::new();
    let gauges = Gauges::new(&sandbox);
    gauges.set_runnable(5);
    gauges.start(&sandbox, "yes");
    let gate = sandbox.close_gate("gate");
    let mut peer = sandbox.client(3);
    peer.send(&policy(false, 400));
    let ids = (0..3).map(|_| peer.submit(&shell(&gate.script))).collect();
    wait_for_running(&sandbox, (1, 2));
    let told = sandbox.run(&["status"]).succeeded();
    assert!(
        told.contains("waits: load: 5 threads run, the build wants at most 4"),
        "{told}"
    );
    gauges.set_runnable(1);
    wait_for_running(&sandbox, (3, 0));
    gate.open();
    finish(&mut peer, ids);
}

#[test]
fn commands_that_start_together_do_not_overshoot_the_load() {
    let sandbox = Sandbox::new();
    let gauges = Gauges::new(&sandbox);
    gauges.set_runnable(2);
    gauges.start(&sandbox, "yes");
    let gate = sandbox.close_gate("gate");
    let mut peer = sandbox.client(8);
    peer.send(&policy(false, 300));
    // One write for both: the engine grants them in one round, with one reading of the files.
    let mut bytes = Vec::new();
    let requests: Vec<_> = (0..2).map(|_| peer.number(&shell(&gate.script))).collect();
    requests.iter().for_each(|request| request.encode(&mut bytes));
    peer.write(&bytes);
    wait_for_running(&sandbox, (2, 0));
    gate.open();
    finish(&mut peer, vec![0, 1]);
}

#[test]
fn a_mistake_in_the_environment_is_one_line() {
    let sandbox = Sandbox::new();
    let said = run(sandbox.wafd(&["start"]).env("WAFD_MEMORY_BRAKE", "perhaps")).failed();
    assert!(
        said.contains("WAFD_MEMORY_BRAKE is \"perhaps\": set it to yes or no"),
        "{said}"
    );
}
