//! All commands that have not ended.

use std::collections::HashMap;

use super::command::{Command, Order, Running, State};
use super::connection::Connection;
use super::slots::CommandKey;
use super::store_watch::StoreWait;

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
            _ => None,
        })
    }
}
