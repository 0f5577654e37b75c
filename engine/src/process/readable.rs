//! Waits for a descriptor, with a deadline.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

/// Waits until there is something to read, or the other end is closed. False if the deadline comes first.
pub fn is_readable(fd: impl AsFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = timespec(deadline.saturating_duration_since(Instant::now()));
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
