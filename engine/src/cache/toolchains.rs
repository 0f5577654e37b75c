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

/// By the file of a compiler to which all links lead.
#[derive(Default)]
pub struct Toolchains(Mutex<HashMap<PathBuf, BTreeSet<Bytes>>>);

impl Toolchains {
    /// A compiler has asked for these absolute paths, whether anything is there or not.
    pub fn note(&self, compiler: &Path, paths: impl Iterator<Item = Bytes>) {
        let own = own_folder(compiler);
        let is_own = |path: &Bytes| Path::new(OsStr::from_bytes(path)).starts_with(own);
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

/// The folder that has all of a compiler: the one around its `bin`.
fn own_folder(compiler: &Path) -> &Path {
    let folder = compiler.parent().unwrap_or(compiler);
    match folder.file_name() {
        Some(name) if name == "bin" => folder.parent().unwrap_or(folder),
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_is_known_with_what_is_its_own() {
        let known = Toolchains::default();
        let compiler = Path::new("/home/u/arm/bin/gcc");
        assert_eq!(known.files(compiler), None);
        let paths = |names: &[&str]| -> Vec<Bytes> { names.iter().map(|name| name.as_bytes().to_vec()).collect() };
        let read = ["/home/u/arm/lib/cc1", "/home/u/p/x.c", "/home/u/arms/y", "/usr/bin/as"];
        known.note(compiler, paths(&read).into_iter());
        known.note(compiler, paths(&["/home/u/arm/include/a.h"]).into_iter());
        let expected = paths(&["/home/u/arm/include/a.h", "/home/u/arm/lib/cc1"]);
        assert_eq!(known.files(compiler), Some(expected));
        assert_eq!(
            own_folder(Path::new("/home/u/p/tools/cc")),
            Path::new("/home/u/p/tools")
        );
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
        let many = (0..2 * MOST_FILES).map(|number| format!("/c/{MOST_COMPILERS}/{number}").into_bytes());
        known.note(&compiler(MOST_COMPILERS), many);
        assert_eq!(known.files(&compiler(MOST_COMPILERS)).unwrap().len(), MOST_FILES);
    }
}
