//! Threads that carry what is large to the store and back, so that no worker waits for a disk for long.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use super::mailbox::{Letter, Mailbox};
use super::outbox::Body;
use super::shelf::{NotStored, Shelf, Value};
use crate::process::fault;

/// What a connection has asked for and waits for.
pub enum Errand {
    /// It takes its time: a porter's.
    Carry(Deed),
    /// Several are done in not much more time than one: the worker's, when it has heard all who have said something.
    Keep(Value),
}

pub type Deed = Box<dyn FnOnce(&Shelf) -> Done + Send>;

impl Errand {
    pub fn carry(deed: impl FnOnce(&Shelf) -> Done + Send + 'static) -> Errand {
        Errand::Carry(Box::new(deed))
    }
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    Opened(Option<Body>),
    Stored(Result<(), NotStored>),
}

struct Load {
    deed: Deed,
    to: Arc<Mailbox>,
    connection: u64,
}

pub struct Porters {
    loads: Mutex<Option<Sender<Load>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Porters {
    pub fn start(count: usize, shelf: &Arc<Shelf>) -> io::Result<Porters> {
        let (loads, taken) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        let start = |_| {
            let (taken, shelf) = (taken.clone(), shelf.clone());
            thread::Builder::new()
                .name("porter".to_owned())
                .spawn(move || carry(&taken, &shelf))
        };
        let threads = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Porters {
            loads: Mutex::new(Some(loads)),
            threads: Mutex::new(threads),
        })
    }

    pub fn carry(&self, deed: Deed, to: &Arc<Mailbox>, connection: u64) {
        let to = to.clone();
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        // Without porters the server is at its end, and nobody waits for the answer.
        let _ = loads.as_ref().map(|loads| loads.send(Load { deed, to, connection }));
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

fn carry(loads: &Mutex<Receiver<Load>>, shelf: &Shelf) {
    loop {
        let next = loads.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(load) = next else { return };
        let done = fault::contain(|| (load.deed)(shelf));
        load.to.put(match done {
            Some(done) => Letter::Done(load.connection, done),
            None => Letter::Fault(load.connection),
        });
    }
}
