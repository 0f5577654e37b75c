//! Statistics of shared stores: their hits, errors and uploads, and the state of each.

use serde::{Deserialize, Serialize};

use super::statistics::{printable, sum, Reasons, Table};
use crate::bytes::quantity::show_size;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// Hits that were not in the local store.
    pub hits: u64,
    pub misses: u64,
    /// Errors, by what went wrong and where.
    pub errors: Reasons,
    /// Entries that were not accepted, by reason.
    pub refused: Reasons,
    pub uploads: u64,
    /// Results that were not uploaded, by reason.
    #[serde(rename = "uploads_dropped")]
    pub dropped: Reasons,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Commands that ran on a cluster.
    pub executed: u64,
    /// Those that ran here, though they had waited for a slot, by reason.
    pub not_executed: Reasons,
    /// The stores, in the order in which they are asked.
    pub tiers: Vec<Tier>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Its address.
    pub name: String,
    /// False while it is left alone after an error.
    #[serde(rename = "asked")]
    pub is_asked: bool,
    /// Its state, in words.
    pub state: String,
}

impl Remote {
    /// Whether any shared store is in use.
    pub fn is_of_use(&self) -> bool {
        *self != Remote::default()
    }

    /// All in one line.
    pub fn describe(&self) -> String {
        let (errors, dropped) = (sum(&self.errors), sum(&self.dropped));
        let tiers: String = self
            .tiers
            .iter()
            .map(|tier| format!("; {} {}", tier.name, tier.state))
            .collect();
        let (hits, misses, uploads) = (self.hits, self.misses, self.uploads);
        let there = match self.executed {
            0 => String::new(),
            executed => format!(", {executed} run there"),
        };
        printable(&format!(
            "{hits} hits, {misses} misses{there}, {errors} errors, {uploads} uploads ({dropped} dropped){tiers}"
        ))
    }

    pub(super) fn show(&self, table: &mut Table, is_verbose: bool) {
        let asked = self.hits.saturating_add(self.misses);
        let (errors, refused, dropped) = (sum(&self.errors), sum(&self.refused), sum(&self.dropped));
        table.share("Remote hits:", self.hits, asked);
        table.count("  Errors:", errors);
        table.reasons(is_verbose.then_some(&self.errors), errors);
        if refused > 0 {
            table.count("  Refused:", refused);
            table.reasons(is_verbose.then_some(&self.refused), refused);
        }
        table.count("  Uploads:", self.uploads);
        table.count("  Uploads dropped:", dropped);
        table.reasons(is_verbose.then_some(&self.dropped), dropped);
        let (bytes_in, bytes_out) = (show_size(self.bytes_in), show_size(self.bytes_out));
        table.line("  Bytes:", &format!("{bytes_in} in, {bytes_out} out"));
        let stayed = sum(&self.not_executed);
        if self.executed + stayed > 0 {
            table.count("  Run there:", self.executed);
            table.count("  Run here:", stayed);
            table.reasons(is_verbose.then_some(&self.not_executed), stayed);
        }
        for Tier { name, state, .. } in &self.tiers {
            table.line("  Store:", &printable(&format!("{name}: {state}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Remote {
        let counted = |name: &str| Reasons::from([(name.to_owned(), 2)]);
        Remote {
            hits: 3,
            misses: 1,
            refused: counted("not signed"),
            errors: counted("redis://h:6379: it did not answer within 200 ms"),
            uploads: 5,
            dropped: counted("too large"),
            bytes_in: 1500,
            bytes_out: 7,
            executed: 4,
            not_executed: counted("it takes too little time"),
            tiers: vec![Tier {
                name: "redis://h:6379".to_owned(),
                is_asked: true,
                state: "is asked".to_owned(),
            }],
        }
    }

    #[test]
    fn json_is_read_as_it_was_written() {
        let told = serde_json::to_value(some()).unwrap();
        assert_eq!(Remote::deserialize(&told).ok(), Some(some()));
        assert!(Remote::deserialize(serde_json::Value::Null).is_err());
        assert!(some().is_of_use() && !Remote::default().is_of_use());
    }

    #[test]
    fn people_see_how_each_store_does() {
        let mut table = Table::default();
        some().show(&mut table, true);
        assert!(
            table.0.contains("75.00%") && table.0.contains("1.5 kB in, 7 B out"),
            "{}",
            table.0
        );
        let expected = "3 hits, 1 misses, 4 run there, 2 errors, 5 uploads (2 dropped); redis://h:6379 is asked";
        assert_eq!(some().describe(), expected);
        assert!(table.0.contains("redis://h:6379: is asked") && table.0.contains("too large"));
        assert!(
            table.0.contains("Run there:") && table.0.contains("it takes too little time"),
            "{}",
            table.0
        );
        assert!(table.0.contains("Refused:") && table.0.contains("not signed"));
    }
}
