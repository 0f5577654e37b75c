//! Asks the cache for a command. The answer is a hit, a miss (the command will run, and its result will be stored), or a
//! reason why the command is not cached. If the same command is already running, the question waits for it.
//!
//! ```text
//! question ─► action ─► entries of its key ─► one whose facts hold ─► its outputs in their places ─► hit
//!                │                └─► none ─► a flight, for which the same questions wait ─► miss
//!                └─► a named reason ─► uncached
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::away::Sample;
use super::by_text::{Preprocessing, OTHER_TEXT};
use super::compiler::action::{Action, Call, Knowledge, Named};
use super::compiler::crates;
use super::compiler::neutral;
use super::compiler::outputs::Role;
use super::compiler::sharing::may_map;
use super::explain::Reasons;
use super::lookup::claim::Claim;
use super::lookup::destination::{freshen, Destination, Folders};
use super::lookup::entry::{Content, Entry, Print};
use super::lookup::flight::{Flight, Joined};
use super::lookup::frame::Frame;
use super::lookup::inputs::Inputs;
use super::lookup::restore::{mode_of_output, restore, Output, Unrestored};
use super::prepare::{Begun, AFTER_HEADERS, AFTER_SHARED_HEADERS, NOT_AFTER_HEADERS};
use super::remote::foreign::{Declaration, Origin, Refusal, Stored};
use super::remote::Executor;
use super::rerun::Due;
use super::search::{Search, Searched};
use super::store::{Blob, EntryRef};
use super::tally::{is_of_configure, Counter};
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::environment::{Circumstances, Environment, BASES, CHECKOUT, INPUT, TERMINAL};
use crate::facts::exception::LIBC;
use crate::facts::fact::Kind;
use crate::facts::file_view::FileView;
use crate::facts::input::Input;
use crate::facts::path::Place;
use crate::facts::processor::{self, PROCESSOR};
use crate::facts::status::{Stamp, Status};
use crate::facts::world::{View, World};
use crate::observe::access::Bytes;
use crate::process::spawn::candidates;
use crate::wire::{Known, MissReason, Size, Strings, Told, UncachedReason, UnstoredReason};

/// A command for which a client asks the cache.
pub struct Question {
    /// The caller's number for the command.
    pub who: u64,
    pub argv: Strings,
    /// Prefix maps were added to its command line.
    pub is_mapped: bool,
    pub environment: Arc<Strings>,
    pub folder: Bytes,
    pub umask: u32,
    /// If set, the command may be cached by its facts alone. This is what it then finds on its standard input.
    pub by_facts: Option<Input>,
    /// The same, but only if it is a compile by a compiler whose options are not known.
    pub compiles_by_facts: bool,
    pub input: Input,
    /// Other properties of its process that a program can ask for, but few do.
    pub circumstances: Circumstances,
    /// The output files that the client declares.
    pub outputs: Vec<Bytes>,
    /// When the question was asked, or was asked again after it had waited.
    pub arrived: Instant,
    pub wishes: Arc<Wishes>,
    /// The folders that were found for the command, and that its files may name. `None` until they are looked for.
    pub known_folders: Option<Arc<[Bytes]>>,
    /// The client wants to know what the command depends on.
    pub inputs: bool,
    /// The caller asks a second time, without this flag, if the cache does not know the command.
    pub only_known: bool,
    /// The state of the search in shared stores, once it has begun.
    pub searched: Option<Box<Searched>>,
    /// Tells whether the caller still waits. If not, no output is written.
    pub claim: Claim,
}

/// How a client wants its commands to be cached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Nothing is stored.
    pub read_only: bool,
    /// Nothing is looked up.
    pub recache: bool,
    /// Folders of checkouts, whose names keys and results may leave out.
    pub bases: Vec<Bytes>,
    /// The folder of the checkout is one of the bases.
    pub share_checkouts: bool,
    /// Entries of one namespace are not found in another.
    pub namespace: Bytes,
    /// The folder of the cache that the client means, if it names one.
    pub store: Option<PathBuf>,
    /// A folder that gets the command's entry, or the reason why there is none.
    pub export: Option<PathBuf>,
    /// The stores that machines share, as the setting names them, if they are not those of the setting. Empty for none.
    pub remote: Option<Arc<str>>,
    /// The size of the terminal that shows the messages.
    pub terminal: Option<Size>,
}

impl Question {
    pub(super) fn declaration<'a>(&'a self, action: &'a Action) -> Declaration<'a> {
        Declaration {
            folder: &self.folder,
            action,
            outputs: &self.outputs,
        }
    }

    pub(super) fn place(&self, knows: &Knowledge) -> Place {
        let place = Place::new(&self.folder, knows.bases.iter().map(Vec::as_slice));
        place
            .with_known_folders(self.known_folders())
            .leaving_amid(knows.left_out.folders)
    }

    /// The folders whose names the key leaves out, which a fact may have.
    pub(super) fn checkout_left_out(&self, knows: &Knowledge) -> Option<Bytes> {
        (!knows.left_out.is_empty()).then(|| self.known_folders().join(&b':'))
    }

    pub(super) fn known_folders(&self) -> &[Bytes] {
        self.known_folders.as_deref().unwrap_or_default()
    }

    /// The environment's variables, and pseudo-variables for everything else that facts may name.
    pub(super) fn variables(&self, knows: &Knowledge) -> Environment {
        let size = self.wishes.terminal;
        let terminal = size.map(|size| format!("{}x{}", size.columns, size.rows).into_bytes());
        let mut environment = Environment::of(&self.environment).with(TERMINAL, terminal);
        if knows.is_crate {
            environment = crates::without_folder(environment, &knows.bases);
        }
        let processor = processor::tell(environment.value(processor::NAMED));
        let for_libc = environment.for_libc();
        let input = self.input.tell().into_bytes();
        environment
            .with(PROCESSOR, Some(processor))
            .with(LIBC, for_libc)
            .with(INPUT, Some(input))
            .with(BASES, (!knows.bases.is_empty()).then(|| knows.bases.join(&b':')))
            .with(CHECKOUT, self.checkout_left_out(knows))
            .with_circumstances(&self.circumstances)
    }
}

pub enum Answer {
    Hit(Hit),
    Miss(Box<Ticket>),
    Uncached(Uncached),
}

/// The stored result of a command. Its files are already in their places.
pub struct Hit {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub code: i32,
    /// The processor time that the command took when it ran, in microseconds.
    pub processor: u64,
    pub inputs: Option<Inputs>,
    /// Set if the hit is to be compiled again when there is time.
    pub due: Option<Box<Due>>,
}

/// The command must run, and its result will not be stored.
pub struct Uncached {
    pub why: UncachedReason,
    pub words: String,
    /// The cache does not know commands of this kind.
    pub is_unknown: bool,
    /// The command line to run, if it is not the client's.
    pub argv: Option<Strings>,
}

impl Uncached {
    pub fn new(why: UncachedReason, words: String) -> Uncached {
        let (is_unknown, argv) = (false, None);
        Uncached {
            why,
            words,
            is_unknown,
            argv,
        }
    }

    /// The same for a command to whose line something may have been added.
    fn of(question: &Question, why: UncachedReason, words: String) -> Uncached {
        let argv = question.is_mapped.then(|| question.argv.clone());
        Uncached {
            argv,
            ..Uncached::new(why, words)
        }
    }

    /// It is a compile, whose facts may be enough. Other commands of unknown programs have other reasons.
    fn is_other_compile(&self) -> bool {
        self.why == UncachedReason::UnknownCompiler
    }

    /// The message to the client.
    pub fn told(self) -> Told {
        let (why, words) = (self.why, self.words);
        Told::Uncached { why, words }
    }
}

/// A miss: the command may run, and the holder may store its result.
pub struct Ticket {
    pub(super) question: Question,
    pub(super) action: Action,
    pub(super) key: Digest,
    /// Questions for the same command wait until this is dropped.
    _flight: Flight<Question>,
    /// Why no entry could be used: the kind, and a sentence.
    pub why: MissReason,
    pub words: String,
    /// All reasons, for `--explain`.
    pub(super) reasons: Reasons,
    /// Set if there is an entry, and the command runs only to be compared with it.
    pub(super) audited: Option<Box<Audited>>,
    /// Set if a cluster has made it, and it runs only to be compared with that.
    pub(super) sample: Option<Box<Sample>>,
    /// Set if the compile begins after its headers, with its outputs elsewhere.
    pub(super) begun: Option<Box<Begun>>,
    /// The attempt to do that, if it was no use.
    pub(super) failed: Option<Box<Begun>>,
    /// Set if the preprocessor runs first, since its text may be known.
    pub(super) preprocessing: Option<Box<Preprocessing>>,
    /// It is counted as a miss only when that is certain.
    pub(super) is_uncounted: bool,
    /// Where it may run, besides here.
    pub executor: Option<Arc<dyn Executor>>,
    /// The processor time of its last run, in microseconds, if commands may run on a cluster.
    pub expected: Option<u64>,
}

impl Ticket {
    /// The command line to run, if it is not the client's.
    pub fn argv(&self) -> Option<&Strings> {
        match (&self.preprocessing, &self.begun) {
            (Some(preprocessing), _) => Some(&preprocessing.argv),
            (None, Some(begun)) => Some(&begun.elsewhere.argv),
            (None, None) => self.question.is_mapped.then_some(&self.question.argv),
        }
    }

    /// It is no known compile, and may do anything.
    pub fn is_by_facts(&self) -> bool {
        self.action.knows.compiler.is_none()
    }

    /// Something else than the plain command runs first, with its outputs elsewhere.
    pub fn is_attempt(&self) -> bool {
        self.begun.is_some() || self.preprocessing.is_some()
    }

    /// It begins after shared headers, and its result counts for others once it is proved.
    pub(super) fn is_to_be_proved(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.preamble.is_shared)
    }

    /// The plain command line, if another one is to be run first.
    pub fn plain_argv(&self) -> Option<&Strings> {
        self.is_attempt().then_some(&self.question.argv)
    }

    /// The plain command is to be run. Returns the compile after headers that would have run in its place.
    fn take_attempt(&mut self) -> Option<Box<Begun>> {
        self.preprocessing = None;
        let begun = self.begun.take()?;
        for words in [AFTER_HEADERS, AFTER_SHARED_HEADERS] {
            self.reasons.replace(words, NOT_AFTER_HEADERS);
        }
        Some(begun)
    }

    /// The plain command is to be run, because the attempt has failed.
    pub fn note_failure(&mut self) {
        self.note_other_text();
        self.failed = self.take_attempt();
    }

    /// If the preprocessor has run, it was no use.
    pub(super) fn note_other_text(&mut self) {
        if self.preprocessing.is_some() {
            self.reasons.add(OTHER_TEXT.to_owned());
        }
    }

    /// The plain command is to be run, for another reason.
    pub fn forgo_attempt(&mut self) {
        self.take_attempt();
    }

    /// The message to the client.
    pub fn told(&self) -> Told {
        Told::Miss {
            why: self.why,
            words: self.words.clone(),
            unstored: None,
            saved: 0,
        }
    }
}

/// An entry that would have been a hit.
pub(super) struct Audited {
    pub known: EntryRef,
    pub entry: Entry,
}

/// Why a command is no hit: the kind, a sentence, and all reasons.
struct Missed {
    why: MissReason,
    words: String,
    reasons: Reasons,
}

impl From<MissReason> for Missed {
    fn from(why: MissReason) -> Missed {
        let words = why.sentence().to_owned();
        let reasons = Reasons::one(&words);
        Missed { why, words, reasons }
    }
}

/// The result of a lookup in this machine's store.
enum Found {
    Hit(Hit, Box<Audited>),
    Nothing(Missed),
    /// At this place of an output is something that must not be replaced.
    OutputInTheWay(PathBuf),
}

impl Cache {
    /// Answers a question. `None` if the question waits for the same command of another request, or for a tier: it will be
    /// asked again. `file_view` keeps what was seen of the file system, for questions that had already arrived by then.
    pub fn ask(&self, mut question: Question, file_view: &mut Option<FileView>) -> Option<Answer> {
        if question.claim.is_given_up() {
            return None;
        }
        if let Some(words) = question.wishes.store.as_deref().and_then(|store| self.refusal(store)) {
            // What the command makes does not depend on whether it is cached.
            self.share_checkout(&mut question, &mut FileView::begin());
            self.export_reason(&question.wishes, &words);
            let why = UncachedReason::OtherStore;
            return Some(Answer::Uncached(Uncached::of(&question, why, words)));
        }
        let is_asked_again = question.only_known;
        let is_of_configure = is_of_configure(&question.folder, &question.argv);
        let wishes = question.wishes.clone();
        let answer = self.answer(question, file_view)?;
        if let Answer::Uncached(reason) = &answer {
            self.export_reason(&wishes, &reason.words);
        }
        let (counter, known) = match &answer {
            Answer::Hit(_) => (Counter::Hit, Known::Hit),
            Answer::Miss(ticket) => (Counter::Miss(ticket.why), Known::Miss),
            Answer::Uncached(reason) if reason.is_unknown && is_asked_again => return Some(answer),
            Answer::Uncached(reason) => (Counter::Uncached(reason.why), Known::Uncached),
        };
        if matches!(&answer, Answer::Miss(ticket) if ticket.is_uncounted) {
            return Some(answer);
        }
        self.count(&counter);
        if is_of_configure {
            self.count(&Counter::OfConfigure(known));
        }
        Some(answer)
    }

    fn answer(&self, mut question: Question, file_view: &mut Option<FileView>) -> Option<Answer> {
        let mut now = FileView::for_request(file_view.take(), question.arrived);
        self.share_checkout(&mut question, &mut now);
        let mut action = self.understand(&question, &mut now);
        if question.compiles_by_facts && matches!(&action, Err(reason) if reason.is_other_compile()) {
            question.by_facts = Some(question.input);
            action = self.understand(&question, &mut now);
        }
        *file_view = Some(now);
        let action = match action {
            Ok(action) => action,
            Err(reason) => {
                // If the caller asks a second time, that question is noted.
                if !(reason.is_unknown && question.only_known) {
                    self.note_unknown(&question, &reason.words);
                }
                return Some(Answer::Uncached(reason));
            }
        };
        let key = key_in_namespace(&action.key, &question.wishes.namespace);
        let mut before = self.store.find(&key);
        let mut found = self.look_up(&question, &action, &before, file_view);
        if matches!(found, Found::Nothing(_)) && !question.wishes.recache {
            question = match self.search(question, &action, &key, file_view) {
                Search::Begun => return None,
                Search::Nothing(question) => question,
                Search::Stored(question) => {
                    before = self.store.find(&key);
                    found = self.look_up(&question, &action, &before, file_view);
                    question
                }
            };
        }
        let is_read_only = question.wishes.read_only;
        let (mut missed, audited) = match found {
            Found::Hit(mut hit, audited) if !is_read_only && self.audit.is_due() => {
                hit.due = self.due(&question, &action, &audited);
                if hit.due.is_some() {
                    return Some(self.noted_hit(&question, &action, &key, hit, &audited.known));
                }
                (Missed::from(MissReason::Audited), Some(audited))
            }
            Found::Hit(hit, found) => return Some(self.noted_hit(&question, &action, &key, hit, &found.known)),
            Found::OutputInTheWay(path) => {
                self.remove_link_to_store(&question, &action);
                let words = format!("{} is there and cannot be replaced", path.display());
                let reason = Uncached::of(&question, UncachedReason::OutputInTheWay, words);
                return Some(self.noted_uncached(&question, &action, &key, reason));
            }
            Found::Nothing(missed) => (missed, None),
        };
        self.remove_link_to_store(&question, &action);
        if is_read_only {
            let why = UncachedReason::ReadOnly;
            let words = format!("{}; {}", why.sentence(), missed.words);
            let reason = Uncached::of(&question, why, words);
            return Some(self.noted_uncached(&question, &action, &key, reason));
        }
        let not_asked = match self.tiers(&question.wishes) {
            Some(_) if !question.wishes.recache => self.why_tiers_are_not_asked(&question, &action),
            _ => None,
        };
        let (flight, of_tiers, question) = match question.searched.take().map(|searched| searched.into_flight()) {
            Some((flight, of_tiers)) => (flight, of_tiers, question),
            None => match self.flights.join(key, question) {
                Joined::Waits => return None,
                Joined::First(flight, question) => (flight, Vec::new(), question),
            },
        };
        // Another request may have stored the result since the lookup.
        let now = self.store.find(&key);
        if audited.is_none() && now != before {
            if let Found::Hit(hit, found) = self.look_up(&question, &action, &now, &mut None) {
                return Some(self.noted_hit(&question, &action, &key, hit, &found.known));
            }
        }
        // An input that was written in the tick in which the command starts is not trusted, and nothing would be stored.
        // Links follow right after compiles, some compiles right after the generator of a header, and those of configure
        // tests right after their source.
        let is_early = question.by_facts.is_some() || self.came_too_early(&question, &action, &key);
        if is_early || is_source_new(&question, &action) {
            Stamp::wait_for_next();
        }
        if missed.why == MissReason::New {
            self.add_command_line(&mut missed.reasons, &question, &action, &key);
        }
        let of_tiers = of_tiers.into_iter().chain(not_asked.map(|not_asked| not_asked.words));
        of_tiers.for_each(|words| missed.reasons.add(words));
        let is_asked_plainly = audited.is_some() || question.wishes.recache;
        let preprocessing = match is_asked_plainly {
            false => self.preprocess_first(&question, &action),
            true => None,
        };
        let begun = match is_asked_plainly || preprocessing.is_some() {
            false => self.begin_after_headers(&question, &action, &key, file_view),
            true => None,
        };
        let of_preamble = self.words_on_preamble(begun.as_ref(), &key, &question);
        of_preamble.into_iter().for_each(|words| missed.reasons.add(words));
        let executor = self.tiers(&question.wishes).and_then(|tiers| tiers.executor());
        let ticket = Ticket {
            begun: begun.map(Box::new),
            failed: None,
            is_uncounted: preprocessing.is_some(),
            expected: executor.as_ref().and_then(|_| self.expected_time(&key)),
            executor,
            preprocessing: preprocessing.map(Box::new),
            reasons: missed.reasons,
            question,
            action,
            key,
            _flight: flight,
            why: missed.why,
            words: missed.words,
            audited,
            sample: None,
        };
        self.note_miss(&ticket, Some(&UnstoredReason::Running.into()));
        Some(Answer::Miss(Box::new(ticket)))
    }

    /// Finds the folders whose names the command leaves out of what it makes, and those that its files may name. Adds prefix
    /// maps to its command line, if the client wants to share what its checkout makes, and what the command makes would name
    /// the checkout.
    fn share_checkout(&self, question: &mut Question, file_view: &mut FileView) {
        if question.known_folders.is_some() {
            return;
        }
        let wishes = question.wishes.clone();
        let asks = wishes.share_checkouts || !wishes.bases.is_empty();
        let mut shared = None;
        if asks || question.argv.iter().any(may_map) {
            if let Some((program, real)) = find_program(question, file_view, &self.world) {
                let call = call(question, &question.argv, &program, &real);
                shared = self.checkouts.share(&call, &wishes.bases, wishes.share_checkouts);
            }
        }
        let Some(shared) = shared else {
            if asks {
                let bases = Vec::new();
                question.wishes = Arc::new(Wishes {
                    bases,
                    ..(*wishes).clone()
                });
            }
            // A test of configuring reads nothing that was generated, and has a folder of its own.
            let is_of_configure = is_of_configure(&question.folder, &question.argv);
            let around = (!is_of_configure).then(|| self.checkouts.around(&question.folder));
            question.known_folders = Some(around.flatten().into_iter().collect());
            return;
        };
        if let Some(argv) = shared.argv {
            question.argv = argv;
            question.is_mapped = true;
        }
        question.known_folders = Some(shared.known_folders.into());
        if shared.bases != wishes.bases {
            let bases = shared.bases;
            question.wishes = Arc::new(Wishes {
                bases,
                ..(*wishes).clone()
            });
        }
    }

    pub(super) fn find_program(&self, question: &Question, file_view: &mut FileView) -> Option<(PathBuf, PathBuf)> {
        find_program(question, file_view, &self.world)
    }

    /// What the command line names of that which the compile reads.
    pub(super) fn names(&self, question: &Question, program: &FilePath, real: &FilePath) -> Option<Named> {
        call(question, &question.argv, program, real).names()
    }

    /// Puts the outputs of an entry in our store in their places, if one has facts that hold.
    pub(super) fn take_hit(&self, question: &Question, action: &Action, key: &Digest) -> Option<Hit> {
        match self.look_up(question, action, &self.store.find(key), &mut None) {
            Found::Hit(hit, _) => Some(hit),
            Found::Nothing(_) | Found::OutputInTheWay(_) => None,
        }
    }

    pub(super) fn understand(&self, question: &Question, file_view: &mut FileView) -> Result<Action, Uncached> {
        self.understand_as(question, &question.argv, file_view)
    }

    /// The action of the question with this command line instead of its own.
    pub(super) fn understand_as(
        &self,
        question: &Question,
        argv: &Strings,
        file_view: &mut FileView,
    ) -> Result<Action, Uncached> {
        let unknown = |why, words| Uncached {
            why,
            words,
            is_unknown: true,
            argv: None,
        };
        let found = find_program(question, file_view, &self.world);
        let no_program = UncachedReason::NoProgram;
        let (program, real) = found.ok_or_else(|| unknown(no_program, no_program.sentence().to_owned()))?;
        Action::find(&call(question, argv, &program, &real)).map_err(|reason| unknown(reason.kind, reason.to_string()))
    }

    /// Looks for an entry whose facts hold, and puts its outputs in their places.
    fn look_up(
        &self,
        question: &Question,
        action: &Action,
        entries: &[EntryRef],
        file_view: &mut Option<FileView>,
    ) -> Found {
        if question.wishes.recache {
            self.check_blobs(entries);
            return Found::Nothing(MissReason::Recached.into());
        }
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let now = FileView::for_request(file_view.take(), question.arrived);
        let mut view = View::at(now, &self.world, &place, &environment);
        let found = self.first_that_holds(question, action, entries, &mut view);
        *file_view = Some(view.end());
        found
    }

    fn first_that_holds(
        &self,
        question: &Question,
        action: &Action,
        entries: &[EntryRef],
        view: &mut View<'_>,
    ) -> Found {
        let mut changed: Option<Missed> = None;
        for known in entries {
            let Some(Stored { entry, origin }) = self.read(known) else {
                continue;
            };
            if !self.counts(&entry) {
                continue;
            }
            // An entry from another machine must be allowed for each command anew.
            let places = match origin {
                Origin::Own => None,
                Origin::Foreign(signer) => {
                    let places = question.declaration(action).places(&entry);
                    match (self.trust().allows(signer), places) {
                        (Ok(()), Ok(places)) => Some(places),
                        _ => continue,
                    }
                }
            };
            if let Err(change) = entry.check(view) {
                changed.get_or_insert_with(|| Missed {
                    why: MissReason::Changed,
                    words: change.to_string(),
                    reasons: self.reasons(&entry, question, action, view),
                });
                continue;
            }
            let destinations = match places.map(|places| open_destinations(question, places)).transpose() {
                Ok(destinations) => destinations,
                Err(None) => {
                    self.refuse(Refusal::Link);
                    continue;
                }
                Err(Some(path)) => return Found::OutputInTheWay(path),
            };
            match self.restore_outputs(&entry, question, action, destinations.as_deref()) {
                Ok(mut hit) => {
                    if question.inputs {
                        hit.inputs = Inputs::of(&entry, action.knows.compiler.is_some(), view);
                    }
                    self.store.touch(known);
                    let unnamed = entry.outputs.iter().filter(|output| output.number.is_none());
                    unnamed.for_each(|output| self.note_hit_of(question, action, &view.place.absolute(&output.path)));
                    let known = *known;
                    return Found::Hit(hit, Box::new(Audited { known, entry }));
                }
                Err(Some(path)) => return Found::OutputInTheWay(path),
                // A blob of it is lost.
                Err(None) => self.store.remove_entry(known),
            }
        }
        Found::Nothing(changed.unwrap_or_else(|| MissReason::New.into()))
    }

    pub(super) fn read(&self, known: &EntryRef) -> Option<Stored> {
        let stored = Stored::decode(&self.store.read(known)?);
        if stored.is_none() {
            self.store.remove_entry(known);
        }
        stored
    }

    /// Reads the blobs of entries. The store forgets a damaged one. Otherwise it would count as stored already, and stay.
    fn check_blobs(&self, entries: &[EntryRef]) {
        for stored in entries.iter().filter_map(|known| self.read(known)) {
            let blobs = stored.entry.blobs();
            blobs.iter().for_each(|digest| drop(self.store.open_blob(digest)));
        }
    }

    pub(super) fn refuse(&self, why: Refusal) {
        self.count(&Counter::RemoteRefused(why));
    }

    /// Puts an entry's outputs in their places. An error names the output whose place cannot be used, or is `None` if the
    /// entry is not usable. An entry of this machine needs no `destinations`.
    pub(super) fn restore_outputs(
        &self,
        entry: &Entry,
        question: &Question,
        action: &Action,
        destinations: Option<&[Destination]>,
    ) -> Result<Hit, Option<PathBuf>> {
        let print = |print: &Print| self.own_print(print, &action.knows);
        let place = question.place(&action.knows);
        let (stdout, stderr) = (print(&entry.stdout).ok_or(None)?, print(&entry.stderr).ok_or(None)?);
        let folder = PathBuf::from(OsStr::from_bytes(&question.folder));
        let are_linked = self.are_linked();
        let mut files = Vec::with_capacity(entry.outputs.len());
        let mut folders = Folders::default();
        let (mut frame, mut links_to_make) = (Frame::default(), Vec::new());
        for (at, output) in entry.outputs.iter().enumerate() {
            let known = output.number.map(|number| action.knows.outputs.get(number).ok_or(None));
            let known = known.transpose()?;
            let path = known.map_or_else(|| place.absolute(&output.path), |known| known.path.clone());
            let path = folder.join(OsStr::from_bytes(&path));
            let (digest, size, is_program) = match &output.content {
                Content::File {
                    digest,
                    size,
                    is_program,
                } => (digest, size, is_program),
                // From other machines come files only.
                _ if destinations.is_some() => return Err(None),
                Content::Folder => {
                    let made = frame.make_folder(&path, question.umask);
                    made.map_err(|_| Some(path))?;
                    continue;
                }
                Content::Link { text } => {
                    links_to_make.push((path, text));
                    continue;
                }
            };
            let is_main = known.is_some_and(|known| known.role == Role::Main);
            let is_own = match known {
                Some(known) => known.role == Role::Dependencies,
                None => action.knows.is_crates_text(&output.path),
            };
            let is_to_stay = !(is_own || are_linked && is_main || output.dated.is_some());
            let mode = mode_of_output(*is_program, question.umask);
            let is_same = || self.world.digest_of_output(&path, *size, mode) == Some(*digest);
            let declared = destinations.and_then(|all| all.get(at));
            let freshen = || declared.map_or_else(|| freshen(&path), Destination::freshen);
            if is_to_stay && is_same() && freshen() {
                continue;
            }
            let mut blob = self.store.open_blob(digest).ok_or(None)?;
            if is_own {
                blob = Blob::Bytes(self.own_text(digest, &action.knows).ok_or(None)?);
            }
            let destination = declared.cloned().map_or_else(|| folders.known(&path), Ok);
            let destination = destination.map_err(|_| Some(path.clone()))?;
            files.push((path, blob, (mode, output.dated), is_main, destination));
        }
        let writers: Vec<_> = files
            .iter()
            .map(|(_, blob, ..)| move |file: &File| blob.write_to(file))
            .collect();
        let links: Vec<_> = files
            .iter()
            .map(|(_, blob, ..)| move |path: &FilePath, mode| blob.link_to(path, mode))
            .collect();
        let outputs: Vec<_> = files
            .iter()
            .zip(writers.iter().zip(&links))
            .map(
                |((path, _, (mode, dated), is_main, destination), (content, link))| Output {
                    path,
                    destination: destination.clone(),
                    content,
                    mode: *mode,
                    dated: *dated,
                    // Compilers write into the other outputs, such as dependency files, without removing them first.
                    link: (are_linked && *is_main && dated.is_none()).then_some(link),
                },
            )
            .collect();
        let restored = restore(&outputs, &question.claim).and_then(|()| {
            let mut links = links_to_make.into_iter();
            let made = links.try_for_each(|(path, text)| frame.make_link(&path, text).map_err(|error| (path, error)));
            made.map_err(|(path, error)| Unrestored::Failed(path, error))
        });
        match restored.map(|()| frame.keep()) {
            Ok(()) => Ok(Hit {
                stdout,
                stderr,
                code: entry.exit.into(),
                processor: entry.processor,
                inputs: None,
                due: None,
            }),
            Err(Unrestored::Unusual(path) | Unrestored::Failed(path, _)) => Err(Some(path)),
            Err(Unrestored::Late) => Err(None),
        }
    }

    /// What a command prints on a hit.
    pub(super) fn own_print(&self, print: &Print, knows: &Knowledge) -> Option<Bytes> {
        let stored = match print {
            Print::Inline(bytes) => bytes.clone(),
            Print::Blob { digest, .. } => self.bytes_of(digest)?,
        };
        let bases = &knows.bases;
        match bases.is_empty() {
            _ if knows.is_crate => Some(neutral::own_everywhere(&stored, bases)),
            _ if knows.is_link() => Some(stored),
            false => neutral::own_diagnostics(&stored, bases),
            true => Some(stored),
        }
    }

    /// A dependency file for a command.
    pub(super) fn own_text(&self, digest: &Digest, knows: &Knowledge) -> Option<Bytes> {
        own_dependencies(self.bytes_of(digest)?, knows)
    }

    fn bytes_of(&self, digest: &Digest) -> Option<Vec<u8>> {
        self.store.open_blob(digest)?.into_bytes()
    }

    /// The answer, noted in the journal.
    fn noted_hit(&self, question: &Question, action: &Action, key: &Digest, hit: Hit, entry: &EntryRef) -> Answer {
        self.note_hit(question, action, key);
        self.export(&question.wishes, key, entry);
        Answer::Hit(hit)
    }

    fn noted_uncached(&self, question: &Question, action: &Action, key: &Digest, reason: Uncached) -> Answer {
        self.note_uncached(question, action, key, &reason.words);
        Answer::Uncached(reason)
    }
}

/// Opens the folders of declared outputs. An error names the output whose folder cannot be opened, or is `None` if another
/// user's link is on the way.
fn open_destinations(question: &Question, places: Vec<PathBuf>) -> Result<Vec<Destination>, Option<PathBuf>> {
    let folder = FilePath::new(OsStr::from_bytes(&question.folder));
    let mut folders = Folders::default();
    let enter = |path: PathBuf| match folders.declared(folder, &path) {
        Ok(destination) => Ok(destination),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(None),
        Err(_) => Err(Some(path)),
    };
    places.into_iter().map(enter).collect()
}

/// Whether the source was written in the present tick of the clock.
fn is_source_new(question: &Question, action: &Action) -> bool {
    let Some(source) = &action.source else { return false };
    let path = PathBuf::from(OsStr::from_bytes(&question.folder)).join(OsStr::from_bytes(source));
    rustix::fs::stat(&path).is_ok_and(|stat| !Status::from(stat).is_older(Stamp::now()))
}

/// A stored dependency file in the form for this command.
fn own_dependencies(text: Bytes, knows: &Knowledge) -> Option<Bytes> {
    let text = match knows.bases.is_empty() {
        _ if knows.is_crate => neutral::own_everywhere(&text, &knows.bases),
        false => neutral::own_dependencies(&text, knows.compiler?, &knows.bases)?,
        true => text,
    };
    match &knows.target {
        Some(target) => neutral::with_target(&text, knows.compiler?, target),
        None => Some(text),
    }
}

fn call<'a>(question: &'a Question, argv: &'a Strings, program: &'a FilePath, real: &'a FilePath) -> Call<'a> {
    Call {
        argv,
        environment: &question.environment,
        folder: &question.folder,
        program,
        real,
        bases: &question.wishes.bases,
        known_folders: question.known_folders(),
        by_facts: question.by_facts,
    }
}

pub(super) fn key_in_namespace(key: &Digest, namespace: &[u8]) -> Digest {
    match namespace {
        [] => *key,
        name => Digest::of(&[&key.0[..], name].concat()),
    }
}

/// The file that the command would execute: its path, and the path without links.
fn find_program(question: &Question, file_view: &mut FileView, world: &World) -> Option<(PathBuf, PathBuf)> {
    let name = question.argv.iter().next()?;
    let folder = PathBuf::from(OsStr::from_bytes(&question.folder));
    let mut paths = candidates(name, &question.environment)
        .into_iter()
        .map(|path| folder.join(OsString::from_vec(path.into_bytes())));
    paths.find_map(|path| {
        let name = path.as_os_str().as_bytes();
        if file_view.surely_lacks(name, world) {
            return None;
        }
        let (real, status) = file_view.found(name).ok()?;
        let real = PathBuf::from(OsString::from_vec(real));
        (status.kind() == Kind::Program).then_some((path, real))
    })
}
