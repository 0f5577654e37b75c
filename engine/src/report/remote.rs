//! Statistics of shared stores: their hits, errors and uploads, and the state of each.

use std::collections::BTreeMap;

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
    /// The same by the address of the cluster. An engine of an older build does not tell.
    #[serde(default)]
    pub clusters: BTreeMap<String, Cluster>,
    /// The stores, in the order in which they are asked.
    pub tiers: Vec<Tier>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub executed: u64,
    pub not_executed: Reasons,
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
        for (address, cluster) in &self.clusters {
            let (executed, stayed) = (cluster.executed, sum(&cluster.not_executed));
            let told = printable(&format!("{address}: {executed} run there, {stayed} run here"));
            table.line("  Cluster:", &told);
            // Of a single one, all reasons are above.
            let are_told = is_verbose && self.clusters.len() > 1;
            table.reasons(are_told.then_some(&cluster.not_executed), stayed);
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
        let cluster = |executed: u64, stayed: u64| Cluster {
            executed,
            not_executed: Reasons::from([("it takes too little time".to_owned(), stayed)]),
        };
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
            clusters: BTreeMap::from([
                ("grpc://h:1/a".to_owned(), cluster(4, 1)),
                ("grpc://h:1/b".to_owned(), cluster(0, 1)),
            ]),
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
        for (line, count) in [
            ("  Cluster:              grpc://h:1/a: 4 run there, 1 run here\n", 1),
            ("  Cluster:              grpc://h:1/b: 0 run there, 1 run here\n", 1),
            ("it takes too little time", 3),
        ] {
            assert_eq!(table.0.matches(line).count(), count, "{}", table.0);
        }
    }

    #[test]
    fn the_reasons_of_a_single_cluster_are_told_once() {
        let mut one = some();
        one.clusters.pop_last();
        let mut table = Table::default();
        one.show(&mut table, true);
        assert_eq!(table.0.matches("it takes too little time").count(), 1, "{}", table.0);
        assert!(table.0.contains("grpc://h:1/a: 4 run there"), "{}", table.0);
    }
}
