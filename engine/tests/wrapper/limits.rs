//! With few processes, descriptors or little memory, a compile ends as it does without the wrapper.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use crate::support::sandbox::{is_root, run, ProgramOutput, Sandbox};
use crate::support::wrapper::{self, WAFCC};

const WAFD: &str = env!("CARGO_BIN_EXE_wafd");

/// Runs a shell line within a limit of `prlimit`, as another user if one is given: for root the number of processes is
/// not limited.
fn run_wafcc(sandbox: &Sandbox, user: Option<u32>, limit: &str, line: &str) -> ProgramOutput {
    let mut command = match user {
        None => sandbox.command("prlimit"),
        Some(user) => {
            let mut command = sandbox.command("setpriv");
            let user = user.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "prlimit"]);
            command
        }
    };
    command = wrapper::clean(command, sandbox);
    command.args([limit, "sh", "-c", line]);
    run(command.current_dir(sandbox.path("work")).env("WAFD_PATIENCE", "5"))
}

fn prepare(sandbox: &Sandbox, user: Option<u32>) {
    for name in ["work", "home"] {
        fs::create_dir(sandbox.path(name)).unwrap();
    }
    fs::write(sandbox.path("work/a.c"), "int f(void) { return 1; }\n").unwrap();
    for path in [
        sandbox.path(""),
        sandbox.path("work"),
        sandbox.path("home"),
        sandbox.runtime().into(),
    ] {
        chown(path, user, user).unwrap();
    }
}

/// Each compile within the limit has the same result as without the wrapper. Returns the exit status of `wafd status`.
#[track_caller]
fn compiles_within(user: Option<u32>, limit: &str) -> ProgramOutput {
    let sandbox = Sandbox::new();
    prepare(&sandbox, user);
    let made = || {
        let made = fs::read(sandbox.path("work/a.o"));
        let _ = fs::remove_file(sandbox.path("work/a.o"));
        made.unwrap_or_default()
    };
    let line = "gcc -c a.c -o a.o";
    let plain = run_wafcc(&sandbox, user, limit, line);
    let object = made();
    for _ in 0..4 {
        let said = run_wafcc(&sandbox, user, limit, &format!("'{WAFCC}' {line}"));
        assert_eq!(said.status, plain.status, "{limit}: {said:?}, and without us {plain:?}");
        assert_eq!(made(), object, "{limit}");
    }
    let status = run_wafcc(
        &sandbox,
        user,
        "--core=0",
        &format!("'{WAFD}' status --json; '{WAFD}' stop --now 2>&1"),
    );
    sandbox.wait_until_empty();
    status
}

/// A user number that no other process has.
fn unused_user() -> Option<u32> {
    let user = 200_000 + std::process::id() % 100_000;
    let mut attempt = Command::new("setpriv");
    attempt.args(["--reuid", &user.to_string(), "--clear-groups", WAFCC, "--version"]);
    let works = is_root() && attempt.output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: only root becomes another user, who must be able to run what was built here");
    }
    works.then_some(user)
}

/// Sixteen more processes are enough for an engine and its commands.
#[test]
fn an_engine_needs_few_processes() {
    let Some(user) = unused_user() else { return };
    let status = compiles_within(Some(user), "--nproc=16");
    assert!(status.stdout.contains("\"succeeded\": "), "an engine runs: {status:?}");
}

/// With fewer processes than an engine needs, none is started, and compiles end as without the wrapper.
#[test]
fn with_fewer_processes_there_is_no_engine() {
    let Some(user) = unused_user() else { return };
    for limit in ["--nproc=12", "--nproc=6", "--nproc=4", "--nproc=3"] {
        let status = compiles_within(Some(user), limit);
        assert!(!status.stdout.contains("\"succeeded\": "), "{limit}: {status:?}");
    }
}

/// Few descriptors, for the engine and for the wrapper.
#[test]
fn few_descriptors_fail_no_compile() {
    for count in [64, 40, 32, 20, 16, 12, 8, 6, 5, 4] {
        compiles_within(None, &format!("--nofile={count}"));
    }
}

/// Little address space, enough for the compiler or not.
#[test]
fn little_memory_fails_no_compile() {
    for mebibytes in [1_000u32, 300, 150, 100, 60] {
        compiles_within(None, &format!("--as={}", u64::from(mebibytes) << 20));
    }
}
