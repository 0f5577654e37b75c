//! What lets the folders into which cargo builds share results.
//!
//! rustc finds crates in such a folder by names of its command line, and does not write these names into what it makes. Only
//! dependency files and messages have them. So the key leaves out the name of the folder where it says where crates are and
//! where results go. If anything that the compile makes contains it, it is a fact.
//!
//! The folder in which rustc runs is written into results, and is always a fact.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::line::Kind;
use super::{neutral, sharing};
use crate::facts::environment::Environment;
use crate::facts::path::{lexically_normal, without_names, Path, Root};
use crate::files::checkout;
use crate::observe::access::Bytes;

const RESULTS: &[u8] = b"--out-dir";
/// The options whose operands name files in the folder, and nothing that shows in results.
const OPTIONS: [&[u8]; 3] = [RESULTS, b"--extern", b"-L"];
/// What messages have before the name of a result.
const BEFORE_RESULT: &[u8] = br#""artifact":""#;
const DEPENDENCIES: &[u8] = b".d";
/// The variable in which cargo lists folders of the build for the loader of libraries. What is found there is a fact.
const LIBRARIES: &[u8] = b"LD_LIBRARY_PATH";

/// The folder into which cargo builds, if a compile's results go there. `None` if its name may be found in results by other ways.
pub fn build_folder(argv: &[&[u8]]) -> Option<Bytes> {
    let results = operands(argv, RESULTS).next()?;
    if lexically_normal(results) != results {
        return None;
    }
    let folder = checkout::find_cargos(OsStr::from_bytes(results).as_ref())?;
    let folder = folder.into_os_string().into_vec();
    sharing::can_be_searched_for(&folder, argv).then_some(folder)
}

/// The operands of an option.
fn operands<'a>(argv: &'a [&[u8]], option: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    argv.iter()
        .enumerate()
        .filter_map(move |(at, word)| match word.strip_prefix(option)? {
            [] => argv.get(at + 1).copied(),
            [b'=', operand @ ..] => Some(operand),
            _ => None,
        })
}

/// The words for the key.
pub fn tokened(argv: &[&[u8]], folder: &Bytes) -> Vec<Bytes> {
    let before = std::iter::once(&b""[..]).chain(argv.iter().copied());
    let pairs = before.zip(argv);
    pairs.map(|(before, word)| tokened_word(before, word, folder)).collect()
}

/// `dependency=/t/debug/deps` and `name=/t/debug/deps/libname.rlib` name a file after a first part.
fn tokened_word(before: &[u8], word: &[u8], folder: &Bytes) -> Bytes {
    let own = OPTIONS.iter().find_map(|option| {
        let rest = word.strip_prefix(*option)?;
        (!rest.is_empty()).then_some(word.len() - rest.len())
    });
    let Some(start) = own.or_else(|| OPTIONS.contains(&before).then_some(0)) else {
        return word.to_vec();
    };
    let after_equals = memchr::memchr_iter(b'=', &word[start..]).map(|at| start + at + 1);
    let mut places = std::iter::once(start).chain(after_equals);
    let place = places.find(|at| sharing::inside(&word[*at..], folder).is_some());
    place.map_or_else(
        || word.to_vec(),
        |at| {
            let path = sharing::tokened(&word[at..], Kind::Path, std::slice::from_ref(folder));
            [&word[..at], &path].concat()
        },
    )
}

fn tokened_list(value: &[u8], folder: &Bytes) -> Bytes {
    let token = |part| sharing::tokened(part, Kind::Path, std::slice::from_ref(folder));
    let parts: Vec<Bytes> = value.split(|byte| *byte == b':').map(token).collect();
    parts.join(&b':')
}

/// The variables of a compile whose base is this folder.
pub fn without_folder(environment: Environment, bases: &[Bytes]) -> Environment {
    let value = environment.value(LIBRARIES).zip(bases.first());
    match value.map(|(value, folder)| tokened_list(value, folder)) {
        Some(value) => environment.replacing(LIBRARIES, &value),
        None => environment,
    }
}

/// A word or a variable with another name for the folder.
pub fn renamed(text: &[u8], folder: &[u8], name: &[u8]) -> Option<Bytes> {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(byte);
    let is_whole = |at: usize| {
        let (before, after) = (&text[..at], &text[at + folder.len()..]);
        !before.last().is_some_and(is_of_name) && !after.first().is_some_and(|byte| *byte != b'/' && is_of_name(byte))
    };
    let counts = |at: usize, _: &[u8]| text[at..].starts_with(folder) && is_whole(at);
    let without = without_names(text, &[folder.to_vec()], counts)?;
    // No word has a zero. A digit follows each of them.
    let mut parts = without.split(|byte| *byte == 0);
    let first = parts.next().unwrap_or_default();
    let others = parts.flat_map(|part| [name, part.get(1..).unwrap_or_default()]);
    Some(std::iter::once(first).chain(others).collect::<Vec<_>>().concat())
}

/// Whether a file that rustc makes is a dependency file, which names the folder.
pub fn is_of_dependencies(path: &Path) -> bool {
    matches!(path.root, Root::Base(_)) && path.rest.ends_with(DEPENDENCIES)
}

/// The form of a dependency file for the store, and whether the name of the folder is elsewhere than at the beginnings of paths.
pub fn dependencies(text: &[u8], folders: &[Bytes]) -> Option<(Bytes, bool)> {
    neutral::everywhere(text, folders, |before| {
        matches!(before.last(), None | Some(b' ' | b'\n'))
    })
}

/// The same for messages.
pub fn messages(text: &[u8], folders: &[Bytes]) -> Option<(Bytes, bool)> {
    neutral::everywhere(text, folders, |before| before.ends_with(BEFORE_RESULT))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn the_key_leaves_the_folder_out_where_it_names_crates_and_results() {
        for (line, expected) in [
            ("rustc --out-dir /t/debug/deps", "rustc --out-dir *0/debug/deps"),
            ("rustc --out-dir=/t/debug", "rustc --out-dir=*0/debug"),
            ("rustc -L dependency=/t/deps", "rustc -L dependency=*0/deps"),
            ("rustc -Lnative=/t/out -L/t", "rustc -Lnative=*0/out -L*0"),
            ("rustc --extern a=/t/liba.rlib", "rustc --extern a=*0/liba.rlib"),
            ("rustc --extern noprelude:a=/t/a", "rustc --extern noprelude:a=*0/a"),
            ("rustc --extern a=/to/t/a", "rustc --extern a=/to/t/a"),
            ("rustc -C metadata=/t/x", "rustc -C metadata=/t/x"),
            ("rustc --cfg x=/t/x /t/x.rs", "rustc --cfg x=/t/x /t/x.rs"),
        ] {
            let tokened = tokened(&words(line), &b"/t".to_vec()).join(&b' ');
            let shown = String::from_utf8(tokened).unwrap().replace("\0base", "*");
            assert_eq!(shown, expected);
        }
        assert_eq!(tokened_list(b"/t/a:/u:/t", &b"/t".to_vec()), b"\0base0/a:/u:\0base0");
    }

    #[test]
    fn the_folder_is_where_cargo_has_left_its_mark() {
        let top = std::env::temp_dir().join(format!("wafcc-crates-{}", std::process::id()));
        let top = fs::canonicalize(top.parent().unwrap())
            .unwrap()
            .join(top.file_name().unwrap());
        let deps = top.join("debug/deps");
        fs::create_dir_all(&deps).unwrap();
        let name = deps.to_str().unwrap();
        let found = |more: &str| {
            let line = format!("rustc --crate-name a --out-dir {name}{more}");
            build_folder(&words(&line)).map(|folder| String::from_utf8(folder).unwrap())
        };
        assert_eq!(found(""), None);
        fs::write(top.join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(found("").as_deref(), top.to_str());
        for more in [
            "/.",
            "/..",
            " -C link-arg=-Wl,--compress-debug-sections=zlib",
            " -Clink-arg=-gz",
        ] {
            assert_eq!(found(more), None, "{more}");
        }
        let link = top.with_extension("link");
        std::os::unix::fs::symlink(&top, &link).unwrap();
        let linked = format!("rustc --out-dir {}/debug/deps", link.display());
        assert_eq!(build_folder(&words(&linked)), None);
        assert_eq!(build_folder(&words("rustc a.rs")), None);
        assert_eq!(build_folder(&words("rustc --out-dir")), None);
        fs::remove_file(&link).unwrap();
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn texts_get_the_name_of_another_folder() {
        let (here, there) = (vec![b"/t".to_vec()], vec![b"/elsewhere".to_vec()]);
        let text = b"/t/deps/a.d: src/lib.rs\n\n/t/deps/liba.rlib: src/lib.rs /t/out/x.rs\n";
        let (stored, tells) = dependencies(text, &here).unwrap();
        assert!(!tells && !neutral::holds(&stored, b"/t/"));
        assert_eq!(neutral::own_everywhere(&stored, &here), text);
        assert_eq!(
            neutral::own_everywhere(&stored, &there),
            b"/elsewhere/deps/a.d: src/lib.rs\n\n/elsewhere/deps/liba.rlib: src/lib.rs /elsewhere/out/x.rs\n"
        );
        let text = br#"{"$message_type":"artifact","artifact":"/t/deps/liba.rmeta","emit":"metadata"}"#;
        let (stored, tells) = messages(text, &here).unwrap();
        assert!(!tells);
        let expected = br#"{"$message_type":"artifact","artifact":"/elsewhere/deps/liba.rmeta","emit":"metadata"}"#;
        assert_eq!(neutral::own_everywhere(&stored, &there), expected);
    }

    #[test]
    fn words_get_another_name_of_the_folder() {
        for (text, expected) in [
            ("/t/x", Some("/u/x")),
            ("A=/t:/t/a:/b/t", Some("A=/u:/u/a:/b/t")),
            ("--extern=a=/t", Some("--extern=a=/u")),
            ("/two/t", None),
            ("/t-x /t.d", None),
        ] {
            let renamed = renamed(text.as_bytes(), b"/t", b"/u");
            assert_eq!(renamed.as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn a_text_that_names_the_folder_elsewhere_is_bound_to_it() {
        let here = vec![b"/t".to_vec()];
        for text in ["# env-dep:OUT_DIR=/t/out\n", "/two/deps/a.d: x\n", "a/t/b: x\n"] {
            let (stored, tells) = dependencies(text.as_bytes(), &here).unwrap();
            assert!(tells, "{text}");
            assert_eq!(neutral::own_everywhere(&stored, &here), text.as_bytes());
        }
        let (_, tells) = messages(br#"{"message":"x","file_name":"/t/out/x.rs"}"#, &here).unwrap();
        assert!(tells);
        assert_eq!(messages(b"/wafcc-base-folder-00/x", &here), None);
    }
}
