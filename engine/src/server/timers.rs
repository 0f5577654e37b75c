//! Deadlines in the order in which they come.
//!
//! Pure. An alarm is never taken back: its receiver checks whether it still matters.

use std::collections::BTreeMap;
use std::time::Instant;

use super::connection::ConnectionKey;
use super::slots::CommandKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// Some connections should have sent their greeting.
    Greetings,
    /// A frame that had begun should be complete.
    Frame(ConnectionKey),
    /// The command's timeout is over.
    TimeUp(CommandKey),
    /// The command's process has ended, but a tracer learns of it first.
    End(CommandKey),
    /// The command was asked to end, and its grace time is over.
    Kill(CommandKey),
    /// The command has ended, but another process holds its pipes.
    Abandon(CommandKey),
    /// There may be descriptors for new connections again.
    Accept,
    /// The brake may have been released.
    Neighbors,
    /// The store should have shown progress.
    Store,
    /// The engine has been idle for long enough.
    /// A command of the cluster may run here, too.
    Race,
    Idle,
}

#[derive(Default)]
pub struct Timers {
    alarms: BTreeMap<(Instant, u64), Alarm>,
    count: u64,
}

impl Timers {
    pub fn set(&mut self, at: Instant, alarm: Alarm) {
        self.count += 1;
        self.alarms.insert((at, self.count), alarm);
    }

    pub fn next(&self) -> Option<Instant> {
        self.alarms.keys().next().map(|(at, _)| *at)
    }

    pub fn due(&mut self, now: Instant) -> Option<Alarm> {
        let first = self.alarms.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn alarms_come_in_their_order_and_not_early() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut timers = Timers::default();
        timers.set(later, Alarm::Idle);
        timers.set(now, Alarm::Kill(1));
        timers.set(now, Alarm::Kill(2));
        assert_eq!(timers.next(), Some(now));
        assert_eq!(timers.due(now), Some(Alarm::Kill(1)));
        assert_eq!(timers.due(now), Some(Alarm::Kill(2)));
        assert_eq!(timers.due(now), None);
        assert_eq!(timers.due(later), Some(Alarm::Idle));
    }
}
