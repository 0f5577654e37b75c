//! A connection: its bytes in and out, what it speaks, and how long it has been at something.
//!
//! Never waits. When nothing is under way it holds next to no memory.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dialect::{Dialect, Step};
use super::disk_threads::{Done, Job};
use super::limits::{Share, STRANGE_REQUESTS, UNKNOWN};
use super::mailbox::Arrival;
use super::metrics::{add, Turned};
use super::outbox::Outbox;
use super::shared::{Admission, Exchange, Shared};
use super::tls::{Received, Wire};

/// Input up to this size is not counted.
const FREE: usize = 16 << 10;
/// Less than this in the time of patience is nothing.
const PROGRESS: u64 = 16 << 10;
/// So long a peer that was turned away may take to hear why.
const LINGER: Duration = Duration::from_secs(2);

pub struct Connection {
    wire: Wire,
    pub peer: SocketAddr,
    arrived: Instant,
    dialect: Dialect,
    pub admission: Option<Arc<Admission>>,
    /// The worker counts it among those that have shown no token.
    pub is_stranger: bool,
    /// Requests without a token, since the last one with one.
    strange: u32,
    input: Vec<u8>,
    share: Share,
    /// What it needs next is more than was free.
    pub starves: bool,
    out: Outbox,
    /// A porter is at a job of this connection.
    pub is_away: bool,
    /// It says no more, but has not sent all that it said.
    is_last: bool,
    /// All is said and sent since then; the peer is to hear it.
    lingers: Option<Instant>,
    has_ended: bool,
    /// When something that is under way began, or has moved lately.
    incoming: Option<Watch>,
    outgoing: Option<Watch>,
    received: u64,
    sent: u64,
    /// Of that the metrics know.
    told: u64,
    /// Requests since the last tick.
    pace: u32,
    pub interest: (bool, bool),
}

/// Something that has to move on.
#[derive(Debug, Clone, Copy)]
struct Watch {
    since: Instant,
    bytes: u64,
}

/// Why a connection is at its end.
#[derive(Debug)]
pub enum End {
    Gone,
    Failed(io::Error),
    Turned(Turned, &'static str),
    /// A panic of ours.
    Fault,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Failed(error)
    }
}

impl Connection {
    pub fn new(arrival: Arrival, shared: &Shared) -> io::Result<Connection> {
        let Arrival { socket, peer, is_plain } = arrival;
        let tls = if is_plain { None } else { shared.tls() };
        socket.set_nonblocking(true)?;
        // Without it frames only come later.
        socket.set_nodelay(true)?;
        keep_alive(&socket);
        Ok(Connection {
            wire: Wire::new(socket, tls.as_ref())?,
            peer,
            arrived: Instant::now(),
            dialect: Dialect::unknown(shared.recognize),
            admission: None,
            is_stranger: true,
            strange: 0,
            input: Vec::new(),
            share: shared.dock.budget.share(),
            starves: false,
            out: Outbox::default(),
            is_away: false,
            is_last: false,
            lingers: None,
            has_ended: false,
            incoming: None,
            outgoing: None,
            received: 0,
            sent: 0,
            told: 0,
            pace: 0,
            interest: (true, false),
        })
    }

    pub fn socket(&self) -> &TcpStream {
        &self.wire.socket
    }

    /// Takes what has come, and answers it. With what takes its time, a job comes back.
    pub fn receive(&mut self, scratch: &mut [u8], shared: &Shared) -> Result<Option<Job>, End> {
        loop {
            let most = self.most_input(shared).min(scratch.len());
            match self.wire.receive(&mut scratch[..most])? {
                Received::Nothing => return self.send().map(|()| None),
                Received::End => {
                    self.has_ended = true;
                    return match self.out.is_empty() && !self.is_away {
                        true => Err(End::Gone),
                        false => Ok(None),
                    };
                }
                Received::Bytes(_) if self.is_last => {}
                Received::Bytes(n) => {
                    self.received += n as u64;
                    add(&shared.metrics.received, n as u64);
                    let job = self.take(&scratch[..n], shared)?;
                    if job.is_some() || !self.wants_input(shared) {
                        return Ok(job);
                    }
                }
            }
            if !self.wire.holds_more() {
                return Ok(None);
            }
        }
    }

    /// What is to come whole comes when there is memory for all of it: until then its beginning is all that is read.
    /// Without a token there is memory for little, and none that others share.
    fn most_input(&self, shared: &Shared) -> usize {
        if self.lacks_token(shared) {
            return UNKNOWN.saturating_sub(self.input.len()).max(1);
        }
        match self.dialect.needs(&self.input) {
            None => usize::MAX,
            Some(_) => self.share.size().max(FREE).saturating_sub(self.input.len()).max(1),
        }
    }

    fn take(&mut self, fresh: &[u8], shared: &Shared) -> Result<Option<Job>, End> {
        if !self.input.is_empty() {
            let whole = self.share.size().max(self.input.len() + fresh.len());
            self.input.reserve_exact(whole - self.input.len());
            self.input.extend_from_slice(fresh);
            return self.go_on(shared);
        }
        let (used, job) = self.talk(fresh, shared)?;
        self.input.extend_from_slice(&fresh[used..]);
        self.send_or_go_on(job, shared)
    }

    /// Goes on with what has come before.
    pub fn go_on(&mut self, shared: &Shared) -> Result<Option<Job>, End> {
        let mut input = std::mem::take(&mut self.input);
        let (used, job) = self.talk(&input, shared)?;
        input.drain(..used);
        self.input = input;
        self.send_or_go_on(job, shared)
    }

    /// What kept the dialect from going on may be sent by now.
    fn send_or_go_on(&mut self, job: Option<Job>, shared: &Shared) -> Result<Option<Job>, End> {
        let was_clogged = self.out.is_clogged();
        self.send()?;
        if was_clogged && job.is_none() && !self.out.is_clogged() {
            return self.go_on(shared);
        }
        self.settle(shared)?;
        Ok(job)
    }

    /// Has the dialect answer until it needs more, or has said enough; how much it used up.
    fn talk(&mut self, input: &[u8], shared: &Shared) -> Result<(usize, Option<Job>), End> {
        let mut used = 0;
        let mut job = None;
        while !self.is_away && !self.is_last && !self.is_too_fast(shared) {
            if self.out.is_clogged() {
                self.send()?;
                if self.out.is_clogged() {
                    break;
                }
            }
            let mut exchange = Exchange {
                shared,
                peer: self.peer,
                out: &mut self.out,
                admission: &mut self.admission,
                job: &mut job,
            };
            let step = self.dialect.advance(&input[used..], &mut exchange);
            match step.map_err(|malformed| End::Turned(Turned::Malformed, malformed.0))? {
                Step::Took(n) => {
                    used += n;
                    self.pace += u32::from(n > 0);
                    self.count_strange(n, shared);
                }
                Step::Last(n) => {
                    used += n;
                    self.is_last = true;
                }
                Step::Wants | Step::Held => break,
            }
            self.is_away = job.is_some();
        }
        Ok((used, job))
    }

    /// Without a token it is answered so often, in a row, and then no more.
    fn count_strange(&mut self, used: usize, shared: &Shared) {
        match self.admission {
            Some(_) => self.strange = 0,
            None => self.strange += u32::from(used > 0),
        }
        if self.strange >= STRANGE_REQUESTS {
            shared.metrics.turn(Turned::Token);
            self.is_last = true;
        }
    }

    fn is_too_fast(&self, shared: &Shared) -> bool {
        shared.limits.rate > 0 && self.pace >= shared.limits.rate
    }

    pub fn done(&mut self, done: Done, shared: &Shared) -> Result<Option<Job>, End> {
        self.is_away = false;
        let mut job = None;
        let mut exchange = Exchange {
            shared,
            peer: self.peer,
            out: &mut self.out,
            admission: &mut self.admission,
            job: &mut job,
        };
        let done = self.dialect.done(done, &mut exchange);
        done.map_err(|malformed| End::Turned(Turned::Malformed, malformed.0))?;
        self.go_on(shared)
    }

    /// There may be memory for what it sends.
    pub fn feed(&mut self, scratch: &mut [u8], shared: &Shared) -> Result<Option<Job>, End> {
        self.settle(shared)?;
        match self.starves {
            true => Ok(None),
            false => self.receive(scratch, shared),
        }
    }

    /// The peer takes bytes again.
    pub fn writable(&mut self, shared: &Shared) -> Result<Option<Job>, End> {
        self.send()?;
        self.settle(shared)?;
        match self.out.is_clogged() || self.is_away || self.is_last {
            true => Ok(None),
            false => self.go_on(shared),
        }
    }

    fn send(&mut self) -> Result<(), End> {
        self.wire.flush()?;
        loop {
            let bytes = self.out.unsent()?;
            if bytes.is_empty() {
                break;
            }
            let taken = self.wire.send(bytes)?;
            if taken == 0 {
                break;
            }
            self.out.took(taken);
            self.sent += taken as u64;
        }
        if self.out.is_empty() && !self.wire.has_unsent() {
            if self.has_ended && !self.is_away {
                return Err(End::Gone);
            }
            if self.is_last && self.lingers.is_none() {
                self.wire.shut();
                self.lingers = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// It has shown no token, and this server wants one.
    fn lacks_token(&self, shared: &Shared) -> bool {
        self.admission.is_none() && !shared.is_open()
    }

    /// Watches what has begun, and gives back what is not needed.
    fn settle(&mut self, shared: &Shared) -> Result<(), End> {
        if self.is_last {
            self.input = Vec::new();
        }
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
        }
        if self.lacks_token(shared) && self.input.len() >= UNKNOWN && self.wants_input(shared) {
            return Err(End::Turned(Turned::Malformed, "it says too much before a token"));
        }
        let held = self.input.capacity();
        let needed = held.max(self.dialect.needs(&self.input).unwrap_or(0));
        self.starves = !self.share.resize(if needed > FREE { needed } else { 0 });
        if self.starves && held > self.share.size().max(FREE) {
            return Err(End::Turned(Turned::Memory, "all memory for what comes in is taken"));
        }
        self.out.trim();
        add(
            &shared.metrics.sent,
            self.sent - std::mem::replace(&mut self.told, self.sent),
        );
        let is_midway = !self.input.is_empty() || self.dialect.is_midway();
        let comes = is_midway && (self.starves || self.wants_input(shared));
        watch(&mut self.incoming, comes, self.received);
        watch(&mut self.outgoing, !self.out.is_empty(), self.sent);
        Ok(())
    }

    pub fn wants_input(&self, shared: &Shared) -> bool {
        let is_listening = !self.is_away && !self.starves && !self.out.is_clogged() && !self.is_too_fast(shared);
        !self.has_ended && (is_listening || self.is_last)
    }

    /// It wants input that has come already, and that epoll knows nothing of.
    pub fn has_more(&mut self, shared: &Shared) -> bool {
        self.wants_input(shared) && self.wire.holds_more()
    }

    pub fn wants_output(&self) -> bool {
        !self.out.is_empty() || self.wire.has_unsent()
    }

    /// Once a second: whoever is too slow has to go. Whether it was held back for its pace, and may go on.
    pub fn tick(&mut self, now: Instant, shared: &Shared) -> Result<bool, End> {
        let limits = &shared.limits;
        if let Some(since) = self.lingers {
            return match now - since > LINGER {
                true => Err(End::Gone),
                false => Ok(false),
            };
        }
        let time = match shared.is_open() {
            true => limits.patience,
            false => limits.greeting(),
        };
        if self.admission.is_none() && now - self.arrived > time {
            return Err(End::Turned(Turned::Slow, "it has shown no token in time"));
        }
        if is_late(&mut self.incoming, self.received, now, limits.patience) {
            return Err(match self.starves {
                true => End::Turned(Turned::Memory, "no memory became free for what it sends"),
                false => End::Turned(Turned::Slow, "what it has begun does not come"),
            });
        }
        if is_late(&mut self.outgoing, self.sent, now, limits.patience) {
            return Err(End::Turned(Turned::Slow, "it does not take what it asked for"));
        }
        let was_held = self.is_too_fast(shared);
        self.pace = 0;
        Ok(was_held)
    }

    /// Nothing is under way: it can be ended without a loss.
    pub fn is_idle(&mut self) -> bool {
        !self.is_away && self.out.is_empty() && self.input.is_empty() && !self.dialect.is_midway()
    }
}

fn watch(slot: &mut Option<Watch>, is_under_way: bool, bytes: u64) {
    match is_under_way {
        false => *slot = None,
        true => {
            slot.get_or_insert_with(|| Watch {
                since: Instant::now(),
                bytes,
            });
        }
    }
}

/// Whether it has not moved for too long.
fn is_late(slot: &mut Option<Watch>, bytes: u64, now: Instant, patience: Duration) -> bool {
    let Some(watch) = slot else { return false };
    if bytes - watch.bytes >= PROGRESS {
        *watch = Watch { since: now, bytes };
        return false;
    }
    now.saturating_duration_since(watch.since) > patience
}

/// A peer whose machine is gone is noticed, in some minutes.
fn keep_alive(socket: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(20));
}
