//! The journal: an explanation of the last request for each output, and the differences that audits have found.
//!
//! It is kept in memory. When no client waits, it is appended to a file in the store's folder, so that the next engine has
//! it, too. Each line has its own checksum, and a damaged line is ignored.
//!
//! ```text
//! journal     = *line
//! line        = check:16*HEXDIG SP JSON LF    ; the first 8 bytes of BLAKE3 of the JSON, keyed
//! ```

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

use crate::bytes::path_text;
use crate::facts::path::lexically_normal;
use crate::facts::recent::Recent;
use crate::files::regular;
use crate::report::explanation::Explanation;
use crate::report::voided::{self, Voided};
use crate::wire::{Known, UnstoredReason};

/// How many outputs are kept in memory. A project has a few thousand.
const ROOM: usize = 8 << 10;
/// How many explanations are given to a client that names no output.
pub const LAST: usize = 10;
/// How many other folders are searched for an earlier version of a file.
const ELSEWHERE: usize = 8;
/// How many misses are in the engine's status.
const MISSES: usize = 20;
/// After this time, the next request causes a write to the disk.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many lines are kept for a full disk. For a disk that does not answer, it is twice as many.
const UNWRITTEN: usize = 2000;
/// A longer file loses its first half.
const LONGEST: u64 = 4 << 20;
/// How many differences are kept, and how many characters of each.
const DIFFERENCES: usize = 10;
const WORDS: usize = 1 << 10;

pub struct Journal {
    path: PathBuf,
    by_output: Recent<String, Arc<Explanation>>,
    new: Mutex<New>,
    /// The content of the file when this engine needed it for the first time.
    stored: OnceLock<Stored>,
    /// The differences that audits have found. `None` if they are still those of the file.
    differences: Mutex<Option<Vec<String>>>,
    writing: Mutex<()>,
}

/// What this engine has noted.
struct New {
    last: VecDeque<Arc<Explanation>>,
    /// The last ones that were not hits. They have a list of their own, because there are far more hits.
    misses: VecDeque<Arc<Explanation>>,
    unwritten: Vec<Note>,
    /// When `unwritten` was written last.
    since: Instant,
}

/// A line of the file. It becomes text only when it is written, so that a hit does not take longer.
enum Note {
    Request(Arc<Explanation>),
    /// `None` removes all differences.
    Difference(Option<String>),
}

impl Note {
    fn json(&self) -> Value {
        match self {
            Note::Request(explanation) => explanation.json(),
            Note::Difference(words) => json!({ "difference": words }),
        }
    }
}

/// What was read from the file.
#[derive(Default)]
struct Stored {
    by_output: HashMap<String, Arc<Explanation>>,
    last: VecDeque<Arc<Explanation>>,
    differences: Vec<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    pub fn new(path: PathBuf) -> Journal {
        Journal {
            path,
            by_output: Recent::new(ROOM),
            new: Mutex::new(New {
                last: VecDeque::new(),
                misses: VecDeque::new(),
                unwritten: Vec::new(),
                since: Instant::now(),
            }),
            stored: OnceLock::new(),
            differences: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub fn note(&self, explanation: Explanation) {
        let explanation = Arc::new(explanation);
        self.by_output.put(explanation.output.clone(), explanation.clone());
        let mut new = locked(&self.new);
        put_last(&mut new.last, &explanation, LAST);
        if explanation.known != Known::Hit {
            put_last(&mut new.misses, &explanation, MISSES);
        }
        drop(new);
        self.write_later(Note::Request(explanation));
    }

    fn write_later(&self, note: Note) {
        let unwritten = &mut locked(&self.new).unwritten;
        unwritten.push(note);
        if unwritten.len() >= 2 * UNWRITTEN {
            unwritten.drain(..UNWRITTEN);
        }
    }

    /// Whether it is time to write the file. Returns true to one caller per interval.
    pub fn is_due(&self) -> bool {
        let mut new = locked(&self.new);
        let is_due = !new.unwritten.is_empty() && new.since.elapsed() >= INTERVAL;
        if is_due {
            new.since = Instant::now();
        }
        is_due
    }

    /// Writes everything new to the file.
    pub fn flush(&self) {
        let _writing = locked(&self.writing);
        let mut new = locked(&self.new);
        let mut notes = std::mem::take(&mut new.unwritten);
        new.since = Instant::now();
        drop(new);
        if let Err(error) = self.write(&notes) {
            log::debug!("write {}: {error}", self.path.display());
            // The disk may have room later.
            let mut new = locked(&self.new);
            notes.append(&mut new.unwritten);
            let excess = notes.len().saturating_sub(UNWRITTEN);
            notes.drain(..excess);
            new.unwritten = notes;
        }
    }

    fn write(&self, notes: &[Note]) -> io::Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        // This ends the incomplete line of an engine that was killed.
        let mut text = b"\n".to_vec();
        notes.iter().for_each(|note| put(&note.json().to_string(), &mut text));
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

    fn stored(&self) -> &Stored {
        self.stored.get_or_init(|| read(&self.path))
    }

    /// The explanation of the last request for an output. Its path may contain `..`, and links to its folder.
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
        let found = self.by_output.get(&output.to_owned());
        found.or_else(|| self.stored().by_output.get(output).cloned())
    }

    /// Explanations of some commands with this key, each in another folder than this one.
    pub fn elsewhere(&self, key: &str, folder: &str) -> Vec<Arc<Explanation>> {
        let is_of = |known: &Arc<Explanation>| known.key == key && known.folder != folder;
        let mut found = self.by_output.some(ELSEWHERE, is_of);
        let stored = self.stored().by_output.values().filter(|known| is_of(known));
        found.extend(stored.take(ELSEWHERE - found.len()).cloned());
        found
    }

    /// The last requests, the newest first.
    pub fn last(&self) -> Vec<Arc<Explanation>> {
        let mut last: Vec<_> = locked(&self.new).last.iter().rev().cloned().collect();
        for earlier in self.stored().last.iter().rev() {
            if last.iter().all(|other| other.output != earlier.output) {
                last.push(earlier.clone());
            }
        }
        last.truncate(LAST);
        last
    }

    /// The last requests to this engine that were no hits, the newest first. Never waits for a disk.
    pub fn misses(&self) -> Vec<Arc<Explanation>> {
        locked(&self.new).misses.iter().rev().cloned().collect()
    }

    /// Folders of outputs of which this engine has cached nothing since then, for one reason.
    pub fn voided(&self, since: u64) -> Vec<Voided> {
        let all = self.by_output.values();
        let recent = all.iter().filter(|explanation| explanation.at >= since);
        voided::find(recent.map(|explanation| &**explanation))
    }

    pub fn note_difference(&self, words: &str) {
        let words: String = words.chars().take(WORDS).collect();
        let mut all = self.differences();
        all.push(words.clone());
        let excess = all.len().saturating_sub(DIFFERENCES);
        all.drain(..excess);
        *locked(&self.differences) = Some(all);
        self.write_later(Note::Difference(Some(words)));
    }

    pub fn differences(&self) -> Vec<String> {
        let ours = locked(&self.differences).clone();
        ours.unwrap_or_else(|| self.stored().differences.clone())
    }

    pub fn forget_differences(&self) {
        *locked(&self.differences) = Some(Vec::new());
        self.write_later(Note::Difference(None));
    }
}

/// Appends an explanation, and removes an older one of the same output.
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

fn read(path: &Path) -> Stored {
    let mut stored = Stored::default();
    let text = regular::read(path).unwrap_or_default();
    for line in text.split(|byte| *byte == b'\n').filter_map(checked) {
        match line.get("difference") {
            Some(Value::String(words)) => stored.differences.push(words.clone()),
            Some(_) => stored.differences.clear(),
            None => {
                if let Ok(mut explanation) = Explanation::from_json(&line) {
                    let unstored = explanation.unstored.as_mut();
                    if let Some(unkept) = unstored.filter(|unkept| unkept.why == UnstoredReason::Running) {
                        *unkept = UnstoredReason::EngineEnded.into();
                    }
                    let explanation = Arc::new(explanation);
                    put_last(&mut stored.last, &explanation, LAST);
                    stored.by_output.insert(explanation.output.clone(), explanation);
                }
            }
        }
    }
    let excess = stored.differences.len().saturating_sub(DIFFERENCES);
    stored.differences.drain(..excess);
    stored
}

/// The content of a line whose checksum is right.
fn checked(line: &[u8]) -> Option<Value> {
    let (found, text) = line.split_at_checked(17)?;
    let is_right = found.strip_suffix(b" ")? == check(text).as_bytes();
    is_right.then(|| serde_json::from_slice(text).ok()).flatten()
}

/// The name under which an output is noted.
pub fn plain(path: &Path) -> String {
    if path.is_absolute() {
        path_text::show(OsString::from_vec(lexically_normal(path.as_os_str().as_bytes())))
    } else {
        path_text::show(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::test_support::TestFolder;

    impl TestFolder {
        fn open(&self) -> Journal {
            Journal::new(self.path("journal"))
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
    fn the_next_engine_has_the_journal() {
        let folder = TestFolder::new();
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
    fn misses_are_kept_when_hits_follow() {
        let folder = TestFolder::new();
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
    fn only_damaged_lines_are_lost() {
        let folder = TestFolder::new();
        let journal = folder.open();
        (0..3).for_each(|number| journal.note(told(number)));
        journal.flush();
        let path = folder.path("journal");
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
    fn the_file_has_a_limit() {
        let folder = TestFolder::new();
        let journal = folder.open();
        let long = "x".repeat(1 << 19);
        for number in 0..20 {
            journal.note(Explanation {
                folder: long.clone(),
                ..told(number)
            });
            journal.flush();
        }
        assert!(fs::metadata(folder.path("journal")).unwrap().len() <= LONGEST);
        let left = numbers(&folder.open());
        assert!(left.len() > 2 && left[0] == 19, "{left:?}");
    }
}
