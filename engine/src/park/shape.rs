//! The shape of a compiler driver's command line: the line without the names of files that differ between commands.
//!
//! Pure. Only simple command lines have a shape: one source is compiled to one object, and every option is known to concern
//! the compiler only. All other lines are run by their driver.

use crate::bytes::text::{Names, Text};
use crate::wire::Strings;

/// The numbers of the names that each shape has. Those of operands follow.
const SOURCE_FOLDER: usize = 0;
const SOURCE_STEM: usize = 1;
const OUTPUT_FOLDER: usize = 2;
const OUTPUT_STEM: usize = 3;
/// Build systems number their objects.
const OUTPUT_NUMBER: usize = 4;
const OPERANDS: usize = 5;
/// The beginning of all placeholder names.
pub const STAND_IN: &[u8] = b"wafStandIn";
const STAND_IN_NUMBER: &[u8] = b"70368760954879";
const MOST_OPERANDS: usize = 8;

/// Endings of C and C++ sources that are not preprocessed.
const ENDINGS: [&str; 8] = [".c", ".cc", ".cp", ".cxx", ".cpp", ".CPP", ".c++", ".C"];
/// Options that are followed by a name, which the driver passes on unchanged.
const WITH_NAME: [&str; 3] = ["-MF", "-MT", "-MQ"];
const WITH_WORD: [&str; 8] = [
    "-I",
    "-D",
    "-U",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-include",
    "-imacros",
];
const WORDS: [&str; 14] = [
    "-w",
    "-ansi",
    "-pedantic",
    "-pedantic-errors",
    "-pthread",
    "-MD",
    "-MMD",
    "-MP",
    "-nostdinc",
    "-nostdinc++",
    "-undef",
    "-g",
    "-ggdb",
    "--coverage",
];
const PREFIXES: [&str; 13] = [
    "-I",
    "-D",
    "-U",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-std=",
    "-O",
    "-f",
    "-m",
    "-W",
    "-g",
    "-isysroot",
];
/// They begin like those above, but make the driver do more: start other programs, or name more files.
const REFUSED: [&str; 17] = [
    "-Wa,",
    "-Wp,",
    "-Wl,",
    "-gsplit-dwarf",
    "-gtoggle",
    "-fplugin",
    "-fcompare-debug",
    "-fdump",
    "-flto",
    "-fsave",
    "-foffload",
    "-fopenacc",
    "-fopt-info",
    "-fsyntax-only",
    "-fstack-usage",
    "-fdiagnostics-format",
    "-fcallgraph",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    words: Vec<Text>,
    /// Source and output have the same name, or are in the same folder, or are absolute. A driver may act differently then.
    alike: [bool; 4],
}

/// A command line, taken apart.
pub struct Line {
    pub shape: Shape,
    pub names: Names,
    pub source: Vec<u8>,
    pub output: Vec<u8>,
}

/// A path: its folder with the slash, its name up to the first dot, and the rest.
struct Path<'a> {
    folder: &'a [u8],
    stem: &'a [u8],
    ending: &'a [u8],
}

impl<'a> Path<'a> {
    /// For a path without any character that could mean more to a driver than a part of a name.
    fn of(path: &'a [u8]) -> Option<Path<'a>> {
        let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-+./@".contains(b);
        if path.starts_with(b"-") || path.starts_with(b"@") || !path.iter().all(is_plain) {
            return None;
        }
        let (folder, name) = path.split_at(path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1));
        let (stem, ending) = name.split_at(name.iter().position(|b| *b == b'.')?);
        (!stem.is_empty()).then_some(Path { folder, stem, ending })
    }

    /// After `option`, in the same word.
    fn text(&self, option: &[u8], folder: usize, stem: usize) -> Text {
        let text = Text::default().with(option);
        let text = if self.folder.is_empty() {
            text
        } else {
            text.with_name(folder)
        };
        text.with_name(stem)
    }

    /// The parts before, of, and after the only number between two dots of the ending.
    fn numbered(&self) -> [&'a [u8]; 3] {
        let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        let parts: Vec<_> = self.ending.split(|b| *b == b'.').collect();
        let numbers: Vec<_> = (0..parts.len()).filter(|i| is_number(parts[*i])).collect();
        let [number] = numbers[..] else {
            return [self.ending, b"", b""];
        };
        let at = parts[..number].iter().map(|part| part.len() + 1).sum();
        let (before, rest) = self.ending.split_at(at);
        let (number, after) = rest.split_at(parts[number].len());
        [before, number, after]
    }
}

fn is_one_of(word: &[u8], list: &[&str]) -> bool {
    list.iter().any(|item| item.as_bytes() == word)
}

fn begins_with_one_of(word: &[u8], list: &[&str]) -> bool {
    list.iter().any(|item| word.starts_with(item.as_bytes()))
}

fn is_source(word: &[u8]) -> bool {
    !word.starts_with(b"-") && ENDINGS.iter().any(|ending| word.ends_with(ending.as_bytes()))
}

impl Line {
    /// Takes a command line apart, if it is simple.
    pub fn of(argv: &Strings) -> Option<Line> {
        let mut argv = argv.iter();
        let mut words = vec![Text::plain(argv.next()?)];
        let (mut source, mut output, mut compiles) = (None, None, false);
        let mut operands = Vec::new();
        while let Some(word) = argv.next() {
            if word == b"-c" {
                compiles = true;
                words.push(Text::plain(word));
            } else if let Some(joined) = word.strip_prefix(b"-o") {
                let (option, path) = match joined {
                    [] => (&b""[..], argv.next()?),
                    _ => (&b"-o"[..], joined),
                };
                if output.replace(path).is_some() {
                    return None;
                }
                if joined.is_empty() {
                    words.push(Text::plain(word));
                }
                let path = Path::of(path)?;
                let [before, number, after] = path.numbered();
                let text = path.text(option, OUTPUT_FOLDER, OUTPUT_STEM).with(before);
                words.push(match number {
                    [] => text,
                    _ => text.with_name(OUTPUT_NUMBER).with(after),
                });
            } else if is_source(word) {
                if source.replace(word).is_some() {
                    return None;
                }
                let path = Path::of(word)?;
                words.push(path.text(b"", SOURCE_FOLDER, SOURCE_STEM).with(path.ending));
            } else if is_one_of(word, &WITH_NAME) {
                let operand = argv.next().filter(|_| operands.len() < MOST_OPERANDS)?;
                Path::of(operand)?;
                words.push(Text::plain(word));
                words.push(Text::default().with_name(OPERANDS + operands.len()));
                operands.push(operand.to_vec());
            } else if is_one_of(word, &WITH_WORD) {
                words.push(Text::plain(word));
                words.push(Text::plain(argv.next()?));
            } else if is_one_of(word, &WORDS)
                || begins_with_one_of(word, &PREFIXES) && !begins_with_one_of(word, &REFUSED)
            {
                words.push(Text::plain(word));
            } else {
                return None;
            }
        }
        let (source, output) = (source?, output?);
        let (from, to) = (Path::of(source)?, Path::of(output)?);
        let alike = [
            from.stem == to.stem,
            from.folder == to.folder,
            source.starts_with(b"/"),
            output.starts_with(b"/"),
        ];
        let [_, number, _] = to.numbered();
        let names = [from.folder, from.stem, to.folder, to.stem, number].map(<[u8]>::to_vec);
        compiles.then(|| Line {
            shape: Shape { words, alike },
            names: names.into_iter().chain(operands).collect(),
            source: source.to_vec(),
            output: output.to_vec(),
        })
    }
}

impl Shape {
    /// Names that stand for any other names of this shape: relative ones, with a source below the folder in which the
    /// driver runs.
    pub fn stand_ins(&self, names: &[Vec<u8>]) -> Names {
        let stand_in = |(number, name): (usize, &Vec<u8>)| match number {
            SOURCE_FOLDER | OUTPUT_FOLDER if name.is_empty() => Vec::new(),
            OUTPUT_FOLDER if !self.alike[1] => b"wafStandInOutputFolder/".to_vec(),
            SOURCE_FOLDER | OUTPUT_FOLDER => b"wafStandInSourceFolder/".to_vec(),
            OUTPUT_STEM if !self.alike[0] => b"wafStandInOutputName".to_vec(),
            SOURCE_STEM | OUTPUT_STEM => b"wafStandInSourceName".to_vec(),
            OUTPUT_NUMBER if name.is_empty() => Vec::new(),
            OUTPUT_NUMBER => STAND_IN_NUMBER.to_vec(),
            // None of them may be the beginning of another.
            _ => format!("wafStandInOperand{}.x", char::from(b'A' + (number - OPERANDS) as u8)).into_bytes(),
        };
        names.iter().enumerate().map(stand_in).collect()
    }

    pub fn argv(&self, names: &[Vec<u8>]) -> Strings {
        self.words.iter().map(|word| word.fill(names)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(argv: &str) -> Option<Line> {
        Line::of(&argv.split(' ').collect())
    }

    fn is_simple(argv: &str) -> bool {
        line(argv).is_some()
    }

    fn share_a_shape(one: &str, other: &str) -> bool {
        line(one).unwrap().shape == line(other).unwrap().shape
    }

    #[test]
    fn commands_that_differ_in_names_share_a_shape() {
        assert!(share_a_shape(
            "g++ -O2 -c a/x.cpp -o b/x.o",
            "g++ -O2 -c c/y.cpp -o d/e/y.o"
        ));
        assert!(share_a_shape(
            "g++ x.cpp -c -ob/x.cpp.1.o",
            "g++ y.cpp -c -ob/y.cpp.23.o"
        ));
        assert!(share_a_shape(
            "gcc -MD -MF d/x.d -c x.c -o x.c.1.o",
            "gcc -MD -MF d/y.d -c y.c -o y.c.1.o"
        ));
    }

    #[test]
    fn all_else_is_a_part_of_the_shape() {
        let first = "g++ -O2 -c a/x.cpp -o b/x.o";
        for other in [
            "g++-12 -O2 -c a/x.cpp -o b/x.o",
            "g++ -O1 -c a/x.cpp -o b/x.o",
            "g++ -O2 -c a/x.cc -o b/x.o",
            "g++ -O2 -c a/x.cpp -o b/x.obj",
            "g++ -O2 -c a/x.cpp -o b/x.1.o",
            "g++ -O2 -c a/x.cpp -o b/x.1.2.o",
            "g++ -O2 -c a/x.cpp -o b/y.o",
            "g++ -O2 -c a/x.cpp -o a/x.o",
            "g++ -O2 -c a/x.cpp -o x.o",
            "g++ -O2 -c /a/x.cpp -o b/x.o",
            "g++ -O2 -o b/x.o -c a/x.cpp",
        ] {
            assert!(!share_a_shape(first, other), "{other}");
        }
    }

    #[test]
    fn a_shape_gives_its_command_line_back() {
        let joined = "g++ a.cpp -c -o/b/x.t.cpp.1.o";
        let found = line(joined).unwrap();
        assert_eq!(found.shape.argv(&found.names), joined.split(' ').collect::<Strings>());
        let text = "g++ -I inc -Ia -DX=1 -c ../a/x.t.cpp -MMD -MT b/x.o -o b/x.t.cpp.1.o -Wall";
        let found = line(text).unwrap();
        assert_eq!(found.shape.argv(&found.names), text.split(' ').collect::<Strings>());
    }

    #[test]
    fn what_is_not_simple_has_no_shape() {
        for argv in [
            "g++ -c a.cpp",
            "g++ a.cpp -o a.o",
            "g++ -c a.cpp b.cpp -o a.o",
            "g++ -c a.s -o a.o",
            "g++ -c -x c a.cpp -o a.o",
            "g++ -c - -o a.o",
            "g++ -c @args -o a.o a.cpp",
            "g++ -pipe -c a.cpp -o a.o",
            "g++ -save-temps -c a.cpp -o a.o",
            "g++ -v -c a.cpp -o a.o",
            "g++ -### -c a.cpp -o a.o",
            "g++ -time -c a.cpp -o a.o",
            "g++ -flto -c a.cpp -o a.o",
            "g++ -gsplit-dwarf -c a.cpp -o a.o",
            "g++ -Wa,-a -c a.cpp -o a.o",
            "g++ -specs=x -c a.cpp -o a.o",
            "g++ -B/x -c a.cpp -o a.o",
            "g++ -wrapper x -c a.cpp -o a.o",
            "g++ -fplugin=x.so -c a.cpp -o a.o",
            "g++ -dumpdir x -c a.cpp -o a.o",
            "g++ -c a%b.cpp -o a.o",
            "g++ -c .cpp -o a.o",
            "g++ -c a.cpp -o a",
            "g++ -c a.cpp -o",
            "g++ -c a.cpp a.o",
        ] {
            assert!(!is_simple(argv), "{argv}");
        }
    }

    #[test]
    fn stand_ins_are_alike_where_the_names_are() {
        let same = line("cc -c a/x.c -o a/x.o").unwrap();
        let names = same.shape.stand_ins(&same.names);
        assert_eq!((&names[0], &names[1]), (&names[2], &names[3]));
        let other = line("cc -c a/x.c -o b/y.o").unwrap();
        let names = other.shape.stand_ins(&other.names);
        assert!(names[0] != names[2] && names[1] != names[3]);
    }
}
