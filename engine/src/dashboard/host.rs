//! Takes the connections of browsers, so many at most, until a signal comes.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::{debug, warn};
use rustix::event::{poll, PollFd, PollFlags};

use super::feed::Feed;
use super::reply;
use super::visit::{self, Room};
use crate::token::Token;

/// Some pages, and what browsers open in advance.
const MOST: usize = 32;
/// Pages hear of the end, if they listen.
const FAREWELL: Duration = Duration::from_millis(500);
/// After a connection could not be taken.
const BREATH: Duration = Duration::from_millis(100);

pub struct Host {
    room: Arc<Room>,
    open: Arc<AtomicUsize>,
}

/// One more connection, as long as it lives.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Place> {
        let is_free = |count| (count < MOST).then_some(count + 1);
        let taken = open.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_free);
        taken.is_ok().then(|| Place(open.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Host {
    pub fn new(token: Token, feed: Arc<Feed>) -> Host {
        Host {
            room: Arc::new(Room { token, feed }),
            open: Arc::default(),
        }
    }

    pub fn serve(&self, listener: &TcpListener, signals: &OwnedFd) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        loop {
            let mut waits = [
                PollFd::new(signals, PollFlags::IN),
                PollFd::new(listener, PollFlags::IN),
            ];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !waits[0].revents().is_empty() {
                self.room.feed.end(FAREWELL);
                return Ok(());
            }
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    warn!("accept a connection: {error}");
                    thread::sleep(BREATH);
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        let Some(place) = Place::take(&self.open) else {
            return turn_away(&stream);
        };
        let room = self.room.clone();
        let work = move || {
            let _place = place;
            if let Err(error) = visit::serve(&stream, &room) {
                debug!("a browser: {error}");
            }
        };
        if let Err(error) = thread::Builder::new().name("visit".to_owned()).spawn(work) {
            warn!("start a thread: {error}");
        }
    }
}

/// What fits into the socket, without waiting for anybody.
fn turn_away(mut stream: &TcpStream) {
    let words = reply::page_of("Too many pages are open: close some.");
    let text = reply::head(503, reply::HTML, Some(words.len())) + &words;
    let sent = stream
        .set_nonblocking(true)
        .and_then(|()| stream.write_all(text.as_bytes()));
    if let Err(error) = sent {
        debug!("turn a browser away: {error}");
    }
}
