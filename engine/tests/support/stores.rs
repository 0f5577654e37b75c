//! Stores whose entries, keys and outputs are derived from a number.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use wafengine::bytes::digest::Digest;
use wafengine::cache::store::{Blob, Compression, Settings, Store};

use super::sandbox::{wait_until, Sandbox};

pub const ANY_SIZE: Settings = Settings {
    max_size: u64::MAX,
    compression: Compression::Auto,
};

/// Opens the store as soon as its lock is free: a process that another test is starting has copies of our locks for a
/// moment.
#[track_caller]
pub fn open_with(folder: &Path, settings: Settings) -> Store {
    let mut store = None;
    wait_until("the store is free", || match Store::open(folder, settings) {
        Ok(opened) => {
            store = Some(opened);
            true
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => false,
        Err(error) => panic!("{error}"),
    });
    store.unwrap()
}

#[track_caller]
pub fn open(folder: &Path) -> Store {
    open_with(folder, ANY_SIZE)
}

pub fn key(n: usize) -> Digest {
    Digest::of(&n.to_le_bytes())
}

/// Contents that all differ. Some can be compressed.
pub fn content(n: usize) -> Vec<u8> {
    let mut bytes = vec![0; 200 + n % 13 * 1500];
    blake3::Hasher::new()
        .update(&n.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    if n % 3 == 0 {
        bytes.truncate(32);
        bytes = bytes.repeat(400);
    }
    bytes
}

pub fn output(n: usize) -> Vec<u8> {
    content(1_000_000 + n)
}

pub fn put(store: &Store, n: usize) {
    let blob = store.put_blob(&output(n)).unwrap();
    store.put_entry(&key(n), &content(n), &[blob]).unwrap();
}

/// What the store returns for a number: nothing, or the correct content.
#[track_caller]
pub fn get(store: &Store, n: usize) -> bool {
    let Some(bytes) = store.find(&key(n)).first().and_then(|entry| store.read(entry)) else {
        return false;
    };
    assert_eq!(bytes, content(n), "entry {n}");
    match store.open_blob(&Digest::of(&output(n))) {
        Some(Blob::Bytes(bytes) | Blob::Plain { bytes, .. }) => assert_eq!(bytes, output(n), "the output of {n}"),
        Some(Blob::Large { .. }) => panic!("nothing large was stored"),
        None => return false,
    }
    true
}

/// All files of a store that have content.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in fs::read_dir(folder).unwrap() {
        let path = name.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("lock") {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub fn index(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("cache/store-2/index")
}

/// The files that hold one blob or several.
pub fn blobs(sandbox: &Sandbox) -> Vec<PathBuf> {
    [files(&sandbox.path("cache/store-2/blobs")), volumes(sandbox)].concat()
}

pub fn volumes(sandbox: &Sandbox) -> Vec<PathBuf> {
    files(&sandbox.path("cache/store-2/volumes"))
}
