//! The store: what was acknowledged survives, and what is damaged is a miss, never a wrong byte.

mod space;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use space::{is_root, wait_until, TestSpace};
use wafengine::cache::digest::Digest;
use wafengine::cache::store::{Blob, Compression, Settings, Store};

const ANY_SIZE: Settings = Settings {
    max_size: u64::MAX,
    compression: Compression::Auto,
};

/// As soon as nobody has it: a program that another test is just starting has all our locks for a moment.
#[track_caller]
fn open_with(folder: &Path, settings: Settings) -> Store {
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
fn open(folder: &Path) -> Store {
    open_with(folder, ANY_SIZE)
}

fn key(n: usize) -> Digest {
    Digest::of(&n.to_le_bytes())
}

/// Some can be packed, some cannot; all differ.
fn content(n: usize) -> Vec<u8> {
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

fn output(n: usize) -> Vec<u8> {
    content(1_000_000 + n)
}

fn put(store: &Store, n: usize) {
    let blob = store.put_blob(&output(n)).unwrap();
    store.put_entry(&key(n), &content(n), &[blob]).unwrap();
}

/// What the store gives for it, which is nothing or right.
#[track_caller]
fn get(store: &Store, n: usize) -> bool {
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

/// All files of a store that hold something.
fn files(folder: &Path) -> Vec<PathBuf> {
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

fn index(space: &TestSpace) -> PathBuf {
    space.path("cache/store-1/index")
}

fn blobs(space: &TestSpace) -> Vec<PathBuf> {
    files(&space.path("cache/store-1/blobs"))
}

#[test]
fn what_was_stored_is_there_when_it_is_opened_again() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    (0..40).for_each(|n| put(&store, n));
    store.count(&[("hit", 2), ("miss", 1)]).unwrap();
    store.count(&[("hit", 3)]).unwrap();
    store.remove_entry(&store.find(&key(7))[0]);
    let usage = store.usage();
    drop(store);
    let store = open(&space.path("cache"));
    assert!((0..40).all(|n| get(&store, n) == (n != 7)));
    assert!(!store.has_blob(&Digest::of(&output(7))), "nobody needs it");
    assert_eq!(store.counters(), [("hit".to_owned(), 5), ("miss".to_owned(), 1)].into());
    assert_eq!(
        (store.usage().entries, store.usage().blobs),
        (usage.entries, usage.blobs)
    );
    assert_eq!((usage.entries, usage.blobs), (39, 78));
}

#[test]
fn what_is_stored_twice_is_on_the_disk_once() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    put(&store, 1);
    let before = (blobs(&space), store.usage());
    put(&store, 1);
    assert_eq!((blobs(&space), store.usage()), before);
    let blob = Digest::of(&output(1));
    store.put_entry(&key(2), &content(2), &[blob, blob]).unwrap();
    assert_eq!(blobs(&space).len(), before.0.len() + 1);
    store.remove_entry(&store.find(&key(1))[0]);
    assert!(store.has_blob(&blob), "another entry needs it");
    store.remove_entry(&store.find(&key(2))[0]);
    assert_eq!(blobs(&space), [] as [PathBuf; 0]);
}

#[test]
fn a_key_has_sixteen_entries_and_the_last_used_is_first() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    let entries: Vec<_> = (0..20)
        .map(|n| store.put_entry(&key(0), &content(n), &[]).unwrap())
        .collect();
    let newest: Vec<_> = entries[4..].iter().rev().copied().collect();
    assert_eq!(store.find(&key(0)), newest);
    assert_eq!(blobs(&space).len(), 16);
    store.touch(&entries[9]);
    assert_eq!(store.find(&key(0))[0], entries[9]);
    drop(store);
    let store = open(&space.path("cache"));
    let first = store.find(&key(0))[0];
    assert_eq!(store.read(&first).unwrap(), content(9), "the order is kept, too");
    assert_eq!(store.read(&entries[0]), None);
}

#[test]
fn an_entry_without_its_blobs_is_refused_by_name() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    let error = store.put_entry(&key(1), b"entry", &[key(2)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&key(2).to_string()), "{error}");
    assert_eq!(store.find(&key(1)), []);
}

#[test]
fn blobs_of_any_size_are_written_as_they_were() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    for size in [0, 1, 4096, 4097, 1 << 20, 65 << 20] {
        let bytes: Vec<u8> = (0..size).map(|n: usize| ((n * n) >> 7) as u8).collect();
        fs::write(space.path("source"), &bytes).unwrap();
        let digest = store.put_file(&File::open(space.path("source")).unwrap()).unwrap();
        assert_eq!(digest, Digest::of(&bytes));
        let blob = store.open_blob(&digest).unwrap();
        assert_eq!(blob.length(), size as u64);
        blob.write_to(&File::create(space.path("target")).unwrap()).unwrap();
        assert!(fs::read(space.path("target")).unwrap() == bytes, "{size} bytes");
    }
}

#[test]
fn a_second_opener_is_refused_by_name() {
    let space = TestSpace::new();
    let folder = space.path("cache");
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
fn an_index_of_another_kind_is_put_aside_and_another_format_left_alone() {
    let space = TestSpace::new();
    fs::create_dir_all(space.path("cache/store-1")).unwrap();
    fs::create_dir_all(space.path("cache/store-2")).unwrap();
    fs::write(index(&space), "not an index at all").unwrap();
    fs::write(space.path("cache/store-2/index"), "of the future").unwrap();
    let store = open(&space.path("cache"));
    put(&store, 1);
    drop(store);
    assert!(get(&open(&space.path("cache")), 1));
    let foreign = space.path("cache/store-1/index.foreign");
    assert_eq!(fs::read_to_string(foreign).unwrap(), "not an index at all");
    assert_eq!(
        fs::read_to_string(space.path("cache/store-2/index")).unwrap(),
        "of the future"
    );
}

#[test]
fn what_dead_processes_left_is_swept_up() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    put(&store, 1);
    store.put_blob(b"no entry needs it").unwrap();
    drop(store);
    let left = space.path("cache/store-1/blobs/f0/0123456789abcde0");
    fs::create_dir_all(left.parent().unwrap()).unwrap();
    fs::write(&left, "half of it").unwrap();
    let store = open(&space.path("cache"));
    wait_until("it is swept up", || blobs(&space).len() == 2);
    assert!(get(&store, 1));
}

/// Everything that the store had before its files were changed is right or not there; and it works as before.
#[track_caller]
fn check_damaged(space: &TestSpace, entries: usize) -> usize {
    let store = open(&space.path("cache"));
    let there = (0..entries).filter(|n| get(&store, *n)).count();
    (0..entries).for_each(|n| put(&store, n));
    assert!(
        (0..entries).all(|n| get(&store, n)),
        "what was lost can be stored again"
    );
    there
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// A store of four entries, and what `damage` makes of each of its files in turn: how many entries were left at most.
fn damage_each_file(damage: impl Fn(&Path, usize) -> bool) -> Vec<usize> {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    (0..4).for_each(|n| put(&store, n));
    drop(store);
    copy(&space.path("cache"), &space.path("sound"));
    let mut left = Vec::new();
    for file in files(&space.path("cache")) {
        for round in 0.. {
            fs::remove_dir_all(space.path("cache")).unwrap();
            copy(&space.path("sound"), &space.path("cache"));
            if !damage(&file, round) {
                break;
            }
            left.push(check_damaged(&space, 4));
        }
    }
    left
}

#[test]
fn a_flipped_bit_is_a_miss_wherever_it_is() {
    let left = damage_each_file(|file, round| {
        let mut bytes = fs::read(file).unwrap();
        // Every piece of the index, the ends and some of the middle of a blob.
        let stride = 1 + bytes.len() / 30;
        let Some(byte) = bytes.get_mut(round * stride) else {
            return false;
        };
        *byte ^= 1 << (round % 8);
        fs::write(file, bytes).unwrap();
        true
    });
    assert!(
        left.iter().all(|left| (3..=4).contains(left)),
        "one bit costs one entry: {left:?}"
    );
    assert!(left.iter().filter(|left| **left == 3).count() > left.len() / 2);
}

#[test]
fn a_cut_file_is_a_miss_wherever_it_is_cut() {
    let left = damage_each_file(|file, round| {
        let length = fs::metadata(file).unwrap().len();
        let cut = round as u64 * (1 + length / 20);
        let cuts = cut < length;
        fs::OpenOptions::new()
            .write(true)
            .open(file)
            .unwrap()
            .set_len(cut.min(length))
            .unwrap();
        cuts
    });
    assert!(left.iter().all(|left| *left < 4), "{left:?}");
    assert!(left.contains(&3) && left.contains(&0));
}

#[test]
fn a_blob_that_vanishes_is_a_miss() {
    let left = damage_each_file(|file, round| round == 0 && fs::remove_file(file).is_ok());
    assert_eq!(left.len(), 9, "an index, four entries, four outputs");
    assert!(left.iter().all(|left| [0, 3].contains(left)), "{left:?}");
}

#[test]
fn damage_while_it_is_open_is_a_miss_and_counted() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    put(&store, 1);
    for blob in blobs(&space) {
        fs::write(blob, "other").unwrap();
    }
    assert!(!get(&store, 1));
    assert_eq!(store.usage().damaged, 1);
    assert_eq!(store.find(&key(1)), [], "the entry is removed");
    assert!(store.open_blob(&Digest::of(&output(1))).is_none());
    put(&store, 1);
    assert!(get(&store, 1));
}

#[test]
fn eviction_keeps_what_is_used_while_others_read() {
    let space = TestSpace::new();
    let settings = Settings {
        max_size: 3 << 20,
        compression: Compression::Off,
    };
    let store = open_with(&space.path("cache"), settings);
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
    let held: u64 = blobs(&space)
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
    let store = open_with(&space.path("cache"), settings);
    assert!(get(&store, 0) && get(&store, 999));
    store.set_max_size(1 << 20);
    wait_until("it is smaller", || store.usage().size <= 1 << 20);
    assert_eq!(store.usage().damaged, 0);
}

#[test]
fn entries_go_by_age_and_all_at_once() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    (0..100).for_each(|n| put(&store, n));
    assert_eq!(store.evict_older_than(Duration::from_secs(3600)), 0);
    assert_eq!(store.evict_older_than(Duration::ZERO), 100);
    assert_eq!(blobs(&space), [] as [PathBuf; 0]);
    (0..100).for_each(|n| put(&store, n));
    store.count(&[("hit", 1)]).unwrap();
    store.clear().unwrap();
    assert_eq!((store.usage().entries, store.usage().blobs), (0, 0));
    assert_eq!(blobs(&space), [] as [PathBuf; 0]);
    drop(store);
    let store = open(&space.path("cache"));
    assert!(!(0..100).any(|n| get(&store, n)));
    assert_eq!(store.counters().len(), 1);
    store.zero_counters().unwrap();
    drop(store);
    assert_eq!(open(&space.path("cache")).counters().len(), 0);
}

#[test]
fn it_is_cleared_while_others_read_and_write() {
    let space = TestSpace::new();
    let store = open(&space.path("cache"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for n in (worker * 1000..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let blob = store.put_blob(&output(n)).unwrap();
                    // Refused where its blob was just cleared.
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
    assert_eq!(blobs(&space), [] as [PathBuf; 0]);
}

const WRITER: &str = "WAFD_TEST_STORE";

#[test]
#[ignore = "the process that other tests start, and kill"]
fn a_writer() {
    let Some(told) = std::env::var_os(WRITER) else {
        return;
    };
    let told = told.into_string().unwrap();
    let (first, folder) = told.split_once(' ').unwrap();
    let store = open(Path::new(folder));
    let mut acknowledge = std::io::stderr();
    for n in first.parse().unwrap().. {
        put(&store, n);
        store.count(&[("put", 1)]).unwrap();
        if n >= KEPT {
            store
                .find(&key(n - KEPT))
                .iter()
                .for_each(|entry| store.remove_entry(entry));
        }
        acknowledge.write_all(&(n as u64).to_le_bytes()).unwrap();
    }
}

/// A writer removes what is older.
const KEPT: usize = 60;

fn start_writer(folder: &Path, first: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_writer", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(WRITER, format!("{first} {}", folder.display()));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let space = TestSpace::new();
    let seed = space::new_session();
    let mut random = blake3::Hasher::new()
        .update(&seed)
        .update(&std::process::id().to_le_bytes())
        .finalize_xof();
    let mut acknowledged = 0;
    let mut puts = 0;
    for round in 0..40 {
        let mut writer = start_writer(&space.path("cache"), acknowledged);
        let mut told = writer.stderr.take().unwrap();
        let mut draw = [0; 2];
        random.fill(&mut draw);
        for _ in 0..=draw[0] % 100 {
            let mut number = [0; 8];
            told.read_exact(&mut number).unwrap();
            acknowledged = u64::from_le_bytes(number) as usize + 1;
        }
        (0..u32::from(draw[1]) * 100).for_each(|n| _ = std::hint::black_box(n));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut rest = Vec::new();
        told.read_to_end(&mut rest).unwrap();
        if let Some(last) = rest.chunks_exact(8).last() {
            acknowledged = u64::from_le_bytes(last.try_into().unwrap()) as usize + 1;
        }
        let store = open(&space.path("cache"));
        for n in 0..acknowledged {
            // Of the one that came after the last, all or nothing was done, and its removal too.
            let wanted = n + KEPT >= acknowledged;
            let free = n + KEPT == acknowledged;
            assert!(
                get(&store, n) == wanted || free,
                "round {round}, entry {n} of {acknowledged}, {draw:?}"
            );
        }
        puts = puts.max(acknowledged as u64);
        let counted = store.counters()["put"];
        assert!(counted >= puts && counted <= puts + round + 1, "{counted} of {puts}");
        assert_eq!(store.usage().damaged, 0);
    }
}

/// On a folder where little fits: some puts fail, all others are there, then and later.
fn fill_disk(folder: &Path, limit: impl FnOnce()) {
    let mut stored = HashMap::new();
    let store = open(folder);
    put(&store, 0);
    limit();
    for n in 1..400 {
        let blob = store.put_blob(&output(n));
        stored.insert(
            n,
            blob.and_then(|blob| store.put_entry(&key(n), &content(n), &[blob]))
                .is_ok(),
        );
    }
    assert!(stored.values().any(|stored| *stored) && !stored.values().all(|stored| *stored));
    let check = |store: &Store| stored.iter().all(|(n, stored)| get(store, *n) == *stored);
    assert!(check(&store) && get(&store, 0));
    drop(store);
    let store = open(folder);
    assert!(check(&store) && get(&store, 0));
    assert_eq!(store.usage().damaged, 0);
    store.clear().unwrap();
    put(&store, 1000);
    assert!(get(&store, 1000), "there is room again");
}

#[test]
fn a_full_disk_costs_only_what_does_not_fit() {
    if !is_root() {
        eprintln!("not root: nothing can be mounted");
        return;
    }
    let space = TestSpace::new();
    let folder = space.path("disk");
    fs::create_dir(&folder).unwrap();
    let disk = Disk::mount(&folder);
    if disk.is_some() {
        fill_disk(&folder, || ());
    }
}

/// A little disk in memory.
struct Disk<'a>(&'a Path);

impl Disk<'_> {
    fn mount(folder: &Path) -> Option<Disk<'_>> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(folder)
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Disk(folder))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn it_holds_what_a_map_would_hold_after_any_steps() {
    let space = TestSpace::new();
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).unwrap();
    let mut random = blake3::Hasher::new().update(&seed).finalize_xof();
    let mut store = open(&space.path("cache"));
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
                store = open(&space.path("cache"));
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
    wait_until("only its blobs are left", || blobs(&space).len() == 2 * model.len());
}
