//! Paths: the files of settings, the store, and the runtime folder of the engine that keeps that store.
//!
//! One engine keeps one store. The first default store that is used belongs to the engine of the usual runtime folder,
//! which then has a link to the store. Every other store has an engine of its own, in a folder whose name is derived
//! from the store's path. This includes the default store of another home folder with the same runtime folder.

use std::env;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Key, Settings};
use crate::files::folder::Folder;

const FILE: &str = "wafcc.conf";

fn set(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The base folder of the XDG rules, which ignore relative paths.
fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    set(variable)
        .filter(absolute)
        .or_else(|| Some(set("HOME").filter(absolute)?.join(below_home)))
}

/// `$WAFCC_CONFIGPATH` replaces all other files of settings.
pub fn is_file_chosen() -> bool {
    set("WAFCC_CONFIGPATH").is_some()
}

/// The folder of the user's settings, unless a file is chosen.
pub fn user_folder() -> Option<PathBuf> {
    Some(base("XDG_CONFIG_HOME", ".config")?.join("wafcc"))
}

/// The user's file of settings. It may not exist.
pub fn user_file() -> Option<PathBuf> {
    set("WAFCC_CONFIGPATH").or_else(|| Some(user_folder()?.join(FILE)))
}

/// The file of settings in the store.
pub fn store_file(settings: &Settings) -> Option<PathBuf> {
    Some(store(settings)?.join(FILE))
}

/// The file that `--set-config` changes: the chosen file, else the file of the store that a variable names, else the
/// user's file.
pub fn file_to_change(settings: &Settings) -> Option<PathBuf> {
    if set(Key::CacheDir.variable()).is_some() && !is_file_chosen() {
        store_file(settings)
    } else {
        user_file()
    }
}

/// `$WAFCC_EXPORT`: the folder that gets the entry of a command.
pub fn export() -> Option<PathBuf> {
    std::path::absolute(set("WAFCC_EXPORT")?).ok()
}

fn default_store() -> Option<PathBuf> {
    Some(base("XDG_CACHE_HOME", ".cache")?.join("wafcc"))
}

/// The file in which the engine keeps what memory commands need. `None` if the environment names no place for one.
pub fn peaks() -> Option<PathBuf> {
    Some(base("XDG_CACHE_HOME", ".cache")?.join("wafd").join("peaks"))
}

/// The folder of the store. `None` if the environment names no place for one.
pub fn store(settings: &Settings) -> Option<PathBuf> {
    settings.folder(Key::CacheDir).or_else(default_store)
}

pub fn runtime(store: Option<&Path>) -> Folder {
    let usual = Folder::from_environment();
    let Some(store) = store else { return usual };
    let kept = kept_store(&usual).or_else(default_store);
    if kept.as_deref() == Some(store) {
        return usual;
    }
    let real = real(store);
    match kept {
        Some(kept) if self::real(&kept) == real => usual,
        _ => of_store(&usual, &real),
    }
}

/// The store that the engine of this folder keeps. It stays the same until the folder is removed.
pub fn kept_store(folder: &Folder) -> Option<PathBuf> {
    fs::read_link(folder.store()).ok().filter(|store| store.is_absolute())
}

/// Whether both paths lead to the same store.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other || real(one) == real(other)
}

/// The runtime folder for a store that is not the usual one: below the usual folder, or in /tmp if that name is too
/// long for a socket.
pub fn of_store(usual: &Folder, real: &Path) -> Folder {
    let both = [usual.path().as_os_str().as_bytes(), real.as_os_str().as_bytes()].join(&0);
    let name = format!("{:016x}", mixed(&both));
    let below = Folder::at(usual.path().join(&name));
    if below.is_too_long() {
        let uid = rustix::process::geteuid().as_raw();
        Folder::at(format!("/tmp/wafd-{uid}-{name}"))
    } else {
        below
    }
}

/// FNV-1a. The names need no protection against collisions. BLAKE3 first asks the processor for its features, which
/// takes longer than all else here on a virtual machine.
pub fn mixed(bytes: &[u8]) -> u64 {
    let mix = |known: u64, byte: &u8| (known ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The path without links. Its last folders may be missing.
fn real(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => real(parent).join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_has_a_folder_of_its_own() {
        let usual = Folder::at("/run/user/1/wafd");
        let (a, b) = (of_store(&usual, Path::new("/a")), of_store(&usual, Path::new("/b")));
        assert_ne!(a.path(), b.path());
        assert_eq!(a.path(), of_store(&usual, Path::new("/a")).path());
        assert_eq!(a.path().parent(), Some(usual.path()));
    }

    #[test]
    fn a_long_name_gives_way_to_a_short_one() {
        let usual = Folder::at(format!("/{}", "x".repeat(90)));
        let folder = of_store(&usual, Path::new("/a"));
        assert!(folder.path().starts_with("/tmp"), "{folder:?}");
        assert!(!folder.is_too_long());
    }

    #[test]
    fn a_path_is_real_before_it_is_there() {
        let real_tmp = fs::canonicalize(env::temp_dir()).unwrap();
        assert_eq!(
            real(&env::temp_dir().join("no-such/store")),
            real_tmp.join("no-such/store")
        );
    }
}
