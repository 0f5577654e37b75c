//! The base folder's name in texts that a compiler writes: a token stands for it in what is stored.
//!
//! Pure. Only where a compiler writes names of files into a text: anything else that holds the name is not shared.

/// No path and no diagnostic holds it.
const TOKEN: &[u8] = b"\0wafcc base\0";

/// Whether a text has a name in it.
pub fn holds(text: &[u8], name: &[u8]) -> bool {
    find(text, name).is_some()
}

/// A text with a token in the name's place; `None` if it could not be told from the text later.
pub fn hide(text: &[u8], base: &[u8]) -> Option<Vec<u8>> {
    if holds(text, TOKEN) {
        return None;
    }
    Some(replace(text, base, TOKEN))
}

/// The text as a compiler with this base would have written it.
pub fn show(text: &[u8], base: &[u8]) -> Vec<u8> {
    replace(text, TOKEN, base)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len().max(1)).position(|part| part == wanted)
}

fn replace(mut text: &[u8], wanted: &[u8], with: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    while let Some(at) = find(text, wanted) {
        result.extend_from_slice(&text[..at]);
        result.extend_from_slice(with);
        text = &text[at + wanted.len()..];
    }
    result.extend_from_slice(text);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_with_another_name() {
        let hidden = hide(b"a.o: /one/a.c /one/b/c.h\n", b"/one").unwrap();
        assert!(!holds(&hidden, b"/one"));
        assert_eq!(show(&hidden, b"/other"), b"a.o: /other/a.c /other/b/c.h\n");
        assert_eq!(hide(b"", b"/one").unwrap(), b"");
        assert_eq!(show(b"plain", b"/one"), b"plain");
    }

    #[test]
    fn a_text_with_the_token_in_it_is_left_alone() {
        assert_eq!(hide(&hide(b"/one", b"/one").unwrap(), b"/one"), None);
    }
}
