//! The threads that start commands.
//!
//! Between `clone` and `execve` the starting thread stands still, for most of a millisecond where programs are large or
//! memory is slow to map; one thread would so limit a machine with many processors to some thousand commands a second.
//! When several commands can start, the event loop hands them to the starters, and hears of children through a mailbox; a
//! single one it starts itself. The busier the engine, the more commands come together.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use log::debug;

use super::command::Order;
use super::slots::CommandKey;
use crate::observe::trace::Place;
use crate::park::{Awaited, Begun, NextParts, Parking, Part, Turn};
use crate::process::context::{self, Adjustment};
use crate::process::headroom::Headroom;
use crate::process::mailbox::{Bell, Mailbox};
use crate::process::prompt::make_prompt;
use crate::process::spawn::{Child, Launch, NotStarted, Spawner};
use crate::wire::{Stdio, Strings};

/// More threads than this only wait for each other in the kernel.
const MOST: usize = 16;

/// A command to be started.
pub struct Job {
    pub key: CommandKey,
    pub order: Arc<Order>,
    pub what: What,
    /// It notes what it does.
    pub log: Option<Log>,
    /// What the command gets as its streams, where that is not the null device.
    pub stdio: Arc<[Option<OwnedFd>; 3]>,
    pub processor: Option<usize>,
    /// Where to note its process for the guardian.
    pub roster_entry: Option<(usize, &'static AtomicI32)>,
    /// It was begun in haste, and is to be waited for.
    pub awaited: Option<Box<Awaited>>,
}

/// Where a command notes what it does, and the environment in which a program does so that is not parked.
pub struct Log {
    pub place: Place,
    pub env: Strings,
    /// The command line by which it is observed, where that is not its own.
    pub argv: Option<Strings>,
}

/// The whole of a command or what is left of it.
pub enum What {
    Command,
    Part(Part),
    /// Its driver, which is told how the parts ended.
    Driver(Vec<i32>),
}

/// What became of a job.
pub struct Started {
    pub key: CommandKey,
    pub at: Instant,
    pub child: Result<Child, NotStarted>,
    /// In a parked program.
    pub is_parked: bool,
    /// What is left of the command when this ends.
    pub next_parts: Option<NextParts>,
}

impl Started {
    fn not(key: CommandKey, error: &io::Error) -> Started {
        Started {
            key,
            at: Instant::now(),
            child: Err(NotStarted::engine(error)),
            is_parked: false,
            next_parts: None,
        }
    }
}

pub struct Starters {
    jobs: Sender<Job>,
    own: Hand,
    starting: Starting,
    /// How many threads there are, and how many there may be. None ends: what it has started would end with it.
    threads: usize,
    most: usize,
    /// Jobs that no thread has done yet.
    open: Arc<AtomicUsize>,
}

/// What a thread needs to be one of the starters.
#[derive(Clone)]
struct Starting {
    orders: Arc<Mutex<Receiver<Job>>>,
    started: Arc<Mailbox<Started>>,
    null: Arc<OwnedFd>,
    parking: Arc<Parking>,
}

impl Starters {
    pub fn new(parking: &Arc<Parking>) -> io::Result<Starters> {
        let (jobs, orders) = mpsc::channel();
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let null = Arc::new(OwnedFd::from(null));
        let most = thread::available_parallelism().map_or(1, |n| n.get().min(MOST));
        let own = Hand::new(null.clone(), parking.clone())?;
        Ok(Starters {
            jobs,
            own,
            starting: Starting {
                orders: Arc::new(Mutex::new(orders)),
                started: Arc::new(Mailbox::new()?),
                null,
                parking: parking.clone(),
            },
            threads: 0,
            most: if Headroom::find().is_ample() { most } else { 1 },
            open: Arc::default(),
        })
    }

    /// Has one of the threads start a command. Where the system gives us none, the caller's does, and waits.
    pub fn start(&mut self, job: Job) {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        if open > self.threads && self.threads < self.most {
            let (starting, open) = (self.starting.clone(), self.open.clone());
            let work = move || work(starting, &open);
            match thread::Builder::new().name("start".to_owned()).spawn(work) {
                Ok(_) => self.threads += 1,
                Err(error) => debug!("no thread to start commands: {error}"),
            }
        }
        if self.threads > 0 {
            // The threads live as long as we do.
            let _ = self.jobs.send(job);
            return;
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        let key = job.key;
        let started = self.own.start(job, false);
        self.starting
            .started
            .put(started.unwrap_or_else(|_| Started::not(key, &io::ErrorKind::WouldBlock.into())));
    }

    /// Starts a command in the caller's thread: quicker than to wake another, where nothing else is to be done. What would
    /// have to be waited for goes to one of the threads after all.
    pub fn start_here(&mut self, job: Job) -> Option<Started> {
        match self.own.start(job, true) {
            Ok(started) => Some(started),
            Err(job) => {
                self.start(*job);
                None
            }
        }
    }

    /// Readable when there is something to hear.
    pub fn bell(&self) -> &Bell {
        &self.starting.started.bell
    }

    pub fn hear(&self) -> Vec<Started> {
        self.starting.started.take()
    }
}

/// What one thread does.
fn work(starting: Starting, open: &AtomicUsize) {
    make_prompt(0);
    let mut hand = Hand::new(starting.null.clone(), starting.parking.clone());
    loop {
        let job = starting.orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let started = match &mut hand {
            Ok(hand) => match hand.start(job, false) {
                Ok(started) => started,
                // Only who is in haste leaves anything to others.
                Err(job) => Started::not(job.key, &io::ErrorKind::WouldBlock.into()),
            },
            Err(error) => Started::not(job.key, error),
        };
        open.fetch_sub(1, Ordering::Relaxed);
        starting.started.put(started);
    }
}

/// What a thread needs to start commands.
struct Hand {
    spawner: Spawner,
    null: Arc<OwnedFd>,
    parking: Arc<Parking>,
}

impl Hand {
    fn new(null: Arc<OwnedFd>, parking: Arc<Parking>) -> io::Result<Hand> {
        let spawner = Spawner::new()?;
        Ok(Hand { spawner, null, parking })
    }

    /// Starts one; the command's ends of its pipes are closed on return, so that they end when it does. Who is in `haste`
    /// gets a job back that would take time.
    fn start(&mut self, mut job: Job, haste: bool) -> Result<Started, Box<Job>> {
        let awaited = job.awaited.take();
        let order = &*job.order;
        let end = |i: usize| job.stdio[i].as_ref().unwrap_or(&self.null).as_fd();
        let stderr = match order.execute.stdio[2] {
            Stdio::SameAsStdout => end(1),
            _ => end(2),
        };
        let group = order.control_group.clone().map(Adjustment::ControlGroup);
        let pin = job.processor.map(context::pin);
        let whole = Launch {
            argv: &order.execute.argv,
            env: &order.env,
            cwd: &order.execute.cwd,
            stdio: [end(0), end(1), stderr],
            new_session: order.execute.new_session,
            context: &order.context,
            adjustments: &order.adjustments,
            roster_entry: job.roster_entry.map(|(_, place)| place),
            log: job.log.as_ref().map(|log| log.place).unwrap_or_default(),
            own: [group, pin, None],
        };
        let launch = match &job.what {
            What::Part(part) => part.launch(&whole),
            _ => whole,
        };
        let turn = match (&job.what, awaited) {
            (_, Some(awaited)) => self.parking.resume(awaited, job.roster_entry),
            (What::Command, None) => self.parking.start(&launch, job.roster_entry, &job.stdio, haste),
            (What::Part(_), None) => self.parking.start_part(&launch, job.roster_entry, haste),
            (What::Driver(_), None) if haste => Turn::Busy,
            (What::Driver(statuses), None) => {
                match self.parking.conclude(&launch, job.roster_entry, statuses.clone()) {
                    Ok(child) => Turn::Parked(Begun {
                        child,
                        next_parts: None,
                    }),
                    Err(reason) => {
                        debug!("a driver was not told how its parts ended: {reason}");
                        return Ok(Started::not(job.key, &io::ErrorKind::Other.into()));
                    }
                }
            }
        };
        let is_parked = matches!(turn, Turn::Parked(_));
        let begun = match turn {
            Turn::Parked(begun) => Ok(begun),
            Turn::Plain => {
                let env = job.log.as_ref().map_or(launch.env, |log| &log.env);
                let argv = job
                    .log
                    .as_ref()
                    .and_then(|log| log.argv.as_ref())
                    .unwrap_or(launch.argv);
                let launch = Launch { env, argv, ..launch };
                self.spawner.spawn(&launch).map(|child| Begun {
                    child,
                    next_parts: None,
                })
            }
            Turn::Busy => return Err(Box::new(job)),
            Turn::Awaited(awaited) => {
                job.awaited = Some(awaited);
                return Err(Box::new(job));
            }
        };
        let at = Instant::now();
        let (child, next_parts) = match begun {
            Ok(begun) => (Ok(begun.child), begun.next_parts),
            Err(why) => (Err(why), None),
        };
        Ok(Started {
            key: job.key,
            at,
            child,
            is_parked,
            next_parts,
        })
    }
}
