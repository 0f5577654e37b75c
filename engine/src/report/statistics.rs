//! What the cache did, counted by reason. JSON for programs and a table for users.
//!
//! Pure. The engine counts and keeps the counts.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::remote::Remote;
use super::voided::{self, Voided};
use crate::bytes::quantity::show_size;
use crate::wire::Known;

/// Counts by reason.
pub type Reasons = BTreeMap<String, u64>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// When the counts began, in seconds since 1970.
    pub since: u64,
    pub hits: u64,
    /// Commands that could have been hits, by what was new or had changed.
    pub misses: Reasons,
    /// Commands that cannot be cached, by reason.
    pub uncached: Reasons,
    /// Misses whose result was not stored, by reason.
    #[serde(rename = "not_stored")]
    pub unstored: Reasons,
    /// How many of these commands belonged to configure tests: `hit`, `miss`, `uncached`. An engine
    /// that was started by an older build does not tell.
    #[serde(default)]
    pub configure: Reasons,
    /// Hits that were compiled again and compared.
    pub audited: u64,
    /// Audited hits whose result was different.
    pub different: u64,
    /// Hits that were to be compiled again and were not, by reason.
    #[serde(rename = "not_audited")]
    pub unaudited: Reasons,
    /// Headers that were read once for many compiles.
    #[serde(default)]
    pub preambles: Preambles,
    #[serde(default)]
    pub texts: Texts,
    #[serde(default)]
    pub proofs: Proofs,
    /// Hits that wait to be compiled again.
    pub audits_waiting: u64,
    /// Descriptions of the last differences.
    pub differences: Vec<String>,
    /// Folders of outputs of which nothing is cached, for one reason.
    #[serde(default)]
    pub voided: Vec<Voided>,
    pub entries: u64,
    pub bytes: u64,
    /// 0 means no limit.
    pub limit: u64,
    pub remote: Remote,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preambles {
    pub made: u64,
    /// Compiles that began after their headers.
    pub used: u64,
    /// The processor time that this saved, in microseconds.
    pub saved: u64,
    /// The processor time in which they were made and proved, in microseconds.
    #[serde(default)]
    pub spent: u64,
    /// Compiles after shared headers whose results were proved, and those that were not.
    #[serde(default)]
    pub proved: u64,
    #[serde(default)]
    pub unproved: u64,
    /// Sources that have none, by reason.
    pub refused: Reasons,
}

impl Preambles {
    fn is_of_use(&self) -> bool {
        self.made > 0 || self.used > 0 || !self.refused.is_empty()
    }

    fn show(&self, table: &mut Table, is_verbose: bool) {
        table.count("After their headers:", self.used);
        let saved = format!("{:>8.1} s", self.saved as f64 / 1e6);
        table.line("  Saved about:", &saved);
        table.count("  Preambles made:", self.made);
        let spent = format!("{:>8.1} s", self.spent as f64 / 1e6);
        table.line("  Spent on them:", &spent);
        if self.proved + self.unproved > 0 {
            table.count("  Shared, proved:", self.proved);
            table.count("  Never proved:", self.unproved);
        }
        let refused = sum(&self.refused);
        if is_verbose || refused > 0 {
            table.count("  Not made:", refused);
        }
        table.reasons(is_verbose.then_some(&self.refused), refused);
    }

    /// For `wafd status`.
    pub fn describe(&self) -> String {
        let (saved, spent) = (self.saved as f64 / 1e6, self.spent as f64 / 1e6);
        let (made, used, refused) = (self.made, self.used, sum(&self.refused));
        format!(
            "{used} compiles began after their headers, about {saved:.1} s saved; {made} made, {refused} not made, in \
             {spent:.1} s of processor time"
        )
    }
}

/// What comparing preprocessed texts has gained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texts {
    /// They are among the hits.
    pub hits: u64,
    /// The processor time that this saved, in microseconds.
    pub saved: u64,
    /// Compiles whose texts were kept, and those whose texts will be when the engine is idle.
    pub kept: u64,
    pub waiting: u64,
    /// The processor time of preprocessors in idle times, in microseconds.
    pub spent: u64,
}

impl Texts {
    fn show(&self, table: &mut Table) {
        table.count("    By their text:", self.hits);
        let saved = format!("{:>8.1} s", self.saved as f64 / 1e6);
        table.line("      Saved about:", &saved);
        table.count("      Texts kept:", self.kept);
        if self.waiting > 0 {
            table.count("      Still to do:", self.waiting);
        }
        let spent = format!("{:>8.1} s", self.spent as f64 / 1e6);
        table.line("      Spent on them:", &spent);
    }
}

/// Commands that asked for the time or for random numbers, and were run a second time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proofs {
    /// The second run has made the same, or something else.
    pub proved: u64,
    pub refuted: u64,
    /// It said nothing, or there was none.
    pub unproved: Reasons,
    /// They will be run when the engine is idle.
    pub waiting: u64,
    /// The processor time of second runs, in microseconds.
    pub spent: u64,
}

impl Proofs {
    fn show(&self, table: &mut Table, is_verbose: bool) {
        let unproved = sum(&self.unproved);
        table.count("Run a second time:", self.proved.saturating_add(self.refuted));
        table.count("  Made the same:", self.proved);
        if is_verbose || unproved > 0 {
            table.count("  Not compared:", unproved);
        }
        table.reasons(is_verbose.then_some(&self.unproved), unproved);
        if self.waiting > 0 {
            table.count("  Still to do:", self.waiting);
        }
        let spent = format!("{:>8.1} s", self.spent as f64 / 1e6);
        table.line("  Spent on them:", &spent);
    }
}

impl Statistics {
    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub fn from_json(value: &Value) -> Result<Statistics, String> {
        Statistics::deserialize(value).map_err(|error| error.to_string())
    }

    /// The table. With `is_verbose`, it has every reason.
    pub fn show(&self, is_verbose: bool) -> String {
        let (misses, uncached, unstored) = (sum(&self.misses), sum(&self.uncached), sum(&self.unstored));
        let cacheable = self.hits.saturating_add(misses);
        let all = cacheable.saturating_add(uncached);
        let reasons = |reasons| if is_verbose { Some(reasons) } else { None };
        let mut table = Table::default();
        table.share("Cacheable calls:", cacheable, all);
        table.share("  Hits:", self.hits, cacheable);
        if self.texts != Texts::default() {
            self.texts.show(&mut table);
        }
        table.share("  Misses:", misses, cacheable);
        table.reasons(reasons(&self.misses), misses);
        table.share("Uncacheable calls:", uncached, all);
        table.reasons(reasons(&self.uncached), uncached);
        if is_verbose || unstored > 0 {
            table.count("Not stored:", unstored);
            table.reasons(reasons(&self.unstored), unstored);
        }
        if !self.configure.is_empty() {
            table.line("Of configure tests:", &self.describe_configure());
        }
        if let Some(line) = voided::show(&self.voided) {
            table.line("Nothing cached in:", &line);
        }
        if self.proofs != Proofs::default() {
            self.proofs.show(&mut table, is_verbose);
        }
        if is_verbose || self.concerns_audits() {
            self.show_audits(&mut table, is_verbose);
        }
        if self.preambles.is_of_use() {
            self.preambles.show(&mut table, is_verbose);
        }
        if self.remote.is_of_use() {
            self.remote.show(&mut table, is_verbose);
        }
        table.line("Store:", &self.room());
        table.count("  Entries:", self.entries);
        table.line("Counted since:", &date(self.since));
        table.0
    }

    fn describe_configure(&self) -> String {
        let of = |known: Known| self.configure.get(known.name()).copied().unwrap_or(0);
        let (hits, misses, uncached) = (of(Known::Hit), of(Known::Miss), of(Known::Uncached));
        format!(
            "{:>8} calls: {hits} hits, {misses} misses, {uncached} uncacheable",
            sum(&self.configure)
        )
    }

    fn concerns_audits(&self) -> bool {
        self.audited > 0 || self.audits_waiting > 0 || !self.unaudited.is_empty()
    }

    fn show_audits(&self, table: &mut Table, is_verbose: bool) {
        let unaudited = sum(&self.unaudited);
        table.count("Audited hits:", self.audited);
        table.count("  Different:", self.different);
        if is_verbose || unaudited > 0 {
            table.count("  Not compared:", unaudited);
        }
        table.reasons(is_verbose.then_some(&self.unaudited), unaudited);
        if self.audits_waiting > 0 {
            table.count("  Still to do:", self.audits_waiting);
        }
    }

    /// The table for `--audit-report`.
    pub fn show_audit_report(&self) -> String {
        let mut table = Table::default();
        self.show_audits(&mut table, true);
        for words in &self.differences {
            table.line("  Different:", &printable(words));
        }
        table.0
    }

    pub fn describe_room(&self) -> String {
        format!("{} in {}", self.entries, self.room())
    }

    pub fn describe_requests(&self) -> String {
        let (misses, unstored, uncached) = (sum(&self.misses), sum(&self.unstored), sum(&self.uncached));
        let (hits, since) = (self.hits, date(self.since));
        format!("{hits} hits, {misses} misses ({unstored} not stored), {uncached} uncached since {since}")
    }

    pub fn describe_audits(&self) -> String {
        let (audited, different, waiting) = (self.audited, self.different, self.audits_waiting);
        let unaudited = sum(&self.unaudited);
        format!("{audited} compared, {different} different, {unaudited} not compared, {waiting} still to do")
    }

    fn room(&self) -> String {
        let bytes = show_size(self.bytes);
        match self.limit {
            0 => format!("{bytes}, no limit"),
            limit => format!("{bytes} of {} ({})", show_size(limit), percentage(self.bytes, limit)),
        }
    }
}

/// File names may contain anything. Control characters must not reach the terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

pub(super) fn sum(reasons: &Reasons) -> u64 {
    reasons.values().fold(0, |sum, n| sum.saturating_add(*n))
}

fn percentage(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.2}%", part as f64 * 100.0 / whole as f64),
    }
}

#[derive(Default)]
pub(super) struct Table(pub(super) String);

impl Table {
    pub(super) fn line(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.0, "{name:<24}{value}");
    }

    pub(super) fn count(&mut self, name: &str, n: u64) {
        self.line(name, &format!("{n:>8}"));
    }

    pub(super) fn share(&mut self, name: &str, part: u64, whole: u64) {
        let share = percentage(part, whole);
        self.line(name, &format!("{part:>8} / {whole:>8} ({share})"));
    }

    /// The most frequent reason comes first.
    pub(super) fn reasons(&mut self, reasons: Option<&Reasons>, whole: u64) {
        let mut all: Vec<_> = reasons.into_iter().flatten().collect();
        all.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        for (why, n) in all {
            let why = printable(why);
            let _ = writeln!(
                self.0,
                "{:24}{n:>8} {:>9}  {why}",
                "",
                format!("({})", percentage(*n, whole))
            );
        }
    }
}

/// Date and time in UTC, from seconds since 1970.
pub(super) fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last day. A period of 400 years began 719468 days before
    // 1970.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Statistics {
        let reasons = |pairs: &[(&str, u64)]| pairs.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect();
        Statistics {
            since: 951_827_696,
            hits: 150,
            misses: reasons(&[("a header appeared", 10), ("a file changed", 40)]),
            uncached: reasons(&[("links", 50)]),
            entries: 200,
            bytes: 1_250_000_000,
            limit: 5_000_000_000,
            ..Statistics::default()
        }
    }

    #[test]
    fn people_see_a_table() {
        let expected = "\
Cacheable calls:             200 /      250 (80.00%)
  Hits:                      150 /      200 (75.00%)
  Misses:                     50 /      200 (25.00%)
Uncacheable calls:            50 /      250 (20.00%)
Store:                  1.2 GB of 5.0 GB (25.00%)
  Entries:                   200
Counted since:          2000-02-29 12:34 UTC
";
        assert_eq!(some().show(false), expected);
    }

    #[test]
    fn a_verbose_table_has_all_reasons_the_most_frequent_first() {
        let expected = "\
Cacheable calls:             200 /      250 (80.00%)
  Hits:                      150 /      200 (75.00%)
  Misses:                     50 /      200 (25.00%)
                              40  (80.00%)  a file changed
                              10  (20.00%)  a header appeared
Uncacheable calls:            50 /      250 (20.00%)
                              50 (100.00%)  links
Not stored:                    0
Audited hits:                  0
  Different:                   0
  Not compared:                0
Store:                  1.2 GB of 5.0 GB (25.00%)
  Entries:                   200
Counted since:          2000-02-29 12:34 UTC
";
        assert_eq!(some().show(true), expected);
    }

    #[test]
    fn configure_tests_have_a_line() {
        let mut some = some();
        some.configure = [("hit".to_owned(), 7), ("uncached".to_owned(), 2)].into();
        let line = "\nOf configure tests:            9 calls: 7 hits, 0 misses, 2 uncacheable\n";
        assert!(some.show(false).contains(line), "{}", some.show(false));
    }

    #[test]
    fn a_report_of_audits_names_the_differences() {
        let mut some = some();
        (some.audited, some.different, some.audits_waiting) = (9, 1, 2);
        some.unaudited = [("it was interrupted".to_owned(), 3)].into();
        some.differences = vec!["a.o \u{1b}[31m: files".to_owned()];
        let expected = "\
Audited hits:                  9
  Different:                   1
  Not compared:                3
                               3 (100.00%)  it was interrupted
  Still to do:                 2
  Different:            a.o [31m: files
";
        assert_eq!(some.show_audit_report(), expected);
        let text = some.show(false);
        assert!(
            text.contains("  Not compared:                3\n  Still to do:"),
            "{text}"
        );
    }

    #[test]
    fn an_empty_cache_divides_nothing_by_nothing() {
        let text = Statistics::default().show(true);
        assert!(text.contains("0 /        0 (-)"), "{text}");
        assert!(text.contains("0 B, no limit"), "{text}");
    }

    #[test]
    fn json_is_read_as_it_was_written() {
        let some = some();
        assert_eq!(Statistics::from_json(&some.json()), Ok(some.clone()));
        for field in some.json().as_object().unwrap().keys() {
            let mut broken = some.json();
            broken[field] = "many".into();
            assert!(Statistics::from_json(&broken).is_err(), "{field}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (1_709_164_800, "2024-02-29 00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
