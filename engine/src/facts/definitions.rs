//! What a generated source or header says about its checkout only because of where that is, if nothing uses it: comments
//! (`/* Generated from /home/me/project/p.asn1 */`), macros whose values name the folder (`#define SRCDIR "/home/me/project"`),
//! and a guard against a second reading with the folder in its name (`#ifndef YY_YY_HOME_ME_PROJECT_P_TAB_H_INCLUDED`).
//!
//! Pure. A macro counts only if its definition has one line to itself, and its value is one plain string. All else in the
//! text is compared as it is.

use memchr::memmem;

use super::comments::parts;
use super::preprocessed::body;
use super::words::{before_splice, directive, is_of_word, joined, words};
use crate::bytes::digest::Digest;
use crate::observe::access::Bytes;

/// A header with more of them, or with longer names, is compared as a whole.
pub const MOST_NAMES: usize = 16;
const LONGEST_NAME: usize = 64;
/// A longer value, as of a path that no system has, is compared.
const LONGEST_VALUE: usize = 4096;

/// A line that defines a macro as a string.
struct Definition<'t> {
    name: &'t [u8],
    value: &'t [u8],
    /// The line up to the value, and from its end on.
    around: [&'t [u8]; 2],
}

impl<'t> Definition<'t> {
    fn of(line: &'t [u8]) -> Option<Definition<'t>> {
        let rest = after_directive(line, b"define")?;
        let size = rest.iter().position(|byte| !is_of_word(*byte))?;
        let (name, rest) = rest.split_at(size);
        let value_on = after_space(rest)?.strip_prefix(b"\"")?;
        let (value, after) = value_on.split_at(memchr::memchr(b'"', value_on)?);
        let is_name = !name.is_empty() && name.len() <= LONGEST_NAME && !name[0].is_ascii_digit();
        let is_good = is_name && is_plain(value) && without_space(&after[1..]).is_empty();
        let before = &line[..line.len() - value_on.len()];
        is_good.then_some(Definition {
            name,
            value,
            around: [before, after],
        })
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

fn without_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_space(*byte));
    start.map_or(&[], |start| &text[start..])
}

/// What follows a blank, or several.
fn after_space(text: &[u8]) -> Option<&[u8]> {
    let rest = without_space(text);
    (rest.len() < text.len()).then_some(rest)
}

/// What follows a directive of this name: `NAME` of `# ifndef NAME`.
fn after_directive<'t>(line: &'t [u8], wanted: &[u8]) -> Option<&'t [u8]> {
    let (_, rest) = directive(line).filter(|(name, _)| *name == wanted)?;
    after_space(rest)
}

/// No escapes, no trigraphs, no control characters, no end of a comment around it.
pub fn is_plain(value: &[u8]) -> bool {
    let is_odd = |byte: &u8| *byte < b' ' || *byte == 0x7f || matches!(byte, b'\\' | b'?' | b'*');
    value.len() <= LONGEST_VALUE && !value.iter().any(is_odd)
}

/// What is left out of comments that have nothing after them on their lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Comments {
    #[default]
    Nothing,
    /// The names of folders.
    Folders,
    /// All of their text, if no compiler looks at it, and otherwise the names of folders. A generator that writes the name of a
    /// folder into a file often writes the time as well.
    Texts,
    /// The same, also where no comment names a folder.
    AllTexts,
    /// All comments, all white space, and all directives as well. What is left says how probable it is that the
    /// preprocessor leaves the same of a source.
    Directives,
}

impl Comments {
    pub fn of_number(number: u8) -> Option<Comments> {
        let all = [
            Comments::Nothing,
            Comments::Folders,
            Comments::Texts,
            Comments::AllTexts,
            Comments::Directives,
        ];
        all.into_iter().find(|comments| *comments as u8 == number)
    }
}

/// What is left out of a header's digest.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unused {
    pub comments: Comments,
    /// Macros whose values are left out, sorted.
    pub macros: Vec<Bytes>,
    pub guard: Option<Guard>,
}

/// The name of a macro that only guards against a second reading: a folder's name is amid these parts of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guard {
    pub before: Bytes,
    /// The number of the folder.
    pub folder: u8,
    pub after: Bytes,
}

/// A shorter end may be that of many names.
const SHORTEST_END: usize = 4;

impl Guard {
    fn name(&self, folders: &[Bytes]) -> Option<Bytes> {
        let amid = as_name(folders.get(usize::from(self.folder))?);
        Some([&self.before[..], &amid, &self.after].concat())
    }
}

/// A folder as a part of a macro's name.
pub fn as_name(folder: &[u8]) -> Bytes {
    let letter = |byte: &u8| match byte.is_ascii_alphanumeric() {
        true => byte.to_ascii_uppercase(),
        false => b'_',
    };
    folder.iter().map(letter).collect()
}

/// What may be left out of a text, if nothing uses it: all that names one of these folders. None if there is nothing, or if a
/// folder is named otherwise.
pub fn find_unused(text: &[u8], folders: &[Bytes]) -> Option<Unused> {
    let (rest, count) = without_comments_on(text, folders, Comments::Folders);
    let unused = Unused {
        comments: match count {
            0 => Comments::Nothing,
            _ => Comments::Texts,
        },
        macros: telling(&rest, folders)?,
        guard: find_guard(text, folders),
    };
    (unused != Unused::default()).then_some(unused)
}

/// The macros whose values name one of these folders, sorted. None if the header names the folders elsewhere, or such a macro.
fn telling(text: &[u8], folders: &[Bytes]) -> Option<Vec<Bytes>> {
    let tells = |part: &[u8]| folders.iter().any(|folder| memmem::find(part, folder).is_some());
    let mut names: Vec<Bytes> = Vec::new();
    let mut before: &[u8] = b"";
    for line in text.split(|byte| *byte == b'\n') {
        if tells(line) {
            let definition = Definition::of(line).filter(|found| tells(found.value))?;
            let [start, end] = definition.around;
            // The line before may go on in this one.
            if before_splice(before).is_some() || tells(start) || tells(end) {
                return None;
            }
            names.push(definition.name.to_vec());
        }
        before = line;
    }
    names.sort();
    let is_single = |name: &Bytes| words(text).filter(|word| word == name).count() == 1;
    // In a raw string, a line is no directive.
    let may_be_text = !names.is_empty() && memmem::find(text, b"R\"").is_some();
    let is_good = names.len() <= MOST_NAMES && !may_be_text && names.iter().all(is_single);
    is_good.then_some(names)
}

/// The guard with which a header begins, if a folder is in its name.
fn find_guard(text: &[u8], folders: &[Bytes]) -> Option<Guard> {
    let mut known: Vec<(usize, Bytes)> = folders.iter().map(|folder| as_name(folder)).enumerate().collect();
    known.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
    if known.iter().all(|(_, part)| memmem::find(text, part).is_none()) || joined(text).is_some() {
        return None;
    }
    let parts = parts(text)?;
    let mut lines = parts.code.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut next = |directive| after_directive(lines.find(|line| !line.is_empty())?, directive);
    let (name, defined) = (next(b"ifndef")?, next(b"define")?);
    let (number, part) = known.iter().find(|(_, part)| memmem::find(name, part).is_some())?;
    let at = memmem::find(name, part)?;
    let (before, after) = (&name[..at], &name[at + part.len()..]);
    let count = |text: &[u8]| words(text).filter(|word| *word == name).count();
    let is_only_there = name == defined
        && count(&parts.code) == 2
        && count(&parts.strings) == 0
        && memmem::find_iter(text, after).count() == count(text);
    let is_good = is_only_there && after.len() >= SHORTEST_END && name.iter().copied().all(is_of_word);
    is_good.then_some(Guard {
        before: before.to_vec(),
        folder: u8::try_from(*number).ok()?,
        after: after.to_vec(),
    })
}

/// The digest of a text without what nothing uses.
pub fn digest_except(text: &[u8], unused: &Unused, folders: &[Bytes]) -> Digest {
    let (mut kept, count) = kept(text, unused, folders);
    // A zero of the text is not one in the place of a name.
    kept.extend((count as u64).to_le_bytes());
    Digest::of(&kept)
}

/// A text without what nothing uses.
pub fn without(text: &[u8], unused: &Unused, folders: &[Bytes]) -> Bytes {
    kept(text, unused, folders).0
}

/// The same, and how many names were replaced.
fn kept(text: &[u8], unused: &Unused, folders: &[Bytes]) -> (Bytes, usize) {
    if unused.comments == Comments::Directives {
        return (body(text), 0);
    }
    let (kept, in_comments) = without_comments_on(text, folders, unused.comments);
    let kept = without_values(&kept, &unused.macros);
    match unused.guard.as_ref().and_then(|guard| guard.name(folders)) {
        Some(name) => {
            let (kept, count) = without_name(&kept, &name);
            (kept, in_comments + count)
        }
        None => (kept, in_comments),
    }
}

/// In the place of a comment's text, before the ends of lines in it.
const COMMENT: [u8; 2] = [0, 0xff];

/// A text with a zero and a number in the place of each folder's name in a comment, or of a comment's text, and how many these
/// are. If something follows on a comment's line, its column counts. The names have no special characters, so comments begin and
/// end at the same places in each checkout.
fn without_comments_on(text: &[u8], folders: &[Bytes], what: Comments) -> (Bytes, usize) {
    if what == Comments::Nothing {
        return (text.to_vec(), 0);
    }
    let is_plain = |folder: &Bytes| folder.iter().all(|byte| is_of_word(*byte) || b"/.-+".contains(byte));
    let names_any = || folders.iter().any(|folder| memmem::find(text, folder).is_some());
    let are_plain = folders.iter().all(is_plain);
    let known = what == Comments::AllTexts || names_any() && are_plain;
    let Some(parts) = known.then(|| parts(text)).flatten() else {
        return (text.to_vec(), 0);
    };
    let mut longest: Vec<(u8, &Bytes)> = (0..).zip(folders).collect();
    longest.sort_by_key(|(_, folder)| std::cmp::Reverse(folder.len()));
    let is_last = |end: usize| {
        let line = text[end..].split(|byte| *byte == b'\n').next();
        line.map_or(true, |rest| rest.trim_ascii().is_empty())
    };
    let (mut kept, mut start, mut count) = (Bytes::with_capacity(text.len()), 0, 0);
    for span in parts.comments.into_iter().filter(|span| is_last(span.end)) {
        let mut at = span.start;
        let comment = &text[span.clone()];
        if what != Comments::Folders && means_nothing(comment) {
            kept.extend_from_slice(&text[start..at + 2]);
            kept.extend(COMMENT);
            kept.extend(comment.iter().filter(|byte| matches!(byte, b'\r' | b'\n')));
            (start, count) = (span.end, count + 1);
            continue;
        }
        while are_plain && at < span.end {
            let here = &text[at..span.end];
            let found = longest.iter().find(|(_, folder)| here.starts_with(folder));
            let Some((number, folder)) = found else {
                at += 1;
                continue;
            };
            kept.extend_from_slice(&text[start..at]);
            kept.extend([0, *number]);
            at += folder.len();
            (start, count) = (at, count + 1);
        }
    }
    kept.extend_from_slice(&text[start..]);
    (kept, count)
}

/// Whether no compiler looks at a comment's text. Some words say that a `case` goes on in the next one. Marks of comments and of
/// the ends of lines, and characters that are not ASCII's, make warnings.
fn means_nothing(comment: &[u8]) -> bool {
    let inner = &comment[2..];
    let is_usual = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n') && *byte != b'\\';
    let has = |part: &[u8]| memmem::find(inner, part).is_some();
    inner.iter().all(is_usual)
        && !inner.windows(4).any(|part| part.eq_ignore_ascii_case(b"fall"))
        && !(has(b"/*") || has(b"??"))
}

fn without_values(text: &[u8], names: &[Bytes]) -> Bytes {
    let mut kept = Bytes::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        match Definition::of(content).filter(|found| names.iter().any(|name| name == found.name)) {
            Some(found) => kept.extend(found.around.concat()),
            None => kept.extend_from_slice(content),
        }
        kept.extend_from_slice(&line[content.len()..]);
    }
    kept
}

/// A text with a zero in the place of each word that is this name.
fn without_name(text: &[u8], name: &[u8]) -> (Bytes, usize) {
    let mut kept = Bytes::with_capacity(text.len());
    let (mut start, mut count) = (0, 0);
    for at in memmem::find_iter(text, name) {
        let end = at + name.len();
        let is_apart = |byte: Option<&u8>| !byte.is_some_and(|byte| is_of_word(*byte));
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        if is_apart(before) && is_apart(text.get(end)) {
            kept.extend_from_slice(&text[start..at]);
            kept.push(0);
            start = end;
            count += 1;
        }
    }
    kept.extend_from_slice(&text[start..]);
    (kept, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases() -> [Bytes; 2] {
        [b"/w/one".to_vec(), b"/w/two".to_vec()]
    }

    fn names_of(text: &str) -> Option<String> {
        let unused = find_unused(text.as_bytes(), &bases())?;
        Some(String::from_utf8(unused.macros.join(&b' ')).unwrap())
    }

    #[test]
    fn texts_of_comments_are_left_out_where_nothing_follows_on_their_lines() {
        let kept = |text: &str| without_comments_on(text.as_bytes(), &bases(), Comments::AllTexts).0;
        let same = |one: &str, other: &str| kept(one) == kept(other);
        assert!(same("int a; // one\nint b;\n", "int a; // another one\nint b;\n"));
        assert!(same("/* a\n * b */\nint c;\n", "/*\n*/\nint c;\n"));
        assert!(same("int a; // falls in /w/one\n", "int a; // falls in /w/one\n"));
        for (one, other) in [
            ("int a; // one\n", "int a;\n"),
            ("int a; // one\n", "int a; /* one */\n"),
            ("int a; // one\n", "int a;  // one\n"),
            ("int a; /* a */ int b;\n", "int a; /* ab */ int b;\n"),
            ("/* a */\nint c;\n", "/* a\n */\nint c;\n"),
            ("int a; // falls\n", "int a; // fails\n"),
            ("int a; // a\n", "int a; // \u{e9}\n"),
            ("int a; // a\nb;\n", "int a; // a \\\nb;\n"),
            ("\"// a\"\n", "\"// b\"\n"),
        ] {
            assert!(!same(one, other), "{one} {other}");
        }
    }

    #[test]
    fn macros_that_name_a_folder_are_found() {
        for text in [
            "#define SRCDIR \"/w/one\"\n",
            "#define A 1\n\n # \tdefine SRCDIR\t\"x=/w/one/y\" \r\n#define B \"/w/three\"\n",
            "#define SRCDIR \"/w/one:/w/two\"",
        ] {
            assert_eq!(names_of(text).as_deref(), Some("SRCDIR"), "{text}");
        }
        let joined = "// in /w/one \\\n\n#define F(a) \\\n  a\n#define SRCDIR \"/w/one\"\n";
        assert_eq!(names_of(joined).as_deref(), Some("SRCDIR"));
        let in_comment = "// in /w/one \\\n#define SRCDIR \"/w/one\"\n";
        assert_eq!(names_of(in_comment).as_deref(), Some(""));
        let both = "#define Z \"/w/one\"\n#define A \"/w/two\"\n";
        assert_eq!(names_of(both).as_deref(), Some("A Z"));
    }

    #[test]
    fn a_header_that_names_a_folder_otherwise_is_compared_as_a_whole() {
        let definition = "#define SRCDIR \"/w/one\"\n";
        for text in [
            "",
            "#define SRCDIR \"/elsewhere\"\n",
            "int a; /* in /w/one */ int b;\n",
            "#define SRCDIR \"/w/one\" // a comment\n",
            "#define SRCDIR /* one */ \"/w/one\"\n",
            "#define SRCDIR(x) \"/w/one\"\n",
            "#define SRCDIR \"/w/one\" \"/x\"\n",
            "#define SRCDIR \"/w/one\" \\\n\"/x\"\n",
            "#define SRCDIR \"/w/one\\n\"\n",
            "#define SRCDIR \"/w/one?\"\n",
            "#define SRCDIR \"/w/one*/\"\n",
            "#define SRCDIR L\"/w/one\"\n",
            "#define SRCDIR /w/one\n",
            "#define\"/w/one\"\n",
            "#defineSRCDIR \"/w/one\"\n",
            "#define 1A \"/w/one\"\n",
            "#undef SRCDIR \"/w/one\"\n",
            "char s[] = \"/w/one\";\n",
            &format!("#define A \\\n{definition}"),
            &format!("#define A ??/ \n{definition}"),
            &format!("auto s = R\"(\n{definition})\";\n"),
            &format!("{definition}#define OTHER SRCDIR\n"),
            &format!("#ifndef SRCDIR\n{definition}#endif\n"),
            &format!("{definition}{definition}"),
        ] {
            assert_eq!(names_of(text), None, "{text}");
        }
        let many = |count: usize| {
            (0..count)
                .map(|at| format!("#define A{at} \"/w/one\"\n"))
                .collect::<String>()
        };
        assert!(names_of(&many(MOST_NAMES)).is_some());
        assert!(names_of(&many(MOST_NAMES + 1)).is_none());
    }

    #[test]
    fn only_the_values_of_these_macros_are_left_out_of_the_digest() {
        let unused = Unused {
            macros: vec![b"SRCDIR".to_vec()],
            ..Unused::default()
        };
        let digest = |text: &str| digest_except(text.as_bytes(), &unused, &bases());
        let text = "int a;\n#define SRCDIR \"/w/one\"\n#define B \"b\"\n";
        assert_eq!(digest(text), digest(&text.replace("/w/one", "")));
        assert_eq!(
            digest(text),
            digest(&text.replace("/w/one", "it's // in another, longer / one"))
        );
        for other in [
            text.replace("\"b\"", "\"c\""),
            text.replace("SRCDIR", "SRCDIRS"),
            text.replace("/w/one\"", "/w/one\" "),
            text.replace("/w/one\"", "/w/one\" // \""),
            text.replace("/w/one", "*/ int b; /*"),
            text.replace("/w/one", "\\"),
            text.replace("#define SRCDIR", " #define SRCDIR"),
            text.replace("\"/w/one\"", "1"),
            text.trim_end().to_owned(),
        ] {
            assert_ne!(digest(text), digest(&other), "{other}");
        }
    }

    #[test]
    fn folders_in_comments_are_left_out() {
        let text = "/* Generated from /w/one/p.asn1 */\n#include <a.h> // for /w/one and /w/two\nint a;\n";
        let unused = find_unused(text.as_bytes(), &bases()).unwrap();
        let own = bases();
        assert!(unused.comments == Comments::Texts && unused.macros.is_empty() && unused.guard.is_none());
        let other = [b"/another/place".to_vec(), b"/x".to_vec()];
        let there = text.replace("/w/one", "/another/place").replace("/w/two", "/x");
        let digest = |text: &str, folders: &[Bytes]| digest_except(text.as_bytes(), &unused, folders);
        assert_eq!(digest(text, &own), digest(&there, &other));
        for wrong in [
            there.replace("int a", "int b"),
            there.replace("/* Gen", "/ * Gen"),
            there.replace("/* Gen", "// Gen"),
            there.replace("p.asn1 */", "p.asn1 */ int b;"),
            there.replace("/another/place", "/another\n/place"),
            there.replace("p.asn1", "p.asn1, falls through"),
            there.replace("p.asn1", "p.asn1 /*"),
            there.replace("p.asn1", "p.asn1 \\\n"),
            there.replace("p.asn1", "p.\u{e9}"),
            there.replace("// for ", ""),
        ] {
            assert_ne!(digest(text, &own), digest(&wrong, &other), "{wrong}");
        }
        for alike in [
            there.replace("p.asn1", "q.asn1 at 10:23"),
            there.replace("/x", "/another/place"),
        ] {
            assert_eq!(digest(text, &own), digest(&alike, &other), "{alike}");
        }
        let fall = text.replace("Generated", "Falls through; generated");
        let fall_there = there.replace("Generated", "Falls through; generated");
        assert_eq!(digest(&fall, &own), digest(&fall_there, &other));
        assert_ne!(
            digest(&fall, &own),
            digest(&fall_there.replace("p.asn1", "q.asn1"), &other)
        );
        let both = format!("{text}#define SRCDIR \"/w/one\"\n");
        let unused = find_unused(both.as_bytes(), &bases()).unwrap();
        assert!(unused.comments == Comments::Texts && unused.macros == [b"SRCDIR".to_vec()]);
    }

    const GUARDED: &str =
        "/* made by bison */\n\n#ifndef YY_W_ONE_P_TAB_H_INCLUDED\n# define YY_W_ONE_P_TAB_H_INCLUDED\nint a;\n\
                           #endif /* !YY_W_ONE_P_TAB_H_INCLUDED */\n";

    #[test]
    fn a_guard_with_a_folder_in_its_name_is_found() {
        let own = bases();
        let unused = find_unused(GUARDED.as_bytes(), &own).unwrap();
        let guard = Guard {
            before: b"YY".to_vec(),
            folder: 0,
            after: b"_P_TAB_H_INCLUDED".to_vec(),
        };
        assert_eq!((unused.macros.len(), &unused.guard), (0, &Some(guard)));
        let other = [b"/elsewhere".to_vec(), b"/w/two".to_vec()];
        let digest = |text: &str, folders: &[Bytes]| digest_except(text.as_bytes(), &unused, folders);
        let there = GUARDED.replace("W_ONE", "ELSEWHERE");
        assert_eq!(digest(GUARDED, &own), digest(&there, &other));
        assert_ne!(digest(GUARDED, &own), digest(&there, &own));
        assert_ne!(digest(GUARDED, &own), digest(GUARDED, &other));
        assert_ne!(digest(GUARDED, &own), digest(&there.replace("int a", "int b"), &other));
        assert_ne!(
            digest(GUARDED, &own),
            digest(&there.replacen("ELSEWHERE", "ELSE", 1), &other)
        );
    }

    #[test]
    fn a_guard_that_is_used_otherwise_is_none() {
        for (part, other) in [
            ("int a", "int a = YY_W_ONE_P_TAB_H_INCLUDED"),
            ("int a", "int a = sizeof \"YY_W_ONE_P_TAB_H_INCLUDED\""),
            ("int a", "int Y_P_TAB_H_INCLUDED"),
            ("int a", "int a; \\\n"),
            ("# define YY", "# define Y"),
            ("# define YY", "# define YY_W_ONE_P_TAB_H_INCLUDED 1\n#define YY"),
            ("#ifndef", "int b;\n#ifndef"),
            ("#ifndef", "#ifdef"),
            ("W_ONE", "W_THREE"),
            ("_P_TAB_H_INCLUDED", "_H"),
            ("made", "\"made"),
            ("int a", "#error don't"),
        ] {
            let text = GUARDED.replace(part, other);
            let found = find_unused(text.as_bytes(), &bases());
            let is_in_comment = part == "made";
            assert_eq!(found.is_some(), is_in_comment, "{text}");
        }
    }
}
