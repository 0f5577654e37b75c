//! The second witness: observes programs into which `libwafpark.so` cannot be loaded, such as static ones and those of Go.
//!
//! ```text
//! a program or the engine ─► wafd witness PROGRAM ARGV… ─┬─► becomes the program, once it is traced
//!                                                        └─► the tracer, a child of init ─► notes in the command's trace region
//! ```
//!
//! It sees all system calls, and nothing of what a program does by itself, so all of its variables count. It costs nothing
//! where it is not needed. Where tracing is not allowed, the program runs unobserved, and the command is not stored.

mod calls;
mod memory;
mod notes;
mod state;
mod tracer;

use std::ffi::{CStr, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use libc::{c_char, c_int};

use self::notes::Notes;
use self::tracer::{seize, Tracer};
use crate::wire::Strings;

/// The first word of its command line.
pub const WORD: &CStr = c"witness";
/// The address space that it needs to begin, as `WAFPARK_WITNESS_ROOM`.
pub const ROOM: u64 = 1 << 30;
const VARIABLE: &[u8] = b"WAFPARK_TRACE=";
/// A program that another process still has open for writing cannot be executed yet.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// How long the tracer may take to begin.
const PATIENCE: c_int = 5_000; // milliseconds
const NOT_FOUND: c_int = 127;

/// Becomes the program that `argv` names after our own words, followed by its arguments. Returns if that fails.
///
/// # Safety
/// As the system calls `main`: two lists of strings that end with a zero. Nothing has set up signals or threads yet.
pub unsafe fn launch(argv: *const *const c_char) -> c_int {
    // SAFETY: the list has these words, or ends before.
    let (program, argv) = unsafe {
        let words = [0, 1, 2].map(|at| *argv.add(at));
        if words.iter().any(|word| word.is_null()) || (*argv.add(3)).is_null() {
            eprintln!("wafd: witness is for the engine's own use");
            return NOT_FOUND;
        }
        (CStr::from_ptr(words[2]), argv.add(3))
    };
    let (environment, trace) = take_environment();
    if let Some(trace) = trace {
        // Where tracing is refused, the program runs unobserved.
        let _ = observe(program, &trace);
    }
    for _ in 0..ATTEMPTS {
        // SAFETY: lists of strings that end with a zero.
        unsafe { libc::execve(program.as_ptr(), argv, environment.as_ptr()) };
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::ETXTBSY) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let error = std::io::Error::last_os_error();
    eprintln!("wafd: {}: {error}", program.to_string_lossy());
    NOT_FOUND
}

/// The program's environment, and the variable that was put into it for us.
fn take_environment() -> (Vec<*const c_char>, Option<Vec<u8>>) {
    extern "C" {
        static environ: *const *const c_char;
    }
    let (mut kept, mut trace) = (Vec::new(), None);
    // SAFETY: the system's list of variables, which ends with a zero; there is no other thread to change it.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            match CStr::from_ptr(*at).to_bytes().strip_prefix(VARIABLE) {
                Some(value) => trace = Some(value.to_vec()),
                None => kept.push(*at),
            }
            at = at.add(1);
        }
    }
    kept.push(ptr::null());
    (kept, trace)
}

/// Lets another process trace this one. The tracer must not be a child of this process: the program must not find a child
/// that it has not made.
fn observe(program: &CStr, trace: &[u8]) -> Option<()> {
    let (notes, token) = Notes::open(trace)?;
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: asks for a number.
    let own = unsafe { libc::getpid() };
    let tracer = Tracer::new(notes, own, token, Path::new(OsStr::from_bytes(program.to_bytes())));
    // SAFETY: plain system calls; this process has one thread, and so each fork may do all.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return None;
        }
        // For systems where only a parent may trace.
        libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::MAX, 0, 0, 0);
        let child = libc::fork();
        if child == 0 {
            if libc::fork() == 0 {
                trace_process(own, tracer, ends[1]);
            }
            libc::_exit(0);
        }
        libc::close(ends[1]);
        if child > 0 {
            // If the ends of children are ignored, `wait` reports that there is none.
            libc::waitpid(child, ptr::null_mut(), 0);
            wait_for(ends[0]);
        }
        libc::close(ends[0]);
        libc::prctl(libc::PR_SET_PTRACER, 0, 0, 0, 0);
    }
    Some(())
}

/// Waits until something comes, or the other end is closed.
fn wait_for(file: RawFd) {
    let mut polled = libc::pollfd {
        fd: file,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one file, which is open.
    unsafe { libc::poll(&mut polled, 1, PATIENCE) };
}

/// The tracer. It holds nothing open for whose end the program's readers would wait, and does not end with a terminal.
fn trace_process(process: i32, mut tracer: Tracer, told: RawFd) -> ! {
    // SAFETY: plain system calls; files are open as long as they are used.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, ptr::null_mut());
        let _ = libc::chdir(c"/".as_ptr());
        libc::dup2(told, 0);
        // Not libc's function: glibc has it from 2.34 on only.
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        if seize(process) {
            tracer.run(|| {
                libc::close(0);
            });
        }
        libc::_exit(0)
    }
}

/// The command line with which a program is started below the witness, which has this path.
pub fn command(witness: &str, program: &[u8], argv: &Strings) -> Strings {
    let ours = [witness.as_bytes(), WORD.to_bytes(), program];
    ours.into_iter().chain(argv.iter()).collect()
}
