//! Volumes: evicted blobs give back their disk space, while other threads read and write.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::sandbox::{wait_until, Sandbox};
use crate::support::stores::{blobs, get, key, open, open_with, put, volumes};
use rustix::fs::{flock, FlockOperation};
use wafengine::cache::store::{Compression, Settings, Store};

/// Volumes of 128 KiB.
const SMALL: Settings = Settings {
    max_size: 4 << 20,
    compression: Compression::Auto,
};

fn remove(store: &Store, n: usize) {
    store.find(&key(n)).iter().for_each(|entry| store.remove_entry(entry));
}

#[test]
fn many_small_blobs_are_few_files() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    (0..200).for_each(|n| put(&store, n));
    assert_eq!((store.usage().blobs, blobs(&sandbox).len()), (400, 1));
    let held = fs::metadata(&blobs(&sandbox)[0]).unwrap().len();
    assert!(store.usage().size >= held);
}

#[test]
fn blobs_that_will_be_linked_have_files_of_their_own() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    store.set_plain(true);
    put(&store, 1);
    assert_eq!((blobs(&sandbox).len(), volumes(&sandbox).len()), (2, 0));
    store.set_plain(false);
    put(&store, 2);
    assert_eq!((blobs(&sandbox).len(), volumes(&sandbox).len()), (3, 1));
    assert!(get(&store, 1) && get(&store, 2));
}

#[test]
fn the_space_of_removed_entries_is_given_back() {
    let sandbox = Sandbox::new();
    let store = open_with(&sandbox.path("cache"), SMALL);
    (0..150).for_each(|n| put(&store, n));
    (0..150).filter(|n| n % 10 != 0).for_each(|n| remove(&store, n));
    let before = store.usage();
    drop(store);
    let store = open_with(&sandbox.path("cache"), SMALL);
    wait_until("volumes are emptied", || store.usage().size < before.size / 2);
    let sound = |store: &Store| (0..150).all(|n| get(store, n) == (n % 10 == 0));
    assert!(sound(&store));
    drop(store);
    let store = open_with(&sandbox.path("cache"), SMALL);
    assert!(sound(&store), "the index knows the new places");
    let usage = store.usage();
    assert_eq!((usage.entries, usage.damaged), (15, 0));
    let held: u64 = blobs(&sandbox)
        .iter()
        .map(|blob| fs::metadata(blob).unwrap().blocks() * 512)
        .sum();
    assert!(held <= usage.size, "{held} bytes on the disk, {usage:?}");
}

#[test]
fn used_entries_stay_while_volumes_are_emptied() {
    let sandbox = Sandbox::new();
    let store = open_with(&sandbox.path("cache"), SMALL);
    // One entry in each of the first volumes, so that each of these is emptied again and again.
    let used: Vec<usize> = (0..100).step_by(10).collect();
    (0..100).for_each(|n| put(&store, n));
    let (done, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (1..=3)
            .map(|writer| {
                let (store, used) = (&store, &used);
                scope.spawn(move || {
                    for n in (0..1500).map(|n| writer * 10_000 + n) {
                        put(store, n);
                        // The writers do this, because a reader may not get to run before the cache is full.
                        let entry = store.find(&key(used[n % used.len()]));
                        store.touch(&entry[0]);
                        if n % 3 == 0 {
                            remove(store, n);
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let (store, used, done, looks) = (&store, &used, &done, &looks);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for n in used {
                        assert!(get(store, *n), "entry {n}, {:?}", store.usage());
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert!(looks.into_inner() > 0);
    wait_until("it is small again", || store.usage().size <= store.usage().max_size);
    assert_eq!(store.usage().damaged, 0);
    drop(store);
    let store = open_with(&sandbox.path("cache"), SMALL);
    assert!(used.iter().all(|n| get(&store, *n)));
    let there: Vec<usize> = (10_000..40_000).filter(|n| get(&store, *n)).collect();
    assert!(there.len() > 20 && store.usage().damaged == 0, "{}", there.len());
}

#[test]
fn many_short_sessions_leave_few_volumes() {
    let sandbox = Sandbox::new();
    for n in 0..40 {
        put(&open(&sandbox.path("cache")), n);
    }
    let store = open(&sandbox.path("cache"));
    wait_until("they are one", || volumes(&sandbox).len() <= 17);
    assert!((0..40).all(|n| get(&store, n)));
}

#[test]
fn a_store_of_an_older_format_is_removed_unless_it_is_in_use() {
    let sandbox = Sandbox::new();
    let former = sandbox.path("cache/store-1");
    fs::create_dir_all(former.join("blobs/01")).unwrap();
    fs::create_dir_all(former.join("audit")).unwrap();
    for name in ["lock", "index", "journal", "blobs/01/0123456789abcdef"] {
        fs::write(former.join(name), "old").unwrap();
    }
    let lock = fs::File::open(former.join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    put(&open(&sandbox.path("cache")), 1);
    assert!(former.join("blobs/01/0123456789abcdef").exists());
    drop(lock);
    let store = open(&sandbox.path("cache"));
    wait_until("the old store is gone", || !former.exists());
    assert!(get(&store, 1));
}
