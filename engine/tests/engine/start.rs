//! The start of an engine: only one starts, however many ask, whatever files are in its place, whoever starts it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{symlink, FileTypeExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use crate::support::order::shell;
use crate::support::peer::Peer;
use crate::support::process;
use crate::support::sandbox::{end_of, run, wait_until, Sandbox, DEADLINE};
use rustix::fs::{flock, FlockOperation};

/// The kernel's table of sockets: those that listen at this sandbox's path.
fn listening(sandbox: &Sandbox) -> usize {
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let name = sandbox.socket();
    // A socket keeps the name with which it was made, before it was renamed.
    let made = name.with_extension("new");
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() == 8 && row[3] == "00010000")
        .filter(|row| row[7] == name.to_str().unwrap() || row[7] == made.to_str().unwrap())
        .count()
}

// ---- one engine

/// Twenty starts at once make one engine, and all print the same. Twenty clients then use it.
#[test]
fn twenty_starts_make_one_engine() {
    let sandbox = Sandbox::new();
    let starts: Vec<_> = (0..20)
        .map(|_| {
            let mut start = sandbox.wafd(&["start"]);
            start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let expected = format!("ready unix {}\n", sandbox.socket().display());
    for start in starts {
        assert_eq!(end_of(start).succeeded(), expected);
    }
    let engine = sandbox.engine();
    for _ in 0..20 {
        assert_eq!(sandbox.engine(), engine);
    }
    assert_eq!(listening(&sandbox), 1);
    let guardian = process::parent(engine);
    let mut pids: Vec<i32> = sandbox.processes().into_iter().map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    let mut expected = [engine, guardian];
    expected.sort_unstable();
    assert_eq!(pids, expected, "engine and guardian, and nobody else");
}

/// A start while an engine runs changes nothing.
#[test]
fn a_second_start_changes_nothing() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    let mut peer = sandbox.client(1);
    let gate = sandbox.close_gate("gate");
    let id = peer.submit(&shell(&gate.script));
    for _ in 0..5 {
        sandbox.start();
    }
    gate.open();
    peer.finish(id).text();
    assert_eq!(sandbox.engine(), engine);
}

/// If starts and stops happen at the same time, no start returns without an engine.
#[test]
fn starts_race_with_stops() {
    let sandbox = Sandbox::started();
    for round in 0..25 {
        let piped = |args: &[&str]| {
            let mut command = sandbox.wafd(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let stop = piped(if round % 2 == 0 { &["stop"] } else { &["stop", "--now"] });
        let starts = [piped(&["start"]), piped(&["start"])];
        // This stop may come too early or too late, which does not matter here.
        end_of(stop);
        for start in starts {
            end_of(start).succeeded();
        }
        sandbox.start();
        sandbox.serves();
    }
}

/// A start that is killed while it waits for the lock blocks no other.
#[test]
fn a_start_that_is_killed_is_no_obstacle() {
    let sandbox = Sandbox::new();
    let lock = File::create(sandbox.file("start")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut first = sandbox.wafd(&["start"]).stdout(Stdio::null()).spawn().unwrap();
    let waits = |pid: u32| {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks
            .lines()
            .any(|l| l.contains("->") && l.contains(&format!(" {pid} ")))
    };
    wait_until("it waits for the lock", || waits(first.id()));
    first.kill().unwrap();
    first.wait().unwrap();
    drop(lock);
    sandbox.start();
    sandbox.serves();
}

// ---- files in its place

/// Files that killed engines have left behind do not matter.
#[test]
fn leftovers_are_no_obstacle() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    let guardian = process::parent(engine);
    process::kill(guardian, libc::SIGKILL);
    process::kill(engine, libc::SIGKILL);
    sandbox.wait_until_empty();
    assert!(
        sandbox.socket().exists(),
        "the socket was removed, so that the test proves nothing"
    );
    for ending in ["new", "tcp", "tcp.new"] {
        fs::write(sandbox.file(ending), "left behind").unwrap();
    }
    sandbox.start();
    sandbox.serves();
    assert_ne!(sandbox.engine(), engine);
}

/// A file or link in place of the socket is replaced. The link's target does not change.
#[test]
fn a_file_in_the_sockets_place_is_replaced() {
    let sandbox = Sandbox::new();
    let precious = sandbox.path("precious");
    fs::write(&precious, "precious").unwrap();
    for link in [false, true] {
        match link {
            false => fs::write(sandbox.socket(), "not a socket").unwrap(),
            true => symlink(&precious, sandbox.socket()).unwrap(),
        }
        sandbox.start();
        sandbox.serves();
        assert!(fs::symlink_metadata(sandbox.socket()).unwrap().file_type().is_socket());
        sandbox.run(&["stop"]).succeeded();
        sandbox.wait_until_empty();
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

/// A folder in place of the socket is reported in one line each time, and no process stays behind.
#[test]
fn a_folder_in_the_sockets_place_is_reported() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.socket()).unwrap();
    for _ in 0..20 {
        let line = sandbox.run(&["start"]).failed();
        assert!(line.contains(sandbox.socket().to_str().unwrap()), "{line}");
        sandbox.wait_until_empty();
    }
    fs::remove_dir(sandbox.socket()).unwrap();
    sandbox.start();
    sandbox.serves();
}

/// Sockets and files of an engine of another version are not changed, and its socket is not used.
#[test]
fn another_version_is_left_alone() {
    let sandbox = Sandbox::new();
    let other = sandbox.runtime().join("wafd-999.0.0.sock");
    let listener = UnixListener::bind(&other).unwrap();
    listener.set_nonblocking(true).unwrap();
    let files: Vec<PathBuf> = ["lock", "start", "tcp", "log"]
        .map(|ending| sandbox.runtime().join(format!("wafd-999.0.0.{ending}")))
        .to_vec();
    for file in &files {
        fs::write(file, "theirs").unwrap();
    }
    let locked = File::open(&files[0]).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    sandbox.run(&["start", "--tcp"]).succeeded();
    sandbox.serves();
    sandbox.run(&["stop"]).succeeded();
    sandbox.wait_until_empty();
    for file in &files {
        assert_eq!(fs::read_to_string(file).unwrap(), "theirs");
    }
    assert!(other.exists());
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// An engine that lives but does not listen is reported in one line.
#[test]
fn a_lock_that_somebody_holds_is_reported() {
    let sandbox = Sandbox::new();
    let lock = File::create(sandbox.file("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let line = sandbox.run(&["start"]).failed();
    assert!(line.contains(sandbox.file("lock").to_str().unwrap()), "{line}");
    drop(lock);
    sandbox.start();
}

/// An engine that does not answer is reported in one line to every client.
#[test]
fn an_engine_that_hangs_is_reported() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    process::stop(engine);
    let asked: Vec<_> = [&["start"][..], &["status"], &["stop"]]
        .map(|args| {
            let mut command = sandbox.wafd(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .into_iter()
        .map(end_of)
        .collect();
    process::kill(engine, libc::SIGCONT);
    for said in asked {
        let line = said.failed();
        assert!(line.contains("does not answer"), "{line}");
        assert!(line.contains(&format!("kill -CONT {engine}")), "{line}");
    }
    sandbox.serves();
}

/// An engine that was stopped by a signal does not answer. `stop --now` ends it, and another can be started.
#[test]
fn a_stopped_engine_is_ended() {
    let sandbox = Sandbox::started();
    let engine = sandbox.engine();
    process::stop(engine);
    sandbox.run(&["stop", "--now"]).succeeded();
    wait_until("it has ended", || !process::lives(engine));
    sandbox.run(&["start"]).succeeded();
    sandbox.serves();
}

// ---- what it keeps of the process that started it

/// The engine keeps no descriptor, folder, session or terminal of the process that started it.
#[test]
fn the_engine_keeps_nothing_of_its_caller() {
    let sandbox = Sandbox::new();
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let number = writer.as_raw_fd();
    let mut start = sandbox.wafd(&["start"]);
    start.current_dir(sandbox.path("")).stdin(Stdio::piped());
    // SAFETY: only a system call. The copies stay open in the engine, since the caller forgot close-on-exec.
    unsafe {
        start.pre_exec(move || {
            for copy in [200, 201] {
                if libc::dup2(number, copy) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    // Our pipe for its output must end, too, or we would not see its end.
    run(&mut start).succeeded();
    drop((writer, start));
    let mut fds = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
    // A process that another test is starting has a copy, too, until it runs its program.
    let soon = rustix::event::Timespec {
        tv_sec: DEADLINE.as_secs() as i64,
        tv_nsec: 0,
    };
    assert_eq!(
        rustix::event::poll(&mut fds, Some(&soon)).unwrap(),
        1,
        "somebody still holds the pipe"
    );
    let engine = sandbox.engine();
    // SAFETY: only a system call.
    let own_session = unsafe { libc::getsid(0) };
    for pid in [engine, process::parent(engine)] {
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), PathBuf::from("/"));
        let (_, _, _, session) = process::stat(pid).unwrap();
        assert_ne!(session, own_session);
    }
    sandbox.serves();
}

/// A caller with closed streams can start an engine.
#[test]
fn a_starter_may_have_closed_its_streams() {
    let sandbox = Sandbox::new();
    let mut start = sandbox.wafd(&["start"]);
    // SAFETY: only system calls.
    unsafe {
        start.pre_exec(|| {
            for fd in 0..3 {
                libc::close(fd);
            }
            Ok(())
        });
    }
    start.status().unwrap();
    sandbox.serves();
    let text = sandbox.client(1).run(&shell("ls -l /proc/$$/fd; :")).text();
    assert_eq!(text.lines().filter(|line| line.contains(" -> ")).count(), 3, "{text}");
}

/// An engine with few descriptors refuses clients while it has none left, and serves them again afterwards.
#[test]
fn an_engine_without_descriptors_recovers() {
    let sandbox = Sandbox::new();
    let mut start = sandbox.wafd(&["start"]);
    // SAFETY: only a system call.
    unsafe {
        start.pre_exec(|| {
            let limit = libc::rlimit64 {
                rlim_cur: 40,
                rlim_max: 40,
            };
            match libc::setrlimit64(libc::RLIMIT_NOFILE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    run(&mut start).succeeded();
    let mut first = sandbox.greeter();
    let engine = first.pid;
    let crowd: Vec<Peer> = (0..60).map(|_| sandbox.stranger()).collect();
    wait_until("it has none left", || process::descriptors(engine) >= 40);
    // Meanwhile it is not busy, and answers the clients that it has.
    for _ in 0..10 {
        assert_eq!(first.report()["pid"], engine);
    }
    drop(crowd);
    wait_until("it serves again", || process::descriptors(engine) < 25);
    assert_eq!(sandbox.greeter().report()["pid"], engine);
}

/// An idle time beyond the clock's range means for ever.
#[test]
fn an_engine_may_stay_for_ever() {
    let sandbox = Sandbox::new();
    sandbox.run(&["start", "--idle", &u64::MAX.to_string()]).succeeded();
    sandbox.serves();
    sandbox.serves();
}
