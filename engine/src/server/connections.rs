//! All connections, and those that have to be looked at when the round ends.

use std::collections::HashMap;
use std::time::Instant;

use super::connection::{Client, Connection, ConnectionKey};
use crate::wire::{self, Reply};

#[derive(Default)]
pub struct Connections {
    map: HashMap<ConnectionKey, Connection>,
    touched: Vec<ConnectionKey>,
    pub is_greeting_alarm_set: bool,
}

impl Connections {
    pub fn add(&mut self, key: ConnectionKey, connection: Connection) {
        self.map.insert(key, connection);
    }

    pub fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        self.map.get(&key)
    }

    pub fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.map.get_mut(&key)
    }

    pub fn remove(&mut self, key: ConnectionKey) -> Option<Connection> {
        self.map.remove(&key)
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConnectionKey, &Connection)> {
        self.map.iter().map(|(key, connection)| (*key, connection))
    }

    /// Connections that have not greeted yet, and when they arrived.
    pub fn ungreeted(&self) -> impl Iterator<Item = (ConnectionKey, Instant)> + '_ {
        let ungreeted = self.iter().filter(|(_, connection)| !connection.greeted);
        ungreeted.map(|(key, connection)| (key, connection.arrived))
    }

    /// What a client has said of itself, if it may send commands.
    pub fn client(&self, key: ConnectionKey) -> Option<&Client> {
        self.get(key)?.client.as_ref()
    }

    pub fn client_mut(&mut self, key: ConnectionKey) -> Option<&mut Client> {
        self.get_mut(key)?.client.as_mut()
    }

    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.map.values().filter_map(|connection| connection.client.as_ref())
    }

    /// The connection is looked at when the round ends. It may be gone by then.
    pub fn touch(&mut self, key: ConnectionKey) {
        self.touched.push(key);
    }

    pub fn touch_all(&mut self) {
        self.touched.extend(self.map.keys());
    }

    pub fn is_any_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The touched connections, each once, in a fixed order.
    pub fn take_touched(&mut self) -> Vec<ConnectionKey> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    pub fn reply(&mut self, key: ConnectionKey, reply: &Reply) {
        if let Some(connection) = self.get_mut(key) {
            connection.reply(reply);
        }
    }

    pub fn send_output(&mut self, key: ConnectionKey, id: u32, stream: usize, data: &[u8]) {
        let Some(connection) = self.get_mut(key) else { return };
        for part in data.chunks(wire::OUTPUT_CAP) {
            wire::put_output(connection.outbox(), id, stream as u8 + 1, part);
        }
    }

    /// A request of this size no longer waits for a slot.
    pub fn shrink_backlog(&mut self, key: ConnectionKey, size: usize) {
        if let Some(connection) = self.get_mut(key) {
            connection.backlog = connection.backlog.saturating_sub(size);
        }
    }
}
