//! What is counted, and how it is told: as Prometheus reads it, and as JSON.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{json, Value};

use super::upload::Dock;
use super::value_store::ValueStore;
use crate::cache::store::Share;

/// What a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Hit,
    Miss,
    Stored,
    NotStored,
    Other,
}

const OUTCOMES: [(Outcome, &str); 5] = [
    (Outcome::Hit, "hit"),
    (Outcome::Miss, "miss"),
    (Outcome::Stored, "stored"),
    (Outcome::NotStored, "not_stored"),
    (Outcome::Other, "other"),
];

/// Which language a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Room,
    Http,
    Redis,
}

const LANGUAGES: [(Language, &str); 3] = [
    (Language::Room, "room"),
    (Language::Http, "http"),
    (Language::Redis, "redis"),
];

/// Why a connection was ended, or a peer turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    Token,
    Malformed,
    Slow,
    Crowded,
    Memory,
    Revoked,
    Fault,
    /// A request by a name that is not ours, or of a page that is not.
    Elsewhere,
}

const TURNED: [(Turned, &str); 8] = [
    (Turned::Token, "token"),
    (Turned::Malformed, "malformed"),
    (Turned::Slow, "slow"),
    (Turned::Crowded, "crowded"),
    (Turned::Memory, "memory"),
    (Turned::Revoked, "revoked"),
    (Turned::Fault, "fault"),
    (Turned::Elsewhere, "elsewhere"),
];

/// What was done in one namespace.
#[derive(Debug, Default)]
pub struct Doings {
    outcomes: [AtomicU64; OUTCOMES.len()],
    pub bytes_out: AtomicU64,
    pub bytes_in: AtomicU64,
}

impl Doings {
    pub fn count(&self, outcome: Outcome) {
        add(&self.outcomes[outcome as usize], 1);
    }
}

pub struct Metrics {
    started: Instant,
    pub arrived: AtomicU64,
    pub open: AtomicU64,
    pub received: AtomicU64,
    pub sent: AtomicU64,
    requests: [[AtomicU64; OUTCOMES.len()]; LANGUAGES.len()],
    turned: [AtomicU64; TURNED.len()],
    namespaces: Mutex<BTreeMap<String, Arc<Doings>>>,
}

pub fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            started: Instant::now(),
            arrived: AtomicU64::new(0),
            open: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            requests: Default::default(),
            turned: Default::default(),
            namespaces: Mutex::default(),
        }
    }
}

/// One number: its name, what it is, whether it only grows, and its values by labels.
struct Family {
    name: &'static str,
    help: &'static str,
    grows: bool,
    values: Vec<(String, u64)>,
}

impl Metrics {
    pub fn count(&self, language: Language, outcome: Outcome) {
        add(&self.requests[language as usize][outcome as usize], 1);
    }

    pub fn turn(&self, why: Turned) {
        add(&self.turned[why as usize], 1);
    }

    /// What is done in a namespace is counted there.
    pub fn namespace(&self, name: &str) -> Arc<Doings> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        namespaces.entry(name.to_owned()).or_default().clone()
    }

    fn namespaces(&self) -> BTreeMap<String, Arc<Doings>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn families(&self, values: &ValueStore, dock: &Dock) -> Vec<Family> {
        let usage = values.store.glance();
        let family = |name, help, grows, values| Family {
            name,
            help,
            grows,
            values,
        };
        let counter = |name, help, value| family(name, help, true, vec![(String::new(), value)]);
        let gauge = |name, help, value| family(name, help, false, vec![(String::new(), value)]);
        let namespaces = self.namespaces();
        let by_namespace = |value: &dyn Fn(&Doings) -> u64| {
            let label = |name: &String| format!("namespace=\"{}\"", escape(name));
            namespaces
                .iter()
                .map(|(name, doings)| (label(name), value(doings)))
                .collect()
        };
        vec![
            gauge(
                "uptime_seconds",
                "Since the server started.",
                self.started.elapsed().as_secs(),
            ),
            gauge("connections", "Connections that are open.", get(&self.open)),
            counter("connections_total", "Connections that came.", get(&self.arrived)),
            counter("received_bytes_total", "Bytes that came.", get(&self.received)),
            counter("sent_bytes_total", "Bytes that were sent.", get(&self.sent)),
            family(
                "requests_total",
                "Requests by language and outcome.",
                true,
                self.requests(),
            ),
            family("turned_away_total", "Peers that were turned away.", true, self.turned()),
            family(
                "namespace_requests_total",
                "Requests by namespace and outcome.",
                true,
                outcomes_of(&namespaces),
            ),
            family(
                "namespace_read_bytes_total",
                "Bytes of contents that were sent.",
                true,
                by_namespace(&|doings| get(&doings.bytes_out)),
            ),
            family(
                "namespace_written_bytes_total",
                "Bytes of contents that were stored.",
                true,
                by_namespace(&|doings| get(&doings.bytes_in)),
            ),
            counter(
                "memory_hits_total",
                "Contents that were in memory.",
                get(&values.hot.hits),
            ),
            counter(
                "memory_misses_total",
                "Contents that were not.",
                get(&values.hot.misses),
            ),
            gauge("memory_bytes", "Contents in memory.", values.hot.size() as u64),
            gauge(
                "uploads_free_bytes",
                "Memory that is left for what comes in.",
                dock.budget.left() as u64,
            ),
            family(
                "namespace_held_bytes",
                "What the disk holds for the entries of a namespace that has a quota.",
                false,
                quotas(values, |share| share.held),
            ),
            family(
                "namespace_quota_bytes",
                "What it may hold.",
                false,
                quotas(values, |share| share.most),
            ),
            gauge("store_entries", "Entries in the store.", usage.entries as u64),
            gauge("store_blobs", "Blobs in the store.", usage.blobs as u64),
            gauge("store_bytes", "What the disk holds for them.", usage.size),
            gauge("store_max_bytes", "What it may hold.", usage.max_size),
            counter("store_damaged_total", "Blobs that were found damaged.", usage.damaged),
        ]
    }

    fn requests(&self) -> Vec<(String, u64)> {
        let all = LANGUAGES
            .iter()
            .flat_map(|language| OUTCOMES.iter().map(move |outcome| (language, outcome)));
        let value = |((language, name), (outcome, told)): (&(Language, &str), &(Outcome, &str))| {
            let label = format!("language=\"{name}\",outcome=\"{told}\"");
            (label, get(&self.requests[*language as usize][*outcome as usize]))
        };
        all.map(value).collect()
    }

    fn turned(&self) -> Vec<(String, u64)> {
        let value = |(why, name): &(Turned, &str)| (format!("why=\"{name}\""), get(&self.turned[*why as usize]));
        TURNED.iter().map(value).collect()
    }

    /// In Prometheus' text format, version 0.0.4.
    pub fn text(&self, values: &ValueStore, dock: &Dock) -> String {
        let mut text = String::new();
        for family in self.families(values, dock) {
            let kind = if family.grows { "counter" } else { "gauge" };
            let name = format!("wafd_serve_{}", family.name);
            text += &format!("# HELP {name} {}\n# TYPE {name} {kind}\n", family.help);
            for (labels, value) in family.values {
                text += &match labels.is_empty() {
                    true => format!("{name} {value}\n"),
                    false => format!("{name}{{{labels}}} {value}\n"),
                };
            }
        }
        text
    }

    pub fn status(&self, values: &ValueStore, dock: &Dock) -> Value {
        let family = |family: Family| {
            let value = match &family.values[..] {
                [(label, value)] if label.is_empty() => json!(value),
                values => values
                    .iter()
                    .map(|(label, value)| (label.replace('"', ""), json!(value)))
                    .collect(),
            };
            (family.name.to_owned(), value)
        };
        self.families(values, dock).into_iter().map(family).collect()
    }
}

fn quotas(values: &ValueStore, value: impl Fn(&Share) -> u64) -> Vec<(String, u64)> {
    let label = |name: &String| format!("namespace=\"{}\"", escape(name));
    let quotas = values.quotas.iter();
    quotas
        .filter_map(|name| Some((label(name), value(&values.quota(name)?))))
        .collect()
}

fn outcomes_of(namespaces: &BTreeMap<String, Arc<Doings>>) -> Vec<(String, u64)> {
    let all = namespaces
        .iter()
        .flat_map(|found| OUTCOMES.iter().map(move |outcome| (found, outcome)));
    let value = |((name, doings), (outcome, told)): ((&String, &Arc<Doings>), &(Outcome, &str))| {
        let label = format!("namespace=\"{}\",outcome=\"{told}\"", escape(name));
        (label, get(&doings.outcomes[*outcome as usize]))
    };
    all.map(value).collect()
}

/// A label's value, as the format has it.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
