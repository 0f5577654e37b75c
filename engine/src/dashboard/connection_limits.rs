//! Limits the number of connections, separately for those with and without the token.
//!
//! Browsers open connections in advance, and any program on this machine can open many. When there are too many without
//! the token, the oldest of them is closed. They never take the place of a page that is open.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Enough for some pages, each with its files.
const MAX_WITH_TOKEN: usize = 32;
const MAX_WITHOUT_TOKEN: usize = 32;

#[derive(Default)]
pub struct ConnectionLimits(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Connections that have not shown the token, the oldest first.
    without_token: Mutex<VecDeque<Arc<TcpStream>>>,
    with_token: AtomicUsize,
}

/// A connection that is counted.
pub struct CountedConnection {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    has_token: bool,
}

impl Shared {
    fn without_token(&self) -> MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.without_token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLimits {
    /// Counts a connection that has not shown the token. If there are too many, the oldest is closed, which ends its
    /// thread.
    pub fn add(&self, stream: &Arc<TcpStream>) -> CountedConnection {
        let mut without_token = self.0.without_token();
        if without_token.len() >= MAX_WITHOUT_TOKEN {
            if let Some(oldest) = without_token.pop_front() {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        without_token.push_back(stream.clone());
        CountedConnection {
            shared: self.0.clone(),
            stream: stream.clone(),
            has_token: false,
        }
    }
}

impl CountedConnection {
    /// The connection has shown the token. False if there are too many such connections.
    pub fn show_token(&mut self) -> bool {
        if self.has_token {
            return true;
        }
        let is_free = |count| (count < MAX_WITH_TOKEN).then_some(count + 1);
        let with_token = &self.shared.with_token;
        let taken = with_token.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_free);
        self.has_token = taken.is_ok();
        if self.has_token {
            self.stop_waiting();
        }
        self.has_token
    }

    fn stop_waiting(&self) {
        self.shared
            .without_token()
            .retain(|stream| !Arc::ptr_eq(stream, &self.stream));
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        match self.has_token {
            true => drop(self.shared.with_token.fetch_sub(1, Ordering::AcqRel)),
            false => self.stop_waiting(),
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
    fn the_oldest_connection_without_the_token_is_closed_and_others_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limits = ConnectionLimits::default();
        let mut held = Vec::new();
        for _ in 0..MAX_WITH_TOKEN + 1 {
            let (peer, stream) = pair(&listener);
            let mut connection = limits.add(&stream);
            let has_token = connection.show_token();
            assert_eq!(has_token, held.len() < MAX_WITH_TOKEN);
            if has_token {
                held.push((peer, stream, connection));
            }
        }
        let mut without_token: Vec<_> = (0..MAX_WITHOUT_TOKEN + 2)
            .map(|_| {
                let (peer, stream) = pair(&listener);
                let connection = limits.add(&stream);
                (peer, stream, connection)
            })
            .collect();
        for (peer, ..) in &mut without_token[..2] {
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "it is cut off");
        }
        let is_open = |peer: &TcpStream| {
            peer.set_nonblocking(true).unwrap();
            peer.peek(&mut [0])
                .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        assert!(without_token[2..].iter().all(|(peer, ..)| is_open(peer)));
        assert!(held.iter().all(|(peer, ..)| is_open(peer)));
        held.pop();
        assert!(without_token[5].2.show_token(), "a place became free");
    }
}
