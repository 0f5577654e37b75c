//! Tells debuggers where the sources of a checkout are, when its results name them relative to the checkout.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cache::checkout::{replacements, BUILD_REPLACEMENT, REPLACEMENT};
use crate::files::{checkout, regular};
use crate::report::print;
use crate::settings::settings_file;
use crate::settings::{Key, Settings};

/// Before each line of ours.
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

    /// The lines for names in results, and the folders that they stand for. Both debuggers split a line at blanks, unless they
    /// are in quotes.
    fn lines(self, folders: &[(String, String)]) -> Vec<String> {
        let quote = |folder: &str| folder.replace('\\', r"\\").replace('"', "\\\"");
        let pairs = folders
            .iter()
            .map(|(name, folder)| format!("{name} \"{}\"", quote(folder)));
        match self {
            Debugger::Gdb => pairs.map(|pair| format!("set substitute-path {pair}")).collect(),
            Debugger::Lldb => {
                let pairs: Vec<_> = pairs.collect();
                vec![format!("settings set target.source-map {}", pairs.join(" "))]
            }
        }
    }
}

/// Writes the lines of one debugger into its file, or prints the lines of both.
pub fn tell(settings: &Settings, file: Option<OsString>) -> Result<(), String> {
    let here = env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
    let folders = find_folders(settings, &here)?;
    let writable = |(name, folder): (String, PathBuf)| Ok((name, writable(&folder)?.to_owned()));
    let folders: Vec<_> = folders.into_iter().map(writable).collect::<Result<_, String>>()?;
    let Some(file) = file.map(PathBuf::from) else {
        let lines = [Debugger::Gdb, Debugger::Lldb].map(|debugger| debugger.lines(&folders));
        return print(lines.concat().join("\n") + "\n");
    };
    let lines = Debugger::of(&file)?.lines(&folders);
    let text = settings_file::read(&file)?.unwrap_or_default();
    regular::rewrite(&file, &change(&text, &lines)).map_err(|error| format!("write {}: {error}", file.display()))
}

/// The folders that prefix maps replace here, and what results have in their place.
fn find_folders(settings: &Settings, here: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let bases = settings.folders(Key::BaseDir);
    let is_searched = bases.is_empty() || settings.is_on(Key::ShareCheckouts);
    let named = |name: &str| {
        let name = name.to_owned();
        move |folder| (name, folder)
    };
    let checkout = is_searched.then(|| checkout::find(here)).flatten();
    let build = (is_searched && checkout.is_none()).then(|| checkout::find_build(here));
    let mut found: Vec<_> = checkout.map(named(REPLACEMENT)).into_iter().collect();
    for (folder, name) in bases.into_iter().zip(replacements(settings.is_on(Key::ShareCheckouts))) {
        if found.iter().all(|(_, known)| *known != folder) {
            found.push((name, folder));
        }
    }
    found.extend(build.flatten().map(named(BUILD_REPLACEMENT)));
    match found.is_empty() {
        false => Ok(found),
        true => Err(
            "this folder is in no checkout: there is no version control, and no build file; set base_dir".to_owned(),
        ),
    }
}

/// The folder's name. With a line break in it, the rest of the name would be a command to the debugger.
fn writable(folder: &Path) -> Result<&str, String> {
    let name = folder.to_str().filter(|name| !name.contains(char::is_control));
    name.ok_or_else(|| format!("{folder:?}: no debugger can be told a folder of this name: rename it"))
}

/// The text with the lines at its end, in place of those that were written before.
fn change(text: &str, new: &[String]) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(old) = lines.next() {
        match old == ABOUT {
            true => drop(lines.next()),
            false => out.extend([old, "\n"]),
        }
    }
    new.iter().for_each(|line| out.extend([ABOUT, "\n", line, "\n"]));
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
        let folders = [(".", name), (".build", "/b")].map(|(name, folder)| (name.to_owned(), folder.to_owned()));
        assert_eq!(
            Debugger::Gdb.lines(&folders),
            [
                r#"set substitute-path . "/a b/\"c\\""#,
                r#"set substitute-path .build "/b""#
            ]
        );
        assert_eq!(
            Debugger::Lldb.lines(&folders),
            [r#"settings set target.source-map . "/a b/\"c\\" .build "/b""#]
        );
        for name in ["/a\nshell date", "/a\u{1b}[2J"] {
            assert!(writable(Path::new(name)).is_err(), "{name:?}");
        }
    }

    #[test]
    fn other_lines_stay_and_an_earlier_one_of_ours_goes() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let once = change("set print pretty\nlast", &lines(&["one", "two"]));
        assert_eq!(once, format!("set print pretty\nlast\n{ABOUT}\none\n{ABOUT}\ntwo\n"));
        assert_eq!(
            change(&once, &lines(&["three"])),
            format!("set print pretty\nlast\n{ABOUT}\nthree\n")
        );
        assert_eq!(change("", &lines(&["one"])), format!("{ABOUT}\none\n"));
    }
}
