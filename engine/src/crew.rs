//! The threads that start commands.
//!
//! Between `clone` and `execve` the starting thread stands still, for most of a millisecond where programs are large or
//! memory is slow to map; one thread would so limit a machine with many processors to some thousand commands a second. The
//! event loop hands orders to the crew and hears of children through an `eventfd`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicI32;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::event::{eventfd, EventfdFlags};

use crate::command::Order;
use crate::context::{self, Adjustment};
use crate::slots::CommandKey;
use crate::spawn::{Child, Launch, NotStarted, Spawner};
use crate::wire::Stdio;

/// More threads than this only wait for each other in the kernel.
const MOST: usize = 16;

/// A command to be started.
pub struct Job {
    pub key: CommandKey,
    pub order: Arc<Order>,
    /// What the command gets as its streams, where that is not the null device.
    pub stdio: [Option<OwnedFd>; 3],
    pub processor: Option<usize>,
    /// Where to note its process for the guardian.
    pub berth: Option<&'static AtomicI32>,
}

/// What became of a job.
pub struct Started {
    pub key: CommandKey,
    pub at: Instant,
    pub child: Result<Child, NotStarted>,
}

pub struct Crew {
    jobs: Sender<Job>,
    started: Receiver<Started>,
    bell: Arc<OwnedFd>,
}

impl Crew {
    pub fn new() -> io::Result<Crew> {
        let (jobs, orders) = mpsc::channel();
        let (reports, started) = mpsc::channel();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags)?);
        let null: OwnedFd = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into();
        let null = Arc::new(null);
        let orders = Arc::new(Mutex::new(orders));
        let count = thread::available_parallelism().map_or(1, |n| n.get().min(MOST));
        for _ in 0..count {
            let hand = Hand {
                orders: orders.clone(),
                reports: reports.clone(),
                bell: bell.clone(),
                null: null.clone(),
            };
            thread::Builder::new()
                .name("start".to_owned())
                .spawn(move || hand.work())?;
        }
        Ok(Crew { jobs, started, bell })
    }

    pub fn start(&self, job: Job) {
        // The threads live as long as we do.
        let _ = self.jobs.send(job);
    }

    /// The descriptor that is readable when there is something to hear.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    pub fn hear(&self) -> Vec<Started> {
        // Only to silence it; what it has counted is in the channel.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.started.try_iter().collect()
    }
}

/// One thread.
struct Hand {
    orders: Arc<Mutex<Receiver<Job>>>,
    reports: Sender<Started>,
    bell: Arc<OwnedFd>,
    null: Arc<OwnedFd>,
}

impl Hand {
    fn work(self) {
        let mut spawner = Spawner::new();
        loop {
            let job = self.orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            let key = job.key;
            let child = match &mut spawner {
                Ok(spawner) => self.start(spawner, job),
                Err(error) => Err(NotStarted::engine(error)),
            };
            let at = Instant::now();
            let _ = self.reports.send(Started { key, at, child });
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Starts one; the command's ends of its pipes are closed on return, so that they end when it does.
    fn start(&self, spawner: &mut Spawner, job: Job) -> Result<Child, NotStarted> {
        let order = &*job.order;
        let end = |i: usize| job.stdio[i].as_ref().unwrap_or(&self.null).as_fd();
        let stderr = match order.execute.stdio[2] {
            Stdio::SameAsStdout => end(1),
            _ => end(2),
        };
        let group = order.control_group.clone().map(Adjustment::ControlGroup);
        let pin = job.processor.map(context::pin);
        spawner.spawn(&Launch {
            argv: &order.execute.argv,
            env: &order.env,
            cwd: &order.execute.cwd,
            stdio: [end(0), end(1), stderr],
            new_session: order.execute.new_session,
            context: &order.context,
            adjustments: &order.adjustments,
            berth: job.berth,
            own: [group, pin],
        })
    }
}
