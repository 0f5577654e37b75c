//! A clock that never goes back, for the order in which entries were used. Two readings are never equal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Milliseconds since 1970, or more if the system's clock was set back.
pub type Instant = u64;

/// Some ten thousand years. With this limit, a wrong clock cannot use up the larger numbers.
const CAP: Instant = 1 << 48;

pub struct Clock {
    last: AtomicU64,
}

impl Clock {
    /// Always more than `newest`, whatever the system's clock says.
    pub fn after(newest: Instant) -> Clock {
        Clock {
            last: AtomicU64::new(newest.min(CAP)),
        }
    }

    pub fn now(&self) -> Instant {
        self.tick(SystemTime::now())
    }

    fn tick(&self, system: SystemTime) -> Instant {
        let since = system.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = milliseconds(since).min(CAP);
        let later = |last| Some(wall.max(last + 1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        wall.max(last.unwrap_or_else(|last| last) + 1)
    }
}

pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)
    }

    #[test]
    fn it_never_goes_back_with_the_systems_clock() {
        let clock = Clock::after(0);
        assert_eq!(clock.tick(at(1000)), 1000);
        assert_eq!(clock.tick(at(1000)), 1001);
        assert_eq!(clock.tick(at(10)), 1002);
        assert_eq!(clock.tick(at(2000)), 2000);
        assert_eq!(clock.tick(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), 2001);
    }

    #[test]
    fn it_starts_after_the_last_use() {
        assert_eq!(Clock::after(5000).tick(at(1000)), 5001);
        assert_eq!(Clock::after(u64::MAX).tick(at(1000)), CAP + 1);
    }
}
