//! What is not parked, and the words for it; what is remembered of that; what a command line may be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::order::command;
use crate::support::peer::{hello, Peer};
use crate::support::probes::{build, eager, entry, judge, park, parked_process, parked_runs, probe, run_parked, told};
use crate::support::sandbox::{install, new_session, wait_until, Sandbox};
use crate::support::stand_in::StandIn;

/// A program is refused with these words, and its commands run all the same.
#[track_caller]
fn refused(peer: &mut Peer, path: &Path, words: &str) {
    let (state, found) = judge(peer, &told(path, &["--version"]), path);
    assert_eq!((state.as_str(), found.as_str()), ("refused", words));
    assert_eq!(peer.run(&told(path, &["--version"])).text(), "probe 1\n");
    assert_eq!(parked_runs(peer, path), 0);
    let spawned = &peer.report()["parking"]["spawned"];
    assert!(spawned[words].as_u64() > Some(0), "{spawned}");
}

#[track_caller]
fn refused_with(before: &str, words: &str) {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", before);
    refused(&mut sandbox.client(1), &path, words);
}

/// A libc that is not proved to know itself after a fork is left alone: here it does not reach its own thread by a signal.
#[test]
fn a_program_whose_libc_is_lost_after_a_fork_is_refused() {
    let sandbox = eager();
    fs::write(
        sandbox.path("lost.h"),
        "int raise(int signal) { return signal == 0; }\n",
    )
    .unwrap();
    let header = sandbox.path("lost.h");
    let path = build(
        &sandbox,
        "probe",
        "",
        &["-rdynamic", "-include", header.to_str().unwrap()],
    );
    let words = "after a fork, its libc takes itself for the parked thread";
    refused(&mut sandbox.client(1), &path, words);
}

/// How many commands were spawned for this reason.
fn spawned(peer: &mut Peer, reason: &str) -> u64 {
    peer.report()["parking"]["spawned"][reason].as_u64().unwrap_or(0)
}

// ---- by the file

#[test]
fn a_static_program_is_refused() {
    let sandbox = eager();
    let path = build(&sandbox, "probe", "", &["-static"]);
    refused(&mut sandbox.client(1), &path, "it is linked statically");
}

#[test]
fn a_static_program_anywhere_in_memory_is_refused() {
    let sandbox = eager();
    let path = build(&sandbox, "probe", "", &["-static-pie"]);
    let (state, words) = judge(&mut sandbox.client(1), &told(&path, &["--version"]), &path);
    assert_eq!((state.as_str(), words.as_str()), ("refused", "it is linked statically"));
}

#[test]
fn a_script_is_refused() {
    let sandbox = eager();
    fs::write(sandbox.path("text"), "#!/bin/sh\necho probe 1\n").unwrap();
    let path = sandbox.path("script");
    install(&sandbox.path("text"), &path);
    refused(&mut sandbox.client(1), &path.canonicalize().unwrap(), "it is a script");
}

#[test]
fn another_users_rights_are_refused() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    refused(&mut sandbox.client(1), &path, "it runs with another user's rights");
}

#[test]
fn capabilities_are_refused() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let set = Command::new("setcap").arg("cap_net_raw=ep").arg(&path).status();
    if !set.is_ok_and(|status| status.success()) {
        // Not for users, nor on every file system.
        return;
    }
    refused(&mut sandbox.client(1), &path, "it runs with capabilities of its own");
}

#[test]
fn programs_from_nowhere_are_refused() {
    let mut sandbox = Sandbox::new();
    sandbox.use_runtime("run");
    let path = probe(&sandbox, "probe", "");
    let start = sandbox.wafd(&["start"]).env("WAFD_PARK_AFTER", "1").status().unwrap();
    assert!(start.success());
    let words = "it is neither a known compiler nor an installed program";
    refused(&mut sandbox.client(1), &path, words);
}

/// A long time of checks that each run a program of their own neither fills the engine nor drives out what is parked.
#[test]
fn programs_that_were_used_once_are_forgotten() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let parked = parked_process(&mut peer, &path);
    fs::write(sandbox.path("text"), "#!/bin/sh\nexit 0\n").unwrap();
    let folder = sandbox.path("");
    let copies = Command::new("sh")
        .args(["-c", "for n in $(seq 600); do install -m 755 text copy-$n; done"])
        .current_dir(&folder)
        .status();
    assert!(copies.unwrap().success());
    for n in 1..=600 {
        peer.run(&command(&[&sandbox.name(&format!("copy-{n}"))])).ended(0);
    }
    let known = peer.report()["parking"]["programs_known"].as_u64().unwrap();
    assert!((1..600).contains(&known), "{known}");
    assert_eq!(parked_process(&mut peer, &path), parked);
}

// ---- by what it does before main

#[test]
fn files_before_main_are_refused() {
    refused_with("fopen(\"/dev/null\", \"r\")", "it opens files before main");
    refused_with("open(\"/dev/null\", 0)", "it has files open before main");
}

#[test]
fn a_locale_before_main_is_refused() {
    refused_with("setlocale(LC_ALL, \"\")", "it sets its locale before main");
}

#[test]
fn its_process_before_main_is_refused() {
    let words = "it asks for its process or folder before main";
    refused_with("static char b[9999]; getcwd(b, 9999)", words);
    refused_with("getpid()", words);
}

#[test]
fn threads_before_main_are_refused() {
    refused_with(
        "pthread_t t; pthread_create(&t, 0, (void *)pause, 0)",
        "it has threads before main",
    );
}

#[test]
fn signals_before_main_are_refused() {
    let words = "it handles signals before main";
    refused_with("signal(SIGTERM, (void (*)(int))pause)", words);
    refused_with("signal(SIGPIPE, SIG_IGN)", words);
    refused_with("sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK, &s, 0)", words);
}

/// By any of the functions that change it.
#[test]
fn a_changed_environment_is_refused() {
    let words = "it changes its environment before main";
    refused_with("setenv(\"FRESH\", \"1\", 1)", words);
    refused_with("putenv(\"FRESH=1\")", words);
    refused_with("clearenv()", words);
}

#[test]
fn an_environment_changed_in_place_is_refused() {
    refused_with(
        "if (environ[0]) environ[0] = \"CHANGED=1\"",
        "it changes its environment before main",
    );
}

#[test]
fn unset_variables_are_refused() {
    refused_with("unsetenv(\"PATH\")", "it changes its environment before main");
}

/// A constructor may run a child, which has ended before main.
#[test]
fn a_child_before_main_does_no_harm() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "if (!fork()) _exit(0)");
    let mut peer = sandbox.client(1);
    let (state, words) = judge(&mut peer, &told(&path, &["--version"]), &path);
    assert!(state == "refused" || state == "parked", "{words}");
    assert_eq!(peer.run(&told(&path, &["--version"])).text(), "probe 1\n");
    assert_eq!(peer.run(&told(&path, &["exit", "3"])).outcome.code, 3);
}

/// A crash belongs to commands, not to the engine.
#[test]
fn a_crash_before_main_is_refused() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "if (getenv(\"WAFPARK\")) abort()");
    let words = "the library that parks cannot be loaded into it";
    refused(&mut sandbox.client(1), &path, words);
    let path = probe(&sandbox, "exits", "if (getenv(\"WAFPARK\")) _exit(0)");
    refused(&mut sandbox.client(1), &path, words);
}

/// A program that never comes to its main holds up nobody.
#[test]
fn a_program_that_hangs_is_refused() {
    let sandbox = eager();
    let hangs = probe(&sandbox, "hangs", "if (getenv(\"WAFPARK\")) for (;;) pause()");
    let mut peer = sandbox.client(1);
    assert_eq!(peer.run(&told(&hangs, &["--version"])).text(), "probe 1\n");
    assert_eq!(peer.run(&told(&hangs, &["--version"])).text(), "probe 1\n");
    refused(&mut peer, &hangs, "it does not come to its main");
}

/// A program that tells something else in each run, for instance that it is parked, is not to be trusted.
#[test]
fn other_output_is_refused() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "if (getenv(\"WAFPARK\")) puts(\"parked\")");
    refused(&mut sandbox.client(1), &path, "parked, its output differ");
}

/// What is slower when it is parked is refused, and tried again when it was started many times more.
#[test]
fn a_small_gain_is_refused_for_some_time() {
    let sandbox = Sandbox::with(&[("WAFD_PARK", "yes"), ("WAFD_PARK_AFTER", "1")]);
    let mut peer = sandbox.client(1);
    let slow = sandbox.path("slow");
    fs::write(&slow, "").unwrap();
    let text = format!(
        "static int parked; parked = !!getenv(\"WAFPARK\"); \
         void burn(void) {{ if (parked && !access(\"{}\", F_OK)) while (clock() < CLOCKS_PER_SEC / 50); }} \
         atexit(burn); char *p = malloc(6 << 20); memset(p, 1, 6 << 20); __asm__ volatile(\"\" :: \"r\"(p) : \"memory\")",
        slow.display()
    );
    let path = probe(&sandbox, "probe", &text);
    let version = told(&path, &["--version"]);
    let (state, words) = judge(&mut peer, &version, &path);
    assert_eq!(state, "refused", "{words}");
    assert!(words.starts_with("parked, it saves too little: -"), "{words}");
    fs::remove_file(slow).unwrap();
    (0..400).for_each(|_| assert_eq!(peer.run(&version).text(), "probe 1\n"));
    assert_eq!(entry(&mut peer, &path)["state"], "refused");
    wait_until("it is parked after all", || {
        peer.run(&version);
        entry(&mut peer, &path)["state"] == "parked"
    });
}

/// What was proved right is parked whatever it saves, when that is wished.
#[test]
fn a_small_gain_may_be_enough() {
    let sandbox = eager();
    let mut peer = sandbox.client(1);
    park(&mut peer, &Path::new("/usr/bin/true").canonicalize().unwrap());
}

// ---- by the client

/// A library that a client wants loaded is loaded: its command is spawned.
#[test]
fn clients_libraries_are_loaded() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let before = parked_runs(&mut peer, &path);
    for entry in ["LD_PRELOAD=libm.so.6", "LD_AUDIT=/nothing.so", "LD_DEBUG=libs"] {
        peer.define(1, [entry]);
        let finished = peer.run(&told(&path, &["exit", "4"]).env(1));
        assert_eq!(finished.outcome.code, 4);
    }
    assert_eq!(parked_runs(&mut peer, &path), before);
    assert_eq!(spawned(&mut peer, "its environment has a library loaded"), 3);
}

/// A client without address randomisation has its commands spawned.
#[test]
fn another_personality_is_spawned() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    park(&mut sandbox.client(1), &path);
    let Ok((_stand_in, mut peer)) = StandIn::run(&sandbox, &["setarch", "-R", "sh"], || Ok(())) else {
        return; // forbidden here, as in many containers
    };
    peer.welcome(&hello(new_session(), 1));
    peer.define(0, ["A=1"]);
    let text = peer.run(&told(&path, &["show"])).text();
    assert!(text.contains("/proc/self/personality:\n00040000"), "{text}");
    assert_eq!(spawned(&mut peer, "its client has another personality"), 1);
}

/// A command line that does not fit is spawned, and the parked program goes on.
#[test]
fn long_command_lines_run() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let long = "x".repeat(100_000);
    let mut longest = vec!["count"];
    longest.extend([long.as_str(); 3]);
    let many: Vec<&str> = std::iter::once("count")
        .chain(std::iter::repeat_n("y", 20_000))
        .collect();
    assert_eq!(peer.run(&told(&path, &longest)).text(), "5 100000\n");
    assert_eq!(peer.run(&told(&path, &many)).text(), "20002 1\n");
    assert_eq!(spawned(&mut peer, "its command line is too long"), 2);
    // Just below and above each limit.
    for count in [16_300, 16_380, 16_382, 16_383, 16_384, 16_385] {
        let many: Vec<&str> = std::iter::once("count")
            .chain(std::iter::repeat_n("y", count))
            .collect();
        assert_eq!(peer.run(&told(&path, &many)).text(), format!("{} 1\n", count + 2));
    }
    for size in [90_000, 95_000, 97_000, 98_000, 98_304, 99_000] {
        let half = "z".repeat(size);
        let text = peer.run(&told(&path, &["count", &half, &half])).text();
        assert_eq!(text, format!("4 {size}\n"));
    }
    assert_eq!(run_parked(&mut peer, &path, &told(&path, &["count"])).text(), "2 5\n");
}

// ---- by the engine's environment

#[test]
fn parking_can_be_turned_off() {
    let sandbox = Sandbox::with(&[("WAFD_PARK", "no"), ("WAFD_PARK_AFTER", "1")]);
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    assert_eq!(peer.run(&told(&path, &["--version"])).text(), "probe 1\n");
    assert_eq!(peer.report()["parking"]["on"], false);
    assert_eq!(entry(&mut peer, &path), serde_json::Value::Null);
}

/// A program is tried when it was seen so often, and not before.
#[test]
fn programs_are_counted_first() {
    let sandbox = Sandbox::with(&[("WAFD_PARK_AFTER", "3")]);
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    for _ in 0..2 {
        peer.run(&told(&path, &["--version"]));
    }
    assert_eq!(entry(&mut peer, &path)["state"], "counting");
    peer.run(&told(&path, &["--version"]));
    assert_ne!(entry(&mut peer, &path)["state"], "counting");
    park(&mut peer, &path);
}

/// Memory is bounded: of three that take 6 MiB each, two are parked in 14, those that were used last.
#[test]
fn least_used_programs_go_first() {
    let sandbox = Sandbox::with(&[("WAFD_PARK_AFTER", "1"), ("WAFD_PARK_MEMORY", "14")]);
    let mut peer = sandbox.client(1);
    let heavy = "char *p = malloc(6 << 20); memset(p, 1, 6 << 20); __asm__ volatile(\"\" :: \"r\"(p) : \"memory\")";
    let paths: Vec<PathBuf> = ["one", "two", "three"]
        .map(|name| probe(&sandbox, name, heavy))
        .to_vec();
    park(&mut peer, &paths[0]);
    park(&mut peer, &paths[1]);
    run_parked(&mut peer, &paths[0], &told(&paths[0], &["exit", "0"]));
    park(&mut peer, &paths[2]);
    let states: Vec<_> = paths
        .iter()
        .map(|path| entry(&mut peer, path)["state"].clone())
        .collect();
    assert_eq!(states, ["parked", "admitted", "parked"]);
    let report = peer.report();
    assert!(report["parking"]["memory_kib"].as_u64() <= Some(14 << 10), "{report}");
    let giant = probe(&sandbox, "giant", &heavy.replace("6 <<", "20 <<"));
    let (state, words) = judge(&mut peer, &told(&giant, &["--version"]), &giant);
    assert_eq!(state, "refused");
    assert!(words.starts_with("parked, it takes 2"), "{words}");
}

// ---- what is remembered

/// Another engine knows a verdict from the file, and does not try again; a changed program it tries.
///
/// Two trials may have the same words, so the file gets others.
#[test]
fn verdicts_outlive_their_engine() {
    let sandbox = eager();
    let good = probe(&sandbox, "good", "");
    let bad = probe(&sandbox, "bad", "getpid()");
    let mut peer = sandbox.client(1);
    park(&mut peer, &good);
    judge(&mut peer, &told(&bad, &["--version"]), &bad);
    drop(peer);
    sandbox.run(&["stop", "--now"]).succeeded();
    sandbox.wait_until_empty();
    let text = fs::read_to_string(sandbox.folder().verdicts()).unwrap();
    let mut verdicts: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    for verdict in &mut verdicts {
        verdict["words"] = "by an earlier engine".into();
    }
    fs::write(sandbox.folder().verdicts(), serde_json::to_string(&verdicts).unwrap()).unwrap();
    sandbox.start();
    let mut peer = sandbox.client(1);
    park(&mut peer, &good);
    peer.run(&told(&bad, &["--version"]));
    for path in [&good, &bad] {
        let entry = entry(&mut peer, path);
        assert_eq!(entry["words"], "by an earlier engine", "{entry}");
    }
    drop(peer);
    sandbox.run(&["stop", "--now"]).succeeded();
    sandbox.wait_until_empty();
    probe(&sandbox, "bad", "");
    sandbox.start();
    park(&mut sandbox.client(1), &bad);
}

/// A file of verdicts that nobody can read is no verdict.
#[test]
fn broken_verdicts_are_forgotten() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    park(&mut sandbox.client(1), &path);
    sandbox.run(&["stop", "--now"]).succeeded();
    sandbox.wait_until_empty();
    fs::write(sandbox.folder().verdicts(), b"[{\"path\": 1}, nonsense").unwrap();
    sandbox.start();
    park(&mut sandbox.client(1), &path);
}

/// Relative names mean the program in the command's folder.
#[test]
fn names_mean_the_commands_folder() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let folder = path.parent().unwrap();
    let order = command(&["./probe", "exit", "6"]).cwd(folder);
    assert_eq!(run_parked(&mut peer, &path, &order).outcome.code, 6);
    let elsewhere = command(&["./probe", "exit", "6"]).cwd(Path::new("/"));
    peer.run(&elsewhere)
        .not_started(wafengine::wire::Step::Command, libc::ENOENT);
    wait_until("the engine answers", || entry(&mut peer, &path)["state"] == "parked");
}
