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
use crate::park::{Awaited, Begun, Parking, Part, Turn};
use crate::process::context::{self, Adjustment};
use crate::process::headroom::Headroom;
use crate::process::mailbox::{Bell, Mailbox};
use crate::process::prompt::make_prompt;
use crate::process::spawn::{Child, Launch, NotStarted, Spawner};
use crate::wire::{Stdio, Strings};

/// More threads would only wait for each other in the kernel.
const MAX_THREADS: usize = 16;

/// A command to be started.
pub struct Job {
    pub key: CommandKey,
    pub order: Arc<Order>,
    pub work: Work,
    /// How it is observed.
    pub trace: Option<TraceSetup>,
    /// The command's streams. `None` is the null device.
    pub stdio: Arc<[Option<OwnedFd>; 3]>,
    pub processor: Option<usize>,
    /// Where to write its process number for the guardian.
    pub roster_entry: Option<(usize, &'static AtomicI32)>,
    /// A start that has begun in the event loop, and that a starter waits for.
    pub awaited: Option<Box<Awaited>>,
}

impl Job {
    fn begins_anew(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.begins_anew)
    }
}

/// Where a command writes its trace, and the environment for that if the program is not parked.
pub struct TraceSetup {
    pub place: Place,
    pub env: Strings,
    /// The command line that runs it under observation, if it is not its own.
    pub argv: Option<Strings>,
    /// It is not parked, because it must be observed from its beginning.
    pub begins_anew: bool,
}

/// The whole command, or what is left of it.
pub enum Work {
    Command,
    Part(Part),
    /// Its driver, with the statuses of the parts.
    Driver(Vec<i32>),
}

pub struct Started {
    pub key: CommandKey,
    pub at: Instant,
    pub begun: Result<Begun, NotStarted>,
    pub is_parked: bool,
}

impl Started {
    fn not(key: CommandKey, error: &io::Error) -> Started {
        Started {
            key,
            at: Instant::now(),
            begun: Err(NotStarted::engine(error)),
            is_parked: false,
        }
    }
}

pub struct Starters {
    jobs: Sender<Job>,
    own: Starter,
    shared: Shared,
    /// Threads that run, and their limit. A thread never ends: the processes that it has started would end with it.
    threads: usize,
    most: usize,
    /// Jobs that are not done yet.
    open: Arc<AtomicUsize>,
}

/// What the threads share.
#[derive(Clone)]
struct Shared {
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
        let most = thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS));
        let own = Starter::new(null.clone(), parking.clone())?;
        Ok(Starters {
            jobs,
            own,
            shared: Shared {
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
            let (shared, open) = (self.shared.clone(), self.open.clone());
            let work = move || work(shared, &open);
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
        self.shared
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
        &self.shared.started.bell
    }

    pub fn take_started(&self) -> Vec<Started> {
        self.shared.started.take()
    }
}

fn work(shared: Shared, open: &AtomicUsize) {
    make_prompt(0);
    let mut inheritance = Starter::new(shared.null.clone(), shared.parking.clone());
    loop {
        let job = shared.orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let started = match &mut inheritance {
            Ok(inheritance) => match inheritance.start(job, false) {
                Ok(started) => started,
                // Only a start with `no_wait` returns the job.
                Err(job) => Started::not(job.key, &io::ErrorKind::WouldBlock.into()),
            },
            Err(error) => Started::not(job.key, error),
        };
        open.fetch_sub(1, Ordering::Relaxed);
        shared.started.put(started);
    }
}

/// A process after which nothing of the command is left.
fn whole_of(child: Child) -> Begun {
    let next_parts = None;
    Begun { child, next_parts }
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
            log: job.trace.as_ref().map(|trace| trace.place).unwrap_or_default(),
            own: [group, pin, None],
        };
        let launch = match &job.work {
            Work::Part(part) => part.launch(&whole),
            _ => whole,
        };
        let turn = match (&job.work, awaited) {
            (_, Some(awaited)) => self.parking.resume(awaited, job.roster_entry),
            (Work::Command, None) if job.begins_anew() => Turn::Plain,
            (Work::Command, None) => self.parking.start(&launch, job.roster_entry, &job.stdio, no_wait),
            (Work::Part(_), None) => self.parking.start_part(&launch, job.roster_entry, no_wait),
            (Work::Driver(_), None) if no_wait => Turn::Busy,
            (Work::Driver(statuses), None) => {
                match self.parking.conclude(&launch, job.roster_entry, statuses.clone()) {
                    Ok(child) => Turn::Parked(whole_of(child)),
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
                let env = job.trace.as_ref().map_or(launch.env, |trace| &trace.env);
                let argv = job
                    .trace
                    .as_ref()
                    .and_then(|trace| trace.argv.as_ref())
                    .unwrap_or(launch.argv);
                let launch = Launch { env, argv, ..launch };
                self.spawner.spawn(&launch).map(whole_of)
            }
            Turn::Busy => return Err(Box::new(job)),
            Turn::Awaited(awaited) => {
                job.awaited = Some(awaited);
                return Err(Box::new(job));
            }
        };
        Ok(Started {
            key: job.key,
            at: Instant::now(),
            begun,
            is_parked,
        })
    }
}
