//! Commands that ask for the time or for random numbers. Most of them show nothing of it in what they make: a shell seeds
//! numbers that no script wants. Whether one does is seen in a second run, at another time.
//!
//! ```text
//! a command asks for the time ─► its entry, in doubt: no hit ─► idle ─► a second run, apart, with a calendar that is ahead
//!                                                                         ├─► made the same: the entry counts
//!                                                                         └─► made something else: no entry, and no further try
//! ```
//!
//! Only programs are believed that are known to ask in every run. Of others, nothing is stored, as ever.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path as FilePath;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use log::debug;

use super::answer::{key_in_namespace, Question, Ticket};
use super::by_text::Waiting;
use super::compiler::action::Knowledge;
use super::compiler::crates;
use super::lookup::entry::{Content, Entry, Output, Print};
use super::rerun::{make_empty_folders, run_apart, Apart, Due, NotCompared, Purpose, Run, PRINTS};
use super::store::EntryRef;
use super::story::Doubt;
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::bytes::path_text::is_plain;
use crate::facts::environment::{BASES, IN_DOUBT, PROOF, REFUTED};
use crate::facts::fact::Fact;
use crate::facts::file_view::FileView;
use crate::facts::input::Input;
use crate::facts::path::{Path, Place};
use crate::facts::status::Stamp;
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes, What};
use crate::process::apart::Left;
use crate::wire::Strings;

/// By how much the calendar of the second run is ahead: each part of a date is another one.
const AHEAD: u32 = 400 * 86_400 + 5 * 3_600 + 17 * 60 + 29;
/// The second run may take that much longer than the first one, and a while. A program that waits until a time of the calendar
/// would wait for a year.
const SLOWER: u64 = 10;
const WHILE: Duration = Duration::from_secs(10);
/// The second run may write that much more than the first one has left, in memory.
const LARGER: u64 = 4;
const ROOM: u64 = 64 << 20;
/// The other name, in a folder of ours, that a second run gets for the folder into which cargo builds.
const ELSEWHERE: &str = "another-folder-of-cargo";
/// After so many results of a command that were others in the second run, it is not tried again.
const ENOUGH: usize = 3;

/// The second run of a command.
pub(super) struct Rehearsal {
    doubt: Doubt,
    /// The microseconds that the first run has taken.
    wall: u64,
    _waiting: Waiting,
}

/// What the first run has made.
struct First {
    known: EntryRef,
    entry: Entry,
    /// Where its outputs are.
    names: Vec<Bytes>,
    knows: Knowledge,
}

/// What a second run says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    /// If the folder into which cargo builds has its own name.
    SameHere,
    Different,
}

impl Cache {
    /// Sets whether commands are run a second time, and of which further programs.
    pub fn prove_commands(&self, are_proved: bool) {
        self.proves_commands.store(are_proved, Ordering::Relaxed);
    }

    /// `names` are separated by blanks.
    pub fn prove_programs(&self, names: &[u8]) {
        let names = names.split(u8::is_ascii_whitespace);
        let names: Vec<Bytes> = names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
        *self.proved_programs.write().unwrap_or_else(PoisonError::into_inner) = names.into();
    }

    /// The further programs, if the command can be run a second time.
    pub(super) fn rehearsed(&self, ticket: &Ticket) -> Option<Arc<[Bytes]>> {
        let is_wanted = can_be_repeated(&ticket.question) && self.proves_commands.load(Ordering::Relaxed);
        is_wanted.then(|| {
            self.proved_programs
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        })
    }

    /// Whether a second run has made something else than the first one.
    pub(super) fn is_refuted(&self, ticket: &Ticket, facts: &[Fact]) -> bool {
        let entries = self.store.find(&ticket.key);
        let entries = entries.iter().filter_map(|known| Some(self.read(known)?.entry));
        let refuted: Vec<Entry> = entries.filter(|entry| entry.facts.contains(&proof(REFUTED))).collect();
        let is_same = |entry: &Entry| {
            let others = entry.facts.iter().filter(|fact| !is_proof(fact));
            others.eq(facts)
        };
        refuted.len() >= ENOUGH || refuted.iter().any(is_same)
    }

    /// The data for a second run of a command that will be stored in doubt.
    pub(super) fn due_rehearsal(&self, ticket: &Ticket, doubt: Doubt, wall: u64) -> Box<Due> {
        Box::new(Due {
            question: ticket.question.repeated(),
            key: ticket.action.key,
            purpose: Purpose::Rehearsal(Rehearsal {
                doubt,
                wall,
                _waiting: Waiting::begin(&self.rehearsals_waiting),
            }),
        })
    }

    /// Runs a command a second time, and decides whether its entry counts.
    ///
    /// A crate is made with another name of the folder into which cargo builds: other such folders are to share it. If it is
    /// not the same then, a third run tells whether it is the same with the folder's own name.
    pub(super) fn rehearse(&self, due: &Due, rehearsal: &Rehearsal, run: Run) -> Result<(), NotCompared> {
        let first = self.find_in_doubt(due).ok_or(NotCompared::InputsChanged)?;
        let own = self.preambles.make_folder().map_err(|_| NotCompared::NoRoom)?;
        let renaming = Renaming::of(&first, own.path());
        let is_bound = first.is_shared() && renaming.is_none();
        let verdict = match self.makes_the_same(due, rehearsal, &first, (own.path(), renaming.as_ref()), run)? {
            true if is_bound => Verdict::SameHere,
            true => Verdict::Same,
            false if renaming.is_some() => {
                match self.makes_the_same(due, rehearsal, &first, (own.path(), None), run)? {
                    true => Verdict::SameHere,
                    false => Verdict::Different,
                }
            }
            false => Verdict::Different,
        };
        if verdict == Verdict::Different {
            debug!(
                "a second run has made something else; the first one: {}",
                rehearsal.doubt.why
            );
        }
        self.decide(due, first, verdict)
    }

    /// Runs the command once more, in a folder of ours.
    fn makes_the_same(
        &self,
        due: &Due,
        rehearsal: &Rehearsal,
        first: &First,
        (own, renaming): (&FilePath, Option<&Renaming>),
        run: Run,
    ) -> Result<bool, NotCompared> {
        let question = &due.question;
        make_empty_folders(own)?;
        let size: u64 = first.entry.outputs.iter().map(Output::size).sum();
        let renamed = renaming.map(Renaming::make).transpose()?;
        let variables = renaming.map(|renaming| renaming.changed(&question.environment));
        let apart = Apart {
            folders: &rehearsal.doubt.folders,
            hidden: &first.names,
            renamed: renamed.as_ref().map_or(&[], |names| &names[..]),
            variables: variables.as_deref().unwrap_or_default(),
            room: LARGER * size + ROOM,
            ahead: AHEAD,
            limit: WHILE + Duration::from_micros(SLOWER * rehearsal.wall),
        };
        let argv = renaming.map(|renaming| renaming.command(&question.argv));
        let second = run_apart(own, argv.as_ref().unwrap_or(&question.argv), &apart, run)?;
        let is_blind = |access: &Access| matches!(access.what, What::Blind { .. });
        if second.accesses.iter().any(is_blind) {
            return Err(NotCompared::Unseen);
        }
        if self.find_in_doubt(due).map(|found| found.known) != Some(first.known) {
            return Err(NotCompared::InputsChanged);
        }
        let mut knows = first.knows.clone();
        if let Some(renaming) = renaming {
            knows.bases = vec![renaming.name.clone()];
        }
        let printed = |name: &str| fs::read(own.join(name)).ok().map(|text| Digest::of(&text));
        let told = |print: &Print| self.own_print(print, &knows).map(|text| Digest::of(&text));
        let prints = [told(&first.entry.stdout), told(&first.entry.stderr)];
        let outputs: Option<Vec<Output>> = first
            .entry
            .outputs
            .iter()
            .map(|output| self.left_as(output, &knows))
            .collect();
        let outputs = outputs.ok_or(NotCompared::InputsChanged)?;
        Ok(second.code == i32::from(first.entry.exit)
            && prints == PRINTS.map(printed)
            && is_left(&second.left, &first.names, &outputs, question.umask))
    }

    /// An output as a command leaves it of which this is known. None if its content is lost.
    fn left_as(&self, output: &Output, knows: &Knowledge) -> Option<Output> {
        let mut output = output.clone();
        if let Content::File { digest, .. } = &mut output.content {
            if knows.is_crates_text(&output.path) {
                *digest = Digest::of(&self.own_text(digest, knows)?);
            }
        }
        Some(output)
    }

    /// The entry of a command that is in doubt, and whose facts hold. What it has made is there now.
    fn find_in_doubt(&self, due: &Due) -> Option<First> {
        let question = &due.question;
        let action = self.understand(question, &mut FileView::begin()).ok()?;
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let mut view = View::new(&self.world, &place, &environment);
        let key = key_in_namespace(&action.key, &question.wishes.namespace);
        let entries = self.store.find(&key).into_iter();
        let mut entries = entries.filter_map(|known| Some((known, self.read(&known)?.entry)));
        entries.find_map(|(known, entry)| {
            let name = |path: &Path| real_name(&place.absolute(path));
            let names: Option<Vec<Bytes>> = entry.outputs.iter().map(|output| name(&output.path)).collect();
            let names = names?;
            let is_made = |fact: &Fact| fact.path().and_then(name).is_some_and(|name| names.contains(&name));
            view.begin();
            let mut facts = entry.facts.iter().filter(|fact| !is_proof(fact));
            let holds = facts.all(|fact| is_made(fact) || holds_without(fact, &names, &place, &mut view));
            let is_meant = holds && action.key == due.key && entry.facts.contains(&in_doubt());
            is_meant.then(|| First {
                known,
                entry,
                names,
                knows: action.knows.clone(),
            })
        })
    }

    fn decide(&self, due: &Due, first: First, verdict: Verdict) -> Result<(), NotCompared> {
        let First {
            known, entry, knows, ..
        } = first;
        let key = key_in_namespace(&due.key, &due.question.wishes.namespace);
        let facts = entry.facts.iter().filter(|fact| !is_proof(fact)).cloned();
        let kept = match verdict {
            Verdict::Same | Verdict::SameHere => {
                self.count(&Counter::Proved);
                let bound = (verdict == Verdict::SameHere).then(|| Fact::Variable {
                    name: BASES.to_vec(),
                    value: due.question.variables(&knows).value(BASES).map(<[u8]>::to_vec),
                });
                let facts = facts.chain(bound).collect();
                let kept = self.keep_entry(&due.question.wishes, &key, &Entry { facts, ..entry }, Vec::new());
                kept.map_err(|_| NotCompared::NoRoom)
            }
            Verdict::Different => {
                self.count(&Counter::Refuted);
                let refuted = Entry {
                    facts: facts.chain([proof(REFUTED)]).collect(),
                    ..Entry::default()
                };
                let stored = self.store.put_entry_with(&key, &refuted.encode(), &[], Vec::new());
                stored.map_err(|_| NotCompared::NoRoom)
            }
        };
        self.store.remove_entry(&known);
        kept.map(drop)
    }
}

impl First {
    /// Other folders into which cargo builds may share it, as far as is known.
    fn is_shared(&self) -> bool {
        self.knows.is_crate && !self.entry.facts.iter().any(Fact::is_about_bases)
    }
}

/// Whether a command may run a second time: its input is read once.
pub(super) fn can_be_repeated(question: &Question) -> bool {
    question.by_facts == Some(Input::Nothing) && question.wishes.terminal.is_none()
}

/// Another name for the folder into which cargo builds.
struct Renaming {
    folder: Bytes,
    name: Bytes,
}

impl Renaming {
    /// None if the folder counts anyway, or if no other name can be given.
    fn of(first: &First, own: &FilePath) -> Option<Renaming> {
        let folder = first.knows.bases.first().filter(|_| first.is_shared())?.clone();
        let mut name = own.join(ELSEWHERE).into_os_string().into_vec();
        if name.len() == folder.len() {
            name.push(b'x');
        }
        (is_plain(&name) && !name.contains(&b' ')).then_some(Renaming { folder, name })
    }

    /// Makes the empty folder with the name. Returns both names.
    fn make(&self) -> Result<[Bytes; 2], NotCompared> {
        fs::create_dir(OsStr::from_bytes(&self.name)).map_err(|_| NotCompared::NoRoom)?;
        Ok([self.folder.clone(), self.name.clone()])
    }

    fn apply(&self, text: &[u8]) -> Option<Bytes> {
        crates::renamed(text, &self.folder, &self.name)
    }

    fn command(&self, argv: &Strings) -> Strings {
        let words: Vec<Bytes> = argv
            .iter()
            .map(|word| self.apply(word).unwrap_or_else(|| word.to_vec()))
            .collect();
        words.iter().map(Vec::as_slice).collect()
    }

    /// The variables that name the folder.
    fn changed(&self, environment: &Strings) -> Vec<Bytes> {
        environment.iter().filter_map(|entry| self.apply(entry)).collect()
    }
}

/// The fact of an entry that is no hit yet, or never will be. No environment has such a variable.
fn proof(value: &[u8]) -> Fact {
    Fact::Variable {
        name: PROOF.to_vec(),
        value: Some(value.to_vec()),
    }
}

/// For the facts of a command whose result is in doubt.
pub(super) fn in_doubt() -> Fact {
    proof(IN_DOUBT)
}

fn is_proof(fact: &Fact) -> bool {
    matches!(fact, Fact::Variable { name, .. } if name == PROOF)
}

/// Whether a fact is true, but for what the command has made.
fn holds_without(fact: &Fact, made: &[Bytes], place: &Place, view: &mut View) -> bool {
    if fact.check(view).is_ok() {
        return true;
    }
    let Fact::Listing { path, digest, in_order } = fact else {
        return false;
    };
    let folder = fs::canonicalize(OsStr::from_bytes(&place.absolute(path))).unwrap_or_default();
    let in_folder = made.iter().filter_map(|name| {
        let name = FilePath::new(OsStr::from_bytes(name));
        (name.parent()? == folder).then(|| name.file_name().unwrap_or_default().as_bytes().to_vec())
    });
    let names: Vec<Bytes> = in_folder.collect();
    let part = view.listing_without(path, &names);
    part.is_ok_and(|part| part.listing.told(*in_order) == *digest)
}

/// The name without links to folders, as far as these are there.
fn real_name(path: &[u8]) -> Option<Bytes> {
    let path = FilePath::new(OsStr::from_bytes(path));
    let mut folders = path.ancestors().skip(1);
    let (folder, real) = folders.find_map(|folder| Some((folder, fs::canonicalize(folder).ok()?)))?;
    let rest = path.strip_prefix(folder).ok()?;
    Some(real.join(rest).into_os_string().into_vec())
}

/// Whether a run has left these outputs, which have these names.
fn is_left(left: &[(Bytes, Left)], names: &[Bytes], outputs: &[Output], umask: u32) -> bool {
    let mut missing: HashMap<&Bytes, &Output> = names.iter().zip(outputs).collect();
    let is_right = |(name, left): &(Bytes, Left)| match (left, missing.remove(name)) {
        // The layer has the folders in which something was made.
        (Left::Folder, None) => {
            let path = FilePath::new(OsStr::from_bytes(name));
            fs::symlink_metadata(path).is_ok_and(|status| status.is_dir())
        }
        (_, None) => false,
        (left, Some(output)) => is_same(left, output, umask),
    };
    left.iter().all(is_right) && missing.is_empty()
}

fn is_same(left: &Left, output: &Output, umask: u32) -> bool {
    match (left, &output.content) {
        (
            Left::File { digest, mode, written },
            Content::File {
                digest: first,
                is_program,
                ..
            },
        ) => {
            let all = if *is_program { 0o777 } else { 0o666 };
            let has_time = |dated: Stamp| *written == (dated.seconds, dated.nanoseconds);
            digest == first && *mode == all & !umask && output.dated.map_or(true, has_time)
        }
        (Left::Folder, Content::Folder) => true,
        (Left::Link(text), Content::Link { text: first }) => text == first,
        _ => false,
    }
}
