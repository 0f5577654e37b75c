//! Builds that have a connection.

use std::collections::HashMap;
use std::time::Instant;

use super::slots::SessionId;
use crate::report::status::Counts;
use crate::wire::Outcome;

/// A build: all connections with one session number.
pub struct Session {
    pub name: String,
    pub pid: u32,
    pub connections: usize,
    pub own_slots: bool,
    pub started: Instant,
    pub counts: Counts,
    /// A command of it ran or was to run, so the log names it.
    pub is_logged: bool,
}

#[derive(Default)]
pub struct Sessions(HashMap<SessionId, Session>);

impl Sessions {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, id: &SessionId) -> bool {
        self.0.contains_key(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.0.iter()
    }

    /// Adds a connection to a build, or begins the build.
    pub fn enter(&mut self, id: SessionId, pid: u32, name: &[u8], own_slots: bool) {
        let session = self.0.entry(id).or_insert_with(|| Session {
            name: String::from_utf8_lossy(name).into_owned(),
            pid,
            connections: 0,
            own_slots,
            started: Instant::now(),
            counts: Counts::default(),
            is_logged: false,
        });
        session.connections += 1;
    }

    /// Removes a connection. Returns the session if this was its last one.
    pub fn leave(&mut self, id: &SessionId) -> Option<Session> {
        let session = self.0.get_mut(id)?;
        session.connections -= 1;
        if session.connections > 0 {
            return None;
        }
        self.0.remove(id)
    }

    /// The session, the first time that this is asked.
    pub fn log_once(&mut self, id: &SessionId) -> Option<&Session> {
        let session = self.0.get_mut(id).filter(|session| !session.is_logged)?;
        session.is_logged = true;
        Some(session)
    }

    pub fn is_any_logged(&self) -> bool {
        self.0.values().any(|session| session.is_logged)
    }

    pub fn count(&mut self, id: &SessionId, outcome: &Outcome) {
        if let Some(session) = self.0.get_mut(id) {
            session.counts.count(outcome);
        }
    }

    pub fn count_hit(&mut self, id: &SessionId) {
        if let Some(session) = self.0.get_mut(id) {
            session.counts.hits += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: SessionId = [1; 16];

    #[test]
    fn a_session_lasts_until_its_last_connection_leaves() {
        let mut sessions = Sessions::default();
        sessions.enter(BUILD, 7, b"first", false);
        sessions.enter(BUILD, 8, b"second", true);
        assert!(sessions.leave(&BUILD).is_none() && sessions.has(&BUILD));
        let session = sessions.leave(&BUILD).unwrap();
        assert_eq!(
            (session.name.as_str(), session.pid, session.own_slots),
            ("first", 7, false)
        );
        assert!(sessions.is_empty() && sessions.leave(&BUILD).is_none());
    }

    #[test]
    fn a_session_is_logged_once() {
        let mut sessions = Sessions::default();
        assert!(sessions.log_once(&BUILD).is_none());
        sessions.enter(BUILD, 7, b"build", false);
        assert!(!sessions.is_any_logged());
        assert!(sessions.log_once(&BUILD).is_some() && sessions.log_once(&BUILD).is_none());
        assert!(sessions.is_any_logged());
    }
}
