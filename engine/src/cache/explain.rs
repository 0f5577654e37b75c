//! Why a request was a hit, a miss, or not cached: the explanations for the journal.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::answer::{key_in_namespace, Question, Ticket};
use super::compiler::action::Action;
use super::compiler::outputs::Role;
use super::journal::plain;
use super::lookup::entry::Entry;
use super::request::now;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::bytes::path_text;
use crate::facts::definitions::{digest_except, without, Unused};
use crate::facts::fact::{Fact, Words};
use crate::facts::path::{last_name, Path as FactPath, Place};
use crate::facts::world::View;
use crate::files::regular;
use crate::report::explanation::{compare, Explanation, MOST_REASONS};
use crate::wire::{Known, Unkept};

/// A longer file is not compared line by line, and so many files are.
const LONGEST_TEXT: u64 = 256 << 10;
const MOST_COMPARED: usize = 3;
/// A longer command line is not noted.
const LONGEST: usize = 8 << 10;
/// How many digits of a key are noted. They are enough to distinguish the keys of one output.
const DIGITS: usize = 32;
/// A command without a known output is identified by this many words and characters of its command line.
const WORDS: usize = 16;
const LINE: usize = 120;

/// The reasons for a miss: the most important one first, each once.
#[derive(Default)]
pub struct Reasons {
    words: Vec<String>,
    more: u64,
}

impl Reasons {
    pub fn one(words: impl Into<String>) -> Reasons {
        let words = vec![words.into()];
        Reasons { words, more: 0 }
    }

    pub(super) fn replace(&mut self, words: &str, by: &str) {
        let same = self.words.iter_mut().filter(|known| *known == words);
        same.for_each(|known| by.clone_into(known));
    }

    pub(super) fn add(&mut self, words: String) {
        match self.words.len() {
            _ if self.words.contains(&words) => {}
            MOST_REASONS.. => self.more += 1,
            _ => self.words.push(words),
        }
    }
}

impl Cache {
    pub(super) fn note_hit(&self, question: &Question, action: &Action, key: &Digest) {
        self.journal
            .note(of_hit(explain_action(question, action, key), question));
    }

    /// The same for a hit that has another reason.
    pub(super) fn note_hit_because(&self, question: &Question, action: &Action, key: &Digest, words: &str) {
        self.journal.note(Explanation {
            known: Known::Hit,
            why: with_search(words, question),
            ..explain_action(question, action, key)
        });
    }

    /// Notes a hit for an output that the command line does not name.
    pub(super) fn note_hit_of(&self, question: &Question, action: &Action, path: &[u8]) {
        self.journal
            .note(of_hit(explain(question, &action.key, path), question));
    }

    pub(super) fn note_uncached(&self, question: &Question, action: &Action, key: &Digest, words: &str) {
        let explanation = explain_action(question, action, key);
        self.journal.note(of_uncached(explanation, question, words));
    }

    /// Notes a command that the cache does not know. An earlier explanation for its output would be out of date.
    pub(super) fn note_unknown(&self, question: &Question, words: &str) {
        let argv: Vec<&[u8]> = question.argv.iter().collect();
        let key = Digest::of(question.argv.bytes());
        let explanation = match guess_output(&argv) {
            Some(output) => explain(question, &key, &output),
            None => explain_command(question, &key),
        };
        self.journal.note(of_uncached(explanation, question, words));
    }

    pub(super) fn note_miss(&self, ticket: &Ticket, unstored: Option<&Unkept>) {
        let explanation = explain_action(&ticket.question, &ticket.action, &ticket.key);
        self.journal.note(of_miss(explanation, ticket, unstored));
    }

    /// The changes since an entry was stored.
    pub(super) fn reasons(&self, entry: &Entry, question: &Question, action: &Action, view: &mut View) -> Reasons {
        let mut reasons = Reasons::default();
        let mut compared = 0;
        for (fact, change) in entry.changes(view) {
            let content = fact.and_then(Fact::content).filter(|_| compared < MOST_COMPARED);
            let line = content.and_then(|content| {
                compared += 1;
                self.find_line(question, action, content, view.place)
            });
            reasons.add(match line {
                Some(line) => format!("{change}: {line}"),
                None => change.to_string(),
            });
        }
        reasons
    }

    /// Says which line of a file differs from the version with this digest, if a command of the same key has that version in
    /// another folder, as the same command in another checkout does.
    fn find_line(
        &self,
        question: &Question,
        action: &Action,
        (path, was, unused): (&FactPath, &Digest, Option<&Unused>),
        place: &Place,
    ) -> Option<String> {
        let key = key_in_namespace(&action.key, &question.wishes.namespace).to_string();
        let now = read_text(&place.absolute(path))?;
        let others = self.journal.elsewhere(&key[..DIGITS], &shown(&question.folder));
        let digest = |text: &[u8], place: &Place| match unused {
            Some(unused) => digest_except(text, unused, place.known_folders()),
            None => Digest::of(text),
        };
        let compared = |text: Vec<u8>, place: &Place| match unused {
            Some(unused) => without(&text, unused, place.known_folders()),
            None => text,
        };
        let mut others = others.iter().filter_map(|other| {
            let there = place_of(other, question, &action.knows.bases)?;
            let text = read_text(&there.absolute(path))?;
            (digest(&text, &there) == *was).then(|| (other, compared(text, &there)))
        });
        let (other, before) = others.next()?;
        let line = first_difference(&before, &compared(now, place))?;
        Some(format!("{line} in {}", other.folder))
    }

    /// Notes a miss for an output that the command line does not name.
    pub(super) fn note_miss_of(&self, ticket: &Ticket, path: &[u8], unstored: Option<&Unkept>) {
        let explanation = explain(&ticket.question, &ticket.key, path);
        self.journal.note(of_miss(explanation, ticket, unstored));
    }

    /// Whether the same command was not stored the last time because an input was as new as the command. This may happen
    /// each time.
    pub(super) fn came_too_early(&self, question: &Question, action: &Action, key: &Digest) -> bool {
        let now = explain_action(question, action, key);
        let before = self.journal.look_up(&now.output);
        before.is_some_and(|before| before.came_too_early() && before.key == now.key)
    }

    /// For a new command: adds how its command line differs from the last one for the same output.
    pub(super) fn add_command_line(&self, reasons: &mut Reasons, question: &Question, action: &Action, key: &Digest) {
        let now = explain_action(question, action, key);
        let Some(before) = self.journal.look_up(&now.output) else {
            return;
        };
        if before.key == now.key {
            let was_stored = before.known == Known::Hit || before.known == Known::Miss && before.unstored.is_none();
            if was_stored {
                reasons.add("its entry is not in the store any more".to_owned());
            }
            return;
        }
        let [old, new] = [&before.argv, &now.argv].map(|argv| argv.iter().map(String::as_str).collect::<Vec<_>>());
        let is_known = !old.is_empty() && !new.is_empty();
        let words = if is_known { compare(&old, &new) } else { Vec::new() };
        match words.is_empty() {
            true => reasons.add(same_arguments(is_known).to_owned()),
            false => words.into_iter().for_each(|words| reasons.add(words)),
        }
        if before.folder != now.folder {
            reasons.add(format!("it runs in {}, ran in {}", now.folder, before.folder));
        }
    }
}

/// A small file. None if it is no text.
fn read_text(path: &[u8]) -> Option<Vec<u8>> {
    let mut file = regular::open_named(Path::new(OsStr::from_bytes(path))).ok()?;
    let mut text = Vec::new();
    file.by_ref().take(LONGEST_TEXT + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= LONGEST_TEXT && !text.contains(&0)).then_some(text)
}

/// The first line that differs, and how.
fn first_difference(before: &[u8], now: &[u8]) -> Option<String> {
    let lines = |text: &'_ [u8]| -> Vec<Vec<u8>> { text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect() };
    let (before, now) = (lines(before), lines(now));
    let at = (0..before.len().max(now.len())).find(|at| before.get(*at) != now.get(*at))?;
    let show = |line: Option<&Vec<u8>>| line.map_or("not there".to_owned(), |line| Words(line).to_string());
    Some(format!(
        "line {} is {}, was {}",
        at + 1,
        show(now.get(at)),
        show(before.get(at))
    ))
}

/// The folders of another command with the same key. Its bases are found by how the command lines differ.
fn place_of(other: &Explanation, question: &Question, bases: &[Vec<u8>]) -> Option<Place> {
    let words: Vec<String> = question.argv.iter().map(shown).collect();
    let pairs = || words.iter().zip(&other.argv);
    let folders = (shown(&question.folder), other.folder.clone());
    let folders = [(&folders.0, &folders.1)];
    let moved = |base: String| -> Option<Vec<u8>> {
        let of_pair = |(now, then): (&String, &String)| -> Option<String> {
            let (before, after) = now.split_once(&base)?;
            let is_whole = after.is_empty() || after.starts_with('/') || after.starts_with('=');
            let there = then.strip_prefix(before)?.strip_suffix(after)?;
            (is_whole && there.starts_with('/')).then(|| there.to_owned())
        };
        pairs().chain(folders).find_map(of_pair).map(String::into_bytes)
    };
    let all_moved = |bases: &[Vec<u8>]| bases.iter().map(|base| moved(shown(base))).collect::<Option<Vec<_>>>();
    let bases = all_moved(bases)?;
    let known = all_moved(question.known_folders()).unwrap_or_default();
    let place = Place::new(other.folder.as_bytes(), bases.iter().map(Vec::as_slice));
    Some(place.with_known_folders(&known))
}

/// By the main output, or by the command line if the outputs are not known in advance.
fn explain_action(question: &Question, action: &Action, key: &Digest) -> Explanation {
    let mut outputs = action.knows.outputs.iter();
    match outputs.find(|output| output.role == Role::Main) {
        Some(main) => explain(question, key, &main.path),
        None => explain_command(question, key),
    }
}

fn explain(question: &Question, key: &Digest, path: &[u8]) -> Explanation {
    let path = PathBuf::from(OsStr::from_bytes(&question.folder)).join(OsStr::from_bytes(path));
    explain_as(question, key, plain(&path))
}

fn explain_command(question: &Question, key: &Digest) -> Explanation {
    let words: Vec<_> = question.argv.iter().take(WORDS).map(shown).collect();
    let line: String = words.join(" ").chars().take(LINE).collect();
    explain_as(question, key, format!("the command {line}"))
}

fn explain_as(question: &Question, key: &Digest, output: String) -> Explanation {
    let argv = match question.argv.bytes().len() {
        0..=LONGEST => question.argv.iter().map(shown).collect(),
        _ => Vec::new(),
    };
    Explanation {
        output,
        at: now(),
        folder: shown(&question.folder),
        argv,
        key: key.to_string()[..DIGITS].to_owned(),
        ..Explanation::default()
    }
}

/// The output that a compiler's arguments seem to name. Used only for explanations.
fn guess_output(argv: &[&[u8]]) -> Option<Vec<u8>> {
    let args = argv.get(1..)?;
    let named_by = |(at, word): (usize, &&[u8])| match *word {
        b"-o" | b"--output" => args.get(at + 1).map(|next| next.to_vec()),
        word => [&b"--output="[..], b"-o", b"/Fo", b"-Fo"]
            .iter()
            .find_map(|option| word.strip_prefix(*option))
            .map(<[u8]>::to_vec),
    };
    if let Some(output) = args.iter().enumerate().rev().find_map(named_by) {
        return Some(output);
    }
    if !args.contains(&&b"-c"[..]) {
        return None;
    }
    let is_source = |word: &&&[u8]| !word.starts_with(b"-") && word.contains(&b'.');
    let source = args.iter().rev().find(is_source)?;
    let name = last_name(source);
    let stem = &name[..name.iter().rposition(|byte| *byte == b'.')?];
    Some([stem, b".o"].concat())
}

fn of_uncached(explanation: Explanation, question: &Question, words: &str) -> Explanation {
    Explanation {
        known: Known::Uncached,
        why: with_search(words, question),
        ..explanation
    }
}

fn of_hit(explanation: Explanation, question: &Question) -> Explanation {
    Explanation {
        known: Known::Hit,
        why: with_search("all that it depends on is as it was", question),
        ..explanation
    }
}

/// A reason, and what the shared stores answered.
fn with_search(words: &str, question: &Question) -> Vec<String> {
    let mut why = vec![words.to_owned()];
    why.extend(question.searched.iter().flat_map(|searched| searched.words().to_vec()));
    why
}

fn of_miss(explanation: Explanation, ticket: &Ticket, unstored: Option<&Unkept>) -> Explanation {
    Explanation {
        known: Known::Miss,
        why: ticket.reasons.words.clone(),
        more: ticket.reasons.more,
        unstored: unstored.cloned(),
        ..explanation
    }
}

/// The remaining reasons for another key if no argument differs.
fn same_arguments(is_known: bool) -> &'static str {
    match is_known {
        true => "its program, a response file or the namespace is another than the last time",
        false => "its command line is another than the last time",
    }
}

fn shown(bytes: impl AsRef<[u8]>) -> String {
    path_text::show(OsStr::from_bytes(bytes.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_shown() {
        for (before, now, expected) in [
            ("a\nb\n", "a\nc\n", Some("line 2 is 'c', was 'b'")),
            ("a\n", "a\nb\n", Some("line 2 is 'b', was ''")),
            ("a\nb", "a", Some("line 2 is not there, was 'b'")),
            ("a\n", "a\n", None),
        ] {
            let found = first_difference(before.as_bytes(), now.as_bytes());
            assert_eq!(found.as_deref(), expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn the_output_of_a_command_that_is_not_known_is_guessed() {
        for (line, output) in [
            ("gcc -c a.c -o b.o", Some("b.o")),
            ("gcc -c a.c -ob.o -fnew", Some("b.o")),
            ("gcc -c src/a.b.c -fnew", Some("a.b.o")),
            ("cl /c /Fob.obj a.c", Some("b.obj")),
            ("gcc --version", None),
            ("gcc -E a.c", None),
            ("gcc", None),
            ("gcc -o", None),
        ] {
            let argv: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(guess_output(&argv), output.map(|text| text.into()), "{line}");
        }
    }
}
