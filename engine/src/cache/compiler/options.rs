//! What the options of compilers mean for the cache: how each takes its argument, and what it does besides changing what is
//! compiled. The table is for GCC 9 to 14 and clang 11 to 18.
//!
//! A command with an option that is missing here is not cached, so that it gets no wrong outputs.

use std::sync::OnceLock;

use super::Compiler;
use crate::observe::access::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// The rest of the word.
    Joined,
    /// The next word.
    Separate,
    /// The rest of the word or, if that is empty, the next word.
    Either,
}

/// The last step that a compiler does. The earliest one among several counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Preprocess,
    /// `-fsyntax-only`: only messages come of it.
    Check,
    Assembly,
    Object,
}

/// What a compiler writes besides its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// `-gsplit-dwarf`
    Debug,
    /// `-ftest-coverage`
    Notes,
    /// `-fstack-usage`
    Stack,
    /// `-fcallgraph-info`
    Calls,
    /// `-fsave-optimization-record`
    Record,
}

/// Where the files of `-save-temps` go: what the preprocessor and the compiler leave for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temporaries {
    /// With gcc, beside the output. With clang, in the command's folder.
    Usual,
    /// In the command's folder.
    Here,
    Beside,
}

/// Where prefixes of paths are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Map {
    Debug,
    Macro,
    Both,
}

/// The program that gets the argument, which is an option of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Preprocessor,
    Assembler,
    Frontend,
    Optimizer,
}

/// Files that a compiler writes because an option names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Named {
    Record,
    Diagnostics,
    Database,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// It changes what is compiled, or its diagnostics.
    Plain,
    /// The same, and its argument is a path.
    Path,
    Output,
    Language,
    Stage(Stage),
    /// It writes the files on which the source depends.
    Dependencies,
    DependencyFile,
    DependencyTarget,
    Side(Side),
    /// It cancels an option of the same name.
    NoSide(Side),
    Names(Named),
    /// The output contains paths in ways that prefix maps do not reach.
    Tells,
    /// The same, and the output contains its own name, or a file is searched by that name.
    BindsAndTells,
    Optimizes(bool),
    Saves(Temporaries),
    Map(Map),
    Through(For),
    /// The output is in LLVM's format.
    Bitcode,
    /// The folder for modules of Fortran.
    ModuleFolder,
    /// The words after it are sources, whatever they look like.
    Sources,
    DependenciesOnly,
    Asks,
    Times,
    Modules,
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub name: &'static str,
    pub takes: Takes,
    pub does: Does,
}

type Group = (Takes, Does, &'static [&'static str]);

use Does::*;
use Takes::*;

const COMMON: &[Group] = &[
    (
        Nothing,
        Plain,
        &[
            "-w",
            "-ansi",
            "-pedantic",
            "-pedantic-errors",
            "-pthread",
            "-nostdinc",
            "-nostdinc++",
            "-undef",
            "-pipe",
            "-P",
            "-C",
            "-CC",
            "-H",
            "-dD",
            "-dM",
            "-dI",
            "-MP",
            "-pg",
            "-p",
            "-s",
            "-static",
            "-shared",
            "-rdynamic",
            "-nostdlib",
            "-nodefaultlibs",
            "-nostartfiles",
            "-no-canonical-prefixes",
            "-pie",
            "-no-pie",
            "-traditional",
            "-traditional-cpp",
            "-trigraphs",
            "-nolibc",
            "-static-libgcc",
            "-static-libstdc++",
            "-remap",
            "-posix",
        ],
    ),
    (
        Joined,
        Plain,
        &[
            "-std=",
            "--std=",
            "-O",
            "-f",
            "-m",
            "-W",
            "-g",
            "--param=",
            "-Wl,",
            "--target=",
            "-stdlib=",
        ],
    ),
    (Separate, Plain, &["--param", "-Xlinker", "-z", "-u", "-target"]),
    (Either, Plain, &["-D", "-U", "-A", "-l"]),
    (
        Either,
        Path,
        &[
            "-I",
            "-isystem",
            "-iquote",
            "-idirafter",
            "-include",
            "-imacros",
            "-iprefix",
            "-iwithprefix",
            "-iwithprefixbefore",
            "-isysroot",
            "-L",
            "-B",
            "-imultilib",
            "-F",
            "-iframework",
            "-T",
        ],
    ),
    (Joined, Path, &["--sysroot=", "-specs=", "--specs=", "--gcc-toolchain="]),
    (Separate, Path, &["--sysroot", "-include-pch"]),
    (Either, Output, &["-o"]),
    (Separate, Output, &["--output"]),
    (Joined, Output, &["--output="]),
    (Either, Language, &["-x"]),
    (Separate, Language, &["--language"]),
    (Joined, Language, &["--language="]),
    (Nothing, Stage(self::Stage::Object), &["-c", "--compile"]),
    (Nothing, Stage(self::Stage::Assembly), &["-S", "--assemble"]),
    (Nothing, Stage(self::Stage::Preprocess), &["-E", "--preprocess"]),
    (Nothing, Stage(self::Stage::Check), &["-fsyntax-only"]),
    (
        Nothing,
        Dependencies,
        &["-MD", "-MMD", "--write-dependencies", "--write-user-dependencies"],
    ),
    (Either, DependencyFile, &["-MF"]),
    (Either, DependencyTarget, &["-MT", "-MQ"]),
    (
        Nothing,
        DependenciesOnly,
        &["-M", "-MM", "-MG", "--dependencies", "--user-dependencies"],
    ),
    (Nothing, Side(self::Side::Debug), &["-gsplit-dwarf"]),
    (Nothing, NoSide(self::Side::Debug), &["-gno-split-dwarf"]),
    (
        Nothing,
        Side(self::Side::Notes),
        &["-ftest-coverage", "--coverage", "-coverage"],
    ),
    (Nothing, Side(self::Side::Stack), &["-fstack-usage"]),
    (Nothing, Saves(Temporaries::Usual), &["-save-temps", "--save-temps"]),
    (
        Nothing,
        Saves(Temporaries::Here),
        &["-save-temps=cwd", "--save-temps=cwd"],
    ),
    (
        Nothing,
        Saves(Temporaries::Beside),
        &["-save-temps=obj", "--save-temps=obj"],
    ),
    (Nothing, Side(self::Side::Record), &["-fsave-optimization-record"]),
    (Nothing, NoSide(self::Side::Record), &["-fno-save-optimization-record"]),
    (Nothing, Refused, &["-fno-test-coverage", "-fno-stack-usage"]),
    // Counters are named after the object, and so are the profiles that are searched.
    (
        Joined,
        BindsAndTells,
        &[
            "-fprofile-",
            "-fauto-profile",
            "-fbranch-probabilities",
            "-fcs-profile-",
            "-fcoverage-",
            "-ftest-profile",
            "-ftree-profile",
            "-fplugin",
            "-funique-internal-linkage-names",
        ],
    ),
    (
        Joined,
        Plain,
        &["-fprofile-partial-training", "-fprofile-sample-accurate"],
    ),
    // They are compressed, or not mapped.
    (
        Joined,
        Tells,
        &[
            "-flto-",
            "-fsanitize",
            "-fverbose-asm",
            "-fembed-bitcode",
            "-ffat-lto-objects",
            "-fthinlto",
        ],
    ),
    (Joined, Plain, &["-fno-sanitize"]),
    (Joined, Map(self::Map::Debug), &["-fdebug-prefix-map="]),
    (Joined, Map(self::Map::Macro), &["-fmacro-prefix-map="]),
    (Joined, Map(self::Map::Both), &["-ffile-prefix-map="]),
    (Joined, Through(For::Preprocessor), &["-Wp,"]),
    (Separate, Through(For::Preprocessor), &["-Xpreprocessor"]),
    (Joined, Through(For::Assembler), &["-Wa,"]),
    (Separate, Through(For::Assembler), &["-Xassembler"]),
    (Joined, Asks, &["-print-", "--print-", "--help", "-dump", "-version"]),
    (Nothing, Asks, &["-v", "--verbose", "--version", "-###", "-help"]),
    (
        Joined,
        Times,
        &[
            "-ftime-report",
            "-ftime-trace",
            "-fmem-report",
            "-fproc-stat-report",
            "-fstats",
            "-time",
            "-Q",
        ],
    ),
    (
        Joined,
        Modules,
        &[
            "-fmodule",
            "-fmodules",
            "-fimplicit-module",
            "-fprebuilt-module",
            "-fprebuilt-implicit",
        ],
    ),
    (Joined, Plain, &["-fno-modules", "-fno-implicit-module"]),
    (
        Joined,
        Refused,
        &[
            "-fdump-",
            "-save-temps",
            "--save-temps",
            "-save-stats",
            "-d",
            "-fcompare-debug",
            "-fopt-info",
            "-frepo",
            "-fdiagnostics-format=json-",
            "-fdiagnostics-format=sarif",
            "-fdiagnostics-add-output",
            "-fdiagnostics-set-output",
            "-fprofile-note=",
            "-dumpdir",
            "-dumpbase",
            "-auxbase",
            "-wrapper",
            "-gtoggle",
            "-foffload-",
            "-fopenmp-targets",
            "-foptimization-record-file",
            "-fstack-usage=",
            "-gen-cdb",
        ],
    ),
    (Separate, Refused, &["-arch", "-wrapper"]),
    (Joined, Refused, &["-Xarch"]),
    (Joined, Plain, &["-foffload=", "-foffload-abi=", "-foffload-options="]),
    (Nothing, Optimizes(true), &["-flto"]),
    (Joined, Optimizes(true), &["-flto="]),
    (Nothing, Optimizes(false), &["-fno-lto"]),
    // The long forms.
    (
        Nothing,
        Plain,
        &[
            "--all-warnings",
            "--ansi",
            "--no-warnings",
            "--pedantic",
            "--pedantic-errors",
            "--debug",
            "--optimize",
        ],
    ),
    (
        Joined,
        Plain,
        &[
            "--optimize=",
            "--debug=",
            "--warn-",
            "--define-macro=",
            "--undefine-macro=",
        ],
    ),
    (Separate, Plain, &["--define-macro", "--undefine-macro"]),
    (
        Joined,
        Path,
        &[
            "--include-directory=",
            "--include=",
            "--imacros=",
            "--include-directory-after=",
        ],
    ),
    (
        Separate,
        Path,
        &[
            "--include-directory",
            "--include",
            "--imacros",
            "--include-directory-after",
        ],
    ),
];

const GCC: &[Group] = &[
    (
        Nothing,
        Plain,
        &[
            "-dA",
            "-dp",
            "-dP",
            "-dN",
            "-dU",
            "-cpp",
            "-nocpp",
            "-no-integrated-cpp",
        ],
    ),
    (Joined, Side(self::Side::Calls), &["-fcallgraph-info"]),
    (Nothing, NoSide(self::Side::Calls), &["-fno-callgraph-info"]),
    (Either, ModuleFolder, &["-J"]),
    (Joined, Path, &["-iplugindir="]),
];

const CLANG: &[Group] = &[
    (
        Nothing,
        Plain,
        &[
            "-Qunused-arguments",
            "-integrated-as",
            "-no-integrated-as",
            "-nobuiltininc",
            "-nogpuinc",
        ],
    ),
    (
        Joined,
        Plain,
        &["-R", "-rtlib=", "-unwindlib=", "--rtlib=", "--unwindlib=", "--config"],
    ),
    (
        Joined,
        Path,
        &[
            "-resource-dir=",
            "-ffile-compilation-dir=",
            "-fdebug-compilation-dir=",
            "--gcc-install-dir=",
        ],
    ),
    (
        Either,
        Path,
        &["-cxx-isystem", "-stdlib++-isystem", "-iwithsysroot", "-ivfsoverlay"],
    ),
    (Separate, Path, &["-resource-dir", "-fdebug-compilation-dir"]),
    (Nothing, Side(self::Side::Debug), &["-gsplit-dwarf=split"]),
    (Nothing, BindsAndTells, &["-gsplit-dwarf=single"]),
    (
        Joined,
        Refused,
        &[
            "-fsave-optimization-record=",
            "-working-directory",
            "-index-store",
            "--analyze",
            "-rewrite-",
        ],
    ),
    (Nothing, Side(self::Side::Record), &["-fsave-optimization-record=yaml"]),
    (Joined, Names(Named::Record), &["-foptimization-record-file="]),
    (
        Separate,
        Names(Named::Diagnostics),
        &["-serialize-diagnostics", "--serialize-diagnostics"],
    ),
    (Either, Names(Named::Database), &["-MJ"]),
    // The whole command line is written into the output.
    (
        Nothing,
        BindsAndTells,
        &[
            "-grecord-command-line",
            "-frecord-command-line",
            "-grecord-gcc-switches",
            "-frecord-gcc-switches",
        ],
    ),
    (Nothing, Bitcode, &["-emit-llvm"]),
    (Nothing, Sources, &["--"]),
    (
        Joined,
        Refused,
        &[
            "-emit-",
            "--emit-",
            "-cc1",
            "-ccc-",
            "--offload",
            "--cuda",
            "-extract-api",
            "--precompile",
        ],
    ),
    (Nothing, Refused, &["-MV", "-MG"]),
    (Separate, Through(For::Frontend), &["-Xclang"]),
    (Separate, Through(For::Optimizer), &["-mllvm"]),
    (Joined, Times, &["-print-stats", "-stats"]),
];

/// The options of one compiler, by the letter after the dash.
struct Index(Vec<Vec<Known>>);

impl Index {
    fn of(groups: [&[Group]; 2]) -> Index {
        let mut letters = vec![Vec::new(); 256];
        for (takes, does, names) in groups.into_iter().flatten() {
            for name in *names {
                letters[usize::from(name.as_bytes()[1])].push(Known {
                    name,
                    takes: *takes,
                    does: *does,
                });
            }
        }
        Index(letters)
    }
}

fn index(compiler: Compiler) -> &'static Index {
    static GCC_INDEX: OnceLock<Index> = OnceLock::new();
    static CLANG_INDEX: OnceLock<Index> = OnceLock::new();
    match compiler {
        Compiler::Gcc => GCC_INDEX.get_or_init(|| Index::of([COMMON, GCC])),
        Compiler::Clang => CLANG_INDEX.get_or_init(|| Index::of([COMMON, CLANG])),
    }
}

impl Known {
    fn fits(&self, word: &[u8]) -> bool {
        match self.takes {
            Nothing | Separate => word == self.name.as_bytes(),
            Joined | Either => word.starts_with(self.name.as_bytes()),
        }
    }

    /// A whole word is preferred to the beginning of one, a longer name to a shorter one, and a later line of the table to
    /// an earlier one.
    fn weight(&self) -> (bool, usize) {
        (matches!(self.takes, Nothing | Separate), self.name.len())
    }

    /// The option's argument, and whether it is a word of its own: then it is taken from `rest`. `None` if it is missing.
    pub fn argument(&self, word: &[u8], rest: &mut std::slice::Iter<'_, Bytes>) -> Option<(Bytes, bool)> {
        let joined = &word[self.name.len()..];
        match self.takes {
            Nothing | Joined => Some((joined.to_vec(), false)),
            Either if !joined.is_empty() => Some((joined.to_vec(), false)),
            Separate | Either => Some((rest.next()?.clone(), true)),
        }
    }

    /// The option to which a word belongs.
    pub fn find(compiler: Compiler, word: &[u8]) -> Option<&'static Known> {
        let letter = index(compiler).0.get(usize::from(*word.get(1)?))?;
        letter
            .iter()
            .filter(|known| known.fits(word))
            .max_by_key(|known| known.weight())
    }
}

/// An option with its argument, or a word that is none.
pub struct Part<'a> {
    pub known: Option<&'static Known>,
    /// As they were given: two, if the argument is a word of its own.
    pub words: &'a [Bytes],
}

impl Part<'_> {
    pub fn does(&self) -> Option<Does> {
        self.known.map(|known| known.does)
    }
}

/// The parts of a command line. None of its words is a response file. `None` if they are not understood.
pub fn parts(compiler: Compiler, words: &[Bytes]) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::with_capacity(words.len());
    let (mut at, mut are_sources) = (0, false);
    while let Some(word) = words.get(at) {
        let is_option = !are_sources && word.starts_with(b"-") && word != b"-";
        let known = match is_option {
            true => Some(Known::find(compiler, word)?),
            false => None,
        };
        let mut rest = words[at + 1..].iter();
        let is_apart = match known {
            Some(known) => known.argument(word, &mut rest)?.1,
            None => false,
        };
        are_sources |= known.is_some_and(|known| known.does == Does::Sources);
        let next = at + 1 + usize::from(is_apart);
        parts.push(Part {
            known,
            words: &words[at..next],
        });
        at = next;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn does(compiler: Compiler, word: &str) -> Option<Does> {
        Known::find(compiler, word.as_bytes()).map(|known| known.does)
    }

    #[test]
    fn the_longest_name_that_fits_is_meant() {
        for (word, expected) in [
            ("-fPIC", Some(Plain)),
            ("-fdump-tree-all", Some(Refused)),
            ("-fdebug-prefix-map=a=b", Some(Map(self::Map::Debug))),
            ("-dM", Some(Plain)),
            ("-da", Some(Refused)),
            ("-dumpversion", Some(Asks)),
            ("-dumpbase", Some(Refused)),
            ("-static", Some(Plain)),
            ("-M", Some(DependenciesOnly)),
            ("-MD", Some(Dependencies)),
            ("-MFx", Some(DependencyFile)),
            ("-include", Some(Path)),
            ("-isystem", Some(Path)),
            ("-x", Some(Language)),
            ("-Wall", Some(Plain)),
            ("-Wa,-a", Some(Through(For::Assembler))),
            ("-fsyntax-only", Some(Stage(self::Stage::Check))),
            ("-flto=auto", Some(Optimizes(true))),
            ("-flto-partition=none", Some(Tells)),
            ("-fno-lto", Some(Optimizes(false))),
            ("-Q", Some(Times)),
            ("-q", None),
            ("--frobnicate", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(does(Compiler::Gcc, word), expected, "{word}");
        }
    }

    #[test]
    fn compilers_have_options_of_their_own() {
        assert_eq!(
            does(Compiler::Gcc, "-fcallgraph-info=su"),
            Some(Side(self::Side::Calls))
        );
        assert_eq!(does(Compiler::Gcc, "-Xclang"), None);
        assert_eq!(does(Compiler::Clang, "-Xclang"), Some(Through(For::Frontend)));
        assert_eq!(does(Compiler::Clang, "-grecord-gcc-switches"), Some(BindsAndTells));
        assert_eq!(does(Compiler::Gcc, "-grecord-gcc-switches"), Some(Plain));
        assert_eq!(does(Compiler::Clang, "-Qunused-arguments"), Some(Plain));
    }
}
