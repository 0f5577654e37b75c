//! `waf` before Python: it gives the answer that a resident process has written down, or starts the `waf` of Python.
//!
//! ```text
//! argv, variables, folder ─► caller ─► record ─► facts ─┬─► its output, if it has an answer
//!                                                       ├─► call: the resident process runs Waf, if something that Waf looks at has changed, or there is no answer
//!                                                       └─► waf-python, if there is no record, or it does not answer
//! ```
//!
//! A record holds all that a run of Waf has looked at and printed (`waflib_extras/resident/record.py`). It has changed nothing, so its output
//! is right as long as nothing of that has changed. A run that was begun ahead of its call has a record without output: by it the resident
//! process is told what has changed. `docs/resident.md` says what is compared. In any doubt, Python decides.

pub mod call;
pub mod caller;
pub mod facts;
pub mod record;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic;
use std::path::Path;
use std::time::Instant;

use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::process::replace::exec_program;
use caller::Caller;
use facts::Change;
use record::{Piece, Record};

/// The `waf` of Python, which is installed beside ours.
pub const PYTHON: &str = "waf-python";
/// Tells it which record was looked for. It takes the variable away before anything else looks.
pub const CALLED_BY: &str = "WAF_CALLED_BY";
const NOT_FOUND: i32 = 127;

/// Runs the command line; returns only if there is no Python's `waf`. `path` is how the system was told to find this program.
pub fn main(args: &[OsString], path: &Path) -> i32 {
    let began = Instant::now();
    let Some(python) = caller::find_beside(path, PYTHON) else {
        eprintln!("waf: there is no {PYTHON} beside it: install waflib-extras again");
        return NOT_FOUND;
    };
    // A mistake of ours is no reason to fail: Python runs the command line.
    panic::set_hook(Box::new(|_| ()));
    let caller = Caller::find(args, &python);
    if let Ok(Some(status)) = panic::catch_unwind(|| run(caller.as_ref()?, began)) {
        return status;
    }
    match caller {
        Some(caller) => std::env::set_var(CALLED_BY, caller.name()),
        None => std::env::remove_var(CALLED_BY),
    }
    let words = args.get(1..).unwrap_or_default();
    let error = exec_program(python.as_os_str(), python.as_os_str(), words);
    eprintln!("waf: {}: {error}: install waflib-extras again", python.display());
    NOT_FOUND
}

/// Runs the command line by what its record says, if there is one. The exit status.
fn run(caller: &Caller, began: Instant) -> Option<i32> {
    let bytes = record::read(&caller.record()?)?;
    let record = Record::parse(&bytes)?;
    if record.key != caller.key() {
        return None;
    }
    match facts::find_change(&record) {
        Change::Nothing => {
            print(record.pieces.as_deref()?, began);
            tell(&record);
            Some(0)
        }
        Change::Run(changed) => call::call(&record, &caller.name(), changed.as_deref()),
        Change::Start => None,
    }
}

/// Prints an answer.
fn print(pieces: &[Piece], began: Instant) {
    // A reader that has gone is no error for Python either.
    // SAFETY: only a system call.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    for piece in pieces {
        let time = format!("{:.3}s", began.elapsed().as_secs_f64());
        let text = piece.text.unwrap_or(time.as_bytes());
        // SAFETY: the stream is open, as `Caller::find` has seen, and stays so.
        let mut stream = ManuallyDrop::new(unsafe { File::from_raw_fd(piece.stream) });
        if stream.write_all(text).is_err() {
            break;
        }
    }
}

/// Tells the resident process that its record has answered. Whether it hears that does not matter, and it is not waited for.
fn tell(record: &Record) {
    if let Some(socket) = dial(record) {
        let _ = net::send(&socket, record.note, SendFlags::NOSIGNAL);
    }
}

/// A connection to the resident process, which does not block. There is none if too many others wait for it.
fn dial(record: &Record) -> Option<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    net::connect(&socket, &SocketAddrUnix::new(record.socket).ok()?).ok()?;
    Some(socket)
}

/// The path by which the system was told to find this program.
pub fn own_path() -> OsString {
    // SAFETY: the system has put a string there, or nothing.
    unsafe {
        match libc::getauxval(libc::AT_EXECFN) {
            0 => OsString::new(),
            address => std::os::unix::ffi::OsStringExt::from_vec(
                std::ffi::CStr::from_ptr(address as *const libc::c_char)
                    .to_bytes()
                    .to_vec(),
            ),
        }
    }
}

/// A path as system calls take it.
fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
