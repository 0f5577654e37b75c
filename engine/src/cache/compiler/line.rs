//! A compiler's command line, understood: its one source, where the output goes, which files are written besides, and the
//! kind of every other word.
//!
//! It knows nothing of files and folders that exist.

use std::collections::BTreeMap;

use super::language::{is_linked, Language};
use super::options::{Does, For, Known, Map, Named, Side, Stage, Temporaries};
use super::reason::Reason;
use super::Compiler;
use crate::observe::access::Bytes;
use crate::wire::UncachedReason;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// A path, which may be below a base folder.
    Path,
    Map(Map),
    Source,
    /// A target of the dependency file, which occurs there and nowhere else.
    Target,
}

/// A word of the command line, or two words that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub option: Bytes,
    pub operand: Bytes,
    /// Whether the operand was a word of its own.
    pub apart: bool,
    pub kind: Kind,
}

/// Where dependencies are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    pub file: Option<Bytes>,
    pub target: Target,
}

/// The names of the targets in a dependency file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Target {
    /// Those that the words of the line name, otherwise the source's.
    #[default]
    Told,
    /// The main output.
    Output,
    /// The main output and others.
    Amid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub compiler: Compiler,
    pub stage: Stage,
    pub language: Language,
    pub source: Bytes,
    pub output: Option<Bytes>,
    pub dependencies: Option<Dependencies>,
    pub sides: Vec<Side>,
    pub temporaries: Option<Temporaries>,
    pub named: BTreeMap<Named, Bytes>,
    /// The folder for modules of Fortran.
    pub modules: Bytes,
    /// The output is in LLVM's format.
    pub bitcode: bool,
    pub precompiles: bool,
    /// With `-flto`: a part of the work is left to the linker.
    pub linked_later: bool,
    /// The output contains its own name, or a file is searched by that name.
    pub binds: bool,
    /// The output contains paths in ways that prefix maps do not reach.
    pub tells: bool,
    /// All words except the names of files that are written.
    pub words: Vec<Word>,
}

/// The state while a line is read.
#[derive(Default)]
struct Reader {
    stages: Vec<Stage>,
    language: Option<Bytes>,
    source: Option<(Bytes, Option<Language>)>,
    output: Option<Bytes>,
    /// By an option of the driver, which then may tell the compiler the name of the output.
    depends: bool,
    file: Option<Bytes>,
    /// By `-Wp,-MD,file`.
    given: Option<Bytes>,
    /// The file of `-MF` or `-Wp,-MD,file`, the last one.
    last_file: Option<Bytes>,
    has_target: bool,
    /// By `-Wp,-MT,target`: one more target, or one in place of the source's.
    has_other_target: bool,
    sides: Vec<Side>,
    temporaries: Option<Temporaries>,
    named: BTreeMap<Named, Bytes>,
    modules: Bytes,
    bitcode: bool,
    precompiles: bool,
    linked_later: bool,
    binds: bool,
    tells: bool,
    only_sources: bool,
    /// The frontend's option that needs another word.
    wants: Option<Bytes>,
    words: Vec<Word>,
}

/// Options of assemblers that write nothing, and print nothing that differs between runs.
const ASSEMBLER: [&str; 18] = [
    "--noexecstack",
    "--execstack",
    "-m",
    "-W",
    "--warn",
    "--no-warn",
    "--fatal-warnings",
    "-I",
    "-g",
    "--gdwarf",
    "--compress-debug-sections",
    "--nocompress-debug-sections",
    "--divide",
    "--defsym",
    "--32",
    "--64",
    "--x32",
    "--generate-missing-build-notes",
];
const PREPROCESSOR: [&str; 5] = ["-D", "-U", "-I", "-f", "-W"];
const FRONTEND: [&str; 3] = ["-f", "-W", "-m"];
const FRONTEND_REFUSED: [&str; 5] = ["-fmodule", "-ftime", "-fdump", "-fsave", "-fplugin"];
const FRONTEND_PATHS: [&str; 2] = ["-include-pch", "-include"];
/// What LLVM would print about itself differs between runs.
const OPTIMIZER_REFUSED: [&str; 5] = ["time", "stats", "print", "dump", "track"];

fn begins(word: &[u8], list: &[&str]) -> bool {
    list.iter().any(|item| word.starts_with(item.as_bytes()))
}

fn contains(word: &[u8], list: &[&str]) -> bool {
    list.iter()
        .any(|item| word.windows(item.len()).any(|part| part == item.as_bytes()))
}

impl Line {
    /// Reads the words after the program's own name.
    pub fn read(compiler: Compiler, words: &[Bytes]) -> Result<Line, Reason> {
        let mut reader = Reader::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if reader.only_sources || !word.starts_with(b"-") || word == b"-" {
                reader.file(word)?;
                continue;
            }
            let known =
                Known::find(compiler, word).ok_or_else(|| Reason::about(UncachedReason::Option, word.clone()))?;
            let argument = known.argument(word, &mut words);
            let (operand, apart) = argument.ok_or_else(|| Reason::about(UncachedReason::Incomplete, word.clone()))?;
            reader.option(known, word, operand, apart)?;
        }
        reader.finish(compiler)
    }

    /// Whether the content of an output may depend on the name of the main one.
    pub fn is_bound(&self) -> bool {
        self.precompiles || self.has_others()
    }

    /// Whether it makes more than one output and its dependencies, or an output that contains its own name.
    pub fn has_others(&self) -> bool {
        self.binds || self.temporaries.is_some() || !self.sides.is_empty() || !self.named.is_empty()
    }

    /// Whether it makes a precompiled header of gcc, and nothing else. gcc writes its memory into it, without the name of
    /// the folder, and names files as the command line and the sources name them: prefix maps do not reach these names.
    pub fn is_header_of_gcc(&self) -> bool {
        self.compiler == Compiler::Gcc && self.precompiles && self.stage == Stage::Object && !self.has_others()
    }
}

/// Compilers differ in what they do for this option beside others.
fn refused_check() -> Reason {
    Reason::about(UncachedReason::Option, b"-fsyntax-only".to_vec())
}

impl Reader {
    fn file(&mut self, path: &Bytes) -> Result<(), Reason> {
        if path == b"-" {
            return Err(UncachedReason::StandardInput.into());
        }
        if self.source.is_some() {
            return Err(if is_linked(path) {
                UncachedReason::LinkerInput.into()
            } else {
                UncachedReason::ManySources.into()
            });
        }
        let language = match &self.language {
            Some(name) => {
                Some(Language::of_name(name).ok_or_else(|| Reason::about(UncachedReason::Language, name.clone()))?)
            }
            None if is_linked(path) => return Err(UncachedReason::LinkerInput.into()),
            None => Language::of_file(path),
        };
        self.source = Some((path.clone(), language));
        self.keep(b"", path.clone(), false, Kind::Source);
        Ok(())
    }

    fn keep(&mut self, option: &[u8], operand: Bytes, apart: bool, kind: Kind) {
        self.words.push(Word {
            option: option.to_vec(),
            operand,
            apart,
            kind,
        });
    }

    fn option(&mut self, known: &Known, word: &Bytes, operand: Bytes, apart: bool) -> Result<(), Reason> {
        let mut kind = Some(Kind::Plain);
        match known.does {
            Does::Plain => {}
            Does::Path => kind = Some(Kind::Path),
            Does::Output => (self.output, kind) = (Some(operand.clone()), None),
            Does::Language => self.language = (operand != b"none").then(|| operand.clone()),
            Does::Stage(stage) => self.stages.push(stage),
            Does::Dependencies => self.depends = true,
            Does::DependencyFile => {
                (self.file, kind) = (Some(operand.clone()), None);
                self.last_file.clone_from(&self.file);
            }
            Does::DependencyTarget => (self.has_target, kind) = (true, Some(Kind::Target)),
            Does::Side(side) => {
                self.sides.retain(|other| *other != side);
                self.sides.push(side);
            }
            Does::NoSide(side) => self.sides.retain(|other| *other != side),
            Does::Names(named) => {
                self.named.insert(named, operand.clone());
                kind = None;
            }
            Does::Tells => self.tells = true,
            Does::BindsAndTells => (self.binds, self.tells) = (true, true),
            Does::Optimizes(later) => self.linked_later = later,
            // Compilers differ in which one of several counts.
            Does::Saves(which) if self.temporaries.is_some_and(|other| other != which) => {
                return Err(Reason::about(UncachedReason::Option, word.clone()))
            }
            Does::Saves(which) => self.temporaries = Some(which),
            Does::Map(map) => kind = Some(Kind::Map(map)),
            Does::Through(whom) => kind = self.through(whom, word, &operand)?,
            Does::Bitcode => self.bitcode = true,
            Does::ModuleFolder => (self.modules, kind) = (operand.clone(), Some(Kind::Path)),
            Does::Sources => self.only_sources = true,
            Does::DependenciesOnly => return Err(UncachedReason::Dependencies.into()),
            Does::Asks => return Err(UncachedReason::Asking.into()),
            Does::Times => return Err(UncachedReason::Timing.into()),
            Does::Modules => return Err(UncachedReason::Modules.into()),
            Does::Refused => return Err(Reason::about(UncachedReason::Option, word.clone())),
        }
        if let Some(kind) = kind {
            self.keep(known.name.as_bytes(), operand, apart, kind);
        }
        Ok(())
    }

    /// An option for one of the programs that the driver calls. Returns the kind of the word, none if its names are not
    /// recognized.
    fn through(&mut self, whom: For, word: &Bytes, operand: &Bytes) -> Result<Option<Kind>, Reason> {
        let refused = || Reason::about(UncachedReason::Option, [&word[..], b" ", operand].concat());
        let parts: Vec<&[u8]> = operand.split(|b| *b == b',').collect();
        match whom {
            For::Preprocessor => match parts[..] {
                [b"-MD" | b"-MMD", file] if !file.is_empty() => {
                    self.given = Some(file.to_vec());
                    self.last_file.clone_from(&self.given);
                    // It matters which of the two it is.
                    self.keep(b"-Wp,", parts[0].to_vec(), false, Kind::Plain);
                    Ok(None)
                }
                [b"-MT" | b"-MQ", _] => {
                    self.has_other_target = true;
                    Ok(Some(Kind::Plain))
                }
                [b"-MP"] => Ok(Some(Kind::Plain)),
                _ if parts.iter().all(|part| begins(part, &PREPROCESSOR)) && !begins(operand, &FRONTEND_REFUSED) => {
                    Ok(Some(Kind::Plain))
                }
                _ => Err(refused()),
            },
            For::Assembler if parts.iter().all(|part| begins(part, &ASSEMBLER)) => Ok(Some(Kind::Plain)),
            For::Assembler => Err(refused()),
            For::Frontend => self.frontend(operand).ok_or_else(refused).map(Some),
            For::Optimizer if contains(operand, &OPTIMIZER_REFUSED) => Err(refused()),
            For::Optimizer => Ok(Some(Kind::Plain)),
        }
    }

    fn frontend(&mut self, operand: &Bytes) -> Option<Kind> {
        if self.wants.take().is_some() {
            return (!operand.starts_with(b"-")).then_some(Kind::Path);
        }
        if begins(operand, &FRONTEND_REFUSED) {
            return None;
        }
        if operand == b"-emit-pch" {
            self.precompiles = true;
            return Some(Kind::Plain);
        }
        if FRONTEND_PATHS.iter().any(|name| name.as_bytes() == &operand[..]) {
            self.wants = Some(operand.clone());
            return Some(Kind::Plain);
        }
        begins(operand, &FRONTEND).then_some(Kind::Plain)
    }

    /// Preprocessing comes before assembly, and that before objects, in whatever order and however often the options are
    /// given.
    fn stage(&self, language: Language) -> Result<Stage, Reason> {
        match self.stages.iter().min() {
            Some(Stage::Preprocess) if self.stages.contains(&Stage::Check) => Err(refused_check()),
            Some(Stage::Check) if self.precompiles || !language.is_checked() => Err(refused_check()),
            Some(stage) => Ok(*stage),
            None if language == Language::Header => Ok(Stage::Object),
            None => Err(UncachedReason::Linking.into()),
        }
    }

    /// gcc's driver passes a name on only if it was asked for dependencies itself. clang treats `-Wp,` like its own
    /// options.
    fn dependencies(&self, compiler: Compiler, stage: Stage, language: Language) -> Option<Dependencies> {
        let (file, is_handed_on) = match compiler {
            Compiler::Gcc => {
                let (given, named) = (self.given.as_ref(), self.file.as_ref());
                let file = match language {
                    Language::Fortran => named.or(given),
                    _ => given.or(named),
                };
                (file, self.depends && stage != Stage::Preprocess)
            }
            Compiler::Clang => (self.last_file.as_ref(), true),
        };
        // If the output is not named, it is named after the source, and so is the target, as an object.
        let is_like_source =
            stage == Stage::Object && !self.precompiles && language != Language::Header && !self.bitcode;
        let is_plain = !self.has_other_target && language != Language::Fortran;
        let target = match is_handed_on && !self.has_target {
            true if is_plain && (self.output.is_some() || is_like_source) => Target::Output,
            true if self.output.is_some() => Target::Amid,
            _ => Target::Told,
        };
        (self.depends || self.given.is_some()).then(|| Dependencies {
            file: file.cloned(),
            target,
        })
    }

    fn finish(self, compiler: Compiler) -> Result<Line, Reason> {
        if let Some(option) = &self.wants {
            return Err(Reason::about(UncachedReason::Incomplete, option.clone()));
        }
        let Some((source, language)) = &self.source else {
            return Err(UncachedReason::NoInput.into());
        };
        let unknown = || Reason::about(UncachedReason::Language, source.clone());
        let language = match language {
            // A file without a known ending is for the linker.
            None if self.stages.is_empty() => return Err(UncachedReason::Linking.into()),
            None => return Err(unknown()),
            Some(language) => *language,
        };
        if language == Language::Ir && compiler == Compiler::Gcc {
            return Err(unknown());
        }
        let stage = self.stage(language)?;
        // gcc makes some of the files beside the output, which there is not.
        if stage == Stage::Check && compiler == Compiler::Gcc && !self.sides.is_empty() {
            return Err(refused_check());
        }
        let dependencies = self.dependencies(compiler, stage, language);
        Ok(Line {
            compiler,
            stage,
            language,
            source: source.clone(),
            output: self.output,
            dependencies,
            sides: self.sides,
            temporaries: self.temporaries,
            named: self.named,
            modules: self.modules,
            bitcode: self.bitcode,
            precompiles: self.precompiles || language == Language::Header && stage != Stage::Check,
            linked_later: self.linked_later,
            binds: self.binds,
            // What the preprocessor leaves names its files as they were found.
            tells: self.tells || self.linked_later || self.temporaries.is_some(),
            words: self.words,
        })
    }
}
