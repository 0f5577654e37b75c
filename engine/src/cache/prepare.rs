//! Preambles: makes them when there is time, proves them, and lets compiles begin after them.
//!
//! ```text
//! a source is compiled again ─► due ─► idle ─► its beginning ─► a precompiled header ─► a trial: the same result? ─► table
//! its next miss ─► the beginning is the same, the facts hold ─► compiled elsewhere, after the header
//!      ├─► silent and successful: stored under the facts of the plain compile, and put in place like a hit
//!      └─► anything else: the plain compile runs
//! ```
//!
//! The accesses of a compile after a preamble are those of the plain compile with which the preamble was proved, and then its
//! own. So its facts contain all that the headers depend on.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use log::debug;
use memchr::memmem;

use super::answer::{key_in_namespace, Question, Ticket};
use super::compiler::action::Action;
use super::compiler::elsewhere::Names;
use super::compiler::Compiler;
use super::keep::Ended;
use super::lookup::entry::{Entry, Print};
use super::preamble::effects::{self, Apart};
use super::preamble::recipe::{self, Recipe};
use super::preamble::table::{OwnFolder, Spot, User};
use super::preamble::{prefix, Preamble, Refusal};
use super::remote::foreign::Origin;
use super::rerun::{
    make_empty_folders, run_in, run_observed, words_of, Due, Elsewhere, NotCompared, Observed, Purpose, Results, Run,
    PRINTS,
};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::exception::ALONG;
use crate::facts::fact::Fact;
use crate::facts::file_view::FileView;
use crate::facts::path::{Path, Place};
use crate::facts::status::{Stamp, Status};
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes, What};
use crate::wire::{MissReason, Strings};

/// A compile that takes less processor time, in microseconds, is left as it is.
pub(super) const QUICK: u64 = 50_000;
/// A trial must take at most this part of the plain compile.
const WORTH: (u64, u64) = (9, 10);
/// A longer command line is left as it is.
const LONGEST_LINE: usize = 64 << 10;
/// Words by which the beginning of a source can tell where it is.
const POSITIONS: [&[u8]; 8] = [
    b"__LINE__",
    b"__FILE__",
    b"__FILE_NAME__",
    b"__BASE_FILE__",
    b"__INCLUDE_LEVEL__",
    b"__COUNTER__",
    b"__TIMESTAMP__",
    b"__has_embed",
];

/// The file that the preprocessor writes.
const ANSWER: &str = "answer";

/// For `--explain`.
pub(super) const AFTER_HEADERS: &str = "it began after its headers, which had been read before";
pub(super) const AFTER_SHARED_HEADERS: &str =
    "it began after headers that other sources begin with, too, and that had been read before";
pub(super) const NOT_AFTER_HEADERS: &str = "it ran twice: with its preamble it failed, or printed something";

/// What is known of a plain compile for whose source a preamble is to be made.
pub(super) struct Basis {
    accesses: Vec<Access>,
    /// The digest of the beginning of the source, and of the facts about everything else.
    inputs: Digest,
}

impl Basis {
    /// About how much memory it takes.
    pub fn size(&self) -> usize {
        size_of_accesses(&self.accesses)
    }
}

fn size_of_accesses(accesses: &[Access]) -> usize {
    std::mem::size_of_val(accesses) * 2
}

/// A compile that begins after a preamble, with its outputs elsewhere.
pub(super) struct Begun {
    pub preamble: Arc<Preamble>,
    /// Whom the preamble serves.
    pub user: User,
    spot: Spot,
    /// The command line, and what is known of it.
    pub elsewhere: Elsewhere,
    /// For its outputs.
    _folder: OwnFolder,
}

/// Whose headers a preamble is to have.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// Those of one source, with what is known of its plain compile.
    Own(&'a Basis),
    /// Those that all sources of a group have in common. Their directives have this length.
    Common(usize),
}

/// Why no preamble was made.
pub(super) enum Unprepared {
    Refused(Refusal),
    Not(NotCompared),
}

impl From<Refusal> for Unprepared {
    fn from(why: Refusal) -> Unprepared {
        Unprepared::Refused(why)
    }
}

impl From<NotCompared> for Unprepared {
    fn from(why: NotCompared) -> Unprepared {
        Unprepared::Not(why)
    }
}

impl Begun {
    /// The accesses of the compile, with those of the headers.
    pub fn accesses(&self, own: &[Access]) -> Vec<Access> {
        let folder = self.preamble.folder.path().as_os_str().as_bytes();
        let own = own.iter().filter(|access| !is_within(access, folder));
        self.preamble.accesses.iter().chain(own).cloned().collect()
    }
}

/// Whether an access is to something in a folder.
pub(super) fn is_within(access: &Access, folder: &[u8]) -> bool {
    let mut what = access.what.clone();
    what.texts().iter().any(|text| is_below(text, folder))
}

fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

impl Cache {
    // ---- for commands

    /// After a miss: the data for making a preamble. `None` if the source is not being edited, or has a preamble.
    pub(super) fn due_preamble(
        &self,
        ticket: &Ticket,
        facts: &[Fact],
        ended: &Ended,
        is_silent: bool,
    ) -> Option<Box<Due>> {
        let is_edited = ticket.why == MissReason::Changed && ticket.begun.is_none();
        if !is_edited || ended.processor < QUICK || !self.preambles.is_on() {
            return None;
        }
        let (question, action) = (&ticket.question, &ticket.action);
        action.knows.compiler?;
        let source = action.source.as_ref()?;
        let place = question.place(&action.knows);
        let text = beginning(question, source);
        let source = place.path(&Path::here(), source);
        let inputs = inputs(facts, &source, text.as_deref().unwrap_or_default());
        let user = User::Source(spot(&ticket.key, question));
        let held = self.preambles.find(&user);
        let has_one = held.is_some_and(|held| self.holds(&held, question, action, &mut None));
        if has_one || self.preambles.is_refused(&user, &inputs) {
            return None;
        }
        if !is_silent {
            // A message may be about the body. No inputs have this digest, so the next silent compile is tried.
            if self.preambles.refusal(&user) != Some(Refusal::Talks) {
                self.leave_plain(user, Digest::of(b""), Refusal::Talks);
            }
            return None;
        }
        Some(Box::new(Due {
            question: question.repeated(),
            key: action.key,
            purpose: Purpose::Preamble(Basis {
                accesses: only_reading(&ended.accesses),
                inputs,
            }),
        }))
    }

    /// For a miss: lets the compile begin after its headers, if there is a preamble for it that holds.
    pub(super) fn begin_after_headers(
        &self,
        question: &Question,
        action: &Action,
        key: &Digest,
        file_view: &mut Option<FileView>,
    ) -> Option<Begun> {
        if !self.preambles.is_on() {
            return None;
        }
        let spot = spot(key, question);
        let user = User::Source(spot.clone());
        let own = self.preambles.find(&user);
        let own = own.filter(|preamble| self.holds(preamble, question, action, file_view));
        let (user, preamble) = match own {
            Some(preamble) => (user, preamble),
            None => self.find_shared(&user, question, action, file_view)?,
        };
        let folder = self.preambles.make_folder().ok()?;
        make_empty_folders(folder.path()).ok()?;
        let elsewhere = self.redirected(question, action.key, folder.path())?;
        let elsewhere = after(elsewhere, &preamble);
        (elsewhere.argv.size() <= LONGEST_LINE).then_some(Begun {
            preamble,
            user,
            spot,
            elsewhere,
            _folder: folder,
        })
    }

    /// For `--explain`: what a miss has to do with preambles.
    pub(super) fn words_on_preamble(&self, begun: Option<&Begun>, key: &Digest, question: &Question) -> Option<String> {
        match begun {
            Some(begun) if begun.preamble.is_shared => return Some(AFTER_SHARED_HEADERS.to_owned()),
            Some(_) => return Some(AFTER_HEADERS.to_owned()),
            None => {}
        }
        let is_on = self.preambles.is_on();
        let refusal = is_on.then(|| self.preambles.refusal(&User::Source(spot(key, question))))??;
        Some(format!("it has no preamble: {}", refusal.name()))
    }

    /// Whether the source begins as it did when the preamble was made, and the headers are what they were. The source may be
    /// edited while its compile waits for a slot, so this is asked again after the compile.
    pub(super) fn holds(
        &self,
        preamble: &Preamble,
        question: &Question,
        action: &Action,
        file_view: &mut Option<FileView>,
    ) -> bool {
        let Some(source) = &action.source else { return false };
        let text = beginning(question, source).unwrap_or_default();
        let is_whole = preamble.is_shared || text.len() == preamble.length;
        let begins = text.get(..preamble.length).filter(|_| is_whole);
        if !begins.is_some_and(|text| Digest::of(text) == preamble.text) {
            return false;
        }
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let source = place.path(&Path::here(), source);
        let now = FileView::for_request(file_view.take(), question.arrived);
        let mut view = View::at(now, &self.world, &place, &environment);
        let changes = preamble.basis.changes(&mut view);
        let mut others = changes
            .iter()
            .filter(|(fact, _)| !fact.is_some_and(|fact| is_about(fact, &source)));
        let other = others.next();
        if let Some((fact, _)) = other {
            debug!("a preamble does not hold: {fact:?}");
        }
        let holds = other.is_none();
        *file_view = Some(view.end());
        holds
    }

    /// A compile began after its headers, and its result is in place. Returns the processor time that it saved.
    pub(super) fn note_use(&self, begun: &Begun) -> u64 {
        self.count(&Counter::PreambleUsed);
        self.preambles.note_served(&begun.user);
        self.tally.add("preambles saved", begun.preamble.gain);
        begun.preamble.gain
    }

    /// So much processor time, in microseconds, went into a preamble that was made or not.
    pub(super) fn note_spent(&self, processor: u64) {
        self.tally.add("preambles spent", processor);
    }

    /// The plain compile has done what the one after the headers could not.
    pub(super) fn refuse_preamble(&self, begun: &Begun, why: Refusal) {
        debug!("a preamble is given up: {}", why.name());
        self.count(&Counter::PreambleRefused(why));
        let user = match why {
            // It is no fault of the headers.
            Refusal::Unusable => User::Source(begun.spot.clone()),
            _ => begun.user.clone(),
        };
        self.preambles.refuse(user, begun.preamble.inputs, why);
    }

    /// The plain compile has printed something, as the one after the headers had. A group with many such sources is given up,
    /// since each of them is compiled twice.
    pub(super) fn note_talk(&self, begun: &Begun) {
        if begun.preamble.is_shared {
            self.leave_plain(User::Source(begun.spot.clone()), Digest::of(b""), Refusal::Talks);
            if self.preambles.note_failed(&begun.user) {
                self.refuse_preamble(begun, Refusal::Talks);
            }
        }
    }

    // ---- when there is time

    /// Makes a preamble and proves it.
    pub(super) fn prepare(&self, due: &Due, basis: &Basis, run: Run) -> Result<(), NotCompared> {
        let spot = spot(
            &key_in_namespace(&due.key, &due.question.wishes.namespace),
            &due.question,
        );
        let prepared = self.prepared(due, Wanted::Own(basis), run);
        self.put_preamble(User::Source(spot), basis.inputs, prepared)
    }

    /// Keeps what was prepared, or why nothing was.
    pub(super) fn put_preamble(
        &self,
        user: User,
        inputs: Digest,
        prepared: Result<Preamble, Unprepared>,
    ) -> Result<(), NotCompared> {
        match prepared {
            Ok(preamble) => match self.preambles.put(user.clone(), preamble) {
                true => self.count(&Counter::PreambleMade),
                false => self.leave_plain(user, inputs, Refusal::NoRoom),
            },
            Err(Unprepared::Refused(why)) => self.leave_plain(user, inputs, why),
            Err(Unprepared::Not(why)) => return Err(why),
        }
        Ok(())
    }

    pub(super) fn leave_plain(&self, user: User, inputs: Digest, why: Refusal) {
        debug!("no preamble: {}", why.name());
        self.count(&Counter::PreambleRefused(why));
        self.preambles.refuse(user, inputs, why);
    }

    /// Makes a preamble and tries it with the source that is due.
    pub(super) fn prepared(&self, due: &Due, wanted: Wanted, run: Run) -> Result<Preamble, Unprepared> {
        let question = &due.question;
        let entry = self.entry_that_holds(due).ok_or(NotCompared::InputsChanged)?;
        let action = self.understand(question, &mut FileView::begin());
        let action = action.map_err(|_| NotCompared::InputsChanged)?;
        let compiler = action.knows.compiler.ok_or(Refusal::Options)?;
        let words = words_of(question).ok_or(NotCompared::InputsChanged)?;
        let recipe = Recipe::of(compiler, &words)?;
        let mut text = beginning(question, recipe.source()).ok_or(Refusal::NoInclude)?;
        if let Wanted::Common(length) = wanted {
            text.truncate(length);
        }
        if POSITIONS.iter().any(|word| memmem::find(&text, word).is_some()) {
            return Err(Refusal::Position.into());
        }
        if [&entry.stdout, &entry.stderr]
            .into_iter()
            .any(|print| *print != Print::default())
        {
            return Err(NotCompared::InputsChanged.into());
        }
        let folder = self.preambles.make_folder().map_err(|_| NotCompared::NoRoom)?;
        let mut workshop = Workshop {
            recipe: &recipe,
            compiler,
            program: question.argv.iter().next().unwrap_or_default(),
            writes_dependencies: action.knows.outputs.len() > 1,
            folder: &folder,
            is_observed: matches!(wanted, Wanted::Common(_)),
            run: &mut *run,
        };
        workshop.check(&text)?;
        Stamp::wait_for_next();
        let started = Stamp::now();
        let made = workshop.make(&text)?;
        // The headers are now what they were in the plain compile. If they are older than the preamble, that has read these.
        self.require_facts(due, &entry)?;
        let (inputs, basis, accesses) = match (wanted, &made.observed) {
            (Wanted::Own(of), _) => {
                let basis = self.of_whole_files(entry.clone(), question, &action)?;
                (of.inputs, basis, of.accesses.clone())
            }
            (Wanted::Common(_), Some(observed)) => {
                let (facts, accesses) = self.of_making(question, &made.argv, observed, folder.path())?;
                let basis = Entry {
                    facts,
                    ..Entry::default()
                };
                (Digest::of(&text), basis, accesses)
            }
            (Wanted::Common(_), None) => return Err(NotCompared::Unseen.into()),
        };
        require_older(&basis, &question.place(&action.knows), started)?;
        let mut preamble = Preamble {
            compiler,
            text: Digest::of(&text),
            length: text.len(),
            is_shared: matches!(wanted, Wanted::Common(_)),
            inputs,
            name: folder.name(recipe::HEADER),
            dependencies: made.dependencies,
            size: size_of(folder.path()) + size_of_accesses(&accesses) as u64,
            gain: 0,
            basis,
            accesses,
            folder,
        };
        preamble.gain = self.try_out(due, &preamble, &entry, run)?;
        self.require_facts(due, &entry)?;
        Ok(preamble)
    }

    /// The preamble holds all macros of its headers, and the source may use another one tomorrow. So each header counts as a
    /// whole.
    fn of_whole_files(&self, mut entry: Entry, question: &Question, action: &Action) -> Result<Entry, NotCompared> {
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let mut view = View::new(&self.world, &place, &environment);
        for fact in &mut entry.facts {
            if let Fact::Except { path, .. } = fact {
                let (_, digest) = view.digest(path).map_err(|_| NotCompared::InputsChanged)?;
                let path = path.clone();
                *fact = Fact::File { path, digest };
            }
        }
        Ok(entry)
    }

    /// An entry of this machine. What is made of one of another machine would count as our own.
    pub(super) fn entry_that_holds(&self, due: &Due) -> Option<Entry> {
        let key = key_in_namespace(&due.key, &due.question.wishes.namespace);
        let entries = self.store.find(&key);
        let stored = entries.iter().filter_map(|known| self.read(known));
        let mut own = stored
            .filter(|stored| stored.origin == Origin::Own)
            .map(|stored| stored.entry);
        own.find(|entry| self.require_facts(due, entry).is_ok())
    }

    /// Compiles the source after the preamble and compares the result with that of the plain compile. Returns how much
    /// processor time that saves.
    fn try_out(&self, due: &Due, preamble: &Preamble, entry: &Entry, run: Run) -> Result<u64, Unprepared> {
        let folder = self.preambles.make_folder().map_err(|_| NotCompared::NoRoom)?;
        let folder = folder.path();
        make_empty_folders(folder)?;
        let elsewhere = self
            .redirected(&due.question, due.key, folder)
            .ok_or(Refusal::Options)?;
        let elsewhere = after(elsewhere, preamble);
        let (code, processor) = run_in(folder, &elsewhere.argv, run)?;
        let complete = |text: Bytes| preamble.complete(&text, &due.question.folder);
        let results = Results::of_folder(&elsewhere.knows, code, folder, &complete)?;
        let known = Results::of_entry(entry);
        if results != known {
            debug!("after a preamble: another {}", results.difference_from(&known));
            return Err(Refusal::Different.into());
        }
        match processor * WORTH.1 <= entry.processor * WORTH.0 {
            true => Ok(entry.processor - processor),
            false => Err(Refusal::NoGain.into()),
        }
    }
}

/// Where a preamble is made.
struct Workshop<'a, 'r> {
    recipe: &'a Recipe<'a>,
    compiler: Compiler,
    program: &'a [u8],
    writes_dependencies: bool,
    folder: &'a OwnFolder,
    /// The making of the header is observed.
    is_observed: bool,
    run: Run<'r>,
}

/// A precompiled header was made.
struct MadeHeader {
    /// By this command line.
    argv: Strings,
    observed: Option<Observed>,
    /// Its dependency file.
    dependencies: Bytes,
}

impl Workshop<'_, '_> {
    /// Whether the text is the beginning of the source, and reading it again has no effect.
    fn check(&mut self, text: &[u8]) -> Result<(), Unprepared> {
        self.write(&[text, effects::AGAIN, text].concat())?;
        let to = self.names(ANSWER.as_bytes());
        let read = self.answer(self.recipe.checking(&self.folder.name(recipe::TEXT), &to))?;
        let (first, second) = effects::readings(&read).ok_or(Refusal::ReadTwice)?;
        let source = self.answer(self.recipe.checking_source(&to))?;
        match effects::is_beginning(first, &source) {
            Ok(()) => {}
            Err(Apart::Files) => return Err(Refusal::OtherNames.into()),
            Err(Apart::Text) => return Err(Refusal::Position.into()),
        }
        if effects::has_lasting_pragma(first) {
            return Err(Refusal::Pragma.into());
        }
        let is_same = effects::is_without_effect(first, second);
        is_same.then_some(()).ok_or(Refusal::ReadTwice.into())
    }

    fn answer(&mut self, words: Option<Vec<Bytes>>) -> Result<Bytes, Unprepared> {
        self.call(words.ok_or(Refusal::Options)?)?;
        let answer = self.folder.path().join(ANSWER);
        let read = fs::read(&answer).map_err(|_| NotCompared::Unreadable)?;
        let _ = fs::remove_file(answer);
        Ok(read)
    }

    /// Makes the precompiled header.
    fn make(&mut self, text: &[u8]) -> Result<MadeHeader, Unprepared> {
        self.write(text)?;
        let file = self.recipe.file_of(recipe::HEADER.as_bytes());
        let to = self.names(&file);
        let words = self.recipe.making(&self.folder.name(recipe::TEXT), &to);
        let mut words = words.ok_or(Refusal::Options)?;
        let dependencies = self.folder.name(recipe::DEPENDENCIES);
        if !self.writes_dependencies {
            words.extend([b"-MD".to_vec(), b"-MF".to_vec(), dependencies.clone()]);
        }
        let argv = self.argv(&words);
        let observed = match self.is_observed {
            false => {
                self.call(words)?;
                None
            }
            true => {
                let (code, observed) = run_observed(self.folder.path(), &argv, self.run)?;
                self.require_good(code)?;
                Some(observed)
            }
        };
        if self.compiler == Compiler::Gcc {
            // If gcc refuses the header, it must not read the text instead.
            let _ = fs::remove_file(self.folder.path().join(recipe::TEXT));
        }
        let dependencies = fs::read(OsStr::from_bytes(&dependencies)).map_err(|_| NotCompared::Unreadable)?;
        Ok(MadeHeader {
            argv,
            observed,
            dependencies,
        })
    }

    fn names(&self, main: &[u8]) -> Names {
        let main = self.folder.path().join(OsStr::from_bytes(main));
        Names {
            main: main.as_os_str().as_bytes().to_vec(),
            dependencies: self.writes_dependencies.then(|| self.folder.name(recipe::DEPENDENCIES)),
        }
    }

    fn write(&self, text: &[u8]) -> Result<(), Unprepared> {
        let written = fs::write(self.folder.path().join(recipe::TEXT), text);
        written.map_err(|_| NotCompared::NoRoom.into())
    }

    /// Runs the compiler, which must succeed and print nothing.
    fn call(&mut self, words: Vec<Bytes>) -> Result<(), Unprepared> {
        let (code, _) = run_in(self.folder.path(), &self.argv(&words), self.run)?;
        self.require_good(code)
    }

    fn argv(&self, words: &[Bytes]) -> Strings {
        let words = words.iter().map(Vec::as_slice);
        [self.program].into_iter().chain(words).collect()
    }

    fn require_good(&self, code: i32) -> Result<(), Unprepared> {
        let folder = self.folder.path();
        let is_silent = PRINTS
            .iter()
            .all(|name| fs::read(folder.join(name)).is_ok_and(|text| text.is_empty()));
        (code == 0 && is_silent).then_some(()).ok_or(Refusal::NotMade.into())
    }
}

pub(super) fn spot(key: &Digest, question: &Question) -> Spot {
    Spot {
        key: *key,
        folder: question.folder.clone(),
        known_folders: question.known_folders().to_vec(),
    }
}

/// The directives with which a source begins.
pub(super) fn beginning(question: &Question, source: &[u8]) -> Option<Bytes> {
    let folder = PathBuf::from(OsStr::from_bytes(&question.folder));
    prefix::read(&fs::read(folder.join(OsStr::from_bytes(source))).ok()?)
}

/// The accesses of a command without those to what it made. Which file was found does not count any more: files with the same
/// content are as good.
pub(super) fn only_reading(accesses: &[Access]) -> Vec<Access> {
    let made: HashSet<Bytes> = accesses
        .iter()
        .flat_map(|access| access.what.written())
        .cloned()
        .collect();
    let is_about_made = |access: &Access| access.what.clone().texts().iter().any(|text| made.contains(*text));
    let others = accesses.iter().filter(|access| !is_about_made(access)).cloned();
    others.map(of_earlier_run).collect()
}

/// Its processes are none of a later run.
fn of_earlier_run(mut access: Access) -> Access {
    const EARLIER: u32 = 1 << 31;
    access.identity = 0;
    access.process |= EARLIER;
    if let What::Begin { parent, .. } = &mut access.what {
        *parent |= if *parent == 0 { 0 } else { EARLIER };
    }
    access
}

fn is_about(fact: &Fact, source: &Path) -> bool {
    !matches!(fact, Fact::Twins { .. }) && fact.path() == Some(source)
}

/// What the headers depend on. The compiler's programs are left out: once they are parked, fewer of them are looked for. If
/// one is replaced, a refusal still lasts until a header changes. Until then, compiles are plain.
fn inputs(facts: &[Fact], source: &Path, text: &[u8]) -> Digest {
    let programs: HashSet<&[u8]> = facts.iter().filter_map(program_along).collect();
    let is_program = |fact: &Fact| match fact {
        Fact::File { path, .. } => programs.contains(path.rest.as_slice()),
        fact => program_along(fact).is_some(),
    };
    let facts = facts.iter().filter(|fact| !is_about(fact, source) && !is_program(fact));
    let facts = facts.cloned().collect();
    let entry = Entry {
        facts,
        ..Entry::default()
    };
    Digest::of(&[&entry.encode(), text].concat())
}

/// The path of the program, if the fact is that it was found along `PATH`.
fn program_along(fact: &Fact) -> Option<&[u8]> {
    match fact {
        Fact::Variable { name, value } if name.starts_with(ALONG) => value.as_deref(),
        _ => None,
    }
}

/// The files that the compile read must not have been written since this moment, even if their content is the same now.
fn require_older(entry: &Entry, place: &Place, started: Stamp) -> Result<(), NotCompared> {
    let contents = entry.facts.iter().filter_map(Fact::content);
    let mut files = contents.map(|(path, ..)| place.absolute(path));
    let is_older = |path: Bytes| {
        let found = rustix::fs::stat(FilePath::new(OsStr::from_bytes(&path)));
        found.is_ok_and(|stat| Status::from(stat).is_older(started))
    };
    files.all(is_older).then_some(()).ok_or(NotCompared::InputsChanged)
}

fn after(elsewhere: Elsewhere, preamble: &Preamble) -> Elsewhere {
    let begins = recipe::beginning(preamble.compiler, &preamble.name);
    let (program, words) = (elsewhere.argv.iter().take(1), elsewhere.argv.iter().skip(1));
    let argv = program.chain(begins.iter().map(Vec::as_slice)).chain(words);
    Elsewhere {
        argv: argv.collect(),
        knows: elsewhere.knows,
    }
}

fn size_of(folder: &FilePath) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}
