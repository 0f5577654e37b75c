//! The way of a command: ordered, started, watched, ended, told.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, error, warn};
use rustix::event::epoll;
use rustix::process::Signal;

use super::cached::{observe, observe_next};
use super::command::{Command, Holdings, Order, Running, State, Supplies};
use super::connection::ConnectionKey;
use super::requests::Broken;
use super::slots::{CommandKey, SessionId};
use super::source::Source;
use super::starters::{Job, Started, What};
use super::timers::Alarm;
use super::Server;
use crate::park::NextParts;
use crate::process::context;
use crate::process::spawn::{self, Child, NotStarted};
use crate::wire::{self, Execute, Outcome, Reply, Stdio, Verdict};

/// From SIGTERM to SIGKILL for a command whose client is gone; also how long pipes of killed commands are read.
const GRACE: Duration = Duration::from_secs(1);
/// A tracer is told of a process's end before we are: we ask again after this time.
const TRACER_TIME: Duration = Duration::from_millis(1);

impl Server {
    pub(super) fn on_execute(&mut self, key: ConnectionKey, mut execute: Box<Execute>) -> Result<(), Broken> {
        let command = self.key();
        // What is cached by its facts depends on more than the umask of what its client has.
        if !execute.cached || execute.by_facts {
            self.examine_client(key)
                .map_err(|(why, reason)| self.refuse(key, why, &reason))?;
        }
        let Some(connection) = self.connections.get_mut(&key) else {
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
        let order = Order {
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
        };
        connection.backlog += size;
        connection.live.insert(order.execute.id, command);
        let order = Arc::new(order);
        let supplies = Supplies { input, descriptors };
        let case = None;
        let state = if order.execute.cached {
            self.ask_cache(command, &order, &supplies);
            State::Asking(supplies)
        } else {
            // What a peer that does not read has asked for is submitted when it does, and only then.
            if !connection.holding {
                self.slots.submit(order.session, command);
            }
            State::Waiting(supplies)
        };
        self.commands.insert(command, Command { order, state, case });
        Ok(())
    }

    pub(super) fn start_commands(&mut self) {
        loop {
            let granted: Vec<_> = std::iter::from_fn(|| self.grant()).collect();
            let is_alone = granted.len() == 1;
            for key in &granted {
                if let Err(error) = self.start(*key, is_alone) {
                    self.fail(*key, NotStarted::engine(&error));
                }
            }
            // One that could not be started has left its slot to another.
            if granted.is_empty() {
                break;
            }
        }
        self.await_neighbours();
    }

    /// Starts a command that is alone, or hands it to the starters.
    fn start(&mut self, key: CommandKey, is_alone: bool) -> io::Result<()> {
        let Some(command) = self.commands.get_mut(&key) else {
            return Ok(());
        };
        let State::Waiting(supplies) = &mut command.state else {
            return Ok(());
        };
        let order = command.order.clone();
        if let Some(connection) = self.connections.get_mut(&order.connection) {
            connection.backlog = connection.backlog.saturating_sub(order.size);
            self.touched.push(order.connection);
        }
        let (stdio, mut starting) = supplies.open(&order.execute, order.terminal)?;
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
        command.state = State::Starting(starting);
        let log = command
            .case
            .as_mut()
            .and_then(|case| observe(case, &order, &self.parking));
        let job = Job {
            key,
            order,
            what: What::Command,
            log,
            stdio: Arc::new(stdio),
            processor,
            roster_entry,
            awaited: None,
        };
        self.hand_over(job, is_alone);
        Ok(())
    }

    fn hand_over(&mut self, job: Job, is_alone: bool) {
        if !is_alone {
            self.starters.start(job);
        } else if let Some(started) = self.starters.start_here(job) {
            self.on_start(started);
        }
    }

    /// Hears from the starters.
    pub(super) fn on_started(&mut self) {
        for started in self.starters.hear() {
            self.on_start(started);
        }
    }

    fn on_start(&mut self, started: Started) {
        let key = started.key;
        match (started.child, self.running(key)) {
            (Ok(child), None) => self.welcome(key, child, started.at, started.is_parked, started.next_parts),
            (Ok(child), Some(running)) => {
                running.go_on(child);
                self.watch_end(key);
            }
            // Its driver cannot be asked to conclude it: it ends as drivers do when a part fails.
            (Err(_), Some(running)) if running.next_parts.is_none() => {
                running.end_badly();
                self.conclude_if_done(key);
            }
            (Err(why), _) => self.fail(key, why),
        }
    }

    /// A command could not be started: its slot is free again, and its client is told why.
    fn fail(&mut self, key: CommandKey, why: NotStarted) {
        let Some(command) = self.commands.remove(&key) else {
            return;
        };
        debug!("command {key} not started: {why:?}");
        match &command.state {
            State::Asking(_) | State::Waiting(_) | State::Keeping(_) => {}
            State::Starting(starting) => self.release(&starting.holdings),
            State::Running(running) => self.release(&running.holdings),
        }
        let outcome = command.order.not_started(why);
        self.conclude(key, &command.order, &outcome);
    }

    /// A command runs now.
    fn welcome(
        &mut self,
        key: CommandKey,
        child: Child,
        at: Instant,
        is_parked: bool,
        mut next_parts: Option<NextParts>,
    ) {
        let Some(command) = self.commands.remove(&key) else {
            return;
        };
        let State::Starting(starting) = command.state else {
            return;
        };
        let (order, mut case) = (command.order, command.case);
        if let Some(case) = &mut case {
            case.driver = next_parts.as_mut().and_then(|next_parts| next_parts.driver.take());
            case.expect_part();
        }
        let cancelled = starting.cancelled;
        let state = State::Running(Box::new(starting.started(child, at, is_parked, next_parts)));
        if order.execute.timeout > 0 {
            let timeout = Duration::from_micros(order.execute.timeout);
            // A time beyond what the clock can tell never comes.
            if let Some(at) = at.checked_add(timeout) {
                self.timers.set(at, Alarm::TimeUp(key));
            }
        }
        self.commands.insert(key, Command { order, state, case });
        if let Err(error) = self.watch(key) {
            self.fail_unseen(key, &error);
        } else if cancelled {
            self.end_command(key, Verdict::Cancelled);
        }
    }

    /// A command runs, but we would not see it end: so it must not.
    fn fail_unseen(&mut self, key: CommandKey, error: &io::Error) {
        warn!("watch a command: {error}");
        if let Some(running) = self.running(key) {
            running.signal(Signal::KILL);
            spawn::reap(running.pid);
        }
        self.fail(key, NotStarted::engine(error));
    }

    /// Has epoll tell of the end of a command's next part.
    fn watch_end(&mut self, key: CommandKey) {
        let Some(running) = self.commands.get(&key).and_then(Command::running) else {
            return;
        };
        let added = epoll::add(
            &self.epoll,
            &running.pidfd,
            Source::End(key).data(),
            epoll::EventFlags::IN,
        );
        if let Err(error) = added {
            self.fail_unseen(key, &error.into());
        }
    }

    /// Has epoll tell of all that a fresh command does.
    fn watch(&mut self, key: CommandKey) -> io::Result<()> {
        let Some(running) = self.commands.get_mut(&key).and_then(Command::running_mut) else {
            return Ok(());
        };
        let input = epoll::EventFlags::IN;
        epoll::add(&self.epoll, &running.pidfd, Source::End(key).data(), input)?;
        for (stream, capture) in running.captures.iter().enumerate() {
            if let Some(capture) = capture {
                epoll::add(&self.epoll, &capture.fd, Source::Capture(key, stream).data(), input)?;
            }
        }
        running.feed();
        if let Some(feed) = &running.feed {
            epoll::add(&self.epoll, &feed.fd, Source::Feed(key).data(), epoll::EventFlags::OUT)?;
        }
        Ok(())
    }

    pub(super) fn running(&mut self, key: CommandKey) -> Option<&mut Running> {
        self.commands.get_mut(&key)?.running_mut()
    }

    pub(super) fn on_capture(&mut self, key: CommandKey, stream: usize) {
        let Some(command) = self.commands.get_mut(&key) else {
            return;
        };
        let connection = command.order.connection;
        let id = command.order.execute.id;
        let Some(running) = command.running_mut() else {
            return;
        };
        if running.read(stream, &mut self.scratch) {
            let held = running.take(stream);
            if let Some(case) = &mut command.case {
                case.note_output(stream, &held);
            }
            self.send_output(connection, id, stream, &held);
            self.pause_if_clogged(connection, key);
        } else {
            self.conclude_if_done(key);
        }
    }

    pub(super) fn send_output(&mut self, connection: ConnectionKey, id: u32, stream: usize, data: &[u8]) {
        let Some(connection) = self.connections.get_mut(&connection) else {
            return;
        };
        for part in data.chunks(wire::OUTPUT_CAP) {
            wire::put_output(connection.outbox(), id, stream as u8 + 1, part);
        }
    }

    fn pause_if_clogged(&mut self, connection: ConnectionKey, key: CommandKey) {
        self.touched.push(connection);
        let Some(connection) = self.connections.get_mut(&connection) else {
            return;
        };
        if !connection.is_clogged() || connection.flush().is_err() || !connection.is_clogged() {
            return;
        }
        connection.paused.push(key);
        self.watch_output(key, false);
    }

    pub(super) fn watch_output(&self, key: CommandKey, on: bool) {
        if let Some(running) = self.commands.get(&key).and_then(Command::running) {
            if let Err(error) = running.watch(&self.epoll, key, on) {
                warn!("watch the output of a command: {error}");
            }
        }
    }

    pub(super) fn on_end(&mut self, key: CommandKey) {
        let Some(command) = self.commands.get_mut(&key) else {
            return;
        };
        let order = command.order.clone();
        let Some(running) = command.running_mut() else { return };
        let _ = epoll::delete(&self.epoll, &running.pidfd);
        if !spawn::can_be_collected(&running.pidfd) {
            self.timers.set(Instant::now() + TRACER_TIME, Alarm::End(key));
            return;
        }
        let streams = running.next_parts.as_ref().map(|next_parts| next_parts.streams.clone());
        let roster_entry = running
            .holdings
            .roster_entry
            .map(|roster_entry| self.roster.place(roster_entry));
        let next = running.next_leg(|| {
            roster_entry
                .iter()
                .for_each(|(_, place)| place.store(0, Ordering::Release))
        });
        let processor = running.holdings.processor;
        match (next, streams) {
            (Some(what), Some(stdio)) => {
                let case = command.case.as_mut();
                let log = case.and_then(|case| observe_next(case, &order, &what, &self.parking));
                let job = Job {
                    key,
                    order,
                    what,
                    log,
                    stdio,
                    processor,
                    roster_entry,
                    awaited: None,
                };
                self.hand_over(job, self.is_calm);
            }
            (_, streams) => {
                running.ended = Some(Instant::now());
                running.feed = None;
                // We alone held the other ends of its pipes still: what is in them is all.
                if streams.is_some() {
                    drop(streams);
                    running.drain(&mut self.scratch);
                }
                self.conclude_if_done(key);
            }
        }
    }

    /// A cancelled command, or what is left of its group, has had its time.
    pub(super) fn kill(&mut self, key: CommandKey) {
        if let Some(running) = self.running(key) {
            running.signal(Signal::KILL);
            running.killed = true;
        }
        self.abandon(key);
    }

    /// The pipes of a killed command that somebody else still holds.
    pub(super) fn abandon(&mut self, key: CommandKey) {
        if let Some(running) = self.running(key) {
            running.close(0);
            running.close(1);
        }
        self.conclude_if_done(key);
    }

    /// Ends a command before its time, for the reason that its outcome will tell.
    pub(super) fn end_command(&mut self, key: CommandKey, verdict: Verdict) {
        let Some(command) = self.commands.get_mut(&key) else {
            return;
        };
        let running = match &mut command.state {
            State::Running(running) => running,
            State::Starting(starting) => {
                starting.cancelled = true;
                return;
            }
            State::Asking(_) => return self.retract(key),
            State::Waiting(_) => {
                let session = command.order.session;
                return self.retract_all(&session, &[key]);
            }
            // It has ended by itself.
            State::Keeping(_) => return,
        };
        if running.verdict != Verdict::Ran {
            return;
        }
        running.verdict = verdict;
        let deadline = Instant::now() + GRACE;
        if verdict == Verdict::TimedOut {
            running.signal(Signal::KILL);
            self.timers.set(deadline, Alarm::Abandon(key));
        } else {
            running.signal(Signal::TERM);
            running.signal(Signal::CONT);
            running.feed = None;
            self.timers.set(deadline, Alarm::Kill(key));
            // Its pipes are still read, or what it says while it cleans up would be its end.
            self.conclude_if_done(key);
        }
    }

    /// Forgets commands of one session that had not started.
    pub(super) fn retract_all(&mut self, session: &SessionId, keys: &[CommandKey]) {
        let waiting = keys
            .iter()
            .copied()
            .filter(|key| self.commands.get(key).is_some_and(Command::is_waiting));
        let waiting: HashSet<_> = waiting.collect();
        self.slots.retract(session, &waiting);
        waiting.into_iter().for_each(|key| self.retract(key));
    }

    fn retract(&mut self, key: CommandKey) {
        self.leave_store(key);
        if let Some(command) = self.commands.remove(&key) {
            if let Some(connection) = self.connections.get_mut(&command.order.connection) {
                connection.backlog = connection.backlog.saturating_sub(command.order.size);
            }
            let outcome = command.order.retracted();
            self.tell(&command.order, &outcome);
        }
    }

    fn conclude_if_done(&mut self, key: CommandKey) {
        let Some(running) = self.running(key).filter(|running| running.is_done()) else {
            return;
        };
        let pid = running.pid;
        // The alarm that kills the group concludes then.
        if running.is_dying() && self.followed.get_or_insert_with(spawn::followed_groups).contains(&pid) {
            return;
        }
        let Some(Command { order, state, mut case }) = self.commands.remove(&key) else {
            return;
        };
        let State::Running(mut running) = state else { return };
        for stream in 0..2 {
            let rest = running.take(stream);
            if let Some(case) = &mut case {
                case.note_output(stream, &rest);
            }
            self.send_output(order.connection, order.execute.id, stream, &rest);
        }
        self.release(&running.holdings);
        match running.outcome(&order, &self.ledger) {
            Some(outcome) => match case {
                Some(case) => self.close_case(key, order, case, outcome),
                None => self.conclude(key, &order, &outcome),
            },
            None => {
                error!("command {key} has ended, and nobody knows how");
                self.free_slot(&order.session);
                self.drop_connection(order.connection, "lost a command");
            }
        }
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
    pub(super) fn conclude(&mut self, key: CommandKey, order: &Order, outcome: &Outcome) {
        debug!("command {key}: {outcome:?}");
        self.free_slot(&order.session);
        self.tell(order, outcome);
    }

    pub(super) fn tell(&mut self, order: &Order, outcome: &Outcome) {
        self.totals.count(outcome);
        if let Some(session) = self.sessions.get_mut(&order.session) {
            session.counts.count(outcome);
        }
        if let Some(connection) = self.connections.get_mut(&order.connection) {
            connection.live.remove(&order.execute.id);
            connection.reply(&Reply::Outcome(*outcome));
            self.touched.push(order.connection);
        }
        self.rest();
    }
}
