//! The TCP port: its token, which clients it admits, and how long both last.

use std::fs;
use std::path::Path;

use crate::support::order::shell;
use crate::support::peer::{hello, Peer};
use crate::support::process;
use crate::support::sandbox::{mode, new_session, Sandbox};
use wafengine::wire::{self, Hello, Reply, Request, Why};

/// Opens the port. Returns its number and token.
fn open_port(sandbox: &Sandbox) -> (u16, Vec<u8>) {
    let line = sandbox.run(&["start", "--tcp"]).succeeded();
    let words: Vec<_> = line.trim_end().splitn(4, ' ').collect();
    let [ready, tcp, port, path] = words[..] else {
        panic!("{line}")
    };
    assert_eq!((ready, tcp), ("ready", "tcp"));
    assert_eq!(Path::new(path), sandbox.file("tcp"));
    let (number, token) = sandbox.folder().read_token().unwrap();
    assert_eq!(port, number.to_string());
    (number, token.into_bytes())
}

fn with_token(token: &[u8]) -> Hello {
    Hello {
        token: token.to_vec(),
        ..hello(new_session(), 1)
    }
}

/// The port's file holds the port and 64 hexadecimal digits. Only its owner can read it.
#[test]
fn the_token_is_private() {
    let sandbox = Sandbox::new();
    let (port, token) = open_port(&sandbox);
    assert_eq!(mode(&sandbox.file("tcp")), 0o600);
    let text = fs::read_to_string(sandbox.file("tcp")).unwrap();
    let shown = String::from_utf8(token).unwrap();
    assert_eq!(text, format!("{port} {shown}\n"));
    assert_eq!(shown.len(), 64);
    assert!(shown.bytes().all(|b| b.is_ascii_hexdigit()));
    let log = fs::read_to_string(sandbox.file("log")).unwrap();
    assert!(!log.contains(&shown), "the token is in the log");
    assert!(
        !sandbox.status().to_string().contains(&shown),
        "the token is in the report"
    );
}

/// The port listens on the loopback address only.
#[test]
fn the_port_is_on_loopback_only() {
    let sandbox = Sandbox::new();
    let (port, _) = open_port(&sandbox);
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

/// Over TCP only the complete, correct token is accepted. With it, clients get everything that a Unix socket offers.
#[test]
fn only_the_token_opens_the_port() {
    let sandbox = Sandbox::new();
    let (port, token) = open_port(&sandbox);
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
    peer.define(0, sandbox.environment());
    assert_eq!(
        peer.run(&shell("echo over tcp; cat").input(b"and back\n")).text(),
        "over tcp\nand back\n"
    );
}

/// Without the token, a TCP client learns nothing but whether its version is supported.
#[test]
fn a_client_without_the_token_learns_nothing() {
    let sandbox = Sandbox::new();
    let (port, _) = open_port(&sandbox);
    let mut peer = Peer::tcp(port);
    peer.send(&Request::Status);
    peer.is_closed();
    let reason = Peer::tcp(port).refused(&with_token(b"guess"), Why::Token);
    assert!(!reason.contains(sandbox.runtime().to_str().unwrap()), "{reason}");
}

/// On a Unix socket a token is not needed, and changes nothing.
#[test]
fn a_unix_socket_needs_no_token() {
    let sandbox = Sandbox::started();
    sandbox.stranger().welcome(&with_token(b"whatever"));
}

/// A TCP client whose process does not exist is refused.
#[test]
fn a_client_on_tcp_names_its_own_process() {
    let sandbox = Sandbox::new();
    let (port, token) = open_port(&sandbox);
    for pid in [0, u32::MAX, i32::MAX as u32] {
        let greeting = Hello {
            pid,
            ..with_token(&token)
        };
        Peer::tcp(port).refused(&greeting, Why::Place);
    }
}

/// TCP cannot carry descriptors: a command that needs one ends the connection.
#[test]
fn a_command_on_tcp_gets_no_descriptors() {
    let sandbox = Sandbox::new();
    let (port, token) = open_port(&sandbox);
    let mut peer = Peer::tcp(port);
    peer.welcome(&with_token(&token));
    peer.define(0, sandbox.environment());
    peer.submit(&shell(":").stdio([wire::Stdio::Null, wire::Stdio::Descriptor, wire::Stdio::Pipe]));
    peer.is_closed();
}

/// A running engine opens its port when asked, and only once.
#[test]
fn the_port_is_opened_once() {
    let sandbox = Sandbox::started();
    assert!(!sandbox.file("tcp").exists());
    let first = open_port(&sandbox);
    assert_eq!(open_port(&sandbox), first);
    assert_eq!(sandbox.status()["tcp_port"], first.0);
    let port = {
        let mut peer = sandbox.greeter();
        peer.send(&Request::Listen);
        peer.receive()
    };
    assert_eq!(port, Some(Reply::Listening { port: first.0 }));
}

/// The token of a killed engine is gone when the next one is ready. An engine that stops removes its own.
#[test]
fn a_token_lives_no_longer_than_its_port() {
    let sandbox = Sandbox::new();
    let (_, token) = open_port(&sandbox);
    process::kill(sandbox.engine(), libc::SIGKILL);
    sandbox.start();
    assert!(!sandbox.file("tcp").exists(), "the token of an engine that was killed");
    let (_, fresh) = open_port(&sandbox);
    assert_ne!(fresh, token);
    sandbox.run(&["stop", "--now"]).succeeded();
    sandbox.wait_until_empty();
    assert!(!sandbox.file("tcp").exists(), "the token of an engine that stopped");
}
