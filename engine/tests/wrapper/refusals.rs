//! Whichever system call is refused, in a container or by an old kernel, a compile ends as it does without the wrapper.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::sandbox::{run, ProgramOutput, Sandbox};
use crate::support::wrapper::{self, WAFCC};

/// The system calls of wrapper and engine, here and on other machines, as `strace -f` shows them.
const CALLS: &[(&str, libc::c_long)] = &[
    ("accept4", libc::SYS_accept4),
    ("bind", libc::SYS_bind),
    ("chdir", libc::SYS_chdir),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    ("close_range", libc::SYS_close_range),
    ("connect", libc::SYS_connect),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("eventfd2", libc::SYS_eventfd2),
    ("faccessat", libc::SYS_faccessat),
    ("faccessat2", libc::SYS_faccessat2),
    ("fchmod", libc::SYS_fchmod),
    ("fgetxattr", libc::SYS_fgetxattr),
    ("flock", libc::SYS_flock),
    ("fstatfs", libc::SYS_fstatfs),
    ("ftruncate", libc::SYS_ftruncate),
    ("getcwd", libc::SYS_getcwd),
    ("getdents64", libc::SYS_getdents64),
    ("geteuid", libc::SYS_geteuid),
    ("getpid", libc::SYS_getpid),
    ("getppid", libc::SYS_getppid),
    ("getpriority", libc::SYS_getpriority),
    ("getrandom", libc::SYS_getrandom),
    ("getsid", libc::SYS_getsid),
    ("getsockopt", libc::SYS_getsockopt),
    ("gettid", libc::SYS_gettid),
    ("ioctl", libc::SYS_ioctl),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioprio_get", libc::SYS_ioprio_get),
    ("kill", libc::SYS_kill),
    ("listen", libc::SYS_listen),
    ("madvise", libc::SYS_madvise),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("mkdirat", libc::SYS_mkdirat),
    ("openat2", libc::SYS_openat2),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("pipe2", libc::SYS_pipe2),
    ("ppoll", libc::SYS_ppoll),
    ("prctl", libc::SYS_prctl),
    ("prlimit64", libc::SYS_prlimit64),
    ("pwritev", libc::SYS_pwritev),
    ("readlinkat", libc::SYS_readlinkat),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmsg", libc::SYS_recvmsg),
    ("renameat2", libc::SYS_renameat2),
    ("rseq", libc::SYS_rseq),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_getattr", libc::SYS_sched_getattr),
    ("sched_getparam", libc::SYS_sched_getparam),
    ("sched_getscheduler", libc::SYS_sched_getscheduler),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_setattr", libc::SYS_sched_setattr),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendto", libc::SYS_sendto),
    ("set_robust_list", libc::SYS_set_robust_list),
    ("setpgid", libc::SYS_setpgid),
    ("setpriority", libc::SYS_setpriority),
    ("setsid", libc::SYS_setsid),
    ("setsockopt", libc::SYS_setsockopt),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("signalfd4", libc::SYS_signalfd4),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("statx", libc::SYS_statx),
    ("symlinkat", libc::SYS_symlinkat),
    ("sysinfo", libc::SYS_sysinfo),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_settime", libc::SYS_timerfd_settime),
    ("umask", libc::SYS_umask),
    ("unlinkat", libc::SYS_unlinkat),
    ("waitid", libc::SYS_waitid),
    #[cfg(target_arch = "x86_64")]
    ("access", libc::SYS_access),
    #[cfg(target_arch = "x86_64")]
    ("alarm", libc::SYS_alarm),
    #[cfg(target_arch = "x86_64")]
    ("chmod", libc::SYS_chmod),
    #[cfg(target_arch = "x86_64")]
    ("dup2", libc::SYS_dup2),
    #[cfg(target_arch = "x86_64")]
    ("mkdir", libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll),
    #[cfg(target_arch = "x86_64")]
    ("readlink", libc::SYS_readlink),
    #[cfg(target_arch = "x86_64")]
    ("rename", libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    ("symlink", libc::SYS_symlink),
    #[cfg(target_arch = "x86_64")]
    ("unlink", libc::SYS_unlink),
];

/// The launcher, compiled once for a test.
fn make_launcher(sandbox: &Sandbox) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes/refuse.c");
    let launcher = sandbox.path("refuse");
    let mut compile = Command::new("cc");
    run(compile
        .args(["-O1", "-Wall", "-Wextra", "-o"])
        .args([&launcher, &source]))
    .succeeded();
    let mut attempt = Command::new(&launcher);
    let said = run(attempt.args([&libc::SYS_acct.to_string(), "1", "true"]));
    if said.status == Some(0) {
        return Some(launcher);
    }
    eprintln!("skipped: this system has no seccomp filters for us: {said:?}");
    None
}

/// The result of a compile, and the files that it has made.
fn compile(
    sandbox: &Sandbox,
    launcher: &Path,
    call: libc::c_long,
    error: i32,
    wrapper: &[&str],
) -> (ProgramOutput, Vec<u8>) {
    let mut command = wrapper::clean(sandbox.command(launcher), sandbox);
    command
        .args([&call.to_string(), &error.to_string()])
        .args(wrapper)
        .args(["gcc", "-c", "a.c", "-o", "a.o"])
        .env("WAFD_PATIENCE", "2")
        // An engine that cannot be reached cannot be asked to stop.
        .env("WAFD_IDLE", "1")
        .current_dir(sandbox.path(""));
    let said = run(&mut command);
    let made = fs::read(sandbox.path("a.o")).unwrap_or_default();
    let _ = fs::remove_file(sandbox.path("a.o"));
    (said, made)
}

#[track_caller]
fn compile_with_each_call_refused(error: i32) {
    let tools = Sandbox::new();
    let Some(launcher) = make_launcher(&tools) else {
        return;
    };
    let mut wrong = Vec::new();
    for (name, call) in CALLS {
        println!("{name}");
        let sandbox = Sandbox::new();
        fs::write(sandbox.path("a.c"), "int f(void) { return 1; }\n").unwrap();
        let (plain, object) = compile(&sandbox, &launcher, *call, error, &[]);
        // The first call starts the engine. The second one finds it, or the note of the first one.
        for round in 1..=2 {
            let (said, made) = compile(&sandbox, &launcher, *call, error, &[WAFCC]);
            if said.status != plain.status || made != object {
                wrong.push(format!("{name}, call {round}: {said:?}; without us {:?}", plain.status));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The system refuses with EPERM.
#[test]
fn calls_that_are_not_permitted_fail_no_compile() {
    compile_with_each_call_refused(libc::EPERM);
}

/// The system refuses with ENOSYS.
#[test]
fn unknown_calls_fail_no_compile() {
    compile_with_each_call_refused(libc::ENOSYS);
}

/// An engine with such a filter does not serve a client without: it leaves, and the next engine serves.
#[test]
fn an_engine_in_a_cell_makes_room() {
    let sandbox = Sandbox::new();
    let Some(launcher) = make_launcher(&sandbox) else {
        return;
    };
    let mut start = sandbox.command(&launcher);
    start.args([&libc::SYS_acct.to_string(), "1", env!("CARGO_BIN_EXE_wafd"), "start"]);
    run(&mut start).succeeded();
    let confined = sandbox.engine();
    let mut free = wrapper::clean(sandbox.command(WAFCC), &sandbox);
    run(free.args(["sh", "-c", ":"]).current_dir(sandbox.path(""))).succeeded();
    assert_ne!(sandbox.engine(), confined);
}
