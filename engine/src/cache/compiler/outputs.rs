//! The files that a compiler will make, as its command line names them. Relative names refer to the command's folder.

use super::language::{ending, Language};
use super::line::Line;
use super::options::{Does, Known, Named, Side, Stage, Temporaries};
use super::reason::Reason;
use super::Compiler;
use crate::facts::exception::special;
use crate::facts::path::last_name;
use crate::observe::access::Bytes;
use crate::wire::UncachedReason;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Main,
    /// Text that holds names of files.
    Dependencies,
    Side(Side),
    Named(Named),
    /// A file of `-save-temps` with this ending.
    Temporary(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub role: Role,
    pub path: Bytes,
    /// Whether it is made each time that the command succeeds. Otherwise this depends on the source, or on the compiler's
    /// version.
    pub certain: bool,
}

impl Output {
    fn certain(role: Role, path: Bytes) -> Output {
        let certain = true;
        Output { role, path, certain }
    }
}

/// A path without its ending. With `dotted`, a name that begins with its only dot has no ending.
fn stem(path: &[u8], dotted: bool) -> &[u8] {
    let name = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    match path[name..].iter().rposition(|b| *b == b'.') {
        None => path,
        Some(0) if dotted => path,
        Some(dot) => &path[..name + dot],
    }
}

fn with(stem: &[u8], ending: &str) -> Bytes {
    [stem, ending.as_bytes()].concat()
}

/// Where the main output goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Main {
    File(Bytes),
    /// To the standard output.
    Printed,
    /// There is none, or it is thrown away.
    Nothing,
}

/// What a command prints besides messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prints {
    Messages,
    /// Its main output goes to the standard output.
    Output,
    /// The same, but the compiler opens the standard output by a name.
    OutputByName,
}

const STANDARD_OUTPUT: &[u8] = b"/dev/stdout";
const NOWHERE: &[u8] = b"/dev/null";

/// All files that the command makes, always in the same order.
pub fn of(line: &Line) -> Result<Vec<Output>, Reason> {
    let mut outputs = Vec::new();
    let temporaries = temporaries(line)?;
    match main(line)? {
        Main::File(path) => outputs.push(Output::certain(Role::Main, path)),
        // Other files are named after the main one. Without a name for it, compilers differ.
        _ if line.sides.iter().any(|side| beside(line, *side).is_some()) => return Err(unnamed(line)),
        _ if !temporaries.is_empty() => return Err(unnamed(line)),
        Main::Printed | Main::Nothing => {}
    }
    outputs.extend(dependencies(line)?);
    let mut sides = line.sides.clone();
    sides.sort();
    outputs.extend(sides.into_iter().filter_map(|side| beside(line, side)));
    outputs.extend(line.named.iter().map(|(named, path)| Output {
        role: Role::Named(*named),
        path: path.clone(),
        certain: *named != Named::Record,
    }));
    let is_new = |path: &Bytes| *path != line.source && outputs.iter().all(|other| other.path != *path);
    if !temporaries.iter().all(|output| is_new(&output.path)) {
        return Err(refused_temporaries());
    }
    outputs.extend(temporaries);
    outputs.iter().try_for_each(|output| writable(&output.path))?;
    Ok(outputs)
}

pub fn prints(line: &Line) -> Prints {
    match main(line) {
        Ok(Main::Printed) if line.output.as_deref() == Some(STANDARD_OUTPUT) => Prints::OutputByName,
        Ok(Main::Printed) => Prints::Output,
        _ => Prints::Messages,
    }
}

/// Why a command is not known whose main output is no file.
pub fn unnamed(line: &Line) -> Reason {
    match line.output.as_deref() {
        None => UncachedReason::Preprocessing.into(),
        Some(b"-") => UncachedReason::StandardOutput.into(),
        Some(_) => UncachedReason::Device.into(),
    }
}

/// The word after the last `-o`. `None` if there is none, or if it is not understood.
pub fn named(compiler: Compiler, words: &[Bytes]) -> Option<Bytes> {
    let mut output = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with(b"-") || word == b"-" {
            continue;
        }
        let known = Known::find(compiler, word)?;
        let (operand, _) = known.argument(word, &mut words)?;
        if known.does == Does::Output {
            output = Some(operand);
        }
    }
    output.filter(|path| !path.is_empty() && writable(path).is_ok())
}

fn writable(path: &[u8]) -> Result<(), Reason> {
    match path {
        b"-" => Err(UncachedReason::StandardOutput.into()),
        _ if special(path).is_some() => Err(UncachedReason::Device.into()),
        _ => Ok(()),
    }
}

fn main(line: &Line) -> Result<Main, Reason> {
    // Assemblers, and what writes precompiled headers, go back in their output.
    let is_text = matches!(line.stage, Stage::Preprocess | Stage::Assembly);
    match line.output.as_deref() {
        _ if line.stage == Stage::Check => return Ok(Main::Nothing),
        Some(b"-" | STANDARD_OUTPUT) if is_text => return Ok(Main::Printed),
        Some(NOWHERE) if is_text || !line.precompiles => return Ok(Main::Nothing),
        Some(told) => return writable(told).map(|()| Main::File(told.to_vec())),
        None => {}
    }
    if line.precompiles && line.stage == Stage::Object && line.language == Language::Header {
        return Ok(Main::File(with(&line.source, ".gch")));
    }
    let stem = stem(last_name(&line.source), false);
    Ok(match (line.stage, line.bitcode) {
        (Stage::Preprocess, _) => Main::Printed,
        (Stage::Check, _) => Main::Nothing,
        (Stage::Assembly, false) => Main::File(with(stem, ".s")),
        (Stage::Assembly, true) => Main::File(with(stem, ".ll")),
        (Stage::Object, false) => Main::File(with(stem, ".o")),
        (Stage::Object, true) => Main::File(with(stem, ".bc")),
    })
}

fn dependencies(line: &Line) -> Result<Option<Output>, Reason> {
    let Some(wanted) = &line.dependencies else {
        return Ok(None);
    };
    if line.language == Language::PlainAssembler {
        return Ok(None);
    }
    let path = match (&wanted.file, &line.output) {
        (Some(file), _) => file.clone(),
        (None, Some(output)) => with(stem(output, false), ".d"),
        // Compilers differ here.
        (None, None) if line.precompiles => return Err(Reason::about(UncachedReason::Option, b"-MD".to_vec())),
        (None, None) => with(stem(last_name(&line.source), false), ".d"),
    };
    Ok(Some(Output::certain(Role::Dependencies, path)))
}

/// The beginning of the names of files beside the output.
fn stem_beside(line: &Line, side: Side) -> &[u8] {
    match &line.output {
        // clang does not do this.
        Some(_) if line.compiler == Compiler::Clang && side == Side::Debug && line.stage != Stage::Object => {
            stem(last_name(&line.source), false)
        }
        Some(output) => stem(output, line.compiler == Compiler::Gcc),
        None => stem(last_name(&line.source), false),
    }
}

fn path_beside(line: &Line, side: Side) -> Bytes {
    let stem = stem_beside(line, side);
    match (side, line.compiler) {
        (Side::Debug, _) => with(stem, ".dwo"),
        (Side::Notes, _) => with(stem, ".gcno"),
        (Side::Stack, _) => with(stem, ".su"),
        (Side::Calls, _) => with(stem, ".ci"),
        (Side::Record, Compiler::Gcc) => {
            let ending = ending(&line.source).unwrap_or(b"");
            [stem, b".", ending, b".opt-record.json.gz"].concat()
        }
        (Side::Record, Compiler::Clang) => with(stem, ".opt.yaml"),
    }
}

fn beside(line: &Line, side: Side) -> Option<Output> {
    let compiles = !matches!(line.stage, Stage::Preprocess | Stage::Check) && !line.precompiles;
    let assembles = line.language.is_assembler();
    let gcc = line.compiler == Compiler::Gcc;
    let makes = match side {
        Side::Debug => compiles && (line.stage == Stage::Object || !gcc),
        _ => compiles && !assembles,
    };
    // gcc writes no file for parts that it leaves to the linker. clang needs debug information and optimization for it.
    let certain = match side {
        Side::Debug => gcc && line.language != Language::PlainAssembler,
        Side::Notes | Side::Stack | Side::Calls => !line.linked_later && line.language != Language::Ir,
        Side::Record => gcc,
    };
    let (role, path) = (Role::Side(side), path_beside(line, side));
    makes.then_some(Output { role, path, certain })
}

fn refused_temporaries() -> Reason {
    Reason::about(UncachedReason::Option, b"-save-temps".to_vec())
}

/// The files of `-save-temps`.
fn temporaries(line: &Line) -> Result<Vec<Output>, Reason> {
    let Some(which) = line.temporaries else {
        return Ok(Vec::new());
    };
    let is_usual = !line.precompiles && !line.bitcode && !line.linked_later;
    let endings: &[&str] = match (line.stage, line.language) {
        (Stage::Object | Stage::Assembly, Language::C) if is_usual => preprocessed(&line.source),
        // The preprocessor makes what the assembler reads.
        (Stage::Object, Language::Assembler) => &["s"],
        (Stage::Object, Language::PlainAssembler) => &[],
        _ => return Err(refused_temporaries()),
    };
    let stem = stem_of_temporaries(line, which);
    let output = |ending: &'static str, certain| Output {
        role: Role::Temporary(ending),
        path: [&stem[..], b".", ending.as_bytes()].concat(),
        certain,
    };
    // A driver for C++ compiles C as C++.
    let is_certain = endings.len() == 1;
    let mut outputs: Vec<_> = endings.iter().map(|ending| output(ending, is_certain)).collect();
    if line.language == Language::C {
        let more = [
            (line.compiler == Compiler::Clang, "bc"),
            (line.stage == Stage::Object, "s"),
        ];
        outputs.extend(
            more.iter()
                .filter(|(makes, _)| *makes)
                .map(|(_, ending)| output(ending, true)),
        );
    }
    Ok(outputs)
}

/// The possible endings of a source behind the preprocessor. There is none if it has been there already.
fn preprocessed(source: &[u8]) -> &'static [&'static str] {
    match ending(source) {
        Some(b"i" | b"ii" | b"mi" | b"mii") => &[],
        Some(b"c") => &["i", "ii"],
        Some(b"cc" | b"cp" | b"cxx" | b"cpp" | b"CPP" | b"c++" | b"C") => &["ii"],
        Some(b"M" | b"mm") => &["mii"],
        _ => &["i", "ii", "mi", "mii"],
    }
}

fn stem_of_temporaries(line: &Line, which: Temporaries) -> Bytes {
    let of_source = stem(last_name(&line.source), false);
    match (&line.output, line.compiler, which) {
        (None, ..) | (_, Compiler::Clang, Temporaries::Usual | Temporaries::Here) => of_source.to_vec(),
        (Some(output), Compiler::Gcc, Temporaries::Here) => stem(last_name(output), true).to_vec(),
        (Some(output), Compiler::Gcc, _) => stem(output, true).to_vec(),
        (Some(output), Compiler::Clang, Temporaries::Beside) => {
            let folder = &output[..output.len() - last_name(output).len()];
            [folder, of_source].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_names_its_output() {
        for (line, expected) in [
            ("a.o -o prog", Some("prog")),
            ("-oprog a.o -lm -L /lib -Wl,-z,now", Some("prog")),
            ("a.o -o one -o two", Some("two")),
            ("-L -o a.o -o prog", Some("prog")),
            ("a.o", None),
            ("a.o -o", None),
            ("a.o -o /dev/null", None),
            ("a.o --frobnicate -o prog", None),
        ] {
            let words: Vec<Bytes> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let named = named(Compiler::Gcc, &words);
            assert_eq!(named, expected.map(|name| name.as_bytes().to_vec()), "{line}");
        }
    }
}
