//! Limits for clients, and the memory that all uploads share.

use std::num::ParseIntError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::bytes::quantity;
use crate::http::head::CAP;

/// How many bytes a connection may send before it has shown a token. The head of a request must fit in.
pub const MAX_UNAUTHENTICATED_INPUT: usize = CAP;
/// How many requests it may make until then. Each is answered with an error.
pub const MAX_UNAUTHENTICATED_REQUESTS: u32 = 32;
/// Of all connections, one part in so many may have shown no token, and never more than the second number.
const UNAUTHENTICATED_PART: usize = 4;
const MAX_UNAUTHENTICATED: usize = 1024;

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

    /// How many connections may have shown no token yet. If there is one more, the oldest of them is ended.
    pub fn max_unauthenticated(&self) -> usize {
        (self.connections / UNAUTHENTICATED_PART).clamp(1, MAX_UNAUTHENTICATED)
    }
}

/// A limited amount of memory that many connections share.
#[derive(Debug, Clone)]
pub struct Budget {
    left: Arc<AtomicUsize>,
}

/// A part of a budget. It is given back when it is dropped.
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

    /// How much is free.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

impl Share {
    pub fn size(&self) -> usize {
        self.size
    }

    /// Changes its size. Returns false, and changes nothing, if the budget has too little left.
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
    fn a_budget_is_never_exceeded_and_gets_all_back() {
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
