//! The threads that ask the cache and keep for it: files are looked at and read there, so that the event loop waits for
//! no disk.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{eventfd, EventfdFlags};

use super::answer::{Answer, Question, Ticket, Uncached};
use super::keep::{Ended, Unkept, Unstored};
use super::lookup::claim::Claim;
use super::lookup::inputs::Inputs;
use super::Cache;
use crate::facts::moment::Moment;
use crate::observe::trace::Berth;
use crate::process::prompt::make_prompt;

/// More only wait for each other.
const MOST: usize = 8;
/// After this a store that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// A store that takes longer may have died.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something that is done with the cache, and its answer as bytes.
pub type Work = Box<dyn FnOnce(&Cache) -> Vec<u8> + Send>;

pub enum Errand {
    Ask(Question),
    Keep {
        who: u64,
        ticket: Box<Ticket>,
        ended: Box<Ended>,
        berth: Berth,
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
pub struct Errands {
    state: Mutex<Waiting>,
    arrival: Condvar,
}

#[derive(Default)]
struct Waiting {
    errands: VecDeque<Errand>,
    /// So many clerks wait, too.
    clerks: usize,
}

impl Errands {
    /// Tells whether there is more to do than clerks that wait for something.
    pub fn send(&self, errand: Errand) -> bool {
        let mut state = self.state();
        state.errands.push_back(errand);
        let is_more = state.errands.len() > state.clerks;
        drop(state);
        self.arrival.notify_one();
        is_more
    }

    /// Whoever comes after all have been served finds the world at a moment of its own.
    fn next(&self, moment: &mut Option<Moment>) -> Errand {
        if let Some(errand) = self.state().errands.pop_front() {
            return errand;
        }
        if let Some(moment) = moment {
            moment.end();
        }
        let mut state = self.state();
        loop {
            if let Some(errand) = state.errands.pop_front() {
                return errand;
            }
            state.clerks += 1;
            state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.clerks -= 1;
        }
    }

    /// Nothing is to be done, and all of so many clerks wait.
    fn are_done(&self, clerks: usize) -> bool {
        let state = self.state();
        state.errands.is_empty() && state.clerks == clerks
    }

    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where it is told what was done; whoever hears it is woken.
#[derive(Clone)]
pub struct Reports {
    done: Sender<Done>,
    bell: Arc<OwnedFd>,
}

impl Reports {
    pub fn send(&self, done: Done) {
        let _ = self.done.send(done);
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

pub struct Clerks {
    errands: Arc<Errands>,
    /// How many there are, and how many there may be: another comes when all are at work.
    count: AtomicUsize,
    most: usize,
    reports: Reports,
    done: Receiver<Done>,
    desk: Arc<Desk>,
}

/// Opens the store; the one that is asked for, if there is the choice.
type Open = dyn Fn(Arc<Errands>, Option<&Path>) -> Result<Cache, String> + Send + Sync;

/// What all of them share.
struct Desk {
    opening: Mutex<Opening>,
    open: Box<Open>,
    /// For questions that come again.
    errands: Arc<Errands>,
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

impl Desk {
    fn cache(&self, asked: Option<&Path>) -> Result<Arc<Cache>, String> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opening {
            Opening::Open(cache) => return Ok(cache.clone()),
            Opening::Failed(at, why) if at.elapsed() < AGAIN => return Err(why.clone()),
            _ => {}
        }
        match (self.open)(self.errands.clone(), asked) {
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

impl Desk {
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

impl Clerks {
    pub fn new(open: Box<Open>) -> io::Result<Clerks> {
        let errands = Arc::new(Errands::default());
        let (reports, done) = mpsc::channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let reports = Reports { done: reports, bell };
        let desk = Arc::new(Desk {
            opening: Mutex::new(Opening::Never),
            open,
            errands: errands.clone(),
            opened: OnceLock::new(),
            unstored: Mutex::new(0),
            is_stored: Condvar::new(),
        });
        let clerks = Clerks {
            errands,
            count: AtomicUsize::new(0),
            most: thread::available_parallelism().map_or(2, |n| n.get().clamp(2, MOST)),
            reports,
            done,
            desk,
        };
        clerks.add()?;
        Ok(clerks)
    }

    fn add(&self) -> io::Result<()> {
        let (reports, desk) = (self.reports.clone(), self.desk.clone());
        let work = move || work(&reports, &desk);
        thread::Builder::new().name("cache".to_owned()).spawn(work)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub fn send(&self, errand: Errand) {
        let is_more = self.errands.send(errand);
        if is_more && self.count.load(Ordering::Relaxed) < self.most {
            if let Err(error) = self.add() {
                log::debug!("no other thread for the cache: {error}");
            }
        }
    }

    /// Where errands are sent.
    pub fn errands(&self) -> Arc<Errands> {
        self.errands.clone()
    }

    pub fn ask(&self, question: Question) {
        self.send(Errand::Ask(question));
    }

    /// Nobody has anything to do, and the store is open.
    pub fn are_idle(&self) -> bool {
        self.desk.opened.get().is_some() && self.errands.are_done(self.count.load(Ordering::Relaxed))
    }

    /// Somebody waits for something to do.
    pub fn has_idle(&self) -> bool {
        self.errands.state().clerks > 0
    }

    /// Where others tell what they have done.
    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// The descriptor that is readable when there is something to hear.
    pub fn bell(&self) -> &OwnedFd {
        &self.reports.bell
    }

    pub fn hear(&self) -> Vec<Done> {
        // Only to silence it; what it has counted is in the channel.
        let _ = rustix::io::read(&*self.reports.bell, &mut [0; 8]);
        self.done.try_iter().collect()
    }

    /// The cache if it is open; never waits.
    pub fn opened(&self) -> Option<Arc<Cache>> {
        self.desk.opened()
    }

    /// Has all that is kept in memory on disk, unless that does not answer.
    pub fn close(&self) {
        let (desk, (done, is_done)) = (self.desk.clone(), mpsc::channel());
        let close = move || {
            desk.close();
            let _ = done.send(());
        };
        let closing = thread::Builder::new().name("close".to_owned()).spawn(close);
        if closing.is_ok() && is_done.recv_timeout(2 * PATIENCE).is_err() {
            log::warn!("the store does not answer; what is not on its disk yet is lost");
        }
    }
}

fn work(reports: &Reports, desk: &Desk) {
    make_prompt(0);
    let mut moment = None;
    loop {
        let errand = desk.errands.next(&mut moment);
        run(errand, desk, &mut moment, reports);
        // The answers are given: a slow disk holds up nobody now.
        if let Some(cache) = desk.opened().filter(|cache| cache.is_writing_due()) {
            cache.flush();
        }
    }
}

fn run(errand: Errand, desk: &Desk, moment: &mut Option<Moment>, reports: &Reports) {
    let asked = match &errand {
        Errand::Ask(question) => question.wishes.store.as_deref(),
        Errand::Other { store, .. } => Some(store.as_path()),
        Errand::Keep { .. } | Errand::Leave(_) | Errand::Write => None,
    };
    let cache = desk.cache(asked);
    match (errand, cache) {
        (Errand::Ask(question), Ok(cache)) => {
            let who = question.who;
            let _work = question.claim.begin_work();
            // There is none if it waits for somebody else's command.
            if let Some(answer) = cache.ask(question, moment) {
                reports.send(Done::Answered { who, answer });
            }
        }
        (Errand::Ask(question), Err(words)) => {
            let answer = Answer::Uncached(Uncached {
                name: "no store",
                words,
                is_unknown: false,
            });
            let who = question.who;
            reports.send(Done::Answered { who, answer });
        }
        (
            Errand::Keep {
                who,
                ticket,
                mut ended,
                berth,
                claim,
            },
            Ok(cache),
        ) => {
            let _work = claim.begin_work();
            let parts = berth.finish_parts();
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
                        reports.send(Done::Kept { who, kept });
                    }
                }
                Ok(unstored) => {
                    desk.count_unstored(1);
                    reports.send(Done::Kept { who, kept: Ok(None) });
                    if let Err(unkept) = cache.store(unstored) {
                        log::debug!("not stored: {}", unkept.words);
                    }
                    desk.count_unstored(-1);
                }
                Err(unkept) => reports.send(Done::Kept { who, kept: Err(unkept) }),
            }
        }
        (Errand::Keep { who, .. }, Err(why)) => {
            let (name, words) = ("the store failed", why);
            let kept = Err(Unkept { name, words });
            reports.send(Done::Kept { who, kept });
        }
        (Errand::Leave(left), cache) => {
            if let Ok(cache) = cache {
                cache.leave(&left.0, &left.1);
            }
        }
        (Errand::Write, cache) => {
            if let Ok(cache) = cache {
                cache.flush();
            }
        }
        (Errand::Other { who, work, .. }, cache) => {
            // Whoever has run a command finds what came of it.
            desk.settle();
            let result = cache.map(|cache| work(&cache));
            reports.send(Done::Other { who, result });
        }
    }
}
