//! The questions that wait for a tier, the tasks of its workers, and whether it is asked at all: all the state that a
//! window changes together.

use std::collections::VecDeque;
use std::sync::Arc;

use super::breaker::Breaker;
use super::heartbeat::Heartbeat;
use super::Fault;
use crate::bytes::digest::Digest;
use crate::cache::remote::bundle::Bundle;
use crate::cache::remote::wrapped::Wrapped;

pub type Again<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;

pub enum Wait {
    Find {
        key: Digest,
        again: Again<Bundle>,
    },
    Fetch {
        wanted: Vec<Digest>,
        again: Again<Vec<Option<Wrapped>>>,
    },
}

impl Wait {
    pub fn fail(self, fault: Fault) {
        match self {
            Wait::Find { again, .. } => again(Err(fault)),
            Wait::Fetch { again, .. } => again(Err(fault)),
        }
    }
}

/// The task of a worker.
pub struct Post {
    pub heartbeat: Arc<Heartbeat>,
    /// It changes with each task, and when the task is given up.
    pub turn: u64,
    pub waits: Vec<Wait>,
}

impl Post {
    /// Gives up the task. Returns the callers that wait for it.
    pub fn give_up(&mut self) -> Vec<Wait> {
        self.turn += 1;
        self.heartbeat.rest();
        std::mem::take(&mut self.waits)
    }
}

pub struct Queue {
    pub finds: VecDeque<Wait>,
    pub fetches: VecDeque<Wait>,
    pub posts: Vec<Post>,
    pub breaker: Breaker,
    /// A worker must try whether the tier answers.
    pub is_trial_due: bool,
    /// The question that was not answered. It is asked again, because another question might be answered.
    pub asked: Digest,
    pub is_closed: bool,
}

/// What a worker asks, when it does not hold the queue any more.
pub enum Task {
    Find(Vec<Digest>),
    Fetch(Vec<Digest>),
    Trial(Digest),
}

impl Queue {
    pub fn new(workers: usize, heartbeats: impl Fn() -> Heartbeat) -> Queue {
        let post = |_| Post {
            heartbeat: Arc::new(heartbeats()),
            turn: 0,
            waits: Vec::new(),
        };
        Queue {
            finds: VecDeque::new(),
            fetches: VecDeque::new(),
            posts: (0..workers).map(post).collect(),
            breaker: Breaker::new(heartbeats().limits.pause),
            is_trial_due: false,
            asked: Digest([0; Digest::SIZE]),
            is_closed: false,
        }
    }

    /// The next task of a worker, if there is one.
    pub fn take(&mut self, number: usize, batch: usize) -> Option<Task> {
        if std::mem::take(&mut self.is_trial_due) {
            return Some(Task::Trial(self.asked));
        }
        if let Some(wait) = self.fetches.pop_front() {
            let Wait::Fetch { wanted, .. } = &wait else { return None };
            let wanted = wanted.clone();
            self.posts[number].waits = vec![wait];
            return Some(Task::Fetch(wanted));
        }
        let count = self.finds.len().min(batch);
        let waits: Vec<_> = self.finds.drain(..count).collect();
        let key = |wait: &Wait| match wait {
            Wait::Find { key, .. } => Some(*key),
            Wait::Fetch { .. } => None,
        };
        let keys: Vec<_> = waits.iter().filter_map(key).collect();
        self.posts[number].waits = waits;
        (count > 0).then_some(Task::Find(keys))
    }

    /// All callers that wait. The results of the workers' present tasks are not used any more.
    pub fn give_up(&mut self) -> Vec<Wait> {
        let mut all: Vec<_> = self.fetches.drain(..).chain(self.finds.drain(..)).collect();
        self.posts.iter_mut().for_each(|post| all.extend(post.give_up()));
        all
    }
}
