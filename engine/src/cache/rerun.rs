//! Runs a command of the cache again, with its results in another folder, so that they can be compared with an entry. Or
//! runs commands that prepare others.
//!
//! Nothing here knows of processes. The caller passes a function that runs a command line.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use super::answer::Question;
use super::audit::SampleDue;
use super::by_text::Waiting;
use super::compiler::action::Knowledge as Known;
use super::compiler::elsewhere::{redirect, Names};
use super::compiler::outputs::Role;
use super::compiler::response;
use super::keep::{neutral_dependencies, neutral_print};
use super::lookup::claim::Claim;
use super::lookup::entry::{Content, Entry};
use super::prepare::Basis;
use super::rehearsal::Rehearsal;
use super::share::{Common, Proof};
use super::store::{self, EntryRef};
use super::tally::Counter;
use super::Cache;
use crate::bytes::digest::Digest;
use crate::facts::file_view::FileView;
use crate::facts::status::Stamp;
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes};
use crate::process::apart::Left;
use crate::wire::Strings;

/// The folders for the outputs of commands that are run again, in the store's folder: in idle time, or at once.
const FOLDERS: [&str; 2] = ["rerun", "rerun-at-once"];
/// In each of them. Two outputs may have the same name.
const PARTS: [&str; 2] = ["main", "dependencies"];
/// The files in it that receive what such a command prints.
pub const PRINTS: [&str; 2] = ["stdout", "stderr"];

/// A command that is to be run again when there is time.
pub struct Due {
    pub question: Question,
    pub(super) key: Digest,
    pub(super) purpose: Purpose,
}

/// What a command is run again for.
pub(super) enum Purpose {
    /// It was a hit: this entry is compared.
    Audit(EntryRef),
    /// A cluster has made something else of it: is that the cluster's fault?
    Sample(SampleDue),
    /// Its source is being edited: the next compile is to begin after the headers.
    Preamble(Basis),
    /// Many sources begin like its own: their compiles are to begin after the headers that they share.
    Shared(Common),
    /// It began after headers that are shared: this entry is proved.
    Proof(Proof),
    /// Its entry is to be found by what the preprocessor leaves, too.
    Text { _waiting: Waiting },
    /// It asked for the time: is the result another one at another time?
    Rehearsal(Rehearsal),
}

/// A command line that is run.
pub struct Call<'a> {
    pub argv: &'a Strings,
    /// For the files named in `PRINTS`.
    pub folder: &'a FilePath,
    pub is_observed: bool,
    /// It leaves nothing where its paths lead.
    pub apart: Option<&'a Apart<'a>>,
}

/// How a command is run apart.
pub struct Apart<'a> {
    /// Where it may change something. What it leaves there is told.
    pub folders: &'a [Bytes],
    /// What it does not find, though it is there.
    pub hidden: &'a [Bytes],
    /// Folders that it also finds under other names: each folder, and an empty one with the other name.
    pub renamed: &'a [Bytes],
    /// Variables that are other ones than in its first run.
    pub variables: &'a [Bytes],
    /// The most bytes that it may write.
    pub room: u64,
    /// By how many seconds its calendar is ahead.
    pub ahead: u32,
    pub limit: Duration,
}

/// What a command has done that was run apart.
pub(super) struct Second {
    pub code: i32,
    pub accesses: Vec<Access>,
    pub left: Vec<(Bytes, Left)>,
}

/// Runs a command line.
pub type Run<'a> = &'a mut dyn FnMut(&Call) -> Ran;

/// What a command did that was observed.
pub struct Observed {
    pub accesses: Vec<Access>,
    /// From before it was started.
    pub started: Stamp,
    /// The path of the library that has observed it.
    pub observer: Bytes,
}

impl Due {
    /// About how much memory it takes. Its connection may share the environment.
    pub fn size(&self) -> usize {
        let question = &self.question;
        let purpose = match &self.purpose {
            Purpose::Preamble(basis) => basis.size(),
            _ => 0,
        };
        question.argv.bytes().len() + question.environment.bytes().len() + question.folder.len() + purpose
    }

    pub fn is_audit(&self) -> bool {
        matches!(self.purpose, Purpose::Audit(_))
    }

    /// A command that it runs is observed.
    pub fn is_observed(&self) -> bool {
        matches!(
            self.purpose,
            Purpose::Shared(_) | Purpose::Text { .. } | Purpose::Rehearsal(_)
        )
    }

    /// It helps the build that runs now, or keeps it from harm.
    pub fn is_urgent(&self) -> bool {
        matches!(self.purpose, Purpose::Shared(_) | Purpose::Sample(_))
    }
}

/// How the run of a command ended.
pub enum Ran {
    Ended {
        code: i32,
        /// Microseconds of processor time.
        processor: u64,
        /// `None` if it was not to be observed, or could not be.
        observed: Option<Observed>,
        /// What it has left, if it was run apart.
        left: Vec<(Bytes, Left)>,
    },
    /// It was stopped, because the machine is needed, or because the engine ends.
    Interrupted,
    /// It was not started, or not finished.
    Not(NotCompared),
}

/// Why a result was not compared with that of another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCompared {
    TooManyWaiting,
    EngineStopped,
    Interrupted,
    EntryGone,
    InputsChanged,
    /// Two compiles have made different results.
    Unsteady,
    NoRoom,
    NotStarted,
    /// What it did could not be observed.
    Unseen,
    TookTooLong,
    Signal,
    Unreadable,
    /// The command has run here, and its result is not stored.
    NotStored,
}

impl NotCompared {
    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            NotCompared::TooManyWaiting => "too many were waiting",
            NotCompared::EngineStopped => "the engine was stopped",
            NotCompared::Interrupted => "it was interrupted",
            NotCompared::EntryGone => "its entry is gone",
            NotCompared::InputsChanged => "its inputs have changed",
            NotCompared::Unsteady => "its results differ from run to run",
            NotCompared::NoRoom => "there is no room for its results",
            NotCompared::NotStarted => "it could not be started",
            NotCompared::Unseen => "it could not be observed",
            NotCompared::TookTooLong => "it took too long",
            NotCompared::Signal => "a signal has ended it",
            NotCompared::Unreadable => "its results cannot be read",
            NotCompared::NotStored => "its result was not stored here",
        }
    }
}

/// The result of a command, in the form in which two are compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Results {
    code: i32,
    /// For each output its number, its digest (`None` if it cannot be compared), and whether it is executable.
    outputs: Vec<(usize, Option<Digest>, bool)>,
    prints: [Option<Digest>; 2],
}

/// A command line that writes to another folder, and what is known of it.
pub(super) struct Elsewhere {
    pub argv: Strings,
    pub knows: Known,
}

impl Cache {
    /// Does what is due.
    pub fn rerun(&self, due: &Due, run: Run) -> Result<(), NotCompared> {
        let mut spent = 0;
        let mut count = |call: &Call| {
            let ran = run(call);
            if let Ran::Ended { processor, .. } = ran {
                spent += processor;
            }
            ran
        };
        let done = match &due.purpose {
            Purpose::Audit(known) => {
                let done = self.audit(due, known, &mut count);
                self.remove_rerun_folder(due.is_urgent());
                return done;
            }
            Purpose::Sample(sample) => {
                let done = self.audit_sample(due, sample, &mut count);
                self.remove_rerun_folder(due.is_urgent());
                return done;
            }
            Purpose::Preamble(basis) => self.prepare(due, basis, &mut count),
            Purpose::Shared(common) => self.prepare_shared(due, common, &mut count),
            Purpose::Proof(proof) => {
                let done = self.prove(due, proof, &mut count);
                self.remove_rerun_folder(due.is_urgent());
                done
            }
            Purpose::Text { .. } => {
                let done = self.keep_text(due, &mut count);
                self.tally.add("text spent", spent);
                return done;
            }
            Purpose::Rehearsal(rehearsal) => {
                let done = self.rehearse(due, rehearsal, &mut count);
                self.tally.add("proofs spent", spent);
                return done;
            }
        };
        self.note_spent(spent);
        done
    }

    /// Notes that something due will not be done.
    pub fn leave_rerun(&self, due: &Due, why: NotCompared) {
        match &due.purpose {
            Purpose::Audit(_) | Purpose::Sample(_) => self.count(&Counter::Unaudited(why)),
            Purpose::Proof(proof) => self.leave_unproved(proof, why),
            Purpose::Rehearsal(_) => self.count(&Counter::Unproved(why)),
            Purpose::Preamble(_) | Purpose::Shared(_) | Purpose::Text { .. } => {}
        }
    }
}

impl Question {
    /// The command line, for people.
    pub(super) fn command(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(String::from_utf8_lossy).collect();
        words.join(" ")
    }

    /// A copy for a command that is run again. No client waits for its answer.
    pub(super) fn repeated(&self) -> Question {
        Question {
            who: self.who,
            argv: self.argv.clone(),
            is_mapped: self.is_mapped,
            environment: self.environment.clone(),
            folder: self.folder.clone(),
            umask: self.umask,
            outputs: self.outputs.clone(),
            arrived: self.arrived,
            by_facts: self.by_facts,
            compiles_by_facts: false,
            input: self.input,
            circumstances: self.circumstances.clone(),
            wishes: self.wishes.clone(),
            known_folders: self.known_folders.clone(),
            inputs: false,
            only_known: false,
            searched: None,
            claim: Claim::default(),
        }
    }
}

impl Cache {
    /// Removes the outputs of a command that was run again, possibly of an engine that was killed.
    pub(super) fn remove_rerun_folder(&self, is_urgent: bool) {
        let _ = fs::remove_dir_all(self.rerun_folder(is_urgent));
    }

    /// What runs at once may run beside what runs in idle time.
    pub(super) fn rerun_folder(&self, is_urgent: bool) -> PathBuf {
        self.folder.join(store::FOLDER).join(FOLDERS[usize::from(is_urgent)])
    }

    /// The command line that writes its outputs to `folder`. `None` also if it has another key: then its outputs contain
    /// their own names, and would differ.
    pub(super) fn redirected(&self, question: &Question, key: Digest, folder: &FilePath) -> Option<Elsewhere> {
        let mut file_view = FileView::begin();
        let knows = self.understand(question, &mut file_view).ok()?.knows;
        let compiler = knows.compiler?;
        let to = names_in(folder, &knows)?;
        let words = redirect(compiler, &words_of(question)?, &to)?;
        let argv = question.argv.iter().take(1).chain(words.iter().map(Bytes::as_slice));
        let argv: Strings = argv.collect();
        let action = self.understand_as(question, &argv, &mut file_view).ok()?;
        let knows = action.knows;
        (action.key == key).then_some(Elsewhere { argv, knows })
    }

    /// A comparison is valid only while the inputs are those of the entry.
    pub(super) fn require_facts(&self, due: &Due, entry: &Entry) -> Result<(), NotCompared> {
        let question = &due.question;
        let action = self.understand(question, &mut FileView::begin());
        let action = action.map_err(|_| NotCompared::InputsChanged)?;
        let place = question.place(&action.knows);
        let environment = question.variables(&action.knows);
        let mut view = View::new(&self.world, &place, &environment);
        let holds = action.key == due.key && entry.check(&mut view).is_ok();
        holds.then_some(()).ok_or(NotCompared::InputsChanged)
    }

    /// Runs the command with its outputs in the folder for this, and reads them.
    pub(super) fn run_again(&self, due: &Due, run: Run) -> Result<Results, NotCompared> {
        let folder = self.rerun_folder(due.is_urgent());
        let elsewhere = self.redirected(&due.question, due.key, &folder);
        let Elsewhere { argv, knows } = elsewhere.ok_or(NotCompared::InputsChanged)?;
        make_empty_folders(&folder)?;
        let (code, _) = run_in(&folder, &argv, run)?;
        Results::of_folder(&knows, code, &folder, &Some)
    }
}

/// Runs a command whose outputs are to be in `folder`. Returns its exit status and its processor time.
pub(super) fn run_in(folder: &FilePath, argv: &Strings, run: Run) -> Result<(i32, u64), NotCompared> {
    let ended = run_call(folder, argv, false, run)?;
    Ok((ended.code, ended.processor))
}

/// The same for a command that is observed. Returns its exit status and what it did.
pub(super) fn run_observed(folder: &FilePath, argv: &Strings, run: Run) -> Result<(i32, Observed), NotCompared> {
    let ended = run_call(folder, argv, true, run)?;
    Ok((ended.code, ended.observed.ok_or(NotCompared::Unseen)?))
}

/// The same for a command that is run apart.
pub(super) fn run_apart(folder: &FilePath, argv: &Strings, apart: &Apart, run: Run) -> Result<Second, NotCompared> {
    let call = Call {
        argv,
        folder,
        is_observed: true,
        apart: Some(apart),
    };
    let ended = run_and_judge(&call, run)?;
    Ok(Second {
        code: ended.code,
        accesses: ended.observed.ok_or(NotCompared::Unseen)?.accesses,
        left: ended.left,
    })
}

fn run_call(folder: &FilePath, argv: &Strings, is_observed: bool, run: Run) -> Result<Finished, NotCompared> {
    let call = Call {
        argv,
        folder,
        is_observed,
        apart: None,
    };
    run_and_judge(&call, run)
}

/// A command that has ended by itself.
struct Finished {
    code: i32,
    processor: u64,
    observed: Option<Observed>,
    left: Vec<(Bytes, Left)>,
}

fn run_and_judge(call: &Call, run: Run) -> Result<Finished, NotCompared> {
    let ended = match run(call) {
        Ran::Ended {
            code,
            processor,
            observed,
            left,
        } if code >= 0 => Finished {
            code,
            processor,
            observed,
            left,
        },
        Ran::Ended { .. } => return Err(NotCompared::Signal),
        Ran::Interrupted => return Err(NotCompared::Interrupted),
        Ran::Not(why) => return Err(why),
    };
    match ended.code != 0 && !has_room(call.folder) {
        true => Err(NotCompared::NoRoom),
        false => Ok(ended),
    }
}

/// The words of a command after the program's own name, none of them a response file.
pub(super) fn words_of(question: &Question) -> Option<Vec<Bytes>> {
    let folder = PathBuf::from(OsStr::from_bytes(&question.folder));
    let read = |name: &[u8]| fs::read(folder.join(OsStr::from_bytes(name))).ok();
    Some(response::expand(question.argv.iter().skip(1), &read).ok()?.words)
}

/// The names of a compile's outputs in another folder. `None` if it has outputs that cannot be moved.
fn names_in(folder: &FilePath, knows: &Known) -> Option<Names> {
    let allowed = |role| matches!(role, Role::Main | Role::Dependencies);
    if knows.modules.is_some() || !knows.outputs.iter().all(|output| allowed(output.role)) {
        return None;
    }
    let path = |role, within| {
        let mut outputs = knows.outputs.iter();
        let output = outputs.find(|output| output.role == role)?;
        let name = FilePath::new(OsStr::from_bytes(&output.path)).file_name()?;
        Some(folder.join(within).join(name).as_os_str().as_bytes().to_vec())
    };
    Some(Names {
        main: path(Role::Main, PARTS[0])?,
        dependencies: path(Role::Dependencies, PARTS[1]),
    })
}

impl Results {
    pub(super) fn of_entry(entry: &Entry) -> Results {
        let outputs = entry.outputs.iter().filter_map(|output| {
            let Content::File { digest, is_program, .. } = &output.content else {
                return None;
            };
            Some((output.number?, Some(*digest), *is_program))
        });
        Results {
            code: entry.exit.into(),
            outputs: outputs.collect(),
            prints: [&entry.stdout, &entry.stderr].map(|print| Some(print.digest())),
        }
    }

    /// The outputs that `knows` names, in the form in which they would be stored, and what was printed into `folder`.
    /// `complete` is applied to dependency files first.
    pub(super) fn of_folder(
        knows: &Known,
        code: i32,
        folder: &FilePath,
        complete: &dyn Fn(Bytes) -> Option<Bytes>,
    ) -> Result<Results, NotCompared> {
        Results::read(knows, code, folder, complete).map_err(|_| NotCompared::Unreadable)
    }

    fn read(
        knows: &Known,
        code: i32,
        folder: &FilePath,
        complete: &dyn Fn(Bytes) -> Option<Bytes>,
    ) -> io::Result<Results> {
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
                    let neutral = complete(text).and_then(|text| neutral_dependencies(text, knows));
                    neutral.map(|text| Digest::of(&text.bytes))
                }
                _ => Some(Digest::of_file(&file)?),
            };
            outputs.push((number, digest, is_program));
        }
        let print = |name: &str| -> io::Result<Option<Digest>> {
            let neutral = neutral_print(&fs::read(folder.join(name))?, knows);
            Ok(neutral.map(|text| Digest::of(&text.bytes)))
        };
        let prints = [print(PRINTS[0])?, print(PRINTS[1])?];
        // The outputs of a compile that failed do not count.
        let outputs = if code == 0 { outputs } else { Vec::new() };
        Ok(Results { code, outputs, prints })
    }

    pub(super) fn difference_from(&self, known: &Results) -> String {
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

/// Makes the folders for the outputs, and removes what is in them.
pub(super) fn make_empty_folders(folder: &FilePath) -> Result<(), NotCompared> {
    let made = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => PARTS
            .into_iter()
            .try_for_each(|name| fs::create_dir_all(folder.join(name))),
    };
    made.map_err(|error| {
        log::warn!("make {}: {error}", folder.display());
        NotCompared::NoRoom
    })
}

/// Whether something can still be written to the disks of this folder and of temporary files. A compile that fails
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
