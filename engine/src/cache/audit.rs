//! Audits: a configured share of the hits is compiled again, in another folder and when the machine is idle, and the
//! result is compared with the one that the cache gave.
//!
//! Nothing here knows of processes. The caller passes a function that runs a command line.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::answer::{Audited, Question};
use super::compiler::action::{Action, Knowledge as Known};
use super::compiler::elsewhere::{redirect, Names};
use super::compiler::outputs::Role;
use super::compiler::response;
use super::keep::{neutral_dependencies, neutral_print};
use super::lookup::claim::Claim;
use super::lookup::entry::{Content, Entry, Print};
use super::store::{self, EntryRef};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::file_view::FileView;
use crate::facts::world::View;
use crate::observe::access::Bytes;
use crate::wire::Strings;

/// Shares of hits are counted in millionths.
const WHOLE: u64 = 1_000_000;
/// The folder for the outputs of commands that are run again, in the store's folder.
const FOLDER: &str = "audit";
/// The files in it that receive what such a command prints.
pub const PRINTS: [&str; 2] = ["stdout", "stderr"];

#[derive(Default)]
pub struct Audit {
    share: AtomicU64,
    /// Grows by the share with each hit. Each time that it passes a multiple of `WHOLE`, an audit is due.
    sum: AtomicU64,
    /// How many hits wait to be compiled again, with the one that is being compiled.
    waiting: AtomicUsize,
}

impl Audit {
    pub fn set(&self, percent: f64) {
        let share = (percent.clamp(0.0, 100.0) / 100.0 * WHOLE as f64) as u64;
        self.share.store(share, Ordering::Relaxed);
    }

    pub fn percent(&self) -> f64 {
        self.share.load(Ordering::Relaxed) as f64 * 100.0 / WHOLE as f64
    }

    pub fn is_due(&self) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        let before = self.sum.fetch_add(share, Ordering::Relaxed);
        before / WHOLE != before.wrapping_add(share) / WHOLE
    }

    pub fn set_waiting(&self, count: usize) {
        self.waiting.store(count, Ordering::Relaxed);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A hit that is to be compiled again.
pub struct Due {
    pub question: Question,
    known: EntryRef,
    key: Digest,
}

impl Due {
    /// About how much memory it takes. Its connection may share the environment.
    pub fn size(&self) -> usize {
        self.question.argv.bytes().len() + self.question.environment.bytes().len() + self.question.folder.len()
    }
}

/// How the run of an audited command ended.
pub enum Ran {
    /// With this status.
    Ended(i32),
    /// It was stopped, because the machine is needed, or because the engine ends.
    Interrupted,
    /// It was not started, or not finished.
    Not(Unaudited),
}

/// Why a hit was not compared with a compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unaudited {
    TooManyWaiting,
    EngineStopped,
    Interrupted,
    EntryGone,
    InputsChanged,
    /// Two compiles have made different results.
    Unsteady,
    NoRoom,
    NotStarted,
    TookTooLong,
    Signal,
    Unreadable,
}

impl Unaudited {
    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Unaudited::TooManyWaiting => "too many were waiting",
            Unaudited::EngineStopped => "the engine was stopped",
            Unaudited::Interrupted => "it was interrupted",
            Unaudited::EntryGone => "its entry is gone",
            Unaudited::InputsChanged => "its inputs have changed",
            Unaudited::Unsteady => "its results differ from run to run",
            Unaudited::NoRoom => "there is no room for its results",
            Unaudited::NotStarted => "it could not be started",
            Unaudited::TookTooLong => "it took too long",
            Unaudited::Signal => "a signal has ended it",
            Unaudited::Unreadable => "its results cannot be read",
        }
    }
}

/// The result of an audit.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Same,
    /// The parts that differ, in words.
    Different(String),
    /// The two could not be compared.
    Unknown(Unaudited),
    /// It can be done another time.
    Interrupted,
}

/// The result of a command, in the form in which two are compared.
#[derive(Debug, PartialEq, Eq)]
struct Results {
    code: i32,
    /// For each output its number, its digest (`None` if it cannot be compared), and whether it is executable.
    outputs: Vec<(usize, Option<Digest>, bool)>,
    prints: [Option<Digest>; 2],
}

impl Cache {
    /// The data for compiling a hit again later. `None` if its outputs cannot be written to another folder.
    pub(super) fn due(&self, question: &Question, action: &Action, hit: &Audited) -> Option<Box<Due>> {
        let prints = [&hit.entry.stdout, &hit.entry.stderr];
        let is_silent = prints.into_iter().all(|print| *print == Print::default());
        let is_whole = hit.entry.outputs.iter().all(|output| output.number.is_some());
        if !is_whole || (question.wishes.terminal.is_some() && !is_silent) {
            return None;
        }
        self.redirected(question, action.key)?;
        let question = Question {
            who: question.who,
            argv: question.argv.clone(),
            is_mapped: question.is_mapped,
            environment: question.environment.clone(),
            folder: question.folder.clone(),
            umask: question.umask,
            outputs: question.outputs.clone(),
            arrived: question.arrived,
            by_facts: question.by_facts,
            compiles_by_facts: false,
            input: question.input,
            circumstances: question.circumstances.clone(),
            wishes: question.wishes.clone(),
            inputs: false,
            only_known: false,
            searched: None,
            claim: Claim::default(),
        };
        let (known, key) = (hit.known, action.key);
        Some(Box::new(Due { question, known, key }))
    }

    /// Removes the outputs of an audit, possibly of an engine that was killed.
    pub(super) fn remove_audit_folder(&self) {
        let _ = fs::remove_dir_all(self.audit_folder());
    }

    fn audit_folder(&self) -> PathBuf {
        self.folder.join(store::FOLDER).join(FOLDER)
    }

    /// The command line that writes its outputs to the audit folder, and what is known of it. `None` also if it has another
    /// key: then its outputs contain their own names, and would differ.
    fn redirected(&self, question: &Question, key: Digest) -> Option<(Strings, Known)> {
        let mut file_view = FileView::begin();
        let knows = self.understand(question, &mut file_view).ok()?.knows;
        let allowed = |role| matches!(role, Role::Main | Role::Dependencies);
        if knows.modules.is_some() || !knows.outputs.iter().all(|output| allowed(output.role)) {
            return None;
        }
        let path = |role| {
            let mut outputs = knows.outputs.iter();
            let output = outputs.find(|output| output.role == role)?;
            let name = FilePath::new(OsStr::from_bytes(&output.path)).file_name()?;
            let folder = self
                .audit_folder()
                .join(if role == Role::Main { "main" } else { "dependencies" });
            Some(folder.join(name).as_os_str().as_bytes().to_vec())
        };
        let to = Names {
            main: path(Role::Main)?,
            dependencies: path(Role::Dependencies),
        };
        let folder = PathBuf::from(OsStr::from_bytes(&question.folder));
        let read = |name: &[u8]| fs::read(folder.join(OsStr::from_bytes(name))).ok();
        let words = response::expand(question.argv.iter().skip(1), &read).ok()?.words;
        let words = redirect(knows.compiler?, &words, &to)?;
        let argv = question.argv.iter().take(1).chain(words.iter().map(Bytes::as_slice));
        let argv: Strings = argv.collect();
        let action = self.understand_as(question, &argv, &mut file_view).ok()?;
        (action.key == key).then_some((argv, action.knows))
    }

    /// Compiles a hit again and compares. `run` gets the command line, and the folder for the files named in `PRINTS`.
    pub fn audit(&self, due: &Due, run: &mut dyn FnMut(&Strings, &FilePath) -> Ran) -> Verdict {
        let verdict = self.compare_with_rerun(due, run).unwrap_or_else(|verdict| verdict);
        self.remove_audit_folder();
        match &verdict {
            Verdict::Same => self.count(&Counter::Audited),
            Verdict::Different(what) => {
                self.count(&Counter::Audited);
                self.report_difference(&due.question, &due.known, what);
            }
            Verdict::Unknown(why) => self.count(&Counter::Unaudited(*why)),
            Verdict::Interrupted => {}
        }
        verdict
    }

    /// The cache has given a wrong result: reports this, and removes the entry.
    pub(super) fn report_difference(&self, question: &Question, known: &EntryRef, what: &str) {
        let argv: Vec<_> = question.argv.iter().map(String::from_utf8_lossy).collect();
        let command = argv.join(" ");
        log::error!("the cache has another result ({what}) than a compile for: {command}");
        self.count(&Counter::Different);
        self.journal.note_difference(&format!("{what}: {command}"));
        self.store.remove_entry(known);
    }

    fn compare_with_rerun(
        &self,
        due: &Due,
        run: &mut dyn FnMut(&Strings, &FilePath) -> Ran,
    ) -> Result<Verdict, Verdict> {
        let gone = Verdict::Unknown(Unaudited::EntryGone);
        let entry = self.read(&due.known).ok_or(gone)?.entry;
        self.require_facts(due, &entry)?;
        let known = Results::of_entry(&entry);
        let first = self.run_again(due, run)?;
        self.require_facts(due, &entry)?;
        if first == known {
            return Ok(Verdict::Same);
        }
        // Some compilers write random numbers into their outputs. That is no fault of the cache.
        let second = self.run_again(due, run)?;
        self.require_facts(due, &entry)?;
        match second == first {
            true => Ok(Verdict::Different(first.difference_from(&known))),
            false => Ok(Verdict::Unknown(Unaudited::Unsteady)),
        }
    }

    /// The comparison is valid only while the inputs are those of the entry.
    fn require_facts(&self, due: &Due, entry: &Entry) -> Result<(), Verdict> {
        let question = &due.question;
        let action = self.understand(question, &mut FileView::begin());
        let action = action.map_err(|_| Verdict::Unknown(Unaudited::InputsChanged))?;
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let mut view = View::new(&self.world, &place, &environment);
        let holds = action.key == due.key && entry.check(&mut view).is_ok();
        holds.then_some(()).ok_or(Verdict::Unknown(Unaudited::InputsChanged))
    }

    fn run_again(&self, due: &Due, run: &mut dyn FnMut(&Strings, &FilePath) -> Ran) -> Result<Results, Verdict> {
        let redirected = self.redirected(&due.question, due.key);
        let (argv, knows) = redirected.ok_or(Verdict::Unknown(Unaudited::InputsChanged))?;
        let folder = self.audit_folder();
        make_empty_folders(&folder).map_err(|error| {
            log::warn!("make {}: {error}", folder.display());
            Verdict::Unknown(Unaudited::NoRoom)
        })?;
        let code = match run(&argv, &folder) {
            Ran::Ended(code) if code >= 0 => code,
            Ran::Ended(_) => return Err(Verdict::Unknown(Unaudited::Signal)),
            Ran::Interrupted => return Err(Verdict::Interrupted),
            Ran::Not(why) => return Err(Verdict::Unknown(why)),
        };
        if code != 0 && !has_room(&folder) {
            return Err(Verdict::Unknown(Unaudited::NoRoom));
        }
        let results = Results::of_folder(&knows, code, &folder);
        results.map_err(|_| Verdict::Unknown(Unaudited::Unreadable))
    }
}

impl Results {
    fn of_entry(entry: &Entry) -> Results {
        let outputs = entry.outputs.iter().filter_map(|output| {
            let Content::File { digest, is_program, .. } = &output.content else {
                return None;
            };
            Some((output.number?, Some(*digest), *is_program))
        });
        let print = |print: &Print| match print {
            Print::Inline(bytes) => Some(Digest::of(bytes)),
            Print::Blob { digest, .. } => Some(*digest),
        };
        Results {
            code: entry.exit.into(),
            outputs: outputs.collect(),
            prints: [print(&entry.stdout), print(&entry.stderr)],
        }
    }

    /// The outputs in the audit folder, in the form in which they would be stored.
    fn of_folder(knows: &Known, code: i32, folder: &FilePath) -> io::Result<Results> {
        let mut outputs = Vec::new();
        for (number, output) in knows.outputs.iter().enumerate() {
            let file = match File::open(OsStr::from_bytes(&output.path)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let is_program = file.metadata()?.permissions().mode() & 0o111 != 0;
            let digest = match output.role {
                Role::Dependencies => {
                    let text = super::keep::read(&file)?;
                    neutral_dependencies(text, knows).map(|text| Digest::of(&text))
                }
                _ => Some(Digest::of_file(&file)?),
            };
            outputs.push((number, digest, is_program));
        }
        let print = |name: &str| -> io::Result<Option<Digest>> {
            let neutral = neutral_print(&fs::read(folder.join(name))?, knows);
            Ok(neutral.map(|bytes| Digest::of(&bytes)))
        };
        let prints = [print(PRINTS[0])?, print(PRINTS[1])?];
        // The outputs of a compile that failed do not count.
        let outputs = if code == 0 { outputs } else { Vec::new() };
        Ok(Results { code, outputs, prints })
    }

    fn difference_from(&self, known: &Results) -> String {
        let mut what = Vec::new();
        if self.code != known.code {
            what.push("exit status");
        } else if self.outputs != known.outputs {
            what.push("files");
        }
        let prints = PRINTS.into_iter().zip(self.prints.iter().zip(&known.prints));
        what.extend(prints.filter(|(_, (one, other))| one != other).map(|(name, _)| name));
        what.join(", ")
    }
}

fn make_empty_folders(folder: &FilePath) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    ["main", "dependencies"]
        .into_iter()
        .try_for_each(|name| fs::create_dir_all(folder.join(name)))
}

/// Whether something can still be written to the disks of the audit folder and of temporary files. A compile that fails
/// because of a full disk says nothing about the cache.
fn has_room(folder: &FilePath) -> bool {
    const PROBE: usize = 1 << 20;
    let fits = |folder: &FilePath| {
        let path = folder.join(format!("wafcc-probe-{}", std::process::id()));
        let written = fs::write(&path, vec![0; PROBE]);
        let _ = fs::remove_file(&path);
        written.is_ok()
    };
    fits(folder) && fits(&std::env::temp_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_due() {
        let audit = Audit::default();
        for (percent, wanted) in [(0.0, 0), (100.0, 1000), (2.5, 25), (300.0, 1000)] {
            audit.set(percent);
            let found = (0..1000).filter(|_| audit.is_due()).count();
            assert!(found.abs_diff(wanted) <= 1, "{percent}: {found}");
        }
    }
}
