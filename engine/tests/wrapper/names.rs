//! Which files the wrapper accepts as programs, and its exit status for others, which is the shell's.

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};

use crate::support::sandbox::{self, install, run, ProgramOutput, Sandbox};
use crate::support::wrapper::{self, WAFCC};

fn run_wafcc(sandbox: &Sandbox, args: &[&str], path: &str) -> ProgramOutput {
    let mut command = wrapper::wafcc(sandbox);
    run(command.args(args).env("PATH", path).current_dir(sandbox.path("")))
}

fn script(sandbox: &Sandbox, name: &str, text: &str) {
    fs::write(sandbox.path("text"), text).unwrap();
    install(&sandbox.path("text"), &sandbox.path(name));
}

/// Two launchers, whatever their names, count as one.
#[test]
fn two_launchers_count_as_one() {
    let sandbox = Sandbox::started();
    let links = sandbox.path("links");
    fs::create_dir(&links).unwrap();
    symlink(WAFCC, links.join("wafcc")).unwrap();
    symlink(WAFCC, links.join("gcc")).unwrap();
    let path = format!("{}:/usr/bin:/bin", links.display());
    fs::write(sandbox.path("a.c"), "int f(void) { return 1; }\n").unwrap();
    for (round, before) in [&["wafcc"][..], &[WAFCC], &["wafcc", WAFCC, "wafcc"], &[]]
        .into_iter()
        .enumerate()
    {
        let output = format!("{round}.o");
        let args = [before, &["gcc", "-c", "a.c", "-o", &output]].concat();
        run_wafcc(&sandbox, &args, &path).succeeded();
        assert!(sandbox.path(&output).exists());
    }
    assert_eq!(sandbox.succeeded_commands(), 4, "each ran in the engine, once");
    let said = run_wafcc(&sandbox, &["wafcc", "--version"], &path).succeeded();
    assert!(said.starts_with("wafcc "), "{said}");
}

/// A script with a compiler's name that calls the wrapper needs only one slot.
#[test]
fn a_script_that_calls_the_wrapper_does_not_wait_for_itself() {
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "gcc",
        &format!("#!/bin/sh\nexec '{WAFCC}' /usr/bin/gcc \"$@\"\n"),
    );
    fs::write(sandbox.path("a.c"), "int f(void) { return 1; }\n").unwrap();
    let mut bound = wrapper::clean(sandbox.command("taskset"), &sandbox);
    bound
        .args(["-c", "0", WAFCC, "./gcc", "-c", "a.c"])
        .current_dir(sandbox.path(""));
    run(&mut bound).succeeded();
    assert!(sandbox.path("a.o").exists());
}

/// For each program that cannot be run, the exit status is that of `env`, and one line names the program.
#[test]
fn a_program_that_cannot_be_run_has_the_shells_status() {
    let sandbox = Sandbox::started();
    fs::create_dir(sandbox.path("folder")).unwrap();
    fs::create_dir(sandbox.path("empty")).unwrap();
    fs::write(sandbox.path("plain"), "text\n").unwrap();
    script(&sandbox, "lost", "#!/no/such/interpreter\n");
    script(&sandbox, "broken", "\u{7f}ELF\n");
    symlink("nowhere", sandbox.path("dangling")).unwrap();
    let here = sandbox.name("");
    let here = here.trim_end_matches('/');
    for name in [
        "./folder",
        "./plain",
        "./lost",
        "./dangling",
        "./none",
        "./plain/below",
        "plain",
        "folder",
        "none",
        "lost",
    ] {
        let path = format!("{here}:/usr/bin:/bin");
        let mut plain = sandbox.command("env");
        plain.args([name, "argument"]).env("PATH", &path).current_dir(here);
        let (expected, said) = (run(&mut plain), run_wafcc(&sandbox, &[name, "argument"], &path));
        assert_eq!(said.status, expected.status, "{name}: {said:?}, and env: {expected:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{name}: {said:?}");
        assert!(said.stderr.contains(name), "{name}: {said:?}");
    }
}

/// A script without an interpreter line is run by the shell.
#[test]
fn a_script_without_an_interpreter_runs() {
    let sandbox = Sandbox::started();
    script(&sandbox, "tool", "echo $1 from ${0##*/}\n");
    let path = format!("{}:/usr/bin:/bin", sandbox.name(""));
    for name in ["./tool", "tool"] {
        assert_eq!(
            run_wafcc(&sandbox, &[name, "word"], &path).succeeded(),
            "word from tool\n"
        );
    }
}

/// A folder of `PATH` without permission, or with a file of that name that cannot be run, is skipped.
#[test]
fn files_in_path_that_cannot_be_run_are_skipped() {
    let sandbox = Sandbox::started();
    for folder in ["a", "b", "c"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    fs::write(sandbox.path("a/tool"), "text").unwrap();
    fs::create_dir(sandbox.path("b/tool")).unwrap();
    script(&sandbox, "c/tool", "#!/bin/sh\necho found\n");
    let [a, b, c] = ["a", "b", "c"].map(|name| sandbox.name(name));
    let path = format!("{a}:{b}:/no/such/folder:{a}/tool:{c}:/usr/bin:/bin");
    assert_eq!(run_wafcc(&sandbox, &["tool"], &path).succeeded(), "found\n");
    fs::set_permissions(&c, fs::Permissions::from_mode(0o000)).unwrap();
    if !sandbox::is_root() {
        assert_eq!(run_wafcc(&sandbox, &["tool"], &path).status, Some(126));
    }
    fs::set_permissions(&c, fs::Permissions::from_mode(0o755)).unwrap();
}
