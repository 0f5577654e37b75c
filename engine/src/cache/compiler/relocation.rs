//! Changes text that a compiler wrote in one checkout to the text that it would have written in another one, whose bases have
//! other names.
//!
//! If the layout of a text is not understood, or a base occurs where it is not known to be part of a path, the text
//! cannot be changed.

use memchr::memmem;

use super::Compiler;
use crate::observe::access::Bytes;

/// Where compilers break the lines of dependency files.
const GCC_WIDTH: usize = 72;
const CLANG_WIDTH: usize = 75;
const BREAK: &[u8] = b" \\\n";

/// A base's name, and the other name.
pub type Move<'a> = (&'a [u8], &'a [u8]);

/// The texts before a path in diagnostics, apart from the beginning of a line.
const BEFORE_PATHS: [&[u8]; 1] = [b"from "];

/// A rule of a dependency file. Without targets it is an empty line.
#[derive(Clone, Default, PartialEq)]
struct Rule {
    targets: Vec<Bytes>,
    sources: Vec<Bytes>,
}

/// Changes a dependency file of `compiler`. The names are as makefiles have them.
pub fn dependencies(text: &[u8], compiler: Compiler, moves: &[Move]) -> Option<Bytes> {
    let mut rules = known_rules(text, compiler)?;
    for rule in &mut rules {
        for word in rule.targets.iter_mut().chain(&mut rule.sources) {
            *word = moved_word(word, moves)?;
        }
    }
    Some(laid(&rules, compiler))
}

/// Changes a dependency file of an output for an output with another name. Both names are plain: makefiles need no quotes
/// for them.
pub fn retargeted(text: &[u8], compiler: Compiler, from: &[u8], to: &[u8]) -> Option<Bytes> {
    let mut rules = known_rules(text, compiler)?;
    let first = rules.first_mut()?;
    if first.targets != [from] {
        return None;
    }
    first.targets = vec![to.to_vec()];
    let rest = rules.iter().skip(1).flat_map(|rule| &rule.targets);
    let all = rules.iter().flat_map(|rule| &rule.sources).chain(rest);
    // No other target has this name.
    let is_clear = all.into_iter().all(|word| word != from && word != to);
    is_clear.then(|| laid(&rules, compiler))
}

/// The dependency file of a compile that began after its headers, as the compiler writes it when it reads them itself.
/// `of_header` is the dependency file of the precompiled header, and `own` are names of the header that are in neither.
/// clang makes names absolute that were relative to `folder` when it read the header.
pub fn completed(text: &[u8], compiler: Compiler, of_header: &[u8], own: &[&[u8]], folder: &[u8]) -> Option<Bytes> {
    let mut rules = known_rules(text, compiler)?;
    let header = known_rules(of_header, compiler)?;
    let is_own = |name: &&Bytes| own.contains(&name.as_slice());
    let read_before: Vec<&Bytes> = header.first()?.sources.iter().filter(|name| !is_own(name)).collect();
    let was_read = |name: &Bytes| {
        let is_it = |before: &&Bytes| {
            let relative = name.strip_prefix(folder).and_then(|rest| rest.strip_prefix(b"/"));
            *before == name || relative == Some(before.as_slice())
        };
        read_before.iter().any(is_it)
    };
    let (first, phony) = rules.split_first_mut()?;
    let has_phony = !phony.is_empty() || header.len() > 1;
    if phony
        .iter()
        .any(|rule| rule.targets.len() > 1 || !rule.sources.is_empty())
    {
        return None;
    }
    let mut new = first.sources.iter().filter(|name| !is_own(name) && !was_read(name));
    let source = new.next()?;
    let sources: Vec<Bytes> = [source]
        .into_iter()
        .chain(read_before.iter().copied())
        .chain(new)
        .cloned()
        .collect();
    // With `-MP`, each source but the first has a rule without sources, for clang after an empty line.
    let rules_of = |name: &Bytes| {
        let targets = vec![name.clone()];
        let rule = Rule {
            targets,
            sources: Vec::new(),
        };
        let empty = (compiler == Compiler::Clang).then(Rule::default);
        empty.into_iter().chain([rule])
    };
    let others = sources.iter().skip(1).filter(|_| has_phony);
    let of_sources: Vec<Rule> = others.flat_map(rules_of).collect();
    first.sources = sources;
    rules.truncate(1);
    rules.extend(of_sources);
    Some(laid(&rules, compiler))
}

/// The same for diagnostics: paths are at the beginning of a line, or where includes are listed.
pub fn diagnostics(text: &[u8], moves: &[Move]) -> Option<Bytes> {
    let mut moved = Bytes::new();
    let mut rest = text;
    while let Some((at, (from, to))) = first_base(rest, moves) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        moved.extend(before);
        let begins =
            moved.is_empty() || moved.ends_with(b"\n") || BEFORE_PATHS.iter().any(|word| moved.ends_with(word));
        if !begins || !after.starts_with(b"/") {
            return None;
        }
        moved.extend(to);
        rest = after;
    }
    moved.extend(rest);
    Some(moved)
}

/// Changes all names of bases in a text. `look` gets what is before and after each of them.
pub fn everywhere(text: &[u8], moves: &[Move], mut look: impl FnMut(&[u8], &[u8])) -> Bytes {
    let mut moved = Bytes::new();
    let mut begin = 0;
    while let Some((at, (from, to))) = first_base(&text[begin..], moves) {
        let (at, end) = (begin + at, begin + at + from.len());
        look(&text[..at], &text[end..]);
        moved.extend(&text[begin..at]);
        moved.extend(to);
        begin = end;
    }
    moved.extend(&text[begin..]);
    moved
}

/// Where the name of a base occurs first in a text, and which: the longest one, if several do.
fn first_base<'a>(text: &[u8], moves: &[Move<'a>]) -> Option<(usize, Move<'a>)> {
    let finds = moves
        .iter()
        .filter_map(|known| Some((memmem::find(text, known.0)?, *known)));
    finds.min_by_key(|(at, (from, _))| (*at, usize::MAX - from.len()))
}

fn moved_word(word: &[u8], moves: &[Move]) -> Option<Bytes> {
    let (rest, to) = match first_base(word, moves) {
        None => return Some(word.to_vec()),
        Some((0, (from, to))) => (&word[from.len()..], to),
        Some(_) => return None,
    };
    let is_path = rest.is_empty() || rest.starts_with(b"/");
    (is_path && first_base(rest, moves).is_none()).then(|| [to, rest].concat())
}

/// The rules of a text, if the compiler lays them out exactly as in the text.
fn known_rules(text: &[u8], compiler: Compiler) -> Option<Vec<Rule>> {
    rules(text).filter(|rules| laid(rules, compiler) == text)
}

/// Whether make takes a dependency file for rules that have no recipes, and for nothing else: it reads such files as parts of
/// the makefile. Names are refused that would need a dollar sign, or one of the characters that make anything else of a rule.
pub fn is_of_rules(text: &[u8]) -> bool {
    let is_name = |word: &Bytes| {
        !word
            .iter()
            .any(|byte| byte.is_ascii_control() || b"$=;|%&:".contains(byte))
    };
    let is_rule = |rule: &Rule| {
        let is_directive = |first: &Bytes| rule.targets.len() > 1 && !first.iter().any(|byte| b"./".contains(byte));
        let is_special = |target: &Bytes| target.first() == Some(&b'.') && !target.contains(&b'/');
        !rule.targets.first().is_some_and(is_directive)
            && !rule.targets.iter().any(is_special)
            && rule.targets.iter().chain(&rule.sources).all(is_name)
    };
    text.is_empty() || rules(text).is_some_and(|rules| rules.iter().all(is_rule))
}

fn rules(text: &[u8]) -> Option<Vec<Rule>> {
    let text = text.strip_suffix(b"\n")?;
    let mut rules = vec![Bytes::new()];
    for line in text.split(|b| *b == b'\n') {
        let rule = rules.last_mut()?;
        match line.strip_suffix(b" \\") {
            Some(line) => rule.extend(line),
            None => {
                rule.extend(line);
                rules.push(Bytes::new());
            }
        }
    }
    // The text after the last line is no line.
    rules.pop().filter(Bytes::is_empty)?;
    rules.iter().map(|rule| Rule::read(rule)).collect()
}

/// The words of a line. A backslash keeps a space within a word.
fn words(line: &[u8]) -> Vec<Bytes> {
    let mut words = vec![Bytes::new()];
    for byte in line {
        match words.last_mut() {
            Some(word) if *byte != b' ' || word.ends_with(b"\\") => word.push(*byte),
            _ => words.push(Bytes::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

impl Rule {
    fn read(line: &[u8]) -> Option<Rule> {
        if line.is_empty() {
            return Some(Rule::default());
        }
        let mut targets = words(line);
        let colon = targets.iter().position(|word| word.ends_with(b":"))?;
        let sources = targets.split_off(colon + 1);
        targets[colon].pop();
        Some(Rule { targets, sources })
    }

    fn lay(&self, compiler: Compiler, text: &mut Bytes) {
        match compiler {
            _ if self.targets.is_empty() => {}
            Compiler::Gcc => self.lay_as_gcc(text),
            Compiler::Clang => self.lay_as_clang(text),
        }
        text.push(b'\n');
    }

    fn lay_as_gcc(&self, text: &mut Bytes) {
        let mut column = 0;
        let add = |name: &[u8], text: &mut Bytes, column: &mut usize| {
            if *column > 0 {
                if *column + name.len() > GCC_WIDTH {
                    text.extend(BREAK);
                    *column = 0;
                }
                text.push(b' ');
                *column += 1;
            }
            text.extend(name);
            *column += name.len();
        };
        self.targets.iter().for_each(|name| add(name, text, &mut column));
        text.push(b':');
        column += 1;
        self.sources.iter().for_each(|name| add(name, text, &mut column));
    }

    fn lay_as_clang(&self, text: &mut Bytes) {
        let mut column = 0;
        for name in &self.targets {
            let breaks = column > 0 && column + name.len() + 2 > CLANG_WIDTH;
            match (column, breaks) {
                (0, _) => {}
                (_, true) => text.extend([BREAK, b"  "].concat()),
                (_, false) => text.push(b' '),
            }
            column = if breaks { 2 } else { column + usize::from(column > 0) } + name.len();
            text.extend(name);
        }
        text.push(b':');
        column += 1;
        for name in &self.sources {
            let width = name.len() - escapes(name);
            if column + width + 3 > CLANG_WIDTH {
                text.extend([BREAK, b" "].concat());
                column = 2;
            }
            text.push(b' ');
            text.extend(name);
            column += width + 1;
        }
    }
}

/// How many characters of a name are only there to quote another.
fn escapes(name: &[u8]) -> usize {
    let pairs = |pair: &[u8]| matches!(pair, b"\\ " | b"\\#" | b"$$");
    name.windows(2).filter(|pair| pairs(pair)).count()
}

fn laid(rules: &[Rule], compiler: Compiler) -> Bytes {
    let mut text = Bytes::new();
    rules.iter().for_each(|rule| rule.lay(compiler, &mut text));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(text: &str, compiler: Compiler) -> Option<String> {
        let moved = dependencies(
            text.as_bytes(),
            compiler,
            &[
                (b"/home/one", b"/home/a-longer-name/of/another"),
                (b"/home/one/two", b"/2"),
                (b"/tmp/b", b"/3"),
            ],
        )?;
        Some(String::from_utf8(moved).unwrap())
    }

    #[test]
    fn lines_are_broken_where_the_compiler_would() {
        let text = "x.o: /home/one/a.c /usr/include/stdc-predef.h /home/one/h.h \\\n /home/one/include/k.h\n";
        let expected = "x.o: /home/a-longer-name/of/another/a.c /usr/include/stdc-predef.h \\\n \
            /home/a-longer-name/of/another/h.h \\\n /home/a-longer-name/of/another/include/k.h\n";
        assert_eq!(moved(text, Compiler::Gcc).unwrap(), expected);
        let text = "x.o: /home/one/a.c /home/one/h.h /home/one/sp\\ ace.h\n";
        let expected = "x.o: /home/a-longer-name/of/another/a.c \\\n  /home/a-longer-name/of/another/h.h \\\n  \
            /home/a-longer-name/of/another/sp\\ ace.h\n";
        assert_eq!(moved(text, Compiler::Clang).unwrap(), expected);
    }

    #[test]
    fn a_path_is_moved_with_the_innermost_of_its_bases() {
        let text = "x.o: /home/one/two/a.c /tmp/b/h.h /home/one/h.h /tmp/bc.h\n";
        assert_eq!(moved(text, Compiler::Gcc), None);
        let text = text.replace(" /tmp/bc.h", "");
        let expected = "x.o: /2/a.c /3/h.h /home/a-longer-name/of/another/h.h\n";
        assert_eq!(moved(&text, Compiler::Gcc).unwrap(), expected);
    }

    #[test]
    fn a_layout_or_a_place_that_is_not_known_cannot_be_moved() {
        for text in [
            "",
            "x.o: a.c",
            "x.o:  a.c\n",
            "x.o: a.c \\\n b.c\n",
            "x.o: a.c \\\n",
            "x.o a.c\n",
            "x.o: lib:/home/one/a.c\n",
            "x.o: /home/onemore/a.c\n",
            "x.o: /home/one/home/one/a.c\n",
        ] {
            assert_eq!(moved(text, Compiler::Gcc), None, "{text:?}");
        }
    }

    #[test]
    fn a_dependency_file_is_completed_with_what_a_header_had_read() {
        let complete = |text: &str, compiler, header: &str| {
            let own: [&[u8]; 2] = [b"/p/h", b"/p/h.gch"];
            let completed = completed(text.as_bytes(), compiler, header.as_bytes(), &own, b"/f");
            completed.map(|text| String::from_utf8(text).unwrap())
        };
        let header = "/p/h.gch: /p/h d.h s/a.h v\n";
        for (text, expected) in [
            ("x.o: s/x.cc d.h s/a.h\n", "x.o: s/x.cc d.h s/a.h v\n"),
            ("x.o: s/x.cc d.h s/a.h n.h\n", "x.o: s/x.cc d.h s/a.h v n.h\n"),
            (
                "x.o: s/x.cc /p/h.gch n.h\nn.h:\n",
                "x.o: s/x.cc d.h s/a.h v n.h\nd.h:\ns/a.h:\nv:\nn.h:\n",
            ),
        ] {
            assert_eq!(complete(text, Compiler::Gcc, header).unwrap(), expected);
        }
        let text = "x.o: /f/d.h /f/s/a.h v s/x.cc n.h\n";
        assert_eq!(
            complete(text, Compiler::Clang, header).unwrap(),
            "x.o: s/x.cc d.h s/a.h v n.h\n"
        );
        let completed = complete("x.o: s/x.cc\n", Compiler::Gcc, "/p/h.gch: /p/h d.h\nd.h:\n");
        assert_eq!(completed.unwrap(), "x.o: s/x.cc d.h\nd.h:\n");
        let text = "x.o: /f/d.h s/x.cc\n\n/f/d.h:\n\ns/x.cc:\n";
        let completed = complete(text, Compiler::Clang, "/p/h.gch: /p/h d.h\n").unwrap();
        assert_eq!(completed, "x.o: s/x.cc d.h\n\nd.h:\n");
        assert_eq!(complete("x.o: s/x.cc\n", Compiler::Gcc, "h.gch"), None);
        assert_eq!(complete("x.o: s/x.cc\ny.o: s/y.cc\n", Compiler::Gcc, header), None);
        assert_eq!(complete("x.o: d.h\n", Compiler::Gcc, "/p/h.gch: d.h\n"), None);
    }

    #[test]
    fn diagnostics_are_moved_where_paths_are() {
        let moves: [Move; 3] = [(b"/home/one", b"/x"), (b"/home/one/two", b"/y"), (b"/x", b"/z")];
        let moved = |text: &str| diagnostics(text.as_bytes(), &moves).map(|text| String::from_utf8(text).unwrap());
        let text = "In file included from /home/one/a.c:1,\n                 from /home/one/b.c:2:\n/home/one/h.h:1: note: x\n";
        let expected = "In file included from /x/a.c:1,\n                 from /x/b.c:2:\n/x/h.h:1: note: x\n";
        assert_eq!(moved(text).unwrap(), expected);
        assert_eq!(moved("").unwrap(), "");
        assert_eq!(
            moved("/home/one/two/a.c:1: x\n/x/b.c:1: x").unwrap(),
            "/y/a.c:1: x\n/z/b.c:1: x"
        );
        assert_eq!(moved("a.c: #warning /home/one/x"), None);
        assert_eq!(moved("/home/onemore/x"), None);
    }

    #[test]
    fn dependency_files_of_compilers_are_rules() {
        for text in [
            "",
            "x.o: a.c\n",
            "out/x.o x.d: a.c \\\n inc/sp\\ ace.h \\#h.h\n\ninc/sp\\ ace.h:\n",
        ] {
            assert!(is_of_rules(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_make_would_run_or_remember_is_no_rule() {
        for text in [
            "x.o: a.c $(shell touch owned)\n",
            "x.o: $$(shell touch owned)\n",
            "x.o: a.c\n\ttouch owned\n",
            "x.o: a.c ; touch owned\n",
            "x.o: SHELL=/tmp/owned\n",
            "x.o: SHELL = /tmp/owned\n",
            "SHELL := /tmp/owned\n",
            "x.o:: a.c\n",
            "include owned.mk:\n",
            "include\x0cowned.mk:\n",
            "-include owned.mk:\n",
            "load ./owned.so:\n",
            "export x.o: a.c\n",
            "define x.o:\n",
            ".IGNORE: x.o\n",
            "%.o: %.c\n",
            "x.o: a.c b.c:\n",
            "no rule\n",
            "x.o: a.c",
        ] {
            assert!(!is_of_rules(text.as_bytes()), "{text}");
        }
    }
}
