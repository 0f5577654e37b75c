//! A command line as the cache knows it: the key under which its entries are, and facts about a compiler that cannot be
//! observed.
//!
//! The key only finds candidates. Facts decide which of them is a hit. So a key may leave out everything that shows in what
//! the command asks for. It must include everything else: the words of the command line.

use std::ffi::OsStr;
use std::fs;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::crates;
use super::language::Language;
use super::left_out::{Hidden, LeftOut};
use super::line::{Kind, Line, Target, Word};
use super::linked;
use super::macros;
use super::options::Stage;
use super::other;
use super::outputs::{self, Output, Prints, Role};
use super::reason::Reason;
use super::response::{self, Read};
use super::sharing::{self, Root};
use super::Compiler;
use crate::bytes::digest::Digest;
use crate::cache::story::outcome::asks_number;
use crate::cache::story::shell::hides_folder;
use crate::cache::story::{Policy, Statuses};
use crate::facts::compared_times::word_compares_times;
use crate::facts::includes::{self, Include};
use crate::facts::input::Input;
use crate::facts::path::Path as FactPath;
use crate::facts::processor;
use crate::observe::access::Bytes;
use crate::observe::known_programs::{archives_no_times, ProgramRules, Times};
use crate::wire::{Strings, UncachedReason};

/// To be increased when the content of keys changes.
const VERSION: &[u8] = b"action 2";
const BY_FACTS: &[u8] = b"facts 2";
/// Variables by which compilers do more than their command line says.
const GCC_VARIABLES: [&str; 3] = ["DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "GCC_COMPARE_DEBUG"];
const CLANG_VARIABLES: [&str; 7] = [
    "CCC_OVERRIDE_OPTIONS",
    "CC_PRINT_OPTIONS",
    "CC_PRINT_HEADERS",
    "CC_LOG_DIAGNOSTICS",
    "CC_PRINT_PROC_STAT",
    "CC_PRINT_INTERNAL_STAT",
    "CCC_PRINT_BINDINGS",
];

/// Variables that only change how diagnostics look. A command that printed none does not depend on them, nor on whether it
/// prints to a terminal.
pub const FOR_DIAGNOSTICS: [&str; 11] = [
    "TERM",
    "COLUMNS",
    "LINES",
    "COLORTERM",
    "GCC_COLORS",
    "GCC_URLS",
    "TERM_URLS",
    "VTE_VERSION",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
];

/// A command in a request.
pub struct Call<'a> {
    pub argv: &'a Strings,
    /// `NAME=value`
    pub environment: &'a Strings,
    pub folder: &'a [u8],
    /// The file that is executed.
    pub program: &'a Path,
    /// The file to which all links lead.
    pub real: &'a Path,
    /// Folders whose names commands may share, without a slash at the end.
    pub bases: &'a [Bytes],
    /// These, and others that its files may name.
    pub known_folders: &'a [Bytes],
    /// It may be cached by its facts alone. This is what it finds on its standard input.
    pub by_facts: Option<Input>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knowledge {
    /// None for a command that is cached by its facts alone.
    pub compiler: Option<Compiler>,
    /// All files that it makes, in an order that commands with the same key share. If it writes any other file, except for
    /// `modules`, its result is not stored.
    pub outputs: Vec<Output>,
    /// The folder into which it may write modules (`.mod`, `.smod`), whose names only the source says.
    pub modules: Option<Bytes>,
    /// The bases whose names the key leaves out. They are replaced in dependency files and diagnostics, and the command's
    /// folder counts as one in a base. If any other output contains one of them, all of them are a fact.
    pub bases: Vec<Bytes>,
    /// rustc makes a crate of cargo's. Its only base is the folder into which cargo builds.
    pub is_crate: bool,
    /// Its result may contain the name of the folder in which it ran. Compilers ask for the folder, or for `PWD`, even if
    /// they do not print it.
    pub tells_folder: bool,
    /// A shell with a line that does not show its folder.
    pub is_shell: bool,
    /// Whether times of files count.
    pub statuses: Statuses,
    /// It asks for this machine's processor.
    pub asks_processor: bool,
    /// A line for a shell that asks for the number of a process.
    pub asks_number: bool,
    /// Its output should not contain the name of its folder. This is not certain, so the output is searched for it.
    pub is_searched: bool,
    /// The name of the main output in its dependency file. The key leaves it out.
    pub target: Option<Bytes>,
    /// The output that a command declares which is cached by its facts: a link's, by `-o`.
    pub declared: Option<Bytes>,
    /// What it prints besides messages.
    pub prints: Prints,
    /// The words of the command line of a compile in whose result only those macros show that are used, without those that
    /// the key does not have as they are.
    pub words: Option<Vec<Bytes>>,
    /// What the key leaves out that may still show in the result.
    pub left_out: LeftOut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    pub key: Digest,
    /// The file that it compiles, as the command names it.
    pub source: Option<Bytes>,
    pub knows: Knowledge,
}

impl Knowledge {
    /// A link whose key leaves out the name of its folder. Its only base is that folder.
    pub fn is_link(&self) -> bool {
        self.compiler.is_none() && !self.is_crate && !self.bases.is_empty()
    }

    /// Whether a file that it makes is a text in which the stored form has something else for the name of its base.
    pub fn is_crates_text(&self, path: &FactPath) -> bool {
        self.is_crate && crates::is_of_dependencies(path)
    }

    /// Known compilers read the clock for random names, which do not matter. If they write the time, they convert it to a
    /// date.
    pub fn policy(&self) -> Policy {
        let (statuses, processor) = (self.statuses, self.asks_processor);
        match self.compiler {
            None => Policy {
                shell: self.is_shell,
                statuses,
                processor,
                number: self.asks_number,
                ..Policy::default()
            },
            Some(_) => Policy {
                compiler: true,
                folder: self.tells_folder && self.bases.is_empty(),
                shell: false,
                statuses,
                processor,
                number: false,
                prints: self.prints == Prints::OutputByName,
                without_comments: false,
            },
        }
    }
}

impl Action {
    /// For a command on this machine: reads its response files.
    pub fn find(call: &Call) -> Result<Action, Reason> {
        let read = |name: &[u8]| call.read(name);
        Action::of(call, &read).or_else(|reason| Action::by_facts(call, reason))
    }

    /// What the command prints, if there is an action. For callers that need no more.
    pub fn printing(call: &Call) -> Option<Prints> {
        match understand(call, &|name| call.read(name)) {
            Ok((_, line, _)) => Some(outputs::prints(&line)),
            Err(reason) => Action::by_facts(call, reason).ok().map(|_| Prints::Messages),
        }
    }

    /// A command that is not a known compile, for a reason.
    fn by_facts(call: &Call, reason: Reason) -> Result<Action, Reason> {
        let Some(input) = call.by_facts else {
            let is_other = reason.kind == UncachedReason::UnknownCompiler;
            return Err(call.refusal().filter(|_| is_other).unwrap_or(reason));
        };
        let rules = ProgramRules::of(call.real.as_os_str().as_encoded_bytes());
        let argv: Vec<&[u8]> = call.argv.iter().collect();
        match reason.kind {
            // What they print about other programs is not their own result, and times are different each time.
            UncachedReason::Wrapped | UncachedReason::Timing => return Err(reason),
            _ if input == Input::Unknown && (rules.listens || argv.contains(&&b"-"[..])) => {
                return Err(UncachedReason::StandardInput.into())
            }
            _ => {}
        }
        let build_folder = if rules.finds_crates {
            crates::build_folder(&argv)
        } else {
            None
        };
        let compiler = Compiler::of(call.program, call.real).ok();
        let declared = compiler.and_then(|compiler| {
            let read = |name: &[u8]| call.read(name);
            let words = response::expand(argv.iter().skip(1).copied(), &read).ok()?.words;
            outputs::named(compiler, &words)
        });
        let own_folder = linked::own_folder(&argv, call.folder, declared.as_deref());
        let shared_words = match (&build_folder, &own_folder, &declared) {
            (Some(folder), ..) => Some(crates::tokened(&argv, folder)),
            (None, Some(folder), Some(output)) => Some(linked::tokened(&argv, folder, output)),
            _ => None,
        };
        let mut text = Text::default();
        text.add(BY_FACTS);
        text.add(call.program.as_os_str().as_encoded_bytes());
        match &shared_words {
            Some(words) => words.iter().for_each(|word| text.add(word)),
            None => argv.iter().for_each(|word| text.add(word)),
        }
        text.add(format!("{input:?}").as_bytes());
        let is_shell = hides_folder(call.real.as_os_str().as_encoded_bytes(), &argv);
        // Unknown programs depend on their folder anyway, so entries of many folders need not be checked.
        text.add(if rules.asks || is_shell { b"" } else { call.folder });
        Ok(Action {
            key: Digest::of(&text.0),
            source: None,
            knows: Knowledge {
                compiler: None,
                outputs: Vec::new(),
                modules: None,
                is_crate: build_folder.is_some(),
                bases: build_folder.or(own_folder).into_iter().collect(),
                tells_folder: true,
                is_shell,
                statuses: statuses(call, compiler, rules, &argv, &reason),
                asks_processor: asks_processor(call),
                asks_number: argv.iter().any(|word| asks_number(word)),
                is_searched: false,
                target: None,
                declared,
                prints: Prints::Messages,
                words: None,
                left_out: LeftOut::default(),
            },
        })
    }

    /// `read` reads a response file, by its name as the command has it.
    fn of(call: &Call, read: Read) -> Result<Action, Reason> {
        let (expanded, line, outputs) = understand(call, read)?;
        let folder = call.told_folder(&line);
        let bases = sharing::bases(&line, folder, call.bases);
        let only_used_count = !call.known_folders.is_empty() && macros::only_used_count(&line, &expanded);
        let hidden = Hidden::of(&line, &expanded, call.known_folders, only_used_count);
        Ok(Action {
            key: key(call, &line, &outputs, &bases, folder, &hidden),
            source: Some(line.source.clone()),
            knows: Knowledge {
                compiler: Some(line.compiler),
                statuses: match line.compiler {
                    _ if expanded.iter().any(|word| word_compares_times(word)) => Statuses::Kept,
                    _ if writes_times(&line) => Statuses::Kept,
                    Compiler::Gcc => Statuses::Ignored,
                    Compiler::Clang => Statuses::WithPrecompiled,
                },
                tells_folder: tells_folder(&line),
                is_shell: false,
                asks_number: false,
                asks_processor: line.words.iter().any(Word::asks_processor),
                is_searched: line.is_header_of_gcc(),
                target: target(&line, &outputs).filter(|target| is_plain(target)),
                modules: (line.language == Language::Fortran).then(|| line.modules.clone()),
                outputs,
                bases,
                is_crate: false,
                declared: None,
                prints: outputs::prints(&line),
                words: only_used_count.then(|| hidden.others(expanded)),
                left_out: hidden.left_out(),
            },
        })
    }
}

/// Whether times of files count for a command that is cached by its facts.
fn statuses(call: &Call, compiler: Option<Compiler>, rules: ProgramRules, argv: &[&[u8]], reason: &Reason) -> Statuses {
    let read = |name: &[u8]| call.read(name);
    let expanded = response::expand(argv.iter().copied(), &read).map(|expanded| expanded.words);
    let compares = |words: Vec<Bytes>| words.iter().any(|word| word_compares_times(word));
    if rules.compiles && expanded.map_or(true, compares) {
        return Statuses::Kept;
    }
    let links = matches!(
        reason.kind,
        UncachedReason::Linking | UncachedReason::LinkerInput | UncachedReason::ManySources
    );
    match compiler {
        // clang's precompiled headers contain the times of their parts.
        Some(Compiler::Clang) if !links => Statuses::Kept,
        None if rules.times == Times::Archived && archives_no_times(argv) => Statuses::Ignored,
        _ => Statuses::ByProgram,
    }
}

/// Whether a command that is not a known compile asks for this machine's processor. A response file that cannot be read may
/// contain anything, so it counts.
fn asks_processor(call: &Call) -> bool {
    let read = |name: &[u8]| call.read(name);
    let expanded = response::expand(call.argv.iter().skip(1), &read);
    let asks = |word: &Bytes| processor::is_asked_by(word) || gives_options(word);
    expanded.map_or(true, |expanded| expanded.words.iter().any(asks))
}

/// Whether the word names a file of further options, which is not read here.
fn gives_options(word: &[u8]) -> bool {
    const NAMES: [&[u8]; 4] = [b"-specs", b"--specs", b"--config", b"--driver-mode"];
    NAMES.iter().any(|name| word.starts_with(name))
}

impl Word {
    fn asks_processor(&self) -> bool {
        self.kind != Kind::Source
            && (gives_options(&self.option)
                || processor::is_asked_by(&self.option)
                || processor::is_asked_by(&self.operand))
    }
}

/// What lets a command share its result with other checkouts.
#[derive(Debug, Default)]
pub struct Shared {
    /// The command line with prefix maps, if it needs any.
    pub argv: Option<Strings>,
    /// The folders that it may leave out.
    pub bases: Vec<Bytes>,
    /// These, and others that its files may name.
    pub known_folders: Vec<Bytes>,
}

/// What a command line names of that which a compile reads, as it spells it.
pub struct Named {
    pub source: Bytes,
    /// Files and folders of all kinds: those of `-I`, and of `-include`.
    pub paths: Vec<Bytes>,
    pub response_files: Vec<Bytes>,
    /// The names of headers that it defines macros to be.
    pub defined: Vec<Include>,
}

impl Call<'_> {
    /// The command line with prefix maps, if what it makes could not be shared without them, and the folders that it may
    /// leave out. `None` if it is not understood. `roots` finds these folders for the command's own folder and its paths,
    /// of which the first is the source. `maps` says whether the compiler's maps reach all that it writes, for a compile and
    /// for a call of the assembler.
    pub fn share(
        &self,
        roots: impl FnOnce(&[u8], &[&[u8]]) -> Vec<Root>,
        maps: impl Fn(Compiler, bool) -> bool,
    ) -> Option<Shared> {
        let read = |name: &[u8]| self.read(name);
        let (_, line, _) = understand(self, &read).ok()?;
        let absolute = line.words.iter().filter(|word| word.kind == Kind::Path);
        let absolute = absolute
            .map(|word| &word.operand[..])
            .filter(|path| path.starts_with(b"/"));
        let paths: Vec<&[u8]> = iter::once(&line.source[..]).chain(absolute).collect();
        let folder = self.told_folder(&line);
        let assembles = line.language.is_assembler();
        if assembles && !maps(line.compiler, true) {
            return None;
        }
        let roots = roots(folder, &paths);
        let mut words = sharing::missing_maps(&line, folder, &roots, tells_folder(&line));
        let folders: Vec<Bytes> = roots.into_iter().map(|root| root.folder).collect();
        if words.is_empty() || !maps(line.compiler, assembles) {
            let is_shared = !sharing::bases(&line, folder, &folders).is_empty();
            return Some(Shared {
                argv: None,
                bases: if is_shared { folders.clone() } else { Vec::new() },
                known_folders: folders,
            });
        }
        let mut argv: Vec<Bytes> = self.argv.iter().map(<[u8]>::to_vec).collect();
        // With gcc the last map counts, with clang the first one. The user's own ones are to count.
        let at = match line.compiler {
            Compiler::Gcc => 1,
            Compiler::Clang => {
                words.reverse();
                argv.iter().position(|word| word == b"--").unwrap_or(argv.len())
            }
        };
        argv.splice(at..at, words);
        Some(Shared {
            argv: Some(argv.iter().map(Vec::as_slice).collect()),
            bases: folders.clone(),
            known_folders: folders,
        })
    }

    /// The folders for which the command line itself has maps. `None` if there are none, or if it is not understood.
    pub fn share_as_mapped(&self, maps: impl Fn(Compiler, bool) -> bool) -> Option<Shared> {
        if !self.argv.iter().any(sharing::may_map) {
            return None;
        }
        let read = |name: &[u8]| self.read(name);
        let (_, line, _) = understand(self, &read).ok()?;
        if line.language.is_assembler() && !maps(line.compiler, true) {
            return None;
        }
        let folders = sharing::mapped_folders(&line);
        let is_shared = !sharing::bases(&line, self.told_folder(&line), &folders).is_empty();
        is_shared.then(|| Shared {
            argv: None,
            bases: folders.clone(),
            known_folders: folders,
        })
    }

    /// The name by which the compiler calls the folder in which it runs, if it tells one: `PWD`, if that leads there.
    fn told_folder(&self, line: &Line) -> &[u8] {
        let named = variable(self.environment, "PWD").filter(|named| *named != self.folder && tells_folder(line));
        let identity = |path: &[u8]| {
            let found = fs::metadata(OsStr::from_bytes(path)).ok()?;
            Some((found.dev(), found.ino()))
        };
        let leads_here = |named: &&[u8]| named.starts_with(b"/") && identity(named) == identity(self.folder);
        named.filter(leads_here).unwrap_or(self.folder)
    }

    /// Whether it is a compile by a compiler whose options are not known. Its facts alone can tell what it depends on.
    pub fn is_other_compile(&self) -> bool {
        let known = Compiler::of(self.program, self.real);
        known.is_err_and(|reason| reason.kind == UncachedReason::UnknownCompiler) && self.refusal().is_none()
    }

    /// Why it is no compile, if its program is no known compiler.
    fn refusal(&self) -> Option<Reason> {
        let words = || self.argv.iter().skip(1);
        let expanded = response::expand(words(), &|name| self.read(name));
        let words = expanded.map_or_else(|_| words().map(<[u8]>::to_vec).collect(), |expanded| expanded.words);
        other::refusal(self.program, &words)
    }

    /// What the command line names of that which a compile reads. `None` if it is not understood.
    pub fn names(&self) -> Option<Named> {
        let compiler = Compiler::of(self.program, self.real).ok()?;
        let expanded = response::expand(self.argv.iter().skip(1), &|name| self.read(name)).ok()?;
        let line = Line::read(compiler, &expanded.words).ok()?;
        let values = expanded.words.iter().filter_map(|word| {
            let equals = word.iter().position(|byte| *byte == b'=')?;
            includes::name(&word[equals + 1..])
        });
        let defined = values.collect();
        let paths = line.words.into_iter().filter(|word| word.kind == Kind::Path);
        Some(Named {
            source: line.source,
            paths: paths.map(|word| word.operand).collect(),
            response_files: expanded.files,
            defined,
        })
    }

    fn read(&self, name: &[u8]) -> Option<Bytes> {
        let folder = Path::new(OsStr::from_bytes(self.folder));
        fs::read(folder.join(OsStr::from_bytes(name))).ok()
    }
}

/// What the command asks for, and the files that it makes.
fn understand(call: &Call, read: Read) -> Result<(Vec<Bytes>, Line, Vec<Output>), Reason> {
    let compiler = Compiler::of(call.program, call.real)?;
    let expanded = response::expand(call.argv.iter().skip(1), read)?;
    let line = Line::read(compiler, &expanded.words)?;
    refuse_variables(compiler, call.environment)?;
    // `wafcc` sends commands with this word without a look at where their output goes.
    if outputs::prints(&line) != Prints::Messages && call.argv.iter().any(|word| word == b"-c") {
        return Err(outputs::unnamed(&line));
    }
    let outputs = outputs::of(&line)?;
    Ok((expanded.words, line, outputs))
}

fn variable<'a>(environment: &'a Strings, name: &str) -> Option<&'a [u8]> {
    let mut values = environment
        .iter()
        .filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.next()
}

fn refuse_variables(compiler: Compiler, environment: &Strings) -> Result<(), Reason> {
    let names = match compiler {
        Compiler::Gcc => &GCC_VARIABLES[..],
        Compiler::Clang => &CLANG_VARIABLES[..],
    };
    match names.iter().find(|name| variable(environment, name).is_some()) {
        Some(name) => Err(Reason::about(UncachedReason::Variable, *name)),
        None => Ok(()),
    }
}

/// By default, clang writes into precompiled headers when their parts were last changed.
fn writes_times(line: &Line) -> bool {
    let is_told = line.words.iter().any(|word| word.operand == b"-fno-pch-timestamp");
    line.compiler == Compiler::Clang && line.precompiles && line.stage == Stage::Object && !is_told
}

/// Debug information, coverage and profiles contain the folder. Other outputs with relative paths do not. gcc adds it to
/// debug information at the end of a compile, so that its precompiled headers do not contain it.
fn tells_folder(line: &Line) -> bool {
    let shown = line
        .words
        .iter()
        .filter(|word| (&word.option[..], &word.operand[..]) != (b"-g", b"0"));
    let mut words = shown.flat_map(|word| [&word.option[..], &word.operand]);
    if line.is_header_of_gcc() {
        return line.tells || words.any(is_about_runs);
    }
    let is_known = line.stage != Stage::Preprocess;
    line.tells || line.is_bound() || !is_known || words.any(|word| is_about_debugging(word) || is_about_runs(word))
}

fn is_about_debugging(word: &[u8]) -> bool {
    word.starts_with(b"-g") || is_about(word, &[b"debug"])
}

fn is_about_runs(word: &[u8]) -> bool {
    is_about(word, &[b"coverage", b"profile", b"working-directory"])
}

fn is_about(word: &[u8], parts: &[&[u8]]) -> bool {
    let holds = |part: &&[u8]| word.windows(part.len()).any(|window| window == *part);
    word.starts_with(b"-") && parts.iter().any(holds)
}

/// The name of the main output in a dependency file, if the command does not name another.
fn target(line: &Line, outputs: &[Output]) -> Option<Bytes> {
    line.dependencies
        .as_ref()
        .filter(|wanted| wanted.target == Target::Output)?;
    let main = outputs.iter().find(|output| output.role == Role::Main)?;
    Some(match line.compiler {
        Compiler::Gcc => without_dots(&main.path).to_vec(),
        Compiler::Clang => main.path.clone(),
    })
}

/// gcc leaves out `./` at the beginning of names in dependency files.
fn without_dots(path: &[u8]) -> &[u8] {
    let mut rest = path;
    while let Some(below) = rest.strip_prefix(b"./") {
        let slashes = below.iter().take_while(|b| **b == b'/').count();
        rest = &below[slashes..];
    }
    rest
}

/// Whether a name needs no quotes in makefiles.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|b| b.is_ascii_alphanumeric() || b"/._-+@".contains(b))
}

/// Different lists of words have different bytes.
#[derive(Default)]
struct Text(Bytes);

impl Text {
    fn add(&mut self, word: &[u8]) {
        self.0.extend((word.len() as u64).to_le_bytes());
        self.0.extend(word);
    }
}

fn key(call: &Call, line: &Line, outputs: &[Output], bases: &[Bytes], folder: &[u8], hidden: &Hidden) -> Digest {
    let mut text = Text::default();
    text.add(VERSION);
    text.add(call.program.as_os_str().as_encoded_bytes());
    // Compilers print this name in diagnostics, and for some it selects what they are.
    text.add(call.argv.iter().next().unwrap_or(b""));
    for word in &line.words {
        text.add(&word.option);
        text.add(&[u8::from(word.apart)]);
        match hidden.operand(word) {
            Some(operand) => text.add(operand),
            None => text.add(&sharing::tokened(&word.operand, word.kind, bases)),
        }
    }
    for output in outputs {
        text.add(format!("{:?}", output.role).as_bytes());
    }
    if let Some(wanted) = &line.dependencies {
        text.add(format!("{:?}", wanted.target).as_bytes());
    }
    let is_quoted = target(line, outputs).is_some_and(|target| !is_plain(&target));
    let dependencies = line.dependencies.as_ref();
    let is_amid = dependencies.is_some_and(|wanted| wanted.target == Target::Amid);
    if line.is_bound() || is_amid || is_quoted {
        let main = outputs.iter().filter(|output| output.role == Role::Main);
        main.for_each(|output| text.add(&sharing::tokened(&output.path, Kind::Path, bases)));
    }
    if outputs.iter().all(|output| output.role != Role::Main) {
        // A dependency file may have this name.
        text.add(line.output.as_deref().unwrap_or(b""));
    }
    if !bases.is_empty() {
        text.add(&sharing::tokened(folder, Kind::Path, bases));
        sharing::nesting(bases).iter().for_each(|how| text.add(how));
    }
    Digest::of(&text.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::test_support::Dice;

    const BASE: &[u8] = b"/home/one";

    fn with(argv: &str, environment: &str, folder: &str) -> Result<Action, Reason> {
        let argv: Strings = argv.split(' ').collect();
        let program = Path::new("/usr/bin").join(std::str::from_utf8(argv.iter().next().unwrap()).unwrap());
        let call = Call {
            argv: &argv,
            environment: &[environment].iter().collect(),
            folder: folder.as_bytes(),
            program: &program,
            real: &program,
            bases: &[BASE.to_vec(), b"/home/other".to_vec()],
            known_folders: &[],
            by_facts: None,
        };
        Action::of(&call, &|_| None)
    }

    fn action(argv: &str) -> Result<Action, Reason> {
        with(argv, "A=b", "/home/one/build")
    }

    fn reason(argv: &str) -> String {
        action(argv).map_or_else(|reason| reason.to_string(), |_| "known".to_owned())
    }

    fn share(one: &str, other: &str) -> bool {
        action(one).unwrap().key == action(other).unwrap().key
    }

    #[test]
    fn an_unknown_command_has_a_named_reason() {
        for (argv, expected) in [
            ("gcc -c a.c", "known"),
            ("gcc a.c", "called for linking"),
            ("gcc a.c -o a", "called for linking"),
            ("gcc -o a a.o", "input for the linker"),
            ("gcc -c a.o", "input for the linker"),
            ("gcc", "no input file"),
            ("gcc -c", "no input file"),
            ("gcc -E a.c", "known"),
            ("gcc -E -c a.c", "called for preprocessing"),
            ("gcc -E -o- a.c", "known"),
            ("gcc -dM -E -x c /dev/null", "known"),
            ("gcc -M a.c", "called for dependencies only"),
            ("gcc -c -MM a.c", "called for dependencies only"),
            ("gcc -c a.c b.c", "multiple source files"),
            ("gcc -c -", "reads standard input"),
            ("gcc -c -x c - -o a.o", "reads standard input"),
            ("gcc -S a.c -o -", "known"),
            ("gcc -S -fstack-usage a.c -o -", "output to standard output"),
            ("gcc -S -c a.c -o -", "output to standard output"),
            ("gcc -c a.c -o -", "output to standard output"),
            ("gcc -c -MD -MF - a.c", "output to standard output"),
            ("gcc -c a.c -o /dev/null", "known"),
            ("gcc -c -MD a.c -o /dev/null", "output to a device"),
            ("gcc -c --coverage a.c -o /dev/null", "output to a device"),
            ("gcc -x c-header a.h -o /dev/null", "output to a device"),
            ("gcc -S a.c -o /dev/stdout", "known"),
            ("gcc -S a.c -o /dev/stderr", "output to a device"),
            ("gcc -c a.c -o /dev/stdout", "output to a device"),
            ("gcc -c a.c -o /dev/shm/a.o", "known"),
            ("gcc -fsyntax-only a.c", "known"),
            ("gcc -fsyntax-only -c a.h -o a.o", "known"),
            ("gcc -fsyntax-only -E a.c", "unsupported option -fsyntax-only"),
            ("gcc -fsyntax-only --coverage a.c", "unsupported option -fsyntax-only"),
            ("gcc -fsyntax-only a.S", "unsupported option -fsyntax-only"),
            ("gcc -fsyntax-only a.c b.c", "multiple source files"),
            ("gcc -c a.adb", "unsupported source language a.adb"),
            ("gcc -c -x go a.c", "unsupported source language go"),
            ("gcc -c a.ll", "unsupported source language a.ll"),
            ("gcc --version", "asks the compiler about itself"),
            ("gcc -v -c a.c", "asks the compiler about itself"),
            ("gcc -dumpmachine", "asks the compiler about itself"),
            ("clang -### -c a.c", "asks the compiler about itself"),
            ("clang -print-resource-dir", "asks the compiler about itself"),
            ("clang -c -ftime-trace a.c", "asks how long the compiler takes"),
            ("gcc -c -ftime-report a.c", "asks how long the compiler takes"),
            ("g++ -c -fmodules-ts a.cpp", "uses modules"),
            ("clang -c -fmodules a.c", "uses modules"),
            ("clang -c -Xclang -fmodules a.c", "unsupported option -Xclang -fmodules"),
            ("gcc -c a.c -o", "option without its argument -o"),
            ("clang -c a.c -Xclang -include", "option without its argument -include"),
            ("gcc -c @missing", "unreadable response file @missing"),
            ("gcc -c -save-temps a.c", "known"),
            ("gcc -c -save-temps=obj a.c -o d/a.o", "known"),
            (
                "gcc -c -save-temps=obj -save-temps=cwd a.c",
                "unsupported option -save-temps=cwd",
            ),
            ("gcc -c -save-temps=here a.c", "unsupported option -save-temps=here"),
            ("gcc -c -save-temps a.c -o /dev/null", "output to a device"),
            ("gcc -c -save-temps a.c -o a.s", "unsupported option -save-temps"),
            ("gcc -fsyntax-only -save-temps a.c", "unsupported option -save-temps"),
            ("gcc -E -save-temps a.c -o a.i", "unsupported option -save-temps"),
            ("gcc -c -save-temps -flto a.c", "unsupported option -save-temps"),
            ("clang -c -save-temps -emit-llvm a.c", "unsupported option -save-temps"),
            ("gcc -c -fdump-tree-all a.c", "unsupported option -fdump-tree-all"),
            ("gcc -c -da a.c", "unsupported option -da"),
            ("gcc -c -wrapper x a.c", "unsupported option -wrapper"),
            ("gcc -c -dumpdir x a.c", "unsupported option -dumpdir"),
            ("gcc -c -fopt-info-vec=x a.c", "unsupported option -fopt-info-vec=x"),
            (
                "gcc -c -fdiagnostics-format=sarif-file a.c",
                "unsupported option -fdiagnostics-format=sarif-file",
            ),
            ("gcc -c -Wa,-ahl=x a.c", "unsupported option -Wa,-ahl=x -ahl=x"),
            ("gcc -c -Wa,-I.,-MD,x a.c", "unsupported option -Wa,-I.,-MD,x -I.,-MD,x"),
            ("gcc -c -Xassembler -o a.c", "unsupported option -Xassembler -o"),
            ("gcc -c -Wp,-MD a.c", "unsupported option -Wp,-MD -MD"),
            ("clang -c -arch arm64 a.c", "unsupported option -arch"),
            (
                "clang -c -mllvm -time-passes a.c",
                "unsupported option -mllvm -time-passes",
            ),
            ("gcc -c --frobnicate a.c", "unsupported option --frobnicate"),
            ("gcc -c -MD h.h", "unsupported option -MD"),
            ("gcc -x c-header a.h", "known"),
            ("clang -x c-header a.h", "known"),
            ("clang -x c-header a.h -Xclang -fno-pch-timestamp", "known"),
            ("tcc -c a.c", "compiler not known"),
            ("ccache gcc -c a.c", "compiler is another wrapper"),
        ] {
            assert_eq!(reason(argv), expected, "{argv}");
        }
    }

    #[test]
    fn variables_that_do_more_than_the_command_line_are_refused() {
        let depends = "DEPENDENCIES_OUTPUT=x";
        let refused = Reason::about(UncachedReason::Variable, "DEPENDENCIES_OUTPUT");
        assert_eq!(with("gcc -c a.c", depends, "/"), Err(refused));
        assert!(with("clang -c a.c", depends, "/").is_ok());
        assert!(with("gcc -c a.c", "DEPENDENCIES_OUTPUTS=x", "/").is_ok());
    }

    #[test]
    fn a_key_leaves_out_names_of_outputs() {
        assert!(share("gcc -c a.c -o x.o", "gcc -c a.c -o y/z.obj"));
        assert!(share("gcc -c a.c -o x.o", "gcc -c -oy.o a.c"));
        assert!(share("gcc -c a.c", "gcc -c -o y.o a.c"));
        assert!(share("gcc -c -MD a.c -o x.o", "gcc -c -MD a.c -o y/z.o"));
        assert!(!share("gcc -c -MD a.c -o x.o", "gcc -c -MD a.c -o y$.o"));
        assert!(share(
            "gcc -c -MD -MT t -MF a.d a.c",
            "gcc -c -MD -MT t -MF b.d a.c -o y.o"
        ));
    }

    #[test]
    fn a_key_has_the_name_of_an_output_that_contains_it() {
        for option in [
            "-g -gsplit-dwarf",
            "--coverage",
            "-fprofile-use",
            "-fplugin=x.so",
            "-fstack-usage",
        ] {
            let [one, other] = ["x.o", "y.o"].map(|name| format!("gcc -c {option} a.c -o {name}"));
            assert!(!share(&one, &other), "{option}");
        }
        assert!(!share(
            "clang -c -grecord-command-line a.c -o x.o",
            "clang -c -grecord-command-line a.c -o y.o"
        ));
    }

    #[test]
    fn a_key_has_all_other_words() {
        let first = "gcc -c -DX -Ia -MD -MT t a.c -o x.o";
        for other in [
            "gcc -c -DY -Ia -MD -MT t a.c -o x.o",
            "gcc -c -Ia -DX -MD -MT t a.c -o x.o",
            "gcc -c -DX -I a -MD -MT t a.c -o x.o",
            "gcc -c -DX -Ia -MMD -MT t a.c -o x.o",
            "gcc -c -DX -Ia -MD -MT u a.c -o x.o",
            "gcc -c -DX -Ia -MD -MQ t a.c -o x.o",
            "gcc -c -DX -Ia a.c -o x.o",
            "gcc -c -DX -Ia -MD -MT t b.c -o x.o",
            "gcc -S -DX -Ia -MD -MT t a.c -o x.o",
            "g++ -c -DX -Ia -MD -MT t a.c -o x.o",
        ] {
            assert!(!share(first, other), "{other}");
        }
        assert!(!share(
            "gcc -c -fdebug-prefix-map=/x=A a.c",
            "gcc -c -fdebug-prefix-map=/x=B a.c"
        ));
    }

    #[test]
    fn a_key_leaves_out_a_base_that_is_mapped() {
        let key = |argv: &str, folder: &str| {
            let action = with(argv, "A=b", folder).unwrap();
            (action.key, !action.knows.bases.is_empty())
        };
        let line = "gcc -c -g -ffile-prefix-map=BASE=. -IBASE/inc -MD -MT BASE/x.o BASE/a.c -o BASE/x.o";
        let of = |line: &str, base: &str| key(&line.replace("BASE", base), &format!("{base}/build"));
        assert_eq!(of(line, "/home/one"), of(line, "/home/other"));
        assert!(of(line, "/home/one").1);
        assert_ne!(
            of(line, "/home/one").0,
            key(&line.replace("BASE", "/home/one"), "/home/one/elsewhere").0
        );
        for line in [
            "gcc -c -IBASE/inc a.c",
            "gcc -c -g -fdebug-prefix-map=BASE=. -IBASE/inc a.c",
            "gcc -c -fmacro-prefix-map=BASE=. -IBASE/inc a.c",
            "gcc -c -ffile-prefix-map=BASE/src=. -IBASE/inc a.c",
            "gcc -c -ffile-prefix-map=BASE=. -ffile-prefix-map=/home=x -IBASE/inc a.c",
            "gcc -c -ffile-prefix-map=BASE=. -flto -IBASE/inc a.c",
            "gcc -c -ffile-prefix-map=BASE=. -fsanitize=address -IBASE/inc a.c",
            "gcc -c -ffile-prefix-map=BASE=. --coverage -IBASE/inc a.c",
            "gcc -c -ffile-prefix-map=BASE=. -DROOT=BASE -IBASE/inc a.c",
        ] {
            assert_ne!(of(line, "/home/one").0, of(line, "/home/other").0, "{line}");
        }
        let apart = "gcc -c -ffile-prefix-map=BASE=. BASE/a.c";
        assert_ne!(of(apart, "/home/one").0, of(apart, "/home/onemore").0);
    }

    #[test]
    fn random_words_never_panic() {
        let mut dice = Dice(7);
        let mut next = |limit: usize| dice.below(limit);
        let parts = [
            "-", "--", "-x", "-o", "-Wp,", "-MD", ",", "=", "a.c", "/", ".", "@", "-Xclang", "-Wa,", "", "-M", "\u{e9}",
        ];
        for _ in 0..20_000 {
            let words: Vec<String> = (0..next(6))
                .map(|_| (0..next(4)).map(|_| parts[next(parts.len())]).collect())
                .collect();
            for compiler in ["gcc", "clang"] {
                let _ = action(&format!("{compiler} {}", words.join(" ")));
            }
        }
    }
}
