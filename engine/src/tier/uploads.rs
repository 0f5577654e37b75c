//! Uploads entries to a tier in the background. No command waits for this, and what is too much is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::breaker::Breaker;
use super::counts::Counts;
use super::heartbeat::Heartbeat;
use super::{Fault, Tier};
use crate::cache::remote::{Load, Offer};
use crate::settings::address::Limits;

/// Further uploads are dropped. Each is an entry without its blobs.
const MOST: usize = 4096;
/// When the engine ends, it stops waiting for an upload of which nothing moves for this time.
const STILL: Duration = Duration::from_millis(500);
/// Compilers get the processor first.
const NICE: i32 = 10;

struct State {
    queue: VecDeque<Offer>,
    /// How many uploads are under way.
    busy: usize,
    breaker: Breaker,
    is_closed: bool,
}

pub struct Uploads {
    name: String,
    tier: Arc<dyn Tier>,
    counts: Arc<Counts>,
    load: Arc<Load>,
    /// The heartbeat of each worker.
    heartbeats: Vec<Arc<Heartbeat>>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Uploads {
    /// Starts the workers: several, if each of them must wait for many answers.
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
            heartbeats: (0..workers).map(|_| Arc::new(Heartbeat::new(limits))).collect(),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                busy: 0,
                breaker: Breaker::new(limits.pause),
                is_closed: false,
            }),
            changed: Condvar::new(),
        });
        for heartbeat in &uploads.heartbeats {
            let (working, heartbeat) = (uploads.clone(), heartbeat.clone());
            let work = move || working.work(&heartbeat);
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

    fn work(&self, heartbeat: &Arc<Heartbeat>) {
        // SAFETY: a plain system call. The number zero means the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        while let Some(offer) = self.next() {
            self.upload(&offer, heartbeat);
            self.state().busy -= 1;
            self.changed.notify_all();
        }
    }

    fn upload(&self, offer: &Offer, heartbeat: &Arc<Heartbeat>) {
        {
            let breaker = &mut self.state().breaker;
            if !breaker.is_closed() && !breaker.begin_trial(Instant::now()) {
                return self.drop_one("it does not answer");
            }
        }
        heartbeat.begin();
        let done = self.tier.offer(offer, &*self.load, heartbeat);
        heartbeat.rest();
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

    /// Waits for uploads until this time, as long as they make progress. The rest is dropped.
    pub fn close(&self, began: Instant, deadline: Instant) {
        let mut state = self.state();
        while state.busy > 0 || !state.queue.is_empty() {
            let last = self
                .heartbeats
                .iter()
                .map(|heartbeat| heartbeat.beat())
                .fold(began, Instant::max);
            let left = deadline.min(last + STILL).saturating_duration_since(Instant::now());
            if left.is_zero() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::digest::Digest;
    use crate::cache::remote::bundle::Bundle;
    use crate::cache::remote::wrapped::Wrapped;
    use crate::tier::Shape;
    use std::sync::mpsc::{channel, Receiver, Sender};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Reports that an entry was offered, and does nothing until it is told to.
    struct Silent {
        offered: Mutex<Sender<()>>,
        released: Mutex<Receiver<()>>,
    }

    impl Tier for Silent {
        fn shape(&self) -> Shape {
            Shape {
                workers: 0,
                batch: 1,
                uploads: 1,
            }
        }

        fn find(&self, _: &[Digest], _: &Arc<Heartbeat>) -> Result<Vec<Bundle>, Fault> {
            Ok(Vec::new())
        }

        fn fetch(&self, _: &[Digest], _: &Arc<Heartbeat>) -> Result<Vec<Option<Wrapped>>, Fault> {
            Ok(Vec::new())
        }

        fn offer(&self, _: &Offer, _: &Load, _: &Arc<Heartbeat>) -> Result<(), Fault> {
            self.offered.lock().unwrap().send(()).unwrap();
            let _ = self.released.lock().unwrap().recv();
            Ok(())
        }
    }

    fn offer() -> Offer {
        Offer {
            key: Digest::of(b"key"),
            entry: Vec::new().into(),
            needs: Vec::new(),
        }
    }

    #[test]
    fn closing_does_not_wait_for_an_upload_without_progress() {
        let ((offered, is_offered), (release, released)) = (channel(), channel());
        let tier = Silent {
            offered: Mutex::new(offered),
            released: Mutex::new(released),
        };
        let counts = Arc::new(Counts::new(|_, _| ()));
        let load: Arc<Load> = Arc::new(|_: &Digest| None);
        let uploads = Uploads::start("silent".to_owned(), Arc::new(tier), Limits::default(), counts, load).unwrap();
        uploads.push(offer());
        is_offered.recv_timeout(PATIENCE).unwrap();
        let (closed, is_closed) = channel();
        let closing = uploads.clone();
        thread::spawn(move || {
            closing.close(Instant::now(), Instant::now() + 10 * PATIENCE);
            closed.send(()).unwrap();
        });
        assert_eq!(
            is_closed.recv_timeout(PATIENCE),
            Ok(()),
            "it waits for what does not come"
        );
        release.send(()).unwrap();
    }
}
