//! As many connections at once as an engine accepts.

use wafengine::wire::{Reply, Request, Why};

use crate::support::order::shell;
use crate::support::peer::{bytes_of, hello, Peer};
use crate::support::sandbox::{wait_until, Sandbox};

/// If an engine has the most connections that it accepts, the next one is refused with this reason, and the others are served.
#[test]
fn there_are_only_so_many_connections() {
    let sandbox = Sandbox::new();
    // The engine accepts as many as it has descriptors for. We need as many.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some_and(|max| max < 12_000) {
        return eprintln!("not tried: too few descriptors are allowed here");
    }
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    sandbox.start();
    let mut first = sandbox.client(1);
    // Connections that have sent a greeting stay open during the whole loop.
    let mut crowd: Vec<Peer> = Vec::new();
    let refused = loop {
        assert!(crowd.len() < 5000, "nobody is ever refused");
        let mut peer = sandbox.stranger();
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
        let mut peer = sandbox.stranger();
        let _ = peer.try_write(&bytes_of(&Request::Hello(hello([0; 16], 0))));
        matches!(peer.receive(), Some(Reply::Welcome { .. }))
    });
}
