//! The event loop. It is the only place that knows connections, slots and commands together.
//!
//! One round: take the events, let each change its connection or command, hand commands that have a slot to the
//! starters, and send what is to be sent. Only `epoll` waits here. `lead` says which thread runs the loop.

mod arrivals;
mod away;
mod cache;
mod command;
mod command_flow;
mod commands;
mod connection;
mod connections;
mod guard;
mod idle;
mod lead;
mod memory;
mod neighbors;
mod observation;
mod own_process;
mod report;
mod requests;
mod sessions;
mod slots;
mod source;
mod starters;
mod store_watch;
mod timers;

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::info;
use rustix::event::epoll;

use crate::cache::answer::Question;
use crate::cache::cache_threads::CacheThreads;
use crate::files::folder::Folder;
use crate::park::{Ledger, Parking};
use crate::process::guardian::Guardian;
use crate::process::pins::Pins;
use crate::process::roster::Roster;
use crate::process::service::{open_signals, raise_descriptor_limit};
use crate::report::status::Totals;
use crate::wire::Verdict;
use arrivals::{Lifetime, Listeners};
use away::Away;
use command_flow::Event;
use commands::Commands;
use connection::ConnectionKey;
use connections::Connections;
use guard::Guard;
use idle::{Idle, When};
use memory::Memory;
use neighbors::Neighbors;
use own_process::OwnProcess;
use sessions::Sessions;
use slots::Slots;
use source::Source;
use starters::Starters;
use store_watch::StoreWatch;
use timers::{Alarm, Timers};

const EVENTS: usize = 256;
const SCRATCH: usize = 256 << 10;

/// State of one round of the event loop.
struct Round {
    /// At most one event came, so there is time to start a command in this thread.
    is_calm: bool,
    /// Process groups that outlive their leaders. They are read at most once a round.
    followed: Option<HashSet<i32>>,
    /// The only question to the cache in this round.
    question: Option<Question>,
    /// A buffer for reads, kept over all rounds.
    scratch: Vec<u8>,
}

pub struct Options {
    pub folder: Folder,
    /// How long the engine stays without clients and commands.
    pub idle: Duration,
    pub tcp: bool,
    /// Where to read the state of the kernel: /proc, or a folder with the same files.
    pub gauges: PathBuf,
    /// Builds are not held back when memory runs short.
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
    neighbors: Neighbors,
    memory: Memory,
    away: Away,
    starters: Starters,
    cache_threads: CacheThreads,
    store_watch: StoreWatch,
    /// Work for idle times, and work that helps the build that runs.
    idle: Idle,
    at_once: Idle,
    parking: Arc<Parking>,
    ledger: Arc<Ledger>,
    guard: Guard,
    timers: Timers,
    totals: Totals,
    own: OwnProcess,
    pins: Pins,
    keys: u64,
    lifetime: Lifetime,
    round: Round,
}

impl Server {
    /// Takes over a listening socket and gets ready to serve.
    pub fn new(options: Options, unix: UnixListener, mut roster: Roster, guardian: Guardian) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signals = open_signals()?;
        unix.set_nonblocking(true)?;
        Source::Unix.watch(&epoll, &unix)?;
        Source::Signals.watch(&epoll, &signals)?;
        let own = OwnProcess::read()?;
        let ledger = Arc::new(Ledger::default());
        let parking = Arc::new(Parking::open(&options.folder, &mut roster, &own.context, &ledger));
        let starters = Starters::new(&parking)?;
        Source::Starters.watch(&epoll, starters.bell())?;
        let home = options.folder.clone();
        let cache_threads = CacheThreads::new(Box::new(move |jobs, asked| cache::open(&home, jobs, asked)))?;
        Source::Cache.watch(&epoll, cache_threads.bell())?;
        raise_descriptor_limit();
        let mut server = Server {
            epoll,
            signals,
            listeners: Listeners::new(unix, &options.folder),
            connections: Connections::default(),
            sessions: Sessions::default(),
            commands: Commands::default(),
            slots: Slots::default(),
            neighbors: Neighbors::new(&options),
            memory: Memory::new(&options),
            away: Away::new(),
            starters,
            cache_threads,
            store_watch: StoreWatch::default(),
            idle: Idle::new(When::Idle, roster.keep()),
            at_once: Idle::new(When::AtOnce, roster.keep()),
            parking,
            ledger,
            guard: Guard::new(roster, guardian),
            timers: Timers::default(),
            totals: Totals::default(),
            own,
            pins: Pins::default(),
            keys: 0,
            lifetime: Lifetime::default(),
            round: Round {
                is_calm: true,
                followed: None,
                question: None,
                scratch: vec![0; SCRATCH],
            },
            options,
        };
        server.watch_guardian();
        if server.options.tcp {
            server.listen_tcp()?;
        }
        server.start_idle_clock();
        Ok(server)
    }

    /// Serves until the engine has been idle for long enough, or is told to stop.
    pub fn run(self) -> io::Result<()> {
        lead::serve(self)
    }

    /// Handles the events of one round.
    fn round(&mut self, events: impl ExactSizeIterator<Item = epoll::Event>) {
        self.round.is_calm = events.len() <= 1;
        for event in events {
            self.take(Source::of(event.data));
        }
        while let Some(alarm) = self.timers.due(Instant::now()) {
            self.on_alarm(alarm);
        }
        self.start_commands();
        self.finish_round();
    }

    fn close(&mut self) {
        self.parking.close();
        self.idle.close();
        self.at_once.close();
        self.memory.close();
        self.cache_threads.close();
        info!("left after {} s", self.own.started.elapsed().as_secs());
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
            Source::End(key) => self.on_event(key, Event::Ended),
            Source::Feed(key) => self.on_event(key, Event::Input),
            Source::Capture(key, stream) => self.on_event(key, Event::Output(stream)),
        }
    }

    fn on_alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Greetings => self.on_greetings_due(),
            Alarm::Frame(key) => self.check_frame(key),
            Alarm::Accept => self.accept_again(),
            Alarm::TimeUp(key) => self.on_event(key, Event::End(Verdict::TimedOut)),
            Alarm::End(key) => self.on_event(key, Event::Ended),
            Alarm::Kill(key) => self.on_event(key, Event::Kill),
            Alarm::Abandon(key) => self.on_event(key, Event::Abandon),
            Alarm::Neighbors => self.on_neighbors(),
            Alarm::Store => self.on_store_deadline(),
            // The slots are looked at in each round.
            Alarm::Race => {}
            Alarm::Idle => self.on_idle(),
        }
    }

    fn key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    fn finish_round(&mut self) {
        self.round.followed = None;
        self.idle.set_busy(!self.commands.is_empty());
        for key in self.connections.take_touched() {
            self.settle(key);
        }
    }

    /// Sends what there is, and asks epoll for the events that the connection needs next.
    fn settle(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.answer_is_near() {
            if let Err(error) = connection.flush() {
                return self.drop_connection(key, &error.to_string());
            }
        }
        let wants = connection.wants();
        if self.lifetime.is_leaving && connection.commands.is_empty() && !wants.1 && !connection.waits_for_end() {
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

    /// A peer that does not read gets no more output and starts no more commands until it has read.
    fn settle_flow(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_clogged() {
            return self.leave_queue(key);
        }
        if !connection.is_clear() {
            return;
        }
        let is_held = std::mem::take(&mut connection.is_out_of_queue);
        let is_stalled = std::mem::take(&mut connection.is_stalled);
        for command in std::mem::take(&mut connection.paused_commands) {
            self.read_on(command);
        }
        if is_held {
            self.rejoin_queue(key);
        }
        if is_stalled {
            self.on_requests(key);
        }
    }

    /// Takes the connection's waiting commands out of the queue for slots.
    fn leave_queue(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if std::mem::replace(&mut connection.is_out_of_queue, true) {
            return;
        }
        if let Some(client) = &connection.client {
            let waiting = self.commands.waiting_of(connection).collect();
            self.slots.retract(&client.session, &waiting);
        }
    }

    /// Puts the connection's waiting commands back into the queue, in the order in which they came.
    fn rejoin_queue(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        if let Some(client) = &connection.client {
            let mut waiting: Vec<_> = self.commands.waiting_of(connection).collect();
            waiting.sort_unstable();
            for command in waiting {
                self.slots.submit(client.session, command);
            }
            // The next round starts them: this one has granted its slots already.
            self.connections.touch(key);
        }
    }
}
