//! Runs a program until it reports that it is ready, or until the time is over. Then the program goes on in the
//! background, and is not a child of this process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::readable::is_readable;

/// The first word of a program that is ready.
const READY: &[u8] = b"ready ";
const CAP: usize = 4096;

/// Runs the command until it is ready. It is an error if it prints something else, or nothing in time.
pub fn run_for(command: &mut Command, time: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time;
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (mut read, write) = (File::from(read), File::from(write));
    start(command, write)?;
    let mut said = Vec::new();
    while !said.contains(&b'\n') {
        let mut bytes = [0; CAP];
        if !is_readable(&read, deadline)? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "`wafd start` takes too long"));
        }
        match read.read(&mut bytes)? {
            0 => break,
            size if said.len() < CAP => said.extend(&bytes[..size]),
            _ => break,
        }
    }
    if said.starts_with(READY) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    let name = command.get_program().to_string_lossy();
    Err(io::Error::other(match said.lines().next() {
        Some(line) => line.to_owned(),
        None => format!("{name} ended without a word"),
    }))
}

/// Starts the program as an orphan. This process becomes a compiler, which waits for its own children and must not find
/// this one.
fn start(command: &mut Command, write: File) -> io::Result<()> {
    command.stdout(Stdio::from(write.try_clone()?));
    command.stderr(Stdio::from(write.try_clone()?));
    // SAFETY: this program has one thread, so its copy may do anything.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above. `_exit` skips the cleanup of the parent's state.
            unsafe {
                let status = match libc::fork() {
                    0 => exec_program(command, write),
                    -1 => report_fork_error(write),
                    _ => 0,
                };
                libc::_exit(status)
            }
        }
        child => crate::process::spawn::reap(child),
    }
    // Our copy would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(())
}

fn exec_program(command: &mut Command, mut write: File) -> i32 {
    let error = command.exec();
    let name = command.get_program().to_string_lossy();
    let _ = writeln!(write, "{name}: {error}");
    1
}

fn report_fork_error(mut write: File) -> i32 {
    let _ = writeln!(write, "fork: {}", io::Error::last_os_error());
    1
}
