//! The course of a driver's command: the parts that the driver of gcc would run for it, so that the driver itself need not
//! run.
//!
//! It is learned for a shape of command lines, from a driver that ran and was told that its parts had succeeded (`survey`).

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::packet::Wanted;
use super::program::Identity;
use super::shape::STAND_IN;
use crate::bytes::text::{Names, Text};
use crate::facts::driver_model::{DriverModel, DriverPrediction};
use crate::process::context;
use crate::process::roster::{NotedFile, TemporaryFiles};
use crate::process::spawn::Launch;
use crate::wire::Strings;

/// The compiler proper, and the assembler.
pub const PARTS: usize = 2;
const ENDING: &[u8] = b".s";
/// How often the folders are checked in which a driver looks for its parts.
const SELDOM: Duration = Duration::from_millis(100);

/// A part of a command. It is started as the driver would have started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub argv: Strings,
    pub env: Strings,
    /// The limit of its stack.
    pub stack: [u64; 2],
}

impl Part {
    /// How it is started, if its whole command would be started like this.
    pub fn launch<'a>(&'a self, whole: &Launch<'a>) -> Launch<'a> {
        let [first, second, _] = &whole.own;
        Launch {
            argv: &self.argv,
            env: &self.env,
            own: [first.clone(), second.clone(), Some(context::stack(self.stack))],
            ..*whole
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Pattern {
    argv: Vec<Text>,
    env: Vec<Text>,
    stack: [u64; 2],
}

/// What all commands of a shape have in common.
#[derive(Debug)]
pub struct Course {
    patterns: [Pattern; PARTS],
    /// Where the driver puts the file between the parts.
    between: PathBuf,
    /// What the driver does itself, or why that is not known. If it is not known, the driver runs for commands that are
    /// observed.
    model: Result<Arc<DriverModel>, String>,
    /// The path of the driver that was surveyed.
    called: CString,
    watched: Vec<Watched>,
    checked: Mutex<Instant>,
}

/// A file or folder that the driver uses for its decisions, as it was when the course was learned.
#[derive(Debug)]
pub struct Watched {
    path: CString,
    identity: Option<Identity>,
}

/// A file between two parts, until it is dropped.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
    /// With this, the guardian removes the file if the engine is killed.
    _note: Option<NotedFile>,
}

/// What is left of a command that runs as its parts.
#[derive(Debug)]
pub struct NextParts {
    pub next: Option<Part>,
    /// How the parts ended that have run.
    pub statuses: Vec<i32>,
    /// The streams for its parts.
    pub streams: Arc<[Option<OwnedFd>; 3]>,
    /// The output of the last part.
    pub output: PathBuf,
    /// What its driver would do, if that must be known.
    pub driver: Option<DriverPrediction>,
    _temporary: Temporary,
}

impl Watched {
    pub fn at(path: &[u8]) -> Option<Watched> {
        let path = CString::new(path).ok()?;
        Some(Watched {
            identity: Identity::at(&path),
            path,
        })
    }

    fn is_current(&self) -> bool {
        Identity::at(&self.path) == self.identity
    }
}

impl Pattern {
    fn learn(wanted: &Wanted, names: &[Vec<u8>]) -> Pattern {
        Pattern {
            argv: wanted.argv().map(|word| Text::learn(word, names)).collect(),
            env: wanted.env().map(|entry| Text::learn(entry, names)).collect(),
            stack: wanted.context().limits[context::STACK],
        }
    }

    fn fill(&self, names: &[Vec<u8>]) -> Part {
        Part {
            argv: self.argv.iter().map(|word| word.fill(names)).collect(),
            env: self.env.iter().map(|entry| entry.fill(names)).collect(),
            stack: self.stack,
        }
    }

    fn holds(&self, text: &[u8]) -> bool {
        self.argv.iter().chain(&self.env).any(|word| word.holds(text))
    }
}

/// The file that the first part leaves for the second.
pub fn find_between(parts: &[Wanted; PARTS]) -> Option<Vec<u8>> {
    let mut words = parts[0].argv();
    words.find(|word| *word == b"-o")?;
    let between = words.next().filter(|word| word.ends_with(ENDING))?;
    let is_told = parts[1].argv().any(|word| word == between);
    (is_told && between.starts_with(b"/")).then(|| between.to_vec())
}

impl Course {
    /// From the parts of a command with `stand_ins` as its names.
    pub fn learn(
        parts: &[Wanted; PARTS],
        stand_ins: &[Vec<u8>],
        watched: Vec<Watched>,
        called: &CStr,
    ) -> Result<Course, String> {
        let between = find_between(parts).ok_or("its parts are not a compiler and an assembler")?;
        if parts.iter().any(|part| part.argv().next() != Some(part.name())) {
            return Err("a part is called otherwise than its file".to_owned());
        }
        let names: Names = stand_ins.iter().cloned().chain([between.clone()]).collect();
        let patterns = parts.each_ref().map(|part| Pattern::learn(part, &names));
        if patterns.iter().any(|pattern| pattern.holds(STAND_IN)) {
            return Err("it makes more of its names than can be followed".to_owned());
        }
        let between = Path::new(OsStr::from_bytes(&between)).parent().map(Path::to_owned);
        Ok(Course {
            patterns,
            between: between.unwrap_or_default(),
            model: Err(String::new()),
            called: called.to_owned(),
            watched,
            checked: Mutex::new(Instant::now()),
        })
    }

    /// Whether another command of the shape has exactly these parts.
    pub fn foretells(&self, parts: &[Wanted; PARTS], names: &[Vec<u8>]) -> bool {
        let Some(between) = find_between(parts) else {
            return false;
        };
        let names: Names = names.iter().cloned().chain([between]).collect();
        let told = parts.each_ref().map(|part| Part {
            argv: part.argv().collect(),
            env: part.env().collect(),
            stack: part.context().limits[context::STACK],
        });
        told == self.patterns.each_ref().map(|pattern| pattern.fill(&names))
    }

    pub fn with_model(self, model: Result<DriverModel, String>) -> Course {
        let model = model.map(Arc::new);
        Course { model, ..self }
    }

    pub fn model(&self) -> Result<&Arc<DriverModel>, &str> {
        self.model.as_ref().map_err(String::as_str)
    }

    /// The actions of a driver that is called by this path.
    pub fn model_for(&self, called: &CStr) -> Result<Arc<DriverModel>, &'static str> {
        let model = self.model().map_err(|_| "what its driver does is not known")?;
        if *self.called == *called {
            Ok(model.clone())
        } else {
            Err("its driver is called by another path")
        }
    }

    /// Whether the driver would still find the same. This is checked now and then; the parts themselves are checked for
    /// every command.
    pub fn is_current(&self) -> bool {
        if self.model.as_ref().is_ok_and(|model| model.is_outdated()) {
            return false;
        }
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.elapsed() < SELDOM {
            return true;
        }
        *checked = Instant::now();
        drop(checked);
        self.is_as_watched()
    }

    /// The same, checked now.
    pub fn is_as_watched(&self) -> bool {
        self.watched.iter().all(Watched::is_current)
    }

    /// The parts of a command with these names, to which the name of the file between them is added.
    pub fn parts(
        &self,
        names: &mut Names,
        temporary_files: &Arc<TemporaryFiles>,
    ) -> io::Result<([Part; PARTS], Temporary)> {
        let temporary = Temporary::new(&self.between, temporary_files)?;
        names.push(temporary.path.as_os_str().as_bytes().to_vec());
        let parts = self.patterns.each_ref().map(|pattern| pattern.fill(names));
        Ok((parts, temporary))
    }
}

impl NextParts {
    pub fn new(next: Part, output: PathBuf, streams: Arc<[Option<OwnedFd>; 3]>, temporary: Temporary) -> NextParts {
        NextParts {
            next: Some(next),
            statuses: Vec::new(),
            streams,
            output,
            driver: None,
            _temporary: temporary,
        }
    }
}

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const TRIES: usize = 16;

impl Temporary {
    /// A new empty file, as the driver makes it: the assembler names it in its messages.
    fn new(folder: &Path, temporary_files: &Arc<TemporaryFiles>) -> io::Result<Temporary> {
        for _ in 0..TRIES {
            let mut random = [0; 6];
            getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
            let letters = random.map(|b| char::from(LETTERS[usize::from(b) % LETTERS.len()]));
            let name = format!("cc{}.s", String::from_iter(letters));
            let path = folder.join(name);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
                Ok(_) => {
                    let _note = temporary_files.note(&path);
                    return Ok(Temporary { path, _note });
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
