//! The states of a command, from its request to its outcome. Each state is a type that owns what it needs. Its methods
//! do the input and output of that state, and never wait.
//!
//! `command_flow` says which event leads from one state to the next. This file knows no connections and no slots.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;
use rustix::pipe::PipeFlags;
use rustix::process::{kill_process_group, Pid, Signal};

use super::away::Trip;
use super::connection::ConnectionKey;
use super::slots::{CommandKey, SessionId};
use super::source::Source;
use super::starters::Work;
use super::store_watch::StoreWait;
use crate::cache::answer::Ticket;
use crate::cache::away::Away;
use crate::cache::cache_threads::{Job, Jobs};
use crate::cache::remote::{Errand, Executor};
use crate::facts::driver_model::DriverPrediction;
use crate::facts::status::Stamp;
use crate::observe::trace::TraceRegion;
use crate::park::{Begun, Ledger, NextParts};
use crate::process::context::{Adjustment, Context};
use crate::process::spawn::{self, Child, Ended, NotStarted};
use crate::process::terminal;
use crate::wire::{Execute, Outcome, Size, Stdio, Step, Strings, Told, UnstoredReason, Verdict};

/// Captured output above this size goes to the client before the command ends.
const MAX_HELD: usize = 256 << 10;
/// Output above this size is not stored, and neither is the result.
const MAX_OUTPUT: usize = 8 << 20;

/// The request for a command, with what its client's process adds.
#[derive(Clone)]
pub struct Order {
    pub connection: ConnectionKey,
    pub session: SessionId,
    pub execute: Box<Execute>,
    pub env: Arc<Strings>,
    pub context: Arc<Context>,
    pub adjustments: Arc<Vec<Adjustment>>,
    pub control_group: Option<Arc<OwnedFd>>,
    /// The context of the client's process is in it. Before, only the umask is.
    pub has_context: bool,
    pub pin: bool,
    /// The size of the client's terminal, if it has one and the output goes through us.
    pub terminal: Option<Size>,
    pub arrived: Instant,
    /// Bytes that it keeps in memory while it waits.
    pub size: usize,
}

/// Input and descriptors of the request. The start uses them up.
pub struct Supplies {
    pub input: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// The plain command, for a compile that begins after its headers. It runs if that compile fails or prints anything.
pub struct Plainly {
    pub argv: Strings,
    pub supplies: Supplies,
}

/// An attempt that is over, and was no use.
pub struct Attempt {
    pub plainly: Box<Plainly>,
    pub ticket: Option<Ticket>,
    pub told: Told,
}

/// A captured stream: the end that we read, and output that was read and not sent.
pub struct Capture {
    pub fd: OwnedFd,
    pub held: Vec<u8>,
}

/// Input on its way to the command.
pub struct Feed {
    pub fd: OwnedFd,
    data: Vec<u8>,
    given: usize,
}

/// Resources of the engine that a running command holds besides its slot.
#[derive(Default)]
pub struct Resources {
    pub processor: Option<usize>,
    /// Where the guardian finds the command's process.
    pub roster_entry: Option<usize>,
}

/// The cache looks the command up.
pub struct Asking {
    pub supplies: Supplies,
    pub wait: StoreWait,
}

/// The command is to run, and has no slot yet.
pub struct Waiting {
    pub supplies: Supplies,
    /// Absent if the command was not looked up.
    pub recording: Option<Box<Recording>>,
}

/// The command has a slot, and a starter is about to start it.
pub struct Starting {
    ours: [Option<OwnedFd>; 3],
    input: Vec<u8>,
    /// The command is to be ended as soon as it runs.
    pub is_cancelled: bool,
    pub resources: Resources,
    pub recording: Option<Box<Recording>>,
}

/// The command runs, or another process still holds its pipes.
pub struct Running {
    /// Zero between two parts.
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub feed: Option<Feed>,
    pub captures: [Option<Capture>; 2],
    /// The last output of each closed stream, not sent yet.
    pub unsent: [Vec<u8>; 2],
    pub started: Instant,
    /// It runs in a parked program, or its first part did.
    pub is_parked: bool,
    /// When its process ended. The process is reaped only with the outcome: until then its number and its group's
    /// number are not reused.
    pub ended: Option<Instant>,
    /// `Ran`, unless we ended it.
    pub verdict: Verdict,
    /// The grace time of its group is over.
    pub killed: bool,
    pub resources: Resources,
    /// If the command runs part by part, without its driver: the parts that are left.
    pub next_parts: Option<NextParts>,
    /// Resources that ended parts have used.
    parts_usage: Ended,
    /// The exit status, if it is not the process's own.
    forced_end: Option<Ended>,
    pub recording: Option<Box<Recording>>,
}

/// The command ran on a cluster, and its outputs are being put in their places.
pub struct Fetching {
    /// For the case that they cannot be.
    pub supplies: Supplies,
    pub recording: Option<Box<Recording>>,
    pub wait: StoreWait,
    /// It counts among the requests of its client that wait.
    pub is_in_backlog: bool,
}

/// The command is over, and its result is being stored.
pub struct Storing {
    pub outcome: Outcome,
    pub told: Told,
    pub plainly: Option<Box<Plainly>>,
    pub wait: StoreWait,
}

pub enum State {
    Asking(Asking),
    Waiting(Waiting),
    /// It is on a cluster, and has no slot here.
    Away(Waiting),
    Fetching(Box<Fetching>),
    Starting(Starting),
    Running(Box<Running>),
    Storing(Box<Storing>),
}

pub struct Command {
    pub order: Arc<Order>,
    pub state: State,
}

/// What is recorded of a command for the cache.
pub struct Recording {
    /// The cache threads, which count a result that is not stored.
    jobs: Arc<Jobs>,
    /// What the client is told.
    pub told: Told,
    /// The right and the duty to store the result.
    pub ticket: Option<Ticket>,
    /// Set if this is only an attempt, of which the client is to see nothing unless it succeeds in silence.
    pub plainly: Option<Box<Plainly>>,
    /// Where the command writes its trace.
    pub trace_region: Option<TraceRegion>,
    /// The work that its driver would do, if the driver does not run.
    pub driver: Option<DriverPrediction>,
    /// Before the start of the command.
    pub started: Stamp,
    /// All output, by stream.
    pub output: [Vec<u8>; 2],
    /// Set while the command is on a cluster.
    pub errand: Option<Arc<Errand>>,
    /// It has been there, or is not to go there.
    pub was_away: bool,
    pub trip: Option<Trip>,
    /// It came back, while the command ran here, too: its result is in the store, and the run here is ended.
    pub departure: Option<Box<Away>>,
    /// For the case that this result is of no use.
    pub spare: Option<Supplies>,
}

impl Recording {
    pub fn new(told: Told, ticket: Option<Ticket>, jobs: Arc<Jobs>) -> Recording {
        Recording {
            jobs,
            told,
            ticket,
            plainly: None,
            trace_region: None,
            driver: None,
            started: Stamp::now(),
            output: Default::default(),
            errand: None,
            was_away: false,
            trip: None,
            departure: None,
            spare: None,
        }
    }

    /// It is a known compile, and its result is to be stored.
    pub fn is_of_compile(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| !ticket.is_by_facts())
    }

    /// The command line may be that of an attempt. The plain command is to run.
    pub fn run_plainly(&mut self, order: &mut Arc<Order>) {
        if let Some(plainly) = self.plainly.take() {
            Arc::make_mut(order).execute.argv = plainly.argv;
            self.ticket.iter_mut().for_each(|ticket| ticket.forgo_attempt());
        }
    }

    /// The cluster on which the command may run.
    pub fn executor(&self) -> Option<&Arc<dyn Executor>> {
        self.ticket.as_ref()?.executor.as_ref()
    }

    /// The result of the cluster is not wanted any more.
    pub fn call_off(&mut self) {
        self.departure = None;
        self.errand.take().iter().for_each(|errand| errand.call_off());
    }

    /// Records output up to a limit. If a command prints more, its result is not stored.
    pub fn note_output(&mut self, stream: usize, data: &[u8]) {
        if self.ticket.is_none() {
            return;
        }
        self.output[stream].extend_from_slice(data);
        if self.output[stream].len() > MAX_OUTPUT {
            self.give_up(UnstoredReason::PrintsTooMuch);
        }
    }

    /// If this is an attempt: the plain command, which is to run instead.
    pub fn end_attempt(&mut self) -> Option<Attempt> {
        let plainly = self.plainly.take()?;
        let mut ticket = self.ticket.take();
        if let Some(ticket) = &mut ticket {
            ticket.note_failure();
        }
        self.trace_region = None;
        let told = self.told.clone();
        Some(Attempt { plainly, ticket, told })
    }

    /// If the command starts with its first part, the trace must begin with that part.
    pub fn expect_part(&mut self) {
        if let (Some(driver), Some(trace_region)) = (&self.driver, &mut self.trace_region) {
            trace_region.expect_first(driver.first_part());
        }
    }

    /// Gives up storing the result. The reason is counted.
    pub fn give_up(&mut self, why: UnstoredReason) {
        let Some(ticket) = self.ticket.take() else { return };
        self.trace_region = None;
        self.output = Default::default();
        self.told.leave_unstored(why.into());
        self.jobs.send(Job::Leave(Box::new((ticket, why.into()))));
    }
}

impl Drop for Recording {
    /// However a command ends, a result that is not stored is counted.
    fn drop(&mut self) {
        self.call_off();
        self.give_up(UnstoredReason::Interrupted);
    }
}

impl Supplies {
    pub fn try_clone(&self) -> io::Result<Supplies> {
        let descriptors = self.descriptors.iter().map(OwnedFd::try_clone);
        Ok(Supplies {
            input: self.input.clone(),
            descriptors: descriptors.collect::<Result<_, _>>()?,
        })
    }
}

impl Plainly {
    pub fn new(argv: &Strings, supplies: &Supplies) -> io::Result<Plainly> {
        Ok(Plainly {
            argv: argv.clone(),
            supplies: supplies.try_clone()?,
        })
    }
}

impl State {
    pub fn recording_mut(&mut self) -> Option<&mut Recording> {
        match self {
            State::Waiting(waiting) | State::Away(waiting) => waiting.recording.as_deref_mut(),
            State::Fetching(fetching) => fetching.recording.as_deref_mut(),
            State::Starting(starting) => starting.recording.as_deref_mut(),
            State::Running(running) => running.recording.as_deref_mut(),
            State::Asking(_) | State::Storing(_) => None,
        }
    }
}

impl Waiting {
    /// Opens the pipes that are wanted. Returns the command's ends, and the state with our ends.
    pub fn open(self, execute: &Execute, terminal: Option<Size>) -> io::Result<([Option<OwnedFd>; 3], Starting)> {
        let mut theirs = [None, None, None];
        let mut ours = [None, None, None];
        let mut descriptors = self.supplies.descriptors.into_iter();
        for (i, stdio) in execute.stdio.into_iter().enumerate() {
            match stdio {
                Stdio::Null | Stdio::SameAsStdout => {}
                Stdio::Descriptor => theirs[i] = descriptors.next(),
                // A terminal is not a pipe, but is read like one.
                Stdio::Pipe if i == 2 && terminal.is_some() => {
                    let (our, their) = terminal::open(terminal.unwrap_or_default())?;
                    rustix::io::ioctl_fionbio(&our, true)?;
                    ours[i] = Some(our);
                    theirs[i] = Some(their);
                }
                Stdio::Pipe => {
                    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                    let (our, their) = if i == 0 { (write, read) } else { (read, write) };
                    // Only our end is non-blocking. The command gets blocking pipes, as programs expect.
                    rustix::io::ioctl_fionbio(&our, true)?;
                    ours[i] = Some(our);
                    theirs[i] = Some(their);
                }
            }
        }
        let starting = Starting {
            ours,
            input: self.supplies.input,
            is_cancelled: false,
            resources: Resources::default(),
            recording: self.recording,
        };
        Ok((theirs, starting))
    }
}

impl Starting {
    pub fn run(self, begun: Begun, at: Instant, is_parked: bool) -> Running {
        let Begun { child, next_parts } = begun;
        let [stdin, stdout, stderr] = self.ours;
        let data = self.input;
        let capture = |fd| Capture { fd, held: Vec::new() };
        Running {
            pid: child.pid,
            pidfd: child.pidfd,
            feed: stdin.map(|fd| Feed { fd, data, given: 0 }),
            captures: [stdout.map(capture), stderr.map(capture)],
            unsent: Default::default(),
            started: at,
            is_parked,
            ended: None,
            verdict: Verdict::Ran,
            killed: false,
            resources: self.resources,
            next_parts,
            parts_usage: Ended::default(),
            forced_end: None,
            recording: self.recording,
        }
    }
}

impl Order {
    /// The outcome of a command that has not run.
    pub fn outcome(&self, verdict: Verdict) -> Outcome {
        Outcome {
            id: self.execute.id,
            verdict,
            queued: self.arrived.elapsed().as_micros() as u64,
            ..Outcome::default()
        }
    }

    /// The outcome of a command that could not be started.
    pub fn not_started(&self, why: NotStarted) -> Outcome {
        Outcome {
            step: why.step,
            code: why.errno,
            ..self.outcome(Verdict::NotStarted)
        }
    }
}

impl Running {
    /// The process has ended, and no other process holds its pipes.
    pub fn is_done(&self) -> bool {
        self.ended.is_some() && self.captures.iter().all(Option::is_none)
    }

    /// Its group has been asked to end, and its grace time is not over.
    pub fn is_dying(&self) -> bool {
        self.verdict == Verdict::Cancelled && !self.killed
    }

    /// It is an attempt, after which the plain command may run.
    pub fn is_attempt(&self) -> bool {
        let recording = self.recording.as_ref();
        recording.is_some_and(|recording| recording.plainly.is_some())
    }

    /// It has printed something that was not sent yet.
    pub fn has_printed(&self) -> bool {
        let mut held = self.captures.iter().flatten().map(|capture| &capture.held);
        held.any(|held| !held.is_empty()) || self.unsent.iter().any(|rest| !rest.is_empty())
    }

    /// Ends an attempt early.
    pub fn abort(&mut self) {
        self.next_parts = None;
        self.feed = None;
        self.signal(Signal::KILL);
    }

    /// Reaps the process and returns the outcome.
    pub fn outcome(&self, order: &Order, ledger: &Ledger) -> Option<Outcome> {
        let mut ended = match &self.forced_end {
            Some(ended) => ended.clone(),
            None => spawn::collect(self.pid)?,
        };
        ledger.settle(self.pid, &mut ended);
        ended.include(&self.parts_usage);
        let at = self.ended.unwrap_or_else(Instant::now);
        let micros = |from: Instant, to: Instant| (to - from).as_micros() as u64;
        Some(Outcome {
            id: order.execute.id,
            verdict: self.verdict,
            step: if self.is_parked { Step::Parked } else { Step::None },
            code: ended.code,
            queued: micros(order.arrived, self.started),
            wall: micros(self.started, at),
            user: ended.user,
            system: ended.system,
            peak: ended.peak,
        })
    }

    /// A process of the command has ended. Returns the work that is to be started next, if there is any.
    /// `clear_roster_entry` is called before the process is reaped.
    pub fn next_part(&mut self, clear_roster_entry: impl FnOnce()) -> Option<Work> {
        let next_parts = self.next_parts.as_mut()?;
        let went_well = spawn::has_succeeded(&self.pidfd);
        if self.verdict != Verdict::Ran || (went_well && next_parts.next.is_none()) {
            // A driver that is asked to end removes the object file of its assembler.
            if self.verdict == Verdict::Cancelled && next_parts.next.is_none() && !went_well {
                let _ = fs::remove_file(&next_parts.output);
            }
            self.next_parts = None;
            return None;
        }
        clear_roster_entry();
        let ended = spawn::wait_for(self.pid);
        self.pid = 0;
        self.parts_usage.include(&ended);
        next_parts.statuses.push(ended.status);
        if went_well {
            next_parts.next.take().map(Work::Part)
        } else {
            self.next_parts
                .take()
                .map(|next_parts| Work::Driver(next_parts.statuses))
        }
    }

    /// The next part runs. If the command was to end between two parts, that is done now.
    pub fn continue_with(&mut self, child: Child) {
        self.pid = child.pid;
        self.pidfd = child.pidfd;
        match self.verdict {
            Verdict::Ran => {}
            Verdict::Cancelled if !self.killed => self.signal(Signal::TERM),
            _ => self.signal(Signal::KILL),
        }
    }

    /// Ends the command as a driver ends whose part has failed.
    pub fn fail(&mut self) {
        self.ended = Some(Instant::now());
        self.feed = None;
        self.forced_end = Some(Ended {
            code: 1,
            ..Ended::default()
        });
    }

    /// Reads all that is left in its pipes, when no other process should have them open.
    pub fn drain(&mut self, scratch: &mut [u8]) {
        for stream in 0..2 {
            while let Some(capture) = &self.captures[stream] {
                let held = capture.held.len();
                self.read(stream, scratch);
                // Another process has it open after all. Then we wait for the end of the pipe.
                if self.captures[stream]
                    .as_ref()
                    .is_some_and(|capture| capture.held.len() == held)
                {
                    break;
                }
            }
        }
    }

    /// Writes as much input as the pipe takes, and closes it at the end of the input.
    pub fn feed(&mut self) {
        let Some(feed) = &mut self.feed else { return };
        while feed.given < feed.data.len() {
            match rustix::io::write(&feed.fd, &feed.data[feed.given..]) {
                Ok(n) => feed.given += n,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                // The command does not read any more. As in Python's `communicate`, that is no error.
                Err(_) => break,
            }
        }
        self.feed = None;
    }

    /// Takes the output that was not sent yet. Records it for the cache, too.
    pub fn take_output(&mut self, stream: usize) -> Vec<u8> {
        let data = match &mut self.captures[stream] {
            Some(capture) => std::mem::take(&mut capture.held),
            None => std::mem::take(&mut self.unsent[stream]),
        };
        if let Some(recording) = &mut self.recording {
            recording.note_output(stream, &data);
        }
        data
    }

    /// Reads a captured stream once. True if enough is held to be sent.
    pub fn read(&mut self, stream: usize, scratch: &mut [u8]) -> bool {
        let Some(capture) = &mut self.captures[stream] else {
            return false;
        };
        match rustix::io::read(&capture.fd, &mut *scratch) {
            Ok(n) if n > 0 => {
                capture.held.extend_from_slice(&scratch[..n]);
                capture.held.len() >= MAX_HELD
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            _ => {
                self.close(stream);
                false
            }
        }
    }

    /// Closes a captured stream. Keeps what was read.
    pub fn close(&mut self, stream: usize) {
        if let Some(capture) = self.captures[stream].take() {
            self.unsent[stream] = capture.held;
        }
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.pid) {
            // The group may be empty already.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Adds the captured streams to epoll, or removes them.
    pub fn watch(&self, epoll: &OwnedFd, key: CommandKey, on: bool) -> io::Result<()> {
        for (stream, capture) in self.captures.iter().enumerate() {
            if let Some(capture) = capture {
                let source = Source::Capture(key, stream);
                // Removed, not watched for nothing: epoll reports a closed pipe even then.
                match on {
                    true => source.watch(epoll, &capture.fd)?,
                    false => epoll::delete(epoll, &capture.fd)?,
                }
            }
        }
        Ok(())
    }
}
