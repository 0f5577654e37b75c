//! Tests whether parking a program is correct, and gains time: it runs a small task for this kind of program plainly and
//! parked.
//!
//! The task is our own, because a command of a build never runs twice. Both runs must leave the same bytes. Then both are
//! measured in turn, by their least processor time: a busy machine, and programs that share its caches, only add to it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::packet::Request;
use super::parked::Parked;
use super::program::Program;
use super::task::Task;
use crate::observe::trace::Place;
use crate::process::context::{self, Block, Context};
use crate::process::roster::OwnPlace;
use crate::process::spawn::{self, Child, Ended, Launch, Spawner};
use crate::wire::Strings;

/// How long a trial's command may take.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUNDS: usize = 7;
/// How often the rounds are made while no gain shows.
const SETS: usize = 3;
/// A smaller gain is not worth the memory, or is only noise.
const LEAST_SHARE: f64 = 0.03;
const LEAST_NANOSECONDS: f64 = 80_000.0;

pub struct Bench<'a> {
    pub program: &'a Program,
    pub env: &'a Strings,
    pub folder: &'a Path,
    pub null: &'a OwnedFd,
    pub context: &'a Context,
    pub place: OwnPlace,
    pub must_gain: bool,
}

/// Why a program must not be parked.
pub enum Refusal {
    /// It does not do the same when it is parked.
    Wrong(String),
    /// It gained too little in this trial, or the trial did not come to an end. Another one may have another result.
    Undecided(String),
}

/// What keeps a trial from its end: a machine that is too busy, a disk that is full.
impl From<String> for Refusal {
    fn from(words: String) -> Refusal {
        Refusal::Undecided(words)
    }
}

/// What a command left.
#[derive(PartialEq, Eq)]
struct Traces {
    code: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: Vec<Option<Vec<u8>>>,
}

/// One of the two ways to start a command.
trait Way {
    fn start(&mut self, bench: &Bench<'_>, argv: &Strings, streams: &[File; 2]) -> Result<Child, String>;

    /// Processor time besides the command's own, in nanoseconds.
    fn aside(&self) -> u64 {
        0
    }
}

struct Plain<'a> {
    spawner: &'a mut Spawner,
    stack: [u64; 2],
}

impl Way for Plain<'_> {
    fn start(&mut self, bench: &Bench<'_>, argv: &Strings, streams: &[File; 2]) -> Result<Child, String> {
        let launch = Launch {
            argv,
            env: bench.env,
            cwd: bench.folder.as_os_str().as_encoded_bytes(),
            stdio: [bench.null.as_fd(), streams[0].as_fd(), streams[1].as_fd()],
            new_session: false,
            context: bench.context,
            adjustments: &[],
            roster_entry: Some(bench.place.take().1),
            log: Place::default(),
            own: [Some(context::stack(self.stack)), None, None],
        };
        self.spawner.spawn(&launch).map_err(|why| format!("{why:?}"))
    }
}

struct Forked<'a> {
    parked: &'a Parked,
    context: Block,
}

impl Way for Forked<'_> {
    fn start(&mut self, bench: &Bench<'_>, argv: &Strings, streams: &[File; 2]) -> Result<Child, String> {
        let (number, place) = bench.place.take();
        let folder = CString::new(bench.folder.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        let request = Request {
            flags: 0,
            roster_entry: number,
            group: 0,
            log: Place::default(),
            asker: 0,
            path: bench.program.path.to_bytes_with_nul(),
            folder: folder.to_bytes_with_nul(),
            argv: argv.bytes(),
            argc: argv.len(),
            env: bench.env.bytes(),
            envc: bench.env.len(),
            route: &[],
            context: self.context,
            streams: [bench.null.as_fd(), streams[0].as_fd(), streams[1].as_fd()],
        };
        self.parked.ask(&request, place).map_err(|why| why.0.to_owned())
    }

    fn aside(&self) -> u64 {
        self.parked.own_time()
    }
}

/// The gain, in words; or the reason why the program must not be parked.
pub fn run(bench: &Bench<'_>, parked: &Parked, spawner: &mut Spawner, stack: [u64; 2]) -> Result<String, Refusal> {
    let task = Task::of(&bench.program.name());
    let failed = |error: io::Error| format!("its trial could not be made: {error}");
    fs::create_dir_all(bench.folder).map_err(failed)?;
    for (name, text) in task.inputs {
        fs::write(bench.folder.join(name), text).map_err(failed)?;
    }
    let mut context = bench.context.block();
    context.limits[context::STACK] = stack;
    let mut plain = Plain { spawner, stack };
    let mut forked = Forked { parked, context };
    let result =
        compare(bench, &task, &mut plain, &mut forked).and_then(|()| measure(bench, &task, &mut plain, &mut forked));
    // Its outputs are of no use.
    let _ = fs::remove_dir_all(bench.folder);
    let _ = fs::create_dir_all(bench.folder);
    result
}

fn compare(bench: &Bench<'_>, task: &Task, plain: &mut Plain<'_>, forked: &mut Forked<'_>) -> Result<(), Refusal> {
    let wanted = leave_traces(bench, task, plain)?;
    let found = leave_traces(bench, task, forked)?;
    let same = [
        (wanted.code == found.code, "status"),
        (wanted.stdout == found.stdout, "output"),
        (wanted.stderr == found.stderr, "messages"),
        (wanted.files == found.files, "files"),
    ];
    match same.iter().find(|(same, _)| !same) {
        Some((_, what)) => Err(Refusal::Wrong(format!("parked, its {what} differ"))),
        None => Ok(()),
    }
}

fn measure(bench: &Bench<'_>, task: &Task, plain: &mut Plain<'_>, forked: &mut Forked<'_>) -> Result<String, Refusal> {
    let (mut before, mut after) = (f64::INFINITY, f64::INFINITY);
    let mut words = String::new();
    for _ in 0..SETS {
        for _ in 0..ROUNDS {
            before = before.min(take_time(bench, task, plain)?);
            after = after.min(take_time(bench, task, forked)?);
        }
        let saved = before - after;
        let share = saved / before.max(1.0);
        words = format!("{:.1} ms of {:.1} ms", saved / 1e6, before / 1e6);
        if share >= LEAST_SHARE && saved >= LEAST_NANOSECONDS {
            return Ok(format!("parked, it saves {words} ({:.0} %)", share * 100.0));
        }
        if !bench.must_gain {
            return Ok(format!("parked as it is wished, it saves {words}"));
        }
    }
    Err(Refusal::Undecided(format!("parked, it saves too little: {words}")))
}

fn leave_traces(bench: &Bench<'_>, task: &Task, way: &mut dyn Way) -> Result<Traces, String> {
    for name in task.outputs {
        let _ = fs::remove_file(bench.folder.join(name));
    }
    let ended = perform(bench, task.proof, way)?;
    let read = |name: &str| fs::read(bench.folder.join(name)).ok();
    Ok(Traces {
        code: ended.code,
        stdout: read(STDOUT).unwrap_or_default(),
        stderr: read(STDERR).unwrap_or_default(),
        files: task.outputs.iter().map(|name| read(name)).collect(),
    })
}

fn take_time(bench: &Bench<'_>, task: &Task, way: &mut dyn Way) -> Result<f64, String> {
    let aside = way.aside();
    let ended = perform(bench, task.gauge, way)?;
    Ok(((ended.user + ended.system) * 1000 + way.aside().saturating_sub(aside)) as f64)
}

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

/// Runs a command of the trial until it ends.
fn perform(bench: &Bench<'_>, args: &[&str], way: &mut dyn Way) -> Result<Ended, String> {
    let open = |name| File::create(bench.folder.join(name)).map_err(|e| format!("its trial could not be made: {e}"));
    let streams = [open(STDOUT)?, open(STDERR)?];
    let path = bench.program.path.to_bytes();
    let argv = Strings::from_iter(std::iter::once(path).chain(args.iter().map(|arg| arg.as_bytes())));
    let child = way
        .start(bench, &argv, &streams)
        .map_err(|why| format!("its trial could not be run: {why}"))?;
    let limit = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let is_over = poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], Some(&limit)) == Ok(1);
    if !is_over {
        // SAFETY: a child of ours that was not reaped.
        unsafe { libc::kill(child.pid, libc::SIGKILL) };
        bench.place.strike();
        spawn::reap(child.pid);
        return Err("its trial did not come to an end".to_owned());
    }
    bench.place.strike();
    spawn::collect(child.pid).ok_or_else(|| "its trial ended, and nobody knows how".to_owned())
}
