//! How many connections there may be: some that have shown the token, and some that have not.
//!
//! Browsers open connections in advance, and anything on this machine can open as many as it likes. So whoever has shown no
//! token makes room for the next one, the oldest first, and takes no place of a page that is open.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Some pages, each with what it loads.
const MOST: usize = 32;
const MOST_WAITING: usize = 32;

#[derive(Default)]
pub struct Places(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Those that have shown no token, the oldest first.
    waiting: Mutex<VecDeque<Arc<TcpStream>>>,
    staying: AtomicUsize,
}

/// A connection, as long as it lives.
pub struct Arrival {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    stays: bool,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// One more that has shown nothing yet. If there are many, the oldest of them is cut off, and its thread ends.
    pub fn arrive(&self, stream: &Arc<TcpStream>) -> Arrival {
        let mut waiting = self.0.waiting();
        if waiting.len() >= MOST_WAITING {
            if let Some(oldest) = waiting.pop_front() {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        waiting.push_back(stream.clone());
        Arrival {
            shared: self.0.clone(),
            stream: stream.clone(),
            stays: false,
        }
    }
}

impl Arrival {
    /// It has shown the token. False if there is no place, and it should be told so.
    pub fn stays(&mut self) -> bool {
        if self.stays {
            return true;
        }
        let is_free = |count| (count < MOST).then_some(count + 1);
        let staying = &self.shared.staying;
        let taken = staying.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_free);
        self.stays = taken.is_ok();
        if self.stays {
            self.leave_waiting();
        }
        self.stays
    }

    fn leave_waiting(&self) {
        self.shared
            .waiting()
            .retain(|stream| !Arc::ptr_eq(stream, &self.stream));
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        match self.stays {
            true => drop(self.shared.staying.fetch_sub(1, Ordering::AcqRel)),
            false => self.leave_waiting(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn pair(listener: &TcpListener) -> (TcpStream, Arc<TcpStream>) {
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (peer, Arc::new(listener.accept().unwrap().0))
    }

    #[test]
    fn the_oldest_without_a_token_makes_room_and_who_has_shown_it_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = Places::default();
        let mut held = Vec::new();
        for _ in 0..MOST + 1 {
            let (peer, stream) = pair(&listener);
            let mut arrival = places.arrive(&stream);
            let stays = arrival.stays();
            assert_eq!(stays, held.len() < MOST);
            if stays {
                held.push((peer, stream, arrival));
            }
        }
        let mut waiting: Vec<_> = (0..MOST_WAITING + 2)
            .map(|_| {
                let (peer, stream) = pair(&listener);
                let arrival = places.arrive(&stream);
                (peer, stream, arrival)
            })
            .collect();
        for (peer, ..) in &mut waiting[..2] {
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "it is cut off");
        }
        let is_open = |peer: &TcpStream| {
            peer.set_nonblocking(true).unwrap();
            peer.peek(&mut [0])
                .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        assert!(waiting[2..].iter().all(|(peer, ..)| is_open(peer)));
        assert!(held.iter().all(|(peer, ..)| is_open(peer)));
        held.pop();
        assert!(waiting[5].2.stays(), "a place became free");
    }
}
