//! Stores the result of a command: its accesses become facts, its outputs become blobs, and both together an entry.
//!
//! This takes two steps. `collect` reads inputs and outputs before the client is told that the command has ended, because
//! afterwards other commands may change them. `store` writes to the disk while the client goes on.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path as FilePath;

use log::{debug, trace};

use super::answer::{Ticket, Wishes};
use super::by_text::ByText;
use super::compiler::action::{Knowledge as Known, FOR_DIAGNOSTICS};
use super::compiler::crates;
use super::compiler::linked::is_linked_alone;
use super::compiler::macros::messages_name_sources;
use super::compiler::neutral;
use super::compiler::outputs::{Prints, Role};
use super::failure::is_of_sources;
use super::lookup::claim::Claim;
use super::lookup::entry::{Content, Entry, Output, Print};
use super::lookup::inputs::Inputs;
use super::preamble::Refusal;
use super::rehearsal::{can_be_repeated, in_doubt};
use super::rerun::{Due, NotCompared};
use super::share::key_aside;
use super::store::{EntryRef, Parcel};
use super::story::{understand, Doubt, Knowledge, Made, Policy};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::driver_model::DriverPrediction;
use crate::facts::environment::{Environment, BASES, TERMINAL};
use crate::facts::fact::{Fact, Kind};
use crate::facts::path::{Path, Place};
use crate::facts::status::Stamp;
use crate::facts::world::View;
use crate::files::search;
use crate::observe::access::{Access, Bytes, What};
use crate::wire::{Unkept, UnstoredReason};

/// A longer text is stored as a blob of its own.
const INLINE: usize = 4 << 10;
/// A larger output is stored at once, and not held in memory.
const SMALL: u64 = 1 << 20;

/// A command that has run because of a miss.
pub struct Ended {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Microseconds.
    pub wall: u64,
    pub processor: u64,
    /// `Stamp::now()` from before the command was started.
    pub started: Stamp,
    pub accesses: Vec<Access>,
    /// The predicted accesses of its driver, if the driver did not run.
    pub driver: Option<DriverPrediction>,
    /// The library that recorded the accesses.
    pub observer: Bytes,
}

/// The result of a command that has ended, to be stored.
pub struct Collected {
    ticket: Ticket,
    result: CommandResult,
    /// What a command without a known compiler has written and left, for the journal.
    written: Vec<Bytes>,
    /// What is to be done when there is time.
    due: Vec<Due>,
    /// The processor time of what has run.
    processor: u64,
}

/// The result of a command is stored, or is about to be.
#[derive(Default)]
pub struct Stored {
    pub inputs: Option<Inputs>,
    /// What is to be done when there is time: a preamble for the command's source, an entry for its text.
    pub due: Vec<Due>,
    /// Processor time that was saved because the command began after its headers, in microseconds.
    pub saved: u64,
    /// The command did not run, because its text was known: the processor time that it would have taken.
    pub by_text: Option<u64>,
}

/// Nothing is stored.
pub enum NotStored {
    Unkept(Unkept),
    /// The compile began after its headers, and its result is not in place: the plain command has to run.
    Again(Box<Ticket>),
}

struct CommandResult {
    facts: Vec<Fact>,
    /// Its entry counts when a second run has made the same.
    doubt: Option<Doubt>,
    outputs: Vec<CollectedOutput>,
    /// Stdout and stderr, in the form for the store.
    prints: [Vec<u8>; 2],
    code: i32,
    wall: u64,
    processor: u64,
    inputs: Option<Vec<Bytes>>,
}

impl CommandResult {
    fn is_silent(&self) -> bool {
        self.prints.iter().all(Vec::is_empty)
    }
}

/// An output as it was when the command ended.
struct CollectedOutput {
    path: Path,
    number: Option<usize>,
    content: OutputContent,
    size: u64,
    is_program: bool,
    /// The time that the command has given it.
    dated: Option<Stamp>,
    /// It contains the name of a base.
    tells_base: bool,
}

enum OutputContent {
    Bytes(Vec<u8>),
    /// A large output: its blob is already in the store.
    Stored(Digest),
    Folder,
    Link(Vec<u8>),
}

impl Collected {
    /// Whether the client waits for the stored result: for its inputs and the digest of its outputs, for the outputs
    /// themselves, for the entry, or until it is compared with that of a cluster.
    pub fn is_awaited(&self) -> bool {
        let question = &self.ticket.question;
        question.inputs || self.ticket.is_attempt() || question.wishes.export.is_some() || self.ticket.sample.is_some()
    }

    pub fn take_due(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.due)
    }
}

impl Cache {
    /// The first step: reads the command's inputs and outputs.
    pub fn collect(&self, mut ticket: Box<Ticket>, ended: &Ended) -> Result<Collected, NotStored> {
        let folder = FilePath::new(OsStr::from_bytes(&ticket.question.folder));
        // A temporary file is gone, and needs no explanation.
        let is_left = |path: &&Bytes| folder.join(OsStr::from_bytes(path)).symlink_metadata().is_ok();
        let written: Vec<_> = match ticket.action.knows.compiler {
            None => {
                let written = ended.accesses.iter().filter_map(written_path);
                written.filter(is_left).cloned().collect()
            }
            Some(_) => Vec::new(),
        };
        match self.collect_result(&ticket, ended) {
            Ok(result) => {
                let is_silent = result.is_silent();
                match &ticket.failed {
                    Some(failed) if is_silent => self.refuse_preamble(failed, Refusal::FailsAlone),
                    Some(failed) => self.note_talk(failed),
                    None => {}
                }
                self.note_toolchain(&ticket, &result.facts);
                let shared = self.due_shared(&ticket, ended, is_silent);
                let preamble = shared.or_else(|| self.due_preamble(&ticket, &result.facts, ended, is_silent));
                let text = self.due_text(&ticket, ended, is_silent);
                let doubt = result.doubt.as_ref();
                let rehearsal = doubt.map(|doubt| {
                    ticket.reasons.add(format!(
                        "{}; it is no hit before it has been run a second time",
                        doubt.why
                    ));
                    self.due_rehearsal(&ticket, doubt.clone(), ended.wall)
                });
                Ok(Collected {
                    due: [preamble, text, rehearsal]
                        .into_iter()
                        .flatten()
                        .map(|due| *due)
                        .collect(),
                    ticket: *ticket,
                    result,
                    written,
                    processor: ended.processor,
                })
            }
            Err(unkept) => Err(self.not_stored(ticket, &written, unkept, ended.code)),
        }
    }

    /// The second step: stores what was collected. If the outputs are elsewhere, they are put in their places, as long as
    /// `claim` is not given up.
    pub fn store(&self, collected: Collected, claim: &Claim) -> Result<Stored, NotStored> {
        let (mut ticket, mut result) = (collected.ticket, collected.result);
        let facts = std::mem::take(&mut result.facts);
        let stored = self.store_entry(&ticket, &result, facts);
        let stored = stored.and_then(|(entry, known)| match ticket.is_attempt() {
            false => Ok((entry, known)),
            true => {
                ticket.question.claim = claim.clone();
                Ok((self.put_in_place(&ticket, entry)?, known))
            }
        });
        let (entry, known) = match stored {
            Ok(stored) => stored,
            Err(unkept) => return Err(self.not_stored(Box::new(ticket), &collected.written, unkept, result.code)),
        };
        match ticket.is_to_be_proved() || result.doubt.is_some() {
            false => self.export(&ticket.question.wishes, &ticket.key, &known),
            true => self.export_reason(
                &ticket.question.wishes,
                "its result is to be compared with a second run's first",
            ),
        }
        if ticket.preprocessing.is_some() {
            let saved = entry.processor.saturating_sub(collected.processor);
            self.note_text_hit(&ticket, saved);
            return Ok(Stored {
                inputs: result.inputs.map(|texts| Inputs::with_result(texts, &entry)),
                by_text: Some(entry.processor),
                ..Stored::default()
            });
        }
        self.note_kept(&ticket, &collected.written, None);
        let begun = ticket.begun.as_ref();
        let saved = begun.map_or(0, |begun| self.note_use(begun));
        let proof = ticket
            .is_to_be_proved()
            .then(|| self.due_proof(&ticket, known))
            .flatten();
        self.compare(&ticket, &entry);
        let sample = self.compare_sample(&ticket, &entry, &known);
        Ok(Stored {
            inputs: result.inputs.map(|texts| Inputs::with_result(texts, &entry)),
            due: proof
                .map(|due| *due)
                .into_iter()
                .chain(sample)
                .chain(collected.due)
                .collect(),
            saved,
            by_text: None,
        })
    }

    fn not_stored(&self, mut ticket: Box<Ticket>, written: &[Bytes], unkept: Unkept, code: i32) -> NotStored {
        if let Some(begun) = &ticket.begun {
            debug!("after a preamble: {}", unkept.words);
            self.refuse_preamble(begun, Refusal::Unusable);
            ticket.forgo_attempt();
            return NotStored::Again(ticket);
        }
        if ticket.preprocessing.is_some() {
            debug!("not by its text: {}", unkept.words);
            ticket.note_other_text();
            ticket.forgo_attempt();
            return NotStored::Again(ticket);
        }
        let why = match code {
            0 => unkept.words.clone(),
            1.. => format!("it failed with status {code}"),
            _ => format!("signal {} has ended it", code.unsigned_abs()),
        };
        self.export_reason(&ticket.question.wishes, &why);
        self.note_kept(&ticket, written, Some(&unkept));
        NotStored::Unkept(unkept)
    }

    /// Puts the outputs of a compile that were made elsewhere in their places, like those of a hit.
    fn put_in_place(&self, ticket: &Ticket, entry: Entry) -> Result<Entry, Unkept> {
        match self.restore_outputs(&entry, &ticket.question, &ticket.action, None) {
            Ok(_) => Ok(entry),
            Err(place) => {
                let words = format!("its outputs cannot be put in place: {place:?}");
                Err(Unkept::new(UnstoredReason::StoreFailed, words))
            }
        }
    }

    /// Notes that nothing can be stored for the command.
    pub fn leave(&self, ticket: &Ticket, unkept: &Unkept) {
        self.note_kept(ticket, &[], Some(unkept));
    }

    /// Notes that a command was stored, or why it was not.
    fn note_kept(&self, ticket: &Ticket, written: &[Bytes], unkept: Option<&Unkept>) {
        if let Some(unkept) = unkept {
            self.count(&Counter::Unstored(unkept.why));
            if ticket.sample.is_some() {
                self.count(&Counter::Unaudited(NotCompared::NotStored));
            }
        }
        if ticket.is_uncounted {
            self.count_miss(ticket);
        }
        self.note_miss(ticket, unkept);
        written.iter().for_each(|path| self.note_miss_of(ticket, path, unkept));
    }

    fn collect_result(&self, ticket: &Ticket, ended: &Ended) -> Result<CommandResult, Unkept> {
        match &ticket.preprocessing {
            Some(_) => self.collect_by_text(ticket, ended),
            None => self.collect_plainly(ticket, ended),
        }
    }

    /// The result of the command, if the preprocessor has left a known text.
    fn collect_by_text(&self, ticket: &Ticket, ended: &Ended) -> Result<CommandResult, Unkept> {
        let question = &ticket.question;
        let knows = &ticket.action.knows;
        let place = question.place(knows);
        let environment = question.variables(knows);
        let mut view = View::new(&self.world, &place, &environment);
        if ended.code != 0 || !(ended.stdout.is_empty() && ended.stderr.is_empty()) {
            return Err(UnstoredReason::CompilerFailed.into());
        }
        if ended.driver.as_ref().is_some_and(|driver| !driver.holds(&mut view)) {
            return Err(UnstoredReason::DriverDiffers.into());
        }
        let found = ticket.preprocessing.as_ref();
        let found = found.and_then(|run| self.find_text(ticket, run, ended));
        let found: ByText = found.ok_or(UnstoredReason::InputsChanged)?;
        let Content::File {
            digest,
            size,
            is_program,
        } = found.output.content
        else {
            return Err(UnstoredReason::NoPlainFile.into());
        };
        let mut outputs = vec![CollectedOutput {
            path: found.output.path,
            number: found.output.number,
            content: OutputContent::Stored(digest),
            size,
            is_program,
            dated: None,
            tells_base: false,
        }];
        let mut others = knows.outputs.iter().enumerate();
        let own = others.find(|(_, output)| output.role == Role::Dependencies);
        if let Some((text, (number, output))) = found.dependencies.zip(own) {
            outputs.push(CollectedOutput {
                path: place.path(&Path::here(), &output.path),
                number: Some(number),
                size: text.len() as u64,
                content: OutputContent::Bytes(text),
                is_program: false,
                dated: None,
                tells_base: false,
            });
        }
        outputs.sort_by_key(|output| output.number);
        let inputs = question.inputs.then(|| Inputs::texts(&found.facts, true, &mut view));
        Ok(CommandResult {
            inputs: inputs.flatten(),
            facts: found.facts,
            doubt: None,
            outputs,
            prints: Default::default(),
            code: 0,
            wall: found.wall,
            processor: found.processor,
        })
    }

    fn collect_plainly(&self, ticket: &Ticket, ended: &Ended) -> Result<CommandResult, Unkept> {
        let question = &ticket.question;
        let (knows, accesses) = match &ticket.begun {
            Some(begun) => (&begun.elsewhere.knows, Cow::Owned(begun.accesses(&ended.accesses))),
            None => (&ticket.action.knows, Cow::Borrowed(&ended.accesses)),
        };
        let is_compiler = knows.compiler.is_some();
        // Output that was asked for does not depend on how messages look.
        let is_silent = ended.stderr.is_empty() && (ended.stdout.is_empty() || knows.prints != Prints::Messages);
        let has_failed = ended.code != 0;
        if has_failed && !(self.are_failures_cached() && may_keep_failure(ticket, ended)) {
            return Err(failed_plainly(is_compiler).into());
        }
        let place = question.place(knows);
        let environment = question.variables(knows);
        let mut view = View::new(&self.world, &place, &environment);
        let names: Vec<_> = knows.outputs.iter().map(|output| output.path.clone()).collect();
        let named = Named::find(knows, &place, &environment)?;
        let policy = knows.policy();
        let folder = policy.folder || named.folder;
        let messages = [&ended.stdout[..], &ended.stderr].concat();
        let rehearsed = self.rehearsed(ticket);
        let knowledge = Knowledge {
            policy: Policy {
                folder,
                without_comments: self.are_comments_left_out(),
                ..policy
            },
            outputs: is_compiler.then_some(&names[..]),
            modules: knows.modules.as_deref(),
            // A command that printed nothing does not depend on how diagnostics look.
            unseen: if is_silent { &FOR_DIAGNOSTICS } else { &[] },
            observer: &ended.observer,
            started: ended.started,
            words: knows
                .words
                .as_deref()
                .filter(|words| is_silent || messages_name_sources(words)),
            messages: if is_silent { &[] } else { &messages },
            macros: &knows.left_out.macros,
            rehearsed: rehearsed.as_deref(),
            has_failed,
        };
        if ended.driver.as_ref().is_some_and(|driver| !driver.holds(&mut view)) {
            return Err(UnstoredReason::DriverDiffers.into());
        }
        let found = understand(&accesses, &knowledge, &mut view);
        let mut found = found.map_err(|obstacle| Unkept::new(obstacle.kind(), obstacle.to_string()))?;
        if let Some(begun) = &ticket.begun {
            // What was read before is what is there now.
            if !self.holds(&begun.preamble, question, &ticket.action, &mut None) {
                return Err(UnstoredReason::InputsChanged.into());
            }
        }
        if !is_compiler {
            let mut all = found.outputs.iter();
            all.try_for_each(|made| require_usual_rights(made.kind, &place.absolute(&made.path), question.umask))?;
        }
        let made = found
            .outputs
            .iter()
            .map(|made| self.collect_output(made, ticket, knows, &place));
        let mut outputs = made.collect::<Result<Vec<_>, _>>()?;
        outputs.sort_by_key(|output| output.number);
        let lacks = |number| outputs.iter().all(|output| output.number != Some(number));
        let mut foretold = knows.outputs.iter().enumerate();
        // Compilers that find errors remove everything but the dependency file.
        let is_usual = |output: &CollectedOutput| {
            let named = output.number.and_then(|number| knows.outputs.get(number));
            named.is_some_and(|named| named.role == Role::Dependencies)
        };
        if has_failed && is_compiler && !outputs.iter().all(is_usual) {
            return Err(failed_plainly(is_compiler).into());
        }
        if let Some((_, output)) = foretold.find(|(number, output)| !has_failed && output.certain && lacks(*number)) {
            let words = format!("it has not made {}", String::from_utf8_lossy(&output.path));
            return Err(Unkept::new(UnstoredReason::LacksForetold, words));
        }
        let print = |text| neutral_print(text, knows).ok_or(UnstoredReason::TellsBase);
        let prints = [print(&ended.stdout)?, print(&ended.stderr)?];
        let tells_base = named.base
            || outputs.iter().any(|output| output.tells_base)
            || prints.iter().any(|print| print.tells_base)
            || knows.is_link() && !(found.is_compiled && is_linked_alone(&accesses));
        let tells_base = tells_base && !found.facts.iter().any(Fact::is_about_bases);
        let variables = [(!is_silent, TERMINAL), (tells_base, BASES)];
        for (_, name) in variables.into_iter().filter(|(counts, _)| *counts) {
            found.facts.push(Fact::Variable {
                name: name.to_vec(),
                value: environment.value(name).map(<[u8]>::to_vec),
            });
        }
        let inputs = question
            .inputs
            .then(|| Inputs::texts(&found.facts, is_compiler, &mut view));
        if let Some(doubt) = &found.doubt {
            if self.is_refuted(ticket, &found.facts) {
                let words = format!("{}, and a second run at another time made something else", doubt.why);
                return Err(Unkept::new(doubt.why.kind(), words));
            }
            found.facts.push(in_doubt());
        }
        Ok(CommandResult {
            inputs: inputs.flatten(),
            facts: found.facts,
            doubt: found.doubt,
            outputs,
            prints: prints.map(|print| print.bytes),
            code: ended.code,
            wall: ended.wall,
            processor: ended.processor,
        })
    }

    fn store_entry(
        &self,
        ticket: &Ticket,
        result: &CommandResult,
        facts: Vec<Fact>,
    ) -> Result<(Entry, EntryRef), Unkept> {
        // Small blobs are written together with the entry.
        let mut parcels = Vec::new();
        let outputs = result.outputs.iter();
        let outputs = outputs.map(|output| output_of(output, &mut parcels)).collect();
        let [stdout, stderr] = &result.prints;
        let entry = Entry {
            facts,
            outputs,
            stdout: print_of(stdout, &mut parcels),
            stderr: print_of(stderr, &mut parcels),
            exit: result.code as u8,
            wall: result.wall,
            processor: result.processor,
        };
        let put = |key: &Digest, parcels| {
            let stored = self.store.put_entry_with(key, &entry.encode(), &entry.blobs(), parcels);
            stored.map_err(|error| failed("store an entry", &error))
        };
        let stored = match (ticket.is_to_be_proved(), &result.doubt) {
            (true, _) => put(&key_aside(&ticket.key), parcels)?,
            (false, Some(_)) => put(&ticket.key, parcels)?,
            (false, None) => self.keep_entry(&ticket.question.wishes, &ticket.key, &entry, parcels)?,
        };
        if ticket.question.wishes.recache {
            self.replace_others(ticket, &stored);
        }
        entry.facts.iter().for_each(|fact| trace!("it depends on {fact:?}"));
        Ok((entry, stored))
    }

    /// Stores an entry for everyone.
    pub(super) fn keep_entry(
        &self,
        wishes: &Wishes,
        key: &Digest,
        entry: &Entry,
        parcels: Vec<Parcel>,
    ) -> Result<EntryRef, Unkept> {
        let bytes = entry.encode();
        let stored = self.store.put_entry_with(key, &bytes, &entry.blobs(), parcels);
        let stored = stored.map_err(|error| failed("store an entry", &error))?;
        trace!("an entry is stored under {key}");
        // Another machine may have what is missing here.
        if entry.exit == 0 && self.tiers(wishes).is_some() {
            match self.signer() {
                None => self.offer(wishes, key, bytes, entry, usize::MAX),
                Some(Ok(signer)) => self.offer(wishes, key, signer.seal(key, &bytes), entry, usize::MAX),
                Some(Err(_)) => self.count(&Counter::UploadUnsigned),
            }
        }
        Ok(stored)
    }

    /// With `recache`, the new entry replaces the entries of its key whose facts hold. Entries for other states of the
    /// inputs stay.
    fn replace_others(&self, ticket: &Ticket, new: &EntryRef) {
        let question = &ticket.question;
        let place = question.place(&ticket.action.knows);
        let environment = question.variables(&ticket.action.knows);
        let mut view = View::new(&self.world, &place, &environment);
        for other in self.store.find(&ticket.key) {
            let mut holds = || {
                self.read(&other)
                    .is_some_and(|entry| entry.entry.check(&mut view).is_ok())
            };
            if other != *new && holds() {
                self.store.remove_entry(&other);
            }
        }
    }

    /// Compares the result of an audited command with the entry that it was to be given.
    fn compare(&self, ticket: &Ticket, fresh: &Entry) {
        let Some(audited) = &ticket.audited else { return };
        self.count(&Counter::Audited);
        let old = &audited.entry;
        // Outputs are compared by number, because the same output may have another name by now.
        let contents = |entry: &Entry| -> Vec<_> {
            let outputs = entry.outputs.iter();
            outputs.map(|output| (output.number, output.content.clone())).collect()
        };
        if contents(old) != contents(fresh) || old.stdout != fresh.stdout || old.stderr != fresh.stderr {
            self.report_difference(&ticket.question, &audited.known, "files or messages");
        }
    }

    fn collect_output(
        &self,
        made: &Made,
        ticket: &Ticket,
        knows: &Known,
        place: &Place,
    ) -> Result<CollectedOutput, Unkept> {
        let (path, number) = (place.absolute(&made.path), made.number);
        let other = match made.kind {
            Kind::Folder => Some(OutputContent::Folder),
            Kind::Link => {
                let text = rustix::fs::readlink(&path[..], Vec::new());
                let text = text.map_err(|error| failed("read a link that it made", &error.into()))?;
                Some(OutputContent::Link(text.into_bytes()))
            }
            _ => None,
        };
        if let Some(content) = other {
            // A compiler makes no such thing.
            if knows.compiler.is_some() {
                return Err(UnstoredReason::NoPlainFile.into());
            }
            return Ok(CollectedOutput {
                path: made.path.clone(),
                number,
                content,
                size: 0,
                is_program: false,
                dated: None,
                tells_base: false,
            });
        }
        let role = number.map(|number| knows.outputs[number].role);
        let role = role.or_else(|| knows.is_crates_text(&made.path).then_some(Role::Dependencies));
        let (content, size, tells_base) =
            self.collect_file(FilePath::new(OsStr::from_bytes(&path)), role, ticket, knows)?;
        let named = number.and_then(|number| ticket.action.knows.outputs.get(number));
        Ok(CollectedOutput {
            // It may have been made elsewhere.
            path: match (&ticket.begun, named) {
                (Some(_), Some(output)) => place.path(&Path::here(), &output.path),
                _ => made.path.clone(),
            },
            number,
            content,
            size,
            is_program: made.kind == Kind::Program,
            dated: made.dated,
            tells_base,
        })
    }

    /// Its content and size, and whether it contains the name of a base.
    fn collect_file(
        &self,
        path: &FilePath,
        role: Option<Role>,
        ticket: &Ticket,
        knows: &Known,
    ) -> Result<(OutputContent, u64, bool), Unkept> {
        let failed = |error| failed(&format!("read {}", path.display()), &error);
        let file = open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        if role != Some(Role::Dependencies) && size > SMALL {
            let tells_base = !knows.is_searched && search::holds_any(&file, &knows.bases).map_err(failed)?;
            (&file).rewind().map_err(failed)?;
            let digest = self.store.put_file(&file).map_err(failed)?;
            return Ok((OutputContent::Stored(digest), size, tells_base));
        }
        let bytes = read(&file).map_err(failed)?;
        if role == Some(Role::Dependencies) {
            let complete = match &ticket.begun {
                Some(begun) => begun.preamble.complete(&bytes, &ticket.question.folder),
                None => Some(bytes),
            };
            let neutral = complete.and_then(|bytes| neutral_dependencies(bytes, knows));
            let neutral = neutral.ok_or_else(|| {
                let words = format!("{} is not laid out as expected", path.display());
                Unkept::new(UnstoredReason::OwnNames, words)
            })?;
            return Ok((OutputContent::Bytes(neutral.bytes), size, neutral.tells_base));
        }
        let tells_base = !knows.is_searched && knows.bases.iter().any(|base| neutral::holds(&bytes, base));
        let size = bytes.len() as u64;
        Ok((OutputContent::Bytes(bytes), size, tells_base))
    }
}

/// Opens an output of a command.
fn open(path: &FilePath) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// What a look at the output of a command says, if the command line does not tell enough.
#[derive(Default)]
struct Named {
    /// The output contains the name of the command's folder.
    folder: bool,
    /// It contains that of a base.
    base: bool,
}

impl Named {
    fn find(knows: &Known, place: &Place, environment: &Environment) -> Result<Named, Unkept> {
        let mut main = knows.outputs.iter().filter(|output| output.role == Role::Main);
        let Some(output) = main.next().filter(|_| knows.is_searched) else {
            return Ok(Named::default());
        };
        let asked = environment.value(b"PWD").filter(|asked| asked.starts_with(b"/"));
        let folders: Vec<&[u8]> = [Some(place.folder()), asked].into_iter().flatten().collect();
        let path = place.absolute(&place.path(&Path::here(), &output.path));
        let path = FilePath::new(OsStr::from_bytes(&path));
        let failed = |error| failed(&format!("read {}", path.display()), &error);
        let file = match open(path) {
            Ok(file) => file,
            // Its absence is noticed later.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Named::default()),
            Err(error) => return Err(failed(error)),
        };
        let folder = search::holds_any(&file, &folders).map_err(failed)?;
        (&file).rewind().map_err(failed)?;
        let base = search::holds_any(&file, &knows.bases).map_err(failed)?;
        Ok(Named { folder, base })
    }
}

fn output_of<'a>(output: &'a CollectedOutput, parcels: &mut Vec<Parcel<'a>>) -> Output {
    let file = |digest| Content::File {
        digest,
        size: output.size,
        is_program: output.is_program,
    };
    let content = match &output.content {
        OutputContent::Stored(digest) => file(*digest),
        OutputContent::Bytes(bytes) => file(add(bytes, parcels)),
        OutputContent::Folder => Content::Folder,
        OutputContent::Link(text) => Content::Link { text: text.clone() },
    };
    Output {
        path: output.path.clone(),
        number: output.number,
        content,
        dated: output.dated,
    }
}

fn print_of<'a>(text: &'a [u8], parcels: &mut Vec<Parcel<'a>>) -> Print {
    if text.len() <= INLINE {
        return Print::Inline(text.to_vec());
    }
    let (digest, size) = (add(text, parcels), text.len() as u64);
    Print::Blob { digest, size }
}

fn add<'a>(bytes: &'a [u8], parcels: &mut Vec<Parcel<'a>>) -> Digest {
    parcels.push(Parcel::of(bytes));
    parcels[parcels.len() - 1].digest
}

/// A text in the form for the store.
pub(super) struct Neutral {
    pub bytes: Vec<u8>,
    /// It has the name of a base where another checkout's text may not have its own.
    pub tells_base: bool,
}

impl Neutral {
    fn of_crate((bytes, tells_base): (Vec<u8>, bool)) -> Neutral {
        Neutral { bytes, tells_base }
    }

    fn silent(bytes: Vec<u8>) -> Neutral {
        Neutral::of_crate((bytes, false))
    }
}

/// What a command printed, in the form for the store. `None` if that is not possible.
pub(super) fn neutral_print(text: &[u8], knows: &Known) -> Option<Neutral> {
    match knows.bases.is_empty() {
        _ if knows.is_crate => crates::messages(text, &knows.bases).map(Neutral::of_crate),
        _ if knows.is_link() => Some(Neutral {
            bytes: text.to_vec(),
            tells_base: knows.bases.iter().any(|base| neutral::holds(text, base)),
        }),
        false => neutral::diagnostics(text, &knows.bases).map(Neutral::silent),
        true => Some(Neutral::silent(text.to_vec())),
    }
}

/// Whether a failure may be stored, in doubt if it is not a compiler's.
fn may_keep_failure(ticket: &Ticket, ended: &Ended) -> bool {
    // A negative number is a signal. One above is not the status of a process.
    let is_status = (1..=i32::from(u8::MAX)).contains(&ended.code);
    is_status
        && !ticket.is_attempt()
        && match ticket.action.knows.compiler {
            Some(_) => is_of_sources(ended.code, &[&ended.stdout[..], &ended.stderr].concat()),
            None => can_be_repeated(&ticket.question),
        }
}

fn failed_plainly(is_compiler: bool) -> UnstoredReason {
    match is_compiler {
        true => UnstoredReason::CompilerFailed,
        false => UnstoredReason::CommandFailed,
    }
}

/// The path to which an access has written.
fn written_path(access: &Access) -> Option<&Bytes> {
    match &access.what {
        What::Open { path, mode } if mode.writes && access.error == 0 => Some(path),
        What::Rename { to, .. } if access.error == 0 => Some(to),
        _ => None,
    }
}

/// A restored file belongs to the user and has the permissions of a new file. An output with others is not stored.
fn require_usual_rights(kind: Kind, path: &[u8], umask: u32) -> Result<(), Unkept> {
    let failed = |error: rustix::io::Errno| failed("look at what it made", &error.into());
    let status = rustix::fs::lstat(path).map_err(failed)?;
    let mode = status.st_mode & 0o7777;
    let is_ours = status.st_uid == rustix::process::geteuid().as_raw();
    let usual: &[u32] = match kind {
        Kind::File | Kind::Program => &[0o666, 0o777],
        Kind::Folder => &[0o777],
        // A link has no rights of its own.
        Kind::Link | Kind::Other => return Ok(()),
    };
    if is_ours && usual.iter().any(|all| all & !umask == mode) {
        return Ok(());
    }
    let words = format!("{} has rights of its own", String::from_utf8_lossy(path));
    Err(Unkept::new(UnstoredReason::UnusualRights, words))
}

/// A dependency file in the form for the store. `None` if its layout is not understood.
pub(super) fn neutral_dependencies(text: Bytes, knows: &Known) -> Option<Neutral> {
    if knows.is_crate {
        return crates::dependencies(&text, &knows.bases).map(Neutral::of_crate);
    }
    let text = match &knows.target {
        Some(target) => neutral::without_target(&text, knows.compiler?, target)?,
        None => text,
    };
    match knows.bases.is_empty() {
        false => neutral::dependencies(&text, knows.compiler?, &knows.bases).map(Neutral::silent),
        true => Some(Neutral::silent(text)),
    }
}

fn failed(what: &str, error: &io::Error) -> Unkept {
    Unkept::new(UnstoredReason::StoreFailed, format!("{what}: {error}"))
}

pub(super) fn read(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}
