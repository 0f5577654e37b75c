//! What other threads tell a worker, with a bell that its epoll hears.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{eventfd, EventfdFlags};

use super::disk_threads::Done;

/// A connection that was just taken.
#[derive(Debug)]
pub struct Arrival {
    pub socket: TcpStream,
    pub peer: SocketAddr,
    /// It came to a port that has no TLS, whatever the others have.
    pub is_plain: bool,
}

#[derive(Debug)]
pub enum Letter {
    Arrived(Arrival),
    /// An job of this connection is done.
    Done(u64, Done),
    /// An job of this connection has ended in a panic.
    Fault(u64),
    /// Tokens have changed: some may be revoked.
    Tokens,
    /// Ends what is idle now, and all else when it is done.
    Leave,
}

pub struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    pub bell: OwnedFd,
}

impl Mailbox {
    pub fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            letters: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub fn put(&self, letter: Letter) {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
        // Full, it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub fn take(&self) -> Vec<Letter> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
