//! Tells debuggers where the sources of a checkout are, when its results name them relative to the checkout.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::files::{checkout, regular};
use crate::report::print;
use crate::settings::settings_file;
use crate::settings::{Key, Settings};

const ABOUT: &str = "# by wafcc --debugger-settings: sources that results name relative to their checkout";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Debugger {
    Gdb,
    Lldb,
}

impl Debugger {
    /// A file is for the debugger whose name is in the file's name.
    fn of(file: &Path) -> Result<Debugger, String> {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        match (name.contains("lldb"), name.contains("gdb")) {
            (true, false) => Ok(Debugger::Lldb),
            (false, true) => Ok(Debugger::Gdb),
            _ => Err(format!(
                "{}: its name does not say for which debugger it is: name it .gdbinit or .lldbinit",
                file.display()
            )),
        }
    }

    /// Both split the line at blanks, unless they are in quotes.
    fn line(self, folder: &str) -> String {
        let folder = folder.replace('\\', r"\\").replace('"', "\\\"");
        match self {
            Debugger::Gdb => format!("set substitute-path . \"{folder}\""),
            Debugger::Lldb => format!("settings set target.source-map . \"{folder}\""),
        }
    }
}

/// Writes the line of one debugger into its file, or prints the lines of both.
pub fn tell(settings: &Settings, file: Option<OsString>) -> Result<(), String> {
    let folder = find_folder(settings)?;
    let folder = writable(&folder)?;
    let Some(file) = file.map(PathBuf::from) else {
        let lines = [Debugger::Gdb, Debugger::Lldb].map(|debugger| debugger.line(folder) + "\n");
        return print(lines.concat());
    };
    let line = Debugger::of(&file)?.line(folder);
    let text = settings_file::read(&file)?.unwrap_or_default();
    regular::rewrite(&file, &change(&text, &line)).map_err(|error| format!("write {}: {error}", file.display()))
}

/// The folder that prefix maps replace here.
fn find_folder(settings: &Settings) -> Result<PathBuf, String> {
    if let Some(base) = settings.folder(Key::BaseDir).filter(|base| base.is_absolute()) {
        return Ok(base);
    }
    let here = env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
    let found = checkout::find(&here);
    found.ok_or_else(|| {
        "this folder is in no checkout: there is no version control, and no build file; set base_dir".to_owned()
    })
}

/// The folder's name. With a line break in it, the rest of the name would be a command to the debugger.
fn writable(folder: &Path) -> Result<&str, String> {
    let name = folder.to_str().filter(|name| !name.contains(char::is_control));
    name.ok_or_else(|| format!("{folder:?}: no debugger can be told a folder of this name: rename it"))
}

/// The text with the line at its end, in place of a line that was written before.
fn change(text: &str, line: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(old) = lines.next() {
        match old == ABOUT {
            true => drop(lines.next()),
            false => out.extend([old, "\n"]),
        }
    }
    out.extend([ABOUT, "\n", line, "\n"]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_says_for_which_debugger_it_is() {
        assert_eq!(Debugger::of(Path::new("/home/me/.gdbinit")), Ok(Debugger::Gdb));
        assert_eq!(Debugger::of(Path::new("a b/.lldbinit-code")), Ok(Debugger::Lldb));
        for name in ["", "/", "gdb/init", ".profile"] {
            assert!(Debugger::of(Path::new(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_name_is_one_word_of_one_line() {
        let name = writable(Path::new("/a b/\"c\\")).unwrap();
        assert_eq!(Debugger::Gdb.line(name), r#"set substitute-path . "/a b/\"c\\""#);
        assert_eq!(
            Debugger::Lldb.line(name),
            r#"settings set target.source-map . "/a b/\"c\\""#
        );
        for name in ["/a\nshell date", "/a\u{1b}[2J"] {
            assert!(writable(Path::new(name)).is_err(), "{name:?}");
        }
    }

    #[test]
    fn other_lines_stay_and_an_earlier_one_of_ours_goes() {
        let once = change("set print pretty\nlast", "one");
        assert_eq!(once, format!("set print pretty\nlast\n{ABOUT}\none\n"));
        assert_eq!(change(&once, "two"), format!("set print pretty\nlast\n{ABOUT}\ntwo\n"));
        assert_eq!(change("", "one"), format!("{ABOUT}\none\n"));
    }
}
