//! Decides when fewer commands start: when the memory of the machine runs short, or the machine is busier than a build
//! allows.
//!
//! `Gauges` reads, `judge` decides and is pure, `Brake` remembers between two readings. Nothing is read unless a second
//! command could start.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::admission::Shortage;

/// How old a reading of memory may be. The kernel computes its averages every two seconds.
const MEMORY_AGE: Duration = Duration::from_millis(250);
/// An older reading says nothing about the present any more.
const STALE: Duration = Duration::from_secs(2);
/// How old a count of runnable threads may be. Commands that were started since are added.
const LOAD_AGE: Duration = Duration::from_millis(20);
/// When to look again while commands wait because of a reading.
pub const AGAIN: Duration = Duration::from_millis(100);

/// The share of ten seconds, in percent, in which some process waited for memory. The brake takes above the first value,
/// and is released below the second.
const PRESSURE: (f64, f64) = (10.0, 5.0);
/// The least memory that must stay available, in KiB and in percent of all memory.
const FLOOR: (u64, u64) = (256 << 10, 3);
/// How much more memory must be available, in percent of that floor, for the brake to be released.
const RELEASE: u64 = 125;

/// The files of `/proc` that are read.
pub struct Gauges {
    pressure: PathBuf,
    memory: PathBuf,
    load: PathBuf,
}

/// A reading. What could not be read is None.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Memory {
    /// `some avg10`, in percent.
    pub pressure: Option<f64>,
    /// In KiB.
    pub available: Option<u64>,
    pub total: Option<u64>,
}

/// Why fewer commands start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strain {
    Pressure(f64),
    Short { available: u64, floor: u64 },
}

impl fmt::Display for Strain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strain::Pressure(percent) => {
                write!(f, "memory pressure: somebody waits for memory {percent} % of the time")
            }
            Strain::Short { available, floor } => {
                let (available, floor) = (available >> 10, floor >> 10);
                write!(f, "memory short: {available} MiB available, {floor} MiB are to be left")
            }
        }
    }
}

impl Gauges {
    /// The gauges of a folder that is `/proc`, or looks like it.
    pub fn below(folder: &Path) -> Gauges {
        Gauges {
            pressure: folder.join("pressure/memory"),
            memory: folder.join("meminfo"),
            load: folder.join("loadavg"),
        }
    }

    pub fn memory(&self) -> Memory {
        let pressure = fs::read_to_string(&self.pressure).unwrap_or_default();
        let memory = start_of(&self.memory);
        let size = |name: &str| {
            let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Memory {
            pressure: some_of_ten(&pressure),
            available: size("MemAvailable:"),
            total: size("MemTotal:"),
        }
    }

    /// The threads that run, or are ready to run, without the one that asks.
    pub fn runnable(&self) -> Option<usize> {
        let text = fs::read_to_string(&self.load).ok()?;
        let (runnable, _) = text.split(' ').nth(3)?.split_once('/')?;
        Some(runnable.parse::<usize>().ok()?.saturating_sub(1))
    }
}

/// The fields that we need are in the first lines of /proc/meminfo.
fn start_of(path: &Path) -> String {
    let mut buffer = [0; 512];
    let n = File::open(path)
        .and_then(|file| file.read_at(&mut buffer, 0))
        .unwrap_or(0);
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

fn some_of_ten(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = some.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    value.parse().ok()
}

/// Whether the brake takes, or goes on taking.
pub fn judge(memory: &Memory, engaged: bool) -> Option<Strain> {
    let pressure = if engaged { PRESSURE.1 } else { PRESSURE.0 };
    if let Some(percent) = memory.pressure.filter(|percent| *percent > pressure) {
        return Some(Strain::Pressure(percent));
    }
    let available = memory.available?;
    let floor = floor(memory);
    let least = if engaged { floor * RELEASE / 100 } else { floor };
    (available < least).then_some(Strain::Short { available, floor })
}

/// The memory that is to stay available, in KiB.
pub fn floor(memory: &Memory) -> u64 {
    FLOOR.0.max(memory.total.unwrap_or(0) * FLOOR.1 / 100)
}

/// Why a command does not start yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hold {
    Memory(Strain),
    /// It would not fit beside the commands that run.
    Room(Shortage),
    Load {
        runnable: usize,
        most: f64,
    },
    Tokens,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::Memory(strain) => strain.fmt(f),
            Hold::Room(Shortage { need, room }) => {
                let (need, room) = (need >> 10, room >> 10);
                write!(f, "memory: the next command may need {need} MiB, {room} MiB are left")
            }
            Hold::Load { runnable, most } => write!(f, "load: {runnable} threads run, the build wants at most {most}"),
            Hold::Tokens => f.write_str("jobserver: no token is free"),
        }
    }
}

pub struct Brake {
    gauges: Gauges,
    /// Off for every build.
    off: bool,
    memory_read: Option<Instant>,
    strain: Option<(Strain, Instant)>,
    load_read: Option<Instant>,
    runnable: Option<usize>,
    /// How often the brake took, and how long the past times were together.
    times: u64,
    past: Duration,
}

impl Brake {
    pub fn new(gauges: Gauges, off: bool) -> Brake {
        Brake {
            gauges,
            off,
            memory_read: None,
            strain: None,
            load_read: None,
            runnable: None,
            times: 0,
            past: Duration::ZERO,
        }
    }

    /// Why a session that already runs a command must wait because of memory.
    pub fn memory(&mut self, now: Instant) -> Option<Strain> {
        if self.off {
            return None;
        }
        if is_old(self.memory_read, MEMORY_AGE, now) {
            self.memory_read = Some(now);
            let strain = judge(&self.gauges.memory(), self.strain.is_some());
            self.strain = match (strain, self.strain) {
                (Some(strain), Some((_, since))) => Some((strain, since)),
                (Some(strain), None) => {
                    self.times += 1;
                    log::info!("fewer commands start: {strain}");
                    Some((strain, now))
                }
                (None, Some((_, since))) => {
                    self.past += now - since;
                    log::info!("commands start as ever, after {} s", (now - since).as_secs());
                    None
                }
                (None, None) => None,
            };
        }
        self.strain.map(|(strain, _)| strain)
    }

    /// Why a session must wait that wants at most this many runnable threads on the machine.
    pub fn load(&mut self, most: f64, now: Instant) -> Option<Hold> {
        if is_old(self.load_read, LOAD_AGE, now) {
            self.load_read = Some(now);
            self.runnable = self.gauges.runnable();
        }
        let runnable = self.runnable?;
        (runnable as f64 >= most).then_some(Hold::Load { runnable, most })
    }

    /// A command starts. Earlier readings do not include it.
    pub fn started(&mut self) {
        if let Some(runnable) = &mut self.runnable {
            *runnable += 1;
        }
    }

    pub fn is_off(&self) -> bool {
        self.off
    }

    /// The strain at the last reading and how long it has lasted, how often there was one, and seconds in all. If nobody
    /// has read the gauges for a while, no strain is reported: the next start will read them.
    pub fn history(&self, now: Instant) -> (Option<(Strain, Duration)>, u64, f64) {
        let fresh = !is_old(self.memory_read, STALE, now);
        let current = self
            .strain
            .filter(|_| fresh)
            .map(|(strain, since)| (strain, now - since));
        let all = self.past + current.map_or(Duration::ZERO, |(_, time)| time);
        (current, self.times, all.as_secs_f64())
    }
}

fn is_old(read: Option<Instant>, age: Duration, now: Instant) -> bool {
    !read.is_some_and(|read| now.saturating_duration_since(read) < age)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pressure: f64, available: u64) -> Memory {
        Memory {
            pressure: Some(pressure),
            available: Some(available << 10),
            total: Some(8192 << 10),
        }
    }

    #[test]
    fn pressure_takes_above_ten_percent_and_is_released_below_five() {
        assert_eq!(judge(&memory(10.0, 4096), false), None);
        assert_eq!(judge(&memory(10.1, 4096), false), Some(Strain::Pressure(10.1)));
        assert_eq!(judge(&memory(5.1, 4096), true), Some(Strain::Pressure(5.1)));
        assert_eq!(judge(&memory(5.0, 4096), true), None);
    }

    #[test]
    fn little_memory_takes_and_a_quarter_more_releases() {
        assert_eq!(judge(&memory(0.0, 256), false), None);
        assert!(matches!(judge(&memory(0.0, 255), false), Some(Strain::Short { .. })));
        assert!(judge(&memory(0.0, 319), true).is_some());
        assert_eq!(judge(&memory(0.0, 320), true), None);
    }

    #[test]
    fn of_a_large_machine_three_percent_are_left() {
        let mut large = memory(0.0, 2000);
        large.total = Some(100 << 20);
        assert!(judge(&large, false).is_some());
    }

    #[test]
    fn without_pressure_files_the_available_memory_decides() {
        let mut old = memory(0.0, 4096);
        old.pressure = None;
        assert_eq!(judge(&old, false), None);
        old.available = Some(1);
        assert!(judge(&old, false).is_some());
        assert_eq!(judge(&Memory::default(), false), None, "and without both, nothing does");
    }

    #[test]
    fn the_kernels_own_files_are_read() {
        let gauges = Gauges::below(Path::new("/proc"));
        let found = gauges.memory();
        assert!(found.available <= found.total && found.available > Some(0), "{found:?}");
        assert!(gauges.runnable().is_some());
    }

    #[test]
    fn the_pressure_of_some_is_found() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(some_of_ten(text), Some(12.5));
        assert_eq!(some_of_ten(""), None);
    }
}
