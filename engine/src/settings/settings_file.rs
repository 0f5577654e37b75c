//! A file of settings: lines `name = value`, empty lines, and comments that begin with `#`.
//!
//! Does not know which settings exist. Values are literal: no quotes, no variables.

use std::io::Read;
use std::path::Path;

use crate::files::regular;

/// No file of settings is that large. A device or a wrong file is not read to its end.
const CAP: u64 = 1 << 20;

/// The whole text. `None` if there is no file.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    let mut text = String::new();
    let file = match regular::open_named(path) {
        Ok(file) => file,
        Err(error) if regular::is_absent(&error) => return Ok(None),
        Err(error) => return Err(format!("open {}: {error}", path.display())),
    };
    match file.take(CAP).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(error) => Err(format!("read {}: {error}", path.display())),
    }
}

type Line<'a> = Result<(&'a str, &'a str), String>;

/// Names and values, with their line numbers.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, Line<'_>)> {
    let numbered = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let meant = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    meant.map(|(number, line)| {
        let split = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        (number, split.ok_or_else(|| format!("{line:?} is not NAME = VALUE")))
    })
}

/// The text with one setting changed in its place, or added at the end. All else stays.
fn change(text: &str, name: &str, value: &str) -> String {
    let is_it = |line: &str| matches!(lines(line).next(), Some((_, Ok((n, _)))) if n == name);
    let mut out = String::new();
    let mut is_changed = false;
    for line in text.lines() {
        if !is_it(line) {
            out.push_str(line);
            out.push('\n');
        } else if !std::mem::replace(&mut is_changed, true) {
            out.push_str(&format!("{name} = {value}\n"));
        }
    }
    if !is_changed {
        out.push_str(&format!("{name} = {value}\n"));
    }
    out
}

/// Changes one setting in a file. Other programs see the old or the new file.
pub fn write(path: &Path, name: &str, value: &str) -> Result<(), String> {
    let text = read(path)?.unwrap_or_default();
    regular::rewrite(path, &change(&text, name, value)).map_err(|e| format!("write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_and_values() {
        let found: Vec<_> = lines("# about\n\n a = b = c \nd=\nnothing\n").collect();
        assert_eq!(found[0], (3, Ok(("a", "b = c"))));
        assert_eq!(found[1], (4, Ok(("d", ""))));
        assert_eq!(found[2], (5, Err("\"nothing\" is not NAME = VALUE".to_owned())));
    }

    #[test]
    fn a_change_leaves_all_else_as_it_was() {
        let text = "# mine\na = 1\n#a = 2\nb = 3\na = 4";
        assert_eq!(change(text, "a", "5"), "# mine\na = 5\n#a = 2\nb = 3\n");
        assert_eq!(change(text, "c", "6"), "# mine\na = 1\n#a = 2\nb = 3\na = 4\nc = 6\n");
    }
}
