//! Keeps what came of a command: what it did becomes facts, what it made becomes blobs, and both an entry.
//!
//! Outputs are read before the client hears that the command is over: afterwards they are anyone's.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path as FilePath;

use super::access::{Access, Bytes, What};
use super::action::{Knowledge as Known, FOR_DIAGNOSTICS};
use super::answer::{Ticket, TERMINAL};
use super::digest::Digest;
use super::entry::{Content, Entry, Output, Print};
use super::fact::{Fact, Kind};
use super::inputs::Inputs;
use super::neutral;
use super::outputs::Role;
use super::path::Place;
use super::status::Stamp;
use super::story::{understand, Knowledge, Made};
use super::world::View;
use super::Cache;

/// More is a blob of its own.
const INLINE: usize = 4 << 10;

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
    /// The library that has noted them.
    pub observer: Bytes,
}

/// Why nothing was stored.
pub struct Unkept {
    /// Under which it is counted.
    pub name: &'static str,
    pub words: String,
}

impl Unkept {
    fn new(name: &'static str, words: impl Into<String>) -> Unkept {
        let words = words.into();
        Unkept { name, words }
    }

    fn failed(what: &str, error: &io::Error) -> Unkept {
        Unkept::new("the store failed", format!("{what}: {error}"))
    }
}

impl Cache {
    /// Stores what came of a command, or says why not.
    pub fn keep(&self, ticket: Ticket, ended: &Ended) -> Result<Option<Inputs>, Unkept> {
        let kept = self.store_entry(&ticket, ended).map(|(entry, inputs)| {
            self.compare(&ticket, &entry);
            inputs
        });
        if let Err(unkept) = &kept {
            self.count(format!("not stored/{}", unkept.name));
        }
        let unstored = kept.as_ref().err().map(|unkept| unkept.words.as_str());
        self.note_miss(&ticket, unstored);
        if ticket.action.knows.compiler.is_none() {
            let all = ended.accesses.iter().filter_map(written);
            all.for_each(|path| self.note_miss_of(&ticket, path, unstored));
        }
        kept
    }

    fn store_entry(&self, ticket: &Ticket, ended: &Ended) -> Result<(Entry, Option<Inputs>), Unkept> {
        if ended.code != 0 {
            let is_compiler = ticket.action.knows.compiler.is_some();
            let name = if is_compiler {
                "the compiler failed"
            } else {
                "the command failed"
            };
            return Err(Unkept::new(name, "it failed"));
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
        let found = understand(&ended.accesses, &knowledge, &mut view);
        let mut found = found.map_err(|obstacle| Unkept::new(obstacle.name(), obstacle.to_string()))?;
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
        let made = found.outputs.iter().map(|made| self.store_output(made, knows, &place));
        let mut outputs = made.collect::<Result<Vec<_>, _>>()?;
        outputs.sort_by_key(|output| output.number);
        let lacks = |number| outputs.iter().all(|output| output.number != Some(number));
        let mut foretold = knows.outputs.iter().enumerate();
        if let Some((_, output)) = foretold.find(|(number, output)| output.certain && lacks(*number)) {
            let words = format!("it has not made {}", String::from_utf8_lossy(&output.path));
            return Err(Unkept::new("lacks a file that was foretold", words));
        }
        let entry = Entry {
            facts: found.facts,
            outputs,
            stdout: self.store_print(&ended.stdout, knows)?,
            stderr: self.store_print(&ended.stderr, knows)?,
            exit: 0,
            wall: ended.wall,
            processor: ended.processor,
        };
        let stored = self.store.put_entry(&ticket.key, &entry.encode(), &entry.blobs());
        stored.map_err(|error| Unkept::failed("store an entry", &error))?;
        let inputs = question.inputs.then(|| Inputs::of(&entry, &mut view));
        Ok((entry, inputs.flatten()))
    }

    /// Holds what an audited command has made against what would have been given for it.
    fn compare(&self, ticket: &Ticket, fresh: &Entry) {
        let Some(audited) = &ticket.audited else { return };
        self.count("audited");
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

    fn store_output(&self, made: &Made, knows: &Known, place: &Place) -> Result<Output, Unkept> {
        let path = place.absolute(&made.path);
        let number = knows
            .outputs
            .iter()
            .position(|output| place.absolute(&place.path(&super::path::Path::here(), &output.path)) == path);
        if !made.kind.is_plain() {
            return Err(Unkept::new(
                "makes what is no plain file",
                "an output is not a plain file",
            ));
        }
        let role = number.map(|number| knows.outputs[number].role);
        let file = FilePath::new(OsStr::from_bytes(&path));
        let stored = self.store_file(file, role, knows);
        let (digest, size) = stored.map_err(|error| Unkept::failed(&format!("read {}", file.display()), &error))??;
        let is_program = made.kind == Kind::Program;
        let content = Content::File {
            digest,
            size,
            is_program,
        };
        let path = made.path.clone();
        Ok(Output { path, number, content })
    }

    fn store_file(
        &self,
        path: &FilePath,
        role: Option<Role>,
        knows: &Known,
    ) -> io::Result<Result<(Digest, u64), Unkept>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let size = file.metadata()?.len();
        if role == Some(Role::Dependencies) {
            let Some(neutral) = neutral_dependencies(read(&file)?, knows) else {
                let words = format!("{} is not laid out as expected", path.display());
                return Ok(Err(Unkept::new("tells names of its own", words)));
            };
            return Ok(Ok((self.store.put_blob(&neutral)?, size)));
        }
        let Some(base) = &knows.base else {
            return Ok(Ok((self.store.put_file(&file)?, size)));
        };
        let bytes = read(&file)?;
        if neutral::holds(&bytes, base) {
            let words = format!("{} holds the name of the base folder", path.display());
            return Ok(Err(Unkept::new("tells the base folder", words)));
        }
        Ok(Ok((self.store.put_blob(&bytes)?, size)))
    }

    fn store_print(&self, bytes: &[u8], knows: &Known) -> Result<Print, Unkept> {
        let neutral = match &knows.base {
            Some(base) => neutral::diagnostics(bytes, base).ok_or_else(tells_base)?,
            None => bytes.to_vec(),
        };
        if neutral.len() <= INLINE {
            return Ok(Print::Inline(neutral));
        }
        let digest = self.store.put_blob(&neutral);
        let digest = digest.map_err(|error| Unkept::failed("store what it printed", &error))?;
        let size = neutral.len() as u64;
        Ok(Print::Blob { digest, size })
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
    let failed = |error: rustix::io::Errno| Unkept::failed("look at what it made", &error.into());
    let status = rustix::fs::lstat(path).map_err(failed)?;
    let mode = status.st_mode & 0o7777;
    let is_ours = status.st_uid == rustix::process::geteuid().as_raw();
    if !kind.is_plain() || is_ours && [0o666, 0o777].iter().any(|all| all & !umask == mode) {
        return Ok(());
    }
    let words = format!("{} has rights of its own", String::from_utf8_lossy(path));
    Err(Unkept::new("makes files of unusual rights", words))
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

fn tells_base() -> Unkept {
    let words = "a text of it holds the name of the base folder where it may not be a path";
    Unkept::new("tells the base folder", words)
}

pub(super) fn read(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}
