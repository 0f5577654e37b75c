//! The threads that start commands.
//!
//! Between `clone` and `execve` the starting thread is suspended, for most of a millisecond with large programs. A
//! single thread could start only some thousand commands a second. When several commands can start, the event loop
//! hands them to these threads, and gets the processes through a mailbox. A single command it starts itself.

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

/// More threads would only wait for each other in the kernel.
const MOST: usize = 16;

/// A command to be started.
pub struct Job {
    pub key: CommandKey,
    pub order: Arc<Order>,
    pub what: What,
    /// How it is observed.
    pub log: Option<Log>,
    /// The command's streams. `None` is the null device.
    pub stdio: Arc<[Option<OwnedFd>; 3]>,
    pub processor: Option<usize>,
    /// Where to write its process number for the guardian.
    pub roster_entry: Option<(usize, &'static AtomicI32)>,
    /// A start that has begun in the event loop, and that a starter waits for.
    pub awaited: Option<Box<Awaited>>,
}

/// Where a command writes its trace, and the environment for that if the program is not parked.
pub struct Log {
    pub place: Place,
    pub env: Strings,
    /// The command line that runs it under observation, if it is not its own.
    pub argv: Option<Strings>,
}

/// The whole command, or what is left of it.
pub enum What {
    Command,
    Part(Part),
    /// Its driver, with the statuses of the parts.
    Driver(Vec<i32>),
}

pub struct Started {
    pub key: CommandKey,
    pub at: Instant,
    pub child: Result<Child, NotStarted>,
    pub is_parked: bool,
    /// What is left of the command after this process.
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
    own: Starter,
    starting: Starting,
    /// Threads that run, and their limit. A thread never ends: the processes that it has started would end with it.
    threads: usize,
    most: usize,
    /// Jobs that are not done yet.
    open: Arc<AtomicUsize>,
}

/// What the threads share.
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
        let own = Starter::new(null.clone(), parking.clone())?;
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

    /// Has a thread start a command. If the system gives us no thread, the event loop starts it and waits.
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
            // The threads commands as long as we do.
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

    /// Starts a command in the calling thread, which is faster if there is nothing else to do. If a part of the start
    /// has to wait, a thread finishes it.
    pub fn start_here(&mut self, job: Job) -> Option<Started> {
        match self.own.start(job, true) {
            Ok(started) => Some(started),
            Err(job) => {
                self.start(*job);
                None
            }
        }
    }

    /// Readable when commands have been started.
    pub fn bell(&self) -> &Bell {
        &self.starting.started.bell
    }

    pub fn take_started(&self) -> Vec<Started> {
        self.starting.started.take()
    }
}

fn work(starting: Starting, open: &AtomicUsize) {
    make_prompt(0);
    let mut hand = Starter::new(starting.null.clone(), starting.parking.clone());
    loop {
        let job = starting.orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let started = match &mut hand {
            Ok(hand) => match hand.start(job, false) {
                Ok(started) => started,
                // Only a start with `no_wait` returns the job.
                Err(job) => Started::not(job.key, &io::ErrorKind::WouldBlock.into()),
            },
            Err(error) => Started::not(job.key, error),
        };
        open.fetch_sub(1, Ordering::Relaxed);
        starting.started.put(started);
    }
}

/// What a thread needs to start commands.
struct Starter {
    spawner: Spawner,
    null: Arc<OwnedFd>,
    parking: Arc<Parking>,
}

impl Starter {
    fn new(null: Arc<OwnedFd>, parking: Arc<Parking>) -> io::Result<Starter> {
        let spawner = Spawner::new()?;
        Ok(Starter { spawner, null, parking })
    }

    /// Starts a command. Closes our copies of the command's ends of its pipes, so that they end with the command. With
    /// `no_wait`, a job that would have to wait is returned.
    fn start(&mut self, mut job: Job, no_wait: bool) -> Result<Started, Box<Job>> {
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
            (What::Command, None) => self.parking.start(&launch, job.roster_entry, &job.stdio, no_wait),
            (What::Part(_), None) => self.parking.start_part(&launch, job.roster_entry, no_wait),
            (What::Driver(_), None) if no_wait => Turn::Busy,
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
