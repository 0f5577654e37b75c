//! The numbers of the last minutes, for pages that are opened later.

use std::collections::VecDeque;

use serde_json::{json, Value};

use crate::report::statistics::Statistics;

/// Five minutes, with two samples a second.
const MOST: usize = 600;
/// The columns of a sample.
pub const COLUMNS: [&str; 7] = ["at", "running", "slots", "waiting", "hits", "misses", "memory_kib"];

#[derive(Default)]
pub struct History(VecDeque<Value>);

impl History {
    pub fn add(&mut self, sample: Value) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    pub fn json(&self) -> Value {
        json!({"kind": "past", "columns": COLUMNS, "samples": self.0})
    }
}

/// A sample of a report, at a time in milliseconds since 1970. Null stands for unknown numbers.
pub fn sample(at: u64, report: &Value) -> Value {
    let slots = &report["slots"];
    let statistics = Statistics::from_json(&report["cache"]["statistics"]).ok();
    let hits = statistics.as_ref().map(|all| all.hits);
    let misses = statistics.as_ref().map(|all| all.misses.values().sum::<u64>());
    let [running, capacity, waiting] = ["running", "capacity", "waiting"].map(|name| &slots[name]);
    json!([at, running, capacity, waiting, hits, misses, report["memory_kib"]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_known_numbers() {
        let statistics = Statistics {
            hits: 7,
            misses: [("a", 2), ("b", 3)].map(|(why, n)| (why.to_owned(), n)).into(),
            ..Statistics::default()
        };
        let report = json!({
            "slots": {"running": 1, "capacity": 4, "waiting": 9}, "memory_kib": 88,
            "cache": {"statistics": statistics.json()},
        });
        assert_eq!(sample(5, &report), json!([5, 1, 4, 9, 7, 5, 88]));
        let nothing = sample(5, &Value::Null);
        assert_eq!(nothing, json!([5, null, null, null, null, null, null]));
        assert_eq!(nothing.as_array().map(Vec::len), Some(COLUMNS.len()));
    }

    #[test]
    fn old_samples_are_dropped() {
        let mut history = History::default();
        (0..MOST + 3).for_each(|at| history.add(json!(at)));
        let samples = &history.json()["samples"];
        assert_eq!(samples.as_array().map(Vec::len), Some(MOST));
        assert_eq!(samples[0], 3);
    }
}
