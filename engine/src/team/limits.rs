//! How much others may have of us, and the memory that all uploads share.

use std::num::ParseIntError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::bytes::quantity;
use crate::http::head::CAP;

/// What a connection may send before it has shown a token, a request's head among it.
pub const UNKNOWN: usize = CAP;
/// Requests that it may make until then; each is answered with an error.
pub const STRANGE_REQUESTS: u32 = 32;
/// Connections that have shown no token, of all that there may be, and at most.
const STRANGE_PART: usize = 4;
const MOST_STRANGERS: usize = 1024;

/// Options of the command line; their first line is shown as help.
#[derive(Debug, Clone, Copy, Args)]
pub struct Limits {
    /// connections that have shown a token
    #[arg(
        id = "max-connections",
        long,
        value_name = "N",
        default_value = "10500",
        allow_hyphen_values = true
    )]
    pub connections: usize,
    /// of one blob or value
    #[arg(id = "max-blob", long, value_name = "SIZE", default_value = "1G", value_parser = quantity::size)]
    pub blob: u64,
    /// memory for what comes in; the rest of it goes to files
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory)]
    pub uploads: usize,
    /// requests per second and connection; 0 is any number
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    pub rate: u32,
    /// for what has begun and does not go on; for a greeting it is a sixth of this
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, allow_hyphen_values = true)]
    pub patience: Duration,
}

fn memory(text: &str) -> Result<usize, String> {
    quantity::size(text).map(|size| size as usize)
}

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}

impl Limits {
    pub fn greeting(&self) -> Duration {
        (self.patience / 6).max(Duration::from_secs(1)).min(self.patience)
    }

    /// Connections that have shown no token yet. For one more the oldest of them has to go.
    pub fn strangers(&self) -> usize {
        (self.connections / STRANGE_PART).clamp(1, MOST_STRANGERS)
    }
}

/// How many hold something, counted as long as they do.
#[derive(Debug, Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Count {
    pub fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }

    pub fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory that many take from, and that no one may take more of than there is.
#[derive(Debug, Clone)]
pub struct Budget {
    left: Arc<AtomicUsize>,
}

/// What was taken; dropped, it is given back.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    size: usize,
}

impl Budget {
    pub fn new(size: usize) -> Budget {
        Budget {
            left: Arc::new(AtomicUsize::new(size)),
        }
    }

    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            size: 0,
        }
    }

    /// What nobody has.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

impl Share {
    pub fn size(&self) -> usize {
        self.size
    }

    /// Has this much from now on, if there is enough.
    pub fn resize(&mut self, size: usize) -> bool {
        let left = &self.budget.left;
        if size <= self.size {
            left.fetch_add(self.size - size, Ordering::Relaxed);
            self.size = size;
            return true;
        }
        let more = size - self.size;
        let take = |left: usize| left.checked_sub(more);
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if taken {
            self.size = size;
        }
        taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_all_comes_back() {
        let budget = Budget::new(100);
        let (mut one, mut two) = (budget.share(), budget.share());
        assert!(one.resize(60));
        assert!(!two.resize(41));
        assert!(two.resize(40));
        assert!(!one.resize(61));
        assert!(one.resize(10));
        drop(two);
        assert_eq!(budget.left(), 90);
    }
}
