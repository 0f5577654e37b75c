//! Commands on a cluster: which go there, which are raced here, and how many compiles run here meanwhile.
//!
//! ```text
//! Waiting, and no slot is free ─► Away ─back: in our store─► Fetching ─► over
//!              ▲                   │  └─back: no result─► Waiting, for a slot here
//!              └─ a slot is free ──┘
//! ```
//!
//! Slots here are filled first. What waits for one may go to the cluster, unless it is short. If a slot is free and nothing
//! waits, the oldest command of the cluster runs here, too. What is done first counts, and the other one is ended. So a
//! command never waits for the cluster while this machine has nothing to do.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use serde_json::{json, Value};

use super::command::{Fetching, Order, Recording, State, Supplies, Waiting};
use super::command_flow::Next;
use super::connection::ConnectionKey;
use super::slots::CommandKey;
use super::timers::Alarm;
use super::Server;
use crate::cache::answer::Hit;
use crate::cache::away::{Away as Departure, Back, NotAway, Stayed, SHORT};
use crate::cache::cache_threads::Job as CacheJob;
use crate::cache::remote::{Errand, Executor};
use crate::observe::access::Bytes;
use crate::wire::{Elsewhere, Outcome, Reply, Stdio, Verdict};

/// A slot stays free for so long before a command of the cluster runs here, too: the build may be about to send another one.
const FREE: Duration = Duration::from_millis(20);
/// Of the commands that wait, so many are looked at.
const MOST_SEEN: usize = 1024;
/// How much a new time counts in the mean of a compiler's times: one part of so many.
const WEIGHT: u64 = 8;
const MOST_PROGRAMS: usize = 1024;

/// The time of a command on the cluster.
pub(super) struct Trip {
    address: String,
    began: Instant,
    ended: Option<Instant>,
    /// How long the command ran here, too, before its result came.
    here: Duration,
}

impl Trip {
    pub(super) fn begin(address: &str) -> Trip {
        Trip {
            address: address.to_owned(),
            began: Instant::now(),
            ended: None,
            here: Duration::ZERO,
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// For the client. `words` say why the result is not from there.
    fn describe(&self, order: &Order, words: &str) -> Elsewhere {
        let micros = |time: Duration| time.as_micros() as u64;
        let ended = self.ended.unwrap_or_else(Instant::now);
        Elsewhere {
            after: micros(self.began - order.arrived),
            there: micros(ended - self.began),
            here: micros(self.here),
            address: self.address.clone(),
            words: words.to_owned(),
        }
    }
}

pub(super) struct Away {
    processors: usize,
    /// There is a cluster to which commands of some clients may go.
    is_on: bool,
    /// Those that are there, the oldest first.
    there: Vec<There>,
    /// Compiles that run here.
    here: HashSet<CommandKey>,
    /// Since when a slot is free for a command of the cluster.
    free_since: Option<Instant>,
    /// The mean of the processor times of each compiler's last runs, in microseconds.
    times: HashMap<Bytes, u64>,
    /// For the status: how many were sent, and how many were raced here.
    sent: u64,
    raced: u64,
}

/// A command on a cluster.
struct There {
    key: CommandKey,
    executor: Arc<dyn Executor>,
}

impl Away {
    pub(super) fn new() -> Away {
        Away {
            processors: thread::available_parallelism().map_or(1, |count| count.get()),
            is_on: false,
            there: Vec::new(),
            here: HashSet::new(),
            free_since: None,
            times: HashMap::new(),
            sent: 0,
            raced: 0,
        }
    }

    /// A build with a cluster may want more compiles at once than this machine has processors. They are held back now.
    /// Compiles never wait for each other, so that this holds up no other command.
    pub(super) fn is_full(&self) -> bool {
        self.is_on && self.here.len() >= self.processors
    }

    pub(super) fn begin_here(&mut self, key: CommandKey) {
        self.here.insert(key);
    }

    pub(super) fn end_here(&mut self, key: CommandKey) {
        self.here.remove(&key);
    }

    /// A compile has run here.
    pub(super) fn learn(&mut self, order: &Order, outcome: &Outcome) {
        if !self.is_on || outcome.verdict != Verdict::Ran || outcome.code != 0 {
            return;
        }
        let time = outcome.user + outcome.system;
        let program = order.execute.argv.iter().next().unwrap_or_default();
        if self.times.len() >= MOST_PROGRAMS {
            self.times.clear();
        }
        let mean = self.times.entry(program.to_vec()).or_insert(time);
        *mean = (*mean * (WEIGHT - 1) + time) / WEIGHT;
    }

    fn expected(&self, order: &Order, recording: &Recording) -> Option<u64> {
        let own = recording.ticket.as_ref()?.expected;
        let program = order.execute.argv.iter().next()?;
        own.or_else(|| self.times.get(program).copied())
    }

    pub(super) fn there(&self) -> impl Iterator<Item = CommandKey> + '_ {
        self.there.iter().map(|one| one.key)
    }

    /// For the status, without the commands that are there.
    pub(super) fn describe(&self, executor: &dyn Executor) -> Value {
        json!({
            "address": executor.name(),
            "jobs": executor.jobs(),
            "left_alone_s": executor.left_alone().map(|time| time.as_secs_f64()),
            "fault": executor.last_fault(),
            "there": self.there.len(),
            "sent": self.sent,
            "raced": self.raced,
        })
    }
}

/// How many more commands a cluster takes in this round.
struct Capacity {
    executor: Arc<dyn Executor>,
    left: usize,
}

/// The capacity of a cluster. Its commands are counted when it is seen first.
fn capacity_of<'a>(known: &'a mut Vec<Capacity>, executor: &Arc<dyn Executor>, there: &[There]) -> &'a mut Capacity {
    let is_same = |other: &Arc<dyn Executor>| Arc::ptr_eq(other, executor);
    let place = known.iter().position(|one| is_same(&one.executor)).unwrap_or_else(|| {
        let count = there.iter().filter(|one| is_same(&one.executor)).count();
        let left = executor.jobs().saturating_sub(count);
        known.push(Capacity {
            executor: executor.clone(),
            left,
        });
        known.len() - 1
    });
    let capacity = &mut known[place];
    if !executor.may_take() {
        capacity.left = 0;
    }
    capacity
}

impl Server {
    /// How many clusters there are to which waiting commands may go. Compiles are held back only if there is one, so this is
    /// asked before slots are granted: a session that runs nothing gets one at once.
    pub(super) fn look_for_clusters(&mut self) -> usize {
        if self.slots.waiting() == 0 && self.away.there.is_empty() {
            return 0;
        }
        let count = self.cache_threads.opened().map_or(0, |cache| cache.executors().len());
        self.away.is_on = count > 0;
        count
    }

    /// Sends waiting commands to their clusters, if there are any, or has one of those that are there run here, too. Returns
    /// whether a command waits now that did not wait before.
    pub(super) fn use_clusters(&mut self) -> bool {
        let commands = &self.commands;
        self.away.there.retain(|one| commands.is_away(one.key));
        let count = self.look_for_clusters();
        if count == 0 {
            return false;
        }
        if self.slots.waiting() > 0 {
            self.away.free_since = None;
            self.send_away(count);
            return false;
        }
        self.race()
    }

    fn send_away(&mut self, count: usize) {
        let mut clusters: Vec<Capacity> = Vec::new();
        let waiting: Vec<_> = self.slots.all_waiting().take(MOST_SEEN).collect();
        for (session, key) in waiting {
            if clusters.len() >= count && clusters.iter().all(|cluster| cluster.left == 0) {
                return;
            }
            let Some(executor) = self.executor_of(key) else {
                continue;
            };
            if capacity_of(&mut clusters, &executor, &self.away.there).left == 0 {
                continue;
            }
            let Some(departure) = self.departure(key, executor.name()) else {
                continue;
            };
            let cluster = capacity_of(&mut clusters, &executor, &self.away.there);
            // It is asked last: a command that tries a cluster which was at fault must be sent.
            if !executor.takes() {
                cluster.left = 0;
                continue;
            }
            cluster.left = cluster.left.saturating_sub(1);
            self.slots.retract(&session, &HashSet::from([key]));
            self.memory.forget(key);
            let errand = Errand::new(executor.clone());
            self.commands.send_away(key, errand.clone());
            debug!("command {key} goes to {}", executor.name());
            self.away.there.push(There { key, executor });
            self.away.sent += 1;
            let away = Box::new(departure);
            self.cache_threads.send(CacheJob::Away { who: key, away, errand });
        }
    }

    /// The cluster to which a waiting command may go.
    fn executor_of(&self, key: CommandKey) -> Option<Arc<dyn Executor>> {
        let (_, recording) = self.commands.waiting_recording(key)?;
        recording.executor().cloned()
    }

    /// What is sent of a waiting command, if it may go, and has not been there before.
    fn departure(&mut self, key: CommandKey, address: &str) -> Option<Departure> {
        let (order, recording) = self.commands.waiting_recording(key)?;
        let is_captured = order.execute.stdio[1..]
            .iter()
            .all(|to| matches!(to, Stdio::Pipe | Stdio::SameAsStdout));
        if recording.was_away || order.execute.timeout > 0 || !is_captured {
            return None;
        }
        let departure = recording.ticket.as_ref()?.away(order.session)?;
        let is_short = self.away.expected(order, recording).is_some_and(|time| time < SHORT);
        if is_short {
            let (connection, id) = (order.connection, order.execute.id);
            if let Some(recording) = self.commands.waiting_recording_mut(key) {
                recording.was_away = true;
            }
            self.count_stayed(NotAway::Short, address);
            let elsewhere = Elsewhere {
                address: address.to_owned(),
                words: NotAway::Short.name().to_owned(),
                ..Elsewhere::default()
            };
            self.tell_elsewhere(connection, id, elsewhere);
        }
        (!is_short).then_some(departure)
    }

    fn count_stayed(&self, why: NotAway, address: &str) {
        if let Some(cache) = self.cache_threads.opened() {
            cache.note_stayed(why, address);
        }
    }

    /// Tells the client where its command ran, if it wishes to know.
    fn tell_elsewhere(&mut self, connection: ConnectionKey, id: u32, elsewhere: Elsewhere) {
        let client = self.connections.client(connection);
        if client.is_some_and(|client| client.hears_elsewhere) {
            let reply = Reply::Elsewhere { id, elsewhere };
            self.connections.reply(connection, &reply);
        }
    }

    /// A command was on the cluster, and its result is not from there.
    fn tell_stayed(&mut self, order: &Order, recording: Option<&Recording>, why: NotAway, words: &str) {
        let Some(trip) = recording.and_then(|recording| recording.trip.as_ref()) else {
            return;
        };
        self.count_stayed(why, &trip.address);
        self.tell_elsewhere(order.connection, order.execute.id, trip.describe(order, words));
    }

    /// A command that was on the cluster, too, was sooner done here.
    pub(super) fn overtake(&mut self, order: &Order, recording: &mut Recording) {
        if recording.errand.is_some() {
            recording.call_off();
            let why = NotAway::Overtaken;
            self.tell_stayed(order, Some(recording), why, why.name());
        }
    }

    /// Has the oldest command of the cluster run here, too, if a slot has been free for a while.
    fn race(&mut self) -> bool {
        let has_room = |key: &CommandKey| {
            let session = self.commands.session_away(*key);
            session.is_some_and(|session| self.slots.has_room(&session))
        };
        let oldest = self.away.there.iter().map(|one| one.key).find(has_room);
        let Some(key) = oldest.filter(|_| !self.away.is_full()) else {
            self.away.free_since = None;
            return false;
        };
        let now = Instant::now();
        match self.away.free_since {
            None => {
                self.away.free_since = Some(now);
                self.timers.set(now + FREE, Alarm::Race);
                return false;
            }
            Some(since) if now < since + FREE => return false,
            Some(_) => {}
        }
        self.away.free_since = None;
        let Some(order) = self.commands.race(key) else {
            return false;
        };
        debug!("command {key} runs here, too");
        self.away.raced += 1;
        self.submit(key, &order);
        true
    }

    /// From `Away`, or from a state of the same command here: its result is in our store, or there is none.
    pub(super) fn returned(
        &mut self,
        key: CommandKey,
        order: &mut Arc<Order>,
        state: State,
        result: Result<Back, Stayed>,
    ) -> Next {
        let mut state = state;
        let Some(errand) = state.recording_mut().and_then(|recording| recording.errand.take()) else {
            return Next::Stay(state);
        };
        let name = errand.executor.name();
        let here = match &state {
            State::Running(running) => running.started.elapsed(),
            _ => Duration::ZERO,
        };
        let trip = state.recording_mut().and_then(|recording| recording.trip.as_mut());
        trip.into_iter().for_each(|trip| {
            trip.ended = Some(Instant::now());
            trip.here = here;
        });
        let departure = match result {
            Ok(Back::Stored(departure)) => departure,
            Ok(Back::Sample(sample)) => {
                let why = NotAway::Audited;
                self.tell_stayed(order, state.recording_mut().as_deref(), why, why.name());
                if matches!(state, State::Away(_) | State::Waiting(_)) {
                    state
                        .recording_mut()
                        .into_iter()
                        .for_each(|recording| recording.run_plainly(order));
                }
                let ticket = state.recording_mut().and_then(|recording| recording.ticket.as_mut());
                if let Some(ticket) = ticket {
                    ticket.note_away(format!("compiled by {name}, and here, too, to be compared"));
                    ticket.compare_with(sample);
                }
                return self.go_on_here(key, order, state);
            }
            Err(stayed) => {
                let why = match stayed.words.is_empty() {
                    true => stayed.why.name().to_owned(),
                    false => format!("{}: {}", stayed.why.name(), stayed.words),
                };
                debug!("command {key} has no result of {name}: {why}");
                self.tell_stayed(order, state.recording_mut().as_deref(), stayed.why, &why);
                let ticket = state.recording_mut().and_then(|recording| recording.ticket.as_mut());
                ticket
                    .into_iter()
                    .for_each(|ticket| ticket.note_away(format!("not compiled by {name}: {why}")));
                return self.go_on_here(key, order, state);
            }
        };
        let ticket = state.recording_mut().and_then(|recording| recording.ticket.as_mut());
        ticket
            .into_iter()
            .for_each(|ticket| ticket.note_away(format!("compiled by {name}")));
        match state {
            State::Away(Waiting { supplies, recording }) => {
                self.fetch(order, key, supplies, recording, departure, true)
            }
            State::Waiting(Waiting { supplies, recording }) => {
                self.slots.retract(&order.session, &HashSet::from([key]));
                self.memory.forget(key);
                self.fetch(order, key, supplies, recording, departure, true)
            }
            State::Starting(mut starting) => {
                starting.is_cancelled = true;
                if let Some(recording) = &mut starting.recording {
                    recording.departure = Some(departure);
                }
                Next::Stay(State::Starting(starting))
            }
            State::Running(mut running) => {
                if let Some(recording) = &mut running.recording {
                    recording.departure = Some(departure);
                }
                self.end(key, order, running, Verdict::Cancelled)
            }
            state => Next::Stay(state),
        }
    }

    /// A command whose result on the cluster is not used runs here, unless it already does.
    fn go_on_here(&mut self, key: CommandKey, order: &Order, state: State) -> Next {
        match state {
            State::Away(waiting) => {
                self.submit(key, order);
                Next::Stay(State::Waiting(waiting))
            }
            state => Next::Stay(state),
        }
    }

    /// The result is in our store. Its outputs are put in their places now.
    pub(super) fn fetch(
        &mut self,
        order: &Order,
        key: CommandKey,
        supplies: Supplies,
        recording: Option<Box<Recording>>,
        away: Box<Departure>,
        is_in_backlog: bool,
    ) -> Next {
        debug!("command {key} is back: {}", order.execute.id);
        let wait = self.begin_store_wait();
        let claim = wait.claim.clone();
        self.cache_threads.send(CacheJob::Fetch { who: key, away, claim });
        Next::Stay(State::Fetching(Box::new(Fetching {
            supplies,
            recording,
            wait,
            is_in_backlog,
        })))
    }

    /// From `Fetching`: the command is over, or has to run here.
    pub(super) fn fetched(
        &mut self,
        key: CommandKey,
        order: &mut Arc<Order>,
        fetching: Fetching,
        hit: Option<Hit>,
    ) -> Next {
        let Fetching {
            supplies,
            mut recording,
            is_in_backlog,
            ..
        } = fetching;
        let Some(hit) = hit else {
            let why = NotAway::Changed;
            self.tell_stayed(order, recording.as_deref(), why, why.name());
            if let Some(connection) = self.connections.get_mut(order.connection).filter(|_| !is_in_backlog) {
                connection.backlog += order.size;
            }
            self.submit(key, order);
            return Next::Stay(State::Waiting(Waiting { supplies, recording }));
        };
        if is_in_backlog {
            self.connections.shrink_backlog(order.connection, order.size);
        }
        for (stream, bytes) in [hit.stdout, hit.stderr].iter().enumerate() {
            self.connections
                .send_output(order.connection, order.execute.id, stream, bytes);
        }
        if let Some(recording) = &mut recording {
            let trip = recording.trip.take();
            let address = trip.as_ref().map(|trip| trip.address.clone()).unwrap_or_default();
            if let Some(ticket) = recording.ticket.take().map(Box::new) {
                self.cache_threads.send(CacheJob::MadeAway { ticket, address });
            }
            if let Some(trip) = trip {
                self.tell_elsewhere(order.connection, order.execute.id, trip.describe(order, ""));
            }
            self.tell_cache_info(order, recording.told.clone());
        }
        self.tell_inputs(order, hit.inputs);
        let outcome = Outcome {
            code: hit.code,
            ..order.outcome(Verdict::Ran)
        };
        self.tell(order, &outcome);
        Next::Over
    }
}
