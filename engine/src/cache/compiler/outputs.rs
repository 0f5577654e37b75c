//! The files that a compiler will make, as its command line names them. Relative names refer to the command's folder.

use super::language::{ending, Language};
use super::line::Line;
use super::options::{Does, Known, Named, Side, Stage};
use super::reason::Reason;
use super::Compiler;
use crate::facts::exception::special;
use crate::observe::access::Bytes;
use crate::wire::UncachedReason;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Main,
    /// Text that holds names of files.
    Dependencies,
    Side(Side),
    Named(Named),
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

fn own_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

fn with(stem: &[u8], ending: &str) -> Bytes {
    [stem, ending.as_bytes()].concat()
}

/// All files that the command makes, always in the same order.
pub fn of(line: &Line) -> Result<Vec<Output>, Reason> {
    let main = main(line)?;
    let mut outputs = vec![Output::certain(Role::Main, main)];
    outputs.extend(dependencies(line)?);
    let mut sides = line.sides.clone();
    sides.sort();
    outputs.extend(sides.into_iter().filter_map(|side| beside(line, side)));
    outputs.extend(line.named.iter().map(|(named, path)| Output {
        role: Role::Named(*named),
        path: path.clone(),
        certain: *named != Named::Record,
    }));
    outputs.iter().try_for_each(|output| writable(&output.path))?;
    Ok(outputs)
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

fn main(line: &Line) -> Result<Bytes, Reason> {
    if let Some(told) = &line.output {
        return Ok(told.clone());
    }
    if line.precompiles && line.stage == Stage::Object && line.language == Language::Header {
        return Ok(with(&line.source, ".gch"));
    }
    let stem = stem(own_name(&line.source), false);
    match (line.stage, line.bitcode) {
        (Stage::Preprocess, _) => Err(UncachedReason::Preprocessing.into()),
        (Stage::Assembly, false) => Ok(with(stem, ".s")),
        (Stage::Assembly, true) => Ok(with(stem, ".ll")),
        (Stage::Object, false) => Ok(with(stem, ".o")),
        (Stage::Object, true) => Ok(with(stem, ".bc")),
    }
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
        (None, None) => with(stem(own_name(&line.source), false), ".d"),
    };
    Ok(Some(Output::certain(Role::Dependencies, path)))
}

/// The beginning of the names of files beside the output.
fn stem_beside(line: &Line, side: Side) -> &[u8] {
    match &line.output {
        // clang does not do this.
        Some(_) if line.compiler == Compiler::Clang && side == Side::Debug && line.stage != Stage::Object => {
            stem(own_name(&line.source), false)
        }
        Some(output) => stem(output, line.compiler == Compiler::Gcc),
        None => stem(own_name(&line.source), false),
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
    let compiles = line.stage != Stage::Preprocess && !line.precompiles;
    let assembles = matches!(line.language, Language::Assembler | Language::PlainAssembler);
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
