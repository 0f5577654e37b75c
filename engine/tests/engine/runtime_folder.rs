//! The runtime folder: where it is, which folders are refused, and what happens on a full disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::process::Command;

use crate::support::peer::{hello, Peer};
use crate::support::process;
use crate::support::sandbox::{self, is_root, mode, new_session, run, wait_until, Sandbox};
use wafengine::files::folder::ENGINE;

/// `start`, `status` and `stop` each print one line that names the folder and the remedy.
#[track_caller]
fn assert_refused(sandbox: &Sandbox) -> String {
    let shown = sandbox.runtime().to_str().unwrap().to_owned();
    for args in [&["status"][..], &["stop"], &["stop", "--now"]] {
        sandbox.run(args).failed();
    }
    let line = sandbox.run(&["start"]).failed();
    assert!(line.contains(&shown), "{line}");
    assert!(sandbox.processes().is_empty());
    line
}

/// A folder that cannot be made is reported with the variable that sets it.
#[test]
fn a_folder_that_cannot_be_made_is_reported() {
    let mut sandbox = Sandbox::new();
    fs::write(sandbox.path("file"), "").unwrap();
    sandbox.use_runtime("file/run");
    let line = assert_refused(&sandbox);
    assert!(line.contains("WAFD_RUNTIME_DIR"), "{line}");
    sandbox.use_runtime("/proc/nowhere/run");
    assert!(assert_refused(&sandbox).contains("WAFD_RUNTIME_DIR"));
}

/// A folder without write permission is reported.
#[test]
fn a_folder_that_cannot_be_written_is_reported() {
    let sandbox = Sandbox::new();
    if is_root() {
        // A folder that even root cannot write to.
        let mut inner = sandbox.command("unshare");
        inner.args([
            "-m",
            "sh",
            "-c",
            r#"mount -t tmpfs -o ro,mode=700 none "$0" || exit 42; exec "$1" start"#,
        ]);
        inner.arg(sandbox.runtime()).arg(env!("CARGO_BIN_EXE_wafd"));
        let said = run(&mut inner);
        if said.status == Some(42) || said.stderr.starts_with("unshare") {
            return eprintln!("not tried: mounting is not permitted here");
        }
        let line = said.failed();
        assert!(line.contains(sandbox.runtime().to_str().unwrap()), "{line}");
    } else {
        fs::set_permissions(sandbox.runtime(), Permissions::from_mode(0o500)).unwrap();
        let line = sandbox.run(&["start"]).failed();
        assert!(line.contains(sandbox.runtime().to_str().unwrap()), "{line}");
        fs::set_permissions(sandbox.runtime(), Permissions::from_mode(0o700)).unwrap();
    }
}

/// A folder that other users can read is refused, and nothing is made in it.
#[test]
fn a_folder_open_to_others_is_refused() {
    let sandbox = Sandbox::new();
    for mode in [0o755, 0o770, 0o701, 0o1777] {
        fs::set_permissions(sandbox.runtime(), Permissions::from_mode(mode)).unwrap();
        let line = assert_refused(&sandbox);
        assert!(line.contains("chmod 700"), "{line}");
        assert_eq!(fs::read_dir(sandbox.runtime()).unwrap().count(), 0, "mode {mode:o}");
    }
    fs::set_permissions(sandbox.runtime(), Permissions::from_mode(0o700)).unwrap();
    sandbox.start();
    fs::set_permissions(sandbox.runtime(), Permissions::from_mode(0o755)).unwrap();
    // Even if an engine runs already: another user may have put it there.
    assert_refused_while_running(&sandbox);
    fs::set_permissions(sandbox.runtime(), Permissions::from_mode(0o700)).unwrap();
}

fn assert_refused_while_running(sandbox: &Sandbox) {
    for args in [&["status"][..], &["stop"], &["start"]] {
        let line = sandbox.run(args).failed();
        assert!(line.contains("chmod 700"), "{line}");
    }
}

/// A folder of another user is refused.
#[test]
fn a_folder_of_another_user_is_refused() {
    if !is_root() {
        return eprintln!("not tried: only root can give a folder away");
    }
    let sandbox = Sandbox::new();
    std::os::unix::fs::chown(sandbox.runtime(), Some(12345), Some(12345)).unwrap();
    assert_refused(&sandbox);
    assert_eq!(fs::read_dir(sandbox.runtime()).unwrap().count(), 0);
}

/// A link in place of the folder is refused, wherever it leads. So is a file.
#[test]
fn a_link_or_file_in_the_folders_place_is_refused() {
    let mut sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("real")).unwrap();
    fs::set_permissions(sandbox.path("real"), Permissions::from_mode(0o700)).unwrap();
    symlink(sandbox.path("real"), sandbox.path("link")).unwrap();
    symlink(sandbox.path("nowhere"), sandbox.path("dangling")).unwrap();
    fs::write(sandbox.path("file"), "").unwrap();
    for name in ["link", "dangling", "file"] {
        sandbox.use_runtime(name);
        assert_refused(&sandbox);
    }
    assert_eq!(fs::read_dir(sandbox.path("real")).unwrap().count(), 0);
}

/// A folder whose name is too long for a socket is refused for that reason. The longest possible name works.
#[test]
fn a_folder_with_a_long_name_is_refused() {
    let mut sandbox = Sandbox::new();
    let rest = format!("/wafd-{ENGINE}.sock").len();
    let room = 107 - rest - sandbox.path("").to_str().unwrap().trim_end_matches('/').len() - 1;
    sandbox.use_runtime("l".repeat(room + 1));
    let line = assert_refused(&sandbox);
    assert!(line.contains("too long"), "{line}");
    sandbox.use_runtime("l".repeat(room));
    sandbox.start();
    sandbox.serves();
}

/// A relative folder would depend on each client's current folder, so it is refused.
#[test]
fn a_relative_folder_is_refused() {
    let sandbox = Sandbox::new();
    // An engine that starts all the same would not have the sandbox's mark.
    let mut start = sandbox.wafd(&["start", "--idle", "1"]);
    let line = run(start.env("WAFD_RUNTIME_DIR", "run").current_dir(sandbox.path(""))).failed();
    assert!(line.contains("absolute"), "{line}");
}

/// Without `WAFD_RUNTIME_DIR`, the folder is below `XDG_RUNTIME_DIR`, and private.
#[test]
fn the_usual_folder_is_found() {
    let sandbox = Sandbox::new();
    let usual = |args: &[&str]| {
        let mut command = sandbox.wafd(args);
        // An empty value counts as not set.
        command
            .env("WAFD_RUNTIME_DIR", "")
            .env("XDG_RUNTIME_DIR", sandbox.path(""));
        run(&mut command)
    };
    let line = usual(&["start", "--idle", "5"]).succeeded();
    let socket = sandbox.path(format!("wafd/wafd-{ENGINE}.sock"));
    assert_eq!(line, format!("ready unix {}\n", socket.display()));
    assert_eq!(mode(&sandbox.path("wafd")), 0o700);
    let mut peer = Peer::unix(&socket);
    peer.welcome(&hello(new_session(), 0));
    let pids = [peer.pid, process::parent(peer.pid)];
    usual(&["stop", "--now"]).succeeded();
    wait_until("it is gone", || !pids.into_iter().any(process::lives));
}

/// Runs `wafd` with its runtime folder on a small file system of its own, which `fill` has filled.
fn on_a_full_disk(sandbox: &Sandbox, options: &str, fill: &str, script: &str) -> Option<sandbox::ProgramOutput> {
    let script = format!(
        "mount -t tmpfs -o mode=700,{options} none \"$0\" || exit 42; \
         cd \"$0\"; {{ {fill}; }} 2>/dev/null; cd /; {script}"
    );
    let mut inner = sandbox.command("unshare");
    inner.args(["-m", "sh", "-c", &script]);
    inner.arg(sandbox.runtime()).arg(env!("CARGO_BIN_EXE_wafd"));
    let said = run(&mut inner);
    if said.status == Some(42) || said.stderr.starts_with("unshare") {
        eprintln!("not tried: mounting is not permitted here");
        return None;
    }
    Some(said)
}

/// If no file can be made in the folder, the start says so in one line.
#[test]
fn a_disk_without_room_for_files_is_reported() {
    let sandbox = Sandbox::new();
    // Each start can make one file more, so that each file is missing once.
    for room in 0..4 {
        let fill = format!("i=0; while true > f$i; do i=$((i+1)); done; for i in $(seq {room}); do rm f$i; done");
        let Some(said) = on_a_full_disk(&sandbox, "nr_inodes=12", &fill, r#"exec "$1" start"#) else {
            return;
        };
        let line = said.failed();
        assert!(line.contains("No space left"), "room for {room}: {line}");
        sandbox.wait_until_empty();
    }
}

/// If nothing can be written, an engine still starts and serves, because none of its files needs content. Only the port
/// needs one: it is refused in one line, and leaves no partial token.
#[test]
fn a_disk_without_room_for_content_is_enough() {
    let sandbox = Sandbox::new();
    let fill = "cat /dev/zero > filler";
    let script = r#""$1" start && "$1" status --json && "$1" stop"#;
    let Some(said) = on_a_full_disk(&sandbox, "size=16k", fill, script) else {
        return;
    };
    let text = said.succeeded();
    assert!(text.contains("ready unix"), "{text}");
    assert!(text.contains("\"sessions\""), "{text}");
    sandbox.wait_until_empty();
    let script = r#""$1" start --tcp; s=$?; ls "$0" >&3; exit $s"#;
    let script = format!("exec 3>{}; {script}", sandbox.name("list"));
    let said = on_a_full_disk(&sandbox, "size=16k", fill, &script).unwrap();
    let line = said.failed();
    assert!(line.contains("No space left"), "{line}");
    let list = fs::read_to_string(sandbox.path("list")).unwrap();
    assert!(!list.contains(&format!("wafd-{ENGINE}.tcp\n")), "{list}");
    sandbox.wait_until_empty();
}

/// Anything that is not a file of ours in the place of a lock or of the log is replaced, except for a folder.
#[test]
fn other_kinds_of_files_are_replaced() {
    let sandbox = Sandbox::new();
    for file in ["start", "lock", "log"].map(|ending| sandbox.file(ending)) {
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
                let line = sandbox.run(&["start"]).failed();
                assert!(line.contains("log") || line.contains(file.to_str().unwrap()), "{line}");
                fs::remove_dir(&file).unwrap();
                continue;
            }
            sandbox.start();
            assert_eq!(mode(&file), 0o600, "{kind} {}", file.display());
            sandbox.run(&["stop", "--now"]).succeeded();
            sandbox.wait_until_empty();
        }
    }
}

/// A large log is renamed at the next start. The previous old log is removed.
#[test]
fn a_large_log_is_renamed() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.file("log"), vec![b'1'; (1 << 20) + 1]).unwrap();
    fs::write(sandbox.file("log.old"), "older").unwrap();
    sandbox.start();
    assert_eq!(fs::metadata(sandbox.file("log.old")).unwrap().len(), (1 << 20) + 1);
    let log = fs::read_to_string(sandbox.file("log")).unwrap();
    assert!(log.contains(&format!("wafd {ENGINE} starts")), "{log}");
    assert_eq!(mode(&sandbox.file("log")), 0o600);
    sandbox.run(&["stop", "--now"]).succeeded();
    sandbox.wait_until_empty();
    sandbox.start();
    let log = fs::read_to_string(sandbox.file("log")).unwrap();
    assert_eq!(log.matches("starts").count(), 2, "a small log goes on: {log}");
}
