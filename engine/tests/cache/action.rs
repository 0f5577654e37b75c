//! The cache's knowledge of compilers is compared with the compilers of this machine. Each command line of a list is run in
//! a new folder. It must make the files that the cache expects, and no others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use wafengine::cache::compiler::action::{Action, Call};
use wafengine::cache::compiler::neutral;
use wafengine::cache::compiler::outputs::Role;
use wafengine::cache::compiler::reason::Reason;
use wafengine::cache::compiler::relocation;
use wafengine::cache::compiler::Compiler;
use wafengine::wire::Strings;

const SOURCES: [(&str, &str); 13] = [
    (
        "a.c",
        "#include \"h.h\"\nint g(int x) { return x + H; }\nint s(int *a) { int r = 0; for (int i = 0; i < 9; i++) r += a[i]; return r; }\n",
    ),
    ("sub/a.c", "#include \"h.h\"\nconst char *file(void) { return __FILE__; }\nint k(int x) { return x * H; }\n"),
    ("sub/a.b.c", "int p(int x) { return x; }\n"),
    ("noending", "int p(int x) { return x; }\n"),
    ("b.cpp", "#include \"h.h\"\nnamespace { struct S { S(); int x; } s; S::S() : x(H) {} }\ntemplate <class T> T t(T x) { return x; }\nint u() { return t(s.x); }\n"),
    ("h.h", "#define H 3\n"),
    ("sub/h.h", "#define H 4\n"),
    ("s.s", "\t.globl q\nq:\tret\n"),
    ("u.S", "#include \"h.h\"\n\t.globl q\nq:\tret\n"),
    ("f.f", "      program x\n      print *,1\n      end\n"),
    ("m.f90", "module mm\ninteger :: i\nend module\nmodule NN\ninteger :: k\nend module\n"),
    ("args", "-O2 '-DA=\"x y\"' @more\n"),
    ("more", "-c a.c -o \"d/x.o\""),
];

const C_LINES: &[&str] = &[
    "-c a.c",
    "-c sub/a.c",
    "-c sub/a.b.c",
    "-c a.c -o d/x.o",
    "-c a.c -od/x.o",
    "-c a.c --output=d/x.o",
    "-c a.c --output d/x.o",
    "-c a.c -o d/x -o d/x.y.z",
    "-c -x c noending -o d/x.o",
    "-c -xc++ a.c -x none -o d/x.o",
    "-c -g a.c -o d/x.o",
    "-c -g3 -O2 a.c -o d/x.o",
    "-c -g -gz a.c -o d/x.o",
    "-c -pipe -O2 -fPIC -Wall -Wextra -march=x86-64 -std=gnu11 a.c -o d/x.o",
    "-c -I sub -Isub -isystem sub -iquote sub -DX=1 -D Y -UZ -include h.h a.c -o d/x.o",
    "-S a.c",
    "-S a.c -o d/x",
    "-S -fverbose-asm a.c -o d/x.s",
    "-c -S a.c",
    "-E -c a.c -o d/x.i",
    "-E -dD -P a.c -o d/x.i",
    "-E -MD a.c -o d/x.y.i",
    "-c -MD a.c",
    "-c -MD a.c -o d/x",
    "-c -MD a.c -o d/.x",
    "-c -MD a.c -o d/x.",
    "-c -MMD a.c -o d/x.tar.o",
    "-c -MD a.c -o d/x.longextensionname",
    "-c -MD -MP -MF d/q a.c -o d/x.o",
    "-c -MD -MFd/q -MT t a.c -o d/x.o",
    "-c -MMD -MF d/q -MF d/r -MQ t a.c -o d/x.o",
    "-c -Wp,-MD,d/q a.c -o d/x.o",
    "-c -Wp,-MD,d/q -MD a.c -o d/x.o",
    "-c -Wp,-MMD,d/q -Wp,-MD,d/r a.c -o d/x.o",
    "-c -MD -MF d/q -Wp,-DQ a.c -o d/x.o",
    "-S -MMD a.c -o d/x.s",
    "-c -g -gsplit-dwarf a.c -o d/x.y.o",
    "-c -g -gsplit-dwarf a.c",
    "-c -g -gsplit-dwarf a.c -o d/x",
    "-c -g -gsplit-dwarf a.c -o d/.x",
    "-c -gsplit-dwarf a.c -o d/x.o",
    "-c -gsplit-dwarf -g0 a.c -o d/x.o",
    "-c -gsplit-dwarf -gno-split-dwarf a.c -o d/x.o",
    "-S -g -gsplit-dwarf a.c -o d/x.s",
    "-c -gsplit-dwarf -flto a.c -o d/x.o",
    "-c --coverage a.c -o d/x.y.o",
    "-c --coverage sub/a.c",
    "-c -ftest-coverage a.c -o d/x.o",
    "-c -fprofile-arcs a.c -o d/x.o",
    "-c --coverage a.c -o d/.x",
    "-c -fprofile-arcs -ftest-coverage a.c -o d/x",
    "-c --coverage -fprofile-dir=dd a.c -o d/x.o",
    "-S --coverage a.c -o d/x",
    "-E --coverage a.c -o d/x",
    "-c -fprofile-generate a.c -o d/x.o",
    "-c -fstack-usage a.c -o d/x.o",
    "-c -fstack-usage a.c",
    "-S -fstack-usage a.c -o d/x.s",
    "-c -fstack-usage --coverage -g -gsplit-dwarf -MD a.c -o d/x.y.o",
    "-c -fsave-optimization-record a.c -o d/x.o",
    "-c -fsave-optimization-record sub/a.c",
    "-c -O2 -fsave-optimization-record a.c -o d/x.y.o",
    "-S -fsave-optimization-record a.c -o d/x",
    "-c -flto a.c -o d/x.o",
    "-c -flto -O2 -fstack-usage a.c -o d/x.o",
    "-S -flto a.c",
    "-c s.s",
    "-c -g s.s -o d/x.o",
    "-c -MD s.s -o d/x.o",
    "-c u.S",
    "-c -MD u.S -o d/x.o",
    "-c -g u.S -o d/x.o",
    "-c -MD --coverage -fstack-usage u.S -o d/x.o",
    "-c -Wa,--noexecstack a.c -o d/x.o",
    "-x c-header -E h.h -o d/q",
    "-c -frandom-seed=1 -fdebug-prefix-map=a=b -ffile-prefix-map=a=b a.c -o d/x.o",
    "-c -fsanitize=address,undefined a.c -o d/x.o",
    "-c -c a.c",
    "-fsyntax-only a.c",
    "-fsyntax-only -c -Wall a.c -o d/x.o",
    "-fsyntax-only -S a.c",
    "-fsyntax-only h.h",
    "-fsyntax-only -MD -MF d/q a.c",
    "-E a.c",
    "-E -MD a.c",
    "-E -MMD -MF d/q sub/a.c",
    "-E -dM -x c /dev/null",
    "-E a.c -o -",
    "-E h.h",
    "-S a.c -o -",
    "-S -g a.c -o/dev/stdout",
    "-S -MD -MF d/q a.c -o -",
    "-c a.c -o /dev/null",
    "-c -g -O2 -MD -MF d/q a.c -o /dev/null",
    "-S a.c -o /dev/null",
    "-E a.c -o /dev/null",
    "@args",
    "-MD @args",
    "--compile a.c",
    "--assemble a.c",
    "-c --language=c a.c",
    "-c --std=gnu99 --param=ssp-buffer-size=4 a.c",
    "-c -fno-lto -flto -fno-lto -fstack-usage a.c -o d/x.o",
    "-c -save-temps a.c",
    "-c -save-temps a.c -o d/x.y.o",
    "-c --save-temps sub/a.c -o d/x",
    "-c -save-temps=cwd sub/a.c",
    "-c -save-temps=cwd a.c -o d/x.o",
    "-c -save-temps=obj a.c",
    "-c -save-temps=obj sub/a.b.c -o d/x.o",
    "-S -save-temps=obj -g a.c -o d/x.s",
    "-c -save-temps -MD -fstack-usage a.c -o d/x.o",
    "-c -save-temps u.S -o d/x.o",
    "-c -save-temps s.s -o d/x.o",
    "-c -save-temps b.cpp -o d/x.o",
    "-c -save-temps -x c noending -o d/x.o",
];
const GCC_LINES: &[&str] = &[
    "h.h",
    "-c h.h",
    "-x c++-header h.h -o d/p",
    "-x c-header -c h.h -o d/h.h.gch",
    "-x c-header h.h -MD -o d/h.h.gch",
    "-x c++-header h.h",
    "-c -include h.h -fpch-deps sub/a.b.c -o d/x.o",
    "-c -fcallgraph-info a.c -o d/x.o",
    "-c -fcallgraph-info=su,da a.c",
    "-c -fstack-usage -MD -o d/.o a.c",
    "-c -dA -dp a.c -o d/x.o",
    "-c -frecord-gcc-switches a.c -o d/x.o",
    "-c -fprofile-use -Wno-missing-profile a.c -o d/x.o",
    "-c -g -gsplit-dwarf s.s -o d/x.o",
    "-c -MD -g -gsplit-dwarf u.S -o d/x.o",
    "-c -Wa,--noexecstack,-mrelax-relocations=no -Xassembler --warn a.c -o d/x.o",
    "-c f.f",
    "-c -cpp -MD m.f90 -o d/x.o",
    "-c m.f90 -o d/x.o",
    "-c -J d m.f90 -o d/x.o",
    "-c -Jd m.f90",
    "-S m.f90",
    "-E -cpp m.f90 -o d/x.i",
    "-c f.f -fstack-usage --coverage",
];
const CLANG_LINES: &[&str] = &[
    "-Xclang -fno-pch-timestamp h.h",
    "-Xclang -fno-pch-timestamp -c h.h",
    "-Xclang -fno-pch-timestamp -x c++-header h.h -o d/p",
    "-Xclang -fno-pch-timestamp -x c-header -c h.h -o d/h.h.gch",
    "-Xclang -fno-pch-timestamp -x c-header h.h -MD -o d/h.h.gch",
    "-c -emit-llvm a.c",
    "-fsyntax-only -g -gsplit-dwarf --coverage -fstack-usage a.c",
    "-fsyntax-only -serialize-diagnostics d/ser a.c",
    "-c -- a.c",
    "-S -emit-llvm a.c",
    "-c -emit-llvm a.c -o d/x.o",
    "-c -g -gsplit-dwarf=split a.c -o d/x.o",
    "-c -g -gsplit-dwarf=single a.c -o d/x.o",
    "-c -fsave-optimization-record=yaml a.c -o d/x.o",
    "-c -foptimization-record-file=d/rec a.c -o d/x.o",
    "-c -foptimization-record-file=d/rec -fsave-optimization-record a.c -o d/x.o",
    "-c -serialize-diagnostics d/ser a.c -o d/x.o",
    "-c --serialize-diagnostics d/ser a.c -o d/x.o",
    "-c -MJ d/mj a.c -o d/x.o",
    "-c -MJd/mj a.c -o d/x.o",
    "-c -fembed-bitcode a.c -o d/x.o",
    "-c -flto=thin a.c -o d/x.o",
    "-c -fprofile-instr-generate -fcoverage-mapping a.c -o d/x.o",
    "-c -g -grecord-command-line a.c -o d/x.o",
    "-Xclang -fno-pch-timestamp -Xclang -emit-pch -Xclang -include -Xclang h.h -x c-header -o d/h.pch -c sub/a.b.c",
    "-Xclang -fno-pch-timestamp -x c-header h.h -o d/h.pch",
    "-c -no-integrated-as a.c -o d/x.o",
    "-c -mllvm -inline-threshold=10 a.c -o d/x.o",
    "-c --target=x86_64-linux-gnu -Qunused-arguments -Rpass=inline a.c -o d/x.o",
];
const CXX_LINES: &[&str] = &[
    "-c b.cpp",
    "-c b.cpp -o d/x.o -std=c++20 -MD",
    "-c -g b.cpp -o d/x.o",
    "-c a.c",
    "-c -g -gsplit-dwarf b.cpp --coverage -fstack-usage -MMD",
    "-S b.cpp -o d/x.s",
    "-c -fsave-optimization-record b.cpp -o d/x.o",
    "-c -fdiagnostics-color=always b.cpp --include h.h --define-macro W -o d/x.o",
];

/// A temporary folder with the sources. It is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("waf-action-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for name in ["sub", "d", "e"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        for (name, text) in SOURCES {
            fs::write(folder.join(name), text).unwrap();
        }
        Folder(folder.canonicalize().unwrap())
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for item in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if item.file_type().unwrap().is_dir() {
                    folders.push(item.path());
                } else {
                    let name = item.path().strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, fs::read(item.path()).unwrap());
                }
            }
        }
        found
    }

    /// Runs a compiler. Returns whether it succeeds, its messages, and the files that it makes.
    fn run(&self, compiler: &str, words: &[String]) -> (bool, String, BTreeMap<String, Vec<u8>>) {
        let before = self.files();
        let mut command = Command::new(compiler);
        command.args(words).current_dir(&self.0).stdin(Stdio::null());
        let outcome = command.env_remove("TMPDIR").output().unwrap();
        let mut after = self.files();
        after.retain(|name, _| !before.contains_key(name));
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        (outcome.status.success(), said, after)
    }

    fn action(&self, compiler: &str, words: &[String], bases: &[Vec<u8>]) -> Result<Action, Reason> {
        let program = found(compiler).unwrap();
        let argv = [compiler.to_owned()]
            .iter()
            .chain(words)
            .map(String::as_bytes)
            .collect::<Strings>();
        let call = Call {
            argv: &argv,
            environment: &Strings::default(),
            folder: self.0.to_str().unwrap().as_bytes(),
            program: &program,
            real: &fs::canonicalize(&program).unwrap(),
            bases,
            known_folders: &[],
            by_facts: None,
        };
        Action::find(&call)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(compiler: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(compiler))
        .find(|file| file.is_file())
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// All command lines, for the compilers of this machine.
fn command_lines() -> Vec<(&'static str, &'static str)> {
    let groups: [(&str, &[&[&str]]); 7] = [
        ("gcc", &[C_LINES, GCC_LINES]),
        ("clang", &[C_LINES, CLANG_LINES]),
        ("g++", &[CXX_LINES]),
        ("clang++", &[CXX_LINES]),
        (
            "gfortran",
            &[&["-c f.f", "-c m.f90 -J d -o e/x.o", "-cpp -c m.f90 -MD -o d/x.o"]],
        ),
        ("cc", &[&["-c a.c -MD -o d/x.o"]]),
        ("gcc-12", &[&["-c a.c -MD -o d/x.o"]]),
    ];
    let here = groups.into_iter().filter(|(compiler, _)| found(compiler).is_some());
    let lines: Vec<_> = here
        .flat_map(|(compiler, lists)| lists.concat().into_iter().map(move |line| (compiler, line)))
        .collect();
    assert!(lines.len() > C_LINES.len(), "there is no compiler");
    lines
}

fn is_module(name: &str) -> bool {
    name.ends_with(".mod") || name.ends_with(".smod")
}

/// How the files that a command makes differ from the expected ones.
fn difference(compiler: &str, line: &str) -> Option<String> {
    let folder = Folder::new();
    let words = words(line);
    let action = match folder.action(compiler, &words, &[]) {
        Ok(action) => action,
        Err(reason) => return Some(format!("not known: {reason}")),
    };
    let (succeeds, said, mut made) = folder.run(compiler, &words);
    if !succeeds {
        return Some(format!("fails: {said}"));
    }
    for output in &action.knows.outputs {
        let path = String::from_utf8(output.path.clone()).unwrap();
        if made.remove(&path).is_none() && output.certain {
            return Some(format!("{path} is not made, but {:?}", made.keys()));
        }
    }
    if let Some(folder) = &action.knows.modules {
        let folder = String::from_utf8(folder.clone()).unwrap();
        made.retain(|name, _| !is_module(name) || Path::new(name).parent() != Some(Path::new(&folder)));
    }
    (!made.is_empty()).then(|| format!("{:?} are made too", made.keys()))
}

/// A compiler makes the files that the cache expects from the command line, and no others.
#[test]
fn compilers_make_the_expected_files() {
    let lines = command_lines();
    let wrong = lines
        .iter()
        .filter_map(|(compiler, line)| Some(format!("{compiler} {line}: {}", difference(compiler, line)?)));
    let wrong: Vec<_> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        lines.len(),
        wrong.join("\n")
    );
}

/// Each command runs with two sets of names for its outputs. If both have the same key, the outputs are the same.
#[test]
fn commands_with_one_key_make_the_same_outputs() {
    let (mut shared, mut wrong) = (0, Vec::new());
    for (compiler, line) in command_lines() {
        let mut one = words(line);
        one.insert(0, "-frandom-seed=1".to_owned());
        let mut other: Vec<_> = one
            .iter()
            .map(|word| word.replace("d/x.", "e/other.q.").replace("d/q", "e/r"))
            .collect();
        if one == other && !line.contains("@args") && !line.contains("d/") {
            other.extend(["-o".to_owned(), "e/other".to_owned()]);
        }
        let key = |words: &[String]| Folder::new().action(compiler, words, &[]).map(|action| action.key);
        if one == other || key(&one) != key(&other) {
            continue;
        }
        shared += 1;
        // Both run in one folder, because debug information contains the folder's name.
        let folder = Folder::new();
        let run = |words: &[String]| {
            let action = folder.action(compiler, words, &[]).unwrap();
            let (succeeds, said, files) = folder.run(compiler, words);
            assert!(succeeds, "{compiler} {words:?}: {said}");
            let content = |path: &[u8]| files.get(std::str::from_utf8(path).unwrap()).cloned();
            let knows = &action.knows;
            // A dependency file is stored without its target. If its layout is not understood, it is not stored.
            let stored = |role: Role, text: Vec<u8>| match &knows.target {
                Some(target) if role == Role::Dependencies => {
                    neutral::without_target(&text, knows.compiler.unwrap(), target).unwrap_or_default()
                }
                _ => text,
            };
            let outputs: Vec<_> = knows
                .outputs
                .iter()
                .map(|output| (output.role, content(&output.path).map(|text| stored(output.role, text))))
                .collect();
            files
                .keys()
                .for_each(|name| fs::remove_file(folder.0.join(name)).unwrap());
            (outputs, said)
        };
        if run(&one) != run(&other) {
            wrong.push(format!("{compiler} {line}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(shared > 60, "only {shared} lines share their key with others");
}

/// Options for a dependency file with the name `d/q`.
const DEPENDENCIES: &[&str] = &[
    "-c -MD -MF d/q",
    "-c -MMD -MF d/q -MT t",
    "-c -MMD -MF d/q -MQ $x",
    "-c -Wp,-MD,d/q",
    "-c -Wp,-MMD,d/q",
    "-c -Wp,-MMD,d/q -MT t",
    "-c -Wp,-MD,d/q -Wp,-MT,t",
    "-c -Wp,-MD,d/q -Wp,-MT,t -Wp,-MT,u",
    "-c -Wp,-MD,d/q -MD",
    "-c -MD -Wp,-MMD,d/q -MP",
    "-c -Wp,-MD,d/q -MF d/r",
    "-c -MF d/r -Wp,-MD,d/q",
    "-c -MMD -MF d/r -Wp,-MD,d/q",
    "-c -MD -MF d/q -Wp,-MT,t",
    "-c -MD -MF d/q -Wp,-MQ,t",
    "-c -MD -MF d/q -Wp,-MT,t -MT s",
    "-S -MD -MF d/q",
    "-S -Wp,-MD,d/q",
    "-S -MD -MF d/q -Wp,-MT,t",
    "-E -MD -MF d/q",
    "-c -E -MMD -MF d/q",
    "-E -Wp,-MD,d/q",
    "-E -MD -MF d/q -Wp,-MT,t",
    "-c -flto -MD -MF d/q",
    "-x c-header -MD -MF d/q",
    "-x c-header -Wp,-MD,d/q",
];
const CALLED: &[&str] = &[
    "",
    " -o a.o",
    " -o a.x",
    " -o ./a.o",
    " -o d/x.o",
    " -o e/longer-than-the-other.o",
    " -o t",
];

/// A stored dependency file is restored for another output with exactly the text that the compiler would write.
#[test]
fn a_dependency_file_is_restored_for_any_output() {
    let (mut told, mut wrong) = (0, Vec::new());
    let of_language = |compiler: &str| match compiler {
        "gfortran" => ("-cpp", "m.f90"),
        _ => ("", "sub/a.c"),
    };
    for compiler in ["gcc", "clang", "g++", "gfortran"]
        .into_iter()
        .filter(|name| found(name).is_some())
    {
        let (prefix, source) = of_language(compiler);
        for options in DEPENDENCIES
            .iter()
            .filter(|line| compiler != "gfortran" || !line.contains("-x "))
        {
            let folder = Folder::new();
            let mut known = Vec::new();
            for called in CALLED {
                let line = format!("{prefix} {options}{called} {source}");
                let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
                let words = if compiler == "clang" && options.contains("-header") {
                    [&["-Xclang".to_owned(), "-fno-pch-timestamp".to_owned()][..], &words].concat()
                } else {
                    words
                };
                let Ok(action) = folder.action(compiler, &words, &[]) else {
                    continue;
                };
                let (succeeds, said, made) = folder.run(compiler, &words);
                assert!(succeeds, "{compiler} {line}: {said}");
                made.keys()
                    .for_each(|name| fs::remove_file(folder.0.join(name)).unwrap());
                let mut outputs = action.knows.outputs.iter();
                let file = outputs.find(|output| output.role == Role::Dependencies).unwrap();
                let Some(text) = made.get(std::str::from_utf8(&file.path).unwrap()) else {
                    wrong.push(format!("{compiler} {line}: made {:?}", made.keys()));
                    continue;
                };
                known.push((line, action, text.clone()));
            }
            for (line, action, text) in &known {
                let compiler = action.knows.compiler.unwrap();
                let stored = match &action.knows.target {
                    Some(target) => neutral::without_target(text, compiler, target),
                    None => Some(text.clone()),
                };
                let Some(stored) = stored else {
                    wrong.push(format!(
                        "{compiler:?} {line}: nothing is stored of {}",
                        String::from_utf8_lossy(text)
                    ));
                    continue;
                };
                for (other, others_action, expected) in &known {
                    if others_action.key != action.key {
                        continue;
                    }
                    let back = match &others_action.knows.target {
                        Some(target) => neutral::with_target(&stored, compiler, target).unwrap(),
                        None => stored.clone(),
                    };
                    told += 1;
                    if back != *expected {
                        let text = String::from_utf8_lossy(&back).into_owned();
                        wrong.push(format!("{compiler:?} {line} for {other}: {text}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {told}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(told > 300, "only {told}");
}

const SHARED: &[(&str, &str)] = &[
    ("", "-c -g -ffile-prefix-map={}=. -MD -I{}/sub {}/a.c -o {}/d/x.o"),
    (
        "sub",
        "-c -g -ffile-prefix-map={}=. -MD -I{}/sub {}/sub/a.c -o {}/d/x.o",
    ),
    (
        "sub",
        "-c -g -fdebug-prefix-map={}=. -fmacro-prefix-map={}=. -MD -I{} {}/sub/a.c -o {}/d/x.o",
    ),
    (
        "sub",
        "-c -ffile-prefix-map={}=/src -MMD -MT {}/d/x.o -I{}/sub {}/sub/a.c -o {}/d/x.o",
    ),
    (
        "sub",
        "-c -g3 -O2 -ffile-prefix-map={}= -Wall -DW -include {}/h.h a.c -o ../d/x.o",
    ),
    ("", "-c -g -gz -ffile-prefix-map={}=. {}/sub/a.c -o {}/d/x.o"),
    ("", "-S -g -ffile-prefix-map={}=. {}/sub/a.c -o {}/d/x.s"),
    (
        "d",
        "-c -g -ffile-prefix-map={}/sub=s -ffile-prefix-map={}/d=b {}/sub/a.c -o x.o",
    ),
    (
        "",
        "-c -g -ffile-prefix-map={}=. -x c++ -std=c++17 {}/b.cpp -o {}/d/x.o",
    ),
    ("sub", "-c -g -fdebug-prefix-map={}=. -MD -I.. a.c -o ../d/x.o"),
    ("", "-c -ffile-prefix-map={}=. -DH=9 {}/a.c -o {}/d/x.o"),
];

/// Commands of two checkouts with the same key make the same outputs and messages. The folders' names differ in length.
#[test]
fn checkouts_that_share_a_key_make_the_same() {
    let mut shared = 0;
    for compiler in ["gcc", "clang"].into_iter().filter(|name| found(name).is_some()) {
        for (folder, line) in SHARED {
            let runs = ["", "-another"].map(|ending| {
                let checkout = Checkout::new(ending);
                let words: Vec<_> = words(&line.replace("{}", checkout.base()));
                checkout.run(compiler, folder, &words)
            });
            let [(one, outputs, said), (other, others, others_said)] = &runs;
            assert_eq!(one.key, other.key, "{compiler} {line}");
            assert!(!one.knows.bases.is_empty(), "{compiler} {line}");
            assert_eq!(said, others_said, "{compiler} {line}");
            for ((role, content), (_, other)) in outputs.iter().zip(others) {
                let shown =
                    [content, other].map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned());
                assert!(content == other, "{compiler} {line}: {role:?} differs: {shown:#?}");
            }
            shared += 1;
        }
    }
    assert!(shared >= SHARED.len());
}

struct Checkout(Folder);

/// A command's action, its outputs, and its messages. In texts, the base has been replaced.
type Run = (Action, Vec<(Role, Vec<u8>)>, String);

impl Checkout {
    fn new(ending: &str) -> Checkout {
        let mut folder = Folder::new();
        let renamed = PathBuf::from(format!("{}{ending}", folder.0.display()));
        fs::rename(&folder.0, &renamed).unwrap();
        folder.0 = renamed;
        Checkout(folder)
    }

    fn base(&self) -> &str {
        self.0 .0.to_str().unwrap()
    }

    /// Runs a command in one of the checkout's folders.
    fn run(&self, compiler: &str, folder: &str, words: &[String]) -> Run {
        let base = self.base().as_bytes();
        let here = Path::new(self.base()).join(folder);
        let inner = Folder(here.clone());
        let action = inner.action(compiler, words, &[base.to_vec()]);
        let (succeeds, said, _) = inner.run(compiler, words);
        std::mem::forget(inner);
        let action = action.unwrap_or_else(|reason| panic!("{compiler} {words:?}: {reason}"));
        assert!(succeeds, "{compiler} {words:?}: {said}");
        let outputs = action.knows.outputs.iter().map(|output| {
            let content = fs::read(here.join(std::str::from_utf8(&output.path).unwrap())).unwrap();
            let content = match output.role {
                Role::Dependencies => {
                    let moved =
                        relocation::dependencies(&content, action.knows.compiler.unwrap(), &[(base, b"/elsewhere")]);
                    moved.unwrap_or_else(|| panic!("{compiler} {words:?} {}", String::from_utf8_lossy(&content)))
                }
                _ => content,
            };
            assert!(
                !content.windows(base.len()).any(|part| part == base),
                "{compiler} {words:?}"
            );
            (output.role, content)
        });
        let outputs = outputs.collect();
        let said =
            relocation::diagnostics(said.as_bytes(), &[(base, b"/elsewhere")]).expect("a path where none is known");
        (action, outputs, String::from_utf8(said).unwrap())
    }
}

/// A dependency file that is moved to another checkout is exactly the one that the compiler writes there. The names have
/// many lengths, so that lines are broken in many places. Some have spaces, and there are two targets.
#[test]
fn moved_dependency_files_are_those_that_the_compiler_writes() {
    for compiler in ["gcc", "clang"].into_iter().filter(|name| found(name).is_some()) {
        let run = |ending: &str| {
            let checkout = Checkout::new(ending);
            let mut source = String::new();
            for number in 0..60 {
                let name = format!("{}{number}{}.h", "n".repeat(number * 7 % 61), ["", " $x"][number % 2]);
                source += &format!("#include \"{name}\"\n");
                fs::write(Path::new(checkout.base()).join(name), "").unwrap();
            }
            fs::write(Path::new(checkout.base()).join("many.c"), source).unwrap();
            let targets = format!("-MT {}/t -MT {}", "t".repeat(60), "u".repeat(30));
            let line = format!("-c {{}}/many.c -I{{}}/sub -MD -MP -MF many.d {targets} -o many.o")
                .replace("{}", checkout.base());
            let (succeeds, said, made) = checkout.0.run(compiler, &words(&line));
            assert!(succeeds, "{said}");
            (checkout.base().as_bytes().to_vec(), made["many.d"].clone())
        };
        let name = [("gcc", Compiler::Gcc), ("clang", Compiler::Clang)]
            .into_iter()
            .find(|(name, _)| *name == compiler);
        let kind = name.unwrap().1;
        let ((here, one), (there, other)) = (run(""), run("-somewhere-else"));
        let moved = relocation::dependencies(&one, kind, &[(&here, &there)])
            .unwrap_or_else(|| panic!("{compiler}: the layout is not known: {}", String::from_utf8_lossy(&one)));
        assert_eq!(
            String::from_utf8_lossy(&moved),
            String::from_utf8_lossy(&other),
            "{compiler}"
        );
    }
}
