//! The guardian, which ends our commands if we are killed, and the roster in which it finds them.

use std::os::fd::OwnedFd;

use log::{debug, info};

use super::source::Source;
use super::Server;
use crate::process::guardian::Guardian;
use crate::process::roster::Roster;

pub(super) struct Guard {
    pub(super) roster: Roster,
    guardian: Guardian,
    /// Readable when the guardian has ended.
    end: Option<OwnedFd>,
}

impl Guard {
    pub(super) fn new(roster: Roster, guardian: Guardian) -> Guard {
        let end = None;
        Guard { roster, guardian, end }
    }
}

impl Server {
    pub(super) fn watch_guardian(&mut self) {
        match self.guard.guardian.watch() {
            Ok(end) => self.keep_guardian_end(end),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => self.replace_guardian(),
            // The kernel is old, or refuses to watch a process.
            Err(error) => debug!("watch the guardian: {error}"),
        }
    }

    fn keep_guardian_end(&mut self, end: OwnedFd) {
        match Source::Guardian.watch(&self.epoll, &end) {
            Ok(()) => self.guard.end = Some(end),
            Err(error) => debug!("watch the guardian: {error}"),
        }
    }

    /// The guardian was killed. Without one, nothing would end our commands if we were killed.
    pub(super) fn replace_guardian(&mut self) {
        self.guard.end = None;
        match self.guard.guardian.replace(&self.guard.roster) {
            Ok(end) => {
                info!("the guardian was killed; another stands in for it");
                self.keep_guardian_end(end);
            }
            Err(error) => {
                info!("the guardian was killed, and there is no other ({error}): leaving");
                self.stop_now();
            }
        }
    }
}
