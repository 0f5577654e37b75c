//! What one call has found out, for the front of the next one: where the engine is, what it is to be told, and the files that must
//! be as they were for that to hold.
//!
//! A card belongs to the variables on which settings and places depend. It is written anew when it is not what it would be;
//! `front/front.c` reads it, and knows nothing of settings. No card is left for what changes without a trace: relative paths
//! mean another folder elsewhere, and the content of extra files is looked at by each call.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::run::Home;
use crate::facts::status::Stamp;
use crate::files::folder::Folder;
use crate::files::regular;
use crate::settings::place;
use crate::settings::{Key, Settings};
use crate::wire::{Caching, Request};

const MAGIC: &[u8; 8] = b"wafcard1";
/// What the front reads.
const CAP: usize = 16 << 10;
const PREFIXES: [&[u8]; 4] = [b"WAFCC_", b"WAFD_", b"XDG_", b"HOME="];
/// What was changed so lately may change again without a trace.
const QUIET_SECONDS: i64 = 2;

/// Leaves a card if there is to be one. Nobody waits for it: what fails fails again, or is not missed.
pub fn leave(settings: &Settings, home: &Home, caching: &Request) {
    let usual = Folder::from_environment();
    let Some(text) = text(settings, home, &usual, caching).filter(|text| text.len() < CAP) else {
        return;
    };
    if usual.check().is_err() || !usual.path().is_absolute() {
        return;
    }
    let card = usual.card(variables());
    if read(&card).is_ok_and(|known| known == text) {
        return;
    }
    if let Err(error) = write(&card, &text) {
        log::debug!("write {}: {error}", card.display());
    }
}

/// Does not wait, whatever stands there.
fn read(card: &Path) -> io::Result<Vec<u8>> {
    let file = regular::open(card)?;
    let mut text = Vec::new();
    file.take(CAP as u64).read_to_end(&mut text)?;
    Ok(text)
}

fn write(card: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = card.with_extension(format!("{}.new", std::process::id()));
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh);
    let written = file
        .and_then(|mut file| file.write_all(text))
        .and_then(|()| fs::rename(&fresh, card));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// A number for what the environment says of settings and places.
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

fn text(settings: &Settings, home: &Home, usual: &Folder, caching: &Request) -> Option<Vec<u8>> {
    let store = home.store.as_ref()?;
    let is_told = [Key::CacheDir, Key::BaseDir].into_iter().all(|key| {
        let text = Path::new(settings.text(key));
        text.as_os_str().is_empty() || text.is_absolute()
    });
    let is_plain = is_told && settings.mistakes.is_empty() && settings.extra_files().is_empty();
    let Request::Caching(Caching { terminal: None, .. }) = caching else {
        return None;
    };
    if !is_plain || settings.is_on(Key::Facts) || settings.is_on(Key::Disable) {
        return None;
    }
    let mut said = Vec::new();
    caching.encode(&mut said);
    let files = [place::user_file(), place::store_file(settings)];
    // Which store the usual engine keeps decides which one we talk to.
    let kept = usual.store();
    let kept = match fs::symlink_metadata(&kept) {
        Err(error) if is_absence(&error) => seen(&kept, false)?,
        _ => seen(&kept, true)?,
    };
    let mut watched = vec![seen(store, true)?, kept];
    for file in files.iter().flatten() {
        watched.push(seen(file, false)?);
    }
    let mut card = MAGIC.to_vec();
    put(&mut card, &ended(home.folder.path()));
    put(&mut card, &ended(&home.folder.socket()));
    put(&mut card, &said);
    card.extend((watched.len() as u32).to_le_bytes());
    watched.iter().for_each(|seen| card.extend(seen));
    Some(card)
}

/// A path as it is now: its kind, seven numbers, its name.
fn seen(path: &Path, is_folder: bool) -> Option<Vec<u8>> {
    let found = match fs::metadata(path) {
        Ok(found) if found.is_dir() == is_folder => Some(found),
        Err(error) if !is_folder && is_absence(&error) => None,
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
    let mut seen = vec![kind];
    // What is in the store says nothing of where it is.
    let counts = if is_folder { 2 } else { 7 };
    for (place, number) in numbers.into_iter().enumerate() {
        seen.extend(if place < counts { number } else { 0 }.to_le_bytes());
    }
    put(&mut seen, &ended(path));
    Some(seen)
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

fn ended(path: &Path) -> Vec<u8> {
    let mut name = path.to_owned().into_os_string().into_vec();
    name.push(0);
    name
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u32).to_le_bytes());
    to.extend(bytes);
}
