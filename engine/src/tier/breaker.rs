//! Decides when a tier is left alone: after one time-out, or some errors in succession, for a pause that grows.
//!
//! Pure: the caller passes the time. Only an answer to a real question resets the pause. Otherwise, a server that accepts
//! connections and answers nothing would cost a time-out each time.

use std::time::{Duration, Instant};

/// How many errors in succession are enough. A server may drop one connection, or be restarted.
const ERRORS: u32 = 3;
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// It is asked.
    Closed { errors: u32 },
    /// It is left alone until this time.
    Open { until: Instant },
    /// One question is under way to see whether it answers again.
    HalfOpen,
}

#[derive(Debug)]
pub struct Breaker {
    state: State,
    /// The length of the next pause.
    pause: Duration,
    shortest: Duration,
    /// The reason for the last pause.
    why: String,
}

impl Breaker {
    pub fn new(pause: Duration) -> Breaker {
        Breaker {
            state: State::Closed { errors: 0 },
            pause,
            shortest: pause,
            why: String::new(),
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Why it is left alone, if it is.
    pub fn why(&self) -> Option<&str> {
        (!self.is_closed()).then_some(self.why.as_str())
    }

    /// Why it was left alone the last time.
    pub fn last_why(&self) -> Option<&str> {
        (!self.why.is_empty()).then_some(self.why.as_str())
    }

    /// A question was answered.
    pub fn worked(&mut self) {
        self.state = State::Closed { errors: 0 };
        self.pause = self.shortest;
    }

    /// A trial was answered: the tier is asked again, but the next pause stays long.
    pub fn recovered(&mut self) {
        self.state = State::Closed { errors: ERRORS - 1 };
    }

    /// A question was answered with an error. Returns whether this was one too many.
    pub fn erred(&mut self, now: Instant, why: &str) -> bool {
        match &mut self.state {
            State::Closed { errors } if *errors + 1 < ERRORS => {
                *errors += 1;
                false
            }
            _ => self.open(now, why),
        }
    }

    /// No answer came in time. Returns whether the tier is left alone from now on, and was not before.
    pub fn open(&mut self, now: Instant, why: &str) -> bool {
        let is_new = self.is_closed();
        if !matches!(self.state, State::Open { .. }) {
            self.state = State::Open {
                until: now + self.pause,
            };
            self.pause = (self.pause * 2).min(LONGEST);
            self.why = why.to_owned();
        }
        is_new
    }

    /// When the next trial is due.
    pub fn next_trial(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            _ => None,
        }
    }

    /// Whether the caller must make the trial. Only one caller gets true.
    pub fn begin_trial(&mut self, now: Instant) -> bool {
        let is_due = self.next_trial().is_some_and(|at| at <= now);
        if is_due {
            self.state = State::HalfOpen;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(5);

    #[test]
    fn one_time_out_opens_it_until_a_trial_is_answered() {
        let now = Instant::now();
        let mut breaker = Breaker::new(PAUSE);
        assert!(breaker.is_closed() && breaker.why().is_none());
        assert!(breaker.open(now, "no answer"));
        assert!(!breaker.open(now, "another"), "it was open");
        assert_eq!(breaker.why(), Some("no answer"));
        assert!(!breaker.begin_trial(now + PAUSE / 2));
        assert!(breaker.begin_trial(now + PAUSE));
        assert!(!breaker.begin_trial(now + PAUSE), "one tries");
        assert!(!breaker.is_closed());
        breaker.recovered();
        assert!(breaker.is_closed());
    }

    #[test]
    fn errors_in_succession_open_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(PAUSE);
        assert!(!breaker.erred(now, "a") && !breaker.erred(now, "b"));
        breaker.worked();
        assert!(!breaker.erred(now, "c") && !breaker.erred(now, "d"));
        assert!(breaker.erred(now, "e"));
        assert_eq!(breaker.why(), Some("e"));
    }

    #[test]
    fn the_pause_grows_until_a_question_is_answered() {
        let mut now = Instant::now();
        let mut breaker = Breaker::new(PAUSE);
        for pause in [5, 10, 20, 40, 80, 160, 300, 300].map(Duration::from_secs) {
            breaker.open(now, "no answer");
            assert_eq!(breaker.next_trial(), Some(now + pause));
            now += pause;
            assert!(breaker.begin_trial(now));
            breaker.recovered();
        }
        breaker.worked();
        breaker.open(now, "no answer");
        assert_eq!(breaker.next_trial(), Some(now + PAUSE));
    }

    #[test]
    fn a_failed_trial_opens_it_again_and_one_error_does_after_a_trial() {
        let now = Instant::now();
        let mut breaker = Breaker::new(PAUSE);
        breaker.open(now, "a");
        breaker.begin_trial(now + PAUSE);
        assert!(!breaker.erred(now + PAUSE, "b"), "nobody had begun to ask again");
        assert_eq!(breaker.next_trial(), Some(now + 3 * PAUSE));
        breaker.begin_trial(now + 3 * PAUSE);
        breaker.recovered();
        assert!(breaker.erred(now + 3 * PAUSE, "c"));
    }
}
