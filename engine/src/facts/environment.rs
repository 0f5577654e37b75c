//! A command's variables, to be looked up by name.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use super::exception::is_asked_by_libc;
use crate::bytes::digest::Digest;
use crate::wire::Strings;

/// Values that a command gets from its client besides its variables. Their names begin with an equals sign, so no variable
/// can have them. They are made only when they are needed, which is seldom.
#[derive(Clone)]
pub struct Circumstances(Arc<dyn Fn() -> Vec<(&'static str, String)> + Send + Sync>);

impl Circumstances {
    pub fn new(tell: impl Fn() -> Vec<(&'static str, String)> + Send + Sync + 'static) -> Circumstances {
        Circumstances(Arc::new(tell))
    }
}

impl Default for Circumstances {
    fn default() -> Circumstances {
        Circumstances::new(Vec::new)
    }
}

impl fmt::Debug for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Circumstances")
    }
}

/// One copy of all variables, because it is made for each command, and only a few of its variables are read.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    text: Vec<u8>,
    /// Sorted by name. If a name is there twice, the first one counts, as for `getenv`.
    variables: Vec<Variable>,
    circumstances: Circumstances,
    told: OnceCell<Vec<(&'static str, String)>>,
}

/// The place of one variable in the text.
#[derive(Debug, Clone, Copy)]
struct Variable {
    start: usize,
    equals: usize,
    end: usize,
}

/// Variables that mean nothing to any program: where its shell was, and how many commands may run beside it. The last ones
/// are for us.
pub const SILENT: [&[u8]; 9] = [
    b"_",
    b"SHLVL",
    b"OLDPWD",
    b"MAKEFLAGS",
    b"MFLAGS",
    b"GNUMAKEFLAGS",
    b"CARGO_MAKEFLAGS",
    b"MAKELEVEL",
    b"NINJA_STATUS",
];

/// Facts have the terminal under this name among the variables. No variable can have it.
pub const TERMINAL: &[u8] = b"=terminal";
/// The same for the limits of the client, which count for commands that fail.
pub const CLIENT_LIMITS: &str = "=limits of the client";
/// The same for standard input.
pub const INPUT: &[u8] = b"=input";
/// The same for the base folders.
pub const BASES: &[u8] = b"=bases";
/// The same for the known folders, for a command whose key does not have all that its line says of them.
pub const CHECKOUT: &[u8] = b"=checkout";
/// The same for the digest of what the preprocessor leaves of a source.
pub const TEXT: &[u8] = b"=text";
/// The same for a command whose result must not depend on the time or on random numbers. No environment has a value for it, so an
/// entry with such a fact is no hit: it waits for a second run, or that has made something else.
pub const PROOF: &[u8] = b"=proof";
pub const IN_DOUBT: &[u8] = b"in doubt";
pub const REFUTED: &[u8] = b"refuted";

/// The values that circumstances have. They are asked for nothing else, since that takes time.
const OF_PROCESS: [&[u8]; 8] = [
    b"=umask",
    b"=limits",
    CLIENT_LIMITS.as_bytes(),
    b"=processors",
    b"=signals",
    b"=personality",
    b"=host",
    b"=user",
];

pub const OURS: [&[u8]; 2] = [b"WAFCC_", b"WAFD_"];

impl Environment {
    pub fn of(entries: &Strings) -> Environment {
        let text = entries.bytes().to_vec();
        let mut start = 0;
        let places = entries.iter().filter_map(|entry| {
            let from = start;
            start += entry.len() + 1;
            let equals = from + entry.iter().position(|b| *b == b'=')?;
            let end = from + entry.len();
            Some(Variable {
                start: from,
                equals,
                end,
            })
        });
        let mut variables: Vec<_> = places.collect();
        variables.sort_by(|a, b| a.name(&text).cmp(b.name(&text)));
        variables.dedup_by(|later, first| later.name(&text) == first.name(&text));
        Environment {
            text,
            variables,
            ..Environment::default()
        }
    }

    pub fn with_circumstances(mut self, circumstances: &Circumstances) -> Environment {
        self.circumstances = circumstances.clone();
        self.told = OnceCell::new();
        self
    }

    fn circumstances(&self) -> &[(&'static str, String)] {
        self.told.get_or_init(|| (self.circumstances.0)())
    }

    /// The same with another value that can be looked up.
    pub fn with(mut self, name: &[u8], value: Option<Vec<u8>>) -> Environment {
        let Some(value) = value else { return self };
        let start = self.text.len();
        self.text.extend_from_slice(name);
        let equals = self.text.len();
        self.text.push(b'=');
        self.text.extend_from_slice(&value);
        let end = self.text.len();
        let at = self.variables.partition_point(|known| known.name(&self.text) < name);
        self.variables.insert(at, Variable { start, equals, end });
        self
    }

    /// The same with another value of a variable.
    pub fn replacing(mut self, name: &[u8], value: &[u8]) -> Environment {
        self.variables.retain(|known| known.name(&self.text) != name);
        self.with(name, Some(value.to_vec()))
    }

    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self
            .variables
            .binary_search_by(|known| known.name(&self.text).cmp(name));
        match at {
            Ok(at) => Some(self.variables[at].value(&self.text)),
            Err(_) if OF_PROCESS.contains(&name) => {
                let mut all = self.circumstances().iter();
                all.find(|(known, _)| known.as_bytes() == name)
                    .map(|(_, value)| value.as_bytes())
            }
            Err(_) => None,
        }
    }

    /// The variables that libc reads internally and that are hardly ever set, as one value. `None` if none of them is set.
    pub fn for_libc(&self) -> Option<Vec<u8>> {
        let all = self
            .variables
            .iter()
            .filter(|found| is_asked_by_libc(found.name(&self.text)));
        let texts: Vec<_> = all.map(|found| &self.text[found.start..found.end]).collect();
        (!texts.is_empty()).then(|| texts.join(&b' '))
    }

    /// All variables.
    pub fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.variables.iter();
        all.map(|found| (found.name(&self.text), found.value(&self.text)))
    }

    /// All variables that a program may have used, without `PWD` if it only names the folder.
    pub fn telling<'a>(&'a self, folder: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        // The names of bases are facts only where they show, and these limits only where a command fails.
        let is_ours = |name: &[u8]| name == BASES || name == CHECKOUT || name == CLIENT_LIMITS.as_bytes();
        let tells = move |(name, value): &(&[u8], &[u8])| {
            !(is_silent(name) || is_ours(name) || *name == b"PWD" && super::path::trimmed(value) == folder)
        };
        let circumstances = self.circumstances().iter();
        self.all()
            .chain(circumstances.map(|(name, value)| (name.as_bytes(), value.as_bytes())))
            .filter(tells)
    }

    /// The digest of the names of all these variables.
    pub fn names(&self, folder: &[u8]) -> Digest {
        let names: Vec<_> = self.telling(folder).map(|(name, _)| name).collect();
        Digest::of(&names.join(&0))
    }
}

pub fn is_silent(name: &[u8]) -> bool {
    SILENT.contains(&name) || OURS.iter().any(|ours| name.starts_with(ours))
}

impl Variable {
    fn name(self, text: &[u8]) -> &[u8] {
        &text[self.start..self.equals]
    }

    fn value(self, text: &[u8]) -> &[u8] {
        &text[self.equals + 1..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[&str]) -> Environment {
        Environment::of(&Strings::from_iter(entries))
    }

    #[test]
    fn a_variable_is_found_by_its_name_and_the_first_of_two_counts() {
        let found = environment(&["B=2", "A=1=x", "B=3", "odd"]);
        assert_eq!(found.value(b"A"), Some(&b"1=x"[..]));
        assert_eq!(found.value(b"B"), Some(&b"2"[..]));
        assert_eq!(found.value(b"odd"), None);
    }

    #[test]
    fn variables_of_libc_are_one_value() {
        assert_eq!(environment(&["A=1", "LD_PRELOAD=x"]).for_libc(), None);
        let found = environment(&["POSIXLY_CORRECT=", "LD_BIND_NOW=1", "B=2"]).for_libc();
        assert_eq!(found, Some(b"LD_BIND_NOW=1 POSIXLY_CORRECT=".to_vec()));
    }

    #[test]
    fn an_added_variable_is_found() {
        let found = environment(&["B=2", "D=4"]).with(b"C", Some(b"3".to_vec()));
        assert_eq!(found.value(b"C"), Some(&b"3"[..]));
        assert_eq!(found.clone().with(b"A", None).value(b"D"), Some(&b"4"[..]));
        let other = found.replacing(b"C", b"5");
        assert_eq!(other.value(b"C"), Some(&b"5"[..]));
        assert_eq!(other.all().count(), 3);
    }

    #[test]
    fn the_shells_folder_and_makes_job_options_do_not_count() {
        let one = environment(&["A=1", "_=x", "SHLVL=1", "MAKEFLAGS=-j4", "PWD=/w"]);
        let other = environment(&["A=2", "SHLVL=7"]);
        assert_eq!(one.names(b"/w"), other.names(b"/w"));
        assert_ne!(one.names(b"/v"), other.names(b"/v"));
    }
}
