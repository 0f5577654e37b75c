//! Limits between builds that run at the same time: the memory brake, the load limit and the jobserver.
//!
//! The first command of a session never waits here, so every build goes on. Each further one asks the brake, then takes
//! a token.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, warn};
use rustix::event::epoll;
use serde_json::{json, Value};

use super::connection::ConnectionKey;
use super::requests::ConnectionError;
use super::slots::{CommandKey, SessionId};
use super::source::Source;
use super::timers::Alarm;
use super::{Options, Server};
use crate::files::folder::Folder;
use crate::process::admission::Shortage;
use crate::process::brake::{Brake, Gauges, Hold, AGAIN};
use crate::process::context::Adjustment;
use crate::process::jobserver::{self, Pool};
use crate::wire::{self, Strings};

/// The kernel allows ten changes of an autogroup a second, for all users together.
const RATE: Duration = Duration::from_millis(150);
const AUTOGROUP: &str = "/proc/self/autogroup";

/// The limits of one build.
#[derive(Default)]
struct BuildLimits {
    key: u64,
    no_brake: bool,
    load: Option<f64>,
    pool: Option<Pool>,
    /// Why its next command waits.
    hold: Option<Hold>,
}

pub(super) struct Neighbors {
    brake: Brake,
    builds: HashMap<SessionId, BuildLimits>,
    /// When the waiting commands are tried again.
    alarm: Option<Instant>,
    /// The nice value of our autogroup. `None` if other programs are in it.
    autogroup: Option<i32>,
}

impl Neighbors {
    pub(super) fn new(options: &Options) -> Neighbors {
        jobserver::sweep(options.folder.path(), &Folder::jobserver_prefix());
        // The guardian is our parent. If it has made our session, the autogroup has no other programs.
        // SAFETY: plain system calls.
        let own_session = unsafe { libc::getsid(0) == libc::getppid() };
        let autogroup = own_session && std::path::Path::new(AUTOGROUP).exists();
        Neighbors {
            brake: Brake::new(Gauges::below(&options.gauges), options.no_brake),
            builds: HashMap::new(),
            alarm: None,
            autogroup: autogroup.then_some(0),
        }
    }

    /// Whether a session may start a command beside its running ones. On yes, it holds the token for that. `shortage` is
    /// why memory does not let it.
    fn admits(&mut self, session: &SessionId, running: usize, shortage: Option<Shortage>) -> bool {
        let hold = match shortage {
            Some(shortage) => Some(Hold::Room(shortage)),
            None if running == 0 => None,
            None => self.hold(session),
        };
        if hold.is_some() || self.builds.contains_key(session) {
            self.builds.entry(*session).or_default().hold = hold;
        }
        if hold.is_some() {
            return false;
        }
        self.brake.started();
        true
    }

    fn hold(&mut self, session: &SessionId) -> Option<Hold> {
        let now = Instant::now();
        let Some(build) = self.builds.get_mut(session) else {
            return self.brake.memory(now).map(Hold::Memory);
        };
        if !build.no_brake {
            if let Some(strain) = self.brake.memory(now) {
                return Some(Hold::Memory(strain));
            }
        }
        if let Some(hold) = build.load.and_then(|most| self.brake.load(most, now)) {
            return Some(hold);
        }
        let pool = build.pool.as_mut()?;
        (!pool.take()).then_some(Hold::Tokens)
    }

    /// The descriptors and variables of a session's jobserver, added to the client's.
    pub(super) fn with_jobserver(
        &mut self,
        session: &SessionId,
        adjustments: Arc<Vec<Adjustment>>,
        env: Arc<Strings>,
    ) -> (Arc<Vec<Adjustment>>, Arc<Strings>) {
        let pool = self.builds.get_mut(session).and_then(|build| build.pool.as_mut());
        match pool.and_then(|pool| pool.hand(&env)) {
            None => (adjustments, env),
            Some((inherited, env)) if inherited.is_empty() => (adjustments, env),
            Some((inherited, env)) => {
                let inherited = inherited.into_iter().map(Adjustment::Inherit);
                (Arc::new(adjustments.iter().cloned().chain(inherited).collect()), env)
            }
        }
    }

    pub(super) fn describe(&self, session: &SessionId, waiting: usize) -> Value {
        let Some(build) = self.builds.get(session) else {
            return json!({});
        };
        let pool = build.pool.as_ref();
        let kind = |pool: &Pool| match pool.size() {
            Some(_) => "jobserver of its own",
            None => "jobserver of its caller",
        };
        json!({
            "memory_brake": !build.no_brake && !self.brake.is_off(),
            "load": build.load,
            "jobserver": pool.map(kind),
            "tokens_held": pool.map(Pool::held),
            "tokens_free": pool.map(Pool::free),
            "waits_for": build.hold.filter(|_| waiting > 0).map(|hold| hold.to_string()),
        })
    }

    pub(super) fn describe_brake(&self) -> Value {
        let (current, times, seconds) = self.brake.history(Instant::now());
        json!({
            "on": !self.brake.is_off(),
            "why": current.map(|(strain, _)| strain.to_string()),
            "since_s": current.map(|(_, time)| time.as_secs_f64()),
            "times": times,
            "seconds": seconds,
            "autogroup_nice": self.autogroup,
        })
    }
}

impl Server {
    pub(super) fn on_policy(&mut self, key: ConnectionKey, policy: &wire::Policy) -> Result<(), ConnectionError> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Ok(());
        };
        let ends = match policy.tokens {
            true => Some((connection.take_descriptor(), connection.take_descriptor())),
            false => None,
        };
        let Some(client) = &connection.client else {
            return Err(wire::Malformed("a policy over a connection without jobs").into());
        };
        let session = client.session;
        let (jobs, ..) = self.slots.of(&session);
        let key = self.key();
        let build = self.neighbors.builds.entry(session).or_default();
        build.no_brake = policy.no_brake;
        build.load = (policy.load > 0).then(|| f64::from(policy.load) / 100.0);
        self.memory.declare(session, policy.memory);
        let build = self.neighbors.builds.entry(session).or_default();
        if build.pool.is_some() {
            return Ok(());
        }
        build.key = key;
        let opened = match (ends, policy.serve) {
            (Some((Some(read), Some(write))), serve) => Pool::borrow(read, write, serve.map(|_| jobs)),
            (Some(_), _) => return Err(wire::Malformed("a jobserver without its descriptors").into()),
            (None, Some(form)) => Pool::serve(form, jobs, self.options.folder.jobserver(key)),
            (None, None) => return Ok(()),
        };
        match opened {
            Ok(pool) => build.pool = Some(pool),
            // The build works all the same, limited only by its -j.
            Err(error) => warn!("a build's jobserver cannot be used: {error}"),
        }
        Ok(())
    }

    /// The next command that has a slot and may start.
    pub(super) fn grant(&mut self) -> Option<CommandKey> {
        let (neighbors, memory, commands) = (&mut self.neighbors, &mut self.memory, &self.commands);
        let is_full = self.away.is_full();
        let is_held = |key: CommandKey| is_full && commands.is_waiting_compile(key);
        self.slots.grant(|session, running, queue| {
            if memory.is_off() {
                let place = match is_full {
                    true => queue.iter().position(|key| !is_held(*key))?,
                    false => 0,
                };
                return neighbors.admits(session, running, None).then_some(place);
            }
            let now = Instant::now();
            let picked = memory.pick(session, running, queue, commands, now);
            if picked.is_ok_and(|place| queue.get(place).is_some_and(|key| is_held(*key))) {
                return None;
            }
            if !neighbors.admits(session, running, picked.err()) {
                return None;
            }
            memory.start(session, queue, picked.ok()?, now);
            picked.ok()
        })
    }

    /// A command is over.
    pub(super) fn free_slot(&mut self, key: CommandKey, session: &SessionId) {
        self.memory.forget(key);
        self.away.end_here(key);
        self.slots.finish(session);
        let (_, running, _) = self.slots.of(session);
        let pool = self.neighbors.builds.get_mut(session).and_then(|b| b.pool.as_mut());
        if let Some(pool) = pool {
            pool.settle(running);
        }
        self.forget_if_over(session);
    }

    /// A build that has left keeps its tokens until its last command has ended.
    pub(super) fn forget_if_over(&mut self, session: &SessionId) {
        if self.sessions.has(session) || self.slots.of(session).1 > 0 {
            return;
        }
        self.memory.leave(session);
        if let Some(BuildLimits { pool: Some(pool), .. }) = self.neighbors.builds.remove(session) {
            if pool.watched {
                let _ = epoll::delete(&self.epoll, pool.bell());
            }
        }
    }

    /// Sees to it that commands which wait for the brake or for a token are tried again.
    pub(super) fn watch_for_release(&mut self) {
        let now = Instant::now();
        let mut alarm: Option<Instant> = None;
        for (session, build) in &mut self.neighbors.builds {
            if build.hold.is_none() || self.slots.of(session).2 == 0 {
                continue;
            }
            match (build.hold, &mut build.pool) {
                (Some(Hold::Tokens), Some(pool)) if !pool.watched => {
                    match Source::Tokens(build.key).watch(&self.epoll, pool.bell()) {
                        Ok(()) => pool.watched = true,
                        Err(error) => warn!("watch a jobserver: {error}"),
                    }
                }
                (Some(Hold::Tokens), _) => {}
                (hold, _) => {
                    let is_room = matches!(hold, Some(Hold::Room(_)));
                    let at = if is_room { self.memory.again(now) } else { now + AGAIN };
                    alarm = Some(alarm.map_or(at, |other| other.min(at)));
                }
            }
        }
        if let Some(at) = alarm {
            self.set_alarm_for_neighbors(at);
        }
    }

    /// A later alarm that is set already does no harm.
    fn set_alarm_for_neighbors(&mut self, at: Instant) {
        if self.neighbors.alarm.map_or(true, |set| at < set) {
            self.neighbors.alarm = Some(at);
            self.timers.set(at, Alarm::Neighbors);
        }
    }

    /// The round in which this is called tries all waiting commands again.
    pub(super) fn on_neighbors(&mut self) {
        self.neighbors.alarm = None;
        self.update_autogroup();
    }

    /// There may be a token. The pool is watched again only if a command still wants one.
    pub(super) fn on_tokens(&mut self, key: u64) {
        let mut builds = self.neighbors.builds.values_mut();
        let pool = builds.find(|b| b.key == key).and_then(|b| b.pool.as_mut());
        if let Some(pool) = pool {
            let _ = epoll::delete(&self.epoll, pool.bell());
            pool.watched = false;
        }
    }

    /// With autogroups, nice values count only inside a session, and all commands are in the engine's session. So the
    /// engine's group gets the lowest nice value that any of its builds has.
    pub(super) fn update_autogroup(&mut self) {
        let Some(current) = self.neighbors.autogroup else {
            return;
        };
        let inherited = self
            .connections
            .clients()
            .filter_map(|client| client.inherited.as_ref());
        let wanted = inherited.map(|s| s.context.group_nice()).min().unwrap_or(0);
        if wanted == current {
            return;
        }
        match std::fs::write(AUTOGROUP, wanted.to_string()) {
            Ok(()) => {
                debug!("our autogroup is nice {wanted} now");
                self.neighbors.autogroup = Some(wanted);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.set_alarm_for_neighbors(Instant::now() + RATE);
            }
            Err(error) => {
                debug!("nice value of our autogroup: {error}");
                self.neighbors.autogroup = None;
            }
        }
    }
}
