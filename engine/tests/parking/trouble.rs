//! What goes wrong around parked programs costs speed, and never a command: none is lost, and none runs twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::order::shell;
use crate::support::peer::bytes_of;
use crate::support::probes::{build, eager, entry, judge, park, parked_process, parked_runs, probe, run_parked, told};
use crate::support::process;
use crate::support::sandbox::{install, wait_until, Sandbox};
use wafengine::wire::Verdict;

/// How many commands have left their mark in a file.
fn marks(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// The process of a command and of its child, which it has noted.
#[track_caller]
fn family(path: &Path) -> [i32; 2] {
    let mut found = Vec::new();
    wait_until("the command has noted itself", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        found = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        found.len() == 2 && text.ends_with('\n')
    });
    [found[0], found[1]]
}

// ---- commands that are to end

/// A cancelled command goes with all that it has started.
#[test]
fn a_command_that_is_not_wanted_any_more_goes() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let noted = sandbox.path("noted");
    let mut keeper = sandbox.client(1);
    park(&mut keeper, &path);
    let mut peer = sandbox.client(1);
    peer.submit(&told(&path, &["nest".as_ref(), noted.as_os_str()]));
    let family = family(&noted);
    assert_eq!(process::parent(family[0]), sandbox.engine());
    drop(peer);
    wait_until("both are gone", || family.iter().all(|pid| !process::lives(*pid)));
    run_parked(&mut keeper, &path, &told(&path, &["exit", "0"])).ended(0);
}

/// A command that takes too long goes with all that it has started.
#[test]
fn a_command_that_takes_too_long_goes() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let noted = sandbox.path("noted");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let order = told(&path, &["nest".as_ref(), noted.as_os_str()]).timeout(Duration::from_millis(300));
    let finished = run_parked(&mut peer, &path, &order);
    assert_ne!(finished.outcome.verdict, Verdict::Ran);
    let family = family(&noted);
    wait_until("both are gone", || family.iter().all(|pid| !process::lives(*pid)));
}

/// Nothing is left of an engine that was killed: neither what is parked nor what runs.
#[test]
fn a_killed_engine_leaves_nothing() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let noted = sandbox.path("noted");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let parked = parked_process(&mut peer, &path);
    peer.submit(&told(&path, &["nest".as_ref(), noted.as_os_str()]));
    let family = family(&noted);
    process::kill(sandbox.engine(), libc::SIGKILL);
    wait_until("all are gone", || {
        [parked, family[0], family[1]].iter().all(|pid| !process::lives(*pid))
    });
    sandbox.wait_until_empty();
    sandbox.start();
    park(&mut sandbox.client(1), &path);
}

/// What the engine was trying goes with it, though nobody has asked for it and the guardian is killed as well.
#[test]
fn a_trial_that_hangs_goes_with_engine_and_guardian() {
    let sandbox = eager();
    let noted = sandbox.path("noted");
    // In the plain run of its trial it starts a child, and neither of them ends.
    let lines = format!(
        r#"const char *folder = getenv("TMPDIR");
        if (folder && strstr(folder, ".trial") && !getenv("LD_PRELOAD")) {{
            int first = getpid();
            if (fork() == 0) {{
                FILE *file = fopen("{}", "w");
                fprintf(file, "%d %d\n", first, getpid());
                fclose(file);
            }}
            for (;;) pause();
        }}"#,
        noted.display()
    );
    let hang = lines.replace('\n', " ");
    let path = probe(&sandbox, "probe", &hang);
    sandbox.client(1).run(&told(&path, &["--version"])).ended(0);
    let family = family(&noted);
    let (engine, guardian) = (sandbox.engine(), sandbox.guardian());
    [guardian, engine]
        .iter()
        .for_each(|pid| process::kill(*pid, libc::SIGKILL));
    fs::remove_file(&noted).unwrap();
    sandbox.start();
    wait_until("both are gone", || family.iter().all(|pid| !process::lives(*pid)));
}

/// An engine that is told to stop takes all parked processes along, and leaves no zombies while it lives.
#[test]
fn a_stopped_engine_leaves_nothing() {
    let sandbox = eager();
    let paths = ["one", "two"].map(|name| probe(&sandbox, name, ""));
    let refused = probe(&sandbox, "bad", "getpid()");
    let mut peer = sandbox.client(1);
    paths.iter().for_each(|path| park(&mut peer, path));
    judge(&mut peer, &told(&refused, &["--version"]), &refused);
    let parked = paths.each_ref().map(|path| parked_process(&mut peer, path));
    let engine = sandbox.engine();
    wait_until("only what is parked is left", || {
        let mut children = process::children(engine);
        children.sort_unstable();
        let mut wanted = parked;
        wanted.sort_unstable();
        children == wanted
    });
    drop(peer);
    sandbox.run(&["stop"]).succeeded();
    sandbox.wait_until_empty();
    wait_until("no zombie is left", || {
        parked.iter().all(|pid| process::stat(*pid).is_none())
    });
}

// ---- parked processes that end or hang

/// A parked process is killed between commands, again and again: each command runs once.
#[test]
fn a_killed_parked_process_loses_nothing() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let file = sandbox.path("marks");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    for done in 1..=8 {
        if let Some(pid) = entry(&mut peer, &path)["parked"][0]["pid"].as_i64() {
            process::kill(pid as i32, libc::SIGKILL);
        }
        peer.run(&told(&path, &["mark".as_ref(), file.as_os_str()])).ended(0);
        assert_eq!(marks(&file), done);
    }
    let engine = sandbox.engine();
    wait_until("no zombie is left", || {
        let children = process::children(engine);
        children.iter().all(|pid| process::lives(*pid))
    });
}

/// The same while requests are under way.
#[test]
fn a_parked_process_killed_in_the_middle_doubles_nothing() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let file = sandbox.path("marks");
    let mut peer = sandbox.client(4);
    park(&mut peer, &path);
    let order = told(&path, &["mark".as_ref(), file.as_os_str()]);
    let mut sent = 0;
    for round in 0..12 {
        let pid = entry(&mut peer, &path)["parked"][0]["pid"].as_i64();
        let ids: Vec<u32> = (0..12).map(|_| peer.submit(&order)).collect();
        sent += ids.len();
        if round % 2 == 1 {
            peer.finish(ids[round % ids.len()]);
        }
        if let Some(pid) = pid {
            process::kill(pid as i32, libc::SIGKILL);
        }
        for id in ids {
            if !peer.order.contains(&id) || peer.has_finished(id) {
                peer.finish(id).ended(0);
            }
        }
        assert_eq!(marks(&file), sent, "round {round}");
    }
}

/// A stopped parked process holds up its command for a moment: it is run once, and the next ones at once.
#[test]
fn a_stopped_parked_process_holds_up_nothing_for_long() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let file = sandbox.path("marks");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let parked = parked_process(&mut peer, &path);
    process::stop(parked);
    let order = told(&path, &["mark".as_ref(), file.as_os_str()]);
    peer.run(&order).ended(0);
    assert_eq!(marks(&file), 1);
    wait_until("the stopped process is gone", || !process::lives(parked));
    peer.run(&order).ended(0);
    assert_eq!(marks(&file), 2);
}

/// Commands of other programs, and answers to status, do not wait for a parked process that is stopped.
#[test]
fn a_stopped_parked_process_is_waited_for_by_its_command_only() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let file = sandbox.path("marks");
    let mut peer = sandbox.client(4);
    park(&mut peer, &path);
    process::stop(parked_process(&mut peer, &path));
    let held = peer.submit(&told(&path, &["mark".as_ref(), file.as_os_str()]));
    let other = peer.submit(&shell("echo quick"));
    peer.finish(other);
    peer.finish(held).ended(0);
    assert!(
        peer.order.ends_with(&[other, held]),
        "another command waited for the stopped process"
    );
    assert_eq!(marks(&file), 1);
}

/// Commands that come to a parked process before an answer of it has been heard do not wait for whoever comes for that.
#[test]
fn an_answer_that_nobody_waits_for_holds_up_nothing() {
    let sandbox = eager();
    let [one, two] = ["one", "two"].map(|name| probe(&sandbox, name, ""));
    let crew = std::thread::available_parallelism().map_or(1, |n| n.get()).min(16);
    let mut peer = sandbox.client(2 * crew as u32 + 1);
    park(&mut peer, &one);
    park(&mut peer, &two);
    let parked = [&one, &two].map(|path| parked_process(&mut peer, path));
    parked.iter().for_each(|pid| process::stop(*pid));
    // All threads wait for the one, some commands for a thread, and the last was asked of the other without time to wait.
    let mut submit = |path: &Path, count: usize| {
        let requests = (0..count).flat_map(|_| bytes_of(&peer.number(&told(path, &["exit", "0"]))));
        let requests: Vec<u8> = requests.collect();
        peer.write(&requests);
        std::thread::sleep(Duration::from_millis(100));
    };
    submit(&one, crew);
    submit(&two, crew);
    submit(&two, 1);
    parked.iter().for_each(|pid| process::kill(*pid, libc::SIGCONT));
    let last = peer.submit(&told(&one, &["exit", "0"]));
    for id in last - 2 * crew as u32 - 1..=last {
        peer.finish(id).ended(0);
    }
    for (path, pid) in [&one, &two].into_iter().zip(parked) {
        assert_eq!(parked_process(&mut peer, path), pid, "it was given up");
    }
}

// ---- files that change

/// Another version of the probe, for a replacement.
fn next_version(sandbox: &Sandbox) -> PathBuf {
    build(sandbox, "next", "", &["-DVERSION=\"probe 2\""])
}

/// A program that was replaced, rewritten or touched is the new one with the very next command.
#[test]
fn a_replaced_program_is_the_new_one_at_once() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let next = next_version(&sandbox);
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let old = parked_process(&mut peer, &path);
    fs::rename(&next, &path).unwrap();
    let order = told(&path, &["--version"]);
    assert_eq!(peer.run(&order).text(), "probe 2\n");
    wait_until("the old one is gone", || !process::lives(old));
    park(&mut peer, &path);
    assert_eq!(run_parked(&mut peer, &path, &order).text(), "probe 2\n");
}

/// `install` unlinks first; a program of the same size and inode differs by its times.
#[test]
fn a_touched_program_is_tried_again() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let old = parked_process(&mut peer, &path);
    assert!(std::process::Command::new("touch")
        .arg(&path)
        .status()
        .unwrap()
        .success());
    let before = parked_runs(&mut peer, &path);
    assert_eq!(peer.run(&told(&path, &["--version"])).text(), "probe 1\n");
    assert!(parked_runs(&mut peer, &path) <= before);
    wait_until("the old one is gone", || !process::lives(old));
    park(&mut peer, &path);
}

/// A probe that says what its library says.
struct ProgramOutput {
    sandbox: Sandbox,
    path: PathBuf,
}

impl ProgramOutput {
    /// The program finds its library in the folder `lib`, unless `flags` have it look elsewhere.
    fn new(run_path: bool) -> ProgramOutput {
        let sandbox = eager();
        fs::create_dir(sandbox.path("lib")).unwrap();
        fs::write(sandbox.path("said.h"), "extern const char *said(void);\n").unwrap();
        let mut said = ProgramOutput {
            path: PathBuf::new(),
            sandbox,
        };
        said.make("first", "lib/libsaid.so");
        let mut flags = vec![
            "-DVERSION=said()".to_owned(),
            "-include".to_owned(),
            said.sandbox.name("said.h"),
            said.sandbox.name("lib/libsaid.so"),
        ];
        if run_path {
            flags.push(format!("-Wl,-rpath,{}", said.sandbox.path("lib").display()));
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        said.path = build(&said.sandbox, "probe", "", &flags);
        said
    }

    /// Puts another file where the library is, as installers do.
    fn make(&self, word: &str, name: &str) {
        let (source, fresh) = (self.sandbox.path("said.c"), self.sandbox.path("fresh.so"));
        fs::write(&source, format!("const char *said(void) {{ return \"{word}\"; }}\n")).unwrap();
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wl,-soname,libsaid.so"])
            .arg(&source)
            .arg("-o")
            .arg(&fresh);
        assert!(cc.status().unwrap().success());
        install(&fresh, &self.sandbox.path(name));
    }
}

/// A library that was replaced is the new one with the very next command.
#[test]
fn a_replaced_library_is_the_new_one_at_once() {
    let said = ProgramOutput::new(true);
    let mut peer = said.sandbox.client(1);
    let order = told(&said.path, &["--version"]);
    park(&mut peer, &said.path);
    assert_eq!(run_parked(&mut peer, &said.path, &order).text(), "first\n");
    for word in ["second", "third", "fourth", "fifth"] {
        said.make(word, "lib/libsaid.so");
        assert_eq!(peer.run(&order).text(), format!("{word}\n"));
        park(&mut peer, &said.path);
        assert_eq!(run_parked(&mut peer, &said.path, &order).text(), format!("{word}\n"));
    }
    let spawned = peer.report()["parking"]["spawned"].clone();
    assert!(
        spawned["a library of it was exchanged"].as_u64() >= Some(1),
        "{spawned}"
    );
}

/// A library under the name of a link that leads elsewhere is the new one, though the old file is there as it was.
#[test]
fn a_library_behind_a_turned_link_is_the_new_one_at_once() {
    let said = ProgramOutput::new(true);
    let (library, turned) = (said.sandbox.path("lib/libsaid.so"), said.sandbox.path("turned"));
    said.make("second", "lib/libsaid.so.2");
    fs::rename(&library, said.sandbox.path("lib/libsaid.so.1")).unwrap();
    std::os::unix::fs::symlink("libsaid.so.1", &library).unwrap();
    let mut peer = said.sandbox.client(1);
    let order = told(&said.path, &["--version"]);
    park(&mut peer, &said.path);
    assert_eq!(run_parked(&mut peer, &said.path, &order).text(), "first\n");
    std::os::unix::fs::symlink("libsaid.so.2", &turned).unwrap();
    fs::rename(&turned, &library).unwrap();
    assert_eq!(peer.run(&order).text(), "second\n");
    park(&mut peer, &said.path);
    assert_eq!(run_parked(&mut peer, &said.path, &order).text(), "second\n");
}

/// Libraries that are meant from the folder of a command are those of its folder.
#[test]
fn libraries_of_the_commands_folder_are_its_own() {
    let said = ProgramOutput::new(false);
    for (folder, word) in [("one", "one"), ("two", "two")] {
        fs::create_dir_all(said.sandbox.path(format!("{folder}/here"))).unwrap();
        said.make(word, &format!("{folder}/here/libsaid.so"));
    }
    let mut peer = said.sandbox.client(1);
    let mut variables = said.sandbox.environment();
    let elsewhere = format!("LD_LIBRARY_PATH=here:{}", said.sandbox.path("lib").display());
    variables.push(elsewhere.into_bytes());
    peer.define(1, variables);
    // The program is admitted with the other library first.
    let mut plain = said.sandbox.environment();
    plain.push(format!("LD_LIBRARY_PATH={}", said.sandbox.path("lib").display()).into_bytes());
    peer.define(2, plain);
    judge(&mut peer, &told(&said.path, &["--version"]).env(2), &said.path);
    let order = told(&said.path, &["--version"]).env(1);
    for _ in 0..5 {
        for word in ["one", "two"] {
            assert_eq!(
                peer.run(&order.clone().cwd(&said.sandbox.path(word))).text(),
                format!("{word}\n")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A program that reads a variable before main is parked for each value by itself.
#[test]
fn variables_that_are_read_keep_programs_apart() {
    let sandbox = eager();
    let before = "static char said[99] = \"none\"; char *v = getenv(\"SAID\"); if (v) strcpy(said, v); extern char *told; told = said";
    let path = build(
        &sandbox,
        "probe",
        before,
        &["-DVERSION=told", "-include", &declared(&sandbox)],
    );
    let mut peer = sandbox.client(1);
    park(&mut peer, &path);
    let order = told(&path, &["--version"]);
    assert_eq!(run_parked(&mut peer, &path, &order).text(), "none\n");
    for (env, word) in [(1, "one"), (2, "two"), (3, "")] {
        let mut variables = sandbox.environment();
        variables.push([b"SAID=", word.as_bytes()].concat());
        peer.define(env, variables);
        let order = order.clone().env(env);
        let mut runs = parked_runs(&mut peer, &path);
        wait_until("it is parked for this value too", || {
            assert_eq!(peer.run(&order).text(), format!("{word}\n"));
            let before = std::mem::replace(&mut runs, parked_runs(&mut peer, &path));
            runs > before
        });
    }
    assert_eq!(run_parked(&mut peer, &path, &order).text(), "none\n");
    let ways = entry(&mut peer, &path)["parked"].clone();
    assert_eq!(ways.as_array().unwrap().len(), 4, "{ways}");
    assert_eq!(ways[0]["variables"], serde_json::json!(["SAID"]));
}

fn declared(sandbox: &Sandbox) -> String {
    fs::write(sandbox.path("told.h"), "char *told;\n").unwrap();
    sandbox.name("told.h")
}

// ---- the machine

/// An engine that can write nothing there keeps the library in memory, and parks as ever.
#[test]
fn a_runtime_folder_without_room_holds_up_nothing() {
    let sandbox = eager();
    sandbox.run(&["stop"]).succeeded();
    fs::remove_file(sandbox.folder().library()).unwrap();
    // A folder where the library is to be written, as a full disk would refuse it.
    fs::create_dir(sandbox.folder().library().with_extension("so.new")).unwrap();
    sandbox.start();
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(1);
    assert_eq!(peer.run(&shell("echo runs")).text(), "runs\n");
    park(&mut peer, &path);
    assert!(!sandbox.folder().library().exists());
    assert_eq!(peer.report()["parking"]["on"], true);
}

/// Many commands of one parked program at once: each has its own output.
#[test]
fn commands_of_a_parked_program_do_not_mix() {
    let sandbox = eager();
    let path = probe(&sandbox, "probe", "");
    let mut peer = sandbox.client(16);
    park(&mut peer, &path);
    let before = parked_runs(&mut peer, &path);
    let orders: Vec<_> = (0..200)
        .map(|i| peer.submit(&told(&path, &["copy"]).input(format!("input {i}\n").as_bytes())))
        .collect();
    for (i, id) in orders.into_iter().enumerate() {
        assert_eq!(peer.finish(id).text(), format!("input {i}\n"));
    }
    assert_eq!(parked_runs(&mut peer, &path), before + 200);
}

/// What a command executes in its own process is that process: others know it by its number.
#[test]
fn a_command_that_executes_another_stays_the_same_process() {
    let sandbox = Sandbox::with(&[("WAFD_PARK_AFTER", "1")]);
    let mut peer = sandbox.client(1);
    wait_until("the shell was judged", || {
        peer.run(&shell("exec /bin/sh -c :")).text();
        let programs = sandbox.status()["parking"]["programs"].clone();
        let judged = |p: &serde_json::Value| p["state"] == "parked" || p["state"] == "refused";
        programs
            .as_array()
            .is_some_and(|p| !p.is_empty() && p.iter().all(judged))
    });
    for _ in 0..5 {
        let text = peer.run(&shell("echo $$; exec /bin/sh -c 'echo $$'")).text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), lines.next(), "{text}");
    }
}

#[test]
fn a_runtime_folder_may_have_any_name() {
    let sandbox = Sandbox::with_runtime("a b:c$LIB", &[("WAFD_PARK_AFTER", "1")]);
    let path = probe(&sandbox, "probe", "");
    park(&mut sandbox.client(1), &path);
}
