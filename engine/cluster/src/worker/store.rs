//! The contents that a worker keeps on its disk, each in a file by its digest, so that a file is fetched once.
//!
//! A command gets its inputs as links to these files, or as copies. A file cannot be changed by other users, is never
//! written in place, and stays as long as it is pinned. Those that were not used for longest leave if there is no room.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lru::LruCache;

use crate::connection::Fault;
use crate::contents::Contents;
use crate::digests::Digest;

/// What all inputs have as their time: a compile must not take them for files that are being written.
pub const TIME: Duration = Duration::from_secs(1_000_000_000);
/// The folder of files that are not complete yet.
const COMING: &str = "coming";
/// Contents up to this size are fetched many at once.
const SMALL: u64 = 1 << 20;
const AT_ONCE: u64 = 64 << 20;

pub struct Store {
    folder: PathBuf,
    most: u64,
    number: AtomicU64,
    index: Mutex<Index>,
}

/// The same content is two files if it is needed as a program and as a plain file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub digest: Digest,
    pub is_program: bool,
}

struct Index {
    files: LruCache<Wanted, u64>,
    size: u64,
    pinned: HashMap<Wanted, usize>,
}

/// Keeps files from leaving.
pub struct Pins {
    store: Arc<Store>,
    pinned: Vec<Wanted>,
}

impl Pins {
    pub fn path(&self, wanted: &Wanted) -> PathBuf {
        self.store.path(wanted)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut index = self.store.index();
        for wanted in &self.pinned {
            if let Some(count) = index.pinned.get_mut(wanted) {
                *count -= 1;
                if *count == 0 {
                    index.pinned.remove(wanted);
                }
            }
        }
        self.store.make_room(&mut index);
    }
}

impl Store {
    /// Opens the folder, and makes it if need be. No more than `most` bytes stay in it, unless running commands need them.
    pub fn open(folder: &Path, most: u64) -> io::Result<Arc<Store>> {
        let coming = folder.join(COMING);
        if coming.exists() {
            fs::remove_dir_all(&coming)?;
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&coming)?;
        let mut index = Index {
            files: LruCache::unbounded(),
            size: 0,
            pinned: HashMap::new(),
        };
        for shelf in fs::read_dir(folder)? {
            let shelf = shelf?;
            if shelf.file_name() == COMING || !shelf.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(shelf.path())? {
                let file = file?;
                let size = file.metadata()?.len();
                match file.file_name().to_str().and_then(read_name) {
                    Some(wanted) if wanted.digest.size == size => {
                        index.files.put(wanted, size);
                        index.size += size;
                    }
                    // Cut off when the machine went down, or not ours.
                    _ => fs::remove_file(file.path())?,
                }
            }
        }
        let store = Store {
            folder: folder.to_owned(),
            most,
            number: AtomicU64::new(0),
            index: Mutex::new(index),
        };
        store.make_room(&mut store.index());
        Ok(Arc::new(store))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, wanted: &Wanted) -> PathBuf {
        let name = name(wanted);
        self.folder.join(&name[..2]).join(name)
    }

    /// How many bytes are there.
    pub fn size(&self) -> u64 {
        self.index().size
    }

    /// Sees to it that all of these are there, and stay until the pins are dropped. `Err` inside: those that the cluster
    /// does not have.
    pub async fn bring(
        self: &Arc<Store>,
        contents: &Contents,
        all: &[Wanted],
    ) -> Result<Result<Pins, Vec<Digest>>, Fault> {
        let pins = self.pin(all);
        let lacking: Vec<Wanted> = {
            let mut index = self.index();
            let lacks = |wanted: &&Wanted| index.files.get(wanted).is_none();
            pins.pinned.iter().filter(lacks).copied().collect()
        };
        let mut missing = Vec::new();
        let (small, large): (Vec<Wanted>, Vec<Wanted>) = lacking.into_iter().partition(|one| one.digest.size <= SMALL);
        for some in portions(&small) {
            let digests: Vec<Digest> = some.iter().map(|wanted| wanted.digest).collect();
            let came = contents.read_all(&digests, u64::MAX).await?;
            for wanted in some {
                match came.get(&wanted.digest) {
                    Some(bytes) => self.keep(wanted, bytes).map_err(not_written)?,
                    None => missing.push(wanted.digest),
                }
            }
        }
        for wanted in &large {
            let file = self.coming();
            match contents.read_to_file(&wanted.digest, &file).await? {
                true => self.settle(wanted, &file).map_err(not_written)?,
                false => missing.push(wanted.digest),
            }
        }
        Ok(if missing.is_empty() { Ok(pins) } else { Err(missing) })
    }

    fn pin(self: &Arc<Store>, all: &[Wanted]) -> Pins {
        let mut pinned = all.to_vec();
        pinned.sort_unstable_by_key(|wanted| (wanted.digest, wanted.is_program));
        pinned.dedup();
        let mut index = self.index();
        for wanted in &pinned {
            *index.pinned.entry(*wanted).or_default() += 1;
        }
        Pins {
            store: self.clone(),
            pinned,
        }
    }

    /// A place for a file that is being written.
    fn coming(&self) -> PathBuf {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        self.folder.join(COMING).join(number.to_string())
    }

    fn keep(&self, wanted: &Wanted, bytes: &Bytes) -> io::Result<()> {
        let path = self.coming();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(bytes)?;
        drop(file);
        self.settle(wanted, &path)
    }

    /// A complete file gets its name, which it may have already.
    fn settle(&self, wanted: &Wanted, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        file.set_permissions(Permissions::from_mode(if wanted.is_program { 0o555 } else { 0o444 }))?;
        file.set_modified(SystemTime::UNIX_EPOCH + TIME)?;
        let place = self.path(wanted);
        if let Some(shelf) = place.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(shelf)?;
        }
        fs::rename(path, place)?;
        let mut index = self.index();
        if index.files.put(*wanted, wanted.digest.size).is_none() {
            index.size += wanted.digest.size;
        }
        self.make_room(&mut index);
        Ok(())
    }

    fn make_room(&self, index: &mut Index) {
        let mut kept = Vec::new();
        while index.size > self.most {
            let Some((wanted, size)) = index.files.pop_lru() else {
                break;
            };
            if index.pinned.contains_key(&wanted) {
                kept.push((wanted, size));
                continue;
            }
            index.size -= size;
            if let Err(error) = fs::remove_file(self.path(&wanted)) {
                log::debug!("{} was not removed: {error}", self.path(&wanted).display());
            }
        }
        for (wanted, size) in kept {
            index.files.put(wanted, size);
        }
    }
}

fn not_written(error: io::Error) -> Fault {
    Fault::Failed(format!("the worker's store was not written: {error}"))
}

/// As many as are fetched at once.
fn portions(all: &[Wanted]) -> Vec<&[Wanted]> {
    let mut portions = Vec::new();
    let (mut begin, mut size) = (0, 0);
    for (number, wanted) in all.iter().enumerate() {
        if size + wanted.digest.size > AT_ONCE && number > begin {
            portions.push(&all[begin..number]);
            (begin, size) = (number, 0);
        }
        size += wanted.digest.size;
    }
    if begin < all.len() {
        portions.push(&all[begin..]);
    }
    portions
}

fn name(wanted: &Wanted) -> String {
    let kind = if wanted.is_program { "x" } else { "f" };
    format!("{}-{}-{kind}", wanted.digest.name(), wanted.digest.size)
}

fn read_name(name: &str) -> Option<Wanted> {
    let mut parts = name.split('-');
    let message = crate::reapi::Digest {
        hash: parts.next()?.to_owned(),
        size_bytes: parts.next()?.parse().ok()?,
    };
    let is_program = match parts.next()? {
        "x" => true,
        "f" => false,
        _ => return None,
    };
    let digest = Digest::from_message(&message)?;
    parts.next().is_none().then_some(Wanted { digest, is_program })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("wafcluster-{name}-{}", std::process::id()));
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn put(store: &Arc<Store>, text: &str, is_program: bool) -> Wanted {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        let wanted = Wanted {
            digest: Digest::of(&bytes),
            is_program,
        };
        store.keep(&wanted, &bytes).unwrap();
        wanted
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart() {
        let folder = Folder::new("restart");
        let store = Store::open(&folder.0, 100).unwrap();
        let (text, program) = (put(&store, "abc", false), put(&store, "abc", true));
        fs::write(folder.0.join(COMING).join("7"), "cut off").unwrap();
        fs::write(store.path(&text).with_file_name("strange"), "x").unwrap();
        drop(store);
        let store = Store::open(&folder.0, 100).unwrap();
        assert_eq!(store.size(), 6);
        let status = |wanted| fs::metadata(store.path(wanted)).unwrap();
        assert_eq!(
            (status(&text).mode() & 0o777, status(&program).mode() & 0o777),
            (0o444, 0o555)
        );
        assert_eq!(status(&text).mtime(), TIME.as_secs() as i64);
        assert!(!store.path(&text).with_file_name("strange").exists());
    }

    #[test]
    fn what_was_cut_off_is_removed() {
        let folder = Folder::new("cut");
        let store = Store::open(&folder.0, 100).unwrap();
        let wanted = put(&store, "abcdef", false);
        let place = store.path(&wanted);
        fs::remove_file(&place).unwrap();
        fs::write(&place, "abc").unwrap();
        let store = Store::open(&folder.0, 100).unwrap();
        assert_eq!((store.size(), place.exists()), (0, false));
    }

    #[test]
    fn the_file_that_was_not_used_for_longest_leaves_unless_it_is_pinned() {
        let folder = Folder::new("room");
        let store = Store::open(&folder.0, 8).unwrap();
        let first = put(&store, "aaaa", false);
        let pins = store.pin(&[first]);
        let second = put(&store, "bbbb", false);
        let third = put(&store, "cccc", false);
        let there = |wanted: &Wanted| store.path(wanted).exists();
        assert_eq!((there(&first), there(&second), there(&third)), (true, false, true));
        drop(pins);
        let fourth = put(&store, "dddd", false);
        assert_eq!(store.size(), 8);
        assert!(there(&fourth));
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        let wanted = Wanted {
            digest: Digest::of(b"x"),
            is_program: true,
        };
        assert_eq!(read_name(&name(&wanted)), Some(wanted));
        for bad in [
            "",
            "x",
            "a-1-x",
            &format!("{}-9", name(&wanted)),
            &name(&wanted).replace("-x", "-y"),
        ] {
            assert_eq!(read_name(bad), None, "{bad}");
        }
    }
}
