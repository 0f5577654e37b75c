//! One thing on which a command's result depends: what it was when the command ran, and how to find out whether it still
//! is.
//!
//! A fact is checked, written and put into words in this file only, so that the three cannot differ.

use std::collections::HashMap;
use std::fmt;

use rustix::io::Errno;

use super::definitions::{Comments, Unused};
use super::environment::{BASES, CHECKOUT, IN_DOUBT, PROOF};
use super::exception::{ALONG, LIBC};
use super::path::{Path, Root};
use super::processor::PROCESSOR;
use super::world::View;
use crate::bytes::digest::Digest;

/// The kind of a thing, for programs that do not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    File,
    /// A plain file that some user may execute.
    Program,
    Folder,
    Link,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// A variable had this value, or was not set.
    Variable { name: Vec<u8>, value: Option<Vec<u8>> },
    /// The environment had these names.
    Names { digest: Digest },
    /// The command asked for its folder: the folder's name counts.
    Folder { path: Vec<u8> },
    /// A file was read, executed or loaded.
    File { path: Path, digest: Digest },
    /// Files with the same content. Compilers leave out an include if it is the same file as an earlier one, or equally
    /// old.
    Twins { twins: Vec<Twin> },
    /// Something was looked at, and was of this kind. Folders are numbered in order of appearance, because compilers search
    /// one folder once, whatever it is called.
    There {
        path: Path,
        kind: Kind,
        follows: bool,
        number: u32,
    },
    /// The status of something was read by a program of which it is not known which part it uses.
    Status {
        path: Path,
        follows: bool,
        size: u64,
        mode: u32,
        seconds: i64,
        nanoseconds: u32,
    },
    /// The target of a link was read.
    Target { path: Path, text: Vec<u8> },
    /// A path was resolved, as it was spelled. If the name of the command's folder does not matter, the result has the form
    /// that other checkouts can share.
    Resolved { path: Path, real: Path },
    /// A folder was listed, perhaps by a program that uses the order of names.
    Listing { path: Path, digest: Digest, in_order: bool },
    /// A folder was listed by rustc, to which only names of crates count that begin like this.
    Crates {
        path: Path,
        beginnings: Vec<Vec<u8>>,
        digest: Digest,
    },
    /// Something was looked for and was not there.
    Absent { path: Path, follows: bool },
    /// Access to something failed for another reason.
    Refused { path: Path, opens: bool, error: u16 },
    /// A source or header was read that says something of its checkout that nothing uses. The digest leaves this out.
    Except { path: Path, unused: Unused, digest: Digest },
}

/// One of several files with the same content. Files and times are numbered in order of appearance, so that one number per
/// file says for all pairs whether they are the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Twin {
    pub path: Path,
    /// The number of the file.
    pub file: u32,
    /// The number of the second in which it was written. Compilers compare whole seconds.
    pub second: u32,
}

/// A fact that is not true any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Variable {
        name: Vec<u8>,
        was: Option<Vec<u8>>,
        is: Option<Vec<u8>>,
    },
    Names,
    Folder {
        was: Vec<u8>,
        is: Vec<u8>,
    },
    Content {
        path: String,
    },
    Twins {
        path: String,
        other: String,
    },
    Kind {
        path: String,
        was: Kind,
        is: Kind,
    },
    /// Another of the folders has become the same as this one, or is not the same any more.
    Number {
        path: String,
    },
    Status {
        path: String,
    },
    Target {
        path: String,
        was: Vec<u8>,
        is: Vec<u8>,
    },
    Resolved {
        path: String,
    },
    Listing {
        path: String,
    },
    Appeared {
        path: String,
    },
    Vanished {
        path: String,
    },
    /// Access was refused for one reason, and is now refused for another, or not at all.
    Refusal {
        path: String,
        was: u16,
        is: Option<u16>,
    },
    /// Its name begins with that of a base folder, which it did not when the entry was made.
    Beside {
        path: String,
    },
    /// It was there, and cannot be read now.
    Unreadable {
        path: String,
        error: u16,
    },
}

impl Kind {
    pub fn is_plain(self) -> bool {
        matches!(self, Kind::File | Kind::Program)
    }

    pub fn of_number(number: u8) -> Option<Kind> {
        let all = [Kind::File, Kind::Program, Kind::Folder, Kind::Link, Kind::Other];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

impl Fact {
    pub fn check(&self, view: &mut View) -> Result<(), Change> {
        match self {
            Fact::Variable { name, value } => check_variable(name, value.as_deref(), view),
            Fact::Names { digest } => {
                let is = view.environment.names(view.place.folder());
                require(is == *digest, || Change::Names)
            }
            Fact::Folder { path } => {
                let is = view.place.folder();
                let change = || Change::Folder {
                    was: path.clone(),
                    is: is.to_vec(),
                };
                require(is == path, change)
            }
            Fact::File { path, digest } => {
                let (_, is) = view.digest(path).map_err(|error| lost(view, path, error))?;
                require(is == *digest, || Change::Content {
                    path: view.place.show(path),
                })
            }
            Fact::Twins { twins } => check_twins(twins, view),
            Fact::There {
                path,
                kind,
                follows,
                number,
            } => check_kind(path, *kind, *follows, *number, view),
            Fact::Status { path, follows, .. } => {
                let is = Fact::status(path.clone(), *follows, view).map_err(|error| lost(view, path, error))?;
                require(is == *self, || Change::Status {
                    path: view.place.show(path),
                })
            }
            Fact::Target { path, text } => {
                let is = view.target(path).map_err(|error| lost(view, path, error))?;
                let change = || Change::Target {
                    path: view.place.show(path),
                    was: text.clone(),
                    is: is.clone(),
                };
                require(is == *text, change)
            }
            Fact::Resolved { path, real } => {
                let is = view.resolved(path).map_err(|error| lost(view, path, error))?;
                let is = match real.root {
                    Root::Absolute => Path {
                        root: Root::Absolute,
                        rest: is,
                    },
                    Root::Folder | Root::Base(_) => view.place.resolved(path, &is),
                };
                require(is == *real, || Change::Resolved {
                    path: view.place.show(path),
                })
            }
            Fact::Listing { path, digest, in_order } => {
                let is = view.listing(path).map_err(|error| lost(view, path, error))?;
                require(is.told(*in_order) == *digest, || Change::Listing {
                    path: view.place.show(path),
                })
            }
            Fact::Crates {
                path,
                beginnings,
                digest,
            } => {
                let is = view.crates(path).map_err(|error| lost(view, path, error))?;
                require(is.digest(beginnings) == *digest, || Change::Listing {
                    path: view.place.show(path),
                })
            }
            Fact::Absent { path, follows } => {
                let is = view.lacks(path, *follows);
                is.map_err(|_| Change::Appeared {
                    path: view.place.show(path),
                })
            }
            Fact::Refused { path, opens, error } => {
                let is = view.refusal(path, *opens).map(number_of);
                let change = || Change::Refusal {
                    path: view.place.show(path),
                    was: *error,
                    is,
                };
                require(is == Some(*error), change)
            }
            Fact::Except { path, unused, digest } => {
                let is = view.digest_except(path, unused);
                let is = is.map_err(|error| lost(view, path, error))?;
                require(is == *digest, || Change::Content {
                    path: view.place.show(path),
                })
            }
        }
    }

    /// The status of something, for a program of which it is not known which part of it counts. The size and time of a folder
    /// depend on the files in it, which may be the command's own results, so they are left out.
    pub fn status(path: Path, follows: bool, view: &mut View) -> Result<Fact, Errno> {
        let is = view.status_at(&path, follows)?;
        let counts = is.kind() != Kind::Folder;
        Ok(Fact::Status {
            path,
            follows,
            size: if counts { is.size } else { 0 },
            mode: is.mode,
            seconds: if counts { is.written.seconds } else { 0 },
            nanoseconds: if counts { is.written.nanoseconds } else { 0 },
        })
    }

    pub fn twins(paths: &[Path], view: &mut View) -> Result<Fact, Change> {
        let (mut files, mut seconds) = (HashMap::new(), HashMap::new());
        let mut twin = |path: &Path| {
            let (file, second) = file_and_second(path, view)?;
            let (next_file, next_second) = (files.len() as u32, seconds.len() as u32);
            Ok(Twin {
                path: path.clone(),
                file: *files.entry(file).or_insert(next_file),
                second: *seconds.entry(second).or_insert(next_second),
            })
        };
        let twins = paths.iter().map(&mut twin).collect::<Result<_, Change>>()?;
        Ok(Fact::Twins { twins })
    }

    /// The path of the fact, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Fact::Variable { .. } | Fact::Names { .. } | Fact::Folder { .. } => None,
            Fact::Twins { twins } => twins.first().map(|twin| &twin.path),
            Fact::File { path, .. }
            | Fact::There { path, .. }
            | Fact::Status { path, .. }
            | Fact::Target { path, .. }
            | Fact::Resolved { path, .. }
            | Fact::Listing { path, .. }
            | Fact::Crates { path, .. }
            | Fact::Absent { path, .. }
            | Fact::Refused { path, .. }
            | Fact::Except { path, .. } => Some(path),
        }
    }

    /// For a file that was read: its digest, and what is left out of it.
    pub fn content(&self) -> Option<(&Path, &Digest, Option<&Unused>)> {
        match self {
            Fact::File { path, digest } => Some((path, digest, None)),
            Fact::Except { path, unused, digest } => Some((path, digest, Some(unused))),
            _ => None,
        }
    }

    /// The names of base folders count.
    pub fn is_about_bases(&self) -> bool {
        matches!(self, Fact::Variable { name, .. } if name == BASES)
    }
}

fn require(holds: bool, change: impl FnOnce() -> Change) -> Result<(), Change> {
    if holds {
        Ok(())
    } else {
        Err(change())
    }
}

fn check_variable(name: &[u8], was: Option<&[u8]>, view: &mut View) -> Result<(), Change> {
    let found = name.strip_prefix(ALONG).and_then(|program| view.along(program));
    let is = found.as_deref().or_else(|| view.environment.value(name));
    let change = || Change::Variable {
        name: name.to_vec(),
        was: was.map(<[u8]>::to_vec),
        is: is.map(<[u8]>::to_vec),
    };
    require(is == was, change)
}

fn check_kind(path: &Path, was: Kind, follows: bool, number: u32, view: &mut View) -> Result<(), Change> {
    let status = view.status_at(path, follows).map_err(|error| lost(view, path, error))?;
    let is = status.kind();
    let change = || Change::Kind {
        path: view.place.show(path),
        was,
        is,
    };
    require(is == was, change)?;
    let is_same = is != Kind::Folder || view.number(&status) == number;
    require(is_same, || Change::Number {
        path: view.place.show(path),
    })
}

type Identity = (u64, u64);

/// Whether each file is the same file, and as old, as the first one with its numbers, and all those first ones differ. Then
/// every pair is as it was.
fn check_twins(twins: &[Twin], view: &mut View) -> Result<(), Change> {
    let (mut files, mut seconds) = (Firsts(Vec::new()), Firsts(Vec::new()));
    let mut compare = || {
        for (at, twin) in twins.iter().enumerate() {
            let (file, second) = file_and_second(&twin.path, view)?;
            files.add(twin.file, file, at)?;
            seconds.add(twin.second, second, at)?;
        }
        files.require_different()?;
        seconds.require_different()
    };
    compare().map_err(|unlike| match unlike {
        Unlike::Lost(change) => change,
        Unlike::Pair(one, two) => Change::Twins {
            path: view.place.show(&twins[one].path),
            other: view.place.show(&twins[two].path),
        },
    })
}

enum Unlike {
    Lost(Change),
    Pair(usize, usize),
}

impl From<Change> for Unlike {
    fn from(change: Change) -> Unlike {
        Unlike::Lost(change)
    }
}

/// The first file with each number, and its position.
struct Firsts<T>(Vec<(T, usize)>);

impl<T: Ord + Copy> Firsts<T> {
    fn add(&mut self, number: u32, value: T, at: usize) -> Result<(), Unlike> {
        match self.0.get(number as usize) {
            None => self.0.push((value, at)),
            Some((first, _)) if *first == value => {}
            Some((_, place)) => return Err(Unlike::Pair(*place, at)),
        }
        Ok(())
    }

    fn require_different(&mut self) -> Result<(), Unlike> {
        self.0.sort_unstable();
        let same = self.0.windows(2).find(|pair| pair[0].0 == pair[1].0);
        same.map_or(Ok(()), |pair| Err(Unlike::Pair(pair[0].1, pair[1].1)))
    }
}

fn file_and_second(path: &Path, view: &mut View) -> Result<(Identity, i64), Change> {
    let status = view.status(path).map_err(|error| lost(view, path, error))?;
    Ok(((status.device, status.inode), status.written.seconds))
}

fn lost(view: &View, path: &Path, error: Errno) -> Change {
    let path = view.place.show(path);
    match error {
        Errno::NOENT => Change::Vanished { path },
        error => Change::Unreadable {
            path,
            error: number_of(error),
        },
    }
}

fn number_of(error: Errno) -> u16 {
    error.raw_os_error() as u16
}

/// A text as people are shown it.
pub struct Words<'a>(pub &'a [u8]);

impl fmt::Display for Words<'_> {
    /// In quotes, and shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ENOUGH: usize = 60;
        let text = String::from_utf8_lossy(self.0);
        match text.char_indices().nth(ENOUGH) {
            Some((at, _)) => write!(f, "'{}…'", text[..at].escape_debug()),
            None => write!(f, "'{}'", text.escape_debug()),
        }
    }
}

fn shown_name(name: &[u8]) -> std::borrow::Cow<'_, str> {
    match name {
        PROCESSOR => "the processor".into(),
        LIBC => "what the C library is told".into(),
        BASES => "the checkout's folder, which a source or the result names,".into(),
        CHECKOUT => "the checkout's folder, which a word of the command line names,".into(),
        name => match name.strip_prefix(ALONG) {
            Some(program) => format!("{}, looked for along PATH,", String::from_utf8_lossy(program)).into(),
            None => String::from_utf8_lossy(name),
        },
    }
}

fn or_unset(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "not set".to_string(), |value| Words(value).to_string())
}

fn reason(error: u16) -> std::io::Error {
    std::io::Error::from_raw_os_error(i32::from(error))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "a file",
            Kind::Program => "a program",
            Kind::Folder => "a folder",
            Kind::Link => "a link",
            Kind::Other => "a device or the like",
        })
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Variable { name, value } => {
                let name = shown_name(name);
                write!(f, "{name} is {}", or_unset(value.as_deref()))
            }
            Fact::Names { .. } => write!(f, "which variables there are"),
            Fact::Folder { path } => write!(f, "the folder is {}", Words(path)),
            Fact::File { path, digest } => write!(f, "{path} holds {digest}"),
            Fact::Twins { twins } => {
                let count = |number: fn(&Twin) -> u32| twins.iter().map(number).max().map_or(0, |last| last + 1);
                let (files, seconds) = (count(|twin| twin.file), count(|twin| twin.second));
                twins.iter().try_for_each(|twin| write!(f, "{}, ", twin.path))?;
                write!(f, "which hold the same, are {files} files of {seconds} times")
            }
            Fact::There { path, kind, .. } => write!(f, "{path} is {kind}"),
            Fact::Status {
                path, size, seconds, ..
            } => {
                write!(f, "{path} has {size} bytes, written at {seconds}")
            }
            Fact::Target { path, text } => write!(f, "{path} leads to {}", Words(text)),
            Fact::Resolved { path, real } => write!(f, "{path} is really {real}"),
            Fact::Listing { path, digest, .. } => write!(f, "{path} lists {digest}"),
            Fact::Crates { path, digest, .. } => write!(f, "{path} lists the crates {digest}"),
            Fact::Absent { path, .. } => write!(f, "{path} is not there"),
            Fact::Refused { path, error, .. } => write!(f, "{path} is refused: {}", reason(*error)),
            Fact::Except { path, unused, digest } => {
                write!(f, "{path} holds {digest}")?;
                match unused.comments {
                    Comments::Nothing => {}
                    Comments::Folders => write!(f, ", leaving out folders in comments")?,
                    Comments::Texts | Comments::AllTexts => write!(f, ", leaving out comments")?,
                    Comments::Directives => write!(f, ", leaving out comments and directives")?,
                }
                if unused.guard.is_some() {
                    write!(f, ", leaving out the name of its guard")?;
                }
                if !unused.macros.is_empty() {
                    let names = String::from_utf8_lossy(&unused.macros.join(&b", "[..])).into_owned();
                    write!(f, ", leaving out the values of {names}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Variable { name, was, .. } if name == PROOF => f.write_str(match was.as_deref() {
                Some(IN_DOUBT) => "it asked for the time or for random numbers, and has not been run a second time yet",
                _ => {
                    "it asked for the time or for random numbers, and a second run at another time made something else"
                }
            }),
            Change::Variable { name, was, is } => {
                let name = shown_name(name);
                write!(
                    f,
                    "{name} is {}, was {}",
                    or_unset(is.as_deref()),
                    or_unset(was.as_deref())
                )
            }
            Change::Names => write!(f, "there are other variables than there were"),
            Change::Folder { was, is } => write!(f, "the folder is {}, was {}", Words(is), Words(was)),
            Change::Content { path } => write!(f, "{path} has changed"),
            Change::Twins { path, other } => {
                write!(
                    f,
                    "{path} and {other} hold the same, and are not as alike or different as they were"
                )
            }
            Change::Kind { path, was, is } => write!(f, "{path} is {is}, was {was}"),
            Change::Number { path } => write!(f, "{path} is the same folder as another, and was not, or the reverse"),
            Change::Status { path } => write!(f, "{path} was written anew"),
            Change::Target { path, was, is } => write!(f, "{path} leads to {}, led to {}", Words(is), Words(was)),
            Change::Resolved { path } => write!(f, "{path} leads somewhere else"),
            Change::Listing { path } => write!(f, "what is in {path} has changed"),
            Change::Appeared { path } => write!(f, "{path} is there now, and was not"),
            Change::Vanished { path } => write!(f, "{path} is not there any more"),
            Change::Refusal {
                path,
                was,
                is: Some(is),
            } => {
                write!(f, "{path} is refused ({}), was before ({})", reason(*is), reason(*was))
            }
            Change::Refusal { path, was, is: None } => {
                write!(f, "{path} can be had now, and could not ({})", reason(*was))
            }
            Change::Beside { path } => write!(f, "{path} begins like the checkout's folder, and is not in it"),
            Change::Unreadable { path, error } => write!(f, "{path} cannot be had: {}", reason(*error)),
        }
    }
}
