//! The life of a command: which event moves it from one state to the next, and what is done on the way.
//!
//! ```text
//!   arrives ─► Asking ──answered: known──────────────────────────────────────────────────► over
//!      │         └─answered: to run─┐
//!      └─ not cached ─► Waiting ◄───┘
//!                          └─granted─► Starting ─started─► Running ─done: to be stored─► Storing ─stored─► over
//!                                          └─not started─► over  └─done─► over
//! ```
//!
//! `happens` takes a command out of `Commands`, `step` consumes its state, and what comes of it is put back. So a command is
//! in one state at a time. An event that does not fit the state belongs to an earlier one, and changes nothing.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, error, warn};
use rustix::event::epoll;
use rustix::process::Signal;

use super::auditor::Audit;
use super::command::{Asking, Case, Command, Holdings, Order, Running, Starting, State, Storing, Supplies, Waiting};
use super::connection::ConnectionKey;
use super::observation::{observe, observe_next};
use super::requests::Broken;
use super::slots::{CommandKey, SessionId};
use super::source::Source;
use super::starters::{Job, Started, What};
use super::timers::Alarm;
use super::Server;
use crate::cache::answer::{Answer, Hit, Uncached};
use crate::cache::cache_threads::Job as CacheJob;
use crate::cache::keep::Ended;
use crate::cache::lookup::inputs::{Inputs, Numbered};
use crate::process::context::{self, Adjustment};
use crate::process::spawn::{self, NotStarted};
use crate::wire::{
    self, Execute, Outcome, Reply, Stdio, Step, Strings, Told, UncachedReason, Unkept, UnstoredReason, Verdict, Why,
};

/// From SIGTERM to SIGKILL for a command whose client is gone; also how long pipes of killed commands are read.
const GRACE: Duration = Duration::from_secs(1);
/// A tracer is told of a process's end before we are: we ask again after this time.
const TRACER_TIME: Duration = Duration::from_millis(1);

/// What can happen to a command.
pub(super) enum Event {
    /// The cache has answered.
    Answered(Answer),
    /// It has a slot; no other command got one at the same time.
    Granted { is_alone: bool },
    /// A process was started for it, or could not be started.
    Started(Started),
    /// It may take more of its input.
    Input,
    /// There is something to read in a captured stream.
    Output(usize),
    /// Its process has ended.
    Ended,
    /// It is to end before its time; the outcome tells this verdict.
    End(Verdict),
    /// It asks for no slot any more, and is to be forgotten.
    Withdrawn,
    /// It was asked to end, and has had its time.
    Kill,
    /// It has ended, and its pipes are read no longer.
    Abandon,
    /// The store does not answer, and the thread that looks into it has lost its claim.
    StoreIsSilent,
    /// What came of it is stored, or is not.
    Stored(Result<Option<Inputs>, Unkept>),
}

/// What comes of an event.
// It is handed from `step` to `happens` and never kept, so its size costs nothing.
#[allow(clippy::large_enum_variant)]
enum Next {
    Over,
    Stays(State),
    /// Something else has happened at once.
    Goes(State, Event),
}

impl Server {
    /// Moves a command on.
    pub(super) fn happens(&mut self, key: CommandKey, mut event: Event) {
        let Some(Command { mut order, mut state }) = self.commands.take(key) else {
            return self.come_too_late(event);
        };
        loop {
            match self.step(key, &mut order, state, event) {
                Next::Over => return,
                Next::Stays(state) => return self.commands.put(key, Command { order, state }),
                Next::Goes(after, then) => (state, event) = (after, then),
            }
        }
    }

    fn step(&mut self, key: CommandKey, order: &mut Arc<Order>, state: State, event: Event) -> Next {
        match (state, event) {
            (State::Asking(asking), Event::Answered(answer)) => self.answered(key, order, asking, answer),
            (State::Asking(asking), Event::End(_) | Event::Withdrawn) => {
                // What the cache still finds must not be put in its place.
                asking.wait.claim.give_up();
                self.withdrawn(order)
            }
            (State::Waiting(waiting), Event::Granted { is_alone }) => self.granted(key, order, waiting, is_alone),
            (State::Waiting(_), Event::End(_)) => {
                self.slots.retract(&order.session, &HashSet::from([key]));
                self.withdrawn(order)
            }
            (State::Waiting(_), Event::Withdrawn) => self.withdrawn(order),
            (State::Starting(starting), Event::Started(started)) => self.started(key, order, starting, started),
            (State::Starting(mut starting), Event::End(_)) => {
                starting.is_cancelled = true;
                Next::Stays(State::Starting(starting))
            }
            (State::Running(running), Event::Started(started)) => self.part_started(key, order, running, started),
            (State::Running(mut running), Event::Input) => {
                running.feed();
                Next::Stays(State::Running(running))
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
                let words = why.sentence().to_owned();
                let is_unknown = false;
                self.answered(
                    key,
                    order,
                    asking,
                    Answer::Uncached(Uncached {
                        why,
                        words,
                        is_unknown,
                        argv: None,
                    }),
                )
            }
            (State::Storing(storing), Event::StoreIsSilent) => {
                self.stored(key, order, *storing, Err(UnstoredReason::SilentStore.into()))
            }
            (State::Storing(storing), Event::Stored(kept)) => self.stored(key, order, *storing, kept),
            (state, event) => {
                self.come_too_late(event);
                Next::Stays(state)
            }
        }
    }

    /// An event of a state that is over. The answer that a command is to run is a promise to say how it went.
    fn come_too_late(&self, event: Event) {
        if let Event::Answered(Answer::Miss(ticket)) = event {
            drop(Case::new(ticket.told(), Some(*ticket), self.cache_threads.jobs()));
        }
    }

    /// A client asks for a command.
    pub(super) fn on_execute(&mut self, key: ConnectionKey, mut execute: Box<Execute>) -> Result<(), Broken> {
        let command = self.key();
        // What is cached by its facts depends on more than the umask of what its client has.
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
        let Some(client) = &connection.client else {
            return Err(wire::Malformed("a command over a connection without jobs").into());
        };
        let Some(env) = connection.environments.get(&execute.env) else {
            return Err(wire::Malformed("a command in an environment that was not defined").into());
        };
        if connection.live.contains_key(&execute.id) {
            return Err(wire::Malformed("two commands of one number").into());
        }
        let (context, adjustments, control_group) = match &client.inherited {
            Some(known) => (
                known.context.clone(),
                known.adjustments.clone(),
                known.control_group.clone(),
            ),
            // Enough to be looked up: it is examined if the command is to run.
            None => {
                let asked = || context::umask_of(client.pid).unwrap_or(self.own.umask);
                let umask = client.umask.unwrap_or_else(asked);
                (Arc::new(self.own.with_umask(umask)), Arc::default(), None)
            }
        };
        let is_equipped = client.inherited.is_some();
        let (adjustments, env) = self.neighbours.hand(&client.session, adjustments, env.clone());
        let size = execute.argv.size() + execute.input.len() + execute.cwd.len();
        let input = std::mem::take(&mut execute.input);
        let order = Arc::new(Order {
            connection: key,
            session: client.session,
            env,
            context,
            adjustments,
            control_group,
            is_equipped,
            pin: client.pin,
            terminal: client.wishes.terminal.filter(|_| execute.cached),
            arrived: Instant::now(),
            size,
            execute,
        });
        connection.backlog += size;
        connection.live.insert(order.execute.id, command);
        let supplies = Supplies { input, descriptors };
        let state = if order.execute.cached {
            let wait = self.ask_cache(command, &order, &supplies);
            State::Asking(Asking { supplies, wait })
        } else {
            self.submit(command, &order);
            let case = None;
            State::Waiting(Waiting { supplies, case })
        };
        self.commands.put(command, Command { order, state });
        Ok(())
    }

    /// A command asks for a slot. One whose client does not read asks when the client does.
    fn submit(&mut self, key: CommandKey, order: &Order) {
        let connection = self.connections.get(order.connection);
        if connection.is_some_and(|connection| !connection.holding) {
            self.slots.submit(order.session, key);
        }
    }

    /// From `Asking`: the command is known, or is to run.
    fn answered(&mut self, key: CommandKey, order: &mut Arc<Order>, asking: Asking, answer: Answer) -> Next {
        let jobs = self.cache_threads.jobs();
        let case = match answer {
            Answer::Hit(hit) => return self.serve(order, hit),
            Answer::Miss(ticket) => {
                let told = ticket.told();
                let is_as_asked = replace_argv(order, ticket.argv());
                Case::new(told, is_as_asked.then_some(*ticket), jobs)
            }
            Answer::Uncached(reason) if reason.is_unknown && self.wants_only_known(order) => {
                return self.hand_back(order);
            }
            Answer::Uncached(reason) => {
                replace_argv(order, reason.argv.as_ref());
                Case::new(reason.told(), None, jobs)
            }
        };
        if let Err((why, reason)) = self.equip(order) {
            // Its client turns out to live elsewhere: it runs the command itself.
            self.count_refusal(order.connection, why, &reason);
            return self.hand_back(order);
        }
        self.submit(key, order);
        Next::Stays(State::Waiting(Waiting {
            supplies: asking.supplies,
            case: Some(Box::new(case)),
        }))
    }

    /// The client wants only those commands run of which the cache can tell something.
    fn wants_only_known(&self, order: &Order) -> bool {
        let client = self.connections.client(order.connection);
        client.is_some_and(|client| client.only_known)
    }

    /// Gives a command what its client's commands are to be given, if its client was not examined yet.
    fn equip(&mut self, order: &mut Arc<Order>) -> Result<(), (Why, String)> {
        if order.is_equipped {
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
        order.is_equipped = true;
        Ok(())
    }

    /// The client runs the command itself.
    fn hand_back(&mut self, order: &Order) -> Next {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        self.tell(order, &order.not_started(NotStarted::engine(&error)));
        Next::Over
    }

    /// The command is over without having run.
    fn serve(&mut self, order: &mut Arc<Order>, mut hit: Hit) -> Next {
        if hit.due.is_some() && self.equip(order).is_err() {
            hit.due = None;
        }
        if let (Some(due), Some(cache)) = (hit.due, self.cache_threads.opened()) {
            let group = order.control_group.clone().map(Adjustment::ControlGroup);
            let (context, adjustments) = (order.context.clone(), order.adjustments.clone());
            let audit = Audit::new(cache, due, context, adjustments, group);
            self.auditor.push(audit);
        }
        self.connections.shrink_backlog(order.connection, order.size);
        for (stream, bytes) in [hit.stdout, hit.stderr].iter().enumerate() {
            self.connections
                .send_output(order.connection, order.execute.id, stream, bytes);
        }
        let outcome = Outcome {
            id: order.execute.id,
            verdict: Verdict::Ran,
            step: Step::None,
            code: hit.code,
            queued: order.arrived.elapsed().as_micros() as u64,
            ..Outcome::default()
        };
        let processor = hit.processor;
        self.say(order, Told::Hit { processor });
        self.sessions.count_hit(&order.session);
        self.tell_inputs(order, hit.inputs);
        self.tell(order, &outcome);
        Next::Over
    }

    /// From `Asking` or `Waiting`: the client does not want the command any more.
    fn withdrawn(&mut self, order: &Order) -> Next {
        self.connections.shrink_backlog(order.connection, order.size);
        self.tell(order, &order.retracted());
        Next::Over
    }

    /// Forgets those commands of a session that ask for a slot, all at once.
    pub(super) fn withdraw_waiting(&mut self, session: &SessionId, keys: &[CommandKey]) {
        let waiting = keys.iter().copied().filter(|key| self.commands.is_waiting(*key));
        let waiting: HashSet<_> = waiting.collect();
        self.slots.retract(session, &waiting);
        waiting.into_iter().for_each(|key| self.happens(key, Event::Withdrawn));
    }

    /// Gives slots to commands, for as long as there are both.
    pub(super) fn start_commands(&mut self) {
        loop {
            let granted: Vec<_> = std::iter::from_fn(|| self.grant()).collect();
            let is_alone = granted.len() == 1;
            for key in &granted {
                self.happens(*key, Event::Granted { is_alone });
            }
            // One that could not be started has left its slot to another.
            if granted.is_empty() {
                break;
            }
        }
        self.await_neighbours();
    }

    /// From `Waiting`: the command has a slot.
    fn granted(&mut self, key: CommandKey, order: &Arc<Order>, waiting: Waiting, is_alone: bool) -> Next {
        self.connections.shrink_backlog(order.connection, order.size);
        self.connections.touch(order.connection);
        let (stdio, mut starting) = match waiting.open(&order.execute, order.terminal) {
            Ok(opened) => opened,
            Err(error) => return self.not_started(key, order, &Holdings::default(), NotStarted::engine(&error)),
        };
        let roster_entry = self.roster.reserve();
        let processor = if order.pin {
            self.pins.take(order.context.processors())
        } else {
            None
        };
        starting.holdings = Holdings {
            processor,
            roster_entry: roster_entry.map(|(number, _)| number),
        };
        let case = starting.case.as_mut();
        let job = Job {
            key,
            order: order.clone(),
            what: What::Command,
            log: case.and_then(|case| observe(case, order, &self.parking)),
            stdio: Arc::new(stdio),
            processor,
            roster_entry,
            awaited: None,
        };
        self.hand_over(State::Starting(starting), job, is_alone)
    }

    /// Starts what is alone, or hands it to the starters.
    fn hand_over(&mut self, state: State, job: Job, is_alone: bool) -> Next {
        if !is_alone {
            self.starters.start(job);
        } else if let Some(started) = self.starters.start_here(job) {
            return Next::Goes(state, Event::Started(started));
        }
        Next::Stays(state)
    }

    /// Hears from the starters.
    pub(super) fn on_started(&mut self) {
        for started in self.starters.hear() {
            self.happens(started.key, Event::Started(started));
        }
    }

    /// From `Starting`: the command runs.
    fn started(&mut self, key: CommandKey, order: &Order, mut starting: Starting, mut started: Started) -> Next {
        let child = match started.child {
            Ok(child) => child,
            Err(why) => return self.not_started(key, order, &starting.holdings, why),
        };
        if let Some(case) = &mut starting.case {
            let next_parts = started.next_parts.as_mut();
            case.driver = next_parts.and_then(|next_parts| next_parts.driver.take());
            case.expect_part();
        }
        let is_cancelled = starting.is_cancelled;
        let mut running = Box::new(starting.run(child, started.at, started.is_parked, started.next_parts));
        if order.execute.timeout > 0 {
            let timeout = Duration::from_micros(order.execute.timeout);
            // A time beyond what the clock can tell never comes.
            if let Some(at) = started.at.checked_add(timeout) {
                self.timers.set(at, Alarm::TimeUp(key));
            }
        }
        match self.watch(key, &mut running) {
            Err(error) => self.not_seen(key, order, &running, &error),
            Ok(()) if is_cancelled => Next::Goes(State::Running(running), Event::End(Verdict::Cancelled)),
            Ok(()) => Next::Stays(State::Running(running)),
        }
    }

    /// Has epoll tell of all that a command does which has just been started.
    fn watch(&self, key: CommandKey, running: &mut Running) -> io::Result<()> {
        let input = epoll::EventFlags::IN;
        epoll::add(&self.epoll, &running.pidfd, Source::End(key).data(), input)?;
        running.watch(&self.epoll, key, true)?;
        running.feed();
        if let Some(feed) = &running.feed {
            epoll::add(&self.epoll, &feed.fd, Source::Feed(key).data(), epoll::EventFlags::OUT)?;
        }
        Ok(())
    }

    /// A command could not be started: its slot is free again, and its client is told why.
    fn not_started(&mut self, key: CommandKey, order: &Order, holdings: &Holdings, why: NotStarted) -> Next {
        debug!("command {key} not started: {why:?}");
        self.release(holdings);
        self.conclude(key, order, &order.not_started(why))
    }

    /// A command runs, but we would not see it end: so it must not run.
    fn not_seen(&mut self, key: CommandKey, order: &Order, running: &Running, error: &io::Error) -> Next {
        warn!("watch a command: {error}");
        running.signal(Signal::KILL);
        spawn::reap(running.pid);
        self.not_started(key, order, &running.holdings, NotStarted::engine(error))
    }

    /// The next part of a command runs that is started part by part.
    fn part_started(&mut self, key: CommandKey, order: &Order, mut running: Box<Running>, started: Started) -> Next {
        match started.child {
            Ok(child) => {
                running.go_on(child);
                let data = Source::End(key).data();
                match epoll::add(&self.epoll, &running.pidfd, data, epoll::EventFlags::IN) {
                    Ok(()) => Next::Stays(State::Running(running)),
                    Err(error) => self.not_seen(key, order, &running, &error.into()),
                }
            }
            // Its driver cannot be asked to conclude it: it ends as drivers do when a part fails.
            Err(_) if running.next_parts.is_none() => {
                running.end_badly();
                self.done_if_over(key, order, running)
            }
            Err(why) => self.not_started(key, order, &running.holdings, why),
        }
    }

    fn has_output(&mut self, key: CommandKey, order: &Order, mut running: Box<Running>, stream: usize) -> Next {
        if !running.read(stream, &mut self.scratch) {
            return self.done_if_over(key, order, running);
        }
        let held = running.take_output(stream);
        self.connections
            .send_output(order.connection, order.execute.id, stream, &held);
        self.pause_if_clogged(order.connection, key, &running);
        Next::Stays(State::Running(running))
    }

    /// The output of a command is not read while its client does not read.
    fn pause_if_clogged(&mut self, connection: ConnectionKey, key: CommandKey, running: &Running) {
        self.connections.touch(connection);
        let Some(connection) = self.connections.get_mut(connection) else {
            return;
        };
        if !connection.is_clogged() || connection.flush().is_err() || !connection.is_clogged() {
            return;
        }
        connection.paused.push(key);
        self.watch_output(key, running, false);
    }

    /// Goes on reading the output of a command whose client reads again, or is gone.
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

    /// A process of the command has ended: its next part is started, if there is one.
    fn ended(&mut self, key: CommandKey, order: &Arc<Order>, mut running: Box<Running>) -> Next {
        let _ = epoll::delete(&self.epoll, &running.pidfd);
        if !spawn::can_be_collected(&running.pidfd) {
            self.timers.set(Instant::now() + TRACER_TIME, Alarm::End(key));
            return Next::Stays(State::Running(running));
        }
        let streams = running.next_parts.as_ref().map(|next_parts| next_parts.streams.clone());
        let entry = running.holdings.roster_entry;
        let roster_entry = entry.map(|entry| self.roster.place(entry));
        let next = running.next_part(|| {
            let entries = roster_entry.iter();
            entries.for_each(|(_, process)| process.store(0, Ordering::Release));
        });
        let streams = match (next, streams) {
            (Some(what), Some(stdio)) => {
                let case = running.case.as_mut();
                let job = Job {
                    key,
                    order: order.clone(),
                    log: case.and_then(|case| observe_next(case, order, &what, &self.parking)),
                    what,
                    stdio,
                    processor: running.holdings.processor,
                    roster_entry,
                    awaited: None,
                };
                return self.hand_over(State::Running(running), job, self.round.is_calm);
            }
            (_, streams) => streams,
        };
        running.ended = Some(Instant::now());
        running.feed = None;
        // We alone held the other ends of its pipes still: what is in them is all.
        if streams.is_some() {
            drop(streams);
            running.drain(&mut self.scratch);
        }
        self.done_if_over(key, order, running)
    }

    /// Ends a command before its time.
    fn end(&mut self, key: CommandKey, order: &Order, mut running: Box<Running>, verdict: Verdict) -> Next {
        if running.verdict != Verdict::Ran {
            return Next::Stays(State::Running(running));
        }
        running.verdict = verdict;
        let deadline = Instant::now() + GRACE;
        if verdict == Verdict::TimedOut {
            running.signal(Signal::KILL);
            self.timers.set(deadline, Alarm::Abandon(key));
            return Next::Stays(State::Running(running));
        }
        running.signal(Signal::TERM);
        running.signal(Signal::CONT);
        running.feed = None;
        self.timers.set(deadline, Alarm::Kill(key));
        // Its pipes are still read, or what it says while it cleans up would be its end.
        self.done_if_over(key, order, running)
    }

    /// Somebody may still hold the pipes of a command that was killed: they are read no longer.
    fn abandoned(&mut self, key: CommandKey, order: &Order, mut running: Box<Running>) -> Next {
        running.close(0);
        running.close(1);
        self.done_if_over(key, order, running)
    }

    /// From `Running`, if the process has ended and all of its output is read.
    fn done_if_over(&mut self, key: CommandKey, order: &Order, mut running: Box<Running>) -> Next {
        if !running.is_done() {
            return Next::Stays(State::Running(running));
        }
        // The alarm that kills the group concludes then.
        if running.is_dying()
            && self
                .round
                .followed
                .get_or_insert_with(spawn::followed_groups)
                .contains(&running.pid)
        {
            return Next::Stays(State::Running(running));
        }
        for stream in 0..2 {
            let rest = running.take_output(stream);
            self.connections
                .send_output(order.connection, order.execute.id, stream, &rest);
        }
        self.release(&running.holdings);
        match (running.outcome(order, &self.ledger), running.case.take()) {
            (Some(outcome), Some(case)) => self.close_case(key, order, case, outcome),
            (Some(outcome), None) => self.conclude(key, order, &outcome),
            (None, _) => {
                error!("command {key} has ended, and nobody knows how");
                self.free_slot(&order.session);
                self.drop_connection(order.connection, "lost a command");
                Next::Over
            }
        }
    }

    /// A command of which the cache was asked has ended: what came of it is stored.
    fn close_case(&mut self, key: CommandKey, order: &Order, mut case: Box<Case>, outcome: Outcome) -> Next {
        match outcome.verdict {
            Verdict::Ran => {}
            Verdict::TimedOut => case.give_up(UnstoredReason::TookTooLong),
            _ => case.give_up(UnstoredReason::Interrupted),
        }
        let told = case.told.clone();
        let (Some(ticket), Some(trace_region)) = (case.ticket.take(), case.trace_region.take()) else {
            self.say(order, told);
            return self.conclude(key, order, &outcome);
        };
        let [stdout, stderr] = std::mem::take(&mut case.prints);
        self.free_slot(&order.session);
        let wait = self.await_store();
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
                started: case.started,
                accesses: Vec::new(),
                driver: case.driver.take(),
                observer: library.map(|path| path.to_bytes().to_vec()).unwrap_or_default(),
            }),
            trace_region,
            claim: wait.claim.clone(),
        });
        Next::Stays(State::Storing(Box::new(Storing { outcome, told, wait })))
    }

    /// From `Storing`: the client is told.
    fn stored(
        &mut self,
        key: CommandKey,
        order: &Order,
        storing: Storing,
        kept: Result<Option<Inputs>, Unkept>,
    ) -> Next {
        let mut told = storing.told;
        let inputs = kept.unwrap_or_else(|unkept| {
            told.leave_unstored(unkept);
            None
        });
        debug!("command {key}: {}", told.show());
        self.say(order, told);
        self.tell_inputs(order, inputs);
        self.tell(order, &storing.outcome);
        Next::Over
    }

    fn release(&mut self, holdings: &Holdings) {
        if let Some(processor) = holdings.processor {
            self.pins.give_back(processor);
        }
        if let Some(roster_entry) = holdings.roster_entry {
            self.roster.strike(roster_entry);
        }
    }

    /// The command is over: its slot is free and its client is told.
    fn conclude(&mut self, key: CommandKey, order: &Order, outcome: &Outcome) -> Next {
        debug!("command {key}: {outcome:?}");
        self.free_slot(&order.session);
        self.tell(order, outcome);
        Next::Over
    }

    fn tell(&mut self, order: &Order, outcome: &Outcome) {
        self.totals.count(outcome);
        self.sessions.count(&order.session, outcome);
        if let Some(connection) = self.connections.get_mut(order.connection) {
            connection.live.remove(&order.execute.id);
            connection.reply(&Reply::Outcome(*outcome));
            self.connections.touch(order.connection);
        }
        self.rest();
    }

    /// What the cache knows of a command.
    fn say(&mut self, order: &Order, told: Told) {
        let id = order.execute.id;
        let reply = Reply::Told { id, told };
        self.connections.reply(order.connection, &reply);
    }

    /// What a command depended on, if its client wants to know and it can be told.
    fn tell_inputs(&mut self, order: &Order, inputs: Option<Inputs>) {
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
