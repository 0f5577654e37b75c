//! Where an event comes from, encoded as the number that epoll keeps for us.
//!
//! Pure. Keys are never reused, so an event for something that is gone finds nothing.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData};

use super::connection::ConnectionKey;
use super::slots::CommandKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Signals,
    Unix,
    Tcp,
    /// The starters have started commands.
    Starters,
    /// The cache threads have finished work.
    Cache,
    /// The guardian has ended.
    Guardian,
    Connection(ConnectionKey),
    /// The command's process has ended.
    End(CommandKey),
    /// The command takes input.
    Feed(CommandKey),
    /// There may be a token for a session.
    Tokens(u64),
    /// A captured stream of the command: 0 is standard output, 1 standard error.
    Capture(CommandKey, usize),
}

const KEY: u64 = (1 << 56) - 1;

impl Source {
    pub fn data(self) -> EventData {
        let (kind, key) = match self {
            Source::Signals => (0, 0),
            Source::Unix => (1, 0),
            Source::Tcp => (2, 0),
            Source::Starters => (3, 0),
            Source::Connection(key) => (4, key),
            Source::End(key) => (5, key),
            Source::Feed(key) => (6, key),
            Source::Tokens(key) => (7, key),
            Source::Capture(key, stream) => (8 + stream as u64, key),
            Source::Cache => (10, 0),
            Source::Guardian => (11, 0),
        };
        EventData::new_u64(kind << 56 | key & KEY)
    }

    /// Watches a descriptor for input.
    pub fn watch(self, epoll: &OwnedFd, fd: impl AsFd) -> rustix::io::Result<()> {
        epoll::add(epoll, fd, self.data(), epoll::EventFlags::IN)
    }

    pub fn of(data: EventData) -> Source {
        let number = data.u64();
        let key = number & KEY;
        match number >> 56 {
            0 => Source::Signals,
            1 => Source::Unix,
            2 => Source::Tcp,
            3 => Source::Starters,
            4 => Source::Connection(key),
            5 => Source::End(key),
            6 => Source::Feed(key),
            7 => Source::Tokens(key),
            8 => Source::Capture(key, 0),
            10 => Source::Cache,
            11 => Source::Guardian,
            _ => Source::Capture(key, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_found_again() {
        for source in [
            Source::Signals,
            Source::Unix,
            Source::Tcp,
            Source::Starters,
            Source::Cache,
            Source::Connection(1),
            Source::End(2),
            Source::Feed(3),
            Source::Tokens(5),
            Source::Capture(4, 0),
            Source::Capture(KEY, 1),
        ] {
            assert_eq!(Source::of(source.data()), source);
        }
    }
}
