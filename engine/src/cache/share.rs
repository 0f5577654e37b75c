//! Preambles that sources share: one for all that begin alike and are compiled alike, already in their first build.
//!
//! ```text
//! some sources begin alike ─► due at once ─► a precompiled header ─► a trial with one of them ─► table
//! the next source ─► compiled elsewhere, after the header ─► put in place; its entry is put aside
//!      └─► idle ─► the plain compile: the same result? ─► the entry counts
//! ```
//!
//! Whether reading the headers a second time has an effect depends on them and the options only, so it is proved for all of
//! these sources. That the compiler makes the same of each source is proved by the plain compile, later. Until then no other
//! compile is served the entry.

use std::os::unix::ffi::OsStrExt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::{debug, warn};

use super::answer::{key_in_namespace, Question, Ticket};
use super::compiler::action::{Action, FOR_DIAGNOSTICS};
use super::keep::Ended;
use super::preamble::alike;
use super::preamble::recipe::Recipe;
use super::preamble::table::{Group, InWork, User};
use super::preamble::{Preamble, Refusal};
use super::prepare::{beginning, is_within, only_reading, Unprepared, Wanted, QUICK};
use super::rerun::{words_of, Due, NotCompared, Observed, Purpose, Run};
use super::store::EntryRef;
use super::story::{understand, Knowledge};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::fact::Fact;
use crate::facts::file_view::FileView;
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes};
use crate::wire::Strings;

/// The compile that makes a preamble due may still be stored. It is waited for this often, for this time.
const WAITS: (usize, Duration) = (50, Duration::from_millis(10));

/// What sources of a group have in common.
pub(super) struct Common {
    group: Group,
    /// The length of their common directives.
    length: usize,
    _in_work: InWork,
}

/// What is to be proved.
pub(super) struct Proof {
    /// The entry that was put aside.
    aside: EntryRef,
    user: User,
}

/// How a source is compiled, and how it begins.
struct Beginning {
    compile: Digest,
    text: Bytes,
}

impl Beginning {
    fn of(question: &Question, action: &Action) -> Option<Beginning> {
        let words = words_of(question)?;
        let recipe = Recipe::of(action.knows.compiler?, &words).ok()?;
        let mut common = recipe.common()?;
        common.extend(question.argv.iter().take(1).map(<[u8]>::to_vec));
        common.push(question.folder.clone());
        common.push(question.wishes.namespace.clone());
        common.extend(question.known_folders().iter().cloned());
        let text = beginning(question, recipe.source())?;
        // No word contains a zero.
        let compile = Digest::of(&common.join(&0));
        Some(Beginning { compile, text })
    }
}

/// The key under which an entry waits for its proof. No command has it.
pub(super) fn key_aside(key: &Digest) -> Digest {
    Digest::of(&[b"not proved: ", &key.0[..]].concat())
}

impl Cache {
    /// Sets whether sources that begin alike share preambles.
    pub fn share_preambles(&self, are_shared: bool) {
        self.preambles.share(are_shared);
    }

    /// The preamble of the smallest group of the source that has one which holds. `own` stands for the source alone.
    pub(super) fn find_shared(
        &self,
        own: &User,
        question: &Question,
        action: &Action,
        file_view: &mut Option<FileView>,
    ) -> Option<(User, Arc<Preamble>)> {
        if !self.preambles.are_shared() || self.preambles.refusal(own).is_some() {
            return None;
        }
        let Beginning { compile, text } = Beginning::of(question, action)?;
        let users = alike::groups(compile, &text).map(|(group, _)| User::Group(group));
        let mut found = users.filter_map(|user| Some((self.preambles.find(&user)?, user)));
        let (preamble, user) = found.find(|(preamble, _)| self.holds(preamble, question, action, file_view))?;
        Some((user, preamble))
    }

    /// After a plain compile: the data for making a preamble that this source shares with others, if there are enough.
    pub(super) fn due_shared(&self, ticket: &Ticket, ended: &Ended, is_silent: bool) -> Option<Box<Due>> {
        let is_plain = ticket.begun.is_none() && ticket.failed.is_none();
        if !is_plain || !is_silent || ended.processor < QUICK || !self.preambles.are_shared() {
            return None;
        }
        let (question, action) = (&ticket.question, &ticket.action);
        let Beginning { compile, text } = Beginning::of(question, action)?;
        let source = Digest::of(action.source.as_ref()?);
        let (group, length) = self.alike().note(compile, &text, source)?;
        let user = User::Group(group);
        if self.preambles.refusal(&user).is_some() {
            return None;
        }
        let held = self.preambles.find(&user);
        if held.is_some_and(|held| self.holds(&held, question, action, &mut None)) {
            return None;
        }
        let _in_work = self.preambles.begin(group)?;
        Some(Box::new(Due {
            question: question.repeated(),
            key: action.key,
            purpose: Purpose::Shared(Common {
                group,
                length,
                _in_work,
            }),
        }))
    }

    /// Makes a preamble for a group, and tries it with one of its sources.
    pub(super) fn prepare_shared(&self, due: &Due, common: &Common, run: Run) -> Result<(), NotCompared> {
        debug!("{:?} is to share headers", common.group);
        let is_stored = || self.entry_that_holds(due).is_some();
        (0..WAITS.0).any(|_| is_stored() || pause());
        let prepared = self.prepared(due, Wanted::Common(common.length), run);
        let prepared = prepared.map_err(|why| match why {
            Unprepared::Not(why) => refusal_for(why).map_or(Unprepared::Not(why), Unprepared::Refused),
            refused => refused,
        });
        self.put_preamble(User::Group(common.group), common.group.text, prepared)
    }

    /// The facts and the accesses of the command that has made a precompiled header in this folder.
    pub(super) fn of_making(
        &self,
        question: &Question,
        argv: &Strings,
        observed: &Observed,
        folder: &FilePath,
    ) -> Result<(Vec<Fact>, Vec<Access>), Unprepared> {
        let action = self.understand_as(question, argv, &mut FileView::begin());
        let knows = action.map_err(|_| Refusal::NotMade)?.knows;
        let place = question.place(&knows);
        let environment = question.variables(&knows);
        let mut view = View::new(&self.world, &place, &environment);
        let names: Vec<_> = knows.outputs.iter().map(|output| output.path.clone()).collect();
        let knowledge = Knowledge {
            policy: knows.policy(),
            outputs: Some(&names),
            unseen: &FOR_DIAGNOSTICS,
            observer: &observed.observer,
            // Its words are left out: tomorrow a source may use any macro of the headers, so they count as wholes.
            ..Knowledge::since(observed.started)
        };
        let folder = folder.as_os_str().as_bytes();
        let own = |access: &&Access| !is_within(access, folder);
        let accesses: Vec<Access> = only_reading(&observed.accesses).iter().filter(own).cloned().collect();
        let found = understand(&accesses, &knowledge, &mut view);
        let found = found.map_err(|obstacle| {
            debug!("headers that are to be shared: {obstacle}");
            NotCompared::Unseen
        })?;
        Ok((found.facts, accesses))
    }

    /// The data for proving the result of a compile that began after shared headers, when there is time.
    pub(super) fn due_proof(&self, ticket: &Ticket, aside: EntryRef) -> Option<Box<Due>> {
        let begun = ticket.begun.as_ref()?;
        Some(Box::new(Due {
            question: ticket.question.repeated(),
            key: ticket.action.key,
            purpose: Purpose::Proof(Proof {
                aside,
                user: begun.user.clone(),
            }),
        }))
    }

    /// Compiles the source plainly. If the result is the same, the entry counts from now on. If not, nothing begins after
    /// these headers any more.
    pub(super) fn prove(&self, due: &Due, proof: &Proof, run: Run) -> Result<(), NotCompared> {
        let different = self.compare_with_rerun(due, &proof.aside, run)?;
        let Some(what) = different else {
            let entry = self.read(&proof.aside).ok_or(NotCompared::EntryGone)?.entry;
            let key = key_in_namespace(&due.key, &due.question.wishes.namespace);
            let kept = self.keep_entry(&due.question.wishes, &key, &entry, Vec::new());
            self.store.remove_entry(&proof.aside);
            kept.map_err(|_| NotCompared::NoRoom)?;
            self.count(&Counter::PreambleProved);
            return Ok(());
        };
        let command = due.question.command();
        warn!(
            "after shared headers, a compile has made other {what} than the plain one: remove its outputs and build \
             again: {command}"
        );
        self.store.remove_entry(&proof.aside);
        self.journal
            .note_difference(&format!("after shared headers: {what}: {command}"));
        self.leave_plain(proof.user.clone(), Digest::of(b""), Refusal::Different);
        Ok(())
    }

    /// The entry will not be proved, so it is forgotten.
    pub(super) fn leave_unproved(&self, proof: &Proof, why: NotCompared) {
        debug!("a compile after shared headers was not proved: {}", why.name());
        self.store.remove_entry(&proof.aside);
        self.count(&Counter::PreambleUnproved);
    }
}

/// Why a group is not tried again although its preamble was neither made nor refused. Each of its next compiles would try, and
/// each would take as long. Headers that have just been edited are tried again.
fn refusal_for(why: NotCompared) -> Option<Refusal> {
    match why {
        NotCompared::InputsChanged | NotCompared::Interrupted | NotCompared::EngineStopped => None,
        NotCompared::NoRoom => Some(Refusal::NoRoom),
        NotCompared::Unseen => Some(Refusal::Unseen),
        _ => Some(Refusal::NotMade),
    }
}

/// Waits a moment. False, for `any`.
fn pause() -> bool {
    thread::sleep(WAITS.1);
    false
}
