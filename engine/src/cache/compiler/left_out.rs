//! What a command line says of the checkout that may show in no result: macros whose values name it, and folders for headers
//! with its name amid their own (`-Isrc/home/me/project/inc`: some build systems take an absolute path for a relative one).
//!
//! Many builds give all compiles the same macros, and few sources use them: `-DBINDIR="/home/me/project/bin"`. The key has
//! something in the place of the checkout's name. Whether the name shows is known when the compile has ended: if a source
//! uses such a macro, or anything was found in such a folder, the name is a fact.

use memchr::memmem;

use super::line::{Line, Word};
use super::options::Stage;
use crate::facts::definitions::is_plain;
use crate::facts::path::{without_amid, without_names};
use crate::facts::words::is_of_word;
use crate::observe::access::Bytes;

/// Options by which a compiler searches a folder for headers.
const SEARCHING: [&[u8]; 4] = [b"-I", b"-isystem", b"-iquote", b"-idirafter"];
/// Options that print or record words of the command line.
const TELLING_ALL: [&[u8]; 6] = [
    b"-v",
    b"-H",
    b"-Wmissing-include",
    b"-Weverything",
    b"-frecord",
    b"-grecord",
];

/// What the key leaves out, as far as it must be looked at after the compile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The names of macros with values that name a known folder.
    pub macros: Vec<Bytes>,
    /// Folders for headers have the name of a known folder amid their own.
    pub folders: bool,
}

impl LeftOut {
    pub fn is_empty(&self) -> bool {
        self.macros.is_empty() && !self.folders
    }
}

/// The words of a command line that its key does not have as they are.
#[derive(Debug, Default)]
pub struct Hidden<'l> {
    words: Vec<(&'l Word, Bytes)>,
    left_out: LeftOut,
}

impl<'l> Hidden<'l> {
    /// `expanded` are all words of the command line; `only_used_count` is what `macros` says of them.
    pub fn of(line: &'l Line, expanded: &[Bytes], folders: &[Bytes], only_used_count: bool) -> Hidden<'l> {
        let holds = |word: &&Word| {
            folders
                .iter()
                .any(|folder| memmem::find(&word.operand, folder).is_some())
        };
        let candidates: Vec<&Word> = line.words.iter().filter(holds).collect();
        let tells = |word: &Bytes| TELLING_ALL.iter().any(|option| word.starts_with(option));
        let mut hidden = Hidden::default();
        if candidates.is_empty() || line.stage != Stage::Object || line.has_others() || expanded.iter().any(tells) {
            return hidden;
        }
        for word in candidates {
            if word.option == b"-D" && only_used_count {
                if let Some((name, operand)) = without_value(&word.operand, folders) {
                    hidden.left_out.macros.push(name.to_vec());
                    hidden.words.push((word, operand));
                }
            } else if SEARCHING.contains(&&word.option[..]) && !word.operand.starts_with(b"/") {
                if let Some(operand) = without_amid(&word.operand, folders) {
                    hidden.left_out.folders = true;
                    hidden.words.push((word, operand));
                }
            }
        }
        hidden
    }

    /// What the key has in the place of an operand.
    pub fn operand(&self, word: &Word) -> Option<&[u8]> {
        let mut own = self.words.iter().filter(|(known, _)| std::ptr::eq(*known, word));
        own.next().map(|(_, operand)| &operand[..])
    }

    /// The other words of these.
    pub fn others(&self, mut words: Vec<Bytes>) -> Vec<Bytes> {
        let is_own = |word: &Bytes| {
            let mut own = self.words.iter().map(|(own, _)| own);
            own.any(|own| *word == own.operand || *word == [&own.option[..], &own.operand].concat())
        };
        words.retain(|word| !is_own(word));
        words
    }

    pub fn left_out(self) -> LeftOut {
        self.left_out
    }
}

/// The name of a macro that is defined as a string or as some plain characters, and its definition with a zero and a digit for
/// each folder's name in it. None if it has a value of another kind.
fn without_value<'t>(definition: &'t [u8], folders: &[Bytes]) -> Option<(&'t [u8], Bytes)> {
    let (name, value) = definition.split_at(memchr::memchr(b'=', definition)?);
    let value = &value[1..];
    let is_bare = |byte: &u8| is_of_word(*byte) || b"/.-+@:,".contains(byte);
    let is_string = |value: &[u8]| !value.contains(&b'"') && is_plain(value);
    let is_good = match value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) {
        Some(value) => is_string(value),
        None => value.iter().all(is_bare),
    };
    let is_name = !name.is_empty() && !name[0].is_ascii_digit() && name.iter().copied().all(is_of_word);
    if !is_good || !is_name {
        return None;
    }
    let kept = without_names(value, folders, |at, folder| value[at..].starts_with(folder))?;
    Some((name, [name, b"=", &kept].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::compiler::macros::only_used_count;
    use crate::cache::compiler::Compiler;

    fn folders() -> [Bytes; 2] {
        [b"/w/one".to_vec(), b"/w/one/build".to_vec()]
    }

    /// The operands that are left out, with `*` for zeros, and the names of macros.
    fn hidden(line: &str) -> String {
        let words: Vec<Bytes> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let read = Line::read(Compiler::Gcc, &words).unwrap_or_else(|why| panic!("{line}: {why:?}"));
        let hidden = Hidden::of(&read, &words, &folders(), only_used_count(&read, &words));
        let operands = hidden.words.iter().map(|(_, operand)| operand.clone());
        let text = operands
            .chain(hidden.left_out.macros.clone())
            .collect::<Vec<_>>()
            .join(&b' ');
        assert_eq!(
            hidden.left_out.folders,
            line.contains("-Isub/w/one") && !text.is_empty()
        );
        String::from_utf8(text).unwrap().replace('\0', "*")
    }

    #[test]
    fn macros_and_folders_that_name_a_checkout_are_left_out() {
        for (line, expected) in [
            ("-DBIN=\"/w/one/bin\" -c a.c", "BIN=\"*0/bin\" BIN"),
            ("-D BIN=\"/w/one/build/x:/w/one\" -c a.c", "BIN=\"*1/x:*0\" BIN"),
            ("-DBIN=/w/one -DB=1 -c a.c", "BIN=*0 BIN"),
            ("-DBIN=\"a/w/ones\" -c a.c", "BIN=\"a*0s\" BIN"),
            ("-Isub/w/one/inc -I. -c a.c", "sub*0/inc"),
            ("-Isub/w/one/build -O2 -g -c a.c", "sub*1"),
        ] {
            assert_eq!(hidden(line), expected, "{line}");
        }
    }

    #[test]
    fn what_may_show_is_not_left_out() {
        for line in [
            "-I/w/one/inc -c a.c",
            "-Isub/w/ones -c a.c",
            "-DBIN=\"/w/two\" -c a.c",
            "-DBIN(x)=\"/w/one\" -c a.c",
            "-D1=\"/w/one\" -c a.c",
            "-DBIN=\"/w/one -c a.c",
            "-DBIN=\"/w/one\\n\" -c a.c",
            "-DBIN=\"/w/one\"\"/w/one\" -c a.c",
            "-DBIN=f(/w/one) -c a.c",
            "-DBIN=\"/w/one\" -g3 -c a.c",
            "-DBIN=\"/w/one\" -frecord-gcc-switches -c a.c",
            "-DBIN=\"/w/one\" -H -c a.c",
            "-UBIN=\"/w/one\" -c a.c",
            "-DBIN=\"/w/one\" -E a.c",
            "-Isub/w/one -S a.c",
            "-Isub/w/one -v -c a.c",
            "-Isub/w/one -Wmissing-include-dirs -c a.c",
        ] {
            let words: Vec<Bytes> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let is_known = Line::read(Compiler::Gcc, &words).is_ok();
            assert!(!is_known || hidden(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn words_that_are_left_out_name_no_macro() {
        let words = ["-D", "BIN=\"/w/one\"", "-DSHARE=\"/w/one\"", "-DA=BIN", "-c", "a.c"];
        let words = words.map(|word| word.as_bytes().to_vec());
        let read = Line::read(Compiler::Gcc, &words).unwrap();
        let others = Hidden::of(&read, &words, &folders(), only_used_count(&read, &words)).others(words.to_vec());
        assert_eq!(others.join(&b' '), b"-D -DA=BIN -c a.c");
    }
}
