//! A command's variables, to be asked for by name.

use super::digest::Digest;
use crate::wire::Strings;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Sorted by name; of a name that is there twice the first counts, as for `getenv`.
    variables: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What says nothing to a program of any kind: where its shell was, and how many others may run beside it; and these are
/// said to us.
const SILENT: [&[u8]; 8] = [
    b"_",
    b"SHLVL",
    b"OLDPWD",
    b"MAKEFLAGS",
    b"MFLAGS",
    b"GNUMAKEFLAGS",
    b"MAKELEVEL",
    b"NINJA_STATUS",
];

const OURS: [&[u8]; 2] = [b"WAFCC_", b"WAFD_"];

impl Environment {
    pub fn of(entries: &Strings) -> Environment {
        let mut variables: Vec<_> = entries.iter().filter_map(pair).collect();
        variables.sort_by(|a, b| a.0.cmp(&b.0));
        variables.dedup_by(|later, first| later.0 == first.0);
        Environment { variables }
    }

    /// The same with something more that can be asked for.
    pub fn with(mut self, name: &[u8], value: Option<Vec<u8>>) -> Environment {
        let added = value.map(|value| (name.to_vec(), value));
        self.variables.extend(added);
        self.variables.sort_by(|a, b| a.0.cmp(&b.0));
        self
    }

    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.variables.binary_search_by(|(known, _)| known.as_slice().cmp(name));
        at.ok().map(|at| self.variables[at].1.as_slice())
    }

    /// All that a program may have seen: not `PWD` where it says only what the folder says.
    pub fn telling<'a>(&'a self, folder: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let tells = move |(name, value): &(&[u8], &[u8])| {
            !(is_silent(name) || *name == b"PWD" && super::path::trimmed(value) == folder)
        };
        let all = self.variables.iter();
        all.map(|(name, value)| (name.as_slice(), value.as_slice()))
            .filter(tells)
    }

    /// Of the names of all that is telling.
    pub fn names(&self, folder: &[u8]) -> Digest {
        let names: Vec<_> = self.telling(folder).map(|(name, _)| name).collect();
        Digest::of(&names.join(&0))
    }
}

pub fn is_silent(name: &[u8]) -> bool {
    SILENT.contains(&name) || OURS.iter().any(|ours| name.starts_with(ours))
}

fn pair(entry: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = entry.iter().position(|b| *b == b'=')?;
    Some((entry[..at].to_vec(), entry[at + 1..].to_vec()))
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
    fn where_the_shell_was_and_what_make_says_of_jobs_are_nobodys_business() {
        let one = environment(&["A=1", "_=x", "SHLVL=1", "MAKEFLAGS=-j4", "PWD=/w"]);
        let other = environment(&["A=2", "SHLVL=7"]);
        assert_eq!(one.names(b"/w"), other.names(b"/w"));
        assert_ne!(one.names(b"/v"), other.names(b"/v"));
    }
}
