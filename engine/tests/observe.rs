//! What commands note of themselves, held against what strace sees.

mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use wafengine::cache::access::{Access, What};
use wafengine::cache::trace::{Arena, Berth};
use wafengine::park::LIBRARY;

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/observed/probe.c");

/// A folder to run observed commands in.
struct Yard {
    folder: PathBuf,
    arena: Arena,
}

impl Drop for Yard {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Yard {
    fn new() -> Yard {
        let name = format!("wafpark-{}-{}", std::process::id(), space::unique());
        let folder = std::env::temp_dir().canonicalize().unwrap().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("libwafpark.so"), LIBRARY).unwrap();
        Yard {
            folder,
            arena: Arena::new(4).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn library(&self) -> Vec<u8> {
        self.path("libwafpark.so").as_os_str().as_bytes().to_vec()
    }

    fn variables(&self, berth: &Berth) -> Vec<Vec<u8>> {
        berth.variables(&self.library(), None).into()
    }

    fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        // cargo sets it; what the loader looks for along it is not noted.
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    fn observed(&self, program: impl AsRef<OsStr>, berth: &Berth) -> Command {
        let mut command = self.plain(program);
        for variable in self.variables(berth) {
            let at = variable.iter().position(|b| *b == b'=').unwrap();
            command.env(
                OsStr::from_bytes(&variable[..at]),
                OsStr::from_bytes(&variable[at + 1..]),
            );
        }
        command
    }

    /// What a command that must succeed does.
    #[track_caller]
    fn observe(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Vec<Access> {
        let berth = self.arena.reserve().unwrap();
        let said = self.observed(program, &berth).args(args).output().unwrap();
        succeeded(&said);
        berth.finish()
    }

    #[track_caller]
    fn probe(&self, flags: &[&str]) -> PathBuf {
        let path = self.path("probe");
        let mut cc = self.plain("cc");
        cc.args(["-w", "-pthread", PROBE, "-o"])
            .arg(&path)
            .args(flags)
            .arg("-ldl");
        succeeded(&cc.output().unwrap());
        path
    }
}

#[track_caller]
fn succeeded(said: &Output) {
    assert!(said.status.success(), "{said:?}");
}

fn blindness(accesses: &[Access]) -> Vec<&'static str> {
    let why = accesses.iter().filter_map(|access| match access.what {
        What::Blind { why } => Some(why),
        _ => None,
    });
    why.collect()
}

fn texts(what: &What) -> Vec<&[u8]> {
    match what {
        What::Begin { program, .. } => vec![program],
        What::Rename { from, to } => vec![from, to],
        What::Execute { path }
        | What::Load { path }
        | What::Enter { path }
        | What::Open { path, .. }
        | What::Find { path }
        | What::Look { path, .. }
        | What::Link { path }
        | What::Resolve { path }
        | What::List { path }
        | What::Remove { path }
        | What::Make { path } => vec![path],
        _ => vec![],
    }
}

/// All paths that were used, absolute: the folders of processes are followed.
#[track_caller]
fn paths(accesses: &[Access]) -> BTreeSet<PathBuf> {
    let mut folders: BTreeMap<u32, PathBuf> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for access in accesses {
        if let What::Begin { folder, .. } = &access.what {
            folders.insert(access.process, PathBuf::from(OsStr::from_bytes(folder)));
        }
        for text in texts(&access.what) {
            let path = Path::new(OsStr::from_bytes(text));
            let folder = folders.get(&access.process);
            assert!(path.is_absolute() || folder.is_some(), "of no folder: {access:?}");
            let path = folder.map_or(path.to_owned(), |folder| folder.join(path));
            if matches!(access.what, What::Enter { .. }) && access.error == 0 {
                folders.insert(access.process, path.clone());
            }
            found.insert(path);
        }
    }
    found
}

// ---- single facts

#[test]
fn threads_of_a_process_note_at_the_same_time() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["threads"]);
    let found = paths(&accesses);
    assert_eq!(blindness(&accesses), [""; 0]);
    for name in ["a", "b", "c", "d"] {
        for i in 0..500 {
            assert!(
                found.contains(&PathBuf::from(format!("/absent/{name}/{i}"))),
                "{name} {i}"
            );
        }
    }
}

#[test]
fn programs_that_are_executed_in_any_way_are_observed() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["execute"]);
    let found = paths(&accesses);
    assert_eq!(blindness(&accesses), [""; 0]);
    for way in ["vfork", "fork", "execl", "spawn", "spawnp", "system", "popen"] {
        assert!(found.contains(&PathBuf::from(format!("/absent/{way}"))), "{way}");
    }
    let lost = Path::new("/usr/bin/nothing-of-this-name");
    assert!(found.contains(lost), "where it was looked for in vain");
}

#[test]
fn a_program_sees_the_environment_that_it_would_have_had() {
    let yard = Yard::new();
    let probe = yard.probe(&[]);
    let berth = yard.arena.reserve().unwrap();
    let plain = yard.plain(&probe).arg("environment").output().unwrap();
    let observed = yard.observed(&probe, &berth).arg("environment").output().unwrap();
    assert_eq!(plain.stdout, observed.stdout);
    assert_eq!(blindness(&berth.finish()), [""; 0]);
}

#[test]
fn libraries_that_a_client_preloads_stay_preloaded() {
    let yard = Yard::new();
    let probe = yard.probe(&[]);
    let other = yard.write("other.c", "int of_another;\n");
    let library = yard.path("other.so");
    succeeded(
        &yard
            .plain("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &other])
            .output()
            .unwrap(),
    );
    let theirs = library.as_os_str().as_bytes();
    let berth = yard.arena.reserve().unwrap();
    let [preload, trace] = berth.variables(&yard.library(), Some(theirs));
    let value =
        |entry: &[u8]| OsStr::from_bytes(&entry[entry.iter().position(|b| *b == b'=').unwrap() + 1..]).to_owned();
    let mut command = yard.plain(&probe);
    command.args(["run".as_ref(), probe.as_os_str(), "environment".as_ref()]);
    let said = command
        .env("LD_PRELOAD", value(&preload))
        .env("WAFPARK_TRACE", value(&trace))
        .output()
        .unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains(&format!("LD_PRELOAD={}\n", library.display())), "{text}");
    let accesses = berth.finish();
    let loads = accesses
        .iter()
        .filter(|access| matches!(&access.what, What::Load { path } if path == theirs));
    assert_eq!(loads.count(), 2, "before and after exec");
    assert_eq!(blindness(&accesses), [""; 0]);
}

#[test]
fn relative_paths_belong_to_the_folder_of_their_process() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["folders"]);
    let found = paths(&accesses);
    assert_eq!(blindness(&accesses), [""; 0]);
    let names = [
        "in/below",
        "by-number",
        "not-by-number",
        "above",
        "in",
        "in-a-fork",
        "in/deep-in-a-fork",
        "",
    ];
    for name in names {
        assert!(found.contains(&yard.path(name)), "{name}: {found:?}");
    }
    let lists = accesses
        .iter()
        .filter(|access| matches!(access.what, What::List { .. }));
    assert_eq!(lists.count(), 2);
}

#[test]
fn what_is_written_moved_and_removed_is_noted() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["files"]);
    let did: Vec<&What> = accesses
        .iter()
        .filter(|a| a.error == 0)
        .map(|access| &access.what)
        .collect();
    let moved = did.iter().find_map(|what| match what {
        What::Rename { from, to } => Some((from.clone(), to.clone())),
        _ => None,
    });
    let (from, to) = moved.unwrap();
    assert_eq!(to, b"kept");
    let opened = |wanted: &[u8]| {
        let modes = did.iter().filter_map(|what| match what {
            What::Open { path, mode } if path == wanted => Some(*mode),
            _ => None,
        });
        modes.collect::<Vec<_>>()
    };
    assert!(matches!(opened(&from)[..], [mode] if mode.creates && mode.exclusive && mode.writes));
    let [fresh, more] = opened(b"new")[..] else {
        panic!("{did:?}")
    };
    assert!(fresh.exclusive && fresh.truncates && !fresh.reads);
    assert!(more.reads && more.writes && more.creates && !more.truncates && !more.exclusive);
    assert!(matches!(opened(b"second")[..], [mode] if mode.writes && mode.exclusive));
    assert!(did.contains(&&What::Make { path: b"link".to_vec() }));
    for gone in [b"second".to_vec(), b"new".to_vec()] {
        assert!(did.contains(&&What::Remove { path: gone }));
    }
}

#[test]
fn clocks_dates_and_randomness_are_told_apart() {
    let yard = Yard::new();
    let probe = yard.probe(&[]);
    let ask = |what: &str| {
        let accesses = yard.observe(&probe, &[what]);
        let seen = |wanted: What| accesses.iter().any(|access| access.what == wanted);
        (seen(What::Time), seen(What::Date), seen(What::Random))
    };
    assert_eq!(ask("monotonic"), (false, false, false));
    assert_eq!(ask("time"), (true, false, false));
    assert_eq!(ask("date"), (false, true, false));
    assert_eq!(ask("random"), (false, false, true));
    assert_eq!(ask("urandom"), (false, false, true));
}

#[test]
fn a_program_may_close_what_it_does_not_know() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["closed"]);
    assert!(paths(&accesses).contains(Path::new("/absent/closed")));
}

#[test]
fn the_hardened_forms_are_noted_too() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["hardened"]);
    let link = What::Link {
        path: b"/absent/hardened".to_vec(),
    };
    assert!(accesses.iter().any(|access| access.what == link && access.error == 2));
    assert!(accesses.iter().any(|access| access.what == What::Locate));
}

#[test]
fn walks_of_the_c_library_blind() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["walk"]);
    assert_eq!(blindness(&accesses), ["it lets the C library walk through folders"]);
}

#[test]
fn errno_stays_what_it_was() {
    let yard = Yard::new();
    yard.observe(yard.probe(&[]), &["errno"]);
}

#[test]
fn a_library_is_found_along_its_programs_own_path_and_noted() {
    let yard = Yard::new();
    let source = yard.write("part.c", "int part(void) { return 1; }\n");
    fs::create_dir(yard.path("parts")).unwrap();
    let part = yard.path("parts/libpart.so");
    succeeded(
        &yard
            .plain("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&part, &source])
            .output()
            .unwrap(),
    );
    let probe = yard.probe(&["-Wl,--enable-new-dtags,-rpath,$ORIGIN/parts"]);
    let accesses = yard.observe(probe, &["library", "libpart.so"]);
    let loaded = What::Load {
        path: part.as_os_str().as_bytes().to_vec(),
    };
    assert!(accesses.iter().any(|access| access.what == loaded), "{accesses:?}");
}

// ---- what cannot be observed

#[test]
fn a_static_program_leaves_nothing_to_be_believed() {
    let yard = Yard::new();
    let probe = yard.probe(&["-static"]);
    assert_eq!(blindness(&yard.observe(&probe, &[])), ["it cannot be observed"]);
}

#[test]
fn a_static_program_that_is_executed_blinds() {
    let yard = Yard::new();
    let inner = yard.probe(&["-static"]);
    fs::rename(&inner, yard.path("inner")).unwrap();
    let probe = yard.probe(&[]);
    let inner = yard.path("inner");
    let accesses = yard.observe(probe, &["run", inner.to_str().unwrap()]);
    assert_eq!(blindness(&accesses), ["a program that it executes cannot be observed"]);
}

#[test]
fn a_full_berth_blinds_and_the_next_command_has_it_whole() {
    let yard = Yard::new();
    let probe = yard.probe(&[]);
    assert_eq!(
        blindness(&yard.observe(&probe, &["many"])),
        ["it does more than can be noted"]
    );
    for _ in 0..5 {
        assert_eq!(blindness(&yard.observe(&probe, &["closed"])), [""; 0]);
    }
}

#[test]
fn system_calls_of_its_own_blind() {
    let yard = Yard::new();
    let accesses = yard.observe(yard.probe(&[]), &["raw"]);
    assert_eq!(blindness(&accesses), ["it makes system calls of its own"]);
}

#[test]
fn a_process_that_outlives_its_command_blinds() {
    let yard = Yard::new();
    let probe = yard.probe(&[]);
    let mark = yard.path("mark");
    let berth = yard.arena.reserve().unwrap();
    let mut command = yard.observed(&probe, &berth);
    command
        .args(["linger".as_ref(), mark.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (held, mut said) = (child.stdin.take(), child.stdout.take().unwrap());
    // The child closes its end after what it does; the parent keeps its own, and waits for the mark.
    let noted = || {
        let text = fs::read(format!("/proc/{}/task/{}/children", child.id(), child.id())).unwrap_or_default();
        !text.is_empty()
    };
    space::wait_until("it has a child", noted);
    let grandchild = fs::read_to_string(format!("/proc/{}/task/{}/children", child.id(), child.id())).unwrap();
    let grandchild = grandchild.trim().to_owned();
    space::wait_until("the child has closed its output", || {
        fs::metadata(format!("/proc/{grandchild}/fd/2")).is_err()
    });
    fs::write(&mark, "").unwrap();
    assert!(child.wait().unwrap().success());
    std::io::Read::read_to_end(&mut said, &mut Vec::new()).unwrap();
    assert_eq!(blindness(&berth.finish()), ["a process of it still runs"]);
    drop(held);
}

#[test]
fn a_process_of_an_earlier_command_notes_nothing_for_a_later_one() {
    let yard = Yard::new();
    let probe = yard.probe(&[]);
    let old = yard.arena.reserve().unwrap();
    let mut late = yard.observed(&probe, &old);
    late.args(["access", "/absent/late"]);
    assert_eq!(blindness(&old.finish()), ["it cannot be observed"]);
    let berth = yard.arena.reserve().unwrap();
    succeeded(&late.output().unwrap());
    assert_eq!(berth.finish().len(), 1, "it notes nothing");
}

#[test]
fn whoever_is_not_told_to_note_runs_as_ever() {
    let yard = Yard::new();
    let probe = yard.probe(&[]);
    let mut command = yard.plain(&probe);
    command.arg("execute").env("LD_PRELOAD", yard.path("libwafpark.so"));
    succeeded(&command.output().unwrap());
}

// ---- strace as the oracle

/// System calls whose first text is a path; the second of some is one too, or only that.
const ONE: [&str; 29] = [
    "open",
    "openat",
    "openat2",
    "creat",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "chdir",
    "mkdir",
    "mkdirat",
    "rmdir",
    "unlink",
    "unlinkat",
    "truncate",
    "chmod",
    "fchmodat",
    "chown",
    "lchown",
    "fchownat",
    "utimensat",
    "execve",
    "mknod",
    "mknodat",
];
const BOTH: [&str; 5] = ["rename", "renameat", "renameat2", "link", "linkat"];
const SECOND: [&str; 2] = ["symlink", "symlinkat"];

/// The texts between quotes, each with what stands before it.
fn quoted(line: &str) -> Vec<(&str, &str)> {
    let mut parts = line.split('"');
    let mut found = Vec::new();
    while let (Some(before), Some(text)) = (parts.next(), parts.next()) {
        found.push((before, text));
    }
    found
}

/// The path that strace -y has told of the folder that a path belongs to.
fn folder_of<'a>(before: &'a str, otherwise: &'a Path) -> &'a Path {
    let told = before
        .rfind('<')
        .zip(before.rfind('>'))
        .filter(|(start, end)| start < end);
    told.map_or(otherwise, |(start, end)| Path::new(&before[start + 1..end]))
}

/// The paths that strace has seen, absolute, with a line that shows each. Commands here stay in their folder.
fn traced(log: &str, folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    // The first is strace's own exec.
    for line in log.lines().skip(1) {
        let call = line.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
        let Some((name, arguments)) = call.split_once('(') else {
            continue;
        };
        let texts = quoted(arguments);
        let wanted = match name {
            _ if ONE.contains(&name) => texts.get(..1),
            _ if BOTH.contains(&name) => texts.get(..2),
            _ if SECOND.contains(&name) => texts.get(1..2),
            _ => None,
        };
        for (before, text) in wanted.unwrap_or_default() {
            if !text.is_empty() {
                found.insert(folder_of(before, folder).join(text), line.to_owned());
            }
        }
    }
    found
}

/// Where the C library reads files by itself; docs/observing.md says why none of them has to be noted.
const EXCEPTIONS: [&str; 11] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/usr/lib/locale/",
    "/usr/share/locale/",
    "/usr/share/locale-langpack/",
    "/usr/lib/x86_64-linux-gnu/gconv/",
    "/usr/share/zoneinfo/",
    "/etc/localtime",
    "/proc/self/",
    "/sys/devices/system/cpu",
    "/proc/meminfo",
];

/// Links that the resolving of a path reads on its way, and the folders between.
fn walk(path: &Path, found: &mut BTreeSet<PathBuf>, depth: u32) {
    let mut at = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                at.pop();
            }
            part => at.push(part),
        }
        found.insert(at.clone());
        if let (Ok(target), true) = (fs::read_link(&at), depth < 20) {
            at.pop();
            let rest = at.join(target);
            walk(&rest, found, depth + 1);
            at = rest.canonicalize().unwrap_or(rest);
        }
    }
}

/// Runs a command under strace; the paths that strace saw and we did not.
#[track_caller]
fn miss(yard: &Yard, argv: &[&str]) -> Vec<String> {
    let berth = yard.arena.reserve().unwrap();
    let log = yard.path("strace.log");
    let mut strace = yard.plain("strace");
    strace
        .args(["-f", "-y", "-qq", "-s", "4096", "-e", "trace=%file", "-o"])
        .arg(&log);
    for variable in yard.variables(&berth) {
        strace.arg("-E").arg(OsStr::from_bytes(&variable));
    }
    succeeded(&strace.args(argv).output().unwrap());
    let accesses = berth.finish();
    assert_eq!(blindness(&accesses), [""; 0], "{argv:?}");
    let mut known = paths(&accesses);
    let resolved = accesses.iter().filter_map(|access| match &access.what {
        What::Resolve { path } => Some(yard.folder.join(OsStr::from_bytes(path))),
        _ => None,
    });
    for path in resolved.collect::<Vec<_>>() {
        walk(&path, &mut known, 0);
    }
    let ours = [
        yard.arena.path(),
        yard.path("libwafpark.so").to_string_lossy().into_owned(),
    ];
    let reads_randomness = accesses.iter().any(|access| access.what == What::Random);
    let seen = traced(&fs::read_to_string(&log).unwrap(), &yard.folder);
    fs::remove_file(log).unwrap();
    let searches = searches(&accesses, &seen);
    let is_known = |path: &Path| {
        let text = path.to_string_lossy();
        let is_excepted = EXCEPTIONS.iter().any(|e| text.starts_with(e)) || ours.iter().any(|o| text == *o);
        let is_random = reads_randomness && path == Path::new("/dev/urandom");
        is_random || is_excepted || known.contains(path) || searches.contains(path)
    };
    let missed = seen.iter().filter(|(path, _)| !is_known(path));
    missed.map(|(_, line)| line.clone()).collect()
}

/// Where the loader has looked for the libraries that it found elsewhere, and the folders that are for that alone.
fn searches(accesses: &[Access], seen: &BTreeMap<PathBuf, String>) -> BTreeSet<PathBuf> {
    let loaded: BTreeSet<&[u8]> = accesses
        .iter()
        .filter_map(|access| match &access.what {
            What::Load { path } => path.rsplit(|b| *b == b'/').next(),
            _ => None,
        })
        .collect();
    let is_search = |path: &&PathBuf| path.file_name().is_some_and(|name| loaded.contains(name.as_bytes()));
    let files = seen.keys().filter(is_search);
    files
        .flat_map(|path| [Some(path.as_path()), path.parent()])
        .flatten()
        .map(Path::to_owned)
        .collect()
}

const SOURCES: [(&str, &str); 9] = [
    ("s.h", "#define NAME f\n"),
    (
        "a.c",
        "#include <stdio.h>\n#include \"own.h\"\nint main(void) { puts(OWN); return part(); }\n",
    ),
    ("own.h", "#define OWN \"own\"\nint part(void);\n"),
    ("part.c", "#include \"own.h\"\nint part(void) { return 0; }\n"),
    (
        "a.cc",
        "#include <string>\n#include \"own.h\"\nstd::string f() { return OWN; }\n",
    ),
    (
        "big.h",
        "#ifndef BIG\n#define BIG\n#include <vector>\ninline int size(const std::vector<int> &v) { return (int)v.size(); }\n#endif\n",
    ),
    ("big.cc", "#include \"big.h\"\nint g() { return size({1, 2}); }\n"),
    ("s.S", "#include \"s.h\"\n.text\n.globl f\nf: ret\n.incbin \"part.c\"\n"),
    ("gcc.rsp", "-O2 -c a.c -o a.o"),
];

/// Nothing that strace sees is missing in what each of these commands notes.
#[track_caller]
fn compare(commands: &[&str]) {
    let yard = Yard::new();
    for (name, content) in SOURCES {
        yard.write(name, content);
    }
    fs::create_dir(yard.path("inc")).unwrap();
    let mut wrong = String::new();
    for command in commands {
        let argv: Vec<&str> = command.split(' ').collect();
        for line in miss(&yard, &argv) {
            wrong += &format!("{command}: {line}\n");
        }
    }
    assert_eq!(wrong, "", "strace has seen more");
}

#[test]
fn gcc_compiles() {
    compare(&[
        "gcc -c a.c -o a.o",
        "gcc -g -O2 -Iinc -Iabsent -MMD -MF a.d -c a.c -o a.o",
        "g++ -std=c++17 -c a.cc -o cc.o",
        "g++ -pipe -c a.cc -o cc.o",
        "gcc @gcc.rsp",
        "gcc -save-temps -c a.c -o a.o",
        "gcc --coverage -fstack-usage -c part.c -o part.o",
        "gcc -gsplit-dwarf -c part.c -o part.o",
        "gcc -E a.c -o a.i",
        "gcc -c s.S -o s.o",
        "gcc -S a.c -o a.s",
        "as a.s -o a.o",
    ]);
}

#[test]
fn gcc_uses_a_precompiled_header() {
    compare(&[
        "g++ -x c++-header big.h -o big.h.gch",
        "g++ -Winvalid-pch -c big.cc -o big.o",
    ]);
}

#[test]
fn gcc_links() {
    compare(&[
        "gcc -flto -c a.c -o a.o",
        "gcc -flto -c part.c -o part.o",
        "gcc -flto a.o part.o -o lto",
        "gcc -c a.c -o a.o",
        "gcc -c part.c -o part.o",
        "gcc a.o part.o -o program",
        "gcc -shared -fPIC part.c -o libpart.so",
        "ar rcs libpart.a part.o",
        "gcc a.o -L. -lpart -o program",
    ]);
}

#[test]
fn clang_compiles() {
    compare(&[
        "clang -c a.c -o a.o",
        "clang++ -g -MD -c a.cc -o cc.o",
        "clang -save-temps -c a.c -o a.o",
        "clang -flto -c part.c -o part.o",
        "clang --coverage -c part.c -o part.o",
        "clang -c s.S -o s.o",
        "clang++ -x c++-header big.h -o big.h.pch",
        "clang++ -include-pch big.h.pch -c big.cc -o big.o",
        "clang -gsplit-dwarf -g -c part.c -o part.o",
        "clang a.c part.c -o program",
    ]);
}

#[test]
fn a_shell_script_is_seen_through() {
    let yard = Yard::new();
    yard.write("own.h", "#define OWN 1\n");
    yard.write("a.c", "#include \"own.h\"\nint a = OWN;\n");
    let script = "for i in 1 2; do gcc -c a.c -o $i.o; done; cat a.c | grep OWN >found; test -e absent || mv 1.o 3.o";
    let script = yard.write("script", &format!("#!/bin/sh\nset -e\n{script}\n"));
    let argv = ["sh", script.to_str().unwrap()];
    assert_eq!(miss(&yard, &argv), [""; 0]);
}

#[test]
fn compilers_make_dates_only_to_write_them() {
    let yard = Yard::new();
    let makes = |compiler: &str, content: &str| {
        yard.write("d.c", content);
        let accesses = yard.observe(compiler, &["-c", "d.c", "-o", "d.o"]);
        accesses.iter().any(|access| access.what == What::Date)
    };
    for compiler in ["gcc", "clang"] {
        assert!(!makes(compiler, "int none;\n"), "{compiler}");
        for name in ["__DATE__", "__TIME__", "__TIMESTAMP__"] {
            assert!(
                makes(compiler, &format!("const char *text = {name};\n")),
                "{compiler} {name}"
            );
        }
    }
}
