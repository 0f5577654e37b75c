//! A store that does not answer, such as one on a file system of a server that is gone: commands that wait for it run without it.
//!
//! The threads that look into the store hang in the system then, and nothing is heard of any of them. What they find later comes to
//! nothing: see `cache::claim`. A thread that reads a large library for the first time is not silent: it tells of each piece.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use log::warn;

use super::command_flow::Event;
use super::timers::Alarm;
use super::Server;
use crate::cache::lookup::claim::Claim;
use crate::facts::progress;
use crate::wire::UncachedReason;

/// Nothing was heard for so long, while somebody looks into the store.
const PATIENCE: Duration = Duration::from_secs(3);
/// Somebody has looked into it for so long, for one command, while others were idle: a large output takes its time.
const PATIENCE_FOR_ONE: Duration = Duration::from_secs(20);
/// Once it is known to be silent, nobody waits for longer.
const HASTE: Duration = Duration::from_millis(20);

/// What was heard of the store.
#[derive(Default)]
pub(super) struct Silence {
    heard: u64,
    /// What was heard, and how far files had been looked at, when the alarm was set.
    before: (u64, u64),
    is_watched: bool,
    is_silent: bool,
}

/// A command that waits for the store.
pub struct StoreWait {
    /// Shared with the thread that looks into the store.
    pub claim: Claim,
    since: Instant,
}

impl Silence {
    /// All that shows that somebody goes on.
    fn signs(&self) -> (u64, u64) {
        (self.heard, progress::pieces())
    }
}

impl StoreWait {
    fn is_long(&self) -> bool {
        self.claim.is_at_work() && self.since.elapsed() >= PATIENCE_FOR_ONE
    }
}

impl Server {
    /// A cache thread is asked for something of a command.
    pub(super) fn await_store(&mut self) -> StoreWait {
        let since = Instant::now();
        if !self.silence.is_watched {
            self.watch_store(since);
        }
        let claim = Claim::default();
        StoreWait { claim, since }
    }

    fn watch_store(&mut self, now: Instant) {
        let silence = &mut self.silence;
        silence.is_watched = true;
        silence.before = silence.signs();
        let patience = if silence.is_silent { HASTE } else { PATIENCE };
        self.timers.set(now + patience, Alarm::Store);
    }

    /// A cache thread has done something.
    pub(super) fn hear_of_store(&mut self) {
        self.silence.heard += 1;
        self.silence.is_silent = false;
    }

    pub(super) fn on_store_due(&mut self) {
        self.silence.is_watched = false;
        if self.commands.waiting_for_store().next().is_none() {
            return;
        }
        let is_heard = self.silence.signs() != self.silence.before;
        let holds_one_up = || self.commands.waiting_for_store().any(|(_, wait)| wait.is_long());
        let hangs = self.is_away.load(Ordering::Relaxed) || !self.cache_threads.has_idle() || holds_one_up();
        if !is_heard && hangs {
            self.give_up_store();
        }
        if self.commands.waiting_for_store().next().is_some() {
            self.watch_store(Instant::now());
        }
    }

    fn give_up_store(&mut self) {
        if !std::mem::replace(&mut self.silence.is_silent, true) {
            let silent = UncachedReason::SilentStore.sentence();
            warn!("{silent}: commands run without it until it does");
        }
        let waiting = self.commands.waiting_for_store();
        let given_up = waiting.filter(|(_, wait)| wait.claim.give_up());
        let keys: Vec<_> = given_up.map(|(key, _)| key).collect();
        for key in keys {
            self.happens(key, Event::StoreIsSilent);
        }
    }
}
