//! A call to the resident process, which runs the command line. It knows all of the call but what is sent here.
//!
//! The exchange is that of `waflib_extras/launcher/caller.py`. Values are written as Python's `marshal` writes them.

use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::caller::HARMLESS;
use super::dial;
use super::record::Record;

/// How long the process may take until it begins. Then Python would run Waf here.
const TAKEN: Duration = Duration::from_secs(20);
/// The most descriptors in one message.
const MOST: usize = 250;
/// The longest answer. It is a number, or a text.
const LONGEST: usize = 1 << 20;
const STARTED: u8 = b'S';
const ENDED: u8 = b'E';
/// Python ignores these from its start on, and the resident process compares.
const IGNORED: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];
/// These are passed on to the command.
const PASSED: [i32; 7] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
];
const FAILED: i32 = 1;

/// Has the resident process run the command line. The exit status, or nothing if Python has to run it.
///
/// The process is told what has changed of the record, so that it need not look at all of it once more.
pub fn call(record: &Record, name: &str, changed: Option<&[u32]>) -> Option<i32> {
    let mut stream = UnixStream::from(dial(record)?);
    stream.set_nonblocking(false).ok()?;
    let peer = socket_peercred(&stream).ok()?;
    if peer.uid != rustix::process::geteuid() {
        return None;
    }
    stream.set_read_timeout(Some(TAKEN)).ok()?;
    let ignored = Ignored::begin();
    let (kind, child) = send(&stream, name, record.serial, changed)
        .and_then(|()| receive(&mut stream))
        .unwrap_or_default();
    if kind != STARTED {
        return None;
    }
    // From here on the command may have effects, so Python must not run it once more.
    std::mem::forget(ignored);
    Some(attend(&mut stream, child))
}

/// The signals that Python ignores are ignored until this is dropped.
struct Ignored([libc::sighandler_t; IGNORED.len()]);

impl Ignored {
    fn begin() -> Ignored {
        // SAFETY: only system calls.
        Ignored(IGNORED.map(|number| unsafe { libc::signal(number, libc::SIG_IGN) }))
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        for (number, before) in IGNORED.iter().zip(self.0) {
            // SAFETY: puts back what was there.
            unsafe { libc::signal(*number, before) };
        }
    }
}

// ---- the exchange

fn send(stream: &UnixStream, name: &str, serial: i64, changed: Option<&[u32]>) -> io::Result<()> {
    let inherited = find_inherited();
    let numbers: Vec<Vec<u8>> = inherited.iter().map(|number| integer(*number)).collect();
    let variables: Vec<Vec<u8>> = std::env::vars_os()
        .filter(|(name, _)| HARMLESS.contains(&name.as_bytes()))
        .map(|(name, value)| bytes(&[&name.into_vec()[..], b"=", value.as_bytes()].concat()))
        .collect();
    let parts = [
        string(b"called"),
        string(name.as_bytes()),
        list(&numbers),
        list(&variables),
        integer(serial as i32),
        changed.map_or(b"N".to_vec(), |changed| {
            list(&changed.iter().map(|number| integer(*number as i32)).collect::<Vec<_>>())
        }),
    ];
    let value = [&b"("[..], &(parts.len() as u32).to_le_bytes(), &parts.concat()].concat();
    let message = [&(value.len() as u32).to_be_bytes()[..], &value].concat();
    // SAFETY: these descriptors are open, and are not closed here.
    let descriptors: Vec<BorrowedFd> = inherited
        .iter()
        .map(|number| unsafe { BorrowedFd::borrow_raw(*number) })
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(stream, &[io::IoSlice::new(&message)], &mut rights, SendFlags::NOSIGNAL)?;
    let mut rest = &message[sent..];
    while !rest.is_empty() {
        let sent = rustix::net::send(stream, rest, SendFlags::NOSIGNAL)?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// The descriptors that our commands inherit: the streams, and others such as those of make's jobserver.
fn find_inherited() -> Vec<RawFd> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let others = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        // SAFETY: only a question.
        .filter(|number| *number > 2 && unsafe { libc::fcntl(*number, libc::F_GETFD) } == 0);
    [0, 1, 2].into_iter().chain(others).take(MOST).collect()
}

/// A letter, and the number that comes with it; 0 if it is no number.
fn receive(stream: &mut UnixStream) -> io::Result<(u8, i32)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let size = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if size > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut value = vec![0; size];
    stream.read_exact(&mut value)?;
    Ok((head[0], parse_integer(&value).unwrap_or_default()))
}

fn integer(number: i32) -> Vec<u8> {
    [&b"i"[..], &number.to_le_bytes()].concat()
}

/// The first byte may have a mark, by which later parts of a value could refer to it.
fn parse_integer(value: &[u8]) -> Option<i32> {
    let (kind, number) = value.split_first()?;
    (kind & 0x7f == b'i').then_some(i32::from_le_bytes(number.try_into().ok()?))
}

fn bytes(text: &[u8]) -> Vec<u8> {
    [&b"s"[..], &(text.len() as u32).to_le_bytes(), text].concat()
}

/// A text of ASCII.
fn string(text: &[u8]) -> Vec<u8> {
    [&b"a"[..], &(text.len() as u32).to_le_bytes(), text].concat()
}

fn list(parts: &[Vec<u8>]) -> Vec<u8> {
    [&b"["[..], &(parts.len() as u32).to_le_bytes(), &parts.concat()].concat()
}

// ---- while the command runs

/// Passes signals on to the command until it ends, and ends in the same way.
fn attend(stream: &mut UnixStream, child: i32) -> i32 {
    let _ = stream.set_read_timeout(None);
    let Some(signals) = open_signals() else {
        return wait(stream, child);
    };
    loop {
        let mut both = [
            PollFd::new(&*stream, PollFlags::IN),
            PollFd::new(&signals, PollFlags::IN),
        ];
        if poll(&mut both, None).is_err() {
            continue;
        }
        let (has_ended, is_told) = (!both[0].revents().is_empty(), !both[1].revents().is_empty());
        if is_told {
            pass(stream.as_fd(), &signals);
        }
        if has_ended {
            return wait(stream, child);
        }
    }
}

/// The signals that are passed on, blocked from now on. Those that are ignored stay so.
fn open_signals() -> Option<OwnedFd> {
    // SAFETY: system calls with structures of ours. The descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for number in PASSED {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(number, std::ptr::null(), &mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut set, number);
            }
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        let signals = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if signals < 0 {
            libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
            return None;
        }
        Some(OwnedFd::from_raw_fd(signals))
    }
}

fn pass(stream: BorrowedFd, signals: &OwnedFd) {
    let mut told: MaybeUninit<libc::signalfd_siginfo> = MaybeUninit::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the system fills the structure if it returns its size.
    let number = unsafe {
        if libc::read(signals.as_raw_fd(), told.as_mut_ptr().cast(), size) != size as isize {
            return;
        }
        told.assume_init().ssi_signo as u8
    };
    let send = |number: u8| {
        let _ = rustix::net::send(stream, &[number], SendFlags::NOSIGNAL);
    };
    send(number);
    if i32::from(number) == libc::SIGTSTP {
        // SAFETY: stops this process until it gets SIGCONT.
        unsafe { libc::raise(libc::SIGSTOP) };
        send(libc::SIGCONT as u8);
    }
}

/// The exit status of the command. If it was ended by a signal, so is this process.
fn wait(stream: &mut UnixStream, child: i32) -> i32 {
    let Ok((ENDED, status)) = receive(stream) else {
        // 0 would be our own group.
        if child > 1 {
            // SAFETY: ends the processes that a lost resident has left.
            unsafe { libc::killpg(child, libc::SIGKILL) };
        }
        // Not `eprintln`, which panics if the reader has gone: then Python would run the command once more.
        let _ = writeln!(
            io::stderr(),
            "waf: the resident process was ended in the middle of the command: run it again"
        );
        return FAILED;
    };
    if status >= 0 {
        return status;
    }
    // SAFETY: ends this process as the command was ended.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, -status);
        if -status != libc::SIGKILL {
            libc::signal(-status, libc::SIG_DFL);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(-status);
    }
    128 - status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_python() {
        assert_eq!(integer(258), b"i\x02\x01\0\0");
        assert_eq!(
            list(&[bytes(b"ab"), string(b"c")]),
            b"[\x02\0\0\0s\x02\0\0\0aba\x01\0\0\0c"
        );
        for (value, number) in [
            (&b"\xe9\x02\x01\0\0"[..], Some(258)),
            (b"i\xff\xff\xff\xff", Some(-1)),
            (b"N", None),
            (b"", None),
            (b"i\0", None),
        ] {
            assert_eq!(parse_integer(value), number, "{value:?}");
        }
    }
}
