//! `wafcc` runs a command as if the command had been called directly, in the engine if possible.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::process;
use crate::support::sandbox::{end_of, install, run, wait_until, ProgramOutput, Sandbox};
use crate::support::wrapper::{self, WAFCC};

fn wafcc(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = wrapper::wafcc(sandbox);
    command.args(args);
    command
}

fn run_wafcc(sandbox: &Sandbox, args: &[&str]) -> ProgramOutput {
    run(&mut wafcc(sandbox, args))
}

/// A folder for `PATH` with a link to the wrapper under a program's name.
fn path_with_link(sandbox: &Sandbox, name: &str) -> String {
    let folder = sandbox.path("links");
    fs::create_dir(&folder).unwrap();
    symlink(WAFCC, folder.join(name)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// Output, errors and exit status are the command's own. The wrapper has started an engine, which has run it.
#[test]
fn a_command_runs_in_the_engine() {
    let sandbox = Sandbox::new();
    let said = run_wafcc(&sandbox, &["sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(said.status, Some(0));
    assert_eq!(sandbox.succeeded_commands(), 1);
    assert_eq!(run_wafcc(&sandbox, &["sh", "-c", "exit 7"]).status, Some(7));
}

/// A compile is looked up before the wrapper's process is examined. If it runs, it has the wrapper's context.
#[test]
fn a_compile_that_is_a_miss_has_the_context_of_the_wrapper() {
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
    assert_eq!(sandbox.succeeded_commands(), 1);
}

/// The wrapper ends with the same signal as the command.
#[test]
fn a_signal_passes_through() {
    let sandbox = Sandbox::started();
    let status = wafcc(&sandbox, &["sh", "-c", "kill -USR1 $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGUSR1));
}

/// The command has the wrapper's standard input, folder and environment.
#[test]
fn a_command_has_the_input_folder_and_environment_of_the_wrapper() {
    let sandbox = Sandbox::started();
    let mut command = wafcc(&sandbox, &["sh", "-c", "cat; pwd -P; echo $MARK; umask"]);
    command.current_dir("/usr").env("MARK", "a mark");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let said = end_of(child);
    let umask = run(sandbox.command("sh").args(["-c", "umask"])).stdout;
    assert_eq!(said.stdout, format!("input\n/usr\na mark\n{umask}"));
}

/// A link under a compiler's name runs the next program of that name, not itself.
#[test]
fn a_link_runs_the_program_behind_it() {
    let sandbox = Sandbox::started();
    let path = path_with_link(&sandbox, "expr");
    let mut expr = wrapper::clean(sandbox.command("expr"), &sandbox);
    let said = run(expr.args(["20", "+", "3"]).env("PATH", &path));
    assert_eq!(said.succeeded(), "23\n");
    assert_eq!(sandbox.succeeded_commands(), 1);
    let said = run(wafcc(&sandbox, &["expr", "1", "+", "1"]).env("PATH", &path));
    assert_eq!(said.succeeded(), "2\n");
    assert_eq!(sandbox.succeeded_commands(), 2);
}

/// A program that does not exist is named in one line, with the shell's exit status.
#[test]
fn a_missing_program_is_named() {
    let sandbox = Sandbox::new();
    let said = run_wafcc(&sandbox, &["no-such-compiler", "-c"]);
    assert_eq!(said.status, Some(127));
    assert!(
        said.stderr.starts_with("wafcc: no-such-compiler: no such program"),
        "{said:?}"
    );
    assert_eq!(said.stderr.lines().count(), 1);
}

/// Without an engine the command runs directly.
#[test]
fn without_an_engine_the_command_runs() {
    let mut sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "").unwrap();
    sandbox.use_runtime("file/below");
    assert_eq!(run_wafcc(&sandbox, &["echo", "fine"]).succeeded(), "fine\n");
}

/// With `WAFCC_DISABLE` no engine is used.
#[test]
fn it_can_be_disabled() {
    let sandbox = Sandbox::started();
    let said = run(wafcc(&sandbox, &["echo", "fine"]).env("WAFCC_DISABLE", "1"));
    assert_eq!(said.succeeded(), "fine\n");
    assert_eq!(sandbox.succeeded_commands(), 0);
}

/// If the engine is killed during a command, the command runs again and the build goes on.
#[test]
fn a_killed_engine_does_not_fail_a_build() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    let marks = sandbox.name("marks");
    let script =
        format!("echo x >> {marks}; test $(wc -l < {marks}) -gt 1 || {{ kill -9 {engine}; sleep 1000; }}; echo done");
    assert_eq!(run_wafcc(&sandbox, &["sh", "-c", &script]).succeeded(), "done\n");
    assert_eq!(fs::read_to_string(marks).unwrap(), "x\nx\n");
}

/// When the wrapper ends, for example after Ctrl-C, its command ends, too.
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

/// The commands of one make are one build for the engine.
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

/// Help and version go to standard output. An unknown option is named.
#[test]
fn help_and_version_are_printed() {
    let sandbox = Sandbox::new();
    assert!(run_wafcc(&sandbox, &["--help"])
        .succeeded()
        .contains("CMAKE_C_COMPILER_LAUNCHER"));
    assert!(run_wafcc(&sandbox, &["--version"]).succeeded().starts_with("wafcc "));
    assert!(run_wafcc(&sandbox, &[]).succeeded().contains("Usage: wafcc"));
    let said = run_wafcc(&sandbox, &["--fast", "gcc"]);
    assert_eq!(said.status, Some(2));
    assert_eq!(said.stderr, "wafcc: there is no option --fast; see wafcc --help\n");
}

/// A program gets the name that was typed, if it can find itself by that name.
#[test]
fn gcc_reports_the_same_name_as_without_the_wrapper() {
    let sandbox = Sandbox::started();
    let plain = run(sandbox.command("gcc").arg("-v"));
    assert!(plain.stderr.contains("COLLECT_GCC=gcc\n"), "{plain:?}");
    assert_eq!(run_wafcc(&sandbox, &["gcc", "-v"]).stderr, plain.stderr);
    assert_eq!(sandbox.succeeded_commands(), 1);
    let disabled = run(wafcc(&sandbox, &["gcc", "-v"]).env("WAFCC_DISABLE", "1"));
    assert_eq!(disabled.stderr, plain.stderr);
}

/// A program behind a link gets its whole path, because by its name it would find the link.
#[test]
fn a_program_behind_a_link_hears_where_it_is() {
    let sandbox = Sandbox::started();
    let path = path_with_link(&sandbox, "sh");
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

/// Other compiler caches under the program's name are skipped, through any chain of links.
#[test]
fn other_caches_under_the_same_name_are_skipped() {
    let sandbox = Sandbox::started();
    let path = path_with_link(&sandbox, "expr");
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

/// Folders and files without permission to execute are not programs, as for `execvp`.
#[test]
fn only_executable_files_are_programs() {
    let sandbox = Sandbox::started();
    let folder = sandbox.path("decoys");
    fs::create_dir_all(folder.join("expr")).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let said = run(wafcc(&sandbox, &["expr", "2", "+", "3"]).env("PATH", path));
    assert_eq!(said.succeeded(), "5\n");
}

/// `run --` accepts any command. `run` alone is the name of a command.
#[test]
fn run_takes_any_command() {
    let sandbox = Sandbox::started();
    assert_eq!(
        run_wafcc(&sandbox, &["run", "--", "expr", "2", "+", "3"]).succeeded(),
        "5\n"
    );
    let said = run_wafcc(&sandbox, &["run", "--no-cache", "--", "expr", "2", "+", "3"]);
    assert_eq!(said.succeeded(), "5\n");
    let said = run_wafcc(&sandbox, &["run", "echo"]);
    assert_eq!(said.status, Some(127));
    assert!(said.stderr.starts_with("wafcc: run: no such program"), "{said:?}");
}

/// Streams that are closed stay closed for the command.
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

/// A folder or home that is missing or not writable, and an empty environment, are no reasons to fail.
#[test]
fn missing_folders_and_variables_are_no_failure() {
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
        run_wafcc(&sandbox, &["sh", "-c", "echo ${#1}", "sh", &long]).succeeded(),
        "100000\n"
    );
    assert_eq!(sandbox.succeeded_commands(), 1);
}

/// An engine that was stopped by a signal is ended after the deadline, and another one serves.
#[test]
fn a_stopped_engine_is_replaced() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    process::stop(engine);
    assert_eq!(run_wafcc(&sandbox, &["echo", "fine"]).succeeded(), "fine\n");
    assert!(!process::lives(engine));
    assert_eq!(sandbox.succeeded_commands(), 1);
}

/// If the engine is stopped by a signal during a command, the command runs again.
#[test]
fn an_engine_that_is_stopped_during_a_command_does_not_fail_it() {
    let sandbox = Sandbox::started();
    let (engine, marks) = (sandbox.engine(), sandbox.name("marks"));
    let script = format!(
        "echo x >> {marks}; test $(wc -l < {marks}) -gt 1 || {{ kill -STOP {engine}; sleep 1000; }}; echo done"
    );
    assert_eq!(run_wafcc(&sandbox, &["sh", "-c", &script]).succeeded(), "done\n");
    assert!(!process::lives(engine));
}

/// A listener that never answers costs its deadline, and the build goes on.
#[test]
fn an_engine_that_never_answers_does_not_fail_a_build() {
    let sandbox = Sandbox::new();
    let _mute = std::os::unix::net::UnixListener::bind(sandbox.socket()).unwrap();
    let said = run(wafcc(&sandbox, &["echo", "fine"]).env("WAFD_PATIENCE", "0.5"));
    assert_eq!(said.succeeded(), "fine\n");
}

/// Each store has an engine of its own, separate from the usual one.
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
    assert_eq!(sandbox.succeeded_commands(), 0);
    let status = run(sandbox.wafd(&["status", "--json"]).env("WAFD_RUNTIME_DIR", folder)).succeeded();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["totals"]["succeeded"], 1);
    let engine = status["pid"].as_i64().unwrap() as i32;
    assert_eq!(with_store(&["--shutdown"]), "");
    wait_until("the store's engine is gone", || !process::lives(engine));
    sandbox.serves();
}

/// A store is identified by its real path, and the default store by any path to it.
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

/// Ctrl-C, which the terminal sends to the whole group, ends wrapper and command.
#[test]
fn an_interrupt_ends_it_all() {
    let sandbox = Sandbox::started();
    let noted = sandbox.path("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", noted.display());
    let mut wrapper = wafcc(&sandbox, &["sh", "-c", &script]);
    // The caller of the tests may ignore this signal.
    let heed = || {
        // SAFETY: changes the disposition of a signal.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: only system calls.
    unsafe { wrapper.pre_exec(heed) };
    let mut wrapper = wrapper.process_group(0).spawn().unwrap();
    let command = process::number_in(&noted);
    process::kill_group(wrapper.id() as i32, libc::SIGINT);
    let status = wrapper.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGINT));
    wait_until("the command is gone", || !process::lives(command));
}

/// If an engine leaves because its program was replaced, the next one runs the command.
#[test]
fn an_engine_that_leaves_is_followed_by_another() {
    let mut sandbox = Sandbox::new();
    let copy = sandbox.use_copy().to_owned();
    sandbox.start();
    let engine = sandbox.engine();
    install(Path::new(env!("CARGO_BIN_EXE_wafd")), &copy);
    assert_eq!(run_wafcc(&sandbox, &["echo", "fine"]).succeeded(), "fine\n");
    wait_until("the old engine is gone", || !process::lives(engine));
    assert_eq!(sandbox.succeeded_commands(), 1);
}
