//! The threads that work for the cache. They read the file system, so that the event loop never waits for a disk.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::answer::{Answer, Hit, Question, Ticket, Uncached};
use super::away::{Away, Back, NotAway, Stayed};
use super::keep::{Collected, Ended, NotStored, Stored};
use super::lookup::claim::Claim;
use super::remote::{Errand, Made, Unmade};
use super::Cache;
use crate::facts::file_view::FileView;
use crate::observe::trace::TraceRegion;
use crate::process::mailbox::{Bell, Mailbox};
use crate::process::prompt::make_prompt;
use crate::wire::{UncachedReason, Unkept, UnstoredReason};

/// More threads would only wait for each other.
const MOST: usize = 8;
/// How long after a failure the next attempt to open the store is made.
const RETRY: Duration = Duration::from_secs(1);
/// After this time without an answer, the store's disk is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request to the cache as a whole. It returns its answer as bytes.
pub type Work = Box<dyn FnOnce(&Cache) -> Vec<u8> + Send>;

pub enum Job {
    /// Look a command up.
    Ask(Question),
    /// Store the result of a command that has ended.
    Keep {
        who: u64,
        ticket: Box<Ticket>,
        ended: Box<Ended>,
        trace_region: TraceRegion,
        claim: Claim,
    },
    /// Count that the result of a command is not stored.
    Leave(Box<(Ticket, Unkept)>),
    /// Send a command to a cluster.
    Away {
        who: u64,
        away: Box<Away>,
        errand: Arc<Errand>,
    },
    /// A command has come back from there.
    Returned {
        who: u64,
        away: Box<Away>,
        errand: Arc<Errand>,
        made: Result<Made, Unmade>,
    },
    /// Put what it has made in its place.
    Fetch { who: u64, away: Box<Away>, claim: Claim },
    /// Note that a command ran on a cluster.
    MadeAway { ticket: Box<Ticket>, address: String },
    /// Write the journal and the counters.
    Write,
    /// Do something else with the store at this path, for a client that waits.
    Other { who: u64, store: PathBuf, work: Work },
}

pub enum Done {
    Answered {
        who: u64,
        answer: Answer,
    },
    Kept {
        who: u64,
        kept: Result<Stored, NotStored>,
    },
    /// A command is back from a cluster, and its result is in the store.
    Away {
        who: u64,
        result: Result<Back, Stayed>,
    },
    /// Its outputs are in their places, or cannot be.
    Fetched {
        who: u64,
        hit: Option<Hit>,
    },
    Other {
        who: u64,
        result: Result<Vec<u8>, String>,
    },
}

/// The queue of jobs. It is no channel, because a shared receiver is behind a lock: a thread that takes a job would wake
/// another one, only to wait for the lock.
#[derive(Default)]
pub struct Jobs {
    state: Mutex<Queue>,
    arrival: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// How many cache threads wait for a job.
    idle: usize,
}

impl Jobs {
    /// Returns whether there are more jobs than idle threads.
    pub fn send(&self, job: Job) -> bool {
        let mut state = self.state();
        state.jobs.push_back(job);
        let is_more = state.jobs.len() > state.idle;
        drop(state);
        self.arrival.notify_one();
        is_more
    }

    /// Waits for a job. If none is queued, the file view ends: later jobs must look at the file system again.
    fn next(&self, file_view: &mut Option<FileView>) -> Job {
        if let Some(job) = self.state().jobs.pop_front() {
            return job;
        }
        if let Some(file_view) = file_view {
            file_view.end();
        }
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return job;
            }
            state.idle += 1;
            state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, Queue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the threads put their results.
pub type Reports = Mailbox<Done>;

pub struct CacheThreads {
    /// How many threads there are, and how many there may be. A thread is added when all are busy.
    count: AtomicUsize,
    most: usize,
    reports: Arc<Reports>,
    shared: Arc<Shared>,
}

/// Opens the store: the one at this path, if the settings leave a choice.
type Open = dyn Fn(Arc<Jobs>, Option<&Path>) -> Result<Cache, String> + Send + Sync;

/// What all cache threads share.
struct Shared {
    opening: Mutex<Opening>,
    open: Box<Open>,
    /// Where questions are asked again.
    jobs: Arc<Jobs>,
    /// Set once the store is open, for threads that must not wait for `opening`.
    opened: OnceLock<Weak<Cache>>,
    /// How many results are still being stored although their clients have their answers.
    unstored: Mutex<usize>,
    is_stored: Condvar,
}

/// The store is opened for the first question, because most engines are never asked one.
enum Opening {
    Never,
    Open(Arc<Cache>),
    /// It failed at this time. An engine that is just ending may still have the store open.
    Failed(Instant, String),
}

impl Shared {
    fn cache(&self, asked: Option<&Path>) -> Result<Arc<Cache>, String> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opening {
            Opening::Open(cache) => return Ok(cache.clone()),
            Opening::Failed(at, why) if at.elapsed() < RETRY => return Err(why.clone()),
            _ => {}
        }
        match (self.open)(self.jobs.clone(), asked) {
            Ok(cache) => {
                let cache = Arc::new(cache);
                let _ = self.opened.set(Arc::downgrade(&cache));
                *opening = Opening::Open(cache.clone());
                Ok(cache)
            }
            Err(why) => {
                log::warn!("the store cannot be opened: {why}");
                *opening = Opening::Failed(Instant::now(), why.clone());
                Err(why)
            }
        }
    }

    fn opened(&self) -> Option<Arc<Cache>> {
        self.opened.get()?.upgrade()
    }

    fn count_unstored(&self, more: isize) {
        let mut unstored = self.unstored.lock().unwrap_or_else(PoisonError::into_inner);
        *unstored = unstored.saturating_add_signed(more);
        self.is_stored.notify_all();
    }

    fn close(&self) {
        self.wait_until_stored();
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Opening::Open(cache) = std::mem::replace(&mut *opening, Opening::Never) {
            cache.close_tiers();
            cache.flush();
        }
    }

    /// Waits until no result is being stored, or until that takes too long.
    fn wait_until_stored(&self) {
        let unstored = self.unstored.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self
            .is_stored
            .wait_timeout_while(unstored, PATIENCE, |unstored| *unstored > 0);
    }
}

impl CacheThreads {
    pub fn new(open: Box<Open>) -> io::Result<CacheThreads> {
        let shared = Arc::new(Shared {
            opening: Mutex::new(Opening::Never),
            open,
            jobs: Arc::default(),
            opened: OnceLock::new(),
            unstored: Mutex::new(0),
            is_stored: Condvar::new(),
        });
        let cache_threads = CacheThreads {
            count: AtomicUsize::new(0),
            most: thread::available_parallelism().map_or(2, |n| n.get().clamp(2, MOST)),
            reports: Arc::new(Mailbox::new()?),
            shared,
        };
        cache_threads.add()?;
        Ok(cache_threads)
    }

    fn add(&self) -> io::Result<()> {
        let (reports, shared) = (self.reports.clone(), self.shared.clone());
        let work = move || work(&reports, &shared);
        thread::Builder::new().name("cache".to_owned()).spawn(work)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub fn send(&self, job: Job) {
        let is_more = self.shared.jobs.send(job);
        if is_more && self.count.load(Ordering::Relaxed) < self.most {
            if let Err(error) = self.add() {
                log::debug!("no other thread for the cache: {error}");
            }
        }
    }

    pub fn jobs(&self) -> Arc<Jobs> {
        self.shared.jobs.clone()
    }

    pub fn ask(&self, question: Question) {
        self.send(Job::Ask(question));
    }

    /// Whether the store is open, no job is queued, and all threads are idle.
    pub fn are_idle(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let all_wait = || {
            let state = self.shared.jobs.state();
            state.jobs.is_empty() && state.idle == count
        };
        self.shared.opened.get().is_some() && all_wait()
    }

    /// Whether any thread is idle.
    pub fn has_idle(&self) -> bool {
        self.shared.jobs.state().idle > 0
    }

    /// Where other threads may put results, too.
    pub fn reports(&self) -> Arc<Reports> {
        self.reports.clone()
    }

    /// Readable when there are results.
    pub fn bell(&self) -> &Bell {
        &self.reports.bell
    }

    /// Takes the results that have come.
    pub fn hear(&self) -> Vec<Done> {
        self.reports.take()
    }

    /// The cache, if its store is open. Never waits.
    pub fn opened(&self) -> Option<Arc<Cache>> {
        self.shared.opened()
    }

    /// Closes the store, and writes what is only in memory. Gives up if the disk does not answer.
    pub fn close(&self) {
        let (shared, (done, is_done)) = (self.shared.clone(), mpsc::channel());
        let close = move || {
            shared.close();
            let _ = done.send(());
        };
        let closing = thread::Builder::new().name("close".to_owned()).spawn(close);
        if closing.is_ok() && is_done.recv_timeout(2 * PATIENCE).is_err() {
            log::warn!("the store does not answer; what is not on its disk yet is lost");
        }
    }
}

fn work(reports: &Reports, shared: &Shared) {
    make_prompt(0);
    let mut file_view = None;
    loop {
        let job = shared.jobs.next(&mut file_view);
        run(job, shared, &mut file_view, reports);
        // The job is answered, so no client waits for a slow disk here.
        if let Some(cache) = shared.opened().filter(|cache| cache.is_writing_due()) {
            cache.flush();
        }
    }
}

fn run(job: Job, shared: &Shared, file_view: &mut Option<FileView>, reports: &Reports) {
    let asked = match &job {
        Job::Ask(question) => question.wishes.store.as_deref(),
        Job::Other { store, .. } => Some(store.as_path()),
        _ => None,
    };
    let cache = shared.cache(asked);
    match (job, cache) {
        (Job::Ask(question), Ok(cache)) => {
            let who = question.who;
            let _work = question.claim.begin_work();
            // There is no answer yet if the question will be asked again.
            if let Some(answer) = cache.ask(question, file_view) {
                reports.put(Done::Answered { who, answer });
            }
        }
        (Job::Ask(question), Err(words)) => {
            let answer = Answer::Uncached(Uncached::new(UncachedReason::NoStore, words));
            let who = question.who;
            reports.put(Done::Answered { who, answer });
        }
        (
            Job::Keep {
                who,
                ticket,
                mut ended,
                trace_region,
                claim,
            },
            Ok(cache),
        ) => {
            let _work = claim.begin_work();
            let parts = trace_region.finish_parts();
            ended.accesses = match &ended.driver {
                Some(driver) => driver.complete(parts),
                None => parts.concat(),
            };
            let collected = cache.collect(ticket, &ended);
            let is_awaited = collected.as_ref().is_ok_and(Collected::is_awaited);
            // If the client has given up, another command may have written the files that were read, so nothing is
            // stored. A client that waits for the stored result may give up until it is stored.
            if claim.is_given_up() || !(is_awaited || claim.answer()) {
                return;
            }
            match collected {
                Ok(collected) if is_awaited => {
                    let kept = cache.store(collected, &claim);
                    if claim.answer() {
                        reports.put(Done::Kept { who, kept });
                    }
                }
                Ok(mut collected) => {
                    shared.count_unstored(1);
                    let stored = Stored {
                        due: collected.take_due(),
                        ..Stored::default()
                    };
                    reports.put(Done::Kept { who, kept: Ok(stored) });
                    if let Err(NotStored::Unkept(unkept)) = cache.store(collected, &claim) {
                        log::debug!("not stored: {}", unkept.words);
                    }
                    shared.count_unstored(-1);
                }
                Err(not_stored) => reports.put(Done::Kept {
                    who,
                    kept: Err(not_stored),
                }),
            }
        }
        (Job::Keep { who, mut ticket, .. }, Err(words)) => {
            let kept = match ticket.is_attempt() {
                true => {
                    ticket.forgo_attempt();
                    NotStored::Again(ticket)
                }
                false => NotStored::Unkept(Unkept::new(UnstoredReason::StoreFailed, words)),
            };
            reports.put(Done::Kept { who, kept: Err(kept) });
        }
        (Job::Away { who, away, errand }, Ok(cache)) => cache.send_away(who, away, errand, &shared.jobs, reports),
        (
            Job::Returned {
                who,
                away,
                errand,
                made,
            },
            Ok(cache),
        ) => {
            cache.take_back(who, away, errand, made, &shared.jobs, reports);
        }
        (Job::Away { who, .. } | Job::Returned { who, .. }, Err(_)) => {
            let result = Err(NotAway::NotStored.into());
            reports.put(Done::Away { who, result });
        }
        (Job::Fetch { who, away, claim }, Ok(cache)) => {
            let _work = claim.begin_work();
            let hit = cache.fetch_away(*away, claim.clone());
            if claim.answer() {
                reports.put(Done::Fetched { who, hit });
            }
        }
        (Job::Fetch { who, .. }, Err(_)) => reports.put(Done::Fetched { who, hit: None }),
        (Job::MadeAway { ticket, address }, Ok(cache)) => cache.note_made_away(&ticket, address),
        (Job::Leave(left), Ok(cache)) => cache.leave(&left.0, &left.1),
        (Job::Write, Ok(cache)) => cache.flush(),
        (Job::Leave(_) | Job::MadeAway { .. } | Job::Write, Err(_)) => {}
        (Job::Other { who, work, .. }, cache) => {
            // A client that has just run a command must find its result.
            shared.wait_until_stored();
            let result = cache.map(|cache| work(&cache));
            reports.put(Done::Other { who, result });
        }
    }
}
