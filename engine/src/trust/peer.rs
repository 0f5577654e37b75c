//! The process at the other end of a Unix socket, as the kernel reports it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The process at the other end. Its number is 0 if it lives in a namespace outside ours, which rustix's type cannot
/// represent.
pub fn peer_of(socket: impl AsFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to where we have them.
    let got = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            place,
            &mut size,
        )
    };
    match got {
        0 => Ok(peer),
        _ => Err(io::Error::last_os_error()),
    }
}
