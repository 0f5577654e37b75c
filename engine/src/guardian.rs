//! The guardian: a process that outlives the engine by a moment, and cleans up after one that did not end by itself.
//!
//! It is the parent of the engine and holds the life lock with it. The engine notes in shared memory which commands run;
//! should it be killed, the guardian kills their process groups, and the lock is free only then. So a client that has
//! started another engine never runs a command beside a remnant of itself. Commands that an engine left on purpose, like
//! a server that one started in the background, are none of its business.
//!
//! The engine watches its guardian, too: should that be killed, the engine makes a stand-in, a child of its own that holds
//! the life lock and does the same. Only one difference remains: what the killed engine has left is no child of the
//! stand-in, so that it looks whether a group is as old as it must be before it kills it.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::Pid;

use crate::spawn::{set_disposition, SIGNALS};

/// How many commands can be noted; those above it have only the kernel's parent-death signal.
const BERTHS: usize = 8192;
const SIZE: usize = 2 * BERTHS * size_of::<AtomicI32>();
/// Killed processes are gone within milliseconds; one that the kernel cannot kill is not waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// The commands that run, in memory that the engine shares with its guardian and with the programs that it has parked.
pub struct Roster {
    berths: &'static [AtomicI32],
    free: Vec<usize>,
    memory: OwnedFd,
    tickets: Arc<Tickets>,
    /// The process that made this: the engine's parent, which watches it.
    guardian: i32,
    /// The lock that says that an engine lives, for stand-ins of the guardian.
    life: Option<OwnedFd>,
}

/// The other half of that memory: for what runs in the process group of a command, which the guardian needs not know.
pub struct Tickets {
    places: &'static [AtomicI32],
    free: Mutex<Vec<usize>>,
}

/// One of them, until it is dropped.
pub struct Ticket {
    tickets: Arc<Tickets>,
    number: usize,
}

impl Tickets {
    pub fn reserve(self: &Arc<Self>) -> Option<Ticket> {
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Ticket {
            tickets: self.clone(),
            number,
        })
    }
}

impl Ticket {
    /// Its place in the whole of the memory.
    pub fn number(&self) -> usize {
        BERTHS + self.number
    }

    pub fn place(&self) -> &AtomicI32 {
        &self.tickets.places[self.number]
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.place().store(0, Ordering::Release);
        let mut free = self.tickets.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.number);
    }
}

impl Roster {
    pub fn new() -> io::Result<Roster> {
        let memory = rustix::fs::memfd_create(c"wafd-roster", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, SIZE as u64)?;
        // SAFETY: fresh zeroed memory, shared over `fork`, never unmapped.
        let places: &'static [AtomicI32] = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let file = memory.as_raw_fd();
            let start = libc::mmap(ptr::null_mut(), SIZE, access, libc::MAP_SHARED, file, 0);
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            std::slice::from_raw_parts(start.cast(), 2 * BERTHS)
        };
        let (berths, places) = places.split_at(BERTHS);
        let free = || (0..BERTHS).rev().collect();
        Ok(Roster {
            berths,
            free: free(),
            memory,
            tickets: Arc::new(Tickets {
                places,
                free: Mutex::new(free()),
            }),
            guardian: std::process::id() as i32,
            life: None,
        })
    }

    /// In the engine, which holds this lock, as its guardian does.
    pub fn hold(&mut self, life: impl AsFd) {
        self.life = life.as_fd().try_clone_to_owned().ok();
    }

    /// In the engine: what tells of the guardian's end. An error says that it has ended, or cannot be watched.
    pub fn watch_guardian(&self) -> io::Result<OwnedFd> {
        open_process(self.guardian)
    }

    /// In the engine, whose guardian has ended: makes another.
    pub fn replace_guardian(&mut self) -> io::Result<OwnedFd> {
        // A stand-in that has ended was a child of ours.
        reap_one(self.guardian);
        let engine = open_process(std::process::id() as i32)?;
        // SAFETY: the copy has one thread, and leaves without what is to be done at the end of a program.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => unsafe {
                self.stand_in(&engine);
                libc::_exit(0)
            },
            pid => {
                self.guardian = pid;
                open_process(pid)
            }
        }
    }

    /// In the stand-in: waits for the engine's end, and cleans up.
    fn stand_in(&self, engine: &OwnedFd) {
        // SAFETY: changes the signals and the descriptors of this process, in which nothing else uses them.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, ptr::null_mut());
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        }
        // Whoever waits for the end of something of the engine's must not wait for ours.
        let kept = [Some(engine.as_raw_fd()), self.life.as_ref().map(AsRawFd::as_raw_fd)];
        close_all_but(kept.into_iter().flatten());
        self.life.iter().for_each(sign);
        let mut ended = [PollFd::new(engine, PollFlags::IN)];
        while poll(&mut ended, None) == Err(rustix::io::Errno::INTR) {}
        let end = uptime();
        let mut groups = self.groups();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let there = groups_before(end);
            groups.retain(|group| there.contains(group));
            if groups.is_empty() {
                break;
            }
            for group in &groups {
                // SAFETY: a group that is older than the engine's end, and was the engine's then.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The memory itself and its size, for programs that are to note themselves.
    pub fn share(&self) -> io::Result<(OwnedFd, usize)> {
        Ok((self.memory.as_fd().try_clone_to_owned()?, SIZE))
    }

    pub fn tickets(&self) -> Arc<Tickets> {
        self.tickets.clone()
    }

    /// A place for a command's process, which whoever starts it writes there at once.
    pub fn reserve(&mut self) -> Option<(usize, &'static AtomicI32)> {
        let berth = self.free.pop()?;
        Some((berth, &self.berths[berth]))
    }

    /// A place that is taken.
    pub fn place(&self, berth: usize) -> (usize, &'static AtomicI32) {
        (berth, &self.berths[berth])
    }

    /// Before the process is reaped: afterwards its number may be another's.
    pub fn strike(&mut self, berth: usize) {
        self.berths[berth].store(0, Ordering::Release);
        self.free.push(berth);
    }

    fn groups(&self) -> Vec<i32> {
        let pids = self.berths.iter().map(|b| b.load(Ordering::Acquire));
        pids.filter(|pid| *pid > 0).collect()
    }
}

/// Signals that the guardian passes on to the engine.
const PASSED_ON: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// In a guardian: says who holds the lock with the engine.
pub fn sign(life: impl AsFd) {
    let text = format!("{}\n", std::process::id());
    let life = life.as_fd();
    // Best effort: without it, one that is stopped is waited for.
    let _ = rustix::fs::ftruncate(life, 0).and_then(|()| rustix::io::pwrite(life, text.as_bytes(), 0));
}

/// The guardian that has signed last.
pub fn holder(life: impl AsFd) -> Option<Pid> {
    let mut text = [0; 16];
    let size = rustix::io::pread(life, &mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..size]).ok()?;
    Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
}

/// Waits for the engine to end and cleans up. Returns the engine's exit status. The signals are blocked by `prepare`.
pub fn watch(engine: i32, roster: &Roster) -> i32 {
    let signals = awaited();
    loop {
        // SAFETY: waits for a blocked signal; the set is ours.
        let signal = unsafe { libc::sigwaitinfo(&signals, ptr::null_mut()) };
        if PASSED_ON.contains(&signal) {
            // SAFETY: the engine is our child and not yet reaped.
            unsafe { libc::kill(engine, signal) };
        }
        while let Some((pid, status)) = reap() {
            if pid == engine {
                clean_up(&roster.groups());
                return if libc::WIFEXITED(status) {
                    libc::WEXITSTATUS(status)
                } else {
                    128 + libc::WTERMSIG(status)
                };
            }
        }
    }
}

/// Before the engine is forked: orphans of commands come to us rather than to init, so that we see them end; and no
/// signal is missed, whatever whoever started us did with them.
pub fn prepare() -> io::Result<()> {
    // SAFETY: changes a flag and the signals of this process.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        for signal in 1..=SIGNALS {
            set_disposition(signal, libc::SIG_DFL);
        }
        match libc::sigprocmask(libc::SIG_SETMASK, &awaited(), ptr::null_mut()) {
            0 => Ok(()),
            // It would not hear of the engine's end.
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// In the engine: the guardian's signals are not its own. Commands get those of their clients.
pub fn release_signals() {
    // SAFETY: changes the signals of this process.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        // A command that does not read its input is no reason to die.
        set_disposition(libc::SIGPIPE, libc::SIG_IGN);
        // Nor is a limit on the size of files: what is written into the store then fails.
        set_disposition(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

fn awaited() -> libc::sigset_t {
    // SAFETY: a set of our own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        for signal in PASSED_ON {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the kernel writes the status to where we have it.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

fn reap_one(pid: i32) {
    let mut status = 0;
    // SAFETY: the kernel writes the status to where we have it; one that is no child of ours is an error.
    unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
}

fn open_process(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

fn close_all_but(kept: impl Iterator<Item = i32>) {
    let kept: Vec<i32> = kept.collect();
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = listed.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for number in open.into_iter().filter(|number| *number > 2 && !kept.contains(number)) {
        // SAFETY: in a process that uses no other descriptor any more.
        unsafe { libc::close(number) };
    }
}

/// Since the machine was started, in the ticks in which the kernel tells when processes were.
fn uptime() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // SAFETY: asks for a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    time.tv_sec as u64 * ticks + time.tv_nsec as u64 * ticks / 1_000_000_000
}

/// The process groups with a living member that is older than that.
fn groups_before(end: u64) -> HashSet<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let (state, group, started) = (fields.first()?, fields.get(2)?, fields.get(19)?);
        let is_one = !["Z", "X"].contains(state) && started.parse::<u64>().ok()? <= end;
        is_one.then(|| group.parse().ok()).flatten()
    })
    .collect()
}

fn clean_up(groups: &[i32]) {
    let deadline = Instant::now() + PATIENCE;
    let mut left = groups.to_vec();
    while !left.is_empty() && Instant::now() < deadline {
        // SAFETY: groups of commands that nobody has reaped: their numbers are still theirs.
        left.retain(|group| unsafe { libc::kill(-group, libc::SIGKILL) } == 0);
        while reap().is_some() {}
        if !left.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
