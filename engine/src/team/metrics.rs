//! Counters of the server, as text for Prometheus and as JSON.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{json, Value};

use super::upload::Uploads;
use super::value_store::ValueStore;
use crate::cache::store::Share;

/// The result of a request.
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

/// The protocol of a peer.
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

/// Why a request or a connection was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    Token,
    Malformed,
    Slow,
    Crowded,
    Memory,
    Revoked,
    Fault,
    /// The request was for another host, or came from a page of another site.
    Elsewhere,
}

const REJECTIONS: [(Rejection, &str); 8] = [
    (Rejection::Token, "token"),
    (Rejection::Malformed, "malformed"),
    (Rejection::Slow, "slow"),
    (Rejection::Crowded, "crowded"),
    (Rejection::Memory, "memory"),
    (Rejection::Revoked, "revoked"),
    (Rejection::Fault, "fault"),
    (Rejection::Elsewhere, "elsewhere"),
];

/// The counters of one namespace.
#[derive(Debug, Default)]
pub struct NamespaceCounts {
    outcomes: [AtomicU64; OUTCOMES.len()],
    pub bytes_out: AtomicU64,
    pub bytes_in: AtomicU64,
}

impl NamespaceCounts {
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
    rejections: [AtomicU64; REJECTIONS.len()],
    namespaces: Mutex<BTreeMap<String, Arc<NamespaceCounts>>>,
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
            rejections: Default::default(),
            namespaces: Mutex::default(),
        }
    }
}

/// The values of a metric, each with its labels.
type Values = Vec<(String, u64)>;

struct Family {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    values: Values,
}

impl Metrics {
    pub fn count(&self, language: Language, outcome: Outcome) {
        add(&self.requests[language as usize][outcome as usize], 1);
    }

    pub fn count_rejection(&self, why: Rejection) {
        add(&self.rejections[why as usize], 1);
    }

    /// The counters of a namespace.
    pub fn namespace(&self, name: &str) -> Arc<NamespaceCounts> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        namespaces.entry(name.to_owned()).or_default().clone()
    }

    fn namespaces(&self) -> BTreeMap<String, Arc<NamespaceCounts>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn families(&self, values: &ValueStore, uploads: &Uploads) -> Vec<Family> {
        let uptime = self.started.elapsed().as_secs();
        let usage = values.store.glance();
        let family = |is_counter, name, help, values| Family {
            name,
            help,
            is_counter,
            values,
        };
        let counters = |name, help, values| family(true, name, help, values);
        let gauges = |name, help, values| family(false, name, help, values);
        let counter = |name, help, value| counters(name, help, vec![(String::new(), value)]);
        let gauge = |name, help, value| gauges(name, help, vec![(String::new(), value)]);
        let namespaces = self.namespaces();
        let by_namespace = |value: fn(&NamespaceCounts) -> u64| -> Values {
            let namespaces = namespaces.iter();
            namespaces
                .map(|(name, counts)| (namespace_label(name), value(counts)))
                .collect()
        };
        vec![
            gauge("uptime_seconds", "Since the server started.", uptime),
            gauge("connections", "Connections that are open.", get(&self.open)),
            counter("connections_total", "Connections that came.", get(&self.arrived)),
            counter("received_bytes_total", "Bytes that came.", get(&self.received)),
            counter("sent_bytes_total", "Bytes that were sent.", get(&self.sent)),
            counters("requests_total", "Requests by language and outcome.", self.requests()),
            counters("turned_away_total", "Peers that were turned away.", self.rejections()),
            counters(
                "namespace_requests_total",
                "Requests by namespace and outcome.",
                outcomes_of(&namespaces),
            ),
            counters(
                "namespace_read_bytes_total",
                "Bytes of contents that were sent.",
                by_namespace(|counts| get(&counts.bytes_out)),
            ),
            counters(
                "namespace_written_bytes_total",
                "Bytes of contents that were stored.",
                by_namespace(|counts| get(&counts.bytes_in)),
            ),
            counter(
                "memory_hits_total",
                "Contents that were in memory.",
                get(&values.cache.hits),
            ),
            counter(
                "memory_misses_total",
                "Contents that were not.",
                get(&values.cache.misses),
            ),
            gauge("memory_bytes", "Contents in memory.", values.cache.size() as u64),
            gauge(
                "uploads_free_bytes",
                "Memory that is left for what comes in.",
                uploads.budget.left() as u64,
            ),
            gauges(
                "namespace_held_bytes",
                "What the disk holds for the entries of a namespace that has a quota.",
                quotas(values, |share| share.held),
            ),
            gauges(
                "namespace_quota_bytes",
                "What it may hold.",
                quotas(values, |share| share.most),
            ),
            gauge("store_entries", "Entries in the store.", usage.entries as u64),
            gauge("store_blobs", "Blobs in the store.", usage.blobs as u64),
            gauge("store_bytes", "What the disk holds for them.", usage.size),
            gauge("store_max_bytes", "What it may hold.", usage.max_size),
            counter("store_damaged_total", "Blobs that were found damaged.", usage.damaged),
        ]
    }

    fn requests(&self) -> Values {
        let by_outcome = |(language, name): &(Language, &str)| {
            outcomes(&format!("language=\"{name}\""), &self.requests[*language as usize])
        };
        LANGUAGES.iter().flat_map(by_outcome).collect()
    }

    fn rejections(&self) -> Values {
        let value = |(why, name): &(Rejection, &str)| (format!("why=\"{name}\""), get(&self.rejections[*why as usize]));
        REJECTIONS.iter().map(value).collect()
    }

    /// In Prometheus' text format, version 0.0.4.
    pub fn text(&self, values: &ValueStore, uploads: &Uploads) -> String {
        let mut text = String::new();
        for family in self.families(values, uploads) {
            let kind = if family.is_counter { "counter" } else { "gauge" };
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

    pub fn status(&self, values: &ValueStore, uploads: &Uploads) -> Value {
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
        self.families(values, uploads).into_iter().map(family).collect()
    }
}

fn quotas(values: &ValueStore, value: fn(&Share) -> u64) -> Values {
    let quotas = values.quotas.iter();
    quotas
        .filter_map(|name| Some((namespace_label(name), value(&values.quota(name)?))))
        .collect()
}

fn outcomes_of(namespaces: &BTreeMap<String, Arc<NamespaceCounts>>) -> Values {
    let namespaces = namespaces.iter();
    namespaces
        .flat_map(|(name, counts)| outcomes(&namespace_label(name), &counts.outcomes))
        .collect()
}

/// The count of each outcome, with this label beside that of the outcome.
fn outcomes(label: &str, counts: &[AtomicU64; OUTCOMES.len()]) -> Values {
    let value = |(outcome, name): &(Outcome, &str)| {
        let labels = format!("{label},outcome=\"{name}\"");
        (labels, get(&counts[*outcome as usize]))
    };
    OUTCOMES.iter().map(value).collect()
}

/// Escaped as the format demands.
fn namespace_label(name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("namespace=\"{name}\"")
}
