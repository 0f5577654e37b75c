//! Starts a command: `clone` as `vfork` does it, then what the child changes of itself, then `execve`.
//!
//! `posix_spawn` works the same way but knows neither umask, limits, priorities nor control groups; and its search along
//! `PATH` uses the caller's. The child shares our memory until it is another program, so that a large engine costs no
//! more than a small one: it allocates nothing, takes no lock, and only makes system calls.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{waitid, WaitId, WaitIdOptions};

use super::context::{Adjustment, Context};
use super::processes;
use crate::observe::trace::Place;
use crate::wire::{Step, Strings};

const STACK: usize = 128 << 10;
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// The command, and how it is started.
pub struct Launch<'a> {
    pub argv: &'a Strings,
    pub env: &'a Strings,
    pub cwd: &'a [u8],
    pub stdio: [BorrowedFd<'a>; 3],
    pub new_session: bool,
    pub context: &'a Context,
    pub adjustments: &'a [Adjustment],
    /// Where the child notes its process, before it can have children that the guardian would miss.
    pub roster_entry: Option<&'a AtomicI32>,
    /// The region for its records, if it runs in a parked program. A spawned command has it in its environment.
    pub log: Place,
    /// Adjustments of this command alone.
    pub own: [Option<Adjustment>; 3],
}

/// A command that runs.
pub struct Child {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// Why a command could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotStarted {
    pub step: Step,
    pub errno: i32,
}

impl NotStarted {
    pub fn engine(error: &io::Error) -> Self {
        NotStarted {
            step: Step::Engine,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// The stack of a child until it has executed its program. One per thread is enough, because the thread waits that long.
pub struct Spawner {
    stack: *mut libc::c_void,
    engine: libc::pid_t,
}

// SAFETY: the memory belongs to this value, and may be used in any thread.
unsafe impl Send for Spawner {}

/// Values that the child reads and, on failure, writes.
struct Plan<'a> {
    launch: &'a Launch<'a>,
    programs: &'a [CString],
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    engine: libc::pid_t,
    failure: Option<NotStarted>,
}

impl Spawner {
    pub fn new() -> io::Result<Spawner> {
        // SAFETY: fresh memory that no other code uses; the lowest page is a guard.
        let stack = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let stack = libc::mmap(ptr::null_mut(), STACK, access, flags, -1, 0);
            if stack == libc::MAP_FAILED || libc::mprotect(stack, 4096, libc::PROT_NONE) != 0 {
                return Err(io::Error::last_os_error());
            }
            stack
        };
        // SAFETY: always succeeds.
        let engine = unsafe { libc::getpid() };
        Ok(Spawner { stack, engine })
    }

    /// Returns when the command's program runs, or could not be started.
    pub fn spawn(&mut self, launch: &Launch<'_>) -> Result<Child, NotStarted> {
        let name = launch.argv.iter().next().unwrap_or_default();
        let programs = candidates(name, launch.env);
        let argv = pointers(launch.argv);
        let env = pointers(launch.env);
        let cwd = c_string(launch.cwd);
        let mut plan = Plan {
            launch,
            programs: &programs,
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            cwd: cwd.as_ptr(),
            engine: self.engine,
            failure: None,
        };
        let mut pidfd: libc::c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: with CLONE_VFORK this thread stands still until the child execs or exits, so that the plan and the
        // stack outlive its use of them, and no other code touches either.
        let pid = unsafe {
            let top = self.stack.add(STACK);
            let plan = ptr::from_mut(&mut plan).cast();
            libc::clone(become_command, top, flags, plan, &mut pidfd)
        };
        if pid < 0 {
            return Err(NotStarted::engine(&io::Error::last_os_error()));
        }
        // SAFETY: the kernel made this descriptor for us.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        // The child has written it, which the compiler does not see.
        // SAFETY: the plan is alive, and the child no longer shares our memory.
        match unsafe { ptr::read_volatile(&plan.failure) } {
            None => Ok(Child { pid, pidfd }),
            Some(failure) => {
                reap(pid);
                Err(failure)
            }
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is not in use any more.
        unsafe { libc::munmap(self.stack, STACK) };
    }
}

/// Status and resource use of a child that has ended.
#[derive(Debug, Default, Clone)]
pub struct Ended {
    /// In the form of `waitpid`.
    pub status: i32,
    /// The exit status, or minus the signal.
    pub code: i32,
    pub user: u64,
    pub system: u64,
    pub peak: u64,
}

impl Ended {
    /// Adds the use of a part of the same command.
    pub fn include(&mut self, part: &Ended) {
        self.user += part.user;
        self.system += part.system;
        self.peak = self.peak.max(part.peak);
    }
}

/// Whether a child has ended with status 0. It is not reaped.
pub fn has_succeeded(pidfd: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), options);
    status.is_ok_and(|status| status.is_some_and(|status| status.exit_status() == Some(0)))
}

/// Whether a child's status can be taken. While a tracer has not taken it yet, the child has ended, but its status is not
/// available.
pub fn can_be_collected(pidfd: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    // An error would be the same the next time.
    !matches!(waitid(WaitId::PidFd(pidfd.as_fd()), options), Ok(None))
}

/// Takes the status of a child that has ended; `None` if it has not.
pub fn collect(pid: i32) -> Option<Ended> {
    wait(pid, libc::WNOHANG)
}

/// Waits for a child that is about to end.
pub fn wait_for(pid: i32) -> Ended {
    wait(pid, 0).unwrap_or_default()
}

fn wait(pid: i32, flags: i32) -> Option<Ended> {
    let mut status = 0;
    // SAFETY: the kernel writes both to where we have them.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(pid, &mut status, flags, &mut usage) != pid {
            return None;
        }
        usage
    };
    let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    Some(Ended {
        status,
        code: if libc::WIFSIGNALED(status) {
            -libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        },
        user: micros(usage.ru_utime),
        system: micros(usage.ru_stime),
        peak: usage.ru_maxrss as u64,
    })
}

/// The process groups that have a living member besides their leader. The kernel offers only the list of all processes, so
/// this is asked for canceled commands only.
pub fn followed_groups() -> HashSet<i32> {
    let members = processes::list()
        .into_iter()
        .filter(|process| process.group != process.number);
    members.map(|process| process.group).collect()
}

/// Waits for a child that is about to end, and forgets it.
pub fn reap(pid: i32) {
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}

/// The paths that `execvp` would try for a command in its own environment, in order.
pub fn candidates(name: &[u8], env: &Strings) -> Vec<CString> {
    if name.contains(&b'/') {
        return vec![c_string(name)];
    }
    let path = env.iter().find_map(|entry| entry.strip_prefix(b"PATH="));
    let folders = path.unwrap_or(DEFAULT_PATH).split(|b| *b == b':');
    folders
        .map(|folder| match folder {
            [] => c_string(name),
            [.., b'/'] => c_string(&[folder, name].concat()),
            _ => c_string(&[folder, b"/", name].concat()),
        })
        .collect()
}

fn c_string(bytes: &[u8]) -> CString {
    // Decoding has already refused zero bytes. A name that was cut off would only not be found.
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}

fn pointers(strings: &Strings) -> Vec<*const libc::c_char> {
    let mut list: Vec<_> = strings.terminated().map(|s| s.as_ptr().cast()).collect();
    list.push(ptr::null());
    list
}

// ---- in the child: system calls only

extern "C" fn become_command(plan: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passed its own plan and waits.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let failure = prepare(plan).err().unwrap_or_else(|| exec(plan));
    // SAFETY: as above; volatile, because the parent's compiler does not see this write.
    unsafe {
        ptr::write_volatile(&mut plan.failure, Some(failure));
        libc::_exit(127)
    }
}

fn errno() -> i32 {
    // SAFETY: always valid.
    unsafe { *libc::__errno_location() }
}

fn checked(result: libc::c_int, step: Step) -> Result<(), NotStarted> {
    if result >= 0 {
        return Ok(());
    }
    Err(NotStarted { step, errno: errno() })
}

fn prepare(plan: &Plan<'_>) -> Result<(), NotStarted> {
    let launch = plan.launch;
    // SAFETY: system calls on numbers and on memory of the plan.
    unsafe {
        // If engine and guardian are both killed, the kernel kills the command.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if let Some(roster_entry) = launch.roster_entry {
            roster_entry.store(libc::getpid(), Ordering::Release);
        }
        // If the engine was killed before that call, the kernel does not kill this child, and the guardian may not see the
        // entry. If the kernel refuses to name the parent, the child goes on.
        let parent = libc::getppid();
        if parent > 0 && parent != plan.engine {
            libc::_exit(127);
        }
        if launch.new_session {
            checked(libc::setsid(), Step::Engine)?;
        } else {
            checked(libc::setpgid(0, 0), Step::Engine)?;
        }
        for adjustment in launch.adjustments.iter().chain(launch.own.iter().flatten()) {
            checked(apply(adjustment), Step::Engine)?;
        }
        libc::umask(launch.context.umask);
        checked(libc::chdir(plan.cwd), Step::Folder)?;
        for (number, fd) in launch.stdio.iter().enumerate() {
            checked(libc::dup2(fd.as_raw_fd(), number as i32), Step::Engine)?;
        }
        for adjustment in launch.adjustments {
            if let Adjustment::InheritAs(fd, number) = adjustment {
                checked(libc::dup2(fd.as_raw_fd(), *number), Step::Engine)?;
            }
        }
        signals(launch.context);
    }
    Ok(())
}

unsafe fn apply(adjustment: &Adjustment) -> libc::c_int {
    match adjustment {
        Adjustment::Limit(resource, limit) => libc::setrlimit64(*resource as _, limit),
        Adjustment::Nice(nice) => libc::setpriority(libc::PRIO_PROCESS, 0, *nice),
        Adjustment::Scheduler(policy, priority) => {
            let param = libc::sched_param {
                sched_priority: *priority,
            };
            libc::sched_setscheduler(0, *policy, &param)
        }
        Adjustment::IoPriority(priority) => {
            libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, *priority) as libc::c_int
        }
        Adjustment::Processors(set) => libc::sched_setaffinity(0, size_of_val(set), set),
        Adjustment::Personality(persona) => libc::personality(*persona),
        Adjustment::OutOfMemoryScore(score) => {
            let path = c"/proc/self/oom_score_adj".as_ptr();
            let file = libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC);
            let written = libc::write(file, score.as_ptr().cast(), score.len());
            libc::close(file);
            written as libc::c_int
        }
        Adjustment::Inherit(fd) => libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0),
        // When no other number is needed any more.
        Adjustment::InheritAs(..) => 0,
        Adjustment::ControlGroup(procs) => libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) as libc::c_int,
    }
}

/// From linux/ioprio.h.
pub const IOPRIO_WHO_PROCESS: i32 = 1;

/// How many signals the kernel knows.
pub const SIGNALS: i32 = 64;

/// The set of these signals.
pub fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a set of our own.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// Sets a signal's action by the kernel's own call, because libc keeps two signals for itself.
///
/// # Safety
/// As for `sigaction`; only for `SIG_DFL` and `SIG_IGN`.
pub unsafe fn set_disposition(signal: i32, disposition: libc::sighandler_t) {
    // The kernel's struct sigaction: handler, flags, restorer, mask.
    let action = [disposition as u64, 0, 0, 0];
    let (action, none) = (action.as_ptr(), ptr::null_mut::<u64>());
    libc::syscall(libc::SYS_rt_sigaction, signal, action, none, size_of::<u64>());
}

/// The engine ignores two signals and blocks those that it reads. The command gets what its client has.
unsafe fn signals(context: &Context) {
    set_disposition(libc::SIGPIPE, libc::SIG_DFL);
    set_disposition(libc::SIGXFSZ, libc::SIG_DFL);
    for signal in 1..=SIGNALS {
        if context.ignored & super::context::bit(signal) != 0 {
            set_disposition(signal, libc::SIG_IGN);
        }
    }
    let blocked = context.blocked;
    let size = size_of_val(&blocked);
    // The raw call: it takes the kernel's 64 bits, as /proc shows them.
    libc::syscall(
        libc::SYS_rt_sigprocmask,
        libc::SIG_SETMASK,
        &blocked,
        ptr::null_mut::<u64>(),
        size,
    );
}

/// Tries the candidates like `execvp`. Returns only if none could be run.
fn exec(plan: &Plan<'_>) -> NotStarted {
    let mut kept = 0;
    let mut last = libc::ENOENT;
    for program in plan.programs {
        // SAFETY: zero-terminated arrays of zero-terminated strings that live in the plan.
        unsafe { libc::execve(program.as_ptr(), plan.argv, plan.env) };
        last = errno();
        if kept == 0 && last != libc::ENOENT && last != libc::ENOTDIR {
            kept = last;
        }
    }
    NotStarted {
        step: Step::Command,
        errno: if kept != 0 { kept } else { last },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(items: &[&str]) -> Strings {
        items.iter().collect()
    }

    fn shown(programs: &[CString]) -> Vec<&str> {
        programs.iter().map(|p| p.to_str().unwrap()).collect()
    }

    #[test]
    fn a_bare_name_is_looked_for_along_the_commands_own_path() {
        let env = strings(&["HOME=/root", "PATH=/a:/b/::c"]);
        let found = candidates(b"cc", &env);
        assert_eq!(shown(&found), ["/a/cc", "/b/cc", "cc", "c/cc"]);
    }

    #[test]
    fn without_a_path_the_usual_folders_are_searched() {
        let found = candidates(b"cc", &strings(&[]));
        assert_eq!(shown(&found), ["/bin/cc", "/usr/bin/cc"]);
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        let found = candidates(b"./cc", &strings(&["PATH=/a"]));
        assert_eq!(shown(&found), ["./cc"]);
    }
}
