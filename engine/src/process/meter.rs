//! Reads how much memory is left: on the machine, in control groups, and what commands use.
//!
//! The page cache counts as available, because the kernel takes it back. Swap does not count. Sizes are in KiB.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::admission::{CommandKey, Domain, Meter};
use super::brake::{self, Gauges};
use super::processes;

/// How old a reading may be while there is room.
const AGE: Duration = Duration::from_millis(250);
/// The same while commands wait, and one has ended since.
const SHORT_AGE: Duration = Duration::from_millis(5);
/// The processes are read at most so often …
const PAUSE: Duration = Duration::from_millis(10);
/// … and so seldom that the readings take at most one part in so many of the time.
const SHARE: u32 = 20;
/// One part in so many of a group's limit is left free.
const GROUP_FLOOR: u64 = 32;
/// A version 1 group without a limit has nearly the largest number as its limit.
const NO_LIMIT: u64 = 1 << 60;

pub struct MemoryMeter {
    gauges: Gauges,
    available: HashMap<Domain, (Instant, Option<u64>)>,
    /// A command has ended since the readings.
    has_ended: bool,
    /// When the processes may be read again.
    next_use: Option<Instant>,
}

impl MemoryMeter {
    pub fn new(gauges: Gauges) -> MemoryMeter {
        MemoryMeter {
            gauges,
            available: HashMap::new(),
            has_ended: false,
            next_use: None,
        }
    }

    /// A command has ended. What it used is available again.
    pub fn note_end(&mut self) {
        self.has_ended = true;
    }

    /// When a command that waits should be tried again.
    pub fn again(&self, now: Instant) -> Instant {
        let pause = if self.has_ended { PAUSE } else { brake::AGAIN };
        now + pause
    }
}

/// The meter, the time, and the process groups of running commands.
pub struct Reading<'a, G> {
    pub meter: &'a mut MemoryMeter,
    pub groups: G,
    pub now: Instant,
}

impl<G: Fn() -> HashMap<i32, CommandKey>> Meter for Reading<'_, G> {
    fn available(&mut self, domain: &Domain, is_short: bool) -> Option<u64> {
        let age = if is_short && self.meter.has_ended {
            SHORT_AGE
        } else {
            AGE
        };
        let known = self.meter.available.get(domain);
        if let Some((_, available)) = known.filter(|(at, _)| self.now.saturating_duration_since(*at) < age) {
            return *available;
        }
        let available = match domain {
            Domain::Machine => available(&self.meter.gauges),
            Domain::Group(folder) => available_in(folder),
        };
        self.meter.available.insert(domain.clone(), (self.now, available));
        self.meter.has_ended &= !is_short;
        available
    }

    fn used(&mut self) -> Option<HashMap<CommandKey, u64>> {
        if self.meter.next_use.is_some_and(|next| self.now < next) {
            return None;
        }
        let begun = Instant::now();
        // What commands have taken since the earlier readings would count as used, and as available still.
        self.meter.available.clear();
        let groups = (self.groups)();
        let numbers: HashSet<i32> = groups.keys().copied().collect();
        let used = processes::resident(&numbers);
        self.meter.next_use = Some(self.now + PAUSE.max(begun.elapsed() * SHARE));
        let used = used.into_iter();
        Some(
            used.filter_map(|(group, kib)| Some((*groups.get(&group)?, kib)))
                .collect(),
        )
    }
}

/// The memory of the machine that a build may take, beside what the brake leaves free.
fn available(gauges: &Gauges) -> Option<u64> {
    let memory = gauges.memory();
    Some(memory.available?.saturating_sub(brake::floor(&memory)))
}

// ---- control groups

/// The control groups of a process that may have a limit of memory, from its own to the root.
pub fn domains_of(pid: u32) -> Vec<Domain> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let folders = folders_of(&groups, &mounts).into_iter();
    let folders = folders.filter(|folder| limit_of(folder, is_there).is_some());
    std::iter::once(Domain::Machine)
        .chain(folders.map(Domain::Group))
        .collect()
}

fn is_there(path: &Path) -> Option<u64> {
    path.exists().then_some(0)
}

/// The folders of a process's groups, in both versions of control groups, and of those above them.
fn folders_of(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let is_second = controllers.is_empty();
        if !is_second && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let Some((root, mount)) = mounts.lines().find_map(|mount| mount_of(mount, is_second)) else {
            continue;
        };
        // In a container, the mount may begin at the group itself, or below it.
        let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        let is_inside = below.components().all(|part| part != std::path::Component::ParentDir);
        let folder = if is_inside { mount.join(below) } else { mount.clone() };
        folders.extend(
            folder
                .ancestors()
                .take_while(|above| above.starts_with(&mount))
                .map(Path::to_owned),
        );
    }
    folders
}

/// Root and mount point, if a line of `mountinfo` is about groups of this version that count memory.
fn mount_of(line: &str, is_second: bool) -> Option<(PathBuf, PathBuf)> {
    let (about, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let name = kind.next()?;
    let mut counts_memory = || {
        kind.nth(1)
            .is_some_and(|options| options.split(',').any(|option| option == "memory"))
    };
    let is_meant = match is_second {
        true => name == "cgroup2",
        false => name == "cgroup" && counts_memory(),
    };
    let mut about = about.split(' ').skip(3);
    is_meant.then_some(())?;
    Some((about.next()?.into(), about.next()?.into()))
}

/// The limit of a group in bytes, as `read` finds it in one of the group's files.
fn limit_of(folder: &Path, read: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    let files = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    files.iter().filter_map(|file| read(&folder.join(file))).min()
}

/// The memory that a group may still take, in KiB. None if it has no limit.
fn available_in(folder: &Path) -> Option<u64> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = limit_of(folder, number).filter(|limit| *limit < NO_LIMIT)?;
    let files = ["memory.current", "memory.usage_in_bytes"];
    let used = files.iter().find_map(|file| number(&folder.join(file)))?;
    let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let used = used.saturating_sub(page_cache(&statistics));
    Some(limit.saturating_sub(used).saturating_sub(limit / GROUP_FLOOR) >> 10)
}

/// The page cache of a group and those below it. In version 1, only the names with `total_` include these.
fn page_cache(statistics: &str) -> u64 {
    let value = |name: &str| {
        let mut lines = statistics.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    let parts = ["inactive_file", "active_file"];
    let both = parts.map(|part| value(&format!("total_{part}")).or_else(|| value(part)).unwrap_or(0));
    both.iter().sum()
}

/// How often the kernel has killed a process for lack of memory, in the innermost of these control groups, or on the
/// machine if there is none.
pub fn kills(domains: &[Domain]) -> Option<u64> {
    let groups = domains.iter().filter_map(|domain| match domain {
        Domain::Machine => None,
        Domain::Group(folder) => Some(folder),
    });
    let count = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse().ok()
    };
    let found = groups.take(1).find_map(|folder| {
        let files = ["memory.events", "memory.oom_control"];
        files.iter().find_map(|file| count(folder.join(file)))
    });
    found.or_else(|| count("/proc/vmstat".into()))
}

/// Whether a process is the engine's descendant: then a command of the engine has started it.
pub fn descends_from(pid: u32, engine: u32) -> bool {
    /// A chain of parents is shorter than this.
    const DEPTH: usize = 64;
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    std::iter::successors(Some(pid), parent)
        .take(DEPTH)
        .any(|ancestor| ancestor == engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: &str = "36 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const FIRST: &str = "40 30 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 30 0:36 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        42 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_groups_of_a_process_are_found_up_to_the_root() {
        let found = folders_of("0::/user.slice/build\n", SECOND);
        let wanted = [
            "/sys/fs/cgroup/user.slice/build",
            "/sys/fs/cgroup/user.slice",
            "/sys/fs/cgroup",
        ];
        assert_eq!(found, wanted.map(PathBuf::from));
    }

    #[test]
    fn in_version_one_the_hierarchy_of_memory_counts() {
        let found = folders_of("5:cpu:/a\n4:memory:/b\n0::/\n", FIRST);
        let wanted = [
            "/sys/fs/cgroup/memory/b",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/unified",
        ];
        assert_eq!(found, wanted.map(PathBuf::from));
    }

    #[test]
    fn in_a_container_the_mount_may_begin_at_the_group() {
        let mounts = SECOND.replace(" / /sys", " /docker/1 /sys");
        assert_eq!(folders_of("0::/docker/1\n", &mounts), [Path::new("/sys/fs/cgroup")]);
        let below = folders_of("0::/docker/1/job\n", &mounts);
        assert_eq!(below[0], Path::new("/sys/fs/cgroup/job"));
        assert_eq!(folders_of("0::/../other\n", SECOND), [Path::new("/sys/fs/cgroup")]);
    }

    fn group(files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("group-{}-{}", std::process::id(), files[0].1.trim()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn the_page_cache_of_a_group_is_available() {
        let second = group(&[
            ("memory.max", "67108864\n"),
            ("memory.high", "max\n"),
            ("memory.current", "33554432\n"),
            ("memory.stat", "anon 1\ninactive_file 1048576\nactive_file 1048576\n"),
            ("memory.events", "low 0\noom 3\noom_kill 2\n"),
        ]);
        assert_eq!(available_in(&second), Some((64 - 32 + 2 - 2) << 10));
        assert_eq!(kills(&[Domain::Machine, Domain::Group(second.clone())]), Some(2));
        let first = group(&[
            ("memory.limit_in_bytes", "67108865\n"),
            ("memory.usage_in_bytes", "33554432\n"),
            (
                "memory.stat",
                "inactive_file 7\ntotal_inactive_file 2097152\ntotal_active_file 0\n",
            ),
        ]);
        assert_eq!(available_in(&first), Some((64 - 32 + 2 - 2) << 10));
        let free = group(&[("memory.limit_in_bytes", "9223372036854771712\n")]);
        assert_eq!(available_in(&free), None);
        for folder in [first, second, free] {
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn a_child_descends_from_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (us, child_number) = (std::process::id(), child.id());
        assert!(descends_from(child_number, us) && !descends_from(us, child_number));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn this_machine_is_read() {
        let mut meter = MemoryMeter::new(Gauges::below(Path::new("/proc")));
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let mut reading = Reading {
            meter: &mut meter,
            groups: || HashMap::from([(group, 7)]),
            now: Instant::now(),
        };
        assert!(reading.available(&Domain::Machine, true) > Some(0));
        let used = reading.used().unwrap();
        assert!(used[&7] > 0);
        assert_eq!(reading.used(), None, "not twice at the same time");
        assert_eq!(domains_of(std::process::id())[0], Domain::Machine);
    }
}
