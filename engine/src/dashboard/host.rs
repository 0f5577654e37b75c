//! Accepts connections of browsers until a signal comes. Each gets a thread.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::{debug, warn};
use rustix::event::{poll, PollFd, PollFlags};

use super::connection_limits::ConnectionLimits;
use super::feed::Feed;
use super::visit::{self, Shared};
use crate::http::asker::Names;
use crate::process::fault;
use crate::trust::token::Token;

/// How long pages have to receive the end.
const FAREWELL: Duration = Duration::from_millis(500);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub struct Host(Arc<Shared>);

impl Host {
    pub fn new(token: Token, names: Names, feed: Arc<Feed>) -> Host {
        let limits = ConnectionLimits::default();
        Host(Arc::new(Shared {
            token,
            names,
            feed,
            limits,
        }))
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
                self.0.feed.end(FAREWELL);
                return Ok(());
            }
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    warn!("accept a connection: {error}");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        let stream = Arc::new(stream);
        let counted = self.0.limits.add(&stream);
        let shared = self.0.clone();
        let work = move || {
            // A panic in one visit does not end the others.
            let visited = fault::contain(|| visit::serve(&stream, counted, &shared));
            if let Some(Err(error)) = visited {
                debug!("a browser: {error}");
            }
        };
        if let Err(error) = thread::Builder::new().name("visit".to_owned()).spawn(work) {
            warn!("start a thread: {error}");
        }
    }
}
