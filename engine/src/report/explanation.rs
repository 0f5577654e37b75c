//! What became of a request for an output, and why: as JSON for programs, on disk and between processes, and as text.
//!
//! Pure: who remembers requests, and for how long, is the engine's matter.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::statistics::{date, printable};

/// More is only counted.
pub const MOST_REASONS: usize = 10;
/// Of a command line, what is told beside others.
const ARGUMENTS: usize = 32;
const BYTES: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Absolute.
    pub output: String,
    /// Seconds since 1970.
    pub at: u64,
    /// `hit`, `miss` or `uncached`.
    pub known: String,
    /// What has changed, or why it was not asked for: the most important first.
    pub why: Vec<String>,
    /// So many reasons more.
    pub more: u64,
    /// Why nothing was stored of a miss.
    #[serde(rename = "not_stored")]
    pub unstored: Option<String>,
    /// That was since an input had changed while it ran, or right before. Earlier engines did not tell.
    #[serde(default)]
    pub came_too_early: bool,
    pub folder: String,
    /// The command line; empty if it was too long to be kept.
    pub argv: Vec<String>,
    /// What entries of this command are found by.
    pub key: String,
}

impl Explanation {
    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The same as one of several, with the beginning of its command line.
    pub fn brief(&self) -> Value {
        let begin = |text: &String| text.chars().take(BYTES).collect::<String>();
        let mut brief = self.json();
        brief["argv"] = self.argv.iter().take(ARGUMENTS).map(begin).collect();
        brief["why"] = self.why.iter().map(begin).collect();
        brief
    }

    pub fn from_json(value: &Value) -> Result<Explanation, String> {
        Explanation::deserialize(value).map_err(|error| error.to_string())
    }

    /// One line, and one more for each further reason.
    pub fn show(&self) -> String {
        let mut text = format!("{}: {}", printable(&self.output), self.known);
        let mut why = self.why.iter().map(|why| printable(why));
        if let Some(first) = why.next() {
            let _ = write!(text, ": {first}");
        }
        if let Some(unstored) = &self.unstored {
            let _ = write!(text, "; not stored: {}", printable(unstored));
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

    /// The same with the time, as one of several.
    pub fn show_dated(&self) -> String {
        format!("{}  {}", date(self.at), self.show())
    }
}

/// In which words a command line differs from the one before it.
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

/// Arguments that begin alike say the same thing differently.
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
            known: "miss".to_owned(),
            why: vec!["f.h has changed".to_owned(), "LANG is 'C', was not set".to_owned()],
            more: 3,
            unstored: Some("it failed".to_owned()),
            came_too_early: true,
            folder: "/p".to_owned(),
            argv: vec!["gcc".to_owned(), "-c".to_owned()],
            key: "ab".to_owned(),
        }
    }

    #[test]
    fn people_see_the_first_reason_first() {
        let expected =
            "/p/x.o: miss: f.h has changed; not stored: it failed\n  LANG is 'C', was not set\n  and 3 more\n";
        assert_eq!(some().show(), expected);
        assert_eq!(some().show_dated(), format!("2000-02-29 12:34 UTC  {expected}"));
    }

    #[test]
    fn programs_get_back_what_was_told() {
        assert_eq!(Explanation::from_json(&some().json()), Ok(some()));
        assert!(Explanation::from_json(&serde_json::json!({"output": "/p/x.o"})).is_err());
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
