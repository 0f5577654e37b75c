//! A pseudo-terminal that passes bytes on unchanged, for commands whose messages must look as on the client's terminal.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::wire::Size;

/// The size of the terminal, if the descriptor is one.
pub fn size_of(file: BorrowedFd<'_>) -> Option<Size> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the kernel writes one of these, or fails.
    let known = unsafe { libc::ioctl(file.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr()) } == 0;
    // SAFETY: all zeros are a size, too.
    let size = unsafe { size.assume_init() };
    known.then_some(Size {
        columns: size.ws_col,
        rows: size.ws_row,
    })
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// The end from which we read, and the terminal.
pub fn open(size: Size) -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: a descriptor of our own, or an error.
    let ours = unsafe {
        OwnedFd::from_raw_fd(checked(libc::posix_openpt(
            libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC,
        ))?)
    };
    let mut name = [0; 64];
    // SAFETY: the descriptor is that of a terminal's other end, and the name has room for what such are called.
    unsafe {
        checked(libc::grantpt(ours.as_raw_fd()))?;
        checked(libc::unlockpt(ours.as_raw_fd()))?;
        match libc::ptsname_r(ours.as_raw_fd(), name.as_mut_ptr(), name.len()) {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    // SAFETY: it was zero all over, and its end was not written.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    set_up(&terminal, size)?;
    Ok((ours, terminal))
}

/// Output is passed on unchanged.
fn set_up(terminal: &OwnedFd, size: Size) -> io::Result<()> {
    let size = libc::winsize {
        ws_col: size.columns,
        ws_row: size.rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let mut settings = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: structures of our own; all zeros are settings, too.
    unsafe {
        checked(libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()))?;
        libc::cfmakeraw(settings.as_mut_ptr());
        checked(libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, settings.as_ptr()))?;
        checked(libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn bytes_pass_unchanged() {
        let size = Size { columns: 77, rows: 11 };
        let (ours, terminal) = open(size).unwrap();
        assert_eq!(size_of(terminal.as_fd()), Some(size));
        let written = b"a\nb\tc\r\x03\x04\xff";
        File::from(terminal).write_all(written).unwrap();
        let mut found = Vec::new();
        // The end of a terminal is an error.
        let _ = File::from(ours).read_to_end(&mut found);
        assert_eq!(found, written);
        assert_eq!(size_of(File::open("/dev/null").unwrap().as_fd()), None);
    }
}
