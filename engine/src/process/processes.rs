//! The processes of the system, and when they began.

use std::collections::{HashMap, HashSet};

/// A process, as `/proc` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub number: i32,
    pub group: i32,
    /// When it began, on the same clock as `uptime`.
    pub began: u64,
    /// Its resident memory.
    pub pages: u64,
}

/// All processes, except those that have ended and wait to be reaped.
pub fn list() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(read).collect()
}

/// The resident memory of process groups, in KiB: the sum of their processes.
pub fn resident(groups: &HashSet<i32>) -> HashMap<i32, u64> {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1024) as u64 >> 10;
    let mut found = HashMap::new();
    for process in list().into_iter().filter(|process| groups.contains(&process.group)) {
        *found.entry(process.group).or_default() += process.pages * page;
    }
    found
}

/// Whether a process runs. One that has ended and waits to be reaped does not.
pub fn lives(number: i32) -> bool {
    read(number).is_some()
}

fn read(number: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, group, began, pages) = (fields.first()?, fields.get(2)?, fields.get(19)?, fields.get(21)?);
    if ["Z", "X"].contains(state) {
        return None;
    }
    Some(Process {
        number,
        group: group.parse().ok()?,
        began: began.parse().ok()?,
        pages: pages.parse().ok()?,
    })
}

/// The time since the machine was started, in the ticks in which the kernel reports when processes began.
pub fn uptime() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks = ticks();
    time.tv_sec as u64 * ticks + time.tv_nsec as u64 * ticks / 1_000_000_000
}

/// Ticks per second.
pub fn ticks() -> u64 {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_began_when_it_was_started() {
        let before = uptime();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let number = child.id() as i32;
        let found = list().into_iter().find(|process| process.number == number).unwrap();
        assert!((before..=uptime()).contains(&found.began), "{before} {found:?}");
        child.kill().unwrap();
        // A zombie does not count. The process may need a moment to become one.
        let deadline = Instant::now() + Duration::from_secs(30);
        while list().iter().any(|process| process.number == number) {
            assert!(Instant::now() < deadline);
        }
        child.wait().unwrap();
    }
}
