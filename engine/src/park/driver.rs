//! A parked driver that is told how its parts ended, instead of running them.
//!
//! It sends here what it would exec, as it would to the router. Nothing runs: it gets the statuses that it must believe.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::packet::{self, Wanted, PACKET};

/// A driver that runs nothing ends within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
const QUEUE: i32 = 8;

/// The socket at which one driver asks, until this is dropped.
pub struct Answering {
    listener: OwnedFd,
    path: PathBuf,
}

impl Answering {
    pub fn open(path: PathBuf) -> io::Result<Answering> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let _ = std::fs::remove_file(&path);
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
        rustix::net::listen(&listener, QUEUE)?;
        Ok(Answering { listener, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers a driver until it has ended, which its descriptor reports. False if it does not end. `answer` gets the
    /// number of the part, and the part.
    pub fn serve(&self, pidfd: &OwnedFd, mut answer: impl FnMut(usize, Wanted) -> Option<i32>) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut asked = 0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut events = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(pidfd, PollFlags::IN),
            ];
            match poll(&mut events, Some(&left)) {
                Ok(0) => return false,
                Ok(_) if !events[0].revents().is_empty() => {
                    // If it closes the connection without a request, there is nothing to answer.
                    let _ = self.hear(&mut asked, &mut answer);
                }
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn hear(&self, asked: &mut usize, answer: &mut impl FnMut(usize, Wanted) -> Option<i32>) -> io::Result<()> {
        let socket = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let mut buffer = vec![0; PACKET];
        if let Some(wanted) = Wanted::receive(socket.as_fd(), &mut buffer)? {
            let status = answer(*asked, wanted);
            *asked += 1;
            packet::send_routed(socket.as_fd(), status)?;
        }
        Ok(())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
