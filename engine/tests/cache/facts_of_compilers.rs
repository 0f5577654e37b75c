//! What real compilers depend on. Each is observed once. Its entry must fail if a new compile would make something else,
//! and must hold if not.

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

struct Project {
    folder: PathBuf,
    /// The folder in which the command runs.
    place: PathBuf,
    arena: Arena,
    world: World,
    environment: Environment,
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Project {
    fn new() -> Project {
        let name = format!("wafpark-{}-{}", std::process::id(), sandbox::unique());
        let folder = std::env::temp_dir().canonicalize().unwrap().join(name);
        let place = folder.join("w");
        fs::create_dir_all(&place).unwrap();
        fs::write(folder.join("libwafpark.so"), LIBRARY).unwrap();
        let variables = std::env::vars().filter(|(name, _)| name != "LD_LIBRARY_PATH");
        Project {
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
            observer: library.as_os_str().as_bytes(),
            ..Knowledge::since(started)
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
        let changes = entry.changes(&mut view);
        changes.iter().map(|(_, change)| change.to_string()).collect()
    }
}

const LINES: [&str; 2] = ["gcc -Ib -Ia -c src/a.c -o a.o", "clang -Ib -Ia -c src/a.c -o a.o"];

#[test]
fn only_edits_and_shadowing_headers_are_changes() {
    for line in LINES {
        let project = Project::new();
        project.put(
            "src/a.c",
            "#include <stdio.h>\n#include \"f.h\"\nint main(void) { return F; }\n",
        );
        project.put("a/f.h", "#define F 1\n");
        project.put("b/other.h", "");
        let entry = project.compile(line);
        assert_eq!(project.changes(&entry), [""; 0], "{line}");
        for shadow in ["b/f.h", "src/f.h"] {
            project.put(shadow, "#define F 2\n");
            assert_eq!(
                project.changes(&entry),
                [format!("{shadow} is there now, and was not")],
                "{line}"
            );
            fs::remove_file(project.place.join(shadow)).unwrap();
        }
        project.put("a/f.h", "#define F 3\n");
        assert_eq!(project.changes(&entry), ["a/f.h has changed"], "{line}");
        project.put("a/f.h", "#define F 1\n");
        assert_eq!(project.changes(&entry), [""; 0], "{line}");
        project.put("a/unrelated.h", "");
        assert_eq!(project.changes(&entry), [""; 0], "{line}");
    }
}

#[test]
fn a_header_for_has_include_is_seen_when_it_appears() {
    for line in LINES {
        let project = Project::new();
        project.put("src/a.c", "#if __has_include(\"cfg.h\")\nint x;\n#endif\nint y;\n");
        project.put("a/x", "");
        project.put("b/x", "");
        let entry = project.compile(line);
        project.put("a/cfg.h", "");
        assert_eq!(project.changes(&entry), ["a/cfg.h is there now, and was not"], "{line}");
    }
}

#[test]
fn a_file_that_the_assembler_includes_is_a_fact() {
    for line in LINES {
        let project = Project::new();
        project.put("src/a.c", "__asm__(\".data\\n .inc\" \"bin   \\\"x.bin\\\"\\n\");\n");
        project.put("x.bin", "one");
        let entry = project.compile(line);
        assert_eq!(project.changes(&entry), [""; 0], "{line}");
        project.put("x.bin", "two");
        assert_eq!(project.changes(&entry), ["x.bin has changed"], "{line}");
    }
}

#[test]
fn a_second_compile_over_the_old_output_has_the_same_facts() {
    for line in LINES {
        let project = Project::new();
        project.put("src/a.c", "int x;\n");
        let entry = project.compile(line);
        assert_eq!(project.changes(&entry), [""; 0], "{line}");
        assert_eq!(project.compile(line).facts, entry.facts, "{line}");
    }
}

#[test]
fn an_entry_with_relative_paths_holds_in_another_checkout() {
    for line in LINES {
        let mut project = Project::new();
        let files = [
            ("src/a.c", "#include \"f.h\"\nint x = F;\n"),
            ("a/f.h", "#define F 1\n"),
            ("b/other.h", ""),
        ];
        files.iter().for_each(|(name, text)| project.put(name, text));
        let entry = project.compile(line);
        project.place = project.folder.join("v");
        files.iter().for_each(|(name, text)| project.put(name, text));
        assert_eq!(project.changes(&entry), [""; 0], "{line}");
        project.put("b/f.h", "#define F 2\n");
        assert_eq!(project.changes(&entry), ["b/f.h is there now, and was not"], "{line}");
    }
}

#[test]
fn the_compilers_own_programs_are_facts() {
    for (line, programs) in [(LINES[0], &["cc1", "as"][..]), (LINES[1], &["clang"][..])] {
        let project = Project::new();
        project.put("src/a.c", "int x;\n");
        let entry = project.compile(line);
        let names: Vec<_> = entry.facts.iter().map(ToString::to_string).collect();
        for program in programs {
            let is_it = |name: &String| name.contains(program) && name.contains(" holds ");
            assert!(names.iter().any(is_it), "{program}: {names:#?}");
        }
        assert!(!names.iter().any(|name| name.contains("libwafpark")), "{names:#?}");
    }
}
