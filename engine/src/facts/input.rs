//! The standard input of a command, as far as it can be known without reading it.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{major, minor, FileType};

use crate::bytes::digest::Digest;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Input {
    /// It is at its end, for every reader.
    #[default]
    Nothing,
    Text(Digest),
    /// A terminal, or something else from which more may come.
    Unknown,
}

impl Input {
    /// How `Unknown` is reported.
    pub const UNKNOWN: &'static str = "unknown";

    /// The value in a fact.
    pub fn tell(&self) -> String {
        match self {
            Input::Nothing => "nothing".to_owned(),
            Input::Text(digest) => digest.to_string(),
            Input::Unknown => Input::UNKNOWN.to_owned(),
        }
    }

    pub fn of_text(text: &[u8]) -> Input {
        match text {
            [] => Input::Nothing,
            text => Input::Text(Digest::of(text)),
        }
    }

    pub fn of(file: BorrowedFd) -> Input {
        match is_at_its_end(file) {
            Ok(true) => Input::Nothing,
            _ => Input::Unknown,
        }
    }
}

/// The device number of `/dev/null`.
const NULL: (u32, u32) = (1, 3);

fn is_at_its_end(file: BorrowedFd) -> rustix::io::Result<bool> {
    let status = rustix::fs::fstat(file)?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::CharacterDevice => Ok((major(status.st_rdev), minor(status.st_rdev)) == NULL),
        FileType::RegularFile => Ok(rustix::fs::tell(file)? >= status.st_size as u64),
        // No writer is left. `make` gives such a pipe to all of its commands except one.
        FileType::Fifo => {
            let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
            rustix::event::poll(&mut polled, Some(&Timespec::default()))?;
            let is_left = polled[0].revents().contains(PollFlags::HUP);
            Ok(is_left && rustix::io::ioctl_fionread(file)? == 0)
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn an_input_at_its_end_is_nothing() {
        assert_eq!(Input::of(File::open("/dev/null").unwrap().as_fd()), Input::Nothing);
        let (read, write) = rustix::pipe::pipe().unwrap();
        assert_eq!(Input::of(read.as_fd()), Input::Unknown);
        File::from(write).write_all(b"x").unwrap();
        assert_eq!(Input::of(read.as_fd()), Input::Unknown);
        File::from(read.try_clone().unwrap()).read_exact(&mut [0]).unwrap();
        assert_eq!(Input::of(read.as_fd()), Input::Nothing);
        let mut program = File::open("/proc/self/exe").unwrap();
        assert_eq!(Input::of(program.as_fd()), Input::Unknown);
        std::io::copy(&mut program, &mut std::io::sink()).unwrap();
        assert_eq!(Input::of(program.as_fd()), Input::Nothing);
    }

    #[test]
    fn a_text_is_known_by_its_digest() {
        assert_eq!(Input::of_text(b""), Input::Nothing);
        assert_eq!(Input::of_text(b"a"), Input::of_text(b"a"));
        assert_ne!(Input::of_text(b"a"), Input::of_text(b"b"));
    }
}
