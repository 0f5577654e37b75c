//! Takes the connections of browsers until a signal comes, each in a thread of its own.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::{debug, warn};
use rustix::event::{poll, PollFd, PollFlags};

use super::feed::Feed;
use super::places::Places;
use super::visit::{self, Room};
use crate::http::asker::Names;
use crate::process::fault;
use crate::trust::token::Token;

/// Pages hear of the end, if they listen.
const FAREWELL: Duration = Duration::from_millis(500);
/// After a connection could not be taken.
const BREATH: Duration = Duration::from_millis(100);

pub struct Host {
    room: Arc<Room>,
}

impl Host {
    pub fn new(token: Token, names: Names, feed: Arc<Feed>) -> Host {
        let places = Places::default();
        Host {
            room: Arc::new(Room {
                token,
                names,
                feed,
                places,
            }),
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
        let stream = Arc::new(stream);
        let arrival = self.room.places.arrive(&stream);
        let room = self.room.clone();
        let work = move || {
            // What fails for one browser is told, and ends nothing else.
            let visited = fault::contain(|| visit::serve(&stream, arrival, &room));
            if let Some(Err(error)) = visited {
                debug!("a browser: {error}");
            }
        };
        if let Err(error) = thread::Builder::new().name("visit".to_owned()).spawn(work) {
            warn!("start a thread: {error}");
        }
    }
}
