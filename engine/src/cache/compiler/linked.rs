//! What lets the folders in which programs are linked share results.
//!
//! Some build systems name the output of a link by its whole path, and all else by paths from the folder in which they run it.
//! Compilers and linkers do not write the name of their output into it. So the key leaves out the name of the folder there.
//! The name is a fact if anything that the link makes or prints contains it, or if a program took part that may use it in
//! another way.

use super::line::Kind;
use super::sharing;
use super::Compiler;
use crate::facts::path::{last_name, lexically_normal};
use crate::observe::access::{Access, Bytes, What};

const OUTPUT: &[u8] = b"-o";
/// A plugin may do anything with the name.
const PLUGIN: &[u8] = b"plugin";
const LINKERS: [&[u8]; 4] = [b"collect2", b"ld", b"ld.bfd", b"ld.gold"];

/// The folder of a link, if its output has a whole name in it. `output` is that name.
pub fn own_folder(argv: &[&[u8]], folder: &[u8], output: Option<&[u8]>) -> Option<Bytes> {
    let output = output?;
    let is_inside = sharing::inside(output, folder).is_some_and(|rest| rest.len() > 1);
    let has_plugin = argv.iter().any(|word| memchr::memmem::find(word, PLUGIN).is_some());
    let is_named = || places(argv, output).next().is_some();
    let is_good = is_inside && !has_plugin && lexically_normal(output) == output && is_named();
    (is_good && sharing::can_be_searched_for(folder, argv)).then(|| folder.to_vec())
}

/// Where the words are that name the output, and where the name begins in them.
fn places<'a>(argv: &'a [&'a [u8]], output: &'a [u8]) -> impl Iterator<Item = (usize, usize)> + 'a {
    argv.iter().enumerate().filter_map(move |(at, word)| {
        let is_apart = *word == output && at > 0 && argv[at - 1] == OUTPUT;
        let is_joined = word.strip_prefix(OUTPUT) == Some(output);
        (is_apart || is_joined).then(|| (at, word.len() - output.len()))
    })
}

/// The words for the key.
pub fn tokened(argv: &[&[u8]], folder: &Bytes, output: &[u8]) -> Vec<Bytes> {
    let mut words: Vec<Bytes> = argv.iter().map(|word| word.to_vec()).collect();
    for (at, start) in places(argv, output) {
        let name = sharing::tokened(output, Kind::Path, std::slice::from_ref(folder));
        words[at].splice(start.., name);
    }
    words
}

/// Whether each program that has run is a known one, which does not use the name of its output. This tells programs by their
/// names. That they are what they are called is checked elsewhere.
pub fn is_linked_alone(accesses: &[Access]) -> bool {
    let mut programs = accesses.iter().filter_map(|access| match &access.what {
        What::Begin { program, .. } => Some(last_name(program)),
        _ => None,
    });
    programs.all(is_known)
}

fn is_known(program: &[u8]) -> bool {
    let of_target = |linker: &&[u8]| program.strip_suffix(*linker).is_some_and(|rest| rest.ends_with(b"-"));
    LINKERS.contains(&program) || LINKERS.iter().any(of_target) || Compiler::is_driver(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    fn temporary() -> String {
        let folder = std::fs::canonicalize(std::env::temp_dir()).unwrap();
        folder.into_os_string().into_string().unwrap()
    }

    #[test]
    fn the_key_leaves_out_the_folder_where_it_names_the_output() {
        for (line, expected) in [
            ("gcc a.o -o/t/x -L/t", "gcc a.o -o*0/x -L/t"),
            ("gcc -o /t/x a.o /t/x", "gcc -o *0/x a.o /t/x"),
            ("gcc -o /t/y -o /t/x", "gcc -o /t/y -o *0/x"),
        ] {
            let tokened = tokened(&words(line), &b"/t".to_vec(), b"/t/x").join(&b' ');
            assert_eq!(String::from_utf8(tokened).unwrap().replace("\0base", "*"), expected);
        }
    }

    #[test]
    fn an_output_with_a_whole_name_is_in_the_folder_itself() {
        let here = temporary();
        let own = |line: &str, output: &str| {
            let (line, output) = (line.replace("HERE", &here), output.replace("HERE", &here));
            own_folder(&words(&line), here.as_bytes(), Some(output.as_bytes())).is_some()
        };
        assert!(own("gcc a.o -o HERE/x", "HERE/x") && own("gcc a.o -oHERE/d/x", "HERE/d/x"));
        for (line, output) in [
            ("gcc a.o -o x", "x"),
            ("gcc a.o -o HERE", "HERE"),
            ("gcc a.o -o HERE/../x", "HERE/../x"),
            ("gcc a.o -o HERE-x/y", "HERE-x/y"),
            ("gcc a.o @words", "HERE/x"),
            ("gcc a.o -Wl,-plugin,./p.so -o HERE/x", "HERE/x"),
            ("gcc a.o -Wl,--compress-debug-sections=zlib -o HERE/x", "HERE/x"),
        ] {
            assert!(!own(line, output), "{line}");
        }
        assert_eq!(own_folder(&words("gcc a.o"), here.as_bytes(), None), None);
    }

    #[test]
    fn programs_that_are_known_link_alone() {
        for name in [
            "x86_64-linux-gnu-gcc-12",
            "g++",
            "collect2",
            "ld",
            "x86_64-linux-gnu-ld.bfd",
        ] {
            assert!(is_known(name.as_bytes()), "{name}");
        }
        for name in ["sh", "cc1", "lto1", "as", "mold", "bold", "ld.lld", "python3"] {
            assert!(!is_known(name.as_bytes()), "{name}");
        }
    }
}
