//! One command, from its request to its outcome: waiting, running, ended; its streams and its process group.
//!
//! Does the input and output of one command without waiting; `server` decides when.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;
use rustix::pipe::PipeFlags;
use rustix::process::{kill_process_group, Pid, Signal};

use crate::connection::ConnectionKey;
use crate::context::{self, Adjustment, Context};
use crate::slots::{CommandKey, SessionId};
use crate::source::Source;
use crate::spawn::{self, Child, Launch, NotStarted, Spawner};
use crate::wire::{Execute, Outcome, Stdio, Step, Strings, Verdict};

/// Captured output above this goes to the client before the command ends.
const HELD: usize = 256 << 10;

/// What a command was asked for with.
pub struct Order {
    pub connection: ConnectionKey,
    pub session: SessionId,
    pub execute: Box<Execute>,
    pub env: Rc<Strings>,
    pub context: Rc<Context>,
    pub adjustments: Rc<Vec<Adjustment>>,
    pub control_group: Option<Arc<OwnedFd>>,
    pub descriptors: Vec<OwnedFd>,
    pub pin: bool,
    pub arrived: Instant,
}

impl Order {
    /// What it keeps in memory while it waits.
    pub fn size(&self) -> usize {
        self.execute.argv.size() + self.execute.input.len() + self.execute.cwd.len()
    }
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

pub struct Running {
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub feed: Option<Feed>,
    pub captures: [Option<Capture>; 2],
    /// Output that is complete but not yet sent, by stream.
    pub rest: [Vec<u8>; 2],
    pub started: Instant,
    /// When its process ended. It is reaped only with the outcome: until then its number, and its group's, are its own.
    pub ended: Option<Instant>,
    /// What became of it, if not simply that it ran.
    pub verdict: Verdict,
    pub processor: Option<usize>,
    /// Its place among those that the guardian would kill.
    pub berth: Option<usize>,
}

pub struct Command {
    pub order: Order,
    pub running: Option<Running>,
}

/// Our ends of a command's streams, and the ends that it gets.
struct Streams {
    ours: [Option<OwnedFd>; 3],
    theirs: [Option<OwnedFd>; 3],
}

fn open_streams(order: &mut Order) -> io::Result<Streams> {
    let mut streams = Streams {
        ours: [None, None, None],
        theirs: [None, None, None],
    };
    let mut descriptors = std::mem::take(&mut order.descriptors).into_iter();
    for (i, stdio) in order.execute.stdio.into_iter().enumerate() {
        match stdio {
            Stdio::Null | Stdio::SameAsStdout => {}
            Stdio::Descriptor => streams.theirs[i] = descriptors.next(),
            Stdio::Pipe => {
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                let (ours, theirs) = if i == 0 { (write, read) } else { (read, write) };
                // Ours alone: the command gets pipes that wait, as it would from anyone.
                rustix::io::ioctl_fionbio(&ours, true)?;
                streams.ours[i] = Some(ours);
                streams.theirs[i] = Some(theirs);
            }
        }
    }
    Ok(streams)
}

impl Command {
    /// Starts what was ordered. `null` stands for `/dev/null`.
    pub fn start(&mut self, spawner: &mut Spawner, null: &OwnedFd, processor: Option<usize>) -> Result<(), NotStarted> {
        let streams = open_streams(&mut self.order).map_err(|e| NotStarted::engine(&e))?;
        let order = &self.order;
        let end = |i: usize| streams.theirs[i].as_ref().unwrap_or(null).as_fd();
        let stderr = match order.execute.stdio[2] {
            Stdio::SameAsStdout => end(1),
            _ => end(2),
        };
        let group = order.control_group.clone().map(Adjustment::ControlGroup);
        let adjustments: Vec<_>;
        let adjustments = match group {
            None => &order.adjustments[..],
            Some(group) => {
                adjustments = std::iter::once(group)
                    .chain(order.adjustments.iter().cloned())
                    .collect();
                &adjustments[..]
            }
        };
        let Child { pid, pidfd } = spawner.spawn(&Launch {
            argv: &order.execute.argv,
            env: &order.env,
            cwd: &order.execute.cwd,
            stdio: [end(0), end(1), stderr],
            new_session: order.execute.new_session,
            context: &order.context,
            adjustments,
            pin: processor.map(context::pin),
        })?;
        let [stdin, stdout, stderr] = streams.ours;
        let capture = |fd| Capture { fd, held: Vec::new() };
        let data = std::mem::take(&mut self.order.execute.input);
        self.running = Some(Running {
            pid,
            pidfd,
            feed: stdin.map(|fd| Feed { fd, data, given: 0 }),
            captures: [stdout.map(capture), stderr.map(capture)],
            rest: Default::default(),
            started: Instant::now(),
            ended: None,
            verdict: Verdict::Ran,
            processor,
            berth: None,
        });
        Ok(())
    }

    /// The outcome of one that could not be started.
    pub fn not_started(&self, why: NotStarted) -> Outcome {
        Outcome {
            id: self.order.execute.id,
            verdict: Verdict::NotStarted,
            step: why.step,
            code: why.errno,
            queued: self.order.arrived.elapsed().as_micros() as u64,
            wall: 0,
            user: 0,
            system: 0,
            peak: 0,
        }
    }

    /// The outcome of one that was taken back before it started.
    pub fn retracted(&self) -> Outcome {
        Outcome {
            verdict: Verdict::Cancelled,
            step: Step::None,
            code: 0,
            ..self.not_started(NotStarted {
                step: Step::None,
                errno: 0,
            })
        }
    }
}

impl Running {
    /// All is over: the process has ended and nobody holds its pipes.
    pub fn is_done(&self) -> bool {
        self.ended.is_some() && self.captures.iter().all(Option::is_none)
    }

    /// Reaps the process and says what became of it.
    pub fn outcome(&self, order: &Order) -> Option<Outcome> {
        let ended = spawn::collect(self.pid)?;
        let at = self.ended.unwrap_or_else(Instant::now);
        let micros = |from: Instant, to: Instant| (to - from).as_micros() as u64;
        Some(Outcome {
            id: order.execute.id,
            verdict: self.verdict,
            step: Step::None,
            code: ended.code,
            queued: micros(order.arrived, self.started),
            wall: micros(self.started, at),
            user: ended.user,
            system: ended.system,
            peak: ended.peak,
        })
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

    /// What was read of a stream and not sent.
    pub fn take(&mut self, stream: usize) -> Vec<u8> {
        match &mut self.captures[stream] {
            Some(capture) => std::mem::take(&mut capture.held),
            None => std::mem::take(&mut self.rest[stream]),
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
