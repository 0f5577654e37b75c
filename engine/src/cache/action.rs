//! A command line as the cache knows it: the key under which its entries are, and what is known of a compiler that it
//! could not be seen doing.
//!
//! The key only finds candidates: whether one holds is told by its facts. So a key may leave out whatever its command
//! would show by what it asks for, and must hold whatever it would not: the words of the command line.

use std::path::Path;

use super::access::Bytes;
use super::compiler::Compiler;
use super::digest::Digest;
use super::language::Language;
use super::line::{Kind, Line};
use super::options::Stage;
use super::outputs::{self, Output, Role};
use super::reason::Reason;
use super::response::{self, Read};
use super::sharing;
use crate::wire::Strings;

/// Whoever changes what a key holds changes this.
const VERSION: &[u8] = b"action 1";
/// Variables by which compilers do more than their command line tells.
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

/// A command as it was asked for.
pub struct Call<'a> {
    pub argv: &'a Strings,
    /// `NAME=value`
    pub environment: &'a Strings,
    pub folder: &'a [u8],
    /// The file that is executed, and the one behind all links.
    pub program: &'a Path,
    pub real: &'a Path,
    /// Folders whose names commands may share, without a slash at their end.
    pub bases: &'a [Bytes],
    /// How wide the terminal is that the client's standard error goes to.
    pub terminal: Option<u16>,
}

/// Which statuses of files matter, beyond what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statuses {
    Ignored,
    /// Those of all files, if a precompiled header was read: clang compares the times of what it was made of.
    WithPrecompiled,
    /// Those of all files: they go into the output.
    Kept,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knowledge {
    pub compiler: Compiler,
    pub source: Bytes,
    /// All files that it makes, in an order that commands of one key share. Whoever sees it write anything else, but for
    /// `modules`, keeps nothing of it.
    pub outputs: Vec<Output>,
    /// The folder into which it may write modules, whose names only the source tells: `.mod`, `.smod`.
    pub modules: Option<Bytes>,
    pub statuses: Statuses,
    /// The base whose name the key leaves out: it is replaced in dependency files and diagnostics, and the folder in which
    /// the command runs counts as one in the base. If any other output holds it, nothing is kept.
    pub base: Option<Bytes>,
    /// Response files: what they hold is in the key.
    pub expanded: Vec<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    pub key: Digest,
    pub knows: Knowledge,
    /// Arguments to add after the first, so that captured diagnostics are those for the client's terminal.
    pub added: Vec<Bytes>,
}

impl Action {
    /// `read` reads a response file, by its name as the command has it.
    pub fn of(call: &Call, read: Read) -> Result<Action, Reason> {
        let compiler = Compiler::of(call.program, call.real)?;
        let expanded = response::expand(call.argv.iter().skip(1), read)?;
        let line = Line::read(compiler, &expanded.words)?;
        refuse_variables(compiler, call.environment)?;
        let outputs = outputs::of(&line)?;
        let added = added(&line, call)?;
        let base = sharing::base(&line, call.folder, call.bases);
        Ok(Action {
            key: key(call, &line, &outputs, base),
            knows: Knowledge {
                compiler,
                modules: (line.language == Language::Fortran).then(|| line.modules.clone()),
                statuses: statuses(&line),
                source: line.source,
                outputs,
                base: base.map(<[u8]>::to_vec),
                expanded: expanded.files,
            },
            added,
        })
    }
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
        Some(name) => Err(Reason::Variable(name)),
        None => Ok(()),
    }
}

fn statuses(line: &Line) -> Statuses {
    let is_told = |word: &[u8]| line.words.iter().any(|w| w.operand == word);
    match line.compiler {
        Compiler::Gcc => Statuses::Ignored,
        Compiler::Clang if line.precompiles && !is_told(b"-fno-pch-timestamp") => Statuses::Kept,
        Compiler::Clang => Statuses::WithPrecompiled,
    }
}

/// Whether the content of an output depends on how the main one is called.
fn is_bound(line: &Line) -> bool {
    let names_target = line.dependencies.as_ref().is_some_and(|wanted| !wanted.has_target);
    line.binds || line.precompiles || names_target || !line.sides.is_empty() || !line.named.is_empty()
}

/// What a compiler would do for a terminal that it does not see. Options of the command come later, and are stronger.
fn added(line: &Line, call: &Call) -> Result<Vec<Bytes>, Reason> {
    let Some(columns) = call.terminal else {
        return Ok(Vec::new());
    };
    let term = variable(call.environment, "TERM").unwrap_or(b"");
    let has_colours = !term.is_empty() && term != b"dumb";
    if line.records {
        return Err(Reason::Terminal);
    }
    let mut added: Vec<Bytes> = Vec::new();
    match line.compiler {
        Compiler::Gcc if has_colours => added.push(b"-fdiagnostics-color=always".to_vec()),
        Compiler::Gcc => {}
        Compiler::Clang => {
            added.push(format!("-fmessage-length={columns}").into_bytes());
            if has_colours {
                added.push(b"-fcolor-diagnostics".to_vec());
            }
        }
    }
    Ok(added)
}

/// Bytes that no two different lists of words make.
#[derive(Default)]
struct Text(Bytes);

impl Text {
    fn add(&mut self, word: &[u8]) {
        self.0.extend((word.len() as u64).to_le_bytes());
        self.0.extend(word);
    }
}

fn key(call: &Call, line: &Line, outputs: &[Output], base: Option<&[u8]>) -> Digest {
    let mut text = Text::default();
    text.add(VERSION);
    text.add(call.program.as_os_str().as_encoded_bytes());
    // Compilers say it in diagnostics, and some are told by it what to be.
    text.add(call.argv.iter().next().unwrap_or(b""));
    text.add(format!("{:?}", call.terminal).as_bytes());
    for word in &line.words {
        text.add(&word.option);
        text.add(&[u8::from(word.apart)]);
        text.add(&sharing::tokened(&word.operand, word.kind, base));
    }
    for output in outputs {
        text.add(format!("{:?}", output.role).as_bytes());
    }
    if is_bound(line) {
        let told = outputs.iter().filter(|output| output.role == Role::Main);
        told.for_each(|output| text.add(&sharing::tokened(&output.path, Kind::Path, base)));
    }
    if base.is_some() {
        text.add(&sharing::tokened(call.folder, Kind::Path, base));
    }
    debug_assert!(line.stage != Stage::Preprocess || line.output.is_some());
    Digest::of(&text.0)
}
