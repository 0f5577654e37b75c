//! What became of the last request for each output, for whoever asks why; and where the cache was found wrong.
//!
//! Kept in memory, and appended to a file in the store's folder when that costs nobody anything, so that it outlives the
//! engine. Each line has its own check: what is damaged is forgotten.
//!
//! ```text
//! journal     = *line
//! line        = check:16*HEXDIG SP JSON LF    ; the first 8 bytes of BLAKE3 of the JSON, keyed
//! ```

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

use crate::bytes::path_text;
use crate::facts::recent::Recent;
use crate::files::regular;
use crate::report::explanation::Explanation;
use crate::wire::{Known, UnstoredReason};

/// So many outputs are remembered in memory; a project has some thousand.
const ROOM: usize = 8 << 10;
/// The ones of which is told when nobody names one.
pub const LAST: usize = 10;
/// So many that were not hits are told to whoever watches.
const MISSES: usize = 20;
/// What is new is on disk no later than this and one request.
const OFTEN: Duration = Duration::from_secs(1);
/// So many lines wait for a disk that is full, and twice as many for one that does not answer.
const UNWRITTEN: usize = 2000;
/// A file that is longer loses its first half.
const LONGEST: u64 = 4 << 20;
/// So many differences are remembered, and so much of each.
const DIFFERENCES: usize = 10;
const WORDS: usize = 1 << 10;

pub struct Journal {
    path: PathBuf,
    told: Recent<String, Arc<Explanation>>,
    fresh: Mutex<Fresh>,
    /// What earlier engines have left; read when it is asked for.
    before: OnceLock<Before>,
    /// Of audits that found the cache wrong.
    differences: Mutex<Option<Vec<String>>>,
    writing: Mutex<()>,
}

struct Fresh {
    last: VecDeque<Arc<Explanation>>,
    /// Those of them that were not hits; hits would crowd them out.
    misses: VecDeque<Arc<Explanation>>,
    unwritten: Vec<Line>,
    since: Instant,
}

/// What is put into words only when it is written: most is noted by hits.
enum Line {
    Told(Arc<Explanation>),
    /// None forgets all of them.
    Difference(Option<String>),
}

impl Line {
    fn json(&self) -> Value {
        match self {
            Line::Told(explanation) => explanation.json(),
            Line::Difference(words) => json!({ "difference": words }),
        }
    }
}

#[derive(Default)]
struct Before {
    told: HashMap<String, Arc<Explanation>>,
    /// In the order in which they were asked for.
    last: Vec<Arc<Explanation>>,
    differences: Vec<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    pub fn new(path: PathBuf) -> Journal {
        Journal {
            path,
            told: Recent::new(ROOM),
            fresh: Mutex::new(Fresh {
                last: VecDeque::new(),
                misses: VecDeque::new(),
                unwritten: Vec::new(),
                since: Instant::now(),
            }),
            before: OnceLock::new(),
            differences: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub fn note(&self, explanation: Explanation) {
        let explanation = Arc::new(explanation);
        self.told.put(explanation.output.clone(), explanation.clone());
        let mut fresh = locked(&self.fresh);
        put_last(&mut fresh.last, &explanation, LAST);
        if explanation.known != Known::Hit {
            put_last(&mut fresh.misses, &explanation, MISSES);
        }
        drop(fresh);
        self.write_later(Line::Told(explanation));
    }

    fn write_later(&self, line: Line) {
        let unwritten = &mut locked(&self.fresh).unwritten;
        unwritten.push(line);
        if unwritten.len() >= 2 * UNWRITTEN {
            unwritten.drain(..UNWRITTEN);
        }
    }

    /// Whether it is time to write it down, told to one who asks.
    pub fn is_due(&self) -> bool {
        let mut fresh = locked(&self.fresh);
        let is_due = !fresh.unwritten.is_empty() && fresh.since.elapsed() >= OFTEN;
        if is_due {
            fresh.since = Instant::now();
        }
        is_due
    }

    /// Has all of it on disk.
    pub fn flush(&self) {
        let _writing = locked(&self.writing);
        let mut fresh = locked(&self.fresh);
        let mut lines = std::mem::take(&mut fresh.unwritten);
        fresh.since = Instant::now();
        drop(fresh);
        if let Err(error) = self.write(&lines) {
            log::debug!("write {}: {error}", self.path.display());
            // There may be room later.
            let mut fresh = locked(&self.fresh);
            lines.append(&mut fresh.unwritten);
            let excess = lines.len().saturating_sub(UNWRITTEN);
            lines.drain(..excess);
            fresh.unwritten = lines;
        }
    }

    fn write(&self, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        // Half a line of an engine that was killed ends here.
        let mut text = b"\n".to_vec();
        lines.iter().for_each(|line| put(&line.json().to_string(), &mut text));
        let mut file = regular::append(&self.path)?;
        file.write_all(&text)?;
        if file.metadata()?.len() > LONGEST {
            self.shorten()?;
        }
        Ok(())
    }

    fn shorten(&self) -> io::Result<()> {
        let text = regular::read(&self.path)?;
        let half = &text[text.len() / 2..];
        let start = half.iter().position(|byte| *byte == b'\n').unwrap_or(half.len());
        let short = self.path.with_extension("new");
        fs::write(&short, &half[start..])?;
        fs::rename(&short, &self.path)
    }

    fn before(&self) -> &Before {
        self.before.get_or_init(|| read(&self.path))
    }

    /// What became of the last request for an output, whatever its path is: links and `..` in it lead where they lead.
    pub fn look_up(&self, output: &str) -> Option<Arc<Explanation>> {
        let plain = plain(Path::new(output));
        let real = || {
            let path = Path::new(output);
            let folder = path.parent()?.canonicalize().ok()?;
            Some(path_text::show(folder.join(path.file_name()?)))
        };
        self.get(&plain).or_else(|| self.get(&real()?))
    }

    fn get(&self, output: &str) -> Option<Arc<Explanation>> {
        let told = self.told.get(&output.to_owned());
        told.or_else(|| self.before().told.get(output).cloned())
    }

    /// Those that were asked for last, the latest first.
    pub fn last(&self) -> Vec<Arc<Explanation>> {
        let mut last: Vec<_> = locked(&self.fresh).last.iter().rev().cloned().collect();
        for earlier in self.before().last.iter().rev() {
            if last.iter().all(|other| other.output != earlier.output) {
                last.push(earlier.clone());
            }
        }
        last.truncate(LAST);
        last
    }

    /// The last ones since the engine started that were no hits, the latest first; waits for no disk.
    pub fn misses(&self) -> Vec<Arc<Explanation>> {
        locked(&self.fresh).misses.iter().rev().cloned().collect()
    }

    pub fn note_difference(&self, words: &str) {
        let words: String = words.chars().take(WORDS).collect();
        let mut all = self.differences();
        all.push(words.clone());
        let excess = all.len().saturating_sub(DIFFERENCES);
        all.drain(..excess);
        *locked(&self.differences) = Some(all);
        self.write_later(Line::Difference(Some(words)));
    }

    pub fn differences(&self) -> Vec<String> {
        let ours = locked(&self.differences).clone();
        ours.unwrap_or_else(|| self.before().differences.clone())
    }

    pub fn forget_differences(&self) {
        *locked(&self.differences) = Some(Vec::new());
        self.write_later(Line::Difference(None));
    }
}

/// Of each output only the last is told.
fn put_last(all: &mut VecDeque<Arc<Explanation>>, new: &Arc<Explanation>, most: usize) {
    all.retain(|other| other.output != new.output);
    if all.len() == most {
        all.pop_front();
    }
    all.push_back(new.clone());
}

fn check(text: &[u8]) -> String {
    const KEY: &[u8; 32] = b"wafcc store, format 2: a journal";
    let digest = blake3::keyed_hash(KEY, text);
    digest.to_hex()[..16].to_owned()
}

fn put(line: &str, to: &mut Vec<u8>) {
    to.extend(check(line.as_bytes()).as_bytes());
    to.push(b' ');
    to.extend(line.as_bytes());
    to.push(b'\n');
}

fn read(path: &Path) -> Before {
    let mut before = Before::default();
    let text = regular::read(path).unwrap_or_default();
    for line in text.split(|byte| *byte == b'\n').filter_map(whole) {
        match line.get("difference") {
            Some(Value::String(words)) => before.differences.push(words.clone()),
            Some(_) => before.differences.clear(),
            None => {
                if let Ok(mut explanation) = Explanation::from_json(&line) {
                    let unstored = explanation.unstored.as_mut();
                    if let Some(unkept) = unstored.filter(|unkept| unkept.why == UnstoredReason::Running) {
                        *unkept = UnstoredReason::EngineEnded.into();
                    }
                    let explanation = Arc::new(explanation);
                    before.last.push(explanation.clone());
                    before.told.insert(explanation.output.clone(), explanation);
                }
            }
        }
    }
    let excess = before.differences.len().saturating_sub(DIFFERENCES);
    before.differences.drain(..excess);
    let mut last = VecDeque::new();
    for explanation in std::mem::take(&mut before.last).into_iter().rev() {
        let is_new = last
            .iter()
            .all(|other: &Arc<Explanation>| other.output != explanation.output);
        if is_new && last.len() < LAST {
            last.push_front(explanation);
        }
    }
    before.last = last.into();
    before
}

fn whole(line: &[u8]) -> Option<Value> {
    let (found, text) = line.split_at_checked(17)?;
    let wanted = check(text);
    let is_whole = found.strip_suffix(b" ")? == wanted.as_bytes();
    is_whole.then(|| serde_json::from_slice(text).ok()).flatten()
}

/// Without `.` and `..`, as if there were no links.
pub fn plain(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    path_text::show(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> TestFolder {
            let path = std::env::temp_dir().join(format!("journal-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            TestFolder(path)
        }

        fn open(&self) -> Journal {
            Journal::new(self.0.join("journal"))
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn told(number: usize) -> Explanation {
        Explanation {
            output: format!("/p/{number}.o"),
            known: Known::Hit,
            at: number as u64,
            ..Explanation::default()
        }
    }

    fn numbers(journal: &Journal) -> Vec<u64> {
        journal.last().iter().map(|explanation| explanation.at).collect()
    }

    #[test]
    fn it_outlives_its_engine() {
        let folder = TestFolder::new("outlives");
        let first = folder.open();
        (0..12).chain([3]).for_each(|number| first.note(told(number)));
        first.note_difference("files: gcc");
        assert_eq!(numbers(&first), [3, 11, 10, 9, 8, 7, 6, 5, 4, 2]);
        first.flush();
        let second = folder.open();
        assert_eq!(numbers(&second), numbers(&first));
        assert_eq!(second.differences(), ["files: gcc"]);
        second.note(told(1));
        second.note_difference("again");
        assert_eq!(numbers(&second), [1, 3, 11, 10, 9, 8, 7, 6, 5, 4]);
        assert_eq!(
            second.look_up("/p/q/.././0.o").map(|explanation| explanation.at),
            Some(0)
        );
        assert_eq!(second.look_up("/p/12.o"), None);
        assert_eq!(second.differences(), ["files: gcc", "again"]);
        second.forget_differences();
        second.flush();
        assert_eq!(folder.open().differences(), [""; 0]);
    }

    #[test]
    fn misses_are_told_though_hits_came_after_them() {
        let folder = TestFolder::new("misses");
        let journal = folder.open();
        let miss = |number| Explanation {
            known: Known::Miss,
            ..told(number)
        };
        (0..MISSES + 2).for_each(|number| journal.note(miss(number)));
        (100..100 + LAST).for_each(|number| journal.note(told(number)));
        journal.note(miss(5));
        let misses: Vec<_> = journal.misses().iter().map(|miss| miss.at).collect();
        assert_eq!(misses[..2], [5, MISSES as u64 + 1]);
        assert_eq!(misses.len(), MISSES);
        assert!(folder.open().misses().is_empty());
    }

    #[test]
    fn what_is_damaged_is_forgotten_and_nothing_else() {
        let folder = TestFolder::new("damaged");
        let journal = folder.open();
        (0..3).for_each(|number| journal.note(told(number)));
        journal.flush();
        let path = folder.0.join("journal");
        let text = fs::read(&path).unwrap();
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let left = numbers(&folder.open());
            assert!(
                !left.is_empty() && left.iter().all(|number| *number < 3),
                "{at}: {left:?}"
            );
            fs::write(&path, &text[..at]).unwrap();
            let cut = folder.open();
            cut.note(told(7));
            cut.flush();
            assert!(numbers(&folder.open()).contains(&7), "cut at {at}");
        }
    }

    #[test]
    fn its_file_does_not_grow_for_ever() {
        let folder = TestFolder::new("grows");
        let journal = folder.open();
        let long = "x".repeat(1 << 19);
        for number in 0..20 {
            journal.note(Explanation {
                folder: long.clone(),
                ..told(number)
            });
            journal.flush();
        }
        assert!(fs::metadata(folder.0.join("journal")).unwrap().len() <= LONGEST);
        let left = numbers(&folder.open());
        assert!(left.len() > 2 && left[0] == 19, "{left:?}");
    }
}
