//! One connection to a team's server, shared by all callers. A thread sends what there is to send, and passes each answer
//! to the caller that waits for its number.
//!
//! A caller does not wait for earlier ones, and all frames that gather while the socket is busy are sent together. Of the
//! frames, this file knows only their numbers.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags};

use super::heartbeat::Heartbeat;
use super::stream::{fault, Stream};
use super::Fault;
use crate::bytes::frame::Inbox;
use crate::process::mailbox::Bell;
use crate::room::FRAME_CAP;

const CHUNK: usize = 64 << 10;

pub struct Line {
    state: Mutex<State>,
    news: Condvar,
    /// Rung when there is something to send, or the line is not needed any more.
    bell: Bell,
}

#[derive(Default)]
struct State {
    outbox: Vec<u8>,
    /// Frames that have come, by the number of their request.
    waiting: HashMap<u32, VecDeque<Vec<u8>>>,
    last: u32,
    /// Grows with every byte that comes.
    received: u64,
    /// When bytes came last.
    heard: Option<Instant>,
    /// When it was used last.
    used: Option<Instant>,
    /// It is broken, or not needed any more.
    end: Option<Fault>,
}

/// A request, until its last answer has come.
pub struct Exchange<'a> {
    line: &'a Line,
    id: u32,
}

impl Line {
    /// Over a stream on which both sides have exchanged greetings.
    pub fn start(mut stream: Stream, heartbeat: &Arc<Heartbeat>) -> Result<Arc<Line>, Fault> {
        let failed = |error: io::Error| fault(&error, heartbeat);
        stream.set_nonblocking().map_err(failed)?;
        let line = Arc::new(Line {
            state: Mutex::default(),
            news: Condvar::new(),
            bell: Bell::new().map_err(failed)?,
        });
        let (running, heartbeat) = (line.clone(), heartbeat.clone());
        let run = move || {
            let ended = running.run(&mut stream);
            running.end(fault(&ended, &heartbeat));
        };
        thread::Builder::new()
            .name("room".to_owned())
            .spawn(run)
            .map_err(failed)?;
        Ok(line)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_open(&self) -> bool {
        self.state().end.is_none()
    }

    /// Whether it was not used for this time.
    pub fn is_idle_for(&self, time: Duration) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.used.is_some_and(|used| used.elapsed() > time)
    }

    /// Whether something came within this time.
    pub fn has_heard_within(&self, time: Duration) -> bool {
        self.state().heard.is_some_and(|heard| heard.elapsed() < time)
    }

    fn end(&self, why: Fault) {
        let mut state = self.state();
        state.end.get_or_insert(why);
        drop(state);
        self.news.notify_all();
    }

    /// The line is not needed any more.
    pub fn close(&self) {
        self.end(Fault::Failed("the connection was given up".to_owned()));
        self.bell.ring();
    }

    /// Sends the frame that `write` makes with the request's number.
    pub fn ask(&self, write: impl FnOnce(u32, &mut Vec<u8>)) -> Result<Exchange<'_>, Fault> {
        let mut state = self.state();
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        state.last = state.last.wrapping_add(1);
        let id = state.last;
        state.used = Some(Instant::now());
        state.waiting.insert(id, VecDeque::new());
        write(id, &mut state.outbox);
        drop(state);
        self.bell.ring();
        Ok(Exchange { line: self, id })
    }

    /// Runs until the connection breaks, or is not needed.
    fn run(&self, stream: &mut Stream) -> io::Error {
        let mut inbox = Inbox::new(FRAME_CAP);
        let mut chunk = vec![0; CHUNK];
        let mut outgoing = Vec::new();
        let mut sent = 0;
        loop {
            if let Err(error) = self.send(stream, &mut outgoing, &mut sent) {
                return error;
            }
            match self.receive(stream, &mut inbox, &mut chunk) {
                Ok(()) => {}
                Err(error) => return error,
            }
            if !self.is_open() {
                return ErrorKind::ConnectionAborted.into();
            }
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, sent < outgoing.len() || stream.is_sending());
            let mut both = [PollFd::new(stream, wanted), PollFd::new(&self.bell, PollFlags::IN)];
            match poll(&mut both, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return error.into(),
            }
            self.bell.silence();
        }
    }

    fn send(&self, stream: &mut Stream, outgoing: &mut Vec<u8>, sent: &mut usize) -> io::Result<()> {
        loop {
            if *sent == outgoing.len() {
                outgoing.clear();
                *sent = 0;
                std::mem::swap(outgoing, &mut self.state().outbox);
            }
            if outgoing.is_empty() {
                return unless_blocked(stream.flush());
            }
            match stream.write(&outgoing[*sent..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => *sent += n,
                Err(error) => return unless_blocked(Err(error)),
            }
        }
    }

    fn receive(&self, stream: &mut Stream, inbox: &mut Inbox, chunk: &mut [u8]) -> io::Result<()> {
        loop {
            let read = match stream.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) => return unless_blocked(Err(error)),
            };
            inbox.push(&chunk[..read]);
            let mut state = self.state();
            state.received += read as u64;
            state.heard = Some(Instant::now());
            while let Some(frame) = inbox.take().map_err(io::Error::other)? {
                let id = frame
                    .get(1..5)
                    .and_then(|id| id.try_into().ok())
                    .map(u32::from_le_bytes);
                let waiting = id.and_then(|id| state.waiting.get_mut(&id));
                // If the caller has given up, the frame is dropped.
                if let Some(frames) = waiting {
                    frames.push_back(frame.to_vec());
                }
            }
            inbox.trim();
            drop(state);
            self.news.notify_all();
        }
    }
}

/// It is no error if this cannot be done now.
fn unless_blocked(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        done => done,
    }
}

impl Exchange<'_> {
    /// The next frame of the answer. Waits no longer than the heartbeat allows.
    pub fn next(&mut self, heartbeat: &Heartbeat) -> Result<Vec<u8>, Fault> {
        let mut state = self.line.state();
        loop {
            if let Some(frame) = state.waiting.get_mut(&self.id).and_then(VecDeque::pop_front) {
                return Ok(frame);
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            let time = heartbeat.listen();
            let received = state.received;
            if time.is_zero() {
                return Err(fault(&ErrorKind::TimedOut.into(), heartbeat));
            }
            let (next, waited) = self
                .line
                .news
                .wait_timeout_while(state, time, |state| state.received == received && state.end.is_none())
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() && state.received == received {
                return Err(fault(&ErrorKind::TimedOut.into(), heartbeat));
            }
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.used = Some(Instant::now());
        state.waiting.remove(&self.id);
    }
}
