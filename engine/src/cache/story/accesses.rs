//! The actions of a command, one access after the other. What it finds becomes an observation, and what it does to a path
//! becomes the state of that path.
//!
//! The file system is asked only if an access does not tell enough. Facts are made later, by `outcome`.

use std::collections::HashSet;

use super::obstacle::Obstacle;
use super::places::is_installed;
use super::{Analysis, Code, Fate, How, Observation, Shape, Statuses};
use crate::facts::exception::{
    is_of_counters, special, Special, DEFAULT_FOLDERS, SEARCHED, TEMPORARY, TEMPORARY_FOLDERS, VIRTUAL_MACHINE,
};
use crate::facts::fact::Kind;
use crate::facts::file_view::status_of_name;
use crate::facts::path::{below, split, trimmed, Path};
use crate::observe::access::{Access, Bytes, Mode, What};
use crate::observe::crate_names;
use crate::observe::known_programs::{
    hides_calls, ProgramRules, Seeds, Times, COMPILER, GO, OWN_CALLS, RUST_WITH_MACROS, SCRIPT, UNKNOWN,
};
use crate::process::jobserver::is_end_of_pipe;

impl Analysis<'_, '_, '_> {
    pub(super) fn apply(&mut self, access: &Access) -> Result<(), Obstacle> {
        let error = access.error;
        self.process = access.process;
        self.now = self.rules_of(access.process);
        self.is_traced = self.traced.contains(&access.process);
        self.seen = access.identity;
        match &access.what {
            What::Begin {
                program,
                folder,
                parent,
                is_traced,
            } => self.begin(access.process, program, folder, (*parent, *is_traced)),
            What::Enter { path } => self.enter(access.process, path, error),
            What::Blind { why } => Err(Obstacle::Blind(why)),
            What::Time if !self.seeds(access.process) => self.doubt(access.process, Obstacle::ReadsClock),
            What::Random if !self.seeds(access.process) => self.doubt(access.process, Obstacle::ReadsRandom),
            What::Date if self.now.seeds != Seeds::First || !self.seeds(access.process) => {
                self.doubt(access.process, Obstacle::ReadsClock)
            }
            // Known programs use it to report how long they took, or to wait.
            What::Measure if self.now == UNKNOWN => self.doubt(access.process, Obstacle::ReadsClock),
            What::Number => self.note_process_number(access.process),
            What::Time | What::Random | What::Date | What::Measure => Ok(()),
            What::Ask { name } if name == SEARCHED && self.now.compiles => {
                self.searches = true;
                Ok(())
            }
            What::Ask { name } => {
                self.others_ask_folder |= name == b"PWD" && self.shell != Some(access.process);
                self.asked.insert(name.clone());
                Ok(())
            }
            What::Anchor => {
                self.is_anchored = true;
                Ok(())
            }
            What::Locate => {
                self.others_ask_folder |= self.shell != Some(access.process);
                self.asks_folder = true;
                Ok(())
            }
            What::Execute { path } if !path.contains(&b'/') => self.search(access.process, path),
            What::Load { path } if hides_calls(path) && !self.now.compiles => Err(Obstacle::Blind(OWN_CALLS)),
            What::Load { path } => {
                if path.ends_with(VIRTUAL_MACHINE) {
                    self.virtual_machines.insert(access.process);
                }
                self.note_macro(access.process, path)?;
                let path = self.path(access.process, path)?;
                self.note_code(&path);
                self.look(How::Run, path, access.error)
            }
            What::Execute { path } => {
                let path = self.path(access.process, path)?;
                // Otherwise, the program that begins says whether its calls are seen.
                if self.sees_calls() {
                    self.note_code(&path);
                }
                self.look(How::Run, path, access.error)
            }
            What::Open { path, mode } => self.open(access.process, path, *mode, error),
            What::Find { path } => self.look_at(access, path, self.looking(true)),
            What::Look { path, follows } => {
                self.look_at(access, path, self.looking(*follows))?;
                self.look_at_time(access, path)
            }
            What::Link { path } => self.look_at(access, path, How::Target),
            What::Resolve { path } => {
                // The length of its spelling counts.
                let path = self.view.place.spelled(self.here(access.process, path)?, path);
                self.look(How::Resolve, path, error)
            }
            What::List { path } => {
                if error == 0 {
                    self.listings.entry(access.identity).or_default().begun += 1;
                }
                let how = if self.now.finds_crates { How::Crates } else { How::List };
                self.look_at(access, path, how)
            }
            What::Crate { folder, name } => {
                self.listings.entry(*folder).or_default().crates.push(name.clone());
                Ok(())
            }
            What::Listed { folder, names } => {
                let listings = self.listings.entry(*folder).or_default();
                listings.names.push(*names);
                listings.end_crates();
                Ok(())
            }
            What::Guarded => {
                self.guarded.insert(access.process);
                self.settle_code(access.process, true);
                Ok(())
            }
            What::Rename { from, to } => {
                let (from, to) = (self.path(access.process, from)?, self.path(access.process, to)?);
                self.rename(from, to, error)
            }
            What::Remove { path } => {
                let path = self.path(access.process, path)?;
                self.remove(path, error)
            }
            What::Make { path, is_folder } => {
                let path = self.path(access.process, path)?;
                self.make(path, *is_folder, error)
            }
        }
    }

    /// Compilers look at `PWD` and at `.` only to learn whether they may call their folder by that name. If the name makes
    /// no difference, this is no fact: in another checkout, `PWD` is different.
    pub(super) fn find_idle(&mut self, accesses: &[Access]) -> HashSet<usize> {
        let policy = self.knowledge.policy;
        let environment = self.view.environment;
        let place = environment.value(b"PWD");
        let Some(place) = place.filter(|_| policy.compiler && !policy.folder) else {
            return HashSet::new();
        };
        let compilers: HashSet<u32> = accesses.iter().filter_map(|access| self.compiler(access)).collect();
        let is_asked = |access: &Access| matches!(&access.what, What::Ask { name } if name == b"PWD");
        let asks = |access: &Access| is_asked(access) && compilers.contains(&access.process);
        let looks = |access: &Access, at: &[u8]| match &access.what {
            What::Find { path } | What::Look { path, follows: true } => access.error == 0 && path == at,
            _ => false,
        };
        let mut idle = HashSet::new();
        for (at, access) in accesses.iter().enumerate().filter(|(_, access)| asks(access)) {
            let later = accesses.iter().enumerate().skip(at + 1);
            let mut own = later.filter(|(_, other)| other.process == access.process);
            if let (Some((one, first)), Some((two, second))) = (own.next(), own.next()) {
                if looks(first, place) && looks(second, b".") {
                    idle.extend([one, two]);
                }
            }
        }
        idle
    }

    /// A child that becomes no program continues its parent's actions, which are known if all programs have the same rules.
    fn rules_of(&self, process: u32) -> ProgramRules {
        let is_of_compiler = self.knowledge.policy.compiler && self.all_compile;
        let fork = if is_of_compiler { COMPILER } else { UNKNOWN };
        self.rules.get(&process).copied().unwrap_or(fork)
    }

    /// The clock and random numbers do not show in what the program makes, up to now.
    fn seeds(&self, process: u32) -> bool {
        match self.now.seeds {
            Seeds::Never => false,
            Seeds::First => !self.reading.contains(&process),
            Seeds::Always => true,
        }
    }

    /// The program asks for something that differs from run to run. Whether the result shows it is to be seen in a second
    /// run, if the program seldom shows it.
    fn doubt(&mut self, process: u32, why: Obstacle) -> Result<(), Obstacle> {
        let asks_idly = self.asking_idly.get(&process).copied();
        if !asks_idly.unwrap_or_else(|| self.all_ask_idly()) {
            return Err(why);
        }
        self.doubt.get_or_insert(why);
        Ok(())
    }

    /// All system calls of the present process are seen, or it is known that it makes none by its own instructions.
    fn sees_calls(&self) -> bool {
        self.is_traced || self.guarded.contains(&self.process)
    }

    /// The process runs or loads this.
    pub(super) fn note_code(&mut self, path: &Path) {
        let code = (self.name(path), self.now);
        self.unguarded.entry(self.process).or_default().push(code);
        if self.sees_calls() {
            self.settle_code(self.process, true);
        }
    }

    /// It is known now whether the calls of a process were seen up to here.
    pub(super) fn settle_code(&mut self, process: u32, is_seen: bool) {
        for (name, rules) in self.unguarded.remove(&process).unwrap_or_default() {
            let all = self.code.entry(name).or_insert(Code {
                is_seen: true,
                seeds: true,
            });
            all.is_seen &= is_seen;
            all.seeds &= rules.seeds != Seeds::Never;
        }
    }

    /// After rustc has loaded a library that did not come with it, it may do anything.
    fn note_macro(&mut self, process: u32, given: &[u8]) -> Result<(), Obstacle> {
        let Some(toolchain) = self.toolchains.get(&process).cloned() else {
            return Ok(());
        };
        let path = self.path(process, given)?;
        let library = self.name(&path);
        let came_with = below(&toolchain, &library).is_some() || is_installed(&library);
        if came_with || given == self.knowledge.observer {
            return Ok(());
        }
        self.doubt(process, Obstacle::RunsMacro(self.show(&path)))?;
        self.now = RUST_WITH_MACROS;
        self.rules.insert(process, self.now);
        self.all_compile = false;
        self.all_ask = false;
        self.others_ask = false;
        Ok(())
    }

    /// A fork is of one of the programs, and it is not noted of which.
    pub(super) fn all_ask_idly(&self) -> bool {
        !self.asking_idly.is_empty() && self.asking_idly.values().all(|asks_idly| *asks_idly)
    }

    /// Compilers name temporary files by their process number. Shells ask for it at their start, whether they use it or
    /// not, and so may their forks.
    fn note_process_number(&mut self, process: u32) -> Result<(), Obstacle> {
        let is_fork = !self.rules.contains_key(&process);
        let is_shell = self.now == SCRIPT || (is_fork && !self.rules.values().any(|rules| *rules == UNKNOWN));
        if !is_shell && !self.now.compiles && !self.seeds(process) {
            return self.doubt(process, Obstacle::ReadsRandom);
        }
        self.asked_number |= is_shell;
        Ok(())
    }

    /// The result depends on the age, size or mode of files.
    fn heeds_times(&self) -> bool {
        match self.now.times {
            Times::Never => false,
            Times::Archived => self.knowledge.policy.statuses != Statuses::Ignored,
            Times::Always => true,
        }
    }

    fn looking(&self, follows: bool) -> How {
        if self.now.looks && !self.heeds_times() {
            How::There { follows }
        } else {
            How::Status { follows }
        }
    }

    /// A program without a folder in its name is searched along `PATH`, inside libc, which is not observed. The command's
    /// folder may also be meant: not all functions of the exec family search.
    fn search(&mut self, process: u32, program: &[u8]) -> Result<(), Obstacle> {
        self.is_program(process, program)?;
        let along = self
            .view
            .environment
            .value(SEARCHED)
            .unwrap_or(DEFAULT_FOLDERS)
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

    /// The command did not make this itself, and what is there counts.
    fn is_foreign(&mut self, path: &Path, name: &[u8], found: bool) -> Result<bool, Obstacle> {
        match self.paths.get(name) {
            Some(state) if state.fate != Fate::Foreign => {
                let is_odd = state.shape == Shape::Odd
                    && found
                    && status_of_name(name).map_or(true, |s| s.kind() != Kind::Folder);
                if is_odd {
                    return Err(Obstacle::Unclear(self.show(path)));
                }
                return Ok(false);
            }
            _ => {}
        }
        let is_below = self.makes_folders && self.is_below_made(name);
        if is_below && found {
            return Err(Obstacle::Unclear(self.show(path)));
        }
        Ok(!is_below)
    }

    fn is_below_made(&self, name: &[u8]) -> bool {
        let mut ancestor = name;
        while let Some((folder, _)) = split(ancestor) {
            if self.paths.get(folder).is_some_and(|state| state.fate != Fate::Foreign) {
                return true;
            }
            ancestor = folder;
        }
        false
    }

    fn look_at(&mut self, access: &Access, given: &[u8], how: How) -> Result<(), Obstacle> {
        let path = self.path(access.process, given)?;
        self.look(how, path, access.error)
    }

    /// An action that changes nothing.
    pub(super) fn look(&mut self, how: How, path: Path, error: u16) -> Result<(), Obstacle> {
        let compiler = self.now.compiles;
        let absolute = self.view.place.absolute(&path);
        if absolute == self.knowledge.observer {
            return Ok(());
        }
        if self.is_counters(&path) {
            return self.doubt_counters(&path);
        }
        let is_told = error == 0 && matches!(how, How::Target | How::Resolve);
        match special(&absolute) {
            Some(Special::Device | Special::Machine | Special::Busy | Special::Processor) if is_told && !compiler => {
                return Err(Obstacle::Device(self.show(&path)))
            }
            Some(_) if compiler || how != How::List => return Ok(()),
            _ => {}
        }
        let is_asked_only = matches!(how, How::There { .. } | How::Status { .. });
        let is_resolved = matches!(how, How::Resolve | How::Target);
        if compiler && is_asked_only && self.is_temporary_folder(&absolute) {
            return Ok(());
        }
        let name = self.name_of(&absolute);
        let opens = matches!(how, How::Read | How::Run | How::List | How::Crates);
        let is_status = how == How::Resolve && error == 0;
        let found = error == 0 && (opens || is_status || how == How::Target);
        if !self.is_foreign(&path, &name, found)? {
            return Ok(());
        }
        // gcc's driver resolves it to compare it with its sources.
        if compiler && self.declared.contains_key(&name) && !(opens && found) {
            return Ok(());
        }
        let how = match (i32::from(error), how) {
            (_, how) if error == 0 => how,
            (libc::ENOENT, How::Target | How::Status { follows: false } | How::There { follows: false }) => {
                How::Absent { follows: false }
            }
            (libc::ENOENT, _) => How::Absent { follows: true },
            (libc::EINVAL, How::Target) => How::There { follows: false },
            // The kind of access that was tried is not known, and a change of the mode could change its result.
            (libc::EACCES, How::There { .. }) if self.view.status(&path).is_ok() => How::Status { follows: true },
            _ => How::Refused { opens, error },
        };
        let state = self.paths.entry(name.clone()).or_default();
        state.was_read |= opens && found;
        state.was_absent |= matches!(how, How::Absent { .. });
        if how == How::Read && (self.now == SCRIPT || self.now == UNKNOWN) {
            self.scripts_read.insert(name.clone());
        }
        if how == How::Read && self.now.finds_crates {
            let beginning = split(&name).and_then(|(_, name)| crate_names::beginning(name));
            self.used_crates.extend(beginning.map(<[u8]>::to_vec));
        }
        let observation = Observation {
            how,
            path,
            name,
            // A procedural macro does not look for the result of its own compile.
            careless: compiler || self.now.finds_crates && (is_asked_only || is_resolved),
            seen: if error == 0 { self.seen } else { 0 },
        };
        if how == How::Read && self.heeds_times() {
            self.observations.insert(Observation {
                how: How::Status { follows: true },
                ..observation.clone()
            });
        }
        self.observations.insert(observation);
        Ok(())
    }

    /// The status of a file that the command has made says when that was.
    fn look_at_time(&mut self, access: &Access, given: &[u8]) -> Result<(), Obstacle> {
        let tells = self.telling_times.get(&access.process).copied();
        if access.error != 0 || !tells.unwrap_or_else(|| self.telling_times.values().any(|tells| *tells)) {
            return Ok(());
        }
        let path = self.path(access.process, given)?;
        let name = self.name(&path);
        match self.paths.get(&name) {
            Some(state) if state.fate == Fate::Made && state.shape == Shape::File => {
                let shown = self.show(&path);
                self.doubt(access.process, Obstacle::Dated(shown))
            }
            _ => Ok(()),
        }
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

    fn open(&mut self, process: u32, given: &[u8], mode: Mode, error: u16) -> Result<(), Obstacle> {
        let path = self.path(process, given)?;
        let is_random_told = !self.seeds(process);
        let absolute = self.view.place.absolute(&path);
        if self.is_counters(&path) {
            return self.doubt_counters(&path);
        }
        match special(&absolute) {
            Some(Special::Harmless) => return Ok(()),
            // How many commands run beside it makes no difference to what it makes.
            Some(Special::Device) if is_end_of_pipe(&absolute, |name| self.view.environment.value(name)) => {
                return Ok(())
            }
            Some(Special::Machine) if self.now.compiles || self.now == GO => return Ok(()),
            Some(Special::Busy) if self.now.compiles => return Ok(()),
            Some(Special::Processor) if self.now.compiles => {
                self.knows_processor = true;
                return Ok(());
            }
            Some(Special::Random) if is_random_told => return self.doubt(process, Obstacle::ReadsRandom),
            Some(Special::Random) => return Ok(()),
            // How large the machine is, and how busy. Its processors and its name are facts in any case.
            Some(Special::Machine | Special::Busy | Special::Processor) if error == 0 => {
                self.knows_processor = true;
                let path = self.show(&path);
                return self.doubt(process, Obstacle::Device(path));
            }
            // It was foretold, and what goes there is kept with the other output.
            _ if self.knowledge.policy.prints && given == b"/dev/stdout" && self.now.compiles => return Ok(()),
            Some(Special::Device) if error == 0 => return Err(Obstacle::Device(self.show(&path))),
            _ => {}
        }
        let is_device = special(&absolute).is_some();
        // The folder of its installation, which it asks for before everything else.
        if error == 0 && !given.ends_with(b"/pyvenv.cfg") {
            self.reading.insert(process);
        }
        if !mode.writes && !mode.creates && !mode.truncates {
            return self.look(How::Read, path, error);
        }
        match i32::from(error) {
            _ if error == 0 => self.write(path, mode),
            libc::ENXIO if is_device => Ok(()),
            libc::ENOENT => self.look(How::There { follows: true }, path, error),
            libc::EEXIST | libc::EISDIR => self.look(How::There { follows: false }, path, 0),
            _ => Err(Obstacle::Denied(self.show(&path))),
        }
    }

    /// A file was opened for writing.
    fn write(&mut self, path: Path, mode: Mode) -> Result<(), Obstacle> {
        let name = self.name(&path);
        let state = self.paths.entry(name).or_default();
        if state.fate == Fate::Made && state.shape == Shape::File {
            return Ok(());
        }
        // An absence that libc saw, or the absence of something that was just removed.
        let is_new = mode.exclusive || state.fate == Fate::Gone || state.was_absent || state.was_removed;
        let was_there = state.fate != Fate::Foreign || state.was_removed;
        if !is_new && !mode.truncates {
            return Err(Obstacle::InPlace(self.show(&path)));
        }
        if mode.exclusive && !was_there && !self.now.compiles {
            self.look(How::There { follows: false }, path.clone(), libc::ENOENT as u16)?;
        }
        self.becomes_made(path, Shape::File)
    }

    fn becomes_made(&mut self, path: Path, shape: Shape) -> Result<(), Obstacle> {
        let name = self.name(&path);
        let state = self.paths.entry(name).or_default();
        if state.was_read && state.fate == Fate::Foreign {
            return Err(Obstacle::Replaces(self.show(&path)));
        }
        state.fate = Fate::Made;
        state.shape = shape;
        state.shown = Some(path);
        self.makes_folders |= shape != Shape::File;
        Ok(())
    }

    fn rename(&mut self, from: Path, to: Path, error: u16) -> Result<(), Obstacle> {
        if error != 0 {
            return self.look(How::There { follows: false }, from, error);
        }
        let (old, new) = (self.name(&from), self.name(&to));
        let moved: Vec<Bytes> = self
            .paths
            .keys()
            .filter(|name| below(&old, name).is_some())
            .cloned()
            .collect();
        if self.paths.get(&old).map_or(true, |state| state.fate != Fate::Made) {
            return Err(Obstacle::Removes(self.show(&from)));
        }
        let shape = self.paths.get(&old).map(|state| state.shape).unwrap_or_default();
        self.becomes_made(to.clone(), shape)?;
        for name in moved.into_iter().filter(|name| *name != old) {
            let rest = below(&old, &name).unwrap_or_default().to_vec();
            let state = self.paths.get_mut(&name).map(|state| {
                let copy = state.clone();
                state.fate = if state.fate == Fate::Made {
                    Fate::Gone
                } else {
                    state.fate
                };
                copy
            });
            if let Some(mut state) = state.filter(|state| state.fate == Fate::Made) {
                state.shown = Some(self.view.place.path(&to, &rest));
                self.paths.insert([new.as_slice(), &rest].join(&b'/'), state);
            }
        }
        if old != new {
            self.paths.entry(old).or_default().fate = Fate::Gone;
        }
        Ok(())
    }

    /// Whether a path is one where the virtual machine of this process keeps its counters.
    fn is_counters(&self, path: &Path) -> bool {
        self.virtual_machines.contains(&self.process) && is_of_counters(&self.view.place.absolute(path))
    }

    fn doubt_counters(&mut self, path: &Path) -> Result<(), Obstacle> {
        let path = self.show(path);
        self.doubt(self.process, Obstacle::Device(path))
    }

    fn remove(&mut self, path: Path, error: u16) -> Result<(), Obstacle> {
        if error != 0 || self.is_counters(&path) {
            return self.look(How::There { follows: false }, path, error);
        }
        let name = self.name(&path);
        let state = self.paths.entry(name).or_default();
        match state.fate {
            Fate::Made => state.fate = Fate::Gone,
            Fate::Foreign if state.was_read => return Err(Obstacle::Replaces(self.show(&path))),
            // This is all right if the command makes the same content again.
            _ => state.was_removed = true,
        }
        state.shown.get_or_insert(path);
        Ok(())
    }

    fn make(&mut self, path: Path, is_folder: bool, error: u16) -> Result<(), Obstacle> {
        match i32::from(error) {
            0 if self.is_counters(&path) => self.doubt_counters(&path),
            _ if error == 0 && is_folder => self.becomes_made(path, Shape::Folder),
            _ if error == 0 => self.becomes_made(path, Shape::Odd),
            libc::EEXIST => self.look(How::There { follows: false }, path, 0),
            libc::ENOENT => self.look(How::There { follows: true }, path, error),
            _ => Err(Obstacle::Denied(self.show(&path))),
        }
    }

    /// The process, if a compiler begins in it.
    fn compiler(&mut self, access: &Access) -> Option<u32> {
        match &access.what {
            What::Begin { program, .. } if self.rules_for(program).compiles => Some(access.process),
            _ => None,
        }
    }
}
