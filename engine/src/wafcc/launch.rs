//! Runs a program that makes itself known by a word, for as long as we have time: afterwards it goes on, and nobody who
//! comes after us in this process hears of it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// What a program prints that has done its work.
const WORD: &[u8] = b"ready ";
const CAP: usize = 4096;

/// Runs the command until it says that it is ready. If it says something else, or nothing within that time, that is the
/// error.
pub fn run_for(command: &mut Command, time: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time;
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (mut read, write) = (File::from(read), File::from(write));
    start(command, write)?;
    let mut said = Vec::new();
    while !said.contains(&b'\n') {
        let mut bytes = [0; CAP];
        wait_for(&read, deadline)?;
        match read.read(&mut bytes)? {
            0 => break,
            size if said.len() < CAP => said.extend(&bytes[..size]),
            _ => break,
        }
    }
    if said.starts_with(WORD) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    let name = command.get_program().to_string_lossy();
    Err(io::Error::other(match said.lines().next() {
        Some(line) => line.to_owned(),
        None => format!("{name} ended without a word"),
    }))
}

/// As a child of nobody who might be surprised by it: this process becomes a compiler, which waits for its own children.
fn start(command: &mut Command, write: File) -> io::Result<()> {
    command.stdout(Stdio::from(write.try_clone()?));
    command.stderr(Stdio::from(write.try_clone()?));
    // SAFETY: this program has one thread, so that its copy may do what it may.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; leaves without what is to be done at the end of a program.
            unsafe {
                let status = match libc::fork() {
                    0 => become_it(command, write),
                    -1 => become_nothing(write),
                    _ => 0,
                };
                libc::_exit(status)
            }
        }
        middle => crate::process::spawn::reap(middle),
    }
    // Ours would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(())
}

fn become_it(command: &mut Command, mut write: File) -> i32 {
    let error = command.exec();
    let name = command.get_program().to_string_lossy();
    let _ = writeln!(write, "{name}: {error}");
    1
}

fn become_nothing(mut write: File) -> i32 {
    let _ = writeln!(write, "fork: {}", io::Error::last_os_error());
    1
}

fn wait_for(read: &File, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(read, PollFlags::IN)], Some(&time)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "`wafd start` takes too long")),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
