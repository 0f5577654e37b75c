//! An engine that cannot be had costs a build little, and once: what the wrapper remembers of it.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process;
use crate::support::sandbox::{install, run, wait_until, Said, Sandbox};
use crate::support::wrapper::{self, WAFCC};

const CALLS: usize = 30;

fn impatient(sandbox: &Sandbox) -> Command {
    let mut command = wrapper::wafcc(sandbox);
    command.env("WAFD_PATIENCE", "0.5").args(["echo", "fine"]);
    command
}

#[track_caller]
fn runs(sandbox: &Sandbox) {
    assert_eq!(run(&mut impatient(sandbox)).succeeded(), "fine\n");
}

/// How many have connected since this was asked last.
fn visitors(listener: &UnixListener) -> usize {
    listener.set_nonblocking(true).unwrap();
    listener.incoming().take_while(|one| one.is_ok()).count()
}

fn note(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.file("trouble")).unwrap_or_default()
}

/// How many commands the engine of this sandbox has run to success.
fn count(sandbox: &Sandbox) -> u64 {
    sandbox.status()["totals"]["succeeded"].as_u64().unwrap()
}

/// A copy of the wrapper alone in a folder, where it looks for the engine's program.
fn alone(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.path("bin");
    fs::create_dir(&folder).unwrap();
    install(Path::new(WAFCC), &folder.join("wafcc"));
    folder
}

fn call(sandbox: &Sandbox, folder: &Path) -> Said {
    let mut command = wrapper::clean(sandbox.command(folder.join("wafcc")), sandbox);
    command.env("WAFD_PATIENCE", "0.5").env("PATH", "/usr/bin:/bin");
    run(command.args(["echo", "fine"]))
}

/// A listener that never answers is waited for by one call; the others do not even connect.
#[test]
fn a_mute_engine_is_waited_for_once() {
    let sandbox = Sandbox::new();
    let mute = UnixListener::bind(sandbox.socket()).unwrap();
    runs(&sandbox);
    assert!(visitors(&mute) > 0);
    (0..CALLS).for_each(|_| runs(&sandbox));
    assert_eq!(visitors(&mute), 0);
    let note = note(&sandbox);
    assert!(note.contains("it was silent for 0.5 seconds"), "{note}");
    assert_eq!(
        note.lines().last().unwrap().len(),
        CALLS + 1,
        "each was counted: {note}"
    );
}

/// The same where nobody takes connections, and the queue is full.
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
    runs(&sandbox);
    let first = note(&sandbox);
    assert!(!first.is_empty());
    (0..CALLS).for_each(|_| runs(&sandbox));
    assert_eq!(note(&sandbox).len(), first.len() + CALLS);
}

/// An engine's program that hangs is started once, and one that fails or is none is tried once.
#[test]
fn a_program_that_starts_no_engine_is_tried_once() {
    for (end, expected) in [
        ("exec sleep 1000", "takes too long"),
        ("echo it is broken >&2; exit 3", "it is broken"),
        ("exit 0", "ended without a word"),
    ] {
        let sandbox = Sandbox::new();
        let (folder, log) = (alone(&sandbox), sandbox.name("log"));
        let script = format!("#!/bin/sh\necho $$ >> {log}\n{end}\n");
        fs::write(sandbox.path("text"), script).unwrap();
        install(&sandbox.path("text"), &folder.join("wafd"));
        (0..CALLS).for_each(|_| assert_eq!(call(&sandbox, &folder).succeeded(), "fine\n"));
        let started = fs::read_to_string(&log).unwrap();
        assert_eq!(started.lines().count(), 1, "{started}");
        assert!(note(&sandbox).contains(expected), "{}", note(&sandbox));
        if end.starts_with("exec") {
            process::kill(started.trim().parse().unwrap(), libc::SIGKILL);
        }
    }
}

/// An engine's program that is missing or may not be executed is no reason to fail, and is told in the note.
#[test]
fn a_missing_program_is_noted() {
    let sandbox = Sandbox::new();
    let folder = alone(&sandbox);
    assert_eq!(call(&sandbox, &folder).succeeded(), "fine\n");
    assert!(note(&sandbox).contains("wafd: No such file"), "{}", note(&sandbox));
    fs::remove_file(sandbox.file("trouble")).unwrap();
    fs::write(folder.join("wafd"), "text").unwrap();
    assert_eq!(call(&sandbox, &folder).succeeded(), "fine\n");
    assert!(note(&sandbox).contains("Permission denied"), "{}", note(&sandbox));
}

/// Where the engine's folder cannot be, the note is in one of this user's below /tmp, which nobody else can read or write.
#[test]
fn a_folder_that_cannot_be_leaves_a_note_elsewhere() {
    let mut sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "").unwrap();
    sandbox.use_runtime("file/below");
    let told = || wafengine::wafcc::trouble::told(&sandbox.folder());
    runs(&sandbox);
    let before = told().expect("a note").commands;
    (0..CALLS).for_each(|_| runs(&sandbox));
    assert_eq!(told().unwrap().commands, before + CALLS);
    assert!(told().unwrap().reason.contains("set WAFD_RUNTIME_DIR"));
    wafengine::wafcc::trouble::forget(&sandbox.folder());
    assert!(told().is_none());
}

/// An engine that starts takes the note away, and commands run in it again.
#[test]
fn an_engine_that_starts_ends_the_trouble() {
    let sandbox = Sandbox::new();
    let mute = UnixListener::bind(sandbox.socket()).unwrap();
    runs(&sandbox);
    assert!(!note(&sandbox).is_empty());
    drop(mute);
    sandbox.start();
    assert!(note(&sandbox).is_empty());
    runs(&sandbox);
    assert_eq!(count(&sandbox), 1);
}

/// A note whose time is over, or of another time of the machine, has one call try again, which takes it away.
#[test]
fn a_note_that_is_old_is_tried_out() {
    let sandbox = Sandbox::started();
    for times in ["1 2", "99999999999999 99999999999999"] {
        let before = count(&sandbox);
        fs::write(sandbox.file("trouble"), format!("wafcc-trouble 1\n1 {times}\nold\n.")).unwrap();
        wait_until("it was tried and reached", || {
            runs(&sandbox);
            note(&sandbox).is_empty()
        });
        runs(&sandbox);
        assert!(count(&sandbox) > before);
    }
}

/// What stands in the note's place and is none does not hold up anything.
#[test]
fn what_is_no_note_is_no_obstacle() {
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
    runs(&sandbox);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    runs(&sandbox);
    fs::remove_dir(&path).unwrap();
    fs::write(sandbox.path("stranger"), "kept").unwrap();
    symlink(sandbox.path("stranger"), &path).unwrap();
    runs(&sandbox);
    assert_eq!(fs::read_to_string(sandbox.path("stranger")).unwrap(), "kept");
    fs::set_permissions(sandbox.path("stranger"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(count(&sandbox), 3);
}
