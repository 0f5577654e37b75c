//! What a client asks for: the greeting first, then everything else.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, info, warn};

use super::command_flow::Event;
use super::connection::{Client, Connection, ConnectionKey, Inherited, Received};
use super::slots::SessionId;
use super::timers::Alarm;
use super::Server;
use crate::cache::lookup::inputs::Numbers;
use crate::files::folder::ENGINE;
use crate::process::context::{self, Context};
use crate::process::place::Place;
use crate::wire::{self, Hello, Reply, Request, Verdict, Why};

const FRAME_TIME: Duration = Duration::from_secs(30);
const JOBS: usize = 65536;

/// Why a connection ends before its peer ends it.
pub(super) enum Broken {
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
    pub(super) fn on_connection(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let received = connection.receive(&mut self.scratch);
        self.connections.touch(key);
        match received {
            Ok(Received::Nothing) => {}
            Ok(Received::End) => self.drop_connection(key, "its client ended it"),
            Err(error) => self.drop_connection(key, &error.to_string()),
            Ok(Received::Bytes) => self.on_requests(key),
        }
    }

    /// Answers what has arrived; a peer that breaks the protocol loses its connection.
    pub(super) fn on_requests(&mut self, key: ConnectionKey) {
        self.connections.touch(key);
        let why = match self.requests(key) {
            Ok(()) => return,
            Err(Broken::Io(error)) => error.to_string(),
            Err(Broken::Refused) => "refused".to_owned(),
            Err(Broken::Malformed(what)) => {
                self.totals.malformed += 1;
                warn!("connection {key} said what is not the protocol: {what}");
                what.to_string()
            }
        };
        self.drop_connection(key, &why);
    }

    fn requests(&mut self, key: ConnectionKey) -> Result<(), Broken> {
        let mut refreshed = false;
        while let Some(connection) = self.connections.get_mut(key) {
            if connection.is_clogged() {
                connection.stalled = true;
                break;
            }
            let Some(frame) = connection.inbox.take()? else {
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
                    if !std::mem::replace(&mut refreshed, true) && refresh_context(connection, &self.own) {
                        self.stand_back();
                    }
                    self.on_execute(key, execute)?;
                }
                Ok(request) => self.on_request(key, request)?,
            }
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.inbox.trim();
            if connection.has_strays() {
                return Err(wire::Malformed("descriptors that no command wants").into());
            }
            match (connection.inbox.is_partial() && !connection.stalled, connection.partial) {
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

    pub(super) fn check_frame(&mut self, key: ConnectionKey) {
        let since = self.connections.get(key).and_then(|c| c.partial);
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
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(());
        };
        if connection.greeted == matches!(request, Request::Hello(_)) {
            return Err(wire::Malformed("the first request, and only that, is a greeting").into());
        }
        match request {
            Request::Hello(hello) => return self.on_hello(key, &hello),
            Request::Environment { env, entries } => {
                connection.environments.insert(env, Arc::new(entries));
            }
            Request::Cancel { id } => {
                if let Some(command) = connection.live.get(&id).copied() {
                    self.happens(command, Event::End(Verdict::Cancelled));
                }
            }
            Request::Status => {
                let json = self.report().to_string().into_bytes();
                self.connections.reply(key, &Reply::Report { json });
            }
            Request::Cache { question } => {
                self.on_question(key, &question);
            }
            Request::Policy(policy) => self.on_policy(key, &policy)?,
            Request::Caching(caching) => self.on_caching(key, &caching)?,
            Request::Listen => {
                let port = self.listen_tcp()?;
                self.connections.reply(key, &Reply::Listening { port });
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
        let peer = self.connections.get(key).and_then(|c| c.peer);
        let trusted = peer.is_some() || self.listeners.admit(&hello.token);
        if !trusted {
            return Err(self.refuse(key, Why::Token, "wrong token"));
        }
        if !self.leaving && self.sessions.is_empty() && self.program.is_replaced() {
            info!("the program on disk is another by now: leaving to make room for it");
            self.leave();
        }
        if self.leaving {
            return Err(self.refuse(key, Why::Leaving, "the engine is leaving"));
        }
        let pid = peer.unwrap_or(hello.pid);
        let client = if hello.jobs == 0 {
            None
        } else {
            match self.meet(hello, pid) {
                Ok(client) => Some(client),
                Err((why, reason)) => return Err(self.refuse(key, why, &reason)),
            }
        };
        let slots = self.slots.capacity() as u32;
        if let Some(connection) = self.connections.get_mut(key) {
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
        self.stand_back();
        Ok(())
    }

    /// Enters a client into its session, and looks at where it lives if that is not wished for later.
    fn meet(&mut self, hello: &Hello, pid: u32) -> Result<Client, (Why, String)> {
        let is_late = hello.wishes & wire::WISH_LATE != 0;
        let inherited = if is_late {
            self.place.shows(pid).map_err(|reason| (Why::Place, reason))?;
            None
        } else {
            Some(self.examine(pid)?)
        };
        let own_slots = hello.wishes & wire::WISH_OWN_SLOTS != 0;
        self.slots
            .declare(hello.session, (hello.jobs as usize).min(JOBS), own_slots);
        self.sessions.enter(hello.session, pid, &hello.name, own_slots);
        if !is_late {
            self.tell_of(&hello.session);
        }
        Ok(Client {
            session: hello.session,
            pid,
            inherited,
            pin: hello.wishes & wire::WISH_PIN != 0,
            wishes: Arc::default(),
            only_known: hello.wishes & wire::WISH_KNOWN != 0,
            umask: (hello.wishes & wire::WISH_UMASK != 0).then_some(hello.wishes >> wire::UMASK_SHIFT & 0o777),
            numbers: Numbers::default(),
        })
    }

    /// A build has begun: something of it is to run.
    fn tell_of(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.log_once(id) else {
            return;
        };
        self.totals.sessions += 1;
        let (jobs, ..) = self.slots.of(id);
        info!("build begins: {} (process {}), -j{jobs}", session.name, session.pid);
    }

    /// Looks at where a process lives, and what its commands are to be given.
    fn examine(&mut self, pid: u32) -> Result<Inherited, (Why, String)> {
        let unseen = |e: io::Error| (Why::Place, format!("process {pid} cannot be examined: {e}"));
        let place = Place::of(pid).map_err(|reason| (Why::Place, reason))?;
        let control_group = match self.place.serves(&place) {
            Ok(control_group) => control_group,
            Err(what) if self.place.is_more_confined_than(&place) => return Err(self.make_room(what)),
            Err(what) => return Err((Why::Place, what)),
        };
        let reader = context::Reader::new(pid).map_err(unseen)?;
        let context = reader.read().map_err(unseen)?;
        if let Some(what) = context.beyond(&self.own) {
            return Err(self.make_room(what.to_owned()));
        }
        let adjustments = Arc::new(context.adjustments(&self.own));
        let context = Arc::new(context);
        Ok(Inherited {
            reader,
            context,
            adjustments,
            control_group,
        })
    }

    /// Whoever started us had less than a client, who can start an engine that serves more; unless we are needed.
    fn make_room(&mut self, what: String) -> (Why, String) {
        if self.sessions.is_any_logged() {
            return (Why::Place, what);
        }
        info!("leaving to make room for an engine with more: {what}");
        self.leave();
        (Why::Leaving, what)
    }

    /// Looks at a client of which nothing had to be known until now.
    pub(super) fn examine_client(&mut self, key: ConnectionKey) -> Result<(), (Why, String)> {
        let Some(client) = self.connections.client(key) else {
            return Ok(());
        };
        if client.inherited.is_some() {
            return Ok(());
        }
        let (pid, session) = (client.pid, client.session);
        let inherited = self.examine(pid)?;
        self.tell_of(&session);
        if let Some(client) = self.connections.client_mut(key) {
            client.inherited = Some(inherited);
        }
        self.stand_back();
        Ok(())
    }

    pub(super) fn refuse(&mut self, key: ConnectionKey, why: Why, reason: &str) -> Broken {
        self.count_refusal(key, why, reason);
        let reason = reason.into();
        self.connections.reply(key, &Reply::Refused { why, reason });
        if let Some(connection) = self.connections.get_mut(key) {
            // It may have gone already.
            let _ = connection.flush();
        }
        Broken::Refused
    }

    pub(super) fn count_refusal(&mut self, key: ConnectionKey, why: Why, reason: &str) {
        info!("connection {key} refused for {}: {reason}", why.name());
        self.totals.refuse(why);
    }
}

/// A client may change its umask or limits between two commands: what it has now is what the next ones get. Tells
/// whether it has.
fn refresh_context(connection: &mut Connection, own: &Context) -> bool {
    let client = connection.client.as_mut();
    let Some(inherited) = client.and_then(|client| client.inherited.as_mut()) else {
        return false;
    };
    match inherited.reader.read() {
        Ok(context) if context != *inherited.context => {
            inherited.adjustments = Arc::new(context.adjustments(own));
            inherited.context = Arc::new(context);
            true
        }
        Ok(_) => false,
        // It is gone, and so will be its connection.
        Err(error) => {
            debug!("context of a client: {error}");
            false
        }
    }
}
