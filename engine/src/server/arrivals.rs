//! Clients come, clients go, and in the end the engine goes.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use log::{debug, info, warn};
use rustix::event::epoll;

use super::connection::{Connection, ConnectionKey};
use super::slots::SessionId;
use super::source::Source;
use super::timers::Alarm;
use super::{identity, Server, Tcp};
use crate::trust::peer::peer_of;
use crate::trust::token::Token;
use crate::wire::{Reply, Verdict, Why};

const GREETING_TIME: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 4096;
/// How long we take no connections when there are no descriptors for them.
const BREATH: Duration = Duration::from_millis(100);

impl Server {
    pub(super) fn accept_unix(&mut self) {
        while let Some(accepted) = self.unix.as_ref().map(UnixListener::accept) {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => return self.accept_later(&error),
            };
            match peer_of(&stream) {
                Ok(peer) if peer.uid == rustix::process::geteuid().as_raw() => {
                    self.admit(stream.into(), Some(peer.pid as u32));
                }
                Ok(peer) => warn!("another user, {}, tried to connect", peer.uid),
                Err(error) => warn!("who connects: {error}"),
            }
        }
    }

    pub(super) fn accept_tcp(&mut self) {
        while let Some(accepted) = self.tcp.as_ref().map(|tcp| tcp.listener.accept()) {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => return self.accept_later(&error),
            };
            // Without it frames only come later.
            let _ = stream.set_nodelay(true);
            self.admit(stream.into(), None);
        }
    }

    /// Out of descriptors, the listeners would be ready again and again.
    fn accept_later(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::WouldBlock {
            return;
        }
        warn!("accept a connection: {error}");
        if self.listeners(|epoll, fd, _| epoll::delete(epoll, fd)).is_ok() {
            self.timers.set(Instant::now() + BREATH, Alarm::Accept);
        }
    }

    pub(super) fn accept_again(&mut self) {
        let watched = self.listeners(|epoll, fd, source| epoll::add(epoll, fd, source.data(), epoll::EventFlags::IN));
        if let Err(error) = watched {
            warn!("watch the listeners: {error}");
        }
    }

    fn listeners(
        &self,
        act: impl Fn(&OwnedFd, BorrowedFd<'_>, Source) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        if let Some(unix) = &self.unix {
            act(&self.epoll, unix.as_fd(), Source::Unix)?;
        }
        if let Some(tcp) = &self.tcp {
            act(&self.epoll, tcp.listener.as_fd(), Source::Tcp)?;
        }
        Ok(())
    }

    fn admit(&mut self, fd: OwnedFd, peer: Option<u32>) {
        let key = self.key();
        let flags = epoll::EventFlags::IN;
        if let Err(error) = epoll::add(&self.epoll, &fd, Source::Connection(key).data(), flags) {
            warn!("watch a connection: {error}");
            return;
        }
        self.totals.connections += 1;
        self.idle_since = None;
        let mut connection = Connection::new(fd, peer);
        if self.connections.len() >= CONNECTIONS {
            self.totals.refuse(Why::Crowded);
            connection.reply(&Reply::Refused {
                why: Why::Crowded,
                reason: "too many connections".into(),
            });
            let _ = connection.flush();
            return;
        }
        self.connections.insert(key, connection);
        self.watch_greetings();
    }

    /// One alarm for all that have not greeted: nearly every connection has, long before it.
    fn watch_greetings(&mut self) {
        if self.are_greetings_watched {
            return;
        }
        let waiting = self.connections.values().filter(|c| !c.greeted);
        if let Some(first) = waiting.map(|c| c.arrived).min() {
            self.are_greetings_watched = true;
            self.timers.set(first + GREETING_TIME, Alarm::Greetings);
        }
    }

    pub(super) fn on_greetings_due(&mut self) {
        self.are_greetings_watched = false;
        let silent = |c: &&Connection| !c.greeted && c.arrived.elapsed() >= GREETING_TIME;
        let keys: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, c)| silent(c))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.drop_connection(key, "no greeting in time");
        }
        self.watch_greetings();
    }

    pub(super) fn listen_tcp(&mut self) -> io::Result<u16> {
        if let Some(tcp) = &self.tcp {
            return Ok(tcp.port);
        }
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let token = Token::random()?;
        token.publish(&self.options.folder, port)?;
        epoll::add(&self.epoll, &listener, Source::Tcp.data(), epoll::EventFlags::IN)?;
        info!("listens on 127.0.0.1:{port} for clients with the token");
        let file = identity(&self.options.folder.token());
        self.tcp = Some(Tcp {
            listener,
            token,
            file,
            port,
        });
        Ok(port)
    }

    /// Ends a connection and all that was asked for over it.
    pub(super) fn drop_connection(&mut self, key: ConnectionKey, why: &str) {
        let Some(connection) = self.connections.remove(&key) else {
            return;
        };
        debug!("connection {key} ends: {why}");
        let live: Vec<_> = connection.live.into_values().collect();
        if let Some(client) = connection.client {
            self.retract_all(&client.session, &live);
            self.leave_session(&client.session);
        }
        for command in connection.paused {
            self.watch_output(command, true);
        }
        for command in live {
            self.end_command(command, Verdict::Cancelled);
        }
        // What it held may let others start, in another round if this one is at its end.
        self.touched.push(key);
        self.rest();
    }

    fn leave_session(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.connections -= 1;
        if session.connections == 0 {
            if session.is_told {
                info!("build ends: {} (process {})", session.name, session.pid);
            }
            self.sessions.remove(id);
            self.slots.withdraw(id);
            self.forget_if_over(id);
            self.stand_back();
        }
    }

    /// Begins to count the time that nobody needs us.
    pub(super) fn rest(&mut self) {
        if self.connections.is_empty() && self.commands.is_empty() && self.idle_since.is_none() {
            self.idle_since = Some(Instant::now());
            self.watch_idleness();
        }
    }

    /// One alarm at a time: we rest after each of thousands of short calls.
    fn watch_idleness(&mut self) {
        let at = self.idle_since.and_then(|since| since.checked_add(self.options.idle));
        // Longer than the clock can tell is for ever.
        if let Some(at) = at.filter(|_| !self.is_idleness_watched) {
            self.is_idleness_watched = true;
            self.timers.set(at, Alarm::Idle);
        }
    }

    pub(super) fn on_idle(&mut self) {
        self.is_idleness_watched = false;
        let idle = self.options.idle;
        if self.idle_since.is_some_and(|since| since.elapsed() >= idle) {
            info!("nobody has come for {} s: leaving", idle.as_secs());
            self.leave();
        } else {
            self.watch_idleness();
        }
    }

    /// Takes no more clients; what runs may end.
    pub(super) fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            // First the name, so that the next client starts another engine; then whoever came before that.
            let socket = self.options.folder.socket();
            if identity(&socket) == self.socket {
                let _ = fs::remove_file(socket);
            }
            let token = self.options.folder.token();
            if self.tcp.take().is_some_and(|tcp| tcp.file == identity(&token)) {
                let _ = fs::remove_file(token);
            }
            self.unix = None;
        }
        self.touched.extend(self.connections.keys());
    }

    pub(super) fn is_done(&self) -> bool {
        self.leaving && self.commands.is_empty() && self.connections.values().all(|c| c.is_watching())
    }

    pub(super) fn on_signal(&mut self) {
        // SAFETY: the kernel writes one record to where we have one.
        unsafe {
            let mut record: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of_val(&record);
            libc::read(self.signals.as_raw_fd(), (&raw mut record).cast(), size);
            info!("signal {}: stopping at once", record.ssi_signo);
        }
        self.stop_now();
    }

    pub(super) fn stop_now(&mut self) {
        self.leave();
        let keys: Vec<_> = self.connections.keys().copied().collect();
        for key in keys {
            self.drop_connection(key, "the engine stops");
        }
    }
}
