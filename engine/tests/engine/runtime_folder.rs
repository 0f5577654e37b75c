//! The runtime folder: where it is, which will not do, and what happens when its disk is full.

use std::fs::{self, Permissions};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::process::Command;

use crate::support::peer::{hello, Peer};
use crate::support::process;
use crate::support::sandbox::{self, is_root, mode, new_session, run, wait_until, TestSpace};
use wafengine::files::folder::ENGINE;

/// `start`, `status` and `stop` each say one line of this folder, naming it and what to do.
#[track_caller]
fn is_refused(space: &TestSpace) -> String {
    let shown = space.runtime().to_str().unwrap().to_owned();
    for args in [&["status"][..], &["stop"], &["stop", "--now"]] {
        space.run(args).failed();
    }
    let line = space.run(&["start"]).failed();
    assert!(line.contains(&shown), "{line}");
    assert!(space.processes().is_empty());
    line
}

/// A folder that cannot be made is told, with the variable that says where it should be.
#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let mut space = TestSpace::new();
    fs::write(space.path("file"), "").unwrap();
    space.use_runtime("file/run");
    let line = is_refused(&space);
    assert!(line.contains("WAFD_RUNTIME_DIR"), "{line}");
    space.use_runtime("/proc/nowhere/run");
    assert!(is_refused(&space).contains("WAFD_RUNTIME_DIR"));
}

/// A folder that may not be written to is told.
#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let space = TestSpace::new();
    if is_root() {
        // What root may not write to either.
        let mut inner = space.command("unshare");
        inner.args([
            "-m",
            "sh",
            "-c",
            r#"mount -t tmpfs -o ro,mode=700 none "$0" || exit 42; exec "$1" start"#,
        ]);
        inner.arg(space.runtime()).arg(env!("CARGO_BIN_EXE_wafd"));
        let said = run(&mut inner);
        if said.status == Some(42) || said.stderr.starts_with("unshare") {
            return eprintln!("not tried: mounting is not permitted here");
        }
        let line = said.failed();
        assert!(line.contains(space.runtime().to_str().unwrap()), "{line}");
    } else {
        fs::set_permissions(space.runtime(), Permissions::from_mode(0o500)).unwrap();
        let line = space.run(&["start"]).failed();
        assert!(line.contains(space.runtime().to_str().unwrap()), "{line}");
        fs::set_permissions(space.runtime(), Permissions::from_mode(0o700)).unwrap();
    }
}

/// A folder that others may look into is refused, and nothing is made in it.
#[test]
fn a_folder_open_to_others_is_refused() {
    let space = TestSpace::new();
    for mode in [0o755, 0o770, 0o701, 0o1777] {
        fs::set_permissions(space.runtime(), Permissions::from_mode(mode)).unwrap();
        let line = is_refused(&space);
        assert!(line.contains("chmod 700"), "{line}");
        assert_eq!(fs::read_dir(space.runtime()).unwrap().count(), 0, "mode {mode:o}");
    }
    fs::set_permissions(space.runtime(), Permissions::from_mode(0o700)).unwrap();
    space.start();
    fs::set_permissions(space.runtime(), Permissions::from_mode(0o755)).unwrap();
    // Also when an engine runs already: somebody else may have put it there.
    is_refused_running(&space);
    fs::set_permissions(space.runtime(), Permissions::from_mode(0o700)).unwrap();
}

fn is_refused_running(space: &TestSpace) {
    for args in [&["status"][..], &["stop"], &["start"]] {
        let line = space.run(args).failed();
        assert!(line.contains("chmod 700"), "{line}");
    }
}

/// A folder of another user is refused.
#[test]
fn a_folder_of_another_user_is_refused() {
    if !is_root() {
        return eprintln!("not tried: only root can give a folder away");
    }
    let space = TestSpace::new();
    std::os::unix::fs::chown(space.runtime(), Some(12345), Some(12345)).unwrap();
    is_refused(&space);
    assert_eq!(fs::read_dir(space.runtime()).unwrap().count(), 0);
}

/// A link in the folder's place is refused, wherever it points; so is a file.
#[test]
fn a_link_or_file_in_the_folders_place_is_refused() {
    let mut space = TestSpace::new();
    fs::create_dir(space.path("real")).unwrap();
    fs::set_permissions(space.path("real"), Permissions::from_mode(0o700)).unwrap();
    symlink(space.path("real"), space.path("link")).unwrap();
    symlink(space.path("nowhere"), space.path("dangling")).unwrap();
    fs::write(space.path("file"), "").unwrap();
    for name in ["link", "dangling", "file"] {
        space.use_runtime(name);
        is_refused(&space);
    }
    assert_eq!(fs::read_dir(space.path("real")).unwrap().count(), 0);
}

/// A folder whose name is too long for a socket is refused as such; the longest that is not works.
#[test]
fn a_folder_with_a_long_name_is_refused() {
    let mut space = TestSpace::new();
    let rest = format!("/wafd-{ENGINE}.sock").len();
    let room = 107 - rest - space.path("").to_str().unwrap().trim_end_matches('/').len() - 1;
    space.use_runtime("l".repeat(room + 1));
    let line = is_refused(&space);
    assert!(line.contains("too long"), "{line}");
    space.use_runtime("l".repeat(room));
    space.start();
    space.serves();
}

/// A relative folder, which would be another one for each client, is refused.
#[test]
fn a_relative_folder_is_refused() {
    let space = TestSpace::new();
    // One that started all the same would have another mark than the rest of the space.
    let mut start = space.wafd(&["start", "--idle", "1"]);
    let line = run(start.env("WAFD_RUNTIME_DIR", "run").current_dir(space.path(""))).failed();
    assert!(line.contains("absolute"), "{line}");
}

/// Without the variable of its own, the folder is below the one for the user's runtime files, and private.
#[test]
fn the_usual_folder_is_found() {
    let space = TestSpace::new();
    let usual = |args: &[&str]| {
        let mut command = space.wafd(args);
        // An empty value is none.
        command
            .env("WAFD_RUNTIME_DIR", "")
            .env("XDG_RUNTIME_DIR", space.path(""));
        run(&mut command)
    };
    let line = usual(&["start", "--idle", "5"]).succeeded();
    let socket = space.path(format!("wafd/wafd-{ENGINE}.sock"));
    assert_eq!(line, format!("ready unix {}\n", socket.display()));
    assert_eq!(mode(&space.path("wafd")), 0o700);
    let mut peer = Peer::unix(&socket);
    peer.welcome(&hello(new_session(), 0));
    let pids = [peer.pid, process::parent(peer.pid)];
    usual(&["stop", "--now"]).succeeded();
    wait_until("it is gone", || !pids.into_iter().any(process::lives));
}

/// Runs `wafd` with its runtime folder on a small file system of its own that has been filled by `fill`.
fn on_a_full_disk(space: &TestSpace, options: &str, fill: &str, script: &str) -> Option<sandbox::Said> {
    let script = format!(
        "mount -t tmpfs -o mode=700,{options} none \"$0\" || exit 42; \
         cd \"$0\"; {{ {fill}; }} 2>/dev/null; cd /; {script}"
    );
    let mut inner = space.command("unshare");
    inner.args(["-m", "sh", "-c", &script]);
    inner.arg(space.runtime()).arg(env!("CARGO_BIN_EXE_wafd"));
    let said = run(&mut inner);
    if said.status == Some(42) || said.stderr.starts_with("unshare") {
        eprintln!("not tried: mounting is not permitted here");
        return None;
    }
    Some(said)
}

/// When no file can be made in the folder any more, the start says so in one line.
#[test]
fn a_disk_without_room_for_files_is_told() {
    let space = TestSpace::new();
    // With each start there is room for one file more, so that every one of them is missed once.
    for room in 0..4 {
        let fill = format!("i=0; while true > f$i; do i=$((i+1)); done; for i in $(seq {room}); do rm f$i; done");
        let Some(said) = on_a_full_disk(&space, "nr_inodes=12", &fill, r#"exec "$1" start"#) else {
            return;
        };
        let line = said.failed();
        assert!(line.contains("No space left"), "room for {room}: {line}");
        space.wait_until_empty();
    }
}

/// When nothing can be written any more, an engine still starts and serves, since it needs no file's content; only the
/// port, which does, is refused in one line, and no half of its token is left.
#[test]
fn a_disk_without_room_for_content_is_enough() {
    let space = TestSpace::new();
    let fill = "cat /dev/zero > filler";
    let script = r#""$1" start && "$1" status --json && "$1" stop"#;
    let Some(said) = on_a_full_disk(&space, "size=16k", fill, script) else {
        return;
    };
    let text = said.succeeded();
    assert!(text.contains("ready unix"), "{text}");
    assert!(text.contains("\"sessions\""), "{text}");
    space.wait_until_empty();
    let script = r#""$1" start --tcp; s=$?; ls "$0" >&3; exit $s"#;
    let script = format!("exec 3>{}; {script}", space.name("list"));
    let said = on_a_full_disk(&space, "size=16k", fill, &script).unwrap();
    let line = said.failed();
    assert!(line.contains("No space left"), "{line}");
    let list = fs::read_to_string(space.path("list")).unwrap();
    assert!(!list.contains(&format!("wafd-{ENGINE}.tcp\n")), "{list}");
    space.wait_until_empty();
}

/// What stands in the place of a lock or of the log, and is no file of ours, makes way for one; only a folder has to be removed.
#[test]
fn what_is_no_file_of_ours_makes_way() {
    let space = TestSpace::new();
    for file in ["start", "lock", "log"].map(|ending| space.file(ending)) {
        for kind in ["fifo", "circle", "dangling", "closed", "folder"] {
            let _ = fs::remove_file(&file);
            match kind {
                "fifo" => drop(run(Command::new("mkfifo").arg(&file)).succeeded()),
                "circle" => symlink(&file, &file).unwrap(),
                "dangling" => symlink("/no/such/file", &file).unwrap(),
                "closed" => {
                    fs::write(&file, "").unwrap();
                    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
                }
                _ => fs::create_dir(&file).unwrap(),
            }
            if kind == "folder" {
                let line = space.run(&["start"]).failed();
                assert!(line.contains("log") || line.contains(file.to_str().unwrap()), "{line}");
                fs::remove_dir(&file).unwrap();
                continue;
            }
            space.start();
            assert_eq!(mode(&file), 0o600, "{kind} {}", file.display());
            space.run(&["stop", "--now"]).succeeded();
            space.wait_until_empty();
        }
    }
}

/// A log that has grown is put aside at the next start; the one before that is forgotten.
#[test]
fn the_log_is_turned_over() {
    let space = TestSpace::new();
    fs::write(space.file("log"), vec![b'1'; (1 << 20) + 1]).unwrap();
    fs::write(space.file("log.old"), "older").unwrap();
    space.start();
    assert_eq!(fs::metadata(space.file("log.old")).unwrap().len(), (1 << 20) + 1);
    let log = fs::read_to_string(space.file("log")).unwrap();
    assert!(log.contains(&format!("wafd {ENGINE} starts")), "{log}");
    assert_eq!(mode(&space.file("log")), 0o600);
    space.run(&["stop", "--now"]).succeeded();
    space.wait_until_empty();
    space.start();
    let log = fs::read_to_string(space.file("log")).unwrap();
    assert_eq!(log.matches("starts").count(), 2, "a small log goes on: {log}");
}
