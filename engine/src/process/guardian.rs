//! The guardian: a process that outlives the engine by a moment, and cleans up if the engine did not end by itself.
//!
//! It is the parent of the engine, and holds the life lock together with it. The engine notes in shared memory which
//! commands run. If the engine is killed, the guardian kills their process groups, and only then is the lock free. So a
//! client that has started another engine never runs a command beside a remnant of itself. The guardian does not touch
//! processes that a command started in the background on purpose, such as a server.
//!
//! The engine watches its guardian, too. If the guardian is killed, the engine makes a stand-in, a child of its own that
//! holds the life lock and does the same. There is one difference: processes that the killed engine leaves are no children
//! of the stand-in. So it kills a group only if the group is old enough to be the engine's.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::Pid;

use super::processes::{self, Process};
use super::roster::{is_drawn, Remains, Roster};
use super::spawn::{set_disposition, signal_set, SIGNALS};

/// The parts of compilers that have temporary files between them, whose names the driver has chosen.
const PARTS: [&[u8]; 5] = [b"cc1", b"cc1plus", b"f951", b"lto1", b"as"];
/// Killed processes are gone within milliseconds. One that the kernel cannot kill is not waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many seconds after its last entry an engine has surely started no further process.
const LATEST: u64 = 10;

/// The engine's view of its guardian.
pub struct Guardian {
    process: i32,
    /// The lock that says that an engine lives, to be handed to stand-ins.
    life: Option<OwnedFd>,
}

impl Guardian {
    /// The process that has forked the engine. Both hold this lock.
    pub fn of(process: i32, life: impl AsFd) -> Guardian {
        Guardian {
            process,
            life: life.as_fd().try_clone_to_owned().ok(),
        }
    }

    /// A descriptor that reports its end. An error means that it has ended, or cannot be watched.
    pub fn watch(&self) -> io::Result<OwnedFd> {
        open_process(self.process)
    }

    /// The guardian has ended: makes another one.
    pub fn replace(&mut self, roster: &Roster) -> io::Result<OwnedFd> {
        // A stand-in that has ended was a child of ours.
        reap_one(self.process);
        let engine = open_process(std::process::id() as i32)?;
        // SAFETY: the copy has one thread, and leaves without what is to be done at the end of a program.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => unsafe {
                self.stand_in(&engine, roster);
                libc::_exit(0)
            },
            pid => {
                self.process = pid;
                open_process(pid)
            }
        }
    }

    /// In the stand-in: waits for the engine's end, and cleans up.
    fn stand_in(&self, engine: &OwnedFd, roster: &Roster) {
        // SAFETY: changes the signals and the descriptors of this process, in which nothing else uses them.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, ptr::null_mut());
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        }
        // A process that waits for the end of one of the engine's descriptors must not wait for this one.
        let locks = [
            self.life.as_ref().map(AsRawFd::as_raw_fd),
            roster.lock().map(AsRawFd::as_raw_fd),
        ];
        let kept = [Some(engine.as_raw_fd())].into_iter().chain(locks);
        close_all_but(kept.flatten());
        self.life.iter().for_each(sign);
        let mut ended = [PollFd::new(engine, PollFlags::IN)];
        while poll(&mut ended, None) == Err(rustix::io::Errno::INTR) {}
        let end = processes::uptime();
        let remains = roster.remains();
        end_groups(&remains, |groups| {
            let there = processes::list();
            groups.retain(|group| there.iter().any(|one| one.group == *group && one.began <= end));
        });
        roster.remove();
    }
}

/// Before an engine starts: ends what another engine has left that was killed together with its guardian. False if engine
/// or guardian live although the caller holds the life lock: then their runtime folder was cleared.
pub fn clean_after_another(name: &Path) -> bool {
    let Some(remains) = Remains::find(name) else {
        return false;
    };
    end_groups(&remains, |groups| {
        let there = processes::list();
        groups.retain(|group| is_left(*group, &remains, &there));
    });
    true
}

/// Whether a group with this number is still the engine's, and not another one that got the same number.
fn is_left(group: i32, remains: &Remains, there: &[Process]) -> bool {
    let Some((_, since)) = remains.groups.iter().find(|(one, _)| *one == group) else {
        return false;
    };
    let latest = remains.last + LATEST * processes::ticks();
    match there.iter().find(|process| process.number == group) {
        Some(leader) => leader.group == group && (*since..=latest).contains(&leader.began),
        None => there
            .iter()
            .any(|process| process.group == group && process.began >= *since),
    }
}

/// The temporary files between the parts of compilers. Their drivers, which would remove them, are killed. Asking the
/// drivers to end would be worse: they also remove their output, which another run may have made anew by then.
fn find_temporary_files(groups: &[i32]) -> Vec<PathBuf> {
    let there = processes::list();
    let ours = there.iter().filter(|process| groups.contains(&process.group));
    ours.filter_map(|process| temporary_file_of(process.number)).collect()
}

/// "cc1 … -o /tmp/ccXXXXXX.s", "as … /tmp/ccXXXXXX.s"
fn temporary_file_of(process: i32) -> Option<PathBuf> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    let program = words.next()?.rsplit(|byte| *byte == b'/').next()?;
    let found = words.find(|word| is_drawn(word)).filter(|_| PARTS.contains(&program))?;
    Some(Path::new(OsStr::from_bytes(found)).to_path_buf())
}

/// Kills the groups, and removes their files. `settle` removes from the list those that are gone.
fn end_groups(remains: &Remains, mut settle: impl FnMut(&mut Vec<i32>)) {
    let mut groups: Vec<i32> = remains.groups.iter().map(|(group, _)| *group).collect();
    settle(&mut groups);
    let found = if groups.is_empty() {
        Vec::new()
    } else {
        find_temporary_files(&groups)
    };
    let deadline = Instant::now() + PATIENCE;
    while !groups.is_empty() && Instant::now() < deadline {
        for group in &groups {
            // SAFETY: a group of the engine's: `settle` has just seen that it is one.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
        settle(&mut groups);
    }
    for path in remains.files.iter().chain(&found) {
        // The part itself may already have removed it.
        let _ = std::fs::remove_file(path);
    }
}

/// Signals that the guardian passes on to the engine.
const PASSED_ON: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// In a guardian: writes its number into the lock that it shares with the engine.
pub fn sign(life: impl AsFd) {
    let text = format!("{}\n", std::process::id());
    let life = life.as_fd();
    // Best effort: without the number, a stopped guardian cannot be woken, and is waited for.
    let _ = rustix::fs::ftruncate(life, 0).and_then(|()| rustix::io::pwrite(life, text.as_bytes(), 0));
}

/// The guardian that has written its number last.
pub fn holder(life: impl AsFd) -> Option<Pid> {
    let mut text = [0; 16];
    let size = rustix::io::pread(life, &mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..size]).ok()?;
    Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
}

/// Waits for the engine to end, and cleans up. Returns the engine's exit status. `prepare` has blocked the signals.
pub fn watch(engine: i32, roster: &Roster) -> i32 {
    let signals = awaited();
    loop {
        // SAFETY: waits for a blocked signal; the set is ours.
        let signal = unsafe { libc::sigwaitinfo(&signals, ptr::null_mut()) };
        if PASSED_ON.contains(&signal) {
            // SAFETY: the engine is our child and not yet reaped.
            unsafe { libc::kill(engine, signal) };
        }
        loop {
            match reap() {
                Ok((pid, status)) if pid == engine => {
                    clean_up(roster);
                    return if libc::WIFEXITED(status) {
                        libc::WEXITSTATUS(status)
                    } else {
                        128 + libc::WTERMSIG(status)
                    };
                }
                Ok(_) => {}
                // If the system lets no process wait for children, they stay as they are.
                Err(error) if error.raw_os_error() != Some(libc::ECHILD) && !processes::lives(engine) => {
                    clean_up(roster);
                    return 1;
                }
                Err(_) => break,
            }
        }
    }
}

/// Before the engine is forked: makes orphans of commands our children instead of init's, so that we see them end. Also sets
/// up signals so that none is missed, however the parent process has set them up.
pub fn prepare() -> io::Result<()> {
    // SAFETY: changes a flag and the signals of this process.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        for signal in 1..=SIGNALS {
            set_disposition(signal, libc::SIG_DFL);
        }
        match libc::sigprocmask(libc::SIG_SETMASK, &awaited(), ptr::null_mut()) {
            0 => Ok(()),
            // Otherwise it would not learn of the engine's end.
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// In the engine: undoes the guardian's changes to signals. Commands get the signals of their clients.
pub fn release_signals() {
    // SAFETY: changes the signals of this process.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &signal_set(&[]), ptr::null_mut());
        // The engine must not die because a command does not read its input.
        set_disposition(libc::SIGPIPE, libc::SIG_IGN);
        // Nor because of a limit on the size of files: writing into the store fails then.
        set_disposition(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

fn awaited() -> libc::sigset_t {
    signal_set(&[&[libc::SIGCHLD], &PASSED_ON[..]].concat())
}

/// A child that has ended, and how.
fn reap() -> io::Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the kernel writes the status to where we have it.
    match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
        // No child has ended yet.
        0 => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        pid if pid > 0 => Ok((pid, status)),
        _ => Err(io::Error::last_os_error()),
    }
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

/// In the guardian: all of them are its children, or become so.
fn clean_up(roster: &Roster) {
    let remains = roster.remains();
    end_groups(&remains, |groups| {
        while reap().is_ok() {}
        // SAFETY: asks whether there are such processes; only this process reaps them, so their numbers are still theirs.
        groups.retain(|group| unsafe { libc::kill(-group, 0) } == 0);
    });
    roster.remove();
}
