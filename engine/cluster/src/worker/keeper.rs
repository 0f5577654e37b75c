//! The process that keeps a slot: it makes the slot's namespaces, and starts commands in them, one after the other.
//!
//! ```text
//! worker ─► keeper ─► the first process of the slot ─► a command
//!                                  └─► the slot's engine with parked compilers, which stay for the next command
//! ```
//!
//! It is a process of its own, since only one with a single thread can enter namespaces. If the worker ends, however that
//! happens, the socket closes, the slot's first process ends, and the kernel ends all others with it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use serde::Serialize;

use super::chamber;
use super::order::{Ended, Order, Setup};

/// The first argument of `wafd-cluster` for this.
pub const WORD: &str = "keep-slot";
/// Where commands see the slot's own files.
pub const INSIDE: &str = "/run/wafd";
pub const STDOUT: &str = "stdout";
pub const STDERR: &str = "stderr";
/// How often children of commands that have ended are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Room for the environment of a command and its words.
const LONGEST_LINE: u64 = 64 << 20;

/// Keeps the slot that the standard input describes. Returns the process's status.
pub fn keep() -> u8 {
    // SAFETY: the worker has given us a socket as standard input, and nothing else uses it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    let mut lines = match stream.try_clone() {
        Ok(copy) => BufReader::new(copy),
        Err(_) => return 1,
    };
    let Some(setup) = read::<Setup>(&mut lines) else {
        return 1;
    };
    let entered = match setup.is_isolated {
        true => chamber::enter(&setup),
        false => Ok(None),
    };
    match entered {
        // What is left of us waits for the first process in the namespace.
        Ok(Some(first)) => return wait_for(first),
        Ok(None) => {}
        Err(why) => {
            say(&stream, &trouble(why));
            return 1;
        }
    }
    if !say(&stream, &Ended::default()) {
        return 1;
    }
    loop {
        if !wait_for_line(&stream, &lines) {
            return 0;
        }
        let Some(order) = read::<Order>(&mut lines) else {
            return 0;
        };
        let ended = run(&setup, &order, &stream);
        match ended {
            Some(ended) if say(&stream, &ended) => {}
            _ => return 0,
        }
    }
}

fn trouble(why: impl ToString) -> Ended {
    Ended {
        trouble: Some(why.to_string()),
        ..Ended::default()
    }
}

fn read<T: serde::de::DeserializeOwned>(lines: &mut BufReader<UnixStream>) -> Option<T> {
    let mut line = String::new();
    let read = io::Read::take(lines, LONGEST_LINE).read_line(&mut line).ok()?;
    match read {
        0 => None,
        _ => serde_json::from_str(&line).ok(),
    }
}

fn say(mut stream: &UnixStream, what: &impl Serialize) -> bool {
    let Ok(mut line) = serde_json::to_vec(what) else {
        return false;
    };
    line.push(b'\n');
    stream.write_all(&line).is_ok()
}

/// Waits for the next order, and reaps orphans meanwhile. False when the worker has gone.
fn wait_for_line(stream: &UnixStream, lines: &BufReader<UnixStream>) -> bool {
    while lines.buffer().is_empty() {
        match wait_for_any(&mut [PollFd::new(stream, PollFlags::IN)], SWEEP) {
            Ok(true) => return true,
            Ok(false) => reap(),
            Err(_) => return false,
        }
    }
    true
}

fn wait_for_any(all: &mut [PollFd<'_>], time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(all, Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Children that commands have left to us, and that have ended.
fn reap() {
    // SAFETY: only a system call. No command runs for which we wait.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

fn wait_for(first: libc::pid_t) -> u8 {
    let mut status = 0;
    // SAFETY: the child is ours.
    while unsafe { libc::waitpid(first, &mut status, 0) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return 1;
        }
    }
    u8::from(!ExitStatus::from_raw(status).success())
}

/// Runs a command. None if the worker has gone meanwhile.
fn run(setup: &Setup, order: &Order, stream: &UnixStream) -> Option<Ended> {
    let out = match setup.is_isolated {
        true => Path::new(INSIDE).join("out"),
        false => setup.folder.join("out"),
    };
    let child = match start(setup, order, &out) {
        Ok(child) => child,
        Err(ended) => return Some(ended),
    };
    let ended = await_end(child, Duration::from_millis(order.milliseconds), stream);
    if order.is_last {
        end_all(setup);
    }
    ended
}

fn start(setup: &Setup, order: &Order, out: &Path) -> Result<Child, Ended> {
    let create = |name: &str| {
        let path = out.join(name);
        File::create(&path).map_err(|error| trouble(format!("create {}: {error}", path.display())))
    };
    let (stdout, stderr) = (create(STDOUT)?, create(STDERR)?);
    let copy = stderr.try_clone();
    let program = order.argv.first().ok_or_else(|| trouble("a command has no name"))?;
    let mut command = Command::new(program);
    command
        .args(&order.argv[1..])
        .env_clear()
        .envs(order.variables.iter().map(|(name, value)| (name, value)))
        .current_dir(&order.folder)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    if let Some(user) = setup.user {
        command.uid(user).gid(user);
    }
    let largest = order.largest;
    // SAFETY: only system calls.
    unsafe {
        command.pre_exec(move || {
            let limit = |resource, most| {
                let limit = libc::rlimit {
                    rlim_cur: most,
                    rlim_max: most,
                };
                libc::setrlimit(resource, &limit)
            };
            libc::setsid();
            libc::umask(0o022);
            let is_set = limit(libc::RLIMIT_FSIZE, largest) == 0
                && limit(libc::RLIMIT_CORE, 0) == 0
                && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
            match is_set {
                true => Ok(()),
                false => Err(io::Error::last_os_error()),
            }
        });
    }
    command.spawn().map_err(|error| {
        // As a shell would tell it.
        let status = match error.kind() {
            io::ErrorKind::NotFound => 127,
            io::ErrorKind::PermissionDenied => 126,
            _ if error.raw_os_error() == Some(libc::ENOEXEC) => 126,
            _ => return trouble(format!("start {program}: {error}")),
        };
        let told = copy.and_then(|mut stderr| writeln!(stderr, "wafd worker: {program}: {error}"));
        match told {
            Ok(()) => Ended {
                status,
                ..Ended::default()
            },
            Err(error) => trouble(format!("write messages: {error}")),
        }
    })
}

/// Waits until the command ends, and ends it when its time is over. None if the worker has gone.
fn await_end(mut child: Child, time: Duration, stream: &UnixStream) -> Option<Ended> {
    let deadline = Instant::now() + time;
    let pid = Pid::from_child(&child);
    let Ok(watch) = pidfd_open(pid, PidfdFlags::empty()) else {
        end_group(pid);
        let _ = child.wait();
        return Some(trouble("the system does not tell when a command ends"));
    };
    let mut is_late = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() && !is_late {
            is_late = true;
            end_group(pid);
        }
        let mut all = [
            PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN),
            PollFd::new(stream, PollFlags::IN),
        ];
        // A killed process may take a moment.
        let time = if is_late { SWEEP } else { left };
        wait_for_any(&mut all, time).ok()?;
        if !all[0].revents().is_empty() {
            break;
        }
        if !all[1].revents().is_empty() {
            // The worker says nothing while a command runs: it has gone, or gives it up.
            end_group(pid);
            return None;
        }
    }
    let mut ended = outcome(pid);
    ended.is_late = is_late;
    // What it has left in its session.
    end_group(pid);
    Some(ended)
}

fn outcome(pid: Pid) -> Ended {
    let mut status = 0;
    // SAFETY: the kernel writes to what is ours; the child is ours, and has ended.
    let (found, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let found = libc::wait4(pid.as_raw_pid(), &mut status, 0, &mut usage);
        (found, usage)
    };
    if found < 0 {
        return trouble("the status of a command was lost");
    }
    let status = ExitStatus::from_raw(status);
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Ended {
        status: status
            .code()
            .or(status.signal().map(|signal| 128 + signal))
            .unwrap_or(-1),
        user: micros(usage.ru_utime),
        system: micros(usage.ru_stime),
        peak: usage.ru_maxrss as u64 * 1024,
        ..Ended::default()
    }
}

fn end_group(pid: Pid) {
    // A group that is gone needs no end.
    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
}

/// Ends all other processes of the slot.
fn end_all(setup: &Setup) {
    // Outside of a namespace, this would be all processes of the machine.
    if setup.is_isolated && std::process::id() == 1 {
        // SAFETY: only a system call.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
    reap();
}
