//! Invalid bytes after a valid greeting: whatever comes, only its own connection is affected.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use crate::support::order::{command, shell, Order};
use crate::support::peer::{bytes_of, hello, Peer};
use crate::support::process;
use crate::support::sandbox::{new_session, wait_until, Sandbox};
use serde_json::Value;
use wafengine::bytes::frame::Inbox;
use wafengine::wire::{Execute, Reply, Request, Stdio, FRAME_CAP, INPUT_CAP};

fn vectors(group: &str) -> Vec<(String, Vec<u8>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/protocol.json");
    let all: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mine = all[group]
        .as_array()
        .unwrap()
        .iter()
        .filter(|v| v["sender"] == "client");
    let unhex = |text: &str| {
        let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    };
    let found: Vec<_> = mine
        .map(|v| (v["name"].to_string(), unhex(v["hex"].as_str().unwrap())))
        .collect();
    assert!(found.len() > 5, "too few vectors");
    found
}

/// The engine serves an older client and a new one.
#[track_caller]
fn assert_serves_both(sandbox: &Sandbox, before: &mut Peer) {
    assert_eq!(before.run(&shell("echo before")).text(), "before\n");
    assert_eq!(sandbox.client(1).run(&shell("echo now")).text(), "now\n");
}

/// Waits until the engine has no more descriptors than before.
#[track_caller]
fn wait_for_descriptors(engine: i32, before: usize) {
    wait_until("the engine has closed what it was sent", || {
        process::descriptors(engine) <= before
    });
}

/// A broken frame ends its own connection without an answer, and no other connection.
#[test]
fn a_broken_frame_ends_its_connection_only() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(2);
    let waits = neighbor.submit(&shell("cat").input(b"untouched"));
    let broken = vectors("broken");
    for (name, bytes) in &broken {
        let mut peer = sandbox.client(1);
        peer.write(bytes);
        if let Some(reply) = peer.receive() {
            panic!("{name} was answered: {reply:?}");
        }
    }
    assert_eq!(neighbor.finish(waits).text(), "untouched");
    assert_serves_both(&sandbox, &mut neighbor);
    assert_eq!(sandbox.status()["totals"]["malformed"], broken.len());
}

/// Frames that only an engine may send end the connection of a client.
#[test]
fn a_client_does_not_speak_as_an_engine() {
    let sandbox = Sandbox::started();
    for kind in [0x81, 0x84, 0x86, 0x00, 0x08, 0xff] {
        let mut peer = sandbox.client(1);
        peer.write(&[1, 0, 0, 0, kind]);
        peer.is_closed();
    }
}

/// A length above the limit ends the connection before any more of the frame has come.
#[test]
fn a_frame_above_the_cap_ends_with_its_length() {
    let sandbox = Sandbox::started();
    for length in [FRAME_CAP as u32 + 1, u32::MAX] {
        let mut peer = sandbox.client(1);
        peer.write(&length.to_le_bytes());
        peer.is_closed();
    }
}

/// A frame of exactly the limit is accepted, and its memory is freed when its content is replaced.
#[test]
fn a_frame_of_the_cap_is_taken() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    // kind, number of the environment, count, length, and the zero at the end
    let filler = FRAME_CAP - 1 - 4 - 4 - 4 - 1;
    let mut entry = b"LONG=".to_vec();
    entry.resize(filler, b'x');
    let request = Request::Environment {
        env: 9,
        entries: [entry].iter().collect(),
    };
    let bytes = bytes_of(&request);
    assert_eq!(bytes.len(), FRAME_CAP + 4);
    peer.write(&bytes);
    peer.define(9, ["LONG=short"]);
    assert_eq!(peer.run(&shell("echo $LONG").env(9)).text(), "short\n");
    let engine = peer.pid;
    wait_until("the memory is given back", || process::resident(engine) < 8 << 10);
}

/// The longest input is accepted. One byte more ends the connection.
#[test]
fn the_cap_of_input_is_exact() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    let text = peer.run(&shell("wc -c").input(&vec![b'i'; INPUT_CAP])).text();
    assert_eq!(text.trim(), INPUT_CAP.to_string());
    peer.submit(&shell("wc -c").input(&vec![b'i'; INPUT_CAP + 1]));
    peer.is_closed();
}

/// A connection that ends inside a frame, after any of its bytes, leaves nothing behind.
#[test]
fn truncated_frames_leave_nothing_behind() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
    let engine = neighbor.pid;
    let before = process::descriptors(engine);
    for (_, bytes) in vectors("good") {
        // Complete frames are for other tests: one of them stops the engine.
        for cut in (1..bytes.len()).step_by(3).chain([bytes.len() - 1]) {
            sandbox.client(1).write(&bytes[..cut]);
        }
    }
    assert_serves_both(&sandbox, &mut neighbor);
    wait_for_descriptors(engine, before);
    assert_eq!(neighbor.report()["totals"]["malformed"], 0, "ending is not malformed");
}

/// Bytes that come one by one form the same requests.
#[test]
fn a_slow_writer_is_understood() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.stranger();
    for byte in bytes_of(&Request::Hello(hello(new_session(), 1))) {
        peer.write(&[byte]);
    }
    assert!(matches!(peer.receive(), Some(Reply::Welcome { .. })));
    let mut bytes = bytes_of(&Request::Environment {
        env: 0,
        entries: sandbox.environment().iter().collect(),
    });
    bytes.extend(bytes_of(&peer.number(&shell("cat; echo $0").input(b"slowly\n"))));
    for byte in bytes {
        peer.write(&[byte]);
    }
    assert_eq!(peer.finish(0).text(), "slowly\n/bin/sh\n");
}

/// Many requests in one write are all handled, even the last one, whose rest comes later.
#[test]
fn many_frames_in_one_write_are_all_taken() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(4);
    let mut bytes = Vec::new();
    for number in 0..100 {
        bytes.extend(bytes_of(&peer.number(&command(&["/bin/echo", &number.to_string()]))));
    }
    let half = bytes.len() - 7;
    peer.write(&bytes[..half]);
    assert_eq!(peer.finish(0).text(), "0\n");
    peer.write(&bytes[half..]);
    for number in 1..100 {
        assert_eq!(peer.finish(number).text(), format!("{number}\n"));
    }
}

/// Three hundred connections that send garbage at the same time are closed. Other clients are not affected.
#[test]
fn a_crowd_that_sends_garbage_is_sent_away() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
    let engine = neighbor.pid;
    let before = process::descriptors(engine);
    let mut random = Random(1);
    let mut crowd: Vec<Peer> = (0..300)
        .map(|i| {
            if i % 2 == 0 {
                sandbox.client(1)
            } else {
                sandbox.stranger()
            }
        })
        .collect();
    for peer in &mut crowd {
        // First a length far above the limit, so that the engine waits for no more bytes.
        let mut garbage = vec![0xff; 4];
        garbage.extend((0..random.below(5000)).map(|_| random.byte()));
        let _ = peer.try_write(&garbage);
    }
    for peer in &mut crowd {
        peer.is_closed();
    }
    assert_serves_both(&sandbox, &mut neighbor);
    wait_for_descriptors(engine, before);
}

/// Reproducible random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 32) as u8
    }

    /// Changes a frame a little.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.byte(),
                2 => bytes.insert(at, self.byte()),
                3 if bytes.len() > 1 => {
                    bytes.remove(at);
                }
                _ => {
                    let copied = bytes[at..].to_vec();
                    bytes.extend(copied);
                }
            }
        }
    }
}

/// What the engine would do if it accepted the bytes.
fn requests(bytes: &[u8]) -> Vec<Request> {
    let mut inbox = Inbox::new(FRAME_CAP);
    inbox.push(bytes);
    let mut found = Vec::new();
    while let Ok(Some(frame)) = inbox.take() {
        found.extend(Request::decode(frame));
    }
    found
}

/// Two thousand seeded mutations of valid frames, before and after the greeting, do not harm the engine.
#[test]
fn mutated_frames_do_no_harm() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
    let engine = neighbor.pid;
    // One of the mutations will open the TCP port, which stays open.
    neighbor.send(&Request::Listen);
    assert!(matches!(neighbor.receive(), Some(Reply::Listening { .. })));
    let before = process::descriptors(engine);
    let words = ["/bin/true", "one", "two"];
    let environment = Request::Environment {
        env: 0,
        entries: sandbox.environment().iter().collect(),
    };
    let plain = |order: Order| bytes_of(&Request::Execute(Box::new(order.0)));
    let seeds = [
        bytes_of(&environment),
        plain(command(&words)),
        plain(command(&words).input(b"some input")),
        plain(command(&words).env(63).new_session().stdio([Stdio::Null; 3])),
        plain(command(&words).stdio([Stdio::Descriptor, Stdio::Pipe, Stdio::SameAsStdout])),
        bytes_of(&Request::Cancel { id: 0 }),
        bytes_of(&Request::Status),
        bytes_of(&Request::Listen),
    ];
    let mut random = Random(20_240_229);
    for round in 0..2000 {
        let greeting = bytes_of(&Request::Hello(hello(new_session(), 2)));
        let mut bytes = match round % 4 {
            0 => greeting.clone(),
            _ => seeds[random.below(seeds.len())].clone(),
        };
        random.mutate(&mut bytes);
        // A mutation that asks to stop would really stop the engine.
        if requests(&bytes).iter().any(|r| matches!(r, Request::Stop { .. })) {
            continue;
        }
        let mut peer = sandbox.stranger();
        if round % 4 != 0 {
            peer.write(&greeting);
            assert!(matches!(peer.receive(), Some(Reply::Welcome { .. })), "round {round}");
        }
        // The engine may close the connection before everything is written.
        let _ = peer.try_write(&bytes);
    }
    assert_eq!(neighbor.report()["pid"], engine);
    assert_serves_both(&sandbox, &mut neighbor);
    wait_for_descriptors(engine, before);
    wait_until("the last of their commands is gone", || {
        neighbor.report()["slots"]["running"] == 0
    });
}

// ---- descriptors

fn command_with_three_descriptors() -> Order {
    shell("cat; echo told >&2").stdio([Stdio::Descriptor; 3])
}

/// A command without the descriptors that it needs ends the connection, and is not run.
#[test]
fn a_command_without_its_descriptors_ends_the_connection() {
    let sandbox = Sandbox::started();
    let null = File::open("/dev/null").unwrap();
    for sent in 0..3 {
        let mut peer = sandbox.client(1);
        let bytes = bytes_of(&peer.number(&command_with_three_descriptors()));
        match sent {
            0 => peer.write(&bytes),
            n => peer.write_with(&bytes, &vec![null.as_fd(); n]).unwrap(),
        }
        peer.is_closed();
    }
}

/// More descriptors than a frame has streams end the connection, and all of them are closed.
#[test]
fn too_many_descriptors_end_the_connection() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
    let engine = neighbor.pid;
    let before = process::descriptors(engine);
    let null = File::open("/dev/null").unwrap();
    for sent in [4, 5, 16, 30] {
        let mut peer = sandbox.client(1);
        let bytes = bytes_of(&peer.number(&command_with_three_descriptors()));
        let _ = peer.write_with(&bytes, &vec![null.as_fd(); sent]);
        peer.is_closed();
    }
    wait_for_descriptors(engine, before);
    assert_serves_both(&sandbox, &mut neighbor);
}

/// Descriptors that come before an incomplete frame are limited, and are closed with the connection.
#[test]
fn early_descriptors_are_limited() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
    let engine = neighbor.pid;
    let before = process::descriptors(engine);
    let null = File::open("/dev/null").unwrap();
    let three: Vec<BorrowedFd> = vec![null.as_fd(); 3];
    let mut peer = sandbox.client(1);
    let bytes = bytes_of(&peer.number(&command_with_three_descriptors()));
    // The whole frame except its last byte.
    let mut sent = 0;
    for byte in &bytes[..bytes.len() - 1] {
        if peer.write_with(&[*byte], &three).is_err() {
            break;
        }
        sent += 3;
        assert!(
            process::descriptors(engine) < before + 64,
            "{sent} descriptors were sent and kept"
        );
    }
    peer.is_closed();
    wait_for_descriptors(engine, before);
    assert_serves_both(&sandbox, &mut neighbor);
}

/// Descriptors that come with a request that does not use them are closed.
#[test]
fn unused_descriptors_are_not_kept() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
    let engine = neighbor.pid;
    let before = process::descriptors(engine);
    let null = File::open("/dev/null").unwrap();
    let mut peer = sandbox.client(1);
    let _ = peer.write_with(&bytes_of(&Request::Status), &[null.as_fd(); 3]);
    // The engine may answer or close the connection. A greeted connection needs two descriptors: the socket and its
    // process's status.
    let _ = peer.receive();
    wait_until("they are closed", || process::descriptors(engine) <= before + 2);
    assert_serves_both(&sandbox, &mut neighbor);
}

/// A client that sends its own socket over itself cannot keep the connection open.
#[test]
fn a_connection_sent_over_itself_ends_all_the_same() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
    let engine = neighbor.pid;
    let before = process::descriptors(engine);
    let mut peer = sandbox.client(1);
    let own = peer.stream.try_clone().unwrap();
    let _ = peer.write_with(&bytes_of(&Request::Status), &[own.as_fd()]);
    drop((peer, own));
    wait_for_descriptors(engine, before);
    assert_serves_both(&sandbox, &mut neighbor);
}

/// Descriptors become the streams of the command, in the order in which they were sent, even if the command waits.
#[test]
fn descriptors_become_the_streams_of_their_command() {
    let sandbox = Sandbox::without_parking();
    let mut peer = sandbox.client(1);
    let engine = peer.pid;
    peer.run(&shell(":")).text();
    let before = process::descriptors(engine);
    for round in 0..4 {
        let name = |what: &str| sandbox.path(format!("{what}{round}"));
        fs::write(name("in"), format!("input {round}\n")).unwrap();
        let input = File::open(name("in")).unwrap();
        let output = File::create(name("out")).unwrap();
        let errors = File::create(name("err")).unwrap();
        peer.submit_with(
            &command_with_three_descriptors(),
            &[input.as_fd(), output.as_fd(), errors.as_fd()],
        );
    }
    for round in 0..4 {
        let finished = peer.finish(round + 1);
        assert_eq!((finished.text(), &finished.stderr[..]), (String::new(), &b""[..]));
        let text = |what: &str| fs::read_to_string(sandbox.path(format!("{what}{round}"))).unwrap();
        assert_eq!(text("out"), format!("input {round}\n"));
        assert_eq!(text("err"), "told\n");
    }
    wait_for_descriptors(engine, before);
}

/// The engine closes its copies of the descriptors when the command has started, so a pipe's reader sees the command's
/// end.
#[test]
fn the_engine_keeps_no_copy_of_a_commands_streams() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(2);
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let order = shell("echo through the pipe").stdio([Stdio::Null, Stdio::Descriptor, Stdio::Null]);
    let id = peer.submit_with(&order, &[writer.as_fd()]);
    drop(writer);
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    assert_eq!(text, "through the pipe\n");
    peer.finish(id).text();
}

/// The engine refuses requests that decode well but make no sense: unknown environment, used number, no jobs.
#[test]
fn an_order_must_make_sense() {
    let sandbox = Sandbox::started();
    let mut undefined = sandbox.client(1);
    undefined.submit(&shell(":").env(1));
    undefined.is_closed();

    let mut twice = sandbox.client(2);
    let execute = |id| {
        Request::Execute(Box::new(Execute {
            id,
            ..shell("sleep 1000").0
        }))
    };
    twice.send(&execute(7));
    twice.send(&execute(8));
    twice.send(&execute(7));
    twice.is_closed();
    wait_until("both are gone", || sandbox.status()["slots"]["running"] == 0);
}
