//! Hits by text: a compile whose headers or macros have changed, but not what the preprocessor leaves of its source.
//!
//! ```text
//! a compile is stored ─► idle ─► the preprocessor ─► an entry of its text, under the key of its family
//! a miss ─► entries of its family ─► the preprocessor runs as an attempt ─► its text is known ─► hit
//!                 │                                                    └─► not known ─► the plain command runs
//!                 └─► none, or something other than directives and comments has changed ─► the plain command runs
//! ```
//!
//! A family is what a compile's command line leaves without the options whose effect shows in the text. An entry of a text
//! has the facts of its compile except those about sources and headers: the text stands for these. The new entry has the
//! facts of the preprocessor's own run in their place, so the next time nothing needs to run.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use log::debug;

use super::answer::{key_in_namespace, Question, Ticket};
use super::compiler::action::{Action, Knowledge as Known};
use super::compiler::outputs::Role;
use super::compiler::preprocessing::{is_decided_by_text, preprocess, without_shown};
use super::compiler::Compiler;
use super::keep::{neutral_dependencies, Ended};
use super::lookup::entry::{Content, Entry, Output, Print};
use super::preamble::table::OwnFolder;
use super::prepare::{Unprepared, QUICK};
use super::rerun::{
    make_empty_folders, run_observed, words_of, Due, Elsewhere, NotCompared, Observed, Purpose, Run, PRINTS,
};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::definitions::{Comments, Unused};
use crate::facts::environment::{Environment, CHECKOUT, TEXT};
use crate::facts::fact::{Fact, Kind};
use crate::facts::file_view::FileView;
use crate::facts::path::{last_name, Path};
use crate::facts::preprocessed::{layout, Preprocessed};
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes, What};
use crate::settings::Comparison;
use crate::wire::Strings;

/// For `--explain`.
pub(super) const SAME_TEXT: &str = "what the preprocessor leaves is what it left for an earlier compile";
pub(super) const OTHER_TEXT: &str = "what the preprocessor leaves is something else, too";

/// The run of the preprocessor for a compile, with its outputs elsewhere.
pub(super) struct Preprocessing {
    pub argv: Strings,
    /// What is known of the compile that would write there.
    pub knows: Known,
    family: Digest,
    folder: OwnFolder,
}

/// Something is to be done when there is time. It is counted as waiting as long as this exists.
pub(super) struct Waiting(Arc<AtomicU64>);

impl Waiting {
    pub(super) fn begin(count: &Arc<AtomicU64>) -> Waiting {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a run of the preprocessor has left.
struct Left {
    /// Stands for the text, and for what warnings look at besides.
    digest: Digest,
    /// All sources and headers.
    sources: HashSet<Path>,
    /// Those that are no headers of the system.
    near: Vec<Path>,
    /// What the run depended on.
    facts: Vec<Fact>,
    /// In the form for the store.
    dependencies: Option<Bytes>,
}

/// A hit by text.
pub(super) struct ByText {
    pub facts: Vec<Fact>,
    pub output: Output,
    pub dependencies: Option<Bytes>,
    /// Those of the compile that was stored.
    pub wall: u64,
    pub processor: u64,
}

impl Cache {
    /// Sets what is compared of texts.
    pub fn compare_texts(&self, compared: Comparison) {
        self.compares_texts
            .store(compared == Comparison::All, Ordering::Relaxed);
        self.leaves_out_comments
            .store(compared != Comparison::No, Ordering::Relaxed);
    }

    fn are_texts_compared(&self) -> bool {
        self.compares_texts.load(Ordering::Relaxed)
    }

    pub(super) fn are_comments_left_out(&self) -> bool {
        self.leaves_out_comments.load(Ordering::Relaxed)
    }

    // ---- for commands

    /// For a miss: the run of the preprocessor, if its text may be known.
    pub(super) fn preprocess_first(&self, question: &Question, action: &Action) -> Option<Preprocessing> {
        if !self.are_texts_compared() {
            return None;
        }
        let words = words_of(question)?;
        let family = self.family(question, action, &words)?;
        let entries = self.store.find(&family);
        let mut entries = entries.iter().filter_map(|known| Some(self.read(known)?.entry));
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let mut view = View::new(&self.world, &place, &environment);
        view.begin();
        let may_be = |fact: &Fact, view: &mut View| is_of_text(fact) || is_rough(fact) && is_gone(fact, view);
        let is_promising = |entry: Entry| {
            let mut facts = entry.facts.iter();
            facts.all(|fact| may_be(fact, &mut view) || fact.check(&mut view).is_ok())
        };
        entries
            .any(is_promising)
            .then(|| self.preprocessing(question, action, family))?
    }

    /// The preprocessor has run before the command itself. If its text is known: the compile's result.
    pub(super) fn find_text(&self, ticket: &Ticket, run: &Preprocessing, ended: &Ended) -> Option<ByText> {
        let question = &ticket.question;
        let observed = Observed {
            accesses: ended.accesses.clone(),
            started: ended.started,
            observer: ended.observer.clone(),
        };
        let left = self.left(question, run, &observed)?;
        let place = question.place(&ticket.action.knows);
        let environment = question.variables(&ticket.action.knows);
        let environment = environment.with(TEXT, Some(left.digest.to_string().into_bytes()));
        let entries = self.store.find(&run.family);
        let mut entries = entries.iter().filter_map(|known| {
            let entry = self.read(known)?.entry;
            let mut view = View::new(&self.world, &place, &environment);
            let facts = entry.facts.iter().filter(|fact| !is_rough(fact)).cloned().collect();
            let entry = Entry { facts, ..entry };
            entry.check(&mut view).is_ok().then_some((*known, entry))
        });
        let (known, entry) = entries.next()?;
        self.store.touch(&known);
        let output = entry.outputs.into_iter().next()?;
        let mut facts = left.facts;
        let others = entry.facts.into_iter().filter(|fact| !is_of_text(fact));
        let others: Vec<_> = others.filter(|fact| !facts.contains(fact)).collect();
        facts.extend(others);
        facts.extend(of_checkout(&ticket.action.knows, &environment));
        Some(ByText {
            facts,
            output,
            dependencies: left.dependencies,
            wall: entry.wall,
            processor: entry.processor,
        })
    }

    /// A hit by text is in place. Returns the processor time that it saved.
    pub(super) fn note_text_hit(&self, ticket: &Ticket, saved: u64) {
        self.count(&Counter::Hit);
        self.count(&Counter::TextHit);
        self.tally.add("text saved", saved);
        self.note_hit_because(&ticket.question, &ticket.action, &ticket.key, SAME_TEXT);
    }

    /// After a compile: the data for an entry of its text.
    pub(super) fn due_text(&self, ticket: &Ticket, ended: &Ended, is_silent: bool) -> Option<Box<Due>> {
        let is_worth = is_silent && ended.processor >= QUICK && self.are_texts_compared();
        let (question, action) = (&ticket.question, &ticket.action);
        if !is_worth || !is_decided_by_text(&action.knows, &words_of(question)?) {
            return None;
        }
        Some(Box::new(Due {
            question: question.repeated(),
            key: action.key,
            purpose: Purpose::Text {
                _waiting: Waiting::begin(&self.texts_waiting),
            },
        }))
    }

    // ---- when there is time

    /// Has the preprocessor run for a compile that is stored, and stores an entry of its text.
    pub(super) fn keep_text(&self, due: &Due, run: Run) -> Result<(), NotCompared> {
        let question = &due.question;
        let entry = self.entry_that_holds(due).ok_or(NotCompared::InputsChanged)?;
        let action = self.understand(question, &mut FileView::begin());
        let action = action.map_err(|_| NotCompared::InputsChanged)?;
        let words = words_of(question).ok_or(NotCompared::InputsChanged)?;
        let family = self
            .family(question, &action, &words)
            .ok_or(NotCompared::InputsChanged)?;
        let preprocessing = self.preprocessing(question, &action, family);
        let preprocessing = preprocessing.ok_or(NotCompared::NoRoom)?;
        let folder = preprocessing.folder.path();
        let (code, observed) = run_observed(folder, &preprocessing.argv, run)?;
        let prints = |name: &&str| fs::read(folder.join(name)).map_or(true, |text| !text.is_empty());
        let left = match code != 0 || PRINTS.iter().any(prints) {
            true => None,
            false => self.left(question, &preprocessing, &observed),
        };
        let left = left.ok_or(NotCompared::Unreadable)?;
        self.require_facts(due, &entry)?;
        let text = self
            .of_text(entry, &left, question, &action)
            .ok_or(NotCompared::Unreadable)?;
        let mut is_known = false;
        for known in self.store.find(&family) {
            let Some(other) = self.read(&known).map(|stored| stored.entry) else {
                continue;
            };
            is_known |= other == text;
            // The newer result of the same text counts, as after `recache`.
            if other != text && other.facts.first() == text.facts.first() {
                self.store.remove_entry(&known);
            }
        }
        if !is_known {
            let stored = self
                .store
                .put_entry_with(&family, &text.encode(), &text.blobs(), Vec::new());
            stored.map_err(|_| NotCompared::NoRoom)?;
        }
        self.count(&Counter::TextKept);
        Ok(())
    }

    /// The entry of a text, of that of its compile.
    fn of_text(&self, entry: Entry, left: &Left, question: &Question, action: &Action) -> Option<Entry> {
        let is_silent = [&entry.stdout, &entry.stderr]
            .into_iter()
            .all(|print| *print == Print::default());
        let role = |output: &Output| Some(action.knows.outputs.get(output.number?)?.role);
        let (mut main, mut dependencies) = (Vec::new(), None);
        for output in entry.outputs {
            match (role(&output)?, &output.content) {
                (Role::Main, Content::File { .. }) => main.push(output),
                (Role::Dependencies, Content::File { digest, .. }) => dependencies = Some(*digest),
                _ => return None,
            }
        }
        // The preprocessor has written the same dependency file.
        let is_same = dependencies == left.dependencies.as_ref().map(|text| Digest::of(text));
        if !is_silent || entry.exit != 0 || main.len() != 1 || !is_same {
            debug!("a text is not kept: the preprocessor has written another dependency file, or the compile printed");
            return None;
        }
        let mut facts = vec![Fact::Variable {
            name: TEXT.to_vec(),
            value: Some(left.digest.to_string().into_bytes()),
        }];
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let mut view = View::new(&self.world, &place, &environment);
        let unused = Unused {
            comments: Comments::Directives,
            ..Unused::default()
        };
        let names = last_names(&left.sources);
        let others = entry.facts.into_iter();
        facts.extend(others.filter(|fact| !shows_in_text(fact, &left.sources, &names)));
        for path in &left.near {
            let (path, unused) = (path.clone(), unused.clone());
            let digest = view.digest_except(&path, &unused).ok()?;
            facts.push(Fact::Except { path, unused, digest });
        }
        Some(Entry {
            facts,
            outputs: main,
            ..entry
        })
    }

    // ---- for both

    /// The key of the entries of texts. `None` if the text does not decide what the compile makes.
    fn family(&self, question: &Question, action: &Action, words: &[Bytes]) -> Option<Digest> {
        if !is_decided_by_text(&action.knows, words) {
            return None;
        }
        let words = without_shown(action.knows.compiler?, words)?;
        let argv = question.argv.iter().take(1).chain(words.iter().map(Vec::as_slice));
        let action = self.understand_as(question, &argv.collect(), &mut FileView::begin());
        let key = key_in_namespace(&action.ok()?.key, &question.wishes.namespace);
        Some(Digest::of(&[b"by text: ", &key.0[..]].concat()))
    }

    fn preprocessing(&self, question: &Question, action: &Action, family: Digest) -> Option<Preprocessing> {
        let folder = self.preambles.make_folder().ok()?;
        make_empty_folders(folder.path()).ok()?;
        let Elsewhere { argv, knows } = self.redirected(question, action.key, folder.path())?;
        let words: Vec<Bytes> = argv.iter().skip(1).map(<[u8]>::to_vec).collect();
        let main = main_of(&knows)?;
        let writes_dependencies = knows.outputs.iter().any(|output| output.role == Role::Dependencies);
        let target = knows
            .target
            .as_ref()
            .filter(|target| writes_dependencies && *target == main);
        let words = preprocess(knows.compiler?, &words, target);
        let argv = argv.iter().take(1).chain(words.iter().map(Vec::as_slice)).collect();
        Some(Preprocessing {
            argv,
            knows,
            family,
            folder,
        })
    }

    /// What the preprocessor has left, if that says all that counts.
    fn left(&self, question: &Question, run: &Preprocessing, observed: &Observed) -> Option<Left> {
        let knows = &run.knows;
        if !is_compiler_alone(knows.compiler?, &observed.accesses) {
            debug!("a text is not compared: other programs have run than those of the compiler");
            return None;
        }
        let text = fs::read(OsStr::from_bytes(main_of(knows)?)).ok()?;
        let text = Preprocessed::read(&text)?;
        let made = self.of_making(question, &run.argv, observed, run.folder.path());
        let (facts, _) = made
            .map_err(|why| debug!("a text is not compared: {}", show(&why)))
            .ok()?;
        let place = question.place(knows);
        let environment = question.variables(knows);
        let mut view = View::new(&self.world, &place, &environment);
        let path_of = |name: &Bytes| place.path(&Path::here(), name);
        let near: Vec<Path> = text.near.iter().map(path_of).collect();
        let digests: HashMap<&Path, &Digest> = facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::File { path, digest } => Some((path, digest)),
                _ => None,
            })
            .collect();
        let mut all = text.digest.0.to_vec();
        for path in &near {
            let content = view.content(path)?;
            // The preprocessor has read the same.
            if digests.get(path) != Some(&&Digest::of(&content)) {
                return None;
            }
            all.extend(layout(&content).into_iter().flat_map(|layout| layout.0));
        }
        let mut outputs = knows.outputs.iter();
        let dependencies = match outputs.find(|output| output.role == Role::Dependencies) {
            None => None,
            Some(output) => {
                let text = fs::read(OsStr::from_bytes(&output.path)).ok()?;
                Some(neutral_dependencies(text, knows)?.bytes)
            }
        };
        Some(Left {
            digest: Digest::of(&all),
            sources: text.all.iter().map(path_of).collect(),
            near,
            facts,
            dependencies,
        })
    }
}

fn main_of(knows: &Known) -> Option<&Bytes> {
    let mut outputs = knows.outputs.iter();
    outputs
        .find(|output| output.role == Role::Main)
        .map(|output| &output.path)
}

fn show(why: &Unprepared) -> &'static str {
    match why {
        Unprepared::Refused(why) => why.name(),
        Unprepared::Not(why) => why.name(),
    }
}

/// Whether only the parts of the compiler have run. A program around it could have the preprocessor see something else than
/// the compile.
fn is_compiler_alone(compiler: Compiler, accesses: &[Access]) -> bool {
    let programs = accesses.iter().filter_map(|access| match &access.what {
        What::Begin { program, .. } => Some(program),
        _ => None,
    });
    let programs: Vec<&Bytes> = programs.collect();
    let is_part = |program: &Bytes| last_name(program).starts_with(b"cc1");
    match (compiler, &programs[..]) {
        (Compiler::Gcc, [_, part]) => is_part(part),
        (Compiler::Clang, [first, others @ ..]) => others.iter().all(|other| other == first),
        _ => false,
    }
}

fn last_names(paths: &HashSet<Path>) -> HashSet<&[u8]> {
    paths.iter().map(|path| last_name(&path.rest)).collect()
}

/// Whether a fact of a compile is about its sources and headers, or about where these were looked for: the text stands for it.
fn shows_in_text(fact: &Fact, sources: &HashSet<Path>, names: &HashSet<&[u8]>) -> bool {
    let is_named = |path: &Path| names.contains(last_name(&path.rest));
    match fact {
        Fact::File { path, .. } | Fact::Except { path, .. } => sources.contains(path),
        Fact::Twins { twins } => twins.iter().all(|twin| sources.contains(&twin.path)),
        Fact::Absent { path, .. } => {
            let precompiled = last_name(&path.rest).strip_suffix(b".gch");
            is_named(path) || precompiled.is_some_and(|name| names.contains(name))
        }
        Fact::There { path, kind, .. } => *kind == Kind::Folder || is_named(path),
        Fact::Resolved { path, .. } | Fact::Target { path, .. } | Fact::Refused { path, .. } => is_named(path),
        _ => false,
    }
}

fn is_of_text(fact: &Fact) -> bool {
    matches!(fact, Fact::Variable { name, .. } if name == TEXT)
}

/// Whether a fact only says how probable it is that the text is the same.
fn is_rough(fact: &Fact) -> bool {
    matches!(fact, Fact::Except { unused, .. } if unused.comments == Comments::Directives)
}

/// Another build has other generated headers.
fn is_gone(fact: &Fact, view: &mut View) -> bool {
    fact.path().is_some_and(|path| view.lacks(path, true).is_ok())
}

/// What the key leaves out of the command line may show in the result.
fn of_checkout(knows: &Known, environment: &Environment) -> Option<Fact> {
    (!knows.left_out.is_empty()).then(|| Fact::Variable {
        name: CHECKOUT.to_vec(),
        value: environment.value(CHECKOUT).map(<[u8]>::to_vec),
    })
}
