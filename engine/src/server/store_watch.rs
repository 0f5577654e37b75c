//! Detects a store that does not answer, for example on NFS when the server is gone. Commands that wait for it run
//! without it.
//!
//! The cache threads then hang in a system call. A result that they find later is dropped: see `cache::claim`. A thread
//! that reads a large library for the first time shows progress, so it does not count as hanging.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::warn;

use super::command_flow::Event;
use super::timers::Alarm;
use super::Server;
use crate::cache::lookup::claim::Claim;
use crate::facts::progress;
use crate::wire::UncachedReason;

/// The store counts as silent if no thread shows progress for this long.
const PATIENCE: Duration = Duration::from_secs(3);
/// … or if one command waits for this long while other threads are idle. A large output takes time.
const PATIENCE_FOR_ONE: Duration = Duration::from_secs(20);
/// While the store is known to be silent, commands wait only this long.
const PATIENCE_WHEN_SILENT: Duration = Duration::from_millis(20);

/// Progress of the cache threads.
#[derive(Default)]
pub(super) struct StoreWatch {
    heard: u64,
    /// The progress when the alarm was set.
    before: (u64, u64),
    is_alarm_set: bool,
    is_silent: bool,
    /// One of the two threads of `lead` is answering a question.
    pub(super) is_leader_asking: Arc<AtomicBool>,
}

/// A command that waits for the store.
pub struct StoreWait {
    /// Shared with the cache thread that works for the command.
    pub claim: Claim,
    since: Instant,
}

impl StoreWatch {
    /// Counts that change when any thread makes progress.
    fn progress(&self) -> (u64, u64) {
        (self.heard, progress::pieces())
    }
}

impl StoreWait {
    fn is_long(&self) -> bool {
        self.claim.is_at_work() && self.since.elapsed() >= PATIENCE_FOR_ONE
    }
}

impl Server {
    /// A cache thread gets work for a command.
    pub(super) fn begin_store_wait(&mut self) -> StoreWait {
        let since = Instant::now();
        if !self.store_watch.is_alarm_set {
            self.watch_store(since);
        }
        let claim = Claim::default();
        StoreWait { claim, since }
    }

    fn watch_store(&mut self, now: Instant) {
        let store_watch = &mut self.store_watch;
        store_watch.is_alarm_set = true;
        store_watch.before = store_watch.progress();
        let patience = if store_watch.is_silent {
            PATIENCE_WHEN_SILENT
        } else {
            PATIENCE
        };
        self.timers.set(now + patience, Alarm::Store);
    }

    /// A cache thread has finished something.
    pub(super) fn store_progressed(&mut self) {
        self.store_watch.heard += 1;
        self.store_watch.is_silent = false;
    }

    pub(super) fn on_store_deadline(&mut self) {
        self.store_watch.is_alarm_set = false;
        if self.commands.waiting_for_store().next().is_none() {
            return;
        }
        let is_heard = self.store_watch.progress() != self.store_watch.before;
        let holds_one_up = || self.commands.waiting_for_store().any(|(_, wait)| wait.is_long());
        let hangs = self.store_watch.is_leader_asking.load(Ordering::Relaxed)
            || !self.cache_threads.has_idle()
            || holds_one_up();
        if !is_heard && hangs {
            self.give_up_on_store();
        }
        if self.commands.waiting_for_store().next().is_some() {
            self.watch_store(Instant::now());
        }
    }

    fn give_up_on_store(&mut self) {
        if !std::mem::replace(&mut self.store_watch.is_silent, true) {
            let silent = UncachedReason::SilentStore.sentence();
            warn!("{silent}: commands run without it until it does");
        }
        let waiting = self.commands.waiting_for_store();
        let given_up = waiting.filter(|(_, wait)| wait.claim.give_up());
        let keys: Vec<_> = given_up.map(|(key, _)| key).collect();
        for key in keys {
            self.on_event(key, Event::StoreIsSilent);
        }
    }
}
