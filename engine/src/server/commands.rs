//! All commands that are not over.

use std::collections::HashMap;

use super::command::{Command, Order, Running, State};
use super::silence::StoreWait;
use super::slots::CommandKey;

/// A command is here, or in the hands of the one function that moves it to its next state (`command_flow`), never both.
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

    /// It has asked for a slot, or will when its client reads again.
    pub fn is_waiting(&self, key: CommandKey) -> bool {
        self.0
            .get(&key)
            .is_some_and(|command| matches!(command.state, State::Waiting(_)))
    }

    pub fn running(&self) -> impl Iterator<Item = (CommandKey, &Order, &Running)> {
        self.0.iter().filter_map(|(key, command)| match &command.state {
            State::Running(running) => Some((*key, &*command.order, &**running)),
            _ => None,
        })
    }

    /// Those for which a thread looks into the store, or is to.
    pub fn waiting_for_store(&self) -> impl Iterator<Item = (CommandKey, &StoreWait)> {
        self.0.iter().filter_map(|(key, command)| match &command.state {
            State::Asking(asking) => Some((*key, &asking.wait)),
            State::Storing(storing) => Some((*key, &storing.wait)),
            _ => None,
        })
    }
}
