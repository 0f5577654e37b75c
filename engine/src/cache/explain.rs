//! Why a request hit or missed, for the journal.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::action::Action;
use super::answer::{Question, Ticket, NEW};
use super::digest::Digest;
use super::fact::Change;
use super::journal::plain;
use super::outputs::Role;
use super::wish::now;
use super::Cache;
use crate::wafcc::explanation::{compare, Explanation, MOST_REASONS};

/// A command line that is longer is not kept.
const LONGEST: usize = 8 << 10;
/// Of a key, as many digits as tell it from all others of one output.
const DIGITS: usize = 32;

/// All that is to be said of one miss: the most important first, without what only repeats it.
#[derive(Default)]
pub struct Reasons {
    words: Vec<String>,
    more: u64,
}

impl Reasons {
    pub fn one(words: impl Into<String>) -> Reasons {
        let words = vec![words.into()];
        Reasons { words, more: 0 }
    }

    /// What has changed since an entry was stored.
    pub fn of(changes: Vec<Change>) -> Reasons {
        let mut reasons = Reasons::default();
        changes.iter().for_each(|change| reasons.add(change.to_string()));
        reasons
    }

    pub(super) fn add(&mut self, words: String) {
        match self.words.len() {
            _ if self.words.contains(&words) => {}
            MOST_REASONS.. => self.more += 1,
            _ => self.words.push(words),
        }
    }
}

impl Cache {
    /// What is told of a request in any case; `None` if it has no output.
    fn begin_explanation(&self, question: &Question, action: &Action, key: &Digest) -> Option<Explanation> {
        let mut outputs = action.knows.outputs.iter();
        let main = outputs.find(|output| output.role == Role::Main)?;
        Some(explain(question, key, &main.path))
    }

    pub(super) fn note_hit(&self, question: &Question, action: &Action, key: &Digest) {
        if let Some(explanation) = self.begin_explanation(question, action, key) {
            self.journal.note(of_hit(explanation, question));
        }
    }

    /// Of an output that only what the command did has told.
    pub(super) fn note_hit_of(&self, question: &Question, action: &Action, path: &[u8]) {
        self.journal
            .note(of_hit(explain(question, &action.key, path), question));
    }

    pub(super) fn note_uncached(&self, question: &Question, action: &Action, key: &Digest, words: &str) {
        if let Some(mut explanation) = self.begin_explanation(question, action, key) {
            explanation.known = "uncached".to_owned();
            explanation.why = vec![words.to_owned()];
            let searched = question.searched.iter();
            explanation
                .why
                .extend(searched.flat_map(|searched| searched.words().iter().cloned()));
            self.journal.note(explanation);
        }
    }

    pub(super) fn note_miss(&self, ticket: &Ticket, unstored: Option<&str>) {
        if let Some(explanation) = self.begin_explanation(&ticket.question, &ticket.action, &ticket.key) {
            self.journal.note(of_miss(explanation, ticket, unstored));
        }
    }

    /// Of an output that only what the command did has told.
    pub(super) fn note_miss_of(&self, ticket: &Ticket, path: &[u8], unstored: Option<&str>) {
        let explanation = explain(&ticket.question, &ticket.key, path);
        self.journal.note(of_miss(explanation, ticket, unstored));
    }

    /// Of a command that is new: in what it differs from the last one for its output.
    pub(super) fn with_command_line(
        &self,
        mut reasons: Reasons,
        question: &Question,
        action: &Action,
        key: &Digest,
    ) -> Reasons {
        if reasons.words != [NEW] {
            return reasons;
        }
        let Some(now) = self.begin_explanation(question, action, key) else {
            return reasons;
        };
        let Some(before) = self.journal.look_up(&now.output) else {
            return reasons;
        };
        if before.key == now.key {
            let was_stored = before.known == "hit" || before.known == "miss" && before.unstored.is_none();
            if was_stored {
                reasons.add("its entry is not in the store any more".to_owned());
            }
            return reasons;
        }
        let [old, new] = [&before.argv, &now.argv].map(|argv| argv.iter().map(String::as_str).collect::<Vec<_>>());
        let is_known = !old.is_empty() && !new.is_empty();
        let words = if is_known { compare(&old, &new) } else { Vec::new() };
        match words.is_empty() {
            true => reasons.add(alike(is_known).to_owned()),
            false => words.into_iter().for_each(|words| reasons.add(words)),
        }
        if before.folder != now.folder {
            reasons.add(format!("it runs in {}, ran in {}", now.folder, before.folder));
        }
        reasons
    }
}

fn explain(question: &Question, key: &Digest, path: &[u8]) -> Explanation {
    let path = PathBuf::from(OsStr::from_bytes(&question.folder)).join(OsStr::from_bytes(path));
    let argv = match question.argv.bytes().len() {
        0..=LONGEST => question.argv.iter().map(lossy).collect(),
        _ => Vec::new(),
    };
    Explanation {
        output: plain(&path),
        at: now(),
        folder: lossy(&question.folder),
        argv,
        key: key.to_string()[..DIGITS].to_owned(),
        ..Explanation::default()
    }
}

fn of_hit(explanation: Explanation, question: &Question) -> Explanation {
    let mut why = vec!["all that it depends on is as it was".to_owned()];
    let searched = question.searched.iter();
    why.extend(searched.flat_map(|searched| searched.words().iter().cloned()));
    Explanation {
        known: "hit".to_owned(),
        why,
        ..explanation
    }
}

fn of_miss(explanation: Explanation, ticket: &Ticket, unstored: Option<&str>) -> Explanation {
    Explanation {
        known: "miss".to_owned(),
        why: ticket.reasons.words.clone(),
        more: ticket.reasons.more,
        unstored: unstored.map(str::to_owned),
        ..explanation
    }
}

/// What is left where no argument differs.
fn alike(is_known: bool) -> &'static str {
    match is_known {
        true => "its program, a response file or the namespace is another than the last time",
        false => "its command line is another than the last time",
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
