//! Clients connect and leave, and in the end the engine leaves.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use log::{debug, info, warn};
use rustix::event::epoll;

use super::command_flow::Event;
use super::connection::{Connection, ConnectionKey};
use super::slots::SessionId;
use super::source::Source;
use super::timers::Alarm;
use super::Server;
use crate::files::folder::Folder;
use crate::trust::peer::peer_of;
use crate::trust::token::Token;
use crate::wire::{Reply, Verdict, Why};

const GREETING_TIME: Duration = Duration::from_secs(5);
const MAX_CONNECTIONS: usize = 4096;
/// How long we accept no connections after running out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The sockets that accept clients.
pub(super) struct Listeners {
    unix: Option<UnixListener>,
    /// Identifies our socket: another engine may have made one of the same name.
    socket: Option<FileIdentity>,
    tcp: Option<Tcp>,
}

struct Tcp {
    listener: TcpListener,
    token: Token,
    /// Identifies our token file, for the same reason.
    file: Option<FileIdentity>,
    port: u16,
}

/// Device, inode, and when it was written: a new file may get the inode of one that was removed.
type FileIdentity = (u64, u64, i64, i64);

fn identity(path: &Path) -> Option<FileIdentity> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

impl Listeners {
    pub(super) fn new(unix: UnixListener, folder: &Folder) -> Listeners {
        Listeners {
            unix: Some(unix),
            socket: identity(&folder.socket()),
            tcp: None,
        }
    }

    pub(super) fn tcp_port(&self) -> Option<u16> {
        self.tcp.as_ref().map(|tcp| tcp.port)
    }

    /// Whether a client over TCP has sent our token.
    pub(super) fn admit(&self, token: &[u8]) -> bool {
        self.tcp.as_ref().is_some_and(|tcp| tcp.token.admits(token))
    }

    fn each(&self, mut act: impl FnMut(BorrowedFd<'_>, Source) -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        if let Some(unix) = &self.unix {
            act(unix.as_fd(), Source::Unix)?;
        }
        if let Some(tcp) = &self.tcp {
            act(tcp.listener.as_fd(), Source::Tcp)?;
        }
        Ok(())
    }

    /// Accepts no more clients.
    fn close(&mut self, folder: &Folder) {
        // Remove the name first, so that the next client starts another engine. Clients that came before are still
        // served.
        let socket = folder.socket();
        if identity(&socket) == self.socket {
            let _ = fs::remove_file(socket);
        }
        let token = folder.token();
        if self.tcp.take().is_some_and(|tcp| tcp.file == identity(&token)) {
            let _ = fs::remove_file(token);
        }
        self.unix = None;
    }
}

/// How long the engine stays.
#[derive(Default)]
pub(super) struct Lifetime {
    /// Since when there is neither a client nor a command.
    idle_since: Option<Instant>,
    is_alarm_set: bool,
    /// No new clients are accepted.
    pub(super) is_leaving: bool,
}

impl Server {
    pub(super) fn accept_unix(&mut self) {
        while let Some(accepted) = self.listeners.unix.as_ref().map(UnixListener::accept) {
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
        while let Some(accepted) = self.listeners.tcp.as_ref().map(|tcp| tcp.listener.accept()) {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => return self.accept_later(&error),
            };
            // Without this, small frames are delayed.
            let _ = stream.set_nodelay(true);
            self.admit(stream.into(), None);
        }
    }

    /// Without descriptors the listeners would stay ready, and the loop would spin. So they are not watched for a
    /// while.
    fn accept_later(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::WouldBlock {
            return;
        }
        warn!("accept a connection: {error}");
        if self.listeners.each(|fd, _| epoll::delete(&self.epoll, fd)).is_ok() {
            self.timers.set(Instant::now() + ACCEPT_PAUSE, Alarm::Accept);
        }
    }

    pub(super) fn accept_again(&mut self) {
        let watched = self.listeners.each(|fd, source| source.watch(&self.epoll, fd));
        if let Err(error) = watched {
            warn!("watch the listeners: {error}");
        }
    }

    fn admit(&mut self, fd: OwnedFd, peer: Option<u32>) {
        let key = self.key();
        if let Err(error) = Source::Connection(key).watch(&self.epoll, &fd) {
            warn!("watch a connection: {error}");
            return;
        }
        self.totals.connections += 1;
        self.lifetime.idle_since = None;
        let mut connection = Connection::new(fd, peer);
        if self.connections.len() >= MAX_CONNECTIONS {
            self.totals.refuse(Why::Crowded);
            connection.reply(&Reply::Refused {
                why: Why::Crowded,
                reason: "too many connections".into(),
            });
            let _ = connection.flush();
            return;
        }
        self.connections.add(key, connection);
        self.watch_greetings();
    }

    /// One alarm serves all connections that have not greeted. Most greet long before it.
    fn watch_greetings(&mut self) {
        if self.connections.is_greeting_alarm_set {
            return;
        }
        if let Some(first) = self.connections.ungreeted().map(|(_, arrived)| arrived).min() {
            self.connections.is_greeting_alarm_set = true;
            self.timers.set(first + GREETING_TIME, Alarm::Greetings);
        }
    }

    pub(super) fn on_greetings_due(&mut self) {
        self.connections.is_greeting_alarm_set = false;
        let late = self
            .connections
            .ungreeted()
            .filter(|(_, arrived)| arrived.elapsed() >= GREETING_TIME);
        let keys: Vec<_> = late.map(|(key, _)| key).collect();
        for key in keys {
            self.drop_connection(key, "no greeting in time");
        }
        self.watch_greetings();
    }

    pub(super) fn listen_tcp(&mut self) -> io::Result<u16> {
        if let Some(port) = self.listeners.tcp_port() {
            return Ok(port);
        }
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let token = Token::random()?;
        token.publish(&self.options.folder, port)?;
        Source::Tcp.watch(&self.epoll, &listener)?;
        info!("listens on 127.0.0.1:{port} for clients with the token");
        let file = identity(&self.options.folder.token());
        self.listeners.tcp = Some(Tcp {
            listener,
            token,
            file,
            port,
        });
        Ok(port)
    }

    /// Ends a connection and the commands that were sent over it.
    pub(super) fn drop_connection(&mut self, key: ConnectionKey, why: &str) {
        let Some(connection) = self.connections.remove(key) else {
            return;
        };
        debug!("connection {key} ends: {why}");
        let commands: Vec<_> = connection.commands.into_values().collect();
        if let Some(client) = connection.client {
            self.withdraw_waiting(&client.session, &commands);
            self.leave_session(&client.session);
        }
        for command in connection.paused_commands {
            self.read_on(command);
        }
        for command in commands {
            self.on_event(command, Event::End(Verdict::Cancelled));
        }
        // Freed slots may let other commands start, in the next round if this one is at its end.
        self.connections.touch(key);
        self.start_idle_clock();
    }

    fn leave_session(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.leave(id) else { return };
        if session.is_logged {
            info!("build ends: {} (process {})", session.name, session.pid);
        }
        self.slots.withdraw(id);
        self.forget_if_over(id);
        self.update_autogroup();
    }

    /// Starts the idle clock, if there are no clients and no commands.
    pub(super) fn start_idle_clock(&mut self) {
        if self.connections.is_empty() && self.commands.is_empty() && self.lifetime.idle_since.is_none() {
            self.lifetime.idle_since = Some(Instant::now());
            self.watch_idleness();
        }
    }

    /// Sets at most one alarm: thousands of short calls end one after the other.
    fn watch_idleness(&mut self) {
        let since = self.lifetime.idle_since;
        let at = since.and_then(|since| since.checked_add(self.options.idle));
        // A time beyond the clock's range never comes.
        if let Some(at) = at.filter(|_| !self.lifetime.is_alarm_set) {
            self.lifetime.is_alarm_set = true;
            self.timers.set(at, Alarm::Idle);
        }
    }

    pub(super) fn on_idle(&mut self) {
        self.lifetime.is_alarm_set = false;
        let idle = self.options.idle;
        if self.lifetime.idle_since.is_some_and(|since| since.elapsed() >= idle) {
            info!("nobody has come for {} s: leaving", idle.as_secs());
            self.leave();
        } else {
            self.watch_idleness();
        }
    }

    /// Accepts no more clients. Commands that run may end.
    pub(super) fn leave(&mut self) {
        if !std::mem::replace(&mut self.lifetime.is_leaving, true) {
            self.listeners.close(&self.options.folder);
        }
        self.connections.touch_all();
    }

    pub(super) fn is_done(&self) -> bool {
        self.lifetime.is_leaving && self.commands.is_empty() && self.connections.iter().all(|(_, c)| c.waits_for_end())
    }

    pub(super) fn on_signal(&mut self) {
        // SAFETY: the kernel writes one record into a buffer of that size.
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
        let keys: Vec<_> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.drop_connection(key, "the engine stops");
        }
    }
}
