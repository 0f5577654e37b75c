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

pub enum Boarding<T> {
    /// The command does not run yet. The caller runs it, and gets its request back.
    Free(Flight<T>, T),
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

    pub fn board(self: &Arc<Self>, key: Digest, who: T) -> Boarding<T> {
        let mut waiting = self.waiting();
        if let Some(others) = waiting.get_mut(&key) {
            others.push(who);
            return Boarding::Waits;
        }
        waiting.insert(key, Vec::new());
        let flights = self.clone();
        Boarding::Free(Flight { flights, key }, who)
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
        let Boarding::Free(flight, 1) = flights.board(a, 1) else {
            panic!("nobody runs it")
        };
        assert!(matches!(flights.board(a, 2), Boarding::Waits));
        assert!(matches!(flights.board(a, 3), Boarding::Waits));
        assert!(matches!(flights.board(b, 4), Boarding::Free(_, 4)));
        assert_eq!(asked.try_iter().count(), 0);
        assert_eq!(flights.count(), (1, 2));
        drop(flight);
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [2, 3]);
        assert!(matches!(flights.board(a, 5), Boarding::Free(_, 5)));
    }
}
