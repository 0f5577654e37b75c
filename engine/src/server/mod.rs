//! The event loop: the only place that knows connections, slots and commands together.
//!
//! Every step is: take events, let each move its part, hand what has a slot to the starters, send what is to be sent. Nothing
//! here waits but `epoll`. Which thread does that: `lead`.

mod arrivals;
mod auditor;
mod cache;
mod command;
mod command_flow;
mod commands;
mod connection;
mod connections;
mod lead;
mod neighbours;
mod observation;
mod report;
mod requests;
mod sessions;
mod silence;
mod slots;
mod source;
mod starters;
mod timers;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, info};
use rustix::event::{epoll, Timespec};

use crate::cache::answer::Question;
use crate::cache::cache_threads::CacheThreads;
use crate::files::folder::Folder;
use crate::park::{Ledger, Parking};
use crate::process::context::{self, Context};
use crate::process::guardian::Guardian;
use crate::process::pins::Pins;
use crate::process::place::Place;
use crate::process::roster::Roster;
use crate::process::service::{open_signals, raise_descriptor_limit};
use crate::report::status::Totals;
use crate::wire::Verdict;
use arrivals::{Idleness, Listeners};
use auditor::Auditor;
use command_flow::Event;
use commands::Commands;
use connection::ConnectionKey;
use connections::Connections;
use sessions::Sessions;
use slots::Slots;
use source::Source;
use starters::Starters;
use timers::{Alarm, Timers};

use self::neighbours::Neighbours;

const EVENTS: usize = 256;
const SCRATCH: usize = 256 << 10;

/// What one round of the event loop remembers.
struct Round {
    /// Nothing but one event is there: there is time to start a command.
    is_calm: bool,
    /// Process groups that outlive their leaders, once it was asked.
    followed: Option<HashSet<i32>>,
    /// The only question to the cache.
    question: Option<Question>,
}

/// Our program as it was when we started: when it is replaced, a newer engine should take over.
struct Program {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Program {
    fn own() -> Program {
        let path = std::env::current_exe().unwrap_or_default();
        let identity = identity(&path);
        Program { path, identity }
    }

    fn is_replaced(&self) -> bool {
        self.identity != identity(&self.path)
    }
}

/// How the engine is to behave.
pub struct Options {
    pub folder: Folder,
    /// How long it stays when nobody needs it.
    pub idle: Duration,
    pub tcp: bool,
    /// What the kernel tells of itself: /proc, or a folder that looks like it.
    pub gauges: PathBuf,
    /// No build is held back when memory runs short.
    pub no_brake: bool,
}

pub struct Server {
    options: Options,
    epoll: OwnedFd,
    signals: OwnedFd,
    listeners: Listeners,
    connections: Connections,
    sessions: Sessions,
    commands: Commands,
    slots: Slots,
    neighbours: Neighbours,
    starters: Starters,
    cache_threads: CacheThreads,
    silence: silence::Silence,
    auditor: Auditor,
    parking: Arc<Parking>,
    /// What ran for commands in parked programs.
    ledger: Arc<Ledger>,
    roster: Roster,
    guardian: Guardian,
    /// What tells of its end.
    guardian_end: Option<OwnedFd>,
    timers: Timers,
    totals: Totals,
    place: Place,
    own: Context,
    program: Program,
    pins: Pins,
    keys: u64,
    started: Instant,
    idleness: Idleness,
    are_greetings_watched: bool,
    leaving: bool,
    round: Round,
    scratch: Vec<u8>,
    /// A thread of ours is at an answer.
    is_away: Arc<AtomicBool>,
}

impl Server {
    /// Takes over a listening socket and is ready to serve.
    pub fn new(options: Options, unix: UnixListener, mut roster: Roster, guardian: Guardian) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signals = open_signals()?;
        unix.set_nonblocking(true)?;
        epoll::add(&epoll, &unix, Source::Unix.data(), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &signals, Source::Signals.data(), epoll::EventFlags::IN)?;
        let pid = std::process::id();
        let own = context::Reader::new(pid)?.read()?;
        let ledger = Arc::new(Ledger::default());
        let parking = Arc::new(Parking::open(&options.folder, &mut roster, &own, &ledger));
        let starters = Starters::new(&parking)?;
        epoll::add(&epoll, starters.bell(), Source::Starters.data(), epoll::EventFlags::IN)?;
        let home = options.folder.clone();
        let cache_threads = CacheThreads::new(Box::new(move |jobs, asked| cache::open(&home, jobs, asked)))?;
        epoll::add(
            &epoll,
            cache_threads.bell(),
            Source::Cache.data(),
            epoll::EventFlags::IN,
        )?;
        raise_descriptor_limit();
        let mut server = Server {
            epoll,
            signals,
            listeners: Listeners::new(unix, &options.folder),
            connections: Connections::default(),
            sessions: Sessions::default(),
            commands: Commands::default(),
            slots: Slots::default(),
            neighbours: Neighbours::new(&options),
            starters,
            cache_threads,
            silence: silence::Silence::default(),
            auditor: Auditor::new(roster.keep()),
            parking,
            ledger,
            roster,
            guardian,
            guardian_end: None,
            timers: Timers::default(),
            totals: Totals::default(),
            place: Place::of(pid).map_err(io::Error::other)?,
            own,
            program: Program::own(),
            pins: Pins::default(),
            keys: 0,
            started: Instant::now(),
            idleness: Idleness::default(),
            are_greetings_watched: false,
            leaving: false,
            round: Round {
                is_calm: true,
                followed: None,
                question: None,
            },
            scratch: vec![0; SCRATCH],
            is_away: Arc::default(),
            options,
        };
        server.watch_guardian();
        if server.options.tcp {
            server.listen_tcp()?;
        }
        server.rest();
        Ok(server)
    }

    /// Serves until nobody needs it, or it is told to stop.
    pub fn run(self) -> io::Result<()> {
        lead::serve(self)
    }

    /// Lets each event move its part.
    fn round(&mut self, events: impl ExactSizeIterator<Item = epoll::Event>) {
        self.round.is_calm = events.len() <= 1;
        for event in events {
            self.take(Source::of(event.data));
        }
        while let Some(alarm) = self.timers.due(Instant::now()) {
            self.ring(alarm);
        }
        self.start_commands();
        self.finish_round();
    }

    fn close(&mut self) {
        self.parking.close();
        self.auditor.close();
        self.cache_threads.close();
        info!("left after {} s", self.started.elapsed().as_secs());
    }

    fn take(&mut self, source: Source) {
        match source {
            Source::Signals => self.on_signal(),
            Source::Unix => self.accept_unix(),
            Source::Tcp => self.accept_tcp(),
            Source::Connection(key) => self.on_connection(key),
            Source::Starters => self.on_started(),
            Source::Cache => self.on_done(),
            Source::Guardian => self.replace_guardian(),
            Source::Tokens(key) => self.on_tokens(key),
            Source::End(key) => self.happens(key, Event::Ended),
            Source::Feed(key) => self.happens(key, Event::Input),
            Source::Capture(key, stream) => self.happens(key, Event::Output(stream)),
        }
    }

    fn watch_guardian(&mut self) {
        match self.guardian.watch() {
            Ok(end) => self.heed_guardian(end),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => self.replace_guardian(),
            // An old kernel, or one that refuses that.
            Err(error) => debug!("watch the guardian: {error}"),
        }
    }

    fn heed_guardian(&mut self, end: OwnedFd) {
        let flags = epoll::EventFlags::IN;
        match epoll::add(&self.epoll, &end, Source::Guardian.data(), flags) {
            Ok(()) => self.guardian_end = Some(end),
            Err(error) => debug!("watch the guardian: {error}"),
        }
    }

    /// Somebody has killed it: nobody would clean up after us.
    fn replace_guardian(&mut self) {
        self.guardian_end = None;
        match self.guardian.replace(&self.roster) {
            Ok(end) => {
                info!("the guardian was killed; another stands in for it");
                self.heed_guardian(end);
            }
            Err(error) => {
                info!("the guardian was killed, and there is no other ({error}): leaving");
                self.stop_now();
            }
        }
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Greetings => self.on_greetings_due(),
            Alarm::Frame(key) => self.check_frame(key),
            Alarm::Accept => self.accept_again(),
            Alarm::TimeUp(key) => self.happens(key, Event::End(Verdict::TimedOut)),
            Alarm::End(key) => self.happens(key, Event::Ended),
            Alarm::Kill(key) => self.happens(key, Event::Kill),
            Alarm::Abandon(key) => self.happens(key, Event::Abandon),
            Alarm::Neighbours => self.on_neighbours(),
            Alarm::Store => self.on_store_due(),
            Alarm::Idle => self.on_idle(),
        }
    }

    fn key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    fn finish_round(&mut self) {
        self.round.followed = None;
        self.auditor.heed(!self.commands.is_empty());
        for key in self.connections.take_touched() {
            self.settle(key);
        }
    }

    /// Sends what there is, and has epoll watch for what is wanted next.
    fn settle(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.is_nearly_answered() {
            if let Err(error) = connection.flush() {
                return self.drop_connection(key, &error.to_string());
            }
        }
        let wants = connection.wants();
        if self.leaving && connection.live.is_empty() && !wants.1 && !connection.is_watching() {
            return self.drop_connection(key, "the engine is leaving");
        }
        if wants != connection.interest {
            connection.interest = wants;
            let mut flags = epoll::EventFlags::empty();
            flags.set(epoll::EventFlags::IN, wants.0);
            flags.set(epoll::EventFlags::OUT, wants.1);
            let _ = epoll::modify(&self.epoll, &connection.fd, Source::Connection(key).data(), flags);
        }
        self.settle_flow(key);
    }

    /// A peer that does not read is given nothing more to read, and goes on when it has read.
    fn settle_flow(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_clogged() {
            return self.hold(key);
        }
        if !connection.is_clear() {
            return;
        }
        let is_held = std::mem::take(&mut connection.holding);
        let is_stalled = std::mem::take(&mut connection.stalled);
        for command in std::mem::take(&mut connection.paused) {
            self.read_on(command);
        }
        if is_held {
            self.let_go(key);
        }
        if is_stalled {
            self.on_requests(key);
        }
    }

    /// The commands of this connection that wait ask for no slot meanwhile.
    fn hold(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if std::mem::replace(&mut connection.holding, true) {
            return;
        }
        if let Some(client) = &connection.client {
            let live = connection.live.values().copied();
            let waiting = live.filter(|command| self.commands.is_waiting(*command));
            self.slots.retract(&client.session, &waiting.collect());
        }
    }

    /// The commands of this connection that wait ask for a slot again, in the order in which they came.
    fn let_go(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        if let Some(client) = &connection.client {
            let live = connection.live.values().copied();
            let mut waiting: Vec<_> = live.filter(|command| self.commands.is_waiting(*command)).collect();
            waiting.sort_unstable();
            for command in waiting {
                self.slots.submit(client.session, command);
            }
            // In another round: in this one all have started that can.
            self.connections.touch(key);
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}
