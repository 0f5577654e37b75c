//! FIFOs, sockets, folders and links to devices in the place of our files, which could block for ever.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::sandbox::{self, run, wait_until, Sandbox};
use crate::support::wrapper;

const KINDS: [&str; 4] = ["fifo", "socket", "folder", "link"];

/// Replaces a file in one step: a running engine may write a file anew as soon as it is missing.
fn place(kind: &str, path: &Path) {
    // Only the socket's name is needed. A long name does not fit into its address.
    let made = std::env::temp_dir().join(format!("ws{}-{}", std::process::id(), sandbox::unique()));
    match kind {
        "fifo" => assert!(Command::new("mkfifo").arg(&made).status().unwrap().success()),
        "socket" => drop(UnixListener::bind(&made).unwrap()),
        "folder" => {
            let _ = fs::remove_file(path);
            fs::create_dir(&made).unwrap();
        }
        _ => symlink("/dev/zero", &made).unwrap(),
    }
    fs::rename(made, path).unwrap();
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files.extend(files_in(&entry.path())),
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files
}

#[track_caller]
fn compiles(sandbox: &Sandbox, what: &str) {
    let mut command = wrapper::wafcc(sandbox);
    command
        .args(["gcc", "-g", "-c", "a.c", "-o", "a.o"])
        .current_dir(sandbox.path(""));
    let said = run(&mut command);
    assert_eq!(said.status, Some(0), "{what}: {said:?}");
    assert!(fs::remove_file(sandbox.path("a.o")).is_ok(), "{what}");
}

fn hits(sandbox: &Sandbox) -> u64 {
    let said = run(wrapper::wafcc(sandbox).args(["--show-stats", "--json"])).succeeded();
    let statistics: serde_json::Value = serde_json::from_str(&said).unwrap();
    statistics["hits"].as_u64().unwrap()
}

fn filled() -> Sandbox {
    let sandbox = Sandbox::new();
    // Large enough to be in a file of its own.
    let lines: String = (0..300)
        .map(|i| format!("int f{i}(int x) {{ return x + {i}; }}\n"))
        .collect();
    fs::write(sandbox.path("a.c"), lines).unwrap();
    wait_until("it is a hit", || {
        compiles(&sandbox, "a plain compile");
        hits(&sandbox) > 0
    });
    sandbox.run(&["stop"]).succeeded();
    sandbox.wait_until_empty();
    sandbox
}

/// Whichever file of the store is replaced, before the engine starts or while it runs, a compile ends normally.
#[test]
fn strange_files_of_the_store_are_a_miss() {
    let sandbox = filled();
    let store = sandbox.path("home/.cache/wafcc");
    let files = files_in(&store);
    assert!(files.len() > 2, "{files:?}");
    let kept = sandbox.path("kept");
    for (number, file) in files.iter().enumerate() {
        let kind = KINDS[number % KINDS.len()];
        let name = file.display();
        if !file.is_file() {
            continue;
        }
        fs::copy(file, &kept).unwrap();
        place(kind, file);
        compiles(&sandbox, &format!("{name} is a {kind}"));
        let _ = sandbox.run(&["stop"]);
        sandbox.wait_until_empty();
        remove(file);
        fs::copy(&kept, file).unwrap();
        compiles(&sandbox, &format!("{name} was a {kind}"));
        place("fifo", file);
        compiles(&sandbox, &format!("{name} became a fifo"));
        let _ = sandbox.run(&["stop"]);
        sandbox.wait_until_empty();
        remove(file);
        fs::copy(&kept, file).unwrap();
    }
}

/// The same for the files in the engine's folder, and for the settings.
#[test]
fn strange_files_of_the_engine_do_not_block() {
    let sandbox = filled();
    let mut files = files_in(sandbox.runtime());
    files.extend(["tcp", "trouble", "verdicts"].map(|ending| sandbox.file(ending)));
    files.push(sandbox.path("home/.config/wafcc/wafcc.conf"));
    files.push(sandbox.path("home/.cache/wafcc/wafcc.conf"));
    fs::create_dir_all(sandbox.path("home/.config/wafcc")).unwrap();
    for file in files {
        for kind in KINDS {
            remove(&file);
            place(kind, &file);
            compiles(&sandbox, &format!("{} is a {kind}", file.display()));
            remove(&file);
            let _ = sandbox.run(&["stop"]);
            sandbox.wait_until_empty();
        }
    }
}
