//! As many commands at once as a large machine has slots: the result of each is stored.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::support::order::{shell, Order};
use crate::support::peer::Peer;
use crate::support::process;
use crate::support::sandbox::{self, wait_until, Sandbox};
use crate::support::wrapper;
use wafengine::wire::{Caching, Known, Reply, Request, Told};

/// More than the arena had trace regions before it was made for all slots.
const MANY: u32 = 300;

/// An engine with a store, and nothing of the user's settings.
fn open() -> Sandbox {
    let sandbox = Sandbox::new();
    let mut start = wrapper::clean(sandbox.wafd(&["start"]), &sandbox);
    sandbox::run(start.env("WAFCC_DIR", sandbox.path("store"))).succeeded();
    sandbox
}

/// A build with this many slots that has its commands cached.
fn build(sandbox: &Sandbox, jobs: u32) -> Peer {
    let mut peer = sandbox.client(jobs);
    peer.send(&Request::Caching(Caching {
        store: sandbox.path("store").as_os_str().as_bytes().to_vec(),
        ..Caching::default()
    }));
    peer
}

fn numbered(sandbox: &Sandbox, number: u32) -> Order {
    let mut order = shell(&format!("sleep 1000; echo {number} >{number}.out")).cwd(&sandbox.path("work"));
    (order.0.cached, order.0.by_facts) = (true, true);
    order
}

/// Those that sleep. One that is ended while it is loaded has not begun, so its command is not stored.
fn sleepers(sandbox: &Sandbox) -> Vec<i32> {
    let all = sandbox.processes().into_iter();
    all.filter(|(pid, line)| line.starts_with("sleep") && process::sleeps(*pid))
        .map(|(pid, _)| pid)
        .collect()
}

/// Submits all commands, and then calls `meanwhile`. Returns the cache's answer to each.
fn run_all(sandbox: &Sandbox, peer: &mut Peer, meanwhile: impl FnOnce()) -> Vec<Told> {
    let ids: Vec<u32> = (0..MANY)
        .map(|number| peer.submit(&numbered(sandbox, number)))
        .collect();
    meanwhile();
    let mut told = HashMap::new();
    let mut left = ids.len();
    while left > 0 {
        match peer.receive().expect("the connection lasts") {
            Reply::Told { id, told: said } => {
                told.insert(id, said);
            }
            Reply::Outcome(outcome) => {
                assert_eq!(outcome.code, 0, "{outcome:?}");
                left -= 1;
            }
            _ => {}
        }
    }
    ids.iter()
        .map(|id| told.remove(id).expect("the cache tells of each"))
        .collect()
}

/// Hundreds of commands run at the same moment, and the result of each is stored: all of them are hits afterwards.
#[test]
fn results_of_hundreds_of_simultaneous_commands_are_stored() {
    let sandbox = open();
    fs::create_dir(sandbox.path("work")).unwrap();
    let mut peer = build(&sandbox, MANY);
    let told = run_all(&sandbox, &mut peer, || {
        wait_until("all of them run", || sleepers(&sandbox).len() == MANY as usize);
        for pid in sleepers(&sandbox) {
            process::kill(pid, libc::SIGTERM);
        }
    });
    let is_stored = |told: &&Told| matches!(told, Told::Miss { unstored: None, .. });
    let unstored: Vec<_> = told.iter().filter(|told| !is_stored(told)).collect();
    assert!(unstored.is_empty(), "{} of {MANY}: {:?}", unstored.len(), unstored[0]);
    fs::remove_dir_all(sandbox.path("work")).unwrap();
    fs::create_dir(sandbox.path("work")).unwrap();
    // Hits start nothing: a command that slept would not end in time.
    let told = run_all(&sandbox, &mut peer, || {});
    assert!(told.iter().all(|told| told.known() == Known::Hit), "{told:?}");
    for number in 0..MANY {
        let out = fs::read_to_string(sandbox.path(format!("work/{number}.out"))).unwrap();
        assert_eq!(out, format!("{number}\n"));
    }
}
