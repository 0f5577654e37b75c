//! Where the processes of a command are, and which spellings of a path mean the same.
//!
//! It knows nothing of the actions on these paths.

use super::obstacle::Obstacle;
use super::shell::is_known;
use super::{Analysis, How};
use crate::facts::path::{below, is_tidy, last_name, split, tidy, trimmed, Path, Root};
use crate::observe::access::Bytes;
use crate::observe::known_programs::{
    asks_idly, hides_times, is_of_go, Family, ProgramRules, Seeds, GO, OWN_CALLS, UNKNOWN,
};

static COMMAND_FOLDER: Path = Path {
    root: Root::Folder,
    rest: Vec::new(),
};

impl Analysis<'_, '_, '_> {
    pub(super) fn begin(
        &mut self,
        process: u32,
        program: &[u8],
        folder: &[u8],
        (parent, is_traced): (u32, bool),
    ) -> Result<(), Obstacle> {
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
        self.now = self.begin_program(process, program, is_traced)?;
        let program = self.path(process, program)?;
        self.note_code(&program);
        self.look(How::Run, program, 0)
    }

    fn begin_program(&mut self, process: u32, program: &[u8], is_traced: bool) -> Result<ProgramRules, Obstacle> {
        let mut rules = self.rules_for(program);
        if rules == UNKNOWN && is_of_go(program) {
            if !is_traced {
                return Err(Obstacle::Blind(OWN_CALLS));
            }
            rules = GO;
        }
        if is_traced {
            // Its uses of variables are not seen.
            rules.asks = false;
            self.traced.insert(process);
        } else {
            self.traced.remove(&process);
        }
        self.is_traced = is_traced;
        self.guarded.remove(&process);
        self.settle_code(process, false);
        self.toolchains.remove(&process);
        if rules.finds_crates {
            self.toolchains.insert(process, toolchain(program).to_vec());
        }
        let heeds_times = rules == UNKNOWN || rules.seeds == Seeds::First;
        self.telling_times
            .insert(process, heeds_times && !(is_installed(program) && hides_times(program)));
        if let Some(own) = self.knowledge.rehearsed {
            let is_known = rules != UNKNOWN && rules != GO;
            let came_with = |folder: &Bytes| below(folder, program).is_some();
            let is_installed = is_installed(program) || self.toolchains.values().any(came_with);
            let asks_idly = is_known || is_installed && asks_idly(program) || is_named(program, own);
            self.asking_idly.insert(process, asks_idly);
        }
        let is_first = self.rules.insert(process, rules).is_none() && self.rules.len() == 1;
        if is_first && !is_traced && self.knowledge.policy.shell && is_known(program) {
            self.shell = Some(process);
        } else {
            self.shell = self.shell.filter(|shell| *shell != process);
            self.others_ask &= rules.asks;
        }
        self.reading.remove(&process);
        self.all_ask &= rules.asks;
        self.all_compile &= rules.compiles;
        self.some_compile |= rules.compiles && !rules.finds_crates;
        self.some_listen |= rules.listens;
        Ok(rules)
    }

    /// The rules for a program, by its name, if it came with the system or has the marks that all programs of this name
    /// have.
    pub(super) fn rules_for(&mut self, program: &[u8]) -> ProgramRules {
        match Family::of(program) {
            Some(family) if is_installed(program) || self.view.is_marked(program, family) => family.rules,
            _ => UNKNOWN,
        }
    }

    fn leads_to(&mut self, path: &Path, folder: &[u8]) -> bool {
        let name = self.view.place.absolute(path);
        trimmed(&name) == trimmed(folder) || self.real(&name).as_deref() == Some(folder)
    }

    pub(super) fn enter(&mut self, process: u32, given: &[u8], error: u16) -> Result<(), Obstacle> {
        let path = self.path(process, given)?;
        if error == 0 {
            self.folders.insert(process, path.clone());
        }
        self.look(How::There { follows: true }, path, error)
    }

    pub(super) fn path(&self, process: u32, given: &[u8]) -> Result<Path, Obstacle> {
        Ok(self.view.place.path(self.here(process, given)?, given))
    }

    /// The folder of the process, to which it gave this path.
    pub(super) fn here(&self, process: u32, given: &[u8]) -> Result<&Path, Obstacle> {
        match self.folders.get(&process) {
            Some(here) => Ok(here),
            None if given.first() == Some(&b'/') => Ok(&COMMAND_FOLDER),
            // A child that never became a program is where its parent was, as long as all processes are in one folder.
            None => match &self.first {
                Some(first) if self.folders.values().all(|other| other == first) => Ok(first),
                _ => Err(Obstacle::UnknownProcess),
            },
        }
    }

    /// The real name of the folder, as it is now.
    pub(super) fn real(&mut self, folder: &[u8]) -> Option<Bytes> {
        self.view.real(folder)
    }

    /// One spelling for all spellings of a path, as long as its folder still exists.
    pub(super) fn name(&mut self, path: &Path) -> Bytes {
        let absolute = self.view.place.absolute(path);
        self.name_of(&absolute)
    }

    /// The same for the absolute name of a path.
    pub(super) fn name_of(&mut self, absolute: &[u8]) -> Bytes {
        let name = trimmed(absolute);
        let Some((folder, last)) = split(name) else {
            return self.real(name).unwrap_or_else(|| name.to_vec());
        };
        let mut name = self.real(folder).unwrap_or_else(|| folder.to_vec());
        name.reserve_exact(last.len() + 1);
        name.push(b'/');
        name.extend_from_slice(last);
        match is_tidy(&name) {
            true => name,
            false => tidy(&name),
        }
    }

    pub(super) fn show(&self, path: &Path) -> String {
        self.view.place.show(path)
    }
}

/// Whether the program has one of these names. `*` is all names.
fn is_named(program: &[u8], names: &[Bytes]) -> bool {
    let last = last_name(program);
    names.iter().any(|name| name == last || name == b"*")
}

/// The folder of a compiler's installation, by the path of its program.
fn toolchain(program: &[u8]) -> &[u8] {
    let parent = |path| split(path).map_or(&b""[..], |(folder, _)| folder);
    parent(parent(program))
}

/// Whether the program came with the system.
pub(super) fn is_installed(path: &[u8]) -> bool {
    const FOLDERS: [&[u8]; 6] = [b"/usr", b"/bin", b"/sbin", b"/lib", b"/lib64", b"/lib32"];
    let is_in = |folder: &[u8]| below(folder, path).is_some();
    FOLDERS.into_iter().any(is_in) && !is_in(b"/usr/local")
}
