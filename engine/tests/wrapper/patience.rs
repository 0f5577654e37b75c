//! An engine that cannot be reached delays a build only once, and not for long: what the wrapper remembers.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process;
use crate::support::sandbox::{install, run, wait_until, ProgramOutput, Sandbox};
use crate::support::wrapper::{self, WAFCC};

const CALLS: usize = 30;

fn wafcc_with_short_timeout(sandbox: &Sandbox) -> Command {
    let mut command = wrapper::wafcc(sandbox);
    command.env("WAFD_PATIENCE", "0.5").args(["echo", "fine"]);
    command
}

#[track_caller]
fn assert_runs(sandbox: &Sandbox) {
    assert_eq!(run(&mut wafcc_with_short_timeout(sandbox)).succeeded(), "fine\n");
}

/// How many clients have connected since the last call of this.
fn new_connections(listener: &UnixListener) -> usize {
    listener.set_nonblocking(true).unwrap();
    listener.incoming().take_while(|one| one.is_ok()).count()
}

fn read_note(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.file("trouble")).unwrap_or_default()
}

/// A copy of the wrapper without the engine's program beside it.
fn folder_with_wafcc(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.path("bin");
    fs::create_dir(&folder).unwrap();
    install(Path::new(WAFCC), &folder.join("wafcc"));
    folder
}

fn call(sandbox: &Sandbox, folder: &Path) -> ProgramOutput {
    let mut command = wrapper::clean(sandbox.command(folder.join("wafcc")), sandbox);
    command.env("WAFD_PATIENCE", "0.5").env("PATH", "/usr/bin:/bin");
    run(command.args(["echo", "fine"]))
}

/// One call waits for a listener that never answers. The others do not even connect.
#[test]
fn an_engine_that_never_answers_is_waited_for_once() {
    let sandbox = Sandbox::new();
    let mute = UnixListener::bind(sandbox.socket()).unwrap();
    assert_runs(&sandbox);
    assert!(new_connections(&mute) > 0);
    (0..CALLS).for_each(|_| assert_runs(&sandbox));
    assert_eq!(new_connections(&mute), 0);
    let note = read_note(&sandbox);
    assert!(note.contains("it was silent for 0.5 seconds"), "{note}");
    assert_eq!(
        note.lines().last().unwrap().len(),
        CALLS + 1,
        "each was counted: {note}"
    );
}

/// The same if the queue of the socket is full.
#[test]
fn a_full_queue_is_waited_for_once() {
    let sandbox = Sandbox::new();
    let deaf = UnixListener::bind(sandbox.socket()).unwrap();
    // SAFETY: makes the queue of our own listener short.
    unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&deaf), 0) };
    let address = rustix::net::SocketAddrUnix::new(sandbox.socket()).unwrap();
    let mut queue = Vec::new();
    loop {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        if rustix::net::connect(socket.as_fd(), &address).is_err() {
            break;
        }
        queue.push(UnixStream::from(socket));
    }
    assert_runs(&sandbox);
    let first = read_note(&sandbox);
    assert!(!first.is_empty());
    (0..CALLS).for_each(|_| assert_runs(&sandbox));
    assert_eq!(read_note(&sandbox).len(), first.len() + CALLS);
}

/// An engine's program that hangs is started once. So is one that fails or is not a program.
#[test]
fn a_program_that_starts_no_engine_is_tried_once() {
    for (end, expected) in [
        ("exec sleep 1000", "takes too long"),
        ("echo it is broken >&2; exit 3", "it is broken"),
        ("exit 0", "ended without a word"),
    ] {
        let sandbox = Sandbox::new();
        let (folder, log) = (folder_with_wafcc(&sandbox), sandbox.name("log"));
        let script = format!("#!/bin/sh\necho $$ >> {log}\n{end}\n");
        fs::write(sandbox.path("text"), script).unwrap();
        install(&sandbox.path("text"), &folder.join("wafd"));
        (0..CALLS).for_each(|_| assert_eq!(call(&sandbox, &folder).succeeded(), "fine\n"));
        let started = fs::read_to_string(&log).unwrap();
        assert_eq!(started.lines().count(), 1, "{started}");
        assert!(read_note(&sandbox).contains(expected), "{}", read_note(&sandbox));
        if end.starts_with("exec") {
            process::kill(started.trim().parse().unwrap(), libc::SIGKILL);
        }
    }
}

/// An engine's program that is missing or not executable is no reason to fail. The note says so.
#[test]
fn a_missing_program_is_noted() {
    let sandbox = Sandbox::new();
    let folder = folder_with_wafcc(&sandbox);
    assert_eq!(call(&sandbox, &folder).succeeded(), "fine\n");
    assert!(
        read_note(&sandbox).contains("wafd: No such file"),
        "{}",
        read_note(&sandbox)
    );
    fs::remove_file(sandbox.file("trouble")).unwrap();
    fs::write(folder.join("wafd"), "text").unwrap();
    assert_eq!(call(&sandbox, &folder).succeeded(), "fine\n");
    assert!(
        read_note(&sandbox).contains("Permission denied"),
        "{}",
        read_note(&sandbox)
    );
}

/// If the engine's folder cannot be made, the note is in a folder in /tmp that only this user can read and write.
#[test]
fn a_folder_that_cannot_be_made_leaves_a_note_elsewhere() {
    let mut sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "").unwrap();
    sandbox.use_runtime("file/below");
    let told = || wafengine::wafcc::trouble::read_note(&sandbox.folder());
    assert_runs(&sandbox);
    let before = told().expect("a note").commands;
    (0..CALLS).for_each(|_| assert_runs(&sandbox));
    assert_eq!(told().unwrap().commands, before + CALLS);
    assert!(told().unwrap().reason.contains("set WAFD_RUNTIME_DIR"));
    wafengine::wafcc::trouble::forget(&sandbox.folder());
    assert!(told().is_none());
}

/// An engine that starts removes the note, and commands run in it again.
#[test]
fn an_engine_that_starts_ends_the_trouble() {
    let sandbox = Sandbox::new();
    let mute = UnixListener::bind(sandbox.socket()).unwrap();
    assert_runs(&sandbox);
    assert!(!read_note(&sandbox).is_empty());
    drop(mute);
    sandbox.start();
    assert!(read_note(&sandbox).is_empty());
    assert_runs(&sandbox);
    assert_eq!(sandbox.succeeded_commands(), 1);
}

/// After a note's time, or after a restart of the machine, one call tries again and removes it.
#[test]
fn a_note_that_is_old_is_tried_out() {
    let sandbox = Sandbox::started();
    for times in ["1 2", "99999999999999 99999999999999"] {
        let before = sandbox.succeeded_commands();
        fs::write(sandbox.file("trouble"), format!("wafcc-trouble 1\n1 {times}\nold\n.")).unwrap();
        wait_until("it was tried and reached", || {
            assert_runs(&sandbox);
            read_note(&sandbox).is_empty()
        });
        assert_runs(&sandbox);
        assert!(sandbox.succeeded_commands() > before);
    }
}

/// Anything in the note's place that is not a note is ignored.
#[test]
fn other_files_in_place_of_the_note_are_ignored() {
    let sandbox = Sandbox::started();
    let path = sandbox.file("trouble");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    assert_runs(&sandbox);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_runs(&sandbox);
    fs::remove_dir(&path).unwrap();
    fs::write(sandbox.path("stranger"), "kept").unwrap();
    symlink(sandbox.path("stranger"), &path).unwrap();
    assert_runs(&sandbox);
    assert_eq!(fs::read_to_string(sandbox.path("stranger")).unwrap(), "kept");
    fs::set_permissions(sandbox.path("stranger"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(sandbox.succeeded_commands(), 3);
}
