//! The threads that ask the cache and keep for it: files are looked at and read there, so that the event loop waits for
//! no disk.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use rustix::event::{eventfd, EventfdFlags};

use super::answer::{Answer, Question, Ticket, Uncached};
use super::keep::{Ended, Unkept};
use super::trace::Berth;
use super::Cache;
use crate::prompt::make_prompt;

/// More only wait for each other.
const MOST: usize = 8;

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
    /// Anything else that somebody waits for.
    Other {
        who: u64,
        work: Work,
    },
}

pub enum Done {
    Answered { who: u64, answer: Answer },
    Kept { who: u64, kept: Result<(), Unkept> },
    Other { who: u64, result: Result<Vec<u8>, String> },
}

pub struct Clerks {
    errands: Sender<Errand>,
    done: Receiver<Done>,
    bell: Arc<OwnedFd>,
    desk: Arc<Desk>,
}

/// What all of them share.
struct Desk {
    /// Opened when somebody asks for the first time: most engines are never asked.
    cache: OnceLock<Result<Arc<Cache>, String>>,
    open: Box<dyn Fn(Sender<Errand>) -> Result<Cache, String> + Send + Sync>,
    /// For questions that come again.
    errands: Mutex<Sender<Errand>>,
}

impl Desk {
    fn cache(&self) -> Result<&Arc<Cache>, &str> {
        let open = || {
            let errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (self.open)(errands).map(Arc::new)
        };
        self.cache.get_or_init(open).as_ref().map_err(String::as_str)
    }
}

impl Clerks {
    pub fn new(open: impl Fn(Sender<Errand>) -> Result<Cache, String> + Send + Sync + 'static) -> io::Result<Clerks> {
        let (errands, tasks) = mpsc::channel();
        let (reports, done) = mpsc::channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let tasks = Arc::new(Mutex::new(tasks));
        let desk = Arc::new(Desk {
            cache: OnceLock::new(),
            open: Box::new(open),
            errands: Mutex::new(errands.clone()),
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

    /// Has all that is kept in memory on disk.
    pub fn close(&self) {
        if let Some(Ok(cache)) = self.desk.cache.get() {
            cache.flush();
        }
    }
}

fn work(tasks: &Mutex<Receiver<Errand>>, reports: &Sender<Done>, bell: &OwnedFd, desk: &Desk) {
    make_prompt(0);
    loop {
        let errand = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(errand) = errand else { return };
        let Some(done) = run(errand, desk) else { continue };
        let _ = reports.send(done);
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// `None` if somebody waits for somebody else.
fn run(errand: Errand, desk: &Desk) -> Option<Done> {
    let cache = desk.cache();
    match (errand, cache) {
        (Errand::Ask(question), Ok(cache)) => {
            let who = question.who;
            let answer = cache.ask(question)?;
            Some(Done::Answered { who, answer })
        }
        (Errand::Ask(question), Err(why)) => {
            let (name, words) = ("no store", why.to_owned());
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
            let (name, words) = ("the store failed", why.to_owned());
            let kept = Err(Unkept { name, words });
            Some(Done::Kept { who, kept })
        }
        (Errand::Other { who, work }, cache) => {
            let result = cache.map(|cache| work(cache)).map_err(str::to_owned);
            Some(Done::Other { who, result })
        }
    }
}
