//! The command that we are called for: the real program behind a name, and the name it will get.
//!
//! Does not know the engine. The name is searched along `PATH` as `execvp` does. Compiler caches under a compiler's
//! name are skipped, ourselves and others: two caches that find each other would never end.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The names of compiler caches that replace a compiler, with links resolved.
const CACHES: [&[u8]; 3] = [b"wafcc", b"ccache", b"sccache"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub program: PathBuf,
    /// The name that the program gets as its argv[0].
    pub name: OsString,
    pub args: Vec<OsString>,
    pub how: How,
    /// Files that the command makes, if the caller has named them.
    pub outputs: Vec<OsString>,
}

/// How the command is to be cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum How {
    /// Compiles are cached, other commands only if the settings say so.
    #[default]
    AsSet,
    /// Any command is cached, by its recorded accesses.
    ByFacts,
    /// It only uses the engine's slots.
    Uncached,
}

impl Call {
    pub fn find(name: &OsStr, args: Vec<OsString>, how: How) -> Result<Call, NotFound> {
        let found = if name.as_bytes().contains(&b'/') {
            find_at(Path::new(name))
        } else {
            find_in_path(name)
        };
        let (program, name) = match found {
            Ok(found) => found,
            Err((words, is_hidden)) => {
                let name = name.to_owned();
                return Err(NotFound {
                    words,
                    is_hidden,
                    name,
                    args,
                });
            }
        };
        Ok(Call {
            program,
            name,
            args,
            how,
            outputs: Vec::new(),
        })
    }
}

/// No program of this name was found.
#[derive(Debug)]
pub struct NotFound {
    pub words: String,
    /// Only a compiler cache has this name. The system would run that.
    pub is_hidden: bool,
    pub name: OsString,
    pub args: Vec<OsString>,
}

/// A program's path and name. The error has a message, and says whether a compiler cache was skipped.
type Found = Result<(PathBuf, OsString), (String, bool)>;

/// Whether this name leads to ourselves under our own name: two launchers were set.
pub fn is_us(name: &OsStr) -> bool {
    let path = Path::new(name);
    if path.file_name() != Some(OsStr::new("wafcc")) {
        return false;
    }
    if name.as_bytes().contains(&b'/') {
        return is_own(path);
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut all = env::split_paths(&folders).map(|folder| folder.join(name));
    all.find(|path| is_program(path)).is_some_and(|path| is_own(&path))
}

/// A program by its path. If that is a compiler cache under another name, the program that it replaces.
fn find_at(path: &Path) -> Found {
    match (is_other_cache(path), path.file_name()) {
        (Ok(false), _) => Ok((path.to_owned(), path.into())),
        (Ok(true), Some(name)) => find_in_path(name),
        _ => Err((format!("{}: no such program", path.display()), false)),
    }
}

/// The first program of that name that is not a compiler cache.
///
/// It gets its bare name if `execvp` would find the same program. Otherwise it gets its whole path: gcc searches itself
/// along `PATH` to find its parts, and would find us.
fn find_in_path(name: &OsStr) -> Found {
    let folders = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut is_first = true;
    for folder in env::split_paths(&folders) {
        let path = folder.join(name);
        match is_other_cache(&path) {
            Ok(false) if is_first => return Ok((path, name.into())),
            Ok(false) => return Ok((path.clone(), path.into())),
            Ok(true) => is_first = false,
            Err(NoProgram) => {}
        }
    }
    let shown = name.to_string_lossy();
    let besides = if is_first { "" } else { " besides compiler caches" };
    Err((format!("{shown}: no such program{besides}; check PATH"), !is_first))
}

struct NoProgram;

/// Whether this program is ourselves or another cache under a compiler's name.
fn is_other_cache(path: &Path) -> Result<bool, NoProgram> {
    if !is_program(path) {
        return Err(NoProgram);
    }
    if is_own(path) {
        return Ok(true);
    }
    match fs::canonicalize(path) {
        Ok(real) => Ok(real.file_name() != path.file_name() && is_cache(&real)),
        // The program exists, but the system does not say where it leads.
        Err(_) => Ok(false),
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Compares inodes: links may be unreadable, or lead to us by another name.
fn is_own(path: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    match (number(path), number(Path::new("/proc/self/exe"))) {
        (Ok(that), Ok(us)) => that == us,
        _ => false,
    }
}

fn is_cache(real: &Path) -> bool {
    let name = real.file_name().unwrap_or_default().as_bytes();
    CACHES.iter().any(|cache| name.starts_with(cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        for name in ["no-such-compiler", "/no/such/compiler"] {
            let error = Call::find(OsStr::new(name), Vec::new(), How::AsSet).unwrap_err();
            assert!(error.words.starts_with(name), "{error:?}");
        }
    }

    #[test]
    fn a_program_that_execvp_finds_keeps_its_name() {
        let call = Call::find(OsStr::new("sh"), Vec::new(), How::AsSet).unwrap();
        assert!(call.program.is_absolute());
        assert_eq!(call.name, "sh");
    }

    #[test]
    fn caches_are_known_by_their_real_names() {
        for (path, is) in [
            ("/usr/bin/ccache", true),
            ("/opt/wafcc-2", true),
            ("/usr/bin/gcc-12", false),
        ] {
            assert_eq!(is_cache(Path::new(path)), is, "{path}");
        }
    }
}
