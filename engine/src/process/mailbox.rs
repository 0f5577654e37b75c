//! What other threads tell an event loop, with a bell that its epoll hears.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{eventfd, EventfdFlags};

/// A descriptor that is readable from a ring until it is silenced.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub fn ring(&self) {
        // Full, it rings already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[derive(Debug)]
pub struct Mailbox<T> {
    letters: Mutex<Vec<T>>,
    pub bell: Bell,
}

impl<T> Mailbox<T> {
    pub fn new() -> io::Result<Mailbox<T>> {
        Ok(Mailbox {
            letters: Mutex::default(),
            bell: Bell::new()?,
        })
    }

    pub fn put(&self, letter: T) {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
        self.bell.ring();
    }

    pub fn take(&self) -> Vec<T> {
        self.bell.silence();
        std::mem::take(&mut self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
