//! A store that is removed, replaced or cut while an engine has it open works again within seconds, at its path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::sandbox::{self, is_root, run, wait_until, Sandbox};
use crate::support::stores::{self, get, key, open, output, put, volumes};
use crate::support::wrapper;
use wafengine::bytes::digest::Digest;
use wafengine::cache::store::{Blob, Store};

/// A blob that is too large for a volume.
fn large(n: usize) -> Vec<u8> {
    let mut bytes = vec![0; 300 << 10];
    blake3::Hasher::new()
        .update(&n.to_le_bytes())
        .update(b"large")
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// Tries to store an entry with a small and a large output.
fn try_put(store: &Store, n: usize) -> bool {
    let blobs = store
        .put_blob(&output(n))
        .and_then(|small| Ok([small, store.put_blob(&large(n))?]));
    let put = blobs.and_then(|blobs| store.put_entry(&key(n), &stores::content(n), &blobs));
    put.is_ok()
}

fn has_large(store: &Store, n: usize) -> bool {
    match store.open_blob(&Digest::of(&large(n))) {
        Some(Blob::Bytes(bytes) | Blob::Plain { bytes, .. }) => {
            assert_eq!(bytes, large(n));
            true
        }
        _ => false,
    }
}

fn folder(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("cache/store-2")
}

/// Damages a store that is open. Afterwards it must store again, and everything that it then has must be there for the next
/// process, too.
#[track_caller]
fn heals(damage: impl FnOnce(&Sandbox)) {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    for n in 0..4 {
        assert!(try_put(&store, n));
    }
    damage(&sandbox);
    // `get` fails the test if a byte is wrong.
    (0..4).for_each(|n| _ = get(&store, n));
    let mut next = 100;
    wait_until("it stores at its path", || {
        next += 1;
        let stored = try_put(&store, next) && get(&store, next) && has_large(&store, next);
        stored && is_on_disk(&sandbox, next)
    });
    for n in (0..4).chain(next + 1..next + 9) {
        assert!(try_put(&store, n), "{n}");
        assert!(get(&store, n) && has_large(&store, n), "{n}");
    }
    drop(store);
    let store = open(&sandbox.path("cache"));
    for n in (0..4).chain(next..next + 9) {
        assert!(get(&store, n) && has_large(&store, n), "{n} of the next process");
    }
}

/// Whether another process would find the entry. This is tested with a copy, because the store is locked.
fn is_on_disk(sandbox: &Sandbox, n: usize) -> bool {
    let copy = sandbox.path("copy");
    let _ = fs::remove_dir_all(&copy);
    let from = sandbox.path("cache");
    let copied = Command::new("cp").arg("-rL").args([&from, &copy]).output();
    copied.is_ok_and(|said| said.status.success()) && get(&open(&copy), n) && has_large(&open(&copy), n)
}

fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    fs::rename(from, to).unwrap();
}

#[test]
fn a_store_that_is_removed_is_made_again() {
    heals(|sandbox| fs::remove_dir_all(sandbox.path("cache")).unwrap());
}

#[test]
fn a_store_whose_folder_is_removed_is_made_again() {
    heals(|sandbox| fs::remove_dir_all(folder(sandbox)).unwrap());
}

#[test]
fn a_store_whose_blobs_are_removed_takes_blobs_again() {
    heals(|sandbox| fs::remove_dir_all(folder(sandbox).join("blobs")).unwrap());
}

#[test]
fn a_store_whose_volumes_are_removed_takes_small_blobs_again() {
    heals(|sandbox| fs::remove_dir_all(folder(sandbox).join("volumes")).unwrap());
}

#[test]
fn volumes_that_are_deleted_one_by_one_are_not_written_to() {
    heals(|sandbox| volumes(sandbox).iter().for_each(|path| fs::remove_file(path).unwrap()));
}

#[test]
fn folders_of_blobs_that_are_deleted_one_by_one_are_made_again() {
    heals(|sandbox| {
        for name in fs::read_dir(folder(sandbox).join("blobs")).unwrap() {
            fs::remove_dir_all(name.unwrap().path()).unwrap();
        }
    });
}

#[test]
fn an_empty_folder_in_its_place_becomes_the_store() {
    heals(|sandbox| {
        rename(sandbox.path("cache"), sandbox.path("old"));
        fs::create_dir(sandbox.path("cache")).unwrap();
    });
}

#[test]
fn another_store_in_its_place_becomes_the_store() {
    heals(|sandbox| {
        let other = open(&sandbox.path("other"));
        put(&other, 50);
        drop(other);
        rename(sandbox.path("cache"), sandbox.path("old"));
        rename(sandbox.path("other"), sandbox.path("cache"));
    });
}

#[test]
fn a_store_that_was_away_is_there_again() {
    heals(|sandbox| {
        rename(sandbox.path("cache"), sandbox.path("old"));
        rename(sandbox.path("old"), sandbox.path("cache"));
    });
}

#[test]
fn a_copy_in_its_place_becomes_the_store() {
    heals(|sandbox| {
        let copied = Command::new("cp")
            .arg("-a")
            .args(["cache", "copied"])
            .current_dir(sandbox.path(""))
            .status();
        assert!(copied.unwrap().success());
        fs::remove_dir_all(sandbox.path("cache")).unwrap();
        rename(sandbox.path("copied"), sandbox.path("cache"));
    });
}

#[test]
fn a_link_in_its_place_leads_to_the_store() {
    heals(|sandbox| {
        rename(sandbox.path("cache"), sandbox.path("elsewhere"));
        std::os::unix::fs::symlink("elsewhere", sandbox.path("cache")).unwrap();
    });
}

#[test]
fn an_index_that_is_removed_is_written_again() {
    heals(|sandbox| fs::remove_file(folder(sandbox).join("index")).unwrap());
}

#[test]
fn an_index_that_is_emptied_is_written_again() {
    heals(|sandbox| fs::write(folder(sandbox).join("index"), "").unwrap());
}

#[test]
fn an_index_that_is_cut_is_written_again() {
    heals(|sandbox| {
        let index = fs::OpenOptions::new().write(true).open(folder(sandbox).join("index"));
        index.unwrap().set_len(100).unwrap();
    });
}

#[test]
fn an_index_that_is_exchanged_is_written_again() {
    heals(|sandbox| {
        fs::write(sandbox.path("new"), "something else").unwrap();
        rename(sandbox.path("new"), folder(sandbox).join("index"));
    });
}

#[test]
fn a_lock_that_is_removed_is_taken_again() {
    heals(|sandbox| fs::remove_file(folder(sandbox).join("lock")).unwrap());
}

#[test]
fn a_pipe_in_place_of_lock_or_index_is_replaced() {
    heals(|sandbox| {
        for name in ["lock", "index"] {
            let path = folder(sandbox).join(name);
            fs::remove_file(&path).unwrap();
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }
    });
}

#[test]
fn a_file_in_its_place_stops_it_until_the_file_is_removed() {
    heals(|sandbox| {
        fs::remove_dir_all(sandbox.path("cache")).unwrap();
        fs::write(sandbox.path("cache"), "a file").unwrap();
        let cache = sandbox.path("cache");
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(2500));
            fs::remove_file(cache).unwrap();
        });
    });
}

/// If another process has made the folder again, nothing is stored until that process has closed it.
#[test]
fn a_store_that_another_process_has_made_is_not_used() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox.path("cache"));
    assert!(try_put(&store, 1));
    fs::remove_dir_all(sandbox.path("cache")).unwrap();
    let other = open(&sandbox.path("cache"));
    wait_until("it notices the other process", || !try_put(&store, 2));
    assert!(!get(&store, 3) && try_put(&other, 4) && get(&other, 4));
    drop(other);
    wait_until("it stores again", || try_put(&store, 5));
    assert!(get(&store, 4), "the other process's entry is there");
}

/// An engine with a store, and a source.
struct Project(Sandbox);

impl Project {
    fn new() -> Project {
        let sandbox = Sandbox::new();
        fs::create_dir(sandbox.path("store")).unwrap();
        Project(sandbox)
    }

    fn wafcc(&self, args: &[&str]) -> sandbox::ProgramOutput {
        let mut command = wrapper::wafcc(&self.0);
        command
            .env("WAFCC_DIR", self.0.path("store"))
            .current_dir(self.0.path(""));
        run(command.args(args))
    }

    /// Compiles a source with this number, whose object has about this size. Returns whether it was a hit.
    fn compile(&self, number: usize, size: usize) -> bool {
        let before = self.count("hits");
        fs::write(self.0.path("a.c"), format!("char a[{size}] = {{{number}}};\n")).unwrap();
        self.wafcc(&["gcc", "-c", "a.c"]).succeeded();
        let object = fs::read(self.0.path("a.o")).unwrap();
        run(self
            .0
            .command("gcc")
            .args(["-c", "a.c", "-o", "plain.o"])
            .current_dir(self.0.path("")))
        .succeeded();
        assert!(object == fs::read(self.0.path("plain.o")).unwrap(), "{number}");
        self.count("hits") > before
    }

    /// Compiles until it is a hit. The first compile may not be stored, because the source was written right before it.
    fn store(&self, number: usize, size: usize) {
        wait_until("it is stored", || self.compile(number, size));
    }

    fn count(&self, name: &str) -> u64 {
        let said = self.wafcc(&["--show-stats", "--json"]).succeeded();
        serde_json::from_str::<serde_json::Value>(&said).unwrap()[name]
            .as_u64()
            .unwrap()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = self.wafcc(&["--shutdown"]);
    }
}

/// Through `wafcc`: small and large results are stored again after `rm -rf`, and the counters start again.
#[test]
fn an_engine_whose_store_is_removed_stores_again() {
    let project = Project::new();
    for size in [1, 300_000] {
        project.store(0, size);
        fs::remove_dir_all(project.0.path("store")).unwrap();
        let mut number = 0;
        wait_until("it stores again", || {
            number += 1;
            let stored = !project.compile(number, size) && project.compile(number, size);
            stored && project.0.path("store/store-2/index").is_file()
        });
        assert!(project.count("since") > 0);
        assert!(project.compile(number, size), "and goes on");
    }
    assert!(project.wafcc(&["--explain", "a.o"]).succeeded().contains("a.o: hit"));
}

/// On a full disk, builds go on, stored results are hits, and results that are not stored are counted. When there is room
/// again, results are stored again, and no count is lost.
#[test]
fn the_store_and_its_counters_survive_a_full_disk() {
    if !is_root() {
        eprintln!("not root: nothing can be mounted");
        return;
    }
    let project = Project::new();
    let store = project.0.path("store");
    let mount = |args: &[&str]| {
        let status = Command::new("mount").args(args).arg(&store).status();
        assert!(status.unwrap().success(), "{args:?}");
    };
    mount(&["-t", "tmpfs", "-o", "size=4m", "none"]);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        project.store(0, 1);
        let fill = || fs::write(store.join("filler"), vec![1; 8 << 20]).unwrap_err();
        fill();
        let before = project.count("hits");
        let mut number = 0;
        wait_until("the disk is full", || {
            number += 1;
            let _ = project.compile(number, 200_000);
            let said = project.wafcc(&["--show-stats", "--json"]).succeeded();
            let told: serde_json::Value = serde_json::from_str(&said).unwrap();
            told["not_stored"]
                .as_object()
                .is_some_and(|reasons| !reasons.is_empty())
        });
        assert!(project.compile(0, 1), "a stored result is still a hit");
        assert!(project.count("hits") > before, "hits are counted on a full disk");
        fs::remove_file(store.join("filler")).unwrap();
        wait_until("it stores again", || {
            number += 1;
            !project.compile(number, 200_000) && project.compile(number, 200_000)
        });
        let counted = project.count("hits");
        project.wafcc(&["--shutdown"]).succeeded();
        assert!(
            project.count("hits") >= counted,
            "all counts were written when there was room"
        );
    }));
    let _ = project.wafcc(&["--shutdown"]);
    let _ = Command::new("umount").arg("-l").arg(&store).status();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
