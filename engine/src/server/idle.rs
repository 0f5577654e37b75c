//! Runs commands again while the engine is idle, for audits and preambles: one at a time, with the lowest priority. That is
//! interrupted as soon as a real command arrives.
//!
//! ```text
//! due ─► queue ─► engine idle for a while ─► run elsewhere ─► used by the cache
//!          ▲               └─► a command arrives: killed, and back into the queue
//! ```
//!
//! What helps the build that runs now is not put off: a second queue runs at once, with the priority of its command, and is
//! not interrupted.
//!
//! Each queue has a thread of its own and takes no slot. Only an engine that stops waits for it, until the process is killed.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use log::debug;
use rustix::process::{kill_process_group, Pid, Signal};

use super::observation::Observer;
use crate::cache::rerun::{Call, Due, NotCompared, Observed, Ran, PRINTS};
use crate::cache::Cache;
use crate::facts::status::Stamp;
use crate::observe::trace::{Place, TraceRegion};
use crate::process::apart::read_left;
use crate::process::context::{Adjustment, Context};
use crate::process::jobserver;
use crate::process::readable::is_readable;
use crate::process::roster::OwnPlace;
use crate::process::spawn::{self, Child, Launch, Spawner};
use crate::wire::Strings;

/// Longer than the pauses between the commands of a build.
const QUIET: Duration = Duration::from_secs(1);
/// A compile that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(600);
/// A piece of work is begun this often before it is given up.
const ATTEMPTS: usize = 3;
const MOST: usize = 4096;
const MOST_BYTES: usize = 16 << 20;
/// The lowest priority for `nice` and `ionice`.
const NICE: i32 = 19;
const IDLE_CLASS: i32 = 3 << 13;

/// When a queue runs what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Idle,
    AtOnce,
}

/// Something due, with the context that its command had.
pub struct IdleWork {
    pub cache: Arc<Cache>,
    pub due: Box<Due>,
    pub context: Arc<Context>,
    pub adjustments: Arc<Vec<Adjustment>>,
    pub control_group: Option<Adjustment>,
    /// `None` if nothing is to be observed, or can be.
    pub observer: Option<Observer>,
    pub attempts: usize,
}

struct State {
    queue: VecDeque<IdleWork>,
    is_busy: bool,
    /// When the engine last had a command.
    since: Instant,
    /// The process group that runs. It is not reaped yet.
    group: Option<i32>,
    is_interrupted: bool,
    is_stopped: bool,
    is_auditing: bool,
}

impl State {
    fn audits(&self) -> usize {
        self.queue.iter().filter(|work| work.due.is_audit()).count()
    }
}

impl IdleWork {
    fn leave(&self, why: NotCompared) {
        self.cache.leave_rerun(&self.due, why);
    }
}

struct Queue {
    when: When,
    state: Mutex<State>,
    changed: Condvar,
    /// Work waits or runs. If not, `set_busy` has nothing to do.
    is_wanted: AtomicBool,
}

pub struct Idle {
    queue: Arc<Queue>,
    place: Option<OwnPlace>,
    /// Started with the first work, since most engines have none.
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, work: IdleWork) {
        let mut state = self.state();
        state.since = Instant::now();
        let cache = work.cache.clone();
        state.queue.push_back(work);
        let mut bytes: usize = state.queue.iter().map(|work| work.due.size()).sum();
        while state.queue.len() > MOST || bytes > MOST_BYTES {
            let Some(oldest) = state.queue.pop_front() else { break };
            bytes -= oldest.due.size();
            oldest.leave(NotCompared::TooManyWaiting);
        }
        self.tell_audits(&cache, state.audits() + usize::from(state.is_auditing));
        self.is_wanted.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_one();
    }

    fn tell_audits(&self, cache: &Cache, count: usize) {
        if self.when == When::Idle {
            cache.set_audits_waiting(count);
        }
    }

    /// The next work, as soon as the engine has been idle for a while. `None` when the engine stops.
    fn next(&self) -> Option<IdleWork> {
        let mut state = self.state();
        loop {
            if state.is_stopped {
                return None;
            }
            let quiet = match self.when {
                When::Idle => state.since.elapsed(),
                When::AtOnce => QUIET,
            };
            state = if state.queue.is_empty() || state.is_busy {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else if quiet < QUIET {
                let waited = self.changed.wait_timeout(state, QUIET - quiet);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                state.is_interrupted = false;
                let work = state.queue.pop_front();
                state.is_auditing = work.as_ref().is_some_and(|work| work.due.is_audit());
                return work;
            };
        }
    }

    /// A process has started. It is killed at once if the work was interrupted.
    fn begin(&self, pid: i32) {
        let mut state = self.state();
        state.group = Some(pid);
        if state.is_interrupted {
            kill(pid);
        }
    }

    /// A process has ended and will be reaped. Returns whether it was killed.
    fn end(&self) -> bool {
        let mut state = self.state();
        state.group = None;
        state.is_interrupted
    }

    fn is_interrupted(&self) -> bool {
        self.state().is_interrupted
    }

    fn finish(&self, cache: &Cache) {
        let mut state = self.state();
        state.is_auditing = false;
        self.tell_audits(cache, state.audits());
        self.is_wanted.store(!state.queue.is_empty(), Ordering::Relaxed);
    }
}

fn kill(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

impl Idle {
    /// `place` is where the guardian looks for processes to kill.
    pub fn new(when: When, place: Option<OwnPlace>) -> Idle {
        let state = State {
            queue: VecDeque::new(),
            is_busy: false,
            since: Instant::now(),
            group: None,
            is_interrupted: false,
            is_stopped: false,
            is_auditing: false,
        };
        let queue = Arc::new(Queue {
            when,
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_wanted: AtomicBool::new(false),
        });
        Idle {
            queue,
            place,
            thread: None,
        }
    }

    pub fn push(&mut self, work: IdleWork) {
        if self.thread.is_none() {
            let (queue, place) = (self.queue.clone(), self.place);
            let run = move || run_all(&queue, place);
            match thread::Builder::new().name("idle".to_owned()).spawn(run) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => return debug!("start the thread for idle times: {error}"),
            }
        }
        self.queue.push(work);
    }

    /// Says whether the engine has commands. Called in each round, for work that waits until it has none.
    pub fn set_busy(&self, is_busy: bool) {
        if !self.queue.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.queue.state();
        if is_busy {
            state.since = Instant::now();
            state.is_interrupted = true;
            state.group.into_iter().for_each(kill);
        }
        if state.is_busy != is_busy {
            state.is_busy = is_busy;
            drop(state);
            self.queue.changed.notify_one();
        }
    }

    /// Kills what runs and ends the thread.
    pub fn close(&mut self) {
        let mut state = self.queue.state();
        state.is_stopped = true;
        state.is_interrupted = true;
        state.group.into_iter().for_each(kill);
        let left = std::mem::take(&mut state.queue);
        drop(state);
        self.queue.changed.notify_one();
        left.iter().for_each(|work| work.leave(NotCompared::EngineStopped));
        self.thread.take().map(JoinHandle::join);
    }
}

fn run_all(queue: &Queue, own: Option<OwnPlace>) {
    let mut spawner = match Spawner::new() {
        Ok(spawner) => spawner,
        Err(error) => return debug!("nothing can be done in idle times: {error}"),
    };
    while let Some(mut work) = queue.next() {
        work.attempts += 1;
        let launched = Launched::of(&work, queue.when);
        let mut run = |call: &Call| launched.run(call, &mut spawner, queue, own);
        let cache = work.cache.clone();
        match cache.rerun(&work.due, &mut run) {
            Ok(()) => {}
            Err(NotCompared::Interrupted) if work.attempts < ATTEMPTS && !queue.state().is_stopped => queue.push(work),
            Err(why) => {
                debug!("in idle time: {}", why.name());
                work.leave(why);
            }
        }
        queue.finish(&cache);
    }
}

/// A command that is run again: as it was, but with the lowest priority in idle times.
struct Launched<'a> {
    work: &'a IdleWork,
    adjustments: Vec<Adjustment>,
}

impl Launched<'_> {
    fn of(work: &IdleWork, when: When) -> Launched<'_> {
        let keeps = |one: &&Adjustment| match one {
            Adjustment::Nice(_) | Adjustment::IoPriority(_) => when == When::AtOnce,
            _ => true,
        };
        let mut adjustments: Vec<_> = work.adjustments.iter().filter(keeps).cloned().collect();
        if when == When::Idle {
            adjustments.extend([Adjustment::Nice(NICE), Adjustment::IoPriority(IDLE_CLASS)]);
        }
        Launched { work, adjustments }
    }

    fn run(&self, call: &Call, spawner: &mut Spawner, queue: &Queue, own: Option<OwnPlace>) -> Ran {
        if queue.is_interrupted() {
            return Ran::Interrupted;
        }
        let streams = || -> io::Result<[File; 3]> {
            let output = PRINTS.map(|name| File::create(call.folder.join(name)));
            let [stdout, stderr] = output;
            Ok([File::open("/dev/null")?, stdout?, stderr?])
        };
        let Ok(streams) = streams() else {
            return Ran::Not(NotCompared::NoRoom);
        };
        let question = &self.work.due.question;
        let observer = self.work.observer.as_ref().filter(|_| call.is_observed);
        let context = &self.work.context;
        let without = jobserver::without_pipe(&question.environment);
        let environment = without.as_ref().unwrap_or(&question.environment);
        let Some(traced) = self.trace(call, environment, observer) else {
            return Ran::Not(NotCompared::Unseen);
        };
        let Traced {
            trace_region,
            argv,
            env,
        } = traced;
        let started = Stamp::now();
        let launch = Launch {
            argv: argv.as_ref().unwrap_or(call.argv),
            env: env.as_ref().unwrap_or(environment),
            cwd: &question.folder,
            stdio: [streams[0].as_fd(), streams[1].as_fd(), streams[2].as_fd()],
            // Linux compares priorities within a session only.
            new_session: queue.when == When::Idle,
            context,
            adjustments: &self.adjustments,
            roster_entry: own.map(|own| own.take().1),
            log: Place::default(),
            own: [self.work.control_group.clone(), None, None],
        };
        let Ok(child) = spawner.spawn(&launch) else {
            return Ran::Not(NotCompared::NotStarted);
        };
        queue.begin(child.pid);
        if queue.when == When::Idle {
            give_way(child.pid);
        }
        let is_over = wait(&child, call.apart.map_or(LIMIT, |apart| apart.limit.min(LIMIT)));
        // Processes that the command has left behind are in its group.
        kill(child.pid);
        let is_interrupted = queue.end();
        own.iter().for_each(OwnPlace::strike);
        let ended = spawn::wait_for(child.pid);
        let observed = trace_region.zip(observer).map(|(trace_region, observer)| Observed {
            accesses: trace_region.finish(),
            started,
            observer: observer.path(),
        });
        let left = match call.apart {
            Some(apart) => read_left(call.folder, apart.folders),
            None => Some(Vec::new()),
        };
        match (is_interrupted, is_over, left) {
            (true, ..) => Ran::Interrupted,
            (_, false, _) => Ran::Not(NotCompared::TookTooLong),
            (.., None) => {
                let said = fs::read_to_string(call.folder.join(PRINTS[1])).unwrap_or_default();
                debug!("{}", said.trim_end());
                Ran::Not(NotCompared::NotStarted)
            }
            (.., Some(left)) => Ran::Ended {
                code: ended.code,
                processor: ended.user + ended.system,
                observed,
                left,
            },
        }
    }

    /// Prepares the observation. `None` if it is necessary and not possible.
    fn trace(&self, call: &Call, env: &Strings, observer: Option<&Observer>) -> Option<Traced> {
        let question = &self.work.due.question;
        let place = (&question.folder[..], &*self.work.context);
        if let Some(apart) = call.apart {
            let (trace_region, argv) = observer?.observe_apart(call, apart, env, place)?;
            return Some(Traced {
                trace_region: Some(trace_region),
                argv: Some(argv),
                env: None,
            });
        }
        let trace = observer.and_then(|observer| observer.observe(call.argv, env, place.0, place.1));
        let (trace_region, trace) = trace.unzip();
        let (argv, env) = trace.map(|trace| (trace.argv, trace.env)).unzip();
        Some(Traced {
            trace_region,
            argv: argv.flatten(),
            env,
        })
    }
}

/// How a command is observed, and with which words and variables, if not with its own.
struct Traced {
    trace_region: Option<TraceRegion>,
    argv: Option<Strings>,
    env: Option<Strings>,
}

/// Gives all processes of its session the lowest priority among sessions, where the kernel shares processors among these.
fn give_way(pid: i32) {
    let _ = fs::write(format!("/proc/{pid}/autogroup"), NICE.to_string());
}

/// Waits for the end of the process. False if it takes too long.
fn wait(child: &Child, limit: Duration) -> bool {
    is_readable(&child.pidfd, Instant::now() + limit).unwrap_or_else(|error| {
        // The caller kills the process: we could not see its end.
        debug!("wait for process {}: {error}", child.pidfd.as_raw_fd());
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_engine_interrupts_work_only_if_there_is_any() {
        let idle = Idle::new(When::Idle, None);
        idle.set_busy(true);
        assert!(!idle.queue.state().is_busy);
        idle.queue.is_wanted.store(true, Ordering::Relaxed);
        idle.set_busy(true);
        assert!(idle.queue.state().is_busy && idle.queue.is_interrupted());
    }

    #[test]
    fn nothing_is_next_once_it_is_closed() {
        let mut idle = Idle::new(When::Idle, None);
        idle.close();
        assert!(idle.queue.next().is_none());
    }
}
