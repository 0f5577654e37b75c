//! From what a command did to what its result depends on.
//!
//! Told access by access, in order: what the command made itself is no input, what it made and removed is no output. At its end
//! the claims that are left are compared with the world and become facts; where the two disagree, or where nothing can be
//! known, there is an obstacle with a name.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::io::Errno;

use super::access::{Access, Bytes, Mode, What};
use super::exception::{special, Special, ALWAYS_ASKED, TEMPORARY, TEMPORARY_FOLDERS};
use super::fact::{Fact, Kind};
use super::obstacle::Obstacle;
use super::path::{below, split, tidy, trimmed, Path, Root};
use super::status::Stamp;
use super::world::{status_of_name, View};

/// An entry with more would take longer to check than most commands to run.
pub const MOST_FACTS: usize = 20_000;
/// So many files of the same content are compared with each other.
const MOST_TWINS: usize = 12;
/// Larger sources are not searched for the base folder's name.
const LONGEST_SOURCE: u64 = 64 << 20;

/// What is known of a command's kind. The default knows nothing, and has everything count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// A known compiler: takes what it only looks at for what it is, not for when it was written; looks at its results
    /// without caring; keeps the names of its temporary files to itself; has the variables that it asks for, and no others.
    pub compiler: bool,
    /// Its result may tell the time at which it was made.
    pub clock: bool,
    pub random: bool,
    /// Its result may tell the name of the folder in which it was made.
    pub folder: bool,
    pub statuses: Statuses,
}

/// Whether sizes and times count of what a known compiler reads or looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statuses {
    Ignored,
    /// If it reads what compilers prepared: they compare the times of what that was made of.
    WithPrecompiled,
    Kept,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            compiler: false,
            clock: true,
            random: true,
            folder: true,
            statuses: Statuses::Kept,
        }
    }
}

/// What is known of one command beside what it did.
#[derive(Debug, Clone, Copy)]
pub struct Knowledge<'a> {
    pub policy: Policy,
    /// What it may make, as its arguments name it; `None` if whatever it makes is its result.
    pub outputs: Option<&'a [Bytes]>,
    /// A folder in which a known compiler may make modules beside.
    pub modules: Option<&'a [u8]>,
    /// Variables that do not show in the result of a known compiler, though it asks for them.
    pub unseen: &'a [&'a str],
    /// The library that observes it, which is no part of it.
    pub observer: &'a [u8],
    /// `Stamp::now()` from before it was started.
    pub started: Stamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub path: Path,
    /// A file, a program, a folder or a link.
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dependence {
    pub facts: Vec<Fact>,
    /// Folders come before what is in them.
    pub outputs: Vec<Made>,
}

/// What a command has done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    #[default]
    Foreign,
    Made,
    /// Made, and removed or renamed.
    Gone,
}

#[derive(Debug, Clone, Default)]
struct Trace {
    fate: Fate,
    /// It may be a link, or another name of something: it was not made by opening it.
    is_odd: bool,
    was_read: bool,
    was_absent: bool,
    was_removed: bool,
    shown: Option<Path>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum How {
    Read,
    /// Executed or loaded: read, but not by the compiler.
    Run,
    There {
        follows: bool,
    },
    Status {
        follows: bool,
    },
    Target,
    Resolve,
    List,
    Absent {
        follows: bool,
    },
    Refused {
        opens: bool,
        error: u16,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Claim {
    how: How,
    path: Path,
    /// By which spellings of one path know each other.
    name: Bytes,
}

struct Story<'v, 'w, 'k> {
    view: &'v mut View<'w>,
    knowledge: &'k Knowledge<'k>,
    declared: HashSet<Bytes>,
    modules: Option<Bytes>,
    /// In which folder each process is.
    folders: HashMap<u32, Path>,
    first: Option<Path>,
    real_folders: HashMap<Bytes, Option<Bytes>>,
    traces: HashMap<Bytes, Trace>,
    /// It made something that may be a folder.
    makes_folders: bool,
    claims: HashSet<Claim>,
    asked: BTreeSet<Bytes>,
    locates: bool,
}

/// What a command that did all this depends on, and what it made.
pub fn understand(accesses: &[Access], knowledge: &Knowledge, view: &mut View) -> Result<Dependence, Obstacle> {
    let mut story = Story {
        view,
        knowledge,
        declared: HashSet::new(),
        modules: None,
        folders: HashMap::new(),
        first: None,
        real_folders: HashMap::new(),
        traces: HashMap::new(),
        makes_folders: false,
        claims: HashSet::new(),
        asked: BTreeSet::new(),
        locates: false,
    };
    story.declare();
    for access in accesses {
        story.tell(access)?;
        if story.claims.len() > MOST_FACTS {
            return Err(Obstacle::TooMany);
        }
    }
    story.end()
}

impl Story<'_, '_, '_> {
    fn declare(&mut self) {
        for given in self.knowledge.outputs.unwrap_or_default() {
            let path = self.view.place.path(&Path::here(), given);
            let name = self.name(&path);
            self.declared.insert(name);
        }
        if let Some(given) = self.knowledge.modules {
            let path = self.view.place.path(&Path::here(), given);
            let name = self.view.place.absolute(&path);
            self.modules = Some(self.real(&name).unwrap_or(name));
        }
    }

    fn is_foretold(&self, name: &Bytes) -> bool {
        let is_module = |folder: &Bytes| {
            let is_there = split(name).is_some_and(|(parent, _)| parent == folder);
            is_there && (name.ends_with(b".mod") || name.ends_with(b".smod"))
        };
        self.declared.contains(name) || self.modules.as_ref().is_some_and(is_module)
    }

    fn tell(&mut self, access: &Access) -> Result<(), Obstacle> {
        let error = access.error;
        match &access.what {
            What::Begin {
                program,
                folder,
                parent,
            } => self.begin(access.process, program, folder, *parent),
            What::Enter { path } => self.enter(access.process, path, error),
            What::Blind { why } => Err(Obstacle::Blind { why }),
            What::Time if self.knowledge.policy.clock => Err(Obstacle::ReadsClock),
            What::Random if self.knowledge.policy.random => Err(Obstacle::ReadsRandom),
            What::Date => Err(Obstacle::ReadsClock),
            What::Time | What::Random => Ok(()),
            What::Ask { name } => {
                self.asked.insert(name.clone());
                Ok(())
            }
            What::Locate => {
                self.locates = true;
                Ok(())
            }
            What::Execute { path } if !path.contains(&b'/') => self.search(access.process, path),
            What::Execute { path } | What::Load { path } => {
                let path = self.path(access.process, path)?;
                self.look(How::Run, path, error)
            }
            What::Open { path, mode } => {
                let path = self.path(access.process, path)?;
                self.open(path, *mode, error)
            }
            What::Find { path } => {
                let path = self.path(access.process, path)?;
                self.look(How::There { follows: true }, path, error)
            }
            What::Look { path, follows } => {
                let path = self.path(access.process, path)?;
                let follows = *follows;
                let how = if self.knowledge.policy.compiler {
                    How::There { follows }
                } else {
                    How::Status { follows }
                };
                self.look(how, path, error)
            }
            What::Link { path } => {
                let path = self.path(access.process, path)?;
                self.look(How::Target, path, error)
            }
            What::Resolve { path } => {
                let path = self.path(access.process, path)?;
                self.look(How::Resolve, path, error)
            }
            What::List { path } => {
                let path = self.path(access.process, path)?;
                self.look(How::List, path, error)
            }
            What::Rename { from, to } => {
                let (from, to) = (self.path(access.process, from)?, self.path(access.process, to)?);
                self.rename(from, to, error)
            }
            What::Remove { path } => {
                let path = self.path(access.process, path)?;
                self.remove(path, error)
            }
            What::Make { path } => {
                let path = self.path(access.process, path)?;
                self.make(path, error)
            }
        }
    }

    // ---- where processes are

    fn begin(&mut self, process: u32, program: &[u8], folder: &[u8], parent: u32) -> Result<(), Obstacle> {
        let candidates = [
            self.folders.get(&process),
            self.folders.get(&parent),
            Some(&Path::here()),
        ];
        let candidates: Vec<Path> = candidates.into_iter().flatten().cloned().collect();
        let here = candidates.into_iter().find(|path| self.leads_to(path, folder));
        let here = here.unwrap_or_else(|| self.view.place.path(&Path::here(), folder));
        self.first.get_or_insert_with(|| here.clone());
        self.folders.insert(process, here);
        let program = self.path(process, program)?;
        self.look(How::Run, program, 0)
    }

    fn leads_to(&mut self, path: &Path, folder: &[u8]) -> bool {
        let name = self.view.place.absolute(path);
        trimmed(&name) == trimmed(folder) || self.real(&name).as_deref() == Some(folder)
    }

    fn enter(&mut self, process: u32, given: &[u8], error: u16) -> Result<(), Obstacle> {
        let path = self.path(process, given)?;
        if error == 0 {
            self.folders.insert(process, path.clone());
        }
        self.look(How::There { follows: true }, path, error)
    }

    fn path(&self, process: u32, given: &[u8]) -> Result<Path, Obstacle> {
        let here = match self.folders.get(&process) {
            Some(here) => here,
            None if given.first() == Some(&b'/') => &Path::here(),
            // A child that never became a program is where its parent was, as long as all are in one place.
            None => match &self.first {
                Some(first) if self.folders.values().all(|other| other == first) => first,
                _ => return Err(Obstacle::Stranger),
            },
        };
        Ok(self.view.place.path(here, given))
    }

    /// The folder's real name, as it is now.
    fn real(&mut self, folder: &[u8]) -> Option<Bytes> {
        if let Some(real) = self.real_folders.get(folder) {
            return real.clone();
        }
        let real = std::fs::canonicalize(std::ffi::OsStr::from_bytes(folder)).ok();
        let real = real.map(|real| real.into_os_string().into_vec());
        self.real_folders.insert(folder.to_vec(), real.clone());
        real
    }

    /// The same for all spellings of a path, as far as its folder is still there.
    fn name(&mut self, path: &Path) -> Bytes {
        let name = self.view.place.absolute(path);
        let name = trimmed(&name);
        let Some((folder, last)) = split(name) else {
            return self.real(name).unwrap_or_else(|| name.to_vec());
        };
        let folder = self.real(folder).unwrap_or_else(|| folder.to_vec());
        tidy(&[folder.as_slice(), last].join(&b'/'))
    }

    fn show(&self, path: &Path) -> String {
        self.view.place.show(path)
    }

    // ---- what they do

    /// A program without a folder in its name is looked for along `PATH`, inside libc, where it is not observed. It may also be meant to be
    /// here: not all of the exec family look along.
    fn search(&mut self, process: u32, program: &[u8]) -> Result<(), Obstacle> {
        self.is_program(process, program)?;
        let along = self
            .view
            .environment
            .value(b"PATH")
            .unwrap_or(b"/bin:/usr/bin")
            .to_vec();
        for folder in along.split(|b| *b == b':') {
            let given = [folder, program].join(&b'/');
            if self.is_program(process, if folder.is_empty() { program } else { &given })? {
                break;
            }
        }
        Ok(())
    }

    fn is_program(&mut self, process: u32, given: &[u8]) -> Result<bool, Obstacle> {
        let path = self.path(process, given)?;
        let (how, error) = match self.view.status(&path) {
            Ok(status) if status.kind() == Kind::Program => (How::Run, 0),
            Ok(_) => (How::There { follows: true }, 0),
            Err(error) => (How::There { follows: true }, error.raw_os_error() as u16),
        };
        self.look(how, path, error)?;
        Ok(how == How::Run)
    }

    /// It did not make this itself, and what is there counts.
    fn is_foreign(&mut self, path: &Path, name: &[u8], found: bool) -> Result<bool, Obstacle> {
        match self.traces.get(name) {
            Some(trace) if trace.fate != Fate::Foreign => {
                let is_odd = trace.is_odd && found && status_of_name(name).map_or(true, |s| s.kind() != Kind::Folder);
                if is_odd {
                    return Err(Obstacle::Unclear { path: self.show(path) });
                }
                return Ok(false);
            }
            _ => {}
        }
        let is_below = self.makes_folders && self.is_below_made(name);
        if is_below && found {
            return Err(Obstacle::Unclear { path: self.show(path) });
        }
        Ok(!is_below)
    }

    fn is_below_made(&self, name: &[u8]) -> bool {
        let mut ancestor = name;
        while let Some((folder, _)) = split(ancestor) {
            if self.traces.get(folder).is_some_and(|trace| trace.fate != Fate::Foreign) {
                return true;
            }
            ancestor = folder;
        }
        false
    }

    /// Anything that changes nothing.
    fn look(&mut self, how: How, path: Path, error: u16) -> Result<(), Obstacle> {
        let compiler = self.knowledge.policy.compiler;
        let absolute = self.view.place.absolute(&path);
        if absolute == self.knowledge.observer {
            return Ok(());
        }
        if special(&absolute).is_some() && (compiler || how != How::List) {
            return Ok(());
        }
        let is_asked_only = matches!(how, How::There { .. } | How::Status { .. });
        if compiler && is_asked_only && self.is_temporary_folder(&absolute) {
            return Ok(());
        }
        let name = self.name(&path);
        let opens = matches!(how, How::Read | How::Run | How::List);
        let is_status = how == How::Resolve && error == 0;
        let found = error == 0 && (opens || is_status || how == How::Target);
        if !self.is_foreign(&path, &name, found)? {
            return Ok(());
        }
        // gcc's driver resolves it, to compare it with its sources.
        if self.declared.contains(&name) && !(opens && found) {
            return Ok(());
        }
        let how = match (i32::from(error), how) {
            (_, how) if error == 0 => how,
            (libc::ENOENT, How::Target | How::Status { follows: false } | How::There { follows: false }) => {
                How::Absent { follows: false }
            }
            (libc::ENOENT, _) => How::Absent { follows: true },
            (libc::EINVAL, How::Target) => How::There { follows: false },
            // Perhaps by a mode that may change: nobody knows what was asked for.
            (libc::EACCES, How::There { .. }) if self.view.status(&path).is_ok() => How::Status { follows: true },
            _ => How::Refused { opens, error },
        };
        let trace = self.traces.entry(name.clone()).or_default();
        trace.was_read |= opens && found;
        trace.was_absent |= matches!(how, How::Absent { .. });
        self.claims.insert(Claim { how, path, name });
        Ok(())
    }

    fn is_temporary_folder(&self, path: &[u8]) -> bool {
        let path = trimmed(path);
        let named = |name: &&[u8]| {
            self.view
                .environment
                .value(name)
                .is_some_and(|value| trimmed(value) == path)
        };
        TEMPORARY_FOLDERS.contains(&path) || TEMPORARY.iter().any(named)
    }

    fn open(&mut self, path: Path, mode: Mode, error: u16) -> Result<(), Obstacle> {
        match special(&self.view.place.absolute(&path)) {
            Some(Special::Harmless) => return Ok(()),
            Some(Special::Random) if self.knowledge.policy.random => return Err(Obstacle::ReadsRandom),
            Some(Special::Random) => return Ok(()),
            Some(Special::Device) if error == 0 => return Err(Obstacle::Device { path: self.show(&path) }),
            _ => {}
        }
        if !mode.writes && !mode.creates && !mode.truncates {
            return self.look(How::Read, path, error);
        }
        match i32::from(error) {
            _ if error == 0 => self.write(path, mode),
            libc::ENOENT => self.look(How::There { follows: true }, path, error),
            libc::EEXIST | libc::EISDIR => self.look(How::There { follows: false }, path, 0),
            _ => Err(Obstacle::Denied { path: self.show(&path) }),
        }
    }

    /// A file was opened to be written to.
    fn write(&mut self, path: Path, mode: Mode) -> Result<(), Obstacle> {
        let name = self.name(&path);
        let trace = self.traces.entry(name).or_default();
        if trace.fate == Fate::Made && !trace.is_odd {
            return Ok(());
        }
        // An absence that libc saw, or that of what was removed a moment ago.
        let is_new = mode.exclusive || trace.fate == Fate::Gone || trace.was_absent || trace.was_removed;
        if !is_new && !mode.truncates {
            return Err(Obstacle::InPlace { path: self.show(&path) });
        }
        self.becomes_made(path, false)
    }

    fn becomes_made(&mut self, path: Path, is_odd: bool) -> Result<(), Obstacle> {
        let name = self.name(&path);
        let trace = self.traces.entry(name).or_default();
        if trace.was_read && trace.fate == Fate::Foreign {
            return Err(Obstacle::Replaces { path: self.show(&path) });
        }
        trace.fate = Fate::Made;
        trace.is_odd = is_odd;
        trace.shown = Some(path);
        self.makes_folders |= is_odd;
        Ok(())
    }

    fn rename(&mut self, from: Path, to: Path, error: u16) -> Result<(), Obstacle> {
        if error != 0 {
            return self.look(How::There { follows: false }, from, error);
        }
        let (old, new) = (self.name(&from), self.name(&to));
        let moved: Vec<Bytes> = self
            .traces
            .keys()
            .filter(|name| below(&old, name).is_some())
            .cloned()
            .collect();
        if self.traces.get(&old).map_or(true, |trace| trace.fate != Fate::Made) {
            return Err(Obstacle::Removes { path: self.show(&from) });
        }
        let is_odd = self.traces.get(&old).is_some_and(|trace| trace.is_odd);
        self.becomes_made(to.clone(), is_odd)?;
        for name in moved.into_iter().filter(|name| *name != old) {
            let rest = below(&old, &name).unwrap_or_default().to_vec();
            let trace = self.traces.get_mut(&name).map(|trace| {
                let copy = trace.clone();
                trace.fate = if trace.fate == Fate::Made {
                    Fate::Gone
                } else {
                    trace.fate
                };
                copy
            });
            if let Some(mut trace) = trace.filter(|trace| trace.fate == Fate::Made) {
                trace.shown = Some(self.view.place.path(&to, &rest));
                self.traces.insert([new.as_slice(), &rest].join(&b'/'), trace);
            }
        }
        if old != new {
            self.traces.entry(old).or_default().fate = Fate::Gone;
        }
        Ok(())
    }

    fn remove(&mut self, path: Path, error: u16) -> Result<(), Obstacle> {
        if error != 0 {
            return self.look(How::There { follows: false }, path, error);
        }
        let name = self.name(&path);
        let trace = self.traces.entry(name).or_default();
        match trace.fate {
            Fate::Made => trace.fate = Fate::Gone,
            Fate::Foreign if trace.was_read => return Err(Obstacle::Replaces { path: self.show(&path) }),
            // All is well if it makes the same anew.
            _ => trace.was_removed = true,
        }
        trace.shown.get_or_insert(path);
        Ok(())
    }

    fn make(&mut self, path: Path, error: u16) -> Result<(), Obstacle> {
        match i32::from(error) {
            _ if error == 0 => self.becomes_made(path, true),
            libc::EEXIST => self.look(How::There { follows: false }, path, 0),
            libc::ENOENT => self.look(How::There { follows: true }, path, error),
            _ => Err(Obstacle::Denied { path: self.show(&path) }),
        }
    }

    // ---- what comes of it

    fn end(mut self) -> Result<Dependence, Obstacle> {
        let outputs = self.outputs()?;
        let mut facts = self.variables();
        let mut claims: Vec<Claim> = self.claims.drain().collect();
        claims.sort();
        self.view.begin();
        let mut files = BTreeMap::new();
        for claim in &claims {
            if let Some(fact) = self.fact(claim)? {
                if let (How::Read, Fact::File { path, digest }) = (claim.how, &fact) {
                    files.entry(*digest).or_insert_with(Vec::new).push(path.clone());
                }
                facts.push(fact);
            }
        }
        if self.statuses_count(&claims) {
            self.add_statuses(&mut facts)?;
        }
        for paths in files.values() {
            self.add_twins(paths, &mut facts)?;
        }
        let mut dependence = Dependence { facts, outputs };
        if self.may_name_base(&claims) {
            dependence.make_absolute(self.view);
        }
        dependence.put_in_order(self.view);
        Ok(dependence)
    }

    fn outputs(&mut self) -> Result<Vec<Made>, Obstacle> {
        let mut outputs = BTreeMap::new();
        for (name, trace) in &self.traces {
            let Some(path) = &trace.shown else { continue };
            let shown = self.show(path);
            if trace.fate != Fate::Made {
                if trace.was_removed {
                    return Err(Obstacle::Removes { path: shown });
                }
                continue;
            }
            if self.knowledge.outputs.is_some() && !self.is_foretold(name) {
                return Err(Obstacle::Unforetold { path: shown });
            }
            let status = status_of_name(name).map_err(|_| Obstacle::Lost { path: shown.clone() })?;
            let (kind, is_only) = (status.kind(), status.links == 1);
            let is_good = match kind {
                Kind::File | Kind::Program => is_only,
                Kind::Folder | Kind::Link => trace.is_odd,
                Kind::Other => false,
            };
            if !is_good {
                return Err(Obstacle::NotPlain { path: shown });
            }
            let path = path.clone();
            outputs.insert(name.clone(), Made { path, kind });
        }
        Ok(outputs.into_values().collect())
    }

    fn variables(&mut self) -> Vec<Fact> {
        let policy = self.knowledge.policy;
        let (environment, folder) = (self.view.environment, self.view.place.folder());
        let fact = |name: &[u8]| Fact::Variable {
            name: name.to_vec(),
            value: environment.value(name).map(<[u8]>::to_vec),
        };
        let mut facts = Vec::new();
        if self.locates && policy.folder {
            facts.push(Fact::Folder { path: folder.to_vec() });
        }
        if !policy.compiler {
            let digest = environment.names(folder);
            facts.push(Fact::Names { digest });
            facts.extend(environment.telling(folder).map(|(name, _)| fact(name)));
            return facts;
        }
        self.asked.extend(ALWAYS_ASKED.iter().map(|name| name.to_vec()));
        let counts = |name: &&Bytes| {
            let name = name.as_slice();
            let is_unseen = self.knowledge.unseen.iter().any(|unseen| unseen.as_bytes() == name);
            let is_private = is_unseen || TEMPORARY.contains(&name) || super::environment::is_silent(name);
            !is_private && (policy.folder || name != b"PWD")
        };
        facts.extend(self.asked.iter().filter(counts).map(|name| fact(name)));
        facts
    }

    /// What a claim is now, unless it is about what the command made afterwards.
    fn fact(&mut self, claim: &Claim) -> Result<Option<Fact>, Obstacle> {
        let trace = self.traces.get(&claim.name);
        if trace.is_some_and(|trace| trace.fate != Fate::Foreign) {
            return self.fact_of_made(claim);
        }
        let changed = Obstacle::Inconsistent {
            path: self.show(&claim.path),
        };
        let path = claim.path.clone();
        let fact = match claim.how {
            How::Read | How::Run => return self.file(path, claim.how),
            How::There { follows } => self.there(path, follows).map_err(|_| changed)?,
            How::Status { follows } => Fact::status(path, follows, self.view).map_err(|_| changed)?,
            How::Target => {
                self.require_older(&path)?;
                let text = self.view.target(&path).map_err(|_| changed)?;
                Fact::Target { path, text }
            }
            How::Resolve => {
                let real = self.view.resolved(&path).map_err(|_| changed)?;
                let real = if self.knowledge.policy.folder {
                    Path {
                        root: Root::Absolute,
                        rest: real,
                    }
                } else {
                    self.view.place.relative(&real)
                };
                Fact::Resolved { path, real }
            }
            How::List => return self.listing(path, &claim.name).map(Some),
            How::Absent { follows } => {
                self.view.lacks(&path, follows).map_err(|_| changed)?;
                Fact::Absent { path, follows }
            }
            How::Refused { opens, error } => {
                let fact = Fact::Refused { path, opens, error };
                fact.check(self.view).map_err(|_| changed)?;
                fact
            }
        };
        Ok(Some(fact))
    }

    /// What was there, or not, before the command made it.
    fn fact_of_made(&self, claim: &Claim) -> Result<Option<Fact>, Obstacle> {
        let path = claim.path.clone();
        match claim.how {
            How::Absent { follows } if !self.knowledge.policy.compiler => Ok(Some(Fact::Absent { path, follows })),
            _ if self.knowledge.policy.compiler => Ok(None),
            _ => Err(Obstacle::Replaces { path: self.show(&path) }),
        }
    }

    fn file(&mut self, path: Path, how: How) -> Result<Option<Fact>, Obstacle> {
        let shown = self.show(&path);
        match self.view.digest(&path) {
            Ok((status, _)) if !status.is_older(self.knowledge.started) => Err(Obstacle::Changed { path: shown }),
            Ok((_, digest)) => Ok(Some(Fact::File { path, digest })),
            // Opened to be listed or entered, which is told of on its own.
            Err(Errno::INVAL) if how == How::Read => match self.there(path, true) {
                Ok(fact @ Fact::There { kind: Kind::Folder, .. }) => Ok(Some(fact)),
                Ok(_) => Err(Obstacle::Device { path: shown }),
                Err(_) => Err(Obstacle::Inconsistent { path: shown }),
            },
            Err(_) => Err(Obstacle::Inconsistent { path: shown }),
        }
    }

    fn there(&mut self, path: Path, follows: bool) -> Result<Fact, Errno> {
        let status = if follows {
            self.view.status(&path)?
        } else {
            self.view.status_of_name(&path)?
        };
        Ok(Fact::There {
            path,
            kind: status.kind(),
            follows,
            number: 0,
        })
    }

    fn listing(&mut self, path: Path, name: &[u8]) -> Result<Fact, Obstacle> {
        let is_in = |other: &Bytes| split(other).is_some_and(|(folder, _)| folder == name);
        let makes = |(other, trace): (&Bytes, &Trace)| trace.fate != Fate::Foreign && is_in(other);
        if self.traces.iter().any(makes) {
            return Err(Obstacle::ListsResults { path: self.show(&path) });
        }
        self.require_older(&path)?;
        let listing = self.view.listing(&path);
        let listing = listing.map_err(|_| Obstacle::Inconsistent { path: self.show(&path) })?;
        let digest = listing.digest;
        Ok(Fact::Listing { path, digest })
    }

    /// Left alone since the command began.
    fn require_older(&mut self, path: &Path) -> Result<(), Obstacle> {
        match self.view.status_of_name(path) {
            Ok(status) if status.is_older(self.knowledge.started) => Ok(()),
            _ => Err(Obstacle::Changed { path: self.show(path) }),
        }
    }

    fn statuses_count(&self, claims: &[Claim]) -> bool {
        let is_prepared = |claim: &Claim| claim.how == How::Read && is_prepared(&self.view.place.absolute(&claim.path));
        match self.knowledge.policy.statuses {
            _ if !self.knowledge.policy.compiler => false,
            Statuses::Ignored => false,
            Statuses::WithPrecompiled => claims.iter().any(is_prepared),
            Statuses::Kept => true,
        }
    }

    /// Of all files that a compiler read or looked at.
    fn add_statuses(&mut self, facts: &mut Vec<Fact>) -> Result<(), Obstacle> {
        let is_file = |fact: &&Fact| match fact {
            Fact::There { kind, .. } => kind.is_plain(),
            fact => matches!(fact, Fact::File { .. }),
        };
        let paths: Vec<Path> = facts.iter().filter(is_file).filter_map(Fact::path).cloned().collect();
        for path in paths {
            let lost = Obstacle::Inconsistent { path: self.show(&path) };
            facts.push(Fact::status(path, true, self.view).map_err(|_| lost)?);
        }
        Ok(())
    }

    /// Compilers read a file once that says so, or that they have read under another name.
    fn add_twins(&mut self, paths: &[Path], facts: &mut Vec<Fact>) -> Result<(), Obstacle> {
        let is_empty = |view: &mut View| view.status(&paths[0]).is_ok_and(|status| status.size == 0);
        if paths.len() < 2 || is_empty(self.view) {
            return Ok(());
        }
        if paths.len() > MOST_TWINS {
            return Err(Obstacle::TooMany);
        }
        for (i, path) in paths.iter().enumerate() {
            for other in &paths[i + 1..] {
                let twins = Fact::twins(path.clone(), other.clone(), self.view);
                facts.push(twins.map_err(|_| Obstacle::Inconsistent { path: self.show(path) })?);
            }
        }
        Ok(())
    }

    /// A path below the base may come from a source that names the base, and not from the arguments: it would be the same for
    /// a command of another checkout.
    fn may_name_base(&mut self, claims: &[Claim]) -> bool {
        let Some(base) = self.view.place.base().map(<[u8]>::to_vec) else {
            return false;
        };
        if !claims.iter().any(|claim| claim.path.root == Root::Base) {
            return false;
        }
        let mut sources = claims.iter().filter(|claim| claim.how == How::Read);
        sources.any(|claim| match self.view.status(&claim.path) {
            Ok(status) if status.size <= LONGEST_SOURCE => names(&self.view.place.absolute(&claim.path), &base),
            _ => true,
        })
    }
}

/// A precompiled header of clang or gcc, or an object that may have one in it.
fn is_prepared(path: &[u8]) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    let read = std::fs::File::open(std::ffi::OsStr::from_bytes(path)).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && [b"CPCH", b"gpch", b"\x7fELF"].contains(&&magic)
}

fn names(path: &[u8], base: &[u8]) -> bool {
    // A folder cannot be read, and names nothing.
    let text = std::fs::read(std::ffi::OsStr::from_bytes(path)).unwrap_or_default();
    let (first, rest) = base.split_first().expect("a base begins with a slash");
    let mut left = text.as_slice();
    while let Some(at) = left.iter().position(|b| b == first) {
        left = &left[at + 1..];
        if left.starts_with(rest) {
            return true;
        }
    }
    false
}

impl Dependence {
    fn make_absolute(&mut self, view: &View) {
        let fix = |path: &mut Path| {
            if path.root == Root::Base {
                path.rest = view.place.absolute(path);
                path.root = Root::Absolute;
            }
        };
        self.facts
            .iter_mut()
            .for_each(|fact| fact.paths().into_iter().for_each(fix));
        self.outputs.iter_mut().for_each(|made| fix(&mut made.path));
    }

    /// The same facts are the same bytes, absences come folder by folder, and folders have their numbers.
    fn put_in_order(&mut self, view: &mut View) {
        self.facts.sort();
        self.facts.dedup();
        view.begin();
        for fact in &mut self.facts {
            let Fact::There {
                path,
                kind: Kind::Folder,
                follows,
                number,
            } = fact
            else {
                continue;
            };
            let status = if *follows {
                view.status(path)
            } else {
                view.status_of_name(path)
            };
            // It was there a moment ago; if it is not now, the fact will not hold.
            *number = status.map_or(u32::MAX, |status| view.number(&status));
        }
    }
}
