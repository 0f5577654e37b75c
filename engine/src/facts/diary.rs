//! Predicts what the driver of a command would have done itself. It ran once for all commands of a shape (`crate::park`),
//! was observed, and need not run again.
//!
//! A *diary* has the driver's accesses before, between and after its parts, with placeholders for the names of one command.
//! It also keeps what the driver found at paths that no name of a command determines. If such a thing has changed, the
//! driver might act differently, and the diary says nothing. It is used only if it has predicted, to the last access, what
//! the driver did for other names.

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

/// The numbers of processes in a diary. No real process has such a number.
const FIRST: u32 = u32::MAX;

/// What the driver found at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
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
struct Deed {
    access: Access,
    texts: Vec<Text>,
    /// None for a path that the command itself names, and for an access that says nothing about the file system.
    seen: Option<Seen>,
}

#[derive(Debug)]
pub struct Diary {
    /// The accesses before each of the parts, and after the last one.
    chapters: Vec<Vec<Deed>>,
    /// Something has changed.
    is_past: AtomicBool,
}

/// A driver's observed accesses, and the names that it had been given.
pub struct Observed {
    pub accesses: Vec<Access>,
    /// The names in the command line, the file between the parts, and the folder.
    pub names: Names,
    /// The output of the last part. It makes no difference to a driver whether it already exists.
    pub output: Bytes,
}

/// A driver's actions for one command.
#[derive(Debug, Clone)]
pub struct Telling {
    pub diary: Arc<Diary>,
    pub names: Names,
}

impl Observed {
    /// In the form that all runs have in common: processes are numbered in order of appearance.
    fn even_out(&self) -> Vec<Access> {
        let mut processes = Vec::new();
        let mut number = |process: u32| {
            let known = processes.iter().position(|known| *known == process);
            let at = known.unwrap_or_else(|| {
                processes.push(process);
                processes.len() - 1
            });
            FIRST - at as u32
        };
        let even = |access: &Access| {
            let mut access = access.clone();
            access.process = number(access.process);
            // What was found is compared through `Seen`.
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
        self.accesses.iter().map(even).collect()
    }
}

impl Diary {
    /// From a run with placeholders as names. Each of them contains `stand_in`.
    pub fn learn(observed: &Observed, stand_in: &[u8], parts: usize) -> Result<Diary, String> {
        let folder = observed.names.len() - 1;
        let between = folder.saturating_sub(1);
        let (mut chapters, mut chapter) = (Vec::new(), Vec::new());
        for mut access in observed.even_out() {
            let texts = access.what.texts();
            let texts: Vec<_> = texts.iter().map(|text| Text::learn(text, &observed.names)).collect();
            if texts.iter().any(|text| text.holds(stand_in)) {
                return Err("it makes more of its names than can be followed".to_owned());
            }
            let is_between = texts.iter().any(|text| text.has_name(between));
            let is_named = texts.iter().any(|text| (0..folder).any(|name| text.has_name(name)));
            require_plain(&access, is_between, is_named)?;
            let ends = matches!(access.what, What::Execute { .. });
            let deed = Deed {
                seen: None,
                texts: if is_named || texts.iter().any(|text| text.has_name(folder)) {
                    texts
                } else {
                    Vec::new()
                },
                access,
            };
            chapter.push(deed);
            if ends {
                chapters.push(std::mem::take(&mut chapter));
            }
        }
        chapters.push(chapter);
        if chapters.len() != parts + 1 {
            return Err(format!("it was seen to start {} parts", chapters.len() - 1));
        }
        Ok(Diary {
            chapters,
            is_past: AtomicBool::new(false),
        })
    }

    /// Whether the driver of another command of the shape does exactly this.
    pub fn foretells(&self, observed: &Observed) -> bool {
        self.tell(&observed.names).concat() == observed.even_out()
    }

    /// The first access that was not predicted, for the log.
    pub fn find_otherwise(&self, observed: &Observed) -> Option<(Option<Access>, Option<Access>)> {
        let (told, real) = (self.tell(&observed.names).concat(), observed.even_out());
        let at = (0..told.len().max(real.len())).find(|at| told.get(*at) != real.get(*at))?;
        Some((told.get(at).cloned(), real.get(at).cloned()))
    }

    /// What the driver of a command finds at paths that the command itself does not name.
    pub fn look(&self, names: &[Bytes], view: &mut View) -> Vec<Option<Seen>> {
        let folder = names.len() - 1;
        let mut look = |deed: &Deed| {
            let is_named = deed
                .texts
                .iter()
                .any(|text| (0..folder).any(|name| text.has_name(name)));
            let is_begin = matches!(deed.access.what, What::Begin { .. });
            (is_begin || !is_named)
                .then(|| Seen::of(&deed.fill(names), view))
                .flatten()
        };
        self.chapters.iter().flatten().map(&mut look).collect()
    }

    /// Keeps what the driver has found.
    pub fn keep(&mut self, seen: Vec<Option<Seen>>) -> Result<(), String> {
        for (deed, seen) in self.chapters.iter_mut().flatten().zip(seen) {
            if seen.as_ref().is_some_and(|seen| !seen.agrees_with(deed)) {
                return Err(format!(
                    "not found again as its driver found it: {:?}",
                    deed.access.what
                ));
            }
            deed.seen = seen;
        }
        Ok(())
    }

    fn tell(&self, names: &[Bytes]) -> Vec<Vec<Access>> {
        let fill = |chapter: &Vec<Deed>| chapter.iter().map(|deed| deed.fill(names)).collect();
        self.chapters.iter().map(fill).collect()
    }

    /// Something has changed, so the course must be learned anew.
    pub fn is_past(&self) -> bool {
        self.is_past.load(Ordering::Relaxed)
    }
}

/// What a driver may do so that its actions for other names can be predicted.
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
        What::Enter { .. } | What::List { .. } | What::Date | What::Rename { .. } | What::Make { .. } => false,
    };
    if is_plain {
        Ok(())
    } else {
        Err(format!("its driver does more than can be foretold: {:?}", access.what))
    }
}

impl Deed {
    fn fill(&self, names: &[Bytes]) -> Access {
        let mut access = self.access.clone();
        for (text, pattern) in access.what.texts().into_iter().zip(&self.texts) {
            *text = pattern.fill(names);
        }
        access
    }
}

impl Seen {
    /// What an access finds now. None for accesses that say nothing about the file system.
    fn of(access: &Access, view: &mut View) -> Option<Seen> {
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
                Ok(()) => Seen::Absent,
                Err(kind) => Seen::Kind(kind),
            });
        }
        let found = match (&access.what, access.error) {
            (What::Resolve { .. }, 0) => view.resolved(&path).map(Seen::Real),
            (What::Link { .. }, 0) => view.target(&path).map(Seen::Target),
            (What::Find { .. } | What::Look { .. }, _) if follows => view.status(&path).map(|s| Seen::Kind(s.kind())),
            (What::Look { .. }, _) => view.status_of_name(&path).map(|s| Seen::Kind(s.kind())),
            _ => view.status(&path).map(Seen::File),
        };
        Some(found.unwrap_or_else(Seen::Failed))
    }

    /// Whether the driver has found the same. A path relative to the driver's folder may lead to something else for another
    /// command.
    fn agrees_with(&self, deed: &Deed) -> bool {
        let error = i32::from(deed.access.error);
        let is_of_folder = match &deed.access.what {
            What::Begin { .. } => false,
            What::Find { path } | What::Look { path, .. } if path == b"." => false,
            What::Find { path } | What::Look { path, .. } | What::Open { path, .. } => {
                !deed.texts.is_empty() || !path.starts_with(b"/")
            }
            _ => !deed.texts.is_empty(),
        };
        match self {
            Seen::Absent => error == libc::ENOENT,
            Seen::Failed(found) => error == found.raw_os_error(),
            _ => error == 0 && !is_of_folder,
        }
    }
}

impl Telling {
    /// All that the command did, including what its driver would have done. Each part must have been observed from its
    /// beginning.
    pub fn complete(&self, parts: Vec<Vec<Access>>) -> Vec<Access> {
        let chapters = self.diary.tell(&self.names);
        if chapters.len() != parts.len() + 1 {
            let why = "not all of its parts were observed";
            let (process, what, error) = (0, What::Blind { why }, 0);
            return vec![Access {
                process,
                what,
                error,
                identity: 0,
            }];
        }
        let mut parts = parts.into_iter();
        let together = chapters.into_iter().flat_map(|chapter| {
            let part = parts.next().unwrap_or_default();
            chapter.into_iter().chain(part)
        });
        together.collect()
    }

    /// The program that begins in place of the driver.
    pub fn first_part(&self) -> Option<PathBuf> {
        let last = self.diary.chapters.first()?.last()?;
        match last.fill(&self.names).what {
            What::Execute { path } => Some(OsString::from_vec(path).into()),
            _ => None,
        }
    }

    /// Whether the driver would have found everything unchanged. If not, the diary is not used any more.
    pub fn holds(&self, view: &mut View) -> bool {
        let now = self.diary.look(&self.names, view);
        let mut deeds = self.diary.chapters.iter().flatten();
        let holds = now
            .into_iter()
            .all(|seen| deeds.next().is_some_and(|deed| deed.seen == seen));
        if !holds {
            self.diary.is_past.store(true, Ordering::Relaxed);
        }
        holds
    }
}

#[cfg(test)]
mod tests;
