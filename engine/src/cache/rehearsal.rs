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

use super::answer::{key_in_namespace, Ticket};
use super::by_text::Waiting;
use super::lookup::entry::{Content, Entry, Output};
use super::rerun::{make_empty_folders, run_apart, Apart, Due, NotCompared, Purpose, Run, PRINTS};
use super::store::EntryRef;
use super::story::Doubt;
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::environment::{IN_DOUBT, PROOF, REFUTED};
use crate::facts::fact::Fact;
use crate::facts::file_view::FileView;
use crate::facts::input::Input;
use crate::facts::path::{Path, Place};
use crate::facts::status::Stamp;
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes, What};
use crate::process::apart::Left;

/// By how much the calendar of the second run is ahead: each part of a date is another one.
const AHEAD: u32 = 400 * 86_400 + 5 * 3_600 + 17 * 60 + 29;
/// The second run may take that much longer than the first one, and a while. A program that waits until a time of the calendar
/// would wait for a year.
const SLOWER: u64 = 10;
const WHILE: Duration = Duration::from_secs(10);
/// The second run may write that much more than the first one has left, in memory.
const LARGER: u64 = 4;
const ROOM: u64 = 64 << 20;
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
        let question = &ticket.question;
        // Its input is read once.
        let is_possible = question.by_facts == Some(Input::Nothing) && question.wishes.terminal.is_none();
        let is_wanted = is_possible && self.proves_commands.load(Ordering::Relaxed);
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
    pub(super) fn rehearse(&self, due: &Due, rehearsal: &Rehearsal, run: Run) -> Result<(), NotCompared> {
        let first = self.find_in_doubt(due).ok_or(NotCompared::InputsChanged)?;
        let own = self.preambles.make_folder().map_err(|_| NotCompared::NoRoom)?;
        make_empty_folders(own.path())?;
        let size: u64 = first.entry.outputs.iter().map(Output::size).sum();
        let apart = Apart {
            folders: &rehearsal.doubt.folders,
            hidden: &first.names,
            room: LARGER * size + ROOM,
            ahead: AHEAD,
            limit: WHILE + Duration::from_micros(SLOWER * rehearsal.wall),
        };
        let second = run_apart(own.path(), &due.question.argv, &apart, run)?;
        let is_blind = |access: &Access| matches!(access.what, What::Blind { .. });
        if second.accesses.iter().any(is_blind) {
            return Err(NotCompared::Unseen);
        }
        if self.find_in_doubt(due).map(|found| found.known) != Some(first.known) {
            return Err(NotCompared::InputsChanged);
        }
        let printed = |name: &str| fs::read(own.path().join(name)).ok().map(|text| Digest::of(&text));
        let prints = [&first.entry.stdout, &first.entry.stderr].map(|print| Some(print.digest()));
        let is_same = second.code == i32::from(first.entry.exit)
            && prints == PRINTS.map(printed)
            && first.is_left(&second.left, due.question.umask);
        if !is_same {
            debug!(
                "a second run has made something else; the first one: {}",
                rehearsal.doubt.why
            );
        }
        self.decide(due, first, is_same)
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
            is_meant.then_some(First { known, entry, names })
        })
    }

    fn decide(&self, due: &Due, first: First, is_same: bool) -> Result<(), NotCompared> {
        let First { known, entry, .. } = first;
        let key = key_in_namespace(&due.key, &due.question.wishes.namespace);
        let facts = entry.facts.iter().filter(|fact| !is_proof(fact)).cloned();
        let kept = match is_same {
            true => {
                self.count(&Counter::Proved);
                let facts = facts.collect();
                let kept = self.keep_entry(&key, &Entry { facts, ..entry }, Vec::new());
                kept.map_err(|_| NotCompared::NoRoom)
            }
            false => {
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

impl First {
    /// Whether the second run has left what the first one has made.
    fn is_left(&self, left: &[(Bytes, Left)], umask: u32) -> bool {
        let mut missing: HashMap<&Bytes, &Output> = self.names.iter().zip(&self.entry.outputs).collect();
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
