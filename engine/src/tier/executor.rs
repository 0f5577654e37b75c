//! A cluster that runs commands: hands them to `wafd-cluster`, and the results back.
//!
//! One connection carries all commands. One thread writes it, and one reads it. The latter calls the function of each command
//! when its result is there, when it failed, or when it has taken too long. A cluster that is at fault is left alone for a while (`breaker`).

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::breaker::Breaker;
use super::cluster::{patient, Program, EXECUTE};
use super::counts::Counts;
use super::distrusted;
use super::heartbeat::Heartbeat;
use super::Fault;
use crate::bytes::frame::Inbox;
use crate::cache::remote::{Again, Executor, Made, Unmade};
use crate::cluster::message::{Execute, Failure, Reply, Request, FRAME_CAP, MOST_BYTES};
use crate::settings::address::Address;

/// The program is on this machine: it reads what we write.
const WRITING: Duration = Duration::from_secs(2);
/// How often the time of commands is looked at.
const TICK: Duration = Duration::from_millis(500);
/// In this time, a command that is to try whether the cluster answers is sent.
const RESERVED: Duration = Duration::from_secs(5);
/// How much longer we wait than the program does.
const LONGER: Duration = Duration::from_secs(30);
const CHUNK: usize = 256 << 10;

pub struct Cluster {
    name: String,
    jobs: usize,
    state: Mutex<State>,
    /// What the writing thread is to send. It connects first, which may take a while.
    requests: Sender<Request>,
    counts: Arc<Counts>,
}

struct State {
    breaker: Breaker,
    /// The command that tries whether the cluster answers again.
    trial: Option<u32>,
    /// Until then no other one is to be sent for that.
    reserved: Option<Instant>,
    waiting: HashMap<u32, Waiting>,
    last: u32,
}

struct Waiting {
    /// The number of its connection, once it was sent.
    connection: Option<u64>,
    again: Again<Result<Made, Unmade>>,
    until: Instant,
    blobs: Vec<Vec<u8>>,
    size: usize,
}

/// The thread that writes.
struct Writer {
    cluster: Weak<Cluster>,
    program: Arc<Program>,
    heartbeat: Heartbeat,
    connection: Option<(u64, UnixStream)>,
    connections: u64,
}

/// A function, and what it is to be called with when nothing is locked.
type Call = (Again<Result<Made, Unmade>>, Result<Made, Unmade>);

fn unmade(why: Failure, words: impl Into<String>) -> Unmade {
    let words = words.into();
    Unmade { why, words }
}

impl Cluster {
    /// Where the commands of an address run, if it says so. The program is started for the first of them.
    pub fn new(address: &Address, counts: &Arc<Counts>) -> Result<Option<Arc<Cluster>>, String> {
        let Some(execution) = &address.execution else {
            return Ok(None);
        };
        let (requests, waiting) = channel();
        let cluster = Arc::new(Cluster {
            name: address.to_string(),
            jobs: execution.jobs(),
            state: Mutex::new(State {
                breaker: Breaker::new(address.limits.pause),
                trial: None,
                reserved: None,
                waiting: HashMap::new(),
                last: 0,
            }),
            requests,
            counts: counts.clone(),
        });
        let mut writer = Writer {
            cluster: Arc::downgrade(&cluster),
            program: Program::of(address)?,
            heartbeat: Heartbeat::new(patient(address.limits)),
            connection: None,
            connections: 0,
        };
        let write = move || writer.write_all(&waiting);
        let started = thread::Builder::new().name("executor".to_owned()).spawn(write);
        started.map_err(|error| format!("{address}: start a thread: {error}"))?;
        Ok(Some(cluster))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command cannot be sent.
    fn fail(&self, id: u32, fault: &Fault) {
        let why = match fault {
            Fault::Silent(_) => Failure::Silent,
            Fault::Failed(_) | Fault::Declined(_) => Failure::Failed,
        };
        let why = unmade(why, fault.words());
        let mut state = self.state();
        state.judge(id, Some(&why));
        let waiting = state.waiting.remove(&id);
        drop(state);
        if let Some(waiting) = waiting {
            (waiting.again)(Err(why));
        }
    }

    /// A frame has come.
    fn take(&self, reply: &Reply<'_>) -> Option<Call> {
        let id = reply.id();
        let mut state = self.state();
        let result = match *reply {
            Reply::Moved { sent, received, .. } => {
                drop(state);
                self.counts.went_out(sent as usize);
                self.counts.came_in(received as usize);
                return None;
            }
            Reply::Blob { bytes, .. } => {
                let waiting = state.waiting.get_mut(&id)?;
                waiting.size += bytes.len();
                if waiting.size <= MOST_BYTES {
                    waiting.blobs.push(bytes.to_vec());
                    return None;
                }
                Err(unmade(Failure::Failed, "it sends more than an entry has"))
            }
            Reply::Entry { key, bytes, .. } => Ok((key, bytes.to_vec())),
            Reply::Why { why, words, .. } => Err(unmade(why, String::from_utf8_lossy(words))),
        };
        let waiting = state.waiting.remove(&id)?;
        let blobs = waiting.blobs;
        let made = result.map(|(key, entry)| Made { key, entry, blobs });
        state.judge(id, made.as_ref().err());
        Some((waiting.again, made))
    }

    /// Commands whose time is over, or whose connection has ended.
    fn take_lost(&self, connection: u64, has_ended: bool) -> Vec<Call> {
        let now = Instant::now();
        let mut state = self.state();
        let is_lost = |waiting: &Waiting| waiting.connection == Some(connection) && (has_ended || waiting.until <= now);
        let waiting = state.waiting.iter().filter(|(_, waiting)| is_lost(waiting));
        let lost: Vec<u32> = waiting.map(|(id, _)| *id).collect();
        let mut calls = Vec::new();
        for id in lost {
            let why = match has_ended {
                true => unmade(Failure::Failed, "wafd-cluster has ended"),
                false => unmade(Failure::Silent, "it did not do it in time"),
            };
            state.judge(id, Some(&why));
            calls.extend(state.waiting.remove(&id).map(|waiting| (waiting.again, Err(why))));
        }
        calls
    }
}

impl State {
    fn may_take(&self, now: Instant) -> bool {
        let is_due = self.breaker.next_trial().is_some_and(|at| at <= now);
        let is_free = self.reserved.map_or(true, |until| until <= now);
        self.breaker.is_closed() || is_due && is_free
    }

    /// A command is over: does the cluster work?
    fn judge(&mut self, id: u32, failure: Option<&Unmade>) {
        let is_trial = self.trial.take_if(|trial| *trial == id).is_some();
        let now = Instant::now();
        let is_new = match failure {
            Some(Unmade {
                why: Failure::Silent,
                words,
            }) => self.breaker.open(now, words),
            Some(Unmade {
                why: Failure::Failed,
                words,
            }) if is_trial => self.breaker.open(now, words),
            Some(Unmade {
                why: Failure::Failed,
                words,
            }) => self.breaker.erred(now, words),
            // What was asked before it was left alone says nothing of now.
            _ if is_trial || self.breaker.is_closed() => {
                self.breaker.worked();
                false
            }
            _ => false,
        };
        if is_new {
            log::warn!(
                "no commands go to the cluster for a while: {}",
                self.breaker.why().unwrap_or_default()
            );
        }
    }
}

impl Executor for Cluster {
    fn name(&self) -> &str {
        &self.name
    }

    fn jobs(&self) -> usize {
        self.jobs
    }

    fn may_take(&self) -> bool {
        !distrusted::contains(&self.name) && self.state().may_take(Instant::now())
    }

    fn takes(&self) -> bool {
        if distrusted::contains(&self.name) {
            return false;
        }
        let now = Instant::now();
        let mut state = self.state();
        let may_take = state.may_take(now);
        // If the command that is to try it is never sent, another one does.
        if may_take && !state.breaker.is_closed() {
            state.reserved = Some(now + RESERVED);
        }
        may_take
    }

    fn left_alone(&self) -> Option<Duration> {
        let state = self.state();
        let next = state.breaker.next_trial();
        let left = next
            .map(|at| at.saturating_duration_since(Instant::now()))
            .unwrap_or_default();
        (!state.breaker.is_closed()).then_some(left)
    }

    fn last_fault(&self) -> Option<String> {
        self.state().breaker.last_why().map(str::to_owned)
    }

    fn execute(&self, mut execute: Execute, again: Again<Result<Made, Unmade>>) -> u32 {
        let mut state = self.state();
        state.last = state.last.checked_add(1).unwrap_or(1);
        let id = state.last;
        execute.id = id;
        if !state.breaker.is_closed() {
            if !state.breaker.begin_trial(Instant::now()) {
                let words = state.breaker.why().unwrap_or_default().to_owned();
                drop(state);
                again(Err(unmade(Failure::Declined, format!("it is left alone: {words}"))));
                return id;
            }
            state.trial = Some(id);
        }
        let waiting = Waiting {
            connection: None,
            again,
            until: Instant::now() + Duration::from_millis(execute.time) + LONGER,
            blobs: Vec::new(),
            size: 0,
        };
        state.waiting.insert(id, waiting);
        drop(state);
        if self.requests.send(Request::Execute(Box::new(execute))).is_err() {
            self.fail(id, &Fault::Failed("the thread that writes has ended".to_owned()));
        }
        id
    }

    fn distrust(&self) {
        distrusted::add(&self.name);
    }

    fn cancel(&self, id: u32) {
        let mut state = self.state();
        let waiting = state.waiting.remove(&id);
        if state.trial.take_if(|trial| *trial == id).is_some() {
            // It did not answer before the command was done here.
            let words = state.breaker.why().unwrap_or_default().to_owned();
            state.breaker.open(Instant::now(), &words);
        }
        drop(state);
        if waiting.is_some() {
            // If the thread that writes has ended, nothing is there that could be cancelled.
            let _ = self.requests.send(Request::Cancel { id });
        }
    }
}

impl Writer {
    /// Until the cluster is not needed.
    fn write_all(&mut self, requests: &Receiver<Request>) {
        while let Ok(request) = requests.recv() {
            let Some(cluster) = self.cluster.upgrade() else { return };
            match &request {
                Request::Execute(execute) => {
                    if let Err(fault) = self.send(&cluster, execute.id, &request) {
                        cluster.fail(execute.id, &fault);
                    }
                }
                Request::Cancel { .. } if self.connection.is_some() => {
                    if let Err(fault) = self.write(&request) {
                        log::debug!("{}", fault.words());
                    }
                }
                Request::Cancel { .. } => {}
            }
        }
    }

    fn send(&mut self, cluster: &Cluster, id: u32, request: &Request) -> Result<(), Fault> {
        let connection = self.connect()?;
        match cluster.state().waiting.get_mut(&id) {
            Some(waiting) => waiting.connection = Some(connection),
            // It was cancelled meanwhile.
            None => return Ok(()),
        }
        self.write(request)
    }

    /// The number of a connection to the program. One that has ended is noticed when something is written.
    fn connect(&mut self) -> Result<u64, Fault> {
        if let Some((number, stream)) = &self.connection {
            if is_open(stream) {
                return Ok(*number);
            }
            self.connection = None;
        }
        self.heartbeat.begin();
        let socket = self.program.connect(EXECUTE, &self.heartbeat);
        self.heartbeat.rest();
        let stream = UnixStream::from(socket?);
        let failed = |error: io::Error| Fault::Failed(format!("connect to wafd-cluster: {error}"));
        stream.set_write_timeout(Some(WRITING)).map_err(failed)?;
        stream.set_read_timeout(Some(TICK)).map_err(failed)?;
        let reading = stream.try_clone().map_err(failed)?;
        self.connections += 1;
        let (cluster, number) = (self.cluster.clone(), self.connections);
        let read = move || read(&cluster, reading, number);
        let started = thread::Builder::new().name("executor".to_owned()).spawn(read);
        started.map_err(failed)?;
        self.connection = Some((number, stream));
        Ok(number)
    }

    fn write(&mut self, request: &Request) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let Some((_, stream)) = &mut self.connection else {
            return Err(Fault::Failed("wafd-cluster has ended".to_owned()));
        };
        let Err(error) = stream.write_all(&bytes) else {
            return Ok(());
        };
        // What it has got of the frame is of no use.
        let _ = stream.shutdown(Shutdown::Both);
        self.connection = None;
        Err(Fault::Failed(format!("write to wafd-cluster: {error}")))
    }
}

/// Whether the peer has not closed it.
fn is_open(stream: &UnixStream) -> bool {
    let mut entry = [PollFd::new(stream, PollFlags::RDHUP)];
    let polled = poll(&mut entry, Some(&Timespec::default()));
    polled.is_ok()
        && !entry[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Reads until the connection ends, or the cluster is not needed.
fn read(cluster: &Weak<Cluster>, mut stream: UnixStream, connection: u64) {
    let mut inbox = Inbox::new(FRAME_CAP);
    let mut chunk = vec![0; CHUNK];
    let mut is_open = true;
    while is_open {
        let read = stream.read(&mut chunk);
        let Some(cluster) = cluster.upgrade() else { return };
        match read {
            Ok(0) => is_open = false,
            Ok(count) => inbox.push(&chunk[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => is_open = false,
        }
        let mut calls = Vec::new();
        loop {
            match inbox.take().map(|frame| frame.map(Reply::decode)) {
                Ok(Some(Ok(reply))) => calls.extend(cluster.take(&reply)),
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => {
                    log::warn!("wafd-cluster says what is not the protocol");
                    is_open = false;
                    break;
                }
            }
        }
        inbox.trim();
        calls.extend(cluster.take_lost(connection, !is_open));
        calls.into_iter().for_each(|(again, made)| again(made));
    }
    let _ = stream.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::address::parse_all;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn cluster(text: &str) -> Arc<Cluster> {
        Cluster::new(&parse_all(text).unwrap()[0], &uncounted())
            .unwrap()
            .unwrap()
    }

    fn uncounted() -> Arc<Counts> {
        Arc::new(Counts::new(|_, _| ()))
    }

    /// Beside this test is no program `wafd-cluster`.
    fn fail(cluster: &Cluster) -> Failure {
        let (told, failures) = channel();
        let again = move |made: Result<Made, Unmade>| told.send(made.err().map(|unmade| unmade.why)).unwrap();
        cluster.execute(Execute::default(), Box::new(again));
        failures.recv_timeout(PATIENCE).unwrap().unwrap()
    }

    #[test]
    fn an_address_says_whether_commands_run_there() {
        let none = Cluster::new(&parse_all("grpc://localhost:1/none").unwrap()[0], &uncounted()).unwrap();
        assert!(none.is_none());
        assert_eq!(cluster("grpc://localhost:1/jobs|execute=7").jobs(), 7);
        assert!(cluster("grpc://localhost:1/default|execute").jobs() >= 4);
    }

    #[test]
    fn a_cluster_that_is_distrusted_takes_nothing_under_any_setting() {
        let [one, other] = [
            "grpc://localhost:1/wrong|execute",
            "grpc://T@localhost:1/wrong|execute=7",
        ]
        .map(cluster);
        assert!(one.takes() && other.takes());
        one.distrust();
        assert!(!one.may_take() && !other.may_take() && !other.takes());
        assert!(cluster("grpc://localhost:1/right|execute").takes());
    }

    #[test]
    fn a_cluster_at_fault_is_left_alone_until_one_command_tries_it() {
        let cluster = cluster("grpc://localhost:1/fault|execute|pause=100");
        for _ in 0..3 {
            assert!(cluster.takes());
            assert_eq!(fail(&cluster), Failure::Failed);
        }
        let before = Instant::now();
        while !cluster.takes() {
            assert!(before.elapsed() < PATIENCE);
            thread::yield_now();
        }
        assert!(!cluster.takes(), "another command is to try it");
        assert_eq!(fail(&cluster), Failure::Failed);
        assert!(!cluster.takes(), "the next pause is longer");
        assert_eq!(fail(&cluster), Failure::Declined);
    }

    #[test]
    fn what_was_cancelled_is_told_nothing() {
        let cluster = cluster("grpc://localhost:1/cancelled|execute");
        let (told, failures) = channel();
        let again = move |made: Result<Made, Unmade>| told.send(made.is_err()).unwrap();
        // It is cancelled before it is sent, or has failed by then.
        let id = cluster.execute(Execute::default(), Box::new(again));
        cluster.cancel(id);
        cluster.cancel(id);
        assert!(failures.iter().count() <= 1);
        assert!(cluster.state().waiting.is_empty());
    }
}
