//! The card: what a call has found out for `front/front.c` of the next call. It says where the engine is, what to tell
//! it, and which files must be unchanged for that to be true.
//!
//! A card belongs to the values of the variables on which settings and paths depend. It is written again when its
//! content would change. `front.c` reads it, and does not know the settings. There is no card for what can change
//! unnoticed: a relative path depends on the current folder, and the content of `extra_files` has to be read by each
//! call.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::run::Home;
use crate::facts::status::Stamp;
use crate::files::folder::Folder;
use crate::files::regular;
use crate::settings::place;
use crate::settings::{Key, Settings};
use crate::wire::{Caching, Request};

const MAGIC: &[u8; 8] = b"wafcard1";
/// The size of the front's buffer.
const CAP: usize = 16 << 10;
const PREFIXES: [&[u8]; 4] = [b"WAFCC_", b"WAFD_", b"XDG_", b"HOME="];
/// A file that was changed so recently may change again with the same time.
const QUIET_SECONDS: i64 = 2;

/// Best effort: without a card the next call takes the slow path and tries again.
pub fn leave(settings: &Settings, home: &Home, caching: &Request, policy: Option<&Request>) {
    let usual = Folder::from_environment();
    let Some(content) = content(settings, home, &usual, caching, policy).filter(|content| content.len() < CAP) else {
        return;
    };
    if usual.check().is_err() || !usual.path().is_absolute() {
        return;
    }
    let card = usual.card(variables());
    if read(&card).is_ok_and(|known| known == content) {
        return;
    }
    let fresh = card.with_extension(format!("{}.new", std::process::id()));
    if let Err(error) = regular::replace(&card, &fresh, &content) {
        log::debug!("write {}: {error}", card.display());
    }
}

/// Opens without blocking, whatever file is there.
fn read(card: &Path) -> io::Result<Vec<u8>> {
    let file = regular::open(card)?;
    let mut content = Vec::new();
    file.take(CAP as u64).read_to_end(&mut content)?;
    Ok(content)
}

/// A hash of the variables that determine settings and paths.
fn variables() -> u64 {
    let mut all = Vec::new();
    for (name, value) in env::vars_os() {
        let entry = [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat();
        if PREFIXES.iter().any(|prefix| entry.starts_with(prefix)) {
            all.extend(entry);
        }
    }
    place::mixed(&all)
}

fn content(
    settings: &Settings,
    home: &Home,
    usual: &Folder,
    caching: &Request,
    policy: Option<&Request>,
) -> Option<Vec<u8>> {
    let store = home.store.as_ref()?;
    let mut folders = [Key::CacheDir, Key::BaseDir]
        .into_iter()
        .flat_map(|key| env::split_paths(settings.text(key)));
    let are_absolute = folders.all(|folder| folder.as_os_str().is_empty() || folder.is_absolute());
    let has_usual_settings = are_absolute && settings.mistakes.is_empty() && settings.extra_files().is_empty();
    let Request::Caching(Caching {
        terminal: None,
        export: None,
        ..
    }) = caching
    else {
        return None;
    };
    if !has_usual_settings || settings.is_on(Key::Facts) || settings.is_on(Key::Disable) {
        return None;
    }
    let mut said = Vec::new();
    caching.encode(&mut said);
    if let Some(policy) = policy {
        policy.encode(&mut said);
    }
    let files = [place::user_file(), place::store_file(settings)];
    // The store that the usual engine keeps determines which engine we use.
    let kept = usual.store();
    let kept = match fs::symlink_metadata(&kept) {
        Err(error) if regular::is_absent(&error) => file_state(&kept, false)?,
        _ => file_state(&kept, true)?,
    };
    let mut watched = vec![file_state(store, true)?, kept];
    for file in files.iter().flatten() {
        watched.push(file_state(file, false)?);
    }
    let mut card = MAGIC.to_vec();
    put(&mut card, &zero_terminated(home.folder.path()));
    put(&mut card, &zero_terminated(&home.folder.socket()));
    put(&mut card, &said);
    card.extend((watched.len() as u32).to_le_bytes());
    watched.iter().for_each(|file_state| card.extend(file_state));
    Some(card)
}

/// The state of a path: its kind, seven numbers, its name.
fn file_state(path: &Path, is_folder: bool) -> Option<Vec<u8>> {
    let found = match fs::metadata(path) {
        Ok(found) if found.is_dir() == is_folder => Some(found),
        Err(error) if !is_folder && regular::is_absent(&error) => None,
        _ => return None,
    };
    let is_quiet = |found: &fs::Metadata| {
        let changed = found.mtime().max(found.ctime());
        is_folder || changed < Stamp::now().plus_seconds(-QUIET_SECONDS).seconds
    };
    if !path.is_absolute() || !found.as_ref().map_or(true, is_quiet) {
        return None;
    }
    let kind = match found {
        None => 0,
        Some(_) if !is_folder => 1,
        Some(_) => 2,
    };
    let numbers = found.map_or([0; 7], |found| {
        [
            found.dev(),
            found.ino(),
            found.size(),
            found.mtime() as u64,
            found.mtime_nsec() as u64,
            found.ctime() as u64,
            found.ctime_nsec() as u64,
        ]
    });
    let mut file_state = vec![kind];
    // Changes in the store's folder do not matter, only which folder it is.
    let counts = if is_folder { 2 } else { 7 };
    for (place, number) in numbers.into_iter().enumerate() {
        file_state.extend(if place < counts { number } else { 0 }.to_le_bytes());
    }
    put(&mut file_state, &zero_terminated(path));
    Some(file_state)
}

fn zero_terminated(path: &Path) -> Vec<u8> {
    let mut name = path.to_owned().into_os_string().into_vec();
    name.push(0);
    name
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u32).to_le_bytes());
    to.extend(bytes);
}
