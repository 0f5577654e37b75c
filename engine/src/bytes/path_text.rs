//! Paths as text: in JSON, in messages, and where people read them. Paths are bytes, and need not be UTF-8.
//!
//! A UTF-8 path is its own text. In other paths, each byte that is not part of a character is written as `\xHH`, and so is
//! each backslash. So two paths have the same text only if one of them contains the other's escapes literally.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The text of a path, or of any other bytes.
pub fn show(bytes: impl AsRef<OsStr>) -> String {
    let bytes = bytes.as_ref().as_bytes();
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5c"));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The bytes in hexadecimal, if the text alone does not determine them.
pub fn exact(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    path.to_str().is_none().then(hex)
}

/// Reads what `exact` has written.
pub fn read_exact(hex: &str) -> Option<PathBuf> {
    let digits = hex.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    let is_whole = digits.len() % 2 == 0 && digits.iter().all(u8::is_ascii_hexdigit);
    is_whole.then_some(bytes?).map(|bytes| OsString::from_vec(bytes).into())
}

/// Whether an absolute folder has a name without special meaning for shells, makefiles and prefix maps of compilers. Makefiles
/// quote blanks, and the quotes are known.
pub fn is_plain(folder: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@ ".contains(byte);
    let is_folder = folder.len() > 1 && folder.starts_with(b"/") && !folder.ends_with(b"/");
    is_folder && folder.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> PathBuf {
        OsString::from_vec(bytes.to_vec()).into()
    }

    #[test]
    fn a_path_that_is_text_is_its_own() {
        for text in ["/a b/ä\\x41", "", "/\u{1b}"] {
            assert_eq!(show(text), text);
            assert_eq!(exact(Path::new(text)), None);
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_have_distinct_texts() {
        assert_eq!(show(path(b"/a\xff\xfeb")), "/a\\xff\\xfeb");
        assert_ne!(show(path(b"/a\xff\\xfe")), show(path(b"/a\xff\xfe")));
        assert_eq!(show(path("/ä\\".as_bytes())), "/ä\\");
    }

    #[test]
    fn the_bytes_can_be_read_back() {
        let odd = path(b"/a\xff\x00\\b");
        assert_eq!(read_exact(&exact(&odd).unwrap()), Some(odd));
        for wrong in ["f", "zz", "+f", "fff"] {
            assert_eq!(read_exact(wrong), None, "{wrong}");
        }
    }
}
