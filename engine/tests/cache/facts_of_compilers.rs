//! What real compilers depend on: observed once, their entries fail when a fresh compile would make something else, and hold
//! when it would not.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::clock::{next_tick, COMPILER};
use crate::support::sandbox;
use wafengine::cache::lookup::entry::Entry;
use wafengine::cache::story::{understand, Knowledge};
use wafengine::facts::environment::Environment;
use wafengine::facts::path::Place;
use wafengine::facts::status::Stamp;
use wafengine::facts::world::{Capacity, View, World};
use wafengine::observe::trace::Arena;
use wafengine::park::LIBRARY;
use wafengine::wire::Strings;

struct Bench {
    folder: PathBuf,
    /// In which the command runs.
    place: PathBuf,
    arena: Arena,
    world: World,
    environment: Environment,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    fn new() -> Bench {
        let name = format!("wafpark-{}-{}", std::process::id(), sandbox::unique());
        let folder = std::env::temp_dir().canonicalize().unwrap().join(name);
        let place = folder.join("w");
        fs::create_dir_all(&place).unwrap();
        fs::write(folder.join("libwafpark.so"), LIBRARY).unwrap();
        let variables = std::env::vars().filter(|(name, _)| name != "LD_LIBRARY_PATH");
        Bench {
            folder,
            place,
            arena: Arena::new(2).unwrap(),
            world: World::new(Capacity::default()),
            environment: Environment::of(
                &variables
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Strings>(),
            ),
        }
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.place.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn place(&self) -> Place {
        Place::new(self.place.as_os_str().as_bytes(), None)
    }

    #[track_caller]
    fn compile(&self, line: &str) -> Entry {
        next_tick();
        let started = Stamp::now();
        let trace_region = self.arena.reserve().unwrap();
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(&self.place).stdin(Stdio::null());
        command.env_remove("LD_LIBRARY_PATH");
        let library = self.folder.join("libwafpark.so");
        for variable in trace_region.variables(library.as_os_str().as_bytes(), None) {
            let at = variable.iter().position(|b| *b == b'=').unwrap();
            command.env(
                OsStr::from_bytes(&variable[..at]),
                OsStr::from_bytes(&variable[at + 1..]),
            );
        }
        let said = command.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let outputs = [b"a.o".to_vec()];
        let knowledge = Knowledge {
            policy: COMPILER,
            outputs: Some(&outputs),
            modules: None,
            unseen: &[],
            observer: library.as_os_str().as_bytes(),
            started,
        };
        let place = self.place();
        let mut view = View::new(&self.world, &place, &self.environment);
        let found =
            understand(&trace_region.finish(), &knowledge, &mut view).unwrap_or_else(|why| panic!("{line}: {why}"));
        let outputs: Vec<_> = found.outputs.iter().map(|made| made.path.to_string()).collect();
        assert_eq!(outputs, ["a.o"], "{line}");
        let facts = found.facts;
        let entry = Entry {
            facts,
            ..Entry::default()
        };
        Entry::decode(&entry.encode()).unwrap()
    }

    fn changes(&self, entry: &Entry) -> Vec<String> {
        let place = self.place();
        let mut view = View::new(&self.world, &place, &self.environment);
        entry.changes(&mut view).iter().map(ToString::to_string).collect()
    }
}

const LINES: [&str; 2] = ["gcc -Ib -Ia -c src/a.c -o a.o", "clang -Ib -Ia -c src/a.c -o a.o"];

#[test]
fn a_header_that_shadows_another_is_the_only_change() {
    for line in LINES {
        let bench = Bench::new();
        bench.put(
            "src/a.c",
            "#include <stdio.h>\n#include \"f.h\"\nint main(void) { return F; }\n",
        );
        bench.put("a/f.h", "#define F 1\n");
        bench.put("b/other.h", "");
        let entry = bench.compile(line);
        assert_eq!(bench.changes(&entry), [""; 0], "{line}");
        for shadow in ["b/f.h", "src/f.h"] {
            bench.put(shadow, "#define F 2\n");
            assert_eq!(
                bench.changes(&entry),
                [format!("{shadow} is there now, and was not")],
                "{line}"
            );
            fs::remove_file(bench.place.join(shadow)).unwrap();
        }
        bench.put("a/f.h", "#define F 3\n");
        assert_eq!(bench.changes(&entry), ["a/f.h has changed"], "{line}");
        bench.put("a/f.h", "#define F 1\n");
        assert_eq!(bench.changes(&entry), [""; 0], "{line}");
        bench.put("a/unrelated.h", "");
        assert_eq!(bench.changes(&entry), [""; 0], "{line}");
    }
}

#[test]
fn a_header_that_was_only_asked_for_is_seen_when_it_appears() {
    for line in LINES {
        let bench = Bench::new();
        bench.put("src/a.c", "#if __has_include(\"cfg.h\")\nint x;\n#endif\nint y;\n");
        bench.put("a/x", "");
        bench.put("b/x", "");
        let entry = bench.compile(line);
        bench.put("a/cfg.h", "");
        assert_eq!(bench.changes(&entry), ["a/cfg.h is there now, and was not"], "{line}");
    }
}

#[test]
fn what_the_assembler_includes_is_a_fact() {
    for line in LINES {
        let bench = Bench::new();
        bench.put("src/a.c", "__asm__(\".data\\n .inc\" \"bin   \\\"x.bin\\\"\\n\");\n");
        bench.put("x.bin", "one");
        let entry = bench.compile(line);
        assert_eq!(bench.changes(&entry), [""; 0], "{line}");
        bench.put("x.bin", "two");
        assert_eq!(bench.changes(&entry), ["x.bin has changed"], "{line}");
    }
}

#[test]
fn a_compiler_that_is_run_again_over_its_result_depends_on_the_same() {
    for line in LINES {
        let bench = Bench::new();
        bench.put("src/a.c", "int x;\n");
        let entry = bench.compile(line);
        assert_eq!(bench.changes(&entry), [""; 0], "{line}");
        assert_eq!(bench.compile(line).facts, entry.facts, "{line}");
    }
}

#[test]
fn another_checkout_shares_what_was_named_relative() {
    for line in LINES {
        let mut bench = Bench::new();
        let files = [
            ("src/a.c", "#include \"f.h\"\nint x = F;\n"),
            ("a/f.h", "#define F 1\n"),
            ("b/other.h", ""),
        ];
        files.iter().for_each(|(name, text)| bench.put(name, text));
        let entry = bench.compile(line);
        bench.place = bench.folder.join("v");
        files.iter().for_each(|(name, text)| bench.put(name, text));
        assert_eq!(bench.changes(&entry), [""; 0], "{line}");
        bench.put("b/f.h", "#define F 2\n");
        assert_eq!(bench.changes(&entry), ["b/f.h is there now, and was not"], "{line}");
    }
}

#[test]
fn the_compilers_own_programs_are_facts() {
    for (line, programs) in [(LINES[0], &["cc1", "as"][..]), (LINES[1], &["clang"][..])] {
        let bench = Bench::new();
        bench.put("src/a.c", "int x;\n");
        let entry = bench.compile(line);
        let names: Vec<_> = entry.facts.iter().map(ToString::to_string).collect();
        for program in programs {
            let is_it = |name: &String| name.contains(program) && name.contains(" holds ");
            assert!(names.iter().any(is_it), "{program}: {names:#?}");
        }
        assert!(!names.iter().any(|name| name.contains("libwafpark")), "{names:#?}");
    }
}
