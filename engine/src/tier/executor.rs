//! A cluster that runs commands: hands them to `wafd-cluster`, and the results back.
//!
//! One connection carries all commands. A thread reads it, and calls the function of each command when its result is there,
//! when it failed, or when it has taken too long. A cluster that is at fault is left alone for a while (`breaker`).

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::breaker::Breaker;
use super::cluster::{patient, Program, EXECUTE};
use super::heartbeat::Heartbeat;
use super::Fault;
use crate::bytes::frame::Inbox;
use crate::cache::remote::{Again, Executor, Made, Unmade};
use crate::cluster::message::{Execute, Failure, Reply, Request, FRAME_CAP, MOST_BYTES};
use crate::settings::address::Address;

/// Commands for each processor of ours, if the setting does not say how many.
const FOR_EACH: usize = 4;
/// The program is on this machine: it reads what we write.
const WRITING: Duration = Duration::from_secs(2);
/// How often the time of commands is looked at.
const TICK: Duration = Duration::from_millis(500);
/// How much longer we wait than the program does.
const LONGER: Duration = Duration::from_secs(30);
const CHUNK: usize = 256 << 10;

pub struct Cluster {
    name: String,
    jobs: usize,
    program: Arc<Program>,
    heartbeat: Heartbeat,
    state: Mutex<State>,
    /// For the thread that reads.
    own: Weak<Cluster>,
}

struct State {
    breaker: Breaker,
    /// The command that tries whether the cluster answers again.
    trial: Option<u32>,
    connection: Option<(u64, UnixStream)>,
    connections: u64,
    waiting: HashMap<u32, Waiting>,
    last: u32,
}

struct Waiting {
    /// The number of its connection.
    connection: u64,
    again: Again<Result<Made, Unmade>>,
    until: Instant,
    blobs: Vec<Vec<u8>>,
    size: usize,
}

/// A function, and what it is to be called with when nothing is locked.
type Call = (Again<Result<Made, Unmade>>, Result<Made, Unmade>);

fn unmade(why: Failure, words: impl Into<String>) -> Unmade {
    let words = words.into();
    Unmade { why, words }
}

impl Cluster {
    /// Starts nothing yet.
    pub fn new(address: &Address) -> Result<Option<Arc<Cluster>>, String> {
        let Some(execution) = &address.execution else {
            return Ok(None);
        };
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        let program = Program::of(address)?;
        Ok(Some(Arc::new_cyclic(|own| Cluster {
            name: address.to_string(),
            jobs: execution.jobs.unwrap_or(FOR_EACH * processors),
            program,
            heartbeat: Heartbeat::new(patient(address.limits)),
            state: Mutex::new(State {
                breaker: Breaker::new(address.limits.pause),
                trial: None,
                connection: None,
                connections: 0,
                waiting: HashMap::new(),
                last: 0,
            }),
            own: own.clone(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a connection to the program.
    fn connect(&self, state: &mut State) -> Result<u64, Fault> {
        if let Some((number, _)) = &state.connection {
            return Ok(*number);
        }
        self.heartbeat.begin();
        let socket = self.program.connect(EXECUTE, &self.heartbeat);
        self.heartbeat.rest();
        let stream = UnixStream::from(socket?);
        let failed = |error: std::io::Error| Fault::Failed(format!("connect to wafd-cluster: {error}"));
        stream.set_write_timeout(Some(WRITING)).map_err(failed)?;
        stream.set_read_timeout(Some(TICK)).map_err(failed)?;
        let reading = stream.try_clone().map_err(failed)?;
        state.connections += 1;
        let number = state.connections;
        let own = self.own.clone();
        let read = move || read(&own, reading, number);
        thread::Builder::new()
            .name("executor".to_owned())
            .spawn(read)
            .map_err(failed)?;
        state.connection = Some((number, stream));
        Ok(number)
    }

    fn write(state: &mut State, request: &Request) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let Some((_, stream)) = &mut state.connection else {
            return Err(Fault::Failed("wafd-cluster has ended".to_owned()));
        };
        let Err(error) = stream.write_all(&bytes) else {
            return Ok(());
        };
        // What it has got of the frame is of no use.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        state.connection = None;
        Err(Fault::Failed(format!("write to wafd-cluster: {error}")))
    }

    /// A frame has come.
    fn take(&self, reply: &Reply<'_>) -> Option<Call> {
        let id = reply.id();
        let mut state = self.state();
        let result = match *reply {
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
        if has_ended
            && state
                .connection
                .as_ref()
                .is_some_and(|(number, _)| *number == connection)
        {
            state.connection = None;
        }
        let is_lost = |waiting: &Waiting| waiting.connection == connection && (has_ended || waiting.until <= now);
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

    fn takes(&self) -> bool {
        let state = self.state();
        let is_due = state.breaker.next_trial().is_some_and(|at| at <= Instant::now());
        state.breaker.is_closed() || is_due
    }

    fn execute(&self, mut execute: Execute, again: Again<Result<Made, Unmade>>) -> u32 {
        let mut state = self.state();
        state.last = state.last.checked_add(1).unwrap_or(1);
        let id = state.last;
        execute.id = id;
        let until = Instant::now() + Duration::from_millis(execute.time) + LONGER;
        let is_trial = !state.breaker.is_closed();
        if is_trial && !state.breaker.begin_trial(Instant::now()) {
            let words = state.breaker.why().unwrap_or_default().to_owned();
            drop(state);
            again(Err(unmade(Failure::Declined, format!("it is left alone: {words}"))));
            return id;
        }
        state.trial = if is_trial { Some(id) } else { state.trial };
        let sent = self.connect(&mut state).and_then(|connection| {
            Cluster::write(&mut state, &Request::Execute(Box::new(execute)))?;
            Ok(connection)
        });
        match sent {
            Ok(connection) => {
                let waiting = Waiting {
                    connection,
                    again,
                    until,
                    blobs: Vec::new(),
                    size: 0,
                };
                state.waiting.insert(id, waiting);
            }
            Err(fault) => {
                let why = match fault {
                    Fault::Silent(_) => Failure::Silent,
                    Fault::Failed(_) | Fault::Declined(_) => Failure::Failed,
                };
                let why = unmade(why, fault.words());
                state.judge(id, Some(&why));
                drop(state);
                again(Err(why));
            }
        }
        id
    }

    fn cancel(&self, id: u32) {
        let mut state = self.state();
        let Some(waiting) = state.waiting.remove(&id) else {
            return;
        };
        if state.trial.take_if(|trial| *trial == id).is_some() {
            // It did not answer before the command was done here.
            let words = state.breaker.why().unwrap_or_default().to_owned();
            state.breaker.open(Instant::now(), &words);
        }
        if let Err(fault) = Cluster::write(&mut state, &Request::Cancel { id }) {
            log::debug!("{}", fault.words());
        }
        drop(state);
        drop(waiting);
    }
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
    let _ = stream.shutdown(std::net::Shutdown::Both);
}
