//! The threads that ask the cache and keep for it: files are looked at and read there, so that the event loop waits for
//! no disk.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::answer::{Answer, Question, Ticket, Uncached};
use super::keep::{Ended, Unstored};
use super::lookup::claim::Claim;
use super::lookup::inputs::Inputs;
use super::Cache;
use crate::facts::file_view::FileView;
use crate::observe::trace::TraceRegion;
use crate::process::mailbox::{Bell, Mailbox};
use crate::process::prompt::make_prompt;
use crate::wire::{UncachedReason, Unkept, UnstoredReason};

/// More only wait for each other.
const MOST: usize = 8;
/// After this a store that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// A store that takes longer may have died.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something that is done with the cache, and its answer as bytes.
pub type Work = Box<dyn FnOnce(&Cache) -> Vec<u8> + Send>;

pub enum Job {
    Ask(Question),
    Keep {
        who: u64,
        ticket: Box<Ticket>,
        ended: Box<Ended>,
        trace_region: TraceRegion,
        claim: Claim,
    },
    /// Nothing of a command will be stored, which is counted.
    Leave(Box<(Ticket, Unkept)>),
    /// What was noted and counted is to be on disk.
    Write,
    /// Anything else that somebody waits for, of the store at this path.
    Other {
        who: u64,
        store: PathBuf,
        work: Work,
    },
}

pub enum Done {
    Answered {
        who: u64,
        answer: Answer,
    },
    Kept {
        who: u64,
        kept: Result<Option<Inputs>, Unkept>,
    },
    Other {
        who: u64,
        result: Result<Vec<u8>, String>,
    },
}

/// What is to be done, for whoever has time. A channel would do, but whoever takes from one that is shared wakes another to
/// wait there in its stead.
#[derive(Default)]
pub struct Jobs {
    state: Mutex<Waiting>,
    arrival: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// So many cache threads wait, too.
    cache_threads: usize,
}

impl Jobs {
    /// Tells whether there is more to do than cache threads that wait for something.
    pub fn send(&self, job: Job) -> bool {
        let mut state = self.state();
        state.jobs.push_back(job);
        let is_more = state.jobs.len() > state.cache_threads;
        drop(state);
        self.arrival.notify_one();
        is_more
    }

    /// Whoever comes after all have been served finds the world at a moment of its own.
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
            state.cache_threads += 1;
            state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.cache_threads -= 1;
        }
    }

    /// Nothing is to be done, and all of so many cache threads wait.
    fn are_done(&self, cache_threads: usize) -> bool {
        let state = self.state();
        state.jobs.is_empty() && state.cache_threads == cache_threads
    }

    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where it is told what was done.
pub type Reports = Mailbox<Done>;

pub struct CacheThreads {
    jobs: Arc<Jobs>,
    /// How many there are, and how many there may be: another comes when all are at work.
    count: AtomicUsize,
    most: usize,
    reports: Arc<Reports>,
    inbox: Arc<Inbox>,
}

/// Opens the store; the one that is asked for, if there is the choice.
type Open = dyn Fn(Arc<Jobs>, Option<&Path>) -> Result<Cache, String> + Send + Sync;

/// What all of them share.
struct Inbox {
    opening: Mutex<Opening>,
    open: Box<Open>,
    /// For questions that come again.
    jobs: Arc<Jobs>,
    /// Set once it is open: for whoever must not wait until it is.
    opened: OnceLock<Weak<Cache>>,
    /// Commands that are over for their clients, and of which something is still to be stored.
    unstored: Mutex<usize>,
    is_stored: Condvar,
}

/// The store is opened when somebody asks for the first time: most engines are never asked.
enum Opening {
    Never,
    Open(Arc<Cache>),
    /// It could not be, then; an engine that is just leaving may have it.
    Failed(Instant, String),
}

impl Inbox {
    fn cache(&self, asked: Option<&Path>) -> Result<Arc<Cache>, String> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opening {
            Opening::Open(cache) => return Ok(cache.clone()),
            Opening::Failed(at, why) if at.elapsed() < AGAIN => return Err(why.clone()),
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
}

impl Inbox {
    fn opened(&self) -> Option<Arc<Cache>> {
        self.opened.get()?.upgrade()
    }

    fn count_unstored(&self, more: isize) {
        let mut unstored = self.unstored.lock().unwrap_or_else(PoisonError::into_inner);
        *unstored = unstored.saturating_add_signed(more);
        self.is_stored.notify_all();
    }

    fn close(&self) {
        self.settle();
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Opening::Open(cache) = std::mem::replace(&mut *opening, Opening::Never) {
            cache.close_tiers();
            cache.flush();
        }
    }

    /// Waits until all is stored that is to be, or that takes too long.
    fn settle(&self) {
        let unstored = self.unstored.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self
            .is_stored
            .wait_timeout_while(unstored, PATIENCE, |unstored| *unstored > 0);
    }
}

impl CacheThreads {
    pub fn new(open: Box<Open>) -> io::Result<CacheThreads> {
        let jobs = Arc::new(Jobs::default());
        let inbox = Arc::new(Inbox {
            opening: Mutex::new(Opening::Never),
            open,
            jobs: jobs.clone(),
            opened: OnceLock::new(),
            unstored: Mutex::new(0),
            is_stored: Condvar::new(),
        });
        let cache_threads = CacheThreads {
            jobs,
            count: AtomicUsize::new(0),
            most: thread::available_parallelism().map_or(2, |n| n.get().clamp(2, MOST)),
            reports: Arc::new(Mailbox::new()?),
            inbox,
        };
        cache_threads.add()?;
        Ok(cache_threads)
    }

    fn add(&self) -> io::Result<()> {
        let (reports, inbox) = (self.reports.clone(), self.inbox.clone());
        let work = move || work(&reports, &inbox);
        thread::Builder::new().name("cache".to_owned()).spawn(work)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub fn send(&self, job: Job) {
        let is_more = self.jobs.send(job);
        if is_more && self.count.load(Ordering::Relaxed) < self.most {
            if let Err(error) = self.add() {
                log::debug!("no other thread for the cache: {error}");
            }
        }
    }

    /// Where jobs are sent.
    pub fn jobs(&self) -> Arc<Jobs> {
        self.jobs.clone()
    }

    pub fn ask(&self, question: Question) {
        self.send(Job::Ask(question));
    }

    /// Nobody has anything to do, and the store is open.
    pub fn are_idle(&self) -> bool {
        self.inbox.opened.get().is_some() && self.jobs.are_done(self.count.load(Ordering::Relaxed))
    }

    /// Somebody waits for something to do.
    pub fn has_idle(&self) -> bool {
        self.jobs.state().cache_threads > 0
    }

    /// Where others tell what they have done.
    pub fn reports(&self) -> Arc<Reports> {
        self.reports.clone()
    }

    /// Readable when there is something to hear.
    pub fn bell(&self) -> &Bell {
        &self.reports.bell
    }

    pub fn hear(&self) -> Vec<Done> {
        self.reports.take()
    }

    /// The cache if it is open; never waits.
    pub fn opened(&self) -> Option<Arc<Cache>> {
        self.inbox.opened()
    }

    /// Has all that is kept in memory on disk, unless that does not answer.
    pub fn close(&self) {
        let (inbox, (done, is_done)) = (self.inbox.clone(), mpsc::channel());
        let close = move || {
            inbox.close();
            let _ = done.send(());
        };
        let closing = thread::Builder::new().name("close".to_owned()).spawn(close);
        if closing.is_ok() && is_done.recv_timeout(2 * PATIENCE).is_err() {
            log::warn!("the store does not answer; what is not on its disk yet is lost");
        }
    }
}

fn work(reports: &Reports, inbox: &Inbox) {
    make_prompt(0);
    let mut file_view = None;
    loop {
        let job = inbox.jobs.next(&mut file_view);
        run(job, inbox, &mut file_view, reports);
        // The answers are given: a slow disk holds up nobody now.
        if let Some(cache) = inbox.opened().filter(|cache| cache.is_writing_due()) {
            cache.flush();
        }
    }
}

fn run(job: Job, inbox: &Inbox, file_view: &mut Option<FileView>, reports: &Reports) {
    let asked = match &job {
        Job::Ask(question) => question.wishes.store.as_deref(),
        Job::Other { store, .. } => Some(store.as_path()),
        Job::Keep { .. } | Job::Leave(_) | Job::Write => None,
    };
    let cache = inbox.cache(asked);
    match (job, cache) {
        (Job::Ask(question), Ok(cache)) => {
            let who = question.who;
            let _work = question.claim.begin_work();
            // There is none if it waits for somebody else's command.
            if let Some(answer) = cache.ask(question, file_view) {
                reports.put(Done::Answered { who, answer });
            }
        }
        (Job::Ask(question), Err(words)) => {
            let answer = Answer::Uncached(Uncached {
                argv: None,
                why: UncachedReason::NoStore,
                words,
                is_unknown: false,
            });
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
            let taken = cache.take(*ticket, &ended);
            let is_awaited = taken.as_ref().is_ok_and(Unstored::is_awaited);
            // What was read after its client had left it may be another's. Who awaits what is stored may leave until then.
            if claim.is_given_up() || !(is_awaited || claim.answer()) {
                return;
            }
            match taken {
                Ok(unstored) if is_awaited => {
                    let kept = cache.store(unstored);
                    if claim.answer() {
                        reports.put(Done::Kept { who, kept });
                    }
                }
                Ok(unstored) => {
                    inbox.count_unstored(1);
                    reports.put(Done::Kept { who, kept: Ok(None) });
                    if let Err(unkept) = cache.store(unstored) {
                        log::debug!("not stored: {}", unkept.words);
                    }
                    inbox.count_unstored(-1);
                }
                Err(unkept) => reports.put(Done::Kept { who, kept: Err(unkept) }),
            }
        }
        (Job::Keep { who, .. }, Err(words)) => {
            let kept = Err(Unkept::new(UnstoredReason::StoreFailed, words));
            reports.put(Done::Kept { who, kept });
        }
        (Job::Leave(left), cache) => {
            if let Ok(cache) = cache {
                cache.leave(&left.0, &left.1);
            }
        }
        (Job::Write, cache) => {
            if let Ok(cache) = cache {
                cache.flush();
            }
        }
        (Job::Other { who, work, .. }, cache) => {
            // Whoever has run a command finds what came of it.
            inbox.settle();
            let result = cache.map(|cache| work(&cache));
            reports.put(Done::Other { who, result });
        }
    }
}
