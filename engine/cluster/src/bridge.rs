//! What the engine gets from `wafd-cluster`: connections that come over the control socket, which is the standard input.
//!
//! ```text
//! control socket ─┬► a connection of kind S ─► visit: the protocol of docs/room.md ─► store ─► results, contents
//!                 └► a connection of kind X ─► executing
//! ```
//!
//! The engine has started this program, and is trusted. The program ends when the control socket closes.

mod incoming;
mod known;
mod results;
mod store;
#[cfg(test)]
mod tests;
mod visit;

use std::env;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as PlainStream;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::net::UnixStream;
use wafengine::settings::address::{parse_all, Address};
use wafengine::tier::cluster::{ADDRESS, EXECUTE, STORE};

use crate::connection::Connection;
use crate::executing;
use store::Store;

/// Runs until the engine closes the control socket.
pub fn run() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("wafd-cluster: {why}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), String> {
    let address = address()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("start threads: {error}"))?;
    // What takes longer than the last connection is not waited for.
    let served = accept_all(&runtime, &address);
    runtime.shutdown_background();
    served.map_err(|error| format!("read the control socket: {error}"))
}

fn address() -> Result<Address, String> {
    const USAGE: &str = "the engine starts this program; `wafd-cluster worker` is for you";
    let text = env::var(ADDRESS).map_err(|_| USAGE.to_owned())?;
    let mut all = parse_all(&text)?;
    match (all.pop(), all.is_empty()) {
        (Some(address), true) => Ok(address),
        _ => Err(format!("{ADDRESS} has no address, or several")),
    }
}

fn accept_all(runtime: &tokio::runtime::Runtime, address: &Address) -> io::Result<()> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let _guard = runtime.enter();
    // A mistake in a file that the address names is told to each connection.
    let store = Arc::new(Store::new(address));
    while let Some((kind, socket)) = accept(&control)? {
        let stream = PlainStream::from(socket);
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        match kind {
            STORE => drop(runtime.spawn(visit::serve(stream, store.clone()))),
            EXECUTE => match Connection::new(address) {
                Ok(connection) => drop(runtime.spawn(executing::serve(stream, connection, address.clone()))),
                Err(why) => log::warn!("commands are not run elsewhere: {why}"),
            },
            kind => log::warn!("a connection of the unknown kind {kind} was asked for"),
        }
    }
    Ok(())
}

/// The next connection and its kind. None if there will be no further one.
fn accept(control: &OwnedFd) -> io::Result<Option<(u8, OwnedFd)>> {
    loop {
        let mut kind = [0; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut kind)];
        let received = match recvmsg(control, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            received => received?,
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let sockets = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let socket = sockets.flatten().next();
        if let Some(socket) = socket {
            return Ok(Some((kind[0], socket)));
        }
    }
}
