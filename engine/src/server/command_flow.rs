//! The life of a command: which event moves it from one state to the next, and what is done on the way.
//!
//! ```text
//!   arrives ─► Asking ──answered: known──────────────────────────────────────────────────► over
//!      │         └─answered: to run─┐
//!      └─ not cached ─► Waiting ◄───┘
//!                     ▲    └─granted─► Starting ─started─► Running ─done: to be stored─► Storing ─stored─► over
//!                     │                   └─not started─► over  ├─done─► over               │
//!                     └─── the plain command, after an attempt ─┴───────────────────────────┘
//! ```
//!
//! An attempt is a compile that begins after its headers (`cache::prepare`). Its outputs are elsewhere, and what it prints is
//! not sent. If it fails, prints, or its result cannot be used, the plain command runs.
//!
//! `on_event` takes a command out of `Commands`, `step` consumes its state, and the new state is put back. So a command
//! is in one state at a time. An event that does not fit the state was meant for an earlier state, and changes nothing.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, error, warn};
use rustix::event::epoll;
use rustix::process::Signal;

use super::command::{
    Asking, Attempt, Command, Fetching, Order, Plainly, Recording, Resources, Running, Starting, State, Storing,
    Supplies, Waiting,
};
use super::connection::ConnectionKey;
use super::idle::IdleWork;
use super::observation::{observe, observe_next, Observer};
use super::requests::ConnectionError;
use super::slots::{CommandKey, SessionId};
use super::source::Source;
use super::starters::{Job, Started, Work};
use super::timers::Alarm;
use super::Server;
use crate::cache::answer::{Answer, Hit, Uncached};
use crate::cache::away::{Back, Stayed};
use crate::cache::cache_threads::Job as CacheJob;
use crate::cache::keep::{Ended, NotStored, Stored};
use crate::cache::lookup::inputs::{Inputs, Numbered};
use crate::cache::rerun::Due;
use crate::process::context::{self, Adjustment};
use crate::process::jobserver;
use crate::process::spawn::{self, NotStarted};
use crate::wire::{self, Execute, Outcome, Reply, Stdio, Strings, Told, UncachedReason, UnstoredReason, Verdict, Why};

/// From SIGTERM to SIGKILL for a command whose client is gone. We read the pipes of killed commands for the same time.
const GRACE: Duration = Duration::from_secs(1);
/// A tracer learns of the end of a process before we do. We look again after this time.
const TRACER_TIME: Duration = Duration::from_millis(1);

pub(super) enum Event {
    Answered(Answer),
    /// The command has a slot. `is_alone` if no other command got one at the same time.
    Granted {
        is_alone: bool,
    },
    /// A process was started for the command, or could not be started.
    Started(Started),
    /// The command's standard input can take more.
    Input,
    /// A captured stream has output to read.
    Output(usize),
    /// The command's process has ended.
    Ended,
    /// The command is to be ended early. Its outcome gets this verdict.
    End(Verdict),
    /// The client no longer wants the command, which has left the queue for slots.
    Withdrawn,
    /// The command was asked to end, and its grace time is over.
    Kill,
    /// The command has ended, but its pipes are still open: do not read them any longer.
    Abandon,
    /// The store does not answer, and the cache thread has lost its claim.
    StoreIsSilent,
    /// The result was stored, or not.
    Stored(Result<Stored, NotStored>),
    /// The command is back from a cluster, and its result is in the store, or there is none.
    Returned(Result<Back, Stayed>),
    /// The outputs that it has made there are in their places, or cannot be.
    Fetched(Option<Box<Hit>>),
}

// A value of this type lives only between `step` and `on_event`, so its size does not matter.
#[allow(clippy::large_enum_variant)]
pub(super) enum Next {
    Over,
    Stay(State),
    /// A second event follows at once.
    Then(State, Event),
}

impl Server {
    /// Moves a command on.
    pub(super) fn on_event(&mut self, key: CommandKey, mut event: Event) {
        let Some(Command { mut order, mut state }) = self.commands.take(key) else {
            return self.drop_event(event);
        };
        loop {
            match self.step(key, &mut order, state, event) {
                Next::Over => return,
                Next::Stay(state) => return self.commands.put(key, Command { order, state }),
                Next::Then(after, then) => (state, event) = (after, then),
            }
        }
    }

    fn step(&mut self, key: CommandKey, order: &mut Arc<Order>, state: State, event: Event) -> Next {
        match (state, event) {
            (State::Asking(asking), Event::Answered(answer)) => self.answered(key, order, asking, answer),
            (State::Asking(asking), Event::End(_) | Event::Withdrawn) => {
                // If the cache still finds a result, it must not write the outputs.
                asking.wait.claim.give_up();
                self.end_unstarted(key, order)
            }
            (State::Waiting(waiting), Event::Granted { is_alone }) => self.granted(key, order, waiting, is_alone),
            (State::Waiting(_), Event::End(_)) => {
                self.slots.retract(&order.session, &HashSet::from([key]));
                self.end_unstarted(key, order)
            }
            (State::Waiting(_), Event::Withdrawn) => self.end_unstarted(key, order),
            (State::Away(_), Event::End(_) | Event::Withdrawn) => {
                // With the state, the command on the cluster is called off.
                self.end_unstarted(key, order)
            }
            (State::Fetching(fetching), Event::End(_) | Event::Withdrawn) => {
                fetching.wait.claim.give_up();
                self.end_fetching(order, &fetching)
            }
            (State::Fetching(fetching), Event::Fetched(hit)) => {
                self.fetched(key, order, *fetching, hit.map(|hit| *hit))
            }
            (State::Fetching(fetching), Event::StoreIsSilent) => self.fetched(key, order, *fetching, None),
            (state, Event::Returned(result)) => self.returned(key, order, state, result),
            (State::Starting(starting), Event::Started(started)) => self.started(key, order, starting, started),
            (State::Starting(mut starting), Event::End(_)) => {
                starting.is_cancelled = true;
                starting.recording.iter_mut().for_each(|recording| recording.call_off());
                Next::Stay(State::Starting(starting))
            }
            (State::Running(running), Event::Started(started)) => self.part_started(key, order, running, started),
            (State::Running(mut running), Event::Input) => {
                running.feed();
                Next::Stay(State::Running(running))
            }
            (State::Running(running), Event::Output(stream)) => self.has_output(key, order, running, stream),
            (State::Running(running), Event::Ended) => self.ended(key, order, running),
            (State::Running(running), Event::End(verdict)) => self.end(key, order, running, verdict),
            (State::Running(mut running), Event::Kill) => {
                running.signal(Signal::KILL);
                running.killed = true;
                self.abandoned(key, order, running)
            }
            (State::Running(running), Event::Abandon) => self.abandoned(key, order, running),
            (State::Asking(asking), Event::StoreIsSilent) => {
                let why = UncachedReason::SilentStore;
                let answer = Answer::Uncached(Uncached::new(why, why.sentence().to_owned()));
                self.answered(key, order, asking, answer)
            }
            (State::Storing(storing), Event::StoreIsSilent) => {
                let unkept = UnstoredReason::SilentStore.into();
                self.stored(key, order, *storing, Err(NotStored::Unkept(unkept)))
            }
            (State::Storing(storing), Event::Stored(kept)) => self.stored(key, order, *storing, kept),
            (state, event) => {
                self.drop_event(event);
                Next::Stay(state)
            }
        }
    }

    /// Drops an event that came too late. A miss still has to be reported to the cache: a ticket is a promise to do so.
    fn drop_event(&self, event: Event) {
        if let Event::Answered(Answer::Miss(ticket)) = event {
            drop(Recording::new(ticket.told(), Some(*ticket), self.cache_threads.jobs()));
        }
    }

    /// A client sends a command.
    pub(super) fn on_execute(&mut self, key: ConnectionKey, mut execute: Box<Execute>) -> Result<(), ConnectionError> {
        let command = self.key();
        // A command that is cached by its facts depends on more of its client's process than the umask.
        if !execute.cached || execute.by_facts {
            self.examine_client(key)
                .map_err(|(why, reason)| self.refuse(key, why, &reason))?;
        }
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(());
        };
        let wanted = execute.stdio.iter().filter(|s| **s == Stdio::Descriptor).count();
        let descriptors: Vec<_> = (0..wanted).map_while(|_| connection.take_descriptor()).collect();
        if descriptors.len() < wanted {
            return Err(wire::Malformed("a command without its descriptors").into());
        }
        let input = std::mem::take(&mut execute.input);
        let supplies = Supplies { input, descriptors };
        let order = Arc::new(self.make_order(key, execute, supplies.input.len())?);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.backlog += order.size;
            connection.commands.insert(order.execute.id, command);
        }
        let state = if order.execute.cached {
            let wait = self.ask_cache(command, &order, &supplies);
            State::Asking(Asking { supplies, wait })
        } else {
            self.submit(command, &order);
            let recording = None;
            State::Waiting(Waiting { supplies, recording })
        };
        self.commands.put(command, Command { order, state });
        Ok(())
    }

    /// Adds what the client's process and its build give to each of its commands.
    fn make_order(
        &mut self,
        key: ConnectionKey,
        execute: Box<Execute>,
        input: usize,
    ) -> Result<Order, wire::Malformed> {
        let connection = self.connections.get(key);
        let Some((connection, client)) = connection.and_then(|found| Some((found, found.client.as_ref()?))) else {
            return Err(wire::Malformed("a command over a connection without jobs"));
        };
        let Some(env) = connection.environments.get(&execute.env) else {
            return Err(wire::Malformed("a command in an environment that was not defined"));
        };
        if connection.commands.contains_key(&execute.id) {
            return Err(wire::Malformed("two commands of one number"));
        }
        let (context, adjustments, control_group) = match &client.inherited {
            Some(known) => (
                known.context.clone(),
                known.adjustments.clone(),
                known.control_group.clone(),
            ),
            // Enough to look the command up. If it has to run, the client is examined then.
            None => {
                let asked = || context::umask_of(client.pid).unwrap_or(self.own.context.umask);
                let umask = client.umask.unwrap_or_else(asked);
                (Arc::new(self.own.context.with_umask(umask)), Arc::default(), None)
            }
        };
        let (adjustments, env) = self.neighbors.with_jobserver(&client.session, adjustments, env.clone());
        Ok(Order {
            connection: key,
            session: client.session,
            env,
            context,
            adjustments,
            control_group,
            has_context: client.inherited.is_some(),
            pin: client.pin,
            terminal: client.wishes.terminal.filter(|_| execute.cached),
            arrived: Instant::now(),
            size: execute.argv.size() + input + execute.cwd.len(),
            execute,
        })
    }

    /// Queues a command for a slot. If its client does not read, that is done when it reads again.
    pub(super) fn submit(&mut self, key: CommandKey, order: &Order) {
        let connection = self.connections.get(order.connection);
        if let Some(client) = connection.and_then(|connection| connection.client.as_ref()) {
            self.memory.enter(key, order, client.pid);
        }
        if connection.is_some_and(|connection| !connection.is_out_of_queue) {
            self.slots.submit(order.session, key);
        }
    }

    /// From `Asking`: the result is known, or the command has to run.
    fn answered(&mut self, key: CommandKey, order: &mut Arc<Order>, asking: Asking, answer: Answer) -> Next {
        let jobs = self.cache_threads.jobs();
        // Little is known of a command that is not cached.
        let mut uses_jobserver = true;
        let recording = match answer {
            Answer::Hit(hit) => return self.serve_hit(order, hit),
            Answer::Miss(mut ticket) => {
                uses_jobserver = ticket.is_by_facts();
                let told = ticket.told();
                if order.execute.timeout > 0 {
                    // The plain command must have all of that time.
                    ticket.forgo_attempt();
                }
                let plainly = ticket.plain_argv().map(|argv| Plainly::new(argv, &asking.supplies));
                let mut plainly = plainly.transpose().unwrap_or_else(|error| {
                    debug!("keep descriptors for the plain command: {error}");
                    ticket.forgo_attempt();
                    None
                });
                let is_as_asked = replace_argv(order, ticket.argv());
                plainly = plainly.filter(|_| is_as_asked);
                let mut recording = Recording::new(told, is_as_asked.then_some(*ticket), jobs);
                recording.plainly = plainly.map(Box::new);
                recording
            }
            Answer::Uncached(reason) if reason.is_unknown && self.wants_only_known(order) => {
                return self.return_to_client(order);
            }
            Answer::Uncached(reason) => {
                replace_argv(order, reason.argv.as_ref());
                Recording::new(reason.told(), None, jobs)
            }
        };
        if let Err((why, reason)) = self.add_client_context(order) {
            // The client turns out to live in another container or namespace: it runs the command itself.
            self.count_refusal(order.connection, why, &reason);
            return self.return_to_client(order);
        }
        if uses_jobserver {
            self.pass_jobserver_on(order);
        }
        self.submit(key, order);
        Next::Stay(State::Waiting(Waiting {
            supplies: asking.supplies,
            recording: Some(Box::new(recording)),
        }))
    }

    /// The client wants only commands run of which the cache can tell something.
    fn wants_only_known(&self, order: &Order) -> bool {
        let client = self.connections.client(order.connection);
        client.is_some_and(|client| client.only_known)
    }

    /// Examines the client if that was put off, and gives the command its context.
    fn add_client_context(&mut self, order: &mut Arc<Order>) -> Result<(), (Why, String)> {
        if order.has_context {
            return Ok(());
        }
        self.examine_client(order.connection)?;
        self.connections.touch(order.connection);
        let client = self.connections.client(order.connection);
        let known = client.and_then(|client| client.inherited.as_ref());
        let (Some(known), Some(order)) = (known, Arc::get_mut(order)) else {
            return Err((Why::Place, "its client is gone".to_owned()));
        };
        order.context = Arc::new(known.context.with_umask(order.context.umask));
        let all = known.adjustments.iter().chain(order.adjustments.iter());
        order.adjustments = Arc::new(all.cloned().collect());
        order.control_group = known.control_group.clone();
        order.has_context = true;
        Ok(())
    }

    /// Gives the command the descriptors of a jobserver that its client has, unless it gets those of its session.
    fn pass_jobserver_on(&self, order: &mut Arc<Order>) {
        let client = self.connections.client(order.connection);
        let has_one = order
            .adjustments
            .iter()
            .any(|one| matches!(one, Adjustment::Inherit(_)));
        let (Some(client), Some(order)) = (client.filter(|_| !has_one), Arc::get_mut(order)) else {
            return;
        };
        let found = jobserver::inherited_by(client.pid, &order.env).into_iter();
        let inherited: Vec<_> = found.map(|(fd, number)| Adjustment::InheritAs(fd, number)).collect();
        if !inherited.is_empty() {
            order.adjustments = Arc::new(order.adjustments.iter().cloned().chain(inherited).collect());
        }
    }

    /// Returns the command to the client, which runs it itself.
    fn return_to_client(&mut self, order: &Order) -> Next {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        self.tell(order, &order.not_started(NotStarted::engine(&error)));
        Next::Over
    }

    /// Ends the command with the stored result.
    fn serve_hit(&mut self, order: &mut Arc<Order>, mut hit: Hit) -> Next {
        if hit.due.is_some() && self.add_client_context(order).is_err() {
            hit.due = None;
        }
        self.do_when_idle(order, hit.due);
        self.connections.shrink_backlog(order.connection, order.size);
        for (stream, bytes) in [hit.stdout, hit.stderr].iter().enumerate() {
            self.connections
                .send_output(order.connection, order.execute.id, stream, bytes);
        }
        let outcome = Outcome {
            code: hit.code,
            ..order.outcome(Verdict::Ran)
        };
        let processor = hit.processor;
        self.tell_cache_info(order, Told::Hit { processor });
        self.sessions.count_hit(&order.session);
        self.tell_inputs(order, hit.inputs);
        self.tell(order, &outcome);
        Next::Over
    }

    fn do_when_idle(&mut self, order: &Order, due: Option<Box<Due>>) {
        let (Some(due), Some(cache)) = (due, self.cache_threads.opened()) else {
            return;
        };
        let group = order.control_group.clone().map(Adjustment::ControlGroup);
        // The build's jobserver is only for the build's own commands, and its descriptors need not wait here.
        let is_lent = |one: &Adjustment| matches!(one, Adjustment::Inherit(_) | Adjustment::InheritAs(..));
        let adjustments = match order.adjustments.iter().any(is_lent) {
            true => Arc::new(order.adjustments.iter().filter(|one| !is_lent(one)).cloned().collect()),
            false => order.adjustments.clone(),
        };
        let observer = due.is_observed().then(|| Observer::of(&self.parking)).flatten();
        let queue = match due.is_urgent() {
            true => &mut self.at_once,
            false => &mut self.idle,
        };
        queue.push(IdleWork {
            cache,
            due,
            context: order.context.clone(),
            adjustments,
            control_group: group,
            observer,
            attempts: 0,
        });
    }

    /// From `Asking` or `Waiting`: the client no longer wants the command.
    fn end_unstarted(&mut self, key: CommandKey, order: &Order) -> Next {
        self.memory.forget(key);
        self.connections.shrink_backlog(order.connection, order.size);
        self.tell(order, &order.outcome(Verdict::Cancelled));
        Next::Over
    }

    /// From `Fetching`: the client no longer wants the command.
    fn end_fetching(&mut self, order: &Order, fetching: &Fetching) -> Next {
        if fetching.is_in_backlog {
            self.connections.shrink_backlog(order.connection, order.size);
        }
        self.tell(order, &order.outcome(Verdict::Cancelled));
        Next::Over
    }

    /// Drops the commands of a session that wait for a slot, all at once.
    pub(super) fn withdraw_waiting(&mut self, session: &SessionId, keys: &[CommandKey]) {
        let waiting = keys.iter().copied().filter(|key| self.commands.is_waiting(*key));
        let waiting: HashSet<_> = waiting.collect();
        self.slots.retract(session, &waiting);
        waiting.into_iter().for_each(|key| self.on_event(key, Event::Withdrawn));
    }

    /// Grants slots while there are free ones and waiting commands.
    pub(super) fn start_commands(&mut self) {
        self.look_for_clusters();
        loop {
            let granted: Vec<_> = std::iter::from_fn(|| self.grant()).collect();
            let is_alone = granted.len() == 1;
            for key in &granted {
                self.on_event(*key, Event::Granted { is_alone });
            }
            // A command that could not be started has given its slot back, so try again.
            if granted.is_empty() && !self.use_clusters() {
                break;
            }
        }
        self.watch_for_release();
    }

    /// From `Waiting`: the command has a slot.
    fn granted(&mut self, key: CommandKey, order: &mut Arc<Order>, waiting: Waiting, is_alone: bool) -> Next {
        self.connections.shrink_backlog(order.connection, order.size);
        self.connections.touch(order.connection);
        let (stdio, mut starting) = match waiting.open(&order.execute, order.terminal) {
            Ok(opened) => opened,
            Err(error) => return self.not_started(key, order, &Resources::default(), NotStarted::engine(&error)),
        };
        let roster_entry = self.guard.roster.reserve();
        let processor = order.pin.then(|| self.pins.take(order.context.processors())).flatten();
        starting.resources = Resources {
            processor,
            roster_entry: roster_entry.map(|(number, _)| number),
        };
        let recording = starting.recording.as_mut();
        if recording.as_ref().is_some_and(|recording| recording.is_of_compile()) {
            self.away.begin_here(key);
        }
        let trace = recording.and_then(|recording| {
            let trace = observe(recording, order, &self.parking);
            // The result of an attempt that is not observed could not be used.
            if let Some(plainly) = recording.plainly.take_if(|_| trace.is_none()) {
                Arc::make_mut(order).execute.argv = plainly.argv;
            }
            trace
        });
        let job = Job {
            key,
            order: order.clone(),
            work: Work::Command,
            trace,
            stdio: Arc::new(stdio),
            processor,
            roster_entry,
            awaited: None,
        };
        self.hand_over(State::Starting(starting), job, is_alone)
    }

    /// Starts a single command in this thread, or hands it to the starters.
    fn hand_over(&mut self, state: State, job: Job, is_alone: bool) -> Next {
        if !is_alone {
            self.starters.start(job);
        } else if let Some(started) = self.starters.start_here(job) {
            return Next::Then(state, Event::Started(started));
        }
        Next::Stay(state)
    }

    pub(super) fn on_started(&mut self) {
        for started in self.starters.take_started() {
            self.on_event(started.key, Event::Started(started));
        }
    }

    /// From `Starting`: the command runs.
    fn started(&mut self, key: CommandKey, order: &mut Arc<Order>, mut starting: Starting, started: Started) -> Next {
        let mut begun = match started.begun {
            Ok(begun) => begun,
            Err(why) => {
                let recording = starting.recording.as_mut().filter(|_| !starting.is_cancelled);
                let Some(attempt) = recording.and_then(|recording| recording.end_attempt()) else {
                    return self.not_started(key, order, &starting.resources, why);
                };
                self.release(&starting.resources);
                self.free_slot(key, &order.session);
                return self.repeat(key, order, attempt);
            }
        };
        if let Some(recording) = &mut starting.recording {
            let next_parts = begun.next_parts.as_mut();
            recording.driver = next_parts.and_then(|next_parts| next_parts.driver.take());
            recording.expect_part();
        }
        let is_cancelled = starting.is_cancelled;
        let mut running = Box::new(starting.run(begun, started.at, started.is_parked));
        if order.execute.timeout > 0 {
            let timeout = Duration::from_micros(order.execute.timeout);
            // A deadline beyond the clock's range never comes.
            if let Some(at) = started.at.checked_add(timeout) {
                self.timers.set(at, Alarm::TimeUp(key));
            }
        }
        match self.watch(key, &mut running) {
            Err(error) => self.not_seen(key, order, &running, &error),
            Ok(()) if is_cancelled => Next::Then(State::Running(running), Event::End(Verdict::Cancelled)),
            Ok(()) => Next::Stay(State::Running(running)),
        }
    }

    /// Has epoll watch the process and the pipes of a command that has just started.
    fn watch(&self, key: CommandKey, running: &mut Running) -> io::Result<()> {
        Source::End(key).watch(&self.epoll, &running.pidfd)?;
        running.watch(&self.epoll, key, true)?;
        running.feed();
        if let Some(feed) = &running.feed {
            epoll::add(&self.epoll, &feed.fd, Source::Feed(key).data(), epoll::EventFlags::OUT)?;
        }
        Ok(())
    }

    /// A command could not be started: frees its slot and tells its client why.
    fn not_started(&mut self, key: CommandKey, order: &Order, resources: &Resources, why: NotStarted) -> Next {
        debug!("command {key} not started: {why:?}");
        self.release(resources);
        self.conclude(key, order, &order.not_started(why))
    }

    /// The process runs, but we could not watch its end. So it is killed.
    fn not_seen(&mut self, key: CommandKey, order: &Order, running: &Running, error: &io::Error) -> Next {
        warn!("watch a command: {error}");
        running.signal(Signal::KILL);
        spawn::reap(running.pid);
        self.not_started(key, order, &running.resources, NotStarted::engine(error))
    }

    /// The next part runs of a command that is started part by part.
    fn part_started(
        &mut self,
        key: CommandKey,
        order: &mut Arc<Order>,
        mut running: Box<Running>,
        started: Started,
    ) -> Next {
        match started.begun {
            Ok(begun) => {
                running.continue_with(begun.child);
                match Source::End(key).watch(&self.epoll, &running.pidfd) {
                    Ok(()) => Next::Stay(State::Running(running)),
                    Err(error) => self.not_seen(key, order, &running, &error.into()),
                }
            }
            // The driver cannot be asked to finish the command. The command ends as a driver does when a part fails.
            Err(_) if running.next_parts.is_none() => {
                running.fail();
                self.done_if_over(key, order, running)
            }
            Err(why) => self.not_started(key, order, &running.resources, why),
        }
    }

    fn has_output(
        &mut self,
        key: CommandKey,
        order: &mut Arc<Order>,
        mut running: Box<Running>,
        stream: usize,
    ) -> Next {
        let is_much = running.read(stream, &mut self.round.scratch);
        if running.is_attempt() && running.has_printed() {
            running.abort();
            return self.done_if_over(key, order, running);
        }
        if !is_much {
            return self.done_if_over(key, order, running);
        }
        let held = running.take_output(stream);
        // What the client has seen cannot be replaced.
        running.recording.iter_mut().for_each(|recording| recording.call_off());
        self.connections
            .send_output(order.connection, order.execute.id, stream, &held);
        self.pause_if_clogged(order.connection, key, &running);
        Next::Stay(State::Running(running))
    }

    /// Stops reading the output of a command while its client does not read.
    fn pause_if_clogged(&mut self, connection: ConnectionKey, key: CommandKey, running: &Running) {
        self.connections.touch(connection);
        let Some(connection) = self.connections.get_mut(connection) else {
            return;
        };
        if !connection.is_clogged() || connection.flush().is_err() || !connection.is_clogged() {
            return;
        }
        connection.paused_commands.push(key);
        self.watch_output(key, running, false);
    }

    /// Reads the output of a command again, because its client reads again or is gone.
    pub(super) fn read_on(&mut self, key: CommandKey) {
        if let Some(command) = self.commands.take(key) {
            if let State::Running(running) = &command.state {
                self.watch_output(key, running, true);
            }
            self.commands.put(key, command);
        }
    }

    fn watch_output(&self, key: CommandKey, running: &Running, on: bool) {
        if let Err(error) = running.watch(&self.epoll, key, on) {
            warn!("watch the output of a command: {error}");
        }
    }

    /// From `Running`: a process of the command has ended. Starts the next part, if there is one.
    fn ended(&mut self, key: CommandKey, order: &mut Arc<Order>, mut running: Box<Running>) -> Next {
        let _ = epoll::delete(&self.epoll, &running.pidfd);
        if !spawn::can_be_collected(&running.pidfd) {
            self.timers.set(Instant::now() + TRACER_TIME, Alarm::End(key));
            return Next::Stay(State::Running(running));
        }
        let streams = running.next_parts.as_ref().map(|next_parts| next_parts.streams.clone());
        let entry = running.resources.roster_entry;
        let roster_entry = entry.map(|entry| self.guard.roster.place(entry));
        let next = running.next_part(|| {
            let entries = roster_entry.iter();
            entries.for_each(|(_, process)| process.store(0, Ordering::Release));
        });
        let streams = match (next, streams) {
            (Some(work), Some(stdio)) => {
                let recording = running.recording.as_mut();
                let job = Job {
                    key,
                    order: order.clone(),
                    trace: recording.and_then(|recording| observe_next(recording, order, &work, &self.parking)),
                    work,
                    stdio,
                    processor: running.resources.processor,
                    roster_entry,
                    awaited: None,
                };
                return self.hand_over(State::Running(running), job, self.round.is_calm);
            }
            (_, streams) => streams,
        };
        running.ended = Some(Instant::now());
        running.feed = None;
        // Until now we held the other ends of the pipes, so everything is in them already.
        if streams.is_some() {
            drop(streams);
            running.drain(&mut self.round.scratch);
        }
        self.done_if_over(key, order, running)
    }

    /// Ends a command early.
    pub(super) fn end(
        &mut self,
        key: CommandKey,
        order: &mut Arc<Order>,
        mut running: Box<Running>,
        verdict: Verdict,
    ) -> Next {
        if running.verdict != Verdict::Ran {
            // The client does not want the result of the cluster either.
            let recording = running.recording.as_mut();
            recording.into_iter().for_each(|recording| recording.departure = None);
            return Next::Stay(State::Running(running));
        }
        running.verdict = verdict;
        let deadline = Instant::now() + GRACE;
        if verdict == Verdict::TimedOut {
            running.signal(Signal::KILL);
            self.timers.set(deadline, Alarm::Abandon(key));
            return Next::Stay(State::Running(running));
        }
        running.signal(Signal::TERM);
        running.signal(Signal::CONT);
        running.feed = None;
        self.timers.set(deadline, Alarm::Kill(key));
        // The pipes are still read: output during cleanup must not fail with SIGPIPE.
        self.done_if_over(key, order, running)
    }

    /// Another process may hold the pipes of a killed command. Closes our ends.
    fn abandoned(&mut self, key: CommandKey, order: &mut Arc<Order>, mut running: Box<Running>) -> Next {
        running.close(0);
        running.close(1);
        self.done_if_over(key, order, running)
    }

    /// From `Running`, if the process has ended and all of its output is read.
    fn done_if_over(&mut self, key: CommandKey, order: &mut Arc<Order>, mut running: Box<Running>) -> Next {
        if !running.is_done() {
            return Next::Stay(State::Running(running));
        }
        // If members of its group still run, the alarm that kills them finishes the command.
        let followed = &mut self.round.followed;
        if running.is_dying()
            && followed
                .get_or_insert_with(spawn::followed_groups)
                .contains(&running.pid)
        {
            return Next::Stay(State::Running(running));
        }
        if let Some(next) = self.end_overtaken(key, order, &mut running) {
            return next;
        }
        let has_printed = running.has_printed();
        for stream in 0..2 {
            let rest = running.take_output(stream);
            if !running.is_attempt() {
                self.connections
                    .send_output(order.connection, order.execute.id, stream, &rest);
            }
        }
        self.release(&running.resources);
        let outcome = running.outcome(order, &self.ledger);
        let is_good = |outcome: &Outcome| outcome.verdict != Verdict::Ran || outcome.code == 0 && !has_printed;
        let fails = running.is_attempt() && !outcome.as_ref().is_some_and(is_good);
        let recording = running.recording.as_mut().filter(|_| fails);
        if let Some(attempt) = recording.and_then(|recording| recording.end_attempt()) {
            self.free_slot(key, &order.session);
            return self.repeat(key, order, attempt);
        }
        if let Some(outcome) = &outcome {
            self.memory.learn(key, order, outcome);
        }
        match (outcome, running.recording.take()) {
            (Some(outcome), Some(recording)) => self.store_recording(key, order, recording, outcome),
            (Some(outcome), None) => self.conclude(key, order, &outcome),
            (None, _) => {
                error!("command {key} has ended, and nobody knows how");
                self.free_slot(key, &order.session);
                self.drop_connection(order.connection, "lost a command");
                Next::Over
            }
        }
    }

    /// From `Running`: if the cluster was sooner, its result counts.
    fn end_overtaken(&mut self, key: CommandKey, order: &mut Arc<Order>, running: &mut Running) -> Option<Next> {
        let mut recording = running.recording.take_if(|recording| recording.departure.is_some())?;
        let (departure, spare) = (recording.departure.take()?, recording.spare.take()?);
        self.release(&running.resources);
        // The process is reaped with its outcome.
        let _ = running.outcome(order, &self.ledger);
        self.free_slot(key, &order.session);
        recording.trace_region = None;
        recording.output = Default::default();
        recording.run_plainly(order);
        Some(self.fetch(order, key, spare, Some(recording), departure, false))
    }

    /// From `Running`: a command that was looked up has ended. Its result is stored.
    fn store_recording(
        &mut self,
        key: CommandKey,
        order: &mut Arc<Order>,
        mut recording: Box<Recording>,
        outcome: Outcome,
    ) -> Next {
        match outcome.verdict {
            Verdict::Ran => {}
            Verdict::TimedOut => recording.give_up(UnstoredReason::TookTooLong),
            _ => recording.give_up(UnstoredReason::Interrupted),
        }
        if recording.is_of_compile() {
            self.away.learn(order, &outcome);
        }
        self.overtake(order, &mut recording);
        let told = recording.told.clone();
        if outcome.verdict == Verdict::Ran && recording.ticket.is_none() {
            if let Some(attempt) = recording.end_attempt() {
                self.free_slot(key, &order.session);
                return self.repeat(key, order, attempt);
            }
        }
        let plainly = recording.plainly.take();
        let (Some(ticket), Some(trace_region)) = (recording.ticket.take(), recording.trace_region.take()) else {
            self.tell_cache_info(order, told);
            return self.conclude(key, order, &outcome);
        };
        let [stdout, stderr] = std::mem::take(&mut recording.output);
        self.free_slot(key, &order.session);
        let wait = self.begin_store_wait();
        let library = self.parking.library();
        self.cache_threads.send(CacheJob::Keep {
            who: key,
            ticket: Box::new(ticket),
            ended: Box::new(Ended {
                code: outcome.code,
                stdout,
                stderr,
                wall: outcome.wall,
                processor: outcome.user + outcome.system,
                started: recording.started,
                accesses: Vec::new(),
                driver: recording.driver.take(),
                observer: library.map(|path| path.to_bytes().to_vec()).unwrap_or_default(),
            }),
            trace_region,
            claim: wait.claim.clone(),
        });
        Next::Stay(State::Storing(Box::new(Storing {
            outcome,
            told,
            plainly,
            wait,
        })))
    }

    /// From `Storing`: the client is told.
    fn stored(
        &mut self,
        key: CommandKey,
        order: &mut Arc<Order>,
        storing: Storing,
        kept: Result<Stored, NotStored>,
    ) -> Next {
        let mut told = storing.told;
        let stored = match kept {
            Ok(stored) => stored,
            Err(not_stored) => {
                let ticket = match not_stored {
                    NotStored::Again(ticket) => Some(*ticket),
                    NotStored::Unkept(unkept) => {
                        told.leave_unstored(unkept);
                        None
                    }
                };
                // Without a result in place, the outputs of an attempt are nowhere.
                if let Some(plainly) = storing.plainly {
                    let attempt = Attempt { plainly, ticket, told };
                    return self.repeat(key, order, attempt);
                }
                Stored::default()
            }
        };
        told.note_saved(stored.saved);
        if let Some(processor) = stored.by_text {
            told = Told::Hit { processor };
            self.sessions.count_hit(&order.session);
        }
        debug!("command {key}: {}", told.show());
        for due in stored.due {
            self.do_when_idle(order, Some(Box::new(due)));
        }
        self.tell_cache_info(order, told);
        self.tell_inputs(order, stored.inputs);
        self.tell(order, &storing.outcome);
        Next::Over
    }

    /// The plain command gets its turn. The attempt has given its slot back.
    fn repeat(&mut self, key: CommandKey, order: &mut Arc<Order>, attempt: Attempt) -> Next {
        let Attempt { plainly, ticket, told } = attempt;
        let Some(connection) = self.connections.get_mut(order.connection) else {
            return Next::Over;
        };
        debug!("command {key} runs as it is");
        connection.backlog += order.size;
        let Plainly { argv, supplies } = *plainly;
        Arc::make_mut(order).execute.argv = argv;
        self.submit(key, order);
        let recording = Some(Box::new(Recording::new(told, ticket, self.cache_threads.jobs())));
        Next::Stay(State::Waiting(Waiting { supplies, recording }))
    }

    fn release(&mut self, resources: &Resources) {
        if let Some(processor) = resources.processor {
            self.pins.give_back(processor);
        }
        if let Some(roster_entry) = resources.roster_entry {
            self.guard.roster.strike(roster_entry);
        }
    }

    /// The command is over: frees its slot and tells its client.
    fn conclude(&mut self, key: CommandKey, order: &Order, outcome: &Outcome) -> Next {
        debug!("command {key}: {outcome:?}");
        self.free_slot(key, &order.session);
        self.tell(order, outcome);
        Next::Over
    }

    pub(super) fn tell(&mut self, order: &Order, outcome: &Outcome) {
        self.totals.count(outcome);
        self.sessions.count(&order.session, outcome);
        if let Some(connection) = self.connections.get_mut(order.connection) {
            connection.commands.remove(&order.execute.id);
            connection.reply(&Reply::Outcome(*outcome));
            self.connections.touch(order.connection);
        }
        self.start_idle_clock();
    }

    /// Tells the client what the cache knows of a command.
    pub(super) fn tell_cache_info(&mut self, order: &Order, told: Told) {
        let id = order.execute.id;
        let reply = Reply::Told { id, told };
        self.connections.reply(order.connection, &reply);
    }

    /// Tells the client the inputs of a command, if it asked for them and they are known.
    pub(super) fn tell_inputs(&mut self, order: &Order, inputs: Option<Inputs>) {
        let client = self.connections.client_mut(order.connection);
        let (Some(client), Some(inputs)) = (client, inputs) else {
            return;
        };
        let Numbered { first, new, numbers } = client.numbers.number(inputs.texts);
        let reply = Reply::Inputs {
            id: order.execute.id,
            first,
            new,
            result: inputs.result.0,
            numbers,
        };
        self.connections.reply(order.connection, &reply);
    }
}

/// Gives a command the line to which the cache has added. Whether it is the line about which the cache was asked.
fn replace_argv(order: &mut Arc<Order>, argv: Option<&Strings>) -> bool {
    match (argv, Arc::get_mut(order)) {
        (None, _) => true,
        (Some(argv), Some(order)) => {
            order.execute.argv = argv.clone();
            true
        }
        // Something else refers to it, which does not happen while it only asks the cache.
        (Some(_), None) => false,
    }
}
