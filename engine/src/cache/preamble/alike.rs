//! Which beginnings several sources have in common. One preamble may serve all of these.

use std::collections::HashMap;

use super::prefix;
use super::table::Group;
use crate::bytes::digest::Digest;

/// So many sources are compiled before a preamble is made for all that begin like them. Making and trying it takes about as
/// long as these compiles.
const ENOUGH: usize = 3;
/// Longer beginnings are compared by their first includes.
const MOST_ENDS: usize = 64;
/// If there are more beginnings, all are forgotten.
const MOST: usize = 20_000;

#[derive(Default)]
pub struct Alike {
    /// The first sources with each beginning.
    sources: HashMap<Group, Vec<Digest>>,
}

/// The groups to which a source belongs that begins with this text, each with the length of what its sources have in common.
/// The longest comes first.
pub fn groups(compile: Digest, text: &[u8]) -> impl Iterator<Item = (Group, usize)> + '_ {
    let mut ends = prefix::ends(text);
    ends.truncate(MOST_ENDS);
    ends.into_iter().rev().map(move |end| {
        let text = Digest::of(&text[..end]);
        (Group { compile, text }, end)
    })
}

impl Alike {
    /// Notes that a source was compiled. Returns the smallest of its groups that has enough sources, with the length of what
    /// these have in common.
    pub fn note(&mut self, compile: Digest, text: &[u8], source: Digest) -> Option<(Group, usize)> {
        if self.sources.len() > MOST {
            self.sources.clear();
        }
        let mut found = None;
        for (group, length) in groups(compile, text) {
            let sources = self.sources.entry(group).or_default();
            if sources.len() < ENOUGH && !sources.contains(&source) {
                sources.push(source);
            }
            if sources.len() >= ENOUGH && found.is_none() {
                found = Some((group, length));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_of_enough_sources_is_shared() {
        let mut alike = Alike::default();
        let compile = Digest::of(b"gcc -O2");
        let mut note = |compile: &Digest, text: &str, source: u8| {
            let found = alike.note(*compile, text.as_bytes(), Digest::of(&[source]));
            found.map(|(_, length)| text[..length].to_owned())
        };
        for source in 0..2 {
            let own = format!("#include <a>\n#include \"{source}\"\n");
            assert_eq!(note(&compile, &own, source), None);
        }
        assert_eq!(note(&compile, "#include <a>\n", 1), None, "one source counts once");
        assert_eq!(
            note(&Digest::of(b"gcc -O0"), "#include <a>\n", 2),
            None,
            "other options"
        );
        let both = "#include <a>\n#include <b>\n";
        for source in 2..4 {
            assert_eq!(note(&compile, both, source).as_deref(), Some("#include <a>\n"));
        }
        assert_eq!(note(&compile, both, 4).as_deref(), Some(both));
    }
}
