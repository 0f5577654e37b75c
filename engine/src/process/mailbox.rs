//! Messages from other threads to an event loop, with a descriptor that wakes its epoll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{eventfd, EventfdFlags};

/// An eventfd: it is readable from a `ring` until a `silence`.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub fn ring(&self) {
        // A full counter is readable already.
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
    messages: Mutex<Vec<T>>,
    pub bell: Bell,
}

impl<T> Mailbox<T> {
    pub fn new() -> io::Result<Mailbox<T>> {
        Ok(Mailbox {
            messages: Mutex::default(),
            bell: Bell::new()?,
        })
    }

    pub fn put(&self, message: T) {
        self.messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        self.bell.ring();
    }

    pub fn take(&self) -> Vec<T> {
        self.bell.silence();
        std::mem::take(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
