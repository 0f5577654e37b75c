//! Commands and outcomes: which program runs, how it ends, which resources it uses.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::support::order::{command, shell};
use crate::support::peer::{bytes_of, hello, Peer};
use crate::support::process;
use crate::support::sandbox::{install, new_session, wait_until, Sandbox};
use wafengine::wire::{Execute, Request, Stdio, Step};

/// An executable file with this content.
fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let source = path.with_extension("text");
    fs::write(&source, text).unwrap();
    install(&source, path);
}

/// A script that prints its name.
fn script_that_prints(path: &Path, name: &str) {
    program(path, &format!("#!/bin/sh\necho {name}\n"));
}

// ---- how it ended

/// The outcome has the exit status of the command.
#[test]
fn an_exit_status_is_reported() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    for status in [0, 1, 2, 126, 127, 128, 255] {
        peer.run(&shell(&format!("exit {status}"))).ended(status);
    }
}

/// A signal that ended a command is reported as a negative number.
#[test]
fn a_signal_is_reported() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    for signal in [
        libc::SIGTERM,
        libc::SIGKILL,
        libc::SIGSEGV,
        libc::SIGABRT,
        libc::SIGPIPE,
        libc::SIGHUP,
    ] {
        let line = format!("ulimit -c 0; kill -{signal} $$");
        // The caller of the tests may ignore this signal, as `nohup` does.
        let alone = std::process::Command::new("sh").args(["-c", &line]).status().unwrap();
        let ended = alone.signal().map_or(0, |signal| -signal);
        peer.run(&shell(&line)).ended(ended);
    }
}

/// A command that kills its whole process group ends only itself.
#[test]
fn a_command_is_in_a_group_of_its_own() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let gate = sandbox.close_gate("gate");
    let other = peer.submit(&shell(&format!("{}; echo unharmed", gate.script)));
    peer.run(&shell("kill -KILL 0")).ended(-libc::SIGKILL);
    gate.open();
    assert_eq!(peer.finish(other).text(), "unharmed\n");
}

/// A command leads a process group in the engine's session. With the flag it has a session of its own.
#[test]
fn a_command_leads_its_group_or_session() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let show = shell("cat /proc/$$/stat; :");
    let numbers = |text: &str| -> [i32; 3] {
        let pid = text.split(' ').next().unwrap().parse().unwrap();
        let rest: Vec<_> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
        [pid, rest[2].parse().unwrap(), rest[3].parse().unwrap()]
    };
    let [pid, group, session] = numbers(&peer.run(&show).text());
    assert_eq!(group, pid);
    assert_ne!(session, pid);
    let [pid, group, session] = numbers(&peer.run(&show.clone().new_session()).text());
    assert_eq!((group, session), (pid, pid));
}

// ---- commands that could not be started

/// A command that does not exist is reported with its errno, with or without a path in its name.
#[test]
fn a_missing_command_is_reported() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    for name in ["/no/such/command", "./nothing", "no-such-command"] {
        peer.run(&command(&[name])).not_started(Step::Command, libc::ENOENT);
    }
    peer.run(&command(&["/dev/null/command"]))
        .not_started(Step::Command, libc::ENOTDIR);
}

/// A script whose interpreter does not exist cannot be started.
#[test]
fn a_missing_interpreter_is_reported() {
    let sandbox = Sandbox::started();
    let script = sandbox.path("script");
    program(&script, "#!/no/such/interpreter\n");
    let finished = sandbox.client(1).run(&command(&[script.as_os_str().as_bytes()]));
    finished.not_started(Step::Command, libc::ENOENT);
}

/// A file without permission to execute and a folder are reported.
#[test]
fn a_forbidden_command_is_reported() {
    let sandbox = Sandbox::started();
    let plain = sandbox.path("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let mut peer = sandbox.client(1);
    for path in [plain.as_path(), sandbox.runtime()] {
        peer.run(&command(&[path.as_os_str().as_bytes()]))
            .not_started(Step::Command, libc::EACCES);
    }
}

/// A file that is no program is reported, and is not run by a shell.
#[test]
fn a_file_without_a_format_is_reported() {
    let sandbox = Sandbox::started();
    let text = sandbox.path("text");
    program(&text, "echo I am not a script\n");
    let finished = sandbox.client(1).run(&command(&[text.as_os_str().as_bytes()]));
    finished.not_started(Step::Command, libc::ENOEXEC);
}

/// Arguments that are too long for the system are reported.
#[test]
fn too_long_arguments_are_reported() {
    let sandbox = Sandbox::started();
    let long = vec![b'x'; 1 << 20];
    let finished = sandbox.client(1).run(&command(&[b"/bin/true", &long[..]]));
    finished.not_started(Step::Command, libc::E2BIG);
}

/// A missing folder is reported as a missing folder, not as a missing command. So is a file in its place.
#[test]
fn a_missing_folder_is_reported() {
    let sandbox = Sandbox::started();
    let file = sandbox.path("file");
    fs::write(&file, "").unwrap();
    let mut peer = sandbox.client(1);
    peer.run(&shell(":").cwd(Path::new("/no/such/folder")))
        .not_started(Step::Folder, libc::ENOENT);
    peer.run(&shell(":").cwd(&file))
        .not_started(Step::Folder, libc::ENOTDIR);
    peer.run(&command(&["/no/such/command"]).cwd(Path::new("/no/such/folder")))
        .not_started(Step::Folder, libc::ENOENT);
}

/// A command that could not be started keeps no slot and no descriptor.
#[test]
fn a_command_that_could_not_be_started_keeps_nothing() {
    let sandbox = Sandbox::without_parking();
    let mut peer = sandbox.client(1);
    peer.run(&shell(":")).text();
    let before = process::descriptors(peer.pid);
    for _ in 0..50 {
        peer.submit(&command(&["/no/such/command"]).input(b"for nobody"));
        peer.submit(&shell(":").cwd(Path::new("/no/such/folder")));
    }
    assert_eq!(peer.run(&shell("echo goes on")).text(), "goes on\n");
    assert_eq!(process::descriptors(peer.pid), before);
    assert_eq!(peer.report()["totals"]["not_started"], 100);
}

// ---- which program runs

/// A bare name is searched along the `PATH` of the command's own environment, in order.
#[test]
fn a_bare_name_is_looked_for_along_the_commands_path() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    script_that_prints(&sandbox.path("a/tool"), "first");
    script_that_prints(&sandbox.path("b/tool"), "second");
    script_that_prints(&sandbox.path("b/other"), "other");
    peer.define(1, [format!("PATH={}:{}", sandbox.name("a"), sandbox.name("b"))]);
    peer.define(2, [format!("PATH={}:{}/", sandbox.name("b"), sandbox.name("a"))]);
    assert_eq!(peer.run(&command(&["tool"]).env(1)).text(), "first\n");
    assert_eq!(peer.run(&command(&["other"]).env(1)).text(), "other\n");
    assert_eq!(peer.run(&command(&["tool"]).env(2)).text(), "second\n");
    // The engine's own `PATH` has this program, the command's has not.
    peer.run(&command(&["sh"]).env(1))
        .not_started(Step::Command, libc::ENOENT);
}

/// An empty entry of `PATH` means the command's folder: at the beginning, in the middle and at the end.
#[test]
fn an_empty_entry_of_the_path_is_the_folder() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    script_that_prints(&sandbox.path("here/tool"), "here");
    let here = sandbox.path("here");
    for (env, path) in [
        (1, "PATH=:/no/where"),
        (2, "PATH=/no/where::/nor/here"),
        (3, "PATH=/no/where:"),
        (4, "PATH="),
    ] {
        peer.define(env, [path]);
        assert_eq!(
            peer.run(&command(&["tool"]).env(env).cwd(&here)).text(),
            "here\n",
            "{path}"
        );
        peer.run(&command(&["tool"]).env(env))
            .not_started(Step::Command, libc::ENOENT);
    }
}

/// A relative entry of `PATH`, and a relative name with a slash, are relative to the command's folder.
#[test]
fn relative_names_start_from_the_folder() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    script_that_prints(&sandbox.path("base/bin/tool"), "relative");
    peer.define(1, ["PATH=bin"]);
    let base = sandbox.path("base");
    assert_eq!(peer.run(&command(&["tool"]).env(1).cwd(&base)).text(), "relative\n");
    assert_eq!(peer.run(&command(&["bin/tool"]).env(1).cwd(&base)).text(), "relative\n");
    assert_eq!(
        peer.run(&command(&["./bin/tool"]).env(1).cwd(&base)).text(),
        "relative\n"
    );
}

/// Without a `PATH` the usual folders are searched.
#[test]
fn without_a_path_the_usual_folders_are_searched() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    peer.define(1, ["HOME=/"]);
    assert_eq!(peer.run(&command(&["echo", "found"]).env(1)).text(), "found\n");
}

/// A file without permission does not end the search. It is reported only if no other file is found.
#[test]
fn the_search_goes_on_after_a_forbidden_file() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    fs::create_dir(sandbox.path("a")).unwrap();
    fs::write(sandbox.path("a/tool"), "not executable").unwrap();
    fs::create_dir_all(sandbox.path("b")).unwrap();
    peer.define(1, [format!("PATH={}:{}", sandbox.name("a"), sandbox.name("b"))]);
    peer.run(&command(&["tool"]).env(1))
        .not_started(Step::Command, libc::EACCES);
    script_that_prints(&sandbox.path("b/tool"), "allowed");
    assert_eq!(peer.run(&command(&["tool"]).env(1)).text(), "allowed\n");
}

/// If an environment has two `PATH`s, the first one applies, as with `getenv`.
#[test]
fn the_first_path_counts() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    script_that_prints(&sandbox.path("a/tool"), "first");
    script_that_prints(&sandbox.path("b/tool"), "second");
    peer.define(
        1,
        [
            format!("PATH={}", sandbox.name("a")),
            format!("PATH={}", sandbox.name("b")),
        ],
    );
    assert_eq!(peer.run(&command(&["tool"]).env(1)).text(), "first\n");
}

/// The environment of a command is exactly what was sent: order, duplicates, empty values, bytes that are not UTF-8.
#[test]
fn the_environment_is_exact() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let show = command(&["/bin/cat", "/proc/self/environ"]);
    let long = [&b"LONG="[..], &[b'l'; 100_000]].concat();
    let entries: Vec<&[u8]> = vec![
        b"B=2",
        b"A=1",
        b"A=again",
        b"EMPTY=",
        b"=unnamed",
        b"BYTES=\xff\xfe\x80",
        b"TWO=a=b\nc",
        &long,
    ];
    peer.define(1, &entries);
    assert_eq!(
        peer.run(&show.clone().env(1)).stdout,
        [&entries.join(&0)[..], b"\0"].concat()
    );
    peer.define(63, [""; 0]);
    assert_eq!(peer.run(&show.env(63)).stdout, b"");
}

/// Each connection has its own environments. A new definition applies only to later commands.
#[test]
fn an_environment_can_be_defined_again() {
    let sandbox = Sandbox::started();
    let (mut peer, mut other) = (sandbox.client(1), sandbox.client(1));
    let say = shell("echo $WORD").env(1);
    peer.define(1, ["WORD=old"]);
    other.define(1, ["WORD=other"]);
    let gate = sandbox.close_gate("gate");
    // Both wait behind the first command while their environment is changed.
    let first = peer.submit(&shell(&gate.script));
    let before = peer.submit(&say);
    peer.define(1, ["WORD=new"]);
    let after = peer.submit(&say);
    gate.open();
    peer.finish(first).text();
    assert_eq!(peer.finish(before).text(), "old\n");
    assert_eq!(peer.finish(after).text(), "new\n");
    assert_eq!(other.run(&say).text(), "other\n");
}

/// The arguments of a command are exact: empty ones, blanks, newlines, bytes that are not UTF-8.
#[test]
fn the_arguments_are_exact() {
    let sandbox = Sandbox::started();
    let arguments: [&[u8]; 8] = [
        b"/bin/sh",
        b"-c",
        b"cat /proc/$$/cmdline; :",
        b"name",
        b"",
        b" a  b\n",
        b"\xff\xfe\x01",
        b"",
    ];
    let finished = sandbox.client(1).run(&command(&arguments));
    assert_eq!(finished.stdout, [&arguments.join(&0)[..], b"\0"].concat());
}

/// A command runs in its folder, whatever bytes the name has.
#[test]
fn the_folder_is_exact() {
    let sandbox = Sandbox::started();
    let folder = sandbox.path(OsStr::from_bytes(b"folder \xff\n with bytes"));
    fs::create_dir(&folder).unwrap();
    let finished = sandbox
        .client(1)
        .run(&command(&["readlink", "-n", "/proc/self/cwd"]).cwd(&folder));
    assert_eq!(OsStr::from_bytes(&finished.stdout), folder.canonicalize().unwrap());
}

/// A command has its three streams open, and no descriptor of the engine.
#[test]
fn a_command_has_three_descriptors() {
    let sandbox = Sandbox::started();
    let mut others = [sandbox.client(1), sandbox.client(1)];
    let gate = sandbox.close_gate("gate");
    let held: Vec<u32> = others
        .iter_mut()
        .map(|other| other.submit(&shell(&gate.script).input(b"in use")))
        .collect();
    let mut peer = sandbox.client(1);
    let show = command(&["ls", "/proc/self/fd"]);
    for order in [
        show.clone(),
        show.clone().input(b"x"),
        show.stdio([Stdio::Null, Stdio::Pipe, Stdio::Null]),
    ] {
        // The fourth one is the folder that `ls` reads.
        assert_eq!(peer.run(&order).text(), "0\n1\n2\n3\n");
    }
    gate.open();
    for (other, id) in others.iter_mut().zip(held) {
        other.finish(id).text();
    }
}

// ---- resources

/// Times and peak memory in the outcome are those of the command.
#[test]
fn times_and_memory_are_reported() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    // One write for both, so that the second arrives before the first has started.
    let mut bytes = bytes_of(&peer.number(&shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")));
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=52428800", "count=2"];
    bytes.extend(bytes_of(&peer.number(&command(&dd))));
    peer.write(&bytes);
    let (busy, behind) = (0, 1);
    let busy = peer.finish(busy).outcome;
    assert!(busy.user > 0 && busy.wall > 0, "{busy:?}");
    assert!(busy.peak > 0, "{busy:?}");
    let behind = peer.finish(behind).outcome;
    assert!(behind.peak >= 50 << 10, "50 MiB were used: {behind:?}");
    assert!(behind.system > 0, "{behind:?}");
    assert!(
        behind.queued >= busy.wall,
        "it waited for the other: {behind:?} {busy:?}"
    );
}

/// The resources of a command's children are included if it has waited for them.
#[test]
fn children_are_counted() {
    let sandbox = Sandbox::started();
    let script =
        "dd if=/dev/zero of=/dev/null bs=52428800 count=2; sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'";
    let outcome = sandbox.client(1).run(&shell(script)).outcome;
    assert!(outcome.peak >= 50 << 10, "{outcome:?}");
    assert!(outcome.user > 0, "{outcome:?}");
}

// ---- numbers

/// A client may use any number for a command, and use it again after the outcome.
#[test]
fn a_number_is_free_after_its_outcome() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    for round in 0..20 {
        for id in [0, 1, u32::MAX] {
            let execute = Execute {
                id,
                ..command(&["/bin/echo", &format!("{round}-{id}")]).0
            };
            peer.expect(id);
            peer.send(&Request::Execute(Box::new(execute)));
            assert_eq!(peer.finish(id).text(), format!("{round}-{id}\n"));
        }
    }
}

/// On another connection, even of the same build, the same number is another command.
#[test]
fn numbers_belong_to_their_connection() {
    let sandbox = Sandbox::started();
    let session = new_session();
    let mut peers: Vec<Peer> = (0..4).map(|_| sandbox.client_of(session, 4)).collect();
    let gate = sandbox.close_gate("gate");
    for (i, peer) in peers.iter_mut().enumerate() {
        assert_eq!(peer.submit(&shell(&format!("{}; echo {i}", gate.script))), 0);
    }
    gate.open();
    for (i, peer) in peers.iter_mut().enumerate() {
        assert_eq!(peer.finish(0).text(), format!("{i}\n"));
    }
}

/// Outcomes come in the order in which commands end, not in the order in which they were sent.
#[test]
fn outcomes_come_as_commands_end() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let gate = sandbox.close_gate("gate");
    let slow = peer.submit(&shell(&gate.script));
    let fast: Vec<u32> = (0..5).map(|_| peer.submit(&shell(":"))).collect();
    peer.finish(fast[4]);
    gate.open();
    peer.finish(slow);
    assert_eq!(peer.order, [&fast[..], &[slow]].concat());
}

/// Five thousand commands that are sent at once all return exactly once, each with its own output, and leave nothing
/// behind.
#[test]
fn thousands_of_commands_come_back_once_each() {
    const MANY: u32 = 5000;
    let sandbox = Sandbox::without_parking();
    let mut peer = sandbox.client(4);
    let engine = peer.pid;
    let before = process::descriptors(engine);
    for number in 0..MANY {
        peer.submit(&command(&["/bin/echo", &number.to_string()]));
    }
    for number in 0..MANY {
        assert_eq!(peer.finish(number).text(), format!("{number}\n"));
    }
    // `Peer` accepts an outcome only for a command that has not finished.
    assert_eq!(peer.order.len(), MANY as usize);
    let report = peer.report();
    assert_eq!(report["totals"]["succeeded"], MANY);
    assert_eq!(
        (&report["slots"]["running"], &report["slots"]["waiting"]),
        (&0.into(), &0.into())
    );
    assert_eq!(process::descriptors(engine), before);
    assert!(process::children(engine).is_empty());
    assert!(!peer.has_news());
}

/// Commands whose outcome no client waits for leave no zombies.
#[test]
fn there_are_no_zombies() {
    let sandbox = Sandbox::without_parking();
    let mut peer = sandbox.client(4);
    for _ in 0..20 {
        // The orphan ends after its parent. The parent's end is the command's.
        peer.submit(&shell("(true; true) >/dev/null 2>&1 & exit 3").stdio([Stdio::Null; 3]));
        peer.submit(&shell("kill -9 $$"));
        peer.submit(&command(&["/no/such/command"]));
    }
    let last = peer.submit(&shell(":"));
    peer.finish(last);
    for id in 0..last {
        peer.finish(id);
    }
    let (engine, guardian) = (peer.pid, process::parent(peer.pid));
    wait_until("all children were waited for", || {
        process::children(engine).is_empty() && process::children(guardian) == [engine]
    });
}

/// A client may ask for any number of jobs, and set unknown bits in its wishes.
#[test]
fn wishes_may_be_large() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.stranger();
    let mut greeting = hello(new_session(), u32::MAX);
    greeting.wishes = u32::MAX;
    peer.welcome(&greeting);
    peer.define(0, sandbox.environment());
    assert_eq!(peer.run(&shell("echo granted")).text(), "granted\n");
}
