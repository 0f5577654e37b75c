//! `wafcc`: the wrapper runs what it is given as if it were not there, in the engine where it can.

mod space;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use space::{end_of, process, run, wait_until, Said, TestSpace};

const WAFCC: &str = env!("CARGO_BIN_EXE_wafcc");

fn wafcc(space: &TestSpace, args: &[&str]) -> Command {
    let mut command = space.command(WAFCC);
    command.args(args).env_remove("WAFCC_DISABLE");
    command
}

fn say(space: &TestSpace, args: &[&str]) -> Said {
    run(&mut wafcc(space, args))
}

/// How many commands the engine of this space has run to success.
fn count(space: &TestSpace) -> u64 {
    space.status()["totals"]["succeeded"].as_u64().unwrap()
}

/// A folder for `PATH` with a link to the wrapper that is called like a program.
fn masquerade(space: &TestSpace, name: &str) -> String {
    let folder = space.path("links");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(WAFCC, folder.join(name)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// Output, errors and exit status are the command's own, and the engine that it started has run it.
#[test]
fn a_command_runs_in_the_engine() {
    let space = TestSpace::new();
    let said = say(&space, &["sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(said.status, Some(0));
    assert_eq!(count(&space), 1);
    assert_eq!(say(&space, &["sh", "-c", "exit 7"]).status, Some(7));
}

/// A command that a signal ended shows as that to whoever waits for the wrapper.
#[test]
fn a_signal_passes_through() {
    let space = TestSpace::started();
    let status = wafcc(&space, &["sh", "-c", "kill -USR1 $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGUSR1));
}

/// The command reads the wrapper's own standard input, and is in its folder with its environment.
#[test]
fn a_command_has_what_the_wrapper_has() {
    let space = TestSpace::started();
    let mut command = wafcc(&space, &["sh", "-c", "cat; pwd -P; echo $MARK; umask"]);
    command.current_dir("/usr").env("MARK", "a mark");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let said = end_of(child);
    let umask = run(space.command("sh").args(["-c", "umask"])).stdout;
    assert_eq!(said.stdout, format!("input\n/usr\na mark\n{umask}"));
}

/// A link called like a compiler runs the next program of that name, not itself.
#[test]
fn a_link_runs_the_program_behind_it() {
    let space = TestSpace::started();
    let path = masquerade(&space, "expr");
    let said = run(space.command("expr").args(["20", "+", "3"]).env("PATH", &path));
    assert_eq!(said.succeeded(), "23\n");
    assert_eq!(count(&space), 1);
    let said = run(wafcc(&space, &["expr", "1", "+", "1"]).env("PATH", &path));
    assert_eq!(said.succeeded(), "2\n");
    assert_eq!(count(&space), 2);
}

/// A program that is nowhere is named in one line, with the shell's exit status for it.
#[test]
fn a_missing_program_is_named() {
    let space = TestSpace::new();
    let said = say(&space, &["no-such-compiler", "-c"]);
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
    let mut space = TestSpace::new();
    fs::write(space.path("file"), "").unwrap();
    space.use_runtime("file/below");
    assert_eq!(say(&space, &["echo", "fine"]).succeeded(), "fine\n");
}

/// `WAFCC_DISABLE` keeps the engine out of it.
#[test]
fn it_can_be_disabled() {
    let space = TestSpace::started();
    let said = run(wafcc(&space, &["echo", "fine"]).env("WAFCC_DISABLE", "1"));
    assert_eq!(said.succeeded(), "fine\n");
    assert_eq!(count(&space), 0);
}

/// An engine that is killed in the middle of a command costs another run of it, not the build.
#[test]
fn a_killed_engine_fails_nothing() {
    let space = TestSpace::started();
    let engine = space.engine();
    let marks = space.name("marks");
    let script =
        format!("echo x >> {marks}; test $(wc -l < {marks}) -gt 1 || {{ kill -9 {engine}; sleep 1000; }}; echo done");
    assert_eq!(say(&space, &["sh", "-c", &script]).succeeded(), "done\n");
    assert_eq!(fs::read_to_string(marks).unwrap(), "x\nx\n");
}

/// When the wrapper is gone, as after Ctrl-C, so is its command.
#[test]
fn a_command_goes_with_its_wrapper() {
    let space = TestSpace::started();
    let noted = space.path("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", noted.display());
    let mut wrapper = wafcc(&space, &["sh", "-c", &script]).spawn().unwrap();
    let command = process::number_in(&noted);
    wrapper.kill().unwrap();
    wrapper.wait().unwrap();
    wait_until("the command is gone", || !process::lives(command));
}

/// The commands of one make are one build to the engine.
#[test]
fn commands_of_one_parent_are_one_session() {
    let space = TestSpace::started();
    let gate = space.close_gate("gate");
    let script = format!("{WAFCC} sh -c '{0}' & {WAFCC} sh -c '{0}' & wait", gate.script);
    let parent = space.command("sh").args(["-c", &script]).spawn().unwrap();
    wait_until("both are connected", || {
        space.status()["sessions"][0]["connections"].as_u64() == Some(2)
    });
    let sessions = space.status()["sessions"].clone();
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
    assert_eq!(sessions[0]["name"], "wafcc for sh");
    gate.open();
    assert_eq!(end_of(parent).status, Some(0));
}

/// Help and version go to standard output; an unknown option is named.
#[test]
fn it_tells_about_itself() {
    let space = TestSpace::new();
    assert!(say(&space, &["--help"])
        .succeeded()
        .contains("CMAKE_C_COMPILER_LAUNCHER"));
    assert!(say(&space, &["--version"]).succeeded().starts_with("wafcc "));
    assert!(say(&space, &[]).succeeded().contains("Usage: wafcc"));
    let said = say(&space, &["--fast", "gcc"]);
    assert_eq!(said.status, Some(2));
    assert_eq!(said.stderr, "wafcc: there is no option --fast; see wafcc --help\n");
}
