//! How many more processes this user may have. An engine must not take processes that builds need themselves.
//!
//! The kernel counts threads as processes. Root has no such limit. Other limits, such as a control group's, show only when
//! a thread or a process cannot be made.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::{getrlimit, Resource};

/// With less than this, the engine would take what even one compile needs.
const LEAST: u64 = 12;
/// With less than this, the engine does without threads and programs that only make it faster.
const AMPLE: u64 = 96;

/// The descriptors for an idle engine, and for a command or two.
const DESCRIPTORS: u64 = 40;

/// Why there is no room for an engine at all, and what to do about it.
pub fn lacks() -> Option<String> {
    if let Headroom::None(left) = Headroom::find() {
        return Some(format!(
            "only {left} more processes are allowed (`ulimit -u`), which builds need themselves; allow more"
        ));
    }
    let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    (descriptors < DESCRIPTORS).then(|| {
        format!(
            "only {descriptors} open files are allowed (`ulimit -n`), and an engine needs {DESCRIPTORS}; allow more"
        )
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headroom {
    Ample,
    Scarce,
    /// This many processes are left.
    None(u64),
}

impl Headroom {
    /// The present state.
    pub fn find() -> Headroom {
        match getrlimit(Resource::Nproc).current {
            Some(limit) if !rustix::process::geteuid().is_root() => Headroom::of(limit.saturating_sub(count())),
            _ => Headroom::Ample,
        }
    }

    fn of(left: u64) -> Headroom {
        match left {
            0..LEAST => Headroom::None(left),
            LEAST..AMPLE => Headroom::Scarce,
            _ => Headroom::Ample,
        }
    }

    pub fn is_ample(self) -> bool {
        self == Headroom::Ample
    }
}

/// The number of this user's processes and threads.
fn count() -> u64 {
    let user = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = processes.filter(|entry| {
        let is_process = entry.file_name().as_encoded_bytes()[0].is_ascii_digit();
        is_process && entry.metadata().is_ok_and(|found| found.uid() == user)
    });
    // A folder's link count is the number of folders in it plus two. So the kernel shows the number of threads.
    let threads = ours.map(|entry| fs::metadata(entry.path().join("task")).map_or(1, |found| found.nlink() - 2));
    threads.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_with_its_threads() {
        let before = count();
        let threads = [(); 8].map(|()| std::thread::spawn(std::thread::park));
        assert!(before > 0 && count() >= 8);
        for thread in threads {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }

    #[test]
    fn little_is_scarce_and_less_is_none() {
        assert_eq!(Headroom::of(3), Headroom::None(3));
        assert_eq!(Headroom::of(16), Headroom::Scarce);
        assert!(Headroom::of(1000).is_ample());
    }
}
