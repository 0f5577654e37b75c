//! Makes sure that one engine runs: the start lock, the life lock, and the steps from a program to a daemon.
//!
//! ```text
//! start lock ─► answers already? ─► life lock ─► fork: guardian ─► fork: engine ─► listens ─► ready
//! ```
//!
//! If twenty programs start an engine at once, they queue at the start lock. The first one makes the engine, and the
//! others find that it answers.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use log::{error, info};
use rustix::fs::{flock, FlockOperation};

use super::{is_end, Client, Unserved};
use crate::files::folder::{Folder, ENGINE};
use crate::files::regular;
use crate::process::guardian::{self, Guardian};
use crate::process::headroom;
use crate::process::readable::is_readable;
use crate::process::roster::{self, Roster};
use crate::server::{Options, Server};
use crate::wire::Why;

/// How long another start may hold the start lock, and an engine that is leaving the life lock.
const LOCK_TIME: Duration = Duration::from_secs(10);
/// How long an engine may take from its fork to its socket.
const START_TIME: Duration = Duration::from_secs(10);
/// How often we check, while we wait for a lock, whether its holder was stopped.
const LOOK: Duration = Duration::from_millis(250);
const LOG_CAP: u64 = 1 << 20;

/// How to reach the running engine.
pub enum Ready {
    Unix(PathBuf),
    Tcp(u16, PathBuf),
}

impl std::fmt::Display for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ready::Unix(socket) => write!(f, "ready unix {}", socket.display()),
            Ready::Tcp(port, token) => write!(f, "ready tcp {port} {}", token.display()),
        }
    }
}

/// Starts an engine unless one answers. Returns when it is ready.
pub fn ensure(options: Options) -> Result<Ready, String> {
    let folder = options.folder.clone();
    folder.make()?;
    let start_lock = lock(folder.start_lock(), "another start is under way")?;
    if let Some(ready) = answers(&options)? {
        return Ok(ready);
    }
    if let Some(reason) = headroom::lacks() {
        return Err(reason);
    }
    let life_lock = lock(folder.life_lock(), "an engine lives but does not listen; `kill` it")?;
    let tcp = options.tcp;
    let (mut report_read, _turn) = daemonize(options, life_lock, start_lock)?;
    wait_until_ready(&mut report_read)?;
    ready(&folder, tcp)
}

/// Serves in the foreground, with the log on standard error. Returns the exit status.
pub fn foreground(options: Options) -> Result<i32, String> {
    let folder = options.folder.clone();
    folder.make()?;
    let start_lock = lock(folder.start_lock(), "another start is under way")?;
    if answers(&options)?.is_some() {
        return Err("an engine runs already; `wafd stop` ends it".to_owned());
    }
    let life_lock = lock(folder.life_lock(), "an engine lives but does not listen; `kill` it")?;
    let tcp = options.tcp;
    let (mut report_read, report_write) = pipe().map_err(|e| format!("make a pipe: {e}"))?;
    let roster = make_roster(&folder).map_err(|e| format!("map memory: {e}"))?;
    close_inherited();
    guardian::prepare().map_err(|e| format!("block signals: {e}"))?;
    let guardian = Guardian::of(std::process::id() as i32, &life_lock);
    match fork().map_err(|e| format!("fork: {e}"))? {
        0 => {
            drop(start_lock);
            std::process::exit(engine(options, roster, guardian, report_write))
        }
        pid => {
            drop(report_write);
            guardian::sign(&life_lock);
            wait_until_ready(&mut report_read)?;
            // If the caller has closed standard output, the engine serves all the same.
            let _ = writeln!(io::stdout(), "{}", ready(&folder, tcp)?);
            drop(start_lock);
            Ok(guardian::watch(pid, &roster))
        }
    }
}

fn ready(folder: &Folder, tcp: bool) -> Result<Ready, String> {
    if !tcp {
        return Ok(Ready::Unix(folder.socket()));
    }
    let (port, _) = folder
        .read_token()
        .map_err(|e| format!("read {}: {e}", folder.token().display()))?;
    Ok(Ready::Tcp(port, folder.token()))
}

/// Asks whether a running engine answers, and for its TCP port if that is wanted.
fn answers(options: &Options) -> Result<Option<Ready>, String> {
    match Client::connect(&options.folder, [0; 16], 0, b"wafd start") {
        Ok(mut client) => {
            if options.tcp {
                client.listen().map_err(|e| format!("open the TCP port: {e}"))?;
            }
            ready(&options.folder, options.tcp).map(Some)
        }
        Err(Unserved::Absent(_) | Unserved::Refused(Why::Leaving, _)) => Ok(None),
        // The engine was just leaving.
        Err(Unserved::Lost(e)) if is_end(&e) => Ok(None),
        Err(unserved) => Err(unserved.to_string()),
    }
}

/// Waits for a lock until the deadline. A signal interrupts the wait.
fn lock(path: PathBuf, otherwise: &str) -> Result<File, String> {
    let shown = path.display().to_string();
    regular::make_way(&path);
    let file = regular::open_lock(&path).map_err(|e| format!("open {shown}: {e}"))?;
    let deadline = Instant::now() + LOCK_TIME;
    let locked = loop {
        interrupt_after(LOOK);
        match flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) if Instant::now() < deadline => wake_holder(&file),
            other => break other,
        }
    };
    interrupt_after(Duration::ZERO);
    match locked {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::INTR) => Err(format!("{shown} is held: {otherwise}")),
        Err(error) => Err(format!("lock {shown}: {error}")),
    }
}

/// A guardian that was stopped by a signal would not clean up after its engine, and would hold the lock for ever.
fn wake_holder(life_lock: &File) {
    let Some(pid) = guardian::holder(life_lock) else { return };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process number may have been reused: only a stopped process with our name gets the signal.
    if stat.contains("(wafd) T ") {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
    }
}

/// Has the kernel interrupt system calls each time that so much time has passed. A duration of zero ends that.
fn interrupt_after(time: Duration) {
    extern "C" fn do_nothing(_: libc::c_int) {}
    // SAFETY: a handler that does nothing, without SA_RESTART, and a timer of this process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let value = libc::timeval {
            tv_sec: time.as_secs() as libc::time_t,
            tv_usec: time.subsec_micros() as libc::suseconds_t,
        };
        // The timer repeats: a signal just before the call interrupts nothing.
        let timer = libc::itimerval {
            it_interval: value,
            it_value: value,
        };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

fn pipe() -> io::Result<(File, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((read.into(), write.into()))
}

fn fork() -> io::Result<i32> {
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Forks the guardian and the engine into the background. The engine's first report can be read from the result.
///
/// The start lock stays with the caller alone: a lock is held as long as any process has it open.
fn daemonize(options: Options, life_lock: File, start_lock: File) -> Result<(File, File), String> {
    let fail = |what: &str, e: io::Error| format!("{what}: {e}");
    let log = open_log(&options).map_err(|e| fail("open the log", e))?;
    let (report_read, report_write) = pipe().map_err(|e| fail("make a pipe", e))?;
    if fork().map_err(|e| fail("fork", e))? > 0 {
        return Ok((report_read, start_lock));
    }
    // From here on, only `report` tells the caller of a failure.
    drop((report_read, start_lock));
    let status = match detach(log, &options.folder) {
        Ok(roster) => guard(options, roster, life_lock, report_write),
        Err(error) => report_failure(&report_write, &format!("become a daemon: {error}")),
    };
    std::process::exit(status);
}

fn guard(options: Options, roster: Roster, life_lock: File, report_write: File) -> i32 {
    let guardian = Guardian::of(std::process::id() as i32, &life_lock);
    match fork() {
        Err(error) => report_failure(&report_write, &format!("fork: {error}")),
        Ok(0) => engine(options, roster, guardian, report_write),
        Ok(pid) => {
            drop(report_write);
            guardian::sign(&life_lock);
            guardian::watch(pid, &roster)
        }
    }
}

/// Leaves the terminal, session, folder and streams of the caller.
fn detach(log: File, folder: &Folder) -> io::Result<Roster> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null: OwnedFd = File::open("/dev/null")?.into();
    for (from, to) in [(null.as_raw_fd(), 0), (log.as_raw_fd(), 1), (log.as_raw_fd(), 2)] {
        // SAFETY: replaces standard streams, which Rust's own handles name by number.
        if unsafe { libc::dup2(from, to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    close_inherited();
    guardian::prepare()?;
    make_roster(folder)
}

/// An engine that was killed together with its guardian may have left processes behind, which are ended first. If it
/// still lives, it keeps the name.
fn make_roster(folder: &Folder) -> io::Result<Roster> {
    let name = roster::name_of(folder.path());
    let is_free = guardian::clean_after_another(&name);
    Roster::new(is_free.then_some(name))
}

/// Closes descriptors that our caller had open without close-on-exec. We would hold them for as long as we live, and a
/// process that waits for the end of a pipe would wait that long.
fn close_inherited() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<i32> = open
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|n| *n > 2) {
        // SAFETY: reads a flag, and closes only descriptors without close-on-exec. Ours all have it.
        unsafe {
            let flags = libc::fcntl(number, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                libc::close(number);
            }
        }
    }
}

fn open_log(options: &Options) -> io::Result<File> {
    let path = options.folder.log();
    regular::make_way(&path);
    if fs::metadata(&path).is_ok_and(|m| m.len() > LOG_CAP) {
        fs::rename(&path, options.folder.old_log())?;
    }
    regular::append(&path)
}

/// The engine's own process: listens, reports that, serves. The life lock is held until the process ends.
fn engine(options: Options, roster: Roster, guardian: Guardian, mut report_write: File) -> i32 {
    guardian::release_signals();
    info!("wafd {ENGINE} starts, process {}", std::process::id());
    let served = listen(&options).and_then(|unix| Server::new(options, unix, roster, guardian));
    let server = match served {
        Ok(server) => server,
        Err(error) => return report_failure(&report_write, &error.to_string()),
    };
    // The caller may be gone by now, which changes nothing.
    let _ = report_write.write_all(b"r");
    drop(report_write);
    match server.run() {
        Ok(()) => 0,
        Err(error) => {
            error!("the event loop failed: {error}");
            1
        }
    }
}

/// The socket gets its final name only when it listens, so that no client is refused in between.
fn listen(options: &Options) -> io::Result<UnixListener> {
    let socket = options.folder.socket();
    let fresh = socket.with_extension("new");
    let _ = fs::remove_file(&fresh);
    // Notes of clients that could not reach the last engine are obsolete.
    let _ = fs::remove_file(options.folder.trouble());
    // The token of an engine that was killed: its port is not ours.
    let _ = fs::remove_file(options.folder.token());
    // SAFETY: sets the umask of this process. Commands get the umask of their client.
    unsafe { libc::umask(0o077) };
    let listener = UnixListener::bind(&fresh).map_err(|e| with_path("make", &fresh, &e))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).map_err(|e| with_path("restrict", &fresh, &e))?;
    listener.set_nonblocking(true)?;
    match listener.accept() {
        // If the system lets no client in, no client could tell us to leave.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(with_path("accept at", &fresh, &error)),
        _ => {}
    }
    fs::rename(&fresh, &socket).map_err(|e| with_path("make", &socket, &e))?;
    Ok(listener)
}

fn with_path(what: &str, path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

fn report_failure(mut report_write: &File, what: &str) -> i32 {
    error!("{what}");
    let _ = report_write.write_all(what.as_bytes());
    1
}

/// Waits for the engine's first report.
fn wait_until_ready(report_read: &mut File) -> Result<(), String> {
    match is_readable(&*report_read, Instant::now() + START_TIME) {
        Ok(true) => {}
        Ok(false) => return Err("the engine did not start in time; see its log".to_owned()),
        Err(error) => return Err(format!("wait for the engine: {error}")),
    }
    let mut word = [0; 1];
    match report_read.read(&mut word) {
        Ok(1) if word == *b"r" => Ok(()),
        Ok(1) => {
            let mut rest = String::from_utf8_lossy(&word).into_owned();
            let _ = report_read.read_to_string(&mut rest);
            Err(rest)
        }
        _ => Err("the engine ended before it listened; see its log".to_owned()),
    }
}
