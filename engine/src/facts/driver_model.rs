//! Predicts what the driver of a command would have done itself. It ran once for all commands of a shape (`crate::park`),
//! was observed, and need not run again.
//!
//! A *model* of a driver has its accesses before, between and after its parts, with placeholders for the names of one
//! command. It also keeps what the driver found at paths that no name of a command determines. If such a thing has changed,
//! the driver might act differently, and the model is not used. It is used only if it has predicted, to the last access,
//! what the driver did for other names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rustix::io::Errno;

use super::exception::special;
use super::fact::Kind;
use super::path::Path;
use super::status::Status;
use super::world::View;
use crate::bytes::text::{Names, Text};
use crate::observe::access::{Access, Bytes, What};

/// The number of the first process in a model; the next ones are lower. No real process has such a number.
const FIRST: u32 = u32::MAX;

/// A file that the driver found at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Read or executed.
    File(Status),
    /// Only looked at.
    Kind(Kind),
    /// Without links.
    Real(Bytes),
    /// The target of a link.
    Target(Bytes),
    Absent,
    Failed(Errno),
}

#[derive(Debug)]
struct ModelAccess {
    access: Access,
    texts: Vec<Text>,
    /// None for a path that the command itself names, and for an access that says nothing about the file system.
    found: Option<Found>,
}

#[derive(Debug)]
pub struct DriverModel {
    /// The accesses before each of the parts, and after the last one.
    sections: Vec<Vec<ModelAccess>>,
    /// Something that the driver found has changed.
    is_outdated: AtomicBool,
}

/// A driver's observed accesses, and the names that it had been given.
pub struct Observed {
    pub accesses: Vec<Access>,
    /// The names in the command line, the file between the parts, and the folder.
    pub names: Names,
    /// The output of the last part. It makes no difference to a driver whether it already exists.
    pub output: Bytes,
}

/// A driver's predicted accesses for one command.
#[derive(Debug, Clone)]
pub struct DriverPrediction {
    pub model: Arc<DriverModel>,
    pub names: Names,
}

impl Observed {
    /// In the form that all runs have in common: processes are numbered in order of appearance.
    fn normalized(&self) -> Vec<Access> {
        let mut processes = Vec::new();
        let mut number = |process: u32| {
            let known = processes.iter().position(|known| *known == process);
            let at = known.unwrap_or_else(|| {
                processes.push(process);
                processes.len() - 1
            });
            FIRST - at as u32
        };
        let normalize = |access: &Access| {
            let mut access = access.clone();
            access.process = number(access.process);
            // The files that were found are compared through `Found`.
            access.identity = 0;
            match &mut access.what {
                What::Begin { parent, .. } => *parent = 0,
                What::Find { path } | What::Look { path, .. } | What::Resolve { path } if *path == self.output => {
                    access.error = Errno::NOENT.raw_os_error() as u16;
                }
                _ => {}
            }
            access
        };
        self.accesses.iter().map(normalize).collect()
    }
}

impl DriverModel {
    /// From a run with placeholders as names. Each of them contains `stand_in`.
    pub fn learn(observed: &Observed, stand_in: &[u8], parts: usize) -> Result<DriverModel, String> {
        let folder = observed.names.len() - 1;
        let between = folder.saturating_sub(1);
        let (mut sections, mut section) = (Vec::new(), Vec::new());
        for mut access in observed.normalized() {
            let texts = access.what.texts();
            let texts: Vec<_> = texts.iter().map(|text| Text::learn(text, &observed.names)).collect();
            if texts.iter().any(|text| text.holds(stand_in)) {
                return Err("it makes more of its names than can be followed".to_owned());
            }
            let is_between = texts.iter().any(|text| text.has_name(between));
            let is_named = texts.iter().any(|text| (0..folder).any(|name| text.has_name(name)));
            require_plain(&access, is_between, is_named)?;
            let ends = matches!(access.what, What::Execute { .. });
            let access = ModelAccess {
                found: None,
                texts: if is_named || texts.iter().any(|text| text.has_name(folder)) {
                    texts
                } else {
                    Vec::new()
                },
                access,
            };
            section.push(access);
            if ends {
                sections.push(std::mem::take(&mut section));
            }
        }
        sections.push(section);
        if sections.len() != parts + 1 {
            return Err(format!("it was seen to start {} parts", sections.len() - 1));
        }
        Ok(DriverModel {
            sections,
            is_outdated: AtomicBool::new(false),
        })
    }

    /// The first access of the driver of another command of the shape that was not predicted, if there is one.
    pub fn find_mismatch(&self, observed: &Observed) -> Option<(Option<Access>, Option<Access>)> {
        let (told, real) = (self.accesses_for(&observed.names).concat(), observed.normalized());
        let at = (0..told.len().max(real.len())).find(|at| told.get(*at) != real.get(*at))?;
        Some((told.get(at).cloned(), real.get(at).cloned()))
    }

    /// The files that the driver of a command finds now, at paths that the command itself does not name.
    pub fn find_now(&self, names: &[Bytes], view: &mut View) -> Vec<Option<Found>> {
        let folder = names.len() - 1;
        let mut find = |expected: &ModelAccess| {
            let is_named = expected
                .texts
                .iter()
                .any(|text| (0..folder).any(|name| text.has_name(name)));
            let is_begin = matches!(expected.access.what, What::Begin { .. });
            (is_begin || !is_named)
                .then(|| Found::of(&expected.fill(names), view))
                .flatten()
        };
        self.sections.iter().flatten().map(&mut find).collect()
    }

    /// Keeps the files that the driver has found.
    pub fn keep_found(&mut self, found: Vec<Option<Found>>) -> Result<(), String> {
        for (expected, found) in self.sections.iter_mut().flatten().zip(found) {
            if found.as_ref().is_some_and(|found| !found.agrees_with(expected)) {
                return Err(format!(
                    "not found again as its driver found it: {:?}",
                    expected.access.what
                ));
            }
            expected.found = found;
        }
        Ok(())
    }

    fn accesses_for(&self, names: &[Bytes]) -> Vec<Vec<Access>> {
        let fill = |section: &Vec<ModelAccess>| section.iter().map(|access| access.fill(names)).collect();
        self.sections.iter().map(fill).collect()
    }

    /// Something has changed, so the course must be learned anew.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }
}

/// Checks that a driver does only what can be predicted for other names.
fn require_plain(access: &Access, is_between: bool, is_named: bool) -> Result<(), String> {
    let is_plain = match &access.what {
        What::Begin { .. }
        | What::Ask { .. }
        | What::Anchor
        | What::Locate
        | What::Time
        | What::Random
        | What::Measure
        | What::Number => true,
        What::Blind { why } => return Err(format!("its driver could not be observed: {why}")),
        What::Execute { path } => path.starts_with(b"/") && !is_named && access.error == 0,
        What::Load { .. } | What::Link { .. } => !is_named,
        What::Find { .. } | What::Look { .. } | What::Resolve { .. } => true,
        What::Open { path, mode } if special(path).is_none() => {
            let changes = mode.writes || mode.creates || mode.truncates;
            is_between && access.error == 0 || !is_named && !changes
        }
        What::Open { .. } => true,
        What::Remove { .. } => is_between && access.error == 0,
        What::Enter { .. }
        | What::List { .. }
        | What::Listed { .. }
        | What::Crate { .. }
        | What::Guarded
        | What::Date
        | What::Rename { .. }
        | What::Make { .. } => false,
    };
    if is_plain {
        Ok(())
    } else {
        Err(format!("its driver does more than can be foretold: {:?}", access.what))
    }
}

impl ModelAccess {
    fn fill(&self, names: &[Bytes]) -> Access {
        let mut access = self.access.clone();
        for (text, pattern) in access.what.texts().into_iter().zip(&self.texts) {
            *text = pattern.fill(names);
        }
        access
    }
}

impl Found {
    /// What an access finds now. None for accesses that say nothing about the file system.
    fn of(access: &Access, view: &mut View) -> Option<Found> {
        let (given, follows) = match &access.what {
            What::Begin { program, .. } => (program, true),
            What::Execute { path } | What::Load { path } | What::Open { path, .. } => (path, true),
            What::Find { path } | What::Resolve { path } => (path, true),
            What::Look { path, follows } => (path, *follows),
            What::Link { path } => (path, false),
            _ => return None,
        };
        let path = view.place.path(&Path::here(), given);
        if special(&view.place.absolute(&path)).is_some() {
            return None;
        }
        if i32::from(access.error) == libc::ENOENT {
            return Some(match view.lacks(&path, follows) {
                Ok(()) => Found::Absent,
                Err(kind) => Found::Kind(kind),
            });
        }
        let found = match (&access.what, access.error) {
            (What::Resolve { .. }, 0) => view.resolved(&path).map(Found::Real),
            (What::Link { .. }, 0) => view.target(&path).map(Found::Target),
            (What::Find { .. } | What::Look { .. }, _) if follows => view.status(&path).map(|s| Found::Kind(s.kind())),
            (What::Look { .. }, _) => view.status_of_name(&path).map(|s| Found::Kind(s.kind())),
            _ => view.status(&path).map(Found::File),
        };
        Some(found.unwrap_or_else(Found::Failed))
    }

    /// Whether the driver has found the same. A path relative to the driver's folder may lead to something else for another
    /// command.
    fn agrees_with(&self, expected: &ModelAccess) -> bool {
        let error = i32::from(expected.access.error);
        let is_of_folder = match &expected.access.what {
            What::Begin { .. } => false,
            What::Find { path } | What::Look { path, .. } if path == b"." => false,
            What::Find { path } | What::Look { path, .. } | What::Open { path, .. } => {
                !expected.texts.is_empty() || !path.starts_with(b"/")
            }
            _ => !expected.texts.is_empty(),
        };
        match self {
            Found::Absent => error == libc::ENOENT,
            Found::Failed(found) => error == found.raw_os_error(),
            _ => error == 0 && !is_of_folder,
        }
    }
}

impl DriverPrediction {
    /// All that the command did, including what its driver would have done. Each part must have been observed from its
    /// beginning.
    pub fn complete(&self, parts: Vec<Vec<Access>>) -> Vec<Access> {
        let sections = self.model.accesses_for(&self.names);
        if sections.len() != parts.len() + 1 {
            return vec![Access::blind("not all of its parts were observed")];
        }
        let mut parts = parts.into_iter();
        let together = sections.into_iter().flat_map(|section| {
            let part = parts.next().unwrap_or_default();
            section.into_iter().chain(part)
        });
        together.collect()
    }

    /// The program that begins in place of the driver.
    pub fn first_part(&self) -> Option<PathBuf> {
        let last = self.model.sections.first()?.last()?;
        match last.fill(&self.names).what {
            What::Execute { path } => Some(OsString::from_vec(path).into()),
            _ => None,
        }
    }

    /// Whether the driver would have found everything unchanged. If not, the model is not used any more.
    pub fn holds(&self, view: &mut View) -> bool {
        let now = self.model.find_now(&self.names, view);
        let mut accesses = self.model.sections.iter().flatten();
        let holds = now
            .into_iter()
            .all(|found| accesses.next().is_some_and(|access| access.found == found));
        if !holds {
            self.model.is_outdated.store(true, Ordering::Relaxed);
        }
        holds
    }
}

#[cfg(test)]
mod tests;
