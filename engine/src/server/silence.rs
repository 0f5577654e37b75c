//! A store that does not answer, such as one on a file system of a server that is gone: commands that wait for it run without it.
//!
//! The threads that look into the store hang in the system then, and nothing is heard of any of them. What they find later comes to
//! nothing: see `cache::claim`.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use log::warn;

use super::command::State;
use super::slots::CommandKey;
use super::timers::Alarm;
use super::Server;
use crate::cache::answer::{Answer, Uncached};
use crate::cache::lookup::claim::Claim;
use crate::wire::{UncachedReason, UnstoredReason};

/// Nothing was heard for so long, while somebody looks into the store.
const PATIENCE: Duration = Duration::from_secs(3);
/// Somebody has looked into it for so long, for one command, while others were idle: a large output takes its time.
const PATIENCE_FOR_ONE: Duration = Duration::from_secs(20);
/// Once it is known to be silent, nobody waits for longer.
const HASTE: Duration = Duration::from_millis(20);

/// What is waited for.
#[derive(Default)]
pub(super) struct Silence {
    waiting: HashMap<CommandKey, Waiting>,
    heard: u64,
    /// What was heard when the alarm was set.
    heard_before: u64,
    is_watched: bool,
    is_silent: bool,
}

struct Waiting {
    claim: Claim,
    since: Instant,
}

impl Silence {
    fn holds_one_up(&self) -> bool {
        let mut waiting = self.waiting.values();
        waiting.any(|one| one.claim.is_at_work() && one.since.elapsed() >= PATIENCE_FOR_ONE)
    }
}

impl Server {
    /// A cache thread is asked for something of a command.
    pub(super) fn await_store(&mut self, key: CommandKey, claim: Claim) {
        let silence = &mut self.silence;
        let since = Instant::now();
        silence.waiting.insert(key, Waiting { claim, since });
        if !silence.is_watched {
            silence.is_watched = true;
            silence.heard_before = silence.heard;
            let patience = if silence.is_silent { HASTE } else { PATIENCE };
            self.timers.set(since + patience, Alarm::Store);
        }
    }

    /// Something has come of it.
    pub(super) fn hear_of_store(&mut self, key: CommandKey) {
        let silence = &mut self.silence;
        silence.waiting.remove(&key);
        silence.heard += 1;
        silence.is_silent = false;
    }

    /// Its client does not want it any more: what is found must not be put in its place.
    pub(super) fn leave_store(&mut self, key: CommandKey) {
        if let Some(waiting) = self.silence.waiting.remove(&key) {
            waiting.claim.give_up();
        }
    }

    pub(super) fn on_store_due(&mut self) {
        let silence = &mut self.silence;
        silence.is_watched = false;
        if silence.waiting.is_empty() {
            return;
        }
        let is_heard = silence.heard != silence.heard_before;
        let hangs = self.is_away.load(Ordering::Relaxed) || !self.cache_threads.has_idle() || silence.holds_one_up();
        if !is_heard && hangs {
            self.give_up_store();
        }
        let silence = &mut self.silence;
        if !silence.waiting.is_empty() {
            silence.is_watched = true;
            silence.heard_before = silence.heard;
            let patience = if silence.is_silent { HASTE } else { PATIENCE };
            self.timers.set(Instant::now() + patience, Alarm::Store);
        }
    }

    fn give_up_store(&mut self) {
        if !std::mem::replace(&mut self.silence.is_silent, true) {
            let silent = UncachedReason::SilentStore.sentence();
            warn!("{silent}: commands run without it until it does");
        }
        let waiting = self.silence.waiting.iter();
        let given_up = waiting.filter(|(_, waiting)| waiting.claim.give_up());
        let keys: Vec<_> = given_up.map(|(key, _)| *key).collect();
        for key in keys {
            self.silence.waiting.remove(&key);
            match self.commands.get(&key).map(|command| &command.state) {
                Some(State::Asking(_)) => self.take_answer(
                    key,
                    Answer::Uncached(Uncached {
                        why: UncachedReason::SilentStore,
                        words: UncachedReason::SilentStore.sentence().to_owned(),
                        is_unknown: false,
                    }),
                ),
                Some(State::Keeping(_)) => self.on_kept(key, Err(UnstoredReason::SilentStore.into())),
                _ => {}
            }
        }
    }
}
