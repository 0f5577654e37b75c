//! Says how long a worker may still wait for its tier, so that another thread can watch it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::settings::address::Limits;

pub struct Heartbeat {
    pub limits: Limits,
    origin: Instant,
    /// Microseconds from the origin; 0 while the worker waits for nothing.
    due: AtomicU64,
    /// When the present operation must be over.
    end: AtomicU64,
    /// When the last bytes came.
    beat: AtomicU64,
}

impl Heartbeat {
    pub fn new(limits: Limits) -> Heartbeat {
        Heartbeat {
            limits,
            origin: Instant::now(),
            due: AtomicU64::new(0),
            end: AtomicU64::new(0),
            beat: AtomicU64::new(0),
        }
    }

    fn microseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_micros() as u64 + 1
    }

    /// An operation begins. At first there may be a connection to be made.
    pub fn begin(&self) {
        let now = Instant::now();
        let end = now + self.limits.connect + self.limits.whole;
        self.end.store(self.microseconds(end), Ordering::Relaxed);
        self.due
            .store(self.microseconds(now + self.limits.connect), Ordering::Relaxed);
    }

    /// From now on the operation has this time left. Returns how long the next wait may be.
    pub fn allow(&self, time: Duration) -> Duration {
        let now = Instant::now();
        let end = self.end.load(Ordering::Relaxed);
        let due = self.microseconds(now + time).min(end);
        self.beat.store(self.microseconds(now), Ordering::Relaxed);
        self.due.store(due, Ordering::Relaxed);
        Duration::from_micros(due.saturating_sub(self.microseconds(now)))
    }

    /// Allows a wait for the next bytes.
    pub fn listen(&self) -> Duration {
        self.allow(self.limits.silence)
    }

    /// When the last bytes came.
    pub fn beat(&self) -> Instant {
        self.origin + Duration::from_micros(self.beat.load(Ordering::Relaxed))
    }

    pub fn rest(&self) {
        self.due.store(0, Ordering::Relaxed);
    }

    pub fn is_over(&self, now: Instant) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due != 0 && due < self.microseconds(now)
    }

    pub fn is_resting(&self) -> bool {
        self.due.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_after_the_allowed_time() {
        let limits = Limits::default();
        let heartbeat = Heartbeat::new(limits);
        let later = |time| Instant::now() + time;
        assert!(heartbeat.is_resting() && !heartbeat.is_over(later(Duration::from_secs(9))));
        heartbeat.begin();
        assert!(!heartbeat.is_over(Instant::now()));
        assert!(heartbeat.is_over(later(limits.connect * 2)));
        assert!(heartbeat.listen() <= limits.silence);
        assert!(heartbeat.is_over(later(limits.silence * 2)));
        assert!(heartbeat.allow(Duration::from_secs(900)) <= limits.connect + limits.whole);
        assert!(heartbeat.is_over(later(limits.connect + limits.whole * 2)));
        heartbeat.rest();
        assert!(heartbeat.is_resting());
    }
}
