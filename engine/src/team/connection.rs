//! A connection: its bytes in and out, its dialect, and since when it has made no progress.
//!
//! It never blocks. An idle connection holds next to no memory.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dialect::{BoxedDialect, Step};
use super::disk_threads::{Done, Job};
use super::limits::{Share, MAX_UNAUTHENTICATED_INPUT, MAX_UNAUTHENTICATED_REQUESTS};
use super::mailbox::Arrival;
use super::metrics::{add, Rejection};
use super::outbox::Outbox;
use super::shared::{Admission, Exchange, Shared};
use super::tls::{Received, Wire};
use crate::bytes::fields::Malformed;

/// Input up to this size does not count against the memory budget.
const FREE: usize = 16 << 10;
/// A peer that moves fewer bytes than this within `Limits::patience` makes no progress.
const PROGRESS: u64 = 16 << 10;
/// How long a peer may take to read our last reply, before the socket is closed.
const LINGER: Duration = Duration::from_secs(2);

pub struct Connection {
    wire: Wire,
    pub peer: SocketAddr,
    arrived: Instant,
    /// None until its first bytes have come.
    dialect: Option<BoxedDialect>,
    pub admission: Option<Arc<Admission>>,
    /// The worker counts it among the connections that have shown no token.
    pub is_unauthenticated: bool,
    /// Requests without a token since the last request with one.
    unauthenticated_requests: u32,
    input: Vec<u8>,
    share: Share,
    /// The next request needs more memory than was free.
    pub awaits_memory: bool,
    out: Outbox,
    /// A job of this connection is being done.
    pub has_job: bool,
    /// No more requests are answered. Earlier replies may still have to be sent.
    is_closing: bool,
    /// When the last reply was sent. The peer still has to read it.
    sent_last: Option<Instant>,
    /// The peer sends no more.
    has_ended: bool,
    incoming: Option<Watch>,
    outgoing: Option<Watch>,
    received: u64,
    sent: u64,
    /// The part of `sent` that the metrics have counted.
    counted_sent: u64,
    /// Requests since the last tick.
    pace: u32,
    /// Whether epoll watches for input, and for room for output.
    pub interest: (bool, bool),
}

/// A transfer that must make progress: how many bytes had moved at a time.
#[derive(Debug, Clone, Copy)]
struct Watch {
    since: Instant,
    bytes: u64,
}

/// Why a connection ends.
#[derive(Debug)]
pub enum End {
    Gone,
    Failed(io::Error),
    Rejected(Rejection, &'static str),
    /// Our own code has panicked.
    Fault,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Failed(error)
    }
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> End {
        End::Rejected(Rejection::Malformed, malformed.0)
    }
}

impl Connection {
    pub fn new(arrival: Arrival, shared: &Shared) -> io::Result<Connection> {
        let Arrival { socket, peer, is_plain } = arrival;
        let tls = if is_plain { None } else { shared.tls() };
        socket.set_nonblocking(true)?;
        // With Nagle's algorithm small frames would only come later.
        socket.set_nodelay(true)?;
        keep_alive(&socket);
        Ok(Connection {
            wire: Wire::new(socket, tls.as_ref())?,
            peer,
            arrived: Instant::now(),
            dialect: None,
            admission: None,
            is_unauthenticated: true,
            unauthenticated_requests: 0,
            input: Vec::new(),
            share: shared.uploads.budget.share(),
            awaits_memory: false,
            out: Outbox::default(),
            has_job: false,
            is_closing: false,
            sent_last: None,
            has_ended: false,
            incoming: None,
            outgoing: None,
            received: 0,
            sent: 0,
            counted_sent: 0,
            pace: 0,
            interest: (true, false),
        })
    }

    pub fn socket(&self) -> &TcpStream {
        &self.wire.socket
    }

    /// Reads and answers what has come. Returns the job that the connection must wait for, if there is one.
    pub fn receive(&mut self, scratch: &mut [u8], shared: &Shared) -> Result<Option<Job>, End> {
        loop {
            let most = self.most_input(shared).min(scratch.len());
            match self.wire.receive(&mut scratch[..most])? {
                Received::Nothing => return self.send().map(|()| None),
                Received::End => {
                    self.has_ended = true;
                    return match self.out.is_empty() && !self.has_job {
                        true => Err(End::Gone),
                        false => Ok(None),
                    };
                }
                Received::Bytes(_) if self.is_closing => {}
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

    /// How many bytes may be read now. A frame that must be complete is read when there is memory for all of it. Until then
    /// only its beginning is read. Without a token, a connection gets little memory, and none of the common budget.
    fn most_input(&self, shared: &Shared) -> usize {
        if self.lacks_token(shared) {
            return MAX_UNAUTHENTICATED_INPUT.saturating_sub(self.input.len()).max(1);
        }
        match self.needed() {
            None => usize::MAX,
            Some(_) => self.share.size().max(FREE).saturating_sub(self.input.len()).max(1),
        }
    }

    /// How much input the dialect needs before it can go on, if it takes its requests whole.
    fn needed(&self) -> Option<usize> {
        self.dialect.as_ref()?.needs(&self.input)
    }

    fn is_in_request(&self) -> bool {
        self.dialect.as_ref().is_some_and(|dialect| dialect.is_in_request())
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

    /// Goes on with input that has come before.
    pub fn go_on(&mut self, shared: &Shared) -> Result<Option<Job>, End> {
        let mut input = std::mem::take(&mut self.input);
        let (used, job) = self.talk(&input, shared)?;
        input.drain(..used);
        self.input = input;
        self.send_or_go_on(job, shared)
    }

    /// If the dialect has stopped because too much was unsent, it goes on when that is sent.
    fn send_or_go_on(&mut self, job: Option<Job>, shared: &Shared) -> Result<Option<Job>, End> {
        let was_clogged = self.out.is_clogged();
        self.send()?;
        if was_clogged && job.is_none() && !self.out.is_clogged() {
            return self.go_on(shared);
        }
        self.settle(shared)?;
        Ok(job)
    }

    /// Lets the dialect answer until it needs more input, or must wait. Returns how many bytes it has used.
    fn talk(&mut self, input: &[u8], shared: &Shared) -> Result<(usize, Option<Job>), End> {
        let mut used = 0;
        let mut job = None;
        while !self.has_job && !self.is_closing && !self.is_too_fast(shared) {
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
            let step = match &mut self.dialect {
                Some(dialect) => dialect.advance(&input[used..], &mut exchange)?,
                None => {
                    self.dialect = (shared.recognize)(&input[used..])?;
                    if self.dialect.is_none() {
                        break;
                    }
                    continue;
                }
            };
            match step {
                Step::Used(n) => {
                    used += n;
                    self.pace += u32::from(n > 0);
                    self.count_unauthenticated(n, shared);
                }
                Step::Close(n) => {
                    used += n;
                    self.is_closing = true;
                }
                Step::NeedsInput | Step::Waits => break,
            }
            self.has_job = job.is_some();
        }
        Ok((used, job))
    }

    /// After too many requests in succession without a token, no further one is answered.
    fn count_unauthenticated(&mut self, used: usize, shared: &Shared) {
        match self.admission {
            Some(_) => self.unauthenticated_requests = 0,
            None => self.unauthenticated_requests += u32::from(used > 0),
        }
        if self.unauthenticated_requests >= MAX_UNAUTHENTICATED_REQUESTS {
            shared.metrics.count_rejection(Rejection::Token);
            self.is_closing = true;
        }
    }

    fn is_too_fast(&self, shared: &Shared) -> bool {
        shared.limits.rate > 0 && self.pace >= shared.limits.rate
    }

    pub fn done(&mut self, done: Done, shared: &Shared) -> Result<Option<Job>, End> {
        self.has_job = false;
        let mut job = None;
        let mut exchange = Exchange {
            shared,
            peer: self.peer,
            out: &mut self.out,
            admission: &mut self.admission,
            job: &mut job,
        };
        if let Some(dialect) = &mut self.dialect {
            dialect.done(done, &mut exchange)?;
        }
        self.go_on(shared)
    }

    /// Tries again to get the memory that its input needs.
    pub fn retry_memory(&mut self, scratch: &mut [u8], shared: &Shared) -> Result<Option<Job>, End> {
        self.settle(shared)?;
        match self.awaits_memory {
            true => Ok(None),
            false => self.receive(scratch, shared),
        }
    }

    /// The socket has room for output again.
    pub fn writable(&mut self, shared: &Shared) -> Result<Option<Job>, End> {
        self.send()?;
        self.settle(shared)?;
        match self.out.is_clogged() || self.has_job || self.is_closing {
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
            self.out.advance(taken);
            self.sent += taken as u64;
        }
        if self.out.is_empty() && !self.wire.has_unsent() {
            if self.has_ended && !self.has_job {
                return Err(End::Gone);
            }
            if self.is_closing && self.sent_last.is_none() {
                self.wire.shut();
                self.sent_last = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Whether it has shown no token although this server requires one.
    fn lacks_token(&self, shared: &Shared) -> bool {
        self.admission.is_none() && !shared.is_open()
    }

    /// Adjusts the memory that it holds, and the watches on transfers that are under way.
    fn settle(&mut self, shared: &Shared) -> Result<(), End> {
        if self.is_closing {
            self.input = Vec::new();
        }
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
        }
        if self.lacks_token(shared) && self.input.len() >= MAX_UNAUTHENTICATED_INPUT && self.wants_input(shared) {
            return Err(End::Rejected(Rejection::Malformed, "it says too much before a token"));
        }
        let held = self.input.capacity();
        let needed = held.max(self.needed().unwrap_or(0));
        self.awaits_memory = !self.share.resize(if needed > FREE { needed } else { 0 });
        if self.awaits_memory && held > self.share.size().max(FREE) {
            return Err(End::Rejected(
                Rejection::Memory,
                "all memory for what comes in is taken",
            ));
        }
        self.out.trim();
        add(
            &shared.metrics.sent,
            self.sent - std::mem::replace(&mut self.counted_sent, self.sent),
        );
        let is_begun = !self.input.is_empty() || self.is_in_request();
        let comes = is_begun && (self.awaits_memory || self.wants_input(shared));
        watch(&mut self.incoming, comes, self.received);
        watch(&mut self.outgoing, !self.out.is_empty(), self.sent);
        Ok(())
    }

    pub fn wants_input(&self, shared: &Shared) -> bool {
        let is_listening = !self.has_job && !self.awaits_memory && !self.out.is_clogged() && !self.is_too_fast(shared);
        !self.has_ended && (is_listening || self.is_closing)
    }

    /// Whether it wants input that TLS has already decrypted, so that epoll does not report it.
    pub fn has_more(&mut self, shared: &Shared) -> bool {
        self.wants_input(shared) && self.wire.holds_more()
    }

    pub fn wants_output(&self) -> bool {
        !self.out.is_empty() || self.wire.has_unsent()
    }

    /// Runs once a second. A peer that is too slow is an error. Returns whether the limit on requests per second held the
    /// connection back, so that it may go on now.
    pub fn tick(&mut self, now: Instant, shared: &Shared) -> Result<bool, End> {
        let limits = &shared.limits;
        if let Some(since) = self.sent_last {
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
            return Err(End::Rejected(Rejection::Slow, "it has shown no token in time"));
        }
        if is_late(&mut self.incoming, self.received, now, limits.patience) {
            return Err(match self.awaits_memory {
                true => End::Rejected(Rejection::Memory, "no memory became free for what it sends"),
                false => End::Rejected(Rejection::Slow, "what it has begun does not come"),
            });
        }
        if is_late(&mut self.outgoing, self.sent, now, limits.patience) {
            return Err(End::Rejected(Rejection::Slow, "it does not take what it asked for"));
        }
        let was_held = self.is_too_fast(shared);
        self.pace = 0;
        Ok(was_held)
    }

    /// Whether nothing is under way, so that the connection can end without a loss.
    pub fn is_idle(&mut self) -> bool {
        !self.has_job && self.out.is_empty() && self.input.is_empty() && !self.is_in_request()
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

/// Whether a transfer has made no progress for too long.
fn is_late(slot: &mut Option<Watch>, bytes: u64, now: Instant, patience: Duration) -> bool {
    let Some(watch) = slot else { return false };
    if bytes - watch.bytes >= PROGRESS {
        *watch = Watch { since: now, bytes };
        return false;
    }
    now.saturating_duration_since(watch.since) > patience
}

/// With this, a peer whose machine is gone is noticed after some minutes.
fn keep_alive(socket: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(20));
}
