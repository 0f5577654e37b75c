//! Reports are correct: each request has its own explanation, every result that is not stored is counted, and paths are
//! exact.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::order::shell;
use crate::support::sandbox::{run, wait_until, ProgramOutput, Sandbox};
use crate::support::wrapper;
use serde_json::Value;
use wafengine::wire::{Caching, Reply, Request, Told, UnstoredReason, Verdict};

/// A project with a store, whose name the test chooses.
struct Project {
    sandbox: Sandbox,
    store: PathBuf,
}

impl Project {
    fn new() -> Project {
        Project::with_store(b"store")
    }

    fn with_store(name: &[u8]) -> Project {
        let sandbox = Sandbox::new();
        let store = sandbox.path(OsStr::from_bytes(name));
        fs::write(sandbox.path("a.c"), "int a;\n").unwrap();
        fs::write(sandbox.path("b.c"), "int b;\n").unwrap();
        Project { sandbox, store }
    }

    fn wafcc(&self, line: &str) -> Command {
        let mut command = wrapper::wafcc(&self.sandbox);
        command.env("WAFCC_DIR", &self.store).current_dir(self.sandbox.path(""));
        command.args(line.split_whitespace());
        command
    }

    fn run_wafcc(&self, line: &str) -> ProgramOutput {
        run(&mut self.wafcc(line))
    }

    fn statistics(&self) -> Value {
        serde_json::from_str(&self.run_wafcc("--show-stats --json").succeeded()).unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        self.statistics()[name].as_u64().unwrap()
    }

    /// Compiles until the result is a hit.
    fn store(&self, line: &str) {
        wait_until("it is a hit", || {
            let before = self.count("hits");
            self.run_wafcc(line).succeeded();
            self.count("hits") > before
        });
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = self.run_wafcc("--shutdown");
    }
}

/// A command that is not cached has its own explanation, not that of an earlier hit.
#[test]
fn a_command_that_is_not_cached_is_explained() {
    let project = Project::new();
    fs::write(project.sandbox.path("a.c"), "int main(void) { return 0; }\n").unwrap();
    project.store("gcc -c a.c -o a.o");
    assert!(project.run_wafcc("--explain a.o").succeeded().contains("a.o: hit"));
    project.run_wafcc("gcc a.c -o a.o").succeeded();
    let told = project.run_wafcc("--explain a.o").succeeded();
    assert!(told.contains("a.o: uncached: called for linking"), "{told}");
}

/// A command whose output is not known is shown by its command line. Several outputs are explained at once.
#[test]
fn every_request_is_explained() {
    let project = Project::new();
    assert!(project.run_wafcc("run -- sh -c false").status == Some(1));
    wait_until("its end is told", || {
        let told = project.run_wafcc("--explain").succeeded();
        assert!(told.contains("the command sh -c false: miss"), "{told}");
        told.contains("not stored: it failed")
    });
    project.run_wafcc("gcc --version").succeeded();
    let told = project.run_wafcc("--explain").succeeded();
    assert!(told.contains("the command gcc --version: uncached"), "{told}");
    project.store("gcc -c a.c");
    project.store("gcc -c b.c");
    let told = project.run_wafcc("--explain a.o b.o c.o").succeeded();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 3, "{told}");
    assert!(lines[0].contains("a.o: hit") && lines[1].contains("b.o: hit"), "{told}");
    assert!(lines[2].ends_with("c.o: not asked for, or forgotten"), "{told}");
}

/// The explanation says if another program has written the output since.
#[test]
fn an_output_that_was_written_since_is_reported() {
    let project = Project::new();
    project.store("gcc -c a.c");
    let object = fs::File::options()
        .write(true)
        .open(project.sandbox.path("a.o"))
        .unwrap();
    object
        .set_modified(SystemTime::now() + Duration::from_secs(3600))
        .unwrap();
    let told = project.run_wafcc("--explain a.o").succeeded();
    assert!(told.contains("it was written again after that"), "{told}");
}

/// With `recache` a compile replaces the entry that would have been a hit. An entry for another header stays.
#[test]
fn recache_replaces_the_entry() {
    let project = Project::new();
    fs::write(project.sandbox.path("a.c"), "#include \"a.h\"\n").unwrap();
    for text in ["int a;\n", "int b;\n"] {
        fs::write(project.sandbox.path("a.h"), text).unwrap();
        project.store("gcc -c a.c");
    }
    assert_eq!(project.count("entries"), 2);
    for _ in 0..3 {
        let before = project.count("entries");
        run(project.wafcc("gcc -c a.c").env("WAFCC_RECACHE", "1")).succeeded();
        assert_eq!(before, 2);
    }
    wait_until("it is replaced", || project.count("entries") == 2);
    fs::write(project.sandbox.path("a.h"), "int a;\n").unwrap();
    project.store("gcc -c a.c");
    assert_eq!(project.count("entries"), 2);
}

/// With `recache` a damaged result is stored anew. It would otherwise be found out only by the hit after that.
#[test]
fn recache_replaces_a_damaged_result() {
    let project = Project::new();
    let wafcc = || {
        let mut command = project.wafcc("gcc -c a.c -o a.o");
        command.env("WAFCC_COMPRESSION", "no");
        command
    };
    wait_until("it is a hit", || {
        let before = project.count("hits");
        run(&mut wafcc()).succeeded();
        project.count("hits") > before
    });
    let object = fs::read(project.sandbox.path("a.o")).unwrap();
    let files = files_below(&project.store);
    let damaged = files.iter().filter(|file| damage(file, &object)).count();
    assert_eq!(damaged, 1, "one file has the object: {files:?}");
    fs::remove_file(project.sandbox.path("a.o")).unwrap();
    run(wafcc().env("WAFCC_RECACHE", "1")).succeeded();
    let before = project.count("hits");
    fs::remove_file(project.sandbox.path("a.o")).unwrap();
    run(&mut wafcc()).succeeded();
    assert_eq!(project.count("hits"), before + 1);
    assert_eq!(fs::read(project.sandbox.path("a.o")).unwrap(), object);
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match item.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&item.path())),
            false => found.push(item.path()),
        }
    }
    found
}

/// Changes a byte in the middle of this content, if the file has it.
fn damage(file: &Path, content: &[u8]) -> bool {
    let mut bytes = fs::read(file).unwrap_or_default();
    let Some(at) = bytes.windows(content.len()).position(|window| window == content) else {
        return false;
    };
    bytes[at + content.len() / 2] ^= 1;
    let mut open = fs::File::options().write(true).open(file).unwrap();
    open.write_all(&bytes).unwrap();
    true
}

/// With `recache` the next hit gives the new result. gcc's objects for the linker's optimizer differ from run to run.
#[test]
fn recache_replaces_a_stale_result() {
    let project = Project::new();
    let line = "gcc -flto -c a.c -o a.o";
    let object = || fs::read(project.sandbox.path("a.o")).unwrap();
    project.store(line);
    let old = object();
    run(project.wafcc(line).env("WAFCC_RECACHE", "1")).succeeded();
    let new = object();
    assert_ne!(old, new);
    fs::remove_file(project.sandbox.path("a.o")).unwrap();
    let before = project.count("hits");
    project.run_wafcc(line).succeeded();
    assert_eq!((project.count("hits"), project.count("entries")), (before + 1, 1));
    assert_eq!(object(), new);
}

/// A command that was ended early is counted as not stored, with its reason. Its client gets the same reason.
#[test]
fn commands_that_were_ended_are_counted() {
    let project = Project::new();
    let mut start = wrapper::clean(project.sandbox.wafd(&["start"]), &project.sandbox);
    run(start.env("WAFCC_DIR", &project.store)).succeeded();
    let mut peer = project.sandbox.client(2);
    peer.send(&Request::Caching(Caching {
        store: project.store.as_os_str().as_bytes().to_vec(),
        ..Caching::default()
    }));
    let mut order = shell("sleep 100").timeout(Duration::from_millis(200));
    (order.0.cached, order.0.by_facts) = (true, true);
    peer.submit(&order);
    let mut unstored = None;
    loop {
        match peer.receive().unwrap() {
            Reply::Told {
                told: Told::Miss { unstored: why, .. },
                ..
            } => unstored = why,
            Reply::Outcome(outcome) => break assert_eq!(outcome.verdict, Verdict::TimedOut),
            _ => {}
        }
    }
    assert_eq!(unstored, Some(UnstoredReason::TookTooLong.into()));
    wait_until("it is counted", || {
        let mut watcher = project.sandbox.greeter();
        watcher.report()["cache"]["statistics"]["not_stored"]["took too long"] == 1
    });
}

/// A store whose name is not UTF-8 works. It is shown as its bytes if a path is wanted, and as escaped text elsewhere.
#[test]
fn a_store_need_not_be_utf_8() {
    let project = Project::with_store(b"st\xff\\re");
    project.store("gcc -c a.c");
    let mut ask = project.wafcc("--get-config store");
    let path = ask.stdout(Stdio::piped()).output().unwrap().stdout;
    assert_eq!(path.strip_suffix(b"\n"), Some(project.store.as_os_str().as_bytes()));
    let told = project.run_wafcc("--show-config").succeeded();
    assert!(
        told.contains("(place) store = ") && told.contains(r"/st\xff\x5cre"),
        "{told}"
    );
    assert!(project.run_wafcc("--explain a.o").succeeded().contains("a.o: hit"));
    project.run_wafcc("--clear").succeeded();
    assert_eq!(project.count("entries"), 0);
    let runtime = run(&mut project.wafcc("--get-config runtime_dir")).succeeded();
    let mut status = project.sandbox.wafd(&["status", "--json"]);
    let told = run(status.env("WAFD_RUNTIME_DIR", runtime.trim_end())).succeeded();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(
        told["cache"]["store"].as_str().unwrap().ends_with(r"/st\xff\x5cre"),
        "{told}"
    );
    assert!(
        told["cache"]["store_bytes"]
            .as_str()
            .unwrap()
            .ends_with("2f7374ff5c7265"),
        "{told}"
    );
}

/// Sources and outputs whose names are not UTF-8 are cached, and are not confused.
#[test]
fn names_of_files_need_not_be_utf_8() {
    let project = Project::new();
    let line = |number: u8| {
        let [source, object] = [b"c", b"o"].map(|end| [&[b'x', number, b'.'], &end[..]].concat());
        (source, object)
    };
    let compile = |number: u8| {
        let (source, object) = line(number);
        let mut command = project.wafcc("gcc -c");
        command
            .arg(OsStr::from_bytes(&source))
            .arg("-o")
            .arg(OsStr::from_bytes(&object));
        run(&mut command).succeeded();
    };
    for number in [0xff, 0xfe] {
        let source = line(number).0;
        fs::write(project.sandbox.path(OsStr::from_bytes(&source)), "int x;\n").unwrap();
    }
    wait_until("it is a hit", || {
        let before = project.count("hits");
        compile(0xff);
        project.count("hits") > before
    });
    compile(0xfe);
    for (number, known) in [(0xff, "hit"), (0xfe, "miss")] {
        let mut ask = project.wafcc("--explain");
        let told = run(ask.arg(OsStr::from_bytes(&line(number).1))).succeeded();
        assert!(told.contains(&format!(r"/x\x{number:x}.o: {known}")), "{told}");
    }
}

/// In a folder with a default access control list, restored outputs get the same permissions as a compiler's own
/// outputs, with any umask, and replace outputs as usual.
#[test]
fn default_access_control_lists_hold() {
    let project = Project::new();
    let folder = project.sandbox.path("listed");
    fs::create_dir(&folder).unwrap();
    let listed = Command::new("setfacl")
        .args(["-d", "-m", "u:nobody:rwx,g::rw,o::---"])
        .arg(&folder)
        .status();
    if !listed.is_ok_and(|status| status.success()) {
        eprintln!("no access control lists here: install the package acl, or try another file system");
        return;
    }
    let rights = |name: &str| {
        let said = Command::new("getfacl")
            .args(["-c", name])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(said.status.success(), "{name}");
        String::from_utf8(said.stdout).unwrap()
    };
    for umask in ["022", "077", "002"] {
        let shell = |line: &str| {
            let line = format!("umask {umask}; {line}");
            let mut command = wrapper::clean(project.sandbox.command("sh"), &project.sandbox);
            command.env("WAFCC_DIR", &project.store).current_dir(&folder);
            run(command.args(["-c", &line])).succeeded();
        };
        let cached = format!("'{}' gcc -c ../a.c -o cached.o", wrapper::WAFCC);
        wait_until("it is a hit", || {
            let before = project.count("hits");
            shell(&cached);
            project.count("hits") > before
        });
        // With an output in place, and without one.
        for prepare in [":", "rm -f cached.o plain.o"] {
            let before = project.count("hits");
            shell(&format!("{prepare}; {cached}; gcc -c ../a.c -o plain.o"));
            assert_eq!(rights("cached.o"), rights("plain.o"), "umask {umask}, {prepare}");
            assert!(rights("plain.o").contains("user:nobody:"), "{}", rights("plain.o"));
            assert_eq!(project.count("hits"), before + 1, "umask {umask}, {prepare}");
        }
    }
}

/// A folder of which nothing is cached is named with the reason and the remedy, until something of it is cached.
#[test]
fn a_folder_of_which_nothing_is_cached_is_named() {
    let project = Project::new();
    fs::create_dir(project.sandbox.path("obj")).unwrap();
    fs::write(
        project.sandbox.path("stamp.h"),
        "static const char built[] = __TIME__;\n",
    )
    .unwrap();
    for name in ["1", "2", "3", "4", "5"] {
        let source = format!("{name}.c");
        fs::write(project.sandbox.path(&source), "#include \"stamp.h\"\nint x;\n").unwrap();
        wait_until("its header is not too new", || {
            project
                .run_wafcc(&format!("gcc -c {source} -o obj/{name}.o"))
                .succeeded();
            let told = project.run_wafcc(&format!("--explain obj/{name}.o")).succeeded();
            told.contains("it asks for the time")
        });
    }
    let told = project.run_wafcc("--show-stats").succeeded();
    let line = told
        .lines()
        .find(|line| line.starts_with("Nothing cached in:"))
        .unwrap_or_default();
    assert!(
        line.contains("/obj (5 commands): it asks for the time; set SOURCE_DATE_EPOCH"),
        "{told}"
    );
    assert_eq!(project.statistics()["voided"][0]["commands"], 5);
    project.store("gcc -c a.c -o obj/a.o");
    assert!(!project
        .run_wafcc("--show-stats")
        .succeeded()
        .contains("Nothing cached in:"));
}
