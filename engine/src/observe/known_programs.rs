//! Known programs, and which of their accesses cannot influence their results. Programs are looked up by file name.
//! For a program that is not in the table, or has none of its family's marks, every access counts.

use super::access::Bytes;

/// When uses of the clock and of random numbers do not show in what a program makes: it seeds tables, or measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeds {
    Never,
    /// Until it opens its first file: its script, or a file that it needs to read one.
    First,
    Always,
}

/// When the results may depend on the age, size or mode of a file that the program opens. A program can read these from an
/// open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    Never,
    /// Unless an option tells it to leave them out.
    Archived,
    Always,
}

/// The reason why nothing is known of programs whose calls are not seen.
pub const OWN_CALLS: &str = "it makes system calls of its own";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRules {
    pub seeds: Seeds,
    pub times: Times,
    /// It looks only at the kind of things, if times make no difference to it.
    pub looks: bool,
    /// Its results and the names of its temporary files make no difference to it.
    pub compiles: bool,
    /// It reads variables only one by one, by name.
    pub asks: bool,
    /// It may read its standard input.
    pub listens: bool,
    /// It lists folders only to find crates.
    pub finds_crates: bool,
}

pub const UNKNOWN: ProgramRules = ProgramRules {
    seeds: Seeds::Never,
    times: Times::Always,
    looks: false,
    compiles: false,
    asks: false,
    listens: true,
    finds_crates: false,
};
/// Random numbers are used for the names of temporary files and of sections; see docs/cacheable.md.
pub const COMPILER: ProgramRules = ProgramRules {
    seeds: Seeds::Always,
    times: Times::Never,
    looks: true,
    compiles: true,
    asks: true,
    listens: false,
    finds_crates: false,
};
/// Like a compiler, except that an option can make it write a random number and, for some systems, the time.
const LINKER: ProgramRules = ProgramRules {
    seeds: Seeds::Never,
    ..COMPILER
};
const ARCHIVER: ProgramRules = ProgramRules {
    times: Times::Archived,
    compiles: false,
    ..LINKER
};
/// Programs that compute something from the content of files.
const READER: ProgramRules = ProgramRules {
    times: Times::Never,
    looks: true,
    asks: true,
    ..UNKNOWN
};
/// Programs that get all variables, and may ask for anything by system calls of their own.
pub const SCRIPT: ProgramRules = ProgramRules {
    looks: false,
    asks: false,
    ..READER
};
/// It uses randomness for the layout of its tables, and has a module that reads the time when it is loaded.
const PYTHON: ProgramRules = ProgramRules {
    seeds: Seeds::First,
    ..SCRIPT
};

/// Its runtime seeds its tables, and measures all the time. Dates are asked for separately. Of the machine, it asks for the
/// size, for its threads and its heap.
pub const GO: ProgramRules = ProgramRules {
    seeds: Seeds::First,
    ..UNKNOWN
};

/// It names temporary files, and measures. Its makers take care that the same sources always give the same result.
pub const RUST: ProgramRules = ProgramRules {
    listens: true,
    finds_crates: true,
    ..COMPILER
};
/// The same after it has loaded a procedural macro, which may do anything. The times of files, and older results of the
/// compile, still do not count.
pub const RUST_WITH_MACROS: ProgramRules = ProgramRules {
    seeds: Seeds::Never,
    compiles: false,
    asks: false,
    ..RUST
};

/// Programs are known by their names and by marks in their files: a name alone says little about a program that did not
/// come with the system.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    names: &'static [&'static str],
    pub rules: ProgramRules,
    /// Each program of the family has one of these marks in its file. If no mark is known, only the system's own programs
    /// are recognized.
    pub marks: &'static [&'static str],
}

static FAMILIES: [Family; 8] = [
    Family {
        names: &[
            "gcc",
            "g++",
            "gfortran",
            "cc",
            "c++",
            "clang",
            "clang++",
            "cc1",
            "cc1plus",
            "cc1obj",
            "cc1objplus",
            "f951",
            "lto1",
            "lto-wrapper",
            "collect2",
        ],
        rules: COMPILER,
        marks: &["COLLECT_GCC", "N5clang"],
    },
    Family {
        names: &["as"],
        rules: COMPILER,
        marks: &["GNU assembler"],
    },
    Family {
        names: &["ld", "ld.bfd", "ld.gold", "ld.lld", "rust-lld"],
        rules: LINKER,
        marks: &["GNU ld", "N4gold", "N3lld"],
    },
    Family {
        names: &["rustc", "clippy-driver"],
        rules: RUST,
        marks: &["librustc_driver"],
    },
    Family {
        names: &["ar"],
        rules: ARCHIVER,
        marks: &["thin archive", "liblto_plugin", "N4llvm"],
    },
    Family {
        names: &[
            "bison", "flex", "m4", "sed", "cat", "protoc", "xxd", "gperf", "re2c", "grep", "sort", "tr", "cut", "head",
            "tail", "wc", "echo", "true", "false",
        ],
        rules: READER,
        marks: &[
            "GNU Bison",
            "YY_FLEX_MAJOR_VERSION",
            "GNU M4",
            "GNU sed",
            "google8protobuf",
            "GNU gperf",
            "GNU grep",
            "GNU coreutils",
        ],
    },
    Family {
        names: &["sh", "dash", "mawk"],
        rules: SCRIPT,
        marks: &[],
    },
    Family {
        names: &["python", "pypy"],
        rules: PYTHON,
        marks: &["Py_BytesMain", "pypy_main_startup"],
    },
];

impl Family {
    /// `program` is the path of its file.
    pub fn of(program: &[u8]) -> Option<&'static Family> {
        let name = program.rsplit(|b| *b == b'/').next().unwrap_or(program);
        let name = String::from_utf8_lossy(name);
        // `python3.11`, `gcc-12`, `x86_64-linux-gnu-ld.bfd`
        let unversioned = |name: &str| {
            let is_digit = |c: char| c.is_ascii_digit() || c == '.';
            name.trim_end_matches(is_digit).trim_end_matches('-').to_owned()
        };
        let last = |name: &str| name.rsplit('-').next().unwrap_or(name).to_owned();
        let plain = unversioned(&name);
        let of = |name: &str| FAMILIES.iter().find(|family| family.names.contains(&name));
        // Only tool chains have the name of a target before their own.
        let of_chain = |name: String| of(&name).filter(|family| !family.rules.listens);
        let found = of(&name).or_else(|| of(&plain));
        found
            .or_else(|| of_chain(last(&name)))
            .or_else(|| of_chain(last(&plain)))
    }
}

impl ProgramRules {
    /// The rules for the name of a program's file.
    pub fn of(program: &[u8]) -> ProgramRules {
        Family::of(program).map_or(UNKNOWN, |family| family.rules)
    }
}

/// Programs that ask for the time or for random numbers in each run, and for what. Most of their results show nothing of it,
/// and a second run at another time tells whether one does.
static ASKING: [(&str, &str); 9] = [
    ("bash zsh ksh", "seeds RANDOM, and counts SECONDS"),
    (
        "sh dash mawk gawk awk perl lua luac tclsh",
        "seeds tables and random numbers",
    ),
    (
        "python pypy node ruby php",
        "seeds tables, names temporary files, and measures",
    ),
    (
        "make gmake ninja cmake xargs find dd du tee",
        "compares the time with that of files, or measures",
    ),
    (
        "rustc java javac jar javadoc kotlinc scalac",
        "measures, and names temporary files",
    ),
    (
        "git tar zip unzip gzip bzip2 xz zstd lz4 cpio",
        "measures, or heeds the times of files",
    ),
    (
        "sort sed patch install split csplit cp ln mv mkdir touch",
        "names temporary files",
    ),
    (
        "ld ld.bfd ld.gold ld.lld rust-lld ar ranlib strip objcopy nm objdump as nasm dwz",
        "names temporary files",
    ),
    (
        "bison flex m4 protoc swig xsltproc xmllint msgfmt msgmerge xgettext openssl sqlite3 jq groff troff doxygen \
         glib-compile-resources moc rcc uic",
        "seeds tables, and names temporary files",
    ),
];

/// Whether the program asks for times and random numbers, and seldom shows them.
pub fn asks_idly(program: &[u8]) -> bool {
    ASKING.iter().any(|(names, _)| is_one_of(program, names))
}

/// Whether a program has one of these names, perhaps with a version or a target: `python3.11`, `x86_64-linux-gnu-strip`.
fn is_one_of(program: &[u8], names: &str) -> bool {
    let name = String::from_utf8_lossy(program.rsplit(|b| *b == b'/').next().unwrap_or(program));
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let last = plain.rsplit('-').next().unwrap_or(plain);
    let mut names = names.split(' ');
    !name.is_empty() && names.any(|known| [&*name, plain, last].contains(&known))
}

/// Programs that look at files, and compare their times at most. What they make and print never shows one.
const HIDING: &str =
    "bash make gmake mv cp ln rm rmdir mkdir install chmod chown chgrp touch test [ tee sed sort patch strip \
                      objcopy ranlib cmp basename dirname readlink realpath bzip2 xz zstd";

/// Whether a program that looks at the status of a file never shows when the file was written.
pub fn hides_times(program: &[u8]) -> bool {
    is_one_of(program, HIDING)
}

/// Whether `ar` leaves out the times of its members. If it includes them, and writes an index, it reads the clock. So an
/// index without a reading of the clock proves that it leaves them out by default.
pub fn archives_no_times(argv: &[&[u8]]) -> bool {
    let Some(letters) = argv.get(1) else { return false };
    let letters = letters.strip_prefix(b"-").unwrap_or(letters);
    let has = |letter: u8| letters.contains(&letter);
    let makes = has(b'r') || has(b'q');
    makes && letters.iter().all(|letter| b"rqcsDSv".contains(letter)) && (has(b'D') || !has(b'S'))
}

/// A library that makes system calls by its own instructions, which are not seen.
pub fn hides_calls(library: &[u8]) -> bool {
    let name = library.rsplit(|b| *b == b'/').next().unwrap_or(library);
    name.starts_with(b"liburing.so")
}

/// Whether a program is known to make system calls by its own instructions, though it is no static one. Only the second
/// witness sees all that it does.
pub fn makes_own_calls(program: &[u8]) -> bool {
    ProgramRules::of(program).finds_crates || is_one_of(program, "node nodejs xsltproc")
}

/// Whether a program was made by Go, which makes system calls by its own instructions. A note in the file says so.
pub fn is_of_go(program: &[u8]) -> bool {
    use std::io::Read;
    use std::os::unix::ffi::OsStrExt;
    const HEAD: u64 = 16 << 10;
    let mut head: Bytes = Vec::new();
    let file = std::fs::File::open(std::ffi::OsStr::from_bytes(program));
    let read = file.and_then(|file| file.take(HEAD).read_to_end(&mut head));
    // The size of the name, the size of what follows, and the kind; then the name.
    const NOTE: &[u8] = b"\x04\0\0\0";
    let is_note = |window: &[u8]| window.starts_with(NOTE) && window.ends_with(b"Go\0\0");
    read.is_ok() && head.starts_with(b"\x7fELF") && head.windows(16).any(is_note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_the_name_of_its_file() {
        for (path, rules) in [
            ("/usr/bin/x86_64-linux-gnu-gcc-12", COMPILER),
            ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", COMPILER),
            ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1", COMPILER),
            ("/usr/lib/gcc/x86_64-linux-gnu/12/f951", COMPILER),
            ("/usr/libexec/gcc/x86_64-linux-gnu/13/lto-wrapper", COMPILER),
            ("/usr/lib/llvm-14/bin/clang", COMPILER),
            ("/usr/bin/x86_64-linux-gnu-ld.bfd", LINKER),
            ("/usr/bin/gcc-ar-12", ARCHIVER),
            ("/usr/bin/m4", READER),
            ("/usr/bin/dash", SCRIPT),
            ("/opt/bin/python3.11", PYTHON),
            ("/usr/bin/tar", UNKNOWN),
            ("/usr/bin/lto-dump-12", UNKNOWN),
            ("/usr/bin/posh-sh", UNKNOWN),
            ("", UNKNOWN),
        ] {
            assert_eq!(ProgramRules::of(path.as_bytes()), rules, "{path}");
        }
    }

    /// The marks of each family that is recognized outside of the system's folders are in this machine's programs.
    #[test]
    fn programs_of_the_system_have_a_mark_of_their_family() {
        for program in ["gcc", "as", "ld", "ar", "sed", "grep", "sort"] {
            let folders = ["/usr/bin", "/bin"].map(std::path::Path::new);
            let found = folders.into_iter().map(|folder| folder.join(program));
            let Some(path) = found.filter_map(|path| std::fs::canonicalize(path).ok()).next() else {
                continue;
            };
            let family = Family::of(path.as_os_str().as_encoded_bytes()).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let has = |mark: &&str| memchr::memmem::find(&bytes, mark.as_bytes()).is_some();
            assert!(family.marks.iter().any(has), "{path:?}");
        }
    }

    #[test]
    fn programs_that_ask_idly_are_known_by_name() {
        for (path, asks) in [
            ("/usr/bin/bash", true),
            ("/usr/bin/python3.11", true),
            ("/usr/bin/x86_64-linux-gnu-ld.bfd", true),
            ("/usr/bin/lua5.3", true),
            ("/usr/bin/date", false),
            ("/usr/bin/shuf", false),
            ("/usr/bin/my-date", false),
            ("", false),
        ] {
            assert_eq!(asks_idly(path.as_bytes()), asks, "{path}");
        }
    }

    /// The table in the documents has the same names.
    #[test]
    fn programs_that_ask_idly_are_documented() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cacheable.md");
        let text = std::fs::read_to_string(path).unwrap();
        for (names, why) in &ASKING {
            assert!(text.contains(&format!("| `{names}` |")), "{names} {why}");
        }
    }

    #[test]
    fn programs_that_hide_times_are_known_by_name() {
        for (path, hides) in [
            ("/usr/bin/mv", true),
            ("/usr/bin/x86_64-linux-gnu-strip", true),
            ("/usr/bin/[", true),
            ("/usr/bin/stat", false),
            ("/usr/bin/tar", false),
            ("/usr/bin/gzip", false),
            ("", false),
        ] {
            assert_eq!(hides_times(path.as_bytes()), hides, "{path}");
        }
    }

    #[test]
    fn a_program_of_go_says_so() {
        let path = std::env::temp_dir().join(format!("rules-{}", std::process::id()));
        let name = path.as_os_str().as_encoded_bytes();
        for (text, is) in [
            (&b"\x7fELF....\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0id"[..], true),
            (b"\x7fELF....\x04\0\0\0\x10\0\0\0\x01\0\0\0GNU\0id", false),
            (b"#!/bin/sh\n", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_of_go(name), is, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!is_of_go(name));
    }

    #[test]
    fn an_archive_without_times_is_known_by_its_letters() {
        for (line, expected) in [
            ("ar rcs", true),
            ("ar -rc", true),
            ("ar qcD", true),
            ("ar rcSD", true),
            ("ar rcS", false),
            ("ar rcU", false),
            ("ar rcu", false),
            ("ar x", false),
            ("ar", false),
            ("ar --plugin", false),
        ] {
            let argv: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(archives_no_times(&argv), expected, "{line}");
        }
    }
}
