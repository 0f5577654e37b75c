//! Threads that read and write large contents, so that no worker waits for a disk for long.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use super::mailbox::{Mailbox, Message};
use super::outbox::Body;
use super::value_store::{NotStored, Value, ValueStore};
use crate::process::fault;

/// Work that a connection waits for.
pub enum Job {
    /// Slow work, which a disk thread does.
    OnDisk(DiskWork),
    /// A small value. The worker stores all values of one round together, which takes hardly longer than storing one.
    Store(Value),
}

pub type DiskWork = Box<dyn FnOnce(&ValueStore) -> Done + Send>;

impl Job {
    pub fn on_disk(disk_work: impl FnOnce(&ValueStore) -> Done + Send + 'static) -> Job {
        Job::OnDisk(Box::new(disk_work))
    }
}

/// The result of a job.
#[derive(Debug)]
pub enum Done {
    Opened(Option<Body>),
    Stored(Result<(), NotStored>),
}

struct Task {
    disk_work: DiskWork,
    to: Arc<Mailbox>,
    connection: u64,
}

pub struct DiskThreads {
    tasks: Mutex<Option<Sender<Task>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl DiskThreads {
    pub fn start(count: usize, values: &Arc<ValueStore>) -> io::Result<DiskThreads> {
        let (tasks, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let start = |_| {
            let (queue, values) = (queue.clone(), values.clone());
            thread::Builder::new()
                .name("porter".to_owned())
                .spawn(move || work(&queue, &values))
        };
        let threads = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(DiskThreads {
            tasks: Mutex::new(Some(tasks)),
            threads: Mutex::new(threads),
        })
    }

    pub fn start_job(&self, disk_work: DiskWork, to: &Arc<Mailbox>, connection: u64) {
        let to = to.clone();
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Without disk threads the server is about to end, and no connection waits for the result.
        let _ = tasks.as_ref().map(|tasks| {
            tasks.send(Task {
                disk_work,
                to,
                connection,
            })
        });
    }

    /// Returns when all jobs are done.
    pub fn finish(&self) {
        drop(self.tasks.lock().unwrap_or_else(PoisonError::into_inner).take());
        let threads = mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn work(tasks: &Mutex<Receiver<Task>>, values: &ValueStore) {
    loop {
        let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = next else { return };
        let done = fault::contain(|| (task.disk_work)(values));
        task.to.put(match done {
            Some(done) => Message::Done(task.connection, done),
            None => Message::Fault(task.connection),
        });
    }
}
