//! The greeting: which clients are served, which are refused, and why.

use std::os::unix::process::CommandExt;

use crate::support::order::{command, shell};
use crate::support::peer::{bytes_of, hello};
use crate::support::process;
use crate::support::sandbox::{self, mode, new_session, wait_until, Sandbox};
use wafengine::files::folder::ENGINE;
use wafengine::wire::{Hello, Reply, Request, Why, GREETING_CAP, VERSION};

fn versions(lowest: u16, highest: u16) -> Hello {
    Hello {
        lowest,
        highest,
        ..hello(new_session(), 1)
    }
}

/// A client whose range of versions includes the engine's is welcome. The engine sends its version and process number.
#[test]
fn a_common_version_is_picked() {
    let sandbox = Sandbox::started();
    for (lowest, highest) in [(1, 1), (0, 1), (1, 9), (0, u16::MAX)] {
        match sandbox.stranger().greet(&versions(lowest, highest)) {
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

/// A client without a common version is refused for that reason, and the connection ends.
#[test]
fn a_client_without_a_common_version_is_refused() {
    let sandbox = Sandbox::started();
    for (lowest, highest) in [(0, 0), (2, 2), (2, 9), (9, 1), (u16::MAX, u16::MAX)] {
        let reason = sandbox.stranger().refused(&versions(lowest, highest), Why::Version);
        assert!(reason.contains(&VERSION.to_string()), "{lowest}..{highest}: {reason}");
    }
    assert_eq!(sandbox.status()["totals"]["refused"]["version"], 5);
}

/// `welcome` has the slots that other clients have declared.
#[test]
fn a_client_learns_how_many_slots_there_are() {
    let sandbox = Sandbox::started();
    let _first = sandbox.client(7);
    match sandbox.stranger().greet(&hello(new_session(), 3)) {
        Reply::Welcome { slots, .. } => assert_eq!(slots, 7),
        other => panic!("{other:?}"),
    }
}

/// Bytes that are not the protocol end the connection, with at most a refusal, and harm no other client.
#[test]
fn garbage_is_no_greeting() {
    let sandbox = Sandbox::started();
    let mut neighbor = sandbox.client(1);
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
        let mut peer = sandbox.stranger();
        // The engine may close the connection while we still write.
        let _ = peer.try_write(garbage);
        match peer.receive() {
            None => {}
            Some(Reply::Refused { why: Why::Greeting, .. }) => peer.is_closed(),
            Some(other) => panic!("{garbage:?} was answered: {other:?}"),
        }
    }
    assert_eq!(neighbor.run(&shell("echo fine")).text(), "fine\n");
}

/// A well-formed frame that is not a greeting is refused as such.
#[test]
fn a_broken_greeting_is_refused_as_such() {
    let sandbox = Sandbox::started();
    let good = bytes_of(&Request::Hello(hello(new_session(), 1)));
    let mut wrong_magic = good.clone();
    wrong_magic[5] = b'X';
    let mut longer = good.clone();
    longer.push(0);
    longer[0] += 1;
    for broken in [wrong_magic, longer] {
        let mut peer = sandbox.stranger();
        peer.write(&broken);
        match peer.receive() {
            Some(Reply::Refused { why: Why::Greeting, .. }) => peer.is_closed(),
            other => panic!("{broken:?}: {other:?}"),
        }
    }
}

/// No greeting, half a greeting, and a greeting byte by byte all end at the deadline. A greeted connection stays.
#[test]
fn a_greeting_that_does_not_come_is_not_waited_for() {
    let sandbox = Sandbox::started();
    let mut greeted = sandbox.client(1);
    let bytes = bytes_of(&Request::Hello(hello(new_session(), 1)));
    let mut silent = sandbox.stranger();
    let mut half = sandbox.stranger();
    half.write(&bytes[..bytes.len() / 2]);
    // This greeting would still arrive when the deadline is over, even if each byte got a deadline of its own.
    let long = bytes_of(&Request::Hello(Hello {
        name: vec![b'n'; 4000],
        ..hello(new_session(), 1)
    }));
    let mut dripping = sandbox.stranger();
    silent.is_closed();
    half.is_closed();
    let mut rest = long.chunks(1);
    wait_until("the dripping greeting is answered or cut off", || {
        dripping.has_news() || !rest.next().is_some_and(|byte| dripping.try_write(byte).is_ok())
    });
    dripping.is_closed();
    assert_eq!(greeted.run(&shell("echo still here")).text(), "still here\n");
}

/// A greeting whose length is above the limit ends the connection before the rest comes.
#[test]
fn a_greeting_above_the_cap_ends_with_its_length() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.stranger();
    peer.write(&(GREETING_CAP as u32 + 1).to_le_bytes());
    peer.is_closed();
}

/// The longest allowed greeting is welcome. One byte more is not.
#[test]
fn the_cap_of_a_greeting_is_exact() {
    let sandbox = Sandbox::started();
    let empty = bytes_of(&Request::Hello(Hello {
        name: Vec::new(),
        ..hello(new_session(), 1)
    }));
    let room = GREETING_CAP - (empty.len() - 4);
    let of_length = |n: usize| Hello {
        name: vec![b'n'; n],
        ..hello(new_session(), 1)
    };
    sandbox.stranger().welcome(&of_length(room));
    let mut peer = sandbox.stranger();
    let _ = peer.try_write(&bytes_of(&Request::Hello(of_length(room + 1))));
    peer.is_closed();
}

/// A second greeting ends the connection, and the commands that were sent over it.
#[test]
fn a_second_greeting_ends_the_connection() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.client(1);
    peer.submit(&shell("sleep 1000"));
    peer.send(&Request::Hello(hello(new_session(), 1)));
    while let Some(reply) = peer.receive() {
        assert!(!matches!(reply, Reply::Welcome { .. }), "welcome twice");
    }
    wait_until("its command is gone", || sandbox.status()["slots"]["running"] == 0);
}

/// A request before the greeting ends the connection, and is not carried out.
#[test]
fn requests_before_the_greeting_are_not_carried_out() {
    let sandbox = Sandbox::started();
    let touched = sandbox.path("touched");
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
        let mut peer = sandbox.stranger();
        peer.send(&request);
        // A greeting after that changes nothing.
        let _ = peer.try_write(&bytes_of(&Request::Hello(hello(new_session(), 1))));
        peer.is_closed();
    }
    assert!(sandbox.status()["tcp_port"].is_null());
    assert!(!touched.exists());
}

/// Requests may follow the greeting at once, before `welcome`.
#[test]
fn the_first_requests_need_not_wait_for_the_welcome() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.stranger();
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

/// A connection that declared no jobs gets reports, but cannot run commands.
#[test]
fn a_connection_without_jobs_runs_nothing() {
    let sandbox = Sandbox::started();
    let mut peer = sandbox.greeter();
    assert_eq!(peer.report()["pid"], peer.pid);
    let touched = sandbox.path("touched");
    peer.submit(&command(&["/usr/bin/touch", touched.to_str().unwrap()]));
    peer.is_closed();
    sandbox.client(1).run(&shell(":")).text();
    assert!(!touched.exists());
}

/// Only the owner can use the socket and the folder, whatever umask the engine was started with.
#[test]
fn socket_and_folder_are_private() {
    let mut sandbox = Sandbox::new();
    sandbox.use_runtime("made by the engine");
    let mut start = sandbox.wafd(&["start", "--tcp"]);
    // SAFETY: a system call that is allowed between fork and exec.
    unsafe {
        start.pre_exec(|| {
            libc::umask(0);
            Ok(())
        });
    }
    sandbox::run(&mut start).succeeded();
    assert_eq!(mode(sandbox.runtime()), 0o700);
    assert_eq!(mode(&sandbox.socket()), 0o600);
    for ending in ["tcp", "lock", "start", "log"] {
        assert_eq!(mode(&sandbox.file(ending)), 0o600, "{ending}");
    }
}
