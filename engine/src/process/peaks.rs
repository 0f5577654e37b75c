//! The peaks of memory of earlier commands, and from them an estimate for the next command.
//!
//! A command is known by its words and its folder. If that command has never run, the same words in another folder count,
//! as after a clone of the project. Otherwise its siblings count: commands of the same program with the same options,
//! then all of the program, then all. Few siblings say little, so their estimate is held against that of the larger
//! group. A command that was killed because memory ran out may have had little yet, so it counts as the largest of its
//! siblings until it has run to its end.
//!
//! Pure, except that it does not read the clock: `day` is the number of days since 1970. Sizes are in KiB. The file:
//!
//! ```text
//! file    = "wafpeaks" version:u32 commands:u32 groups:u32 command{commands} group{groups} digest:byte{32}
//! command = key:u64 words:u64 peak:u32 day:u32 killed:u8
//! group   = key:u64 count:u32 mean:f32 variance:f32 most:u32 day:u32
//! digest  = BLAKE3 of all that is before it
//! ```
//!
//! Numbers are little-endian. A file that is damaged, or of another version, counts as empty.

use std::collections::HashMap;
use std::path::Path;

use crate::bytes::digest::Digest;
use crate::bytes::fields::{Malformed, Reader};
use crate::wire::Strings;

const MAGIC: &[u8; 8] = b"wafpeaks";
const VERSION: u32 = 2;
/// The most commands that are remembered. When there are more, those go that have not run for the longest time.
const MOST_COMMANDS: usize = 32768;
const MOST_GROUPS: usize = 2048;
/// What a command is thought to need of which nothing is known, in KiB. Hardly a compile needs more.
pub const UNKNOWN: u32 = 2 << 20;
/// After so many commands of a group, the larger group counts half.
const DOUBT: f32 = 4.0;
/// A group forgets slowly what was before so many commands.
const SPAN: u32 = 64;
/// A part of the difference by which a peak shrinks when its command needed less.
const SHRINK: u32 = 4;

/// The names under which a command is known, from the closest to the widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    /// Its words and its folder.
    command: u64,
    words: u64,
    /// Its program and its options.
    kind: u64,
    program: u64,
}

/// The group of all commands.
const ALL: u64 = 0;

impl Names {
    pub fn of(argv: &Strings, folder: &[u8]) -> Names {
        let program = argv.iter().next().unwrap_or_default();
        let program = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // Options with paths and values differ between the commands of one target.
        let plain = |word: &&[u8]| word.starts_with(b"-") && !word.iter().any(|byte| b"/=.".contains(byte));
        let options = argv.iter().filter(plain).flat_map(|word| [word, b"\0"]);
        Names {
            command: name(&[b"c", folder, b"\0", argv.bytes()]),
            words: name(&[b"w", argv.bytes()]),
            kind: name(&[b"k", program, b"\0", &options.collect::<Vec<_>>().concat()]),
            program: name(&[b"p", program]),
        }
    }

    /// Groups from the widest to the closest.
    fn groups(&self) -> [u64; 3] {
        [ALL, self.program, self.kind]
    }
}

fn name(parts: &[&[u8]]) -> u64 {
    let Digest(bytes) = Digest::of(&parts.concat());
    u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default())
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Peak {
    words: u64,
    peak: u32,
    day: u32,
    is_killed: bool,
}

/// The peaks of many commands in few numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Group {
    count: u32,
    mean: f32,
    variance: f32,
    most: u32,
    day: u32,
}

impl Group {
    fn add(&mut self, peak: u32, day: u32) {
        self.count = self.count.saturating_add(1);
        self.day = day;
        self.most = self.most.max(peak);
        let share = 1.0 / self.count.min(SPAN) as f32;
        let off = peak as f32 - self.mean;
        self.mean += off * share;
        self.variance += (off * (peak as f32 - self.mean) - self.variance) * share;
    }

    /// What most of its commands stay below: a single large one does not decide for all.
    fn bound(&self) -> u32 {
        let usual = self.mean + 2.0 * self.variance.max(0.0).sqrt();
        self.most.min(usual as u32)
    }

    /// How much the estimate of the larger group still counts.
    fn doubt(&self) -> f32 {
        DOUBT / (DOUBT + self.count as f32)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Peaks {
    commands: HashMap<u64, Peak>,
    /// The largest peak of the same words, in any folder.
    words: HashMap<u64, u32>,
    groups: HashMap<u64, Group>,
}

impl Peaks {
    /// What a command will need at most, as far as one can know.
    pub fn estimate(&self, names: &Names) -> u64 {
        let estimate = match self.commands.get(&names.command) {
            Some(known) if known.is_killed => known.peak.max(self.most(names)),
            Some(known) => known.peak,
            None => self
                .words
                .get(&names.words)
                .copied()
                .unwrap_or_else(|| self.guess(names)),
        };
        u64::from(estimate)
    }

    /// The largest peak of the command's siblings.
    fn most(&self, names: &Names) -> u32 {
        self.groups.get(&names.kind).map_or(0, |group| group.most)
    }

    fn guess(&self, names: &Names) -> u32 {
        let groups = names.groups().into_iter().filter_map(|group| self.groups.get(&group));
        groups.fold(UNKNOWN, |wider, group| {
            group.bound().max((wider as f32 * group.doubt()) as u32)
        })
    }

    /// A command has ended.
    pub fn learn(&mut self, names: &Names, peak: u64, day: u32) {
        self.note(names, peak, day, false);
    }

    /// A command was killed because memory ran out.
    pub fn learn_killed(&mut self, names: &Names, peak: u64, day: u32) {
        self.note(names, peak, day, true);
    }

    fn note(&mut self, names: &Names, peak: u64, day: u32, is_killed: bool) {
        let peak = u32::try_from(peak).unwrap_or(u32::MAX);
        let known = self.commands.get(&names.command).map_or(peak, |known| known.peak);
        // One run that needed less may be an exception, as when it failed early.
        let peak_now = peak.max(known - known.saturating_sub(peak) / SHRINK);
        self.put(
            names.command,
            Peak {
                words: names.words,
                peak: peak_now,
                day,
                is_killed,
            },
        );
        for group in names.groups() {
            self.groups.entry(group).or_default().add(peak, day);
        }
        self.shrink();
    }

    fn put(&mut self, command: u64, peak: Peak) {
        let same = self.words.entry(peak.words).or_default();
        *same = (*same).max(peak.peak);
        self.commands.insert(command, peak);
    }

    /// Adds what another engine has stored meanwhile.
    pub fn absorb(&mut self, other: Peaks) {
        for (command, peak) in other.commands {
            if !self.commands.contains_key(&command) {
                self.put(command, peak);
            }
        }
        for (key, group) in other.groups {
            let ours = self.groups.entry(key).or_default();
            if ours.count < group.count {
                *ours = group;
            }
        }
        self.shrink();
    }

    /// Drops the oldest quarter if there are too many.
    fn shrink(&mut self) {
        if self.commands.len() > MOST_COMMANDS {
            let days = self.commands.values().map(|peak| peak.day);
            let (oldest, mut left) = oldest_quarter(days.collect());
            self.commands.retain(|_, peak| !is_dropped(peak.day, oldest, &mut left));
            self.words.clear();
            for peak in self.commands.values() {
                let same = self.words.entry(peak.words).or_default();
                *same = (*same).max(peak.peak);
            }
        }
        if self.groups.len() > MOST_GROUPS {
            let days = self.groups.values().map(|group| group.day);
            let (oldest, mut left) = oldest_quarter(days.collect());
            self.groups.retain(|_, group| !is_dropped(group.day, oldest, &mut left));
        }
    }

    pub fn len(&self) -> usize {
        self.commands.len()
    }

    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for number in [VERSION, self.commands.len() as u32, self.groups.len() as u32] {
            out.extend(number.to_le_bytes());
        }
        for (key, peak) in &self.commands {
            out.extend(key.to_le_bytes());
            out.extend(peak.words.to_le_bytes());
            out.extend(peak.peak.to_le_bytes());
            out.extend(peak.day.to_le_bytes());
            out.push(u8::from(peak.is_killed));
        }
        for (key, group) in &self.groups {
            out.extend(key.to_le_bytes());
            out.extend(group.count.to_le_bytes());
            out.extend(group.mean.to_bits().to_le_bytes());
            out.extend(group.variance.to_bits().to_le_bytes());
            out.extend(group.most.to_le_bytes());
            out.extend(group.day.to_le_bytes());
        }
        let digest = Digest::of(&out);
        out.extend(digest.0);
        out
    }

    /// Of damaged bytes, nothing is taken.
    pub fn decode(bytes: &[u8]) -> Peaks {
        decode(bytes).unwrap_or_default()
    }
}

/// The last day of the oldest quarter, and how many of that day are to go.
fn oldest_quarter(mut days: Vec<u32>) -> (u32, usize) {
    let quarter = days.len() / 4;
    let (older, oldest, _) = days.select_nth_unstable(quarter);
    let of_that_day = older.iter().filter(|day| *day == oldest).count() + 1;
    (*oldest, of_that_day)
}

fn is_dropped(day: u32, oldest: u32, left: &mut usize) -> bool {
    let is_among = day == oldest && *left > 0;
    *left -= usize::from(is_among);
    day < oldest || is_among
}

fn decode(bytes: &[u8]) -> Result<Peaks, Malformed> {
    const DAMAGED: Malformed = Malformed("the peaks are damaged");
    let end = bytes.len().checked_sub(Digest::SIZE).ok_or(DAMAGED)?;
    let (content, digest) = bytes.split_at(end);
    if Digest::of(content).0 != digest {
        return Err(DAMAGED);
    }
    let mut r = Reader(content);
    if r.array::<8>()? != *MAGIC || r.u32()? != VERSION {
        return Err(DAMAGED);
    }
    let (commands, groups) = (r.u32()?, r.u32()?);
    let mut peaks = Peaks::default();
    for _ in 0..commands {
        let (key, words) = (r.u64()?, r.u64()?);
        let (peak, day) = (r.u32()?, r.u32()?);
        let is_killed = r.u8()? != 0;
        let peak = Peak {
            words,
            peak,
            day,
            is_killed,
        };
        peaks.put(key, peak);
    }
    for _ in 0..groups {
        let key = r.u64()?;
        let group = Group {
            count: r.u32()?,
            mean: f32::from_bits(r.u32()?),
            variance: f32::from_bits(r.u32()?),
            most: r.u32()?,
            day: r.u32()?,
        };
        peaks.groups.insert(key, group);
    }
    r.end()?;
    Ok(peaks)
}

/// The day of now.
pub fn today() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| (now.as_secs() / 86400) as u32)
}

/// Reads a file of peaks. Without one, or if it is damaged, nothing is known.
pub fn read(path: &Path) -> Peaks {
    let bytes = crate::files::regular::read(path).unwrap_or_default();
    Peaks::decode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str], folder: &str) -> Names {
        Names::of(&words.iter().collect(), folder.as_bytes())
    }

    fn compile(source: &str) -> Names {
        names(&["/usr/bin/g++", "-O2", "-Iinclude/x", "-c", source, "-o", "x.o"], "/p")
    }

    #[test]
    fn a_command_needs_what_it_needed() {
        let mut peaks = Peaks::default();
        peaks.learn(&compile("a.cc"), 1000, 1);
        assert_eq!(peaks.estimate(&compile("a.cc")), 1000);
        peaks.learn(&compile("a.cc"), 3000, 1);
        assert_eq!(peaks.estimate(&compile("a.cc")), 3000, "more counts at once");
        peaks.learn(&compile("a.cc"), 1000, 1);
        assert_eq!(peaks.estimate(&compile("a.cc")), 2500, "less counts slowly");
    }

    #[test]
    fn a_killed_command_counts_as_the_largest_of_its_siblings_until_it_has_run() {
        let mut peaks = Peaks::default();
        peaks.learn_killed(&compile("a.cc"), 500, 1);
        assert_eq!(peaks.estimate(&compile("a.cc")), 500, "nothing is known of siblings");
        peaks.learn(&compile("b.cc"), 3000, 1);
        peaks.learn(&names(&["g++", "a.o", "-o", "app"], "/p"), 9000, 1);
        assert_eq!(peaks.estimate(&compile("a.cc")), 3000);
        assert_eq!(Peaks::decode(&peaks.encode()).estimate(&compile("a.cc")), 3000);
        peaks.learn(&compile("a.cc"), 900, 1);
        assert_eq!(peaks.estimate(&compile("a.cc")), 900);
    }

    #[test]
    fn the_same_words_in_another_folder_need_the_same() {
        let mut peaks = Peaks::default();
        peaks.learn(&names(&["cc", "-c", "a.c"], "/p"), 1000, 1);
        assert_eq!(peaks.estimate(&names(&["cc", "-c", "a.c"], "/q")), 1000);
    }

    #[test]
    fn nothing_known_is_a_lot_and_siblings_bring_it_down() {
        let mut peaks = Peaks::default();
        assert_eq!(peaks.estimate(&compile("new.cc")), u64::from(UNKNOWN));
        let mut before = u64::from(UNKNOWN);
        for n in 0..200 {
            peaks.learn(&compile(&format!("{n}.cc")), 100 << 10, 1);
            let now = peaks.estimate(&compile("new.cc"));
            assert!(now <= before, "{now} after {before}");
            before = now;
        }
        assert_eq!(before, 100 << 10);
    }

    #[test]
    fn one_large_sibling_of_many_does_not_decide() {
        let mut peaks = Peaks::default();
        for n in 0..200 {
            let peak = if n == 100 { 8 << 20 } else { 100 << 10 };
            peaks.learn(&compile(&format!("{n}.cc")), peak, 1);
        }
        let estimate = peaks.estimate(&compile("new.cc"));
        assert!((100 << 10..4 << 20).contains(&estimate), "{estimate}");
    }

    #[test]
    fn links_are_no_siblings_of_compiles() {
        let mut peaks = Peaks::default();
        for n in 0..100 {
            peaks.learn(&compile(&format!("{n}.cc")), 500 << 10, 1);
            peaks.learn(&names(&["g++", "a.o", "-o", &format!("{n}")], "/p"), 50 << 10, 1);
        }
        let link = peaks.estimate(&names(&["g++", "b.o", "-o", "new"], "/p"));
        assert!(link < 100 << 10, "{link}");
        assert!(peaks.estimate(&compile("new.cc")) >= 500 << 10);
    }

    #[test]
    fn peaks_are_read_as_they_were_written() {
        let mut peaks = Peaks::default();
        for n in 0..10 {
            peaks.learn(&compile(&format!("{n}.cc")), n << 10, 7);
        }
        assert_eq!(Peaks::decode(&peaks.encode()), peaks);
    }

    #[test]
    fn damaged_bytes_are_nothing() {
        let mut peaks = Peaks::default();
        peaks.learn(&compile("a.cc"), 1000, 1);
        let bytes = peaks.encode();
        for end in 0..bytes.len() {
            assert!(Peaks::decode(&bytes[..end]).is_empty(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Peaks::decode(&damaged).is_empty(), "{at}");
        }
    }

    #[test]
    fn when_there_are_too_many_the_oldest_go() {
        let mut peaks = Peaks::default();
        let count = MOST_COMMANDS as u32 + 1;
        for n in 0..count {
            let names = Names {
                command: n.into(),
                words: n.into(),
                kind: 1,
                program: 2,
            };
            peaks.learn(&names, 1, n / 1000);
        }
        assert!(peaks.len() <= MOST_COMMANDS && peaks.len() > MOST_COMMANDS / 2);
        assert!(peaks.commands.contains_key(&u64::from(count - 1)));
        // No older day stays while one of a newer day goes.
        let oldest = peaks.commands.values().map(|peak| peak.day).min();
        assert_eq!(oldest, Some(8));
        assert_eq!(peaks.len(), MOST_COMMANDS - MOST_COMMANDS / 4);
        assert_eq!(peaks.words.len(), peaks.len());
    }

    #[test]
    fn what_another_engine_learned_is_added() {
        let (mut ours, mut theirs) = (Peaks::default(), Peaks::default());
        ours.learn(&compile("a.cc"), 1000, 1);
        theirs.learn(&compile("a.cc"), 2000, 1);
        theirs.learn(&compile("b.cc"), 3000, 1);
        ours.absorb(theirs);
        assert_eq!(ours.estimate(&compile("a.cc")), 1000);
        assert_eq!(ours.estimate(&compile("b.cc")), 3000);
    }
}
