//! The threads that ask the cache and keep for it: files are looked at and read there, so that the event loop waits for
//! no disk.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{eventfd, EventfdFlags};

use super::answer::{Answer, Question, Ticket, Uncached};
use super::inputs::Inputs;
use super::keep::{Ended, Unkept};
use super::trace::Berth;
use super::world::Moment;
use super::Cache;
use crate::prompt::make_prompt;

/// More only wait for each other.
const MOST: usize = 8;
/// After this a store that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Something that is done with the cache, and its answer as bytes.
pub type Work = Box<dyn FnOnce(&Cache) -> Vec<u8> + Send>;

pub enum Errand {
    Ask(Question),
    Keep {
        who: u64,
        ticket: Box<Ticket>,
        ended: Box<Ended>,
        berth: Berth,
    },
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

pub struct Clerks {
    errands: Sender<Errand>,
    done: Receiver<Done>,
    bell: Arc<OwnedFd>,
    desk: Arc<Desk>,
}

/// Opens the store; the one that is asked for, if there is the choice.
type Open = dyn Fn(Sender<Errand>, Option<&Path>) -> Result<Cache, String> + Send + Sync;

/// What all of them share.
struct Desk {
    opening: Mutex<Opening>,
    open: Box<Open>,
    /// For questions that come again.
    errands: Mutex<Sender<Errand>>,
    /// Set once it is open: for whoever must not wait until it is.
    opened: OnceLock<Weak<Cache>>,
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
        let errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (self.open)(errands, asked) {
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

impl Clerks {
    pub fn new(open: Box<Open>) -> io::Result<Clerks> {
        let (errands, tasks) = mpsc::channel();
        let (reports, done) = mpsc::channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let tasks = Arc::new(Mutex::new(tasks));
        let desk = Arc::new(Desk {
            opening: Mutex::new(Opening::Never),
            open,
            errands: Mutex::new(errands.clone()),
            opened: OnceLock::new(),
        });
        let count = thread::available_parallelism().map_or(2, |n| n.get().clamp(2, MOST));
        for _ in 0..count {
            let (tasks, reports, bell, desk) = (tasks.clone(), reports.clone(), bell.clone(), desk.clone());
            let work = move || work(&tasks, &reports, &bell, &desk);
            thread::Builder::new().name("cache".to_owned()).spawn(work)?;
        }
        Ok(Clerks {
            errands,
            done,
            bell,
            desk,
        })
    }

    pub fn send(&self, errand: Errand) {
        // The threads live as long as we do.
        let _ = self.errands.send(errand);
    }

    /// The descriptor that is readable when there is something to hear.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    pub fn hear(&self) -> Vec<Done> {
        // Only to silence it; what it has counted is in the channel.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.done.try_iter().collect()
    }

    /// The cache if it is open; never waits.
    pub fn opened(&self) -> Option<Arc<Cache>> {
        self.desk.opened.get()?.upgrade()
    }

    /// Has all that is kept in memory on disk.
    pub fn close(&self) {
        let mut opening = self.desk.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Opening::Open(cache) = std::mem::replace(&mut *opening, Opening::Never) {
            cache.flush();
        }
    }
}

fn work(tasks: &Mutex<Receiver<Errand>>, reports: &Sender<Done>, bell: &OwnedFd, desk: &Desk) {
    make_prompt(0);
    let mut moment = None;
    loop {
        let Some(errand) = next(tasks, &mut moment) else { return };
        let Some(done) = run(errand, desk, &mut moment) else {
            continue;
        };
        let _ = reports.send(done);
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// Whoever comes after all have been served finds the world at a moment of its own.
fn next(tasks: &Mutex<Receiver<Errand>>, moment: &mut Option<Moment>) -> Option<Errand> {
    let tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
    tasks.try_recv().ok().or_else(|| {
        *moment = None;
        tasks.recv().ok()
    })
}

/// `None` if somebody waits for somebody else.
fn run(errand: Errand, desk: &Desk, moment: &mut Option<Moment>) -> Option<Done> {
    let asked = match &errand {
        Errand::Ask(question) => question.wishes.store.as_deref(),
        Errand::Other { store, .. } => Some(store.as_path()),
        Errand::Keep { .. } => None,
    };
    let cache = desk.cache(asked);
    match (errand, cache) {
        (Errand::Ask(question), Ok(cache)) => {
            let who = question.who;
            let answer = cache.ask(question, moment)?;
            Some(Done::Answered { who, answer })
        }
        (Errand::Ask(question), Err(why)) => {
            let (name, words) = ("no store", why);
            let answer = Answer::Uncached(Uncached { name, words });
            let who = question.who;
            Some(Done::Answered { who, answer })
        }
        (
            Errand::Keep {
                who,
                ticket,
                mut ended,
                berth,
            },
            Ok(cache),
        ) => {
            ended.accesses = berth.finish();
            let kept = cache.keep(*ticket, &ended);
            Some(Done::Kept { who, kept })
        }
        (Errand::Keep { who, .. }, Err(why)) => {
            let (name, words) = ("the store failed", why);
            let kept = Err(Unkept { name, words });
            Some(Done::Kept { who, kept })
        }
        (Errand::Other { who, work, .. }, cache) => {
            let result = cache.map(|cache| work(&cache));
            Some(Done::Other { who, result })
        }
    }
}
