//! What happened to the request for an output, and why. JSON on disk, between processes and for programs; text for
//! users.
//!
//! Pure. The engine decides which requests are remembered, and for how long.

use std::fmt::Write;

use serde_json::{json, Value};

use super::question::number;
use super::statistics::{date, printable};
use crate::wire::{Known, Unkept, UnstoredReason};

/// Further reasons are only counted.
pub const MOST_REASONS: usize = 10;
/// Limits for command lines that are shown in a list.
const ARGUMENTS: usize = 32;
const BYTES: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// An absolute path.
    pub output: String,
    /// Seconds since 1970.
    pub at: u64,
    pub known: Known,
    /// What has changed, or why the cache was not asked. The most important reason comes first.
    pub why: Vec<String>,
    /// The number of further reasons.
    pub more: u64,
    /// Why the result of a miss was not stored.
    pub unstored: Option<Unkept>,
    pub folder: String,
    /// The command line. Empty if it was too long to keep.
    pub argv: Vec<String>,
    /// The key of this command's entries.
    pub key: String,
}

impl Explanation {
    /// The result was not stored because an input had changed while the command ran, or just before.
    pub fn came_too_early(&self) -> bool {
        self.unstored.as_ref().is_some_and(Unkept::came_too_early)
    }

    pub fn json(&self) -> Value {
        let unstored = self.unstored.as_ref();
        json!({
            "output": self.output, "at": self.at, "known": self.known.name(), "why": self.why, "more": self.more,
            "not_stored": unstored.map(|unkept| &unkept.words), "not_stored_as": unstored.map(|unkept| unkept.why.name()),
            "came_too_early": self.came_too_early(), "folder": self.folder, "argv": self.argv, "key": self.key,
        })
    }

    /// The JSON for a list: with a short command line.
    pub fn brief(&self) -> Value {
        let begin = |text: &String| text.chars().take(BYTES).collect::<String>();
        let mut brief = self.json();
        brief["argv"] = self.argv.iter().take(ARGUMENTS).map(begin).collect();
        brief["why"] = self.why.iter().map(begin).collect();
        brief
    }

    pub fn from_json(value: &Value) -> Result<Explanation, String> {
        let text = |name: &str| {
            let text = value[name].as_str().map(str::to_owned);
            text.ok_or_else(|| format!("{name} is not a text"))
        };
        let texts = |name: &str| {
            let all = value[name].as_array().into_iter().flatten();
            all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Ok(Explanation {
            output: text("output")?,
            at: number(value, "at")?,
            known: Known::named(&text("known")?).ok_or("known is none of hit, miss and uncached")?,
            why: texts("why"),
            more: number(value, "more")?,
            unstored: match value["not_stored"].as_str() {
                None => None,
                // Earlier engines did not store this number. Such an explanation is dropped.
                Some(words) => {
                    let why = UnstoredReason::named(&text("not_stored_as")?);
                    Some(Unkept::new(why.ok_or("not_stored_as is no reason")?, words))
                }
            },
            folder: text("folder")?,
            argv: texts("argv"),
            key: text("key")?,
        })
    }

    /// One line, and one more for each further reason.
    pub fn show(&self) -> String {
        let mut text = format!("{}: {}", printable(&self.output), self.known.name());
        let mut why = self.why.iter().map(|why| printable(why));
        if let Some(first) = why.next() {
            let _ = write!(text, ": {first}");
        }
        if let Some(unstored) = &self.unstored {
            let _ = write!(text, "; not stored: {}", printable(&unstored.words));
        }
        text.push('\n');
        for why in why {
            let _ = writeln!(text, "  {why}");
        }
        if self.more > 0 {
            let _ = writeln!(text, "  and {} more", self.more);
        }
        text
    }

    /// The same with the time, for a list.
    pub fn show_dated(&self) -> String {
        format!("{}  {}", date(self.at), self.show())
    }
}

/// The words in which a command line differs from the one before it.
pub fn compare(before: &[&str], now: &[&str]) -> Vec<String> {
    let mut gone: Vec<_> = before.to_vec();
    let mut new = Vec::new();
    for word in now {
        match gone.iter().position(|other| other == word) {
            Some(at) => drop(gone.remove(at)),
            None => new.push(*word),
        }
    }
    let mut words = Vec::new();
    for word in new {
        let is_akin = |other: &&str| begin(other) == begin(word);
        match gone.iter().position(is_akin) {
            Some(at) => words.push(format!("its argument is {word}, was {}", gone.remove(at))),
            None => words.push(format!("its argument {word} is new")),
        }
    }
    words.extend(gone.iter().map(|word| format!("its argument {word} is gone")));
    if words.is_empty() && before != now {
        words.push("its arguments are in another order".to_owned());
    }
    words
}

/// Words with the same first two letters count as the same option with another value.
fn begin(word: &str) -> &str {
    let end = word.char_indices().nth(2).map_or(word.len(), |(at, _)| at);
    &word[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Explanation {
        Explanation {
            output: "/p/x.o".to_owned(),
            at: 951_827_696,
            known: Known::Miss,
            why: vec!["f.h has changed".to_owned(), "LANG is 'C', was not set".to_owned()],
            more: 3,
            unstored: Some(Unkept::new(UnstoredReason::InputsChanged, "a.c changed while it ran")),
            folder: "/p".to_owned(),
            argv: vec!["gcc".to_owned(), "-c".to_owned()],
            key: "ab".to_owned(),
        }
    }

    #[test]
    fn people_see_the_first_reason_first() {
        let expected =
            "/p/x.o: miss: f.h has changed; not stored: a.c changed while it ran\n  LANG is 'C', was not set\n  and 3 more\n";
        assert_eq!(some().show(), expected);
        assert_eq!(some().show_dated(), format!("2000-02-29 12:34 UTC  {expected}"));
    }

    #[test]
    fn json_is_read_as_it_was_written() {
        assert_eq!(Explanation::from_json(&some().json()), Ok(some()));
        assert_eq!(some().json()["came_too_early"], true);
        assert!(Explanation::from_json(&json!({"output": "/p/x.o"})).is_err());
        for (name, value) in [("known", "perhaps"), ("not_stored_as", "no reason of ours")] {
            let mut strange = some().json();
            strange[name] = value.into();
            assert!(Explanation::from_json(&strange).is_err(), "{name}");
        }
    }

    #[test]
    fn a_brief_one_has_the_beginning_of_a_long_command_line() {
        let argv: Vec<_> = (0..99).map(|n| format!("{n}{}", "é".repeat(999))).collect();
        let brief = Explanation { argv, ..some() }.brief();
        assert_eq!(brief["argv"].as_array().map(Vec::len), Some(ARGUMENTS));
        assert_eq!(brief["argv"][9].as_str().map(|text| text.chars().count()), Some(BYTES));
        assert_eq!(brief["output"], "/p/x.o");
    }

    #[test]
    fn command_lines_are_compared_word_by_word() {
        for (before, now, expected) in [
            ("cc -O1 -c", "cc -O2 -c", &["its argument is -O2, was -O1"][..]),
            ("cc -c", "cc -c -g", &["its argument -g is new"]),
            ("cc -c -g -g", "cc -c -g", &["its argument -g is gone"]),
            ("cc -a -b", "cc -b -a", &["its arguments are in another order"]),
            (
                "cc -DA=1 x",
                "cc -DA=2 -é",
                &[
                    "its argument is -DA=2, was -DA=1",
                    "its argument -é is new",
                    "its argument x is gone",
                ],
            ),
            ("cc", "cc", &[]),
        ] {
            let [before, now] = [before, now].map(|line| line.split(' ').collect::<Vec<_>>());
            assert_eq!(compare(&before, &now), expected);
        }
    }
}
