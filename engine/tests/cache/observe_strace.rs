//! The accesses that are recorded inside commands are compared with those that strace sees.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::support::exceptions::EXCEPTIONS;
use crate::support::observed_folder::{blindness, paths, succeeded, ObservedFolder};
use wafengine::observe::access::{Access, What};

/// System calls whose first text is a path. Below are those in which both texts are paths, or only the second one.
const FIRST: [&str; 29] = [
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

/// The texts between quotes, each with the text before it.
fn quoted(line: &str) -> Vec<(&str, &str)> {
    let mut parts = line.split('"');
    let mut found = Vec::new();
    while let (Some(before), Some(text)) = (parts.next(), parts.next()) {
        found.push((before, text));
    }
    found
}

/// The folder to which a path is relative, as `strace -y` shows it.
fn folder_of<'a>(before: &'a str, otherwise: &'a Path) -> &'a Path {
    let told = before
        .rfind('<')
        .zip(before.rfind('>'))
        .filter(|(start, end)| start < end);
    told.map_or(otherwise, |(start, end)| Path::new(&before[start + 1..end]))
}

/// The absolute paths that strace has seen, each with a line of its log. The commands here stay in their folder.
fn traced(log: &str, folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    // The first line is strace's own exec.
    for line in log.lines().skip(1) {
        let call = line.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
        let Some((name, arguments)) = call.split_once('(') else {
            continue;
        };
        let texts = quoted(arguments);
        let wanted = match name {
            _ if FIRST.contains(&name) => texts.get(..1),
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

/// Adds the folders and links on the way of a path that is resolved.
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

/// Runs a command under strace. Returns the lines of strace's log with paths that were not recorded.
#[track_caller]
fn missed(folder: &ObservedFolder, argv: &[&str]) -> Vec<String> {
    let trace_region = folder.arena.reserve().unwrap();
    let log = folder.path("strace.log");
    let mut strace = folder.plain("strace");
    strace
        .args(["-f", "-y", "-qq", "-s", "4096", "-e", "trace=%file", "-o"])
        .arg(&log);
    for variable in folder.variables(&trace_region) {
        strace.arg("-E").arg(OsStr::from_bytes(&variable));
    }
    succeeded(&strace.args(argv).output().unwrap());
    let accesses = trace_region.finish();
    assert_eq!(blindness(&accesses), [""; 0], "{argv:?}");
    let mut known = paths(&accesses);
    let resolved = accesses.iter().filter_map(|access| match &access.what {
        What::Resolve { path } => Some(folder.root.join(OsStr::from_bytes(path))),
        _ => None,
    });
    for path in resolved.collect::<Vec<_>>() {
        walk(&path, &mut known, 0);
    }
    let ours = [
        folder.arena.path(),
        folder.path("libwafpark.so").to_string_lossy().into_owned(),
    ];
    let reads_randomness = accesses.iter().any(|access| access.what == What::Random);
    let seen = traced(&fs::read_to_string(&log).unwrap(), &folder.root);
    fs::remove_file(log).unwrap();
    let searches = searches(&accesses, &seen);
    let is_known = |path: &Path| {
        let text = path.to_string_lossy();
        let is_excepted = EXCEPTIONS.iter().any(|e| text.starts_with(e)) || ours.iter().any(|o| text == *o);
        let is_random = reads_randomness && path == Path::new("/dev/urandom");
        is_random || is_excepted || known.contains(path) || searches.contains(path)
    };
    let unknown = seen.iter().filter(|(path, _)| !is_known(path));
    unknown.map(|(_, line)| line.clone()).collect()
}

/// The paths at which the loader looked for libraries that it found elsewhere, and their folders.
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

/// Checks that everything that strace sees of these commands is recorded.
#[track_caller]
fn compare(commands: &[&str]) {
    let folder = ObservedFolder::new();
    for (name, content) in SOURCES {
        folder.write(name, content);
    }
    fs::create_dir(folder.path("inc")).unwrap();
    let mut wrong = String::new();
    for command in commands {
        let argv: Vec<&str> = command.split(' ').collect();
        for line in missed(&folder, &argv) {
            wrong += &format!("{command}: {line}\n");
        }
    }
    assert_eq!(wrong, "", "strace sees more");
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
fn a_shell_script_runs_several_programs() {
    let folder = ObservedFolder::new();
    folder.write("own.h", "#define OWN 1\n");
    folder.write("a.c", "#include \"own.h\"\nint a = OWN;\n");
    let script = "for i in 1 2; do gcc -c a.c -o $i.o; done; cat a.c | grep OWN >found; test -e absent || mv 1.o 3.o";
    let script = folder.write("script", &format!("#!/bin/sh\nset -e\n{script}\n"));
    let argv = ["sh", script.to_str().unwrap()];
    assert_eq!(missed(&folder, &argv), [""; 0]);
}
