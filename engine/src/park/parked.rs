//! One parked program: started once, and asked for a child per command.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{kill_process, Pid, PidfdFlags, Signal};

use super::facts::Facts;
use super::packet::{self, Request, ASKED};
use super::program::Identity;
use crate::observe::trace::{Arena, Place};
use crate::process::context::{self, Context};
use crate::process::prompt::make_prompt;
use crate::process::spawn::{Child, Launch, Spawner};
use crate::wire::Strings;

/// The time from its start until it is parked.
const START: Duration = Duration::from_secs(10);
/// The time from a request until the child enters main. If the machine is so busy that this is too short, parking is not
/// needed.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a caller waits that has other things to do. Children enter main within half a millisecond.
const MOMENT: Duration = Duration::from_millis(5);

/// A command did not start in a parked program, and never will.
#[derive(Debug)]
pub struct NotEntered(pub &'static str);

/// A library, or the loader's own list of libraries, as the program has loaded it.
#[derive(Debug, Hash)]
pub struct Part {
    path: CString,
    pub identity: Option<Identity>,
}

#[derive(Debug)]
pub struct Parked {
    pub pid: i32,
    /// The conditions that a command must meet to run in it.
    pub facts: Facts,
    /// Its own memory, in KiB.
    pub memory: u64,
    /// How many commands it ran.
    pub commands: AtomicU64,
    parts: Vec<Part>,
    /// The libraries on disk are not the ones that it has loaded.
    is_stale: AtomicBool,
    is_dead: AtomicBool,
    socket: OwnedFd,
    line: Mutex<Line>,
    moved: Condvar,
}

/// The present user of the socket. From a request to its answer, the socket belongs to one caller.
#[derive(Debug, Default)]
struct Line {
    is_claimed: bool,
    asked: u64,
    /// The request whose answer no thread waits for yet. Then the socket has no user either.
    owed: Option<Debt>,
    /// Answers that were read by other callers that wanted to ask next.
    heard: Vec<(Debt, io::Result<i32>)>,
}

/// A request whose answer was not waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debt(u64);

/// The result of a request by a caller that does not wait.
pub enum Brief {
    Answered(Result<Child, NotEntered>),
    /// The request was sent. Another thread must wait for the answer.
    Awaited(Debt),
    /// Another caller is asking it.
    Busy,
}

/// The right to ask a parked program, until this is dropped.
struct Claim<'a> {
    parked: &'a Parked,
}

impl Claim<'_> {
    /// Leaves the answer to the next caller that waits for it, or that wants to ask.
    fn owe(self) -> Debt {
        let mut line = self.parked.line();
        line.asked += 1;
        let debt = Debt(line.asked);
        line.owed = Some(debt);
        debt
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.parked.line().is_claimed = false;
        self.parked.moved.notify_all();
    }
}

/// What is needed to park programs.
pub struct Parking<'a> {
    pub library: &'a CStr,
    pub roster: (&'a OwnedFd, usize),
    /// Where observed commands put their records.
    pub arena: Option<&'a Arena>,
    pub null: &'a OwnedFd,
    /// An empty folder in which to run.
    pub folder: &'a Path,
    /// The engine's own context.
    pub context: &'a Context,
}

/// The obstacle of a changed environment.
const CHANGES: usize = 5;
/// A limit may be reached just now.
const CANNOT_FORK: &str = "it cannot fork before main";
const OBSTACLES: [&str; 10] = [
    "",
    "it reads more of its environment before main than can be noted",
    "it sets its locale before main",
    "it opens files before main",
    "it asks for its process or folder before main",
    "it changes its environment before main",
    "after a fork, its libc takes itself for the parked thread",
    "it has more libraries than can be looked at for each command",
    CANNOT_FORK,
    "it cannot be parked",
];

impl Parked {
    /// Starts a program, and waits until it is parked.
    pub fn start(
        parking: &Parking<'_>,
        spawner: &mut Spawner,
        path: &CStr,
        env: &Strings,
        stack: [u64; 2],
    ) -> Result<Parked, String> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|e| format!("a socket: {e}"))?;
        // If the library is not loaded, this variable does no harm.
        let argv = Strings::from_iter([path.to_bytes(), b"--version"]);
        let preload = [b"LD_PRELOAD=", parking.library.to_bytes()].concat();
        let added = [preload.as_slice(), b"WAFPARK=1"];
        let env_there = Strings::from_iter(env.iter().chain(added));
        let child = spawner
            .spawn(&Launch {
                argv: &argv,
                env: &env_there,
                cwd: parking.folder.as_os_str().as_encoded_bytes(),
                stdio: [theirs.as_fd(), parking.null.as_fd(), parking.null.as_fd()],
                new_session: false,
                context: parking.context,
                adjustments: &[],
                roster_entry: None,
                log: Place::default(),
                own: [Some(context::stack(stack)), None, None],
            })
            .map_err(|why| format!("it cannot be started: {why:?}"))?;
        drop(theirs);
        let parked = greet(&ours, parking, env_there.bytes()).and_then(|names| describe(&child, &names, env, stack));
        make_prompt(child.pid);
        match parked {
            Ok(Description { facts, parts, is_stale }) => Ok(Parked {
                pid: child.pid,
                facts,
                memory: own_memory(child.pid),
                commands: AtomicU64::new(0),
                parts,
                is_stale: is_stale.into(),
                is_dead: AtomicBool::new(false),
                socket: ours,
                line: Mutex::default(),
                moved: Condvar::new(),
            }),
            Err(why) => {
                kill(child.pid);
                crate::process::spawn::reap(child.pid);
                Err(why)
            }
        }
    }

    /// Turns a child of it into a command. `ticket` is the roster entry of the request, which must be free.
    pub fn ask(&self, request: &Request<'_>, ticket: &AtomicI32) -> Result<Child, NotEntered> {
        let claim = self.claim();
        self.send(request, ticket)?;
        let answer = wait(&self.socket, ANSWER);
        drop(claim);
        self.enter(answer, ticket)
    }

    /// The same for a caller that does not wait. If there is no answer at once, another thread must wait for it.
    pub fn ask_briefly(&self, request: &Request<'_>, ticket: &AtomicI32) -> Brief {
        let Some(claim) = self.try_claim() else {
            return Brief::Busy;
        };
        if let Err(why) = self.send(request, ticket) {
            return Brief::Answered(Err(why));
        }
        match wait(&self.socket, MOMENT) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Brief::Awaited(claim.owe()),
            answer => Brief::Answered(self.enter(answer, ticket)),
        }
    }

    /// Waits for an answer that another caller did not wait for.
    pub fn resume(&self, debt: Debt, ticket: &AtomicI32) -> Result<Child, NotEntered> {
        let mut line = self.line();
        let heard = loop {
            if let Some(at) = line.heard.iter().position(|(of, _)| *of == debt) {
                break Some(line.heard.swap_remove(at).1);
            }
            if line.owed == Some(debt) {
                line.owed = None;
                line.is_claimed = true;
                break None;
            }
            line = self.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        };
        drop(line);
        let answer = heard.unwrap_or_else(|| {
            let _claim = Claim { parked: self };
            wait(&self.socket, ANSWER)
        });
        self.enter(answer, ticket)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before asking, reads the answer that another caller has left, because that caller may come only after this one.
    fn claim(&self) -> Claim<'_> {
        let mut line = self.line();
        while line.is_claimed {
            line = self.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        line.is_claimed = true;
        let owed = line.owed.take();
        drop(line);
        let claim = Claim { parked: self };
        if let Some(debt) = owed {
            let answer = wait(&self.socket, ANSWER);
            if answer.is_err() {
                self.is_dead.store(true, Ordering::SeqCst);
            }
            self.line().heard.push((debt, answer));
            self.moved.notify_all();
        }
        claim
    }

    fn try_claim(&self) -> Option<Claim<'_>> {
        let mut line = self.line();
        if line.is_claimed || line.owed.is_some() {
            return None;
        }
        line.is_claimed = true;
        Some(Claim { parked: self })
    }

    fn send(&self, request: &Request<'_>, ticket: &AtomicI32) -> Result<(), NotEntered> {
        if !request.fits() {
            return Err(NotEntered("its command line is too long"));
        }
        if self.is_dead() {
            return Err(NotEntered("the parked program has ended"));
        }
        ticket.store(ASKED, Ordering::SeqCst);
        match request.send(self.socket.as_fd()) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                ticket.store(0, Ordering::SeqCst);
                Err(NotEntered("its command line is too long"))
            }
            // The request was not received.
            Err(error) => self.give_up(ticket, &error).map(|_| ()),
        }
    }

    /// Turns the answer into a result.
    fn enter(&self, answer: io::Result<i32>, ticket: &AtomicI32) -> Result<Child, NotEntered> {
        match answer {
            Ok(pid) if pid > 0 => self.welcome(pid),
            Ok(error) => {
                ticket.store(0, Ordering::SeqCst);
                if -error == libc::ESTALE {
                    self.is_stale.store(true, Ordering::SeqCst);
                    return Err(NotEntered("a library of it was exchanged"));
                }
                Err(NotEntered("it could not be given what its client has"))
            }
            Err(error) => self.give_up(ticket, &error),
        }
    }

    /// The parked program or its child is lost. The side that has the ticket decides whether the command runs.
    fn give_up(&self, ticket: &AtomicI32, error: &io::Error) -> Result<Child, NotEntered> {
        self.is_dead.store(true, Ordering::SeqCst);
        let taken = ticket.compare_exchange(ASKED, 0, Ordering::SeqCst, Ordering::SeqCst);
        kill(self.pid);
        log::warn!("parked process {}: {error}", self.pid);
        match taken {
            Ok(_) => Err(NotEntered("the parked program did not answer")),
            Err(pid) => self.welcome(pid),
        }
    }

    fn welcome(&self, pid: i32) -> Result<Child, NotEntered> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let pidfd = Pid::from_raw(pid).ok_or(NotEntered("no process"))?;
        // The child is ours and is not reaped, so the number is still its own.
        let pidfd = rustix::process::pidfd_open(pidfd, PidfdFlags::empty());
        match pidfd {
            Ok(pidfd) => Ok(Child { pid, pidfd }),
            Err(_) => {
                // It runs, but its end would not be seen. So it must not go on.
                kill(pid);
                crate::process::spawn::reap(pid);
                Err(NotEntered("no descriptors are left"))
            }
        }
    }

    /// The libraries that it has loaded.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    /// A child has found that a library is another file by now. It has not become a command.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::SeqCst)
    }

    /// The processor time that it used itself, in nanoseconds.
    pub fn own_time(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.pid)).unwrap_or_default();
        stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// Ends it. Commands that already run in its children go on.
    pub fn end(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        kill(self.pid);
    }
}

/// Whether the reason why a program could not be parked may be gone when it is tried again.
pub fn may_pass(words: &str) -> bool {
    words == CANNOT_FORK
}

/// Ends one process, and not its group: a child that has its ticket may still be in that group.
fn kill(pid: i32) {
    if let Some(process) = Pid::from_raw(pid) {
        let _ = kill_process(process, Signal::KILL);
    }
}

/// Reaps what has ended in the group of a parked program: itself, and children that never became commands. Returns true
/// when nothing is left.
pub fn bury(pid: i32) -> bool {
    loop {
        // SAFETY: no status is asked for.
        match unsafe { libc::waitpid(-pid, std::ptr::null_mut(), libc::WNOHANG) } {
            0 => return false,
            -1 => return true,
            _ => {}
        }
    }
}

fn readable(socket: &OwnedFd, within: Duration) -> io::Result<()> {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait(socket: &OwnedFd, patience: Duration) -> io::Result<i32> {
    readable(socket, patience)?;
    packet::receive_answer(socket.as_fd())
}

/// Sends the roster to a fresh program, and receives the variables that it has read.
fn greet(socket: &OwnedFd, parking: &Parking<'_>, env: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let (roster, size) = parking.roster;
    let ready = packet::send_welcome(socket.as_fd(), (roster.as_fd(), size), parking.arena)
        .and_then(|()| readable(socket, START))
        .and_then(|()| packet::receive_ready(socket.as_fd()));
    let ready = ready.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => "it does not come to its main".to_owned(),
        _ => "the library that parks cannot be loaded into it".to_owned(),
    })?;
    match ready.obstacle as usize {
        0 if ready.environment != packet::digest(env) => Err(OBSTACLES[CHANGES].to_owned()),
        0 => Ok(ready.names),
        n => Err(OBSTACLES[n.min(OBSTACLES.len() - 1)].to_owned()),
    }
}

/// The state of a parked program, seen from outside.
struct Description {
    facts: Facts,
    parts: Vec<Part>,
    is_stale: bool,
}

/// Checks from outside a program that says that it is parked.
fn describe(child: &Child, names: &[Vec<u8>], env: &Strings, stack: [u64; 2]) -> Result<Description, String> {
    let pid = child.pid;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| format!("its status: {e}"))?;
    let field = |name| crate::process::place::field(&status, name).unwrap_or("");
    if field("Threads") != "1" {
        return Err("it has threads before main".to_owned());
    }
    let handled = [field("SigCgt"), field("SigIgn"), field("SigBlk")];
    if handled.iter().any(|mask| u64::from_str_radix(mask, 16) != Ok(0)) {
        return Err("it handles signals before main".to_owned());
    }
    let open = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    // Its standard streams and the socket.
    if open != 4 {
        return Err("it has files open before main".to_owned());
    }
    let read_maps = || fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|e| format!("its memory: {e}"));
    let maps = read_maps()?;
    if ["libasan", "libtsan", "libmsan", "liblsan"]
        .iter()
        .any(|name| maps.contains(name))
    {
        return Err("it is built with a sanitizer".to_owned());
    }
    let mut paths: Vec<&str> = maps.lines().filter_map(mapped_file).collect();
    paths.extend(["/etc/ld.so.cache", "/etc/ld.so.preload"]);
    paths.sort_unstable();
    paths.dedup();
    let parts = paths.into_iter().filter_map(|path| {
        let path = CString::new(path).ok()?;
        let identity = Identity::at(&path);
        Some(Part { path, identity })
    });
    let parts = parts.collect();
    // If the files that were checked, here and by the program itself, still have their names, they are the mapped ones.
    let is_stale = maps.lines().any(is_of_removed_file) || read_maps()? != maps;
    Ok(Description {
        facts: Facts::of(names, env, stack),
        parts,
        is_stale,
    })
}

/// A line of /proc/PID/maps with code of a file that has lost its name.
fn is_of_removed_file(line: &str) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let is_code = fields.next().is_some_and(|rights| rights.contains('x'));
    is_code && line.contains('/') && line.ends_with(" (deleted)") && !line.contains(" /memfd:")
}

/// The file in a line of /proc/PID/maps.
fn mapped_file(line: &str) -> Option<&str> {
    let at = line.find('/')?;
    let path = &line[at..];
    (!path.ends_with(" (deleted)") && !path.starts_with("/memfd:")).then_some(path)
}

fn own_memory(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    // Memory that remains its own when its children share the rest.
    let own = rollup.lines().filter(|line| line.starts_with("Anonymous:"));
    own.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests;
