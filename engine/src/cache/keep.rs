//! Keeps what came of a command: what it did becomes facts, what it made becomes blobs, and both an entry.
//!
//! In two steps. All that is anyone's afterwards is looked at before the client hears that the command is over: what it has read, and
//! what it has made. What that becomes is stored then, while the client goes on.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path as FilePath;

use log::trace;

use super::answer::Ticket;
use super::compiler::action::{Knowledge as Known, FOR_DIAGNOSTICS};
use super::compiler::neutral;
use super::compiler::outputs::Role;
use super::lookup::entry::{Content, Entry, Output, Print};
use super::lookup::inputs::Inputs;
use super::store::{EntryRef, Parcel};
use super::story::{understand, Knowledge, Made};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::driver_model::DriverPrediction;
use crate::facts::environment::TERMINAL;
use crate::facts::fact::{Fact, Kind};
use crate::facts::path::{Path, Place};
use crate::facts::status::Stamp;
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes, What};
use crate::wire::{Unkept, UnstoredReason};

/// More is a blob of its own.
const INLINE: usize = 4 << 10;
/// Larger outputs are not held in memory until they are stored.
const SMALL: u64 = 1 << 20;

/// A command that was run for a ticket.
pub struct Ended {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Microseconds.
    pub wall: u64,
    pub processor: u64,
    /// From before it was started.
    pub started: Stamp,
    pub accesses: Vec<Access>,
    /// What of that its driver would have done, which did not run.
    pub driver: Option<DriverPrediction>,
    /// The library that has noted them.
    pub observer: Bytes,
}

/// What is known of a command that is over, and still to be stored.
pub struct Unstored {
    ticket: Ticket,
    gathered: Gathered,
    wall: u64,
    processor: u64,
    /// Paths that only what the command did has told.
    untold: Vec<Bytes>,
}

/// What was looked at when it was over.
struct Gathered {
    facts: Vec<Fact>,
    outputs: Vec<Taken>,
    /// Texts as they are stored.
    prints: [Vec<u8>; 2],
    inputs: Option<Vec<Bytes>>,
}

/// An output as it was when the command was over.
struct Taken {
    path: Path,
    number: Option<usize>,
    material: Material,
    size: u64,
    is_program: bool,
}

enum Material {
    Bytes(Vec<u8>),
    /// What is large is copied at once.
    Stored(Digest),
}

impl Unstored {
    /// Whoever waits for the command is to be told what it depended on and made.
    pub fn is_awaited(&self) -> bool {
        self.ticket.question.inputs
    }
}

impl Cache {
    /// Takes what came of a command, or says why nothing is stored.
    pub fn take(&self, ticket: Ticket, ended: &Ended) -> Result<Unstored, Unkept> {
        let untold: Vec<_> = match ticket.action.knows.compiler {
            None => ended.accesses.iter().filter_map(written).cloned().collect(),
            Some(_) => Vec::new(),
        };
        match self.look_at(&ticket, ended) {
            Ok(gathered) => Ok(Unstored {
                ticket,
                gathered,
                wall: ended.wall,
                processor: ended.processor,
                untold,
            }),
            Err(unkept) => {
                self.note_unkept(&ticket, &untold, Some(&unkept));
                Err(unkept)
            }
        }
    }

    /// Stores what was taken, or says why not.
    pub fn store(&self, mut unstored: Unstored) -> Result<Option<Inputs>, Unkept> {
        let inputs = unstored.gathered.inputs.take();
        let facts = std::mem::take(&mut unstored.gathered.facts);
        let (ticket, untold) = (&unstored.ticket, &unstored.untold);
        let entry = self.store_entry(&unstored, facts);
        self.note_unkept(ticket, untold, entry.as_ref().err());
        let entry = entry?;
        self.compare(ticket, &entry);
        Ok(inputs.map(|texts| Inputs::with_result(texts, &entry)))
    }

    /// Nothing came of the command that could be looked at.
    pub fn leave(&self, ticket: &Ticket, unkept: &Unkept) {
        self.note_unkept(ticket, &[], Some(unkept));
    }

    fn note_unkept(&self, ticket: &Ticket, untold: &[Bytes], unkept: Option<&Unkept>) {
        if let Some(unkept) = unkept {
            self.count(&Counter::Unstored(unkept.why));
        }
        self.note_miss(ticket, unkept);
        untold.iter().for_each(|path| self.note_miss_of(ticket, path, unkept));
    }

    fn look_at(&self, ticket: &Ticket, ended: &Ended) -> Result<Gathered, Unkept> {
        if ended.code != 0 {
            let is_compiler = ticket.action.knows.compiler.is_some();
            let why = match is_compiler {
                true => UnstoredReason::CompilerFailed,
                false => UnstoredReason::CommandFailed,
            };
            return Err(why.into());
        }
        let (question, knows) = (&ticket.question, &ticket.action.knows);
        let place = Place::new(&question.folder, knows.base.as_deref());
        let environment = question.variables();
        let mut view = View::new(&self.world, &place, &environment);
        let names: Vec<_> = knows.outputs.iter().map(|output| output.path.clone()).collect();
        let knowledge = Knowledge {
            policy: knows.policy(),
            outputs: knows.compiler.is_some().then_some(&names[..]),
            modules: knows.modules.as_deref(),
            // Whoever printed nothing does not depend on how it would have looked.
            unseen: match ended.stdout.is_empty() && ended.stderr.is_empty() {
                true => &FOR_DIAGNOSTICS,
                false => &[],
            },
            observer: &ended.observer,
            started: ended.started,
        };
        if ended.driver.as_ref().is_some_and(|driver| !driver.holds(&mut view)) {
            return Err(UnstoredReason::DriverDiffers.into());
        }
        let found = understand(&ended.accesses, &knowledge, &mut view);
        let mut found = found.map_err(|obstacle| Unkept::new(obstacle.kind(), obstacle.to_string()))?;
        if !ended.stdout.is_empty() || !ended.stderr.is_empty() {
            found.facts.push(Fact::Variable {
                name: TERMINAL.to_vec(),
                value: environment.value(TERMINAL).map(<[u8]>::to_vec),
            });
        }
        if knows.compiler.is_none() {
            let mut all = found.outputs.iter();
            all.try_for_each(|made| require_usual(made.kind, &place.absolute(&made.path), question.umask))?;
        }
        let made = found.outputs.iter().map(|made| self.take_output(made, knows, &place));
        let mut outputs = made.collect::<Result<Vec<_>, _>>()?;
        outputs.sort_by_key(|output| output.number);
        let lacks = |number| outputs.iter().all(|output| output.number != Some(number));
        let mut foretold = knows.outputs.iter().enumerate();
        if let Some((_, output)) = foretold.find(|(number, output)| output.certain && lacks(*number)) {
            let words = format!("it has not made {}", String::from_utf8_lossy(&output.path));
            return Err(Unkept::new(UnstoredReason::LacksForetold, words));
        }
        let is_compiler = knows.compiler.is_some();
        let inputs = question
            .inputs
            .then(|| Inputs::texts(&found.facts, is_compiler, &mut view));
        Ok(Gathered {
            inputs: inputs.flatten(),
            facts: found.facts,
            outputs,
            prints: [
                neutral_print(&ended.stdout, knows)?,
                neutral_print(&ended.stderr, knows)?,
            ],
        })
    }

    fn store_entry(&self, unstored: &Unstored, facts: Vec<Fact>) -> Result<Entry, Unkept> {
        // What is small is written at once, with the entry.
        let mut parcels = Vec::new();
        let outputs = unstored.gathered.outputs.iter();
        let outputs = outputs.map(|taken| output(taken, &mut parcels)).collect();
        let [stdout, stderr] = &unstored.gathered.prints;
        let entry = Entry {
            facts,
            outputs,
            stdout: print(stdout, &mut parcels),
            stderr: print(stderr, &mut parcels),
            exit: 0,
            wall: unstored.wall,
            processor: unstored.processor,
        };
        let (key, bytes) = (&unstored.ticket.key, entry.encode());
        let stored = self.store.put_entry_with(key, &bytes, &entry.blobs(), parcels);
        let stored = stored.map_err(|error| failed("store an entry", &error))?;
        if unstored.ticket.question.wishes.recache {
            self.replace_others(&unstored.ticket, &stored);
        }
        entry.facts.iter().for_each(|fact| trace!("it depends on {fact:?}"));
        trace!("an entry is stored under {key}");
        match self.signer() {
            Ok(None) => self.offer(key, bytes, &entry, usize::MAX),
            Ok(Some(signer)) if self.tiers().is_some() => self.offer(key, signer.seal(key, &bytes), &entry, usize::MAX),
            Ok(Some(_)) => {}
            Err(_) if self.tiers().is_some() => self.count(&Counter::UploadUnsigned),
            Err(_) => {}
        }
        Ok(entry)
    }

    /// An entry that was cached anew takes the place of those that would have been hits. What was stored for other headers stays.
    fn replace_others(&self, ticket: &Ticket, new: &EntryRef) {
        let question = &ticket.question;
        let place = Place::new(&question.folder, ticket.action.knows.base.as_deref());
        let environment = question.variables();
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

    /// Holds what an audited command has made against what would have been given for it.
    fn compare(&self, ticket: &Ticket, fresh: &Entry) {
        let Some(audited) = &ticket.audited else { return };
        self.count(&Counter::Audited);
        let old = &audited.entry;
        let told = |entry: &Entry| {
            // The same output may be called otherwise by now.
            let outputs = entry
                .outputs
                .iter()
                .map(|output| (output.number, output.content.clone()));
            let outputs: Vec<_> = outputs.collect();
            (outputs, entry.stdout.clone(), entry.stderr.clone())
        };
        if told(old) != told(fresh) {
            self.differs(&ticket.question, &audited.known, "files or messages");
        }
    }

    fn take_output(&self, made: &Made, knows: &Known, place: &Place) -> Result<Taken, Unkept> {
        let path = place.absolute(&made.path);
        let number = knows
            .outputs
            .iter()
            .position(|output| place.absolute(&place.path(&Path::here(), &output.path)) == path);
        if !made.kind.is_plain() {
            return Err(UnstoredReason::NoPlainFile.into());
        }
        let role = number.map(|number| knows.outputs[number].role);
        let file = FilePath::new(OsStr::from_bytes(&path));
        let taken = self.take_file(file, role, knows);
        let (material, size) = taken.map_err(|error| failed(&format!("read {}", file.display()), &error))??;
        Ok(Taken {
            path: made.path.clone(),
            number,
            material,
            size,
            is_program: made.kind == Kind::Program,
        })
    }

    fn take_file(
        &self,
        path: &FilePath,
        role: Option<Role>,
        knows: &Known,
    ) -> io::Result<Result<(Material, u64), Unkept>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let size = file.metadata()?.len();
        if role == Some(Role::Dependencies) {
            let Some(neutral) = neutral_dependencies(read(&file)?, knows) else {
                let words = format!("{} is not laid out as expected", path.display());
                return Ok(Err(Unkept::new(UnstoredReason::OwnNames, words)));
            };
            return Ok(Ok((Material::Bytes(neutral), size)));
        }
        if knows.base.is_none() && size > SMALL {
            return Ok(Ok((Material::Stored(self.store.put_file(&file)?), size)));
        }
        let bytes = read(&file)?;
        if knows.base.as_ref().is_some_and(|base| neutral::holds(&bytes, base)) {
            let words = format!("{} holds the name of the base folder", path.display());
            return Ok(Err(Unkept::new(UnstoredReason::TellsBase, words)));
        }
        let size = bytes.len() as u64;
        Ok(Ok((Material::Bytes(bytes), size)))
    }
}

fn output<'a>(taken: &'a Taken, parcels: &mut Vec<Parcel<'a>>) -> Output {
    let digest = match &taken.material {
        Material::Stored(digest) => *digest,
        Material::Bytes(bytes) => add(bytes, parcels),
    };
    Output {
        path: taken.path.clone(),
        number: taken.number,
        content: Content::File {
            digest,
            size: taken.size,
            is_program: taken.is_program,
        },
    }
}

fn print<'a>(text: &'a [u8], parcels: &mut Vec<Parcel<'a>>) -> Print {
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

fn neutral_print(text: &[u8], knows: &Known) -> Result<Vec<u8>, Unkept> {
    match &knows.base {
        Some(base) => neutral::diagnostics(text, base).ok_or_else(|| UnstoredReason::TellsBase.into()),
        None => Ok(text.to_vec()),
    }
}

/// The path of what it has written, where that is told.
fn written(access: &Access) -> Option<&Bytes> {
    match &access.what {
        What::Open { path, mode } if mode.writes && access.error == 0 => Some(path),
        What::Rename { to, .. } if access.error == 0 => Some(to),
        _ => None,
    }
}

/// A file that is restored belongs to its user, has the rights that new ones have, and no attributes.
fn require_usual(kind: Kind, path: &[u8], umask: u32) -> Result<(), Unkept> {
    let failed = |error: rustix::io::Errno| failed("look at what it made", &error.into());
    let status = rustix::fs::lstat(path).map_err(failed)?;
    let mode = status.st_mode & 0o7777;
    let is_ours = status.st_uid == rustix::process::geteuid().as_raw();
    if !kind.is_plain() || is_ours && [0o666, 0o777].iter().any(|all| all & !umask == mode) {
        return Ok(());
    }
    let words = format!("{} has rights of its own", String::from_utf8_lossy(path));
    Err(Unkept::new(UnstoredReason::UnusualRights, words))
}

pub(super) fn neutral_dependencies(text: Bytes, knows: &Known) -> Option<Bytes> {
    let text = match &knows.target {
        Some(target) => neutral::without_target(&text, knows.compiler?, target)?,
        None => text,
    };
    match &knows.base {
        Some(base) => neutral::dependencies(&text, knows.compiler?, base),
        None => Some(text),
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
