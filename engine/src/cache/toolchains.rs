//! Compilers that are none of the system, and what they have read of their own files: programs, libraries, plugins, specs and
//! headers. A worker of a cluster does not have these, so they are sent with the commands.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::observe::access::Bytes;

/// So many compilers are known. If there are more, all are learned anew.
const MOST_COMPILERS: usize = 64;
/// So many files of one are known.
const MOST_FILES: usize = 1 << 14;

/// The folders that an installed compiler has in its prefix.
const INSTALLED: [&str; 9] = [
    "bin", "include", "lib", "lib32", "lib64", "libexec", "libx32", "share", "sysroot",
];

/// By the file of a compiler to which all links lead.
#[derive(Default)]
pub struct Toolchains(Mutex<HashMap<PathBuf, BTreeSet<Bytes>>>);

impl Toolchains {
    /// A compiler has asked for these absolute paths, whether anything is there or not.
    pub fn note(&self, compiler: &Path, paths: impl Iterator<Item = Bytes>) {
        let own = Own::of(compiler);
        let is_own = |path: &Bytes| own.has(Path::new(OsStr::from_bytes(path)));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_COMPILERS && !all.contains_key(compiler) {
            all.clear();
        }
        let known = all.entry(compiler.to_owned()).or_default();
        let left = MOST_FILES.saturating_sub(known.len());
        known.extend(paths.filter(is_own).take(left));
    }

    /// What is known of it. `None` if it has not run here yet.
    pub fn files(&self, compiler: &Path) -> Option<Vec<Bytes>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(compiler).map(|known| known.iter().cloned().collect())
    }
}

/// What belongs to a compiler. It may be installed in a folder that has projects, too, such as a home: nothing of these must be
/// sent with the commands of others.
struct Own<'a> {
    /// The folder of its program.
    folder: &'a Path,
    /// The folder around its `bin`, or the same.
    prefix: &'a Path,
    /// The `arm-none-eabi` of `arm-none-eabi-gcc`, if it has such a part.
    target: Option<&'a str>,
}

impl<'a> Own<'a> {
    fn of(compiler: &'a Path) -> Own<'a> {
        let folder = compiler.parent().unwrap_or(compiler);
        let prefix = match folder.file_name() {
            Some(name) if name == "bin" => folder.parent().unwrap_or(folder),
            _ => folder,
        };
        let name = compiler.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let target = name.rsplit_once('-').map(|(target, _)| target);
        Own { folder, prefix, target }
    }

    fn has(&self, path: &Path) -> bool {
        let Ok(inside) = path.strip_prefix(self.prefix) else {
            return false;
        };
        let first = inside.components().next().and_then(|part| part.as_os_str().to_str());
        let is_installed = first.is_some_and(|name| INSTALLED.contains(&name) || self.target == Some(name));
        is_installed || path.parent() == Some(self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_is_known_with_what_is_its_own() {
        let known = Toolchains::default();
        let compiler = Path::new("/home/u/arm/bin/arm-none-eabi-gcc");
        assert_eq!(known.files(compiler), None);
        let paths = |names: &[&str]| -> Vec<Bytes> { names.iter().map(|name| name.as_bytes().to_vec()).collect() };
        let read = [
            "/home/u/arm/lib/cc1",
            "/home/u/p/x.c",
            "/home/u/arms/lib/y",
            "/usr/bin/as",
        ];
        known.note(compiler, paths(&read).into_iter());
        known.note(compiler, paths(&["/home/u/arm/include/a.h"]).into_iter());
        let expected = paths(&["/home/u/arm/include/a.h", "/home/u/arm/lib/cc1"]);
        assert_eq!(known.files(compiler), Some(expected));
        known.note(compiler, paths(&["/home/u/arm/arm-none-eabi/bin/as"]).into_iter());
        assert_eq!(known.files(compiler).map(|all| all.len()), Some(3));
    }

    #[test]
    fn projects_beside_a_compiler_are_not_its_own() {
        for (compiler, own, other) in [
            ("/home/u/bin/gcc", "/home/u/lib/gcc/cc1", "/home/u/secret/key.h"),
            ("/home/u/p/gcc", "/home/u/p/specs", "/home/u/p/src/x.c"),
            ("/home/u/p/tools/cc", "/home/u/p/tools/lib/cc1", "/home/u/p/lib/x.h"),
            ("/home/u/bin/gcc", "/home/u/bin/as", "/home/u/gcc/x.h"),
        ] {
            let belongs = |path: &str| Own::of(Path::new(compiler)).has(Path::new(path));
            assert!(belongs(own) && !belongs(other), "{compiler}");
        }
    }

    #[test]
    fn no_number_of_compilers_or_files_is_too_large() {
        let known = Toolchains::default();
        let compiler = |number: usize| PathBuf::from(format!("/c/{number}/bin/cc"));
        for number in 0..=MOST_COMPILERS {
            known.note(&compiler(number), std::iter::empty());
        }
        assert_eq!(known.files(&compiler(0)), None);
        assert_eq!(known.files(&compiler(MOST_COMPILERS)), Some(Vec::new()));
        let many = (0..2 * MOST_FILES).map(|number| format!("/c/{MOST_COMPILERS}/lib/{number}").into_bytes());
        known.note(&compiler(MOST_COMPILERS), many);
        assert_eq!(known.files(&compiler(MOST_COMPILERS)).unwrap().len(), MOST_FILES);
    }
}
