//! Reads and signals processes, by `/proc`.

use std::fs;
use std::path::Path;

use super::sandbox::wait_until;

pub fn kill(pid: i32, signal: i32) {
    assert!(pid > 1, "no process of ours");
    // SAFETY: only a system call.
    unsafe { libc::kill(pid, signal) };
}

/// Stops a process, and waits until it is stopped: until one of its threads has handled the signal, it can still
/// answer.
#[track_caller]
pub fn stop(pid: i32) {
    kill(pid, libc::SIGSTOP);
    wait_until(&format!("process {pid} is stopped"), || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
        threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    });
}

/// Signals a whole process group, as a terminal does.
pub fn kill_group(leader: i32, signal: i32) {
    assert!(leader > 1, "no group of ours");
    // SAFETY: only a system call.
    unsafe { libc::kill(-leader, signal) };
}

/// State letter, parent, process group and session. `None` if the process is gone.
pub fn stat(pid: i32) -> Option<(char, i32, i32, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |i: usize| fields[i].parse().ok();
    Some((fields[0].chars().next()?, number(1)?, number(2)?, number(3)?))
}

/// The process runs, sleeps or is stopped: it is neither gone nor a zombie.
pub fn lives(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, ..)| state != 'Z' && state != 'X')
}

/// It has asked the system to wait for some time. So it has begun, and the libraries that it loads have run.
pub fn sleeps(pid: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|word| word.parse().ok());
    [libc::SYS_clock_nanosleep, libc::SYS_nanosleep]
        .map(Some)
        .contains(&number)
}

#[track_caller]
pub fn parent(pid: i32) -> i32 {
    stat(pid).expect("a process").1
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

pub fn children(pid: i32) -> Vec<i32> {
    all().filter(|p| stat(*p).is_some_and(|s| s.1 == pid)).collect()
}

pub fn with_environment(name: &str, value: &[u8]) -> Vec<(i32, String)> {
    let wanted = [name.as_bytes(), b"=", value].concat();
    let has_it = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|entry| entry == wanted)
    };
    all().filter(has_it).map(|pid| (pid, command_line(pid))).collect()
}

pub fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// A line of `/proc/PID/status`.
#[track_caller]
pub fn status(pid: i32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    field(&text, name)
}

#[track_caller]
pub fn field(status: &str, name: &str) -> String {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim().to_owned()
}

/// Resident memory in KiB, without the pages of the program: those depend on how it was built.
#[track_caller]
pub fn resident(pid: i32) -> u64 {
    status(pid, "RssAnon").trim_end_matches(" kB").parse().unwrap()
}

/// Open descriptors.
#[track_caller]
pub fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count()
}

/// A number that a command writes to a file. Waits for it.
#[track_caller]
pub fn number_in(path: &Path) -> i32 {
    let mut found = None;
    wait_until(&format!("{} holds a number", path.display()), || {
        let text = fs::read_to_string(path).unwrap_or_default();
        found = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        found.is_some()
    });
    found.unwrap()
}
