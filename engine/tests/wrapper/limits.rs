//! Where processes, descriptors or memory are few, a compile ends as it does without us.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use crate::support::sandbox::{is_root, run, Said, Sandbox};
use crate::support::wrapper::{self, WAFCC};

const WAFD: &str = env!("CARGO_BIN_EXE_wafd");

/// A line of a shell within a limit of `prlimit`, as another user if one is named: root has no limit of processes.
fn say(sandbox: &Sandbox, user: Option<u32>, limit: &str, line: &str) -> Said {
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

/// Each compile within the limit makes what it makes without us, again and again; what the engine's status is then.
#[track_caller]
fn compiles_within(user: Option<u32>, limit: &str) -> Said {
    let sandbox = Sandbox::new();
    prepare(&sandbox, user);
    let made = || {
        let made = fs::read(sandbox.path("work/a.o"));
        let _ = fs::remove_file(sandbox.path("work/a.o"));
        made.unwrap_or_default()
    };
    let line = "gcc -c a.c -o a.o";
    let plain = say(&sandbox, user, limit, line);
    let object = made();
    for _ in 0..4 {
        let said = say(&sandbox, user, limit, &format!("'{WAFCC}' {line}"));
        assert_eq!(said.status, plain.status, "{limit}: {said:?}, and without us {plain:?}");
        assert_eq!(made(), object, "{limit}");
    }
    let status = say(
        &sandbox,
        user,
        "--core=0",
        &format!("'{WAFD}' status --json; '{WAFD}' stop --now 2>&1"),
    );
    sandbox.wait_until_empty();
    status
}

/// A user whom nobody else is.
fn stranger() -> Option<u32> {
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
    let Some(user) = stranger() else { return };
    let status = compiles_within(Some(user), "--nproc=16");
    assert!(status.stdout.contains("\"succeeded\": "), "an engine runs: {status:?}");
}

/// With less than an engine needs there is none, and compiles end as without us.
#[test]
fn with_fewer_processes_there_is_no_engine() {
    let Some(user) = stranger() else { return };
    for limit in ["--nproc=12", "--nproc=6", "--nproc=4", "--nproc=3"] {
        let status = compiles_within(Some(user), limit);
        assert!(!status.stdout.contains("\"succeeded\": "), "{limit}: {status:?}");
    }
}

/// Few descriptors, for the engine and for the wrapper.
#[test]
fn few_descriptors_fail_nothing() {
    for count in [64, 40, 32, 20, 16, 12, 8, 6, 5, 4] {
        compiles_within(None, &format!("--nofile={count}"));
    }
}

/// Little memory, by addresses, that is enough for the compiler or is not.
#[test]
fn little_memory_fails_nothing() {
    for mebibytes in [1_000u32, 300, 150, 100, 60] {
        compiles_within(None, &format!("--as={}", u64::from(mebibytes) << 20));
    }
}
