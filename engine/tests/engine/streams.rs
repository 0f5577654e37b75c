//! The streams of commands: input, captured output, and clients that do not read it.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::fd::AsFd;
use std::process::Command;

use crate::support::order::{command, shell};
use crate::support::peer::{bytes_of, Peer};
use crate::support::process;
use crate::support::sandbox::{new_session, wait_until, Sandbox};
use wafengine::wire::{Reply, Request, Stdio, INPUT_CAP};

const MIB: u64 = 1024;
/// More than the engine may need for clients that do not read, and less than the output that they do not read.
const BOUND: u64 = 64 * MIB;

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Incompressible bytes.
fn noise(n: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(n + 8);
    while bytes.len() < n {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(n);
    bytes
}

/// The output of a program without the engine.
fn direct_output(program: &str, args: &[&str]) -> Vec<u8> {
    Command::new(program).args(args).output().unwrap().stdout
}

// ---- input

/// Without input a command reads the null device.
#[test]
fn no_input_is_the_null_device() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let streams = [Stdio::Null, Stdio::Pipe, Stdio::Pipe];
    let finished = peer.run(&command(&["readlink", "/proc/self/fd/0"]).stdio(streams));
    assert_eq!(finished.text(), "/dev/null\n");
    assert_eq!(peer.run(&command(&["cat"]).stdio(streams)).text(), "");
}

/// A pipe without input ends at once.
#[test]
fn empty_input_ends_at_once() {
    let sandbox = Sandbox::started();
    assert_eq!(
        sandbox.client(1).run(&shell("cat; echo end").input(b"")).text(),
        "end\n"
    );
}

/// A mebibyte of any bytes passes through a command unchanged.
#[test]
fn input_arrives_unchanged() {
    let sandbox = Sandbox::started();
    let bytes = noise(INPUT_CAP);
    let finished = sandbox.client(1).run(&command(&["cat"]).input(&bytes));
    finished.ended(0);
    assert_eq!(finished.stdout.len(), bytes.len());
    assert!(finished.stdout == bytes);
}

/// A command that does not read all its input, or closes it, ends normally.
#[test]
fn input_need_not_be_read() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let bytes = noise(INPUT_CAP);
    for (script, text) in [
        ("echo ignored", "ignored\n"),
        ("head -c 3 >/dev/null; echo some", "some\n"),
        ("exec 0<&-; echo closed; sleep 0.1; echo later", "closed\nlater\n"),
    ] {
        assert_eq!(peer.run(&shell(script).input(&bytes)).text(), text);
    }
    peer.run(&shell("kill -9 $$").input(&bytes)).ended(-libc::SIGKILL);
}

/// A command that reads and writes much at the same time does not block.
#[test]
fn input_and_output_flow_at_the_same_time() {
    let sandbox = Sandbox::started();
    let bytes = noise(INPUT_CAP);
    // All output comes before the end of the input is read.
    let finished = sandbox
        .client(1)
        .run(&shell("head -c 1; head -c 5000000 /dev/zero; cat").input(&bytes));
    finished.ended(0);
    assert_eq!(finished.stdout[..1], bytes[..1]);
    assert!(finished.stdout[1..5_000_001].iter().all(|b| *b == 0));
    // `head` reads more than it prints.
    assert!(bytes.ends_with(&finished.stdout[5_000_001..]));
}

/// A command gets blocking pipes.
#[test]
fn the_pipes_of_a_command_wait() {
    let sandbox = Sandbox::started();
    let script = "for fd in 0 1 2; do grep flags /proc/self/fdinfo/$fd; done";
    let text = sandbox.client(1).run(&shell(script).input(b"x")).text();
    let flags = text.lines().map(|line| line.strip_prefix("flags:\t").unwrap());
    let flags: Vec<i32> = flags.map(|f| i32::from_str_radix(f, 8).unwrap()).collect();
    assert_eq!(flags.len(), 3);
    assert!(flags.iter().all(|f| f & libc::O_NONBLOCK == 0), "{text}");
}

// ---- output

/// All combinations of targets for output and errors work.
#[test]
fn output_goes_where_it_should() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    use Stdio::{Descriptor, Null, Pipe, SameAsStdout};
    for (stdout, stderr, captured, errors, written) in [
        (Null, Null, "", "", ""),
        (Pipe, Null, "out\n", "", ""),
        (Null, Pipe, "", "err\n", ""),
        (Pipe, Pipe, "out\n", "err\n", ""),
        (Pipe, SameAsStdout, "out\nerr\n", "", ""),
        (Null, SameAsStdout, "", "", ""),
        (Descriptor, Null, "", "", "out\n"),
        (Null, Descriptor, "", "", "err\n"),
        (Descriptor, Pipe, "", "err\n", "out\n"),
        (Pipe, Descriptor, "out\n", "", "err\n"),
        (Descriptor, SameAsStdout, "", "", "out\nerr\n"),
    ] {
        let what = format!("{stdout:?} {stderr:?}");
        let path = sandbox.path("written");
        let file = File::create(&path).unwrap();
        let order = shell("echo out; echo err >&2").stdio([Null, stdout, stderr]);
        let id = match order.0.stdio.contains(&Descriptor) {
            true => peer.submit_with(&order, &[file.as_fd()]),
            false => peer.submit(&order),
        };
        let finished = peer.finish(id);
        assert_eq!(finished.text(), captured, "{what}");
        assert_eq!(finished.stderr, errors.as_bytes(), "{what}");
        assert_eq!(fs::read_to_string(&path).unwrap(), written, "{what}");
    }
}

/// If output and errors share a stream, they come in the order in which they were written.
#[test]
fn one_stream_keeps_the_order() {
    let sandbox = Sandbox::started();
    let script = "i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let order = shell(script).stdio([Stdio::Null, Stdio::Pipe, Stdio::SameAsStdout]);
    let finished = sandbox.client(1).run(&order);
    let expected: String = (0..2000).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(finished.text(), expected);
    assert_eq!(finished.stderr, b"");
}

/// Fifty megabytes on each of both streams, at the same time, arrive complete and unchanged.
#[test]
fn large_output_is_complete() {
    let sandbox = Sandbox::started();
    let last = ["6500000", "16500000"];
    let script = format!("seq 1 {} & seq 10000001 {} >&2; wait", last[0], last[1]);
    let finished = sandbox.client(1).run(&shell(&script));
    finished.ended(0);
    for (stream, first, last) in [
        (&finished.stdout, "1", last[0]),
        (&finished.stderr, "10000001", last[1]),
    ] {
        let expected = direct_output("seq", &[first, last]);
        assert!(expected.len() > 50_000_000);
        assert_eq!(stream.len(), expected.len());
        assert_eq!(digest(stream), digest(&expected));
    }
}

/// The outputs of commands that run at the same time are not mixed.
#[test]
fn outputs_do_not_mix() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(4);
    let bounds: Vec<[String; 2]> = (1..9)
        .map(|i| [(i * 1_000_000).to_string(), (i * 1_000_000 + 200_000).to_string()])
        .collect();
    let ids: Vec<u32> = bounds
        .iter()
        .map(|[first, last]| peer.submit(&command(&["seq", first, last])))
        .collect();
    for (id, [first, last]) in ids.into_iter().zip(&bounds) {
        assert!(
            peer.finish(id).stdout == direct_output("seq", &[first, last]),
            "from {first}"
        );
    }
}

/// The outcome comes only when no process holds the pipe: the output of a background child is included.
#[test]
fn output_of_a_background_child_is_awaited() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let gate = sandbox.close_gate("gate");
    let script = format!(
        "({}; echo late) & echo $$ > {}; echo early",
        gate.script,
        sandbox.name("pid")
    );
    let id = peer.submit(&shell(&script));
    let pid = process::number_in(&sandbox.path("pid"));
    wait_until("the command itself has ended", || !process::lives(pid));
    for _ in 0..20 {
        peer.run(&shell(":")).text();
        assert!(!peer.has_finished(id), "the pipe is still held");
    }
    gate.open();
    assert_eq!(peer.finish(id).text(), "early\nlate\n");
}

/// A background child without a pipe is not waited for, and goes on: it may be a server.
#[test]
fn a_background_child_without_a_pipe_is_left_alone() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let script = format!(
        "sleep 1000 >/dev/null 2>&1 & echo $! > {}; echo ready",
        sandbox.name("pid")
    );
    assert_eq!(peer.run(&shell(&script)).text(), "ready\n");
    let pid = process::number_in(&sandbox.path("pid"));
    peer.run(&shell(":")).text();
    assert!(process::lives(pid));
    process::kill(pid, libc::SIGKILL);
}

/// A command that closes its streams early is waited for all the same.
#[test]
fn a_command_without_streams_is_awaited() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let gate = sandbox.close_gate("gate");
    let id = peer.submit(&shell(&format!("exec >&- 2>&-; {} 2>/dev/null; exit 5", gate.script)));
    for _ in 0..10 {
        peer.run(&shell(":")).text();
        assert!(!peer.has_finished(id), "it has not ended");
    }
    gate.open();
    peer.finish(id).ended(5);
}

// ---- peers that do not read

/// Waits until a number stays the same while the engine serves another client, with its memory below the limit.
fn wait_until_steady(other: &mut Peer, engine: i32, number: impl FnMut() -> u64) {
    wait_until_steady_within(BOUND, other, engine, number);
}

fn wait_until_steady_within(bound: u64, other: &mut Peer, engine: i32, mut number: impl FnMut() -> u64) {
    let (mut last, mut same) = (number(), 0);
    wait_until("it stands still", || {
        other.run(&shell("echo served")).text();
        assert!(
            process::resident(engine) < bound,
            "the engine keeps {} KiB",
            process::resident(engine)
        );
        let now = number();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 20
    });
}

/// How many bytes a process has written.
fn written(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("wchar: "))
        .map_or(0, |n| n.parse().unwrap())
}

/// If a client does not read, its command stops, and neither the engine's memory nor other clients suffer. Later the
/// client gets everything.
#[test]
fn a_peer_that_does_not_read_stops_its_command() {
    let sandbox = Sandbox::started();
    let mut other = sandbox.client(1);
    let mut peer = sandbox.client(1);
    let engine = peer.pid;
    let id = peer.submit(&shell(&format!(
        "echo $$ > {}; exec seq 1 12000000",
        sandbox.name("pid")
    )));
    let pid = process::number_in(&sandbox.path("pid"));
    wait_until("it prints", || written(pid) > 1_000_000);
    wait_until_steady(&mut other, engine, || written(pid));
    assert!(
        process::lives(pid),
        "it could print all, so that the test proves nothing"
    );
    let finished = peer.finish(id);
    finished.ended(0);
    let expected = direct_output("seq", &["1", "12000000"]);
    assert!(expected.len() > 90_000_000);
    assert_eq!(finished.stdout.len(), expected.len());
    assert_eq!(digest(&finished.stdout), digest(&expected));
}

/// If a client does not read the outcomes of many short commands, its waiting commands do not start. Later it gets
/// everything.
#[test]
fn a_peer_that_does_not_read_stops_its_queue() {
    const MANY: u32 = 500;
    let sandbox = Sandbox::started();
    let mut other = sandbox.client(4);
    let mut peer = sandbox.client(4);
    let engine = peer.pid;
    let bytes = noise(200_000);
    fs::write(sandbox.path("bytes"), &bytes).unwrap();
    let order = command(&["cat", &sandbox.name("bytes")]);
    // One write for all: the engine does not read from a client that does not read.
    let requests: Vec<u8> = (0..MANY).flat_map(|_| bytes_of(&peer.number(&order))).collect();
    peer.write(&requests);
    let mut watcher = sandbox.greeter();
    // Its finished commands, and those that the other client runs meanwhile.
    let mut rounds = 0;
    wait_until_steady(&mut other, engine, || {
        rounds += 1;
        watcher.report()["totals"]["succeeded"].as_u64().unwrap() + 1 - rounds
    });
    for id in 0..MANY {
        let finished = peer.finish(id);
        finished.ended(0);
        assert!(finished.stdout == bytes, "command {id}");
    }
}

/// A client that does not read does not delay another connection of its build.
#[test]
fn a_peer_that_does_not_read_stops_no_other_connection() {
    let sandbox = Sandbox::started();
    let session = new_session();
    let mut deaf = sandbox.client_of(session, 3);
    let mut other = sandbox.client_of(session, 3);
    let engine = deaf.pid;
    let id = deaf.submit(&shell(&format!(
        "echo $$ > {}; exec seq 1 3000000",
        sandbox.name("pid")
    )));
    let pid = process::number_in(&sandbox.path("pid"));
    wait_until("it prints", || written(pid) > 1_000_000);
    wait_until_steady(&mut other, engine, || written(pid));
    let more = deaf.submit(&shell("echo after"));
    assert_eq!(other.run(&shell("echo meanwhile")).text(), "meanwhile\n");
    assert_eq!(deaf.finish(id).stdout.len(), 22_888_896);
    assert_eq!(deaf.finish(more).text(), "after\n");
}

/// A client that asks and does not read the answers is not read from any more. When it reads, it gets further answers.
#[test]
fn a_peer_that_only_asks_is_not_read_from() {
    const MANY: usize = 100_000;
    let sandbox = Sandbox::started();
    let mut other = sandbox.client(1);
    let mut peer = sandbox.client(1);
    let engine = peer.pid;
    let flood = bytes_of(&Request::Status).repeat(MANY);
    peer.stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    // Until the engine takes no more requests: none for many rounds.
    let mut refused = 0;
    while sent < flood.len() && refused < 50 {
        match rustix::net::send(&peer.stream, &flood[sent..], rustix::net::SendFlags::NOSIGNAL) {
            Ok(n) => (sent, refused) = (sent + n, 0),
            Err(rustix::io::Errno::AGAIN) => {
                other.report();
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(
            process::resident(engine) < BOUND,
            "the engine keeps {} KiB",
            process::resident(engine)
        );
    }
    wait_until_steady(&mut other, engine, || process::resident(engine) / MIB);
    peer.stream.set_nonblocking(false).unwrap();
    // Far more than the engine has answered without being read.
    for _ in 0..8000 {
        assert!(matches!(peer.receive(), Some(Reply::Report { .. })));
    }
}

/// The memory for waiting commands is limited, too: further requests are read when commands start.
#[test]
fn a_peer_that_sends_too_much_waits() {
    const MANY: usize = 100;
    let sandbox = Sandbox::started();
    let mut other = sandbox.client(1);
    let mut peer = sandbox.client(1);
    let engine = peer.pid;
    let gate = sandbox.close_gate("gate");
    peer.submit(&shell(&gate.script));
    let bytes = noise(INPUT_CAP);
    let requests: Vec<Request> = (0..MANY)
        .map(|_| peer.number(&command(&["md5sum"]).input(&bytes)))
        .collect();
    let mut writer = Peer::of(peer.stream.try_clone().unwrap());
    let sender = std::thread::spawn(move || requests.iter().for_each(|request| writer.send(request)));
    let mut watcher = sandbox.greeter();
    // As many as the engine keeps, about 64 MiB, and a part of the following ones.
    wait_until_steady_within(100 * MIB, &mut other, engine, || {
        watcher.report()["slots"]["waiting"].as_u64().unwrap()
    });
    let waiting = watcher.report()["slots"]["waiting"].as_u64().unwrap();
    assert!((40..80).contains(&waiting), "{waiting} wait");
    gate.open();
    let sum = |peer: &mut Peer, id| peer.finish(id).text();
    let first = sum(&mut peer, 1);
    for id in 2..=MANY as u32 {
        assert_eq!(sum(&mut peer, id), first);
    }
    sender.join().unwrap();
}

/// Commands that are cancelled while they wait free their memory.
#[test]
fn cancelled_commands_free_their_memory() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let gate = sandbox.close_gate("gate");
    let first = peer.submit(&shell(&gate.script));
    let order = command(&["md5sum"]).input(&noise(INPUT_CAP));
    for _ in 0..80 {
        let id = peer.submit(&order);
        peer.send(&Request::Cancel { id });
        peer.finish(id);
    }
    gate.open();
    peer.finish(first).text();
    peer.run(&order).text();
}

/// The captured output of a client that is gone is freed.
#[test]
fn memory_of_large_output_is_given_back() {
    let sandbox = Sandbox::started();
    let mut other = sandbox.client(1);
    for _ in 0..10 {
        let mut peer = sandbox.client(1);
        peer.submit(&shell(&format!(
            "echo $$ > {}; exec cat /dev/zero",
            sandbox.name("pid")
        )));
        let pid = process::number_in(&sandbox.path("pid"));
        wait_until("it prints", || written(pid) > 4_000_000);
        drop(peer);
        wait_until("it is gone", || !process::lives(pid));
        fs::remove_file(sandbox.path("pid")).unwrap();
    }
    other.run(&shell(":")).text();
    let kept = process::resident(other.pid);
    assert!(kept < 32 * MIB, "the engine keeps {kept} KiB");
}

/// A pipe that is passed to a command is not read or closed by the engine.
#[test]
fn a_descriptor_for_input_is_read_by_the_command() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let order = shell("read line; echo got $line").stdio([Stdio::Descriptor, Stdio::Pipe, Stdio::Pipe]);
    let id = peer.submit_with(&order, &[reader.as_fd()]);
    rustix::io::write(&writer, b"first\nsecond\n").unwrap();
    assert_eq!(peer.finish(id).text(), "got first\n");
    // The shell reads byte by byte, so the rest is left for the next command.
    drop(writer);
    let mut rest = String::new();
    File::from(reader).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
}
