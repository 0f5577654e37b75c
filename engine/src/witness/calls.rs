//! The table of the second witness: how each system call is recorded, by its number.
//!
//! The other side of what `engine/park/watch.c`, `clock.c` and `system_info.c` record of functions. A call that is not in
//! the table is not known to be harmless.

use crate::observe::trace::record::{BLIND_CALL, BLIND_PLACE, BLIND_SHARED, BLIND_TALK};

/// The position of an argument, from 0.
pub type Argument = usize;

/// A path argument, and the folder to which it refers: an argument that is a descriptor, or the process's own folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    pub folder: Option<Argument>,
    pub path: Argument,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It need not be recorded, or is recorded by other means.
    Harmless,
    /// The flags are an argument, or these.
    Open(Name, Flags),
    /// The status is in a `stat` at this argument. Flags say whether links are followed, or it is always so.
    Look(Name, Argument, Option<Argument>, bool),
    /// The same with a `statx`.
    LookMore(Name, Argument, Argument),
    Find(Name),
    Link(Name, Argument, Argument),
    Enter(Name),
    EnterFile(Argument),
    Locate,
    List(Argument),
    Rename(Name, Name, Option<Argument>),
    Join(Name, Name),
    Remove(Name),
    Make(Name),
    MakeFolder(Name),
    /// Attributes of a file are changed, and not its content.
    Change(Name),
    ChangeFile(Argument),
    System(Name),
    Execute(Name),
    Map,
    /// A new thread or process. The flags are these, or are at the place to which the argument points.
    Split(Argument),
    SplitMore(Argument),
    /// The clock, and the place to which its time goes, in seconds and parts of them.
    Clock(Argument, Argument),
    /// The calendar, and the place to which its time goes.
    Time(Argument),
    /// The calendar, as the result of the call.
    Seconds,
    Measure,
    Random,
    Number,
    /// The number of a thread.
    Thread,
    Kill,
    /// The process ends.
    End,
    /// Nothing more can be known, for a reason of `enum wafpark_blindness`.
    Blind(u32),
    /// Attributes of a file are read; says whether links are followed. The command is blind if there are any.
    Attributes(Name, bool),
    AttributesOfFile,
    /// Attributes are changed. The command is blind if that succeeds.
    Mark(Name, bool),
    MarkFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    In(Argument),
    /// The value at the beginning of what this argument points to.
    At(Argument),
    These(i32),
}

const fn here(path: Argument) -> Name {
    Name { folder: None, path }
}

const fn from(folder: Argument) -> Name {
    Name {
        folder: Some(folder),
        path: folder + 1,
    }
}

/// The call with this number, as 64-bit programs of this machine use it.
pub fn find(number: i64) -> Call {
    #[cfg(target_arch = "x86_64")]
    if let Some(call) = find_old(number) {
        return call;
    }
    match number {
        libc::SYS_openat => Call::Open(from(0), Flags::In(2)),
        libc::SYS_openat2 => Call::Open(from(0), Flags::At(2)),
        libc::SYS_newfstatat => Call::Look(from(0), 2, Some(3), true),
        libc::SYS_statx => Call::LookMore(from(0), 2, 4),
        libc::SYS_faccessat | libc::SYS_faccessat2 => Call::Find(from(0)),
        libc::SYS_readlinkat => Call::Link(from(0), 2, 3),
        libc::SYS_chdir => Call::Enter(here(0)),
        libc::SYS_fchdir => Call::EnterFile(0),
        libc::SYS_getcwd => Call::Locate,
        libc::SYS_getdents64 => Call::List(0),
        libc::SYS_renameat => Call::Rename(from(0), from(2), None),
        libc::SYS_renameat2 => Call::Rename(from(0), from(2), Some(4)),
        libc::SYS_linkat => Call::Join(from(0), from(2)),
        libc::SYS_unlinkat => Call::Remove(from(0)),
        libc::SYS_mkdirat => Call::MakeFolder(from(0)),
        libc::SYS_mknodat => Call::Make(from(0)),
        libc::SYS_symlinkat => Call::Make(from(1)),
        libc::SYS_truncate => Call::Change(here(0)),
        libc::SYS_fchmodat | libc::SYS_fchownat | libc::SYS_utimensat => Call::Change(from(0)),
        libc::SYS_fchmod | libc::SYS_fchown => Call::ChangeFile(0),
        libc::SYS_statfs => Call::System(here(0)),
        libc::SYS_execve => Call::Execute(here(0)),
        libc::SYS_execveat => Call::Execute(from(0)),
        libc::SYS_mmap => Call::Map,
        libc::SYS_clone => Call::Split(0),
        libc::SYS_clone3 => Call::SplitMore(0),
        libc::SYS_clock_gettime => Call::Clock(0, 1),
        libc::SYS_gettimeofday => Call::Time(0),
        libc::SYS_fstatfs
        | libc::SYS_clock_getres
        | libc::SYS_getrusage
        | libc::SYS_times
        | libc::SYS_sysinfo
        | libc::SYS_getitimer
        | libc::SYS_timer_gettime
        | libc::SYS_timerfd_gettime => Call::Measure,
        libc::SYS_getrandom => Call::Random,
        libc::SYS_getpid | libc::SYS_getppid | libc::SYS_getpgid | libc::SYS_getsid => Call::Number,
        libc::SYS_gettid => Call::Thread,
        libc::SYS_kill | libc::SYS_pidfd_send_signal => Call::Kill,
        libc::SYS_exit_group => Call::End,
        libc::SYS_socketpair
        | libc::SYS_getsockname
        | libc::SYS_getsockopt
        | libc::SYS_setsockopt
        | libc::SYS_shutdown
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendmsg => Call::Harmless,
        libc::SYS_connect
        | libc::SYS_bind
        | libc::SYS_listen
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_sendto
        | libc::SYS_socket
        | libc::SYS_pidfd_getfd => Call::Blind(BLIND_TALK),
        libc::SYS_shmget
        | libc::SYS_shmat
        | libc::SYS_semget
        | libc::SYS_semop
        | libc::SYS_msgget
        | libc::SYS_mq_open
        | libc::SYS_ptrace
        | libc::SYS_process_vm_readv
        | libc::SYS_process_vm_writev => Call::Blind(BLIND_SHARED),
        libc::SYS_name_to_handle_at
        | libc::SYS_open_by_handle_at
        | libc::SYS_fanotify_init
        | libc::SYS_inotify_init1
        | libc::SYS_unshare
        | libc::SYS_setns
        | libc::SYS_chroot
        | libc::SYS_pivot_root
        | libc::SYS_mount
        | libc::SYS_umount2 => Call::Blind(BLIND_PLACE),
        libc::SYS_getxattr | libc::SYS_listxattr => Call::Attributes(here(0), true),
        libc::SYS_lgetxattr | libc::SYS_llistxattr => Call::Attributes(here(0), false),
        libc::SYS_setxattr | libc::SYS_removexattr => Call::Mark(here(0), true),
        libc::SYS_lsetxattr | libc::SYS_lremovexattr => Call::Mark(here(0), false),
        libc::SYS_fgetxattr | libc::SYS_flistxattr => Call::AttributesOfFile,
        libc::SYS_fsetxattr | libc::SYS_fremovexattr => Call::MarkFile,
        number if is_harmless(number) => Call::Harmless,
        _ => Call::Blind(BLIND_CALL),
    }
}

/// Calls that newer kinds of processors do not have.
#[cfg(target_arch = "x86_64")]
fn find_old(number: i64) -> Option<Call> {
    Some(match number {
        libc::SYS_open => Call::Open(here(0), Flags::In(1)),
        libc::SYS_creat => Call::Open(here(0), Flags::These(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)),
        libc::SYS_stat => Call::Look(here(0), 1, None, true),
        libc::SYS_lstat => Call::Look(here(0), 1, None, false),
        libc::SYS_access => Call::Find(here(0)),
        libc::SYS_readlink => Call::Link(here(0), 1, 2),
        libc::SYS_getdents => Call::List(0),
        libc::SYS_rename => Call::Rename(here(0), here(1), None),
        libc::SYS_link => Call::Join(here(0), here(1)),
        libc::SYS_unlink | libc::SYS_rmdir => Call::Remove(here(0)),
        libc::SYS_mkdir => Call::MakeFolder(here(0)),
        libc::SYS_mknod => Call::Make(here(0)),
        libc::SYS_symlink => Call::Make(here(1)),
        libc::SYS_chmod | libc::SYS_chown | libc::SYS_lchown | libc::SYS_utime | libc::SYS_utimes => {
            Call::Change(here(0))
        }
        libc::SYS_futimesat => Call::Change(from(0)),
        libc::SYS_fork | libc::SYS_vfork => Call::Harmless,
        libc::SYS_time => Call::Seconds,
        libc::SYS_getpgrp => Call::Number,
        libc::SYS_dup2
        | libc::SYS_pipe
        | libc::SYS_poll
        | libc::SYS_select
        | libc::SYS_epoll_create
        | libc::SYS_epoll_wait
        | libc::SYS_eventfd
        | libc::SYS_signalfd
        | libc::SYS_pause
        | libc::SYS_alarm
        | libc::SYS_arch_prctl => Call::Harmless,
        libc::SYS_inotify_init => Call::Blind(BLIND_PLACE),
        _ => return None,
    })
}

/// They concern open files, the process's own memory, threads, signals and rights.
fn is_harmless(number: i64) -> bool {
    const HARMLESS: &[i64] = &[
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_preadv,
        libc::SYS_pwritev,
        libc::SYS_preadv2,
        libc::SYS_pwritev2,
        libc::SYS_lseek,
        libc::SYS_close,
        libc::SYS_close_range,
        libc::SYS_fstat,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_sync,
        libc::SYS_syncfs,
        libc::SYS_sync_file_range,
        libc::SYS_readahead,
        libc::SYS_ftruncate,
        libc::SYS_dup,
        libc::SYS_dup3,
        libc::SYS_fcntl,
        libc::SYS_flock,
        libc::SYS_ioctl,
        libc::SYS_fallocate,
        libc::SYS_fadvise64,
        libc::SYS_sendfile,
        libc::SYS_splice,
        libc::SYS_tee,
        libc::SYS_vmsplice,
        libc::SYS_copy_file_range,
        libc::SYS_memfd_create,
        libc::SYS_pipe2,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_create1,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_eventfd2,
        libc::SYS_signalfd4,
        libc::SYS_timerfd_create,
        libc::SYS_timerfd_settime,
        libc::SYS_timer_create,
        libc::SYS_timer_settime,
        libc::SYS_timer_delete,
        libc::SYS_setitimer,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_msync,
        libc::SYS_mincore,
        libc::SYS_brk,
        libc::SYS_mlock,
        libc::SYS_mlock2,
        libc::SYS_mlockall,
        libc::SYS_munlock,
        libc::SYS_munlockall,
        libc::SYS_mbind,
        libc::SYS_set_mempolicy,
        libc::SYS_get_mempolicy,
        libc::SYS_pkey_mprotect,
        libc::SYS_pkey_alloc,
        libc::SYS_pkey_free,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_getparam,
        libc::SYS_sched_getscheduler,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_get_priority_max,
        libc::SYS_sched_get_priority_min,
        libc::SYS_set_robust_list,
        libc::SYS_get_robust_list,
        libc::SYS_set_tid_address,
        libc::SYS_membarrier,
        libc::SYS_rseq,
        libc::SYS_restart_syscall,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_exit,
        libc::SYS_getpriority,
        libc::SYS_setpriority,
        libc::SYS_ioprio_get,
        libc::SYS_ioprio_set,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigpending,
        libc::SYS_rt_sigsuspend,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_sigaltstack,
        libc::SYS_tgkill,
        libc::SYS_tkill,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_getegid,
        libc::SYS_getresuid,
        libc::SYS_getresgid,
        libc::SYS_getgroups,
        libc::SYS_capget,
        libc::SYS_prlimit64,
        libc::SYS_getrlimit,
        libc::SYS_setrlimit,
        libc::SYS_umask,
        libc::SYS_uname,
        libc::SYS_prctl,
        libc::SYS_personality,
        libc::SYS_setpgid,
        libc::SYS_setsid,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_pidfd_open,
    ];
    HARMLESS.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_not_known_is_not_harmless() {
        assert_eq!(find(libc::SYS_io_uring_setup), Call::Blind(BLIND_CALL));
        assert_eq!(find(-1), Call::Blind(BLIND_CALL));
        assert_eq!(find(libc::SYS_read), Call::Harmless);
        assert_eq!(find(libc::SYS_openat), Call::Open(from(0), Flags::In(2)));
    }
}
