//! Command lines of `wafd` other than an ordinary start: mistakes, help, output that cannot be written.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::sandbox::{end_of, run, Sandbox};
use wafengine::files::folder::ENGINE;

/// An unknown command line is reported in one line that names the help.
#[test]
fn mistakes_in_the_call_are_reported() {
    let sandbox = Sandbox::new();
    for args in [
        &["frobnicate"][..],
        &["start", "stop"],
        &["--frobnicate"],
        &["start", "--idle"],
        &["start", "--idle", "soon"],
        &["start", "--idle", "-1"],
        &["start", "--tcp=yes"],
        &["status", "-x"],
        &["Start"],
        &[""],
    ] {
        let line = sandbox.run(args).failed();
        assert!(line.contains("--help"), "{args:?}: {line}");
    }
    let line = run(sandbox.wafd(&["start"]).env("WAFD_IDLE", "soon")).failed();
    assert!(line.contains("WAFD_IDLE=soon"), "{line}");
    assert!(sandbox.processes().is_empty());
}

/// Help and version are printed without an engine, and start none.
#[test]
fn help_needs_no_engine() {
    let sandbox = Sandbox::new();
    for args in [&["--help"][..], &["-h"], &[]] {
        let text = sandbox.run(args).succeeded();
        for word in ["Usage", "start", "status", "stop", "--foreground", "WAFD_RUNTIME_DIR"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    assert_eq!(sandbox.run(&["--version"]).succeeded(), format!("wafd {ENGINE}\n"));
    assert_eq!(fs::read_dir(sandbox.runtime()).unwrap().count(), 0);
}

/// If the output cannot be written, one line says so. An engine that was started runs all the same.
#[test]
fn output_that_cannot_be_written_is_reported() {
    let sandbox = Sandbox::started();
    for args in [
        &["--help"][..],
        &["--version"],
        &["start"],
        &["status"],
        &["status", "--json"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command: Command = sandbox.wafd(args);
        let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let line = end_of(child).failed();
        assert!(line.contains("No space left"), "{args:?}: {line}");
    }
    sandbox.serves();
    let mut quiet = sandbox
        .wafd(&["status"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // If no process reads the pipe, the program does not panic.
    drop(quiet.stdout.take());
    let said = end_of(quiet);
    assert!(
        said.stderr.lines().count() <= 1 && !said.stderr.contains("panicked"),
        "{said:?}"
    );
    let _ = std::io::stdout().flush();
}
