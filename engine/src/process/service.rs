//! The first steps of each of our programs that serves until it is stopped.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use log::debug;

use super::spawn::signal_set;

/// A descriptor from which the signals can be read that stop a program of ours.
pub fn open_signals() -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is made for us.
    unsafe {
        let set = signal_set(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Raises the limit of descriptors as far as allowed: a command needs up to four, a connection one.
pub fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        debug!("raise the limit of descriptors: {error}");
    }
}
