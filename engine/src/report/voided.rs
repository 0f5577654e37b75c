//! Folders of outputs of which nothing is cached, all for one reason. A target's outputs lie in one folder with most build
//! systems, so this tells what keeps a whole target out of the cache.
//!
//! Pure.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::explanation::Explanation;
use super::statistics::printable;
use crate::wire::{Known, UncachedReason, UnstoredReason};

/// Fewer commands are no target.
const LEAST: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voided {
    pub folder: String,
    pub commands: u64,
    pub why: String,
    pub remedy: String,
}

/// Those with the most commands come first.
pub fn find<'a>(explanations: impl Iterator<Item = &'a Explanation>) -> Vec<Voided> {
    let mut folders: BTreeMap<&str, Option<Group>> = BTreeMap::new();
    for explanation in explanations {
        let folder = Path::new(&explanation.output).parent().and_then(Path::to_str);
        let (Some(folder), Some(outcome)) = (folder, Outcome::of(explanation)) else {
            continue;
        };
        let group = match outcome {
            Outcome::Cached => None,
            Outcome::Not(why) => Some(Group::of(why)),
        };
        let found = folders.entry(folder).or_insert_with(|| group.clone());
        *found = found
            .take()
            .filter(|found| group.is_some_and(|group| group.kind == found.kind));
        if let Some(found) = found {
            found.keys.insert(&explanation.key);
        }
    }
    let groups = folders.into_iter().filter_map(|(folder, group)| Some((folder, group?)));
    let mut all: Vec<_> = groups
        .filter(|(_, group)| group.keys.len() >= LEAST)
        .map(|(folder, group)| Voided {
            folder: folder.to_owned(),
            commands: group.keys.len() as u64,
            why: group.words.to_owned(),
            remedy: remedy(group.kind).to_owned(),
        })
        .collect();
    all.sort_by_key(|voided| std::cmp::Reverse(voided.commands));
    all
}

/// One line for all of them: the first one, and how many more there are.
pub fn show(all: &[Voided]) -> Option<String> {
    let (first, more) = all.split_first()?;
    let Voided {
        folder,
        commands,
        why,
        remedy,
    } = first;
    let more = match more.len() {
        0 => String::new(),
        1 => ", and 1 more folder".to_owned(),
        n => format!(", and {n} more folders"),
    };
    Some(printable(&format!(
        "{folder} ({commands} commands{more}): {why}; {remedy}"
    )))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Uncached(UncachedReason),
    Unstored(UnstoredReason),
}

struct Why<'a> {
    kind: Kind,
    words: &'a str,
}

#[derive(Clone)]
struct Group<'a> {
    kind: Kind,
    words: &'a str,
    keys: HashSet<&'a str>,
}

impl<'a> Group<'a> {
    fn of(why: Why<'a>) -> Group<'a> {
        let (kind, words, keys) = (why.kind, why.words, HashSet::new());
        Group { kind, words, keys }
    }
}

enum Outcome<'a> {
    Cached,
    Not(Why<'a>),
}

impl Outcome<'_> {
    /// `None` for a request that says nothing about its target.
    fn of(explanation: &Explanation) -> Option<Outcome<'_>> {
        use UncachedReason as U;
        use UnstoredReason as S;
        match (explanation.known, &explanation.unstored) {
            (Known::Uncached, _) => {
                let words = explanation.why.first()?;
                let is_meant = |reason: &&U| words.starts_with(reason.sentence());
                let kind = *U::ALL.iter().find(is_meant)?;
                let is_telling = matches!(
                    kind,
                    U::Modules
                        | U::TimesOfFiles
                        | U::StandardInput
                        | U::Response
                        | U::Option
                        | U::Variable
                        | U::Wrapped
                );
                let kind = Kind::Uncached(kind);
                is_telling.then_some(Outcome::Not(Why { kind, words }))
            }
            (Known::Miss, Some(unstored)) => {
                let is_passing = matches!(
                    unstored.why,
                    S::Running
                        | S::EngineEnded
                        | S::CompilerFailed
                        | S::CommandFailed
                        | S::Interrupted
                        | S::TookTooLong
                        | S::TooManyAtOnce
                        | S::InputsChanged
                        | S::StoreFailed
                        | S::SilentStore
                );
                let (kind, words) = (Kind::Unstored(unstored.why), unstored.words.as_str());
                (!is_passing).then_some(Outcome::Not(Why { kind, words }))
            }
            (Known::Hit | Known::Miss, _) => Some(Outcome::Cached),
        }
    }
}

fn remedy(kind: Kind) -> &'static str {
    use UncachedReason as U;
    use UnstoredReason as S;
    match kind {
        Kind::Unstored(S::ReadsClock) => "set SOURCE_DATE_EPOCH, or keep __DATE__ and __TIME__ out of shared headers",
        Kind::Unstored(S::ReadsRandom) => "give the program a fixed seed, if it has an option for that",
        Kind::Unstored(S::ReadsInput) | Kind::Uncached(U::StandardInput) => {
            "give the commands /dev/null as their input"
        }
        Kind::Unstored(S::DependsOnTooMuch) => "precompile fewer headers, or do without the precompiled header",
        Kind::Unstored(S::NotObserved | S::CannotBeObserved) => {
            "use a compiler, plugin or wrapper that is not linked statically"
        }
        Kind::Unstored(S::Unforetold) => "leave out the option or plugin that writes this file",
        Kind::Uncached(U::Option) => "leave this option out, or use wafcc run --",
        Kind::Uncached(U::Variable) => "unset this variable",
        Kind::Uncached(U::Modules) => "build without modules, or use wafcc run --",
        Kind::Uncached(U::Wrapped) => "put only one cache before the compiler",
        Kind::Uncached(_) | Kind::Unstored(_) => "wafcc --explain OUTPUT says more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Unkept;

    fn some(folder: &str, number: usize, known: Known, why: &str, unstored: Option<UnstoredReason>) -> Explanation {
        Explanation {
            output: format!("{folder}/{number}.o"),
            known,
            why: vec![why.to_owned()],
            unstored: unstored.map(Unkept::from),
            key: format!("{folder}{number}"),
            ..Explanation::default()
        }
    }

    fn clock(folder: &str, number: usize) -> Explanation {
        some(folder, number, Known::Miss, "", Some(UnstoredReason::ReadsClock))
    }

    #[test]
    fn a_folder_of_which_nothing_is_cached_is_named_with_its_remedy() {
        let mut all: Vec<_> = (0..7).map(|number| clock("/p/app", number)).collect();
        all.extend((0..5).map(|number| some("/p/lib", number, Known::Uncached, "uses modules", None)));
        // A command that failed, or links, says nothing of the others.
        all.push(some("/p/app", 8, Known::Miss, "", Some(UnstoredReason::CompilerFailed)));
        all.push(some("/p/app", 9, Known::Uncached, "called for linking", None));
        let found = find(all.iter());
        let told: Vec<_> = found.iter().map(|one| (one.folder.as_str(), one.commands)).collect();
        assert_eq!(told, [("/p/app", 7), ("/p/lib", 5)]);
        let line = show(&found).unwrap();
        let expected = "/p/app (7 commands, and 1 more folder): reads the clock; set SOURCE_DATE_EPOCH,";
        assert!(line.starts_with(expected), "{line}");
        assert_eq!(show(&[]), None);
    }

    #[test]
    fn a_folder_with_a_hit_or_with_two_reasons_is_not_named() {
        for other in [
            some("/p", 9, Known::Hit, "", None),
            some("/p", 9, Known::Miss, "", None),
            some("/p", 9, Known::Miss, "", Some(UnstoredReason::ReadsRandom)),
        ] {
            let mut all: Vec<_> = (0..8).map(|number| clock("/p", number)).collect();
            all.insert(3, other);
            assert_eq!(find(all.iter()), []);
        }
        let few: Vec<_> = (0..4).map(|number| clock("/p", number)).collect();
        assert_eq!(find(few.iter()), []);
    }
}
