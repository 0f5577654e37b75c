//! How an engine comes to be: one of it, however many ask, whatever lies in its place; or one line that says why not.

mod space;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{symlink, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{flock, FlockOperation};
use space::order::shell;
use space::peer::{hello, Peer};
use space::{end_of, is_root, new_session, process, run, wait_until, TestSpace};
use wafengine::folder::ENGINE;

/// An engine serves in this space.
#[track_caller]
fn serves(space: &TestSpace) {
    assert_eq!(space.client(1).run(&shell("echo served")).text(), "served\n");
}

/// Lines of the kernel's table of sockets that listen at this space's path.
fn listening(space: &TestSpace) -> usize {
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let name = space.socket();
    // A socket keeps the name under which it was made, before it was moved to its final place.
    let made = name.with_extension("new");
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() == 8 && row[3] == "00010000")
        .filter(|row| row[7] == name.to_str().unwrap() || row[7] == made.to_str().unwrap())
        .count()
}

// ---- one engine

/// Twenty starts at once make one engine, and all of them succeed with the same words; twenty clients then meet it.
#[test]
fn twenty_starts_make_one_engine() {
    let space = TestSpace::new();
    let starts: Vec<_> = (0..20)
        .map(|_| {
            let mut start = space.wafd(&["start"]);
            start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let expected = format!("ready unix {}\n", space.socket().display());
    for start in starts {
        assert_eq!(end_of(start).succeeded(), expected);
    }
    let engine = space.engine();
    for _ in 0..20 {
        assert_eq!(space.engine(), engine);
    }
    assert_eq!(listening(&space), 1);
    let guardian = process::parent(engine);
    let mut pids: Vec<i32> = space.processes().into_iter().map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    let mut expected = [engine, guardian];
    expected.sort_unstable();
    assert_eq!(pids, expected, "engine and guardian, and nobody else");
}

/// A start when an engine runs leaves it alone.
#[test]
fn a_second_start_changes_nothing() {
    let space = TestSpace::started();
    let engine = space.engine();
    let mut peer = space.client(1);
    let gate = space.close_gate("gate");
    let id = peer.submit(&shell(&gate.script));
    for _ in 0..5 {
        space.start();
    }
    gate.open();
    peer.finish(id).text();
    assert_eq!(space.engine(), engine);
}

/// Starts and stops at the same time never leave a start without an engine.
#[test]
fn starts_race_with_stops() {
    let space = TestSpace::started();
    for round in 0..25 {
        let piped = |args: &[&str]| {
            let mut command = space.wafd(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let stop = piped(if round % 2 == 0 { &["stop"] } else { &["stop", "--now"] });
        let starts = [piped(&["start"]), piped(&["start"])];
        // The stop may have come too late or too early; that is its own affair.
        end_of(stop);
        for start in starts {
            end_of(start).succeeded();
        }
        space.start();
        serves(&space);
    }
}

/// A start that is killed while it waits for its turn holds up nobody.
#[test]
fn a_start_that_is_killed_is_no_obstacle() {
    let space = TestSpace::new();
    let lock = File::create(space.file("start")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut first = space.wafd(&["start"]).stdout(Stdio::null()).spawn().unwrap();
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
    space.start();
    serves(&space);
}

// ---- what lies in its place

/// What engines that were killed have left behind is no obstacle.
#[test]
fn leftovers_are_no_obstacle() {
    let space = TestSpace::started();
    let engine = space.engine();
    let guardian = process::parent(engine);
    process::kill(guardian, libc::SIGKILL);
    process::kill(engine, libc::SIGKILL);
    space.wait_until_empty();
    assert!(
        space.socket().exists(),
        "the socket was removed, so that the test proves nothing"
    );
    for ending in ["new", "tcp", "tcp.new"] {
        fs::write(space.file(ending), "left behind").unwrap();
    }
    space.start();
    serves(&space);
    assert_ne!(space.engine(), engine);
}

/// A file or a link under the socket's name is replaced; what the link points to is not touched.
#[test]
fn a_file_in_the_sockets_place_is_replaced() {
    let space = TestSpace::new();
    let precious = space.path("precious");
    fs::write(&precious, "precious").unwrap();
    for link in [false, true] {
        match link {
            false => fs::write(space.socket(), "not a socket").unwrap(),
            true => symlink(&precious, space.socket()).unwrap(),
        }
        space.start();
        serves(&space);
        assert!(fs::symlink_metadata(space.socket()).unwrap().file_type().is_socket());
        space.run(&["stop"]).succeeded();
        space.wait_until_empty();
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

/// A folder under the socket's name is told in one line, again and again, and no process is left waiting for anything.
#[test]
fn a_folder_in_the_sockets_place_is_told() {
    let space = TestSpace::new();
    fs::create_dir(space.socket()).unwrap();
    for _ in 0..20 {
        let line = space.run(&["start"]).failed();
        assert!(line.contains(space.socket().to_str().unwrap()), "{line}");
        space.wait_until_empty();
    }
    fs::remove_dir(space.socket()).unwrap();
    space.start();
    serves(&space);
}

/// Sockets and files of another version's engine are not touched, and its socket is not talked to.
#[test]
fn another_version_is_left_alone() {
    let space = TestSpace::new();
    let other = space.runtime().join("wafd-999.0.0.sock");
    let listener = UnixListener::bind(&other).unwrap();
    listener.set_nonblocking(true).unwrap();
    let files: Vec<PathBuf> = ["lock", "start", "tcp", "log"]
        .map(|ending| space.runtime().join(format!("wafd-999.0.0.{ending}")))
        .to_vec();
    for file in &files {
        fs::write(file, "theirs").unwrap();
    }
    let locked = File::open(&files[0]).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    space.run(&["start", "--tcp"]).succeeded();
    serves(&space);
    space.run(&["stop"]).succeeded();
    space.wait_until_empty();
    for file in &files {
        assert_eq!(fs::read_to_string(file).unwrap(), "theirs");
    }
    assert!(other.exists());
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// An engine that lives but listens no more, which nobody can do anything about, is told in one line.
#[test]
fn a_lock_that_somebody_holds_is_told() {
    let space = TestSpace::new();
    let lock = File::create(space.file("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let line = space.run(&["start"]).failed();
    assert!(line.contains(space.file("lock").to_str().unwrap()), "{line}");
    drop(lock);
    space.start();
}

/// An engine that hangs is told in one line, to whoever asks.
#[test]
fn an_engine_that_hangs_is_told() {
    let space = TestSpace::started();
    let engine = space.engine();
    process::kill(engine, libc::SIGSTOP);
    let asked: Vec<_> = [&["start"][..], &["status"], &["stop", "--now"]]
        .map(|args| {
            let mut command = space.wafd(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .into_iter()
        .map(end_of)
        .collect();
    process::kill(engine, libc::SIGCONT);
    for said in asked {
        let line = said.failed();
        assert!(line.contains("does not answer"), "{line}");
    }
    serves(&space);
}

// ---- folders that will not do

/// `start`, `status` and `stop` each say one line of this folder, naming it and what to do.
#[track_caller]
fn is_refused(space: &TestSpace) -> String {
    let shown = space.runtime().to_str().unwrap().to_owned();
    for args in [&["status"][..], &["stop"], &["stop", "--now"]] {
        space.run(args).failed();
    }
    let line = space.run(&["start"]).failed();
    assert!(line.contains(&shown), "{line}");
    assert!(space.processes().is_empty());
    line
}

/// A folder that cannot be made is told, with the variable that says where it should be.
#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let mut space = TestSpace::new();
    fs::write(space.path("file"), "").unwrap();
    space.use_runtime("file/run");
    let line = is_refused(&space);
    assert!(line.contains("WAFD_RUNTIME_DIR"), "{line}");
    space.use_runtime("/proc/nowhere/run");
    assert!(is_refused(&space).contains("WAFD_RUNTIME_DIR"));
}

/// A folder that may not be written to is told.
#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let space = TestSpace::new();
    if is_root() {
        // What root may not write to either.
        let mut inner = space.command("unshare");
        inner.args([
            "-m",
            "sh",
            "-c",
            r#"mount -t tmpfs -o ro,mode=700 none "$0" || exit 42; exec "$1" start"#,
        ]);
        inner.arg(space.runtime()).arg(env!("CARGO_BIN_EXE_wafd"));
        let said = run(&mut inner);
        if said.status == Some(42) || said.stderr.starts_with("unshare") {
            return eprintln!("not tried: mounting is not permitted here");
        }
        let line = said.failed();
        assert!(line.contains(space.runtime().to_str().unwrap()), "{line}");
    } else {
        fs::set_permissions(space.runtime(), Permissions::from_mode(0o500)).unwrap();
        let line = space.run(&["start"]).failed();
        assert!(line.contains(space.runtime().to_str().unwrap()), "{line}");
        fs::set_permissions(space.runtime(), Permissions::from_mode(0o700)).unwrap();
    }
}

/// A folder that others may look into is refused, and nothing is made in it.
#[test]
fn a_folder_open_to_others_is_refused() {
    let space = TestSpace::new();
    for mode in [0o755, 0o770, 0o701, 0o1777] {
        fs::set_permissions(space.runtime(), Permissions::from_mode(mode)).unwrap();
        let line = is_refused(&space);
        assert!(line.contains("chmod 700"), "{line}");
        assert_eq!(fs::read_dir(space.runtime()).unwrap().count(), 0, "mode {mode:o}");
    }
    fs::set_permissions(space.runtime(), Permissions::from_mode(0o700)).unwrap();
    space.start();
    fs::set_permissions(space.runtime(), Permissions::from_mode(0o755)).unwrap();
    // Also when an engine runs already: somebody else may have put it there.
    is_refused_running(&space);
    fs::set_permissions(space.runtime(), Permissions::from_mode(0o700)).unwrap();
}

fn is_refused_running(space: &TestSpace) {
    for args in [&["status"][..], &["stop"], &["start"]] {
        let line = space.run(args).failed();
        assert!(line.contains("chmod 700"), "{line}");
    }
}

/// A folder of another user is refused.
#[test]
fn a_folder_of_another_user_is_refused() {
    if !is_root() {
        return eprintln!("not tried: only root can give a folder away");
    }
    let space = TestSpace::new();
    std::os::unix::fs::chown(space.runtime(), Some(12345), Some(12345)).unwrap();
    is_refused(&space);
    assert_eq!(fs::read_dir(space.runtime()).unwrap().count(), 0);
}

/// A link in the folder's place is refused, wherever it points; so is a file.
#[test]
fn a_link_or_file_in_the_folders_place_is_refused() {
    let mut space = TestSpace::new();
    fs::create_dir(space.path("real")).unwrap();
    fs::set_permissions(space.path("real"), Permissions::from_mode(0o700)).unwrap();
    symlink(space.path("real"), space.path("link")).unwrap();
    symlink(space.path("nowhere"), space.path("dangling")).unwrap();
    fs::write(space.path("file"), "").unwrap();
    for name in ["link", "dangling", "file"] {
        space.use_runtime(name);
        is_refused(&space);
    }
    assert_eq!(fs::read_dir(space.path("real")).unwrap().count(), 0);
}

/// A folder whose name is too long for a socket is refused as such; the longest that is not works.
#[test]
fn a_folder_with_a_long_name_is_refused() {
    let mut space = TestSpace::new();
    let rest = format!("/wafd-{ENGINE}.sock").len();
    let room = 107 - rest - space.path("").to_str().unwrap().trim_end_matches('/').len() - 1;
    space.use_runtime("l".repeat(room + 1));
    let line = is_refused(&space);
    assert!(line.contains("too long"), "{line}");
    space.use_runtime("l".repeat(room));
    space.start();
    serves(&space);
}

/// A relative folder, which would be another one for each client, is refused.
#[test]
fn a_relative_folder_is_refused() {
    let space = TestSpace::new();
    // One that started all the same would have another mark than the rest of the space.
    let mut start = space.wafd(&["start", "--idle", "1"]);
    let line = run(start.env("WAFD_RUNTIME_DIR", "run").current_dir(space.path(""))).failed();
    assert!(line.contains("absolute"), "{line}");
}

/// Without the variable of its own, the folder is below the one for the user's runtime files, and private.
#[test]
fn the_usual_folder_is_found() {
    let space = TestSpace::new();
    let usual = |args: &[&str]| {
        let mut command = space.wafd(args);
        // An empty value is none.
        command
            .env("WAFD_RUNTIME_DIR", "")
            .env("XDG_RUNTIME_DIR", space.path(""));
        run(&mut command)
    };
    let line = usual(&["start", "--idle", "5"]).succeeded();
    let socket = space.path(format!("wafd/wafd-{ENGINE}.sock"));
    assert_eq!(line, format!("ready unix {}\n", socket.display()));
    let mode = fs::metadata(space.path("wafd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut peer = Peer::unix(&socket);
    peer.welcome(&hello(new_session(), 0));
    let pids = [peer.pid, process::parent(peer.pid)];
    usual(&["stop", "--now"]).succeeded();
    wait_until("it is gone", || !pids.into_iter().any(process::lives));
}

// ---- full disks

/// Runs `wafd` with its runtime folder on a small file system of its own that has been filled by `fill`.
fn on_a_full_disk(space: &TestSpace, options: &str, fill: &str, script: &str) -> Option<space::Said> {
    let script = format!(
        "mount -t tmpfs -o mode=700,{options} none \"$0\" || exit 42; \
         cd \"$0\"; {{ {fill}; }} 2>/dev/null; cd /; {script}"
    );
    let mut inner = space.command("unshare");
    inner.args(["-m", "sh", "-c", &script]);
    inner.arg(space.runtime()).arg(env!("CARGO_BIN_EXE_wafd"));
    let said = run(&mut inner);
    if said.status == Some(42) || said.stderr.starts_with("unshare") {
        eprintln!("not tried: mounting is not permitted here");
        return None;
    }
    Some(said)
}

/// When no file can be made in the folder any more, the start says so in one line.
#[test]
fn a_disk_without_room_for_files_is_told() {
    let space = TestSpace::new();
    // With each start there is room for one file more, so that every one of them is missed once.
    for room in 0..4 {
        let fill = format!("i=0; while true > f$i; do i=$((i+1)); done; for i in $(seq {room}); do rm f$i; done");
        let Some(said) = on_a_full_disk(&space, "nr_inodes=12", &fill, r#"exec "$1" start"#) else {
            return;
        };
        let line = said.failed();
        assert!(line.contains("No space left"), "room for {room}: {line}");
        space.wait_until_empty();
    }
}

/// When nothing can be written any more, an engine still starts and serves, since it needs no file's content; only the
/// port, which does, is refused in one line, and no half of its token is left.
#[test]
fn a_disk_without_room_for_content_is_enough() {
    let space = TestSpace::new();
    let fill = "cat /dev/zero > filler";
    let script = r#""$1" start && "$1" status --json && "$1" stop"#;
    let Some(said) = on_a_full_disk(&space, "size=16k", fill, script) else {
        return;
    };
    let text = said.succeeded();
    assert!(text.contains("ready unix"), "{text}");
    assert!(text.contains("\"sessions\""), "{text}");
    space.wait_until_empty();
    let script = r#""$1" start --tcp; s=$?; ls "$0" >&3; exit $s"#;
    let script = format!("exec 3>{}; {script}", space.name("list"));
    let said = on_a_full_disk(&space, "size=16k", fill, &script).unwrap();
    let line = said.failed();
    assert!(line.contains("No space left"), "{line}");
    let list = fs::read_to_string(space.path("list")).unwrap();
    assert!(!list.contains(&format!("wafd-{ENGINE}.tcp\n")), "{list}");
    space.wait_until_empty();
}

/// A log that has grown is put aside at the next start; the one before that is forgotten.
#[test]
fn the_log_is_turned_over() {
    let space = TestSpace::new();
    fs::write(space.file("log"), vec![b'1'; (1 << 20) + 1]).unwrap();
    fs::write(space.file("log.old"), "older").unwrap();
    space.start();
    assert_eq!(fs::metadata(space.file("log.old")).unwrap().len(), (1 << 20) + 1);
    let log = fs::read_to_string(space.file("log")).unwrap();
    assert!(log.contains(&format!("wafd {ENGINE} starts")), "{log}");
    assert_eq!(
        fs::metadata(space.file("log")).unwrap().permissions().mode() & 0o777,
        0o600
    );
    space.run(&["stop", "--now"]).succeeded();
    space.wait_until_empty();
    space.start();
    let log = fs::read_to_string(space.file("log")).unwrap();
    assert_eq!(log.matches("starts").count(), 2, "a small log goes on: {log}");
}

// ---- what it keeps of its starter

/// The engine keeps no descriptor, folder, session or terminal of whoever started it.
#[test]
fn the_engine_lets_go_of_its_starter() {
    let space = TestSpace::new();
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let number = writer.as_raw_fd();
    let mut start = space.wafd(&["start"]);
    start.current_dir(space.path("")).stdin(Stdio::piped());
    // SAFETY: only a system call. The copies are open in what is started, as a careless starter's are.
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
    // Its output is a pipe, too, which must end for us to hear the end of it.
    run(&mut start).succeeded();
    drop((writer, start));
    let mut fds = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(
        rustix::event::poll(&mut fds, Some(&now)).unwrap(),
        1,
        "somebody still holds the pipe"
    );
    let engine = space.engine();
    // SAFETY: a plain system call.
    let own_session = unsafe { libc::getsid(0) };
    for pid in [engine, process::parent(engine)] {
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), PathBuf::from("/"));
        let (_, _, _, session) = process::stat(pid).unwrap();
        assert_ne!(session, own_session);
    }
    serves(&space);
}

/// A starter whose own streams are closed starts an engine like any other.
#[test]
fn a_starter_may_have_closed_its_streams() {
    let space = TestSpace::new();
    let mut start = space.wafd(&["start"]);
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
    serves(&space);
    let text = space.client(1).run(&shell("ls -l /proc/$$/fd; :")).text();
    assert_eq!(text.lines().filter(|line| line.contains(" -> ")).count(), 3, "{text}");
}

/// An engine that may have few descriptors turns clients away while it has none left, and serves them when it has.
#[test]
fn an_engine_without_descriptors_recovers() {
    let space = TestSpace::new();
    let mut start = space.wafd(&["start"]);
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
    let mut first = space.greeter();
    let engine = first.pid;
    let crowd: Vec<Peer> = (0..60).map(|_| space.stranger()).collect();
    wait_until("it has none left", || process::descriptors(engine) >= 40);
    // It is not busy with that: it answers those whom it has.
    for _ in 0..10 {
        assert_eq!(first.report()["pid"], engine);
    }
    drop(crowd);
    wait_until("it serves again", || process::descriptors(engine) < 20);
    assert_eq!(space.greeter().report()["pid"], engine);
}

// ---- mistakes

/// What is not a way to call it is told in one line that says where to look.
#[test]
fn mistakes_in_the_call_are_told() {
    let space = TestSpace::new();
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
        let line = space.run(args).failed();
        assert!(line.contains("--help"), "{args:?}: {line}");
    }
    let line = run(space.wafd(&["start"]).env("WAFD_IDLE", "soon")).failed();
    assert!(line.contains("WAFD_IDLE=soon"), "{line}");
    assert!(space.processes().is_empty());
}

/// Help and version are printed without an engine, and start none.
#[test]
fn help_needs_no_engine() {
    let space = TestSpace::new();
    for args in [&["--help"][..], &["-h"], &[]] {
        let text = space.run(args).succeeded();
        for word in ["Usage", "start", "status", "stop", "--foreground", "WAFD_RUNTIME_DIR"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    assert_eq!(space.run(&["--version"]).succeeded(), format!("wafd {ENGINE}\n"));
    assert_eq!(fs::read_dir(space.runtime()).unwrap().count(), 0);
}

/// When its output cannot be written that is told in one line, and an engine that was started is there all the same.
#[test]
fn output_that_cannot_be_written_is_told() {
    let space = TestSpace::started();
    for args in [
        &["--help"][..],
        &["--version"],
        &["start"],
        &["status"],
        &["status", "--json"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command: Command = space.wafd(args);
        let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let line = end_of(child).failed();
        assert!(line.contains("No space left"), "{args:?}: {line}");
    }
    serves(&space);
    let mut quiet = space
        .wafd(&["status"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Nobody reads: as with any other program, that is not worth a word of panic.
    drop(quiet.stdout.take());
    let said = end_of(quiet);
    assert!(
        said.stderr.lines().count() <= 1 && !said.stderr.contains("panicked"),
        "{said:?}"
    );
    let _ = std::io::stdout().flush();
}

/// A time that never comes is as good as any other.
#[test]
fn an_engine_may_stay_for_ever() {
    let space = TestSpace::new();
    space.run(&["start", "--idle", &u64::MAX.to_string()]).succeeded();
    serves(&space);
    serves(&space);
}
