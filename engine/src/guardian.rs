//! The guardian: a process that outlives the engine by a moment, and cleans up after one that did not end by itself.
//!
//! It is the parent of the engine and holds the life lock with it. The engine notes in shared memory which commands run;
//! should it be killed, the guardian kills their process groups, and the lock is free only then. So a client that has
//! started another engine never runs a command beside a remnant of itself. Commands that an engine left on purpose, like
//! a server that one started in the background, are none of its business.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
        })
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
pub fn prepare() {
    // SAFETY: changes a flag and the signals of this process.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        for signal in 1..=SIGNALS {
            set_disposition(signal, libc::SIG_DFL);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &awaited(), ptr::null_mut());
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
