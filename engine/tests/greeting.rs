//! The greeting: who is served, who is refused and why, over both kinds of socket.

mod space;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use space::order::{command, shell};
use space::peer::{bytes_of, hello, Peer};
use space::stand_in::StandIn;
use space::{is_root, new_session, process, wait_until, TestSpace, DEADLINE};
use wafengine::folder::ENGINE;
use wafengine::wire::{self, Hello, Reply, Request, Verdict, Why, GREETING_CAP, VERSION};

fn versions(lowest: u16, highest: u16) -> Hello {
    Hello {
        lowest,
        highest,
        ..hello(new_session(), 1)
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A range of versions that holds the engine's is welcome, and the engine names its version and process.
#[test]
fn a_common_version_is_picked() {
    let space = TestSpace::started();
    for (lowest, highest) in [(1, 1), (0, 1), (1, 9), (0, u16::MAX)] {
        match space.stranger().greet(&versions(lowest, highest)) {
            Reply::Welcome {
                version, pid, engine, ..
            } => {
                assert_eq!(version, VERSION);
                assert_eq!(engine, ENGINE.as_bytes());
                assert!(process::lives(pid as i32));
            }
            other => panic!("{lowest}..{highest}: {other:?}"),
        }
    }
}

/// Without a common version the client is refused for that, and the connection ends.
#[test]
fn without_a_common_version_nobody_is_served() {
    let space = TestSpace::started();
    for (lowest, highest) in [(0, 0), (2, 2), (2, 9), (9, 1), (u16::MAX, u16::MAX)] {
        let reason = space.stranger().refused(&versions(lowest, highest), Why::Version);
        assert!(reason.contains(&VERSION.to_string()), "{lowest}..{highest}: {reason}");
    }
    assert_eq!(space.status()["totals"]["refused"]["version"], 5);
}

/// The slots of `welcome` are those that the others have declared.
#[test]
fn a_client_learns_how_many_slots_there_are() {
    let space = TestSpace::started();
    let _first = space.client(7);
    match space.stranger().greet(&hello(new_session(), 3)) {
        Reply::Welcome { slots, .. } => assert_eq!(slots, 7),
        other => panic!("{other:?}"),
    }
}

/// Whatever says something else than the protocol is cut off, told at most that it was not understood, and harms nobody.
#[test]
fn garbage_is_no_greeting() {
    let space = TestSpace::started();
    let mut neighbour = space.client(1);
    let mut framed = vec![6, 0, 0, 0];
    framed.extend(b"\x01WAFE\0");
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &[0; 64],
        &[0xff; 64],
        &framed,
        b"\x01\0\0\0\x81",
        b"\x01\0\0\0\x01",
    ] {
        let mut peer = space.stranger();
        // It may be cut off while it still talks.
        let _ = peer.try_write(garbage);
        match peer.receive() {
            None => {}
            Some(Reply::Refused { why: Why::Greeting, .. }) => peer.is_closed(),
            Some(other) => panic!("{garbage:?} was answered: {other:?}"),
        }
    }
    assert_eq!(neighbour.run(&shell("echo fine")).text(), "fine\n");
}

/// A frame of the right form that is no greeting is refused as one that was not understood.
#[test]
fn a_broken_greeting_is_refused_as_such() {
    let space = TestSpace::started();
    let good = bytes_of(&Request::Hello(hello(new_session(), 1)));
    let mut wrong_magic = good.clone();
    wrong_magic[5] = b'X';
    let mut longer = good.clone();
    longer.push(0);
    longer[0] += 1;
    for broken in [wrong_magic, longer] {
        let mut peer = space.stranger();
        peer.write(&broken);
        match peer.receive() {
            Some(Reply::Refused { why: Why::Greeting, .. }) => peer.is_closed(),
            other => panic!("{broken:?}: {other:?}"),
        }
    }
}

/// Nothing, half a greeting, and a greeting that comes byte by byte all end at the deadline; whoever has greeted stays.
#[test]
fn a_greeting_that_does_not_come_is_not_waited_for() {
    let space = TestSpace::started();
    let mut greeted = space.client(1);
    let bytes = bytes_of(&Request::Hello(hello(new_session(), 1)));
    let mut silent = space.stranger();
    let mut half = space.stranger();
    half.write(&bytes[..bytes.len() / 2]);
    // Long enough to be still on its way when its time is up, however patiently each byte is waited for.
    let long = bytes_of(&Request::Hello(Hello {
        name: vec![b'n'; 4000],
        ..hello(new_session(), 1)
    }));
    let mut dripping = space.stranger();
    silent.is_closed();
    half.is_closed();
    let mut rest = long.chunks(1);
    wait_until("the dripping greeting is answered or cut off", || {
        dripping.has_news() || !rest.next().is_some_and(|byte| dripping.try_write(byte).is_ok())
    });
    dripping.is_closed();
    assert_eq!(greeted.run(&shell("echo still here")).text(), "still here\n");
}

/// The length of a greeting above the cap ends the connection by itself, before the greeting has come.
#[test]
fn a_greeting_above_the_cap_ends_with_its_length() {
    let space = TestSpace::started();
    let mut peer = space.stranger();
    peer.write(&(GREETING_CAP as u32 + 1).to_le_bytes());
    peer.is_closed();
}

/// The longest greeting that the cap allows is welcome; one byte more is not.
#[test]
fn the_cap_of_a_greeting_is_exact() {
    let space = TestSpace::started();
    let empty = bytes_of(&Request::Hello(Hello {
        name: Vec::new(),
        ..hello(new_session(), 1)
    }));
    let room = GREETING_CAP - (empty.len() - 4);
    let of_length = |n: usize| Hello {
        name: vec![b'n'; n],
        ..hello(new_session(), 1)
    };
    space.stranger().welcome(&of_length(room));
    let mut peer = space.stranger();
    let _ = peer.try_write(&bytes_of(&Request::Hello(of_length(room + 1))));
    peer.is_closed();
}

/// A second greeting ends the connection, and the commands that were sent over it.
#[test]
fn a_second_greeting_ends_the_connection() {
    let space = TestSpace::started();
    let mut peer = space.client(1);
    peer.submit(&shell("sleep 1000"));
    peer.send(&Request::Hello(hello(new_session(), 1)));
    while let Some(reply) = peer.receive() {
        assert!(!matches!(reply, Reply::Welcome { .. }), "welcome twice");
    }
    wait_until("its command is gone", || space.status()["slots"]["running"] == 0);
}

/// Any request before the greeting ends the connection; it is not carried out.
#[test]
fn nothing_is_done_for_a_stranger() {
    let space = TestSpace::started();
    let touched = space.path("touched");
    let order = command(&["/usr/bin/touch", touched.to_str().unwrap()]);
    let requests = [
        Request::Environment {
            env: 0,
            entries: ["A=1"].iter().collect(),
        },
        Request::Execute(Box::new(order.0)),
        Request::Cancel { id: 0 },
        Request::Status,
        Request::Stop { now: true },
        Request::Stop { now: false },
        Request::Listen,
    ];
    for request in requests {
        let mut peer = space.stranger();
        peer.send(&request);
        // A greeting that comes too late changes nothing.
        let _ = peer.try_write(&bytes_of(&Request::Hello(hello(new_session(), 1))));
        peer.is_closed();
    }
    assert!(space.status()["tcp_port"].is_null());
    assert!(!touched.exists());
}

/// Requests may follow the greeting at once, before `welcome`.
#[test]
fn the_first_requests_need_not_wait_for_the_welcome() {
    let space = TestSpace::started();
    let mut peer = space.stranger();
    let mut bytes = bytes_of(&Request::Hello(hello(new_session(), 1)));
    Request::Environment {
        env: 5,
        entries: ["WORD=early"].iter().collect(),
    }
    .encode(&mut bytes);
    bytes.extend(bytes_of(&peer.number(&shell("echo $WORD").env(5))));
    peer.write(&bytes);
    assert!(matches!(peer.receive(), Some(Reply::Welcome { .. })));
    assert_eq!(peer.finish(0).text(), "early\n");
}

/// A connection that declared no jobs is told everything but runs nothing.
#[test]
fn a_connection_without_jobs_runs_nothing() {
    let space = TestSpace::started();
    let mut peer = space.greeter();
    assert_eq!(peer.report()["pid"], peer.pid);
    let touched = space.path("touched");
    peer.submit(&command(&["/usr/bin/touch", touched.to_str().unwrap()]));
    peer.is_closed();
    space.client(1).run(&shell(":")).text();
    assert!(!touched.exists());
}

/// Only the owner reaches the socket and the folder, whatever the umask of whoever started the engine.
#[test]
fn socket_and_folder_are_private() {
    let mut space = TestSpace::new();
    space.use_runtime("made by the engine");
    let mut start = space.wafd(&["start", "--tcp"]);
    // SAFETY: a system call that may be made between fork and exec.
    unsafe {
        start.pre_exec(|| {
            libc::umask(0);
            Ok(())
        });
    }
    space::run(&mut start).succeeded();
    assert_eq!(mode(space.runtime()), 0o700);
    assert_eq!(mode(&space.socket()), 0o600);
    for ending in ["tcp", "lock", "start", "log"] {
        assert_eq!(mode(&space.file(ending)), 0o600, "{ending}");
    }
}

// ---- TCP

/// Starts the port; its number and token.
fn open_port(space: &TestSpace) -> (u16, Vec<u8>) {
    let line = space.run(&["start", "--tcp"]).succeeded();
    let words: Vec<_> = line.trim_end().splitn(4, ' ').collect();
    let [ready, tcp, port, path] = words[..] else {
        panic!("{line}")
    };
    assert_eq!((ready, tcp), ("ready", "tcp"));
    assert_eq!(Path::new(path), space.file("tcp"));
    let (number, token) = space.folder().read_token().unwrap();
    assert_eq!(port, number.to_string());
    (number, token.into_bytes())
}

fn with_token(token: &[u8]) -> Hello {
    Hello {
        token: token.to_vec(),
        ..hello(new_session(), 1)
    }
}

/// The port's file holds the port and 64 hexadecimal digits, for the owner's eyes only.
#[test]
fn the_token_is_private() {
    let space = TestSpace::new();
    let (port, token) = open_port(&space);
    assert_eq!(mode(&space.file("tcp")), 0o600);
    let text = fs::read_to_string(space.file("tcp")).unwrap();
    let shown = String::from_utf8(token).unwrap();
    assert_eq!(text, format!("{port} {shown}\n"));
    assert_eq!(shown.len(), 64);
    assert!(shown.bytes().all(|b| b.is_ascii_hexdigit()));
    let log = fs::read_to_string(space.file("log")).unwrap();
    assert!(!log.contains(&shown), "the token is in the log");
    assert!(
        !space.status().to_string().contains(&shown),
        "the token is in the report"
    );
}

/// The port listens on the loopback address only.
#[test]
fn the_port_is_on_loopback_only() {
    let space = TestSpace::new();
    let (port, _) = open_port(&space);
    let listening = |table: &str| -> Vec<String> {
        let text = fs::read_to_string(table).unwrap_or_default();
        let rows = text
            .lines()
            .skip(1)
            .map(|row| row.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row[1].ends_with(&format!(":{port:04X}")) && row[3] == "0A")
            .map(|row| row[1].to_owned())
            .collect()
    };
    assert_eq!(listening("/proc/net/tcp"), [format!("0100007F:{port:04X}")]);
    assert!(listening("/proc/net/tcp6").is_empty());
}

/// Over TCP only the whole, right token is admitted, and the right one gets everything that a Unix socket gives.
#[test]
fn only_the_token_opens_the_port() {
    let space = TestSpace::new();
    let (port, token) = open_port(&space);
    let mut wrong = token.clone();
    wrong[63] ^= 1;
    let longer = [&token[..], b"0"].concat();
    let upper = token.to_ascii_uppercase();
    let mut bad: Vec<&[u8]> = vec![b"", &wrong, &token[..63], &longer, b"\0"];
    if upper != token {
        bad.push(&upper);
    }
    for shown in bad {
        Peer::tcp(port).refused(&with_token(shown), Why::Token);
    }
    let mut peer = Peer::tcp(port);
    peer.welcome(&with_token(&token));
    peer.define(0, space.environment());
    assert_eq!(
        peer.run(&shell("echo over tcp; cat").input(b"and back\n")).text(),
        "over tcp\nand back\n"
    );
}

/// Over TCP nothing but a version that nobody speaks is told to someone without the token.
#[test]
fn a_stranger_on_the_port_learns_nothing() {
    let space = TestSpace::new();
    let (port, _) = open_port(&space);
    let mut peer = Peer::tcp(port);
    peer.send(&Request::Status);
    peer.is_closed();
    let reason = Peer::tcp(port).refused(&with_token(b"guess"), Why::Token);
    assert!(!reason.contains(space.runtime().to_str().unwrap()), "{reason}");
}

/// The token is no use on a Unix socket, and none is needed there.
#[test]
fn a_unix_socket_needs_no_token() {
    let space = TestSpace::started();
    space.stranger().welcome(&with_token(b"whatever"));
}

/// A client on TCP whose process does not exist lives nowhere.
#[test]
fn a_client_on_tcp_names_its_own_process() {
    let space = TestSpace::new();
    let (port, token) = open_port(&space);
    for pid in [0, u32::MAX, i32::MAX as u32] {
        let greeting = Hello {
            pid,
            ..with_token(&token)
        };
        Peer::tcp(port).refused(&greeting, Why::Place);
    }
}

/// Descriptors do not travel over TCP: a command that wants one ends the connection.
#[test]
fn a_command_on_tcp_gets_no_descriptors() {
    let space = TestSpace::new();
    let (port, token) = open_port(&space);
    let mut peer = Peer::tcp(port);
    peer.welcome(&with_token(&token));
    peer.define(0, space.environment());
    peer.submit(&shell(":").stdio([wire::Stdio::Null, wire::Stdio::Descriptor, wire::Stdio::Pipe]));
    peer.is_closed();
}

/// An engine that runs opens its port when asked, and opens it once.
#[test]
fn the_port_is_opened_once() {
    let space = TestSpace::started();
    assert!(!space.file("tcp").exists());
    let first = open_port(&space);
    assert_eq!(open_port(&space), first);
    assert_eq!(space.status()["tcp_port"], first.0);
    let port = {
        let mut peer = space.greeter();
        peer.send(&Request::Listen);
        peer.receive()
    };
    assert_eq!(port, Some(Reply::Listening { port: first.0 }));
}

/// A token whose engine was killed is gone when the next one is ready, and one that stops takes its own along.
#[test]
fn a_token_lives_no_longer_than_its_port() {
    let space = TestSpace::new();
    let (_, token) = open_port(&space);
    process::kill(space.engine(), libc::SIGKILL);
    space.start();
    assert!(!space.file("tcp").exists(), "the token of an engine that was killed");
    let (_, fresh) = open_port(&space);
    assert_ne!(fresh, token);
    space.run(&["stop", "--now"]).succeeded();
    space.wait_until_empty();
    assert!(!space.file("tcp").exists(), "the token of an engine that stopped");
}

// ---- place

/// The reason for which the engine refuses a client in this stand-in's place.
fn refusal(mut peer: Peer) -> String {
    peer.refused(&hello(new_session(), 1), Why::Place)
}

/// A client with other supplementary groups is refused, and told so.
#[test]
fn other_groups_are_another_place() {
    if !is_root() {
        return eprintln!("not tried: only root may change its groups");
    }
    let space = TestSpace::started();
    let (_stand_in, peer) = StandIn::start(&space, || {
        let groups = [12345, 54321];
        // SAFETY: the array is as long as is said.
        match unsafe { libc::setgroups(2, groups.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    let reason = refusal(peer);
    assert!(reason.contains("Groups"), "{reason}");
}

/// A client that has given up its right to gain rights is refused, and told so.
#[test]
fn other_rights_are_another_place() {
    let space = TestSpace::started();
    let (_stand_in, peer) = StandIn::start(&space, || {
        // SAFETY: a flag of the calling process.
        match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    let reason = refusal(peer);
    assert!(reason.contains("NoNewPrivs"), "{reason}");
}

/// A client that has become another user since it connected is refused, and told so.
#[test]
fn another_user_is_another_place() {
    if !is_root() {
        return eprintln!("not tried: only root may become somebody else");
    }
    let space = TestSpace::started();
    let program = ["setpriv", "--reuid", "12345", "--clear-groups", "sh"];
    match StandIn::run(&space, &program, || Ok(())) {
        Ok((_stand_in, peer)) => {
            let reason = refusal(peer);
            assert!(reason.contains("Uid"), "{reason}");
        }
        Err(error) => eprintln!("not tried: setpriv: {error}"),
    }
}

/// A client in another namespace of any kind is refused, and told which.
#[test]
fn another_namespace_is_another_place() {
    let space = TestSpace::started();
    for (option, name) in [
        ("-m", "mnt"),
        ("-U", "user"),
        ("-n", "net"),
        ("-i", "ipc"),
        ("-u", "uts"),
        ("-C", "cgroup"),
    ] {
        if !Command::new("unshare")
            .args([option, "true"])
            .status()
            .is_ok_and(|s| s.success())
        {
            eprintln!("not tried: unshare {option} is not permitted here");
            continue;
        }
        let (_stand_in, peer) = StandIn::run(&space, &["unshare", option, "sh"], || Ok(())).unwrap();
        let reason = refusal(peer);
        assert!(reason.contains(name), "unshare {option}: {reason}");
    }
}

/// A client in another root folder is refused, and told so.
#[test]
fn another_root_folder_is_another_place() {
    let space = TestSpace::started();
    let root = space.name("root");
    fs::create_dir(&root).unwrap();
    // The programs of a small world, borrowed from this one.
    let script = format!(
        "for part in bin lib lib64 usr; do \
           [ -e /$part ] || continue; mkdir {root}/$part && mount --bind /$part {root}/$part || exit 1; \
         done; exec chroot {root} /bin/sh"
    );
    let mut engine = space.command("unshare");
    let permitted = engine.args(["-m", "chroot", "/", "/bin/true"]).status();
    if !permitted.is_ok_and(|s| s.success()) {
        return eprintln!("not tried: mounting is not permitted here");
    }
    let (_stand_in, peer) = StandIn::run(&space, &["unshare", "-m", "sh", "-c", &script], || Ok(())).unwrap();
    let reason = refusal(peer);
    assert!(reason.contains("root"), "{reason}");
}

/// A client in a process namespace below the engine's is refused, and told so.
#[test]
fn an_inner_process_namespace_is_another_place() {
    let space = TestSpace::started();
    let started = StandIn::run(&space, &["sh"], || {
        // SAFETY: only system calls; the first process of the new namespace goes on to become the stand-in, while the
        // one in between holds nothing open and ends with it.
        unsafe {
            if libc::unshare(libc::CLONE_NEWPID) != 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    Ok(())
                }
                -1 => Err(io::Error::last_os_error()),
                child => {
                    libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                    libc::_exit(0)
                }
            }
        }
    });
    match started {
        Ok((_stand_in, peer)) => {
            let reason = refusal(peer);
            assert!(reason.contains("pid"), "{reason}");
        }
        Err(error) => eprintln!("not tried: a process namespace: {error}"),
    }
}

/// An engine that cannot even see its client, from an inner process namespace, refuses it and lives on.
#[test]
fn an_outer_process_namespace_is_another_place() {
    let space = TestSpace::new();
    let mut start = space.command("unshare");
    start.args([
        "-p",
        "-f",
        "--mount-proc",
        "sh",
        "-c",
        r#""$0" start >/dev/null; exec sleep 1000"#,
    ]);
    start.arg(env!("CARGO_BIN_EXE_wafd"));
    let mut inner = start.stderr(Stdio::null()).spawn().unwrap();
    wait_until("an engine listens, or could not be started", || {
        space.socket().exists() || inner.try_wait().unwrap().is_some()
    });
    if inner.try_wait().unwrap().is_some() {
        return eprintln!("not tried: unshare -p --mount-proc is not permitted here");
    }
    for _ in 0..2 {
        space.stranger().refused(&hello(new_session(), 1), Why::Place);
    }
    // It runs nothing for us, but tells.
    assert!(space.greeter().report()["totals"]["refused"]["place"].as_u64() >= Some(2));
    for child in process::children(inner.id() as i32) {
        process::kill(child, libc::SIGKILL);
    }
    inner.wait().unwrap();
    space.wait_until_empty();
}

/// Where a command may be sent from any place, it is not run: a connection without jobs is welcome everywhere.
#[test]
fn status_is_told_to_every_place() {
    let space = TestSpace::started();
    let (_stand_in, mut peer) = StandIn::start(&space, || {
        // SAFETY: a flag of the calling process.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        Ok(())
    });
    peer.welcome(&hello(new_session(), 0));
    assert_eq!(peer.report()["pid"], peer.pid);
    peer.define(0, space.environment());
    peer.submit(&shell(":"));
    peer.is_closed();
}

/// The mounted tree of control groups of version 2, and whether it is the only one.
fn control_groups() -> Option<(String, bool)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| path.to_owned())
    })?;
    let only = fs::read_to_string("/proc/self/cgroup").ok()?.lines().count() == 1;
    Some((found, only))
}

/// A control group of the test's own.
struct ControlGroup(String);

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Its processes are gone a moment after they were killed.
        let deadline = Instant::now() + DEADLINE;
        while fs::remove_dir(&self.0).is_err() && Path::new(&self.0).exists() && Instant::now() < deadline {}
    }
}

/// A client in another control group gets its commands run in that group; where they cannot be, it is refused.
#[test]
fn a_command_runs_in_its_clients_control_group() {
    let Some((mount, only)) = control_groups() else {
        return eprintln!("not tried: no control groups of version 2");
    };
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let name = format!("{}/wafd-test-{}", own.trim_end_matches('/'), std::process::id());
    let path = format!("{mount}{name}");
    if let Err(error) = fs::create_dir(&path) {
        return eprintln!("not tried: {path}: {error}");
    }
    let space = TestSpace::started();
    let group = ControlGroup(path);
    let procs = format!("{}/cgroup.procs", group.0);
    let (mut stand_in, mut peer) = StandIn::start(&space, || Ok(()));
    if let Err(error) = fs::write(&procs, stand_in.pid().to_string()) {
        return eprintln!("not tried: {procs}: {error}");
    }
    if only {
        peer.welcome(&hello(new_session(), 1));
        peer.define(0, space.environment());
        let finished = peer.run(&command(&["cat", "/proc/self/cgroup"]));
        assert_eq!(finished.text(), format!("0::{name}\n"));
        // A group of the same kind that has gone meanwhile is told as such, not run elsewhere.
        stand_in.tell(&format!("echo $$ > {mount}{own}/cgroup.procs"));
        drop(group);
        let gone = peer.run(&shell("echo ran"));
        assert_eq!(gone.outcome.verdict, Verdict::NotStarted);
    } else {
        // Version 1 has several groups at a time; that the engine cannot enter them all at once is known.
        let reason = refusal(peer);
        assert!(reason.contains("control group"), "{reason}");
        eprintln!("only tried that it is refused: control groups of version 1 are mounted, too");
    }
    drop(stand_in);
}

/// Above the number of connections that an engine takes, the next is refused for that and the others are served.
#[test]
fn there_are_only_so_many_connections() {
    let space = TestSpace::new();
    // The engine takes as many as it may; we need as many at our end.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some_and(|max| max < 12_000) {
        return eprintln!("not tried: too few descriptors are allowed here");
    }
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    space.start();
    let mut first = space.client(1);
    // Those that greet stay, however long the rest takes.
    let mut crowd: Vec<Peer> = Vec::new();
    let refused = loop {
        assert!(crowd.len() < 5000, "nobody is ever refused");
        let mut peer = space.stranger();
        // It may be refused before it has greeted.
        let _ = peer.try_write(&bytes_of(&Request::Hello(hello([0; 16], 0))));
        match peer.receive() {
            Some(Reply::Welcome { .. }) => crowd.push(peer),
            other => break other,
        }
    };
    assert!(
        matches!(refused, Some(Reply::Refused { why: Why::Crowded, .. })),
        "{refused:?}"
    );
    assert_eq!(first.run(&shell("echo served")).text(), "served\n");
    crowd.truncate(10);
    wait_until("there is room again", || {
        let mut peer = space.stranger();
        let _ = peer.try_write(&bytes_of(&Request::Hello(hello([0; 16], 0))));
        matches!(peer.receive(), Some(Reply::Welcome { .. }))
    });
}
