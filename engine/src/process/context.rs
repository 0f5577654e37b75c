//! The context that a command inherits from its client besides folder, environment and streams: umask, limits, priorities,
//! processors, signals.
//!
//! A `Context` is read from `/proc` when a client's frame arrives. Its differences from the engine's own context become a
//! list of `Adjustment`s, which `spawn` applies in the child. This file does not know how a child is made.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::place::field;
use super::spawn::IOPRIO_WHO_PROCESS;

const LIMITS: usize = 16;
/// The size of a set of processors, in bytes.
pub const PROCESSORS: usize = 128;
/// Signals that libc keeps for itself, one bit each. Programs cannot block them. libc blocks all signals for the moment in which
/// it starts a process or a thread, which is nothing that a command should inherit.
const OF_LIBC: u64 = 0b11 << 31;
/// How often a mask is read again that has these signals, and after what time.
const TRIES: u32 = 20;
const MOMENT: Duration = Duration::from_micros(50);
// Numbers of capabilities, from linux/capability.h.
const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;

/// A change that the child makes to itself before it becomes the command.
#[derive(Clone)]
pub enum Adjustment {
    Limit(u32, libc::rlimit64),
    Nice(i32),
    Scheduler(i32, i32),
    IoPriority(i32),
    Processors(libc::cpu_set_t),
    Personality(libc::c_ulong),
    OutOfMemoryScore(String),
    ControlGroup(Arc<OwnedFd>),
    /// The command gets this descriptor too, under the same number.
    Inherit(Arc<OwnedFd>),
    /// The same, under this number.
    InheritAs(Arc<OwnedFd>, RawFd),
}

#[derive(Clone, PartialEq, Eq)]
pub struct Context {
    pub umask: u32,
    /// Signals that the command finds ignored, one bit each, the first in bit 0.
    pub ignored: u64,
    pub blocked: u64,
    processors: Vec<usize>,
    limits: [(u64, u64); LIMITS],
    nice: i32,
    scheduler: (i32, i32),
    io_priority: i32,
    personality: libc::c_ulong,
    score: i32,
    capabilities: u64,
}

/// A context in the form of a C structure: the part of `engine/park/park.h` that tells a parked program what its command
/// inherits.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Block {
    pub ignored: u64,
    pub blocked: u64,
    pub limits: [[u64; 2]; LIMITS],
    pub nice: i32,
    pub policy: i32,
    pub priority: i32,
    pub io_priority: i32,
    pub umask: u32,
    pub score: i32,
    pub processors: [u8; PROCESSORS],
}

/// Reads contexts of one process again and again, through files that stay open.
pub struct Reader {
    pid: i32,
    status: File,
    personality: File,
    score: File,
    /// The signals that were blocked when it was read last.
    blocked: Cell<u64>,
}

fn read_open(file: &File) -> io::Result<String> {
    let mut buffer = [0; 8192];
    let n = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
}

impl Reader {
    pub fn new(pid: u32) -> io::Result<Reader> {
        let open = |name: &str| File::open(format!("/proc/{pid}/{name}"));
        Ok(Reader {
            pid: pid as i32,
            status: open("status")?,
            personality: open("personality")?,
            score: open("oom_score_adj")?,
            blocked: Cell::new(0),
        })
    }

    /// The process's context now.
    pub fn read(&self) -> io::Result<Context> {
        let status = self.settled_status()?;
        let personality = read_open(&self.personality)?;
        let score = read_open(&self.score)?;
        let number = |name: &str, radix| {
            let value = field(&status, name).unwrap_or("0");
            u64::from_str_radix(value, radix).unwrap_or(0)
        };
        // Python ignores these two signals for itself, and its subprocess module resets them to their defaults.
        let restored = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ);
        Ok(Context {
            umask: number("Umask", 8) as u32,
            ignored: number("SigIgn", 16) & !restored,
            blocked: self.blocked.get(),
            processors: processors(field(&status, "Cpus_allowed_list").unwrap_or("")),
            limits: limits(self.pid)?,
            // SAFETY: plain system calls on a number.
            nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, self.pid as u32) },
            scheduler: scheduler(self.pid),
            // SAFETY: as above.
            io_priority: unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, self.pid) } as i32,
            personality: libc::c_ulong::from_str_radix(personality.trim(), 16).unwrap_or(0),
            score: score.trim().parse().unwrap_or(0),
            capabilities: number("CapEff", 16),
        })
    }

    /// The status of the process, and in `self.blocked` the signals that it blocks. A process that
    /// is about to start another one blocks all for a moment. If that lasts, they are those that were read before.
    fn settled_status(&self) -> io::Result<String> {
        let mut status = read_open(&self.status)?;
        for _ in 0..TRIES {
            let blocked = u64::from_str_radix(field(&status, "SigBlk").unwrap_or("0"), 16).unwrap_or(0);
            if blocked & OF_LIBC != OF_LIBC {
                self.blocked.set(blocked);
                break;
            }
            thread::sleep(MOMENT);
            status = read_open(&self.status)?;
        }
        Ok(status)
    }
}

/// A process's umask.
pub fn umask_of(pid: u32) -> io::Result<u32> {
    let status = read_open(&File::open(format!("/proc/{pid}/status"))?)?;
    let umask = field(&status, "Umask").and_then(|umask| u32::from_str_radix(umask, 8).ok());
    umask.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

impl Context {
    /// Whether a command may use this much address space.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.limits[libc::RLIMIT_AS as usize].0 >= bytes
    }

    pub fn limits(&self) -> String {
        self.limits.map(|(soft, hard)| format!("{soft:x}-{hard:x}")).join(" ")
    }

    /// The values that a program can find out, under names that no variable has.
    pub fn tell(&self) -> Vec<(&'static str, String)> {
        vec![
            ("=umask", format!("{:o}", self.umask)),
            ("=limits", self.limits()),
            ("=processors", format!("{:?}", self.processors)),
            ("=signals", format!("{:x} {:x}", self.ignored, self.blocked)),
            // Among others, it decides what `uname -m` says.
            ("=personality", format!("{:x}", self.personality)),
        ]
    }

    /// The changes by which a child of a process with the context `own` gets this one.
    pub fn adjustments(&self, own: &Context) -> Vec<Adjustment> {
        let mut list = Vec::new();
        for (resource, (ours, wanted)) in own.limits.iter().zip(&self.limits).enumerate() {
            if ours != wanted {
                list.push(limit(resource, *wanted));
            }
        }
        if self.scheduler != own.scheduler {
            list.push(Adjustment::Scheduler(self.scheduler.0, self.scheduler.1));
        }
        if self.nice != own.nice {
            list.push(Adjustment::Nice(self.nice));
        }
        if self.io_priority != own.io_priority && self.io_priority >= 0 {
            list.push(Adjustment::IoPriority(self.io_priority));
        }
        if self.processors != own.processors {
            list.push(Adjustment::Processors(set_of(&self.processors)));
        }
        if self.personality != own.personality {
            list.push(Adjustment::Personality(self.personality));
        }
        if self.score != own.score {
            list.push(Adjustment::OutOfMemoryScore(self.score.to_string()));
        }
        list
    }

    /// The first change that a child of a process with the context `own` has no right to make, if any.
    pub fn beyond(&self, own: &Context) -> Option<&'static str> {
        let may_raise = own.capabilities & 1 << CAP_SYS_RESOURCE != 0;
        let may_hurry = own.capabilities & 1 << CAP_SYS_NICE != 0;
        let nicest = 20 - own.limits[libc::RLIMIT_NICE as usize].0.min(40) as i32;
        let mut limits = self.limits.iter().zip(&own.limits);
        if !may_raise && limits.any(|(wanted, ours)| wanted.1 > ours.1) {
            return Some("its limits are above the engine's");
        }
        if !may_raise && self.score < own.score {
            return Some("its out-of-memory score is below the engine's");
        }
        if !may_hurry && self.nice < own.nice.min(nicest) {
            return Some("its nice value is below the engine's");
        }
        let changes = self.scheduler != own.scheduler;
        let hurries = own.scheduler.0 == libc::SCHED_IDLE
            || ![libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&self.scheduler.0);
        (!may_hurry && changes && hurries).then_some("its scheduling is above the engine's")
    }

    /// The same except for the umask, for a process of which only the umask was asked.
    pub fn with_umask(&self, umask: u32) -> Context {
        Context { umask, ..self.clone() }
    }

    /// The same for programs that do not belong to a client yet: no signal is ignored or blocked.
    pub fn plain(&self) -> Context {
        Context {
            ignored: 0,
            blocked: 0,
            ..self.clone()
        }
    }

    pub fn personality(&self) -> libc::c_ulong {
        self.personality
    }

    /// The whole context in the form for a parked program.
    pub fn block(&self) -> Block {
        let mut block = Block {
            ignored: self.ignored,
            blocked: self.blocked,
            limits: self.limits.map(|(soft, hard)| [soft, hard]),
            nice: self.nice,
            policy: self.scheduler.0,
            priority: self.scheduler.1,
            io_priority: self.io_priority,
            umask: self.umask,
            score: self.score,
            processors: [0; PROCESSORS],
        };
        write_set(&set_of(&self.processors), &mut block.processors);
        block
    }

    /// The nice value of a whole group that matches this context. It is never below 0, and 19 for the idle policy.
    pub fn group_nice(&self) -> i32 {
        if self.scheduler.0 == libc::SCHED_IDLE {
            return 19;
        }
        self.nice.max(0)
    }

    /// The processors that a command may run on.
    pub fn processors(&self) -> &[usize] {
        &self.processors
    }
}

/// The resource by which the kernel lays out a program's memory.
pub const STACK: usize = libc::RLIMIT_STACK as usize;

/// An adjustment of the soft and hard limit of the stack.
pub fn stack([soft, hard]: [u64; 2]) -> Adjustment {
    limit(STACK, (soft, hard))
}

fn limit(resource: usize, (rlim_cur, rlim_max): (u64, u64)) -> Adjustment {
    Adjustment::Limit(resource as u32, libc::rlimit64 { rlim_cur, rlim_max })
}

/// An adjustment that keeps a command on one processor.
pub fn pin(processor: usize) -> Adjustment {
    Adjustment::Processors(set_of(&[processor]))
}

pub fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Parses "0-3,8".
fn processors(list: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            found.extend(first..=last.min(libc::CPU_SETSIZE as usize - 1));
        }
    }
    found
}

fn set_of(processors: &[usize]) -> libc::cpu_set_t {
    // SAFETY: an array of bits, for which all zero is the empty set; CPU_SET checks its bounds.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processors.iter().for_each(|p| libc::CPU_SET(*p, &mut set));
        set
    }
}

/// A set in the form of bytes, as the kernel takes it.
pub fn write_set(set: &libc::cpu_set_t, bytes: &mut [u8; PROCESSORS]) {
    // SAFETY: an array of bits of just this size.
    *bytes = unsafe { std::mem::transmute::<libc::cpu_set_t, [u8; PROCESSORS]>(*set) };
}

fn limits(pid: i32) -> io::Result<[(u64, u64); LIMITS]> {
    let mut found = [(0, 0); LIMITS];
    for (resource, pair) in found.iter_mut().enumerate() {
        // SAFETY: the kernel writes one rlimit64 to where we have one.
        let limit = unsafe {
            let mut limit: libc::rlimit64 = std::mem::zeroed();
            if libc::prlimit64(pid, resource as _, std::ptr::null(), &mut limit) != 0 {
                return Err(io::Error::last_os_error());
            }
            limit
        };
        *pair = (limit.rlim_cur, limit.rlim_max);
    }
    Ok(found)
}

fn scheduler(pid: i32) -> (i32, i32) {
    // SAFETY: the kernel writes one sched_param to where we have one.
    unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        let policy = libc::sched_getscheduler(pid);
        libc::sched_getparam(pid, &mut param);
        (policy, param.sched_priority)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(processors("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(processors("7"), [7]);
        assert!(processors("").is_empty());
    }

    #[test]
    fn a_process_has_nothing_to_adjust_against_itself() {
        let reader = Reader::new(std::process::id()).unwrap();
        let context = reader.read().unwrap();
        assert!(context.adjustments(&context).is_empty());
    }

    fn block(signals: u64) {
        let none = std::ptr::null_mut::<u64>();
        // SAFETY: changes the mask of this thread, which ends soon.
        let done = unsafe {
            let size = size_of::<u64>();
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &signals, none, size)
        };
        assert_eq!(done, 0);
    }

    #[test]
    fn signals_that_libc_blocks_for_a_moment_are_not_inherited() {
        let blocked = thread::spawn(|| {
            // SAFETY: asks for a number.
            let reader = Reader::new(unsafe { libc::gettid() } as u32).unwrap();
            let masks = [0, bit(libc::SIGUSR1), u64::MAX, !OF_LIBC];
            masks.map(|mask| {
                block(mask);
                reader.read().unwrap().blocked
            })
        });
        let stoppable = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
        let expected = [0, bit(libc::SIGUSR1), bit(libc::SIGUSR1), !OF_LIBC & stoppable];
        assert_eq!(blocked.join().unwrap(), expected);
    }

    #[test]
    fn each_difference_is_one_adjustment() {
        let own = Reader::new(std::process::id()).unwrap().read().unwrap();
        let mut other = own.clone();
        other.limits[libc::RLIMIT_NOFILE as usize] = (64, 64);
        other.nice += 1;
        other.processors = vec![0, 63];
        other.score += 17;
        assert_eq!(other.adjustments(&own).len(), 4);
    }

    #[test]
    fn without_rights_only_less_can_be_given() {
        let mut own = Reader::new(std::process::id()).unwrap().read().unwrap();
        own.capabilities = 0;
        own.limits[libc::RLIMIT_NICE as usize] = (0, 0);
        own.limits[libc::RLIMIT_NOFILE as usize] = (100, 100);
        own.nice = 5;
        own.score = 10;
        let changed = |change: fn(&mut Context)| {
            let mut other = own.clone();
            change(&mut other);
            other.beyond(&own)
        };
        assert_eq!(changed(|_| ()), None);
        assert_eq!(changed(|c| c.limits[libc::RLIMIT_NOFILE as usize] = (50, 60)), None);
        assert!(changed(|c| c.limits[libc::RLIMIT_NOFILE as usize] = (50, 101)).is_some());
        assert_eq!(changed(|c| c.nice = 19), None);
        assert!(changed(|c| c.nice = 4).is_some());
        assert_eq!(changed(|c| c.score = 11), None);
        assert!(changed(|c| c.score = 9).is_some());
        assert_eq!(changed(|c| c.scheduler = (libc::SCHED_IDLE, 0)), None);
        assert!(changed(|c| c.scheduler = (libc::SCHED_FIFO, 1)).is_some());
        own.capabilities = 1 << CAP_SYS_NICE | 1 << CAP_SYS_RESOURCE;
        let mut richer = own.clone();
        richer.nice = 0;
        richer.limits[libc::RLIMIT_NOFILE as usize] = (200, 200);
        assert_eq!(richer.beyond(&own), None);
    }
}
