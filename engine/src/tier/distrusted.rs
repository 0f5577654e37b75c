//! Clusters of which a result was found wrong. They are left alone as long as the engine runs, under any setting.

use std::sync::{PoisonError, RwLock};

/// For people, after the name of a cluster.
pub const WHY: &str = "a result of it was not what the same command makes here";

static NAMES: RwLock<Vec<String>> = RwLock::new(Vec::new());

pub fn add(name: &str) {
    if !contains(name) {
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        names.push(name.to_owned());
    }
}

pub fn contains(name: &str) -> bool {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    names.iter().any(|known| known == name)
}
