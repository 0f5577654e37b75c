//! Commands that run and will be stored. A request for the same command waits for the first one, and then looks up again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bytes::digest::Digest;

/// When a command is over, in whatever way, those that wait for it are handed to `again`.
pub struct Flights<T> {
    waiting: Mutex<HashMap<Digest, Vec<T>>>,
    again: Box<dyn Fn(T) + Send + Sync>,
}

/// The right and the duty to run a command. It is dropped when the result is stored, or will not be.
pub struct Flight<T> {
    flights: Arc<Flights<T>>,
    key: Digest,
}

pub enum Joined<T> {
    /// The command does not run yet. The caller runs it, and gets its request back.
    First(Flight<T>, T),
    /// The command already runs.
    Waits,
}

impl<T> Flights<T> {
    pub fn new(again: impl Fn(T) + Send + Sync + 'static) -> Arc<Flights<T>> {
        Arc::new(Flights {
            waiting: Mutex::default(),
            again: Box::new(again),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Digest, Vec<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many commands run, and how many requests wait for one of them.
    pub fn count(&self) -> (usize, usize) {
        let waiting = self.waiting();
        (waiting.len(), waiting.values().map(Vec::len).sum())
    }

    pub fn join(self: &Arc<Self>, key: Digest, request: T) -> Joined<T> {
        let mut waiting = self.waiting();
        if let Some(others) = waiting.get_mut(&key) {
            others.push(request);
            return Joined::Waits;
        }
        waiting.insert(key, Vec::new());
        let flights = self.clone();
        Joined::First(Flight { flights, key }, request)
    }
}

impl<T> Drop for Flight<T> {
    fn drop(&mut self) {
        let waiting = self.flights.waiting().remove(&self.key);
        waiting.into_iter().flatten().for_each(&self.flights.again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_runs_and_the_others_ask_again() {
        let (again, asked) = channel();
        let flights = Flights::new(move |who| again.send(who).unwrap());
        let [a, b] = [b"a", b"b"].map(|name| Digest::of(name));
        let Joined::First(flight, 1) = flights.join(a, 1) else {
            panic!("no other request runs it")
        };
        assert!(matches!(flights.join(a, 2), Joined::Waits));
        assert!(matches!(flights.join(a, 3), Joined::Waits));
        assert!(matches!(flights.join(b, 4), Joined::First(_, 4)));
        assert_eq!(asked.try_iter().count(), 0);
        assert_eq!(flights.count(), (1, 2));
        drop(flight);
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [2, 3]);
        assert!(matches!(flights.join(a, 5), Joined::First(_, 5)));
    }
}
