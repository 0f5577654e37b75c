//! Threads that carry what is large to the store and back, so that no worker waits for a disk for long.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use super::mailbox::{Letter, Mailbox};
use super::outbox::Body;
use super::value_store::{NotStored, Value, ValueStore};
use crate::process::fault;

/// What a connection has asked for and waits for.
pub enum Job {
    /// It takes its time: a porter's.
    Carry(DiskWork),
    /// Several are done in not much more time than one: the worker's, when it has heard all who have said something.
    Keep(Value),
}

pub type DiskWork = Box<dyn FnOnce(&ValueStore) -> Done + Send>;

impl Job {
    pub fn carry(disk_work: impl FnOnce(&ValueStore) -> Done + Send + 'static) -> Job {
        Job::Carry(Box::new(disk_work))
    }
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    Opened(Option<Body>),
    Stored(Result<(), NotStored>),
}

struct Load {
    disk_work: DiskWork,
    to: Arc<Mailbox>,
    connection: u64,
}

pub struct DiskThreads {
    loads: Mutex<Option<Sender<Load>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl DiskThreads {
    pub fn start(count: usize, values: &Arc<ValueStore>) -> io::Result<DiskThreads> {
        let (loads, taken) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        let start = |_| {
            let (taken, values) = (taken.clone(), values.clone());
            thread::Builder::new()
                .name("porter".to_owned())
                .spawn(move || carry(&taken, &values))
        };
        let threads = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(DiskThreads {
            loads: Mutex::new(Some(loads)),
            threads: Mutex::new(threads),
        })
    }

    pub fn carry(&self, disk_work: DiskWork, to: &Arc<Mailbox>, connection: u64) {
        let to = to.clone();
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        // Without disk threads the server is at its end, and nobody waits for the answer.
        let _ = loads.as_ref().map(|loads| {
            loads.send(Load {
                disk_work,
                to,
                connection,
            })
        });
    }

    /// Returns when all that was given to them is done.
    pub fn finish(&self) {
        drop(self.loads.lock().unwrap_or_else(PoisonError::into_inner).take());
        let threads = mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn carry(loads: &Mutex<Receiver<Load>>, values: &ValueStore) {
    loop {
        let next = loads.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(load) = next else { return };
        let done = fault::contain(|| (load.disk_work)(values));
        load.to.put(match done {
            Some(done) => Letter::Done(load.connection, done),
            None => Letter::Fault(load.connection),
        });
    }
}
