//! Has a compile leave the name of its checkout's folder out of what it makes, if its client wants that.
//!
//! A prefix map of the compiler's own does it. The map is added to the command line, so that the command runs with it when it
//! misses, and is looked up with it when it hits. Which folder is the checkout is asked of the file system, and remembered
//! for some seconds. What a command line needs is decided in `compiler/sharing.rs`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use memchr::memmem;

use super::compiler::Compiler;
use crate::files::checkout;
use crate::observe::access::Bytes;

/// For so long the folder of a checkout is not looked for again.
const LASTING: Duration = Duration::from_secs(5);
/// Checkouts and compilers that are remembered.
const MOST: usize = 4096;
/// gcc understands the option from version 8 on, clang from version 10 on. A driver of gcc has the names of its options.
const OPTION: &[u8] = b"ffile-prefix-map=";
const FIRST_CLANG: u32 = 10;
const LARGEST_DRIVER: u64 = 64 << 20;

/// The identity of a program's file: device, inode, size and time.
type Identity = (u64, u64, u64, i64);

/// What was found lately.
#[derive(Default)]
pub struct Checkouts {
    folders: Mutex<HashMap<Bytes, (Instant, Option<Bytes>)>>,
    compilers: Mutex<HashMap<PathBuf, (Identity, bool)>>,
}

impl Checkouts {
    /// The folder of the checkout in which a command runs.
    pub fn find(&self, folder: &[u8]) -> Option<Bytes> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, found)) = folders.get(folder) {
            if when.elapsed() < LASTING {
                return found.clone();
            }
        }
        let found =
            checkout::find(Path::new(OsStr::from_bytes(folder))).map(|path| path.as_os_str().as_bytes().to_vec());
        if folders.len() >= MOST {
            folders.clear();
        }
        folders.insert(folder.to_vec(), (Instant::now(), found.clone()));
        found
    }

    /// Whether a compiler understands the option, as far as its installation shows.
    pub fn maps_prefixes(&self, compiler: Compiler, real: &Path) -> bool {
        let Ok(status) = fs::metadata(real) else { return false };
        let identity = (status.dev(), status.ino(), status.size(), status.mtime());
        let mut compilers = self.compilers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, maps)) = compilers.get(real) {
            if *known == identity {
                return *maps;
            }
        }
        let maps = match compiler {
            Compiler::Gcc if status.size() > LARGEST_DRIVER => false,
            Compiler::Gcc => fs::read(real).is_ok_and(|bytes| memmem::find(&bytes, OPTION).is_some()),
            Compiler::Clang => clang_version(real).is_some_and(|version| version >= FIRST_CLANG),
        };
        if compilers.len() >= MOST {
            compilers.clear();
        }
        compilers.insert(real.to_path_buf(), (identity, maps));
        maps
    }
}

/// The version that a clang's folder of own headers names: `lib/clang/14.0.6` beside the folder of the program.
fn clang_version(real: &Path) -> Option<u32> {
    let above = real.parent()?.parent()?;
    let versions = ["lib", "lib64"]
        .iter()
        .filter_map(|lib| fs::read_dir(above.join(lib).join("clang")).ok());
    let names = versions.flatten().flatten().map(|entry| entry.file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.split('.').next()?.parse().ok();
    // An installation of several versions is as old as its oldest one.
    names.filter_map(number).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_compiler_is_asked_what_it_understands() {
        let known = Checkouts::default();
        let gcc = fs::canonicalize("/usr/bin/gcc").unwrap();
        assert!(known.maps_prefixes(Compiler::Gcc, &gcc));
        assert!(known.maps_prefixes(Compiler::Gcc, &gcc));
        assert!(!known.maps_prefixes(Compiler::Gcc, Path::new("/usr/bin/true")));
        assert!(!known.maps_prefixes(Compiler::Clang, Path::new("/usr/bin/true")));
    }
}
