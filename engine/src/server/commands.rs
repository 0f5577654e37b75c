//! All commands that have not ended.

use std::collections::HashMap;
use std::sync::Arc;

use super::away::Trip;
use super::command::{Command, Order, Recording, Running, State};
use super::connection::Connection;
use super::slots::{CommandKey, SessionId};
use super::store_watch::StoreWait;
use crate::cache::remote::Errand;

/// While `command_flow` moves a command to its next state, the command is taken out of this map.
#[derive(Default)]
pub struct Commands(HashMap<CommandKey, Command>);

impl Commands {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn put(&mut self, key: CommandKey, command: Command) {
        self.0.insert(key, command);
    }

    pub fn take(&mut self, key: CommandKey) -> Option<Command> {
        self.0.remove(&key)
    }

    /// The command waits for a slot, or will when its client reads again.
    pub fn is_waiting(&self, key: CommandKey) -> bool {
        self.0
            .get(&key)
            .is_some_and(|command| matches!(command.state, State::Waiting(_)))
    }

    pub fn waiting_of<'a>(&'a self, connection: &'a Connection) -> impl Iterator<Item = CommandKey> + 'a {
        let keys = connection.commands.values().copied();
        keys.filter(|key| self.is_waiting(*key))
    }

    pub fn running(&self) -> impl Iterator<Item = (CommandKey, &Order, &Running)> {
        self.0.iter().filter_map(|(key, command)| match &command.state {
            State::Running(running) => Some((*key, &*command.order, &**running)),
            _ => None,
        })
    }

    /// Commands for which a cache thread uses the store, or will.
    pub fn waiting_for_store(&self) -> impl Iterator<Item = (CommandKey, &StoreWait)> {
        self.0.iter().filter_map(|(key, command)| match &command.state {
            State::Asking(asking) => Some((*key, &asking.wait)),
            State::Storing(storing) => Some((*key, &storing.wait)),
            State::Fetching(fetching) => Some((*key, &fetching.wait)),
            _ => None,
        })
    }

    // ---- commands on a cluster

    /// A compile of which the result would be stored, and that may go to a cluster.
    pub fn is_waiting_compile(&self, key: CommandKey) -> bool {
        let recording = self.waiting_recording(key).map(|(_, recording)| recording);
        recording.is_some_and(|recording| recording.is_of_compile() && recording.executor().is_some())
    }

    /// A waiting command, if it was looked up.
    pub fn waiting_recording(&self, key: CommandKey) -> Option<(&Order, &Recording)> {
        let command = self.0.get(&key)?;
        match &command.state {
            State::Waiting(waiting) => Some((&command.order, waiting.recording.as_deref()?)),
            _ => None,
        }
    }

    pub fn waiting_recording_mut(&mut self, key: CommandKey) -> Option<&mut Recording> {
        match &mut self.0.get_mut(&key)?.state {
            State::Waiting(waiting) => waiting.recording.as_deref_mut(),
            _ => None,
        }
    }

    /// A waiting command is sent.
    pub fn send_away(&mut self, key: CommandKey, errand: Arc<Errand>) {
        let Some(Command { order, state }) = self.0.remove(&key) else {
            return;
        };
        let state = match state {
            State::Waiting(mut waiting) => {
                if let Some(recording) = &mut waiting.recording {
                    recording.trip = Some(Trip::begin(errand.executor.name()));
                    recording.errand = Some(errand);
                    recording.was_away = true;
                }
                State::Away(waiting)
            }
            state => state,
        };
        self.0.insert(key, Command { order, state });
    }

    /// Whether a result of the cluster is awaited, here or there.
    pub fn is_away(&self, key: CommandKey) -> bool {
        self.trip(key).is_some()
    }

    /// A command whose result of the cluster is awaited, its time there, and whether it is not here, too.
    pub fn trip(&self, key: CommandKey) -> Option<(&Order, &Trip, bool)> {
        let command = self.0.get(&key)?;
        let recording = match &command.state {
            State::Waiting(waiting) | State::Away(waiting) => waiting.recording.as_ref(),
            State::Starting(starting) => starting.recording.as_ref(),
            State::Running(running) => running.recording.as_ref(),
            State::Asking(_) | State::Fetching(_) | State::Storing(_) => None,
        }?;
        let trip = recording.trip.as_ref().filter(|_| recording.errand.is_some())?;
        Some((&command.order, trip, matches!(command.state, State::Away(_))))
    }

    /// The session of a command that is on the cluster and not here, too.
    pub fn session_away(&self, key: CommandKey) -> Option<SessionId> {
        let (order, _, is_only_there) = self.trip(key)?;
        is_only_there.then_some(order.session)
    }

    /// A command of the cluster waits for a slot here, too. `None` if that cannot be.
    pub fn race(&mut self, key: CommandKey) -> Option<Arc<Order>> {
        let command = self.0.get_mut(&key)?;
        if let State::Away(waiting) = &mut command.state {
            let spare = waiting.supplies.try_clone().ok()?;
            waiting.recording.as_mut()?.spare = Some(spare);
        }
        let Command { order, state } = self.0.remove(&key)?;
        let (State::Away(waiting) | State::Waiting(waiting)) = state else {
            self.0.insert(key, Command { order, state });
            return None;
        };
        let state = State::Waiting(waiting);
        self.0.insert(
            key,
            Command {
                order: order.clone(),
                state,
            },
        );
        Some(order)
    }
}
