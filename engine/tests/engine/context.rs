//! The context that a command inherits from its client's process. It does not depend on the engine's context, and is
//! read when the frame arrives.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;

use crate::support::order::{command, shell, Order};
use crate::support::peer::{hello, Peer};
use crate::support::process;
use crate::support::sandbox::{self, is_root, new_session, Sandbox};
use crate::support::stand_in::StandIn;
use wafengine::wire::{Hello, Reply, Stdio, WISH_PIN};

/// A client whose process runs what the test tells it.
fn client(sandbox: &Sandbox, prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> (StandIn, Peer) {
    let (stand_in, mut peer) = StandIn::start(sandbox, prepare);
    peer.welcome(&hello(new_session(), 1));
    peer.define(0, sandbox.environment());
    (stand_in, peer)
}

fn done(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn show(path: &str) -> Order {
    command(&["cat", path])
}

/// A field of `/proc/PID/stat`, by its number in the manual page.
fn stat_field(text: &str, number: usize) -> i64 {
    let rest = text.rsplit_once(") ").unwrap().1;
    rest.split(' ').nth(number - 3).unwrap().trim().parse().unwrap()
}

/// The umask is the client's at the time of each frame.
#[test]
fn the_umask_is_the_clients() {
    let sandbox = Sandbox::started();
    let (mut stand_in, mut peer) = client(&sandbox, || Ok(()));
    for umask in ["0027", "0000", "0777", "0022"] {
        stand_in.tell(&format!("umask {umask}"));
        assert_eq!(peer.run(&shell("umask")).text(), format!("{umask}\n"));
    }
}

/// All resource limits are the client's at the time of each frame, lower or higher than the engine's.
#[test]
fn the_limits_are_the_clients() {
    let sandbox = Sandbox::started();
    let (stand_in, mut peer) = client(&sandbox, || Ok(()));
    let limits_of = |pid: i32| fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let untouched = limits_of(stand_in.pid());
    assert_eq!(peer.run(&show("/proc/self/limits")).text(), untouched);
    for (resource, soft, hard) in [
        (libc::RLIMIT_NOFILE, 77, 99),
        (libc::RLIMIT_CORE, 0, 0),
        (libc::RLIMIT_CPU, 3000, 4000),
        (libc::RLIMIT_STACK, 1 << 20, 1 << 30),
        (libc::RLIMIT_FSIZE, 1 << 30, 1 << 31),
        (libc::RLIMIT_NOFILE, 55, 66),
    ] {
        let limit = libc::rlimit64 {
            rlim_cur: soft,
            rlim_max: hard,
        };
        // SAFETY: a system call on our own child.
        done(unsafe { libc::prlimit64(stand_in.pid(), resource, &limit, std::ptr::null_mut()) }).unwrap();
        assert_eq!(peer.run(&show("/proc/self/limits")).text(), limits_of(stand_in.pid()));
    }
    assert_ne!(limits_of(stand_in.pid()), untouched);
}

/// The nice value is the client's at the time of each frame.
#[test]
fn the_nice_value_is_the_clients() {
    let sandbox = Sandbox::started();
    let (stand_in, mut peer) = client(&sandbox, || Ok(()));
    // Only root may lower the nice value again.
    let values: &[i32] = if is_root() { &[7, 19, 3, -5, 0] } else { &[7, 19] };
    for nice in values {
        // SAFETY: a system call on our own child.
        done(unsafe { libc::setpriority(libc::PRIO_PROCESS, stand_in.pid() as u32, *nice) }).unwrap();
        let text = peer.run(&show("/proc/self/stat")).text();
        assert_eq!(stat_field(&text, 19), i64::from(*nice));
    }
}

/// The scheduling policy is the client's at the time of each frame.
#[test]
fn the_policy_is_the_clients() {
    let sandbox = Sandbox::started();
    let (stand_in, mut peer) = client(&sandbox, || Ok(()));
    for policy in [libc::SCHED_BATCH, libc::SCHED_IDLE] {
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: a system call on our own child.
        done(unsafe { libc::sched_setscheduler(stand_in.pid(), policy, &param) }).unwrap();
        let text = peer.run(&show("/proc/self/stat")).text();
        assert_eq!(stat_field(&text, 41), i64::from(policy));
    }
}

fn allowed(status: &str) -> String {
    process::field(status, "Cpus_allowed_list")
}

/// The processors are the client's at the time of each frame.
#[test]
fn the_processors_are_the_clients() {
    let sandbox = Sandbox::started();
    let (stand_in, mut peer) = client(&sandbox, || Ok(()));
    let all = process::status(stand_in.pid(), "Cpus_allowed_list");
    if all.parse::<usize>().is_ok() {
        return eprintln!("not tried: there is one processor");
    }
    let ends = all
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse::<usize>().unwrap());
    let ends: Vec<usize> = ends.collect();
    for processor in [ends[0], *ends.last().unwrap()] {
        // SAFETY: a set of our own, and a system call on our own child.
        done(unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(stand_in.pid(), size_of_val(&set), &set)
        })
        .unwrap();
        let text = peer.run(&show("/proc/self/status")).text();
        assert_eq!(allowed(&text), processor.to_string());
    }
}

fn ignored(status: &str) -> u64 {
    u64::from_str_radix(&process::field(status, "SigIgn"), 16).unwrap()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Ignored signals are the client's at the time of each frame, except for the two that Python ignores for itself.
#[test]
fn ignored_signals_are_the_clients() {
    let sandbox = Sandbox::started();
    let (mut stand_in, mut peer) = client(&sandbox, || Ok(()));
    // The caller of the tests may ignore some signals, too.
    let others = ignored(&fs::read_to_string("/proc/self/status").unwrap());
    let others = others & !bit(libc::SIGPIPE) & !bit(libc::SIGXFSZ);
    let mut of_command = || ignored(&peer.run(&show("/proc/self/status")).text());
    assert_eq!(of_command(), others);
    stand_in.tell("trap '' INT USR1 PIPE XFSZ HUP");
    let more = bit(libc::SIGINT) | bit(libc::SIGUSR1) | bit(libc::SIGHUP);
    assert_eq!(of_command(), others | more);
    stand_in.tell("trap - INT HUP PIPE XFSZ");
    assert_eq!(of_command(), others | bit(libc::SIGUSR1));
}

/// Blocked signals are exactly the client's.
#[test]
fn blocked_signals_are_the_clients() {
    let sandbox = Sandbox::started();
    let blocked = |text: &str| process::field(text, "SigBlk");
    let (_stand_in, mut peer) = client(&sandbox, || Ok(()));
    let text = peer.run(&show("/proc/self/status")).text();
    assert_eq!(blocked(&text), format!("{:016x}", 0));
    // A program that leaves its signals alone, and answers.
    let (stand_in, mut peer) = StandIn::run(&sandbox, &["cat"], || {
        // SAFETY: a set of our own.
        done(unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR2);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut())
        })
    })
    .unwrap();
    peer.welcome(&hello(new_session(), 1));
    peer.define(0, sandbox.environment());
    let expected = process::status(stand_in.pid(), "SigBlk");
    assert_ne!(expected, format!("{:016x}", 0));
    let text = peer.run(&show("/proc/self/status")).text();
    assert_eq!(blocked(&text), expected);
}

/// The out-of-memory score and the personality are the client's.
#[test]
fn score_and_personality_are_the_clients() {
    let sandbox = Sandbox::started();
    let (_stand_in, mut peer) = client(&sandbox, || {
        let file = rustix::fs::open(
            "/proc/self/oom_score_adj",
            rustix::fs::OFlags::WRONLY,
            rustix::fs::Mode::empty(),
        )?;
        rustix::io::write(&file, b"321")?;
        // SAFETY: sets a number of the calling process.
        unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        Ok(())
    });
    assert_eq!(peer.run(&show("/proc/self/oom_score_adj")).text(), "321\n");
    let personality = peer.run(&show("/proc/self/personality")).text();
    assert_eq!(personality, format!("{:08x}\n", libc::ADDR_NO_RANDOMIZE));
}

/// The out-of-memory score is the client's at the time of each frame, too.
#[test]
fn a_new_score_is_taken_over() {
    let sandbox = Sandbox::started();
    let (mut stand_in, mut peer) = client(&sandbox, || Ok(()));
    for score in ["111", "222"] {
        stand_in.tell(&format!("echo {score} > /proc/$$/oom_score_adj"));
        let text = peer.run(&show("/proc/self/oom_score_adj")).text();
        assert_eq!(text.trim(), score);
    }
}

/// Two clients at the same time each keep their own context.
#[test]
fn clients_do_not_mix() {
    let sandbox = Sandbox::started();
    let (mut first, mut one) = client(&sandbox, || Ok(()));
    let (mut second, mut two) = client(&sandbox, || Ok(()));
    first.tell("umask 011; trap '' USR1");
    second.tell("umask 022; trap '' USR2");
    let order = shell("umask; cat /proc/$$/status");
    let shown = |text: String| {
        let signals = ignored(&text) & (bit(libc::SIGUSR1) | bit(libc::SIGUSR2));
        (text[..4].to_owned(), signals)
    };
    for _ in 0..10 {
        let (a, b) = (one.submit(&order), two.submit(&order));
        assert_eq!(shown(one.finish(a).text()), ("0011".to_owned(), bit(libc::SIGUSR1)));
        assert_eq!(shown(two.finish(b).text()), ("0022".to_owned(), bit(libc::SIGUSR2)));
    }
}

/// Signals, limits and masks of the process that started the engine do not reach commands.
#[test]
fn the_context_of_the_starter_does_not_reach_commands() {
    let sandbox = Sandbox::new();
    let mut start = sandbox.wafd(&["start"]);
    // SAFETY: only system calls.
    unsafe {
        start.pre_exec(|| {
            for signal in [
                libc::SIGINT,
                libc::SIGHUP,
                libc::SIGQUIT,
                libc::SIGPIPE,
                libc::SIGCHLD,
                libc::SIGUSR1,
                libc::SIGRTMAX(),
            ] {
                libc::signal(signal, libc::SIG_IGN);
            }
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            libc::umask(0o777);
            let mut limit: libc::rlimit64 = std::mem::zeroed();
            libc::getrlimit64(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = 40;
            libc::setrlimit64(libc::RLIMIT_NOFILE, &limit);
            Ok(())
        });
    }
    sandbox::run(&mut start).succeeded();
    let (stand_in, mut peer) = client(&sandbox, || Ok(()));
    let of_client = |name: &str| process::status(stand_in.pid(), name);
    let text = peer.run(&show("/proc/self/status")).text();
    for name in ["SigIgn", "SigBlk", "Umask"] {
        assert_eq!(process::field(&text, name), of_client(name), "{name}");
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", stand_in.pid())).unwrap();
    assert_eq!(peer.run(&show("/proc/self/limits")).text(), limits);
    // The engine still reacts to the signal that stops it.
    process::kill(sandbox.engine(), libc::SIGTERM);
    sandbox.wait_until_empty();
}

/// An engine whose caller ignores SIGCHLD still sees the end of its commands.
#[test]
fn a_starter_that_ignores_its_children_changes_nothing() {
    let sandbox = Sandbox::new();
    let mut start = sandbox.wafd(&["start"]);
    // SAFETY: only a system call.
    unsafe {
        start.pre_exec(|| {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        });
    }
    sandbox::run(&mut start).succeeded();
    let mut peer = sandbox.client(1);
    peer.run(&shell("exit 3")).ended(3);
    process::kill(peer.pid, libc::SIGKILL);
    sandbox.wait_until_empty();
}

/// If the engine cannot give a command the client's context, it refuses the client, and does not run the command with
/// less.
#[test]
fn a_command_never_has_less_than_its_client() {
    if !is_root() {
        return eprintln!("not tried: only root can be another user with fewer rights");
    }
    const SOMEBODY: u32 = 12345;
    let sandbox = Sandbox::new();
    for path in [sandbox.runtime(), &sandbox.path("")] {
        std::os::unix::fs::chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    fn become_another_user() -> io::Result<()> {
        // SAFETY: only system calls, in a child before it runs another program.
        unsafe {
            done(libc::setgroups(0, std::ptr::null()))?;
            done(libc::setresgid(SOMEBODY, SOMEBODY, SOMEBODY))?;
            done(libc::setresuid(SOMEBODY, SOMEBODY, SOMEBODY))
        }
    }
    // The other user must be able to read the program.
    let program = sandbox.path("wafd");
    sandbox::install(env!("CARGO_BIN_EXE_wafd").as_ref(), &program);
    let mut start = sandbox.command(&program);
    start.arg("start");
    // SAFETY: only system calls.
    unsafe {
        start.pre_exec(|| {
            done(libc::setpriority(libc::PRIO_PROCESS, 0, 5))?;
            let limit = libc::rlimit64 {
                rlim_cur: 100,
                rlim_max: 100,
            };
            done(libc::setrlimit64(libc::RLIMIT_NOFILE, &limit))?;
            become_another_user()
        });
    }
    sandbox::run(&mut start).succeeded();
    let (stand_in, mut peer) = StandIn::start(&sandbox, become_another_user);
    match peer.greet(&hello(new_session(), 1)) {
        Reply::Refused { reason, .. } => println!("refused: {}", String::from_utf8_lossy(&reason)),
        Reply::Welcome { .. } => {
            peer.define(0, sandbox.environment());
            let finished = peer.run(&show("/proc/self/stat"));
            assert_eq!(stat_field(&finished.text(), 19), 0);
        }
        other => panic!("{other:?}"),
    }
    drop((peer, stand_in));
    // The engine belongs to another user, and does not serve us.
    for (pid, _) in sandbox.processes() {
        process::kill(pid, libc::SIGTERM);
    }
    sandbox.wait_until_empty();
}

/// If a client asks for it, each of its commands is pinned to one processor, and commands that run at the same time to
/// different ones.
#[test]
fn pinned_commands_have_a_processor_each() {
    let sandbox = Sandbox::started();
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let mut peer = sandbox.stranger();
    peer.welcome(&Hello {
        wishes: WISH_PIN,
        ..hello(new_session(), 2)
    });
    peer.define(0, sandbox.environment());
    let gate = sandbox.close_gate("gate");
    // `flock` is not a builtin: the shell itself reports its processors before it waits.
    let order = shell(&format!("grep Cpus_allowed_list /proc/$$/status; {}", gate.script));
    let order = order.stdio([Stdio::Null, Stdio::Pipe, Stdio::Pipe]);
    let both = [peer.submit(&order), peer.submit(&order)];
    sandbox::wait_until("both run", || peer.report()["slots"]["running"] == 2);
    gate.open();
    let shown = both.map(|id| allowed(&peer.finish(id).text()));
    assert!(shown.iter().all(|list| list.parse::<usize>().is_ok()), "{shown:?}");
    if allowed(&own).parse::<usize>().is_err() {
        assert_ne!(shown[0], shown[1]);
    }
    // Other clients' commands are not pinned.
    let text = sandbox.client(1).run(&show("/proc/self/status")).text();
    assert_eq!(allowed(&text), allowed(&own));
}
