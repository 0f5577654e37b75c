//! A command that a parked program becomes has what it would have if it were spawned.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::support::order::{command, Order};
use crate::support::peer::{hello, Peer};
use crate::support::probes::{build, eager, park, parked_runs, probe, run_parked, told};
use crate::support::sandbox::{new_session, Sandbox};
use crate::support::stand_in::StandIn;
use wafengine::wire::Stdio;

/// The same program with two engines: one has it parked, one spawns it.
struct Pair {
    parking: Sandbox,
    plain: Sandbox,
    path: PathBuf,
}

type Prepare = fn() -> io::Result<()>;

impl Pair {
    fn new() -> Pair {
        let parking = eager();
        let path = probe(&parking, "probe", "");
        Pair {
            parking,
            plain: Sandbox::without_parking(),
            path,
        }
    }

    /// The same environment for both, as environment 1.
    fn clients(&self, env: &[&[u8]]) -> [Peer; 2] {
        let mut clients = [self.parking.client(1), self.plain.client(1)];
        clients.iter_mut().for_each(|peer| peer.define(1, env));
        park(&mut clients[0], &self.path);
        clients
    }

    /// Clients that differ from this test by what they do before they start.
    fn stand_ins(&self, prepare: Prepare) -> [(StandIn, Peer); 2] {
        park(&mut self.parking.client(1), &self.path);
        [&self.parking, &self.plain].map(|sandbox| {
            let (stand_in, mut peer) = StandIn::start(sandbox, prepare);
            peer.welcome(&hello(new_session(), 1));
            peer.define(1, ["A=1"]);
            (stand_in, peer)
        })
    }

    /// Both leave the same, and the one was really run parked; returns what was printed.
    #[track_caller]
    fn agree(&self, [parked, plain]: [&mut Peer; 2], order: &Order) -> String {
        let found = run_parked(parked, &self.path, order);
        let wanted = plain.run(order);
        assert_eq!(shown(&found.stdout), shown(&wanted.stdout));
        assert_eq!(shown(&found.stderr), shown(&wanted.stderr));
        assert_eq!(
            (found.outcome.verdict, found.outcome.code),
            (wanted.outcome.verdict, wanted.outcome.code)
        );
        shown(&found.stdout)
    }

    fn show(&self) -> Order {
        told(&self.path, &["show"]).env(1)
    }

    /// What clients that were prepared like this have is what their commands have.
    #[track_caller]
    fn agree_after(&self, prepare: Prepare) -> String {
        let [(_a, mut parked), (_b, mut plain)] = self.stand_ins(prepare);
        self.agree([&mut parked, &mut plain], &self.show())
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "no {line:?} in {text}");
}

// ---- strings and names

/// Arguments arrive as they were sent: empty ones, and bytes that are no text.
#[test]
fn arguments_are_the_same() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"A=1"]);
    let args = ["show".as_bytes(), b"", b"a b", b"\xff\xfe", b"", b"\"'\n"].map(OsStr::from_bytes);
    let text = pair.agree([&mut a, &mut b], &told(&pair.path, &args).env(1));
    has(&text, "argv[2]=");
    has(&text, "argv[4]=\\xff\\xfe");
}

/// The environment has the client's order, duplicates and empty values, or nothing at all.
#[test]
fn environments_are_the_same() {
    let pair = Pair::new();
    let odd: [&[&[u8]]; 3] = [
        &[b"Z=1", b"TWICE=a", b"A=\xff", b"TWICE=b", b"EMPTY="],
        &[],
        &[b"A=", b"B==="],
    ];
    for env in odd {
        let [mut a, mut b] = pair.clients(env);
        pair.agree([&mut a, &mut b], &pair.show());
        pair.agree([&mut a, &mut b], &told(&pair.path, &["libc"]).env(1));
    }
}

/// A program that is found along PATH, from its folder or behind a link has that name, and not its file's.
#[test]
fn names_are_the_same() {
    let pair = Pair::new();
    let folder = pair.path.parent().unwrap().to_owned();
    fs::create_dir(folder.join("sub")).unwrap();
    std::os::unix::fs::symlink(&pair.path, folder.join("other-name-that-is-long")).unwrap();
    std::os::unix::fs::symlink("../probe", folder.join("sub/linked")).unwrap();
    let path = [b"PATH=/nowhere:", folder.as_os_str().as_bytes()].concat();
    let [mut a, mut b] = pair.clients(&[&path]);
    let mut differ = Vec::new();
    for name in [
        "probe",
        "./probe",
        "sub/../probe",
        "other-name-that-is-long",
        "sub/linked",
    ] {
        let order = command(&[name, "show"]).env(1).cwd(&folder);
        let found = shown(&run_parked(&mut a, &pair.path, &order).stdout);
        let wanted = shown(&b.run(&order).stdout);
        let lines = wanted.lines().zip(found.lines()).filter(|(w, f)| w != f);
        differ.extend(lines.map(|(w, f)| format!("{name}: {w:?}, but parked {f:?}")));
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// The folder is the client's, also behind a link; a missing one is told alike.
#[test]
fn folders_are_the_same() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"A=1"]);
    let link = pair.parking.path("link");
    std::os::unix::fs::symlink("/usr/lib", &link).unwrap();
    for folder in [link.as_path(), Path::new("/usr/lib"), Path::new("/")] {
        pair.agree([&mut a, &mut b], &pair.show().cwd(folder));
    }
    for missing in ["/no/such/folder", "/dev/null"] {
        let outcomes = [&mut a, &mut b].map(|peer| {
            let outcome = peer.run(&pair.show().cwd(Path::new(missing))).outcome;
            (outcome.verdict, outcome.step, outcome.code)
        });
        assert_eq!(outcomes[0], outcomes[1]);
    }
}

// ---- what the kernel knows

/// Without any preparation: descriptors, signals, limits, priorities, group, parent, names.
#[test]
fn processes_are_the_same() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"A=1"]);
    let text = pair.agree([&mut a, &mut b], &pair.show());
    has(&text, "group is own 1, session is own 0, tid is pid 1");
    has(&text, "Threads:\t1");
    // the engine's own are short, where the kernel knows such
    let ours = fs::read_to_string("/proc/self/sched").unwrap_or_default();
    let slice = ours.lines().find(|line| line.starts_with("se.slice"));
    assert_eq!(text.lines().find(|line| line.starts_with("se.slice")), slice);
    let text = pair.agree([&mut a, &mut b], &pair.show().new_session());
    has(&text, "group is own 1, session is own 1, tid is pid 1");
}

#[test]
fn masks_are_the_same() {
    let text = Pair::new().agree_after(|| {
        // SAFETY: plain system calls.
        unsafe {
            libc::umask(0o27);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::sigaddset(&mut set, 40);
            done(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))?;
            libc::signal(libc::SIGUSR2, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
        Ok(())
    });
    has(&text, "Umask:\t0027");
}

#[test]
fn limits_are_the_same() {
    Pair::new().agree_after(|| {
        let limits = [
            (libc::RLIMIT_NOFILE, 123),
            (libc::RLIMIT_CORE, 0),
            (libc::RLIMIT_FSIZE, 1 << 30),
            (libc::RLIMIT_CPU, 1000),
        ];
        for (which, value) in limits {
            let limit = libc::rlimit {
                rlim_cur: value,
                rlim_max: value,
            };
            // SAFETY: a plain system call.
            done(unsafe { libc::setrlimit(which, &limit) })?;
        }
        Ok(())
    });
}

#[test]
fn priorities_are_the_same() {
    let text = Pair::new().agree_after(|| {
        // SAFETY: plain system calls.
        unsafe {
            done(libc::setpriority(libc::PRIO_PROCESS, 0, 7))?;
            let none: libc::sched_param = std::mem::zeroed();
            done(libc::sched_setscheduler(0, libc::SCHED_BATCH, &none))?;
            done(libc::syscall(libc::SYS_ioprio_set, 1, 0, 2 << 13 | 6) as i32)?;
        }
        fs::write("/proc/self/oom_score_adj", "321")
    });
    has(&text, "nice 7 policy 3 priority 0 io 16390 cpus 0 1");
    has(&text, "321");
}

#[test]
fn processors_are_the_same() {
    Pair::new().agree_after(|| {
        // SAFETY: plain system calls.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut set);
            done(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set))
        }
    });
}

// ---- streams

/// Standard streams as pipes, with more than a pipe holds in both directions.
#[test]
fn pipes_are_the_same() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"A=1"]);
    let input: Vec<u8> = (0..900_000u32).map(|i| b'a' + (i % 19) as u8).collect();
    let text = pair.agree([&mut a, &mut b], &told(&pair.path, &["copy"]).input(&input));
    assert_eq!(text.len(), input.len());
    let text = pair.agree([&mut a, &mut b], &told(&pair.path, &["flood", "9"]));
    assert_eq!(text.len(), 5 << 20);
}

/// The two outputs may be one; streams may be closed or nothing.
#[test]
fn odd_streams_are_the_same() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"A=1"]);
    for stdio in [
        [Stdio::Null, Stdio::Pipe, Stdio::Null],
        [Stdio::Pipe, Stdio::Pipe, Stdio::Pipe],
    ] {
        pair.agree([&mut a, &mut b], &pair.show().stdio(stdio));
    }
}

// ---- how it ends

/// Exit statuses and signals are those of the program.
#[test]
fn ends_are_the_same() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"A=1"]);
    for status in ["0", "1", "127", "128", "255", "256"] {
        pair.agree([&mut a, &mut b], &told(&pair.path, &["exit", status]));
    }
    for signal in ["1", "2", "6", "9", "11", "13", "15", "24", "34", "64"] {
        pair.agree([&mut a, &mut b], &told(&pair.path, &["raise", signal]));
    }
    pair.agree([&mut a, &mut b], &told(&pair.path, &["abort"]));
}

/// Mutexes of every kind, threads, children and their abort, `system`.
#[test]
fn threads_and_children_work() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"A=1"]);
    let text = pair.agree([&mut a, &mut b], &told(&pair.path, &["threads"]).env(1));
    has(&text, "sum 4000 robust 130");
    has(&text, "child ended by 6");
}

/// Libraries can be loaded, locales set, the environment changed, and `atexit` works.
#[test]
fn libc_works() {
    let pair = Pair::new();
    let [mut a, mut b] = pair.clients(&[b"LC_ALL=C.UTF-8", b"PATH=/bin", b"TWICE=1"]);
    let text = pair.agree([&mut a, &mut b], &told(&pair.path, &["libc"]).env(1));
    has(&text, "cos 1.000000");
    has(&text, "at exit");
}

/// A program that is at a fixed address, or resolves its symbols late, parks as well as any.
#[test]
fn every_way_of_linking_parks() {
    let sandbox = eager();
    let mut peer = sandbox.client(1);
    for (name, flags) in [
        ("fixed", &["-no-pie"][..]),
        ("late", &["-Wl,-z,lazy"]),
        ("old", &["-Wl,--hash-style=sysv"]),
    ] {
        let path = build(&sandbox, name, "", flags);
        park(&mut peer, &path);
        let text = run_parked(&mut peer, &path, &told(&path, &["threads"])).text();
        has(&text, "sum 4000 robust 130");
        assert!(parked_runs(&mut peer, &path) > 0);
    }
}
