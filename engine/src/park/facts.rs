//! The conditions that a command must meet to run in a parked program.
//!
//! Pure. They are about the variables that the program read before its main, those that its loader and allocator read, and
//! the limit of its stack, on which the kernel's layout of its memory depends.

use crate::wire::Strings;

/// Variables that change which program is started.
const FOREIGN: [&[u8]; 5] = [b"LD_PRELOAD=", b"LD_AUDIT=", b"LD_DEBUG=", b"LD_PROFILE=", b"WAFPARK="];
const HARMLESS: [&[u8]; 4] = [b"PATH", b"HOME", b"LANG", b"LC_ALL"];
const LOADERS: [&[u8]; 3] = [b"LD_", b"GLIBC_TUNABLES=", b"MALLOC_"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The variables that were read, with their values.
    read: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    loader: Vec<Vec<u8>>,
    stack: [u64; 2],
}

impl Facts {
    pub fn of(names: &[Vec<u8>], env: &Strings, stack: [u64; 2]) -> Facts {
        Facts {
            read: names
                .iter()
                .map(|name| (name.clone(), value(env.iter(), name).map(<[u8]>::to_vec)))
                .collect(),
            loader: loader(env.iter()),
            stack,
        }
    }

    /// Whether a command with this environment and stack limit could have been started like this program.
    pub fn hold(&self, env: &Strings, stack: [u64; 2]) -> bool {
        self.stack == stack
            && self.loader == loader(env.iter())
            && self
                .read
                .iter()
                .all(|(name, was)| value(env.iter(), name) == was.as_deref())
    }

    /// The part of an environment with which a program can be tried: the variables that it read and that its loader needs,
    /// without those that would make a trial write to the client's files.
    pub fn for_trial(&self, env: &Strings, folder: &[u8]) -> Strings {
        let is_kept = |entry: &&[u8]| {
            let name = entry.split(|b| *b == b'=').next().unwrap_or_default();
            let is_read = self.read.iter().any(|(read, _)| read == name);
            is_read || HARMLESS.contains(&name) || LOADERS.iter().any(|loader| entry.starts_with(loader))
        };
        let temporary = [b"TMPDIR=", folder].concat();
        Strings::from_iter(env.iter().filter(is_kept).chain([temporary.as_slice()]))
    }

    /// The variables that were read, for people.
    pub fn names(&self) -> Vec<String> {
        let names = self.read.iter().map(|(name, _)| name);
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }
}

/// It wants a library preloaded, or other unusual actions of its loader.
pub fn is_foreign<'a>(mut env: impl Iterator<Item = &'a [u8]>) -> bool {
    env.any(|entry| FOREIGN.iter().any(|name| entry.starts_with(name)))
}

/// Its loader searches libraries relative to the command's folder, where a parked program has not searched.
pub fn looks_in_folder<'a>(env: impl Iterator<Item = &'a [u8]>) -> bool {
    let lists = env.filter_map(|entry| entry.strip_prefix(b"LD_LIBRARY_PATH="));
    let mut folders = lists
        .filter(|list| !list.is_empty())
        .flat_map(|list| list.split(|b| matches!(b, b':' | b';')));
    folders.any(|folder| !matches!(folder.first(), Some(b'/' | b'$')))
}

fn value<'a>(mut env: impl Iterator<Item = &'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    env.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
}

fn loader<'a>(env: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let matters = |entry: &&[u8]| LOADERS.iter().any(|name| entry.starts_with(name));
    env.filter(matters).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: [u64; 2] = [8 << 20, u64::MAX];

    fn holds(env: &[&str]) -> bool {
        let names = [b"LANG".to_vec(), b"NOT_THERE".to_vec()];
        let was = Strings::from_iter(["LANG=C", "HOME=/a", "LD_LIBRARY_PATH=/l"]);
        let now = Strings::from_iter(env);
        Facts::of(&names, &was, STACK).hold(&now, STACK)
    }

    #[test]
    fn what_was_not_read_may_differ() {
        assert!(holds(&["HOME=/b", "LD_LIBRARY_PATH=/l", "LANG=C", "MORE=1"]));
    }

    #[test]
    fn what_was_read_must_be_the_same_and_what_was_missing_still_missing() {
        assert!(!holds(&["LANG=de", "LD_LIBRARY_PATH=/l"]));
        assert!(!holds(&["LD_LIBRARY_PATH=/l"]));
        assert!(!holds(&["LANG=C", "LD_LIBRARY_PATH=/l", "NOT_THERE="]));
    }

    #[test]
    fn the_loaders_variables_must_be_the_same() {
        assert!(!holds(&["LANG=C"]));
        assert!(!holds(&["LANG=C", "LD_LIBRARY_PATH=/l", "GLIBC_TUNABLES=x"]));
        assert!(!holds(&["LANG=C", "LD_LIBRARY_PATH=/l", "MALLOC_ARENA_MAX=1"]));
    }

    #[test]
    fn another_stack_is_another_program() {
        let env = Strings::from_iter(["A=1"]);
        assert!(!Facts::of(&[], &env, STACK).hold(&env, [64 << 20, u64::MAX]));
    }

    #[test]
    fn a_trial_has_what_was_read_and_nothing_that_names_files() {
        let env = Strings::from_iter([
            "PATH=/b",
            "SEEN=1",
            "DEPENDENCIES_OUTPUT=/x",
            "TMPDIR=/t",
            "LD_LIBRARY_PATH=/l",
        ]);
        let found = Facts::of(&[b"SEEN".to_vec()], &env, STACK).for_trial(&env, b"/trial");
        let wanted = Strings::from_iter(["PATH=/b", "SEEN=1", "LD_LIBRARY_PATH=/l", "TMPDIR=/trial"]);
        assert_eq!(found.bytes(), wanted.bytes());
    }

    #[test]
    fn folders_that_depend_on_the_commands_own_are_seen() {
        let looks = |value: &str| looks_in_folder(Strings::from_iter(["A=lib", value]).iter());
        for value in ["lib", "/a:lib", "/a:", ":/a", "/a::/b", "/a;lib", "."] {
            assert!(looks(&format!("LD_LIBRARY_PATH={value}")), "{value}");
        }
        for value in ["", "/a", "/a:/b", "$ORIGIN/../lib", "${ORIGIN}:/a"] {
            assert!(!looks(&format!("LD_LIBRARY_PATH={value}")), "{value}");
        }
    }

    #[test]
    fn a_library_that_is_to_be_loaded_is_seen() {
        assert!(is_foreign(Strings::from_iter(["A=1", "LD_PRELOAD=x.so"]).iter()));
        assert!(!is_foreign(Strings::from_iter(["LD_LIBRARY_PATH=/l"]).iter()));
    }
}
