//! What was stored goes to a tier in the background. Nobody waits for it, and what is too much is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::breaker::Breaker;
use super::counts::Counts;
use super::pulse::Pulse;
use super::wrapped::Wrapped;
use super::{Fault, Tier};
use crate::cache::digest::Digest;

/// More are dropped; each is an entry without its blobs.
const MOST: usize = 4096;
/// Compilers have the processor first.
const NICE: i32 = 10;

#[derive(Clone)]
pub struct Offer {
    pub key: Digest,
    pub entry: Arc<[u8]>,
    pub needs: Vec<Digest>,
}

/// A blob, if it is still there, and not too large.
pub type Load = dyn Fn(&Digest) -> Option<Wrapped> + Send + Sync;

#[derive(Default)]
struct State {
    queue: VecDeque<Offer>,
    is_busy: bool,
    is_closed: bool,
}

pub struct Uploads {
    name: String,
    tier: Arc<dyn Tier>,
    counts: Arc<Counts>,
    load: Arc<Load>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Uploads {
    pub fn start(
        name: String,
        tier: Arc<dyn Tier>,
        pulse: Pulse,
        counts: Arc<Counts>,
        load: Arc<Load>,
    ) -> std::io::Result<Arc<Uploads>> {
        let uploads = Arc::new(Uploads {
            name,
            tier,
            counts,
            load,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let working = uploads.clone();
        let work = move || working.work(&Arc::new(pulse));
        thread::Builder::new().name("upload".to_owned()).spawn(work)?;
        Ok(uploads)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_one(&self, why: &str) {
        self.counts.add(&format!("uploads dropped/{why}"), 1);
    }

    pub fn push(&self, offer: Offer) {
        let mut state = self.state();
        if state.queue.len() >= MOST {
            drop(state);
            return self.drop_one("too many were waiting");
        }
        state.queue.push_back(offer);
        drop(state);
        self.changed.notify_all();
    }

    pub fn waiting(&self) -> usize {
        let state = self.state();
        state.queue.len() + usize::from(state.is_busy)
    }

    fn next(&self) -> Option<Offer> {
        let mut state = self.state();
        state.is_busy = false;
        self.changed.notify_all();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(offer) = state.queue.pop_front() {
                state.is_busy = true;
                return Some(offer);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, pulse: &Arc<Pulse>) {
        // SAFETY: of this thread alone, whose number zero stands for.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        let mut breaker = Breaker::new(pulse.limits.pause);
        while let Some(offer) = self.next() {
            let now = Instant::now();
            if !breaker.is_closed() && !breaker.begin_trial(now) {
                self.drop_one("it does not answer");
                continue;
            }
            pulse.begin();
            match self.tier.offer(&offer, &*self.load, pulse) {
                Ok(()) => {
                    breaker.worked();
                    self.counts.add("uploads", 1);
                }
                Err(Fault::Declined(words)) => {
                    breaker.worked();
                    self.drop_one(&words);
                }
                Err(fault) => {
                    let words = format!("an upload: {}", fault.words());
                    let opens = match fault {
                        Fault::Silent(_) => breaker.open(Instant::now(), &words),
                        Fault::Failed(_) | Fault::Declined(_) => breaker.erred(Instant::now(), &words),
                    };
                    self.counts.error(&self.name, &words);
                    self.drop_one("it failed");
                    if opens {
                        log::warn!("{}: nothing is uploaded for a while, since {words}", self.name);
                    }
                }
            }
            pulse.rest();
        }
    }

    /// Waits for what is to be uploaded, until then; the rest is dropped.
    pub fn close(&self, deadline: Instant) {
        let mut state = self.state();
        while state.is_busy || !state.queue.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_closed = true;
        let left = state.queue.len() + usize::from(state.is_busy);
        state.queue.clear();
        drop(state);
        self.changed.notify_all();
        self.counts.add("uploads dropped/the engine ended", left as u64);
    }
}
