//! What was stored goes to a tier in the background. Nobody waits for it, and what is too much is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::address::Limits;
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

struct State {
    queue: VecDeque<Offer>,
    /// So many are under way.
    busy: usize,
    breaker: Breaker,
    is_closed: bool,
}

pub struct Uploads {
    name: String,
    tier: Arc<dyn Tier>,
    counts: Arc<Counts>,
    load: Arc<Load>,
    limits: Limits,
    state: Mutex<State>,
    changed: Condvar,
}

impl Uploads {
    /// Several at once where each has to wait for many answers.
    pub fn start(
        name: String,
        tier: Arc<dyn Tier>,
        limits: Limits,
        counts: Arc<Counts>,
        load: Arc<Load>,
    ) -> std::io::Result<Arc<Uploads>> {
        let workers = tier.shape().uploads;
        let uploads = Arc::new(Uploads {
            name,
            tier,
            counts,
            load,
            limits,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                busy: 0,
                breaker: Breaker::new(limits.pause),
                is_closed: false,
            }),
            changed: Condvar::new(),
        });
        for _ in 0..workers {
            let working = uploads.clone();
            let work = move || working.work();
            thread::Builder::new().name("upload".to_owned()).spawn(work)?;
        }
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
        state.queue.len() + state.busy
    }

    fn next(&self) -> Option<Offer> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(offer) = state.queue.pop_front() {
                state.busy += 1;
                return Some(offer);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        // SAFETY: of this thread alone, whose number zero stands for.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        let pulse = Arc::new(Pulse::new(self.limits));
        while let Some(offer) = self.next() {
            self.upload(&offer, &pulse);
            self.state().busy -= 1;
            self.changed.notify_all();
        }
    }

    fn upload(&self, offer: &Offer, pulse: &Arc<Pulse>) {
        {
            let breaker = &mut self.state().breaker;
            if !breaker.is_closed() && !breaker.begin_trial(Instant::now()) {
                return self.drop_one("it does not answer");
            }
        }
        pulse.begin();
        let done = self.tier.offer(offer, &*self.load, pulse);
        pulse.rest();
        let fault = match done {
            Ok(()) => {
                self.state().breaker.worked();
                return self.counts.add("uploads", 1);
            }
            Err(Fault::Declined(words)) => {
                self.state().breaker.worked();
                return self.drop_one(&words);
            }
            Err(fault) => fault,
        };
        let words = format!("an upload: {}", fault.words());
        let now = Instant::now();
        let opens = match fault {
            Fault::Silent(_) => self.state().breaker.open(now, &words),
            Fault::Failed(_) | Fault::Declined(_) => self.state().breaker.erred(now, &words),
        };
        self.counts.error(&self.name, &words);
        self.drop_one("it failed");
        if opens {
            log::warn!("{}: nothing is uploaded for a while, since {words}", self.name);
        }
    }

    /// Waits for what is to be uploaded, until then; the rest is dropped.
    pub fn close(&self, deadline: Instant) {
        let mut state = self.state();
        while state.busy > 0 || !state.queue.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_closed = true;
        let left = state.queue.len() + state.busy;
        state.queue.clear();
        drop(state);
        self.changed.notify_all();
        self.counts.add("uploads dropped/the engine ended", left as u64);
    }
}
