//! The states of a command, from its request to its outcome. Each state is a type that owns what it needs, and the methods
//! of a type do the input and output of that state without ever waiting.
//!
//! ```text
//! Asking ─► Waiting ─► Starting ─► Running ─► Storing ─► over
//! ```
//!
//! Which event leads from one state to the next is in `command_flow`. This file knows no connections and no slots.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;
use rustix::pipe::PipeFlags;
use rustix::process::{kill_process_group, Pid, Signal};

use super::connection::ConnectionKey;
use super::silence::StoreWait;
use super::slots::{CommandKey, SessionId};
use super::source::Source;
use super::starters::What;
use crate::cache::answer::Ticket;
use crate::cache::cache_threads::{Job, Jobs};
use crate::facts::driver_model::DriverPrediction;
use crate::facts::status::Stamp;
use crate::observe::trace::TraceRegion;
use crate::park::{Ledger, NextParts};
use crate::process::context::{Adjustment, Context};
use crate::process::spawn::{self, Child, Ended, NotStarted};
use crate::process::terminal;
use crate::wire::{Execute, Outcome, Size, Stdio, Step, Strings, Told, UnstoredReason, Verdict};

/// Captured output above this goes to the client before the command ends.
const HELD: usize = 256 << 10;
/// The most output of a command that is stored.
const PRINTED: usize = 8 << 20;

/// What a command was asked for with.
pub struct Order {
    pub connection: ConnectionKey,
    pub session: SessionId,
    pub execute: Box<Execute>,
    pub env: Arc<Strings>,
    pub context: Arc<Context>,
    pub adjustments: Arc<Vec<Adjustment>>,
    pub control_group: Option<Arc<OwnedFd>>,
    /// It has all that its client's commands are to be given.
    pub is_equipped: bool,
    pub pin: bool,
    /// Its messages are for a terminal, if they go through us.
    pub terminal: Option<Size>,
    pub arrived: Instant,
    /// What it keeps in memory while it waits.
    pub size: usize,
}

/// What came with an order and is used up by starting.
pub struct Supplies {
    pub input: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// A captured stream: the end we read, and what was read and not sent.
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

/// What a command takes of the engine besides its slot.
#[derive(Default)]
pub struct Holdings {
    pub processor: Option<usize>,
    /// Its place among those that the guardian would kill.
    pub roster_entry: Option<usize>,
}

/// The cache is asked whether the command is known.
pub struct Asking {
    pub supplies: Supplies,
    pub wait: StoreWait,
}

/// The command is to run, and has no slot yet.
pub struct Waiting {
    pub supplies: Supplies,
    /// Absent if the cache was not asked.
    pub case: Option<Box<Case>>,
}

/// The command has a slot, and one of the starters is about to start it.
pub struct Starting {
    ours: [Option<OwnedFd>; 3],
    input: Vec<u8>,
    /// It is to end as soon as it runs.
    pub is_cancelled: bool,
    pub holdings: Holdings,
    pub case: Option<Box<Case>>,
}

/// The command runs, or somebody still holds its pipes.
pub struct Running {
    /// Zero between two parts.
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub feed: Option<Feed>,
    pub captures: [Option<Capture>; 2],
    /// Output that is complete but not yet sent, by stream.
    pub rest: [Vec<u8>; 2],
    pub started: Instant,
    /// In a parked program, or with its first part in one.
    pub is_parked: bool,
    /// When its process ended. It is reaped only with the outcome: until then its number, and its group's, are its own.
    pub ended: Option<Instant>,
    /// What became of it, if not simply that it ran.
    pub verdict: Verdict,
    /// Its group had its time to end.
    pub killed: bool,
    pub holdings: Holdings,
    /// What is left of it, where it runs as its driver's parts.
    pub next_parts: Option<NextParts>,
    /// What those parts took that have ended.
    spent: Ended,
    /// How it ended, where that is not for the kernel to say.
    settled: Option<Ended>,
    pub case: Option<Box<Case>>,
}

/// The command is over, and what came of it is being stored.
pub struct Storing {
    pub outcome: Outcome,
    /// What its client is told.
    pub told: Told,
    pub wait: StoreWait,
}

pub enum State {
    Asking(Asking),
    Waiting(Waiting),
    Starting(Starting),
    Running(Box<Running>),
    Storing(Box<Storing>),
}

pub struct Command {
    pub order: Arc<Order>,
    pub state: State,
}

/// A command that may be cached.
pub struct Case {
    /// Where it is told that nothing will be stored.
    jobs: Arc<Jobs>,
    /// What its client is told.
    pub told: Told,
    /// What comes of it is to be stored.
    pub ticket: Option<Ticket>,
    /// Where it notes what it does.
    pub trace_region: Option<TraceRegion>,
    /// What its driver would do, if that does not run.
    pub driver: Option<DriverPrediction>,
    /// From before it was started.
    pub started: Stamp,
    /// All that it printed.
    pub prints: [Vec<u8>; 2],
}

impl Case {
    pub fn new(told: Told, ticket: Option<Ticket>, jobs: Arc<Jobs>) -> Case {
        Case {
            jobs,
            told,
            ticket,
            trace_region: None,
            driver: None,
            started: Stamp::now(),
            prints: Default::default(),
        }
    }

    /// Output is stored up to a limit; a command that prints more is not stored.
    pub fn note_output(&mut self, stream: usize, data: &[u8]) {
        if self.ticket.is_none() {
            return;
        }
        self.prints[stream].extend_from_slice(data);
        if self.prints[stream].len() > PRINTED {
            self.give_up(UnstoredReason::PrintsTooMuch);
        }
    }

    /// It has begun with its first part, if its driver does not run.
    pub fn expect_part(&mut self) {
        if let (Some(driver), Some(trace_region)) = (&self.driver, &mut self.trace_region) {
            trace_region.expect_first(driver.first_part());
        }
    }

    /// Nothing of it will be stored, which is counted by this reason.
    pub fn give_up(&mut self, why: UnstoredReason) {
        let Some(ticket) = self.ticket.take() else { return };
        self.trace_region = None;
        self.prints = Default::default();
        self.told.leave_unstored(why.into());
        self.jobs.send(Job::Leave(Box::new((ticket, why.into()))));
    }
}

impl Drop for Case {
    /// Whatever becomes of a command, what is not stored is counted.
    fn drop(&mut self) {
        self.give_up(UnstoredReason::Interrupted);
    }
}

impl Waiting {
    /// Opens the pipes that are wanted: what the command gets, and what we keep until it runs.
    pub fn open(self, execute: &Execute, terminal: Option<Size>) -> io::Result<([Option<OwnedFd>; 3], Starting)> {
        let mut theirs = [None, None, None];
        let mut ours = [None, None, None];
        let mut descriptors = self.supplies.descriptors.into_iter();
        for (i, stdio) in execute.stdio.into_iter().enumerate() {
            match stdio {
                Stdio::Null | Stdio::SameAsStdout => {}
                Stdio::Descriptor => theirs[i] = descriptors.next(),
                // A terminal is no pipe, but read like one.
                Stdio::Pipe if i == 2 && terminal.is_some() => {
                    let (our, their) = terminal::open(terminal.unwrap_or_default())?;
                    rustix::io::ioctl_fionbio(&our, true)?;
                    ours[i] = Some(our);
                    theirs[i] = Some(their);
                }
                Stdio::Pipe => {
                    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                    let (our, their) = if i == 0 { (write, read) } else { (read, write) };
                    // Ours alone: the command gets pipes that wait, as it would from anyone.
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
            holdings: Holdings::default(),
            case: self.case,
        };
        Ok((theirs, starting))
    }
}

impl Starting {
    pub fn run(self, child: Child, at: Instant, is_parked: bool, next_parts: Option<NextParts>) -> Running {
        let [stdin, stdout, stderr] = self.ours;
        let data = self.input;
        let capture = |fd| Capture { fd, held: Vec::new() };
        Running {
            pid: child.pid,
            pidfd: child.pidfd,
            feed: stdin.map(|fd| Feed { fd, data, given: 0 }),
            captures: [stdout.map(capture), stderr.map(capture)],
            rest: Default::default(),
            started: at,
            is_parked,
            ended: None,
            verdict: Verdict::Ran,
            killed: false,
            holdings: self.holdings,
            next_parts,
            spent: Ended::default(),
            settled: None,
            case: self.case,
        }
    }
}

impl Order {
    /// The outcome of one that could not be started.
    pub fn not_started(&self, why: NotStarted) -> Outcome {
        Outcome {
            id: self.execute.id,
            verdict: Verdict::NotStarted,
            step: why.step,
            code: why.errno,
            queued: self.arrived.elapsed().as_micros() as u64,
            wall: 0,
            user: 0,
            system: 0,
            peak: 0,
        }
    }

    /// The outcome of one that was taken back before it started.
    pub fn retracted(&self) -> Outcome {
        let never = NotStarted {
            step: Step::None,
            errno: 0,
        };
        Outcome {
            verdict: Verdict::Cancelled,
            ..self.not_started(never)
        }
    }
}

impl Running {
    /// All is over: the process has ended and nobody holds its pipes.
    pub fn is_done(&self) -> bool {
        self.ended.is_some() && self.captures.iter().all(Option::is_none)
    }

    /// Its group still has time to end.
    pub fn is_dying(&self) -> bool {
        self.verdict == Verdict::Cancelled && !self.killed
    }

    /// Reaps the process and says what became of it.
    pub fn outcome(&self, order: &Order, ledger: &Ledger) -> Option<Outcome> {
        let mut ended = match &self.settled {
            Some(ended) => ended.clone(),
            None => spawn::collect(self.pid)?,
        };
        ledger.settle(self.pid, &mut ended);
        ended.include(&self.spent);
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

    /// A process has ended: what is to run next for this command, if anything is. `strike` is done before a process is
    /// reaped.
    pub fn next_part(&mut self, strike: impl FnOnce()) -> Option<What> {
        let next_parts = self.next_parts.as_mut()?;
        let went_well = spawn::has_succeeded(&self.pidfd);
        if self.verdict != Verdict::Ran || (went_well && next_parts.next.is_none()) {
            // A driver that is told to end takes the object of its assembler with it.
            if self.verdict == Verdict::Cancelled && next_parts.next.is_none() && !went_well {
                let _ = fs::remove_file(&next_parts.output);
            }
            self.next_parts = None;
            return None;
        }
        strike();
        let ended = spawn::wait_for(self.pid);
        self.pid = 0;
        self.spent.include(&ended);
        next_parts.statuses.push(ended.status);
        if went_well {
            next_parts.next.take().map(What::Part)
        } else {
            self.next_parts
                .take()
                .map(|next_parts| What::Driver(next_parts.statuses))
        }
    }

    /// The next part runs; what befell the command between two parts befalls it now.
    pub fn go_on(&mut self, child: Child) {
        self.pid = child.pid;
        self.pidfd = child.pidfd;
        match self.verdict {
            Verdict::Ran => {}
            Verdict::Cancelled if !self.killed => self.signal(Signal::TERM),
            _ => self.signal(Signal::KILL),
        }
    }

    /// Ends as a driver does whose part has failed.
    pub fn end_badly(&mut self) {
        self.ended = Some(Instant::now());
        self.feed = None;
        self.settled = Some(Ended {
            code: 1,
            ..Ended::default()
        });
    }

    /// Reads all that is left in its pipes, which nobody else has open.
    pub fn drain(&mut self, scratch: &mut [u8]) {
        for stream in 0..2 {
            while let Some(capture) = &self.captures[stream] {
                let held = capture.held.len();
                self.read(stream, scratch);
                // Somebody has it open after all: the end of it will be told.
                if self.captures[stream]
                    .as_ref()
                    .is_some_and(|capture| capture.held.len() == held)
                {
                    break;
                }
            }
        }
    }

    /// Gives the command what it takes of its input; closes the pipe when it has all.
    pub fn feed(&mut self) {
        let Some(feed) = &mut self.feed else { return };
        while feed.given < feed.data.len() {
            match rustix::io::write(&feed.fd, &feed.data[feed.given..]) {
                Ok(n) => feed.given += n,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                // It does not read any more: as with Python's `communicate`, its own affair.
                Err(_) => break,
            }
        }
        self.feed = None;
    }

    /// Takes what was read of a stream and not sent. It is noted for the cache, too.
    pub fn take_output(&mut self, stream: usize) -> Vec<u8> {
        let data = match &mut self.captures[stream] {
            Some(capture) => std::mem::take(&mut capture.held),
            None => std::mem::take(&mut self.rest[stream]),
        };
        if let Some(case) = &mut self.case {
            case.note_output(stream, &data);
        }
        data
    }

    /// Reads one captured stream once; true if enough is held to be sent.
    pub fn read(&mut self, stream: usize, scratch: &mut [u8]) -> bool {
        let Some(capture) = &mut self.captures[stream] else {
            return false;
        };
        match rustix::io::read(&capture.fd, &mut *scratch) {
            Ok(n) if n > 0 => {
                capture.held.extend_from_slice(&scratch[..n]);
                capture.held.len() >= HELD
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            _ => {
                self.close(stream);
                false
            }
        }
    }

    /// Closes a captured stream, keeping what was read.
    pub fn close(&mut self, stream: usize) {
        if let Some(capture) = self.captures[stream].take() {
            self.rest[stream] = capture.held;
        }
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.pid) {
            // There may be nobody left in it.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Watches, or leaves alone, the streams that are captured.
    pub fn watch(&self, epoll: &OwnedFd, key: CommandKey, on: bool) -> io::Result<()> {
        for (stream, capture) in self.captures.iter().enumerate() {
            if let Some(capture) = capture {
                let data = Source::Capture(key, stream).data();
                // Taken out, not told of nothing: the end of a pipe would be told all the same.
                match on {
                    true => epoll::add(epoll, &capture.fd, data, epoll::EventFlags::IN)?,
                    false => epoll::delete(epoll, &capture.fd)?,
                }
            }
        }
        Ok(())
    }
}
