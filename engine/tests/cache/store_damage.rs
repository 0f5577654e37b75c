//! The store: acknowledged entries survive a kill, and damage causes a miss, but never a wrong byte.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::sandbox::{self, is_root, wait_until, Sandbox};
use crate::support::stores::{blobs, content, files, get, key, open, open_with, output, put};
use wafengine::bytes::digest::Digest;
use wafengine::cache::store::{Compression, Settings, Store};

#[test]
fn leftovers_of_dead_processes_are_removed() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    put(&store, 1);
    store.put_blob(b"no entry needs it").unwrap();
    drop(store);
    let before = blobs(&sandbox);
    for left in ["blobs/f0/0123456789abcde0", "volumes/0123456789abcde0"] {
        let left = sandbox.path("cache/store-2").join(left);
        fs::create_dir_all(left.parent().unwrap()).unwrap();
        fs::write(&left, "half of it").unwrap();
    }
    let store = open(&sandbox.path("cache"));
    wait_until("the leftovers are gone", || blobs(&sandbox) == before);
    assert!(get(&store, 1));
}

/// Checks that each entry of a damaged store is right or missing, and that it can be stored again. Returns how many were
/// still there.
#[track_caller]
fn check_damaged(sandbox: &Sandbox, entries: usize) -> usize {
    let store = open(&sandbox.path("cache"));
    let there = (0..entries).filter(|n| get(&store, *n)).count();
    (0..entries).for_each(|n| put(&store, n));
    assert!((0..entries).all(|n| get(&store, n)), "a lost entry can be stored again");
    there
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// Damages each file of a store with four entries in turn, by `damage`, in rounds until it returns false. Returns how many
/// entries were left each time. With `is_plain`, each blob has a file of its own; otherwise all are in one volume.
fn damage_each_file(is_plain: bool, damage: impl Fn(&Path, usize) -> bool) -> Vec<usize> {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    store.set_plain(is_plain);
    (0..4).for_each(|n| put(&store, n));
    drop(store);
    copy(&sandbox.path("cache"), &sandbox.path("sound"));
    let mut left = Vec::new();
    for file in files(&sandbox.path("cache")) {
        for round in 0.. {
            fs::remove_dir_all(sandbox.path("cache")).unwrap();
            copy(&sandbox.path("sound"), &sandbox.path("cache"));
            if !damage(&file, round) {
                break;
            }
            left.push(check_damaged(&sandbox, 4));
        }
    }
    left
}

#[test]
fn a_flipped_bit_is_a_miss_wherever_it_is() {
    for is_plain in [false, true] {
        let left = damage_each_file(is_plain, |file, round| {
            let mut bytes = fs::read(file).unwrap();
            // About thirty places in each file.
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
}

#[test]
fn a_cut_file_is_a_miss_wherever_it_is_cut() {
    for is_plain in [false, true] {
        let left = damage_each_file(is_plain, |file, round| {
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
}

#[test]
fn a_blob_that_vanishes_is_a_miss() {
    let vanish = |file: &Path, round| round == 0 && fs::remove_file(file).is_ok();
    let left = damage_each_file(true, vanish);
    assert_eq!(left.len(), 9, "an index, four entries, four outputs");
    assert!(left.iter().all(|left| [0, 3].contains(left)), "{left:?}");
    assert_eq!(damage_each_file(false, vanish), [0, 0], "an index, a volume");
}

#[test]
fn damage_to_an_open_store_is_a_miss_and_counted() {
    for is_plain in [false, true] {
        let sandbox = Sandbox::new();
        let store = open(&sandbox.path("cache"));
        store.set_plain(is_plain);
        put(&store, 1);
        for blob in blobs(&sandbox) {
            fs::write(blob, "other").unwrap();
        }
        assert!(!get(&store, 1));
        assert_eq!(store.usage().damaged, 1);
        assert_eq!(store.find(&key(1)), [], "the entry is removed");
        assert!(store.open_blob(&Digest::of(&output(1))).is_none());
        put(&store, 1);
        assert!(get(&store, 1));
    }
}

const WRITER: &str = "WAFD_TEST_STORE";

#[test]
#[ignore = "a process that another test starts and kills"]
fn a_writer() {
    let Some(told) = std::env::var_os(WRITER) else {
        return;
    };
    let told = told.into_string().unwrap();
    let (first, folder) = told.split_once(' ').unwrap();
    let store = open_with(Path::new(folder), SMALL);
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

/// Large enough for what the writer keeps, and so small that blobs are often moved.
const SMALL: Settings = Settings {
    max_size: 3 << 20,
    compression: Compression::Auto,
};
/// How many entries the writer keeps. It removes older ones.
const KEPT: usize = 60;

fn start_writer(folder: &Path, first: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "store_damage::a_writer",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(WRITER, format!("{first} {}", folder.display()));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn acknowledged_entries_survive_kill_9() {
    let sandbox = Sandbox::new();
    let seed = sandbox::new_session();
    let mut random = blake3::Hasher::new()
        .update(&seed)
        .update(&std::process::id().to_le_bytes())
        .finalize_xof();
    let mut acknowledged = 0;
    let mut puts = 0;
    for round in 0..40 {
        let mut writer = start_writer(&sandbox.path("cache"), acknowledged);
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
        let store = open_with(&sandbox.path("cache"), SMALL);
        for n in 0..acknowledged {
            // The step after the last acknowledged one may have been done or not: an entry, and the removal of another.
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

/// Fills a disk. Some entries cannot be stored. All others are there, also after the store is opened again.
fn fill_disk(folder: &Path, limit: impl FnOnce()) {
    let mut stored = HashMap::new();
    let store = open(folder);
    put(&store, 0);
    limit();
    for n in 1..400 {
        stored.insert(n, has_room_for(&store, n));
    }
    assert!(stored.values().any(|stored| *stored) && !stored.values().all(|stored| *stored));
    let check = |store: &Store| stored.iter().all(|(n, stored)| get(store, *n) == *stored);
    assert!(check(&store) && get(&store, 0));
    drop(store);
    let store = open(folder);
    assert!(check(&store) && get(&store, 0));
    assert_eq!(store.usage().damaged, 0);
    store.clear().unwrap();
    // A removed file takes room until the last thread of the store has closed it.
    wait_until("there is room again", || has_room_for(&store, 1000));
    assert!(get(&store, 1000));
}

/// Tries to store an entry.
fn has_room_for(store: &Store, n: usize) -> bool {
    let blob = store.put_blob(&output(n));
    blob.and_then(|blob| store.put_entry(&key(n), &content(n), &[blob]))
        .is_ok()
}

#[test]
fn on_a_full_disk_only_new_entries_are_lost() {
    let sandbox = Sandbox::new();
    if let Some(disk) = Disk::mount(&sandbox) {
        fill_disk(&disk.0, || ());
    }
}

#[test]
fn if_a_full_disk_has_no_room_to_move_blobs_entries_are_evicted() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::mount(&sandbox) else {
        return;
    };
    let folder = &disk.0;
    let store = open_with(folder, SMALL);
    let stored = (0..).take_while(|n| has_room_for(&store, *n)).count();
    assert!((0..stored).all(|n| get(&store, n)));
    fs::write(folder.join("more"), [0; 1 << 20]).unwrap_err();
    store.set_max_size(store.usage().size / 4 * 3);
    wait_until("there is room", || store.usage().size <= store.usage().max_size);
    fs::remove_file(folder.join("more")).unwrap();
    assert!(get(&store, stored - 1), "the newest is there");
    put(&store, 1000);
    assert!(get(&store, 1000));
    assert_eq!(store.usage().damaged, 0);
}

/// A small disk in memory.
struct Disk(PathBuf);

impl Disk {
    fn mount(sandbox: &Sandbox) -> Option<Disk> {
        if !is_root() {
            eprintln!("not root: nothing can be mounted");
            return None;
        }
        let folder = sandbox.path("disk");
        fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(&folder)
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Disk(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
