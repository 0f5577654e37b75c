//! `wafcc`: the wrapper runs what it is given as if it were not there, in the engine where it can.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::process;
use crate::support::sandbox::{end_of, install, run, wait_until, Said, Sandbox};
use crate::support::wrapper::{self, WAFCC};

fn wafcc(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = wrapper::wafcc(sandbox);
    command.args(args);
    command
}

fn say(sandbox: &Sandbox, args: &[&str]) -> Said {
    run(&mut wafcc(sandbox, args))
}

/// How many commands the engine of this sandbox has run to success.
fn count(sandbox: &Sandbox) -> u64 {
    sandbox.status()["totals"]["succeeded"].as_u64().unwrap()
}

/// A folder for `PATH` with a link to the wrapper that is called like a program.
fn masquerade(sandbox: &Sandbox, name: &str) -> String {
    let folder = sandbox.path("links");
    fs::create_dir(&folder).unwrap();
    symlink(WAFCC, folder.join(name)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// Output, errors and exit status are the command's own, and the engine that it started has run it.
#[test]
fn a_command_runs_in_the_engine() {
    let sandbox = Sandbox::new();
    let said = say(&sandbox, &["sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(said.status, Some(0));
    assert_eq!(count(&sandbox), 1);
    assert_eq!(say(&sandbox, &["sh", "-c", "exit 7"]).status, Some(7));
}

/// A compile is looked up before anybody asks what its wrapper has; when it runs, it has all of that.
#[test]
fn a_compile_that_is_not_known_has_what_the_wrapper_has() {
    let sandbox = Sandbox::started();
    let fake = "#!/bin/sh\nexec >a.o; ulimit -n; nice; umask; grep Cpus_allowed_list /proc/self/status; :\n";
    fs::write(sandbox.path("text"), fake).unwrap();
    install(&sandbox.path("text"), &sandbox.path("gcc"));
    fs::write(sandbox.path("a.c"), "").unwrap();
    let own: i32 = run(&mut sandbox.command("nice")).succeeded().trim().parse().unwrap();
    let line = format!("ulimit -n 77; umask 027; exec nice -n 3 taskset -c 0 '{WAFCC}' ./gcc -c a.c");
    let mut shell = wrapper::clean(sandbox.command("sh"), &sandbox);
    let said = run(shell.args(["-c", &line]).current_dir(sandbox.path("")));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    let found = fs::read_to_string(sandbox.path("a.o")).unwrap();
    assert_eq!(
        found,
        format!("77\n{}\n0027\nCpus_allowed_list:\t0\n", (own + 3).min(19))
    );
    assert_eq!(count(&sandbox), 1);
}

/// A command that a signal ended shows as that to whoever waits for the wrapper.
#[test]
fn a_signal_passes_through() {
    let sandbox = Sandbox::started();
    let status = wafcc(&sandbox, &["sh", "-c", "kill -USR1 $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGUSR1));
}

/// The command reads the wrapper's own standard input, and is in its folder with its environment.
#[test]
fn a_command_has_what_the_wrapper_has() {
    let sandbox = Sandbox::started();
    let mut command = wafcc(&sandbox, &["sh", "-c", "cat; pwd -P; echo $MARK; umask"]);
    command.current_dir("/usr").env("MARK", "a mark");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let said = end_of(child);
    let umask = run(sandbox.command("sh").args(["-c", "umask"])).stdout;
    assert_eq!(said.stdout, format!("input\n/usr\na mark\n{umask}"));
}

/// A link called like a compiler runs the next program of that name, not itself.
#[test]
fn a_link_runs_the_program_behind_it() {
    let sandbox = Sandbox::started();
    let path = masquerade(&sandbox, "expr");
    let mut expr = wrapper::clean(sandbox.command("expr"), &sandbox);
    let said = run(expr.args(["20", "+", "3"]).env("PATH", &path));
    assert_eq!(said.succeeded(), "23\n");
    assert_eq!(count(&sandbox), 1);
    let said = run(wafcc(&sandbox, &["expr", "1", "+", "1"]).env("PATH", &path));
    assert_eq!(said.succeeded(), "2\n");
    assert_eq!(count(&sandbox), 2);
}

/// A program that is nowhere is named in one line, with the shell's exit status for it.
#[test]
fn a_missing_program_is_named() {
    let sandbox = Sandbox::new();
    let said = say(&sandbox, &["no-such-compiler", "-c"]);
    assert_eq!(said.status, Some(127));
    assert!(
        said.stderr.starts_with("wafcc: no-such-compiler: no such program"),
        "{said:?}"
    );
    assert_eq!(said.stderr.lines().count(), 1);
}

/// Without any engine the command simply runs.
#[test]
fn without_an_engine_the_command_runs() {
    let mut sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "").unwrap();
    sandbox.use_runtime("file/below");
    assert_eq!(say(&sandbox, &["echo", "fine"]).succeeded(), "fine\n");
}

/// `WAFCC_DISABLE` keeps the engine out of it.
#[test]
fn it_can_be_disabled() {
    let sandbox = Sandbox::started();
    let said = run(wafcc(&sandbox, &["echo", "fine"]).env("WAFCC_DISABLE", "1"));
    assert_eq!(said.succeeded(), "fine\n");
    assert_eq!(count(&sandbox), 0);
}

/// An engine that is killed in the middle of a command costs another run of it, not the build.
#[test]
fn a_killed_engine_fails_nothing() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    let marks = sandbox.name("marks");
    let script =
        format!("echo x >> {marks}; test $(wc -l < {marks}) -gt 1 || {{ kill -9 {engine}; sleep 1000; }}; echo done");
    assert_eq!(say(&sandbox, &["sh", "-c", &script]).succeeded(), "done\n");
    assert_eq!(fs::read_to_string(marks).unwrap(), "x\nx\n");
}

/// When the wrapper is gone, as after Ctrl-C, so is its command.
#[test]
fn a_command_goes_with_its_wrapper() {
    let sandbox = Sandbox::started();
    let noted = sandbox.path("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", noted.display());
    let mut wrapper = wafcc(&sandbox, &["sh", "-c", &script]).spawn().unwrap();
    let command = process::number_in(&noted);
    wrapper.kill().unwrap();
    wrapper.wait().unwrap();
    wait_until("the command is gone", || !process::lives(command));
}

/// The commands of one make are one build to the engine.
#[test]
fn commands_of_one_parent_are_one_session() {
    let sandbox = Sandbox::started();
    let gate = sandbox.close_gate("gate");
    let script = format!("{WAFCC} sh -c '{0}' & {WAFCC} sh -c '{0}' & wait", gate.script);
    let parent = wrapper::clean(sandbox.command("sh"), &sandbox)
        .args(["-c", &script])
        .spawn()
        .unwrap();
    wait_until("both are connected", || {
        sandbox.status()["sessions"][0]["connections"].as_u64() == Some(2)
    });
    let sessions = sandbox.status()["sessions"].clone();
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
    assert_eq!(sessions[0]["name"], "wafcc for sh");
    gate.open();
    assert_eq!(end_of(parent).status, Some(0));
}

/// Help and version go to standard output; an unknown option is named.
#[test]
fn it_tells_about_itself() {
    let sandbox = Sandbox::new();
    assert!(say(&sandbox, &["--help"])
        .succeeded()
        .contains("CMAKE_C_COMPILER_LAUNCHER"));
    assert!(say(&sandbox, &["--version"]).succeeded().starts_with("wafcc "));
    assert!(say(&sandbox, &[]).succeeded().contains("Usage: wafcc"));
    let said = say(&sandbox, &["--fast", "gcc"]);
    assert_eq!(said.status, Some(2));
    assert_eq!(said.stderr, "wafcc: there is no option --fast; see wafcc --help\n");
}

/// A program hears the name that was typed, where it would find itself by that name.
#[test]
fn gcc_says_of_itself_what_it_says_without_us() {
    let sandbox = Sandbox::started();
    let plain = run(sandbox.command("gcc").arg("-v"));
    assert!(plain.stderr.contains("COLLECT_GCC=gcc\n"), "{plain:?}");
    assert_eq!(say(&sandbox, &["gcc", "-v"]).stderr, plain.stderr);
    assert_eq!(count(&sandbox), 1);
    let disabled = run(wafcc(&sandbox, &["gcc", "-v"]).env("WAFCC_DISABLE", "1"));
    assert_eq!(disabled.stderr, plain.stderr);
}

/// Behind a link it hears its whole path: by its name it would find the link.
#[test]
fn a_program_behind_a_link_hears_where_it_is() {
    let sandbox = Sandbox::started();
    let path = masquerade(&sandbox, "sh");
    for disable in ["", "1"] {
        let mut sh = wrapper::clean(sandbox.command(sandbox.path("links/sh")), &sandbox);
        sh.args(["-c", "echo $0"])
            .env("PATH", &path)
            .env("WAFCC_DISABLE", disable);
        let name = run(&mut sh).succeeded();
        assert!(name.starts_with('/') && name.ends_with("/sh\n"), "{name}");
        assert!(!name.contains("links"), "{name}");
    }
}

/// Caches that stand there under the program's name are passed over, whatever chain of links leads to them.
#[test]
fn other_caches_in_disguise_are_passed_over() {
    let sandbox = Sandbox::started();
    let path = masquerade(&sandbox, "expr");
    let mut folders = Vec::new();
    for cache in ["ccache", "sccache-0.9", "wafcc-of-another-version"] {
        let folder = sandbox.path(format!("of-{cache}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(cache), "#!/bin/sh\necho wrong\n").unwrap();
        fs::set_permissions(folder.join(cache), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(cache, folder.join("chain")).unwrap();
        symlink("chain", folder.join("expr")).unwrap();
        folders.push(folder.display().to_string());
    }
    let path = format!("{}:{path}", folders.join(":"));
    for name in ["expr", &sandbox.name("links/expr")] {
        let said = run(wafcc(&sandbox, &[name, "2", "+", "3"]).env("PATH", &path));
        assert_eq!(said.succeeded(), "5\n", "{name}");
    }
    let alone = sandbox.name("links");
    let said = run(wafcc(&sandbox, &["expr", "2"]).env("PATH", alone));
    assert_eq!(said.status, Some(127));
    assert_eq!(
        said.stderr,
        "wafcc: expr: no such program besides compiler caches; check PATH\n"
    );
}

/// What is no program for `execvp` is none for us: folders, and files that may not be run.
#[test]
fn only_what_can_be_run_is_a_program() {
    let sandbox = Sandbox::started();
    let folder = sandbox.path("decoys");
    fs::create_dir_all(folder.join("expr")).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let said = run(wafcc(&sandbox, &["expr", "2", "+", "3"]).env("PATH", path));
    assert_eq!(said.succeeded(), "5\n");
}

/// `run --` takes any command; `run` alone is a command like others.
#[test]
fn run_takes_any_command() {
    let sandbox = Sandbox::started();
    assert_eq!(say(&sandbox, &["run", "--", "expr", "2", "+", "3"]).succeeded(), "5\n");
    let said = say(&sandbox, &["run", "--no-cache", "--", "expr", "2", "+", "3"]);
    assert_eq!(said.succeeded(), "5\n");
    let said = say(&sandbox, &["run", "echo"]);
    assert_eq!(said.status, Some(127));
    assert!(said.stderr.starts_with("wafcc: run: no such program"), "{said:?}");
}

/// Closed streams stay closed for the command: it fails as it would without us, or does not.
#[test]
fn closed_streams_stay_closed() {
    let sandbox = Sandbox::started();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let ends = |program: &str| {
            let script = format!("{program} sh -c 'ls -l /proc/self/fd | grep -c socket; echo x; cat' {closed}");
            run(wrapper::clean(sandbox.command("sh"), &sandbox).args(["-c", &script]))
        };
        let (plain, ours) = (ends(""), ends(WAFCC));
        assert_eq!((ours.status, ours.stdout), (plain.status, plain.stdout), "{closed}");
    }
}

/// A folder that is gone, a home that is none or cannot be written to, and no variables at all are no reasons to fail.
#[test]
fn poor_circumstances_fail_nothing() {
    let sandbox = Sandbox::started();
    let gone = sandbox.name("gone");
    let script = format!("mkdir {gone}; cd {gone}; rmdir {gone}; {WAFCC} echo fine");
    let said = run(wrapper::clean(sandbox.command("sh"), &sandbox).args(["-c", &script]));
    assert_eq!(said.succeeded(), "fine\n");
    assert_eq!(
        run(wafcc(&sandbox, &["echo", "fine"])
            .env_remove("HOME")
            .env("XDG_CACHE_HOME", sandbox.name("cache")))
        .succeeded(),
        "fine\n"
    );
    assert_eq!(
        run(wafcc(&sandbox, &["echo", "fine"]).env("HOME", "/proc")).succeeded(),
        "fine\n"
    );
    assert_eq!(
        run(wafcc(&sandbox, &["echo", "fine"]).env("HOME", "relative")).succeeded(),
        "fine\n"
    );
    let mut bare = wafcc(&sandbox, &["echo", "fine"]);
    bare.env_clear()
        .env("WAFD_RUNTIME_DIR", sandbox.runtime())
        .env("XDG_CACHE_HOME", sandbox.name("cache"));
    assert_eq!(run(&mut bare).succeeded(), "fine\n");
}

/// A long command line goes through the engine like a short one.
#[test]
fn a_long_command_line_passes() {
    let sandbox = Sandbox::started();
    let long = "x".repeat(100_000);
    assert_eq!(
        say(&sandbox, &["sh", "-c", "echo ${#1}", "sh", &long]).succeeded(),
        "100000\n"
    );
    assert_eq!(count(&sandbox), 1);
}

/// An engine that somebody has stopped is ended after its deadline, and another one serves.
#[test]
fn a_stopped_engine_is_replaced() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    process::stop(engine);
    assert_eq!(say(&sandbox, &["echo", "fine"]).succeeded(), "fine\n");
    assert!(!process::lives(engine));
    assert_eq!(count(&sandbox), 1);
}

/// One that is stopped while a command runs costs another run of it.
#[test]
fn an_engine_that_is_stopped_during_a_command_fails_nothing() {
    let sandbox = Sandbox::started();
    let (engine, marks) = (sandbox.engine(), sandbox.name("marks"));
    let script = format!(
        "echo x >> {marks}; test $(wc -l < {marks}) -gt 1 || {{ kill -STOP {engine}; sleep 1000; }}; echo done"
    );
    assert_eq!(say(&sandbox, &["sh", "-c", &script]).succeeded(), "done\n");
    assert!(!process::lives(engine));
}

/// A listener that never answers costs its deadline, not the build.
#[test]
fn a_mute_engine_fails_nothing() {
    let sandbox = Sandbox::new();
    let _mute = std::os::unix::net::UnixListener::bind(sandbox.socket()).unwrap();
    let said = run(wafcc(&sandbox, &["echo", "fine"]).env("WAFD_PATIENCE", "0.5"));
    assert_eq!(said.succeeded(), "fine\n");
}

/// Each store has an engine of its own, which does not meet the usual one.
#[test]
fn each_store_has_an_engine_of_its_own() {
    let sandbox = Sandbox::started();
    let store = sandbox.name("store");
    let with_store = |args: &[&str]| {
        let mut command = wafcc(&sandbox, args);
        command.env("WAFCC_DIR", &store);
        run(&mut command).succeeded()
    };
    let folder = with_store(&["--get-config", "runtime_dir"]);
    let folder = folder.trim_end();
    assert_ne!(folder, sandbox.runtime().to_str().unwrap());
    assert_eq!(with_store(&["echo", "fine"]), "fine\n");
    assert_eq!(count(&sandbox), 0);
    let status = run(sandbox.wafd(&["status", "--json"]).env("WAFD_RUNTIME_DIR", folder)).succeeded();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["totals"]["succeeded"], 1);
    let engine = status["pid"].as_i64().unwrap() as i32;
    assert_eq!(with_store(&["--shutdown"]), "");
    wait_until("the store's engine is gone", || !process::lives(engine));
    sandbox.serves();
}

/// The store is known by its real path, and is the default one by whatever way it is named.
#[test]
fn a_store_is_known_by_its_real_path() {
    let sandbox = Sandbox::new();
    let default = sandbox.path("home/.cache/wafcc");
    fs::create_dir_all(&default).unwrap();
    symlink(&default, sandbox.path("link")).unwrap();
    let folder = |store: &str| {
        let mut command = wafcc(&sandbox, &["--get-config", "runtime_dir"]);
        run(command.env("WAFCC_DIR", store)).succeeded()
    };
    let usual = format!("{}\n", sandbox.runtime().display());
    assert_eq!(folder(default.to_str().unwrap()), usual);
    assert_eq!(folder(&sandbox.name("link")), usual);
    assert_ne!(folder(&sandbox.name("other")), usual);
}

/// Ctrl-C, which the terminal sends to the whole group, ends wrapper and command alike.
#[test]
fn an_interrupt_ends_it_all() {
    let sandbox = Sandbox::started();
    let noted = sandbox.path("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", noted.display());
    let mut wrapper = wafcc(&sandbox, &["sh", "-c", &script]);
    // Whoever runs us in the background may have it ignored.
    let heed = || {
        // SAFETY: changes the disposition of a signal.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: system calls only.
    unsafe { wrapper.pre_exec(heed) };
    let mut wrapper = wrapper.process_group(0).spawn().unwrap();
    let command = process::number_in(&noted);
    process::kill_group(wrapper.id() as i32, libc::SIGINT);
    let status = wrapper.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGINT));
    wait_until("the command is gone", || !process::lives(command));
}

/// An engine that leaves, because its program was replaced, makes room for the next one, which runs the command.
#[test]
fn an_engine_that_leaves_is_followed_by_another() {
    let mut sandbox = Sandbox::new();
    let copy = sandbox.use_copy().to_owned();
    sandbox.start();
    let engine = sandbox.engine();
    install(Path::new(env!("CARGO_BIN_EXE_wafd")), &copy);
    assert_eq!(say(&sandbox, &["echo", "fine"]).succeeded(), "fine\n");
    wait_until("the old engine is gone", || !process::lives(engine));
    assert_eq!(count(&sandbox), 1);
}
