//! Requests of clients: first the greeting, then all others.

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
const MAX_JOBS: usize = 65536;

/// Why a connection is ended by us.
pub(super) enum ConnectionError {
    Io(io::Error),
    Malformed(wire::Malformed),
    Refused,
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        ConnectionError::Io(error)
    }
}

impl From<wire::Malformed> for ConnectionError {
    fn from(error: wire::Malformed) -> Self {
        ConnectionError::Malformed(error)
    }
}

impl Server {
    pub(super) fn on_connection(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let received = connection.receive(&mut self.round.scratch);
        self.connections.touch(key);
        match received {
            Ok(Received::Nothing) => {}
            Ok(Received::End) => self.drop_connection(key, "its client ended it"),
            Err(error) => self.drop_connection(key, &error.to_string()),
            Ok(Received::Bytes) => self.on_requests(key),
        }
    }

    /// Handles the requests that have arrived. A peer that breaks the protocol loses its connection.
    pub(super) fn on_requests(&mut self, key: ConnectionKey) {
        self.connections.touch(key);
        let why = match self.requests(key) {
            Ok(()) => return,
            Err(ConnectionError::Io(error)) => error.to_string(),
            Err(ConnectionError::Refused) => "refused".to_owned(),
            Err(ConnectionError::Malformed(what)) => {
                self.totals.malformed += 1;
                warn!("connection {key} said what is not the protocol: {what}");
                what.to_string()
            }
        };
        self.drop_connection(key, &why);
    }

    fn requests(&mut self, key: ConnectionKey) -> Result<(), ConnectionError> {
        let mut refreshed = false;
        while let Some(connection) = self.connections.get_mut(key) {
            if connection.is_clogged() {
                connection.is_stalled = true;
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
                    if !std::mem::replace(&mut refreshed, true) && refresh_context(connection, &self.own.context) {
                        self.update_autogroup();
                    }
                    self.on_execute(key, execute)?;
                }
                Ok(request) => self.on_request(key, request)?,
            }
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.inbox.trim();
            if connection.has_stray_descriptors() {
                return Err(wire::Malformed("descriptors that no command wants").into());
            }
            match (
                connection.inbox.is_partial() && !connection.is_stalled,
                connection.partial,
            ) {
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
            // A later frame has begun since the alarm was set.
            Some(since) => self.timers.set(since + FRAME_TIME, Alarm::Frame(key)),
            None => {}
        }
    }

    fn on_request(&mut self, key: ConnectionKey, request: Request) -> Result<(), ConnectionError> {
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
                if let Some(command) = connection.commands.get(&id).copied() {
                    self.on_event(command, Event::End(Verdict::Cancelled));
                }
            }
            Request::Status => {
                let json = self.report().to_string().into_bytes();
                self.connections.reply(key, &Reply::Report { json });
            }
            Request::Cache { question } => self.on_question(key, &question),
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

    fn on_hello(&mut self, key: ConnectionKey, hello: &Hello) -> Result<(), ConnectionError> {
        if !(hello.lowest..=hello.highest).contains(&wire::VERSION) {
            let ours = format!("this engine speaks version {}", wire::VERSION);
            return Err(self.refuse(key, Why::Version, &ours));
        }
        let peer = self.connections.get(key).and_then(|c| c.peer);
        if peer.is_none() && !self.listeners.admit(&hello.token) {
            return Err(self.refuse(key, Why::Token, "wrong token"));
        }
        if !self.lifetime.is_leaving && self.sessions.is_empty() && self.own.is_replaced() {
            info!("the program on disk is another by now: leaving to make room for it");
            self.leave();
        }
        if self.lifetime.is_leaving {
            return Err(self.refuse(key, Why::Leaving, "the engine is leaving"));
        }
        let pid = peer.unwrap_or(hello.pid);
        let admitted = (hello.jobs > 0).then(|| self.admit_client(hello, pid)).transpose();
        let client = admitted.map_err(|(why, reason)| self.refuse(key, why, &reason))?;
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
        self.update_autogroup();
        Ok(())
    }

    /// Enters a client into its session. Examines its process, unless the client asked for that to be put off.
    fn admit_client(&mut self, hello: &Hello, pid: u32) -> Result<Client, (Why, String)> {
        let is_late = hello.wishes & wire::WISH_LATE != 0;
        let inherited = if is_late {
            self.own.place.shows(pid).map_err(|reason| (Why::Place, reason))?;
            None
        } else {
            Some(self.examine(pid)?)
        };
        let own_slots = hello.wishes & wire::WISH_OWN_SLOTS != 0;
        self.slots
            .declare(hello.session, (hello.jobs as usize).min(MAX_JOBS), own_slots);
        self.sessions.enter(hello.session, pid, &hello.name, own_slots);
        if !is_late {
            self.log_session(&hello.session);
        }
        Ok(Client {
            session: hello.session,
            pid,
            inherited,
            pin: hello.wishes & wire::WISH_PIN != 0,
            wishes: Arc::default(),
            only_known: hello.wishes & wire::WISH_KNOWN != 0,
            hears_elsewhere: hello.wishes & wire::WISH_ELSEWHERE != 0,
            umask: (hello.wishes & wire::WISH_UMASK != 0).then_some(hello.wishes >> wire::UMASK_SHIFT & 0o777),
            numbers: Numbers::default(),
        })
    }

    /// Logs the beginning of a build, when its first command is to run.
    fn log_session(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.log_once(id) else {
            return;
        };
        self.totals.sessions += 1;
        let (jobs, ..) = self.slots.of(id);
        info!("build begins: {} (process {}), -j{jobs}", session.name, session.pid);
    }

    /// Examines a process: its namespaces and control group, and the context that its commands inherit.
    fn examine(&mut self, pid: u32) -> Result<Inherited, (Why, String)> {
        let failed = |e: io::Error| (Why::Place, format!("process {pid} cannot be examined: {e}"));
        let place = Place::of(pid).map_err(|reason| (Why::Place, reason))?;
        let control_group = match self.own.place.serves(&place) {
            Ok(control_group) => control_group,
            Err(what) if self.own.place.is_more_confined_than(&place) => return Err(self.leave_for_larger_engine(what)),
            Err(what) => return Err((Why::Place, what)),
        };
        let reader = context::Reader::new(pid).map_err(failed)?;
        let context = reader.read().map_err(failed)?;
        if let Some(what) = context.beyond(&self.own.context) {
            return Err(self.leave_for_larger_engine(what.to_owned()));
        }
        let adjustments = Arc::new(context.adjustments(&self.own.context));
        let context = Arc::new(context);
        Ok(Inherited {
            reader,
            context,
            adjustments,
            control_group,
        })
    }

    /// The process that started us had lower limits than this client. If no build runs, we leave, and the client starts
    /// an engine with its own limits.
    fn leave_for_larger_engine(&mut self, what: String) -> (Why, String) {
        if self.sessions.is_any_logged() {
            return (Why::Place, what);
        }
        info!("leaving to make room for an engine with more: {what}");
        self.leave();
        (Why::Leaving, what)
    }

    /// Examines a client, if that was put off.
    pub(super) fn examine_client(&mut self, key: ConnectionKey) -> Result<(), (Why, String)> {
        let Some(client) = self.connections.client(key) else {
            return Ok(());
        };
        if client.inherited.is_some() {
            return Ok(());
        }
        let (pid, session) = (client.pid, client.session);
        let inherited = self.examine(pid)?;
        self.log_session(&session);
        if let Some(client) = self.connections.client_mut(key) {
            client.inherited = Some(inherited);
        }
        self.update_autogroup();
        Ok(())
    }

    pub(super) fn refuse(&mut self, key: ConnectionKey, why: Why, reason: &str) -> ConnectionError {
        self.count_refusal(key, why, reason);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.reply(&Reply::Refused {
                why,
                reason: reason.into(),
            });
            // The peer may be gone already.
            let _ = connection.flush();
        }
        ConnectionError::Refused
    }

    pub(super) fn count_refusal(&mut self, key: ConnectionKey, why: Why, reason: &str) {
        info!("connection {key} refused for {}: {reason}", why.name());
        self.totals.refuse(why);
    }
}

/// A client may change its umask or limits between two commands. Reads them anew for the next commands, and returns
/// whether they have changed.
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
        // The process is gone, and its connection will end, too.
        Err(error) => {
            debug!("context of a client: {error}");
            false
        }
    }
}
