//! The event loop: the only place that knows connections, slots and commands together.
//!
//! One thread. Every step is: take events, let each move its part, start what has a slot, send what is to be sent.
//! Nothing here waits but `epoll`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use log::{debug, info, warn};
use rustix::event::{epoll, Timespec};
use rustix::process::Signal;

use crate::command::{Command, Order};
use crate::connection::{Client, Connection, ConnectionKey, Received};
use crate::context::{self, Context};
use crate::folder::{Folder, ENGINE};
use crate::guardian::Roster;
use crate::pins::Pins;
use crate::place::Place;
use crate::slots::{CommandKey, SessionId, Slots};
use crate::source::Source;
use crate::spawn::{self, NotStarted, Spawner};
use crate::status::{CommandLine, SessionLine, Snapshot, Totals};
use crate::timers::{Alarm, Timers};
use crate::token::Token;
use crate::wire::{self, Execute, Hello, Outcome, Reply, Request, Stdio, Verdict, Why};

const GREETING_TIME: Duration = Duration::from_secs(5);
const FRAME_TIME: Duration = Duration::from_secs(30);
/// From SIGTERM to SIGKILL for a command whose client is gone; also how long pipes of killed commands are read.
const GRACE: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 4096;
const JOBS: usize = 65536;
const EVENTS: usize = 256;
const SCRATCH: usize = 256 << 10;

/// A build: all connections with one session number.
struct Session {
    name: String,
    pid: u32,
    connections: usize,
    own_slots: bool,
}

struct Tcp {
    listener: std::net::TcpListener,
    token: Token,
    port: u16,
}

/// How the engine is to behave.
pub struct Options {
    pub folder: Folder,
    /// How long it stays when nobody needs it.
    pub idle: Duration,
    pub tcp: bool,
}

pub struct Server {
    options: Options,
    epoll: OwnedFd,
    signals: OwnedFd,
    unix: Option<UnixListener>,
    tcp: Option<Tcp>,
    null: OwnedFd,
    connections: HashMap<ConnectionKey, Connection>,
    sessions: HashMap<SessionId, Session>,
    commands: HashMap<CommandKey, Command>,
    slots: Slots,
    spawner: Spawner,
    roster: Roster,
    timers: Timers,
    totals: Totals,
    place: Place,
    own: Context,
    /// Our program as it was when we started: when it is replaced, a newer engine should take over.
    program: Option<(u64, u64)>,
    pins: Pins,
    keys: u64,
    started: Instant,
    idle_since: Option<Instant>,
    leaving: bool,
    /// Connections with something to send or to forget at the end of this round.
    touched: Vec<ConnectionKey>,
    scratch: Vec<u8>,
}

/// Why a connection ends before its peer ends it.
enum Broken {
    Io(io::Error),
    Malformed(wire::Malformed),
    Refused,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

impl From<wire::Malformed> for Broken {
    fn from(error: wire::Malformed) -> Self {
        Broken::Malformed(error)
    }
}

impl Server {
    /// Takes over a listening socket and is ready to serve.
    pub fn new(options: Options, unix: UnixListener, roster: Roster) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signals = open_signals()?;
        unix.set_nonblocking(true)?;
        epoll::add(&epoll, &unix, Source::Unix.data(), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &signals, Source::Signals.data(), epoll::EventFlags::IN)?;
        raise_descriptor_limit();
        let pid = std::process::id();
        let mut server = Server {
            epoll,
            signals,
            unix: Some(unix),
            tcp: None,
            null: fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into(),
            connections: HashMap::new(),
            sessions: HashMap::new(),
            commands: HashMap::new(),
            slots: Slots::default(),
            spawner: Spawner::new()?,
            roster,
            timers: Timers::default(),
            totals: Totals::default(),
            place: Place::of(pid).map_err(io::Error::other)?,
            own: context::Reader::new(pid)?.read()?,
            program: program_now(),
            pins: Pins::default(),
            keys: 0,
            started: Instant::now(),
            idle_since: None,
            leaving: false,
            touched: Vec::new(),
            scratch: vec![0; SCRATCH],
            options,
        };
        if server.options.tcp {
            server.listen_tcp()?;
        }
        server.rest();
        Ok(server)
    }

    /// Serves until nobody needs it, or it is told to stop.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_done() {
            let wait = self
                .timers
                .next()
                .map(|at| timespec(at.saturating_duration_since(Instant::now())));
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                self.take(Source::of(event.data));
            }
            while let Some(alarm) = self.timers.due(Instant::now()) {
                self.ring(alarm);
            }
            self.start_commands();
            self.finish_round();
        }
        self.close();
        Ok(())
    }

    fn take(&mut self, source: Source) {
        match source {
            Source::Signals => self.on_signal(),
            Source::Unix => self.accept_unix(),
            Source::Tcp => self.accept_tcp(),
            Source::Connection(key) => self.on_connection(key),
            Source::End(key) => self.on_end(key),
            Source::Feed(key) => {
                if let Some(running) = self.running(key) {
                    running.feed();
                }
            }
            Source::Capture(key, stream) => self.on_capture(key, stream),
        }
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Greeting(key) => {
                if self.connections.get(&key).is_some_and(|c| !c.greeted) {
                    self.drop_connection(key, "no greeting in time");
                }
            }
            Alarm::Frame(key) => self.check_frame(key),
            Alarm::TimeUp(key) => self.end_command(key, Verdict::TimedOut),
            Alarm::Kill(key) => {
                if let Some(running) = self.running(key) {
                    running.signal(Signal::KILL);
                }
            }
            Alarm::Abandon(key) => self.abandon(key),
            Alarm::Idle => {
                let idle = self.options.idle;
                if self.idle_since.is_some_and(|since| since.elapsed() >= idle) {
                    info!("nobody has come for {} s: leaving", idle.as_secs());
                    self.leave();
                }
            }
        }
    }

    fn key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    // ---- coming and going

    fn accept_unix(&mut self) {
        while let Some(Ok((stream, _))) = self.unix.as_ref().map(UnixListener::accept) {
            match rustix::net::sockopt::socket_peercred(&stream) {
                Ok(peer) if peer.uid == rustix::process::geteuid() => {
                    self.admit(stream.into(), Some(peer.pid.as_raw_nonzero().get() as u32));
                }
                Ok(peer) => warn!("another user, {}, tried to connect", peer.uid.as_raw()),
                Err(error) => warn!("who connects: {error}"),
            }
        }
    }

    fn accept_tcp(&mut self) {
        while let Some(Ok((stream, _))) = self.tcp.as_ref().map(|tcp| tcp.listener.accept()) {
            let _ = stream.set_nodelay(true);
            self.admit(stream.into(), None);
        }
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
            connection.reply(&refusal(Why::Crowded, "too many connections"));
            let _ = connection.flush();
            return;
        }
        self.connections.insert(key, connection);
        self.timers.set(Instant::now() + GREETING_TIME, Alarm::Greeting(key));
    }

    fn listen_tcp(&mut self) -> io::Result<u16> {
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
        self.tcp = Some(Tcp { listener, token, port });
        Ok(port)
    }

    /// Ends a connection and all that was asked for over it.
    fn drop_connection(&mut self, key: ConnectionKey, why: &str) {
        let Some(connection) = self.connections.remove(&key) else {
            return;
        };
        debug!("connection {key} ends: {why}");
        for command in connection.live.into_values() {
            self.end_command(command, Verdict::Cancelled);
        }
        if let Some(client) = connection.client {
            self.leave_session(&client.session);
        }
        self.rest();
    }

    fn leave_session(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.connections -= 1;
        if session.connections == 0 {
            info!("build ends: {} (process {})", session.name, session.pid);
            self.sessions.remove(id);
            self.slots.withdraw(id);
        }
    }

    /// Begins to count the time that nobody needs us.
    fn rest(&mut self) {
        if self.connections.is_empty() && self.commands.is_empty() && self.idle_since.is_none() {
            let now = Instant::now();
            self.idle_since = Some(now);
            self.timers.set(now + self.options.idle, Alarm::Idle);
        }
    }

    /// Takes no more clients; what runs may end.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            // First the name, so that the next client starts another engine; then whoever came before that.
            let _ = fs::remove_file(self.options.folder.socket());
            if self.tcp.take().is_some() {
                let _ = fs::remove_file(self.options.folder.token());
            }
            self.unix = None;
        }
        self.touched.extend(self.connections.keys());
    }

    fn is_done(&self) -> bool {
        self.leaving && self.connections.is_empty() && self.commands.is_empty()
    }

    fn close(&mut self) {
        info!("left after {} s", self.started.elapsed().as_secs());
    }

    fn on_signal(&mut self) {
        // SAFETY: the kernel writes one record to where we have one.
        unsafe {
            let mut record: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of_val(&record);
            libc::read(self.signals.as_raw_fd(), (&raw mut record).cast(), size);
            info!("signal {}: stopping at once", record.ssi_signo);
        }
        self.stop_now();
    }

    fn stop_now(&mut self) {
        self.leave();
        let keys: Vec<_> = self.connections.keys().copied().collect();
        for key in keys {
            self.drop_connection(key, "the engine stops");
        }
    }

    // ---- requests

    fn on_connection(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        self.touched.push(key);
        let received = connection.receive(&mut self.scratch);
        match received {
            Ok(Received::Nothing) => {}
            Ok(Received::End) => self.drop_connection(key, "its client ended it"),
            Err(error) => self.drop_connection(key, &error.to_string()),
            Ok(Received::Bytes) => {
                if let Err(broken) = self.requests(key) {
                    let why = match broken {
                        Broken::Io(error) => error.to_string(),
                        Broken::Refused => "refused".to_owned(),
                        Broken::Malformed(what) => {
                            self.totals.malformed += 1;
                            warn!("connection {key} said what is not the protocol: {what}");
                            what.to_string()
                        }
                    };
                    self.drop_connection(key, &why);
                }
            }
        }
    }

    fn requests(&mut self, key: ConnectionKey) -> Result<(), Broken> {
        let mut refreshed = false;
        while let Some(connection) = self.connections.get_mut(&key) {
            let Some(frame) = connection.inbox.next()? else {
                break;
            };
            let request = Request::decode(frame);
            match request {
                Err(malformed) if !connection.greeted => {
                    warn!("connection {key} does not greet: {malformed}");
                    return Err(self.refuse(key, Why::Greeting, malformed.0));
                }
                Err(malformed) => return Err(malformed.into()),
                Ok(Request::Execute(execute)) => {
                    if !std::mem::replace(&mut refreshed, true) {
                        refresh_context(connection, &self.own);
                    }
                    self.on_execute(key, execute)?;
                }
                Ok(request) => self.on_request(key, request)?,
            }
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.inbox.trim();
            match (connection.inbox.is_partial(), connection.partial) {
                (false, _) => connection.partial = None,
                (true, Some(_)) => {}
                (true, None) => {
                    let now = Instant::now();
                    connection.partial = Some(now);
                    self.timers.set(now + FRAME_TIME, Alarm::Frame(key));
                }
            }
        }
        Ok(())
    }

    fn check_frame(&mut self, key: ConnectionKey) {
        let since = self.connections.get(&key).and_then(|c| c.partial);
        match since {
            Some(since) if since.elapsed() >= FRAME_TIME => {
                self.drop_connection(key, "a frame did not end in time");
            }
            // Another frame than the one that the alarm was for.
            Some(since) => self.timers.set(since + FRAME_TIME, Alarm::Frame(key)),
            None => {}
        }
    }

    fn on_request(&mut self, key: ConnectionKey, request: Request) -> Result<(), Broken> {
        let Some(connection) = self.connections.get_mut(&key) else {
            return Ok(());
        };
        if connection.greeted == matches!(request, Request::Hello(_)) {
            return Err(wire::Malformed("the first request, and only that, is a greeting").into());
        }
        match request {
            Request::Hello(hello) => return self.on_hello(key, &hello),
            Request::Environment { env, entries } => {
                connection.environments.insert(env, Rc::new(entries));
            }
            Request::Cancel { id } => {
                if let Some(command) = connection.live.get(&id).copied() {
                    self.end_command(command, Verdict::Cancelled);
                }
            }
            Request::Status => {
                let json = self.report().to_string().into_bytes();
                self.reply(key, &Reply::Report { json });
            }
            Request::Listen => {
                let port = self.listen_tcp()?;
                self.reply(key, &Reply::Listening { port });
            }
            Request::Stop { now } => {
                info!("asked to stop{}", if now { " at once" } else { "" });
                if now {
                    self.stop_now();
                } else {
                    self.leave();
                }
            }
            Request::Execute(_) => unreachable!("handled by `requests`"),
        }
        Ok(())
    }

    fn on_hello(&mut self, key: ConnectionKey, hello: &Hello) -> Result<(), Broken> {
        if !(hello.lowest..=hello.highest).contains(&wire::VERSION) {
            let ours = format!("this engine speaks version {}", wire::VERSION);
            return Err(self.refuse(key, Why::Version, &ours));
        }
        let peer = self.connections.get(&key).and_then(|c| c.peer);
        let trusted = peer.is_some() || self.tcp.as_ref().is_some_and(|tcp| tcp.token.admits(&hello.token));
        if !trusted {
            return Err(self.refuse(key, Why::Token, "wrong token"));
        }
        if !self.leaving && self.sessions.is_empty() && self.program != program_now() {
            info!("the program on disk is another by now: leaving to make room for it");
            self.leave();
        }
        if self.leaving {
            return Err(self.refuse(key, Why::Leaving, "the engine is leaving"));
        }
        let client = if hello.jobs == 0 {
            None
        } else {
            match self.meet(hello, peer.unwrap_or(hello.pid)) {
                Ok(client) => Some(client),
                Err(reason) => return Err(self.refuse(key, Why::Place, &reason)),
            }
        };
        let slots = self.slots.capacity() as u32;
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.greeted = true;
            connection.client = client;
            connection.inbox.raise_cap(wire::FRAME_CAP);
            connection.reply(&Reply::Welcome {
                version: wire::VERSION,
                pid: std::process::id(),
                slots,
                engine: ENGINE.into(),
            });
        }
        Ok(())
    }

    /// Looks at where a client lives, and enters it into its session.
    fn meet(&mut self, hello: &Hello, pid: u32) -> Result<Client, String> {
        let control_group = self.place.serves(&Place::of(pid)?)?;
        let reader = context::Reader::new(pid).map_err(|e| format!("process {pid}: {e}"))?;
        let context = reader.read().map_err(|e| format!("process {pid}: {e}"))?;
        let adjustments = Rc::new(context.adjustments(&self.own));
        let own_slots = hello.wishes & wire::WISH_OWN_SLOTS != 0;
        self.slots
            .declare(hello.session, (hello.jobs as usize).min(JOBS), own_slots);
        let session = self.sessions.entry(hello.session).or_insert_with(|| {
            self.totals.sessions += 1;
            let name = String::from_utf8_lossy(&hello.name).into_owned();
            info!("build begins: {name} (process {pid}), -j{}", hello.jobs);
            Session {
                name,
                pid,
                connections: 0,
                own_slots,
            }
        });
        session.connections += 1;
        Ok(Client {
            session: hello.session,
            reader,
            context: Rc::new(context),
            adjustments,
            control_group,
            pin: hello.wishes & wire::WISH_PIN != 0,
        })
    }

    fn refuse(&mut self, key: ConnectionKey, why: Why, reason: &str) -> Broken {
        info!("connection {key} refused for {}: {reason}", why.name());
        self.totals.refuse(why);
        self.reply(key, &refusal(why, reason));
        if let Some(connection) = self.connections.get_mut(&key) {
            // It may have gone already.
            let _ = connection.flush();
        }
        Broken::Refused
    }

    fn reply(&mut self, key: ConnectionKey, reply: &Reply) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.reply(reply);
        }
    }

    // ---- commands

    fn on_execute(&mut self, key: ConnectionKey, execute: Box<Execute>) -> Result<(), Broken> {
        let command = self.key();
        let Some(connection) = self.connections.get_mut(&key) else {
            return Ok(());
        };
        let wanted = execute.stdio.iter().filter(|s| **s == Stdio::Descriptor).count();
        let descriptors: Vec<_> = (0..wanted).map_while(|_| connection.take_descriptor()).collect();
        if descriptors.len() < wanted {
            return Err(wire::Malformed("a command without its descriptors").into());
        }
        let Some(client) = &connection.client else {
            return Err(wire::Malformed("a command over a connection without jobs").into());
        };
        let Some(env) = connection.environments.get(&execute.env) else {
            return Err(wire::Malformed("a command in an environment that was not defined").into());
        };
        if connection.live.contains_key(&execute.id) {
            return Err(wire::Malformed("two commands of one number").into());
        }
        let order = Order {
            connection: key,
            session: client.session,
            env: env.clone(),
            context: client.context.clone(),
            adjustments: client.adjustments.clone(),
            control_group: client.control_group.clone(),
            descriptors,
            pin: client.pin,
            arrived: Instant::now(),
            execute,
        };
        connection.backlog += order.size();
        connection.live.insert(order.execute.id, command);
        self.slots.submit(order.session, command);
        self.commands.insert(command, Command { order, running: None });
        Ok(())
    }

    fn start_commands(&mut self) {
        while let Some(key) = self.slots.next() {
            if let Err(why) = self.start(key) {
                debug!("command {key} not started: {why:?}");
                if let Some(command) = self.commands.remove(&key) {
                    let outcome = command.not_started(why);
                    self.conclude(key, &command.order, &outcome);
                }
            }
        }
    }

    fn start(&mut self, key: CommandKey) -> Result<(), NotStarted> {
        let Some(command) = self.commands.get_mut(&key) else {
            return Ok(());
        };
        if let Some(connection) = self.connections.get_mut(&command.order.connection) {
            connection.backlog = connection.backlog.saturating_sub(command.order.size());
            self.touched.push(command.order.connection);
        }
        let processors = command.order.context.processors();
        let processor = if command.order.pin {
            self.pins.take(processors)
        } else {
            None
        };
        if let Err(why) = command.start(&mut self.spawner, &self.null, processor) {
            processor.into_iter().for_each(|p| self.pins.give_back(p));
            return Err(why);
        }
        let Some(running) = &mut command.running else {
            return Ok(());
        };
        running.berth = self.roster.note(running.pid);
        if command.order.execute.timeout > 0 {
            let timeout = Duration::from_micros(command.order.execute.timeout);
            // A time beyond what the clock can tell never comes.
            if let Some(at) = running.started.checked_add(timeout) {
                self.timers.set(at, Alarm::TimeUp(key));
            }
        }
        let watched = self.watch(key);
        if let Err(error) = watched {
            // It runs, but we would not see it end: so it must not.
            warn!("watch a command: {error}");
            return Err(self.take_down(key, &error));
        }
        Ok(())
    }

    /// Has epoll tell of all that a fresh command does.
    fn watch(&mut self, key: CommandKey) -> io::Result<()> {
        let Some(running) = self.commands.get_mut(&key).and_then(|c| c.running.as_mut()) else {
            return Ok(());
        };
        let input = epoll::EventFlags::IN;
        epoll::add(&self.epoll, &running.pidfd, Source::End(key).data(), input)?;
        for (stream, capture) in running.captures.iter().enumerate() {
            if let Some(capture) = capture {
                epoll::add(&self.epoll, &capture.fd, Source::Capture(key, stream).data(), input)?;
            }
        }
        running.feed();
        if let Some(feed) = &running.feed {
            epoll::add(&self.epoll, &feed.fd, Source::Feed(key).data(), epoll::EventFlags::OUT)?;
        }
        Ok(())
    }

    /// Kills a command that cannot be watched, and waits for it: a matter of microseconds.
    fn take_down(&mut self, key: CommandKey, error: &io::Error) -> NotStarted {
        if let Some(running) = self.running(key) {
            running.signal(Signal::KILL);
            spawn::reap(running.pid);
        }
        if let Some(command) = self.commands.get_mut(&key) {
            if let Some(running) = command.running.take() {
                self.release(&running);
            }
        }
        NotStarted::engine(error)
    }

    fn running(&mut self, key: CommandKey) -> Option<&mut crate::command::Running> {
        self.commands.get_mut(&key)?.running.as_mut()
    }

    fn on_capture(&mut self, key: CommandKey, stream: usize) {
        let Some(command) = self.commands.get_mut(&key) else {
            return;
        };
        let connection = command.order.connection;
        let id = command.order.execute.id;
        let Some(running) = &mut command.running else {
            return;
        };
        if running.read(stream, &mut self.scratch) {
            let held = running.take(stream);
            self.send_output(connection, id, stream, &held);
            self.pause_if_clogged(connection, key);
        } else {
            self.conclude_if_done(key);
        }
    }

    fn send_output(&mut self, connection: ConnectionKey, id: u32, stream: usize, data: &[u8]) {
        let Some(connection) = self.connections.get_mut(&connection) else {
            return;
        };
        for part in data.chunks(wire::OUTPUT_CAP) {
            wire::put_output(connection.outbox(), id, stream as u8 + 1, part);
        }
    }

    fn pause_if_clogged(&mut self, connection: ConnectionKey, key: CommandKey) {
        self.touched.push(connection);
        let Some(connection) = self.connections.get_mut(&connection) else {
            return;
        };
        if !connection.is_clogged() || connection.flush().is_err() || !connection.is_clogged() {
            return;
        }
        connection.paused.push(key);
        if let Some(running) = self.commands.get(&key).and_then(|c| c.running.as_ref()) {
            let _ = running.watch(&self.epoll, key, false);
        }
    }

    fn on_end(&mut self, key: CommandKey) {
        let Some(running) = self.running(key) else {
            return;
        };
        if running.verdict == Verdict::Cancelled {
            // Before it is reaped, so that the number is still its own.
            running.signal(Signal::KILL);
        }
        let berth = running.berth.take();
        let pid = running.pid;
        if let Some(berth) = berth {
            self.roster.strike(berth);
        }
        let Some(ended) = spawn::collect(pid) else {
            return;
        };
        if let Some(running) = self.commands.get_mut(&key).and_then(|c| c.running.as_mut()) {
            let _ = epoll::delete(&self.epoll, &running.pidfd);
            running.ended = Some((ended, Instant::now()));
            running.feed = None;
            if running.verdict == Verdict::TimedOut {
                self.timers.set(Instant::now() + GRACE, Alarm::Abandon(key));
            }
        }
        self.conclude_if_done(key);
    }

    /// The pipes of a killed command that somebody else still holds.
    fn abandon(&mut self, key: CommandKey) {
        if let Some(running) = self.running(key) {
            running.close(0);
            running.close(1);
        }
        self.conclude_if_done(key);
    }

    /// Ends a command before its time, for the reason that its outcome will tell.
    fn end_command(&mut self, key: CommandKey, verdict: Verdict) {
        let Some(command) = self.commands.get_mut(&key) else {
            return;
        };
        let Some(running) = &mut command.running else {
            let session = command.order.session;
            if self.slots.retract(&session, key) {
                self.retract(key);
            }
            return;
        };
        if running.verdict != Verdict::Ran {
            return;
        }
        if running.ended.is_some() && verdict == Verdict::TimedOut {
            // It ended in time; what holds its pipes did not.
            running.verdict = verdict;
            self.abandon(key);
            return;
        }
        running.verdict = verdict;
        if verdict == Verdict::TimedOut {
            running.signal(Signal::KILL);
        } else {
            running.signal(Signal::TERM);
            running.signal(Signal::CONT);
            running.feed = None;
            running.close(0);
            running.close(1);
            self.timers.set(Instant::now() + GRACE, Alarm::Kill(key));
            self.conclude_if_done(key);
        }
    }

    fn retract(&mut self, key: CommandKey) {
        if let Some(command) = self.commands.remove(&key) {
            let outcome = command.retracted();
            self.tell(&command.order, &outcome);
        }
    }

    fn conclude_if_done(&mut self, key: CommandKey) {
        if !self.running(key).is_some_and(|running| running.is_done()) {
            return;
        }
        let Some(Command { order, running }) = self.commands.remove(&key) else {
            return;
        };
        let Some(mut running) = running else { return };
        for stream in 0..2 {
            let rest = running.take(stream);
            self.send_output(order.connection, order.execute.id, stream, &rest);
        }
        self.release(&running);
        if let Some(outcome) = running.outcome(&order) {
            self.conclude(key, &order, &outcome);
        }
    }

    /// Gives back what a running command had besides its slot.
    fn release(&mut self, running: &crate::command::Running) {
        if let Some(processor) = running.processor {
            self.pins.give_back(processor);
        }
        if let Some(berth) = running.berth {
            self.roster.strike(berth);
        }
    }

    /// The command is over: its slot is free and its client is told.
    fn conclude(&mut self, key: CommandKey, order: &Order, outcome: &Outcome) {
        debug!("command {key}: {outcome:?}");
        self.slots.finish(&order.session);
        self.tell(order, outcome);
    }

    fn tell(&mut self, order: &Order, outcome: &Outcome) {
        self.totals.count(outcome);
        if let Some(connection) = self.connections.get_mut(&order.connection) {
            connection.live.remove(&order.execute.id);
            connection.reply(&Reply::Outcome(*outcome));
            self.touched.push(order.connection);
        }
        self.rest();
    }

    // ---- the end of a round

    fn finish_round(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for key in touched.drain(..) {
            self.settle(key);
        }
        if self.touched.is_empty() {
            self.touched = touched;
        }
    }

    /// Sends what there is, and has epoll watch for what is wanted next.
    fn settle(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        if let Err(error) = connection.flush() {
            return self.drop_connection(key, &error.to_string());
        }
        let wants = connection.wants();
        if self.leaving && connection.live.is_empty() && !wants.1 {
            return self.drop_connection(key, "the engine is leaving");
        }
        if wants != connection.interest {
            connection.interest = wants;
            let mut flags = epoll::EventFlags::empty();
            flags.set(epoll::EventFlags::IN, wants.0);
            flags.set(epoll::EventFlags::OUT, wants.1);
            let _ = epoll::modify(&self.epoll, &connection.fd, Source::Connection(key).data(), flags);
        }
        if connection.is_clear() && !connection.paused.is_empty() {
            for command in std::mem::take(&mut connection.paused) {
                if let Some(running) = self.commands.get(&command).and_then(|c| c.running.as_ref()) {
                    let _ = running.watch(&self.epoll, command, true);
                }
            }
        }
    }

    // ---- the report

    fn report(&self) -> serde_json::Value {
        let sessions = self.sessions.iter().map(|(id, session)| {
            let (jobs, running, waiting) = self.slots.of(id);
            SessionLine {
                name: session.name.clone(),
                pid: session.pid,
                jobs,
                running,
                waiting,
                connections: session.connections,
                own_slots: session.own_slots,
            }
        });
        let commands = self.commands.values().filter_map(|command| {
            let running = command.running.as_ref()?;
            let argv = command.order.execute.argv.iter();
            Some(CommandLine {
                pid: running.pid,
                argv: argv.map(|a| String::from_utf8_lossy(a).into_owned()).collect(),
                seconds: running.started.elapsed().as_secs_f64(),
            })
        });
        Snapshot {
            pid: std::process::id(),
            engine: ENGINE,
            protocol: wire::VERSION,
            started: self.started,
            socket: self.options.folder.socket().display().to_string(),
            tcp_port: self.tcp.as_ref().map(|tcp| tcp.port),
            leaving: self.leaving,
            slots: self.slots.capacity(),
            running: self.slots.running(),
            waiting: self.slots.waiting(),
            sessions: sessions.collect(),
            commands: commands.collect(),
            totals: &self.totals,
        }
        .json()
    }
}

fn refusal(why: Why, reason: &str) -> Reply {
    Reply::Refused {
        why,
        reason: reason.into(),
    }
}

/// A client may change its umask or limits between two commands: what it has now is what the next ones get.
fn refresh_context(connection: &mut Connection, own: &Context) {
    let Some(client) = &mut connection.client else {
        return;
    };
    match client.reader.read() {
        Ok(context) if context != *client.context => {
            client.adjustments = Rc::new(context.adjustments(own));
            client.context = Rc::new(context);
        }
        Ok(_) => {}
        // It is gone, and so will be its connection.
        Err(error) => debug!("context of a client: {error}"),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Device and inode of the program on disk.
fn program_now() -> Option<(u64, u64)> {
    let path = std::env::current_exe().ok()?;
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// As many descriptors as we may have: a command needs up to four.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        debug!("raise the limit of descriptors: {error}");
    }
}

/// The signals that stop the engine, as something to read.
fn open_signals() -> io::Result<OwnedFd> {
    // SAFETY: sets of our own; the descriptor is made for us.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}
