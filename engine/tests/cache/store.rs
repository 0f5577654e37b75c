//! The store: an entry is there until it is evicted or cleared, even while other threads read and write.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::sandbox::{wait_until, Sandbox};
use crate::support::stores::{blobs, content, get, index, key, open, open_with, output, put, volumes, ANY_SIZE};
use wafengine::bytes::digest::Digest;
use wafengine::cache::store::{Compression, Draft, Parcel, Settings, Store};

#[test]
fn entries_and_counters_survive_reopening() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    (0..40).for_each(|n| put(&store, n));
    store.count(&[("hit", 2), ("miss", 1)]).unwrap();
    store.count(&[("hit", 3)]).unwrap();
    store.remove_entry(&store.find(&key(7))[0]);
    let usage = store.usage();
    drop(store);
    let store = open(&sandbox.path("cache"));
    assert!((0..40).all(|n| get(&store, n) == (n != 7)));
    assert!(!store.has_blob(&Digest::of(&output(7))), "no entry needs it");
    assert_eq!(store.counters(), [("hit".to_owned(), 5), ("miss".to_owned(), 1)].into());
    assert_eq!(
        (store.usage().entries, store.usage().blobs),
        (usage.entries, usage.blobs)
    );
    assert_eq!((usage.entries, usage.blobs), (39, 78));
}

#[test]
fn a_blob_that_is_stored_twice_is_on_the_disk_once() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    put(&store, 1);
    // The size also has the uses of entries, which are written now and then.
    let counts = || (store.usage().entries, store.usage().blobs);
    let before = (blobs(&sandbox), counts());
    put(&store, 1);
    assert_eq!((blobs(&sandbox), counts()), before);
    let blob = Digest::of(&output(1));
    store.put_entry(&key(2), &content(2), &[blob, blob]).unwrap();
    assert_eq!(counts().1, before.1 .1 + 1);
    store.remove_entry(&store.find(&key(1))[0]);
    assert!(store.has_blob(&blob), "another entry needs it");
    store.remove_entry(&store.find(&key(2))[0]);
    assert_eq!(blobs(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn several_entries_are_stored_as_if_one_by_one() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    store.put_only_entries(&[draft(1, 1), draft(2, 2)]);
    let before = store.usage();
    // One is already there, one replaces another, one is replaced at once, and one needs a missing blob.
    let lacking = Draft {
        needs: vec![key(99)],
        ..draft(5, 5)
    };
    let drafts = [draft(1, 1), draft(2, 6), draft(3, 3), draft(3, 4), lacking];
    let done = store.put_only_entries(&drafts);
    let fine: Vec<_> = done.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, true, true, true, false]);
    let check = |store: &Store| {
        for (n, content) in [(1, 1), (2, 6), (3, 4)] {
            let found = store.find(&key(n));
            assert_eq!(found.len(), 1);
            let blobs = store.blobs_of(&found[0]).unwrap();
            assert_eq!(blobs, [Digest::of(MARK), Digest::of(values()[content])]);
        }
        assert!(store.find(&key(5)).is_empty());
    };
    check(&store);
    assert_eq!(store.usage().entries, before.entries + 1);
    drop(store);
    let store = open(&sandbox.path("cache"));
    check(&store);
    let usage = store.usage();
    assert_eq!((usage.entries, usage.blobs), (3, 4), "three values and the mark");
}

const MARK: &[u8] = b"the entry's own bytes";

fn values() -> [&'static [u8]; 7] {
    [b"zero", b"one", b"two", b"three", b"four", b"five", b"six"]
}

/// A draft for an entry with one blob.
fn draft(n: usize, content: usize) -> Draft<'static> {
    let parcel = Parcel::of(values()[content]).bare();
    Draft {
        key: key(n),
        bytes: MARK,
        needs: vec![parcel.digest],
        parcels: vec![parcel],
    }
}

#[test]
fn a_key_keeps_sixteen_entries_with_the_last_used_first() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    let entries: Vec<_> = (0..20)
        .map(|n| store.put_entry(&key(0), &content(n), &[]).unwrap())
        .collect();
    let newest: Vec<_> = entries[4..].iter().rev().copied().collect();
    assert_eq!(store.find(&key(0)), newest);
    assert_eq!(store.usage().blobs, 16);
    store.touch(&entries[9]);
    assert_eq!(store.find(&key(0))[0], entries[9]);
    drop(store);
    let store = open(&sandbox.path("cache"));
    let first = store.find(&key(0))[0];
    assert_eq!(store.read(&first).unwrap(), content(9), "the order survives, too");
    assert_eq!(store.read(&entries[0]), None);
}

#[test]
fn an_entry_with_a_missing_blob_is_refused_and_the_blob_named() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    let error = store.put_entry(&key(1), b"entry", &[key(2)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&key(2).to_string()), "{error}");
    assert_eq!(store.find(&key(1)), []);
}

#[test]
fn blobs_of_any_size_are_read_as_they_were_stored() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    for size in [0, 1, 4096, 4097, 1 << 20, 65 << 20] {
        let bytes: Vec<u8> = (0..size).map(|n: usize| ((n * n) >> 7) as u8).collect();
        fs::write(sandbox.path("source"), &bytes).unwrap();
        let digest = store.put_file(&File::open(sandbox.path("source")).unwrap()).unwrap();
        assert_eq!(digest, Digest::of(&bytes));
        let blob = store.open_blob(&digest).unwrap();
        assert_eq!(blob.length(), size as u64);
        blob.write_to(&File::create(sandbox.path("target")).unwrap()).unwrap();
        assert!(fs::read(sandbox.path("target")).unwrap() == bytes, "{size} bytes");
    }
}

#[test]
fn a_second_process_is_refused_and_the_folder_named() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("cache");
    let store = open(&folder);
    let error = Store::open(&folder, ANY_SIZE).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let told = error.to_string();
    assert!(
        told.contains("another wafd") && told.contains(folder.to_str().unwrap()),
        "{told}"
    );
    put(&store, 1);
    drop(store);
    assert!(get(&open(&folder), 1));
}

#[test]
fn a_foreign_index_is_renamed_and_another_format_is_not_touched() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("cache/store-2")).unwrap();
    fs::create_dir_all(sandbox.path("cache/store-3")).unwrap();
    fs::write(index(&sandbox), "not an index at all").unwrap();
    fs::write(sandbox.path("cache/store-3/index"), "of the future").unwrap();
    let store = open(&sandbox.path("cache"));
    put(&store, 1);
    drop(store);
    assert!(get(&open(&sandbox.path("cache")), 1));
    let foreign = sandbox.path("cache/store-2/index.foreign");
    assert_eq!(fs::read_to_string(foreign).unwrap(), "not an index at all");
    assert_eq!(
        fs::read_to_string(sandbox.path("cache/store-3/index")).unwrap(),
        "of the future"
    );
}

#[test]
fn eviction_keeps_used_entries_while_other_threads_read() {
    let sandbox = Sandbox::new();
    let settings = Settings {
        max_size: 3 << 20,
        compression: Compression::Off,
    };
    let store = open_with(&sandbox.path("cache"), settings);
    put(&store, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    (0..1000).skip(reader).step_by(3).for_each(|n| _ = get(store, n));
                }
            });
        }
        for n in 1..1000 {
            put(&store, n);
            store.touch(&store.find(&key(0))[0]);
        }
        done.store(true, Ordering::Relaxed);
    });
    wait_until("it is small again", || store.usage().size <= store.usage().max_size);
    assert!(get(&store, 0), "it was used all the time");
    assert!(get(&store, 999), "it is new");
    assert!(store.usage().entries < 1000);
    let held: u64 = blobs(&sandbox)
        .iter()
        .map(|blob| fs::metadata(blob).unwrap())
        .map(|status| std::os::unix::fs::MetadataExt::blocks(&status) * 512)
        .sum();
    assert!(
        held <= store.usage().size,
        "{held} bytes on the disk, {:?}",
        store.usage()
    );
    drop(store);
    let store = open_with(&sandbox.path("cache"), settings);
    assert!(get(&store, 0) && get(&store, 999));
    store.set_max_size(1 << 20);
    wait_until("it is smaller", || store.usage().size <= 1 << 20);
    assert_eq!(store.usage().damaged, 0);
}

/// A smaller limit removes as many entries as it must, and no more, also if there are few.
#[test]
fn a_smaller_limit_leaves_what_has_room() {
    let sandbox = Sandbox::new();
    let settings = Settings {
        max_size: u64::MAX,
        compression: Compression::Off,
    };
    let store = open_with(&sandbox.path("cache"), settings);
    let large = |n: u8| {
        let blob = store.put_blob(&vec![n; 1 << 20]).unwrap();
        let entry = 10_000 + usize::from(n);
        store.put_entry(&key(entry), &content(entry), &[blob]).unwrap();
    };
    (0..100).for_each(|n| put(&store, n));
    (0..20).for_each(large);
    let limit = store.usage().size / 8 * 5;
    store.set_max_size(limit);
    wait_until("it is smaller", || store.usage().size <= limit);
    let left = store.usage().entries;
    assert!((8..13).contains(&left), "{left} of 20 large entries");
    assert!(!get(&store, 99), "it is old");
    assert!(!store.find(&key(10_019)).is_empty(), "it is new");
}

#[test]
fn entries_are_removed_by_age_and_all_at_once() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    (0..100).for_each(|n| put(&store, n));
    assert_eq!(store.evict_older_than(Duration::from_secs(3600)), 0);
    assert_eq!(store.evict_older_than(Duration::ZERO), 100);
    assert_eq!(blobs(&sandbox), [] as [PathBuf; 0]);
    (0..100).for_each(|n| put(&store, n));
    store.count(&[("hit", 1)]).unwrap();
    store.clear().unwrap();
    assert_eq!((store.usage().entries, store.usage().blobs), (0, 0));
    assert_eq!(blobs(&sandbox), [] as [PathBuf; 0]);
    drop(store);
    let store = open(&sandbox.path("cache"));
    assert!(!(0..100).any(|n| get(&store, n)));
    assert_eq!(store.counters().len(), 1);
    store.zero_counters().unwrap();
    drop(store);
    assert_eq!(open(&sandbox.path("cache")).counters().len(), 0);
}

#[test]
fn a_store_can_be_cleared_while_other_threads_read_and_write() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for n in (worker * 1000..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let blob = store.put_blob(&output(n)).unwrap();
                    // This fails if the blob was cleared just now.
                    drop(store.put_entry(&key(n), &content(n), &[blob]));
                    get(store, n);
                }
            });
        }
        (0..20).for_each(|_| store.clear().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    store.clear().unwrap();
    assert_eq!(store.usage().blobs, 0);
    assert_eq!(blobs(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn after_random_steps_it_has_the_content_of_a_map() {
    let sandbox = Sandbox::new();
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).unwrap();
    let mut random = blake3::Hasher::new().update(&seed).finalize_xof();
    let mut store = open(&sandbox.path("cache"));
    let mut model = std::collections::HashSet::new();
    for step in 0..3000 {
        let mut draw = [0; 2];
        random.fill(&mut draw);
        let n = usize::from(draw[1] % 64);
        match draw[0] {
            0 => {
                store.clear().unwrap();
                model.clear();
            }
            1..=8 => {
                drop(store);
                store = open(&sandbox.path("cache"));
            }
            9..=80 => {
                store.find(&key(n)).iter().for_each(|entry| store.remove_entry(entry));
                model.remove(&n);
            }
            _ => {
                put(&store, n);
                model.insert(n);
            }
        }
        assert_eq!(get(&store, n), model.contains(&n), "step {step} of {seed:?}");
        let usage = store.usage();
        assert_eq!(
            (usage.entries, usage.blobs),
            (model.len(), 2 * model.len()),
            "step {step} of {seed:?}"
        );
    }
    drop(store);
    let store = open(&sandbox.path("cache"));
    wait_until("old volumes are gone", || volumes(&sandbox).len() <= 20);
    assert!((0..64).all(|n| get(&store, n) == model.contains(&n)), "{seed:?}");
}
